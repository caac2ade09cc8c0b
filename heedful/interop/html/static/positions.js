// Positions: where order enters the model, in one of four places as in heedful/parts/positions.
//
// `embed` adds to the inputs, `rotate` turns queries and keys, `bias` adds to scores, `mixValues` to the output.
import { addRow } from './parts.js';
import { copyRow } from './weights.js';

/** Order at the input, of tokens at these positions. */
export function embed(net, part, x, positions) {
  if (part.part === 'Learned') {
    const row = net.kernels.vectors(1, x.D);
    positions.forEach((p, t) => {
      copyRow(net.kernels, net.tensors[part.table], p + part.offset, row.at);
      addRow(net, row, { at: x.at + 4 * t * x.D, T: 1, D: x.D });
    });
  } else if (part.part === 'Sinusoidal') {
    positions.forEach((p, t) => addSinusoid(net.kernels.f32, x.at / 4 + t * x.D, sinusoid(part, p)));
  } else if (part.part === 'Concatenated') {
    return beside(net, x, positions.map((p) => sinusoid(part.encoding, p)));
  }
  return x;
}

function addSinusoid(f, at, numbers) {
  for (let d = 0; d < numbers.length; d++) f[at + d] += numbers[d];
}

/** sin and cos of position * frequency: side by side for each, or all sines before all cosines. */
function sinusoid({ frequencies, interleaved, offset }, position) {
  const half = frequencies.length;
  const out = new Float32Array(2 * half);
  frequencies.forEach((w, i) => {
    const angle = (position + offset) * w;
    out[interleaved ? 2 * i : i] = Math.sin(angle);
    out[interleaved ? 2 * i + 1 : half + i] = Math.cos(angle);
  });
  return out;
}

function beside(net, x, rows) {
  const y = net.kernels.vectors(x.T, x.D + rows[0].length);
  const f = net.kernels.f32;
  rows.forEach((row, t) => {
    f.copyWithin(y.at / 4 + t * y.D, x.at / 4 + t * x.D, x.at / 4 + (t + 1) * x.D);
    f.set(row, y.at / 4 + t * y.D + x.D);
  });
  return y;
}

/** Turn the heads of each token by its position, in place. `heads` vectors of K numbers stand side by side. */
export function rotate(net, part, x, heads, positions) {
  if (part.part !== 'Rotary') return x;
  const f = net.kernels.f32;
  const K = x.D / heads;
  const { frequencies, interleaved, magnitude } = part;
  const half = frequencies.length;
  positions.forEach((position, t) => {
    frequencies.forEach((w, i) => {
      const cos = Math.fround(Math.cos(position * w)) * magnitude;
      const sin = Math.fround(Math.sin(position * w)) * magnitude;
      for (let h = 0; h < heads; h++) {
        const at = x.at / 4 + t * x.D + h * K;
        const one = at + (interleaved ? 2 * i : i);
        const other = at + (interleaved ? 2 * i + 1 : half + i);
        const a = f[one];
        const b = f[other];
        f[one] = a * cos - b * sin;
        f[other] = a * sin + b * cos;
      }
    });
  });
  return x;
}

/** What is added to the scores of a head: a row of S numbers at `into`. False if there is nothing. */
export function bias(net, part, into, { head, q, at, from, S, K }) {
  const f = net.kernels.f32;
  const to = into / 4;
  if (part.part === 'ALiBi') {
    const slope = part.slopes[head];
    for (let s = 0; s < S; s++) f[to + s] = -slope * Math.abs(from + s - at);
  } else if (part.part === 'T5Buckets') {
    const table = net.tensors[part.table];
    for (let s = 0; s < S; s++) f[to + s] = f[table.at / 4 + bucket(part, from + s - at) * table.columns + head];
  } else if (part.part === 'Shaw') {
    const R = 2 * part.clip + 1;
    const keys = net.tensors[part.keys].at / 4 + (part.heads > 1 ? head : 0) * R * K;
    for (let s = 0; s < S; s++) {
      const row = keys + edge(part, from + s - at) * K;
      let sum = 0;
      for (let k = 0; k < K; k++) sum += f[q / 4 + k] * f[row + k];
      f[to + s] = sum / Math.sqrt(K);
    }
  } else return false;
  return true;
}

/** T5's bucket of a distance, key minus query: a list from the farthest behind to the farthest ahead. */
const bucket = ({ buckets }, distance) => {
  const middle = (buckets.length - 1) / 2;
  return buckets[Math.max(0, Math.min(buckets.length - 1, distance + middle))];
};

const edge = ({ clip }, distance) => Math.max(-clip, Math.min(clip, distance)) + clip;

/** Shaw's vectors in values: what falls on each distance times its vector, added to the output. */
export function mixValues(net, part, weights, out, { head, at, from, S, L }) {
  if (part.part !== 'Shaw') return;
  const f = net.kernels.f32;
  const R = 2 * part.clip + 1;
  const values = net.tensors[part.values].at / 4 + (part.heads > 1 ? head : 0) * R * L;
  for (let s = 0; s < S; s++) {
    const row = values + edge(part, from + s - at) * L;
    const weight = f[weights / 4 + s];
    for (let l = 0; l < L; l++) f[out / 4 + l] += weight * f[row + l];
  }
}
