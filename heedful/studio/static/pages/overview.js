/** Overview: the model as stacks of parts with their costs, and the checks of `heedful doctor`. */
import { hooks, html } from '../html.js';
import { events, json, sentence, useAnswer } from '../api.js';
import { intOf, spell } from '../state.js';
import { count, words } from '../words.js';
import { text } from '../words/overview.js';
import { literal } from '../reading.js';
import { Note, Slider } from '../views/controls.js';

export const title = text.title;
export const sees = text.sees;
export const why = { text: text.whyText, lecture: text.lecture };
export const needs = 'run';
const KINDS = { 'cross-attention': 'cross', attention: 'self' };

export function applies() {
  return '';
}

/** Shells of the tree of costs: a model without an encoder and a decoder of its own is one shell. */
function shellsOf(costs, drawn) {
  const named = costs.parts.filter((part) => /^(encoder|decoder)$/.test(part.name));
  if (named.length) return named;
  return [{ name: drawn?.[0]?.name ?? text.model, detail: '', parts: costs.parts, parameters: costs.parameters, flops: costs.flops }];
}

/** One part as a box; its bar is its share of the parameters. */
function Box({ part, shell, total, go, pair }) {
  const from = text.from(part.name, part.detail, count(part.parameters), count(part.flops));
  const which = shell === 'encoder' && pair && part.name === 'attention' ? 'encoder' : KINDS[part.name];
  const inside = html`<span class="box-name">${part.name}</span><span class="box-detail">${part.detail}</span>
    <span class="box-count">${part.parameters ? count(part.parameters) : ''}</span>
    <i style=${{ width: `${Math.max(0, (100 * part.parameters) / total)}%` }} />`;
  return which
    ? html`<button type="button" class="box" data-from=${`${from}. ${text.step}`} onClick=${() => go('step', { head: spell({ which, layer: 1, head: 1 }) })}>${inside}</button>`
    : html`<div class="box" tabindex="0" data-from=${from}>${inside}</div>`;
}

function Parts({ part, ...rest }) {
  if (!part.parts.length) return html`<${Box} part=${part} ...${rest} />`;
  const many = part.parts[0].count > 1 ? part.parts[0].count : 0;
  return html`<div class=${`group${many ? ' many' : ''}`}><span class="group-name">${part.name}</span>
    ${[...part.parts].reverse().map((one, i) => html`<${Parts} key=${i} part=${one} ...${rest} />`)}</div>`;
}

/** A shell from its input, below, to its output. */
function Shell({ shell, drawn, total, go, pair }) {
  const facts = drawn ? [text.norms[drawn.norm], drawn.input_position && text.added(drawn.input_position),
    drawn.score_position && text.scored(drawn.score_position), ...drawn.masks.map((mask) => text.masks[mask] ?? mask)] : [];
  return html`<section class="shell"><h2>${shell.name}</h2>
    ${[...shell.parts].reverse().map((part, i) => html`<${Parts} key=${i} part=${part} shell=${shell.name} total=${total} go=${go} pair=${pair} />`)}
    <ul class="facts">${facts.filter(Boolean).map((fact) => html`<li key=${fact}>${fact}</li>`)}</ul></section>`;
}

/** The checks of the doctor, one after the other. */
function Checks({ run, shown }) {
  const [state, setState] = hooks.useState({ found: [], busy: false, error: '' });
  const control = hooks.useRef(null);
  hooks.useEffect(() => {
    setState({ found: [], busy: false, error: '' });
    return () => control.current?.abort();
  }, [run.id]);
  async function start() {
    control.current = new AbortController();
    const { signal } = control.current;
    const found = [];
    setState({ found, busy: true, error: '' });
    try {
      const job = await json('/api/jobs', { body: { kind: 'doctor', run: run.id }, method: 'POST', signal });
      for await (const { data } of events(`/api/jobs/${job.id}/events`, { signal })) {
        if (data?.check) found.push(data.check);
        setState({ found: [...found], busy: true, error: '' });
      }
      setState({ found, busy: false, error: '' });
    } catch (error) {
      if (!signal.aborted) setState({ found, busy: false, error: sentence(error) });
    }
  }
  shown.checks = state.found;
  return html`<section class="checks"><h2>${text.checks}</h2>
    ${!state.found.length && !state.busy && html`<button type="button" class="small" onClick=${start}>${text.check}</button>`}
    <${Note} error=${state.error} busy=${state.busy && text.checking(state.found.length)} />
    <ul>${state.found.map((one) => html`<li key=${one.name} class=${`check ${one.verdict.replace(' ', '-')}`} tabindex="0"
      data-from=${[one.limit, one.remedy].filter(Boolean).join('. ')}><b>${one.name}</b> <em>${text.verdicts[one.verdict]}</em>
      <span>${one.summary}</span></li>`)}</ul></section>`;
}

export function render({ view }) {
  const { state, set, go, run, shown } = view;
  const [length, source] = [intOf(state.length, 1, 1024, 32), intOf(state.source, 1, 1024, 32)];
  const body = { run: run.id, length, source_length: source };
  const answer = useAnswer((signal) => json('/api/cost', { body, signal }), [JSON.stringify(body)]);
  const { value } = answer;
  Object.assign(shown, { value });
  if (!value) return html`<aside class="controls"></aside><section class="picture"><${Note} error=${answer.error} busy=${words.loading} /></section>`;
  const { costs, drawing } = value;
  const shells = shellsOf(costs, drawing);
  const pair = shells.length > 1;
  return html`<aside class="controls">
    <${Slider} label=${text.length} value=${length} low=${1} high=${1024} format=${count} onChange=${(n) => set({ length: String(n) }, true)} />
    ${pair && html`<${Slider} label=${text.source} value=${source} low=${1} high=${1024} format=${count} onChange=${(n) => set({ source: String(n) }, true)} />`}
    <${Checks} run=${run} shown=${shown} />
  </aside>
  <section class="picture overview"><p class="label">${text.total(count(costs.parameters), count(costs.flops))}</p>
    <div class="shells">${shells.map((shell) => html`<${Shell} key=${shell.name} shell=${shell} total=${costs.parameters} go=${go} pair=${pair}
      drawn=${drawing?.find((one) => one.name === shell.name)} />`)}</div></section>`;
}

export function code({ run, state }) {
  return `import heedful\nfrom heedful.inside.costs import costs\n\nmodel = heedful.load(${literal(run.folder ?? run.name)})\n`
    + `found = costs(model.model, 1, ${intOf(state.length, 1, 1024, 32)})\nfound.parameters, found.whole.flops\n`;
}

export function csv({ shown }) {
  const rows = [['part', 'detail', 'parameters', 'flops']];
  const walk = (part, path) => {
    rows.push([`${path}${part.name}`, part.detail, part.parameters, part.flops]);
    for (const one of part.parts) walk(one, `${path}${part.name} / `);
  };
  for (const part of shown.value?.costs.parts ?? []) walk(part, '');
  return rows;
}
