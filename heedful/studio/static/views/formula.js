/** A formula in one line: "W_q n" has a lowered q, "x^2" a raised 2. */
import { html } from '../html.js';

export function Formula({ children, plain }) {
  const parts = String(children).split(/([_^](?:\{[^}]*\}|\w))/);
  return html`<span class=${plain ? '' : 'formula'}>${parts.map((part, i) => {
    const inside = part.slice(1).replace(/[{}]/g, '');
    if (part[0] === '_') return html`<sub key=${i}>${inside}</sub>`;
    return part[0] === '^' ? html`<sup key=${i}>${inside}</sup>` : part;
  })}</span>`;
}
