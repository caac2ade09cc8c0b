/** Decode: a beam search as a tree, step by step, with the fate of every candidate. */
import { hooks, html } from '../html.js';
import { useStream } from '../job.js';
import { intOf, listOf } from '../state.js';
import { num, words } from '../words.js';
import { text } from '../words/decode.js';
import { literal } from '../reading.js';
import { Sliders, TokenChips, optionsOf, python } from '../decoding.js';
import { Choice, Note, Slider } from '../views/controls.js';
import { Table } from '../views/table.js';
import { Tree } from '../views/tree.js';

export const title = text.title;
export const sees = text.sees;
export const why = { text: text.whyText, lecture: text.lecture };
export const needs = 'run';
export const input = true;

export function applies(run, { writes, can }) {
  return writes ? '' : text.nothing(can.join(', '));
}

function namesOf({ state }) {
  return ['beam', 'length_alpha', 'beam_groups', ...(state.beam_groups > 1 ? ['diversity_penalty'] : []), 'max_new_tokens'];
}

function optionsOfSearch(view) {
  return { ...optionsOf(namesOf(view), view), stopping: view.state.stopping || text.rules[0] };
}

/** The nodes from the first token to one of them. */
function wayTo(nodes, id) {
  const node = nodes.find((one) => one.id === id);
  return node ? [...wayTo(nodes, node.before), node] : [];
}

/** Where the best hypothesis does not take the likeliest token. */
function parting(nodes, way) {
  const greedy = ({ before }) => nodes.filter((one) => one.before === before && one.fate !== 'forbidden').sort((a, b) => b.log_probability - a.log_probability)[0];
  const node = way.find((one) => greedy(one).token !== one.token);
  return node ? text.part(node.step, greedy(node).text, node.text) : text.agree;
}

/** One step after the other, until the last. */
function usePlay(step, steps, set) {
  const [playing, setPlaying] = hooks.useState(false);
  hooks.useEffect(() => {
    if (!playing) return undefined;
    const timer = setTimeout(() => (step < steps ? set({ step: step + 1 }, true) : setPlaying(false)), 700);
    return () => clearTimeout(timer);
  }, [playing, step, steps]);
  const turn = () => {
    if (!playing && step === steps) set({ step: 1 }, true);
    setPlaying(!playing);
  };
  return html`<button type="button" class="small" hidden=${matchMedia('(prefers-reduced-motion: reduce)').matches}
    onClick=${turn}>${playing ? text.pause : text.play}</button>`;
}

function Numbers({ label, rows, keys, sort }) {
  const plain = ['text', 'said'];
  return html`<h2>${label}</h2><${Table} label=${label} rows=${rows} sort=${sort} columns=${keys.map((key) => ({ key, title: text.columns[key],
    plain: plain.includes(key), text: plain.includes(key) ? (row) => row[key] : undefined, from: text.froms[key] && (() => text.froms[key]) }))} />`;
}

export function render({ view }) {
  const { state, set, run, about, shown } = view;
  const body = { run: run.id, text: state.text || about.example, edits: listOf(state.edits), ...optionsOfSearch(view) };
  if (about.pair && state.target) body.reference = state.target;
  const { events, done, error, busy } = useStream('/api/search', body);
  const steps = events.length;
  const step = intOf(state.step, 1, steps, steps);
  const play = usePlay(step, steps, set);
  const nodes = hooks.useMemo(() => events.flatMap((event) => event.nodes), [events]).map((node) => ({ ...node, said: text.fates[node.fate] }));
  const way = done ? wayTo(nodes, done.best[0]) : [];
  const drawn = nodes.filter((node) => node.step <= step).map((node) => ({ ...node, column: node.step - 1, probability: Math.exp(node.log_probability),
    faint: !['lives', 'ended'].includes(node.fate), on: way.includes(node), from: text.node(node.text, node.said, num(node.total), num(node.score)) }));
  const ended = nodes.filter((node) => ['ended', 'beaten'].includes(node.fate))
    .map((node) => ({ ...node, length: node.step, text: wayTo(nodes, node.id).map((one) => one.text).join(' ') }));
  const { reference } = done ?? {};
  shown.nodes = nodes;
  return html`<aside class="controls"><${Sliders} names=${namesOf(view)} view=${view} />
    <${Choice} label=${text.stopping} value=${body.stopping} options=${text.rules.map((rule) => [rule, rule])} onChange=${(stopping) => set({ stopping })} />
  </aside>
  <section class="picture"><${Note} error=${error} busy=${busy && words.loading} />${done && html`
    <div class="row-of"><${Slider} label=${text.step} value=${step} low=${1} high=${steps} format=${String} onChange=${(n) => set({ step: n }, true)} />${play}</div>
    <${Tree} nodes=${drawn} label=${text.tree} />
    <p class="note">${parting(nodes, way)}</p>
    ${reference && html`<${TokenChips} label=${words.target} tokens=${reference.tokens.map((name, i) => ({ text: name, log_probability: reference.log_probabilities[i] }))} />
      <p class="note">${reference.verdict}</p>`}
    <${Numbers} label=${text.candidates(step)} rows=${events[step - 1].nodes.map((node) => nodes.find((one) => one.id === node.id))} keys=${['text', 'log_probability', 'total', 'score', 'said']} />
    <${Numbers} label=${text.finished} rows=${ended} keys=${['length', 'total', 'score', 'text']} sort="length" />`}
  </section>`;
}

export function code(view) {
  const { run, about, state } = view;
  const options = { ...optionsOfSearch(view), ...(about.pair && state.target && { reference: state.target }) };
  return `import heedful

model = heedful.load(${literal(run.folder ?? run.name)})
tree = model.beam_tree(${literal(state.text || about.example)}${python(options)})
tree.nodes, tree.answers, tree.reference
`;
}

export function csv({ shown: { nodes } }) {
  const keys = ['id', 'before', 'step', 'text', 'log_probability', 'total', 'score', 'fate'];
  return [keys, ...nodes.map((node) => keys.map((key) => node[key]))];
}
