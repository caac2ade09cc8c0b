/** The pages, in the order of the navigation, by their names there. CONTRIBUTING.md says what a page exports. */
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
