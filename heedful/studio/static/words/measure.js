/** The texts that Ablate, Compare and Search share. */

export const shared = {
  needsModel: 'Measuring needs a model. Train the demo, or start the studio with a run.',
  again: 'Measure again',
  stop: 'Stop',
  source: 'Texts',
  sources: (own) => [['', own ? "the run's held-out data" : 'built-in sentences'], ['data', 'the file of --data'], ['paste', 'pasted']],
  count: 'At most',
  paste: 'One text a line; a tab before its target',
  used: (n, all) => `${n} of ${all} lines are used; paste two or more.`,
  step: (doing, done, total) => `${doing}, ${done} of ${total}`,
  logP: (x) => `log-probability ${x}, natural logarithm`,
  probability: 'softmax of the logits',
  nothing: 'This model writes no text and predicts no label here.',
  interval: (low, high) => `95 % from ${low} to ${high}`,
};
