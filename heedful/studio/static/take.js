/** Take a view along: PNG, SVG, CSV, or one HTML file that opens offline. */
import { used } from './api.js';
import { svgOf } from './picture.js';
import { theme } from './html.js';
import { now } from './state.js';

function save(blob, name) {
  const link = Object.assign(document.createElement('a'), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export function saveSvg(element, name) {
  save(new Blob([svgOf(element).text], { type: 'image/svg+xml' }), `${name}.svg`);
}

/** The picture at three pixels per CSS pixel. */
export async function savePng(element, name) {
  const { text, width, height } = svgOf(element);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = Object.assign(document.createElement('canvas'), { width: 3 * width, height: 3 * height });
  canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => save(blob, `${name}.png`), 'image/png');
}

/** Rows as CSV. Text that a spreadsheet would run as a formula is quoted with an apostrophe. */
export function csvText(rows) {
  const cell = (value) => {
    if (typeof value === 'number') return String(value);
    const text = String(value ?? '');
    const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return `${rows.map((row) => [...row].map(cell).join(',')).join('\r\n')}\r\n`;
}

export function saveCsv(rows, name) {
  save(new Blob([csvText(rows)], { type: 'text/csv;charset=utf-8' }), `${name}.csv`);
}

// One HTML file: the modules as data: URLs behind an import map, and the answers of this view.

const IMPORTS = /(from ?|import\()['"](\.{1,2}\/[\w./-]+\.js)['"]/g;

/** The name below static/ of what a module imports. */
function resolve(from, path) {
  return new URL(path, `file:///${from}`).pathname.slice(1);
}

async function source(name) {
  return (await fetch(`static/${name}`)).text();
}

/** The modules from main.js on, with the open page alone. */
async function modulesOf(page) {
  const found = new Map();
  const wanted = ['main.js'];
  while (wanted.length) {
    const name = wanted.pop();
    if (found.has(name)) continue;
    const text = await source(name);
    found.set(name, text.replace(IMPORTS, (_, lead, path) => `${lead}'studio/${resolve(name, path)}'`));
    for (const [, , path] of text.matchAll(IMPORTS)) {
      const other = resolve(name, path);
      if (!other.startsWith('pages/') || other === `pages/${page}.js` || name.startsWith('pages/')) wanted.push(other);
    }
  }
  return found;
}

function base64(bytes) {
  let text = '';
  for (let i = 0; i < bytes.length; i += 32_768) text += String.fromCharCode(...bytes.subarray(i, i + 32_768));
  return btoa(text);
}

function asJson(value) {
  return JSON.stringify(value).replaceAll('<', '\\u003c');
}

/** The text of a page that shows this view without a server. */
export async function pageText() {
  const { page } = now();
  const modules = await modulesOf(page);
  const imports = Object.fromEntries([...modules].map(([name, text]) => [
    `studio/${name}`, `data:text/javascript;base64,${base64(new TextEncoder().encode(text))}`]));
  const answers = Object.fromEntries(Object.entries(used()).map(([key, { buffer, ...rest }]) => [
    key, buffer ? { ...rest, base64: base64(new Uint8Array(buffer)) } : rest]));
  const style = await source('studio.css');
  const policy = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:";
  return `<!doctype html>
<html lang="en" data-theme="${theme()}"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>heedful studio</title><style>${style.replaceAll('</', '<\\/')}</style>
<script type="application/json" id="recorded">${asJson({ hash: location.hash, answers })}</script>
<script type="importmap">${asJson({ imports })}</script>
</head><body><div id="studio"></div><script type="module">import 'studio/main.js';</script></body></html>
`;
}

export async function savePage(name) {
  save(new Blob([await pageText()], { type: 'text/html;charset=utf-8' }), `${name}.html`);
}
