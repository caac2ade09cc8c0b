/** Any part of the page as one SVG. Text stays text, so that a figure can be edited and searched. */

const HIDDEN = '.unseen, .map-over, .controls, .rail, button.small, button.primary, [hidden]';
const COPIED = ['fill', 'stroke', 'stroke-width', 'font-size', 'font-family', 'font-weight', 'font-style',
  'text-anchor', 'opacity', 'dominant-baseline', 'stroke-dasharray', 'fill-opacity', 'stroke-opacity'];

function escaped(text) {
  return text.replace(/[&<>"]/g, (sign) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[sign]);
}

function seen(color) {
  return color && color !== 'transparent' && !/,\s*0\)$|\/ 0\)$/.test(color);
}

function round(x) {
  return Math.round(x * 100) / 100;
}

function placed(element, at) {
  const { left, top, width, height } = at(element.getBoundingClientRect());
  return `x="${left}" y="${top}" width="${width}" height="${height}"`;
}

/** Background and borders of an element. */
function box(element, style, at) {
  const parts = [];
  const radius = parseFloat(style.borderTopLeftRadius) || 0;
  const border = parseFloat(style.borderTopWidth) && parseFloat(style.borderLeftWidth);
  if (seen(style.backgroundColor) || border) {
    const fill = seen(style.backgroundColor) ? style.backgroundColor : 'none';
    const stroke = border ? ` stroke="${style.borderTopColor}" stroke-width="${border}"` : '';
    parts.push(`<rect ${placed(element, at)} rx="${radius}" fill="${fill}"${stroke}/>`);
  }
  if (!border && parseFloat(style.borderBottomWidth) && seen(style.borderBottomColor)) {
    const { left, top, width, height } = at(element.getBoundingClientRect());
    parts.push(`<path d="M${left} ${round(top + height)}h${width}" stroke="${style.borderBottomColor}" fill="none"/>`);
  }
  return parts;
}

/** The lines of a text node, each where it stands. */
function lines(node, style, at) {
  const range = document.createRange();
  const words = node.data.match(/\S+\s*|\s+/g) ?? [];
  const found = [];
  let start = 0;
  for (const word of words) {
    range.setStart(node, start);
    range.setEnd(node, start + word.trimEnd().length || start + word.length);
    const place = range.getBoundingClientRect();
    start += word.length;
    if (!place.width || !word.trim()) continue;
    const last = found.at(-1);
    if (last && Math.abs(last.place.top - place.top) < 2) last.text += ` ${word.trim()}`;
    else found.push({ place, text: word.trim() });
  }
  const size = parseFloat(style.fontSize);
  return found.map(({ place, text }) => {
    const { left, top, height } = at(place);
    const y = round(top + height / 2 + size * 0.34);
    const font = `font-family="${escaped(style.fontFamily.replaceAll('"', "'"))}" font-size="${size}"`;
    const face = `font-weight="${style.fontWeight}" font-style="${style.fontStyle}"`;
    return `<text x="${left}" y="${y}" fill="${style.color}" ${font} ${face}>${escaped(text)}</text>`;
  });
}

/** An inner SVG with its styles written out. */
function inner(svg, at) {
  const copy = svg.cloneNode(true);
  const [from, to] = [[svg, ...svg.querySelectorAll('*')], [copy, ...copy.querySelectorAll('*')]];
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const name of COPIED) {
      const value = style.getPropertyValue(name);
      if (value) to[i].setAttribute(name, value.replaceAll('"', "'"));
    }
    for (const name of ['class', 'data-from', 'tabindex']) to[i].removeAttribute(name);
  });
  const { left, top, width, height } = at(svg.getBoundingClientRect());
  for (const [name, value] of Object.entries({ x: left, y: top, width, height, overflow: 'visible' })) copy.setAttribute(name, value);
  return new XMLSerializer().serializeToString(copy);
}

function walk(node, at, parts) {
  if (node.nodeType === Node.TEXT_NODE) {
    parts.push(...lines(node, getComputedStyle(node.parentElement), at));
    return;
  }
  if (node.nodeType !== Node.ELEMENT_NODE || node.matches(HIDDEN)) return;
  const style = getComputedStyle(node);
  if (style.display === 'none' || style.visibility === 'hidden') return;
  if (/^(CANVAS|IMG)$/.test(node.tagName)) {
    parts.push(`<image ${placed(node, at)} href="${node.toDataURL?.() ?? node.src}"/>`);
  } else if (node.tagName.toLowerCase() === 'svg') {
    parts.push(inner(node, at));
  } else {
    const faint = Number(style.opacity) < 1;
    if (faint) parts.push(`<g opacity="${style.opacity}">`);
    parts.push(...box(node, style, at));
    for (const child of node.childNodes) walk(child, at, parts);
    if (faint) parts.push('</g>');
  }
}

/** {text, width, height} of an element. */
export function svgOf(element) {
  const frame = element.getBoundingClientRect();
  const at = ({ left, top, width: w, height: h }) => (
    { left: round(left - frame.left + 12), top: round(top - frame.top + 12), width: round(w), height: round(h) });
  const [width, height] = [Math.ceil(frame.width) + 24, Math.ceil(frame.height) + 24];
  const paper = getComputedStyle(document.body).backgroundColor;
  const parts = [`<rect width="${width}" height="${height}" fill="${paper}"/>`];
  walk(element, at, parts);
  const text = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">${parts.join('\n')}</svg>\n`;
  return { text, width, height };
}
