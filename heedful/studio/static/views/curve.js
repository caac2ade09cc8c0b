/** Lines as SVG. Each column of pixels keeps its extremes only, so that many points make a short path. */
import { html, hooks, useTheme, useWidth } from '../html.js';
import { count, num, words } from '../words.js';
import { HUES } from '../paint.js';

/** An axis between two pixels, with a round number about every `gap` pixels. */
function axis(lists, from, to, gap, log) {
  const end = (pick, first) => lists.reduce((best, list) => list.reduce((a, b) => pick(a, b), best), first);
  let [low, high] = [end(Math.min, Infinity), end(Math.max, -Infinity)];
  if (!(low < high)) [low, high] = [Math.min(low, 0), Math.max(high, 0) || 1];
  const raw = ((high - low) * gap) / Math.abs(to - from);
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = size * [1, 2, 5, 10].find((n) => n * size >= raw);
  const ticks = Array.from({ length: (high - low) / step + 1 }, (_, n) => (Math.ceil(low / step) + n) * step).filter((v) => v <= high);
  return { at: (v) => from + ((v - low) / (high - low)) * (to - from), back: (p) => low + ((p - from) / (to - from)) * (high - low),
    ticks: log ? ticks.map((v) => Math.log10((10 ** v).toPrecision(1))) : ticks };
}

/** The corners of a line: of each column of pixels the first, least, greatest and last point. */
function corners([xs, ys], across, up) {
  const found = [];
  let [column, own] = [NaN, []];
  for (let i = 0; i <= xs.length; i += 1) {
    const at = Math.round(across.at(xs[i]));
    const v = up.at(ys[i]);
    if (at !== column) {
      for (const one of new Set(own)) found.push(`${column} ${one.toFixed(1)}`);
      own = [v, v, v, v];
    }
    column = at;
    own[1] = Math.min(own[1], v);
    own[2] = Math.max(own[2], v);
    own[3] = v;
  }
  return found;
}

function nearest(list, value) {
  return list.reduce((best, v, i) => (Math.abs(v - value) < Math.abs(list[best] - value) ? i : best), 0);
}

function short(x) {
  if (Math.abs(x) >= 1e7) return count(x);
  return x && Math.abs(x) < 1e-4 ? num(x, 2) : x.toLocaleString('en-US', { maximumSignificantDigits: 7 }).replace('-', '−');
}

/**
 * `series`: {name, values, x, faint, hue, dash}; faint ones are neither named nor read, and values that are null or undefined
 * are left out. `bands` fill the space between two series. `zoom`: [low, high] of x.
 */
export function Curve({ x, series, bands = [], xName, label, height = 240, logY, format, zoom, onZoom }) {
  const frame = hooks.useRef(null);
  const [at, setAt] = hooks.useState(null);
  const width = Math.max(240, useWidth(frame, 600));
  const [left, right] = [60, width - 22];
  const hues = HUES[useTheme()];
  const [points, across, up, lines] = hooks.useMemo(() => {
    const inside = series.map((one) => {
      const [xs, found] = [one.x ?? x, [[], []]];
      for (let i = 0; i < xs.length; i += 1) {
        const v = logY ? Math.log10(one.values[i]) : one.values[i] ?? NaN;
        if (!Number.isFinite(v + xs[i]) || xs[i] < zoom?.[0] || xs[i] > zoom?.[1]) continue;
        found[0].push(xs[i]);
        found[1].push(v);
      }
      return found;
    });
    const [h, v] = [axis(zoom ? [zoom] : inside.map((one) => one[0]), left, right, 70), axis(inside.map((one) => one[1]), height - 36, 8, 34, logY)];
    return [inside, h, v, inside.map((one) => corners(one, h, v))];
  }, [x, series, zoom?.join(), logY, width, height]);
  const hue = (n) => hues[(series[n].hue ?? n) % hues.length];
  const read = [...series.keys()].filter((n) => !series[n].faint && points[n][0].length);
  const marks = at === null ? [] : read.map((n) => [n, nearest(points[n][0], at)]);
  const say = (v, by) => by(logY ? 10 ** v : v);
  const dot = (r) => ([n, i]) => html`<circle r=${r} fill=${hue(n)} cx=${across.at(points[n][0][i])} cy=${up.at(points[n][1][i])} />`;
  const write = (what, to, y, anchor) => html`<text x=${to} y=${y} text-anchor=${anchor}>${what}</text>`;
  const line = (list, props) => list.length > 0 && html`<path fill="none" d=${`M${list.join('L')}`} ...${props} />`;
  const closer = () => {
    const [middle, half] = [at === null ? (left + right) / 2 : across.at(at), (right - left) / 4];
    onZoom?.([Math.max(left, middle - half), Math.min(right, middle + half)].map(across.back));
  };
  const key = (event) => {
    const [i, list] = [marks[0]?.[1] ?? -1, points[read[0]]?.[0] ?? []];
    const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: list.length }[event.key];
    if (to !== undefined) setAt(list[Math.max(0, Math.min(to, list.length - 1))] ?? null);
    else if (event.key === '+') closer();
    else if (event.key === '0') onZoom?.(null);
    else return;
    event.preventDefault();
  };
  return html`<figure class="curve" ref=${frame}><figcaption>${label} ${zoom && html`<button class="small" onClick=${() => onZoom(null)}>${words.wholeCurve}</button> `}
    ${read.length > 1 && read.map((n) => html` <span class="swatch" style=${{ color: hue(n) }}>${series[n].dash ? '┅' : '━'} ${series[n].name}</span>`)}</figcaption>
    <svg width=${width} height=${height} tabindex="0" role="application" aria-label=${`${words.chart}: ${label}. ${words.curveKeys}`} onKeyDown=${key} onDblClick=${closer}
      onPointerMove=${(e) => setAt(across.back(e.clientX - e.currentTarget.getBoundingClientRect().left))} onPointerLeave=${() => setAt(null)}>
      ${up.ticks.map((t) => [line([`${left} ${up.at(t)}`, `${right} ${up.at(t)}`], { stroke: 'var(--line)' }), write(say(t, format ?? short), left - 7, up.at(t) + 4, 'end')])}
      ${across.ticks.map((t) => write(short(t), across.at(t), height - 20, 'middle'))}${write(xName, right, height - 4, 'end')}
      ${bands.map(([a, b]) => line([...lines[a], ...[...lines[b]].reverse()], { fill: hue(a), opacity: 0.15 }))}
      ${series.map(({ faint, dash }, n) => line(lines[n], { stroke: hue(n), 'stroke-width': faint ? 1 : 2, opacity: faint ? 0.35 : 1, 'stroke-dasharray': dash }))}
      ${read.map((n) => points[n][0].length < 40 && points[n][0].map((_, i) => [n, i]).map(dot(2.5)))}${marks.map(dot(4))}
    </svg>
    <p class="readout" aria-live="polite">${marks.map(([n, i], m) => `${m ? '' : `${xName} ${short(points[n][0][i])}`} · ${series[n].name} ${say(points[n][1][i], format ?? num)}`)}</p></figure>`;
}
