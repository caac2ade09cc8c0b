/** What pages with long measurements share: texts, the button with its progress, outputs, tables, maps. */
import { hooks, html } from './html.js';
import { json, recorded, useAnswer } from './api.js';
import { useJob } from './job.js';
import { fixed, num } from './words.js';
import { shared } from './words/measure.js';
import { topOf } from './paint.js';
import { Bars } from './views/bars.js';
import { Chips } from './views/chips.js';
import { Note, Pick } from './views/controls.js';
import { Curve } from './views/curve.js';
import { HeatMap, Legend } from './views/map.js';
import { Table } from './views/table.js';

export function Field({ label, ...rest }) {
  return html`<label class="field"><span>${label}</span><input ...${rest} /></label>`;
}

const linesOf = (value = '') => value.split('\n').filter((line) => line.trim()).slice(0, 256).map((line) => line.slice(0, 800));

/** Which texts, as controls and as fields of a job. The address keeps the pasted lines. */
export function textsOf({ state, set, about }) {
  const [lines, count, from] = [linesOf(state.lines), Number(state.count || 64), state.from || ''];
  const [texts, targets] = [0, 1].map((n) => lines.slice(0, count).map((line) => line.split('\t')[n]));
  const pasted = { texts, targets: about.pair && targets.every(Boolean) ? targets : undefined };
  const controls = html`${about.reads === 'texts' && html`<${Pick} label=${shared.source} value=${from} options=${shared.sources}
      onChange=${(one) => set({ from: one, ran: '' })} />`}
    ${from === 'paste' && html`<label class="job label">${shared.paste}<textarea rows="5" maxlength="5000000" value=${state.lines}
      onChange=${(e) => set({ lines: linesOf(e.target.value).join('\n') })} />${shared.used(texts.length, lines.length)}</label>`}
    <${Pick} label=${shared.count} value=${count} options=${[16, 64, 256]} onChange=${(n) => set({ count: n })} />`;
  return { controls, fields: { count: count === 64 ? undefined : count, ...{ data: { use_data: true }, paste: pasted }[from] } };
}

/** A job and its button: {result, button}. `ran` in the address starts it again. */
export function useMeasure({ state, set, run, shown }, label, body) {
  const given = body && { ...body, run: run.id };
  const job = useJob(given);
  hooks.useEffect(() => {
    if (state.ran && given) job.start();
  }, [state.ran, JSON.stringify(given)]);
  const { code, rows: found = [] } = job.result ?? {};
  Object.assign(shown, { code, rows: [Object.keys(found[0] ?? {}), ...found.map(Object.values)] });
  const stop = () => {
    job.stop();
    set({ ran: '' }, true);
  };
  const { done = 0, total = 1, doing = label } = job.progress ?? {};
  const start = () => (state.ran ? job.start(true) : set({ ran: '1' }, true));
  const button = html`<div class="job">${job.state === 'running'
    ? html`<progress max=${total} value=${done} aria-label=${doing} /><span class="label">${shared.step(doing, done, total)}</span>
      <button type="button" class="small" onClick=${stop}>${shared.stop}</button>`
    : !recorded && given && html`<button type="button" class="primary" onClick=${start}>${job.state === 'done' ? shared.again : label}</button>`}
    <${Note} error=${job.error} /></div>`;
  return { result: job.result, button };
}

/** Rows as a table: their keys are the titles. */
export function Rows({ rows, from, ...more }) {
  const columns = Object.entries(rows[0] ?? {}).map(([key, one]) => ({ key, title: key, plain: typeof one === 'string', from: () => from,
    text: (row) => (typeof row[key] === 'number' ? fixed(row[key], 3) : row[key]) }));
  return html`<${Table} rows=${rows} columns=${columns} ...${more} />`;
}

/** Numbers as a map; heads that are off are crossed out. */
function Cells({ map, label, from, off, onHead }) {
  const { values, names, said, down, across, kind } = map;
  const layers = hooks.useMemo(() => [Float32Array.from(values.flat())], [map]);
  return html`<${HeatMap} layers=${layers} down=${down} across=${across} kind=${kind} side=${46} label=${label}
    say=${(r, c) => said?.[r][c] ?? `${down[r]}, ${across[c]}: ${num(values[r][c])}, ${from}`} onCell=${(r, c) => names?.[r][c] && onHead(names[r][c])}
    allowed=${names && Uint8Array.from(names.flat(), (name) => !off(name))} />
    ${kind && html`<${Legend} kind=${kind} top=${num(topOf(layers[0]))} />`}`;
}

/** Views of a result, as measured_views.py makes them. `onHead`: a head was chosen; `off`: whether it is marked. */
export function Views({ result, off, onHead }) {
  return html`<div class="side">${result?.views?.map(({ title, note, from, rows, bars, map, curve }) => html`<section key=${title}><h2>${title}</h2>
    ${note && html`<p class="label" data-from=${from}>${note}</p>`}
    ${rows && html`<${Rows} label=${title} rows=${rows} from=${from} chosen=${(row) => off?.(row.head)} onChoose=${onHead && ((row) => onHead(row.head))} />`}
    ${bars && html`<${Bars} signed label=${title} items=${bars} />`}${curve && html`<${Curve} ...${curve} />`}
    ${map && html`<${Cells} map=${map} label=${title} from=${from} off=${off} onHead=${onHead} />`}</section>`)}</div>`;
}

/** What models make of a text; tokens that the other lacks are marked. @param {{asked: {name, run, text, edits}[]}} props */
export function Outputs({ asked }) {
  const bodies = asked.map(({ name, ...body }) => body);
  const { value = [], error } = useAnswer((signal) => Promise.all(bodies.map((body) => json('/api/output', { body, signal }))), [JSON.stringify(bodies)]);
  const [first, second] = value ?? [];
  const before = new Map(second?.labels);
  const on = (text, other) => other?.tokens.length > 0 && !other.tokens.some(([one]) => one === text);
  return html`<h2>${shared.output}</h2><${Note} error=${error} />${first?.labels.length
    ? html`<p class="label">■ ${asked[0].name} ${second && `▯ ${asked[1]?.name}`}</p><${Bars} label=${shared.output} top=${1}
      items=${first.labels.map(([name, share]) => ({ name, value: share, ghost: before.get(name), from: shared.probability }))} />`
    : value?.slice(0, asked.length).map(({ tokens, refused }, n) => html`<div class="output" key=${n}><span class="label">${asked[n].name}</span>${refused
      || html`<${Chips} label=${shared.output} items=${tokens.map(([text, x]) => ({ text, from: shared.logP(num(x)), on: on(text, value[1 - n]) }))} />`}</div>`)}`;
}
