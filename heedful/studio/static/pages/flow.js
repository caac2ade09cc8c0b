/** Flow: what every layer would predict, what every part adds, and how far tokens have traveled. */
import { hooks, html, useTheme } from '../html.js';
import { json, useAnswer } from '../api.js';
import { intOf, listOf } from '../state.js';
import { num, origin, words } from '../words.js';
import { text } from '../words/flow.js';
import { codeOfTrace, literal } from '../reading.js';
import { cellStyle, weightColor } from '../paint.js';
import { Bars } from '../views/bars.js';
import { Choice, Note } from '../views/controls.js';
import { Curve } from '../views/curve.js';
import { HeatMap } from '../views/map.js';
import { Overlay } from '../views/overlay.js';
import { Ribbons } from '../views/ribbons.js';

export const title = text.title;
export const sees = text.sees;
export const why = { text: text.whyText, lecture: text.lecture };
export const needs = 'trace';
const STEPS = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] };

export function applies(run, about) {
  return about.kinds.length ? '' : text.none(about.architecture);
}

/** Layers upwards, positions across; below it, the ranks at one position, and what parts add there. */
function Lens({ lens: { layers, read, predicted, parts }, cell, pick }) {
  const theme = useTheme();
  const box = hooks.useRef(null);
  const [n, t] = [intOf(cell[0], 1, layers.length, layers.length) - 1, intOf(cell[1], 1, read.length, 1) - 1];
  hooks.useEffect(() => box.current.querySelector('.at').scrollIntoView({ block: 'nearest', inline: 'nearest' }), [n, t]);
  const key = (event) => {
    if (!STEPS[event.key]) return;
    const [up, right] = STEPS[event.key];
    pick(Math.min(layers.length - 1, Math.max(0, n + up)), Math.min(read.length - 1, Math.max(0, t + right)));
    event.preventDefault();
  };
  const row = ({ layer, top }) => html`<tr key=${layer}><th scope="row">${text.layer(layer)}</th>${top.map(([[token, share]], i) => html`<td key=${i}
    class=${`${layer === n && i === t ? 'at' : ''}${token === predicted[i] ? ' same' : ''}`} style=${cellStyle(weightColor(share, theme))} onClick=${() => pick(layer, i)}
    data-from=${`${num(share)}: ${origin({ tensor: text.layer(layer), column: i + 1, formula: text.shows[0][2] })}`}>${token}</td>`)}</tr>`;
  const top = layers[n].top[t].map(([token, share]) => `“${token}” ${num(share)}`).join(', ');
  return html`<div class="lens" ref=${box} role="application" tabindex="0" aria-label=${`${text.map}. ${words.keyboard}`} onKeyDown=${key}><table><tbody>
      ${layers.map(row).reverse()}<tr><th scope="row">${text.read}</th>${read.map((word, i) => html`<td key=${i} class="read">${word}</td>`)}</tr></tbody></table></div>
    <p class="readout" aria-live="polite">${text.say(read[t], text.layer(n), top, predicted[t], layers[n].rank[t])}</p>
    <div class="columns"><${Curve} x=${layers.map((one) => one.layer)} series=${[{ name: text.ranks, values: layers.map((one) => one.rank[t]) }]}
        xName=${words.layer} label=${text.rank(predicted[t])} height=${200} logY />
      <section><h2>${text.parts}</h2><${Bars} label=${text.parts} items=${parts.filter((one) => one.norm).map((one) => ({
        name: `${one.layer || ''} ${one.part}`, value: one.norm[t], from: text.adds(num(one.score?.[t])) }))} /></section></div>`;
}

/** How much of each token has reached each position after all layers. */
function Rollout({ trace, cell, pick, rolled: { down, across, rollout, rest } }) {
  const [rows, cols, label] = [down.length, across.length, text.rollout];
  const [row, column] = [intOf(cell[0], 1, rows, 1) - 1, intOf(cell[1], 1, cols, 1) - 1];
  const layers = hooks.useMemo(() => [Float32Array.from(rollout.flat())], [rollout]);
  const say = (r, c) => `${text.rolled(down[r], across[c], num(rollout[r][c]))}: ${origin({ tensor: 'rollout', row: r + 1, column: c + 1, formula: text.shows[1][2] })}`;
  if (trace.picture) {
    const leading = cols - trace.picture.grid ** 2;
    return html`<${Overlay} trace=${trace} weights=${rollout[row]} leading=${leading} word=${down[row]} label=${`${label}: ${down[row]}`} say=${text.rolled}
      marked=${row < leading ? null : row - leading} onPatch=${(i) => pick(row === leading + i ? 0 : leading + i, 0)} />`;
  }
  const props = { down, across, label };
  return html`<p class="label">${label}</p>
    ${rows + cols < 50 && html`<${Ribbons} ...${props} weights=${layers[0]} threshold=${0.14} row=${cell[1] ? row : null} from=${say} />`}
    <${HeatMap} ...${props} layers=${layers} rows=${rows} cols=${cols} say=${say} scale="row" cell=${[row, column]} onCell=${pick} />
    ${rest[row] > 1e-3 && html`<p class="label" tabindex="0" data-from="1 − sum of the row">${text.rest(num(rest[row]))}</p>`}`;
}

export function render({ view: { state, set, trace, shown } }) {
  const path = `/api/trace/${trace.id}/flow?top=5`;
  const answer = useAnswer(async (signal) => ({ ...(await json(path, { signal })), path }), [path]);
  const flow = answer.value?.path === path ? answer.value : null;
  const show = state.show || (flow?.lens.refused && !flow.rollout.refused ? 'rollout' : 'lens');
  const found = flow?.[show];
  Object.assign(shown, { found, show });
  const props = { trace, cell: listOf(state.cell, '.'), pick: (r, c) => set({ cell: `${r + 1}.${c + 1}` }, true) };
  return html`<aside class="controls">
    <${Choice} label=${text.show} value=${show} options=${text.shows} onChange=${(name) => set({ show: name, cell: '' })} /></aside>
  <section class="picture"><${Note} error=${answer.error} busy=${!flow && words.loading}>${found?.refused}<//>
    ${found?.layers && html`<${Lens} ...${props} lens=${found} />`}${found?.rollout && html`<${Rollout} ...${props} rolled=${found} />`}</section>`;
}

export function code(view) {
  const { state, trace, shown: { show } } = view;
  const given = `${trace.picture ? 'picture' : literal(trace.text)}${state.target ? `, ${literal(state.target)}` : ''}`;
  const work = show === 'lens' ? `lens(model.loaded, ${given}).as_json()` : trace.picture
    ? 'rollout([trace.weights("self", layer + 1) for layer in range(trace.kinds["self"].layers)])' : `rollout_of(model.loaded, ${given}).as_json()`;
  return `${codeOfTrace(view)}\nfrom heedful.inside.edits import edit\nfrom heedful.inside.${show} import ${work.split('(')[0]}\n\n`
    + `with edit(model, ${JSON.stringify(listOf(state.edits))}):\n    seen = ${work}\nprint(seen)\n`;
}

export function csv({ shown: { found, show } }) {
  if (found.refused) return [[found.refused]];
  if (show === 'rollout') return [['', ...found.across, 'rest'], ...found.rollout.map((row, r) => [found.down[r], ...row, found.rest[r]])];
  return [['layer', 'position', 'read', 'predicted', 'rank', 'probability', 'norm', 'likeliest', 'its probability'],
    ...found.layers.flatMap((one) => found.read.map((word, t) => [one.layer, t + 1, word, found.predicted[t], one.rank[t], one.probability[t], one.norm[t], ...one.top[t][0]]))];
}
