/** Positions: the table, rotations or bias by which order enters a model. */
import { hooks, html } from '../html.js';
import { json, useAnswer } from '../api.js';
import { intOf } from '../state.js';
import { num, words } from '../words.js';
import { text } from '../words/positions.js';
import { literal } from '../reading.js';
import { Note, Num, Pick, Slider } from '../views/controls.js';
import { Curve } from '../views/curve.js';
import { HeatMap } from '../views/map.js';
import { Table } from '../views/table.js';

export const title = text.title;
export const sees = text.sees;
export const why = { text: text.whyText, lecture: text.lecture };
export const needs = 'run';
const BASES = [10, 100, 1000, 1e4, 1e5, 1e6];

export function applies(run) {
  return run.kind === 'recorded' ? words.needsModel : '';
}

const range = (n, first = 0) => [...Array(n).keys()].map((i) => i + first);

/** The numbers of a scheme as a heat map; what lies beyond the training length is crossed. */
function Sheet({ sheet, trained }) {
  const [rows, cols] = [sheet.numbers.length, sheet.numbers[0].length];
  const layers = hooks.useMemo(() => [Float32Array.from(sheet.numbers.flat())], [sheet]);
  const long = trained && trained < rows && sheet.rows !== 'heads';
  const allowed = long ? Uint8Array.from(range(rows * cols), (i) => i / cols < trained) : undefined;
  const down = range(rows, sheet.rows === 'heads' ? 1 : 0).map(String);
  const across = range(cols, sheet.first_column).map(String);
  return html`<${HeatMap} layers=${layers} rows=${rows} cols=${cols} down=${down} across=${across} kind="signed" side=${18} label=${sheet.name} allowed=${allowed}
    say=${(r, c) => text.say(sheet.rows, down[r], sheet.columns, across[c], num(sheet.numbers[r][c]))} />`;
}

/** Scores by offset: of two positions with their spread, or of the bias of each head. */
function Scores({ kind, tables: [sheet], similarity }) {
  const made = hooks.useMemo(() => (similarity ? { x: range(similarity.mean.length), bands: [[1, 2]],
    series: ['mean', 'low', 'high'].map((name, i) => ({ name: text.names[i], values: similarity[name], hue: 0, faint: i > 0 })) }
    : { x: range(sheet.numbers[0].length, sheet.first_column), series: sheet.numbers.map((values, h) => ({ name: words.headOnly(h + 1), values })) }), [sheet, similarity]);
  return html`<${Curve} ...${made} xName=${text.offset} label=${similarity ? text.product(kind) : text.bias} />`;
}

/** The rotation of each pair by an offset, and how well it meets the model. */
function Turns({ turns: { frequencies, errors }, k }) {
  const rows = frequencies.map((w, i) => [i + 1, w, k * w, Math.cos(k * w), Math.sin(k * w)]);
  return html`<section><h2>${text.turns(k)}</h2><p class="label">${text.error} <${Num} value=${errors[k]} from=${text.errorFrom} /></p>
    <${Table} label=${text.turns(k)} rows=${rows} columns=${text.columns.map((name, c) => ({ key: c, title: name, text: c ? undefined : (row) => row[0], from: () => text.formulas[c] }))} /></section>`;
}

export function render({ view: { state, set, run, about, shown } }) {
  const length = intOf(state.length, 8, 512, 64);
  const base = state.base ? Number(state.base) : null;
  const body = { run: run.id, length, base };
  const answer = useAnswer((signal) => json('/api/positions', { body, signal }), [JSON.stringify(body)]);
  const all = answer.value?.positions ?? [];
  const at = intOf(state.scheme, 1, all.length, 1) - 1;
  const one = all[at];
  const n = intOf(state.table, 1, one?.tables.length, 1) - 1;
  const k = intOf(state.offset, 0, (one?.rotations?.errors.length ?? 1) - 1, 1);
  Object.assign(shown, { one, at, n, k, length, base });
  const put = (name) => (value) => set({ [name]: String(value) }, true);
  const list = (names) => names.map((name, i) => [String(i + 1), name]);
  const none = answer.value && !all.length && (answer.value.refused ?? text.none(about.architecture));
  return html`<aside class="controls">${one && html`
    ${all.length > 1 && html`<${Pick} label=${text.scheme} value=${String(at + 1)} options=${list(all.map((each) => `${each.kind} ${each.where}`))} onChange=${put('scheme')} />`}
    ${one.tables.length > 1 && html`<${Pick} label=${text.table} value=${String(n + 1)} options=${list(one.tables.map((sheet) => sheet.name))} onChange=${put('table')} />`}
    ${one.similarity && html`<${Slider} label=${text.length} value=${length} low=${8} high=${512} step=${8} onChange=${put('length')} />`}
    ${one.rotations && html`<${Slider} label=${text.offset} value=${k} low=${0} high=${one.rotations.errors.length - 1} onChange=${put('offset')} />
      <${Pick} label=${text.base} value=${String(one.base)} options=${[...new Set([...BASES, one.base])].map((x) => [String(x), num(x)])} onChange=${put('base')} />`}`}</aside>
  <section class="picture"><${Note} error=${answer.error} busy=${answer.busy && words.loading}>${none}<//>
    ${one && html`<h2>${one.kind}, ${one.where}</h2><p class="sees">${one.meaning}</p><${Sheet} sheet=${one.tables[n]} trained=${one.trained} />
      <div class="columns"><${Scores} ...${one} />${one.rotations && html`<${Turns} turns=${one.rotations} k=${k} />`}</div>`}</section>`;
}

export function code({ run, shown: { at, n, k, length, base, one } }) {
  return `import heedful\nfrom heedful.inside.look.positions import positions\n\nmodel = heedful.load(${literal(run.folder ?? run.name)})\n`
    + `found = positions(model.loaded, ${length}, base=${base ?? 'None'})[${at}]\nfound.sheets[${n}].numbers, found.similarity\n`
    + `${one?.rotations ? `found.rotations.matrices(${k}), found.rotations.errors[${k}]\n` : ''}`;
}

export function csv({ shown: { one, n } }) {
  return one?.tables[n].numbers ?? [[words.noTable]];
}
