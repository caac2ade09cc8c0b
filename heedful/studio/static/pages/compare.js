/** Compare: two models, or one with edits and without, on the same texts. */
import { html } from '../html.js';
import { json, useAnswer } from '../api.js';
import { listOf } from '../state.js';
import { num, words } from '../words.js';
import { text } from '../words/compare.js';
import { Cells, codeOf, csvOf, needsModel, Outputs, Rows, textsOf, useMeasure, useOutput } from '../measure.js';
import { Bars } from '../views/bars.js';
import { Note, Pick } from '../views/controls.js';

export const title = text.title;
export const sees = text.sees;
export const why = text.why;
export const needs = 'run';
export const input = true;
export const applies = needsModel;
export const code = codeOf;
export const csv = csvOf;

const PARTS = {
  tokens: (one, label) => html`<${Bars} signed label=${label} items=${one.tokens.map((name, i) => ({
    name, value: one.difference[i], from: text.token(num(one.first[i]), num(one.second[i])) }))} />`,
  heads: ({ distance, which }, label) => html`<${Cells} label=${label} values=${distance} across=${distance[0].map((_, n) => String(n + 1))}
    down=${distance.map((_, n) => `${which}.${n + 1}`)} say=${(r, c, x) => text.head(words.headName(r + 1, c + 1), x)} />`,
  layers: ({ cka, down, across }, label) => html`<${Cells} label=${label} values=${cka} down=${down} across=${across}
    say=${(r, c, x) => text.layer(down[r], across[c], x)} />`,
  scores: ({ sentence, texts }, label) => html`<p data-from=${text.mean}>${sentence}</p><${Rows} label=${label} rows=${texts} from=${text.mean} />`,
  settings: ({ differ }, label) => html`<${Rows} label=${label} rows=${differ} />`,
};

export function render({ view }) {
  const { state, set, run, runs, about, shown } = view;
  const [edits, given, texts] = [listOf(state.edits), state.text || about.example, textsOf(view)];
  const others = runs.filter((one) => one.has_model && one.id !== run.id);
  const second = others.find((one) => one.id === state.other) ?? (edits.length ? run : null);
  const { result, button } = useMeasure(view, text.start, second && { kind: 'compare', other: second.id, text: given,
    edits: edits.length ? edits : undefined, which: state.head?.split('.')[0], ...texts.fields });
  const its = useAnswer(second ? async (signal) => ({ run: second, about: await json(`/api/runs/${second.id}/about`, { signal }) }) : null, [second?.id]);
  const outputs = [useOutput({ run, about, text: given, edits }), useOutput({ ...its.value, text: given, edits: [] })];
  const own = result?.tokens;
  shown.rows = own?.tokens?.map((token, i) => ({ token, first: own.first[i], second: own.second[i] }));
  const parts = Object.keys(PARTS).filter((name) => result?.[name]);
  return html`<aside class="controls">${others.length > 0 && html`<${Pick} label=${text.other} value=${second?.id ?? ''} onChange=${(other) => set({ other })}
      options=${[edits.length ? [run.id, text.itself] : ['', '–'], ...others.map((one) => [one.id, one.name])]} />`}${!second && html`<${Note}>${text.alone}<//>`}
    ${texts.controls}${button}</aside>
  <section class="picture measured"><h2>${text.output}</h2>
    <${Outputs} names=${[edits.length ? text.edited(run.name) : run.name, second?.name].filter(Boolean)} outputs=${outputs} /><div class="side">
    ${parts.map((name) => html`<section key=${name}><h2>${text.parts[name]}</h2>${result[name].refused
      ? html`<${Note}>${result[name].refused}<//>` : PARTS[name](result[name], text.parts[name])}</section>`)}</div></section>`;
}
