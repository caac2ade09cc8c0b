/** Tokens or labels in a row: buttons if they can be chosen. */
import { html, hooks } from '../html.js';
import { cellStyle } from '../paint.js';

/**
 * @param {{items: {text: string, color?: number[], from?: string, on?: boolean, faint?: boolean}[], label: string,
 *   onPick?: (i: number, event: Event) => void, onPoint?: (i: number | null) => void}} props
 */
export function Chips({ items, label, onPick, onPoint }) {
  const row = hooks.useRef(null);
  const current = Math.max(0, items.findIndex((one) => one.on));

  function move(event, i) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const to = step && row.current.children[i + step];
    if (!to) return;
    to.focus();
    event.preventDefault();
    event.stopPropagation();
  }

  return html`<div class="chips" role="group" aria-label=${label} ref=${row}>
    ${items.map((one, i) => {
      const props = {
        key: i,
        class: `chip${one.on ? ' on' : ''}${one.faint ? ' faint' : ''}`,
        style: one.color ? cellStyle(one.color) : undefined,
        'data-from': one.from,
        onPointerEnter: onPoint && (() => onPoint(i)),
        onPointerLeave: onPoint && (() => onPoint(null)),
      };
      return onPick
        ? html`<button type="button" ...${props} aria-pressed=${Boolean(one.on)} tabindex=${i === current ? 0 : -1}
            onKeyDown=${(e) => move(e, i)} onClick=${(e) => onPick(i, e)}>${one.text}</button>`
        : html`<span ...${props}>${one.text}</span>`;
    })}
  </div>`;
}
