/** Readings of attention that pages share: which heads there are, subwords merged, special tokens hidden. */
import { headOf, spell } from './state.js';
import { traced } from './api.js';

/** The head that a page shows: that of the address if the model has it, else the most informative. */
export function chosenHead(state, trace, which) {
  const kinds = Object.keys(trace.kinds);
  const at = headOf(state.head);
  const name = which ?? (at && trace.kinds[at.which] ? at.which : kinds[0]);
  const kind = trace.kinds[name];
  if (at && at.which === name && at.layer <= kind.layers && at.head <= kind.heads) return at;
  const { layer, head } = kind.best ?? { layer: kind.layers, head: 1 };
  return { which: name, layer, head };
}

/** The weights of a head as the server has them, [T, S] in half precision. */
export async function weightsOf(trace, at, signal) {
  const { data, shape } = await traced(trace, { name: 'weights', ...at, dtype: 'f16' }, signal);
  return { ...at, name: spell(at), data, rows: shape[0], cols: shape[1] };
}

/** Whether a label is that of a special token: [CLS], <s>, <|endoftext|>; not [UNK], [MASK] or the byte <c3>. */
export function isSpecial(label) {
  if (/^<[0-9a-f]{2}>$|^\[(UNK|MASK)\]$|^<(unk|mask)>$/.test(label)) return false;
  return /^(\[[A-Z][A-Z0-9_]*\]|<\/?[a-z_0-9]+>|<\|[^|]+\|>)$/.test(label);
}

/** Whether a token goes on with the word of the one before: such labels begin with ##. */
export function continues(label) {
  return label.length > 2 && label.startsWith('##');
}

/** Tokens in groups: one each, or those of a word together; special tokens left out on request. */
function groups(labels, merge, hide) {
  const found = [];
  labels.forEach((label, i) => {
    if (hide && isSpecial(label)) return;
    if (merge && found.length && continues(label)) {
      found.at(-1).tokens.push(i);
      found.at(-1).label += label.slice(2);
    } else found.push({ tokens: [i], label });
  });
  return found;
}

/** Which tokens stand together in rows and columns. */
export function axesOf(kind, { merge, hide } = {}) {
  const [down, across] = [groups(kind.down, merge, hide), groups(kind.across, merge, hide)];
  const whole = down.length === kind.down.length && across.length === kind.across.length;
  return { down, across, whole };
}

/** Weights in groups: the sum over the tokens of a key, the mean over those of a query. */
export function grouped({ data, cols }, { down, across, whole }) {
  if (whole) return data;
  const out = new Float32Array(down.length * across.length);
  down.forEach((row, r) => {
    across.forEach((column, c) => {
      let sum = 0;
      for (const i of row.tokens) for (const j of column.tokens) sum += data[i * cols + j];
      out[r * across.length + c] = sum / row.tokens.length;
    });
  });
  return out;
}

/** A view of a map in the address: "r0-r1,c0-c1", counted from 1 with both ends. */
export function spellView(view) {
  return view ? `${view.r0 + 1}-${view.r1},${view.c0 + 1}-${view.c1}` : '';
}

export function viewOf(text) {
  const [r0, r1, c0, c1] = (/^(\d+)-(\d+),(\d+)-(\d+)$/.exec(text ?? '') ?? []).slice(1).map(Number);
  return r0 >= 1 && c0 >= 1 && r1 > r0 && c1 > c0 ? { r0: r0 - 1, r1, c0: c0 - 1, c1 } : null;
}
