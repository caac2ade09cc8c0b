/** A table that sorts by its columns. Numbers say where they come from. */
import { html } from '../html.js';
import { num, words } from '../words.js';

/**
 * `columns`: {key, title, about, text(row), from(row), plain}; a plain column holds words. `sort` is a column's key, with
 * "-" in front for the largest first.
 */
export function Table({ columns, rows, sort = '', label, onSort, chosen, onChoose }) {
  const [by, down] = [sort.replace('-', ''), sort.startsWith('-')];
  const sorted = by ? [...rows].sort(compare(by, down)) : rows;
  return html`<div class="table" tabindex="0" role="region" aria-label=${label}><table>
    <thead><tr>${columns.map((column) => html`<th key=${column.key} scope="col" class=${column.plain ? 'plain' : ''}
      aria-sort=${by === column.key ? (down ? 'descending' : 'ascending') : undefined}>
      ${onSort
        ? html`<button data-from=${column.about ?? words.sortBy(column.title)} onClick=${() => onSort(`${by === column.key && down ? '' : '-'}${column.key}`)}>
            ${column.title}<i aria-hidden="true">${by === column.key && (down ? '↓' : '↑')}</i></button>`
        : column.title}</th>`)}</tr></thead>
    <tbody>${sorted.map((row, n) => html`<tr key=${row.key ?? n} class=${chosen?.(row) ? 'on' : ''}
      onClick=${onChoose && (() => onChoose(row))}>
      ${columns.map((column, c) => {
        const text = column.text ? column.text(row) : num(row[column.key]);
        const inside = c === 0 && onChoose
          ? html`<button class="link" onClick=${(e) => { e.stopPropagation(); onChoose(row); }}>${text}</button>`
          : text;
        return html`<td key=${column.key} class=${column.plain ? 'plain' : ''} data-from=${column.from?.(row)}>${inside}</td>`;
      })}</tr>`)}</tbody>
  </table></div>`;
}

function compare(key, down) {
  const lowest = (x) => x === null || x === undefined || Number.isNaN(x);
  return (a, b) => {
    if (lowest(a[key]) || lowest(b[key])) return lowest(a[key]) - lowest(b[key]);
    const order = typeof a[key] === 'string' ? a[key].localeCompare(b[key]) : a[key] - b[key];
    return down ? -order : order;
  };
}
