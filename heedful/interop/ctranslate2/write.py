"""Write a CTranslate2 folder, which decodes fast on CPUs, in float32 or int8.

The folder holds model.bin, config.json and the vocabularies as CTranslate2 reads them, and our
tokenizer.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ...models.base.shells import EncoderDecoder, WithHeads
from ...parts.attention import Dot
from ...parts.layers import GatedFeedForward, LayerNorm, PreNorm, RMSNorm
from ...parts.positions.absolute import LearnedAfter, Sinusoidal
from ...parts.positions.relative import T5Buckets
from ...parts.positions.rotary import LinearScaling, Llama3Scaling, Rotary, Scaling, StretchedRotary
from ..hf.tokenizer_files import tokenizer_files, write_files
from ..loaded import Loaded, check_export
from ..packages import needed
from .layout import (
    ACTIVATION_CODES,
    SCALING_CODES,
    activation_of,
    blocks,
    final_norm,
    has_normed_queries,
    names,
    sides,
    unlike,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer


KINDS = ("float32", "int8")
ADD = 1  # how embeddings are merged
LONGEST = 1024  # positions written of a table that never ends, where the config names no context
UNKNOWN = ("[UNK]", "<unk>", "<|endoftext|>")


def refuse(loaded: Loaded) -> str | None:
    """Why this model cannot be exported to CTranslate2, or None."""
    why = unlike(loaded.model)
    if why is not None:
        return f"CTranslate2 has no such {loaded.architecture}: {why}"
    if not isinstance(loaded.model, WithHeads) and "eos" not in loaded.special:
        return "CTranslate2 must know which token ends a text, and this model names none"
    if isinstance(loaded.model, EncoderDecoder) and "decoder_start" not in loaded.special:
        return "CTranslate2 must know which token a translation starts with, and this model names none"
    return None


def write(loaded: Loaded, folder: Path, kind: str = "float32") -> None:
    """Write the model into a folder, which is there and empty."""
    check_export(refuse(loaded), kind, KINDS, f"CTranslate2 models are written as {' or '.join(KINDS)}")
    specs = needed("ctranslate2.specs", "ctranslate2")
    spec = specification(specs, loaded.model)
    place(spec, loaded)
    describe(spec, loaded)
    spec.validate()
    spec.optimize(quantization=kind)
    spec.save(str(folder))
    write_files(folder, tokenizer_files(loaded))


def specification(specs: Any, model: nn.Module) -> Any:
    """CTranslate2's description of the model, without its weights."""
    known = specs.transformer_spec
    made = {theirs: side_of(specs, theirs, side) for theirs, (_, side) in sides(model).items()}
    if isinstance(model, EncoderDecoder):
        return known.TransformerSpec(made["encoder"], made["decoder"])
    if isinstance(model, WithHeads):
        return known.TransformerEncoderModelSpec(made["encoder"], pooling_layer="pooled" in model.heads)
    return known.TransformerDecoderModelSpec(made["decoder"])


def side_of(specs: Any, theirs: str, side: Any) -> Any:
    first = blocks(side)[0]
    layer, position = first.attention.layer, first.attention.layer.position
    own = layer.heads * layer.key_width != layer.out.out_features
    settings: dict[str, Any] = {
        "pre_norm": isinstance(first.attention, PreNorm),
        "no_final_norm": final_norm(side) is None,
        "activation": ACTIVATION_CODES[str(activation_of(first))],
        "layernorm_embedding": not isinstance(side.inputs.norm, nn.Identity),
        "relative_attention_bias": isinstance(position, T5Buckets),
        "ffn_glu": isinstance(first.feed_forward.layer, GatedFeedForward),
        "rms_norm": isinstance(first.attention.norm, RMSNorm),
        "num_heads_kv": None if layer.kv_heads == layer.heads else layer.kv_heads,
        "head_dim": layer.key_width if own else None,
        "qk_norm": has_normed_queries(layer),
    }
    if isinstance(position, Rotary):
        interleaved = position.layout == "interleaved"
        settings |= {"rotary_dim": 0, "rotary_interleave": interleaved, "rotary_base": position.base}
    count = (len(blocks(side)), layer.heads)
    if theirs == "decoder":
        crosses = first.cross is not None
        return specs.transformer_spec.TransformerDecoderSpec(
            *count, with_encoder_attention=crosses, **settings
        )
    if side.inputs.segments is not None:
        settings |= {"num_source_embeddings": 2, "embeddings_merge": ADD}
    return specs.transformer_spec.TransformerEncoderSpec(*count, **settings)


def place(spec: Any, loaded: Loaded) -> None:
    """Put the weights and their settings where they belong."""
    model, copies = loaded.model, dict[tuple[str, ...], Tensor]()
    for theirs, ours in names(model).items():
        key = tuple(str(id(model.get_parameter(name))) for name in ours)
        if key not in copies:  # always a copy: it is made whole numbers in place
            copies[key] = torch.cat([model.get_parameter(name).detach().float().cpu() for name in ours])
        put(spec, theirs, copies[key])
    for theirs, (_, side) in sides(model).items():
        there, position = getattr(spec, theirs), side.inputs.position
        there.scale_embeddings = float(side.inputs.tokens.scale)
        if isinstance(position, Sinusoidal | LearnedAfter):  # a table that is made, or begins later
            count: Any = position.longest or getattr(loaded.config, "context", LONGEST)
            there.position_encodings.encodings = position.encode(torch.arange(count)).detach().float()
        if theirs == "decoder" and side.head.scale != 1:
            there.scale_outputs = float(side.head.scale)
        for layer, block in zip(there.layer, blocks(side), strict=True):
            place_attention(layer, block)


def place_attention(layer: Any, block: Any) -> None:
    if isinstance(block.attention.layer.score, Dot):
        for part in ("self_attention", "attention"):
            if hasattr(layer, part):
                getattr(layer, part).queries_scale = 1.0
    position = block.attention.layer.position
    if isinstance(position, T5Buckets):
        layer.self_attention.relative_attention_max_distance = np.int32(position.farthest)
    if isinstance(position, StretchedRotary):
        # Not by assignment: their description lacks the factor of LLaMA 3, which their library reads.
        layer.self_attention.__dict__.update(scaling_of(position.stretch))


def scaling_of(stretch: Scaling) -> dict[str, Any]:
    """How rotary positions are stretched, in their variables."""
    if isinstance(stretch, LinearScaling):
        return {
            "rotary_scaling_type": np.int8(SCALING_CODES["linear"]),
            "rotary_scaling_factor": np.float32(stretch.factor),
        }
    assert isinstance(stretch, Llama3Scaling)  # others are refused
    return {
        "rotary_scaling_type": np.int8(SCALING_CODES["llama3"]),
        "rotary_scaling_factor": np.float32(stretch.factor),
        "rotary_low_freq_factor": np.float32(stretch.low),
        "rotary_high_freq_factor": np.float32(stretch.high),
        "original_max_position_embeddings": np.int32(stretch.original),
    }


def put(spec: Any, name: str, value: Tensor) -> None:
    """Set the variable of this path: lists are spelled with a number behind."""
    *path, last = name.split("/")
    for part in path:
        if hasattr(spec, part):
            spec = getattr(spec, part)
        else:
            plural, _, number = part.rpartition("_")
            spec = getattr(spec, plural)[int(number)]
    setattr(spec, last, value)


def describe(spec: Any, loaded: Loaded) -> None:
    """Set the vocabularies and their special tokens. A source is read as it is given: nothing is added."""
    config, c = spec.config, loaded.config
    read = vocabulary(loaded.tokenizer, c.vocab)
    written = vocabulary(loaded.target_tokenizer or loaded.tokenizer, getattr(c, "target_vocab", c.vocab))
    both = isinstance(loaded.model, EncoderDecoder)
    if both:
        spec.register_source_vocabulary(read)
        spec.register_target_vocabulary(written)
        config.decoder_start_token = written[loaded.special["decoder_start"]]
    else:
        spec.register_vocabulary(written)
    named = {name: written[number] for name, number in loaded.special.items() if number < len(written)}
    fallback = named.get("eos", written[0])
    config.eos_token = fallback
    config.bos_token = named.get("bos", fallback)
    config.unk_token = next((word for word in UNKNOWN if word in written), fallback)
    if "pad" in named:
        config.add_attribute("pad_token", named["pad"])
    if hasattr(c, "context"):
        config.add_attribute("max_position_embeddings", c.context)
    norm = next(module for module in loaded.model.modules() if isinstance(module, LayerNorm | RMSNorm))
    config.layer_norm_epsilon = norm.eps


def vocabulary(tokenizer: Tokenizer | None, count: int) -> list[str]:
    """One for each token number; where no token has it, the number itself in brackets."""
    found = {} if tokenizer is None else tokenizer.get_vocab(with_added_tokens=True)
    by_number = {number: word for word, number in found.items()}
    return [by_number.get(number) or unused(number, found) for number in range(count)]


def unused(number: int, taken: dict[str, int]) -> str:
    word = f"<{number}>"
    while word in taken:
        word = f"<{word}>"
    return word
