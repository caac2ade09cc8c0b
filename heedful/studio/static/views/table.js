/** A table that sorts by its columns. Numbers say where they come from. */
import { html } from '../html.js';
import { num, words } from '../words.js';

/**
 * @param {{columns: {key: string, title: string, about?: string, text?: (row: object) => string,
 *   from?: (row: object) => string, plain?: boolean}[], rows: object[], sort?: string, label: string,
 *   onSort?: (sort: string) => void, chosen?: (row: object) => boolean, onChoose?: (row: object) => void}} props
 *   `sort` is a column's key, with "-" in front for the largest first. A `plain` column holds words.
 */
export function Table({ columns, rows, sort = '', label, onSort, chosen, onChoose }) {
  const by = sort.replace('-', '');
  const sorted = by ? [...rows].sort(compare(by, sort.startsWith('-'))) : rows;
  const turn = (column) => (by === column.key && sort.startsWith('-') ? column.key : `-${column.key}`);
  return html`<div class="table" tabindex="0" role="region" aria-label=${label}><table>
    <thead><tr>${columns.map((column) => html`<th key=${column.key} scope="col" class=${column.plain ? 'plain' : ''}
      aria-sort=${by === column.key ? (sort.startsWith('-') ? 'descending' : 'ascending') : undefined}>
      ${onSort
        ? html`<button type="button" data-from=${column.about ?? words.sortBy(column.title)}
            onClick=${() => onSort(turn(column))}>${column.title}<i aria-hidden="true">${
              by === column.key ? (sort.startsWith('-') ? '↓' : '↑') : ''}</i></button>`
        : column.title}</th>`)}</tr></thead>
    <tbody>${sorted.map((row, n) => html`<tr key=${row.key ?? n} class=${chosen?.(row) ? 'on' : ''}
      onClick=${onChoose && (() => onChoose(row))}>
      ${columns.map((column, c) => {
        const text = column.text ? column.text(row) : num(row[column.key]);
        const inside = c === 0 && onChoose
          ? html`<button type="button" class="link" onClick=${(e) => { e.stopPropagation(); onChoose(row); }}>${text}</button>`
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
