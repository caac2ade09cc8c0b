/** A tree that grows to the right, one column a step: text in nodes, thickness of an edge = probability. */
import { hooks, html } from '../html.js';
import { textWidth } from './map.js';

const [WIDE, TALL] = [112, 26];

/** `nodes`: {id, before, column, text, probability, faint, on, from}. The last column is in view, and Tab reaches its nodes. */
export function Tree({ nodes, label }) {
  const box = hooks.useRef(null);
  const places = new Map();
  const y = (id) => places.get(id)?.y ?? 0;
  const last = Math.max(...nodes.map((node) => node.column));
  for (let column = 0; column <= last; column += 1) {
    nodes.filter((node) => node.column === column).sort((a, b) => y(a.before) - y(b.before))
      .forEach((node, i) => places.set(node.id, { x: column * WIDE + 10, y: (i + 0.5) * TALL, end: Math.min(WIDE - 28, textWidth(node.text) + 14) }));
  }
  const [width, height] = [(last + 1) * WIDE + 20, Math.max(...[...places.values()].map((one) => one.y)) + TALL / 2 + 4];
  hooks.useEffect(() => { box.current.scrollLeft = width; }, [width]);
  const edges = nodes.filter((node) => places.has(node.before)).map((node) => {
    const [from, to] = [places.get(node.before), places.get(node.id)];
    const x = from.x + from.end;
    return html`<path key=${node.id} class=${node.faint ? 'faint' : ''} stroke-width=${0.75 + 5 * node.probability}
      d=${`M${x} ${from.y}C${to.x - 12} ${from.y} ${x + 12} ${to.y} ${to.x} ${to.y}`} />`;
  });
  return html`<div class="tree" tabindex="0" role="region" aria-label=${label} ref=${box}>
    <div class="tree-box" style=${{ width: `${width}px`, height: `${height}px` }}>
      <svg width=${width} height=${height} aria-hidden="true">${edges}</svg>
      ${nodes.map((node) => html`<span key=${node.id} class=${`node${node.faint ? ' faint' : ''}${node.on ? ' on' : ''}`} data-from=${node.from}
        tabindex=${node.column === last ? 0 : -1} style=${{ left: `${places.get(node.id).x}px`, top: `${y(node.id) - 10}px`, maxWidth: `${WIDE - 28}px` }}>${node.text}</span>`)}
    </div>
  </div>`;
}
