// Patterns of tokenizers as JavaScript's regular expressions.
//
// Only patterns that heedful knows are in a page: those of other people can run for hours on a short text.

const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const IN_JAVASCRIPT = "(?:'[sS\u017f]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
export const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const made = new Map();

/** A pattern with Unicode's own white space, which JavaScript's \s is not. */
export function regexOf(pattern) {
  if (!made.has(pattern)) {
    const written = pattern
      .replace(CONTRACTIONS, IN_JAVASCRIPT)
      .replace(/\\s/g, '\\p{White_Space}')
      .replace(/\\S/g, '\\P{White_Space}');
    made.set(pattern, new RegExp(written, 'gu'));
  }
  return made.get(pattern);
}
