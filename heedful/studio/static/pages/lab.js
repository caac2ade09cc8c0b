/** Lab: the claims that were tried, with their verdicts. */
import { html } from '../html.js';
import { json, useAnswer } from '../api.js';
import { words } from '../words.js';
import { text } from '../words/lab.js';
import { literal } from '../reading.js';
import { Note } from '../views/controls.js';

export const said = text;
export const needs = 'nothing';

export function render({ view }) {
  const { value, error } = useAnswer((signal) => json('/api/lab', { signal, fresh: true }), []);
  Object.assign(view.shown, value);
  return html`<aside class="controls"></aside><section class="picture">${value ? html`<p class="note">${!value.cards.length && text.none} ${value.skipped > 0 && text.skipped(value.skipped)}</p>` : html`<${Note} error=${error} busy=${words.loading} />`}
    ${value?.cards.map((card) => html`<article class="group" key=${card.name}><h2>${card.says}</h2>
      <p data-from=${`lab/${card.name}/report.json`}>${text.facts(card.verdict, new Date(1000 * card.date).toISOString().slice(0, 10), card.trials)} ${card.summary}</p>
      ${card.figure && html`<img src=${card.figure} alt=${card.says} />`}<p class="lecture">${card.lecture}</p></article>`)}</section>`;
}

export function code({ shown }) {
  return `import json\nfrom pathlib import Path\n\nfor path in Path(${literal(shown.folder)}).glob("*/report.json"):\n    print(json.loads(path.read_text())["verdict"], path)\n`;
}

export function csv({ shown }) {
  return [['claim', 'says', 'verdict', 'trials'], ...shown.cards.map((card) => [card.name, card.says, card.verdict, card.trials])];
}
