export const text = {
  title: 'Overview',
  sees: 'The model as stacks of parts, from the tokens below to the output above. '
    + 'Point at a part for its parameters and its operations with a text of this length.',
  why: 'A Transformer is a stack of equal blocks around one residual stream. Most parameters are in the '
    + 'feed-forward layers and the embeddings; attention adds the cost that grows with the square of the length.',
  lecture: 'The architecture: embeddings, positions, blocks, and an output layer.',
  length: 'Tokens',
  source: 'Source tokens',
  model: 'model',
  total: (parameters, flops) => `${parameters} parameters, ${flops} FLOPs for this length`,
  from: (part, parameters, flops) => `${part.name}${part.detail ? ` (${part.detail})` : ''}: ${part.shapes ? `${part.shapes}; ` : ''}${parameters} parameters, ${flops} FLOPs`,
  norm: 'norm',
  wave: 'positions enter here',
  norms: { 'pre-norm': 'norm before each layer', 'post-norm': 'norm after each sum', sandwich: 'norm before and after each layer', parallel: 'attention and feed-forward side by side' },
  added: (name) => `${name} positions, added to the embeddings`,
  scored: (name) => `${name} positions, inside the attention`,
  masks: { Causal: 'causal mask: later tokens are hidden', Full: 'no mask: every token sees all' },
  checks: 'Checks',
  check: 'Check this model',
  checking: (n) => `${n} checks made…`,
  verdicts: { ok: 'passed', warn: 'worth knowing', fail: 'failed', 'not checked': 'not checked' },
  step: (layer) => `Step through it in layer ${layer}`,
};
