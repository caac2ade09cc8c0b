export const text = {
  title: 'Overview',
  sees: 'The model as stacks of parts, from the tokens below to the output above. Point at a part for its parameters, and its operations at this length.',
  why: 'A Transformer is a stack of equal blocks around one residual stream. Most parameters are in the '
    + 'feed-forward layers and the embeddings; attention adds the cost that grows with the square of the length.',
  lecture: 'The architecture: embeddings, positions, blocks, and an output layer.',
  length: 'Tokens',
  source: 'Source tokens',
  model: 'model',
  total: (parameters, flops) => `${parameters} parameters, ${flops} FLOPs for this length`,
  norm: 'norm',
  wave: 'positions enter here',
  checks: 'Checks',
  check: 'Check this model',
  checking: (n) => `${n} checks made…`,
  verdicts: { ok: 'passed', warn: 'worth knowing', fail: 'failed', 'not checked': 'not checked' },
  step: (layer) => `Step through it in layer ${layer}`,
};
