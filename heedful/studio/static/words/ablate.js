/** The texts of the Ablate page. */

export const text = {
  title: 'Ablate and patch',
  sees: 'What a model loses without some heads, and what it then writes. Patch: which vector of a clean text brings its output back.',
  why: {
    text: 'A head that attends clearly need not matter. Its importance is the rise of the loss without it, on the same texts.',
    lecture: 'Many heads can be removed after training with little loss (Michel et al. 2019).',
  },
  tabs: [['', 'Ablate'], ['patch', 'Patch']],
  by: 'Replace a head by',
  bys: [['', 'zeros'], ['mean', 'its mean']],
  measure: 'Measure all heads',
  names: ['with edits', 'without'],
  idle: 'Measure all heads; then choose some in the map or the table to remove them.',
  edits: 'Choose an edit to remove it.',
  edit: 'New edit',
  examples: (which, shell) => [`scale:${which}.1.*:2.0`, `uniform:${which}.1.*`, `force:${which}.1.1:2>1`, `drop:${shell}.1.feed_forward`,
    'mask:1', 'positions:none'],
  add: 'Add',
  corrupted: 'Corrupted text, of equal length',
  suggested: 'one word is replaced',
  shell: 'Vectors of the',
  patch: 'Patch every vector',
};
