// Weights: from the text of the page to numbers in memory.
//
// The page has one block of bytes, deflated and in base64. A tensor is float16, or int8 with a float32 scale for
// each row after its numbers. float16 becomes float32 in memory; int8 stays.

/** The bytes of a text in base64. */
export function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

/** The bytes before they were deflated. */
export async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Every tensor in memory: {at, rows, columns, scales}; `scales` is 0 where it holds float32. */
export function placeTensors(kernels, described, bytes) {
  const table = halfTable();
  let from = 0;
  return described.map(({ shape, kind }) => {
    const columns = shape[shape.length - 1];
    const rows = shape.slice(0, -1).reduce((a, b) => a * b, 1);
    const size = rows * columns;
    if (kind === 'int8') {
      const at = kernels.take(size);
      const scales = kernels.take(4 * rows);
      kernels.i8.set(bytes.subarray(from, from + size), at);
      const floats = new Float32Array(bytes.slice(from + size, from + size + 4 * rows).buffer);
      kernels.f32.set(floats, scales / 4);
      from += size + 4 * rows;
      return { at, rows, columns, scales };
    }
    const at = kernels.take(4 * size);
    const half = new Uint16Array(bytes.slice(from, from + 2 * size).buffer);
    const out = kernels.f32.subarray(at / 4, at / 4 + size);
    for (let i = 0; i < size; i++) out[i] = table[half[i]];
    from += 2 * size;
    return { at, rows, columns, scales: 0 };
  });
}

/** What each of the 65,536 float16 numbers is. */
export function halfTable() {
  const table = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    let value = exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : fraction * 2 ** -24;
    if (exponent === 31) value = fraction ? NaN : Infinity;
    table[bits] = bits & 32768 ? -value : value;
  }
  return table;
}

/** A row of a tensor, written to a place in memory, times a factor. */
export function copyRow(kernels, tensor, row, to, factor = 1) {
  const f = kernels.f32;
  const { columns, scales } = tensor;
  if (scales) {
    const scale = f[scales / 4 + row];
    const from = tensor.at + row * columns;
    for (let c = 0; c < columns; c++) f[to / 4 + c] = Math.fround(kernels.i8[from + c] * scale) * factor;
    return;
  }
  const from = tensor.at / 4 + row * columns;
  for (let c = 0; c < columns; c++) f[to / 4 + c] = f[from + c] * factor;
}
