"""Tokenizers found in a model folder, read through Hugging Face `tokenizers`.

A tokenizer.json may carry regular expressions, and a hostile one can run for hours on a short text while
holding the interpreter; or steps that make a short text endless. So only what published models use is read.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import BadInput
from ...files import MEGABYTE, inside, objects, present, read_json, read_text, short
from .beside import cleaning, with_settings
from .language_files import m2m100, of_languages
from .marian import marian
from .pipelines import around, need, read_whole_model
from .sentencepiece import check_tree, read_pieces
from .token_settings import TokenizerSettings, add_tokens, mask_takes_space, put_ends

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Found = TypeVar("Found", bound="Tokenizer | None")

TOKENIZER = "tokenizer.json"
TARGET_TOKENIZER = "target_tokenizer.json"  # of a run whose source and target have a vocabulary each
LIMIT = 48 * MEGABYTE  # Gemma 3 has 33; reading one takes twenty times as much memory
GROWTH = 64  # bytes for one character: the longest in Unicode's own tables are 33

# A step of another kind would be read as whichever it resembles.
STEPS = (
    "BertNormalizer", "BertPreTokenizer", "BertProcessing", "BPEDecoder", "ByteFallback", "ByteLevel",
    "CharDelimiterSplit", "Digits", "Fuse", "Lowercase", "Metaspace", "NFC", "NFD", "NFKC", "NFKD", "Nmt",
    "Precompiled", "Prepend", "Punctuation", "Replace", "RobertaProcessing", "Sequence", "Split", "Strip",
    "StripAccents", "TemplateProcessing", "UnicodeScripts", "Whitespace", "WhitespaceSplit", "WordPiece",
)  # fmt: skip
SEQUENCES = ("normalizers", "pretokenizers", "processors", "decoders")
REPEATED = ("Sequence", "Split", "Replace")  # others come once: twice, they could make a text grow and grow

CONTRACTIONS, LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"[^\r\n\p{L}\p{N}]?\p{L}+"
OTHERS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + "|" + LETTERS + r"|\p{N}{1,3}|" + OTHERS
QWEN2 = CONTRACTIONS + "|" + LETTERS + r"|\p{N}|" + OTHERS

# Split and Replace patterns of published tokenizers (GPT-2 and its heirs, LLaMA 3, T5), and our own.
KNOWN_PATTERNS = (
    r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]",
    r" ?\S+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    LLAMA3,
    QWEN2,
    r" {2,}",
    r"\A ",
    r"(?<![ ▁])[ ▁]+\z",
    r"\s{2,}|[\n\r\t]",
    r"\s+",
    r"\s",
    r"\d",
    r"[0-9]",
    r"\p{N}",
    r"\n",
)

ROBERTA = ("roberta", "bart", "longformer", "led")
MPNET = {"bos": "<s>", "eos": "</s>", "unk": "[UNK]", "sep": "</s>", "pad": "<pad>", "cls": "<s>"} | {
    "mask": "<mask>"
}
BERT = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}

Ids = dict[str, int]
Ranks = list[tuple[str, str]]


def read_tokenizer(folder: Path, rows: int | None = None) -> Tokenizer | None:
    """The folder's tokenizer: tokenizer.json, or the vocabulary files of an older one; None if none is there.

    rows: how many tokens the model knows; one with a higher number is refused.
    """
    for names, read in READERS.items():
        if all(present(folder / name) for name in names):
            paths = [inside(folder, name) for name in names]
            settings = TokenizerSettings(folder)
            return guarded(paths[0], rows, lambda: read(paths, settings, rows))  # noqa: B023
    return None


def read_target(folder: Path, rows: int | None = None) -> Tokenizer | None:
    """The tokenizer of a model's output, if it has its own: a second tokenizer.json, or Marian's."""
    if not all(present(folder / name) for name in MARIAN):
        return read_alone(folder, TARGET_TOKENIZER, rows) if present(folder / TARGET_TOKENIZER) else None
    settings, path = TokenizerSettings(folder), inside(folder, MARIAN[1])
    name = "target_vocab.json" if settings.flag("separate_vocabs", False) else MARIAN[2]
    numbers = inside(folder, name)
    return guarded(path, rows, lambda: marian(path, read_ids(numbers), settings))


def read_alone(folder: Path, name: str, rows: int | None) -> Tokenizer:
    """What one file says, as a run's tokenizer.json does: no other file of the folder speaks of it."""
    path = inside(folder, name)
    return guarded(path, rows, lambda: read_whole(path))


def guarded(path: Path, rows: int | None, make: Callable[[], Found]) -> Found:
    """Run what reads a tokenizer; the library's panics are not Exceptions, so catch those too."""
    try:
        tokenizer = make()
        if tokenizer is not None:
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
    model = spec.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, list):  # a Unigram model, whatever it calls itself
        check_tree(path, (str(entry[0]) for entry in vocab if isinstance(entry, list) and entry))
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
    """The most bytes by which a sentencepiece table (a trie's size, the trie, texts) replaces a character."""
    table = base64.b64decode(str(charsmap or ""))
    return max(map(len, table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")))


# Vocabulary files


def read_bpe(paths: list[Path], settings: TokenizerSettings, rows: int | None) -> Tokenizer:
    """Pieces merged by rank: lower-case letters with "</w>" after a word's last (GPT-1), or bytes (GPT-2)."""
    vocab, merges = paths
    numbers, ranks = read_ids(vocab), read_merges(merges)
    if any(token.endswith("</w>") for token in numbers):
        return of_letters(numbers, ranks, settings, rows)
    if settings.kind == "deberta":
        return of_first_deberta(vocab, numbers, ranks, settings, rows)
    if settings.kind in ROBERTA or (settings.kind == "" and {"<s>", "</s>"} <= numbers.keys()):
        return of_sentences(vocab, numbers, ranks, settings, rows)
    return of_bytes(numbers, ranks, settings, rows)


def of_letters(numbers: Ids, ranks: Ranks, settings: TokenizerSettings, rows: int | None) -> Tokenizer:
    """GPT-1's."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    unknown = settings.name("unk", "<unk>")
    tokenizer = Tokenizer(models.BPE(numbers, ranks, unk_token=unknown, end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    add_tokens(tokenizer, settings, {"unk": "<unk>"}, rows)
    put_ends(tokenizer, settings, None, None)
    return tokenizer


def of_bytes(numbers: Ids, ranks: Ranks, settings: TokenizerSettings, rows: int | None) -> Tokenizer:
    """GPT-2's; GPT-NeoX composes characters first; Qwen does too, and cuts words otherwise."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.BPE(numbers, ranks))
    words: Any = pre_tokenizers.ByteLevel(settings.flag("add_prefix_space", False))
    names = dict.fromkeys(("unk", "bos", "eos"), "<|endoftext|>")
    if settings.kind == "gptneox":
        tokenizer.normalizer, names["pad"] = normalizers.NFC(), "<|padding|>"
    if settings.kind in ("qwen2", "qwen3"):
        split = pre_tokenizers.Split(Regex(QWEN2), "isolated")
        words = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
        tokenizer.normalizer = normalizers.NFC()
        names = dict.fromkeys(("unk", "eos", "pad"), "<|endoftext|>")
    tokenizer.pre_tokenizer, tokenizer.decoder = words, decoders.ByteLevel()
    add_tokens(tokenizer, settings, names, rows)
    put_ends(tokenizer, settings, names.get("bos"), names["eos"])
    return tokenizer


def of_sentences(
    path: Path, numbers: Ids, ranks: Ranks, settings: TokenizerSettings, rows: int | None
) -> Tokenizer:
    """RoBERTa's and BART's: GPT-2's, between <s> and </s>."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.BPE(numbers, ranks))
    spaced = settings.flag("add_prefix_space", False)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(spaced)
    tokenizer.decoder = decoders.ByteLevel()
    names = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "</s>", "pad": "<pad>", "cls": "<s>"}
    add_tokens(tokenizer, settings, names | {"mask": "<mask>"}, rows)
    sep, cls = (
        need(tokenizer, path, settings.name(which, names[which]) or names[which]) for which in ("sep", "cls")
    )
    tokenizer.post_processor = processors.RobertaProcessing(
        sep, cls, trim_offsets=settings.flag("trim_offsets", True), add_prefix_space=spaced
    )
    return tokenizer


def of_first_deberta(
    path: Path, numbers: Ids, ranks: Ranks, settings: TokenizerSettings, rows: int | None
) -> Tokenizer:
    """DeBERTa's before version 2: GPT-2's, between [CLS] and [SEP]."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE(numbers, ranks))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(settings.flag("add_prefix_space", False))
    tokenizer.decoder = decoders.ByteLevel()
    add_tokens(tokenizer, settings, {"bos": "[CLS]", "eos": "[SEP]"} | BERT, rows)
    cls, sep = (settings.name(which, BERT[which]) or BERT[which] for which in ("cls", "sep"))
    ends = [need(tokenizer, path, token) for token in (cls, sep)]
    around(tokenizer, [cls, "$A", sep], [cls, "$A", sep, sep, "$B", sep], ends)
    return tokenizer


def read_ids(path: Path) -> dict[str, int]:
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


def read_word_piece(paths: list[Path], settings: TokenizerSettings, rows: int | None) -> Tokenizer:
    """BERT's: words cut into the longest known pieces, in lower case unless tokenizer_config.json says no."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    (path,) = paths
    tokens = lines(path)
    vocab = {token: number for number, token in enumerate(tokens)}
    usual = MPNET if settings.kind == "mpnet" else BERT
    names = {which: settings.name(which, token) or token for which, token in usual.items()}
    for token in ("unk", "cls", "sep"):
        if names[token] not in vocab:
            raise BadInput(f"{path} has no {names[token][:50]}, without which BERT reads nothing")
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token=names["unk"]))
    tokenizer.normalizer = normalizers.BertNormalizer(**cleaning(settings, {"lowercase": True}))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    cls, sep = names["cls"], names["sep"]
    if usual is MPNET:
        ends = ((sep, vocab[sep]), (cls, vocab[cls]))
        tokenizer.post_processor = processors.RobertaProcessing(*ends, add_prefix_space=False)
        mask_takes_space(settings, usual["mask"])
    else:
        tokens_around = [(token, vocab[token]) for token in (cls, sep)]
        around(tokenizer, [cls, "$A", sep], [cls, "$A", sep, "$B:1", f"{sep}:1"], tokens_around)
    add_tokens(tokenizer, settings, usual, rows)
    return tokenizer


def lines(path: Path) -> list[str]:
    """The lines of a text; only a newline ends one, since a token may hold any other space."""
    found = read_text(path, LIMIT).replace("\r\n", "\n").split("\n")
    return found if found[-1] else found[:-1]


def read_marian(paths: list[Path], settings: TokenizerSettings, rows: int | None) -> Tokenizer:
    source, _, numbers = paths
    return marian(source, read_ids(numbers), settings)


def read_one_file(path: Path, settings: TokenizerSettings, rows: int | None) -> Tokenizer | None:
    """One SentencePiece model, of a translator that knows many languages or of another family."""
    if settings.kind in ("nllb", "mbart", "mbart50"):
        return of_languages(read_pieces(path), settings, rows)
    return read_whole_model(path, settings, rows)


MARIAN = ("source.spm", "target.spm", "vocab.json")

READERS: dict[tuple[str, ...], Callable[[list[Path], TokenizerSettings, int | None], Tokenizer | None]] = {
    MARIAN: read_marian,  # first, as it is to transformers
    (TOKENIZER,): lambda paths, settings, rows: with_settings(read_whole(paths[0]), settings, rows),
    ("vocab.json", "merges.txt"): read_bpe,
    ("sentencepiece.bpe.model", "vocab.json"): lambda paths, settings, rows: m2m100(
        paths[0], read_ids(paths[1]), settings, rows
    ),
    ("vocab.txt",): read_word_piece,
    **{
        (name,): lambda paths, settings, rows: read_one_file(paths[0], settings, rows)
        for name in ("spiece.model", "spm.model", "tokenizer.model", "sentencepiece.bpe.model")
    },
}
