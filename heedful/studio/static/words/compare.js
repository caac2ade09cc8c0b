/** The texts of the Compare page. */

export const text = {
  title: 'Compare',
  sees: 'Two models on the same texts: what they write, how probable they find each token, how their heads and layers differ, and which is better.',
  whyText: 'A difference of two means says little alone. Both models score the same texts, and drawing these texts again and again '
    + 'shows how far the difference would move.',
  lecture: 'Compare systems on the same sentences (paired bootstrap, Koehn 2004).',
  other: 'Second model',
  itself: 'the same, without edits',
  alone: 'Choose a second model, or add edits on the Ablate page.',
  which: 'Heads of',
  start: 'Compare',
  output: 'Output',
  first: (name, edits) => (edits ? `${name}, edited` : name),
  parts: {
    tokens: 'Log-probability of each token, first minus second',
    heads: 'How differently heads attend',
    layers: 'Likeness of the layers (linear CKA)',
    scores: 'Which model is better',
    settings: 'Settings that differ',
  },
  token: (a, b) => `${a} by the first, ${b} by the second (natural logarithm)`,
  head: (name, x) => `${name}: total variation distance ${x}, mean over the queries`,
  layer: (a, b, x) => `${a} of the first and ${b} of the second: CKA ${x}`,
  score: (one) => `Mean log-probability per token, first minus second: ${one}`,
  counts: (one) => `The first is better in ${one.wins} texts, equal in ${one.ties}, worse in ${one.losses}; p = `,
  drawn: (n) => `paired bootstrap, ${n} draws`,
  mean: 'mean over the tokens of the text',
  columns: { text: 'text', first: 'first', second: 'second', by: 'difference', name: 'setting' },
  same: 'none',
};
