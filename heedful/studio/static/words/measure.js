/** The texts that Ablate, Compare and Search share. */

export const shared = {
  again: 'Measure again',
  stop: 'Stop',
  source: 'Texts',
  sources: [['', "the run's own, or built in"], ['data', 'of --data'], ['paste', 'pasted']],
  count: 'At most',
  paste: 'One text a line; a tab before a target',
  used: (n, kept) => `${n} of ${kept} lines are used. At most 256 are kept, 800 characters of each.`,
  step: (doing, done, total) => `${doing}, ${done} of ${total}`,
  output: 'Output',
  logP: (x) => `log-probability ${x}, natural logarithm`,
  probability: 'softmax of the logits',
};
