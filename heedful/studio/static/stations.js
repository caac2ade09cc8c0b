/** The nine stations of the Step page. Each draws its own numbers of what /steps answered. */
import { html, hooks } from './html.js';
import { traced, useAnswer } from './api.js';
import { fixed, num, origin, words } from './words.js';
import { text } from './words/step.js';
import { topOf } from './paint.js';
import { Bars } from './views/bars.js';
import { Chips } from './views/chips.js';
import { Num } from './views/controls.js';
import { Strip } from './views/strip.js';
import { Table } from './views/table.js';

export const MANY = 24; // keys that are shown at first

/** A function that says where a number comes from; the stream belongs to no head. */
function originOf({ which, layer, head, query }, name, more) {
  const stream = /^(x|normed|heads|out|added|sum|after)$/.test(name);
  return (i) => origin({ tensor: name, which, layer, head: !stream && head, row: query, column: i + 1, formula: text.formula[name], ...more });
}

/** One of the vectors as a strip. `row`: the key that it belongs to. */
function Vector({ steps, name, row, ...rest }) {
  return html`<${Strip} name=${text.names[name] ?? name} from=${originOf(steps, name, row !== undefined && { row: row + 1 })} ...${rest} />`;
}

/** The largest terms of a sum as bars: [{name, value, from}]. */
function Terms({ label, items, more = [] }) {
  const shown = [...items].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, 8);
  return html`<${Bars} label=${label} signed items=${[...shown, ...more]} />`;
}

const total = (values) => values.reduce((sum, x) => sum + x, 0);

/** The keys to draw: all, or those with the largest weights, in the order of the text. */
export function keysOf(steps, all) {
  const places = [...steps.keys.keys()];
  if (all || places.length <= MANY) return places;
  return places.sort((a, b) => steps.weights[b] - steps.weights[a]).slice(0, MANY).sort((a, b) => a - b);
}

export function products(steps, key) {
  return steps.q.map((x, i) => x * steps.k[key][i]);
}

function softmax(scores) {
  const top = Math.max(...scores);
  const powers = scores.map((x) => Math.exp(x - top));
  const sum = total(powers);
  return { powers, sum, weights: powers.map((x) => x / sum) };
}

function KeyPicker({ steps, chosenKey, onKey, shownKeys }) {
  const items = shownKeys.map((j) => ({ text: steps.keys[j], on: j === chosenKey, from: `${text.key} ${j + 1}` }));
  return html`<div class="picker"><span class="label">${text.key}</span>
    <${Chips} label=${text.key} items=${items} onPick=${(i) => onKey(shownKeys[i])} /></div>`;
}

/** The mean and the standard deviation of a vector's components. */
function Moments({ values, name }) {
  const n = values.length;
  const mean = total(values) / n;
  const deviation = Math.sqrt(total(values.map((x) => (x - mean) ** 2)) / n);
  return html`<p class="moments beside">${text.mean} <${Num} value=${mean} from=${`Σ ${name} / ${n}`} />, ${
    text.deviation} <${Num} value=${deviation} from=${`√(Σ (${name} − mean)² / ${n})`} /></p>`;
}

function Input({ steps, all }) {
  const { sublayer } = steps;
  if (!sublayer) return html`<p class="note">${text.noSublayer}</p>`;
  const strip = (name) => html`<${Vector} steps=${steps} name=${name} values=${sublayer[name]} all=${all} />
    <${Moments} values=${sublayer[name]} name=${text.names[name]} />`;
  return html`${strip('x')}${sublayer.order === 'post-norm' ? html`<p class="note">${text.postNorm}</p>` : strip('normed')}`;
}

/** One component of q as a sum of products with a row of W_q. */
function AsSum({ steps, trace, component }) {
  const { which, layer, head } = steps;
  const matrix = useAnswer((signal) => traced(trace, { name: 'W_q', which, layer, head, dtype: 'f32' }, signal), [trace.id, which, layer, head]);
  const input = steps.sublayer?.normed;
  if (!matrix.value || !input || matrix.value.shape[1] !== input.length) return null;
  const D = input.length;
  const row = matrix.value.data.subarray(component * D, (component + 1) * D);
  const items = input.map((x, d) => ({ name: `${d + 1}`, value: x * row[d],
    from: `W_q[${component + 1}, ${d + 1}] · n[${d + 1}] = ${num(row[d])} · ${num(x)}` }));
  const sizes = items.map(({ value }) => value);
  const small = [...sizes].sort((a, b) => Math.abs(b) - Math.abs(a)).slice(8);
  const left = steps.q[component] - total(sizes);
  const more = [small.length && { name: text.rest(D - 8), value: total(small), from: text.rest(D - 8) },
    Math.abs(left) > 1e-4 && { name: text.biasTerm, value: left, from: text.biasFrom }].filter(Boolean);
  const label = text.component('q', component + 1);
  return html`<h3>${label}</h3><${Terms} label=${label} items=${items} more=${more} />`;
}

function Projected(props) {
  const { steps, all, chosenKey, component, onComponent, trace } = props;
  return html`<p class="label">${text.ofQuery(steps.word)}</p>
    <${Vector} steps=${steps} name="q" values=${steps.q} all=${all} marked=${component} onPick=${onComponent} />
    <${KeyPicker} ...${props} />
    <p class="label">${text.ofKey(steps.keys[chosenKey])}</p>
    ${['k', 'v'].map((name) => html`<${Vector} steps=${steps} name=${name} values=${steps[name][chosenKey]} all=${all} row=${chosenKey} />`)}
    ${component === null ? html`<p class="note">${text.pickComponent}</p>`
      : html`<${AsSum} steps=${steps} trace=${trace} component=${component} />`}`;
}

/** What words and positions add to a score, or why that cannot be said. */
function Sources({ steps, chosenKey }) {
  if (!steps.parts) return html`<p class="note">${steps.parts_refused}</p>`;
  return html`<p class="label">${text.sources}</p><div class="columns"><${Bars} label=${text.sources} signed items=${Object.entries(steps.parts).map(([name, values]) => ({
    name: text.parts[name], value: values[chosenKey], from: originOf(steps, text.parts[name], { formula: text.partFrom })(chosenKey) }))} /></div>`;
}

function Product(props) {
  const { steps, all, chosenKey } = props;
  const [terms, score, k] = [products(steps, chosenKey), steps.scores[chosenKey], steps.k[chosenKey]];
  const top = Math.max(topOf(steps.q), topOf(k));
  const pair = (i) => `q[${i + 1}] · k[${i + 1}] = ${num(steps.q[i])} · ${num(k[i])} = ${num(terms[i])}`;
  const from = (name, formula) => originOf(steps, name, formula && { formula })(chosenKey);
  return html`<${KeyPicker} ...${props} />
    <${Vector} steps=${steps} name="q" values=${steps.q} top=${top} all=${all} />
    <${Vector} steps=${steps} name="k" values=${k} top=${top} all=${all} row=${chosenKey} />
    <${Strip} name=${text.names.products} values=${terms} all=${all} from=${pair} />
    <p>${text.sumOfProducts} <${Num} value=${total(terms)} digits=${4} from=${from(text.sumOfProducts, 'Σ q_i · k_i')} />
      <span class="label aside">${text.modelScore}</span> <${Num} value=${score} digits=${4} from=${from('scores')} /></p>
    <h3>${text.whyLarge}</h3><p class="label">${text.largest}</p>
    <${Terms} label=${text.largest} items=${terms.map((value, i) => ({ name: `${i + 1}`, value, from: pair(i) }))} />
    <${Sources} steps=${steps} chosenKey=${chosenKey} />`;
}

function Scores({ steps, shownKeys, chosenKey, onKey }) {
  const from = originOf(steps, 'scores');
  return html`<${Bars} label=${text.stations[3][1]} signed chosen=${shownKeys.indexOf(chosenKey)} onPick=${(i) => onKey(shownKeys[i])}
    items=${shownKeys.map((j) => ({ name: steps.keys[j], value: steps.scores[j], from: from(j) }))} />`;
}

/** The words above a row of cells, if there is room for them. */
function labelsOf(steps, shownKeys) {
  return shownKeys.length <= 16 ? shownKeys.map((j) => steps.keys[j]) : undefined;
}

/** A softmax row with its entropy. */
function Softened({ name, scores, steps, shownKeys, formula, faint }) {
  const { weights } = softmax(scores.map((x, j) => (steps.allowed[j] ? x : -Infinity)));
  const entropy = total(weights.map((w) => (w > 0 ? -w * Math.log2(w) : 0)));
  return html`<div class=${faint ? 'ghostly' : ''}><p class="label">${name} · ${text.entropy} <${Num} value=${entropy} text=${text.bits(num(entropy))} from=${text.entropyFrom} /></p>
    <${Strip} kind="weight" all values=${shownKeys.map((j) => weights[j])} from=${(i) => originOf(steps, name, { formula })(shownKeys[i])}
      labels=${labelsOf(steps, shownKeys)} /></div>`;
}

function Scaled({ steps, shownKeys }) {
  const from = originOf(steps, 'scaled');
  return html`<p>${steps.scale === 1 ? text.unscaled : html`scale = <${Num} value=${steps.scale} digits=${4}
      from=${`1 / √${steps.q.length} = ${num(1 / Math.sqrt(steps.q.length), 4)}`} />`}</p>
    <${Bars} label=${text.stations[4][1]} signed items=${shownKeys.map((j) => ({ name: steps.keys[j], value: steps.scaled[j],
      ghost: steps.scores[j], from: `${from(j)} = ${num(steps.scores[j])} · ${num(steps.scale)}` }))} />
    <${Softened} ...${{ steps, shownKeys }} name=${text.withScale} scores=${steps.scaled} formula="softmax(scaled)" />
    <${Softened} ...${{ steps, shownKeys }} name=${text.withoutScale} scores=${steps.scores} formula=${text.formula.ghost} faint />`;
}

function Masked({ steps, shownKeys }) {
  const from = (name) => (i) => originOf(steps, name)(shownKeys[i]);
  const hidden = (i) => !steps.allowed[shownKeys[i]];
  const reason = (i) => (steps.which === 'self' && shownKeys[i] >= steps.query ? text.later : text.hidden);
  const strip = (name, more) => html`<${Strip} name=${name} all values=${shownKeys.map((j) => steps[name][j] ?? -Infinity)} from=${from(name)} ...${more} />`;
  return html`${strip('scaled', { labels: labelsOf(steps, shownKeys) })}
    ${steps.bias ? strip('bias') : html`<p class="note">${text.noBias}</p>`}
    ${strip('masked', { from: (i) => (hidden(i) ? `${reason(i)}; ` : '') + from('masked')(i), crossed: hidden })}
    ${steps.allowed.every(Boolean) && html`<p class="note">${text.noMask}</p>`}`;
}

function Softmax({ steps, before, shownKeys, chosenKey, onKey }) {
  const { powers, sum, weights } = softmax(steps.masked.map((x) => x ?? -Infinity));
  const edited = weights.some((x, j) => Math.abs(x - steps.weights[j]) > 1e-3);
  const rows = shownKeys.map((j) => ({ key: j, word: steps.keys[j], masked: steps.masked[j] ?? -Infinity, exp: powers[j], plain: weights[j], weights: steps.weights[j] }));
  const column = (key, digits) => ({ key, title: text.columns[key], text: (row) => fixed(row[key], digits), from: (row) => originOf(steps, key)(row.key) });
  const columns = [{ key: 'word', title: text.columns.word, text: (row) => row.word, plain: true }, column('masked', 3), column('exp', 4),
    ...(edited ? [column('plain', 4)] : []), column('weights', 4)];
  return html`<${Table} label=${text.stations[6][1]} columns=${columns} rows=${rows} chosen=${(row) => row.key === chosenKey} onChoose=${(row) => onKey(row.key)} />
    <p>${text.expSum} = <${Num} value=${sum} digits=${5} from="Σ exp(masked − largest masked)" /></p>
    ${edited && html`<p class="note">${text.edited}</p>`}
    ${before && html`<p class="label">${text.beforeEdits}</p>`}
    <${Bars} label=${text.columns.weights} top=${1} items=${shownKeys.map((j) => ({ name: steps.keys[j], value: steps.weights[j], ghost: before?.weights[j],
      from: originOf(steps, 'weights')(j) + (before ? `; ${text.without(fixed(before.weights[j], 4))}` : '') }))} />`;
}

function Values({ steps, shownKeys, all }) {
  const top = topOf(steps.weighted_values.flat());
  return html`${shownKeys.map((j) => html`<${Strip} key=${j} name=${`${fixed(steps.weights[j])} × ${steps.keys[j]}`} values=${steps.weighted_values[j]}
      top=${top} all=${all} faint=${steps.weights[j] < 0.01} from=${originOf(steps, 'weighted', { row: j + 1 })} />`)}
    <div class="total"><${Vector} steps=${steps} name="output" values=${steps.output} top=${top} all=${all} /></div>`;
}

function Output({ steps, all }) {
  const { sublayer, head, output: { length } } = steps;
  const [open, setOpen] = hooks.useState(false);
  if (!sublayer) return html`<p class="note">${text.noSublayer}</p>`;
  const whole = open || all;
  const start = whole ? 0 : (head - 1) * length;
  const from = (i) => originOf(steps, 'heads')(i + start) + (Math.floor((i + start) / length) === head - 1 ? `, ${text.thisHead}` : '');
  const strip = (name) => sublayer[name] && html`<${Vector} steps=${steps} name=${name} values=${sublayer[name]} all=${all} />`;
  return html`<${Strip} name=${whole ? text.names.heads : words.headOnly(head)} values=${whole ? sublayer.heads : sublayer.heads.slice(start, start + length)} all=${whole} from=${from} />
    ${!all && html`<p class="beside"><button class="small" onClick=${() => setOpen(!open)}>${open
      ? words.headOnly(head) : words.allHeads(sublayer.heads.length / length)}</button></p>`}
    ${strip('out')}${sublayer.order === 'sandwich' && strip('added')}${strip('x')}
    <div class="total">${strip('sum')}</div>
    ${sublayer.sum === null && html`<p class="note">${text.parallel}</p>`}
    ${sublayer.order === 'post-norm' && strip('after')}`;
}

export const STATIONS = [Input, Projected, Product, Scores, Scaled, Masked, Softmax, Values, Output];
