/** Ablate: remove heads, edit the model, and patch vectors of one text into another. */
import { hooks, html, useTheme } from '../html.js';
import { listOf, spell } from '../state.js';
import { fixed, num, words } from '../words.js';
import { shared } from '../words/measure.js';
import { text } from '../words/ablate.js';
import { code as codeOf, Outputs, samplesOf, Start, Texts, useMeasure, useOutput } from '../measure.js';
import { topOf } from '../paint.js';
import { Choice, Num, Pick } from '../views/controls.js';
import { Curve } from '../views/curve.js';
import { HeatMap, Legend } from '../views/map.js';
import { Table } from '../views/table.js';

export const title = text.title;
export const sees = text.sees;
export const why = { text: text.whyText, lecture: text.lecture };
export const needs = 'trace';
export const code = codeOf;

export function applies(run, about) {
  if (run.kind === 'recorded') return shared.needsModel;
  return about.kinds.length ? '' : words.noAttention(about.architecture);
}

const upTo = (n) => Array.from({ length: n }, (_, i) => i + 1);

/** The edits of the model, which all pages honor, and a form for one more. */
function Edits({ view: { state, set, trace } }) {
  const [kind, setKind] = hooks.useState('uniform');
  const edits = listOf(state.edits);
  const [which, shell] = [Object.keys(trace.kinds)[0], Object.keys(trace.shells)[0]];
  const places = { scale: `${which}.1.*:2.0`, force: `${which}.1.1:2>1`, drop: `${shell}.1.feed_forward`, mask: '1', positions: 'none' };
  const add = (event) => {
    event.preventDefault();
    set({ edits: [...new Set([...edits, `${kind}:${new FormData(event.target).get('place')}`])].join() });
  };
  return html`<form class="job" onSubmit=${add}>${edits.map((one) => html`<button type="button" class="chip" key=${one} aria-label=${text.remove(one)}
      onClick=${() => set({ edits: edits.filter((other) => other !== one).join() })}>${one} ×</button>`)}
    <${Pick} label=${text.edit} value=${kind} options=${Object.entries(text.kinds)} onChange=${setKind} />
    <label class="field"><span>${text.place}</span><input name="place" key=${kind} defaultValue=${places[kind] ?? `${which}.1.*`} /></label>
    <button class="small">${text.add}</button></form>`;
}

/** The importance of all heads: a map, the curve, a table. */
function Importance({ view: { state, set, trace }, result }) {
  const theme = useTheme();
  const edits = listOf(state.edits);
  const rows = Object.entries(trace.kinds).flatMap(([which, kind]) => upTo(kind.layers).map((layer) => ({ which, layer, heads: kind.heads })));
  const cols = Math.max(...rows.map((row) => row.heads));
  const known = new Map(result?.heads.map((one) => [one.head, one]));
  const cells = rows.flatMap((row) => upTo(cols).map((head) => spell({ ...row, head })));
  const values = hooks.useMemo(() => Float32Array.from(cells, (at) => known.get(at)?.importance ?? 0), [result, trace]);
  const off = (at) => edits.some((one) => [`zero:${at}`, `zero:${at.replace(/\d+$/, '*')}`].includes(one));
  const flip = (at) => set({ edits: (off(at) ? edits.filter((one) => one !== `zero:${at}`) : [...edits, `zero:${at}`]).join() });
  const say = (r, c) => {
    const at = cells[r * cols + c];
    const one = known.get(at);
    return text.cell(at, one ? text.rise(num(one.importance)) + shared.interval(...one.interval.map((x) => num(x))) : '', off(at));
  };
  const lines = ['rise', 0, 1].map((key) => result?.curve.map((one) => one[key] ?? one.interval[key]));
  const column = (key, plain) => ({ key, title: text.columns[key], plain, text: (row) => (plain ? row[key] : fixed(row[key], 4)), from: () => text.riseFrom });
  return html`<h2>${text.grid}</h2><p class="label">${result
    ? html`${text.unit(result)}<${Num} value=${result.loss} from=${result.measured_in} />` : text.idle}</p>
    <div class="side"><div><${HeatMap} layers=${[values]} kind="signed" rows=${rows.length} cols=${cols} side=${46} label=${text.grid} say=${say}
      down=${rows.map((row) => `${words.tabs[row.which]} ${row.layer}`)} across=${upTo(cols).map(String)}
      allowed=${Uint8Array.from(cells, (at) => !off(at))} onCell=${(r, c) => flip(cells[r * cols + c])} />
      ${result && html`<${Legend} kind="signed" theme=${theme} top=${num(topOf(values))} />`}</div>
    ${result && html`<${Curve} x=${result.curve.map((one) => one.removed)} xName=${text.removed} label=${text.curve} bands=${[[1, 2]]}
      series=${lines.map((list, n) => ({ name: text.columns.importance, values: list, hue: 0, faint: n > 0 }))} />`}</div>
    ${result && html`<${Table} label=${text.grid} sort=${state.table || '-importance'} onSort=${(table) => set({ table }, true)}
      columns=${[column('head', true), ...['importance', 'low', 'high', 'bits'].map((key) => column(key)), column('said', true)]}
      rows=${result.heads.map((one) => ({ ...one, key: one.head, low: one.interval[0], high: one.interval[1], said: one.labels.map((label) => label.name).join(', ') }))}
      chosen=${(row) => off(row.head)} onChoose=${(row) => flip(row.head)} />`}`;
}

/** The share of the output that each vector brings back. */
function Patched({ result: { positions, recovered, ...told } }) {
  const theme = useTheme();
  const values = hooks.useMemo(() => Float32Array.from(recovered.flat()), [recovered]);
  return html`<h2>${text.map}</h2><p>${text.scores(num(told.clean), num(told.corrupted), told.corrupted_text)}</p>
    <${HeatMap} layers=${[values]} kind="signed" rows=${recovered.length} cols=${positions.length} across=${positions} label=${text.map}
      down=${recovered.map((_, n) => text.layer(n + 1))} say=${(r, c) => text.patched(r + 1, positions[c], num(recovered[r][c]))} />
    <${Legend} kind="signed" theme=${theme} top=${num(topOf(values))} />`;
}

export function render({ view }) {
  const { state, set, run, about, trace } = view;
  const [patches, shells] = [state.tab === 'patch', Object.keys(trace.shells)];
  const shell = shells.includes(state.shell) ? state.shell : shells[0];
  const given = Object.entries({ target: state.target, corrupted: state.corrupt }).filter(([, value]) => value);
  const job = useMeasure(view, patches ? { kind: 'patch', run: run.id, text: trace.text, shell, ...Object.fromEntries(given) }
    : { kind: 'ablate', run: run.id, ...(state.by && { by: state.by }), ...samplesOf(view) });
  const asked = (edits) => (patches ? null : { run, about, text: trace.text, edits });
  const outputs = [useOutput(asked(listOf(state.edits))), useOutput(state.edits ? asked([]) : null)];
  const start = html`<${Start} view=${view} job=${job} label=${patches ? text.patch : text.measure} />`;
  return html`<aside class="controls">
    <${Choice} label=${text.title} hideLabel value=${state.tab || ''} options=${text.tabs} onChange=${(tab) => set({ tab, ran: '' })} />
    ${patches ? html`<label class="field"><span>${text.corrupted}</span><input value=${state.corrupt} placeholder=${text.suggested}
        onChange=${(e) => set({ corrupt: e.target.value })} /></label>
      ${shells.length > 1 && html`<${Choice} label=${text.shell} value=${shell} options=${shells.map((one) => [one, one])} onChange=${(one) => set({ shell: one })} />`}${start}`
    : html`<${Choice} label=${text.by} value=${state.by || ''} options=${text.bys} onChange=${(by) => set({ by })} /><${Texts} view=${view} />${start}
      <${Edits} view=${view} />`}
  </aside>
  <section class="picture measured">${patches ? job.result?.recovered && html`<${Patched} result=${job.result} />`
    : html`<h2>${text.output}</h2><${Outputs} names=${state.edits ? text.names : ['']} outputs=${state.edits ? outputs : outputs.slice(0, 1)} />
      <${Importance} view=${view} result=${job.result?.heads && job.result} />`}</section>`;
}

export function csv({ shown: { result } }) {
  if (result?.recovered) return [['layer', ...result.positions], ...result.recovered.map((row, n) => [n + 1, ...row])];
  return [['head', 'rise', 'low', 'high', 'bits'], ...(result?.heads ?? []).map((one) => [one.head, one.importance, ...one.interval, one.bits])];
}
