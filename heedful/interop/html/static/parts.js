// Parts: layers, norms and the feed-forward layers, one function for each part of heedful/parts.
//
// A part is described as {part: its name in Python, ...}; numbers such as `weight` are indices of tensors.
// Vectors are {at, T, D}: T rows of D numbers at an address. Every function returns new vectors.
import { ACTIVATIONS } from './activations.js';

/** x W^T + b. */
export function linear(net, part, x) {
  const y = times(net, net.tensors[part.weight], x);
  if (part.bias !== null) addRow(net, net.tensors[part.bias], y);
  return y;
}

/** x W^T for a tensor of rows. */
export function times(net, w, x) {
  const { kernels } = net;
  if (w.columns !== x.D) throw new Error(`a matrix of ${w.columns} columns was given vectors of ${x.D}`);
  const y = kernels.vectors(x.T, w.rows);
  if (w.scales) kernels.product8(w.at, w.scales, x.at, y.at, w.rows, w.columns, x.T);
  else kernels.product(w.at, x.at, y.at, w.rows, w.columns, x.T);
  return y;
}

/** Add one row to every vector. */
export function addRow(net, tensor, y) {
  const f = net.kernels.f32;
  const b = tensor.at / 4;
  for (let t = 0, i = y.at / 4; t < y.T; t++) {
    for (let d = 0; d < y.D; d++, i++) f[i] += f[b + d];
  }
}

/** x + y, in the place of y. */
export function add(net, x, y) {
  const f = net.kernels.f32;
  for (let i = x.at / 4, j = y.at / 4, n = x.T * x.D; n > 0; n--) f[j++] += f[i++];
  return y;
}

export function scaled(net, x, factor) {
  if (factor === 1) return x;
  const y = net.kernels.vectors(x.T, x.D);
  const f = net.kernels.f32;
  for (let i = 0; i < x.T * x.D; i++) f[y.at / 4 + i] = f[x.at / 4 + i] * factor;
  return y;
}

/** An activation, in place. */
export function activate(net, name, x) {
  const f = net.kernels.f32;
  const g = ACTIVATIONS[name];
  const end = x.at / 4 + x.T * x.D;
  for (let i = x.at / 4; i < end; i++) f[i] = g(f[i]);
  return x;
}

// Norms.

/** gain * (x - mean) / sqrt(variance + eps) + bias; without a mean for RMSNorm. */
function normed(net, part, x, centered, shift) {
  const y = net.kernels.vectors(x.T, x.D);
  const f = net.kernels.f32;
  const gain = part.weight === null ? -1 : net.tensors[part.weight].at / 4;
  const bias = part.bias === null ? -1 : net.tensors[part.bias].at / 4;
  for (let t = 0; t < x.T; t++) {
    const from = x.at / 4 + t * x.D;
    const to = y.at / 4 + t * x.D;
    let mean = 0;
    if (centered) for (let d = 0; d < x.D; d++) mean += f[from + d];
    mean /= x.D;
    let squares = 0;
    for (let d = 0; d < x.D; d++) squares += (f[from + d] - mean) ** 2;
    const inverse = 1 / Math.sqrt(squares / x.D + part.eps);
    for (let d = 0; d < x.D; d++) {
      const value = (f[from + d] - mean) * inverse * (gain < 0 ? 1 : f[gain + d] + shift);
      f[to + d] = bias < 0 ? value : value + f[bias + d];
    }
  }
  return y;
}

export const layerNorm = (net, part, x) => normed(net, part, x, true, 0);
export const rmsNorm = (net, part, x) => normed(net, part, x, false, 0);
export const offsetRmsNorm = (net, part, x) => normed(net, part, x, false, 1);

// Feed-forward layers.

/** activation(x W1 + b1) W2 + b2. */
export function feedForward(net, part, x) {
  return linear(net, part.down, activate(net, part.activation, linear(net, part.up, x)));
}

/** (activation(x W) * (x V)) W2. */
export function gatedFeedForward(net, part, x) {
  const gate = activate(net, part.activation, linear(net, part.gate, x));
  const up = linear(net, part.up, x);
  const f = net.kernels.f32;
  for (let i = 0; i < up.T * up.D; i++) f[up.at / 4 + i] *= f[gate.at / 4 + i];
  return linear(net, part.down, up);
}

/** The experts that a token's gate likes best, each as much as it is liked. */
export function experts(net, part, x) {
  const { kernels } = net;
  const gate = net.tensors[part.weight];
  const y = kernels.vectors(x.T, x.D);
  kernels.f32.fill(0, y.at / 4, y.at / 4 + y.T * y.D);
  for (let t = 0; t < x.T; t++) {
    const mark = kernels.top;
    const token = { at: x.at + 4 * t * x.D, T: 1, D: x.D };
    const scores = kernels.vectors(1, gate.columns);
    kernels.mix(token.at, gate.at, scores.at, gate.rows, gate.columns);
    for (const [expert, share] of gates(part, kernels.f32.slice(scores.at / 4, scores.at / 4 + gate.columns))) {
      const out = run(net, part.experts[expert], token);
      const f = kernels.f32;
      for (let d = 0; d < y.D; d++) f[y.at / 4 + t * y.D + d] += share * f[out.at / 4 + d];
    }
    kernels.release(mark);
  }
  return y;
}

/** [expert, its share] of those chosen: softmax over them alone, or over all. Of equal scores the first wins. */
function gates(part, scores) {
  const order = [...scores.keys()].sort((a, b) => scores[b] - scores[a] || a - b);
  const chosen = order.slice(0, part.chosen);
  const among = part.over_all ? order : chosen;
  const total = among.reduce((sum, e) => sum + Math.exp(scores[e] - scores[order[0]]), 0);
  return chosen.map((e) => [e, Math.exp(scores[e] - scores[order[0]]) / total]);
}

/** Any part that is given vectors alone. */
export function run(net, part, x) {
  if (Array.isArray(part)) return part.reduce((y, one) => run(net, one, y), x);
  return VECTOR_PARTS[part.part](net, part, x);
}

export const VECTOR_PARTS = {
  Linear: linear,
  LayerNorm: layerNorm,
  GainLayerNorm: layerNorm,
  BareLayerNorm: layerNorm,
  RMSNorm: rmsNorm,
  BareRMSNorm: rmsNorm,
  OffsetRMSNorm: offsetRmsNorm,
  FeedForward: feedForward,
  GatedFeedForward: gatedFeedForward,
  Experts: experts,
};
