/** Small controls. `onChange` takes the new value. */
import { html, hooks } from '../html.js';
import { num, words } from '../words.js';

/** Options: [value, name, where it comes from], or a value that is its name. */
function named(options) {
  return options.map((one) => (Array.isArray(one) ? one : [one, one]));
}

/** One of a few, as radio buttons in a row. */
export function Choice({ label, value, options, onChange }) {
  const name = hooks.useId();
  return html`<fieldset class="choice">
    <legend>${label}</legend>
    <div class="segments">
      ${named(options).map(([key, text, from]) => html`<label class=${key === value ? 'on' : ''} data-from=${from} key=${key}>
        <input type="radio" name=${name} value=${key} checked=${key === value} onChange=${() => onChange(key)} /><span>${text}</span></label>`)}
    </div>
  </fieldset>`;
}

/** On or off. `off` is the sentence why it cannot be used. */
export function Toggle({ label, on, onChange, off }) {
  return html`<label class="toggle" data-from=${off || undefined}>
    <input type="checkbox" checked=${on} disabled=${Boolean(off)} onChange=${(e) => onChange(e.target.checked)} />
    <span>${label}</span>
  </label>`;
}

/** A switch that the address keeps under a name. */
export function Flag({ name, label, view: { state, set } }) {
  return html`<${Toggle} label=${label} on=${Boolean(state[name])} onChange=${(on) => set({ [name]: on ? '1' : '' })} />`;
}

/** The kinds of attention of a trace. */
export function Kinds({ trace, which, onChange }) {
  return html`<${Choice} label=${words.attention} value=${which} options=${Object.keys(trace.kinds).map((one) => [one, words.tabs[one]])} onChange=${onChange} />`;
}

/** One of many, as a list. */
export function Pick({ label, value, options, onChange }) {
  return html`<label class="pick">
    <span>${label}</span>
    <select value=${value} onChange=${(e) => onChange(e.target.value)}>
      ${named(options).map(([key, text]) => html`<option value=${key} selected=${key === value} key=${key}>${text}</option>`)}
    </select>
  </label>`;
}

/** A number between bounds. */
export function Slider({ label, value, low, high, step = 1, onChange, format = num }) {
  return html`<label class="slider">
    <span>${label} <output>${format(value)}</output></span>
    <input type="range" min=${low} max=${high} step=${step} value=${value}
      onInput=${(e) => onChange(Number(e.target.value))} />
  </label>`;
}

/** A number that says where it comes from. */
export function Num({ value, from, digits = 3, text }) {
  return html`<span class="num" tabindex="0" data-from=${from}>${text ?? num(value, digits)}</span>`;
}

/** A button that opens a small list of buttons. `items`: [name, act]. */
export function Menu({ label, items }) {
  const [open, setOpen] = hooks.useState(false);
  const ref = hooks.useRef(null);
  hooks.useEffect(() => {
    if (!open) return undefined;
    const control = new AbortController();
    const close = (event) => {
      if (event.key === 'Escape' || (event.type === 'pointerdown' && !ref.current?.contains(event.target))) setOpen(false);
    };
    for (const name of ['pointerdown', 'keydown']) document.addEventListener(name, close, control);
    return () => control.abort();
  }, [open]);
  const choose = (act) => () => {
    setOpen(false);
    act();
  };
  return html`<span class="menu" ref=${ref}>
    <button aria-expanded=${open} onClick=${() => setOpen(!open)}>${label}</button>
    ${open && html`<span class="menu-items">
      ${items.map(([text, act]) => html`<button key=${text} onClick=${choose(act)}>${text}</button>`)}
    </span>`}
  </span>`;
}

/** The controls and the picture of a page while its numbers are on their way, or what went wrong. */
export function Waiting({ error }) {
  return html`<aside class="controls"></aside><section class="picture"><${Note} error=${error} busy=${words.loading} /></section>`;
}

/** What is on its way, or what went wrong. */
export function Note({ error, busy, children }) {
  if (error) return html`<p class="note error" role="alert">${error}</p>`;
  if (busy) return html`<p class="note" role="status">${busy}</p>`;
  return children ? html`<p class="note">${children}</p>` : null;
}
