/** A vector as a strip of signed cells: orange is negative, blue is positive, and the number is in the cell. */
import { claim, html, hooks, useTheme } from '../html.js';
import { fixed, num, words } from '../words.js';
import { cellStyle, colorBy, topOf } from '../paint.js';

export const FIRST = 8; // components that are shown at first

/** `top` has the full color; `kind`: signed or weight; from(i), crossed(i) and onPick(i) take a component. */
export function Strip({ values, name, top, all, kind = 'signed', from, labels, marked, onPick, faint, crossed }) {
  const [at, setAt] = hooks.useState(-1);
  const theme = useTheme();
  const shown = all ? values.length : Math.min(FIRST, values.length);
  const wide = shown <= 16;
  const color = colorBy(kind, top ?? topOf(values), theme);

  function key(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -shown, End: shown };
    if (event.key === 'Enter' && at >= 0 && onPick) onPick(at);
    else if (steps[event.key]) setAt(Math.min(shown - 1, Math.max(0, at + steps[event.key])));
    else return;
    claim(event);
  }

  const cells = Array.from({ length: shown }, (_, i) => {
    const out = crossed?.(i);
    return html`<span key=${i} class=${`cell${out ? ' crossed' : ''}${i === marked || i === at ? ' marked' : ''}`} style=${out ? undefined : cellStyle(color(values[i]))}
      data-from=${from(i)} onClick=${onPick && (() => onPick(i))}>${wide && fixed(values[i])}</span>`;
  });
  return html`<div class=${`strip${wide ? '' : ' thin'}${faint ? ' faint' : ''}${onPick ? ' picks' : ''}`}>
    ${name && html`<span class="strip-name">${name}</span>`}
    <div class="strip-cells" role="application" tabindex="0" aria-roledescription="vector"
      aria-label=${`${name ?? ''} ${words.keyboard}`} onKeyDown=${key} onBlur=${() => setAt(-1)}>
      ${labels && html`<div class="strip-labels">${labels.slice(0, shown).map((label, i) =>
        html`<span key=${i}>${label}</span>`)}</div>`}
      <div class="strip-row">${cells}${shown < values.length && html`<span class="more">…</span>`}</div>
    </div>
    <span class="strip-note" aria-live="polite">${at >= 0 && `${num(values[at])} · ${from(at)}`}</span>
  </div>`;
}
