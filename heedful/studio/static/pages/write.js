/** Write: what a model writes, fills in or labels; what else it could have written; where the words come from. */
import { hooks, html, useTheme } from '../html.js';
import { json, url, useAnswer } from '../api.js';
import { useStream } from '../job.js';
import { intOf, listOf } from '../state.js';
import { num, words } from '../words.js';
import { text as heads } from '../words/heads.js';
import { text } from '../words/write.js';
import { axesOf, grouped, literal } from '../reading.js';
import { Sliders, TokenChips, optionsOf, python } from '../decoding.js';
import { Bars } from '../views/bars.js';
import { Chips } from '../views/chips.js';
import { Choice, Note, Num, Pick, Slider, Toggle } from '../views/controls.js';
import { HeatMap } from '../views/map.js';
import { Ribbons } from '../views/ribbons.js';

export const title = text.title;
export const sees = text.sees;
export const why = { text: text.whyText, lecture: text.lecture };
export const needs = 'run';
export const input = true;
const SAMPLING = ['temperature', 'top_k', 'top_p', 'seed'];
const MASK = '[MASK]';

export function applies(run, { writes, can }) {
  return writes || can.includes('fill') || can.includes('classify') ? '' : text.nothing(can.join(', '));
}

function decodingOf(view) {
  return { ...optionsOf(['max_new_tokens'], view), ...(view.state.sample && { sample: true, ...optionsOf(SAMPLING, view) }) };
}

function tokensOf(stream) {
  return (stream?.events ?? []).flatMap((event) => event.token ?? []);
}

/** One way to write, and the alternatives of a token. */
function Branch({ n, prefix, given, view, open, onKnown, onBranch }) {
  const { state, set, run } = view;
  const stream = useStream('/api/write', { run: run.id, text: given, top: 10, prefix_tokens: prefix, edits: listOf(state.edits), ...decodingOf(view) });
  hooks.useEffect(() => onKnown(stream), [stream]);
  const tokens = tokensOf(stream);
  const at = open ? intOf(state.token, 0, tokens.length, 0) : 0;
  const chosen = tokens[at - 1];
  return html`<${TokenChips} label=${text.branch(n)} tokens=${tokens} at=${at - 1} onPick=${(i) => set({ row: n, token: i + 1 === at ? '' : i + 1 })}>
      ${n > 1 && html`<button type="button" class="small" aria-label=${text.remove} onClick=${() => onBranch()}>×</button>`}<//>
    <${Note} error=${stream.error} busy=${stream.busy && !tokens.length && words.loading} />
    ${chosen && html`<div class="instead"><h2>${text.instead(chosen.text)}</h2><${Bars} label=${text.instead(chosen.text)} top=${1}
      items=${chosen.top.map(([, name, log], i) => ({ name, value: Math.exp(log), from: text.token(num(log), num(Math.exp(log)), i + 1) }))}
      onPick=${(i) => onBranch([...tokens.slice(0, at - 1).map((one) => one.id), chosen.top[i][0]])} /></div>`}`;
}

/** The target, forced through the model. */
function Target({ view: { state, run }, given }) {
  const body = { run: run.id, texts: given, targets: state.target };
  const answer = useAnswer((signal) => json('/api/task/score', { body, signal }), [JSON.stringify(body)]);
  const { tokens, log_probabilities: logs } = answer.value?.scores[0] ?? {};
  return html`<${Note} error=${answer.error} />${tokens && html`<${TokenChips} label=${words.target}
    tokens=${tokens.map((one, i) => ({ text: one, log_probability: logs[i] }))}><span class="label">${words.target}</span><//>`}`;
}

/** Where the words of a branch come from. */
function useAlignment({ state, run, about }, given, target) {
  const [layer, head] = listOf(state.aligner, '.');
  const wanted = Boolean(target) && about.pair && about.kinds.includes('cross');
  const traced = useAnswer(wanted ? (signal) => json('/api/trace', { body: { run: run.id, text: given, target, edits: listOf(state.edits) }, signal }) : null,
    [wanted, run.id, given, target, state.edits]);
  const asked = { by: state.by || 'weight', row: state.at || 'prediction', which: 'cross', layer: layer || 0, head: head || 0, mean: layer && !head ? 1 : 0 };
  const path = traced.value && url(`/api/trace/${traced.value.id}/alignment`, asked);
  const answer = useAnswer(path ? (signal) => json(path, { signal }) : null, [path]);
  return { asked, target, kind: traced.value?.kinds.cross, found: path && answer.value, error: traced.error || answer.error };
}

function AlignmentControls({ state, set, asked, kind }) {
  const places = Array.from({ length: kind.layers * (kind.heads + 1) }, (_, i) => [Math.floor(i / (kind.heads + 1)) + 1, i % (kind.heads + 1)])
    .map(([layer, head]) => [head ? `${layer}.${head}` : String(layer), text.of(layer, head)]);
  const flip = (key) => html`<${Toggle} label=${heads[key]} on=${state[key]} onChange=${(on) => set({ [key]: on ? '1' : '' })} />`;
  return html`<${Pick} label=${text.head} value=${state.aligner ?? ''} options=${[['', text.best], ...places]} onChange=${(aligner) => set({ aligner })} />
    <${Pick} label=${text.by} value=${asked.by} options=${Object.entries(text.measures)} onChange=${(by) => set({ by })} />
    <${Choice} label=${text.row} value=${state.at ?? ''} options=${text.rows} onChange=${(at) => set({ at })} />
    <${Slider} label=${text.least} value=${Number(state.least || 0.1)} low=${0.02} high=${0.9} step=${0.02} onChange=${(least) => set({ least }, true)} />
    ${flip('merge')}${flip('hide')}`;
}

/** Ribbons and the matrix, linked. */
function Alignment({ state, set, asked, found }) {
  const [pointed, setPointed] = hooks.useState(null);
  const weighs = asked.by === 'weight';
  const { down, across, data, parts } = hooks.useMemo(() => {
    const axes = axesOf(found, { merge: state.merge, hide: state.hide });
    const values = grouped({ data: Float32Array.from(found.values.flat()), cols: found.across.length }, axes);
    const cols = axes.across.length;
    const most = (i) => Math.max(...values.subarray(i - (i % cols), i - (i % cols) + cols)) || 1;
    const labels = (some) => some.map((one) => one.label);
    return { down: labels(axes.down), across: labels(axes.across), data: [values], parts: weighs ? values : values.map((x, i) => x / most(i)) };
  }, [found, state.merge, state.hide]);
  const where = text.of(found.layer, found.head);
  const say = (r, c) => `${text.cell(down[r], across[c], num(data[0][r * across.length + c]))} (${text.measures[asked.by]}, ${where})`;
  const [r = null, c = 0] = listOf(state.cell, '.').map((n) => n - 1);
  const row = pointed ?? r;
  return html`<p class="label">${where}${!state.aligner && `: ${found.best.by}`}
      ${found.error_rate !== null && html`; ${text.rate} <${Num} value=${found.error_rate} from=${text.rateIs} />`}</p>
    <div class="align"><${Ribbons} down=${down} across=${across} weights=${parts} threshold=${Number(state.least || 0.1)} label=${text.where}
      row=${row} onRow=${setPointed} from=${say} />
    <${HeatMap} layers=${data} rows=${down.length} cols=${across.length} down=${down} across=${across} label=${text.where} say=${say} side=${34}
      scale=${weighs ? 'linear' : 'row'} kind=${asked.by === 'gradient' ? 'signed' : 'weight'} onRow=${setPointed}
      cell=${row < down.length && row !== null ? [row, c] : undefined} onCell=${(...at) => set({ cell: at.map((n) => n + 1).join('.') }, true)} /></div>`;
}

/** A model that writes. */
function Writer({ view, given }) {
  const { state, set, about, shown } = view;
  const [known, setKnown] = hooks.useState({});
  const names = ['', ...listOf(state.branches)];
  const open = intOf(state.row, 1, names.length, 1);
  const own = known[names[open - 1]];
  const alignment = useAlignment(view, given, own?.done?.text);
  Object.assign(shown, { streams: names.map((name) => known[name]), begun: tokensOf(own).slice(0, listOf(names[open - 1], '.').length), alignment });
  const branch = (n) => (ids) => {
    const next = ids ? [...new Set([...names, ids.join('.')])] : names.filter((_, i) => i !== n);
    set({ branches: next.slice(1).join(), row: ids && next.indexOf(ids.join('.')) + 1, token: '' });
  };
  return html`<aside class="controls">
    <${Choice} label=${text.decoding} value=${state.sample ?? ''} options=${text.ways} onChange=${(sample) => set({ sample })} />
    <${Sliders} names=${['max_new_tokens', ...(state.sample ? SAMPLING : [])]} view=${view} />
    ${alignment.found && html`<${AlignmentControls} ...${view} ...${alignment} />`}
  </aside>
  <section class="picture">
    ${names.map((name, i) => html`<${Branch} key=${name} n=${i + 1} prefix=${listOf(name, '.').map(Number)} given=${given} view=${view} open=${i + 1 === open}
      onKnown=${(stream) => setKnown((old) => ({ ...old, [name]: stream }))} onBranch=${branch(i)} />`)}
    ${state.target && about.pair && html`<${Target} view=${view} given=${given} />`}
    <h2>${text.where}</h2><${Note} error=${alignment.error}>${!about.pair && text.oneText}<//>
    ${alignment.found && html`<${Alignment} ...${view} ...${alignment} />`}
  </section>`;
}

/** The words that fit each blank, or the labels of a text or picture, with their probabilities. */
async function guessesOf({ run, about }, given, signal) {
  const ask = (path, body) => json(path, { body: { run: run.id, ...body }, signal });
  if (about.can.includes('fill')) {
    const { texts } = await ask('/api/task/fill', { texts: given, top: 10 });
    return texts[0].blanks.map((some) => some.map((one) => [one.word, one.probability]));
  }
  if (about.reads === 'pictures') return [(await ask('/api/trace', { text: given, edits: [] })).picture.labels];
  const { labels } = await ask('/api/task/classify', { texts: given });
  return [Object.entries(labels[0].probabilities).sort((a, b) => b[1] - a[1]).slice(0, 10)];
}

/** A model that fills blanks or gives labels: choosing a word masks it, or leaves it out. */
function Guesser({ view, given }) {
  const { state, set, about, shown } = view;
  const fills = about.can.includes('fill');
  const parts = about.reads === 'texts' ? given.split(/\s+/) : [];
  const answer = useAnswer(!fills || given.includes(MASK) ? (signal) => guessesOf(view, given, signal) : null, [given]);
  const ghost = useAnswer(state.before && !fills ? (signal) => guessesOf(view, state.before, signal) : null, [state.before]);
  const before = Object.fromEntries(ghost.value?.[0] ?? []);
  const change = (i) => set({ text: parts.map((part, n) => (n === i ? fills && MASK : part)).filter(Boolean).join(' '), before: given });
  shown.guesses = answer.value ?? [];
  return html`<aside class="controls"><p class="label">${parts.length > 1 && text[fills ? 'mask' : 'drop']}</p></aside><section class="picture">
    <${Chips} label=${words.text} items=${parts.map((part) => ({ text: part, on: part.includes(MASK) }))} onPick=${change} />
    <${Note} error=${answer.error} busy=${answer.busy && words.loading} />
    ${shown.guesses.map((some, n) => html`<h2>${fills ? `${MASK} ${n + 1}` : text.labels}</h2><${Bars} label=${text.labels} top=${1}
      items=${some.map(([name, value]) => ({ name, value, from: text.share, ghost: before[name] }))} />`)}
    ${ghost.value && html`<p class="label">${text.ghost(state.before)}</p>`}</section>`;
}

export function render({ view }) {
  return html`<${view.about.writes ? Writer : Guesser} view=${view} given=${view.state.text || view.about.example} />`;
}

export function code(view) {
  const { run, about, state, shown: { begun, alignment } } = view;
  const given = literal(state.text || about.example);
  const head = `import heedful\n\nmodel = heedful.load(${literal(run.folder ?? run.name)})\n`;
  if (about.can.includes('fill')) return `${head}model.fill(${given}, top=10).blanks\n`;
  if (!about.writes) return `${head}model.classify(${about.reads === 'texts' ? given : '"picture.png"'}).probabilities\n`;
  const first = literal(begun.map((one) => one.piece).join(''));
  const { asked, found, target } = alignment;
  const answer = `${head}answer = model.${about.writes}(${given}${about.pair ? `, prefix=${first}` : ` + ${first}`}${
    state.sample ? '' : ', beam=1'}, top=10${python(decodingOf(view))})\nanswer.tokens, answer.log_probabilities, answer.top\n`;
  return found ? `${answer}
from heedful.inside.attribute import attribute

attribute(model.loaded, ${given}, target=${literal(target)}, by="${asked.by}", row="${asked.row}", layer=${found.layer}, head=${
  found.head ?? '"mean"'}).chosen[0].weights_TS\n` : answer;
}

export function csv({ shown: { guesses, streams } }) {
  if (guesses) return [['blank', 'word', 'probability'], ...guesses.flatMap((some, n) => some.map((one) => [n + 1, ...one]))];
  return [['branch', 'step', 'token', 'log-probability'],
    ...streams.flatMap((stream, n) => tokensOf(stream).map((one, i) => [n + 1, i + 1, one.text, one.log_probability]))];
}
