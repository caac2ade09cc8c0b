// The model: embeddings, blocks, heads and the three shells, from the description that the page holds.
import { attentionsOf, crossAttention, newText, selfAttention, sourceKeys } from './attention.js';
import { openKernels } from './kernels.js';
import { activate, add, addRow, linear, run, scaled, times } from './parts.js';
import { embed } from './positions.js';
import { copyRow, fromBase64, inflate, placeTensors } from './weights.js';

const CHUNK = 64; // tokens of a prompt that are read at once

/** The model of a page: its description, its weights in memory, and the kernels. plain: without WebAssembly. */
export async function openNet(spec, weights, wasm, plain = false) {
  const kernels = await openKernels(plain ? null : wasm);
  const tensors = placeTensors(kernels, spec.tensors, await inflate(fromBase64(weights)));
  return { kernels, tensors, model: spec.model, kept: kernels.top };
}

/** Forget every text and every vector; the weights stay. */
export function forget(net) {
  net.kernels.release(net.kept);
}

// Inputs.

/** What the first block sees of tokens at these positions. */
function inputs(net, part, tokens, positions, segments) {
  const { kernels } = net;
  let x = kernels.vectors(tokens.length, net.tensors[part.tokens].columns);
  tokens.forEach((token, t) => {
    copyRow(kernels, net.tensors[part.tokens], token, x.at + 4 * t * x.D, part.scale);
  });
  if (part.widen) x = run(net, part.widen, x);
  if (part.segments !== null) addSegments(net, part.segments, x, segments);
  x = embed(net, part.position, x, positions);
  if (part.added !== null) addRow(net, { at: net.tensors[part.added].at }, x);
  return run(net, part.finish, x);
}

function addSegments(net, table, x, segments) {
  const row = net.kernels.vectors(1, x.D);
  for (let t = 0; t < x.T; t++) {
    copyRow(net.kernels, net.tensors[table], segments ? segments[t] : 0, row.at);
    addRow(net, row, { at: x.at + 4 * t * x.D, T: 1, D: x.D });
  }
}

// Blocks.

const LAYERS = { attention: selfAttention, cross: crossAttention, feed_forward: run };

/** A layer in its residual connection: x + layer(norm(x)), norm(x + layer(x)) and the like. */
function residual(net, part, kind, x, call) {
  const layer = (given) => LAYERS[kind](net, part.layer, given, call);
  if (part.part === 'PostNorm') return run(net, part.norm, add(net, x, layer(x)));
  const found = layer(run(net, part.norm, x));
  if (part.part === 'Branch') return found;
  return add(net, x, part.part === 'SandwichNorm' ? run(net, part.after, found) : found);
}

function block(net, part, x, call) {
  if (part.part === 'ParallelBlock') {
    const attended = residual(net, part.attention, 'attention', x, call);
    return add(net, x, add(net, attended, residual(net, part.feed_forward, 'feed_forward', x, call)));
  }
  x = residual(net, part.attention, 'attention', x, call);
  if (part.cross) x = residual(net, part.cross, 'cross', x, call);
  return residual(net, part.feed_forward, 'feed_forward', x, call);
}

/** All blocks and what stands after the last. The vectors of a block give their memory to the next. */
function stack(net, part, masks, x, call) {
  const { kernels } = net;
  const kept = kernels.vectors(x.T, x.D);
  kernels.f32.copyWithin(kept.at / 4, x.at / 4, x.at / 4 + x.T * x.D);
  part.blocks.forEach((one, layer) => {
    const mark = kernels.top;
    const heard = call.heard && ((...found) => call.heard(layer, 'self', ...found));
    const heardCross = call.heard && ((...found) => call.heard(layer, 'cross', ...found));
    const mask = masks[layer % masks.length];
    const y = block(net, one, kept, { ...call, layer, mask, heard, heardCross });
    kernels.f32.copyWithin(kept.at / 4, y.at / 4, y.at / 4 + x.T * x.D);
    kernels.release(mark);
  });
  return run(net, part.norm, kept);
}

// Shells.

/** What an encoder says of a text: one vector for each token. */
export function encode(net, shell, tokens, segments = null, heard = null) {
  const text = newText(net, attentionsOf(shell), tokens.length);
  const rows = tokens.map((_, at) => ({ text, at }));
  const x = inputs(net, shell.inputs, tokens, rows.map((row) => row.at), segments);
  return run(net, shell.project_out, stack(net, shell.stack, shell.masks, x, { rows, ends: tokens.length, heard }));
}

/** Give a text its source: keys and values in every layer of the decoder. */
export function readSource(net, shell, source) {
  return { S: source.T, layers: attentionsOf(shell, 'cross').map((part) => sourceKeys(net, part, source)) };
}

/** The vectors of new tokens, each row the next of its text. */
export function hidden(net, shell, rows, heard = null) {
  const placed = rows.map(({ text }) => ({ text, at: text.length++ }));
  const x = inputs(net, shell.inputs, rows.map((row) => row.token), placed.map((row) => row.at), null);
  return stack(net, shell.stack, shell.masks, x, { rows: placed, heard });
}

/** Scores of the next token after each vector. */
export function scores(net, shell, x) {
  const { head } = shell;
  const given = scaled(net, x, head.scale);
  return head.part === 'Untied' ? linear(net, head.linear, given) : tiedScores(net, shell.inputs, head.bias, given);
}

function tiedScores(net, inputsPart, bias, x) {
  const y = times(net, net.tensors[inputsPart.tokens], x);
  if (bias !== null) addRow(net, net.tensors[bias], y);
  return y;
}

/** A row of vectors as numbers of its own. */
export function rowOf(net, x, t) {
  return net.kernels.f32.slice(x.at / 4 + t * x.D, x.at / 4 + (t + 1) * x.D);
}

/** Feed one new token to each of several texts; the scores after each. */
export function step(net, shell, rows) {
  const mark = net.kernels.top;
  const found = scores(net, shell, hidden(net, shell, rows));
  const out = rows.map((_, t) => rowOf(net, found, t));
  net.kernels.release(mark);
  return out;
}

/** Read tokens into a text a few at a time; the scores after the last, or after each if `all`. */
export function read(net, shell, text, tokens, { all = false, heard = null } = {}) {
  const out = [];
  for (let from = 0; from < tokens.length; from += CHUNK) {
    const mark = net.kernels.top;
    const some = tokens.slice(from, from + CHUNK).map((token) => ({ text, token }));
    const x = hidden(net, shell, some, heard && ((l, kind, t, ...rest) => heard(l, kind, from + t, ...rest)));
    const last = from + CHUNK >= tokens.length;
    const asked = all ? x : { at: x.at + 4 * (x.T - 1) * x.D, T: 1, D: x.D };
    if (all || last) {
      const found = scores(net, shell, asked);
      for (let t = 0; t < found.T; t++) out.push(rowOf(net, found, t));
    }
    net.kernels.release(mark);
  }
  return out;
}

/** The vector of the last token of a text: what a decoder that classifies reads. */
export function lastHidden(net, shell, tokens, heard = null) {
  const text = newText(net, attentionsOf(shell), tokens.length);
  const x = hidden(net, shell, tokens.map((token) => ({ text, token })), heard);
  return { at: x.at + 4 * (x.T - 1) * x.D, T: 1, D: x.D };
}

// Heads of an encoder.

/** One vector for a whole text. */
const POOLS = {
  FirstToken: (net, part, x) => ({ at: x.at, T: 1, D: x.D }),
  Pooled: (net, part, x) => activate(net, part.activation, linear(net, part.dense, { at: x.at, T: 1, D: x.D })),
  MeanOverReal: (net, part, x) => over(net, x, (column) => column.reduce((a, b) => a + b, 0) / x.T),
  MaxOverTokens: (net, part, x) => over(net, x, (column) => column.reduce((a, b) => Math.max(a, b), 0)),
};

function over(net, x, reduce) {
  const y = net.kernels.vectors(1, x.D);
  const f = net.kernels.f32;
  for (let d = 0; d < x.D; d++) {
    f[y.at / 4 + d] = reduce(Array.from({ length: x.T }, (_, t) => f[x.at / 4 + t * x.D + d]));
  }
  return y;
}

const prepared = (net, part, x) => run(net, part.norm, activate(net, part.activation, linear(net, part.dense, x)));

const HEADS = {
  ...POOLS,
  Classify: (net, part, x) => linear(net, part.linear, headOf(net, part.pool, x)),
  Tag: (net, part, x) => linear(net, part.linear, x),
  Span: (net, part, x) => linear(net, part.linear, x),
  Replaced: (net, part, x) => {
    const y = linear(net, part.linear, activate(net, part.activation, linear(net, part.dense, x)));
    return { at: y.at, T: 1, D: y.T }; // one score for each token
  },
  MaskedLM: (net, part, x) => tiedScores(net, net.model.encoder.inputs, part.bias, prepared(net, part, x)),
  FillAfter: (net, part, x) => tiedScores(net, net.model.encoder.inputs, part.bias, prepared(net, part.prepare, x)),
  LabelAfter: (net, part, x) =>
    linear(net, part.linear, prepared(net, part.prepare, part.pool ? headOf(net, part.pool, x) : x)),
};

/** What a head says of an encoder's vectors. */
export function headOf(net, part, x) {
  return HEADS[part.part](net, part, x);
}
