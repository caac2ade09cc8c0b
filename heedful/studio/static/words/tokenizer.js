export const text = {
  title: 'Tokenizer',
  sees: 'A text in the pieces that the model reads, with their numbers. ␣ is a space, and a part of a character shows its bytes.',
  why: 'A model sees numbers only. Frequent words have one of their own, and rare words are several pieces.',
  lecture: 'Subwords: a small vocabulary that can spell every word.',
  from: 'counts of this text; words stand between spaces',
  none: (name) => `This ${name} has no tokenizer, so there are no tokens to show.`,
  example: 'a red circle',
  other: 'Beside it',
  side: 'Target vocabulary',
  statistics: 'Held-out texts',
  step: 'Step',
};
