/** Heads: all heads at a glance, one of them large, several over each other. */
import { hooks, html, useTheme } from '../html.js';
import { tensor, url, useAnswer } from '../api.js';
import { useJob } from '../job.js';
import { flipped, headOf, listOf, spell } from '../state.js';
import { fixed, num, origin, words } from '../words.js';
import { text } from '../words/heads.js';
import { axesOf, chosenHead, continues, grouped, isSpecial, spellView, viewOf, weightsOf } from '../reading.js';
import { HUES } from '../paint.js';
import { Chips } from '../views/chips.js';
import { Choice, Kinds, Note, Pick, Toggle } from '../views/controls.js';
import { Grid } from '../views/grid.js';
import { Overlay } from '../views/overlay.js';
import { HeatMap, Legend, zoomed } from '../views/map.js';
import { Table } from '../views/table.js';

export const said = text;
export const needs = 'trace';
const MEASURES = ['bits', 'importance', 'sharp', 'distance', 'itself', 'one before', 'one after', 'the first'];

const labelsOf = (item) => item.labels.map(([name, share]) => `${name} ${fixed(share)}`);

/** One entry for each head, with its measures. */
function itemsOf(which, kind, measured) {
  return Array.from({ length: kind.layers * kind.heads }, (_, i) => {
    const at = { which, layer: Math.floor(i / kind.heads) + 1, head: (i % kind.heads) + 1 };
    const found = measured?.heads?.find((one) => one.head === spell(at));
    const item = { labels: [], ...kind.measures?.[at.layer - 1]?.[at.head - 1], ...at, i, key: spell(at) };
    if (found) Object.assign(item, { importance: found.importance, interval: found.interval });
    const bits = item.bits === undefined ? [] : [`${num(item.bits)} bits`];
    return { ...item, say: [words.headName(at.layer, at.head), ...bits, ...labelsOf(item)].join(', ') };
  });
}

function sorted(items, order) {
  return order === 'place' ? items : [...items].sort((a, b) => (b[order] ?? -Infinity) - (a[order] ?? -Infinity));
}

/** The measures of all heads. */
function Measures({ items, state, set, chosen, onChoose }) {
  const column = (key, more) => {
    const [title, about] = text.columns[key];
    const from = ({ which, layer, head, interval }) => (key === 'importance' && interval ? `${text.interval(...interval.map((x) => num(x)))}; ` : '')
      + origin({ tensor: title, which, layer, head, formula: about });
    return { key, title, about, from, text: (row) => (key === 'importance' ? num(row[key]) : fixed(row[key])), ...more };
  };
  const columns = [column('name', { text: (row) => `${row.layer}.${row.head}`, from: undefined, plain: true }),
    ...MEASURES.filter((key) => items.some((item) => item[key] !== undefined)).map((key) => column(key))];
  if (items.some((item) => item.labels.length)) columns.push(column('labels', { text: (row) => row.said, from: undefined, key: 'said', plain: true }));
  const rows = items.map((item) => ({ ...item, name: item.i, said: labelsOf(item).join(', ') }));
  return html`<${Table} label=${text.table} columns=${columns} rows=${rows} sort=${state.table || '-bits'}
    onSort=${(table) => set({ table }, true)} chosen=${(row) => chosen.includes(row.key)} onChoose=${onChoose} />`;
}

/** The scale that shows most: long texts and pictures have small weights. */
function usualScale(trace, kind) {
  if (trace.picture) return 'row';
  return Math.max(kind.down.length, kind.across.length) > 60 ? 'root' : 'linear';
}

/** One row of a head over the picture that the model reads. */
function OverPicture({ view, head, kind, row }) {
  const { trace, set } = view;
  const leading = kind.across.length - trace.picture.grid ** 2;
  const own = kind.down.length === kind.across.length; // queries are patches too
  const weights = hooks.useMemo(() => head.data.subarray(row * head.cols, (row + 1) * head.cols), [head, row]);
  return html`<${Overlay} ...${{ trace, weights, leading }} word=${kind.down[row]}
    marked=${own && row >= leading ? row - leading : null} label=${text.overPicture(kind.down[row])}
    onPatch=${own ? (i) => set({ cell: `${leading + i + 1}.1` }, true) : undefined} />`;
}

/** One head, or several over each other, as a large map. */
function Large({ view, kind, heads, axes, scale }) {
  const { state, set, go, trace: { picture } } = view;
  const theme = useTheme();
  const layers = hooks.useMemo(() => heads.map((one) => grouped(one, axes)), [heads, axes]);
  const [rows, cols] = [axes.down.length, axes.across.length];
  const zoom = viewOf(state.zoom);
  const cell = /^(\d+)\.(\d+)$/.exec(state.cell ?? '')?.slice(1).map((n) => Number(n) - 1);
  const [{ which, layer, head }, single] = [heads[0], heads.length === 1];
  const say = (r, c) => {
    const values = layers.map((data, n) => num(data[r * cols + c]) + (single ? '' : ` (${heads[n].name})`));
    const from = { tensor: 'weights', which, ...(single && { layer, head }), row: r + 1, column: c + 1, formula: axes.whole ? text.formula : text.merged };
    return `${text.cell(axes.down[r].label, axes.across[c].label, values.join(', '))}. ${origin(from)}`;
  };
  const step = (r) => go('step', { head: heads[0].name, query: axes.down[r].tokens[0] + 1 });
  const show = (next) => set({ zoom: spellView(next) }, true);
  const around = (factor) => {
    const now = zoom ?? { r0: 0, r1: rows, c0: 0, c1: cols };
    show(zoomed(now, factor, [(now.r0 + now.r1) / 2, (now.c0 + now.c1) / 2], rows, cols));
  };
  const button = (name, act, disabled) => html`<button class="small" disabled=${disabled} onClick=${act}>${name}</button> `;
  const name = words.headName(layer, head);
  return html`<section class="large">
    <h2>${single ? `${words.kinds[which]}, ${name}` : heads.map((one, n) => html`<span
      key=${one.name} class="swatch" style=${{ color: HUES[theme][n % HUES[theme].length] }}>■ ${one.name} </span>`)}</h2>
    ${picture && kind.across.length >= picture.grid ** 2 && html`<${OverPicture} ...${{ view, kind }} head=${heads[0]}
      row=${Math.min(cell?.[0] ?? 0, kind.down.length - 1)} />`}
    <p class="label">${text.rows(which === 'cross')}</p>
    <${HeatMap} ...${{ layers, scale, say, cell }} down=${axes.down.map((one) => one.label)} across=${axes.across.map((one) => one.label)}
      label=${single ? name : text.overlay(heads.map((one) => one.name).join(', '))}
      onCell=${(r, c) => set({ cell: `${r + 1}.${c + 1}` }, true)} onOpen=${step} view=${zoom} onView=${show} />
    <div class="row-of">
      ${single && html`<${Legend} scale=${scale} />`}
      ${Math.max(rows, cols) > 40 && html`<span>${button(text.zoomIn, () => around(0.6))}${button(text.zoomOut, () => around(1.7))}${
        button(text.whole, () => show(null), !zoom)}</span>`}
      ${button(text.openStep, () => step(cell?.[0] < rows ? cell[0] : 0))}
    </div>
  </section>`;
}

export function render({ view }) {
  const { state, set, trace, shown } = view;
  const first = chosenHead(state, trace);
  const { which } = first;
  const kind = trace.kinds[which];
  const extra = listOf(state.over).map(headOf).filter((at) => at?.which === which && at.layer <= kind.layers && at.head <= kind.heads);
  const wanted = [first, ...extra].slice(0, 6);
  const names = wanted.map(spell);
  const job = useJob(view.run.kind === 'recorded' ? null : { kind: 'ablate', run: view.run.id });
  const items = hooks.useMemo(() => itemsOf(which, kind, job.result), [trace, which, job.result]);
  const thumbs = useAnswer((signal) => tensor(url(`/api/trace/${trace.id}/thumbs`, { which }), { signal }), [trace.id, which]);
  const heads = useAnswer((signal) => Promise.all(wanted.map((at) => weightsOf(trace, at, signal))), [trace.id, names.join()]);
  const [pieces, special] = [continues, isSpecial].map((test) => [...kind.down, ...kind.across].some(test));
  const [merge, hide] = [state.merge === '1' && pieces, state.hide === '1' && special];
  const axes = hooks.useMemo(() => axesOf(kind, { merge, hide }), [trace, which, merge, hide]);
  const order = state.sort || 'place';
  const scale = state.scale || usualScale(trace, kind);
  const filter = listOf(state.labels);
  const fits = (item) => !filter.length || item.labels.some(([name]) => filter.includes(name));
  const faded = hooks.useMemo(() => sorted(items, order).map((item) => ({ ...item, faint: !fits(item) })), [items, order, state.labels]);
  const labels = [...new Set(items.flatMap((item) => item.labels.map(([name]) => name)))];
  const orders = Object.entries(text.orders).filter(([key]) => key === 'place' || items.some((item) => item[key] !== undefined));
  const choose = ({ key }, more) => {
    if (!more) set({ head: key, over: '' });
    else if (key !== names[0]) set({ over: flipped(names.slice(1), key) });
  };
  const ready = heads.value && heads.value[0].which === which && heads.value[0].rows === kind.down.length;
  Object.assign(shown, { items, heads: ready ? heads.value : [], axes });
  return html`<aside class="controls">
    <${Kinds} trace=${trace} which=${which} onChange=${(one) => set({ head: spell(chosenHead({}, trace, one)), over: '', labels: '', cell: '', zoom: '' })} />
    <${Choice} label=${text.scale} value=${scale} options=${text.scales} onChange=${(one) => set({ scale: one })} />
    <${Pick} label=${text.order} value=${order} options=${orders} onChange=${(sort) => set({ sort })} />
    ${[['merge', merge, !pieces && text.noMerge], ['hide', hide, !special && text.noHide]].map(([name, on, off]) => html`<${Toggle} key=${name}
      label=${text[name]} on=${on} off=${off} onChange=${(to) => set({ [name]: to ? '1' : '', cell: '', zoom: '' })} />`)}
    ${view.run.kind !== 'recorded' && html`<div><button class="small" disabled=${/running|done/.test(job.state)} onClick=${() => job.start()}>${text.measure}</button>
      <${Note} error=${job.error} busy=${job.state === 'running' && text.measuring(job.progress)} /></div>`}
    ${labels.length > 0 && html`<div class="labels"><span class="label">${text.labels}</span><${Chips} label=${text.labels}
      items=${labels.map((name) => ({ text: name, on: filter.includes(name) }))} onPick=${(i) => set({ labels: flipped(filter, labels[i]) })} /></div>`}
  </aside>
  <section class="picture heads">
    <div class="heads-grid"><h2 class="unseen">${text.grid}</h2>
      ${thumbs.value && thumbs.value.shape[0] === kind.layers ? html`<${Grid} thumbs=${thumbs.value} items=${faded}
        inPlace=${order === 'place'} scale=${scale} chosen=${wanted.map((at) => `${at.layer}.${at.head}`)}
        onChoose=${choose} label=${text.grid} />` : html`<${Note} error=${thumbs.error} busy=${words.loading} />`}
    </div>
    ${ready ? html`<${Large} ...${{ view, kind, axes, scale }} heads=${heads.value} />`
      : html`<div class="large"><${Note} error=${heads.error} busy=${words.loading} /></div>`}
    <div class="heads-table"><${Measures} ...${{ state, set }} items=${items.filter(fits)} chosen=${names} onChoose=${(row) => choose(row)} /></div>
  </section>`;
}

export function code({ trace, shown }) {
  return trace.code + shown.heads.map(({ which, layer, head }) => `trace.weights("${which}", ${layer}, ${head})  # [T, S]\n`).join('');
}

export function csv({ shown }) {
  const { heads, axes: { down, across } } = shown;
  const layers = heads.map((one) => grouped(one, shown.axes));
  return [['row', 'column', 'query', 'key', ...heads.map((one) => one.name)], ...down.flatMap((row, r) => across.map((column, c) => [
    r + 1, c + 1, row.label, column.label, ...layers.map((data) => data[r * across.length + c])]))];
}
