// Search: greedy, sampling and beam search, as in heedful/decode.
//
// Each is a generator: it stops after every token, so that a page can draw it and go on.
import { attentionsOf, copyText, newText } from './attention.js';
import { encode, forget, read, readSource, step } from './model.js';

/** Read a source, or take a prompt: {prompt, source, capacity} for texts that go on from it. */
export function begin(net, spec, ids, room, heard = null) {
  forget(net);
  const { encoder, decoder } = net.model;
  const prompt = encoder ? [spec.start] : ids;
  const source = encoder ? readSource(net, decoder, encode(net, encoder, ids, null, heard)) : null;
  const capacity = Math.min(prompt.length + room, longestOf(decoder) ?? Infinity);
  return { prompt, source, capacity };
}

export const longestOf = (shell) => shell.inputs.position.longest;

/** An empty text with its source. */
function textFor(net, { source, capacity }) {
  const text = newText(net, attentionsOf(net.model.decoder), capacity);
  text.source = source;
  return text;
}

// One hypothesis.

/** Tokens one by one: {token, share, top, ended}. choose: the next of its scores. forced: the first ones. */
export function* write(net, spec, ids, { longest, choose, top = 0, forced = spec.first ?? [] }) {
  const start = begin(net, spec, ids, longest);
  const { decoder } = net.model;
  const table = longestOf(decoder);
  const row = fitting(start.prompt, table);
  let text = textFor(net, { ...start, capacity: Math.min(row.length + longest, table ?? Infinity) });
  let scores = read(net, decoder, text, row)[0];
  for (let n = 0; n < longest; n++) {
    forbid(scores, spec.suppress);
    const token = n < forced.length ? forced[n] : choose(scores);
    const ended = spec.ends.includes(token);
    yield { token, ended, ...(top ? shares(scores, token, top) : {}) };
    if (ended || n + 1 === longest) return;
    row.push(token);
    if (table !== null && row.length > table) {
      const again = fitting(row, table);
      text = textFor(net, { ...begin(net, spec, ids, longest), capacity: table });
      scores = read(net, decoder, text, again)[0];
      row.splice(0, row.length, ...again);
    } else [scores] = step(net, decoder, [{ text, token }]);
  }
}

/** The tokens that are read of a text: of one longer than the table of positions, the last half of the table. */
function fitting(row, table) {
  return table === null || row.length <= table ? row.slice() : row.slice(-Math.max(1, Math.floor(table / 2)));
}

function forbid(scores, tokens) {
  for (const token of tokens ?? []) scores[token] = -Infinity;
}

/** The likeliest token; of equals the first. */
export function likeliest(scores) {
  let best = 0;
  for (let i = 1; i < scores.length; i++) if (scores[i] > scores[best]) best = i;
  return best;
}

/** The probability of a token, and of the few that are likeliest. */
export function shares(scores, token, top) {
  const most = scores[likeliest(scores)];
  let total = 0;
  for (let i = 0; i < scores.length; i++) total += Math.exp(scores[i] - most);
  const share = (i) => Math.exp(scores[i] - most) / total;
  return { share: share(token), top: largest(scores, top).map((i) => [i, share(i)]) };
}

/** The places of the k largest numbers, largest first; of equals the first. */
export function largest(scores, k) {
  const kept = [];
  for (let i = 0; i < scores.length; i++) {
    if (kept.length === k && !(scores[i] > scores[kept[k - 1]])) continue;
    let at = kept.length;
    while (at > 0 && scores[i] > scores[kept[at - 1]]) at--;
    kept.splice(at, 0, i);
    if (kept.length > k) kept.pop();
  }
  return kept;
}

// Sampling.

/** A choice at random: scores over the temperature, the k likeliest, then those that hold a share p. */
export function sampler({ temperature = 1, top_k = 0, top_p = 1, seed = 0 }) {
  const roll = rolls(seed);
  return (scores) => {
    const order = largest(scores, top_k > 0 ? Math.min(top_k, scores.length) : scores.length);
    const most = scores[order[0]];
    const weights = order.map((i) => Math.exp((scores[i] - most) / temperature));
    const whole = weights.reduce((a, b) => a + b, 0);
    let kept = 0;
    let held = 0;
    while (kept < weights.length && (kept === 0 || held < top_p * whole)) held += weights[kept++];
    let height = roll() * held;
    for (let i = 0; i < kept; i++) {
      height -= weights[i];
      if (height < 0) return order[i];
    }
    return order[kept - 1];
  };
}

/** Random numbers in [0, 1) from a seed (mulberry32). */
export function rolls(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

// Beam search.

const PENALTIES = {
  gnmt: (length, alpha) => ((5 + length) / 6) ** alpha,
  power: (length, alpha) => length ** alpha,
};

/** The best hypotheses {tokens, score, ended}, best first. Yields the tokens of the best prefix at each step. */
export function* beam(net, spec, ids, how) {
  const { width, forced = spec.first ?? [] } = how;
  const { decoder } = net.model;
  const start = begin(net, spec, ids, how.longest);
  const longest = Math.min(how.longest, start.capacity - start.prompt.length + 1);
  const texts = Array.from({ length: width }, () => textFor(net, start));
  const spare = Array.from({ length: width }, () => textFor(net, start));
  const first = read(net, decoder, texts[0], start.prompt)[0];
  let live = [{ tokens: [], total: 0, text: texts[0], scores: first }];
  let finished = [];
  for (let n = 1; ; n++) {
    const { prefixes, done } = extended(live, spec, { ...how, longest }, n, forced);
    finished = [...finished, ...done].sort((a, b) => b.score - a.score).slice(0, width);
    yield (prefixes[0] ?? finished[0]).tokens;
    if (n === longest || !prefixes.length || isOver(prefixes, finished, { ...how, longest }, n)) break;
    live = fed(net, decoder, prefixes, texts, spare);
  }
  return finished;
}

/** Give every prefix an n-th token: those that live on, and those that are done. */
function extended(live, spec, { width, longest, length_penalty, length_alpha }, n, forced) {
  const penalty = PENALTIES[length_penalty](n, length_alpha);
  const most = (1 + Math.max(1, spec.ends.length)) * width;
  const found = live.flatMap((prefix) => continuations(prefix, spec, most, forced[n - 1]));
  const order = found.map((_, i) => i).sort((a, b) => found[b].total - found[a].total || a - b);
  const candidates = order.slice(0, most).map((i) => found[i]);
  const ended = (one) => spec.ends.includes(one.tokens[n - 1]);
  const done = candidates
    .slice(0, width)
    .filter((one) => ended(one) || n === longest)
    .map((one) => ({ tokens: one.tokens, score: one.total / penalty, ended: ended(one) }));
  return { prefixes: candidates.filter((one) => !ended(one)).slice(0, width), done };
}

/** The likeliest continuations of one prefix. */
function continuations({ tokens, total, text, scores }, spec, most, forced) {
  forbid(scores, spec.suppress);
  const top = scores[likeliest(scores)];
  let sum = 0;
  for (let i = 0; i < scores.length; i++) sum += Math.exp(scores[i] - top);
  const log = (i) => scores[i] - top - Math.log(sum);
  const next = forced === undefined ? largest(scores, Math.min(most, scores.length)) : [forced];
  const found = next.map((i) => ({ tokens: [...tokens, i], total: total + log(i), text }));
  return found.filter((one) => one.total > -Infinity);
}

/** Whether no prefix can still win: by its score as it stands, or by the best that it can become. */
function isOver(prefixes, finished, { width, longest, length_penalty, length_alpha, stopping }, n) {
  if (finished.length < width) return false;
  const worst = finished[width - 1].score;
  const length = stopping === 'exact' && length_alpha > 0 ? longest : n;
  return stopping === 'first_B' || prefixes[0].total / PENALTIES[length_penalty](length, length_alpha) <= worst;
}

/** The texts of the prefixes, each fed its newest token; a text that several continue is copied. */
function fed(net, decoder, prefixes, texts, spare) {
  const layers = attentionsOf(decoder);
  prefixes.forEach((prefix, i) => copyText(net, layers, prefix.text, spare[i]));
  const rows = prefixes.map((prefix, i) => ({ text: spare[i], token: prefix.tokens[prefix.tokens.length - 1] }));
  texts.forEach((text, i) => ([texts[i], spare[i]] = [spare[i], text]));
  const scores = step(net, decoder, rows);
  return prefixes.map((prefix, i) => ({ ...prefix, text: rows[i].text, scores: scores[i] }));
}
