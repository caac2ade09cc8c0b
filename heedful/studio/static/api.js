/**
 * Asking the studio's server: JSON, bytes as typed arrays, events. Answers are kept, since a trace never changes;
 * `used()` lists those of the view, and a page exported as one HTML file answers itself from them.
 */
import { hooks } from './html.js';
import { words } from './words.js';

const MOST = 48 * 2 ** 20; // bytes of answers that are kept
const kept = new Map(); // key -> {json, size} | {buffer, shape, dtype, size}; the most recent is last
let weight = 0;
let touched = new Set();

const embedded = document.getElementById('recorded');
/** {hash, answers} inside an exported page, else null. */
export const recorded = embedded ? JSON.parse(embedded.textContent) : null;

/** A failure that people may read. */
export function trouble(message) {
  return Object.assign(new Error(message), { readable: true });
}

export function sentence(error) {
  return error?.readable ? error.message : `${words.failed} (${error?.message ?? error})`;
}

function keyOf(path, body) {
  return body === undefined ? `GET ${path}` : `POST ${path} ${JSON.stringify(body)}`;
}

function forget(key) {
  weight -= kept.get(key)?.size ?? 0;
  kept.delete(key);
}

function keep(key, answer) {
  const size = answer.size ?? answer.buffer?.byteLength ?? JSON.stringify(answer.json).length;
  forget(key);
  if (size > MOST) return;
  weight += size;
  kept.set(key, { ...answer, size });
  for (const old of kept.keys()) {
    if (weight <= MOST) break;
    forget(old);
  }
}

/** Keep an answer that came piece by piece. */
export function keepJson(key, value) {
  touched.add(key);
  keep(key, { json: value });
}

/** Such an answer, or null. */
export function keptJson(key) {
  touched.add(key);
  return (recorded ? recorded.answers[key] : kept.get(key))?.json ?? null;
}

/** A page opens: forget which answers were used, except those that every page needs. */
export function turnPage() {
  touched = new Set([...touched].filter((key) => /^(GET \/api\/runs(\/\w+\/about)?|POST \/api\/trace .*)$/.test(key)));
}

/** The answers of the view, for an export. */
export function used() {
  return Object.fromEntries([...touched].filter((key) => kept.has(key)).map((key) => [key, kept.get(key)]));
}

async function request(path, { body, signal, method } = {}) {
  let response;
  try {
    const sent = body !== undefined && { method: method ?? 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
    response = await fetch(path, { ...sent, signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw trouble(words.unreachable);
  }
  if (response.ok) return response;
  let message = await response.text();
  try {
    const { error } = JSON.parse(message);
    message = error?.message ?? error ?? message;
  } catch {
    // a plain text is its own message
  }
  throw trouble(message || `${words.refused} (${response.status})`);
}

/** An answer inside an exported page. */
function fromRecord(key) {
  const answer = recorded.answers[key];
  if (!answer) throw trouble(words.notRecorded);
  if (answer.base64 === undefined) return answer;
  const text = atob(answer.base64);
  const data = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) data[i] = text.charCodeAt(i);
  return { buffer: data.buffer, shape: answer.shape, dtype: answer.dtype };
}

async function answer(path, options, read, keeps) {
  const key = keyOf(path, options.body);
  touched.add(key);
  if (recorded) return fromRecord(key);
  const value = (keeps && kept.get(key)) || await read(await request(path, options));
  keep(key, value);
  return value;
}

/** JSON of a GET, or of a POST if there is a body. `fresh` asks again although an answer is kept; `once` keeps none. */
export async function json(path, options = {}) {
  if (options.once || (options.method && options.method !== 'GET')) return (await request(path, options)).json();
  const read = async (response) => ({ json: await response.json() });
  return (await answer(path, options, read, !options.fresh)).json;
}

/** A tensor: {data, shape}. `data` is a Uint8Array (u8) or a Float32Array (f16, f32). */
export async function tensor(path, options = {}) {
  const read = async (response) => ({
    buffer: await response.arrayBuffer(),
    shape: response.headers.get('x-shape').split(',').map(Number),
    dtype: response.headers.get('x-dtype') ?? 'f32',
  });
  const { buffer, shape, dtype } = await answer(path, options, read, true);
  const Type = { u8: Uint8Array, f32: Float32Array }[dtype];
  return { data: Type ? new Type(buffer) : halves(new Uint16Array(buffer)), shape };
}

/** A tensor of a trace by its name and place. */
export function traced(trace, place, signal) {
  return tensor(url(`/api/trace/${trace.id}/tensor`, place), { signal });
}

function halves(bits) {
  if (globalThis.Float16Array) return new Float32Array(new globalThis.Float16Array(bits.buffer));
  const out = new Float32Array(bits.length);
  for (let i = 0; i < bits.length; i += 1) {
    const [sign, power, rest] = [bits[i] & 0x8000 ? -1 : 1, (bits[i] >> 10) & 31, bits[i] & 1023];
    if (power === 31) out[i] = rest ? NaN : sign * Infinity;
    else out[i] = sign * (power ? (1 + rest / 1024) * 2 ** (power - 15) : rest * 2 ** -24);
  }
  return out;
}

/** The data of the server's events (SSE), read by fetch so that a POST can have them. */
export async function* events(path, options = {}) {
  if (recorded) throw trouble(words.notRecorded);
  const response = await request(path, options);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).replaceAll('\r\n', '\n').split('\n\n');
      rest = blocks.pop();
      for (const block of blocks) {
        const data = block.split('\n').flatMap((line) => /^data: ?(.*)$/.exec(line)?.slice(1) ?? []).join('\n');
        if (data && data !== '[DONE]') yield JSON.parse(data);
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * {value, error, busy} of `load(signal)`, asked again when `deps` change. The last value stays while the next one is
 * on its way. If `load` is null, nothing is asked.
 */
export function useAnswer(load, deps) {
  const [state, setState] = hooks.useState({ value: null, error: '', busy: Boolean(load) });
  hooks.useEffect(() => {
    if (!load) {
      setState({ value: null, error: '', busy: false });
      return undefined;
    }
    const control = new AbortController();
    const settle = (next) => control.signal.aborted || setState(next);
    setState((old) => ({ ...old, error: '', busy: true }));
    load(control.signal).then(
      (value) => settle({ value, error: '', busy: false }),
      (error) => settle({ value: null, error: sentence(error), busy: false }),
    );
    return () => control.abort();
  }, deps);
  return state;
}

/** The answer to a POST; without a body, nothing is asked. */
export function useJson(path, body) {
  return useAnswer(body ? (signal) => json(path, { body, signal }) : null, [JSON.stringify(body)]);
}

export function url(path, query) {
  return `${path}?${new URLSearchParams(query)}`;
}
