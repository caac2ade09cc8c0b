// Vocabularies: from a piece of text to the numbers of its tokens, by their names in tokenizer.json.

/** A function from a piece to numbers. */
export function vocabularyOf(model) {
  const numbers = new Map(Object.entries(model.vocab));
  return KINDS[model.type](model, numbers);
}

const KINDS = { BPE: pairs, WordPiece: pieces, WordLevel: words };

function words({ unk_token }, numbers) {
  const unknown = numbers.get(unk_token);
  return (piece) => {
    const found = numbers.get(piece) ?? unknown;
    return found === undefined ? [] : [found];
  };
}

/** The longest known pieces of a word, left to right; a word with an unknown part is unknown. */
function pieces({ unk_token, continuing_subword_prefix, max_input_chars_per_word }, numbers) {
  const unknown = numbers.get(unk_token);
  return (word) => {
    const letters = Array.from(word);
    if (letters.length > max_input_chars_per_word) return [unknown];
    const found = [];
    for (let from = 0; from < letters.length; ) {
      let to = letters.length;
      const named = () => (from ? continuing_subword_prefix : '') + letters.slice(from, to).join('');
      while (to > from && !numbers.has(named())) to--;
      if (to === from) return [unknown];
      found.push(numbers.get(named()));
      from = to;
    }
    return found;
  };
}

/** Byte-pair encoding: the letters of a piece, and the merge that was learned first, again and again. */
function pairs(model, numbers) {
  const size = numbers.size + 1;
  const ranks = new Map();
  model.merges.forEach(([a, b], rank) => {
    ranks.set(numbers.get(a) * size + numbers.get(b), [rank, numbers.get(a + b)]);
  });
  const known = new Map();
  return (piece) => {
    if (!known.has(piece)) {
      const whole = model.ignore_merges ? numbers.get(piece) : undefined;
      known.set(piece, whole === undefined ? merged(letters(model, numbers, piece), ranks, size) : [whole]);
    }
    return known.get(piece);
  };
}

/** The number of each letter; of an unknown one those of its bytes, or the unknown token's. */
function letters(model, numbers, piece) {
  const unknown = numbers.get(model.unk_token);
  const found = [];
  let before = false; // whether the letter before was unknown
  for (const letter of piece) {
    const number = numbers.get(letter);
    const bytes = number === undefined && model.byte_fallback ? bytesOf(letter, numbers) : null;
    if (number !== undefined) found.push(number);
    else if (bytes) found.push(...bytes);
    else if (unknown !== undefined && !(model.fuse_unk && before)) found.push(unknown);
    before = number === undefined && !bytes;
  }
  return found;
}

function bytesOf(letter, numbers) {
  const named = (byte) => numbers.get(`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`);
  const found = Array.from(new TextEncoder().encode(letter), named);
  return found.includes(undefined) ? null : found;
}

function merged(ids, ranks, size) {
  const found = ids.slice();
  while (found.length > 1) {
    let best = null;
    let at = -1;
    for (let i = 0; i + 1 < found.length; i++) {
      const rule = ranks.get(found[i] * size + found[i + 1]);
      if (rule && (!best || rule[0] < best[0])) {
        best = rule;
        at = i;
      }
    }
    if (!best) break;
    found.splice(at, 2, best[1]);
  }
  return found;
}
