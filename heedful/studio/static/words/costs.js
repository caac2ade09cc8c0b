export const text = {
  title: 'Costs',
  sees: 'What a batch costs in parameters, operations, memory and time. Change the sizes to plan another model.',
  why: 'Most operations grow with the length n. Those between queries and keys grow with n², and win from the crossover on.',
  lecture: 'Complexity: n²·d for self-attention, n·d² for the rest.',
  reset: 'Its own sizes',
  columns: ['Part', 'Parameters', 'FLOPs forward; n² hatched'],
  lines: ['share of n²', 'here', 'crossover'],
  machine: 'This machine',
  jobs: ['Measure its rates', 'Run a training step'],
  busy: 'Measuring…',
  tokens: 'tokens',
};
