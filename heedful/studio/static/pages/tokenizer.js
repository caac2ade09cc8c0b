/** Tokenizer: a text in pieces, how they came about, and a second tokenizer beside it. */
import { html } from '../html.js';
import { json, useAnswer } from '../api.js';
import { intOf } from '../state.js';
import { count, num, words } from '../words.js';
import { text } from '../words/tokenizer.js';
import { literal } from '../reading.js';
import { Chips } from '../views/chips.js';
import { Choice, Note, Pick, Slider } from '../views/controls.js';
import { Table } from '../views/table.js';

export const title = text.title;
export const sees = text.sees;
export const why = { text: text.whyText, lecture: text.lecture };
export const needs = 'run';

export function applies(run, about) {
  if (run.kind === 'recorded') return words.needsModel;
  return about.tokenizers ? '' : text.none(about.architecture);
}

const hex = (bytes) => bytes.map((byte) => byte.toString(16).padStart(2, '0')).join(' ');

/** What a piece looks like: its text with spaces that can be seen, or its bytes. */
function seen({ bytes, whole }) {
  return whole ? new TextDecoder().decode(new Uint8Array(bytes)).replace(/ /g, '␣').replace(/\n/g, '↵') : hex(bytes);
}

/** The counts of one text, for the table. */
function counts(name, { text: read, pieces }) {
  const [tokens, unknown] = [pieces.length, pieces.filter((one) => one.unknown).length];
  return { name, tokens, tokens_per_word: tokens / (read.match(/\S+/g)?.length ?? 1), bytes_per_token: new TextEncoder().encode(read).length / (tokens || 1),
    unknown_share: unknown / (tokens || 1) };
}

/** Whether the tokens give back the text, and where they first do not. */
function back({ text: read, decoded, round_trip: same }) {
  const [a, b] = [[...read], [...decoded]];
  const at = Math.min(b.length, a.findIndex((sign, i) => sign !== b[i]) >>> 0);
  return same ? text.back : text.differs(at + 1, ...[a, b].map((one) => one.slice(at, at + 12).join('')));
}

/** Pieces in a row, and the words at one step of the replay. */
function Spelled({ name, found, step, onStep }) {
  const { pieces, words: cut, kind, why: reason } = found;
  let total = 0;
  const ends = cut.map(({ steps }) => { total += steps.length - 1; return total; });
  const at = intOf(step, 0, total, total);
  const current = at ? ends.findIndex((end) => end >= at) : -1;
  const reached = cut.map(({ steps }, w) => steps.at(Math.max(-steps.length, Math.min(-1, at - ends[w] - 1))));
  const told = reached[current] && ` · ${text.made(reached[current], reached[current].score === null ? '' : text.score(num(reached[current].score)))}`;
  return html`<section class="spelled"><h2>${name} · ${kind}</h2>
    <${Chips} label=${name} onPick=${(i) => onStep(ends[pieces[i].word] ?? 0)} items=${pieces.map((piece) => ({ on: at < total && piece.word === current,
      faint: piece.unknown, from: text.from(piece, hex(piece.bytes)), text: html`${seen(piece)}<small>${piece.id}</small>` }))} />
    <p class="label">${back(found)}</p>
    ${kind === 'WordLevel' || reason ? html`<p class="label">${reason ?? text.nothing}</p>` : html`<${Slider} label=${text.step} value=${at} low=${0} high=${total}
      onChange=${onStep} format=${(n) => `${n} / ${total}${told ?? ''}`} />
      <${Chips} label=${text.step} items=${reached.map((one, w) => ({ text: one.pieces.join(' · '), on: w === current }))} />`}</section>`;
}

export function render({ view: { state, set, run, runs, about, shown } }) {
  const typed = (/^(shapes|picture):/.test(state.text) ? '' : state.text) || (about.reads === 'texts' ? about.example : text.example);
  const target = state.side === '1';
  const bodies = [{ run: run.id, text: typed, target }, ...(state.other ? [{ run: state.other, text: typed }] : [])];
  const answer = useAnswer((signal) => Promise.all(bodies.map((body) => json('/api/tokenize', { body, signal }))), [JSON.stringify(bodies)]);
  const ask = (signal) => json('/api/token_statistics', { body: { run: run.id, target }, signal });
  const measured = useAnswer(state.data ? ask : null, [state.data, run.id, target]);
  const found = answer.value ?? [];
  Object.assign(shown, { found, typed, target });
  const name = (i) => runs.find((one) => one.id === bodies[i]?.run)?.name;
  const rows = found.map((one, i) => counts(name(i), one));
  if (measured.value) rows.push({ ...measured.value, name: measured.value.source });
  const columns = Object.entries(text.columns).map(([key, one]) => ({ key, title: one, text: (row) => (key === 'tokens' ? count : num)(row[key]), from: () => one }));
  const others = runs.filter((one) => one.has_model && one.id !== run.id).map((one) => [one.id, one.name]);
  return html`<aside class="controls">
    ${about.tokenizers > 1 && html`<${Choice} label=${text.side} value=${state.side ?? ''} options=${text.sides} onChange=${(side) => set({ side, step: '' })} />`}
    <${Pick} label=${text.other} value=${state.other ?? ''} options=${[['', '–'], ...others]} onChange=${(other) => set({ other })} />
    <button type="button" class="small" disabled=${Boolean(state.data)} onClick=${() => set({ data: '1' })}>${text.statistics}</button></aside>
  <section class="picture"><label class="field"><span>${words.text}</span><input id="text" value=${typed} spellcheck=${false} autocomplete="off"
      onChange=${(e) => set({ text: e.target.value, step: '', step2: '' })} /></label>
    <${Note} error=${answer.error || measured.error} busy=${(answer.busy || measured.busy) && words.loading} />
    ${found.map((one, i) => html`<${Spelled} key=${i} name=${name(i)} found=${one} step=${state[i ? 'step2' : 'step']}
      onStep=${(n) => set({ [i ? 'step2' : 'step']: String(n) }, true)} />`)}
    <${Table} label=${text.table} rows=${rows} columns=${[{ key: 'name', title: words.text, plain: true, text: (row) => row.name }, ...columns]} />
    ${measured.value && html`<p class="label">${text.rarest(measured.value.rarest.map((pair) => pair.join(' ')).join(', '))}</p>`}</section>`;
}

export function code({ run, shown: { typed, target } }) {
  return `import heedful\nfrom heedful.inside.spelling import spell\n\nmodel = heedful.load(${literal(run.folder ?? run.name)})\n`
    + `spelling = spell(model.${target ? 'target_' : ''}tokenizer, ${literal(typed)})\nprint(spelling.as_text(merges=True))\n`;
}

export function csv({ shown: { found } }) {
  return [['tokenizer', 'number', 'token', 'start', 'end', 'bytes'],
    ...found.flatMap((one, n) => one.pieces.map(({ id, token, start, end, bytes }) => [n + 1, id, token, start, end, hex(bytes)]))];
}
