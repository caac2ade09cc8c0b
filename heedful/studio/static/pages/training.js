/** Training: the curves of runs as they grow, what their models wrote on the way, and orders for runs that train. */
import { hooks, html } from '../html.js';
import { events, json, keepJson, keptJson, recorded, sentence, url, useAnswer } from '../api.js';
import { flipped, intOf, listOf } from '../state.js';
import { count, num, words } from '../words.js';
import { text } from '../words/training.js';
import { trainDemo } from '../frame.js';
import { Rows } from '../measure.js';
import { Choice, Flag, Note, Slider, Toggle } from '../views/controls.js';
import { Curve } from '../views/curve.js';
import { Table } from '../views/table.js';

export const said = text;
export const needs = 'nothing';

/** What is known of a run; it stays with the answers that an export takes along. */
function known(run) {
  return keptJson(`CURVES ${run.id}`) ?? { rows: [], cursor: '', checkpoints: [] };
}

/** Add what is new of a run, and go on while it trains. */
async function pull(run, follows, signal, tell) {
  const own = known(run);
  keepJson(`CURVES ${run.id}`, own);
  for await (const data of events(url(`/api/runs/${run.id}/follow`, { after: own.cursor, most: 5000 }), { signal })) {
    Object.assign(own, data, { rows: data.anew ? data.rows : own.rows.concat(data.rows) });
    tell(['']);
    if (!follows || data.status !== 'running') return;
  }
}

/** Exponential moving average, corrected for its beginning. */
function smoothed(values, by) {
  let [sum, weight] = [0, 0];
  return values.map((value) => {
    if (value === undefined) return value;
    [sum, weight] = [by * sum + (1 - by) * value, by * weight + 1 - by];
    return sum / weight;
  });
}

/** The series of each chart. A run has one hue; its raw line is faint behind the smoothed one. */
function chartsOf(runs, by, smooth) {
  const names = new Set(['loss', ...runs.flatMap((run) => known(run).rows.flatMap(Object.keys))]);
  return [...names].filter((name) => ![...text.axes, 'valid_loss'].includes(name)).map((name) => ({ name, series: runs.flatMap((run, hue) => {
    const { rows } = known(run);
    const line = (key) => ({ name: run.name, hue, x: rows.map((row) => row[by]), values: rows.map((row) => row[key]) });
    const raw = line(name);
    const soft = smooth && /^(loss|norm|tokens)/.test(name) ? [{ ...raw, faint: true }, { ...raw, values: smoothed(raw.values, smooth) }] : [raw];
    return name === 'loss' ? [...soft, { ...line('valid_loss'), name: `${run.name}, ${text.valid}`, dash: '5 4' }] : soft;
  }) }));
}

/** What the model wrote at one evaluation, and what happened to the run. */
function Samples({ run, state, set }) {
  const { rows, checkpoints, status, step } = known(run);
  const { value, error } = useAnswer((signal) => json(`/api/runs/${run.id}/samples`, { signal, fresh: true }), [run.id, rows.filter((row) => row.valid_loss).length]);
  const found = value?.rows ?? [];
  const at = state.at ? Math.max(0, found.findIndex((row) => String(row.step) === state.at)) : found.length - 1;
  return html`<section class="samples"><h2>${text.samples(run.name)}</h2>${found[at] ? html`
      <${Slider} label=${text.step} value=${at} low=${0} high=${found.length - 1} format=${(i) => count(found[i].step)} onChange=${(i) => set({ at: found[i].step }, true)} />
      <${Rows} label=${text.from} rows=${found[at].samples} from=${text.from} />`
    : html`<${Note} error=${error}>${text.noSamples}<//>`}
    <p class="label">${checkpoints.length > 0 && text.saved(checkpoints.map(count).join(', '))} ${step > 0 && status !== 'running' && text.ended(status, count(step))}</p></section>`;
}

export function render({ view }) {
  const { state, set } = view;
  const [[said], tell] = hooks.useState(['']);
  const [times, turn] = hooks.useState(0);
  const job = useAnswer((signal) => json('/api/jobs', { signal, fresh: true }), [times]).value?.jobs.findLast((one) => one.kind === 'demo');
  hooks.useEffect(() => {
    if (times) view.reload();
    const timer = recorded ? 0 : setTimeout(() => turn(times + 1), 3000);
    return () => clearTimeout(timer);
  }, [times]);
  const runs = view.runs.filter((run) => run.kind === 'run');
  const first = runs.find((run) => run.id === state.run) ?? runs.find((run) => run.last.step); // the newest
  const ids = listOf(state.chosen ?? first?.id);
  const chosen = ids.flatMap((id) => runs.filter((run) => run.id === id)).slice(-5); // a browser has six connections
  hooks.useEffect(() => {
    const control = new AbortController();
    if (!recorded) chosen.map((run) => pull(run, !state.still, control.signal, tell).catch((e) => control.signal.aborted || tell([sentence(e)])));
    return () => control.abort();
  }, [chosen.map((run) => run.id + run.status).join(), state.still]);
  const axes = text.axes.filter((key) => chosen.some((run) => known(run).rows.at(-1)?.[key]));
  const by = axes.includes(state.by) ? state.by : 'step';
  const smooth = intOf(state.smooth, 0, 99, 60) / 100;
  const charts = hooks.useMemo(() => chartsOf(chosen, by, smooth), [chosen.map((run) => run.id + known(run).cursor).join(), by, smooth]);
  Object.assign(view.shown, { chosen, charts, by });
  const last = chosen.at(-1);
  const shows = job && (job.state === 'running' || ids.includes(job.run));
  const button = (name, act) => html`<button class="small" onClick=${act}>${name}</button>`;
  const send = (order) => json(`/api/runs/${last.id}/${order}`, { method: 'POST', body: {} }).then(({ pid }) => tell([text.told(pid)]), (e) => tell([sentence(e)]));
  const cells = (run) => [run.name, run.task, run.status === 'running' ? html`<b>${text.live}</b>` : run.status ?? '–',
    run.last.step ? count(run.last.step) : '–', num(run.last.loss, 4), num(run.best?.loss, 4)];
  const flip = ({ id }) => set({ chosen: flipped(ids, id) || '-' });
  return html`<aside class="controls">
    <${Choice} label=${text.x} value=${by} options=${axes} onChange=${(key) => set({ by: key, zoom: '' })} />
    <${Slider} label=${text.smooth} value=${smooth} low=${0} high=${0.99} step=${0.01} onChange=${(x) => set({ smooth: Math.round(100 * x) }, true)} />
    <${Flag} name="log" label=${text.log} view=${view} />
    <${Toggle} label=${text.latest} on=${!state.still} onChange=${(on) => set({ still: on ? '' : '1', at: '' })} />
    ${shows && html`<div role="status">${text.states[job.state] ?? job.state}<pre>${job.state !== 'done' && job.lines.join('\n')}</pre></div>`}
    ${shows && job.state === 'done' && button(text.open, () => view.go('heads', { run: job.run, text: '', target: '', head: '', edits: '' }))}
    ${!recorded && job?.state !== 'running' && button(words.trainDemo, () => trainDemo((e) => tell([e])))}
  </aside>
  <section class="picture">
    ${runs.length ? html`<${Table} label=${text.runs} rows=${runs} chosen=${(run) => chosen.includes(run)} onChoose=${flip}
      columns=${text.columns.map((key, n) => ({ key, title: key, plain: n < 3, text: (run) => cells(run)[n], from: () => text.files }))} />` : html`<${Note}>${text.none}<//>`}
    ${last?.status === 'running' && !recorded && html`<div class="row-of">${Object.entries(text.orders).map(([order, [name, what]]) => html`<details key=${order}><summary>${name}</summary>${what} ${button(text.confirm, () => send(order))}</details>`)}</div>`}
    <p class="label" role="status">${said || (last && !axes.length && text.empty)}</p>
    ${axes.length > 0 && html`<div class="charts">${charts.map(({ name, series }) => html`<${Curve} key=${name} series=${series} xName=${by} logY=${name === 'loss' && state.log}
      height=${name === 'loss' ? 300 : 190} label=${text.charts[name] ?? text.chart(name)} zoom=${state.zoom?.split(',').map(Number)}
      onZoom=${(ends) => set({ zoom: ends?.map((end) => Number(end.toPrecision(6))).join() })} />`)}</div>`}
    ${last && html`<${Samples} run=${last} state=${state} set=${set} />`}
  </section>`;
}

export function code({ shown }) {
  return `import json\n\nfor run in [${shown.chosen.map((run) => JSON.stringify(run.folder))}]:\n    for row in map(json.loads, open(f"{run}/metrics.jsonl")):\n        print(run, row)\n`;
}

export function csv({ shown }) {
  return [['figure', 'run', shown.by, 'value'], ...shown.charts.flatMap(({ name, series }) => series.flatMap((one) =>
    one.values.map((value, i) => [name, one.name, one.x[i], value]).filter((row) => row[3] !== undefined)))];
}
