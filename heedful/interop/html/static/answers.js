// Answers: everything that can be asked of the model by numbers, for the certificate and for tests.
import { encode, forget, headOf, lastHidden, read, rowOf } from './model.js';
import { linear } from './parts.js';
import { beam, begin, likeliest, sampler, write } from './search.js';
import { attentionsOf, newText } from './attention.js';
import { copyRow } from './weights.js';

/** The scores of labels of a decoder that classifies. */
export function labelScores(net, ids, heard = null) {
  forget(net);
  return rowOf(net, linear(net, net.model.linear, lastHidden(net, net.model.decoder, ids, heard)), 0);
}

/** {output: its rows} of an encoder with heads: hidden states, and what every head says. */
export function headScores(net, ids, segments = null, heard = null) {
  forget(net);
  const hidden = encode(net, net.model.encoder, ids, segments, heard);
  const found = { hidden };
  for (const [name, head] of Object.entries(net.model.heads ?? {})) found[name] = headOf(net, head, hidden);
  return found;
}

/** Scores after each of some tokens that are written after a source or at the beginning of a text. */
export function tokenScores(net, spec, ids, target, heard = null) {
  const { source } = begin(net, spec, ids, 0, heard && ((...found) => heard('encoder', ...found)));
  const text = newText(net, attentionsOf(net.model.decoder), target.length);
  text.source = source;
  return read(net, net.model.decoder, text, target, {
    all: true,
    heard: heard && ((...found) => heard('decoder', ...found)),
  });
}

const QUESTIONS = {
  outputs(net, spec, { ids, target, segments }) {
    if (net.model.linear) return { logits: [labelScores(net, ids)] };
    if (net.model.decoder) return { logits: tokenScores(net, spec, ids, target ?? ids) };
    const found = headScores(net, ids, segments);
    return Object.fromEntries(Object.entries(found).map(([name, x]) => [name, rowsOf(net, x)]));
  },
  greedy(net, spec, { ids, longest }) {
    return drawn(net, spec, ids, { longest, choose: likeliest });
  },
  sample(net, spec, { ids, longest, ...how }) {
    return drawn(net, spec, ids, { longest, choose: sampler(how) });
  },
  beam(net, spec, { ids, ...how }) {
    const search = beam(net, spec, ids, how);
    let found = search.next();
    while (!found.done) found = search.next();
    return found.value;
  },
  tokens(net, spec, { text }) {
    return spec.readers[0].encodeWhole(text);
  },
  text(net, spec, { ids }) {
    return spec.readers[spec.readers.length - 1].decode(ids);
  },
  attention(net, spec, { ids, target, segments }) {
    const found = {};
    const heard = (side, layer, kind, t, head, from, weights) => {
      (found[`${side}.${kind}.${layer}`] ??= []).push([t, head, from, floats(weights)]);
    };
    attentionOf(net, spec, { ids, target, segments }, heard);
    return found;
  },
  embedding(net) {
    forget(net);
    const { inputs } = net.model.encoder ?? net.model.decoder;
    const table = net.tensors[inputs.tokens];
    const row = net.kernels.vectors(1, table.columns);
    const rows = new Float32Array(table.rows * table.columns);
    for (let r = 0; r < table.rows; r++) {
      copyRow(net.kernels, table, r, row.at);
      rows.set(rowOf(net, row, 0), r * table.columns);
    }
    return { columns: table.columns, rows };
  },
  kernels: (net) => net.kernels.name,
};

/** Let a function hear every weight of attention: (side, layer, kind, query, head, first key, weights). */
export function attentionOf(net, spec, { ids, target, segments = null }, heard) {
  const encoderOnly = (...found) => heard('encoder', ...found);
  if (!net.model.decoder) headScores(net, ids, segments, encoderOnly);
  else if (net.model.linear) labelScores(net, ids, (...found) => heard('decoder', ...found));
  else tokenScores(net, spec, ids, target ?? ids, heard);
}

function rowsOf(net, x) {
  return Array.from({ length: x.T }, (_, t) => rowOf(net, x, t));
}

function drawn(net, spec, ids, how) {
  const found = Array.from(write(net, spec, ids, { forced: [], ...how }));
  return found.filter((one) => !one.ended).map((one) => one.token);
}

/** How far the page is from what Python computed for a few inputs: of the largest number. */
export function probed(net, spec, probes) {
  const apart = probes.map(({ ids, target, segments, numbers }) => {
    const found = QUESTIONS.outputs(net, spec, { ids, target, segments });
    const rows = found.hidden ?? found.logits;
    const last = rows[rows.length - 1];
    const scale = Math.max(...numbers.map(Math.abs));
    return Math.max(...numbers.map((number, i) => Math.abs(number - last[i]))) / scale;
  });
  return Math.max(...apart);
}

/** The answer to a question {ask, ...}, as JSON: numbers are base64 of float32. */
export function answer(net, spec, question) {
  return packed(QUESTIONS[question.ask](net, spec, question));
}

function packed(found) {
  if (found instanceof Float32Array) return floats(found);
  if (Array.isArray(found)) return found.map(packed);
  if (found && typeof found === 'object') {
    return Object.fromEntries(Object.entries(found).map(([name, one]) => [name, packed(one)]));
  }
  return found;
}

function floats(numbers) {
  const bytes = new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength);
  let letters = '';
  for (let i = 0; i < bytes.length; i += 8192) letters += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(letters);
}
