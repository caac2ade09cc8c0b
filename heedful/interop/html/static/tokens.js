// Tokens: texts to numbers and back, as the library `tokenizers` does by the same tokenizer.json.
import { decodeBy } from './decoders.js';
import { normalize } from './normalizers.js';
import { split } from './splits.js';
import { vocabularyOf } from './vocabularies.js';

const WORD = /[\p{L}\p{N}_]/u;

/** A tokenizer. `before` and `after` are the numbers of what it puts around a text. */
export class Tokenizer {
  constructor(spec) {
    this.spec = spec;
    this.lookUp = vocabularyOf(spec.model);
    this.names = new Map(Object.entries(spec.model.vocab).map(([token, number]) => [number, token]));
    this.numbers = new Map(Object.entries(spec.model.vocab));
    for (const { id, content } of spec.added_tokens) {
      this.names.set(id, content);
      this.numbers.set(content, id);
    }
    this.special = new Set(spec.added_tokens.filter((one) => one.special).map((one) => one.id));
    const marks = spec.added_tokens.filter((one) => !(one.special && spec.special_as_text));
    this.raw = finder(marks.filter((one) => !one.normalized), (text) => text);
    this.late = finder(marks.filter((one) => one.normalized), (text) => normalize(spec.normalizer, text));
  }

  /** Numbers of a text, without what stands around it. */
  encode(text) {
    return this.raw(text).flatMap((piece) => (piece.id === undefined ? this.encodeBetween(piece.text) : [piece.id]));
  }

  /** Numbers of what stands between tokens that are found before normalization. */
  encodeBetween(text) {
    const ofPiece = (piece) => split(this.spec.pre_tokenizer, [piece]).flatMap((one) => this.lookUp(one));
    return this.late(normalize(this.spec.normalizer, text)).flatMap((piece) =>
      piece.id === undefined ? ofPiece(piece.text) : [piece.id],
    );
  }

  /** The same with the special tokens around it. open: without those after it, of a text that goes on. */
  encodeWhole(text, open = false) {
    return [...this.spec.before, ...this.encode(text), ...(open ? [] : this.spec.after)];
  }

  /** The text of numbers; special tokens say nothing. */
  decode(ids) {
    const said = ids.filter((id) => !this.special.has(id) && this.names.has(id));
    return decodeBy(this.spec.decoder, said.map((id) => this.names.get(id))).join('');
  }

  /** A token as one reads it, with the space before it. */
  word(id) {
    return this.decode([id]) || this.names.get(id) || `<${id}>`;
  }
}

/** A function that finds added tokens in a text: pieces {text}, and {id} where one stands. */
function finder(tokens, spelled) {
  const known = tokens.map((one) => ({ ...one, spelling: spelled(one.content) })).filter((one) => one.spelling);
  known.sort((a, b) => b.spelling.length - a.spelling.length);
  return (text) => {
    const found = [];
    let rest = 0;
    for (let at = 0; at < text.length; ) {
      const here = known.find((one) => text.startsWith(one.spelling, at) && stands(one, text, at));
      if (!here) {
        at++;
        continue;
      }
      const before = here.lstrip ? text.slice(rest, at).replace(/\p{White_Space}+$/u, '') : text.slice(rest, at);
      if (before) found.push({ text: before });
      found.push({ id: here.id });
      at += here.spelling.length;
      if (here.rstrip) at += /^\p{White_Space}*/u.exec(text.slice(at))[0].length;
      rest = at;
    }
    if (rest < text.length) found.push({ text: text.slice(rest) });
    return found;
  };
}

/** Whether a token that is only a whole word stands as one. */
function stands({ single_word, spelling }, text, at) {
  const end = at + spelling.length;
  return !single_word || !(WORD.test(text[at - 1] ?? ' ') || WORD.test(text[end] ?? ' '));
}
