/** The nine stations of the Step page. Each takes what /steps answered, and draws its own numbers. */
import { html, hooks } from './html.js';
import { tensor, url, useAnswer } from './api.js';
import { fixed, num, origin, words } from './words.js';
import { text } from './words/step.js';
import { topOf } from './paint.js';
import { Bars } from './views/bars.js';
import { Chips } from './views/chips.js';
import { Num } from './views/controls.js';
import { Strip } from './views/strip.js';
import { Table } from './views/table.js';

export const MANY = 24; // keys that are shown at first

/** A function that says where a number comes from. */
export function originOf(steps, name, more = {}) {
  const { which, layer, head, query } = steps;
  const per = { x: 1, normed: 1, heads: 1, out: 1, added: 1, sum: 1, after: 1 };
  return (i) => origin({ tensor: name, which, layer, head: per[name] ? undefined : head, row: query, column: i + 1,
    formula: text.formula[name], ...more });
}

/** The keys to draw: all, or those with the largest weights, in the order of the text. */
export function keysOf(steps, all) {
  const places = steps.keys.map((_, j) => j);
  if (all || places.length <= MANY) return places;
  return places.sort((a, b) => steps.weights[b] - steps.weights[a]).slice(0, MANY).sort((a, b) => a - b);
}

export function products(steps, key) {
  return steps.q.map((x, i) => x * steps.k[key][i]);
}

export function softmax(scores) {
  const top = Math.max(...scores.filter(Number.isFinite));
  const powers = scores.map((x) => (Number.isFinite(x) ? Math.exp(x - top) : 0));
  const sum = powers.reduce((a, b) => a + b, 0);
  return { top, powers, sum, weights: powers.map((x) => x / sum) };
}

export function entropy(weights) {
  return weights.reduce((sum, w) => sum - (w > 0 ? w * Math.log2(w) : 0), 0);
}

function KeyPicker({ steps, chosenKey, onKey, shownKeys }) {
  const items = shownKeys.map((j) => ({ text: steps.keys[j], on: j === chosenKey, from: `${text.key} ${j + 1}` }));
  return html`<div class="picker"><span class="label">${text.key}</span>
    <${Chips} label=${text.key} items=${items} onPick=${(i) => onKey(shownKeys[i])} /></div>`;
}

/** The mean and the standard deviation of a vector's components. */
function Moments({ values, name }) {
  const mean = values.reduce((sum, x) => sum + x, 0) / values.length;
  const deviation = Math.sqrt(values.reduce((sum, x) => sum + (x - mean) ** 2, 0) / values.length);
  return html`<p class="moments beside">${text.mean} <${Num} value=${mean} from=${`Σ ${name} / ${values.length}`} />, ${text.deviation}
    <${Num} value=${deviation} from=${`√(Σ (${name} − mean)² / ${values.length})`} /></p>`;
}

function Input({ steps, all }) {
  const { sublayer } = steps;
  if (!sublayer) return html`<p class="note">${text.noSublayer}</p>`;
  const post = sublayer.order === 'post-norm';
  return html`<${Strip} name=${text.names.x} values=${sublayer.x} all=${all} from=${originOf(steps, 'x')} />
    <${Moments} values=${sublayer.x} name="x" />
    ${post ? html`<p class="note">${text.postNorm}</p>`
      : html`<${Strip} name=${text.names.normed} values=${sublayer.normed} all=${all} from=${originOf(steps, 'normed')} />
        <${Moments} values=${sublayer.normed} name="norm(x)" />`}`;
}

/** One component of q as a sum of products with a row of W_q. */
function AsSum({ steps, trace, component }) {
  const { which, layer, head } = steps;
  const ask = (name) => (signal) => tensor(url(`/api/trace/${trace.id}/tensor`, { name, which, layer, head, dtype: 'f32' }), { signal });
  const matrix = useAnswer(ask('W_q'), [trace.id, which, layer, head]);
  const input = steps.sublayer?.normed;
  if (!matrix.value || !input || matrix.value.shape[1] !== input.length) return null;
  const D = input.length;
  const terms = input.map((x, d) => ({ d, value: x * matrix.value.data[component * D + d], x }));
  const order = [...terms].sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const items = order.slice(0, 8).map(({ d, value, x }) => ({ name: `${d + 1}`, value,
    from: `W_q[${component + 1}, ${d + 1}] · n[${d + 1}] = ${num(matrix.value.data[component * D + d])} · ${num(x)}` }));
  const rest = order.slice(8).reduce((sum, { value }) => sum + value, 0);
  if (order.length > 8) items.push({ name: text.rest(D - 8), value: rest, from: text.rest(D - 8) });
  const left = steps.q[component] - terms.reduce((sum, { value }) => sum + value, 0);
  if (Math.abs(left) > 1e-4) items.push({ name: text.biasTerm, value: left, from: text.biasFrom });
  return html`<h3>${text.component('q', component + 1)}</h3><${Bars} label=${text.component('q', component + 1)} signed items=${items} />`;
}

function Projected(props) {
  const { steps, all, chosenKey, component, onComponent, trace } = props;
  const word = steps.keys[chosenKey];
  const row = { row: chosenKey + 1 };
  return html`<p class="label">${text.ofQuery(steps.word)}</p>
    <${Strip} name="q" values=${steps.q} all=${all} from=${originOf(steps, 'q')} marked=${component} onPick=${onComponent} />
    <${KeyPicker} ...${props} />
    <p class="label">${text.ofKey(word)}</p>
    <${Strip} name="k" values=${steps.k[chosenKey]} all=${all} from=${originOf(steps, 'k', row)} />
    <${Strip} name="v" values=${steps.v[chosenKey]} all=${all} from=${originOf(steps, 'v', row)} />
    ${component === null ? html`<p class="note">${text.pickComponent}</p>`
      : html`<${AsSum} steps=${steps} trace=${trace} component=${component} />`}`;
}

function Product(props) {
  const { steps, all, chosenKey } = props;
  const terms = products(steps, chosenKey);
  const sum = terms.reduce((a, b) => a + b, 0);
  const top = Math.max(topOf(steps.q), topOf(steps.k[chosenKey]));
  const order = terms.map((value, i) => ({ i, value })).sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, 8);
  const pair = (i) => `q[${i + 1}] · k[${i + 1}] = ${num(steps.q[i])} · ${num(steps.k[chosenKey][i])} = ${num(terms[i])}`;
  const at = { which: steps.which, layer: steps.layer, head: steps.head, row: steps.query, column: chosenKey + 1 };
  return html`<${KeyPicker} ...${props} />
    <${Strip} name="q" values=${steps.q} top=${top} all=${all} from=${originOf(steps, 'q')} />
    <${Strip} name="k" values=${steps.k[chosenKey]} top=${top} all=${all} from=${originOf(steps, 'k', { row: chosenKey + 1 })} />
    <${Strip} name=${text.names.products} values=${terms} all=${all} from=${pair} />
    <p class="sum">${text.sumOfProducts} <${Num} value=${sum} digits=${4} from=${origin({ tensor: text.sumOfProducts, ...at, formula: 'Σ q_i · k_i' })} />
      <span class="label">${text.modelScore}</span> <${Num} value=${steps.scores[chosenKey]} digits=${4} from=${origin({ tensor: 'scores', ...at, formula: text.formula.scores })} /></p>
    <h3>${text.whyLarge}</h3><p class="label">${text.largest}</p>
    <${Bars} label=${text.largest} signed items=${order.map(({ i, value }) => ({ name: `${i + 1}`, value, from: pair(i) }))} />`;
}

function Scores({ steps, shownKeys, chosenKey, onKey }) {
  const from = originOf(steps, 'scores');
  return html`<${Bars} label=${text.stations[3][1]} signed chosen=${shownKeys.indexOf(chosenKey)} onPick=${(i) => onKey(shownKeys[i])}
    items=${shownKeys.map((j) => ({ name: steps.keys[j], value: steps.scores[j], from: from(j) }))} />`;
}

/** A softmax row with its entropy. */
function Softened({ name, weights, steps, shownKeys, formula, faint }) {
  const { which, layer, head, query } = steps;
  const from = (i) => origin({ tensor: name, which, layer, head, row: query, column: shownKeys[i] + 1, formula });
  return html`<div class=${`softened${faint ? ' ghostly' : ''}`}><p class="label">${name} · ${text.entropy} <${Num} value=${entropy(weights)}
      text=${text.bits(num(entropy(weights)))} from=${text.entropyFrom} /></p>
    <${Strip} kind="weight" all values=${shownKeys.map((j) => weights[j])} from=${from}
      labels=${shownKeys.length <= 16 ? shownKeys.map((j) => steps.keys[j]) : undefined} /></div>`;
}

function Scaled({ steps, shownKeys }) {
  const from = originOf(steps, 'scaled');
  const hidden = (scores) => scores.map((x, j) => (steps.allowed[j] ? x : -Infinity));
  const ghost = softmax(hidden(steps.scores)).weights;
  const own = softmax(hidden(steps.scaled)).weights;
  return html`<p>${steps.scale === 1 ? text.unscaled : html`scale = <${Num} value=${steps.scale} digits=${4}
      from=${`1 / √${steps.q.length} = ${num(1 / Math.sqrt(steps.q.length), 4)}`} />`}</p>
    <${Bars} label=${text.stations[4][1]} signed items=${shownKeys.map((j) => ({ name: steps.keys[j], value: steps.scaled[j],
      ghost: steps.scores[j], from: `${from(j)} = ${num(steps.scores[j])} · ${num(steps.scale)}` }))} />
    <${Softened} name=${text.withScale} weights=${own} steps=${steps} shownKeys=${shownKeys} formula="softmax(scaled)" />
    <${Softened} name=${text.withoutScale} weights=${ghost} steps=${steps} shownKeys=${shownKeys} formula=${text.formula.ghost} faint />`;
}

/** Why a key is masked. */
export function reason(steps, j) {
  return steps.which === 'self' && j + 1 > steps.query ? text.later : text.hidden;
}

function Masked({ steps, shownKeys }) {
  const labels = shownKeys.length <= 16 ? shownKeys.map((j) => steps.keys[j]) : undefined;
  const pick = (values) => shownKeys.map((j) => values[j] ?? -Infinity);
  const from = (name) => (i) => originOf(steps, name)(shownKeys[i]);
  const why = (i) => (steps.allowed[shownKeys[i]] ? from('masked')(i) : `${reason(steps, shownKeys[i])}; ${from('masked')(i)}`);
  return html`<${Strip} name="scaled" all values=${pick(steps.scaled)} labels=${labels} from=${from('scaled')} />
    ${steps.bias ? html`<${Strip} name=${text.names.bias} all values=${pick(steps.bias)} from=${from('bias')} />`
      : html`<p class="note">${text.noBias}</p>`}
    <${Strip} name="masked" all values=${pick(steps.masked)} from=${why} crossed=${(i) => !steps.allowed[shownKeys[i]]} />
    ${steps.allowed.every(Boolean) && html`<p class="note">${text.noMask}</p>`}`;
}

function Softmax({ steps, before, shownKeys, chosenKey, onKey }) {
  const { powers, sum, weights } = softmax(steps.masked.map((x) => x ?? -Infinity));
  const edited = weights.some((x, j) => Math.abs(x - steps.weights[j]) > 1e-3);
  const rows = shownKeys.map((j) => ({ j, key: j, word: steps.keys[j], masked: steps.masked[j] ?? -Infinity, exp: powers[j], plain: weights[j], weight: steps.weights[j] }));
  const from = (name) => (row) => originOf(steps, name)(row.j);
  const columns = [
    { key: 'word', title: text.columns.key, text: (row) => row.word, plain: true },
    { key: 'masked', title: text.columns.masked, text: (row) => fixed(row.masked, 3), from: from('masked') },
    { key: 'exp', title: text.columns.exp, text: (row) => fixed(row.exp, 4), from: from('exp') },
    ...(edited ? [{ key: 'plain', title: 'exp / Σ', text: (row) => fixed(row.plain, 4), from: () => text.plainFrom }] : []),
    { key: 'weight', title: text.columns.weight, text: (row) => fixed(row.weight, 4), from: from('weights') },
  ];
  return html`<${Table} label=${text.stations[6][1]} columns=${columns} rows=${rows} chosen=${(row) => row.j === chosenKey} onChoose=${(row) => onKey(row.j)} />
    <p class="sum">${text.expSum} = <${Num} value=${sum} digits=${5} from="Σ exp(masked − largest masked)" /></p>
    ${edited && html`<p class="note">${text.edited}</p>`}
    ${before && html`<p class="label">${text.beforeEdits}</p>`}
    <${Bars} label=${text.names.weight} top=${1} items=${shownKeys.map((j) => ({ name: steps.keys[j], value: steps.weights[j], ghost: before?.weights[j],
      from: originOf(steps, 'weights')(j) + (before ? `; ${text.without(fixed(before.weights[j], 4))}` : '') }))} />`;
}

function Values({ steps, shownKeys, all }) {
  const top = topOf(steps.weighted_values.flat());
  return html`${shownKeys.map((j) => html`<${Strip} key=${j} name=${`${fixed(steps.weights[j])} × ${steps.keys[j]}`} values=${steps.weighted_values[j]}
      top=${top} all=${all} faint=${steps.weights[j] < 0.01} from=${originOf(steps, 'weighted', { row: j + 1 })} />`)}
    <div class="total"><${Strip} name=${text.names.output} values=${steps.output} top=${top} all=${all} from=${originOf(steps, 'output')} /></div>`;
}

function Output({ steps, all }) {
  const { sublayer } = steps;
  const [whole, setWhole] = hooks.useState(false);
  if (!sublayer) return html`<p class="note">${text.noSublayer}</p>`;
  const width = steps.output.length;
  const start = (steps.head - 1) * width;
  const joined = whole || all ? sublayer.heads : sublayer.heads.slice(start, start + width);
  const shift = whole || all ? 0 : start;
  const own = (i) => originOf(steps, 'heads')(i + shift) + (Math.floor((i + shift) / width) === steps.head - 1 ? `, ${text.thisHead}` : '');
  const strip = (name) => sublayer[name] && html`<${Strip} name=${text.names[name]} values=${sublayer[name]} all=${all} from=${originOf(steps, name)} />`;
  return html`<${Strip} name=${whole || all ? text.names.heads : words.headOnly(steps.head)} values=${joined} all=${all || whole} from=${own} />
    ${!all && html`<p class="beside"><button class="small" onClick=${() => setWhole(!whole)}>${whole
      ? words.headOnly(steps.head) : words.allHeads(sublayer.heads.length / width)}</button></p>`}
    ${strip('out')}${sublayer.order === 'sandwich' && strip('added')}${strip('x')}
    <div class="total">${strip('sum')}</div>
    ${sublayer.sum === null && html`<p class="note">${text.parallel}</p>`}
    ${sublayer.order === 'post-norm' && strip('after')}`;
}

export const STATIONS = [Input, Projected, Product, Scores, Scaled, Masked, Softmax, Values, Output];
