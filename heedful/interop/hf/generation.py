"""generation_config.json, as heedful writes it; generation_settings.py reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...models.base.classifying import is_taught_here
from ...models.base.shells import Decoder, EncoderDecoder

if TYPE_CHECKING:
    from ..loaded import Loaded


LONGEST = 512  # tokens of an answer, where a model's positions have no end
BEAM = {"num_beams": 4, "length_penalty": 0.6, "early_stopping": False}  # Vaswani et al. 2017


def generation_config(loaded: Loaded) -> dict[str, Any] | None:
    """How their `generate` is to write; None for a model that writes nothing."""
    if not isinstance(loaded.model, EncoderDecoder | Decoder):
        return None
    own: dict[str, Any] = {"max_length": getattr(loaded.config, "context", LONGEST)}
    own |= BEAM if isinstance(loaded.model, EncoderDecoder) else {"do_sample": False}
    return token_ids(loaded) | (own if loaded.generation is None else loaded.generation)


def token_ids(loaded: Loaded) -> dict[str, int]:
    """The ids of special tokens, as their configs name them; only encoder-decoders have one to start with."""
    pairs = isinstance(loaded.model, EncoderDecoder)
    known = {name: number for name, number in loaded.special.items() if pairs or name != "decoder_start"}
    if is_taught_here(
        loaded.model
    ):  # theirs reads the last token that is no padding, so that eos must not be pad
        ends = known.get("eos")
        known = {name: number for name, number in known.items() if name != "pad" or number != ends}
        if known.get("bos", ends) != ends:
            known.setdefault("pad", known["bos"])
    return {f"{name}_token_id": number for name, number in known.items()}
