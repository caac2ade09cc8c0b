"""The tokenizer of a GGUF file: tokens with SentencePiece's scores ("llama") or merges of bytes ("gpt2").

A file only names the way in which a text is split before it is merged. The names below are those of published
models of the LLaMA family.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BadInput
from ...files import short
from ..hf.probes import corpus
from ..hf.tokenizer import LLAMA3, QWEN2, guarded

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)  # kinds of tokens
MOST = 300_000  # tokens; Gemma has 262,144
MOST_ADDED = 20_000  # tokens that are found in a text before anything else
LONGEST = 1024  # bytes of a token
MERGES = 1 << 20
CUTS = 1 << 22  # places at which tokens could be cut in two: LLaMA 2 has 150,000
LETTERS = 1 << 24  # characters of all merges that are made: each is a token's length, and tokens have many
AS_TEXT = "heedful.special_tokens_are_text"  # a key of ours: a text that spells such a token is only a text
# A key of ours: a space goes before the first word ("first"), or after special tokens too ("always"), unless
# a space stands there. llama.cpp puts one there in any case.
SPACES = "heedful.space_prefix"
SPECIAL = {"bos": "bos_token_id", "eos": "eos_token_id", "pad": "padding_token_id"}

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
SPLIT_BYTES = BYTES | {"use_regex": True}  # by GPT-2's own pattern


def split(pattern: str) -> dict[str, Any]:
    step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [step, BYTES]}


DIGITS = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, SPLIT_BYTES]}

# {name: how a text is split}. The first of equal ones is what heedful writes.
SPLITS: dict[str, dict[str, Any]] = {
    "llama-bpe": split(LLAMA3),
    "llama3": split(LLAMA3),
    "llama-v3": split(LLAMA3),
    "qwen2": split(QWEN2),
    "smollm": DIGITS,
    "gpt-2": SPLIT_BYTES,
    "default": SPLIT_BYTES,
}
WHOLE_WORDS = ("llama-bpe", "llama3", "llama-v3")  # a word that is a token is one, whatever merges make of it
COMPOSED = ("qwen2",)  # accents are joined to their letters first
BEGUN = ("llama", *WHOLE_WORDS)  # where a text begins with the first token, unless the file says otherwise


# In


def read_vocabulary(
    path: Path, metadata: dict[str, Any], rows: int
) -> tuple[Tokenizer | None, dict[str, int]]:
    """The tokenizer that a file describes (None if it describes none), and the ids of special tokens."""
    kind = metadata.get("tokenizer.ggml.model", "no_vocab")
    numbers = special_ids(metadata, rows)
    if kind in ("no_vocab", "none"):
        return None, numbers
    if kind not in ("llama", "gpt2"):
        raise BadInput(f"{path} has a tokenizer {short(kind)}; heedful reads llama and gpt2")
    tokens, kinds = tokens_of(path, metadata, rows)
    return guarded(path, rows, lambda: build(path, metadata, kind, tokens, kinds)), numbers


def special_ids(metadata: dict[str, Any], rows: int) -> dict[str, int]:
    found = {name: metadata.get(f"tokenizer.ggml.{key}") for name, key in SPECIAL.items()}
    return {name: number for name, number in found.items() if type(number) is int and 0 <= number < rows}


def tokens_of(path: Path, metadata: dict[str, Any], rows: int) -> tuple[list[str], list[int]]:
    """The tokens in the order of their ids, and the type of each."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and len(tokens) > MOST:
        raise BadInput(f"{path} lists {len(tokens)} tokens; at most {MOST} are read")
    if not isinstance(tokens, list) or not 0 < len(tokens) <= rows:
        count = len(tokens) if isinstance(tokens, list) else "no"
        raise BadInput(f"{path} lists {count} tokens and has {rows} embedding rows")
    if any(len(token.encode()) > LONGEST for token in tokens):
        raise BadInput(f"{path} has a token of more than {LONGEST} bytes")
    if len(set(tokens)) < len(tokens):
        raise BadInput(f"{path} lists a token twice")
    kinds = values_per_token(path, metadata, "tokenizer.ggml.token_type", len(tokens), [NORMAL] * len(tokens))
    if sum(kind in (UNKNOWN, CONTROL, USER) for kind in kinds) > MOST_ADDED:
        raise BadInput(f"{path} marks more than {MOST_ADDED} tokens as control tokens or its users' own")
    return tokens, [int(kind) for kind in kinds]


def values_per_token(
    path: Path, metadata: dict[str, Any], key: str, count: int, default: list[Any]
) -> list[Any]:
    """A list of values, one for each token."""
    values = metadata.get(key)
    if values is None:
        return default
    if not hasattr(values, "tolist") or len(values) != count:
        raise BadInput(f"{path}: {key} does not fit {count} tokens")
    found = values.tolist()
    if not all(math.isfinite(value) for value in found):
        raise BadInput(f"{path}: {key} has values that are not finite")
    return found


def build(path: Path, metadata: dict[str, Any], kind: str, tokens: list[str], kinds: list[int]) -> Tokenizer:
    from tokenizers import AddedToken, processors

    pre = metadata.get("tokenizer.ggml.pre", "default")
    tokenizer = (
        spelled(path, metadata, tokens, kinds) if kind == "llama" else merged(path, metadata, tokens, pre)
    )
    known = list(zip(tokens, kinds, strict=True))
    special = [AddedToken(token, normalized=False) for token, of in known if of in (UNKNOWN, CONTROL)]
    tokenizer.add_special_tokens(special)  # all at once: each time it makes its tables anew
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token, of in known if of == USER])
    tokenizer.encode_special_tokens = metadata.get(AS_TEXT) is True
    ends = {}
    for end, default in (("bos", kind in BEGUN or pre in BEGUN), ("eos", False)):
        number = metadata.get(f"tokenizer.ggml.{end}_token_id")
        if metadata.get(f"tokenizer.ggml.add_{end}_token", default) is True and type(number) is int:
            if not 0 <= number < len(tokens):
                raise BadInput(
                    f"{path}: the {end} token has the number {number}, and there are {len(tokens)}"
                )
            ends[end] = (tokens[number], number)
    if ends:
        around = [
            *([ends["bos"][0]] if "bos" in ends else []),
            "$A",
            *([ends["eos"][0]] if "eos" in ends else []),
        ]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=around, special_tokens=sorted(set(ends.values()), key=lambda end: end[1])
        )
    return tokenizer


def merged(path: Path, metadata: dict[str, Any], tokens: list[str], pre: Any) -> Tokenizer:
    """ByteReader, merged by rank."""
    from tokenizers import Tokenizer

    if pre not in SPLITS:
        raise BadInput(f"{path} splits texts as {short(pre)}; heedful knows {', '.join(SPLITS)}")
    merges = metadata.get("tokenizer.ggml.merges", [])
    pairs = [merge.split(" ") for merge in merges] if isinstance(merges, list) else None
    if pairs is None or len(pairs) > MERGES or not all(len(pair) == 2 for pair in pairs):
        raise BadInput(f"{path}: tokenizer.ggml.merges are not pairs of pieces")
    vocab = {token: number for number, token in enumerate(tokens)}
    model = {"type": "BPE", "vocab": vocab, "merges": pairs, "ignore_merges": pre in WHOLE_WORDS}
    return Tokenizer.from_str(
        json.dumps(
            {
                "version": "1.0",
                "normalizer": {"type": "NFC"} if pre in COMPOSED else None,
                "pre_tokenizer": SPLITS[pre],
                "decoder": SPLIT_BYTES,
                "model": model,
            }
        )
    )


SPACE = "▁"


def spelled(path: Path, metadata: dict[str, Any], tokens: list[str], kinds: list[int]) -> Tokenizer:
    """SentencePiece's BPE: of all pairs that make a token, the one of highest score is joined first."""
    from tokenizers import Tokenizer

    scores = values_per_token(path, metadata, "tokenizer.ggml.scores", len(tokens), [0.0] * len(tokens))
    unknown = next((token for token, kind in zip(tokens, kinds, strict=True) if kind == UNKNOWN), None)
    prefix = metadata.get("tokenizer.ggml.add_space_prefix", True) is not False
    where = metadata.get(SPACES) if prefix else None
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    steps = [{"type": "Prepend", "prepend": SPACE}, replace] if prefix else [replace]
    back = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        *([{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []),
    ]
    return Tokenizer.from_str(
        json.dumps(
            {
                "version": "1.0",
                "normalizer": None if where in SCHEMES else {"type": "Sequence", "normalizers": steps},
                "pre_tokenizer": metaspace(where) if where in SCHEMES else None,
                "decoder": {"type": "Sequence", "decoders": back},
                "model": {
                    "type": "BPE",
                    "vocab": {token: number for number, token in enumerate(tokens)},
                    "merges": merges_by_score(path, tokens, scores, kinds),
                    "unk_token": unknown,
                    "fuse_unk": True,
                    "byte_fallback": BYTE in kinds,
                },
            }
        )
    )


SCHEMES = ("first", "always")


def metaspace(where: str) -> dict[str, Any]:
    """Spaces as a part of words, with one before the first."""
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": where, "split": False}


def merges_by_score(
    path: Path, tokens: Sequence[str], scores: Sequence[float], kinds: Sequence[int]
) -> list[tuple[str, str]]:
    """The pairs that make a token out of two, by falling score; those of one token by rising token ids."""
    whole = (NORMAL, UNUSED)  # those of users are found before anything is merged
    numbers = {token: n for n, (token, kind) in enumerate(zip(tokens, kinds, strict=True)) if kind in whole}
    if sum(map(len, numbers)) > CUTS:
        raise BadInput(f"{path} has tokens of more than {CUTS} characters in all")
    pairs: list[tuple[float, int, int, str, str]] = []
    letters = 0
    for token, number in numbers.items():
        ways = [(token[:at], token[at:]) for at in range(1, len(token))]
        known = [(left, right) for left, right in ways if left in numbers and right in numbers]
        known.sort(key=lambda way: (numbers[way[0]], numbers[way[1]]))
        pairs += [(-scores[number], -len(left), -len(right), left, right) for left, right in known]
        letters += len(known) * len(token)
        if len(pairs) > MERGES or letters > LETTERS:
            raise BadInput(
                f"{path} has more than {MERGES} ways of making tokens out of two, or too long ones"
            )
    pairs.sort(key=lambda pair: pair[:3])
    return [(left, right) for *_, left, right in pairs]


# Out


def vocabulary_metadata(tokenizer: Tokenizer, special: dict[str, int], rows: int) -> dict[str, Any]:
    """{key: value} that say a tokenizer, so that reading them gives the same one; BadInput if none do."""
    spec = json.loads(tokenizer.to_str())
    model = spec["model"]
    why = "GGUF knows tokenizers by name, and this one is none of them"
    if model["type"] != "BPE":
        raise BadInput(f"{why}: it is a {model['type']}, and byte-level BPE or SentencePiece's BPE is needed")
    tokens, kinds = listed(spec, rows)
    metadata: dict[str, Any] = {"tokenizer.ggml.tokens": tokens}
    merges = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    if model.get("byte_fallback"):
        rank = {"".join(pair): place for place, pair in reversed(list(enumerate(merges)))}
        metadata |= {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.pre": "default",
            "tokenizer.ggml.scores": [-float(rank.get(token, len(merges))) for token in tokens],
            **spaces_of(spec),
        }
        unknown = model.get("unk_token") or "<unk>"
        kinds = [
            BYTE if is_byte(token) else UNKNOWN if token == unknown else kind
            for token, kind in zip(tokens, kinds, strict=True)
        ]
    else:
        metadata |= {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": name_of(spec),
            "tokenizer.ggml.merges": [" ".join(pair) for pair in merges],
        }
    metadata["tokenizer.ggml.token_type"] = kinds
    metadata |= {
        f"tokenizer.ggml.{SPECIAL[name]}": number for name, number in special.items() if name in SPECIAL
    }
    around = tokenizer.encode("").ids
    begins = "bos" in special and around[:1] == [special["bos"]]
    ends = "eos" in special and around[int(begins) :] == [special["eos"]]
    metadata |= {"tokenizer.ggml.add_bos_token": begins, "tokenizer.ggml.add_eos_token": ends}
    metadata |= {AS_TEXT: True} if tokenizer.encode_special_tokens else {}
    check_same(tokenizer, metadata, rows, why)
    return metadata


def spaces_of(spec: dict[str, Any]) -> dict[str, Any]:
    """{key: value} that say where a space is put before a word."""
    step = spec.get("pre_tokenizer") or {}
    where = step.get("prepend_scheme") if step.get("type") == "Metaspace" else None
    prefix = where in SCHEMES or '"Prepend"' in json.dumps(spec.get("normalizer"))
    return {"tokenizer.ggml.add_space_prefix": prefix} | ({SPACES: where} if where in SCHEMES else {})


def listed(spec: dict[str, Any], rows: int) -> tuple[list[str], list[int]]:
    """One token for each row, and their kinds; rows without a token get a name that no text has."""
    by_number = {number: token for token, number in spec["model"]["vocab"].items()}
    kinds = {}
    for token in spec["added_tokens"]:
        by_number[token["id"]] = token["content"]
        kinds[token["id"]] = CONTROL if token["special"] else USER
    tokens = [by_number.get(number, f"[PAD{number}]") for number in range(rows)]
    return tokens, [kinds.get(n, NORMAL if n in by_number else UNUSED) for n in range(rows)]


def is_byte(token: str) -> bool:
    return len(token) == 6 and token.startswith("<0x") and token.endswith(">")


def name_of(spec: dict[str, Any]) -> str:
    """How llama.cpp names this way to split texts; the nearest, if none is the same."""
    bare = json.dumps(without(spec["pre_tokenizer"]), sort_keys=True)
    known = {name: json.dumps(without(step), sort_keys=True) for name, step in SPLITS.items()}
    return next((name for name, step in known.items() if step == bare), "gpt-2")


def without(step: Any) -> Any:
    """A step without what changes no token."""
    if isinstance(step, dict):
        return {key: without(value) for key, value in step.items() if key != "trim_offsets"}
    return [without(each) for each in step] if isinstance(step, list) else step


def check_same(tokenizer: Tokenizer, metadata: dict[str, Any], rows: int, why: str) -> None:
    """Read the vocabulary again, and compare both tokenizers on texts of every kind."""
    import numpy

    lists = {"tokenizer.ggml.scores", "tokenizer.ggml.token_type"}
    held = {key: numpy.array(value) if key in lists else value for key, value in metadata.items()}
    back, _ = read_vocabulary(Path("the tokenizer"), held, rows)
    assert back is not None
    for text in corpus():
        if back.encode(text).ids != tokenizer.encode(text).ids:
            raise BadInput(f"{why}: it reads {short(text)} as no such tokenizer does")
