"""Tokenizers found in a model folder, read through Hugging Face `tokenizers`.

A tokenizer.json may carry regular expressions, and a hostile one can run for hours on a short text while
holding the interpreter; or steps that make a short text endless. So only what published models use is accepted.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadInput
from ..models.huggingface import read_unless_null
from .files import MEGABYTE, inside, naming, present, read_json, read_text, short

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
TARGET_TOKENIZER = "target_tokenizer.json"  # of a run whose source and target have a vocabulary each
LIMIT = 24 * MEGABYTE  # LLaMA 3 has 17; reading one takes twenty times as much memory
GROWTH = 64  # bytes for one character: the longest in Unicode's own tables are 33

# A step of another kind would be read as whichever it resembles.
STEPS = (
    "BertNormalizer", "BertPreTokenizer", "BertProcessing", "BPEDecoder", "ByteFallback", "ByteLevel", "Digits",
    "CharDelimiterSplit", "Fuse", "Lowercase", "Metaspace", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled",
    "Prepend", "Punctuation", "Replace", "RobertaProcessing", "Sequence", "Split", "Strip", "StripAccents",
    "TemplateProcessing", "UnicodeScripts", "Whitespace", "WhitespaceSplit", "WordPiece",
)  # fmt: skip
SEQUENCES = ("normalizers", "pretokenizers", "processors", "decoders")
REPEATED = ("Sequence", "Split", "Replace")  # others come once: twice, they could make a text grow and grow

# Split and Replace patterns of published tokenizers (GPT-2 and its heirs, LLaMA 3, T5), and our own.
KNOWN_PATTERNS = (
    r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]",
    r" ?\S+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r" {2,}",
    r"\s+",
    r"\s",
    r"\d",
    r"[0-9]",
    r"\p{N}",
    r"\n",
)


def read_tokenizer(folder: Path, rows: int | None = None) -> Tokenizer | None:
    """The folder's tokenizer: tokenizer.json, or the vocabulary files of GPT-1, GPT-2 or BERT; None if none is there.

    rows: how many tokens the model knows; one with a higher number is refused.
    """
    for names, read in READERS.items():
        if all(present(folder / name) for name in names):
            paths = [inside(folder, name) for name in names]
            return guarded(paths[0], rows, partial(read, *paths))
    return None


def guarded(path: Path, rows: int | None, make: Callable[[], Tokenizer]) -> Tokenizer:
    """Run what reads a tokenizer; the library's panics are not Exceptions, so catch those too."""
    try:
        tokenizer = make()
        check_ids(path, tokenizer, rows)
        return tokenizer
    except (BadInput, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001
        why = str(error).partition(" at line ")[0]
        raise BadInput(f"{path} is not a tokenizer that can be read: {why}") from None


def check_ids(path: Path, tokenizer: Tokenizer, rows: int | None) -> None:
    """Every token has a number of its own, and the model knows it."""
    vocab = tokenizer.get_vocab(with_added_tokens=True)
    if len(set(vocab.values())) < len(vocab):
        number, times = Counter(vocab.values()).most_common(1)[0]
        raise BadInput(f"{path} gives the number {number} to {times} tokens")
    largest = max([*vocab.values(), *tokenizer.encode("", "").ids], default=0)  # of a text's ends, too
    if rows is not None and largest >= rows:
        raise BadInput(f"{path} has a token number {largest}, but the model knows only {rows} tokens")


# tokenizer.json


def read_whole(path: Path) -> Tokenizer:
    """What a tokenizer.json describes, without its wish to pad or to cut texts."""
    from tokenizers import Tokenizer

    spec = read_json(path, LIMIT)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        check_steps(path, part, spec.get(part))
    tokenizer = Tokenizer.from_str(json.dumps(spec))  # what was checked, whatever the file says twice
    for token in spec.get("added_tokens") or []:
        found = tokenizer.token_to_id(token["content"])
        if found != token["id"]:
            raise BadInput(
                f"{path} gives {short(token['content'])} the number {token['id']}, where {found} is due"
            )
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def check_steps(path: Path, part: str, spec: Any) -> None:
    """Refuse what no published tokenizer does: slow patterns, and steps that make texts grow without end."""
    for node in objects(spec):
        if "Regex" in node and node["Regex"] not in KNOWN_PATTERNS:
            raise BadInput(
                f"{path} splits text by the regular expression {short(node['Regex'])}, which no published "
                f"tokenizer uses: such patterns can hang on short texts, so it is not read"
            )
    kinds: set[str] = set()
    for step in steps(spec):
        kind = step.get("type") if isinstance(step, dict) else None
        if kind not in STEPS:
            raise BadInput(f"{path} has a {part} of kind {short(kind)}, which no published tokenizer has")
        if grows(step) or (kind in kinds and kind not in REPEATED):
            raise BadInput(f"{path} has a {part} that can make a short text endless, so it is not read")
        kinds.add(kind)


def steps(step: Any) -> Iterator[Any]:
    """A step, and if it is a sequence the steps of it."""
    pending = [] if step is None else [step]
    while pending:
        step = pending.pop()
        yield step  # the caller refuses what is not an object
        lists = [step[key] for key in SEQUENCES if isinstance(step.get(key), list)]
        pending.extend(inner for found in lists for inner in found)


def grows(step: dict[str, Any]) -> bool:
    """Whether a step may put a long text in place of a character, or anything in place of nothing."""
    put = str(step.get("content", step.get("prepend", "")))
    from_nothing = step.get("pattern") == {"String": ""}
    return from_nothing or len(put) > 1 or longest_entry(step.get("precompiled_charsmap")) > GROWTH


def longest_entry(charsmap: Any) -> int:
    """The most bytes that a sentencepiece table (a trie's size, the trie, texts) puts in place of a character."""
    table = base64.b64decode(str(charsmap or ""))
    return max(map(len, table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")))


def objects(node: Any) -> Iterator[dict[str, Any]]:
    """Every {...} in a piece of JSON, however deep."""
    pending = [node]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


# Vocabulary files


def read_bpe(vocab: Path, merges: Path) -> Tokenizer:
    """Letters merged by rank: GPT-2's letters are bytes; GPT-1's are lower case, with "</w>" after a word's last."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    numbers, ranks = read_numbers(vocab), read_merges(merges)
    if any(token.endswith("</w>") for token in numbers):
        tokenizer = Tokenizer(models.BPE(numbers, ranks, unk_token="<unk>", end_of_word_suffix="</w>"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    else:
        tokenizer = Tokenizer(models.BPE(numbers, ranks))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    add_special(tokenizer, ["<|endoftext|>", "<unk>"])
    return tokenizer


def read_numbers(path: Path) -> dict[str, int]:
    """{token: its number}."""
    numbers = read_json(path, LIMIT)
    for token, number in numbers.items():
        if type(number) is not int or not 0 <= number < 2**32:
            raise BadInput(
                f"{path} gives {short(token)} the number {short(number)}; they go from 0 to 2^32 - 1"
            )
    return numbers


def read_merges(path: Path) -> list[tuple[str, str]]:
    """Pairs of pieces, most frequent first."""
    pairs = [line.split(" ") for line in lines(path) if line and not line.startswith("#version")]
    for pair in pairs:
        if len(pair) != 2:
            raise BadInput(f"{path} has the line {short(' '.join(pair))}, where two pieces are expected")
    return [(a, b) for a, b in pairs]


def read_word_piece(path: Path) -> Tokenizer:
    """BERT's: words cut into the longest known pieces; lower case unless tokenizer_config.json says otherwise."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    tokens = lines(path)
    vocab = {token: number for number, token in enumerate(tokens)}
    for token in ("[UNK]", "[CLS]", "[SEP]"):
        if token not in vocab:
            raise BadInput(f"{path} has no {token}, without which BERT reads nothing")
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(**read_cleaning(path.with_name(TOKENIZER_CONFIG)))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocab[token]) for token in ("[CLS]", "[SEP]")],
    )
    add_special(tokenizer, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    return tokenizer


def read_cleaning(path: Path) -> dict[str, bool]:
    """How BERT cleans texts, for the library; without accents where without capitals, unless said otherwise."""
    theirs = read_json(inside(path.parent, path.name)) if present(path) else {}
    with naming(path):
        lower = read_unless_null(theirs, "do_lower_case", True)
        return {
            "lowercase": lower,
            "strip_accents": read_unless_null(theirs, "strip_accents", lower),
            "handle_chinese_chars": read_unless_null(theirs, "tokenize_chinese_chars", True),
        }


def add_special(tokenizer: Tokenizer, tokens: list[str]) -> None:
    """Tokens that are never cut up, where the vocabulary has them."""
    tokenizer.add_special_tokens([token for token in tokens if tokenizer.token_to_id(token) is not None])


def lines(path: Path) -> list[str]:
    """The lines of a text; only a newline ends one, since a token may hold any other space."""
    found = read_text(path, LIMIT).replace("\r\n", "\n").split("\n")
    return found if found[-1] else found[:-1]


READERS: dict[tuple[str, ...], Callable[..., Tokenizer]] = {
    (TOKENIZER,): read_whole,
    ("vocab.json", "merges.txt"): read_bpe,
    ("vocab.txt",): read_word_piece,
}
