/** What stands around a page: navigation, the input, the buttons, the help. */
import { hooks, html, setTheme, useTheme } from './html.js';
import { json, recorded, sentence } from './api.js';
import { format, go, now } from './state.js';
import { count, words } from './words.js';
import { PAGES } from './registry.js';
import { Menu, Pick } from './views/controls.js';

export function Navigation({ name, onHelp }) {
  const dark = useTheme() === 'dark';
  const row = hooks.useRef(null);
  hooks.useEffect(() => {
    row.current?.querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }, [name]);
  const follow = (page) => (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(page);
  };
  return html`<header class="topbar">
    <span class="brand">heedful <em>studio</em></span>
    <nav aria-label=${words.navigation} ref=${row}>${(recorded ? [name] : Object.keys(PAGES)).map((page) => html`<a key=${page}
      href=${format({ ...now(), page }).replace('#', '#/')} aria-current=${page === name ? 'page' : undefined}
      onClick=${follow(page)}>${page[0].toUpperCase() + page.slice(1)}</a>`)}</nav>
    <span class="bar-end">
      ${[[words.theme, dark ? '☀' : '☾', () => setTheme(dark ? 'light' : 'dark')], [words.help, '?', onHelp]].map(([label, sign, act]) => html`<button
        key=${label} class="icon" aria-label=${label} data-from=${label} onClick=${act}>${sign}</button>`)}
    </span>
  </header>`;
}

function named(run) {
  const facts = [run.architecture, run.parameters && words.parameters(count(run.parameters))];
  return [run.name, ...facts].filter(Boolean).join(' · ');
}

/** Train the demo, and watch it. */
export function trainDemo(fail) {
  json('/api/jobs', { body: { kind: 'demo' }, method: 'POST' }).then(({ run }) => go('training', { chosen: run }), (e) => fail(sentence(e)));
}

/** A button of the form that does not send it. */
function linked(name, act) {
  return html`<button type="button" class="link" onClick=${act}>${name}</button>`;
}

/** The recorded example, and a way to a model of one's own. */
function Example() {
  const [note, setNote] = hooks.useState('');
  return html`<span class="edits" role="status">${words.example} ${note || linked(words.trainDemo, () => trainDemo(setNote))}</span>`;
}

/** A picture of one's own, kept by the server under a name that the address can hold. */
function FileButton({ onName }) {
  const [error, setError] = hooks.useState('');
  const send = (event) => {
    const reader = new FileReader();
    reader.onload = () => json('/api/picture', { body: { picture: reader.result }, method: 'POST' })
      .then(({ text }) => onName(text), (failed) => setError(sentence(failed)));
    if (event.target.files[0]) reader.readAsDataURL(event.target.files[0]);
  };
  return html`<label class="file"><span>${words.chooseFile}</span><input class="unseen" type="file" accept="image/png,image/jpeg" onChange=${send} />
    ${error && html`<em role="alert">${error}</em>`}</label>`;
}

/** Which model, which text or picture; Enter runs it through the model. */
export function InputBar({ view, text, page }) {
  const { state, set, run, about, runs, trace } = view;
  const [draft, setDraft] = hooks.useState({ text, target: state.target ?? '' });
  hooks.useEffect(() => setDraft({ text, target: state.target ?? '' }), [text, state.target]);
  const send = (event) => {
    event.preventDefault();
    set({ text: draft.text, target: draft.target, cell: '', branches: '', query: draft.text === text ? state.query : '' });
  };
  const type = (name) => (event) => setDraft({ ...draft, [name]: event.target.value });
  const choose = (id) => set({ run: id, text: '', target: '', head: '', query: '', edits: '', cell: '', branches: '' });
  const pair = page?.input ? page.input === true && about?.writes : (trace?.translation ?? null) !== null;
  const pictures = about?.reads === 'pictures';
  const asks = page?.needs === 'trace' || page?.input;
  const field = (name, more) => html`<input id=${name} type="text" value=${draft[name]} onInput=${type(name)} readonly=${Boolean(recorded)}
    autocomplete="off" spellcheck=${false} ...${more} />`;
  return html`<form class="input" aria-label=${words.input} onSubmit=${send}>
    <${Pick} label=${words.run} value=${run?.id} onChange=${choose}
      options=${runs.map((one) => [one.id, named(one)])} />
    ${asks && html`<label class="field wide"><span>${pictures ? words.picture : words.text}</span>${field('text')}</label>`}
    ${asks && pair && html`<label class="field"><span>${words.target}</span>${field('target', { placeholder: trace?.translation || words.targetHint })}</label>`}
    ${asks && !recorded && pictures && html`<${FileButton} onName=${(name) => set({ text: name, cell: '', query: '' })} />`}
    ${asks && !recorded && html`<button class="primary">${words.trace}</button>`}
    ${run?.kind === 'recorded' && !recorded && html`<${Example} />`}
    ${state.edits && html`<span class="edits">${words.edits}: <code>${state.edits}</code> ${linked(words.removeEdits, () => set({ edits: '' }))}</span>`}
  </form>`;
}

/** Export by a function of take.js, which is loaded on demand. */
async function take(act) {
  act(await import('./take.js'));
}

/** The address that shows this view again, with the model and the text written out. */
function linkOf({ state, run, trace }) {
  const hash = format({ ...state, run: run?.id, text: trace?.text ?? state.text });
  return `${location.href.split('#')[0]}${hash}`;
}

async function copy(text, done) {
  await navigator.clipboard.writeText(text);
  done(true);
  setTimeout(() => done(false), 1500);
}

/** Copy link, export, show code, why. */
export function Actions({ page, view }) {
  const [note, setNote] = hooks.useState('');
  const [copied, setCopied] = hooks.useState(false);
  const [, again] = hooks.useState(0);
  hooks.useEffect(() => setNote(''), [page]);
  hooks.useEffect(() => { // the code follows the page, whose answers come later
    const timer = note === 'code' && setInterval(() => again((n) => n + 1), 500);
    return () => clearInterval(timer);
  }, [note]);
  const name = `heedful-${view.state.page || 'view'}`;
  const picture = () => document.querySelector('.picture');
  const { code = () => view.shown.code ?? '', csv = () => view.shown.rows ?? [[words.noTable]], said } = page;
  const flip = (which, name) => html`<button aria-expanded=${note === which} onClick=${() => setNote(note === which ? '' : which)}>${name}</button>`;
  const items = [
    [words.png, () => take(({ savePng }) => savePng(picture(), name))],
    [words.svg, () => take(({ saveSvg }) => saveSvg(picture(), name))],
    [words.csv, () => take(({ saveCsv }) => saveCsv(csv(view), name))],
    ...(recorded ? [] : [[words.page, () => take(({ savePage }) => savePage(name))]]),
  ];
  return html`<div class="actions">
    ${!recorded && html`<button onClick=${() => copy(linkOf(view), setCopied)}>
      ${copied ? words.copied : words.copyLink}</button>`}
    <${Menu} label=${words.exportAs} items=${items} />
    ${flip('code', words.showCode)}${flip('why', words.why)}
    ${note === 'code' && html`<section class="margin" aria-label=${words.codeTitle}><h2>${words.codeTitle}</h2>
      <pre tabindex="0"><code>${code(view)}</code></pre>
      <button class="small" onClick=${() => copy(code(view), setCopied)}>${copied ? words.copied : words.copyCode}</button></section>`}
    ${note === 'why' && html`<section class="margin" aria-label=${words.why}><p>${said.why}</p>
      <p class="lecture">${said.lecture}</p></section>`}
  </div>`;
}

export function Help({ onClose }) {
  const box = hooks.useRef(null);
  hooks.useEffect(() => {
    box.current.showModal();
  }, []);
  return html`<dialog ref=${box} class="help" aria-labelledby="help-title" onClose=${onClose}>
    <h2 id="help-title">${words.help}</h2>
    <dl>${words.keys.map(([key, what]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl>
    <form method="dialog"><button class="primary">${words.close}</button></form>
  </dialog>`;
}
