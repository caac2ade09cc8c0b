/** Horizontal bars with their numbers; signed bars grow from the middle; an interval is a thin line. */
import { html } from '../html.js';
import { num } from '../words.js';

/** `items`: {name, value, low, high, from, ghost, text, dots}; low and high are an interval, ghost is a dashed frame; dots: {left, from, on}. */
export function Bars({ items, top, signed, label, onPick, chosen }) {
  const size = (x) => (Number.isFinite(x) ? Math.abs(x) : 0);
  const ends = items.flatMap((one) => [one.value, one.low, one.high, one.ghost]);
  const most = top ?? Math.max(1e-12, ...ends.map(size));
  const at = (x) => (signed ? 50 + (50 * x) / most : (100 * x) / most);
  const span = (a, b) => ({ left: `${Math.min(at(a), at(b))}%`, width: `${Math.abs(at(a) - at(b))}%` });
  return html`<div class=${`bars${signed ? ' signed' : ''}`} role="list" aria-label=${label}>
    ${items.map((one, i) => {
      const inside = html`<span class="bar-name">${one.name}</span>
        <span class="bar-track">
          ${one.ghost !== undefined && html`<i class="ghost" style=${span(0, Math.max(-most, Math.min(most, one.ghost)))} />`}
          ${Number.isFinite(one.value) && html`<i class=${one.value < 0 ? 'bar minus' : 'bar'} style=${span(0, one.value)} />`}
          ${one.low !== undefined && html`<i class="interval" style=${span(one.low, one.high)} />`}
          ${one.dots?.map(({ left, from, on }) => html`<i class=${on ? 'dot on' : 'dot'} style=${{ left }} data-from=${from} />`)}
        </span>
        <span class="bar-value">${one.text ?? num(one.value)}</span>`;
      const kinds = `bar-row${i === chosen ? ' on' : ''}`;
      return html`<div role="listitem" key=${i}>${onPick
        ? html`<button class=${kinds} data-from=${one.from} onClick=${() => onPick(i)}>${inside}</button>`
        : html`<div class=${kinds} tabindex="0" data-from=${one.from}>${inside}</div>`}</div>`;
    })}
  </div>`;
}
