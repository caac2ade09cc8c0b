"""A tokenizer for static/tokens.js: its tokenizer.json, of which only known parts and patterns are taken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ...data.vocab import BETWEEN_SPACES, SPACES, WORDS
from ...errors import BadInput

CONTRACTIONS = r"'s|'t|'re|'ve|'m|'ll|'d"
GPT2 = rf"{CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
SPLITS = tuple(
    rf"(?i:{CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    for digits in ("{1,3}", "")  # LLaMA 3's, Qwen 2's
)
PATTERNS = (WORDS, BETWEEN_SPACES, SPACES, GPT2, *SPLITS)
# {where: the types that static/ has}
KNOWN = {
    "normalizer": (
        "Sequence", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Strip", "Prepend", "Replace",
        "BertNormalizer",
    ),
    "pre_tokenizer": (
        "Sequence", "Split", "ByteLevel", "BertPreTokenizer", "Digits", "WhitespaceSplit",
    ),
    "model": ("BPE", "WordPiece", "WordLevel"),
    "decoder": ("Sequence", "Fuse", "ByteLevel", "ByteFallback", "Strip", "Replace", "WordPiece"),
    "post_processor": ("Sequence", "TemplateProcessing", "RobertaProcessing", "BertProcessing", "ByteLevel"),
}  # fmt: skip
KEPT = ("normalizer", "pre_tokenizer", "decoder")


def describe_tokenizer(text: str, special_as_text: bool) -> dict[str, Any]:
    """The description of a tokenizer.json. special_as_text: a text that says [EOS] is only a text."""
    spec = json.loads(text)
    for place, types in KNOWN.items():
        for one in parts_of(spec.get(place)):
            refuse_unknown(one, place, types)
    before, after = around(spec.get("post_processor"))
    return {name: spec.get(name) for name in KEPT} | {
        "model": described_model(spec["model"]),
        "added_tokens": spec["added_tokens"],
        "special_as_text": special_as_text,
        "spaced_words": (spec.get("pre_tokenizer") or {}).get("pattern", {}).get("Regex")
        in (WORDS, BETWEEN_SPACES),
        "before": before,
        "after": after,
    }


def parts_of(part: Any) -> Iterator[dict[str, Any]]:
    """A part of a tokenizer, and those inside it."""
    if part is None:
        return
    yield part
    for inside in ("normalizers", "pretokenizers", "decoders", "processors"):
        for one in part.get(inside, ()):
            yield from parts_of(one)


def refuse_unknown(part: dict[str, Any], place: str, types: tuple[str, ...]) -> None:
    kind, pattern = part.get("type", "BPE"), part.get("pattern") or {}
    if kind not in types:
        name = "a unigram tokenizer" if kind == "Unigram" else f"the {place.replace('_', '-')} {kind}"
        raise BadInput(f"{name} has no JavaScript: export to onnx")
    if pattern.get("Regex", WORDS) not in PATTERNS:
        raise BadInput("the tokenizer splits texts by a pattern that has no JavaScript: export to onnx")
    if (
        place == "pre_tokenizer"
        and kind == "Split"
        and (part["behavior"] not in ("Isolated", "Removed") or part["invert"])
    ):
        raise BadInput(f"a split by {part['behavior']} has no JavaScript: export to onnx")


def described_model(model: dict[str, Any]) -> dict[str, Any]:
    """The vocabulary with its merges as pairs."""
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get("type", "BPE") == "BPE" and model.get(name):
            raise BadInput(f"a BPE tokenizer with {name.replace('_', ' ')} has no JavaScript: export to onnx")
    kept = {"type": "BPE", **model}
    if "merges" in model:
        kept["merges"] = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    return kept


def around(processor: dict[str, Any] | None) -> tuple[list[int], list[int]]:
    """The tokens that a post-processor puts before and after a single text."""
    if processor is None or processor["type"] == "ByteLevel":
        return [], []
    if processor["type"] in ("RobertaProcessing", "BertProcessing"):
        return [processor["cls"][1]], [processor["sep"][1]]
    if processor["type"] == "Sequence":
        found = [around(one) for one in processor["processors"]]
        return [n for one in reversed(found) for n in one[0]], [n for one in found for n in one[1]]
    sides: tuple[list[int], list[int]] = ([], [])
    side = 0
    for piece in processor["single"]:
        if "Sequence" in piece:
            side = 1
        else:
            sides[side].extend(processor["special_tokens"][piece["SpecialToken"]["id"]]["ids"])
    return sides
