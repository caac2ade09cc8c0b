/** The texts of the Lab page. */

export const text = {
  title: 'Lab',
  sees: 'Claims about Transformers that were tried as experiments, each with its verdict.',
  whyText: 'A claim of a lecture is a prediction. An experiment with a rule that was fixed beforehand can support or contradict it.',
  lecture: 'Which statements about attention are exact, and which depend on the task?',
  none: 'Nothing has been recorded yet. `heedful lab` will run the experiments; their reports in the folder `lab` beside the runs appear here.',
  skipped: (n) => `Folders without a readable report: ${n}.`,
  from: (name) => `report.json and records.jsonl of lab/${name}`,
  facts: (date, trials) => `${date}, ${trials} trials`,
};
