/** The texts of the Decode page. */

export const text = {
  title: 'Decode',
  sees: 'A beam search as a tree, one column a step. A thick line is a likely token; dashed candidates were dropped.',
  whyText: 'Greedy search cannot take back a token. A beam keeps several prefixes, and the length penalty decides between short and long ones.',
  lecture: 'Beam search: keep the B best prefixes at every step.',
  nothing: (can) => `This model can ${can}: it searches for no text.`,
  stopping: 'Stopping',
  rules: ['heuristic', 'first_B', 'exact'],
  step: 'Step',
  play: 'Play',
  pause: 'Pause',
  tree: 'Beam tree',
  node: (token, fate, total, score) => `“${token}” ${fate}. Total ${total}, score ${score}`,
  fates: {
    lives: 'lives on',
    ended: 'has ended, among the best',
    beaten: 'has ended, but others score higher',
    'fell off': 'fell off: others are likelier',
    forbidden: 'is forbidden by an option',
  },
  candidates: (step) => `Candidates of step ${step}`,
  finished: 'Finished hypotheses by length',
  columns: {
    text: 'text', length: 'tokens', log_probability: 'log P(token)', total: 'total', score: 'score', said: 'fate',
  },
  froms: {
    length: 'tokens up to the end',
    log_probability: 'log softmax of the scores',
    total: 'sum of the log-probabilities',
    score: 'total / length penalty',
  },
  agree: 'Greedy search and the beam write the same.',
  part: (step, greedy, beam) => `Greedy search and the beam part at step ${step}: greedy writes “${greedy}”, the beam “${beam}”.`,
};
