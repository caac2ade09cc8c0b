/** The texts of the Tokenizer page. */

export const text = {
  title: 'Tokenizer',
  sees: 'A text in the pieces that the model reads, with their numbers. ␣ is a space, and a part of a character shows its bytes.',
  whyText: 'A model sees numbers only. Frequent words have one of their own, and rare words are several pieces.',
  lecture: 'Subwords: a small vocabulary that can spell every word.',
  none: (name) => `This ${name} has no tokenizer, so there are no tokens to show.`,
  example: 'a red circle',
  other: 'Beside it',
  sides: [['', 'source'], ['1', 'target']],
  side: 'Vocabulary',
  statistics: 'Measure on held-out texts',
  from: ({ token, id, unknown }, bytes) => `token ${token}, number ${id}${unknown ? ', unknown' : ''}, bytes ${bytes}`,
  table: 'Measures',
  columns: { tokens: 'tokens', tokens_per_word: 'tokens / words', bytes_per_token: 'bytes / tokens', unknown_share: 'unknown / tokens' },
  back: '✓ The tokens give back the text.',
  differs: (at, a, b) => `✗ The tokens do not give back the text: at character ${at}, “${a}” became “${b}”.`,
  step: 'Step',
  nothing: 'This vocabulary holds whole words, so there is nothing to merge.',
  made: ({ rank, left, right, made }, score) => (rank ? `merge ${rank}: ${left} + ${right}` : `takes ${made}${score}`),
  score: (x) => `, log-probability ${x}`,
  rarest: (tokens) => `Rarest: ${tokens}`,
};
