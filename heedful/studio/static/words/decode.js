/** The texts of the Decode page. */

export const text = {
  title: 'Decode',
  sees: 'A beam search as a tree, one column a step. A thick line is a likely token; dashed candidates were dropped.',
  whyText: 'Greedy search cannot take back a token. A beam keeps several prefixes, and the length penalty decides between short and long ones.',
  lecture: 'Beam search: keep the B best prefixes at every step.',
  nothing: (can) => `This model can ${can}: it searches for no text.`,
  stopping: 'Stopping',
  rules: [['heuristic', 'heuristic'], ['first_B', 'first B'], ['exact', 'exact']],
  step: 'Step',
  play: 'Play',
  pause: 'Pause',
  tree: 'Beam tree',
  node: (node, total, score) => `“${node.text}” ${node.fate}: total ${total}, score ${score}`,
  candidates: 'Candidates of this step',
  finished: 'Score against length',
  columns: {
    text: ['text'],
    length: ['length', 'tokens up to the end'],
    log_probability: ['log P', 'log softmax of the scores'],
    total: ['total', 'sum of the log-probabilities'],
    score: ['score', 'total / length penalty'],
    fate: ['fate', 'lives: extended next; ended: finished; beaten: others score higher; fell off: others are likelier; forbidden: by an option'],
  },
  part: (at) => (at ? `Greedy search and the beam part at step ${at.step}: greedy writes “${at.greedy}”, the beam “${at.beam}”.`
    : 'Greedy search and the beam write the same.'),
};
