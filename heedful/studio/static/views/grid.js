/** All heads at a glance: thumbnails on one canvas, with a button over each. */
import { html, hooks, useWidth, useTheme } from '../html.js';
import { words } from '../words.js';
import { paintThumbs } from '../paint.js';

/** Where thumbnails go: rows are layers if they stand in place, else they fill the width. */
export function gridLayout(width, items, inPlace, heads) {
  const gap = width < 500 ? 4 : 8;
  const name = 15;
  const left = inPlace ? 22 : 0;
  const columns = inPlace ? heads : Math.max(1, Math.floor((width + gap) / (64 + gap)));
  const fit = Math.floor((width - left - gap * (columns - 1)) / columns);
  const side = Math.max(14, Math.min(72, fit));
  const named = side >= 30;
  const tall = side + gap + (named ? name : 0);
  const boxes = items.map((item, n) => {
    const [row, column] = inPlace ? [item.layer - 1, item.head - 1] : [Math.floor(n / columns), n % columns];
    return { item, i: item.i, x: left + column * (side + gap), y: row * tall };
  });
  const rows = Math.max(0, ...boxes.map((box) => box.y)) + tall;
  return { boxes, side, named, left, tall, width: left + columns * (side + gap) - gap, height: rows };
}

/**
 * @param {{thumbs: {data: Uint8Array, shape: number[]}, items: {layer: number, head: number, i: number,
 *   faint?: boolean, say: string}[], inPlace: boolean, scale: string, chosen: string[],
 *   onChoose: (item: object, more: boolean) => void, label: string}} props
 */
export function Grid({ thumbs, items, inPlace, scale, chosen, onChoose, label }) {
  const [frame, canvas] = [hooks.useRef(null), hooks.useRef(null)];
  const width = useWidth(frame);
  const theme = useTheme();
  const [, heads, t, s] = thumbs.shape;
  const plan = width ? gridLayout(width, items, inPlace, heads) : null;
  const key = ({ layer, head }) => `${layer}.${head}`;

  hooks.useLayoutEffect(() => {
    if (!plan) return;
    const { width: w, height, side } = plan;
    paintThumbs(canvas.current, thumbs.data, [t, s], plan.boxes, { width: w, height, w: side, h: side, scale, theme });
  }, [thumbs, width, theme, scale, items, inPlace]);

  function move(event, n) {
    const columns = inPlace ? heads : Math.max(1, plan.boxes.filter((box) => box.y === plan.boxes[0].y).length);
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
    const to = event.currentTarget.parentNode.children[n + steps[event.key]];
    if (!to) return;
    to.focus();
    event.preventDefault();
    event.stopPropagation();
  }

  const current = Math.max(0, plan ? plan.boxes.findIndex(({ item }) => chosen.includes(key(item))) : 0);
  const layers = inPlace && plan ? [...new Set(items.map((item) => item.layer))] : [];
  return html`<div class="grid" ref=${frame} role="group" aria-label=${label}>
    ${plan && html`<div class="grid-box" style=${{ width: `${plan.width}px`, height: `${plan.height}px` }}>
      <canvas ref=${canvas} aria-hidden="true" />
      ${layers.map((layer) => html`<span class="grid-layer" key=${layer} data-from=${`${words.layer} ${layer}`}
        style=${{ top: `${(layer - 1) * plan.tall}px`, height: `${plan.side}px` }}>${layer}</span>`)}
      <div class="grid-buttons">${plan.boxes.map(({ item, x, y }, n) => html`<button type="button" key=${key(item)}
        class=${`thumb${chosen.includes(key(item)) ? ' on' : ''}${item.faint ? ' faint' : ''}`}
        aria-pressed=${chosen.includes(key(item))} aria-label=${item.say} data-from=${item.say}
        tabindex=${n === current ? 0 : -1} onKeyDown=${(e) => move(e, n)}
        style=${{ left: `${x}px`, top: `${y}px`, width: `${plan.side}px`, height: `${plan.side}px` }}
        onClick=${(e) => onChoose(item, e.shiftKey)}>${plan.named
          ? html`<span>${inPlace ? item.head : `${item.layer}.${item.head}`}</span>` : null}</button>`)}</div>
    </div>`}
  </div>`;
}
