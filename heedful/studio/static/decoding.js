/** Numbers of the address that sliders set: options of decoding, and the least ribbon. */
import { html } from './html.js';
import { Slider } from './views/controls.js';

/** Title, least, greatest, step and default, by the names that the server knows. */
const OPTIONS = {
  max_new_tokens: ['Longest, in tokens', 1, 200, 1],
  temperature: ['Temperature', 0.1, 2, 0.1, 1],
  top_k: ['Top-k (0: all)', 0, 50, 1, 0],
  top_p: ['Top-p', 0.05, 1, 0.05, 1],
  seed: ['Seed', 0, 99, 1, 0],
  least: ['Ribbons from', 0.02, 0.9, 0.02, 0.1],
  beam: ['Width of the beam', 1, 8, 1, 4],
  length_alpha: ['Length penalty α', 0, 2, 0.1, 0.6],
  beam_groups: ['Groups', 1, 4, 1, 1],
  diversity_penalty: ['Penalty between groups', 0, 3, 0.1, 0.5],
};

export function optionsOf(names, { state, about }) {
  return Object.fromEntries(names.map((name) => {
    const [, low, high, , otherwise = about.writes === 'generate' ? 24 : 60] = OPTIONS[name];
    return [name, Math.min(high, Math.max(low, Number(state[name] || otherwise) || low))];
  }));
}

export function Sliders({ names, view }) {
  return Object.entries(optionsOf(names, view)).map(([name, value]) => {
    const [label, low, high, step] = OPTIONS[name];
    return html`<${Slider} key=${name} ...${{ label, value, low, high, step }} onChange=${(x) => view.set({ [name]: x }, true)} />`;
  });
}
