// The attention map: who looks at whom, one head large and all heads of the layer small.
import { attentionOf } from './answers.js';
import { choose, el, labeled, select, visible } from './views.js';

const CELL = 26; // pixels of a cell at most
const LEAST = 6;

/** The attention of a layer: {heads: for each a matrix of rows, queries, keys}. */
export function attentionIn(net, spec, run, which) {
  const [side, kind, layer] = which;
  const heads = [];
  attentionOf(net, spec, run, (s, l, k, t, head, from, weights) => {
    if (s !== side || k !== kind || l !== layer) return;
    const row = new Float32Array(kind === 'cross' || side === 'encoder' ? run.source.length : run.written.length);
    row.set(weights, from);
    (heads[head] ??= [])[t] = row;
  });
  return heads;
}

/** The layers of a model that attend: [side, kind, number of layers]. */
export function kindsOf(model) {
  const found = [];
  if (model.encoder) found.push(['encoder', 'self', model.encoder.stack.blocks.length]);
  if (model.decoder) found.push(['decoder', 'self', model.decoder.stack.blocks.length]);
  if (model.decoder?.stack.blocks[0].cross) found.push(['decoder', 'cross', model.decoder.stack.blocks.length]);
  return found;
}

const NAMES = {
  'encoder.self': 'Encoder: input to input',
  'decoder.self': 'Decoder: text to the text before it',
  'decoder.cross': 'Decoder: output to input',
};

/** The view, and `show(run)`, which draws what was read and written. */
export function attentionView(net, spec) {
  const kinds = kindsOf(net.model);
  const state = { kind: kinds.length - 1, layer: kinds[kinds.length - 1][2] - 1, head: 0, run: null, heads: [] };
  const canvas = el('canvas', { class: 'map', tabindex: '0', role: 'img', 'aria-describedby': 'map-value' });
  const value = el('p', { id: 'map-value', class: 'value', 'aria-live': 'polite' });
  const picker = el('div', { class: 'heads', role: 'group', 'aria-label': 'Heads' });
  const layers = el('span');
  const cut = el('p', { class: 'hint' });
  const kindPicker = select(kinds.map(([side, kind], i) => [String(i), NAMES[`${side}.${kind}`]]), String(state.kind),
    (chosen) => set({ kind: Number(chosen), layer: kinds[Number(chosen)][2] - 1 }));
  const view = el('section', { class: 'attention', 'aria-labelledby': 'attention-title' },
    el('h2', { id: 'attention-title' }, 'Attention'),
    el('p', { class: 'hint' },
      'Each row is a token and the shares that it takes from the tokens above the map. ',
      'Point at a cell, or use the arrow keys.'),
    cut,
    el('div', { class: 'row' }, labeled('Which', kindPicker), layers),
    picker, value, el('div', { class: 'scroll' }, canvas));
  view.hidden = true;
  const map = mapOn(canvas, (text) => { value.textContent = text; });

  function set(changed) {
    Object.assign(state, changed);
    const [side, kind, count] = kinds[state.kind];
    const numbers = Array.from({ length: count }, (_, i) => [String(i), `${i + 1} of ${count}`]);
    layers.replaceChildren(labeled('Layer', select(numbers, String(state.layer), (n) => set({ layer: Number(n) }))));
    state.heads = attentionIn(net, spec, state.run, [side, kind, state.layer]);
    drawPicker();
    pick(Math.min(state.head, state.heads.length - 1));
  }

  function drawPicker() {
    picker.replaceChildren(...state.heads.map((rows, head) => {
      const small = el('canvas', { 'aria-hidden': 'true' });
      thumbnail(small, rows);
      const named = { type: 'button', class: 'head', 'aria-label': `Head ${head + 1}`, onclick: () => pick(head) };
      return el('button', named, small, el('span', {}, String(head + 1)));
    }));
  }

  function pick(head) {
    state.head = head;
    choose(picker, head);
    const [side, kind] = kinds[state.kind];
    const { run } = state;
    const keys = kind === 'cross' || side === 'encoder' ? run.source : run.written;
    map.draw(state.heads[head], side === 'encoder' ? run.source : run.written, keys);
    canvas.setAttribute('aria-label', `Attention of head ${head + 1}: ${NAMES[`${side}.${kind}`]}`);
  }

  return {
    view,
    show(run) {
      state.run = run;
      view.hidden = !run;
      cut.textContent = run?.cut ?? '';
      if (run) set({});
    },
    redraw: () => state.run && (drawPicker(), pick(state.head)),
  };
}

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The color of a share: from paper to ink. */
function shades() {
  const parse = (text) => text.match(/[\da-f]{2}/gi).map((two) => parseInt(two, 16));
  const [paper, ink] = [parse(style('--map-low')), parse(style('--map-high'))];
  return (share) => paper.map((from, i) => Math.round(from + (ink[i] - from) * Math.sqrt(share)));
}

function pixels(rows) {
  const shade = shades();
  const image = new ImageData(rows[0].length, rows.length);
  rows.forEach((row, t) => {
    row.forEach((share, s) => image.data.set([...shade(share), 255], 4 * (t * row.length + s)));
  });
  return image;
}

function thumbnail(canvas, rows) {
  canvas.width = rows[0].length;
  canvas.height = rows.length;
  canvas.getContext('2d').putImageData(pixels(rows), 0, 0);
}

/** A large map on a canvas. tell: given what the cell under the pointer says. */
function mapOn(canvas, tell) {
  const shown = { rows: [], queries: [], keys: [], cell: CELL, left: 0, top: 0, t: 0, s: 0 };

  function draw(rows, queries, keys) {
    Object.assign(shown, { rows, queries: queries.map(visible), keys: keys.map(visible), t: 0, s: 0 });
    const pen = canvas.getContext('2d');
    pen.font = FONT;
    const widest = (words) => Math.min(140, Math.max(...words.map((word) => pen.measureText(word).width))) + 8;
    shown.left = widest(shown.queries);
    shown.top = widest(shown.keys);
    const room = Math.max(LEAST * keys.length, (canvas.parentElement.clientWidth || 600) - shown.left);
    shown.cell = Math.max(LEAST, Math.min(CELL, Math.floor(room / keys.length)));
    paint();
    describeCell();
  }

  function paint() {
    const { rows, queries, keys, cell, left, top } = shown;
    const ratio = devicePixelRatio || 1;
    const [width, height] = [left + cell * keys.length + 1, top + cell * queries.length + 1];
    canvas.width = Math.ceil(width * ratio);
    canvas.height = Math.ceil(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext('2d');
    pen.scale(ratio, ratio);
    pen.font = FONT;
    pen.fillStyle = style('--ink');
    pen.textBaseline = 'middle';
    pen.textAlign = 'right';
    const size = cell >= 11;
    if (size) queries.forEach((word, t) => pen.fillText(word, left - 4, top + (t + 0.5) * cell, left - 6));
    pen.textAlign = 'left';
    if (size) keys.forEach((word, s) => upright(pen, word, left + (s + 0.5) * cell, top - 4, top - 6));
    const small = document.createElement('canvas');
    thumbnail(small, rows);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, left, top, cell * keys.length, cell * queries.length);
    pen.strokeStyle = style('--accent');
    pen.lineWidth = 2;
    pen.strokeRect(left + shown.s * cell, top + shown.t * cell, cell, cell);
  }

  function describeCell() {
    const { rows, queries, keys, t, s } = shown;
    if (rows.length) tell(`“${queries[t]}” takes ${(100 * rows[t][s]).toFixed(1)} % from “${keys[s]}”`);
  }

  function go(t, s) {
    if (!shown.rows.length) return;
    shown.t = Math.max(0, Math.min(shown.queries.length - 1, t));
    shown.s = Math.max(0, Math.min(shown.keys.length - 1, s));
    paint();
    describeCell();
  }

  canvas.addEventListener('pointermove', (event) => {
    const { left, top } = canvas.getBoundingClientRect();
    const t = Math.floor((event.clientY - top - shown.top) / shown.cell);
    const s = Math.floor((event.clientX - left - shown.left) / shown.cell);
    if (t >= 0 && s >= 0 && (t !== shown.t || s !== shown.s)) go(t, s);
  });
  canvas.addEventListener('keydown', (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    go(shown.t + step[0], shown.s + step[1]);
  });
  return { draw };
}

const FONT = '12px system-ui, sans-serif';

function upright(pen, word, x, y, room) {
  pen.save();
  pen.translate(x, y);
  pen.rotate(-Math.PI / 2);
  pen.fillText(word, 0, 0, room);
  pen.restore();
}
