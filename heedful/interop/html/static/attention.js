// Attention: project, rotate, attend, mix; and the cache of keys and values of each text.
//
// A call has rows: each is one token of one text ({text, at}). Rows of one text and rows of several texts are
// computed alike, so that reading a prompt and extending a beam are the same function.
import { linear, run, times } from './parts.js';
import { bias, mixValues, rotate } from './positions.js';

/** The self-attention (or cross-attention) layers of a stack. */
export function attentionsOf(shell, kind = 'attention') {
  return shell.stack.blocks.map((one) => one[kind].layer);
}

/** Keys and values of one text in every layer, with room for `capacity` tokens. */
export function newText(net, layers, capacity) {
  const room = layers.map((one) => ({
    k: net.kernels.take(4 * one.kv_heads * capacity * one.key_width),
    v: net.kernels.take(4 * one.kv_heads * capacity * one.value_width),
  }));
  return { layers: room, capacity, length: 0, source: null };
}

/** Make one text the copy of another. */
export function copyText(net, layers, from, to) {
  const f = net.kernels.f32;
  layers.forEach((one, l) => {
    for (const [name, width] of [['k', one.key_width], ['v', one.value_width]]) {
      for (let g = 0; g < one.kv_heads; g++) {
        const start = from.layers[l][name] / 4 + g * from.capacity * width;
        f.copyWithin(to.layers[l][name] / 4 + g * to.capacity * width, start, start + from.length * width);
      }
    }
  });
  to.length = from.length;
  to.source = from.source;
}

/** Self-attention of rows, whose keys and values join those of their texts. */
export function selfAttention(net, part, x, call) {
  const positions = call.rows.map((row) => row.at);
  const q = project(net, part, 'query', x, part.heads, positions);
  const k = project(net, part, 'key', x, part.kv_heads, positions);
  const v = linear(net, part.value, x);
  call.rows.forEach(({ text, at }, t) => {
    store(net, text.layers[call.layer].k, text.capacity, at, k, t, part.kv_heads);
    store(net, text.layers[call.layer].v, text.capacity, at, v, t, part.kv_heads);
  });
  const views = call.rows.map(({ text, at }) => {
    const [from, to] = reach(call.mask, at, call.ends ?? at + 1);
    return { ...text.layers[call.layer], capacity: text.capacity, at, from, S: to - from };
  });
  return linear(net, part.out, attendAll(net, part, q, views, call.heard));
}

/** Attention of rows to the sources of their texts. */
export function crossAttention(net, part, x, call) {
  const q = project(net, part, 'query', x, part.heads, call.rows.map((row) => row.at));
  const views = call.rows.map(({ text, at }) => {
    const { layers, S } = text.source;
    return { ...layers[call.layer], capacity: S, at, from: 0, S };
  });
  return linear(net, part.out, attendAll(net, part, q, views, call.heardCross));
}

/** Keys and values of a source, which every later token attends to. */
export function sourceKeys(net, part, source) {
  const found = {
    k: net.kernels.take(4 * source.T * part.kv_heads * part.key_width),
    v: net.kernels.take(4 * source.T * part.kv_heads * part.value_width),
  };
  const mark = net.kernels.top;
  const k = project(net, part, 'key', source, part.kv_heads, [...Array(source.T).keys()]);
  const v = linear(net, part.value, source);
  for (let t = 0; t < source.T; t++) {
    store(net, found.k, source.T, t, k, t, part.kv_heads);
    store(net, found.v, source.T, t, v, t, part.kv_heads);
  }
  net.kernels.release(mark);
  return found;
}

/** x W by heads, normed if the layer norms them, and rotated to where each token stands. */
function project(net, part, side, x, heads, positions) {
  let y = linear(net, part[side], x);
  const norm = part[`${side}_norm`];
  if (norm) {
    const byHead = { at: y.at, T: y.T * heads, D: y.D / heads };
    y = { at: run(net, norm, byHead).at, T: y.T, D: y.D };
  }
  return rotate(net, part.position, y, heads, positions);
}

/** Row t of x into slot `at` of a cache [heads, capacity, width]. */
function store(net, cache, capacity, at, x, t, heads) {
  const width = x.D / heads;
  const f = net.kernels.f32;
  for (let g = 0; g < heads; g++) {
    const from = x.at / 4 + t * x.D + g * width;
    f.copyWithin(cache / 4 + (g * capacity + at) * width, from, from + width);
  }
}

/** The first key that a query at a position sees, and the one after the last. */
function reach({ past, window }, at, ends) {
  const from = window === null ? 0 : Math.max(0, at - window + 1);
  const to = past ? at + 1 : window === null ? ends : Math.min(ends, at + window);
  return [from, to];
}

/** The attention of every row and head. heard: given the weights of each, if there is one. */
function attendAll(net, part, q, views, heard) {
  const { kernels } = net;
  const { heads, kv_heads: G, key_width: K, value_width: L } = part;
  const out = kernels.vectors(q.T, heads * L);
  const most = Math.max(...views.map((view) => view.S));
  const weights = kernels.vectors(1, most).at;
  const biases = kernels.vectors(1, most).at;
  for (let t = 0; t < q.T; t++) {
    const { k, v, capacity, from, S, at } = views[t];
    for (let head = 0; head < heads; head++) {
      const g = Math.floor((head * G) / heads);
      const asked = q.at + 4 * (t * q.D + (head * q.D) / heads);
      const place = { head, q: asked, at, from, S, K, L };
      const added = bias(net, part.position, biases, place) ? biases : 0;
      const keys = k + 4 * (g * capacity + from) * K;
      const values = v + 4 * (g * capacity + from) * L;
      const to = out.at + 4 * (t * out.D + head * L);
      attendOne(net, part.score, { asked, keys, values, added, weights, to, S, K, L, Q: q.D / heads });
      mixValues(net, part.position, weights, to, place);
      if (heard) heard(t, head, from, kernels.f32.slice(weights / 4, weights / 4 + S));
    }
  }
  return out;
}

/** One query of one head: by the kernel where its score is a dot product. */
function attendOne(net, score, { asked, keys, values, added, weights, to, S, K, L, Q }) {
  const { kernels } = net;
  if (score.part === 'Dot') {
    kernels.attend(asked, keys, values, added, weights, to, S, K, L, score.scale);
    return;
  }
  const mark = kernels.top;
  SCORES[score.part](net, score, { asked, keys, weights, S, K, Q });
  kernels.release(mark);
  kernels.softmax(weights, added, S, 1);
  kernels.mix(weights, values, to, S, L);
}

const SCORES = {
  Dot(net, score, { asked, keys, weights, S, K }) {
    const { kernels } = net;
    kernels.product(keys, asked, weights, S, K, 1);
    for (let s = 0; s < S; s++) kernels.f32[weights / 4 + s] *= score.scale;
  },
  /** q W k. */
  Bilinear(net, score, { asked, keys, weights, S, K, Q }) {
    const { kernels } = net;
    const turned = kernels.vectors(1, K).at;
    kernels.mix(asked, net.tensors[score.weight].at, turned, Q, K);
    kernels.product(keys, turned, weights, S, K, 1);
  },
  /** w . tanh(q W_q + k W_k + b). */
  Additive(net, score, { asked, keys, weights, S, K, Q }) {
    const query = linear(net, score.query, { at: asked, T: 1, D: Q });
    const prepared = linear(net, score.key, { at: keys, T: S, D: K });
    const f = net.kernels.f32;
    for (let i = 0; i < S * query.D; i++) {
      f[prepared.at / 4 + i] = Math.tanh(f[prepared.at / 4 + i] + f[query.at / 4 + (i % query.D)]);
    }
    const found = times(net, net.tensors[score.score.weight], prepared);
    net.kernels.f32.copyWithin(weights / 4, found.at / 4, found.at / 4 + S);
  },
  /** cap * tanh(score / cap). */
  SoftCapped(net, score, given) {
    SCORES[score.score.part](net, score.score, given);
    const f = net.kernels.f32;
    const { weights, S } = given;
    for (let s = 0; s < S; s++) f[weights / 4 + s] = score.cap * Math.tanh(f[weights / 4 + s] / score.cap);
  },
};
