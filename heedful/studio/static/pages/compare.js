/** Compare: two models, or one with edits and without, on the same texts. */
import { hooks, html } from '../html.js';
import { json, useAnswer } from '../api.js';
import { listOf } from '../state.js';
import { fixed, num, words } from '../words.js';
import { shared } from '../words/measure.js';
import { text } from '../words/compare.js';
import { code as codeOf, Outputs, samplesOf, Start, Texts, useMeasure, useOutput } from '../measure.js';
import { Bars } from '../views/bars.js';
import { Choice, Note, Num, Pick } from '../views/controls.js';
import { HeatMap } from '../views/map.js';
import { Table } from '../views/table.js';

export const title = text.title;
export const sees = text.sees;
export const why = { text: text.whyText, lecture: text.lecture };
export const needs = 'run';
export const input = true;
export const code = codeOf;
const SHOWN = 5; // texts at each end

export function applies(run) {
  return run.kind === 'recorded' ? shared.needsModel : '';
}

/** A table of numbers as a map. */
function Square({ values, down, across, label, say }) {
  const layers = hooks.useMemo(() => [Float32Array.from(values.flat())], [values]);
  return html`<${HeatMap} layers=${layers} rows=${down.length} cols=${across.length} down=${down} across=${across} label=${label} side=${44}
    say=${(r, c) => say(r, c, num(values[r][c]))} />`;
}

const column = (key, plain) => ({ key, title: text.columns[key], plain, text: (row) => (plain ? row[key] : fixed(row[key], 3)), from: () => text.mean });

/** The texts where the first model is better by most, and where the second is. */
function extremes(rows) {
  const sorted = [...rows].sort((a, b) => b.by - a.by);
  return sorted.filter((_, n) => n < SHOWN || n >= rows.length - SHOWN);
}

const PARTS = {
  tokens: ({ tokens, first, second, difference }) => html`<${Bars} signed label=${text.parts.tokens} items=${tokens.map((name, i) => ({
    name, value: difference[i], from: text.token(num(first[i]), num(second[i])) }))} />`,
  heads: ({ distance, which }) => html`<${Square} values=${distance} down=${distance.map((_, n) => `${words.tabs[which]} ${n + 1}`)}
    across=${distance[0].map((_, n) => String(n + 1))} label=${text.parts.heads} say=${(r, c, x) => text.head(words.headName(r + 1, c + 1), x)} />`,
  layers: ({ cka, down, across }) => html`<${Square} values=${cka} down=${down} across=${across} label=${text.parts.layers}
    say=${(r, c, x) => text.layer(down[r], across[c], x)} />`,
  scores: ({ bootstrap: one, texts }) => html`<p>${text.score('')}<${Num} value=${one.difference} from=${text.drawn(one.draws)} /> (${
    shared.interval(num(one.low), num(one.high))}). ${text.counts(one)}<${Num} value=${one.p} from=${text.drawn(one.draws)} /></p>
    <${Table} label=${text.parts.scores} columns=${[column('by'), column('first'), column('second'), column('text', true)]} sort="-by"
      rows=${extremes(texts.map((row) => ({ ...row, by: row.first - row.second })))} />`,
  settings: ({ differ }) => (differ.length ? html`<${Table} label=${text.parts.settings} sort="name"
    columns=${['name', 'first', 'second'].map((key) => column(key, true))} rows=${differ.map(([name, first, second]) => ({ name, first, second }))} />`
    : html`<${Note}>${text.same}<//>`),
};

export function render({ view }) {
  const { state, set, run, runs, about } = view;
  const [edits, given] = [listOf(state.edits), state.text || about.example];
  const others = runs.filter((one) => one.has_model && one.id !== run.id);
  const second = others.find((one) => one.id === state.other) ?? (edits.length ? run : others[0]);
  const body = { kind: 'compare', run: run.id, other: second?.id, text: given, ...(edits.length && { edits }),
    ...(state.target && { target: state.target }), ...(state.which && { which: state.which }), ...samplesOf(view) };
  const job = useMeasure(view, second ? body : null);
  const its = useAnswer(second ? (signal) => json(`/api/runs/${second.id}/about`, { signal }) : null, [second?.id]);
  const outputs = [useOutput({ run, about, text: given, edits }),
    useOutput(second && its.value ? { run: second, about: its.value, text: given, edits: [] } : null)];
  const names = [text.first(run.name, edits.length), second?.name];
  return html`<aside class="controls">
    <${Pick} label=${text.other} value=${second?.id} options=${[...(edits.length ? [[run.id, text.itself]] : []), ...others.map((one) => [one.id, one.name])]}
      onChange=${(other) => set({ other })} />${about.kinds.length > 1 && html`<${Choice} label=${text.which}
      value=${state.which || about.kinds[0]} options=${about.kinds.map((one) => [one, words.tabs[one]])} onChange=${(which) => set({ which })} />`}
    <${Texts} view=${view} />${second ? html`<${Start} view=${view} job=${job} label=${text.start} />` : html`<${Note}>${text.alone}<//>`}</aside>
  <section class="picture measured"><h2>${text.output}</h2><${Outputs} names=${names} outputs=${second ? outputs : outputs.slice(0, 1)} />
    <div class="side">${Object.entries(PARTS).filter(([name]) => job.result?.[name]).map(([name, Part]) => html`<section key=${name}><h2>${text.parts[name]}</h2>${
      job.result[name].refused ? html`<${Note}>${job.result[name].refused}<//>` : html`<${Part} ...${job.result[name]} />`}</section>`)}</div></section>`;
}

export function csv({ shown: { result } }) {
  const rows = [['part', 'name', 'first', 'second']];
  const { tokens = {}, scores = {}, settings = {} } = result ?? {};
  tokens.tokens?.forEach((name, i) => rows.push(['token', name, tokens.first[i], tokens.second[i]]));
  scores.texts?.forEach((one) => rows.push(['text', one.text, one.first, one.second]));
  settings.differ?.forEach((one) => rows.push(['setting', ...one]));
  return rows;
}
