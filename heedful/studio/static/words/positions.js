/** The texts of the Positions page. */

export const text = {
  title: 'Positions',
  sees: 'How the order of tokens enters the model: its table, its rotations, or its bias. Crossed positions lie beyond the training length.',
  whyText: 'Attention alone does not know the order of its input. Positions differ most in how they treat offsets and longer texts.',
  lecture: 'Sinusoids: an offset of k positions is a rotation of each pair of coordinates.',
  none: (name) => `This ${name} has no positions: order enters it in other ways, or not at all.`,
  scheme: 'Positions',
  table: 'Table',
  length: 'Length',
  offset: 'Offset',
  base: 'Base',
  say: (down, r, across, c, x) => `${down} ${r}, ${across} ${c}: ${x}`,
  product: (kind) => (kind === 'rotary' ? 'q·k of equal vectors, by offset' : 'Product of two positions, by offset'),
  names: ['mean', 'least', 'greatest'],
  bias: 'What each head adds to the score, by offset',
  turns: (k) => `An offset of ${k} turns each pair of coordinates`,
  columns: ['pair', 'frequency', 'angle', 'cosine', 'sine'],
  formulas: ['', 'base^(−2i / width)', 'offset · frequency', 'on the diagonal of the rotation', 'beside the diagonal, once negative'],
  error: 'Largest difference between turned positions and those of the model:',
  errorFrom: 'max |p(i + k) − R(k) p(i)|',
};
