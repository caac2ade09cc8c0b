/** Decode: a beam search as a tree, step by step, with the fate of every candidate. */
import { hooks, html } from '../html.js';
import { useStream } from '../job.js';
import { intOf, listOf } from '../state.js';
import { num, words } from '../words.js';
import { text } from '../words/decode.js';
import { Sliders, optionsOf } from '../decoding.js';
import { Choice, Note, Slider } from '../views/controls.js';
import { Table } from '../views/table.js';
import { Tree } from '../views/tree.js';

export const said = text;
export const input = true;
const CSV = ['id', 'before', 'step', 'text', 'log_probability', 'total', 'score', 'fate'];

export function applies(run, { writes, can }) {
  return writes ? '' : text.nothing(can.join(', '));
}

function namesOf({ state }) {
  return ['beam', 'length_alpha', 'beam_groups', ...(state.beam_groups > 1 ? ['diversity_penalty'] : []), 'max_new_tokens'];
}

/** A button that shows one step after the other, until the last. */
function Play({ step, steps, set }) {
  const [playing, setPlaying] = hooks.useState(false);
  hooks.useEffect(() => {
    if (!playing) return undefined;
    const timer = setTimeout(() => (step < steps ? set({ step: step + 1 }, true) : setPlaying(false)), 700);
    return () => clearTimeout(timer);
  }, [playing, step]);
  const turn = () => {
    if (!playing && step === steps) set({ step: 1 }, true);
    setPlaying(!playing);
  };
  return html`<button class="small" hidden=${matchMedia('(prefers-reduced-motion: reduce)').matches}
    onClick=${turn}>${playing ? text.pause : text.play}</button>`;
}

function Numbers({ label, rows, keys }) {
  const column = (key) => {
    const [name, from] = text.columns[key];
    const plain = key === 'text' || key === 'fate';
    return { key, title: name, plain, text: plain || key === 'length' ? (row) => row[key] : undefined, from: () => from };
  };
  return html`<h2>${label}</h2><${Table} label=${label} rows=${rows} columns=${keys.map(column)} />`;
}

export function render({ view }) {
  const { state, set, run, about, shown } = view;
  const body = { run: run.id, text: state.text || about.example, edits: listOf(state.edits), stopping: state.stopping || text.rules[0],
    ...optionsOf(namesOf(view), view), ...(state.target && { reference: state.target }) };
  const { events, done, error, busy } = useStream('/api/search', body);
  const steps = events.length;
  const step = intOf(state.step, 1, steps, steps);
  const nodes = events.flatMap((event) => event.nodes);
  const way = [];
  for (let id = done?.best[0]; nodes[id]; id = nodes[id].before) way.push(id);
  const drawn = nodes.filter((node) => node.step <= step).map((node) => ({ ...node, column: node.step - 1, probability: Math.exp(node.log_probability),
    faint: !['lives', 'ended'].includes(node.fate), on: way.includes(node.id), from: text.node(node, num(node.total), num(node.score)) }));
  Object.assign(shown, { code: done?.code, rows: [CSV, ...nodes.map((node) => CSV.map((key) => node[key]))] });
  return html`<aside class="controls"><${Sliders} names=${namesOf(view)} view=${view} />
    <${Choice} label=${text.stopping} value=${body.stopping} options=${text.rules} onChange=${(stopping) => set({ stopping })} />
  </aside>
  <section class="picture"><${Note} error=${error} busy=${busy && words.loading} />${done && html`
    <div class="row-of"><${Slider} label=${text.step} value=${step} low=${1} high=${steps} onChange=${(n) => set({ step: n }, true)} />
      <${Play} ...${{ step, steps, set }} /></div>
    <${Tree} nodes=${drawn} label=${text.tree} />
    <p class="note">${text.part(done.parting)}</p>${done.reference && html`<p class="note">${done.reference.verdict}.</p>`}
    <${Numbers} label=${text.candidates} rows=${events[step - 1].nodes} keys=${['text', 'log_probability', 'total', 'score', 'fate']} />
    <${Numbers} label=${text.finished} rows=${done.finished} keys=${['length', 'score', 'total', 'text']} />`}
  </section>`;
}
