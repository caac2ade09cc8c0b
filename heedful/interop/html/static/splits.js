// Pre-tokenizers: where a text is cut before its pieces are looked up, by their names in tokenizer.json.
import { GPT2, regexOf } from './regexes.js';

const PUNCTUATION = /[!-/:-@[-`{-~\p{P}]/u;

/** GPT-2's letters for bytes: those that can be seen stand for themselves, the others follow from 256 on. */
export const BYTE_LETTERS = (() => {
  const seen = (b) => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCodePoint(seen(b) ? b : next++));
})();

const encoder = new TextEncoder();

const SPLITS = {
  Sequence: ({ pretokenizers }, pieces) => pretokenizers.reduce((found, one) => split(one, found), pieces),
  Split: ({ pattern, behavior }, pieces) => {
    const regex = pattern.String === undefined ? regexOf(pattern.Regex) : literal(pattern.String);
    return pieces.flatMap((piece) => cut(piece, regex, behavior === 'Removed'));
  },
  ByteLevel: ({ add_prefix_space, use_regex }, pieces) =>
    pieces
      .map((piece) => (add_prefix_space && !piece.startsWith(' ') ? ` ${piece}` : piece))
      .flatMap((piece) => (use_regex === false ? [piece] : cut(piece, regexOf(GPT2), false)))
      .map((piece) => Array.from(encoder.encode(piece), (byte) => BYTE_LETTERS[byte]).join('')),
  BertPreTokenizer: (_, pieces) =>
    pieces.flatMap((piece) => cut(piece, /\p{White_Space}/gu, true)).flatMap((piece) => atEach(piece, PUNCTUATION)),
  Digits: ({ individual_digits }, pieces) =>
    pieces.flatMap((piece) => cut(piece, individual_digits ? /\p{N}/gu : /\p{N}+/gu, false)),
  WhitespaceSplit: (_, pieces) => pieces.flatMap((piece) => cut(piece, /\p{White_Space}+/gu, true)),
};

/** Pieces after a pre-tokenizer, or as they are without one. */
export function split(part, pieces) {
  return part ? SPLITS[part.type](part, pieces) : pieces;
}

const literal = (text) => new RegExp(text.replace(/[.*+?^${}()|[\]\\/-]/g, '\\$&'), 'gu');

/** The matches of a pattern and what stands between them, in order. */
function cut(text, regex, removed) {
  const found = [];
  let end = 0;
  for (const { 0: match, index } of text.matchAll(regex)) {
    if (!match) continue;
    if (index > end) found.push(text.slice(end, index));
    if (!removed) found.push(match);
    end = index + match.length;
  }
  if (end < text.length) found.push(text.slice(end));
  return found;
}

/** Cut before and after every character of a kind. */
function atEach(text, kind) {
  const found = [];
  let word = '';
  for (const one of text) {
    if (!kind.test(one)) word += one;
    else {
      if (word) found.push(word);
      found.push(one);
      word = '';
    }
  }
  return word ? [...found, word] : found;
}
