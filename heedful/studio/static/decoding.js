/** Options of decoding, as the address has them, the sliders that set them, and tokens colored by their probability. */
import { html, useTheme } from './html.js';
import { num } from './words.js';
import { text } from './words/write.js';
import { weightColor } from './paint.js';
import { Chips } from './views/chips.js';
import { Num, Slider } from './views/controls.js';

/** Title, least, greatest, step and default, by the names that the server knows. */
const OPTIONS = {
  max_new_tokens: ['Longest, in tokens', 1, 200, 1],
  temperature: ['Temperature', 0.1, 2, 0.1, 1],
  top_k: ['Top-k (0: all)', 0, 50, 1, 0],
  top_p: ['Top-p', 0.05, 1, 0.05, 1],
  seed: ['Seed', 0, 99, 1, 0],
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
  const values = optionsOf(names, view);
  return names.map((name) => html`<${Slider} key=${name} label=${OPTIONS[name][0]} value=${values[name]} low=${OPTIONS[name][1]}
    high=${OPTIONS[name][2]} step=${OPTIONS[name][3]} format=${String} onChange=${(value) => view.set({ [name]: value }, true)} />`);
}

/** Options as arguments in Python. */
export function python(options) {
  return Object.entries(options).map(([name, value]) => `, ${name}=${value === true ? 'True' : JSON.stringify(value)}`).join('');
}

/** Tokens, dark where they are unlikely, and the sum of their log-probabilities. */
export function TokenChips({ tokens, label, at, onPick, children }) {
  const theme = useTheme();
  const total = tokens.reduce((sum, one) => sum + one.log_probability, 0);
  const items = tokens.map(({ id, text: name, log_probability: log, top }, i) => ({ text: name, on: i === at, color: weightColor(-log / 6, theme),
    from: text.token(num(log), num(Math.exp(log)), top && top.findIndex(([other]) => other === id) + 1) }));
  return html`<div class="branch"><${Chips} label=${label} items=${items} onPick=${onPick} />
    <${Num} value=${total} from=${text.total(tokens.length)} />${children}</div>`;
}
