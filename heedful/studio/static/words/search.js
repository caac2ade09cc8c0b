/** The texts of the Search page. */

export const text = {
  title: 'Search',
  sees: 'Which heads follow a pattern over many texts: the share of their attention that does, beside the share with shuffled keys.',
  why: {
    text: 'One picture of one sentence can mislead. Over many texts a head shows whether it follows a pattern, and where it does not.',
    lecture: 'What does BERT look at? Some heads attend to fixed offsets, some to syntax (Clark et al. 2019).',
  },
  pattern: 'Attention goes',
  patterns: [['offset', 'to the token k places on'], ['first', 'to the first token'], ['same', 'to an earlier same token'],
    ['after-same', 'to the token after a same one'], ['words>marks', 'from words to marks'], ['marks>words', 'from marks to words'],
    ['words>words', 'from words to words'], ['gold', 'to the gold alignment'], ['parent', 'to the word it depends on'], ['child', 'to words that depend on it']],
  start: 'Search',
  table: 'Heads that follow the pattern',
  idle: 'Choose a pattern and start the search. Marks are punctuation and special tokens.',
  nowhere: 'The pattern does not occur in these texts.',
  on: (pattern, one) => `${pattern}, ${one.samples} texts (${one.source})`,
  from: 'share: mean weight that the queries give to the keys of the pattern',
  sides: { most: (head) => `where ${head} does it most`, least: () => 'where it does it least' },
};
