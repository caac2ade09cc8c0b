/**
 * Colors and pixels. A map is one pixel per cell, drawn larger without smoothing. Where there are more cells than
 * device pixels, a pixel shows the largest of its cells, so that no sharp weight is lost.
 */

const STOPS = {
  weight: {
    light: ['#fdfcf9', '#d5e0ec', '#8fb0d2', '#3f72a9', '#0f2c50'],
    dark: ['#1c1f24', '#233a54', '#33628f', '#74a5d4', '#e9f3fd'],
  },
  signed: {
    light: ['#8a3410', '#dc9468', '#f4f1ea', '#7ba6cd', '#163d68'],
    dark: ['#ffb58c', '#a05a3b', '#26292e', '#3f6d9b', '#b9dafb'],
  },
};
/** Hues of heads that are overlaid, of series, of branches: equally dark, apart also without red and green. */
export const HUES = {
  light: ['#1d5a96', '#a8480f', '#1c6e5a', '#7b3f8c', '#8a6410', '#a12a52'],
  dark: ['#7db4ea', '#f0a06a', '#6cc5ab', '#cf9be0', '#dcb65a', '#f08bad'],
};

const tables = new Map();

function rgb(hex) {
  return [1, 3, 5].map((i) => Number.parseInt(hex.slice(i, i + 2), 16));
}

/** 256 colors, as a flat table of bytes, for weights or signed numbers. */
export function ramp(kind, theme) {
  const stops = STOPS[kind][theme];
  if (!tables.has(stops)) {
    tables.set(stops, Uint8ClampedArray.from({ length: 768 }, (_, i) => {
      const place = (Math.floor(i / 3) / 255) * (stops.length - 1);
      const low = Math.min(Math.floor(place), stops.length - 2);
      const [from, to] = [low, low + 1].map((n) => rgb(stops[n])[i % 3]);
      return from + (place - low) * (to - from);
    }));
  }
  return tables.get(stops);
}

/** The color at a place of a ramp. */
export function at(table, i) {
  return [...table.subarray(3 * i, 3 * i + 3)];
}

/** The color of a weight from 0 to 1. */
export function weightColor(weight, theme) {
  return at(ramp('weight', theme), Math.round(255 * Math.min(1, Math.max(0, weight || 0))));
}

/** The color of a number by its kind; a signed one of size `top` has the full color. */
export function colorBy(kind, top, theme) {
  const signed = (x) => at(ramp('signed', theme), Math.round(127.5 * (1 + Math.min(1, Math.max(-1, top ? x / top : 0)))));
  return kind === 'weight' ? (x) => weightColor(x, theme) : signed;
}

export function css([r, g, b]) {
  return `rgb(${r} ${g} ${b})`;
}

/** Black or white, whichever is easier to read on a color: never below 4.5 to 1. */
export function inkOn(color) {
  const [r, g, b] = color.map((c) => (c / 255 <= 0.04045 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? '#000' : '#fff';
}

/** Background and text color of a cell, as a style. */
export function cellStyle(color) {
  return { background: css(color), color: inkOn(color) };
}

/** The largest absolute value, for the scale of a strip. */
export function topOf(values) {
  let top = 0;
  for (const value of values) if (Number.isFinite(value)) top = Math.max(top, Math.abs(value));
  return top;
}

/** Weights [rows, cols] as places in the ramp; scale: linear, root, or row (its largest is full); `one` is the full weight. */
export function places(weights, rows, cols, scale, one = 1) {
  const out = new Uint8ClampedArray(rows * cols);
  for (let r = 0; r < rows; r += 1) {
    const top = (scale === 'row' && topOf(weights.subarray(r * cols, (r + 1) * cols))) || one;
    for (let i = r * cols; i < (r + 1) * cols; i += 1) {
      const part = weights[i] / top;
      out[i] = 255 * (scale === 'root' ? Math.sqrt(part) : part);
    }
  }
  return out;
}

/** Signed values as places in the ramp. */
export function signedPlaces(values, top) {
  return Uint8ClampedArray.from(values, (x) => 127.5 * (1 + (top ? x / top : 0)));
}

/** Pixels of places through a ramp. */
export function pixels(index, rows, cols, table) {
  const image = new ImageData(cols, rows);
  for (let i = 0; i < rows * cols; i += 1) {
    for (let c = 0; c < 3; c += 1) image.data[4 * i + c] = table[3 * index[i] + c];
    image.data[4 * i + 3] = 255;
  }
  return image;
}

/** Several heads over each other: the largest weight gives the strength, their hues are mixed. */
function overlaid(layers, rows, cols, theme) {
  const image = new ImageData(cols, rows);
  const paper = at(ramp('weight', theme), 0);
  const hues = HUES[theme].map(rgb);
  for (let i = 0; i < rows * cols; i += 1) {
    let [sum, top] = [0, 0];
    for (const layer of layers) {
      sum += layer[i];
      top = Math.max(top, layer[i] / 255);
    }
    for (let c = 0; c < 3; c += 1) {
      let hue = 0;
      for (let n = 0; n < layers.length; n += 1) hue += layers[n][i] * hues[n % hues.length][c];
      image.data[4 * i + c] = sum ? paper[c] + top * (hue / sum - paper[c]) : paper[c];
    }
    image.data[4 * i + 3] = 255;
  }
  return image;
}

/** A canvas at device pixels; returns its context, in CSS pixels. */
export function sized(canvas, width, height) {
  const ratio = Math.min(3, globalThis.devicePixelRatio || 1);
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.imageSmoothingEnabled = false;
  return context;
}

let scratch = null;

/** An image as something that drawImage takes. */
export function carrier(image) {
  scratch ??= document.createElement('canvas');
  Object.assign(scratch, { width: image.width, height: image.height });
  scratch.getContext('2d').putImageData(image, 0, 0);
  return scratch;
}

/** The largest place in each of [height, width] boxes. */
function pooled(index, cols, view, width, height) {
  const out = new Uint8ClampedArray(width * height);
  const [tall, wide] = [view.r1 - view.r0, view.c1 - view.c0];
  for (let r = view.r0; r < view.r1; r += 1) {
    const y = Math.floor(((r - view.r0) * height) / tall) * width;
    for (let c = view.c0; c < view.c1; c += 1) {
      const i = y + Math.floor(((c - view.c0) * width) / wide);
      if (index[r * cols + c] > out[i]) out[i] = index[r * cols + c];
    }
  }
  return out;
}

/** Draw the cells of a view [r0, r1) x [c0, c1). `layers`: the places of one head, or of several over each other. */
export function paintMap(canvas, layers, { rows, cols, view, width, height, theme, kind }) {
  const context = sized(canvas, width, height);
  const [tall, wide] = [view.r1 - view.r0, view.c1 - view.c0];
  const dense = kind === 'weight' && (wide > canvas.width || tall > canvas.height);
  const [w, h] = dense ? [Math.min(wide, canvas.width), Math.min(tall, canvas.height)] : [cols, rows];
  const shown = dense ? layers.map((layer) => pooled(layer, cols, view, w, h)) : layers;
  const image = shown.length > 1 ? overlaid(shown, h, w, theme) : pixels(shown[0], h, w, ramp(kind, theme));
  context.clearRect(0, 0, width, height);
  const from = dense ? [0, 0, w, h] : [view.c0, view.r0, wide, tall];
  context.drawImage(carrier(image), ...from, 0, 0, width, height);
}

/** Thumbnails of [n, t, s] on one canvas; boxes {i, x, y} say where each goes. */
export function paintThumbs(canvas, data, [t, s], { boxes, width, height, side }, scale, theme) {
  const context = sized(canvas, width, height);
  const table = ramp('weight', theme);
  context.clearRect(0, 0, width, height);
  for (const { i, x, y } of boxes) {
    const one = data.subarray(i * t * s, (i + 1) * t * s);
    context.drawImage(carrier(pixels(places(one, t, s, scale, 255), t, s, table)), x, y, side, side);
  }
}
