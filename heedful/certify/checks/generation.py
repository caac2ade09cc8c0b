"""Generation: texts in, tokens out, with the generation settings that the export itself has.

Greedy and beam search are compared elsewhere with every setting given. Here nothing is given but the length,
so that the settings of the folder decide: beams, penalties, forced and suppressed tokens.
"""

from __future__ import annotations

from ...errors import BadInput
from ...interop.formats import load
from ...models.base.shells import Decoder, EncoderDecoder
from ...use.generate import encode as encode_prompts
from ...use.generate import requests as prompt_requests
from ...use.model import Model
from ...use.search import search_of
from ...use.translate import encode as encode_sources
from ...use.translate import requests as source_requests
from ..certificate import Check
from ..inputs import context_of
from ..sides import Sides
from .searches import WrittenPair, tallied

NAME = "generation"
TEXTS = ("a cat", "The cat sat on the mat.", "It was not good, and it was long.")
NEW = 16  # tokens to write


def check(sides: Sides) -> Check | None:
    """Compare what both write; None if the library knows no settings, or the model writes nothing."""
    ask = getattr(sides.used, "generate", None)
    if ask is None or sides.is_rounded or sides.folder is None:
        return None
    if sides.ours.loaded.kind not in (Decoder, EncoderDecoder) or sides.ours.loaded.tokenizer is None:
        return None
    sides.tell("comparing generation")
    room = context_of(sides.ours.model, sides.ours.loaded.config) - NEW
    texts = [text for text in TEXTS if len(sides.ours.tokens(text) or ()) <= room]
    if not texts:
        return None
    try:
        ours = written(model_of(sides), texts)
    except BadInput:
        return None  # a vocabulary that has none of these words, or a language that must be named
    pairs = []
    for text, (ids, expected) in zip(texts, ours, strict=True):
        found = ask(text, NEW)
        if found is None:
            return None
        pairs.append(WrittenPair(ids, expected, found))
    return tallied(sides, NAME, pairs, NEW, {"texts": len(texts)})


def model_of(sides: Sides) -> Model:
    """The source; where that has no such settings and decodes in its own way, the export."""
    if sides.ours.loaded.generation is not None:
        return sides.model
    assert sides.folder is not None
    return Model(load(sides.folder), str(sides.folder), own=False)


def written(model: Model, texts: list[str]) -> list[tuple[list[int], list[int]]]:
    """The tokens that were read and written for each text, by the settings of its folder."""
    reads = model.kind is EncoderDecoder
    encode, make = (encode_sources, source_requests) if reads else (encode_prompts, prompt_requests)
    rows = encode(model, texts)
    how = model.decoding("translate" if reads else "generate", {"max_new_tokens": NEW, "sample": False})
    asked = make(model, rows, how, range(len(texts)))
    if any(one is None for one in asked):
        raise BadInput("a text says nothing to this model")
    found = search_of(model, how).write([one for one in asked if one is not None])
    return [(row.ids, best[0].words) for row, best in zip(rows, found, strict=True)]
