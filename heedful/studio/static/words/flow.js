/** The texts of the Flow page. */

export const text = {
  title: 'Flow',
  sees: 'Lens: what every layer would predict, if it were the last; bold is the prediction of the model. Rollout: which tokens have reached which.',
  why: { text: 'Every layer adds to one residual stream, so the output head can read each of them.',
    lecture: 'The residual stream: each sublayer reads from it and adds to it.' },
  none: (name) => `This ${name} has no attention around a residual stream, so there is no flow to show.`,
  show: 'Show',
  shows: [['lens', 'lens', 'softmax(head(norm(stream)))'], ['rollout', 'rollout', 'product over the layers of (mean of the heads + identity) / 2']],
  layer: (n) => (n ? `layer ${n}` : 'embedding'),
  say: (read, layer, top, own, rank) => `After “${read}”, ${layer} would predict ${top}. “${own}” has rank ${rank}.`,
  ranks: 'rank',
  rank: (own) => `Rank of “${own}” by layer`,
  parts: 'Length of what each part adds',
  adds: (x) => `norm of the vector; it adds ${x} to the score of the prediction`,
  rollout: 'How much of each token has reached each position',
  rolled: (down, across, value) => `“${down}” has received ${value} of “${across}”`,
  rest: (value) => `; the rest of its row, ${value}, came from the target’s own tokens`,
};
