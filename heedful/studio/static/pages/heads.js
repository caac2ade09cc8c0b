/** Heads: all heads at a glance, one of them large, several over each other. */
import { hooks, html, useTheme } from '../html.js';
import { tensor, url, useAnswer } from '../api.js';
import { useJob } from '../job.js';
import { headOf, listOf, spell } from '../state.js';
import { fixed, num, origin, words } from '../words.js';
import { text } from '../words/heads.js';
import { axesOf, chosenHead, codeOfTrace, continues, grouped, isSpecial, spellView, viewOf, weightsOf } from '../reading.js';
import { HUES } from '../paint.js';
import { Chips } from '../views/chips.js';
import { Choice, Note, Pick, Toggle } from '../views/controls.js';
import { Grid } from '../views/grid.js';
import { Overlay } from '../views/overlay.js';
import { HeatMap, Legend, zoomed } from '../views/map.js';
import { Table } from '../views/table.js';

export const said = text;
export const needs = 'trace';
const MEASURES = ['bits', 'importance', 'sharp', 'distance', 'itself', 'one before', 'one after', 'the first'];

/** One entry for each head, with its measures. */
function itemsOf(which, kind, measured) {
  const items = [];
  const importance = new Map((measured?.heads ?? []).map((one) => [one.head, one]));
  for (let layer = 1; layer <= kind.layers; layer += 1) {
    for (let head = 1; head <= kind.heads; head += 1) {
      const measures = kind.measures?.[layer - 1]?.[head - 1] ?? {};
      const labels = measures.labels ?? [];
      const at = { which, layer, head };
      const need = importance.get(spell(at));
      const facts = [words.headName(layer, head), measures.bits !== undefined && `${num(measures.bits)} bits`];
      const said = labels.map(([name, share]) => `${name} ${fixed(share)}`);
      items.push({ ...measures, ...at, ...(need && { importance: need.importance, interval: need.interval }), i: items.length, key: spell(at), labels,
        say: [...facts, ...said].filter(Boolean).join(', ') });
    }
  }
  return items;
}

function sorted(items, order) {
  if (order === 'place') return items;
  return [...items].sort((a, b) => (b[order] ?? -Infinity) - (a[order] ?? -Infinity));
}

/** The measures of all heads. */
function Measures({ items, state, set, chosen, onChoose }) {
  const present = MEASURES.filter((key) => items.some((item) => item[key] !== undefined));
  const column = (key) => ({
    key,
    title: text.columns[key][0],
    about: text.columns[key][1],
    text: (row) => (key === 'importance' ? num(row[key]) : fixed(row[key])),
    from: (row) => (key === 'importance' && row.interval ? `${text.interval(...row.interval.map((x) => num(x)))}; ` : '') + origin({ tensor: text.columns[key][0], which: row.which, layer: row.layer, head: row.head,
      formula: text.columns[key][1] }),
  });
  const columns = [
    { key: 'name', title: text.columns.name[0], about: text.columns.name[1], text: (row) => `${row.layer}.${row.head}`, plain: true },
    ...present.map(column),
  ];
  if (items.some((item) => item.labels.length)) {
    columns.push({ key: 'said', title: text.columns.labels[0], about: text.columns.labels[1], plain: true,
      text: (row) => row.labels.map(([name, share]) => `${name} ${fixed(share)}`).join(', ') });
  }
  const rows = items.map((item) => ({ ...item, name: item.layer * 1000 + item.head, said: item.labels.map(([name]) => name).join() }));
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
  return html`<${Overlay} trace=${trace} weights=${weights} leading=${leading} word=${kind.down[row]}
    marked=${own && row >= leading ? row - leading : null} label=${text.overPicture(kind.down[row])}
    onPatch=${own ? (i) => set({ cell: `${leading + i + 1}.1` }, true) : undefined} />`;
}

/** One head, or several over each other, as a large map. */
function Large({ view, kind, heads, axes }) {
  const { state, set, go } = view;
  const theme = useTheme();
  const scale = state.scale || usualScale(view.trace, kind);
  const layers = hooks.useMemo(() => heads.map((one) => grouped(one, axes)), [heads, axes]);
  const [rows, cols] = [axes.down.length, axes.across.length];
  const zoom = viewOf(state.zoom);
  const cell = /^(\d+)\.(\d+)$/.exec(state.cell ?? '')?.slice(1).map((n) => Number(n) - 1);
  const names = heads.map((one) => words.headName(one.layer, one.head));
  const say = (r, c) => {
    const values = layers.map((data) => num(data[r * cols + c]));
    const value = heads.length === 1 ? values[0] : values.map((x, n) => `${x} (${heads[n].name})`).join(', ');
    const { which, layer, head } = heads[0];
    const place = { row: r + 1, column: c + 1, formula: axes.whole ? text.formula : text.merged };
    const from = heads.length === 1 ? { tensor: 'weights', which, layer, head, ...place } : { tensor: 'weights', which, ...place };
    return `${text.cell(axes.down[r].label, axes.across[c].label, value)}. ${origin(from)}`;
  };
  const step = (r) => go('step', { head: heads[0].name, query: String(axes.down[r].tokens[0] + 1) });
  const around = (factor) => {
    const now = zoom ?? { r0: 0, r1: rows, c0: 0, c1: cols };
    const next = zoomed(now, factor, [(now.r0 + now.r1) / 2, (now.c0 + now.c1) / 2], rows, cols);
    set({ zoom: next.r1 - next.r0 >= rows && next.c1 - next.c0 >= cols ? '' : spellView(next) }, true);
  };
  const what = heads.length === 1 ? names[0] : text.overlay(heads.map((one) => one.name).join(', '));
  return html`<section class="large">
    <h2>${heads.length === 1 ? `${words.kinds[heads[0].which]}, ${names[0]}` : heads.map((one, n) => html`<span
      key=${one.name} class="swatch" style=${{ color: HUES[theme][n % HUES[theme].length] }}>■ ${one.name} </span>`)}</h2>
    ${view.trace.picture && kind.across.length >= view.trace.picture.grid ** 2 && html`<${OverPicture} view=${view} head=${heads[0]} kind=${kind}
      row=${Math.min(cell?.[0] ?? 0, kind.down.length - 1)} />`}
    <p class="label">${text.rows[heads[0].which]}</p>
    <${HeatMap} layers=${layers} rows=${rows} cols=${cols} down=${axes.down.map((one) => one.label)}
      across=${axes.across.map((one) => one.label)} scale=${scale} label=${what} say=${say} cell=${cell}
      onCell=${(r, c) => set({ cell: `${r + 1}.${c + 1}` }, true)} onOpen=${step} view=${zoom}
      onView=${(next) => set({ zoom: spellView(next) }, true)} />
    <div class="row-of">
      ${heads.length === 1 && html`<${Legend} scale=${scale} theme=${theme} />`}
      ${Math.max(rows, cols) > 40 && html`<span><button class="small" onClick=${() => around(0.6)}>${text.zoomIn}</button>
        <button class="small" onClick=${() => around(1.7)}>${text.zoomOut}</button>
        <button class="small" disabled=${!zoom} onClick=${() => set({ zoom: '' }, true)}>${text.whole}</button></span>`}
      <button class="small" onClick=${() => step(cell?.[0] < rows ? cell[0] : 0)}>${text.openStep}</button>
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
  const labelsOfTokens = [...kind.down, ...kind.across];
  const [pieces, special] = [labelsOfTokens.some(continues), labelsOfTokens.some(isSpecial)];
  const [merge, hide] = [state.merge === '1' && pieces, state.hide === '1' && special];
  const axes = hooks.useMemo(() => axesOf(kind, { merge, hide }), [trace, which, merge, hide]);
  const order = state.sort || 'place';
  const filter = listOf(state.labels);
  const fits = (item) => !filter.length || item.labels.some(([name]) => filter.includes(name));
  const faded = hooks.useMemo(() => sorted(items, order).map((item) => ({ ...item, faint: !fits(item) })), [items, order, state.labels]);
  const labels = [...new Set(items.flatMap((item) => item.labels.map(([name]) => name)))];
  const orders = Object.entries(text.orders).filter(([key]) => key === 'place' || items.some((item) => item[key] !== undefined));
  const choose = (item, more) => {
    const name = spell(item);
    if (!more) set({ head: name, over: '' });
    else if (name !== names[0]) set({ over: names.includes(name) ? names.slice(1).filter((n) => n !== name).join() : [...names.slice(1), name].join() });
  };
  const flip = (name) => set({ labels: (filter.includes(name) ? filter.filter((n) => n !== name) : [...filter, name]).join() });
  const ready = heads.value && heads.value[0].which === which && heads.value[0].rows === kind.down.length;
  Object.assign(shown, { items, heads: ready ? heads.value : [], axes });
  return html`<aside class="controls">
    <${Choice} label=${text.kind} value=${which} options=${Object.keys(trace.kinds).map((one) => [one, words.tabs[one]])}
      onChange=${(one) => set({ head: spell(chosenHead({}, trace, one)), over: '', labels: '', cell: '', zoom: '' })} />
    <${Choice} label=${text.scale} value=${state.scale || usualScale(trace, kind)} options=${text.scales} onChange=${(scale) => set({ scale })} />
    <${Pick} label=${text.order} value=${order} options=${orders} onChange=${(sort) => set({ sort })} />
    <${Toggle} label=${text.merge} on=${merge} off=${pieces ? '' : text.noMerge}
      onChange=${(on) => set({ merge: on ? '1' : '', cell: '', zoom: '' })} />
    <${Toggle} label=${text.hide} on=${hide} off=${special ? '' : text.noHide}
      onChange=${(on) => set({ hide: on ? '1' : '', cell: '', zoom: '' })} />
    ${view.run.kind !== 'recorded' && html`<div><button class="small" disabled=${job.state === 'running' || job.state === 'done'}
      onClick=${() => job.start()}>${text.measure}</button><${Note} error=${job.error} busy=${job.state === 'running'
        && text.measuring(job.progress)} /></div>`}
    ${labels.length > 0 && html`<div class="labels"><span class="label">${text.labels}</span><${Chips} label=${text.labels}
      items=${labels.map((name) => ({ text: name, on: filter.includes(name) }))} onPick=${(i) => flip(labels[i])} /></div>`}
  </aside>
  <section class="picture heads">
    <div class="heads-grid"><h2 class="unseen">${text.grid}</h2>
      ${thumbs.value && thumbs.value.shape[0] === kind.layers ? html`<${Grid} thumbs=${thumbs.value} items=${faded}
        inPlace=${order === 'place'} scale=${state.scale || usualScale(trace, kind)} chosen=${wanted.map((at) => `${at.layer}.${at.head}`)}
        onChoose=${choose} label=${text.grid} />` : html`<${Note} error=${thumbs.error} busy=${words.loading} />`}
    </div>
    ${ready ? html`<${Large} view=${view} kind=${kind} heads=${heads.value} axes=${axes} />`
      : html`<div class="large"><${Note} error=${heads.error} busy=${words.loading} /></div>`}
    <div class="heads-table"><${Measures} items=${items.filter(fits)} state=${state} set=${set} chosen=${names}
      onChoose=${(row) => choose(row, false)} /></div>
  </section>`;
}

export function code(view) {
  const lines = view.shown.heads.map(({ which, layer, head }) => `trace.weights("${which}", ${layer}, ${head})  # [T, S]`);
  return `${codeOfTrace(view)}\n${lines.join('\n')}\n`;
}

export function csv({ shown }) {
  const { heads, axes } = shown;
  const layers = heads.map((one) => grouped(one, axes));
  const rows = [['row', 'column', 'query', 'key', ...heads.map((one) => one.name)]];
  axes.down.forEach((down, r) => axes.across.forEach((across, c) => {
    rows.push([r + 1, c + 1, down.label, across.label, ...layers.map((data) => data[r * axes.across.length + c])]);
  }));
  return rows;
}
