/** Costs: what a batch costs, part by part, with the model's own sizes or others, predicted and measured. */
import { hooks, html } from '../html.js';
import { useJson } from '../api.js';
import { useJob } from '../job.js';
import { listOf } from '../state.js';
import { count, words } from '../words.js';
import { text } from '../words/costs.js';
import { Bars } from '../views/bars.js';
import { Note, Num, Pick, Slider } from '../views/controls.js';
import { Curve } from '../views/curve.js';

export const said = text;

/** A setting: one of several, a slider of doublings (four steps each), or a number. */
function Field({ label, value, about, choices, slide, onChange }) {
  const [low, high] = slide.map((n) => Math.ceil(4 * Math.log2(n)));
  if (choices.length) return html`<${Pick} label=${label} value=${value} options=${choices} onChange=${onChange} />`;
  if (high) return html`<${Slider} label=${label} value=${Math.round(4 * Math.log2(value))} low=${low} high=${high} format=${() => count(value)}
    onChange=${(x) => onChange(Math.round(2 ** (x / 4)))} />`;
  return html`<label class="field" data-from=${about}><span>${label}</span><input type="number" min="1" value=${value} onChange=${(e) => onChange(e.target.value)} /></label>`;
}

function Parts({ rows, costs }) {
  const bar = (from, to, of, kind = 'bar') => html`<i class=${kind} style=${{ left: `${(100 * from) / of}%`, width: `${(100 * (to - from)) / of}%` }} />`;
  return html`<div role="list"><div class="cost label" role="listitem">${text.columns.map((name) => html`<span>${name}</span>`)}</div>
    ${rows.map(({ depth, name, parameters, flops, pairs, from }) => html`<div role="listitem"><div class="cost" tabindex="0" data-from=${from}>
      <span style=${{ paddingLeft: `${14 * depth}px` }}>${name}</span>
      <span class="bar-track">${bar(0, parameters, costs.parameters)}</span><span class="bar-value">${count(parameters)}</span>
      <span class="bar-track">${bar(0, flops - pairs, costs.flops)}${bar(flops - pairs, flops, costs.flops, 'hatch')}</span>
      <span class="bar-value">${count(flops)}</span></div></div>`)}</div>`;
}

export function render({ view }) {
  const { state, set, run, shown } = view;
  const chosen = Object.fromEntries(listOf(state.sizes).map((one) => one.split(':')).map(([name, to]) => [name, /^\d+$/.test(to) ? Number(to) : to]));
  const { length, source_length, batch, precision = 'fp32', memory = '16', ...config } = chosen;
  const body = { run: run.id, length, source_length, batch, precision, config };
  const rates = useJob({ kind: 'calibrate', run: run.id, precision });
  if (rates.result) Object.assign(body, { flops_rate: rates.result.flops_rate, bandwidth: rates.result.bandwidth });
  const jobs = [rates, useJob({ kind: 'verify', ...body })];
  const answer = useJson('/api/cost', { ...body, room: parseInt(memory, 10) * 2 ** 30 });
  const last = hooks.useRef(null);
  last.current = answer.value ?? last.current; // the last stays while sizes are refused
  const { costs, rows, fields, crossover, crossing, curve, groups, code, table } = last.current ?? { fields: [], groups: [] };
  Object.assign(shown, { code, rows: table });
  const change = (name) => (to) => set({ sizes: Object.entries({ ...chosen, [name]: to }).map((pair) => pair.join(':')).join() }, true);
  const [share, up] = [costs?.pairs / costs?.flops, (n) => [n, n]];
  return html`<aside class="controls fields">${fields.map((one) => html`<${Field} key=${one.name} ...${one} onChange=${change(one.name)} />`)}
    ${state.sizes && html`<button class="small" onClick=${() => set({ sizes: '' })}>${text.reset}</button>`}
  </aside><section class="picture costs"><${Note} error=${answer.error} busy=${!costs && words.loading} />${costs && html`<${Parts} rows=${rows} costs=${costs} />
    <section><p><${Num} ...${crossing} /></p>
      <${Curve} height=${190} label="" xName=${text.tokens} series=${[[curve.lengths, curve.shares], [up(costs.length), [0, share]], [up(crossover), [0, 1], [4, 4]]]
        .map(([x, values, dash], i) => ({ name: text.lines[i], x, values, dash }))} /></section>`}
    ${groups.map(({ name, items, said }) => html`<section key=${name}><h2>${name}</h2><${Bars} items=${items} label=${name} /><p class="label">${said}</p></section>`)}
    ${costs && html`<section><h2>${text.machine}</h2><p class="row-of">${jobs.map((job, i) => html`<button key=${i} class="small"
      onClick=${() => job.start(true)}>${text.jobs[i]}</button>`)}</p>
      <${Note} error=${jobs.map((job) => job.error).join('')} busy=${jobs.some((job) => job.state === 'running') && text.busy} />
      ${jobs.flatMap((job) => job.result?.rows ?? []).map((one) => html`<p><${Num} ...${one} /></p>`)}</section>`}</section>`;
}
