/** Lines over steps, drawn by uPlot, which is loaded when the first of them is shown. */
import { html, hooks, useTheme, useWidth } from '../html.js';
import { recorded } from '../api.js';
import { num, words } from '../words.js';
import { HUES } from '../paint.js';

let loading = null;

function load() {
  loading ??= import('../vendor/uplot.js').then(({ uPlot }) => uPlot);
  if (!recorded && !document.getElementById('uplot-style')) {
    const link = Object.assign(document.createElement('link'), { id: 'uplot-style', rel: 'stylesheet' });
    link.href = 'static/vendor/uplot.css';
    document.head.append(link);
  }
  return loading;
}

/**
 * @param {{x: ArrayLike<number>, series: {name: string, values: ArrayLike<number | null>, faint?: boolean,
 *   hue?: number, dash?: number[]}[], bands?: [number, number][], xName: string, label: string, height?: number,
 *   logY?: boolean, logX?: boolean, format?: (x: number) => string, onPoint?: (i: number | null) => void}} props
 */
export function Curve({ x, series, bands = [], xName, label, height = 240, logY, logX, format = num, onPoint }) {
  const frame = hooks.useRef(null);
  const plot = hooks.useRef(null);
  const width = useWidth(frame);
  const theme = useTheme();
  const names = series.map((one) => `${one.name} ${one.hue} ${one.faint}`).join();
  hooks.useEffect(() => {
    if (!width) return undefined;
    let gone = false;
    load().then((uPlot) => {
      if (gone) return;
      const style = getComputedStyle(document.documentElement);
      const [ink, line] = [style.getPropertyValue('--muted').trim(), style.getPropertyValue('--line').trim()];
      const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line }, font: '12px system-ui' };
      plot.current = new uPlot(
        {
          width,
          height,
          legend: { show: series.length > 1 },
          scales: { x: { time: false, distr: logX ? 3 : 1 }, y: { distr: logY ? 3 : 1 } },
          axes: [
            { ...axis, label: xName, labelSize: 22 },
            { ...axis, size: 62, values: (_, ticks) => ticks.map((t) => (t === null ? '' : format(t))) },
          ],
          cursor: { drag: { x: true, y: false } },
          bands: bands.map(([high, low]) => ({ series: [high + 1, low + 1], fill: `${HUES[theme][0]}22` })),
          hooks: { setCursor: [(u) => onPoint?.(u.cursor.idx ?? null)] },
          series: [
            { label: xName },
            ...series.map((one, n) => ({
              label: one.name,
              stroke: HUES[theme][(one.hue ?? n) % HUES[theme].length] + (one.faint ? '55' : ''),
              width: one.faint ? 1 : 2,
              dash: one.dash,
              points: { show: one.values.length < 60 },
              value: (_, value) => (value === null ? '–' : format(value)),
            })),
          ],
        },
        [x, ...series.map((one) => one.values)],
        frame.current,
      );
    });
    return () => {
      gone = true;
      plot.current?.destroy();
      plot.current = null;
    };
  }, [width, height, theme, names, logX, logY, xName]);
  hooks.useEffect(() => {
    plot.current?.setData([x, ...series.map((one) => one.values)]);
  }, [x, series]);
  return html`<figure class="curve" aria-label=${`${words.chart}: ${label}`}>
    <figcaption>${label}</figcaption><div ref=${frame}></div></figure>`;
}
