export const text = {
  title: 'Lab',
  sees: 'Claims about Transformers that were tried as experiments, each with its verdict.',
  why: 'A claim of a lecture is a prediction. An experiment whose rule was fixed beforehand supports or contradicts it.',
  lecture: 'Which statements about attention are exact, and which depend on the task?',
  none: 'Nothing has been recorded yet. Run `heedful lab all`: it writes its reports to the folder `lab` beside the runs.',
  skipped: (n) => `Folders without a readable report: ${n}.`,
  facts: (verdict, date, trials) => `Verdict: ${verdict}. ${date}, ${trials} trials.`,
};
