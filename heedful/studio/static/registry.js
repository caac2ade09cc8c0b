/**
 * The pages, in the order of the navigation. A page that has no line here does not exist yet.
 * To add one: write pages/NAME.js (its contract is in main.js), and add its line. Its name is in words.js.
 */

export const PAGES = {
  overview: () => import('./pages/overview.js'),
  step: () => import('./pages/step.js'),
  heads: () => import('./pages/heads.js'),
};

/** The page that opens first. */
export const FIRST = 'heads';
