export const text = {
  title: 'Compare',
  sees: 'Two models on the same texts: what they write, how probable they find each token, how heads and layers differ, and which is better.',
  why: 'A difference of two means says little alone. Drawing the same texts again and again shows how far it would move.',
  lecture: 'Compare systems on the same sentences (paired bootstrap, Koehn 2004).',
  other: 'Second model',
  itself: 'the same, without edits',
  alone: 'Choose a second model (train one if there is none), or add edits on the Ablate page.',
  start: 'Compare',
  edited: (name) => `${name}, edited`,
};
