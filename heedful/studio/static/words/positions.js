/** The texts of the Positions page. */

export const text = {
  title: 'Positions',
  sees: 'How the order of tokens enters the model. Positions with × lie beyond the training length.',
  why: { text: 'Attention alone does not know the order of its input. Schemes differ in how they treat offsets and longer texts.',
    lecture: 'Sinusoids: an offset of k positions is a rotation of each pair of coordinates.' },
  none: (name) => `This ${name} has no positions: order enters it in other ways, or not at all.`,
  scheme: 'Positions',
  table: 'Table',
  length: 'Length',
  offset: 'Offset',
  base: 'Base',
  say: (down, r, across, c, x) => `${down} ${r}, ${across} ${c}: ${x}`,
  turns: (k) => `An offset of ${k} turns each pair by [cos −sin; sin cos]`,
  columns: [['pair', 'i'], ['angle', 'offset · base^(−2i / width)'], ['cos', 'cos(angle)'], ['sin', 'sin(angle)']],
  error: 'Largest difference from the model:',
  errorFrom: 'max |p(i + k) − R(k) p(i)|',
};
