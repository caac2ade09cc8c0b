/** A tree that grows to the right, one column a step: text in nodes, thickness of an edge = probability. */
import { hooks, html } from '../html.js';
import { textWidth } from './map.js';

const [WIDE, TALL] = [112, 26];

/** Rows of nodes: children stay near their parent, columns do not overlap. */
export function treeLayout(nodes) {
  const places = new Map();
  const columns = new Map();
  for (const node of nodes) {
    if (!columns.has(node.column)) columns.set(node.column, []);
    columns.get(node.column).push(node);
  }
  let most = 0;
  for (const column of [...columns.keys()].sort((a, b) => a - b)) {
    const wanted = (node) => places.get(node.before)?.y ?? 0;
    const sorted = columns.get(column).map((node, n) => ({ node, n })).sort((a, b) => wanted(a.node) - wanted(b.node) || a.n - b.n);
    sorted.forEach(({ node }, i) => {
      places.set(node.id, { text: node.text, x: column * WIDE + 10, y: i * TALL + TALL / 2 });
      most = Math.max(most, i + 1);
    });
  }
  return { places, width: (Math.max(0, ...columns.keys()) + 1) * WIDE + 20, height: most * TALL + 4 };
}

/**
 * @param {{nodes: {id: number | string, before: number | string | null, column: number, text: string,
 *   probability: number, faint?: boolean, on?: boolean, from?: string}[], label: string,
 *   onPick?: (node: object) => void}} props
 */
export function Tree({ nodes, label, onPick }) {
  const { places, width, height } = treeLayout(nodes);
  const box = hooks.useRef(null);
  hooks.useEffect(() => { box.current.scrollLeft = width; }, [width]); // the last step is in view
  const edges = nodes.filter((node) => places.has(node.before)).map((node) => {
    const [from, to] = [places.get(node.before), places.get(node.id)];
    const [x0, x1] = [from.x + Math.min(WIDE - 28, textWidth(from.text) + 14), to.x];
    const d = `M${x0} ${from.y} C${x0 + 12} ${from.y} ${x1 - 12} ${to.y} ${x1} ${to.y}`;
    return html`<path key=${node.id} d=${d} class=${node.faint ? 'faint' : ''} stroke-width=${0.75 + 5 * node.probability} />`;
  });
  return html`<div class="tree" tabindex="0" role="region" aria-label=${label} ref=${box}>
    <div class="tree-box" style=${{ width: `${width}px`, height: `${height}px` }}>
      <svg width=${width} height=${height} aria-hidden="true">${edges}</svg>
      ${nodes.map((node) => {
        const { x, y } = places.get(node.id);
        const style = { left: `${x}px`, top: `${y - 10}px`, maxWidth: `${WIDE - 28}px` };
        const kinds = `node${node.faint ? ' faint' : ''}${node.on ? ' on' : ''}`;
        return html`<button type="button" key=${node.id} class=${kinds} style=${style} data-from=${node.from}
          onClick=${() => onPick?.(node)}>${node.text}</button>`;
      })}
    </div>
  </div>`;
}
