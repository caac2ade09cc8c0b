/**
 * The view as one object of strings in the address: #heads?run=5f3a&text=...&head=cross.3.2
 * `page` is the part before "?". Empty values are left out. Layers, heads, queries and cells are counted from 1.
 */
import { hooks } from './html.js';

/** What stays when a person goes to another page. */
const SHARED = ['run', 'text', 'target', 'edits', 'head', 'query'];

export function parse(hash) {
  const [page, ...rest] = hash.replace(/^#\/?/, '').split('?');
  return { ...Object.fromEntries(new URLSearchParams(rest.join('?'))), page };
}

export function format({ page, ...rest }) {
  const query = new URLSearchParams(Object.entries(rest).filter(([, value]) => ![undefined, null, ''].includes(value))).toString();
  return `#${page}${query && `?${query}`}`;
}

let current = parse(location.hash);
let tell = () => {}; // the shell draws itself again

addEventListener('hashchange', () => {
  current = parse(location.hash);
  tell(current);
});

export function now() {
  return current;
}

/** Change some values. `replace` leaves no entry in the history (for dragging and hovering). */
export function set(patch, replace = false) {
  open(format({ ...current, ...patch }), replace);
}

function open(hash, replace) {
  if (hash === format(current)) return;
  current = parse(hash);
  history[replace ? 'replaceState' : 'pushState'](null, '', hash);
  tell(current);
}

/** Go to another page with what pages share, and a patch. */
export function go(page, patch = {}) {
  open(format({ ...Object.fromEntries(SHARED.map((name) => [name, current[name]])), ...patch, page }));
}

/** The state; the shell is drawn again when it changes. */
export function useView() {
  const [state, setState] = hooks.useState(current);
  hooks.useEffect(() => {
    tell = setState;
    setState(current);
  }, []);
  return state;
}

/** "cross.3.2" as {which, layer, head}; null for anything else. */
export function headOf(spelling) {
  const found = /^(cross|self|encoder)\.(\d+)\.(\d+)$/.exec(spelling ?? '');
  return found && { which: found[1], layer: Number(found[2]), head: Number(found[3]) };
}

export function spell({ which, layer, head }) {
  return `${which}.${layer}.${head}`;
}

/** A list in one value, and back: edits, heads that are overlaid, labels. */
export function listOf(value, by = ',') {
  return value ? value.split(by) : [];
}

/** Such a list with or without one entry, as one value. */
export function flipped(list, one) {
  return (list.includes(one) ? list.filter((other) => other !== one) : [...list, one]).join();
}

/** A number of the state within bounds, or its default. */
export function intOf(value, low, high, otherwise) {
  const number = Number.parseInt(value ?? '', 10);
  return Number.isFinite(number) ? Math.min(high, Math.max(low, number)) : otherwise;
}
