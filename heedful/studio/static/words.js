/** The texts of the shell, and those that pages share; each page has its own in words/. */

export const words = {
  brand: 'heedful studio',
  kinds: { cross: 'cross-attention', self: 'self-attention', encoder: "the encoder's self-attention" },
  tabs: { cross: 'Cross', self: 'Self', encoder: 'Encoder' },
  attention: 'Attention',
  navigation: 'Pages',
  skip: 'Skip to the picture',
  input: 'Model and text',
  run: 'Model',
  text: 'Text',
  picture: 'Picture',
  chooseFile: 'Choose a file',
  target: 'Target',
  targetHint: "the model's own",
  edits: 'Edits',
  removeEdits: 'Remove the edits',
  trace: 'Run',
  example: 'No model was found here. These are the recorded numbers of the demo, for one text.',
  needsModel: 'The recorded example has no numbers for this page. Train the demo, or open a run.',
  trainDemo: 'Train the demo (about 4 minutes)',
  copyLink: 'Copy link',
  copied: 'Copied',
  exportAs: 'Export',
  png: 'PNG picture',
  svg: 'SVG picture',
  csv: 'CSV of the numbers',
  page: 'HTML, one file',
  showCode: 'Show code',
  copyCode: 'Copy',
  why: 'Why',
  close: 'Close',
  help: 'Help',
  theme: 'Light or dark',
  codeTitle: 'The Python that gives these numbers',
  noTable: 'There are no numbers here yet.',
  loading: 'Computing…',
  noAttention: (name) => `This ${name} has no attention, so there are no heads to show.`,
  loadingModel: 'Loading the model…',
  loadingPage: 'Opening…',
  noRuns: 'No model was found. Train one with `heedful demo`, or start `heedful studio RUN`.',
  failed: 'Something in the page failed',
  refused: 'The studio refused this request',
  unreachable: 'The studio does not answer. Check that `heedful studio` is still running, then reload.',
  notRecorded: 'This page was exported. It has the numbers of one view; open the studio to compute others.',
  differs: (x) => `the model's own numbers; differ from the fast path by at most ${x}`,
  seconds: (ms) => `computed in ${ms} ms`,
  traceIs: (id) => `trace ${id}`,
  parameters: (n) => `${n} parameters`,
  layer: 'layer',
  headName: (layer, head) => `layer ${layer}, head ${head}`,
  headOnly: (head) => `head ${head}`,
  allHeads: (n) => `all ${n} heads`,
  chart: 'Chart',
  curveKeys: 'Arrow keys read points; + zooms in, 0 shows all.',
  wholeCurve: 'Show all',
  keyboard: 'Use the arrow keys to read the cells.',
  patch: (word, name, weight) => `“${word}” attends to the patch ${name} with weight ${weight}`,
  sortBy: (name) => `Sort by ${name}`,
  all: (n) => `all ${n}`,
  first: (n) => `first ${n}`,
  keys: [
    ['/', 'go to the text'],
    ['j k', 'next and previous layer'],
    ['l h', 'next and previous head'],
    ['Space', 'next step (Step page)'],
    ['arrow keys', 'move in a map, a strip or a grid'],
    ['Enter', 'choose the cell'],
    ['Shift click', 'overlay another head (Heads page)'],
    ['+ - 0', 'zoom in, zoom out, show the whole map'],
    ['?', 'this help'],
    ['Esc', 'close'],
  ],
};

/** A number for people: three significant digits, a true minus sign. */
export function num(x, digits = 3) {
  if (!Number.isFinite(x)) return endless(x);
  if (x === 0) return '0';
  const size = Math.abs(x);
  if (size < 1e-3 || size >= 1e5) {
    return x.toExponential(Math.max(0, digits - 2)).replace(/e(.*)/, (_, power) => ` × 10${raised(power)}`).replace('-', '−');
  }
  const text = size >= 10 ** digits ? x.toFixed(0) : String(Number(x.toPrecision(digits)));
  return text.replace('-', '−');
}

function endless(x) {
  return { [Infinity]: '∞', [-Infinity]: '−∞' }[x] ?? '–';
}

function raised(power) {
  return [...power].map((sign) => (sign === '+' ? '' : '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'['-0123456789'.indexOf(sign)])).join('');
}

/** A number with a fixed count of decimals, so that a column lines up. */
export function fixed(x, decimals = 2) {
  if (!Number.isFinite(x)) return endless(x);
  const text = x.toFixed(decimals);
  return (Number(text) === 0 ? text.replace('-', '') : text).replace('-', '−');
}

/** A large count: 12,345 or 1.2 M. */
export function count(n) {
  if (n < 1e5) return Math.round(n).toLocaleString('en-US');
  const [size, unit] = [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']].find(([least]) => n >= least);
  return `${(n / size).toPrecision(3)} ${unit}`;
}

/** Where a number comes from: shown when a person points at it or focuses it. */
export function origin({ tensor, which, formula, ...at }) {
  const places = ['layer', 'head', 'row', 'column'].filter((name) => at[name]).map((name) => `${name} ${at[name]}`);
  return [tensor, words.kinds[which] ?? which, ...places].filter(Boolean).join(', ') + (formula ? `: ${formula}` : '');
}
