/** Attention over a picture: the darker a patch is covered, the larger its weight in one row. */
import { claim, hooks, html, useTheme } from '../html.js';
import { traced, useAnswer } from '../api.js';
import { num, words } from '../words.js';
import { HUES, carrier, sized } from '../paint.js';

const SIDE = 288; // CSS pixels

/** The picture as something that drawImage takes. */
function drawn({ data, shape: [height, width, channels] }) {
  const image = new ImageData(width, height);
  for (let i = 0; i < width * height; i += 1) {
    for (let c = 0; c < 3; c += 1) image.data[4 * i + c] = data[channels * i + Math.min(c, channels - 1)];
    image.data[4 * i + 3] = 255;
  }
  return carrier(image);
}

/**
 * `weights` are those of the row of `word`; the first `leading` belong to tokens that are no patches. `marked` is the patch
 * that the row is of, or null. say(word, patch, weight); onPatch(i).
 */
export function Overlay({ trace, weights, leading, word, marked = null, onPatch, label, say = words.patch }) {
  const canvas = hooks.useRef(null);
  const [at, setAt] = hooks.useState(null);
  const theme = useTheme();
  const { grid } = trace.picture;
  const pixels = useAnswer((signal) => traced(trace, { name: 'pixels', layer: 1, dtype: 'f32' }, signal), [trace.id]).value;
  hooks.useLayoutEffect(() => {
    if (!pixels) return;
    const context = sized(canvas.current, SIDE, SIDE);
    const cell = SIDE / grid;
    const shares = Array.from(weights).slice(leading);
    const top = Math.max(...shares) || 1;
    context.drawImage(drawn(pixels), 0, 0, SIDE, SIDE);
    shares.forEach((share, i) => {
      context.globalAlpha = 0.85 * (share / top);
      context.fillStyle = HUES[theme][1];
      context.fillRect((i % grid) * cell, Math.floor(i / grid) * cell, cell, cell);
    });
    context.globalAlpha = 1;
    const frame = (i, color, width) => Object.assign(context, { strokeStyle: color, lineWidth: width })
      .strokeRect((i % grid) * cell + 1, Math.floor(i / grid) * cell + 1, cell - 2, cell - 2);
    if (marked !== null) frame(marked, theme === 'dark' ? '#fff' : '#000', 2);
    if (at !== null) frame(at, '#1d5a96', 3);
  }, [pixels, weights, theme, marked, at, grid]);
  const under = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const place = (x, size) => Math.min(grid - 1, Math.max(0, Math.floor((x / size) * grid)));
    return place(event.clientY - box.top, box.height) * grid + place(event.clientX - box.left, box.width);
  };
  const key = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid, ArrowDown: grid }[event.key];
    if (step) setAt(Math.min(grid * grid - 1, Math.max(0, (at ?? marked ?? 0) + step)));
    else if (event.key === 'Enter' && at !== null) onPatch?.(at);
    else return;
    claim(event);
  };
  const name = (i) => `${Math.floor(i / grid) + 1},${(i % grid) + 1}`;
  return html`<figure class="overlay"><canvas ref=${canvas} tabindex="0" role="application" aria-roledescription="picture"
      aria-label=${`${label}. ${words.keyboard}`} onPointerMove=${(e) => setAt(under(e))} onPointerLeave=${() => setAt(null)}
      onBlur=${() => setAt(null)} onClick=${(e) => onPatch?.(under(e))} onKeyDown=${key} />
    <figcaption aria-live="polite">${label}${at !== null && html`<br />${say(word, name(at), num(weights[leading + at]))}`}</figcaption></figure>`;
}
