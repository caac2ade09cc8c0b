/** Flow: what every layer would predict, what every part adds, and how far tokens have traveled. */
import { hooks, html } from '../html.js';
import { json, useAnswer } from '../api.js';
import { intOf, listOf } from '../state.js';
import { num, words } from '../words.js';
import { text } from '../words/flow.js';
import { spellView, viewOf } from '../reading.js';
import { Bars } from '../views/bars.js';
import { Choice, Note } from '../views/controls.js';
import { Curve } from '../views/curve.js';
import { HeatMap } from '../views/map.js';
import { Overlay } from '../views/overlay.js';

export const said = text;
export const needs = 'trace';

/** What the lens shows as a map: the last layer above. */
function lensMap({ layers, read, predicted }) {
  const rows = layers.toReversed();
  const tops = rows.flatMap((one) => one.top);
  const likely = (top) => top.map(([token, share]) => `“${token}” ${num(share)}`).join(', ');
  const say = (r, c) => text.say(read[c], text.layer(rows[r].layer), likely(rows[r].top[c]), predicted[c], rows[r].rank[c]);
  return { down: rows.map((one) => text.layer(one.layer)), across: read, values: tops.map((top) => top[0][1]), say, side: 90, tall: 32,
    tokens: tops.map((top) => top[0][0]), strong: (i) => tops[i][0][0] === predicted[i % read.length] };
}

function rolloutMap({ down, across, rollout, rest }) {
  const say = (r, c) => `${text.rolled(down[r], across[c], num(rollout[r][c]))}${rest[r] > 1e-3 ? text.rest(num(rest[r])) : ''}`;
  return { down, across, values: rollout.flat(), say, scale: 'row' };
}

/** One position: the rank of the prediction, and what parts add. */
function Position({ lens: { layers, predicted, parts }, t }) {
  const series = hooks.useMemo(() => [{ name: text.ranks, values: layers.map((one) => one.rank[t]) }], [layers, t]);
  return html`<div class="columns"><${Curve} x=${layers.map((one) => one.layer)} series=${series} xName=${words.layer} label=${text.rank(predicted[t])} height=${200} logY />
    <section><h2>${text.parts}</h2><${Bars} label=${text.parts} items=${parts.filter((one) => one.norm).map((one) => ({
      name: `${one.layer || ''} ${one.part}`, value: one.norm[t], from: text.adds(num(one.score?.[t])) }))} /></section></div>`;
}

/** A lens or a rollout as a map; a rollout of patches over the picture. */
function Found({ state, set, trace, found, lens }) {
  const map = hooks.useMemo(() => {
    const made = lens ? lensMap(found) : rolloutMap(found);
    return { ...made, layers: [Float32Array.from(made.values)] };
  }, [found]);
  const [{ down }, rows, cols] = [map, map.down.length, map.across.length];
  const cell = listOf(state.cell, '.');
  const [r, c] = [intOf(cell[0], 1, rows, 1) - 1, intOf(cell[1], 1, cols, 1) - 1];
  const pick = (row, column = 0) => set({ cell: `${row + 1}.${column + 1}` }, true);
  if (trace.picture && !lens) {
    const leading = cols - trace.picture.grid ** 2;
    return html`<${Overlay} ...${{ trace, leading }} weights=${found.rollout[r]} word=${down[r]} label=${`${text.rollout}: ${down[r]}`} say=${text.rolled}
      marked=${r < leading ? null : r - leading} onPatch=${(i) => pick(r === leading + i ? 0 : leading + i)} />`;
  }
  return html`<${HeatMap} ...${map} label=${lens ? text.shows[0][2] : text.rollout} cell=${[r, c]} onCell=${pick}
      view=${viewOf(state.zoom)} onView=${(zoom) => set({ zoom: spellView(zoom) }, true)} />
    ${lens && html`<${Position} lens=${found} t=${c} />`}`;
}

export function render({ view: { state, set, trace, shown } }) {
  const path = `/api/trace/${trace.id}/flow?top=5`;
  const answer = useAnswer(async (signal) => ({ ...(await json(path, { signal })), path }), [path]);
  const flow = answer.value?.path === path ? answer.value : null;
  const show = state.show || (flow?.lens.refused && !flow.rollout.refused ? 'rollout' : 'lens');
  const found = flow?.[show];
  Object.assign(shown, { found, code: flow?.codes[show] });
  return html`<aside class="controls"><${Choice} label=${text.show} value=${show} options=${text.shows} onChange=${(name) => set({ show: name, cell: '', zoom: '' })} /></aside>
  <section class="picture"><${Note} error=${answer.error} busy=${!flow && words.loading}>${found?.refused}<//>
    ${found && !found.refused && html`<${Found} key=${show} ...${{ state, set, trace, found }} lens=${show === 'lens'} />`}</section>`;
}

export function csv({ shown }) {
  const { layers = [], read, down, across, rollout } = shown.found ?? {};
  if (rollout) return [['', ...across], ...rollout.map((row, r) => [down[r], ...row])];
  return [['layer', 'read', 'rank', 'probability', 'norm', 'most likely', 'its probability'],
    ...layers.flatMap((one) => read.map((word, t) => [one.layer, word, one.rank[t], one.probability[t], one.norm[t], ...one.top[t][0]]))];
}
