/** Search: which heads follow a pattern over many texts, and in which texts most. */
import { html } from '../html.js';
import { intOf } from '../state.js';
import { words } from '../words.js';
import { text } from '../words/search.js';
import { Field, Rows, textsOf, useMeasure } from '../measure.js';
import { Note, Pick } from '../views/controls.js';

export const said = text;

export function applies(run, about) {
  return about.kinds.length ? '' : words.noAttention(about.architecture);
}

export function render({ view }) {
  const { state, set, go, about } = view;
  const [kind, k, texts] = [state.pattern || 'offset', intOf(state.k, -1000, 1000, -1), textsOf(view)];
  const { result, button } = useMeasure(view, text.start, { kind: 'scan', patterns: [kind === 'offset' ? `offset:${k}` : kind], ...texts.fields });
  const { pattern, heads = [] } = result?.patterns[0] ?? {};
  const head = heads.find((one) => one.head === state.head) ?? heads[0];
  const side = (name) => {
    const label = text.sides[name](head.head);
    const rows = head[name].map((one) => ({ [label]: one.text, share: one.share }));
    const open = (row) => go('heads', { text: row[label], target: head[name][rows.indexOf(row)].target, head: head.head, edits: '' });
    return html`<${Rows} label=${label} rows=${rows} from=${text.from} onChoose=${about.reads === 'texts' && open} />`;
  };
  return html`<aside class="controls">
    <${Pick} label=${text.pattern} value=${kind} options=${text.patterns} onChange=${(one) => set({ pattern: one })} />
    ${kind === 'offset' && html`<${Field} label="k" type="number" value=${k} onChange=${(e) => set({ k: e.target.value })} />`}
    ${texts.controls}${button}</aside>
  <section class="picture measured">${head ? html`<h2>${text.table}</h2><p class="label">${text.on(pattern, result)}</p>
    <div class="side"><${Rows} label=${text.table} rows=${result.rows} from=${text.from} sort=${state.table || '-share'}
      onSort=${(table) => set({ table }, true)} chosen=${(row) => row.head === head.head} onChoose=${(row) => set({ head: row.head })} />
    <div>${side('most')}${side('least')}</div></div>` : html`<${Note}>${pattern ? text.nowhere : text.idle}<//>`}</section>`;
}
