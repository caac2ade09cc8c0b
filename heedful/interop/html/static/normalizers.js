// Normalizers: what a tokenizer changes in a text before it cuts it, by their names in tokenizer.json.
import { regexOf } from './regexes.js';

const SPACE = /\p{White_Space}/u;
const HAN = [
  [0x4e00, 0x9fff], [0x3400, 0x4dbf], [0x20000, 0x2a6df], [0x2a700, 0x2b73f], [0x2b740, 0x2b81f],
  [0x2b920, 0x2ceaf], [0xf900, 0xfaff], [0x2f800, 0x2fa1f],
];

/** Lower case character by character: a sigma at the end of a word is like any other. */
export const lower = (text) => Array.from(text, (one) => one.toLowerCase()).join('');

const NORMALIZERS = {
  Sequence: ({ normalizers }, text) => normalizers.reduce((found, one) => normalize(one, found), text),
  Lowercase: (_, text) => lower(text),
  NFC: (_, text) => text.normalize('NFC'),
  NFD: (_, text) => text.normalize('NFD'),
  NFKC: (_, text) => text.normalize('NFKC'),
  NFKD: (_, text) => text.normalize('NFKD'),
  StripAccents: (_, text) => text.replace(/\p{M}/gu, ''),
  Strip: ({ strip_left, strip_right }, text) => {
    const left = strip_left ? text.replace(/^\p{White_Space}+/u, '') : text;
    return strip_right ? left.replace(/\p{White_Space}+$/u, '') : left;
  },
  Prepend: ({ prepend }, text) => (text ? prepend + text : text),
  Replace: ({ pattern, content }, text) =>
    pattern.String === undefined
      ? text.replace(regexOf(pattern.Regex), () => content)
      : text.split(pattern.String).join(content),
  BertNormalizer: bert,
};

/** A text after a normalizer, or as it is without one. */
export function normalize(part, text) {
  return part ? NORMALIZERS[part.type](part, text) : text;
}

function bert({ clean_text, handle_chinese_chars, strip_accents, lowercase }, text) {
  let found = text;
  if (clean_text) found = Array.from(found, cleaned).join('');
  if (handle_chinese_chars) found = Array.from(found, (one) => (isHan(one) ? ` ${one} ` : one)).join('');
  if (strip_accents ?? lowercase) found = found.normalize('NFD').replace(/\p{Mn}/gu, '');
  return lowercase ? lower(found) : found;
}

/** Spaces of every kind become one kind; what cannot be seen goes. */
function cleaned(one) {
  if (/[\t\n\r]/.test(one)) return ' ';
  if (one === '\0' || one === '\ufffd' || /[\p{Cc}\p{Cf}\p{Co}\p{Cs}]/u.test(one)) return '';
  return SPACE.test(one) ? ' ' : one;
}

function isHan(one) {
  const code = one.codePointAt(0);
  return HAN.some(([first, last]) => first <= code && code <= last);
}
