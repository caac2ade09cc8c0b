/** Lab: the claims that were tried, with their verdicts. */
import { html } from '../html.js';
import { json, useAnswer } from '../api.js';
import { words } from '../words.js';
import { text } from '../words/lab.js';
import { Note } from '../views/controls.js';

export const title = text.title;
export const sees = text.sees;
export const why = { text: text.whyText, lecture: text.lecture };
export const needs = 'nothing';

export function applies() {
  return '';
}

export function render({ view }) {
  const { value, error } = useAnswer((signal) => json('/api/lab', { signal, fresh: true }), []);
  Object.assign(view.shown, { cards: value?.cards ?? [] });
  if (!value) return html`<${Note} error=${error} busy=${words.loading} />`;
  return html`<aside class="controls">${value.skipped > 0 && text.skipped(value.skipped)}</aside><section class="picture shells">
    ${!value.cards.length && html`<${Note}>${text.none}<//>`}
    ${value.cards.map((card) => html`<article class="group" key=${card.name}><h2>${card.says}</h2>
      <p tabindex="0" data-from=${text.from(card.name)}><b>${card.verdict}</b> · ${text.facts(new Date(1000 * card.date).toLocaleDateString(), card.trials)}</p>
      <p>${card.summary}</p>${card.figure && html`<img src=${card.figure} alt=${card.says} />`}<p class="lecture">${card.lecture}</p></article>`)}</section>`;
}

export function code() {
  return 'import json\nfrom pathlib import Path\n\nfor path in sorted(Path("runs/lab").glob("*/report.json")):\n    report = json.loads(path.read_text())\n'
    + '    print(path.parent.name, report["verdict"], report["says"])\n';
}

export function csv({ shown }) {
  return [['claim', 'says', 'verdict', 'trials'], ...shown.cards.map((card) => [card.name, card.says, card.verdict, card.trials])];
}
