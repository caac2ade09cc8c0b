// Kernels: products, softmax and the attention of one query, in WebAssembly or in plain JavaScript.
//
// Both have the same functions. Addresses count bytes in one memory, which holds weights, caches and vectors.

const PAGE = 65536; // bytes by which WebAssembly's memory grows
const LANES = 16; // bytes: every address is a multiple of it

/** The kernels of a WebAssembly module; without one, or where it cannot run, plain JavaScript's. */
export async function openKernels(bytes) {
  if (bytes && typeof WebAssembly === 'object' && WebAssembly.validate(bytes)) {
    const { instance } = await WebAssembly.instantiate(bytes);
    return new Kernels(instance.exports, instance.exports.memory, 'WebAssembly');
  }
  const memory = new PlainMemory();
  return new Kernels(plainKernels(memory), memory, 'JavaScript');
}

/** Kernels and their memory. What is taken last is given back first, by `release(mark)`. */
export class Kernels {
  constructor(functions, memory, name) {
    Object.assign(this, { ...functions, memory, name, top: LANES });
    this.look();
  }

  /** Views of the memory, which are new ones after it has grown. */
  look() {
    this.f32 = new Float32Array(this.memory.buffer);
    this.i8 = new Int8Array(this.memory.buffer);
  }

  /** The address of so many free bytes. */
  take(bytes) {
    const at = this.top;
    this.top = at + Math.ceil(bytes / LANES) * LANES;
    const missing = this.top - this.memory.buffer.byteLength;
    if (missing > 0) {
      this.memory.grow(Math.ceil(Math.max(missing, this.top / 4) / PAGE));
      this.look();
    }
    return at;
  }

  /** T vectors of D numbers. Softmax may write a little past its last number, for which there is room. */
  vectors(T, D) {
    return { at: this.take(4 * T * D + LANES), T, D };
  }

  release(mark) {
    this.top = mark;
  }
}

class PlainMemory {
  constructor() {
    this.buffer = new ArrayBuffer(PAGE);
  }

  grow(pages) {
    const larger = new Uint8Array(this.buffer.byteLength + pages * PAGE);
    larger.set(new Uint8Array(this.buffer));
    this.buffer = larger.buffer;
  }
}

/** The functions of kernels.wat, number by number. */
function plainKernels(memory) {
  let floats = new Float32Array(0);
  const view = () => (floats.buffer === memory.buffer ? floats : (floats = new Float32Array(memory.buffer)));

  function product(w, x, y, R, C, T) {
    const f = view();
    for (let t = 0; t < T; t++) {
      for (let r = 0; r < R; r++) {
        let sum = 0;
        const row = w / 4 + r * C;
        const vector = x / 4 + t * C;
        for (let c = 0; c < C; c++) sum += f[row + c] * f[vector + c];
        f[y / 4 + t * R + r] = sum;
      }
    }
  }

  function product8(w, s, x, y, R, C, T) {
    const f = view();
    const i = new Int8Array(memory.buffer);
    for (let t = 0; t < T; t++) {
      for (let r = 0; r < R; r++) {
        let sum = 0;
        const vector = x / 4 + t * C;
        for (let c = 0; c < C; c++) sum += i[w + r * C + c] * f[vector + c];
        f[y / 4 + t * R + r] = sum * f[s / 4 + r];
      }
    }
  }

  function softmax(x, bias, n, scale) {
    const f = view().subarray(x / 4, x / 4 + n);
    const b = bias ? view().subarray(bias / 4, bias / 4 + n) : null;
    let most = -Infinity;
    for (let i = 0; i < n; i++) {
      f[i] = f[i] * scale + (b ? b[i] : 0);
      if (f[i] > most) most = f[i];
    }
    if (most === -Infinity) return void f.fill(0);
    let sum = 0;
    for (let i = 0; i < n; i++) sum += f[i] = Math.exp(f[i] - most);
    for (let i = 0; i < n; i++) f[i] /= sum;
  }

  function mix(weights, values, out, S, L) {
    const f = view();
    for (let l = 0; l < L; l++) {
      let sum = 0;
      for (let s = 0; s < S; s++) sum += f[weights / 4 + s] * f[values / 4 + s * L + l];
      f[out / 4 + l] = sum;
    }
  }

  function attend(q, k, v, bias, weights, out, S, K, L, scale) {
    product(k, q, weights, S, K, 1);
    softmax(weights, bias, S, scale);
    mix(weights, v, out, S, L);
  }

  return { product, product8, softmax, mix, attend };
}
