/** Ribbons between two rows of words: the width of a ribbon is the weight. */
import { html, hooks } from '../html.js';
import { textWidth } from './map.js';

const TALL = 150;
const GAP = 14;

function spread(texts) {
  let x = 8;
  return texts.map((text) => {
    const width = textWidth(text, 16);
    const place = { text, x: x + width / 2, width };
    x += width + GAP;
    return place;
  });
}

/**
 * @param {{down: string[], across: string[], weights: ArrayLike<number>, threshold?: number, label: string,
 *   row?: number | null, onRow?: (row: number | null) => void, from: (r: number, c: number) => string}} props
 *   `weights` is [down, across], drawn as shares of the largest; the words of `across` are above.
 */
export function Ribbons({ down, across, weights, threshold = 0.1, label, row = null, onRow, from }) {
  const [above, below] = hooks.useMemo(() => [spread(across), spread(down)], [down, across]);
  const ends = [above, below].map((places) => (places.length ? places.at(-1).x + places.at(-1).width / 2 + 8 : 0));
  const width = Math.max(...ends);
  const shift = [above, below].map((_, n) => (width - ends[n]) / 2);
  const paths = [];
  const top = Math.max(...weights) || 1;
  for (let r = 0; r < down.length; r += 1) {
    for (let c = 0; c < across.length; c += 1) {
      const weight = weights[r * across.length + c] / top;
      if (!(weight >= threshold)) continue;
      const [x0, x1] = [above[c].x + shift[0], below[r].x + shift[1]];
      const d = `M${x0} 26 C${x0} ${TALL / 2} ${x1} ${TALL / 2} ${x1} ${TALL - 24}`;
      const faint = row !== null && row !== r;
      paths.push(html`<path key=${`${r} ${c}`} d=${d} class=${faint ? 'faint' : ''}
        stroke-width=${1 + 9 * weight} data-from=${from(r, c)} />`);
    }
  }
  const text = (places, y, n) => places.map((place, i) => html`<text key=${i} x=${place.x + shift[n]} y=${y}
    class=${n === 1 && row === i ? 'on' : ''} onPointerEnter=${n === 1 && onRow ? () => onRow(i) : undefined}
    onPointerLeave=${n === 1 && onRow ? () => onRow(null) : undefined}>${place.text}</text>`);
  return html`<div class="ribbons" tabindex="0" role="img" aria-label=${label}>
    <svg width=${width} height=${TALL}><g class="paths">${paths}</g>
      <g>${text(above, 18, 0)}</g><g>${text(below, TALL - 8, 1)}</g></svg>
  </div>`;
}
