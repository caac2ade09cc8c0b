/** Ablate: remove heads, edit the model, and patch vectors of one text into another. */
import { html } from '../html.js';
import { listOf } from '../state.js';
import { words } from '../words.js';
import { text } from '../words/ablate.js';
import { Field, Outputs, textsOf, useMeasure, Views } from '../measure.js';
import { Chips } from '../views/chips.js';
import { Choice, Note } from '../views/controls.js';

export const said = text;
export const needs = 'trace';

export function applies(run) {
  return run.kind === 'recorded' ? words.needsModel : '';
}

/** The edits of the model, which all pages honor, and a form for one more. */
function Edits({ set, trace, edits }) {
  const examples = text.examples(Object.keys(trace.kinds)[0], Object.keys(trace.shells)[0]);
  const add = (event) => {
    event.preventDefault();
    set({ edits: [...edits, event.target.edit.value].join() });
  };
  return html`<form class="job" onSubmit=${add}><${Chips} label=${text.edits} items=${edits.map((one) => ({ text: `${one} ×`, from: text.edits }))}
      onPick=${(i) => set({ edits: edits.filter((_, n) => n !== i).join() })} />
    <${Field} label=${text.edit} name="edit" list="edits" required placeholder=${examples[0]} />
    <datalist id="edits">${examples.map((one) => html`<option value=${one} />`)}</datalist><button class="small">${text.add}</button></form>`;
}

export function render({ view }) {
  const { state, set, run, trace } = view;
  const [patches, edits, shells, texts] = [state.tab === 'patch', listOf(state.edits), Object.keys(trace.shells), textsOf(view)];
  const shell = shells.includes(state.shell) ? state.shell : shells[0];
  const { result, button } = useMeasure(view, patches ? text.patch : text.measure, patches
    ? { kind: 'patch', text: trace.text, shell, target: state.target, corrupted: state.corrupt }
    : { kind: 'ablate', by: state.by, ...texts.fields });
  const asked = [edits, []].map((its, n) => ({ name: edits.length ? text.names[n] : '', run: run.id, text: trace.text, edits: its }));
  const off = (head) => [head, `${head}`.replace(/\d+$/, '*')].some((one) => edits.includes(`zero:${one}`));
  const flip = (head) => set({ edits: (off(head) ? edits.filter((one) => one !== `zero:${head}`) : [...edits, `zero:${head}`]).join() });
  const pick = (name, label, options, value, patch) => html`<${Choice} label=${label} value=${value} options=${options}
    onChange=${(one) => set({ [name]: one, ...patch })} />`;
  return html`<aside class="controls">${pick('tab', '', text.tabs, state.tab || '', { ran: '' })}${patches
    ? html`<${Field} label=${text.corrupted} value=${state.corrupt} placeholder=${text.suggested} onChange=${(e) => set({ corrupt: e.target.value })} />
      ${shells[1] && pick('shell', text.shell, shells, shell)}${button}`
    : html`${pick('by', text.by, text.bys, state.by || '')}${texts.controls}${button}<${Edits} set=${set} trace=${trace} edits=${edits} />`}</aside>
  <section class="picture measured">${!patches && html`<${Outputs} asked=${asked.slice(0, edits.length + 1)} />`}
    ${result ? html`<${Views} result=${result} off=${off} onHead=${patches ? null : flip} />` : html`<${Note}>${patches ? '' : text.idle}<//>`}</section>`;
}
