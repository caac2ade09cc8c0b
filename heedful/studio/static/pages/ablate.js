/** Ablate: remove heads, edit the model, and patch vectors of one text into another. */
import { html } from '../html.js';
import { listOf, spell } from '../state.js';
import { num } from '../words.js';
import { text } from '../words/ablate.js';
import { Cells, codeOf, csvOf, Field, needsHeads, Outputs, Rows, textsOf, useMeasure, Views } from '../measure.js';
import { Chips } from '../views/chips.js';
import { Choice } from '../views/controls.js';
import { Curve } from '../views/curve.js';

export const title = text.title;
export const sees = text.sees;
export const why = text.why;
export const needs = 'trace';
export const applies = needsHeads;
export const code = codeOf;
export const csv = csvOf;
const upTo = (n) => Array.from({ length: n }, (_, i) => i + 1);

/** The edits of the model, which all pages honor, and a form for one more. */
function Edits({ set, trace, edits }) {
  const examples = text.examples(Object.keys(trace.kinds)[0], Object.keys(trace.shells)[0]);
  const add = (event) => {
    event.preventDefault();
    set({ edits: [...edits, event.target.edit.value].join() });
  };
  return html`<form class="job" onSubmit=${add}><${Chips} label=${text.edits} items=${edits.map((one) => ({ text: `${one} ×`, from: text.edits }))}
      onPick=${(i) => set({ edits: edits.filter((_, n) => n !== i).join() })} />
    <${Field} label=${text.edit} name="edit" list="edits" required placeholder=${examples[0]} />
    <datalist id="edits">${examples.map((one) => html`<option value=${one} />`)}</datalist><button class="small">${text.add}</button></form>`;
}

/** The importance of all heads: a map, the curve, a table. A head that is chosen is removed. */
function Importance({ state, set, trace, edits, result }) {
  const rows = Object.entries(trace.kinds).flatMap(([which, { layers, heads }]) => upTo(layers).map((layer) => upTo(heads)
    .map((head) => spell({ which, layer, head }))));
  const known = new Map(result?.heads.map((one) => [one.head, one]));
  const off = (at) => edits.includes(`zero:${at}`) || edits.includes(`zero:${at.replace(/\d+$/, '*')}`);
  const flip = (at) => set({ edits: (off(at) ? edits.filter((one) => one !== `zero:${at}`) : [...edits, `zero:${at}`]).join() });
  const say = (r, c, x) => text.cell(rows[r][c], x, known.get(rows[r][c])?.interval.map((end) => num(end)), off(rows[r][c]));
  const line = (key, n) => ({ name: text.rise, values: result.curve.map((one) => one[key] ?? one.interval[key]), hue: 0, faint: n > 0 });
  return html`<h2>${text.grid}</h2><p class="label">${result?.sentence ?? text.idle}</p><div class="side">
    <${Cells} kind="signed" label=${text.grid} say=${say} values=${rows.map((row) => row.map((at) => known.get(at)?.importance ?? 0))}
      down=${rows.map(([at]) => at.slice(0, -2))} across=${rows[0].map((_, c) => String(c + 1))}
      allowed=${Uint8Array.from(rows.flat(), (at) => !off(at))} onCell=${(r, c) => flip(rows[r][c])} />
    ${result && html`<${Curve} x=${result.curve.map((one) => one.removed)} xName="k" label=${text.curve} bands=${[[1, 2]]} series=${['rise', 0, 1].map(line)} />`}</div>
    ${result && html`<${Rows} label=${text.grid} rows=${result.rows} from=${result.sentence} sort=${state.table || '-rise'}
      onSort=${(table) => set({ table }, true)} chosen=${(row) => off(row.head)} onChoose=${(row) => flip(row.head)} />`}`;
}

export function render({ view }) {
  const { state, set, run, trace } = view;
  const [patches, edits, shells, texts] = [state.tab === 'patch', listOf(state.edits), Object.keys(trace.shells), textsOf(view)];
  const shell = shells.includes(state.shell) ? state.shell : shells[0];
  const { result, button } = useMeasure(view, patches ? text.patch : text.measure, patches
    ? { kind: 'patch', text: trace.text, shell, target: state.target, corrupted: state.corrupt }
    : { kind: 'ablate', by: state.by, ...texts.fields });
  const asked = [edits, []].map((its, n) => ({ name: edits.length ? text.names[n] : '', run: run.id, text: trace.text, edits: its }));
  const pick = (name, label, options, value, patch) => html`<${Choice} label=${label} value=${value} options=${options}
    onChange=${(one) => set({ [name]: one, ...patch })} />`;
  return html`<aside class="controls">${pick('tab', '', text.tabs, state.tab || '', { ran: '' })}${patches
    ? html`<${Field} label=${text.corrupted} value=${state.corrupt} placeholder=${text.suggested} onChange=${(e) => set({ corrupt: e.target.value })} />
      ${shells[1] && pick('shell', text.shell, shells.map((one) => [one, one]), shell)}${button}`
    : html`${pick('by', text.by, text.bys, state.by || '')}${texts.controls}${button}<${Edits} set=${set} trace=${trace} edits=${edits} />`}</aside>
  <section class="picture measured">${patches ? html`<${Views} result=${result} />` : html`<${Outputs} asked=${asked.slice(0, edits.length + 1)} />
    <${Importance} ...${view} edits=${edits} result=${result?.heads && result} />`}</section>`;
}
