/** Lab: claims of the lectures as experiments, with their verdicts. While a claim is measured, every seed becomes a dot. */
import { hooks, html } from '../html.js';
import { json, keepJson, keptJson, recorded, sentence, url } from '../api.js';
import { flipped, listOf, now } from '../state.js';
import { num, words } from '../words.js';
import { text } from '../words/lab.js';
import { Bars } from '../views/bars.js';
import { Choice, Note, Pick } from '../views/controls.js';

export const said = text;
export const needs = 'nothing';

/** Cards by id, and what else came; they stay with the answers that an export takes along. */
function known() {
  return keptJson('LAB') ?? { cards: {} };
}

/** Ask for what came after the marks of the cards; whether there was anything. A record replaces an equal one. */
async function pull(signal) {
  const own = known();
  const after = Object.values(own.cards).map((card) => card.mark ?? '-').join();
  const { claims = [], cards, ...rest } = await json(url('/api/lab', { after }), { signal, once: true });
  const news = [...claims, ...cards];
  for (const card of news) {
    const old = own.cards[card.id];
    const rows = Object.fromEntries((card.rows ?? []).map((row) => [`${row.size} ${row.seed} ${row.arm}`, row]));
    own.cards[card.id] = { ...old, ...card, rows: { ...(!card.anew && old?.rows), ...rows } };
  }
  if (news.length) keepJson('LAB', { ...own, ...rest });
  return news.length > 0;
}

/** Look every two seconds while the page can be seen; less often after a minute without news. Returns what went wrong. */
function useNews() {
  const [[error], tell] = hooks.useState(['']);
  hooks.useEffect(() => {
    const control = new AbortController();
    let [timer, quiet] = [0, 0];
    const look = async () => {
      clearTimeout(timer);
      if (recorded || document.hidden || control.signal.aborted) return;
      try {
        quiet = (await pull(control.signal)) ? 0 : quiet + 1;
        if (quiet < 2) tell(['']);
      } catch (failed) {
        quiet = 0;
        tell([sentence(failed)]);
      }
      timer = setTimeout(look, quiet < 30 ? 2000 : 15_000);
    };
    look();
    document.addEventListener('visibilitychange', look, control);
    return () => control.abort();
  }, []);
  return error;
}

function Verdict({ is }) {
  return html`<strong class=${`verdict ${is ?? ''}`}>${text.signs[is]} ${is ?? text.notRun}</strong>`;
}

/** Where numbers stand in a row, in percent: by logarithms if they span more than a factor of 1,000. */
function scaleOf(values) {
  const [low, high, least] = [Math.min(...values), Math.max(...values), Math.min(...values.filter((x) => x > 0))];
  const log = low >= 0 && high / least > 1000;
  const by = (x) => (log ? Math.log10(Math.max(x, least)) : x);
  return { low, high, log, at: (x) => (high > low ? 100 * ((by(x) - by(low)) / (by(high) - by(low))) : 50) };
}

/** A row for each arm and a dot for each seed, of one size and one number: at first that which most arms have. */
function Dots({ card: { id, rows, live }, view: { state, set } }) {
  const all = Object.values(rows);
  const sizes = [...new Set(all.map((row) => row.size))];
  const size = sizes.find((one) => one === state[`${id}.size`]) ?? all.at(-1).size;
  const arms = Map.groupBy(all.filter((row) => row.size === size), (row) => row.arm);
  const counts = new Map();
  for (const [row] of arms.values()) for (const name of Object.keys(row.numbers)) counts.set(name, (counts.get(name) ?? 0) + 1);
  const most = [...counts].reduce((best, one) => (one[1] > best[1] ? one : best), ['', 0]);
  const by = counts.has(state[`${id}.by`]) ? state[`${id}.by`] : most[0];
  const lines = [...arms].map(([arm, some]) => [arm, some.filter((row) => Number.isFinite(row.numbers[by]))]).filter(([, some]) => some.length).slice(0, 60);
  const { low, high, log, at } = scaleOf(lines.flatMap(([, some]) => some.map((row) => row.numbers[by])));
  const items = lines.map(([name, some]) => {
    const dots = some.map((row) => ({ left: `${at(row.numbers[by])}%`, from: text.seed(row.seed, num(row.numbers[by])), on: live && row === all.at(-1) }));
    const mean = some.reduce((sum, row) => sum + row.numbers[by], 0) / some.length;
    return { name, dots, text: num(mean), from: text.mean(name, num(mean), dots.map((dot) => dot.from).join(', ')) };
  });
  return html`<div class="row-of"><${Pick} label=${text.by} value=${by} options=${[...counts.keys()]} onChange=${(name) => set({ [`${id}.by`]: name })} />
      ${sizes[1] && html`<${Choice} label=${text.size} value=${size} options=${sizes} onChange=${(one) => set({ [`${id}.size`]: one })} />`}</div>
    <${Bars} label=${by} items=${items} />
    <div class="bar-row label"><i></i><span class="ends"><span>${num(low)}</span>${log && text.log}<span>${num(high)}</span></span>${text.average}</div>`;
}

function Card({ card, view }) {
  const { id, letter, name, verdict, command, figure, parts = [], rows, live } = card;
  const many = Object.keys(rows).length;
  const on = listOf(view.state.open).includes(id);
  const turn = ({ target }) => {
    const open = listOf(now().open); // several cards may turn at once
    if (target.open !== open.includes(id)) view.set({ open: flipped(open, id) }, true);
  };
  return html`<article class="group" id=${id} tabindex="-1" aria-label=${name}>
    <header class="row-of"><h2>${letter} ${name}</h2>${(verdict || !live) && html`<${Verdict} is=${verdict} />`}${live && html`<b class="label" role="status">● ${text.live(many)}, ${live}</b>`}</header>
    <p>${card.says} <span class="lecture">${card.lecture}</span></p>
    ${verdict && html`<p data-from=${`lab/${name}/report.json`}>${card.summary}</p>`}
    <p class="label">${card.note} ${command && html`<code>${command}</code>`}</p>
    ${figure && html`<div class="table" tabindex="0" role="region" aria-label=${text.figure(name)}><img src=${figure} alt=${text.figure(card.says)} /></div>`}
    ${many + parts.length > 0 && html`<details open=${on || live} onToggle=${turn}><summary>${text.fold(many, parts.length)}</summary>
      ${many > 0 && (on || live) && html`<${Dots} card=${card} view=${view} />`}
      <div class="checks"><ul>${parts.map((part) => html`<li class="check" key=${part.name}><${Verdict} is=${part.verdict} /> ${part.says}
        <span>${part.rule}</span><span>${part.why}</span></li>`)}</ul></div></details>`}</article>`;
}

export function render({ view }) {
  const error = useNews();
  const { cards, code, skipped } = known();
  const all = Object.values(cards);
  Object.assign(view.shown, { all, code });
  const jump = (id) => () => {
    document.getElementById(id).scrollIntoView();
    document.getElementById(id).focus({ preventScroll: true });
  };
  return html`<aside class="controls"><div class="chips labels">${all.map(({ id, letter, name, verdict }) => html`<button class="chip" key=${id}
      data-from=${verdict ?? text.notRun} onClick=${jump(id)}>${letter} ${name} ${text.signs[verdict]}</button>`)}</div></aside>
    <section class="picture"><${Note} error=${error} busy=${!code && words.loading}>${skipped > 0 && text.skipped(skipped)}<//>
    ${all.map((card) => html`<${Card} key=${card.id} card=${card} view=${view} />`)}</section>`;
}

export function csv({ shown }) {
  return [text.csv, ...shown.all.flatMap(({ name, verdict, rows }) => Object.values(rows).flatMap(({ size, arm, seed, numbers }) =>
    Object.entries(numbers).map((pair) => [name, verdict, size, arm, seed, ...pair])))];
}
