/** Tokenizer: a text in pieces, how they came about, and a second tokenizer beside it. */
import { html } from '../html.js';
import { json, useAnswer, useJson } from '../api.js';
import { intOf } from '../state.js';
import { words } from '../words.js';
import { text } from '../words/tokenizer.js';
import { Chips } from '../views/chips.js';
import { Flag, Note, Pick, Slider } from '../views/controls.js';

export const said = text;
export const input = 'text';

export function applies(run, about) {
  return about.tokenizers ? '' : text.none(about.architecture);
}

/** Pieces in a row, and the words at one step of the replay. */
function Spelled({ name, found: { pieces, words: cut, kind, why: reason, measures, back }, step, onStep }) {
  const total = cut.at(-1)?.last ?? 0;
  const at = intOf(step, 0, total, total);
  const current = at ? cut.findIndex((word) => word.last >= at) : -1;
  const reached = cut.map(({ steps, last }) => steps.at(Math.max(-steps.length, Math.min(-1, at - last - 1))));
  return html`<section class="spelled"><h2>${name} · ${kind}</h2>
    <${Chips} label=${name} onPick=${(i) => onStep(cut[pieces[i].word]?.last ?? 0)} items=${pieces.map(({ word, unknown, told, shown, id }) => ({
      on: at < total && word === current, faint: unknown, from: told, text: html`${shown}<small>${id}</small>` }))} />
    <p class="label" tabindex="0" data-from=${text.from}>${measures}<br />${back}</p>
    ${reason ? html`<p class="label">${reason}</p>` : html`<${Slider} label=${text.step} value=${at} low=${0} high=${total} onChange=${onStep}
        format=${(n) => `${n} / ${total} ${reached[current]?.note ?? ''}`} />
      <${Chips} label=${text.step} items=${reached.map((one, w) => ({ text: one.pieces.join(' · '), on: w === current }))} />`}</section>`;
}

export function render({ view }) {
  const { state, set, run, runs, about, shown } = view;
  const given = state.text || about.example;
  const typed = /^(shapes|picture):/.test(given) ? text.example : given;
  const target = state.side === '1';
  const bodies = [{ run: run.id, text: typed, target }, ...(state.other ? [{ run: state.other, text: typed }] : [])];
  const answer = useAnswer((signal) => Promise.all(bodies.map((body) => json('/api/tokenize', { body, signal }))), [JSON.stringify(bodies)]);
  const held = useJson('/api/token_statistics', state.data && { run: run.id, target });
  const found = answer.value ?? [];
  Object.assign(shown, { found, code: found[0]?.code });
  const names = runs.filter((one) => one.has_model).map((one) => [one.id, one.name]);
  return html`<aside class="controls">
    ${about.tokenizers > 1 && html`<${Flag} name="side" label=${text.side} view=${view} />`}
    <${Pick} label=${text.other} value=${state.other ?? ''} options=${[['', '–'], ...names]} onChange=${(other) => set({ other })} />
    <${Flag} name="data" label=${text.statistics} view=${view} /></aside>
  <section class="picture"><${Note} error=${answer.error || held.error} busy=${(answer.busy || held.busy) && words.loading} />
    ${found.map((one, i) => html`<${Spelled} key=${i} name=${names.find(([id]) => id === bodies[i]?.run)?.[1]} found=${one} step=${state[`step${i || ''}`]}
      onStep=${(n) => set({ [`step${i || ''}`]: n }, true)} />`)}
    ${held.value && html`<pre tabindex="0">${held.value.summary}</pre>`}</section>`;
}

export function csv({ shown }) {
  return [['number', 'token', 'start', 'end', 'bytes'], ...shown.found.flatMap((one) => one.pieces.map(({ id, token, start, end, bytes }) => [id, token, start, end, bytes.join(' ')]))];
}
