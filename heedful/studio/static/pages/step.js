/** Step: one query of one head, from the residual stream to the residual stream, in nine stations. */
import { hooks, html, useKeys, useTheme } from '../html.js';
import { json, url, useAnswer } from '../api.js';
import { intOf, listOf, spell } from '../state.js';
import { words } from '../words.js';
import { text } from '../words/step.js';
import { chosenHead } from '../reading.js';
import { colorBy, css, topOf } from '../paint.js';
import { MANY, STATIONS, keysOf, products } from '../stations.js';
import { Chips } from '../views/chips.js';
import { Choice, Flag, Kinds, Pick, Slider, Waiting } from '../views/controls.js';
import { Formula } from '../views/formula.js';
import { FIRST } from '../views/strip.js';

export const said = text;
export const needs = 'trace';

/** The main vector of each station, for its small picture. */
function minis(steps, key) {
  const { sublayer, q, scores, scaled, masked, weights, output } = steps;
  return [sublayer?.x, q, products(steps, key), scores, scaled, masked, weights, output, sublayer?.sum ?? sublayer?.out];
}

function Mini({ values, kind }) {
  const theme = useTheme();
  const shown = (values ?? []).slice(0, 9);
  const color = colorBy(kind, topOf(shown), theme);
  return html`<svg width="72" height="10" viewBox="0 0 72 10" aria-hidden="true">${shown.map((x, i) => html`<rect key=${i} x=${i * 8} y="0"
    width="7.4" height="10" fill=${x === null ? 'none' : css(color(x))} class=${x === null ? 'none' : ''} />`)}</svg>`;
}

function Rail({ steps, chosenKey, station, onStation }) {
  const pictures = minis(steps, chosenKey);
  const rail = hooks.useRef(null);
  hooks.useEffect(() => {
    const [row, here] = [rail.current, rail.current.children[station]];
    row.scrollLeft = here.offsetLeft - (row.clientWidth - here.clientWidth) / 2; // the page itself stays where it is
  }, [station]);
  return html`<ol class="rail" aria-label=${text.rail} ref=${rail}>${text.stations.map(([name], i) => html`<li key=${i}>
    <button aria-current=${i === station ? 'step' : undefined} onClick=${() => onStation(i)}>
      <span class="rail-name"><b>${i + 1}</b> ${name}</span><${Mini} values=${pictures[i]} kind=${i === 6 ? 'weight' : 'signed'} /></button></li>`)}</ol>`;
}

/** The same query without edits, to stand behind the edited one. */
function useBefore({ state, run, trace }, query) {
  const body = { run: run.id, text: trace.text, edits: [], ...(state.target && { target: state.target }) };
  return useAnswer(state.edits ? async (signal) => {
    const { id } = await json('/api/trace', { body, signal });
    return json(url(`/api/trace/${id}/steps`, query), { signal });
  } : null, [trace.id, JSON.stringify(query)]).value;
}

/** Which kind, layer and head, and what its scores are multiplied by. */
function Controls({ view, at, kind }) {
  const { state, set, trace, run } = view;
  const own = `scale:${spell(at)}:`;
  const edits = listOf(state.edits);
  const factor = Number(edits.find((one) => one.startsWith(own))?.slice(own.length) ?? 1);
  const scale = (x) => set({ edits: [...edits.filter((one) => !one.startsWith(own)), ...(x === 1 ? [] : [own + x])].join() }, true);
  return html`<aside class="controls">
    <${Kinds} trace=${trace} which=${at.which} onChange=${(which) => set({ head: spell(chosenHead({}, trace, which)), query: '', key: '' })} />
    <div class="pair">${[['layer', kind.layers], ['head', kind.heads]].map(([name, n]) => html`<${Pick} key=${name} label=${text[name]} value=${at[name]}
      options=${Array.from({ length: n }, (_, i) => i + 1)} onChange=${(to) => set({ head: spell({ ...at, [name]: to }) })} />`)}</div>
    <${Choice} label=${text.components} value=${state.all || ''} options=${[['', words.first(FIRST)], ['1', words.all('')]]}
      onChange=${(value) => set({ all: value }, true)} />
    ${run.kind !== 'recorded' && html`<div data-from=${text.factorAbout}><${Slider} label=${text.factor} value=${factor} low=${0} high=${4} step=${0.25} onChange=${scale} /></div>`}
    ${kind.across.length > MANY && html`<${Flag} name="keys" label=${`${text.keys}: ${words.all(kind.across.length)}`} view=${view} />`}
  </aside>`;
}

export function render({ view }) {
  const { state, set, trace, shown } = view;
  const at = chosenHead(state, trace);
  const kind = trace.kinds[at.which];
  const query = intOf(state.query, 1, kind.down.length, 1);
  const station = intOf(state.step, 1, STATIONS.length, 1) - 1;
  const place = { ...at, query };
  const path = url(`/api/trace/${trace.id}/steps`, place);
  const answer = useAnswer((signal) => json(path, { signal }), [path]);
  const steps = answer.value;
  const before = useBefore(view, place);
  const fits = steps && steps.which === at.which && steps.keys.length === kind.across.length;
  const all = state.all === '1' || (fits && steps.q.length <= FIRST);
  const best = fits ? steps.weights.indexOf(Math.max(...steps.weights)) : 0;
  const chosenKey = intOf(state.key, 1, kind.across.length, best + 1) - 1;
  const component = fits && state.component ? intOf(state.component, 1, steps.q.length, 1) - 1 : null;
  const move = (i) => set({ step: Math.min(STATIONS.length, Math.max(1, i + 1)) });
  useKeys((event) => event.key === ' ' && event.target.tagName !== 'BUTTON' && (move((station + 1) % STATIONS.length), true));
  Object.assign(shown, { steps: fits ? steps : null, code: steps?.code });
  if (!fits) return html`<${Waiting} error=${answer.error} />`;
  const Station = STATIONS[station];
  const [, name, formula, sentence] = text.stations[station];
  const shownKeys = keysOf(steps, state.keys === '1');
  const props = { steps, before: before?.keys.length === steps.keys.length ? before : null, trace, all, chosenKey, component, shownKeys,
    onKey: (j) => set({ key: j + 1 }, true), onComponent: (i) => set({ component: i + 1 }, true) };
  return html`<${Controls} view=${view} at=${at} kind=${kind} />
    <section class="picture step">
      <div class="picker"><span class="label">${text.query}</span><${Chips} label=${text.query}
        items=${kind.down.map((word, i) => ({ text: word, on: i + 1 === query, from: `${text.query} ${i + 1}` }))}
        onPick=${(i) => set({ query: i + 1, key: '' })} /></div>
      <${Rail} steps=${steps} chosenKey=${chosenKey} station=${station} onStation=${move} />
      <div class="station">
        <header><div><h2>${station + 1}. ${name}</h2><${Formula}>${formula}<//></div>
          <span class="turn"><button class="small" disabled=${station === 0} onClick=${() => move(station - 1)}>${text.back}</button>
          <button class="primary" disabled=${station === STATIONS.length - 1} onClick=${() => move(station + 1)}>${text.next}</button></span></header>
        <p class="sees"><${Formula} plain>${sentence}<//></p>
        ${shownKeys.length < steps.keys.length && html`<p class="label">${text.largestKeys(shownKeys.length, steps.keys.length)}</p>`}
        <div class="numbers" key=${station}><${Station} ...${props} /></div>
      </div>
    </section>`;
}

export function csv({ shown: { steps } }) {
  if (!steps) return [[words.noTable]];
  const { scores, scaled, bias, allowed, masked, weights, weighted_values: values } = steps;
  return [['key', 'word', 'score', 'scaled', 'bias', 'allowed', 'masked', 'weight', ...steps.output.map((_, i) => `weighted value ${i + 1}`)],
    ...steps.keys.map((word, j) => [j + 1, word, scores[j], scaled[j], bias?.[j] ?? 0, Number(allowed[j]), masked[j] ?? '-inf', weights[j], ...values[j]])];
}
