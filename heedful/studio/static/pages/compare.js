/** Compare: two models, or one with edits and without, on the same texts. */
import { html } from '../html.js';
import { listOf } from '../state.js';
import { text } from '../words/compare.js';
import { Outputs, textsOf, useMeasure, Views } from '../measure.js';
import { Note, Pick } from '../views/controls.js';

export const said = text;
export const input = true;

export function render({ view }) {
  const { state, set, run, runs, about } = view;
  const [edits, given, texts] = [listOf(state.edits), state.text || about.example, textsOf(view)];
  const others = runs.filter((one) => one.has_model && one.id !== run.id);
  const second = others.find((one) => one.id === state.other) ?? (edits.length ? run : null);
  const { result, button } = useMeasure(view, text.start, second && { kind: 'compare', other: second.id, text: given, target: state.target,
    edits: edits.length ? edits : undefined, which: state.head?.split('.')[0], ...texts.fields });
  const asked = [{ name: edits.length ? text.edited(run.name) : run.name, run: run.id, text: given, edits }];
  if (second) asked.push({ name: second.name, run: second.id, text: given, edits: [] });
  return html`<aside class="controls">${others.length > 0 && html`<${Pick} label=${text.other} value=${second?.id ?? ''} onChange=${(other) => set({ other })}
      options=${[edits.length ? [run.id, text.itself] : ['', '–'], ...others.map((one) => [one.id, one.name])]} />`}
    ${!second && html`<${Note}>${text.alone}<//>`}${texts.controls}${button}</aside>
  <section class="picture measured"><${Outputs} asked=${asked} /><${Views} result=${result} /></section>`;
}
