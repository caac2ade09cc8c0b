// Weights: from the text of the page to numbers in memory.
//
// The page has one block of bytes, deflated and in base64: the low bytes of all float16 numbers, their high bytes,
// and int8 rows with a float32 scale for each after their numbers. float16 becomes float32 in memory; int8 stays.

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
  const sizes = described.map(({ shape }) => shape.reduce((a, b) => a * b, 1));
  const halves = sizes.reduce((sum, size, i) => sum + (described[i].kind === 'int8' ? 0 : size), 0);
  const table = halfTable();
  let low = 0;
  let rest = 2 * halves;
  return described.map(({ shape, kind }, n) => {
    const columns = shape[shape.length - 1];
    const rows = sizes[n] / columns;
    if (kind !== 'int8') {
      const at = kernels.take(4 * sizes[n]);
      const out = kernels.f32.subarray(at / 4, at / 4 + sizes[n]);
      for (let i = 0; i < out.length; i++, low++) out[i] = table[bytes[low] | (bytes[halves + low] << 8)];
      return { at, rows, columns, scales: 0 };
    }
    const at = kernels.take(sizes[n]);
    const scales = kernels.take(4 * rows);
    const after = rest + sizes[n];
    kernels.i8.set(bytes.subarray(rest, after), at);
    kernels.f32.set(new Float32Array(bytes.slice(after, after + 4 * rows).buffer), scales / 4);
    rest = after + 4 * rows;
    return { at, rows, columns, scales };
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
