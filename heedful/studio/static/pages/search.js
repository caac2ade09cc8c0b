/** Search: which heads follow a pattern over many texts, and in which texts most. */
import { html } from '../html.js';
import { intOf } from '../state.js';
import { fixed, words } from '../words.js';
import { shared } from '../words/measure.js';
import { text } from '../words/search.js';
import { code as codeOf, samplesOf, Start, Texts, useMeasure } from '../measure.js';
import { Note, Pick } from '../views/controls.js';
import { Table } from '../views/table.js';

export const title = text.title;
export const sees = text.sees;
export const why = { text: text.whyText, lecture: text.lecture };
export const needs = 'run';
export const code = codeOf;

export function applies(run, about) {
  if (run.kind === 'recorded') return shared.needsModel;
  return about.kinds.length ? '' : words.noAttention(about.architecture);
}

/** Texts with their shares; each opens the Heads page. */
function Found({ name, rows, head, view: { about, go } }) {
  const open = (row) => go('heads', { text: row.text, target: row.target, head, edits: '' });
  const columns = [{ key: 'share', title: text.columns.share, text: (row) => fixed(row.share), from: () => text.shareFrom },
    { key: 'text', title: name, plain: true, from: () => about.reads === 'texts' && text.open, text: (row) => row.text }];
  return html`<${Table} label=${name} columns=${about.reads === 'texts' ? columns.reverse() : columns} rows=${rows}
    onChoose=${about.reads === 'texts' && open} />`;
}

export function render({ view }) {
  const { state, set, run } = view;
  const kind = text.patterns[state.pattern] ? state.pattern : 'offset';
  const [k, from, to] = [intOf(state.k, -1000, 1000, -1), state.a || 'words', state.b || 'marks'];
  const pattern = { offset: `offset:${k}`, class: `${from}>${to}` }[kind] ?? kind;
  const job = useMeasure(view, { kind: 'scan', run: run.id, patterns: [pattern], ...samplesOf(view) });
  const found = job.result?.patterns?.[0];
  const head = found && (found.heads.find((one) => one.head === state.head) ?? found.heads[0]);
  const column = (key) => ({ key, title: text.columns[key], plain: key === 'head', text: (row) => (key === 'head' ? row.head : fixed(row[key], 3)),
    from: () => text.shareFrom });
  const classes = (label, value, name) => html`<${Pick} label=${label} value=${value} options=${text.classes} onChange=${(one) => set({ [name]: one })} />`;
  return html`<aside class="controls">
    <${Pick} label=${text.pattern} value=${kind} options=${Object.entries(text.patterns)} onChange=${(one) => set({ pattern: one })} />
    ${kind === 'offset' && html`<label class="field"><span>${text.offset}</span><input type="number" value=${k} onChange=${(e) => set({ k: e.target.value })} /></label>`}
    ${kind === 'class' && html`${classes(text.from, from, 'a')}${classes(text.to, to, 'b')}`}
    <${Texts} view=${view} /><${Start} view=${view} job=${job} label=${text.start} /></aside>
  <section class="picture measured">${!found && html`<${Note}>${text.idle}<//>`}${found && (head ? html`<h2>${text.table}</h2>
    <p class="label">${pattern}, ${text.on(job.result)}</p>
    <div class="side"><${Table} label=${text.table} columns=${['head', 'share', 'low', 'high', 'baseline'].map(column)} sort=${state.table || '-share'}
      onSort=${(table) => set({ table }, true)} chosen=${(row) => row.head === head.head} onChoose=${(row) => set({ head: row.head })}
      rows=${found.heads.map((one) => ({ ...one, key: one.head, low: one.interval[0], high: one.interval[1] }))} />
    <div>${['most', 'least'].map((side) => html`<${Found} key=${side} name=${side === 'most' ? text.most(head.head) : text.least} rows=${head[side]}
      head=${head.head} view=${view} />`)}</div></div>` : html`<${Note}>${text.nowhere}<//>`)}</section>`;
}

export function csv({ shown: { result } }) {
  return [['pattern', 'head', 'share', 'low', 'high', 'shuffled'], ...(result?.patterns ?? []).flatMap(({ pattern, heads }) =>
    heads.map((one) => [pattern, one.head, one.share, ...one.interval, one.baseline]))];
}
