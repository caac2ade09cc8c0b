/** The shell: navigation, input, one page, status line. CONTRIBUTING.md says what a page exports and what its `view` holds. */
import { dom, hooks, html, setTheme, useKeys } from './html.js';
import { json, recorded, turnPage, useAnswer } from './api.js';
import { listOf, go, now, set, spell, useView } from './state.js';
import { chosenHead } from './reading.js';
import { num, words } from './words.js';
import { installTips } from './tip.js';
import { FIRST, PAGES } from './registry.js';
import { Actions, Help, InputBar, Navigation } from './frame.js';
import { Note } from './views/controls.js';

const modules = new Map();

async function open(name) {
  if (!modules.has(name)) modules.set(name, await PAGES[name]());
  return modules.get(name);
}

/** Why a page has nothing to show for a model, or ''. */
function reasonOf({ needs, applies }, run, about) {
  if (needs === 'nothing' || !about) return '';
  const lacks = needs === 'trace' ? !about.kinds.length && words.noAttention(about.architecture) : run.kind === 'recorded' && words.needsModel;
  return lacks || applies?.(run, about) || '';
}

/** A trace of the text, where the page needs one. */
function useTrace(state, run, about, page) {
  const text = state.text || about?.example || '';
  const wanted = page?.needs === 'trace' && about && !reasonOf(page, run, about);
  const body = { run: run?.id, text, edits: listOf(state.edits) };
  if (state.target) body.target = state.target;
  const ask = async (signal) => ({ ...(await json('/api/trace', { body, signal })), run: run.id });
  const answer = useAnswer(wanted ? ask : null, [wanted, JSON.stringify(body)]);
  const own = answer.value?.run === run?.id; // a trace of another model is not shown meanwhile
  return { ...answer, value: own ? answer.value : null, text };
}

/** A key of every page: / ? and j k h l for the head. */
function press({ key }, state, trace, setHelp) {
  if (key === '?') setHelp(true);
  else if (key === '/') document.getElementById('text')?.focus();
  else return stepHead(key, state, trace);
  return true;
}

function stepHead(key, state, trace) {
  const steps = { j: [1, 0], k: [-1, 0], l: [0, 1], h: [0, -1] };
  if (!steps[key] || !trace) return false;
  const at = chosenHead(state, trace);
  const kind = trace.kinds[at.which];
  const layer = Math.min(kind.layers, Math.max(1, at.layer + steps[key][0]));
  const head = Math.min(kind.heads, Math.max(1, at.head + steps[key][1]));
  set({ head: spell({ which: at.which, layer, head }) });
  return true;
}

function StatusLine({ trace, answer }) {
  if (answer.busy) return html`<footer class="status" role="status">${words.loading}</footer>`;
  if (!trace) return html`<footer class="status"></footer>`;
  const facts = [words.differs(num(trace.agreement, 2)), words.seconds(num(1000 * trace.seconds, 2)), words.traceIs(trace.id.slice(0, 6))];
  return html`<footer class="status">${facts.map((fact) => html`<span>${fact}</span>`)}</footer>`;
}

/** One page: its title, what it shows or why it cannot, and its buttons. */
function Sheet({ name, page, view, answer }) {
  hooks.useEffect(() => {
    document.title = `${page.said.title} · ${words.brand}`;
  }, [page]);
  const free = page.needs === 'nothing';
  const reason = free || view.run ? reasonOf(page, view.run, view.about) : words.noRuns;
  const waits = !free && (!view.about || (page.needs === 'trace' && !view.trace));
  return html`<main id="page" class=${`page page-${name}`} tabindex="-1">
    <header class="title">
      <div><h1>${page.said.title}</h1><p class="sees">${page.said.sees}</p></div>
      ${!reason && !waits && html`<${Actions} page=${page} view=${view} />`}
    </header>
    ${reason || waits
      ? html`<${Note} error=${!reason && answer.error} busy=${!reason && (view.about ? words.loading : words.loadingModel)}>${reason}<//>`
      : html`<div class=${`sheet${answer.busy ? ' stale' : ''}`}><${page.render} key=${name} view=${view} /></div>`}
  </main>`;
}

function App() {
  const state = useView();
  const name = PAGES[state.page] ? state.page : FIRST;
  const [help, setHelp] = hooks.useState(false);
  const shown = hooks.useRef({});
  const [times, setTimes] = hooks.useState(0);
  const list = useAnswer((signal) => json('/api/runs', { signal, fresh: true }), [times]);
  const found = list.value?.runs ?? [];
  const runs = found.length ? found : [list.value?.recorded].filter(Boolean);
  const run = runs.find((one) => one.id === state.run) ?? runs.find((one) => one.has_model) ?? runs[0] ?? null;
  const opened = useAnswer(() => open(name), [name]);
  const page = modules.get(name) ?? null;
  const needsRun = Boolean(page && run && page.needs !== 'nothing');
  const ask = async (signal) => ({ ...(await json(`/api/runs/${run.id}/about`, { signal })), of: run.id });
  const asked = useAnswer(needsRun ? ask : null, [needsRun, run?.id]);
  const about = asked.value?.of === run?.id ? asked.value : null;
  const traced = useTrace(state, run, about, page);
  const answer = asked.error ? { ...traced, error: asked.error } : traced;
  useKeys((event) => press(event, state, answer.value, setHelp));
  hooks.useMemo(() => { // before the page asks for anything
    turnPage();
    shown.current = {};
  }, [name]);
  const view = { state, set, go, run, about, runs, reload: () => setTimes(times + 1), trace: answer.value, shown: shown.current };
  const ready = page && (list.value || !list.busy);
  return html`<div class="studio">
    <a class="skip" href="#page" onClick=${skip}>${words.skip}</a>
    <${Navigation} name=${name} onHelp=${() => setHelp(true)} />
    ${page?.needs !== 'nothing' && html`<${InputBar} view=${view} text=${answer.text} page=${page} />`}
    ${ready
      ? html`<${Sheet} name=${name} page=${page} view=${view} answer=${answer} />`
      : html`<main id="page" class="page"><${Note} error=${opened.error} busy=${words.loadingPage} /></main>`}
    ${list.error && html`<${Note} error=${list.error} />`}
    <${StatusLine} trace=${answer.value} answer=${answer} />
    ${help && html`<${Help} onClose=${() => setHelp(false)} />`}
  </div>`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById('page').focus();
}

setTheme();
if (recorded && !location.hash) history.replaceState(null, '', recorded.hash);
dispatchEvent(new Event('hashchange'));
if (!PAGES[now().page]) set({ page: FIRST }, true);
installTips();
const root = document.getElementById('studio');
root.textContent = '';
dom.render(html`<${App} />`, root);
