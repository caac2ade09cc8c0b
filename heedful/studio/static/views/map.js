/** A heat map of a matrix: pointer and arrow keys read a cell, wheel and + - 0 zoom, dragging pans. Cells are counted from 0. */
import { claim, html, hooks, useTheme, useWidth } from '../html.js';
import { fixed, words } from '../words.js';
import { at, css, inkOn, paintMap, places, ramp, signedPlaces, sized, topOf } from '../paint.js';

const ROOMY = 200; // tokens from which a map can be zoomed
const TALLEST = 640; // CSS pixels
const FONT = 13;

let ruler = null;

/** The width of a text in the page's font. */
export function textWidth(text, size = FONT) {
  ruler ??= document.createElement('canvas').getContext('2d');
  ruler.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}

function widest(labels) {
  const longest = [...labels].sort((a, b) => b.length - a.length).slice(0, 12);
  return Math.max(0, ...longest.map((label) => textWidth(label)));
}

/** Where everything goes, in CSS pixels. */
function layout({ width, rows, cols, down, across, view, cell = 42, tall: tallest = cell }) {
  const left = Math.ceil(Math.min(width * 0.26, 150, widest(down) + 10));
  const room = Math.max(40, width - left - 14);
  const side = Math.min(cell, room / cols, Math.max(TALLEST / rows, 0.4));
  const w = Math.max(24, Math.floor(side * cols));
  const h = Math.max(24, Math.min(TALLEST, Math.floor(Math.min(side, tallest) * rows)));
  const wide = w / (view.c1 - view.c0);
  const tall = h / (view.r1 - view.r0);
  const turned = widest(across) > wide - 4;
  const top = Math.ceil(turned ? Math.min(110, widest(across) * 0.72 + 14) : 20);
  const [x, y] = [(c) => left + (c - view.c0 + 0.5) * wide, (r) => top + (r - view.r0 + 0.5) * tall]; // the middle of a cell
  return { left, top, w, h, wide, tall, turned, x, y, right: turned ? Math.min(60, width - left - w) : 2 };
}

function cut(text, room) {
  if (textWidth(text) <= room) return text;
  let end = text.length;
  while (end > 1 && textWidth(`${text.slice(0, end)}…`) > room) end -= 1;
  return `${text.slice(0, end)}…`;
}

/** Numbers from `low` on, below `high`: all, or every few so that labels of `room` pixels fit. */
function every(low, high, size, room) {
  const step = size >= 12 ? 1 : Math.ceil(room / size);
  const first = Math.ceil(low / step) * step;
  return Array.from({ length: Math.max(0, Math.ceil((high - first) / step)) }, (_, n) => first + n * step);
}

/** Words of rows and columns, as many as fit. */
function Labels({ box, down, across, view }) {
  const y = box.top - 6;
  return html`<g>${every(view.r0, view.r1, box.tall, 17).map((r) => html`<text key=${r} x=${box.left - 7} y=${box.y(r)} class="row"
      dominant-baseline="central">${cut(down[r], box.left - 8)}</text>`)}</g>
    <g>${every(view.c0, view.c1, box.wide, 22).map((c) => html`<text key=${c} x=${box.x(c)} y=${y} class=${box.turned ? 'turned' : 'column'}
      transform=${box.turned ? `rotate(-45 ${box.x(c)} ${y})` : undefined}>${cut(across[c], 130)}</text>`)}</g>`;
}

/** The number or the text in each cell, where there is room to read it. */
function Numbers({ box, values, index, cols, view, table, tokens, strong }) {
  if (box.wide < (tokens ? 24 : 32) || box.tall < 17 || (view.r1 - view.r0) * (view.c1 - view.c0) > 400) return null;
  const cell = (r, c) => {
    const i = r * cols + c;
    const text = tokens ? cut(tokens[i], box.wide - 4) : fixed(values[i]).replace(/^(−?)0\./, '$1.');
    return text !== '.00' && html`<text key=${i} x=${box.x(c)} y=${box.y(r)} class=${`value${tokens ? ' token' : ''}${strong?.(i) ? ' same' : ''}`}
      style=${{ fill: inkOn(at(table, index[i])) }} dominant-baseline="central">${text}</text>`;
  };
  return html`<g>${every(view.r0, view.r1, 12).map((r) => every(view.c0, view.c1, 12).map((c) => cell(r, c)))}</g>`;
}

/** Cross out what the mask forbids. */
function hatch(canvas, box, { allowed, cols, view }, color) {
  if (box.wide < 3 || box.tall < 3) return;
  const context = Object.assign(canvas.getContext('2d'), { strokeStyle: color, lineWidth: 0.8 });
  context.beginPath();
  for (let r = view.r0; r < view.r1; r += 1) {
    for (let c = view.c0; c < view.c1; c += 1) {
      if (allowed[r * cols + c]) continue;
      const [x, y] = [(c - view.c0) * box.wide, (r - view.r0) * box.tall];
      context.moveTo(x, y + box.tall);
      context.lineTo(x + box.wide, y);
    }
  }
  context.stroke();
}

/** The cell under the pointer: its row and column, and a frame. */
function point(canvas, box, view, cell, dark) {
  const context = sized(canvas, box.w, box.h);
  context.clearRect(0, 0, box.w, box.h);
  if (!cell) return;
  const [x, y] = [(cell[1] - view.c0) * box.wide, (cell[0] - view.r0) * box.tall];
  context.fillStyle = dark ? 'rgb(255 255 255 / 9%)' : 'rgb(20 30 50 / 7%)';
  context.fillRect(0, y, box.w, box.tall);
  context.fillRect(x, 0, box.wide, box.h);
  Object.assign(context, { strokeStyle: dark ? '#ffd479' : '#b3540e', lineWidth: 2 });
  context.strokeRect(x - 1, y - 1, Math.max(4, box.wide + 2), Math.max(4, box.tall + 2));
}

function within(value, low, high) {
  return Math.min(high, Math.max(low, value));
}

/** A view scaled around a cell, inside the matrix; null for the whole. */
export function zoomed(view, factor, [r, c], rows, cols) {
  const part = (low, high, at, most) => {
    const size = within(Math.round((high - low) * factor), Math.min(8, most), most);
    const start = within(Math.round(at - ((at - low) / (high - low)) * size), 0, most - size);
    return [start, start + size];
  };
  const [r0, r1] = part(view.r0, view.r1, r, rows);
  const [c0, c1] = part(view.c0, view.c1, c, cols);
  return r1 - r0 >= rows && c1 - c0 >= cols ? null : { r0, r1, c0, c1 };
}

/**
 * `layers`: one matrix or several over each other, [down, across] each; `allowed` is 0 where a cell is crossed out. `scale`: linear,
 * root or row; `kind`: weight or signed; `side` and `tall` bound a cell; `tokens` stand in cells, bold where strong(i).
 * `cell` is chosen, and `view` {r0, r1, c0, c1} is shown. say(r, c), onCell(r, c), onOpen(r, c), onRow(r or null), onView(view or null).
 */
export function HeatMap(props) {
  const { layers, down, across, label, scale = 'linear', kind = 'weight', allowed, say } = props;
  const { cell, side, tall, onCell, onOpen, onView, tokens, strong } = props;
  const [rows, cols] = [down.length, across.length];
  const whole = { r0: 0, r1: rows, c0: 0, c1: cols };
  const view = props.view && props.view.r1 <= rows && props.view.c1 <= cols ? props.view : whole;
  const frame = hooks.useRef(null);
  const [canvas, over, readout] = [hooks.useRef(null), hooks.useRef(null), hooks.useRef(null)];
  const live = hooks.useRef({ cell: null, due: 0, drag: null });
  const width = useWidth(frame);
  const theme = useTheme();
  const index = hooks.useMemo(
    () => layers.map((one) => (kind === 'signed' ? signedPlaces(one, topOf(one)) : places(one, rows, cols, scale))),
    [layers, kind, rows, cols, scale],
  );
  const box = width ? layout({ width, rows, cols, down, across, view, cell: side, tall }) : null;

  hooks.useLayoutEffect(() => {
    if (!box) return;
    paintMap(canvas.current, index, { rows, cols, view, width: box.w, height: box.h, theme, kind });
    if (allowed) hatch(canvas.current, box, { allowed, cols, view }, theme === 'dark' ? '#8b8880' : '#a39d90');
    draw();
  });

  function draw() {
    const now = live.current;
    now.due = 0;
    if (!over.current || !box) return;
    const [r, c] = now.cell ?? cell ?? [];
    point(over.current, box, view, now.cell ?? cell, theme === 'dark');
    const text = r < rows && c < cols ? say(r, c) : words.keyboard;
    if (readout.current.firstChild?.data !== text) readout.current.textContent = text;
  }

  function look(to) {
    if (to?.[0] !== live.current.cell?.[0]) props.onRow?.(to ? to[0] : null);
    live.current.cell = to;
    if (!live.current.due) live.current.due = requestAnimationFrame(draw);
  }

  function under(event) {
    const place = over.current.getBoundingClientRect();
    const r = view.r0 + Math.floor(((event.clientY - place.top) / place.height) * (view.r1 - view.r0));
    const c = view.c0 + Math.floor(((event.clientX - place.left) / place.width) * (view.c1 - view.c0));
    return [within(r, view.r0, view.r1 - 1), within(c, view.c0, view.c1 - 1)];
  }

  function move(event) {
    const { drag } = live.current;
    if (!drag || !onView) {
      look(under(event));
      return;
    }
    const [x, y] = [event.clientX - drag.x, event.clientY - drag.y];
    if (Math.abs(x) + Math.abs(y) > 5) drag.moved = true;
    const [high, wide] = [view.r1 - view.r0, view.c1 - view.c0];
    const r0 = within(Math.round(drag.view.r0 - y / box.tall), 0, rows - high);
    const c0 = within(Math.round(drag.view.c0 - x / box.wide), 0, cols - wide);
    if (drag.moved) onView({ r0, c0, r1: r0 + high, c1: c0 + wide });
  }

  function press(event) {
    if (view.r1 - view.r0 < rows || view.c1 - view.c0 < cols) {
      live.current.drag = { x: event.clientX, y: event.clientY, view, moved: false };
      over.current.setPointerCapture(event.pointerId);
    }
  }

  function release(event) {
    const { drag } = live.current;
    live.current.drag = null;
    if (!drag?.moved) onCell?.(...under(event));
  }

  function wheel(event) {
    if (!onView || Math.max(rows, cols) <= ROOMY) return;
    event.preventDefault();
    onView(zoomed(view, event.deltaY > 0 ? 1.25 : 0.8, under(event), rows, cols));
  }

  function key(event) {
    const [r, c] = live.current.cell ?? cell ?? [view.r0, view.c0];
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const zooms = { '+': 0.7, '=': 0.7, '-': 1.4 };
    if (steps[event.key]) {
      const [dr, dc] = steps[event.key];
      look([within(r + dr, view.r0, view.r1 - 1), within(c + dc, view.c0, view.c1 - 1)]);
    } else if (event.key === 'Enter') (onOpen ?? onCell)?.(r, c);
    else if (zooms[event.key] && onView) onView(zoomed(view, zooms[event.key], [r, c], rows, cols));
    else if (event.key === '0' && onView) onView(null);
    else return;
    claim(event);
  }

  hooks.useEffect(() => {
    const element = over.current;
    element?.addEventListener('wheel', wheel, { passive: false });
    return () => element?.removeEventListener('wheel', wheel);
  });
  hooks.useEffect(() => () => cancelAnimationFrame(live.current.due), []);

  const [place, size] = box ? [{ left: `${box.left}px`, top: `${box.top}px` }, { width: box.left + box.w + box.right, height: box.top + box.h + 2 }] : [];
  return html`<div class="map" ref=${frame}>
    ${box && html`<div class="map-box" style=${{ width: `${size.width}px`, height: `${size.height}px` }}>
      <canvas ref=${canvas} class="map-cells" style=${place} />
      <svg width=${size.width} height=${size.height} class="map-labels" aria-hidden="true">
        <rect x=${box.left - 0.5} y=${box.top - 0.5} width=${box.w + 1} height=${box.h + 1} class="frame" />
        <${Labels} ...${{ box, down, across, view }} />
        ${layers.length === 1 && html`<${Numbers} ...${{ box, cols, view, tokens, strong }} values=${layers[0]} index=${index[0]} table=${ramp(kind, theme)} />`}
      </svg>
      <canvas ref=${over} class="map-over" role="application" aria-roledescription="heat map" tabindex="0"
        aria-label=${`${label}. ${words.keyboard}`} style=${place}
        onPointerMove=${move} onPointerLeave=${() => look(null)} onPointerDown=${press} onPointerUp=${release}
        onDblClick=${(e) => onOpen?.(...under(e))} onKeyDown=${key} onBlur=${() => look(null)} />
    </div>`}
    <p class="readout" aria-live="polite" ref=${readout}></p>
  </div>`;
}

/** The scale of the colors, as a strip from its least to its most. */
export function Legend({ scale, kind = 'weight', top = 1 }) {
  const table = ramp(kind, useTheme());
  const stops = [...Array(32).keys()].map((n) => html`<rect key=${n} x=${n * 5} y="0" width="5.3" height="10"
    fill=${css(at(table, Math.round(255 * (scale === 'root' ? Math.sqrt(n / 31) : n / 31))))} />`);
  const [low, high] = kind === 'signed' ? [`−${top}`, `+${top}`] : ['0', scale === 'row' ? 'largest of row' : `${top}`];
  return html`<span class="legend"><span>${low}</span>
    <svg width="160" height="10" aria-hidden="true">${stops}</svg><span>${high}</span></span>`;
}
