/** Overview: the model as stacks of parts with their costs, and the checks of `heedful doctor`. */
import { dom, html } from '../html.js';
import { useJson } from '../api.js';
import { useJob } from '../job.js';
import { intOf, spell } from '../state.js';
import { count, words } from '../words.js';
import { text } from '../words/overview.js';
import { Note, Slider, Waiting } from '../views/controls.js';

export const said = text;
const KINDS = { 'cross-attention': 'cross', attention: 'self', lookup: 'cross' };

/** Encoder and decoder, or the whole model as one shell. */
function shellsOf({ parts }, drawn) {
  const named = parts.filter((part) => /^(encoder|decoder)$/.test(part.name));
  return named.length ? named : [{ name: drawn?.[0]?.name ?? text.model, parts }];
}

/** Where order enters. */
const wave = html`<svg class="wave" viewBox="0 0 32 10" role="img" aria-label=${text.wave}><path d="M0 5q4-9 8 0t8 0 8 0 8 0" /></svg>`;

/** One part as a box; its bar is its share of the parameters. An attention opens the Step page. */
function Box({ part, which, layer, total, go, order }) {
  const inside = html`<span class="box-name">${part.name}${order && wave}</span><span class="box-detail">${part.detail}</span>
    <span class="box-count">${part.parameters ? count(part.parameters) : ''}</span>
    <i style=${{ width: `${(100 * part.parameters) / total}%` }} />`;
  const kinds = `box${/tied|shared/.test(part.detail) ? ' tied' : ''}`;
  return which
    ? html`<button class=${kinds} data-from=${`${part.from}. ${text.step(layer)}`} onClick=${() => go('step', { head: spell({ which, layer, head: 1 }) })}>${inside}</button>`
    : html`<div class=${kinds} tabindex="0" data-from=${part.from}>${inside}</div>`;
}

/** Parts from below to above. Norms of a block stand where they are computed: before or after each layer. */
function Parts({ part, drawn, kindOf, view, first = 0, ...rest }) {
  const order = part.name === 'positions' || (part.name === 'attention' && drawn?.score_position);
  const which = kindOf(part.name);
  if (!part.parts.length) return (part.parameters || part.flops || part.detail) && html`<${Box} ...${{ part, which, order, ...rest }} />`;
  const norms = part.parts.find((one) => one.name === 'norms');
  const [before, after] = norms && drawn ? [/pre|sand|para/, /post|sand/].map((place) => place.test(drawn.norm)) : [];
  const norm = (there) => there && html`<div class="norm" tabindex="0" data-from=${norms.from}>${text.norm}</div>`;
  const [block, { state, set }] = [/ blocks?$/.test(part.name), view];
  const layer = intOf(state.layer, first + 1, first + part.count, first + 1);
  return html`<div class=${`group${part.count > 1 ? ' many' : ''}`}><span class="group-name">${part.name}${block && kindOf('attention') && html` <span class="layers"
    role="group" aria-label=${words.layer}>${Array.from({ length: part.count }, (_, i) => first + i + 1).map((n) => html`<button key=${n}
    aria-pressed=${n === layer} onClick=${() => set({ layer: n })}>${n}</button>`)}</span>`}</span>
    ${[...part.parts].reverse().filter((one) => one !== norms || !drawn?.norm).map((one, i) => html`<${dom.Fragment} key=${i}>${norm(after)}
      <${Parts} ...${{ drawn, kindOf, view, ...rest, layer }} part=${one} />${norm(before)}<//>`)}</div>`;
}

/** A shell from its input, below, to its output. */
function Shell({ shell, drawn, view, total, pair }) {
  const kindOf = (name) => {
    const which = pair && shell.name === 'encoder' && name === 'attention' ? 'encoder' : KINDS[name];
    return view.about.kinds.includes(which) && which;
  };
  let past = 0; // layers below
  const parts = shell.parts.map((part, i) => html`<${Parts} key=${i} ...${{ part, drawn, kindOf, view, total }} go=${view.go} layer=${1}
    first=${/ blocks?$/.test(part.name) ? (past += part.count) - part.count : 0} />`);
  return html`<section class="shell"><h2>${shell.name}</h2>${parts.reverse()}
    <ul class="facts">${drawn?.facts.map((fact) => html`<li key=${fact}>${fact}</li>`)}</ul></section>`;
}

/** The checks of the doctor, one after the other. */
function Checks({ run }) {
  const job = useJob({ kind: 'doctor', run: run.id });
  const found = job.events.flatMap((event) => event.check ?? []);
  return html`<section class="checks"><h2>${text.checks}</h2>
    ${/idle|failed|cancelled/.test(job.state) && html`<button class="small" onClick=${() => job.start()}>${text.check}</button>`}
    <${Note} error=${job.error} busy=${job.state === 'running' && text.checking(found.length)} />
    <ul>${found.map((one) => html`<li key=${one.name} class=${`check ${one.verdict.replace(' ', '-')}`} tabindex="0"
      data-from=${[one.limit, one.remedy].filter(Boolean).join('. ')}><b>${one.name}</b> <em>${text.verdicts[one.verdict]}</em>
      <span>${one.summary}</span></li>`)}</ul></section>`;
}

export function render({ view }) {
  const { state, set, run, about, shown } = view;
  const body = { run: run.id, length: intOf(state.length, 1, 4096, 32) };
  if (about.pair) body.source_length = intOf(state.source, 1, 4096, 32);
  const answer = useJson('/api/cost', body);
  const { value } = answer;
  Object.assign(shown, { code: value?.code, rows: value?.table });
  if (!value) return html`<${Waiting} error=${answer.error} />`;
  const { costs, drawing, lengths } = value;
  const shells = shellsOf(costs, drawing);
  return html`<aside class="controls">
    ${[['length', costs.length], ['source', costs.source_length]].map(([name, n], i) => lengths[i] && lengths[i][0] !== lengths[i][1] && html`<${Slider} key=${name}
      label=${text[name]} value=${n} low=${1} high=${Math.min(1024, lengths[i][1] ?? 1024)} format=${count} onChange=${(to) => set({ [name]: to }, true)} />`)}
    <${Checks} run=${run} />
  </aside>
  <section class="picture overview"><p class="label">${text.total(count(costs.parameters), count(costs.flops))}</p>
    <div class="shells">${shells.map((shell) => html`<${Shell} key=${shell.name} shell=${shell} total=${costs.parameters} view=${view} pair=${shells.length > 1}
      drawn=${drawing?.find((one) => one.name === shell.name)} />`)}</div></section>`;
}
