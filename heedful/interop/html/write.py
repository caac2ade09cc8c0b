"""Write a model as one HTML page, which runs it in a browser without a network: model.html.

Weights are float16, or int8 with a scale for each row of a matrix. Norms, biases and tables of positions are
float16 either way.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ...errors import BadInput
from ...models.base.shells import Decoder, DecoderClassifier, EncoderDecoder, WithHeads
from ..hf.generation_settings import tokens_in
from ..hf.marian import Marian
from ..hf.tokenizer_files import tokenizer_text
from ..loaded import Loaded, check_export
from ..onnx.modules import names_of
from .page import PAGE, assembled
from .parts import NoTwin, describe
from .tokenizer import describe_tokenizer

KINDS = ("float16", "int8")
MOST = 64 * 2**20  # bytes of a page that browsers open on small machines
DEFLATE = 9


def refuse(loaded: Loaded) -> str | None:
    """Why this model cannot be a page, or None."""
    try:
        describe(loaded.model)
        if not is_skeleton(loaded):
            tokenizers(loaded)
    except BadInput as error:
        return str(error)
    if loaded.languages is not None:
        return "a translator that knows many languages has no page: export to onnx"
    return None


def is_skeleton(loaded: Loaded) -> bool:
    """Whether it has neither weights nor a tokenizer: could such a model be exported at all?"""
    return loaded.tokenizer is None and next(loaded.model.parameters()).is_meta


def write(loaded: Loaded, folder: Path, kind: str = "float16") -> None:
    """The page, in a folder that is there."""
    check_export(refuse(loaded), kind, KINDS, f"pages store weights as {' or '.join(KINDS)}")
    model, tensors = describe(loaded.model)
    spec = {
        "model": model,
        "tensors": [
            {
                "name": name,
                "shape": list(value.shape),
                "kind": "int8" if rows and kind == "int8" else "float16",
            }
            for name, value, rows in tensors
        ],
        "tokenizers": tokenizers(loaded),
        "outputs": names_of(loaded.model) if isinstance(loaded.model, WithHeads) else {},
        **words(loaded),
    }
    page = assembled(spec, zlib.compress(stored_bytes(tensors, kind), DEFLATE))
    (folder / PAGE).write_text(page, encoding="utf-8")


def stored_bytes(tensors: list[tuple[str, Tensor, bool]], kind: str) -> bytes:
    """The bytes of all tensors: the low and the high bytes of float16, then int8 rows with their scales.

    High bytes hold exponents, which are much alike: apart, they deflate to less than 6 bits.
    """
    halves, rest = [], []
    for _, value, rows in tensors:
        numbers = value.detach().float().cpu().numpy()
        if rows and kind == "int8":
            rest += [part.tobytes() for part in int8_of(numbers)]
        else:
            halves.append(numbers.astype("<f2").view(np.uint8).reshape(-1, 2))
    return np.concatenate(halves).T.tobytes() + b"".join(rest)


def int8_of(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers from -127 to 127, and the scale of each row."""
    scales = (np.abs(numbers).max(1, keepdims=True).astype(np.float64) / 127).astype(np.float32)
    scales[scales == 0] = 1
    return np.round(numbers / scales).astype(np.int8), scales.astype("<f4")


def tokenizers(loaded: Loaded) -> list[dict[str, Any]]:
    """What the page reads by, and what it writes by where that is another."""
    reader: Any = loaded.tokenizer
    if reader is None:
        raise BadInput("it has no tokenizer, and a page reads texts")
    if isinstance(reader, Marian):
        raise NoTwin("Marian's unigram tokenizer")
    as_text = reader.encode_special_tokens and not isinstance(loaded.model, WithHeads)
    reads = tokenizer_text(reader, loaded.model, loaded.special)
    found = [describe_tokenizer(reads, as_text)]
    if loaded.target_tokenizer is not None:
        found.append(describe_tokenizer(loaded.target_tokenizer.to_str(), True))
    return found


def words(loaded: Loaded) -> dict[str, Any]:
    """Which tokens begin and end a text, which are never written, and what labels are called."""
    said, special = loaded.generation or {}, loaded.special
    vocab = getattr(loaded.config, "target_vocab", getattr(loaded.config, "vocab", 0))

    def named(name: str) -> list[int]:
        return tokens_in(said.get(f"{name}_token_id"), vocab)

    start = [
        *named("decoder_start"),
        *some(special.get("decoder_start")),
        *named("bos"),
        *some(special.get("bos")),
    ]
    return {
        "does": ability(loaded),
        "start": (start or [0])[0],
        "begin": [*some(special.get("bos")), *named("bos")][:1] if loaded.generation is not None else [],
        "ends": named("eos") or [*some(special.get("eos"))],
        "first": named("forced_bos")[:1],
        "suppress": suppressed(said, vocab),
        "labels": list(loaded.labels),
        "scores": meaning_of_scores(loaded),
        "mask": mask_of(loaded),
    }


def meaning_of_scores(loaded: Loaded) -> str:
    """What turns the scores of labels into what people read: softmax, sigmoid or none."""
    if ability(loaded) != "classify":
        return "none"
    model: Any = loaded.model
    count = model.linear.out_features if isinstance(model, DecoderClassifier) else loaded.config.labels
    return loaded.problem.function(count)


def some(number: int | None) -> Iterable[int]:
    return () if number is None else (number,)


def suppressed(said: dict[str, Any], vocab: int) -> list[int]:
    """Tokens that are never written, by the generation settings of a folder."""
    bad = [row[0] for row in said.get("bad_words_ids") or () if len(row) == 1]
    return sorted({*bad, *tokens_in(said.get("suppress_tokens"), vocab)})


def mask_of(loaded: Loaded) -> int | None:
    """The token that stands for a blank."""
    tokenizer: Any = loaded.tokenizer
    numbers = (tokenizer.token_to_id(token) for token in ("[MASK]", "<mask>"))
    return next((number for number in numbers if number is not None), None)


def ability(loaded: Loaded) -> str:
    """What the page does first: translate, generate, classify, fill, or only look."""
    model = loaded.model
    if isinstance(model, EncoderDecoder):
        return "translate"
    if isinstance(model, Decoder):
        return "generate"
    if isinstance(model, DecoderClassifier):
        return "classify"
    heads = set(model.heads) if isinstance(model, WithHeads) else set()
    return "classify" if "classify" in heads else "fill" if "masked_lm" in heads else "look"
