// Decoders: from tokens back to text, by their names in tokenizer.json.
import { BYTE_LETTERS } from './splits.js';

const BYTES = new Map(BYTE_LETTERS.map((letter, byte) => [letter, byte]));
const CLEANUP = [
  [' .', '.'], [' ?', '?'], [' !', '!'], [' ,', ','], [" ' ", "'"], [" n't", "n't"], [" 'm", "'m"],
  [' do not', " don't"], [" 's", "'s"], [" 've", "'ve"], [" 're", "'re"],
];

const utf8 = (bytes) => new TextDecoder('utf-8', { ignoreBOM: true }).decode(Uint8Array.from(bytes));

const DECODERS = {
  Sequence: ({ decoders }, tokens) => decoders.reduce((found, one) => decodeBy(one, found), tokens),
  Fuse: (_, tokens) => [tokens.join('')],
  ByteLevel: (_, tokens) => [utf8(tokens.flatMap(bytesOfToken))],
  ByteFallback: byteFallback,
  Strip: ({ content, start, stop }, tokens) => tokens.map((token) => stripped(token, content, start, stop)),
  Replace: ({ pattern, content }, tokens) => tokens.map((token) => token.split(pattern.String).join(content)),
  WordPiece: ({ prefix, cleanup }, tokens) =>
    tokens.map((token, i) => {
      const joined = i && token.startsWith(prefix) ? token.slice(prefix.length) : i ? ` ${token}` : token;
      return cleanup ? CLEANUP.reduce((text, [a, b]) => text.split(a).join(b), joined) : joined;
    }),
};

/** Tokens after a decoder; without one, a space stands between them. */
export function decodeBy(part, tokens) {
  return part ? DECODERS[part.type](part, tokens) : tokens.map((token, i) => (i ? ` ${token}` : token));
}

/** The bytes of a token's letters; a token with another letter is a text itself. */
function bytesOfToken(token) {
  const found = Array.from(token, (letter) => BYTES.get(letter));
  return found.includes(undefined) ? Array.from(new TextEncoder().encode(token)) : found;
}

/** Tokens such as <0x0A> as the text that their bytes are, or a question mark for each. */
function byteFallback(_, tokens) {
  const found = [];
  let bytes = [];
  const flush = () => {
    const text = utf8(bytes);
    if (bytes.length) found.push(text.includes('\ufffd') ? '\ufffd'.repeat(bytes.length) : text);
    bytes = [];
  };
  for (const token of tokens) {
    const byte = /^<0x([0-9A-Fa-f]{2})>$/.exec(token);
    if (byte) bytes.push(parseInt(byte[1], 16));
    else {
      flush();
      found.push(token);
    }
  }
  flush();
  return found;
}

function stripped(token, content, start, stop) {
  let found = token;
  for (let i = 0; i < start && found.startsWith(content); i++) found = found.slice(content.length);
  for (let i = 0; i < stop && found.endsWith(content); i++) found = found.slice(0, -content.length);
  return found;
}
