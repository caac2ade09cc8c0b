/**
 * The pages, in the order of the navigation. A page that has no line here does not exist yet.
 * To add one: write pages/NAME.js (its contract is in main.js), and add its line. Its name is in words.js.
 */

export const PAGES = {
  overview: () => import('./pages/overview.js'),
  write: () => import('./pages/write.js'),
  step: () => import('./pages/step.js'),
  heads: () => import('./pages/heads.js'),
  flow: () => import('./pages/flow.js'),
  search: () => import('./pages/search.js'),
  positions: () => import('./pages/positions.js'),
  tokenizer: () => import('./pages/tokenizer.js'),
  decode: () => import('./pages/decode.js'),
  training: () => import('./pages/training.js'),
  compare: () => import('./pages/compare.js'),
  ablate: () => import('./pages/ablate.js'),
  costs: () => import('./pages/costs.js'),
  lab: () => import('./pages/lab.js'),
};

/** The page that opens first. */
export const FIRST = 'heads';
