/** Tokens or labels in a row: buttons if they can be chosen. */
import { claim, html, hooks } from '../html.js';
import { cellStyle } from '../paint.js';

/** `items`: {text, color, from, on, faint}; onPick(i). */
export function Chips({ items, label, onPick }) {
  const row = hooks.useRef(null);
  const current = Math.max(0, items.findIndex((one) => one.on));

  function move(event, i) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const to = step && row.current.children[i + step];
    if (!to) return;
    to.focus();
    claim(event);
  }

  return html`<div class="chips" role="group" aria-label=${label} ref=${row}>
    ${items.map((one, i) => {
      const props = {
        key: i,
        class: `chip${one.on ? ' on' : ''}${one.faint ? ' faint' : ''}`,
        style: one.color ? cellStyle(one.color) : undefined,
        'data-from': one.from,
      };
      return onPick
        ? html`<button type="button" ...${props} aria-pressed=${Boolean(one.on)} tabindex=${i === current ? 0 : -1}
            onKeyDown=${(e) => move(e, i)} onClick=${() => onPick(i)}>${one.text}</button>`
        : html`<span ...${props}>${one.text}</span>`;
    })}
  </div>`;
}
