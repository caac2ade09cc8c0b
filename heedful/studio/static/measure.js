/** What pages with long measurements share: which texts, the button with its progress, outputs beside each other. */
import { hooks, html } from './html.js';
import { json, recorded, useAnswer } from './api.js';
import { useJob, useStream } from './job.js';
import { intOf } from './state.js';
import { fixed, num } from './words.js';
import { shared } from './words/measure.js';
import { literal } from './reading.js';
import { Bars } from './views/bars.js';
import { Chips } from './views/chips.js';
import { Note, Pick } from './views/controls.js';

const [LINES, WRITTEN] = [256, 20]; // lines of a request; tokens that continue a text

/** A job that a link starts again: `ran` in the address says that it was started. */
export function useMeasure({ state, shown }, body) {
  const job = useJob(body);
  hooks.useEffect(() => {
    if (state.ran) job.start();
  }, [state.ran, JSON.stringify(body)]);
  Object.assign(shown, { body, result: job.result });
  return job;
}

/** The button of a job; while it runs, how far it is. */
export function Start({ view: { state, set }, job, label }) {
  const { done = 0, total = 1, doing = label } = job.progress ?? {};
  const begin = () => (state.ran ? job.start(true) : set({ ran: '1' }, true));
  const stop = () => {
    job.stop();
    set({ ran: '' }, true);
  };
  if (job.state === 'running') {
    return html`<div class="job"><progress max=${total} value=${done} aria-label=${doing} /><span class="label">
      ${shared.step(doing, done, total)}</span><button type="button" class="small" onClick=${stop}>${shared.stop}</button></div>`;
  }
  return html`<div class="job">${!recorded && html`<button type="button" class="primary" onClick=${begin}>
    ${job.state === 'done' ? shared.again : label}</button>`}<${Note} error=${job.error} /></div>`;
}

function linesOf(value, most) {
  return (value ?? '').split('\n').filter((line) => line.trim()).slice(0, most);
}

/** The texts that a measurement takes, as fields of a job. */
export function samplesOf({ state, about }) {
  const count = intOf(state.count, 2, LINES, 64);
  const found = count === 64 ? {} : { count };
  if (state.from !== 'paste') return { ...found, ...(state.from && { use_data: true }) };
  const rows = linesOf(state.lines, count).map((line) => line.split('\t'));
  const pairs = about.pair && rows.every((row) => row[1]);
  return { ...found, texts: rows.map((row) => row[0]), ...(pairs && { targets: rows.map((row) => row[1]) }) };
}

/** Which texts, and how many. The address keeps the pasted lines that can be used. */
export function Texts({ view: { state, set, about } }) {
  const [all, setAll] = hooks.useState(0);
  const [count, used] = [state.count || '64', linesOf(state.lines, state.count || 64).length];
  const take = ({ target }) => {
    setAll(linesOf(target.value).length);
    set({ lines: linesOf(target.value, LINES).join('\n') }, true);
  };
  return html`${about.reads === 'texts' && html`<${Pick} label=${shared.source} value=${state.from || ''}
      options=${shared.sources(about.own_data)} onChange=${(from) => set({ from, ran: '' })} />`}
    ${state.from === 'paste' && html`<label class="job"><span class="label">${shared.paste}</span><textarea rows="5" maxlength="5000000"
      value=${state.lines} onChange=${take} /><span class="label">${shared.used(used, Math.max(all, used))}</span></label>`}
    <${Pick} label=${shared.count} value=${count} options=${['16', '64', '256'].map((n) => [n, n])} onChange=${(n) => set({ count: n })} />`;
}

/** The Python of a measurement: the same method with the same fields. */
export function code({ run, runs, shown: { body } }) {
  const { kind, run: id, use_data: data, other, ...rest } = body;
  const folder = (one) => one.folder ?? one.name;
  const given = { ...rest, ...(data && { data: 'FILE' }), ...(other && { other: folder(runs.find((one) => one.id === other)) }) };
  return `import heedful\nfrom heedful.studio.measuring import measure_methods\n\nmodel = heedful.load(${literal(folder(run))})\n`
    + `*_, last = measure_methods()["${kind}"](model, ${JSON.stringify(given)}, b"")\nlast["result"]\n`;
}

/** What a model makes of a text: tokens as they come, or labels. @param {{run, about, text, edits} | null} asked */
export function useOutput(asked) {
  const body = asked?.about && { run: asked.run.id, text: asked.text, edits: asked.edits };
  const writes = body && asked.about.writes;
  const stream = useStream('/api/write', writes ? { ...body, top: 0, ...(writes === 'generate' && { max_new_tokens: WRITTEN }) } : null);
  const traced = body && !writes && asked.about.kinds.length > 0;
  const seen = useAnswer(traced ? (signal) => json('/api/trace', { body, signal }) : null, [traced && JSON.stringify(body)]);
  const tokens = stream.events.filter((one) => one.token).map(({ token }) => ({ text: token.text, from: shared.logP(num(token.log_probability)) }));
  const said = seen.value?.translation?.split(' ').map((one) => ({ text: one })) ?? [];
  return { tokens: writes ? tokens : said, labels: seen.value?.labels ?? [], error: stream.error || seen.error,
    none: seen.value && !said.length && !seen.value.labels.length };
}

/** Outputs below each other; tokens that the other lacks are marked. @param {{names: string[], outputs: object[]}} props */
export function Outputs({ names, outputs }) {
  const [first, second] = outputs;
  if (first.labels.length) {
    const before = new Map(second?.labels);
    return html`<p class="label">■ ${names[0]} ${second && `▯ ${names[1]}`}</p><${Bars} label=${names[0]} top=${1} format=${(x) => fixed(x, 3)}
      items=${first.labels.map(([name, value]) => ({ name, value, ghost: before.get(name), from: shared.probability }))} />`;
  }
  if (first.none) return html`<${Note}>${shared.nothing}<//>`;
  const lacks = (n, { text }) => outputs[1 - n] && !outputs[1 - n].tokens.some((one) => one.text === text);
  return outputs.map((one, n) => html`<div class="output" key=${n}><span class="label">${names[n]}</span><div>
    <${Chips} label=${names[n]} items=${one.tokens.map((token) => ({ ...token, on: lacks(n, token) }))} /><${Note} error=${one.error} /></div></div>`);
}
