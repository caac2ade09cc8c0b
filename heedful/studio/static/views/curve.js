/** Lines as SVG. Each column of pixels keeps its extremes only, so that many points make a short path. */
import { html, hooks, useTheme, useWidth } from '../html.js';
import { count, num, words } from '../words.js';
import { HUES } from '../paint.js';

const [LEFT, RIGHT, TOP, BOTTOM] = [54, 22, 8, 36];

/** An axis between two pixels, with a round number about every `gap` pixels; of logarithms, their powers are round. */
function axis(lists, from, to, gap, log) {
  let [low, high] = [Infinity, -Infinity];
  for (const list of lists) for (const v of list) [low, high] = [Math.min(low, v), Math.max(high, v)];
  if (!(low < high)) [low, high] = [Math.min(low, 0), Math.max(high, 0) || 1];
  const raw = ((high - low) * gap) / Math.abs(to - from);
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = size * [1, 2, 5, 10].find((n) => n * size >= raw);
  const ticks = [];
  for (let n = Math.ceil(low / step); n * step <= high; n += 1) ticks.push(log ? Math.log10((10 ** (n * step)).toPrecision(1)) : Number((n * step).toPrecision(9)));
  return { ticks, at: (v) => from + ((v - low) / (high - low)) * (to - from), back: (p) => low + ((p - from) / (to - from)) * (high - low) };
}

/** The corners of a line: of each column of pixels the first, least, greatest and last point. */
function corners({ x, y }, across, up) {
  const found = [];
  let [column, own] = [NaN, []];
  for (let i = 0; i <= x.length; i += 1) {
    const [at, v] = [Math.round(across.at(x[i])), up.at(y[i])];
    if (at !== column) found.push(...[...new Set(own)].map((one) => `${column} ${one.toFixed(1)}`));
    own = at === column ? [own[0], Math.min(own[1], v), Math.max(own[2], v), v] : [v, v, v, v];
    column = at;
  }
  return found;
}

function nearest(list, value) {
  let best = 0;
  for (let i = 1; i < list.length; i += 1) if (Math.abs(list[i] - value) < Math.abs(list[best] - value)) best = i;
  return best;
}

function short(x) {
  if (x >= 1e4) return count(x).replace(/\.0+ /, ' ');
  return Math.abs(x) < 1e-3 ? num(x, 2) : String(Number(x.toPrecision(4))).replace('-', '−');
}

/**
 * Drag, or press + and 0, to zoom; arrow keys read. Faint series are neither named nor read. The space between the two series
 * of a band is filled.
 * @param {{x?: number[], series: {name: string, values: (number | null)[], x?: number[], faint?: boolean, hue?: number, dash?: string}[],
 *   bands?: [number, number][], xName: string, label: string, height?: number, logY?: boolean, format?: (x: number) => string,
 *   zoom?: number[], onZoom?: (zoom: number[] | null) => void}} props
 */
export function Curve({ x, series, bands = [], xName, label, height = 240, logY, format, zoom, onZoom }) {
  const frame = hooks.useRef(null);
  const [own, setOwn] = hooks.useState(null);
  const [at, setAt] = hooks.useState(null);
  const [drag, setDrag] = hooks.useState(null);
  const right = Math.max(200, useWidth(frame, 600) - RIGHT);
  const hues = HUES[useTheme()];
  const [view, turn] = onZoom ? [zoom, onZoom] : [own, setOwn];
  const [points, across, up, lines] = hooks.useMemo(() => {
    const inside = series.map((one) => {
      const found = { x: [], y: [] };
      one.values.forEach((value, i) => {
        const [a, b] = [(one.x ?? x)[i] ?? NaN, logY ? Math.log10(value) : value ?? NaN];
        if (!Number.isFinite(a + b) || a < view?.[0] || a > view?.[1]) return;
        found.x.push(a);
        found.y.push(b);
      });
      return found;
    });
    const [h, v] = [axis(view ? [view] : inside.map((one) => one.x), LEFT, right, 70), axis(inside.map((one) => one.y), height - BOTTOM, TOP, 34, logY)];
    return [inside, h, v, inside.map((one) => corners(one, h, v))];
  }, [x, series, view?.join(), logY, right, height]);
  const hue = (n) => hues[(series[n].hue ?? n) % hues.length];
  const read = [...series.keys()].filter((n) => !series[n].faint && points[n].x.length);
  const main = points[read[0]]?.x ?? [];
  const y = (v, say) => say(logY ? 10 ** v : v);
  const dots = (list, r) => list.map(([n, i]) => html`<circle r=${r} fill=${hue(n)} cx=${across.at(points[n].x[i])} cy=${up.at(points[n].y[i])} />`);
  const marks = at === null ? [] : read.map((n) => [n, nearest(points[n].x, at)]);
  const pixel = (event) => Math.min(right, Math.max(LEFT, event.clientX - event.currentTarget.getBoundingClientRect().left));
  const drop = () => {
    if (drag && Math.abs(drag[1] - drag[0]) > 6) turn([Math.min(...drag), Math.max(...drag)].map(across.back));
    setDrag(null);
  };
  const key = (event) => {
    const i = at === null ? -1 : nearest(main, at);
    const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: main.length }[event.key];
    const [middle, half] = [at === null ? (LEFT + right) / 2 : across.at(at), (right - LEFT) / 4];
    if (to !== undefined) setAt(main[Math.max(0, Math.min(to, main.length - 1))] ?? null);
    else if (event.key === '+') turn([Math.max(LEFT, middle - half), Math.min(right, middle + half)].map(across.back));
    else if (event.key === '-' || event.key === '0') turn(null);
    else return;
    event.preventDefault();
  };
  return html`<figure class="curve" ref=${frame}><figcaption>${label} ${view && html`<button type="button" class="small" onClick=${() => turn(null)}>${words.wholeCurve}</button> `}
    ${read.length > 1 && read.map((n) => html` <span key=${n} class="swatch" style=${{ color: hue(n) }}>${series[n].dash ? '┅' : '━'} ${series[n].name}</span>`)}</figcaption>
    <svg width=${right + RIGHT} height=${height} tabindex="0" role="application" aria-label=${`${words.chart}: ${label}. ${words.curveKeys}`} onKeyDown=${key}
      onPointerDown=${(e) => setDrag([pixel(e), pixel(e)])} onPointerUp=${drop} onPointerLeave=${() => { drop(); setAt(null); }}
      onPointerMove=${(e) => { setAt(across.back(pixel(e))); if (drag) setDrag([drag[0], pixel(e)]); }}>
      ${up.ticks.map((t) => html`<path stroke="var(--line)" d=${`M${LEFT} ${up.at(t)}H${right}`} /><text x=${LEFT - 7} y=${up.at(t) + 4} text-anchor="end">${y(t, format ?? short)}</text>`)}
      ${across.ticks.map((t) => html`<text x=${across.at(t)} y=${height - BOTTOM + 16} text-anchor="middle">${short(t)}</text>`)}
      <text x=${right} y=${height - 4} text-anchor="end">${xName}</text>
      ${bands.map(([a, b]) => html`<path fill=${hue(a)} fill-opacity="0.15" d=${`M${[...lines[a], ...[...lines[b]].reverse()].join('L')}`} />`)}
      ${series.map((one, n) => lines[n].length > 0 && html`<path fill="none" stroke=${hue(n)} stroke-width=${one.faint ? 1 : 2} opacity=${one.faint ? 0.35 : 1}
        stroke-dasharray=${one.dash} d=${`M${lines[n].join('L')}`} />`)}
      ${read.map((n) => points[n].x.length < 40 && dots(points[n].x.map((_, i) => [n, i]), 2.5))}${dots(marks, 4)}
      ${drag && html`<rect opacity="0.1" x=${Math.min(...drag)} y=${TOP} width=${Math.abs(drag[1] - drag[0])} height=${height - BOTTOM - TOP} />`}
    </svg>
    <p class="readout" aria-live="polite">${marks.map(([n, i], m) => `${m ? '' : `${xName} ${short(points[n].x[i])}`} · ${series[n].name} ${y(points[n].y[i], format ?? ((v) => num(v, 4)))}`)}</p></figure>`;
}
