/** Positions: the table, rotations or bias by which order enters a model. */
import { hooks, html } from '../html.js';
import { useJson } from '../api.js';
import { intOf } from '../state.js';
import { count, fixed, num, words } from '../words.js';
import { text } from '../words/positions.js';
import { Note, Num, Pick, Slider } from '../views/controls.js';
import { Curve } from '../views/curve.js';
import { HeatMap } from '../views/map.js';
import { Table } from '../views/table.js';

export const said = text;

/** The numbers of a scheme; what lies beyond the training length is crossed. */
function Sheet({ sheet: { name, numbers, down, across, seen, rows, columns } }) {
  const [layers, allowed] = hooks.useMemo(() => {
    const flat = Float32Array.from(numbers.flat());
    return [[flat], seen < down.length ? Uint8Array.from(flat, (_, i) => i < seen * across.length) : undefined];
  }, [numbers]);
  return html`<${HeatMap} layers=${layers} allowed=${allowed} down=${down} across=${across} kind="signed" side=${18}
    label=${name} say=${(r, c) => text.say(rows, down[r], columns, across[c], num(numbers[r][c]))} />`;
}

/** The rotation of each pair by an offset, and how well it meets the model. */
function Turns({ turns: { frequencies, errors }, k }) {
  const rows = frequencies.map((w, i) => [i + 1, k * w, Math.cos(k * w), Math.sin(k * w)]);
  const columns = text.columns.map(([name, from], c) => ({ key: c, title: name, from: () => from, text: (row) => fixed(row[c], c && 3) }));
  return html`<section><h2>${text.turns(k)}</h2><p>${text.error} <${Num} value=${errors[k]} from=${text.errorFrom} /></p>
    <${Table} label=${text.turns(k)} rows=${rows} columns=${columns} /></section>`;
}

export function render({ view: { state, set, run, about, shown } }) {
  const body = { run: run.id, length: intOf(state.length, 8, 512, 64), base: Number(state.base) || null };
  const answer = useJson('/api/positions', body);
  const all = answer.value?.positions ?? [];
  const at = intOf(state.scheme, 1, all.length, 1) - 1;
  const one = all[at];
  const n = intOf(state.table, 1, one?.tables.length, 1) - 1;
  const k = intOf(state.offset, 0, one?.rotations?.errors.length - 1, 1);
  Object.assign(shown, { rows: one?.tables[n].numbers, code: one?.code });
  const put = (name) => (value) => set({ [name]: value }, true);
  const list = (name, place, names) => names.length > 1 && html`<${Pick} label=${text[name]} value=${place + 1} options=${names.map((x, i) => [i + 1, x])} onChange=${put(name)} />`;
  const slide = (name, value, low, high) => html`<${Slider} label=${text[name]} value=${value} low=${low} high=${high} onChange=${put(name)} format=${count} />`;
  return html`<aside class="controls">${one && html`${list('scheme', at, all.map((each) => `${each.kind} ${each.where}`))}${list('table', n, one.tables.map((sheet) => sheet.name))}
    ${one.similarity && slide('length', body.length, 8, 512)}
    ${one.rotations && html`${slide('offset', k, 0, one.rotations.errors.length - 1)}
      <${Pick} label=${text.base} value=${one.base} options=${[...new Set([100, 1000, 1e4, 1e5, 1e6, one.base])]} onChange=${put('base')} />`}`}</aside>
  <section class="picture"><${Note} error=${answer.error} busy=${answer.busy && words.loading}>${!all.length && (answer.value?.refused ?? text.none(about.architecture))}<//>
    ${one && html`<h2>${one.kind}, ${one.where}</h2><p class="sees">${one.meaning}</p><div class="columns"><${Sheet} sheet=${one.tables[n]} />
      <div><${Curve} ...${one.curve} xName=${text.offset} />${one.rotations && html`<${Turns} turns=${one.rotations} k=${k} />`}</div></div>`}</section>`;
}
