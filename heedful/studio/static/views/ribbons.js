/** Ribbons between two rows of words: the width of a ribbon is its share of the largest weight. */
import { html, hooks } from '../html.js';
import { textWidth } from './map.js';

const [TALL, GAP] = [150, 14];

/** The middles of words in a row, and where the row ends. */
function spread(words) {
  let end = GAP / 2;
  const middles = words.map((word) => {
    const width = textWidth(word, 16);
    end += width + GAP;
    return end - GAP - width / 2;
  });
  return { middles, end };
}

/** `weights` is [down, across]; the words of `across` are above. `row` is chosen, or null. onRow(row or null); from(r, c). */
export function Ribbons({ down, across, weights, threshold, label, row, onRow, from }) {
  const rows = hooks.useMemo(() => [spread(across), spread(down)], [down, across]);
  const width = Math.max(rows[0].end, rows[1].end);
  const [above, below] = rows.map(({ middles, end }) => middles.map((x) => x + (width - end) / 2));
  const top = Math.max(...weights) || 1;
  const path = (r, c) => {
    const weight = weights[r * across.length + c] / top;
    return weight >= threshold && html`<path key=${`${r} ${c}`} class=${row !== null && row !== r ? 'faint' : ''} stroke-width=${1 + 9 * weight}
      d=${`M${above[c]} 26C${above[c]} ${TALL / 2} ${below[r]} ${TALL / 2} ${below[r]} ${TALL - 24}`} data-from=${from(r, c)} />`;
  };
  return html`<div class="ribbons" tabindex="0" role="img" aria-label=${label}><svg width=${width} height=${TALL}>
    ${below.map((_, r) => above.map((__, c) => path(r, c)))}
    ${above.map((x, i) => html`<text x=${x} y="18">${across[i]}</text>`)}
    ${below.map((x, i) => html`<text x=${x} y=${TALL - 8} class=${row === i ? 'on' : ''} onPointerEnter=${() => onRow(i)}
      onPointerLeave=${() => onRow(null)}>${down[i]}</text>`)}</svg></div>`;
}
