/** All heads at a glance: thumbnails on one canvas, with a button over each. */
import { claim, html, hooks, useTheme, useWidth } from '../html.js';
import { words } from '../words.js';
import { paintThumbs } from '../paint.js';

/** Where thumbnails go: rows are layers if they stand in place, else they fill the width. */
function gridLayout(width, items, inPlace, heads) {
  const gap = width < 500 ? 4 : 8;
  const left = inPlace ? 22 : 0;
  const columns = inPlace ? heads : Math.max(1, Math.floor((width + gap) / (64 + gap)));
  const fit = Math.floor((width - left - gap * (columns - 1)) / columns);
  const side = Math.max(14, Math.min(72, fit));
  const named = side >= 30;
  const tall = side + gap + (named ? 15 : 0);
  const boxes = items.map((item, n) => {
    const [row, column] = inPlace ? [item.layer - 1, item.head - 1] : [Math.floor(n / columns), n % columns];
    return { item, i: item.i, name: `${item.layer}.${item.head}`, x: left + column * (side + gap), y: row * tall };
  });
  return { boxes, side, named, columns, tall, width: left + columns * (side + gap) - gap, height: Math.max(0, ...boxes.map((box) => box.y)) + tall };
}

/** `items`: {layer, head, i, faint, say}; `chosen`: "layer.head"; onChoose(item, whether Shift is held). */
export function Grid({ thumbs, items, inPlace, scale, chosen, onChoose, label }) {
  const [frame, canvas] = [hooks.useRef(null), hooks.useRef(null)];
  const width = useWidth(frame);
  const theme = useTheme();
  const [, heads, t, s] = thumbs.shape;
  const plan = width ? gridLayout(width, items, inPlace, heads) : null;

  hooks.useLayoutEffect(() => {
    if (plan) paintThumbs(canvas.current, thumbs.data, [t, s], plan, scale, theme);
  }, [thumbs, width, theme, scale, items, inPlace]);

  function move(event, n) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -plan.columns, ArrowDown: plan.columns };
    const to = event.currentTarget.parentNode.children[n + steps[event.key]];
    if (!to) return;
    to.focus();
    claim(event);
  }

  const current = Math.max(0, plan ? plan.boxes.findIndex(({ name }) => chosen.includes(name)) : 0);
  const layers = inPlace && plan ? [...new Set(items.map((item) => item.layer))] : [];
  return html`<div class="grid" ref=${frame} role="group" aria-label=${label}>
    ${plan && html`<div class="grid-box" style=${{ width: `${plan.width}px`, height: `${plan.height}px` }}>
      <canvas ref=${canvas} aria-hidden="true" />
      ${layers.map((layer) => html`<span class="grid-layer" key=${layer} data-from=${`${words.layer} ${layer}`}
        style=${{ top: `${(layer - 1) * plan.tall}px`, height: `${plan.side}px` }}>${layer}</span>`)}
      <div class="grid-buttons">${plan.boxes.map(({ item, name, x, y }, n) => html`<button key=${name}
        class=${`thumb${chosen.includes(name) ? ' on' : ''}${item.faint ? ' faint' : ''}`} aria-pressed=${chosen.includes(name)} aria-label=${item.say} data-from=${item.say}
        tabindex=${n === current ? 0 : -1} onKeyDown=${(e) => move(e, n)}
        style=${{ left: `${x}px`, top: `${y}px`, width: `${plan.side}px`, height: `${plan.side}px` }}
        onClick=${(e) => onChoose(item, e.shiftKey)}>${plan.named && html`<span>${inPlace ? item.head : name}</span>`}</button>`)}</div>
    </div>`}
  </div>`;
}
