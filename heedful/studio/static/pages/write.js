/** Write: what a model writes, fills in or labels; what else it could have written; where the words come from. */
import { hooks, html, useTheme } from '../html.js';
import { useJson } from '../api.js';
import { useStream } from '../job.js';
import { intOf, listOf } from '../state.js';
import { num, words } from '../words.js';
import { text as heads } from '../words/heads.js';
import { text } from '../words/write.js';
import { axesOf, grouped } from '../reading.js';
import { Sliders, optionsOf } from '../decoding.js';
import { weightColor } from '../paint.js';
import { Bars } from '../views/bars.js';
import { Chips } from '../views/chips.js';
import { Flag, Note, Num, Pick } from '../views/controls.js';
import { HeatMap } from '../views/map.js';
import { Ribbons } from '../views/ribbons.js';

export const said = text;
export const input = true;
const MASK = '[MASK]';
const TARGET = 'target'; // the branch that writes the target

export function applies(run, { writes, can }) {
  return writes || can.includes('fill') || can.includes('classify') ? '' : text.nothing(can.join(', '));
}

function namesOf({ state }) {
  return ['max_new_tokens', ...(state.sample ? ['temperature', 'top_k', 'top_p', 'seed'] : [])];
}

function tokensOf(stream) {
  return (stream?.events ?? []).flatMap((event) => event.token ?? []);
}

/** One way to write, and the alternatives of a token. */
function Branch({ n, name, given, view, open, onKnown, onBranch }) {
  const { state, set, run } = view;
  const theme = useTheme();
  const begins = name === TARGET ? { target: state.target } : { prefix_tokens: listOf(name, '.').map(Number) };
  const stream = useStream('/api/write', { run: run.id, text: given, edits: listOf(state.edits), ...begins,
    ...optionsOf(namesOf(view), view), ...(state.sample && { sample: true }) });
  hooks.useEffect(() => onKnown(stream), [stream]);
  const tokens = tokensOf(stream);
  const at = open ? intOf(state.token, 0, tokens.length, 0) : 0;
  const chosen = tokens[at - 1];
  const say = (log, rank) => text.token(num(log), num(Math.exp(log)), rank);
  const items = tokens.map(({ text: label, log_probability: log, rank }, i) => ({
    text: label, on: i + 1 === at, color: weightColor(-log / 6, theme), from: say(log, rank) }));
  return html`<div class="row-of"><${Chips} label=${text.branch(n)} items=${items} onPick=${(i) => set({ row: n, token: i + 1 === at ? '' : i + 1 })} />
      <${Num} value=${tokens.reduce((sum, one) => sum + one.log_probability, 0)} from=${text.total(tokens.length)} />
      ${name === TARGET && html`<span class="label">${words.target}</span>`}
      ${n > 1 && html`<button class="small" aria-label=${text.remove} onClick=${() => onBranch()}>×</button>`}</div>
    <${Note} error=${stream.error} busy=${stream.busy && !tokens.length && words.loading} />
    ${chosen && html`<div class="instead"><h2>${text.instead(chosen.text)}</h2><${Bars} label=${text.instead(chosen.text)} top=${1}
      items=${chosen.top.map(([, label, log], i) => ({ name: label, value: Math.exp(log), from: say(log, i + 1) }))}
      chosen=${chosen.rank - 1} onPick=${(i) => (i === chosen.rank - 1 ? set({ token: '' })
        : onBranch([...tokens.slice(0, at - 1).map((one) => one.id), chosen.top[i][0]].join('.')))} /></div>`}`;
}

/** Where the words of a branch come from. */
function useAlignment({ state, run, about }, given, target) {
  const [layer = 0, head = 0] = listOf(state.aligner, '.').map(Number);
  const body = { run: run.id, text: given, target, edits: listOf(state.edits), which: 'cross', by: state.by || 'weight',
    row: state.reads ? 'input' : 'prediction', layer, head, mean: layer && !head ? 1 : 0 };
  const wanted = target && about.pair && about.kinds.includes('cross');
  return useJson('/api/align', wanted && body);
}

function AlignmentControls({ view, found: { by, layers, heads: count } }) {
  const { state, set } = view;
  const places = Array.from({ length: layers * (count + 1) }, (_, i) => [Math.floor(i / (count + 1)) + 1, i % (count + 1)]);
  return html`<${Pick} label=${text.head} value=${state.aligner ?? ''} onChange=${(aligner) => set({ aligner })}
      options=${[['', text.best], ...places.map(([layer, head]) => [head ? `${layer}.${head}` : `${layer}`, text.of(layer, head)])]} />
    <${Pick} label=${text.by} value=${by} options=${Object.entries(text.measures)} onChange=${(one) => set({ by: one })} />
    <${Sliders} names=${['least']} view=${view} />${
      Object.entries({ reads: text.reads, merge: heads.merge, hide: heads.hide }).map(([name, label]) => html`<${Flag} key=${name} ...${{ name, label, view }} />`)}`;
}

/** Ribbons and the matrix, linked. */
function Alignment({ view, found }) {
  const { state, set } = view;
  const { by } = found;
  const [pointed, setPointed] = hooks.useState(null);
  const [down, across, data] = hooks.useMemo(() => {
    const axes = axesOf(found, state);
    const values = grouped({ data: Float32Array.from(found.values.flat()), cols: found.across.length }, axes);
    return [axes.down.map((one) => one.label), axes.across.map((one) => one.label), [values]];
  }, [found, state.merge, state.hide]);
  const where = text.of(found.layer, found.head);
  const say = (r, c) => `${text.cell(down[r], across[c], num(data[0][r * across.length + c]))} (${text.measures[by]}, ${where})`;
  const [r = null, c = 0] = listOf(state.cell, '.').map((n) => n - 1);
  const row = pointed ?? r;
  const both = { down, across, label: text.where, onRow: setPointed };
  return html`<p class="label">${where}${!state.aligner && `: ${found.best.by}`}
      ${found.error_rate !== null && html`; ${text.rate} <${Num} value=${found.error_rate} from=${text.rateIs} />`}</p>
    <div class="align"><${Ribbons} ...${both} weights=${data[0]} threshold=${optionsOf(['least'], view).least} row=${row} from=${say} />
    <${HeatMap} ...${both} layers=${data} say=${say} side=${34} scale=${by === 'weight' ? 'linear' : 'row'}
      kind=${by === 'gradient' ? 'signed' : 'weight'} cell=${row === null || row >= down.length ? undefined : [row, c]}
      onCell=${(...at) => set({ cell: at.map((n) => n + 1).join('.') }, true)} /></div>`;
}

/** A model that writes. */
function Writer({ view, given }) {
  const { state, set, about, shown } = view;
  const [known, setKnown] = hooks.useState({});
  const names = ['', ...listOf(state.branches), ...(state.target ? [TARGET] : [])];
  const open = intOf(state.row, 1, names.length, 1);
  const own = known[names[open - 1]];
  const { value: found, error } = useAlignment(view, given, own?.done?.text);
  shown.code = [own?.done?.code, found?.code].filter(Boolean).join('\n');
  shown.rows = [text.csv, ...names.flatMap((name, n) => tokensOf(known[name]).map((one) => [n + 1, one.text, one.log_probability]))];
  const branch = (old) => (name) => {
    const next = name ? [...new Set([...listOf(state.branches), name])] : names.filter((one) => one && one !== old && one !== TARGET);
    set({ branches: next.join(), target: old === TARGET && !name ? '' : state.target, row: name && next.indexOf(name) + 2, token: '' });
  };
  return html`<aside class="controls"><${Flag} name="sample" label=${text.sample} view=${view} /><${Sliders} names=${namesOf(view)} view=${view} />
    ${found && html`<${AlignmentControls} view=${view} found=${found} />`}</aside>
  <section class="picture">
    ${names.map((name, i) => html`<${Branch} key=${name} n=${i + 1} ...${{ name, given, view }} open=${i + 1 === open}
      onKnown=${(stream) => setKnown((old) => ({ ...old, [name]: stream }))} onBranch=${branch(name)} />`)}
    <h2>${text.where}</h2><${Note} error=${error}>${!about.pair && text.oneText}<//>
    ${found && html`<${Alignment} view=${view} found=${found} />`}
  </section>`;
}

/** A model that fills blanks or gives labels: choosing a word masks it, or leaves it out. */
function Guesser({ view, given }) {
  const { state, set, run, about, shown } = view;
  const fills = about.can.includes('fill');
  const parts = about.reads === 'texts' ? given.split(/\s+/) : [];
  const ask = (said) => useJson('/api/guess', said && { run: run.id, text: said });
  const [answer, ghost] = [ask(given), ask(!fills && state.before)];
  const before = Object.fromEntries(ghost.value?.guesses[0] ?? []);
  const change = (i) => set({ text: parts.map((part, n) => (n === i ? fills && MASK : part)).filter(Boolean).join(' '), before: given });
  const { guesses = [], code: same } = answer.value ?? {};
  shown.code = same;
  shown.rows = [text.csv, ...guesses.flatMap((some, n) => some.map((one) => [n + 1, ...one]))];
  return html`<aside class="controls"><p class="label">${parts.length > 1 && text[fills ? 'mask' : 'drop']}</p></aside><section class="picture">
    <${Chips} label=${words.text} items=${parts.map((part) => ({ text: part, on: part.includes(MASK) }))} onPick=${change} />
    <${Note} error=${answer.error} busy=${answer.busy && words.loading} />
    ${guesses.map((some, n) => html`<h2>${fills ? `${MASK} ${n + 1}` : text.labels}</h2><${Bars} label=${text.labels} top=${1}
      items=${some.map(([name, value]) => ({ name, value, from: `${name}: ${text.share}`, ghost: before[name] }))} />`)}
    ${ghost.value && html`<p class="label">${text.ghost(state.before)}</p>`}</section>`;
}

export function render({ view }) {
  return html`<${view.about.writes ? Writer : Guesser} view=${view} given=${view.state.text || view.about.example} />`;
}
