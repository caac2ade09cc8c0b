"""CTranslate2's Transformers beside ours, part by part: which models it can hold, and where each weight goes.

CTranslate2 knows parts rather than architectures: a stack of blocks, pre- or post-norm, with certain
positions and activations. Any model of ours that is made of those parts can be exported; another is refused
by the part it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from ...models.base.heads import Pooled
from ...models.base.shells import Decoder, Encoder, EncoderDecoder, WithHeads
from ...parts.attention import Dot, ScaledDot
from ...parts.blocks import Block
from ...parts.embeddings import Inputs, Tied, Untied
from ...parts.layers import (
    ACTIVATIONS,
    BareLayerNorm,
    BareRMSNorm,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    PostNorm,
    PreNorm,
    RMSNorm,
)
from ...parts.masks import causal, full
from ...parts.multihead import MultiHeadAttention
from ...parts.positions.absolute import Learned, LearnedAfter, Sinusoidal
from ...parts.positions.base import NoPosition
from ...parts.positions.relative import T5Buckets
from ...parts.positions.rotary import LinearScaling, Llama3Scaling, Rotary, StretchedRotary

SCALING_CODES = {"linear": 0, "llama3": 2}  # of rotary positions, by their numbers
ACTIVATION_CODES = {
    "relu": 0,
    "gelu_tanh": 1,
    "silu": 2,
    "gelu": 3,
    "gelu_sigmoid": 4,
    "tanh": 5,
}  # of activations
Side = Encoder | Decoder


def sides(model: nn.Module) -> dict[str, tuple[str, Any]]:
    """{theirs: (our prefix, encoder or decoder)}."""
    if isinstance(model, EncoderDecoder):
        return {"encoder": ("encoder.", model.encoder), "decoder": ("decoder.", model.decoder)}
    if isinstance(model, WithHeads):
        return {"encoder": ("encoder.", model.encoder)}
    return {"decoder": ("", model)}


def blocks(side: Side) -> list[Any]:
    return list(side.stack.blocks)


def final_norm(side: Side) -> Any:
    """The norm after the last block, or None; T5 has dropout behind it."""
    stack: Any = side.stack
    norm = stack.norm[0] if isinstance(stack.norm, nn.Sequential) else stack.norm
    return None if isinstance(norm, nn.Identity) else norm


def activation_of(block: Any) -> str | None:
    """The name of the activation in a block's feed-forward."""
    used = block.feed_forward.layer.activation
    return next((name for name, function in ACTIVATIONS.items() if function is used), None)


# What it cannot hold


def unlike(model: nn.Module) -> str | None:
    """In what a model differs from all that CTranslate2 has; None if in nothing."""
    return next(differences(model), None)


def differences(model: nn.Module) -> Iterator[str]:
    if type(model) not in (EncoderDecoder, Decoder, WithHeads):
        yield "it is no plain encoder, decoder or both"
        return
    if isinstance(model, WithHeads):
        heads = {name: type(head) for name, head in model.heads.items()}
        if heads not in ({}, {"pooled": Pooled}):
            yield f"it has a head ({', '.join(heads)}), and CTranslate2 stores only a pooled vector"
    for _, side in sides(model).values():
        yield from of_side(side, alone=not isinstance(model, EncoderDecoder))
    norms = [module for module in model.modules() if isinstance(module, LayerNorm | RMSNorm)]
    if len({(type(norm), norm.eps) for norm in norms}) > 1:
        yield "its norms are not all alike"
    if any(isinstance(module, BareLayerNorm | BareRMSNorm) for module in model.modules()):
        yield "its norms have no gain"
    placed = {id(model.get_parameter(name)) for ours in names(model).values() for name in ours}
    for name, weight in model.named_parameters():
        if id(weight) not in placed and not name.endswith("inputs.position.table"):  # a part of it is
            yield f"CTranslate2 has no {name}"


def of_side(side: Any, alone: bool) -> Iterator[str]:
    """Of an encoder or a decoder."""
    if type(side) not in (Encoder, Decoder) or type(side.inputs) is not Inputs:
        yield "it is no plain encoder or decoder"
        return
    if side.masks != ((full(),) if isinstance(side, Encoder) else (causal(),)):
        yield "not every token sees all tokens (in a decoder, all earlier ones)"
    if isinstance(side, Encoder) and not isinstance(side.project_out, nn.Identity):
        yield "its encoder does more after its last block"
    if isinstance(side, Decoder) and type(side.head) not in (Tied, Untied):
        yield "its scores are made in another way"
    if side.inputs.segments is not None and not alone:
        yield "its input has segments"
    for block in blocks(side):
        yield from of_block(block)
    first = blocks(side)[0]
    if any(alike(block) != alike(first) for block in blocks(side)):
        yield "its blocks are not all alike"
    if type(first.attention) is PostNorm and final_norm(side) is not None:
        yield "it has a norm after its last block though each block has one there already"
    given = (type(side.inputs.position), type(first.attention.layer.position))
    if given not in POSITIONS:
        yield f"its positions ({', '.join(kind.__name__ for kind in given)}) are not supported"
    stretch = getattr(first.attention.layer.position, "stretch", None)
    if not isinstance(stretch, LinearScaling | Llama3Scaling | None):
        yield f"its rotary positions are scaled in a way ({type(stretch).__name__}) that is not supported"


# (at the input, in the attention)
POSITIONS = (
    (Sinusoidal, NoPosition),
    (Learned, NoPosition),
    (LearnedAfter, NoPosition),
    (NoPosition, Rotary),
    (NoPosition, StretchedRotary),
    (NoPosition, T5Buckets),
)


def of_block(block: Any) -> Iterator[str]:
    if type(block) is not Block or {type(part) for part in residuals(block)} not in ({PreNorm}, {PostNorm}):
        yield "its blocks are not pre-norm or post-norm throughout"
        return
    for part in (block.attention, block.cross):
        layer = None if part is None else part.layer
        if layer is not None and (type(layer) is not MultiHeadAttention or not plain(layer)):
            yield "its attention is of another kind"
            return
    crosses: Any = block.cross
    if crosses is not None and type(crosses.layer.position) is not NoPosition:
        yield "it has positions towards the source"
    if type(block.feed_forward.layer) not in (FeedForward, GatedFeedForward):
        yield "its feed-forward layers are of another kind"
    elif activation_of(block) not in ACTIVATION_CODES:
        yield f"its activation ({activation_of(block)}) is not among {', '.join(ACTIVATION_CODES)}"


def residuals(block: Any) -> list[Any]:
    return [part for part in (block.attention, block.cross, block.feed_forward) if part is not None]


def has_normed_queries(layer: MultiHeadAttention) -> bool:
    """Whether queries and keys are normalized head by head, as in Qwen3."""
    return type(layer.query_norm) is RMSNorm and type(layer.key_norm) is RMSNorm


def plain(layer: MultiHeadAttention) -> bool:
    """q . k, scaled or not, with nothing between the projections and the product but norms and positions."""
    widths = (
        layer.query.out_features == layer.heads * layer.key_width and layer.key_width == layer.value_width
    )
    bare = isinstance(layer.query_norm, nn.Identity) and isinstance(layer.key_norm, nn.Identity)
    return widths and (bare or has_normed_queries(layer)) and type(layer.score) in (Dot, ScaledDot)


def alike(block: Any) -> tuple[Any, ...]:
    """What CTranslate2 says once for all blocks."""
    layer, position = block.attention.layer, block.attention.layer.position
    turns = (position.layout, position.kind) if isinstance(position, Rotary) else ()
    heads = [(part.layer.heads, part.layer.kv_heads, part.layer.key_width) for part in residuals(block)[:-1]]
    scores = {type(part.layer.score) for part in residuals(block)[:-1]}
    same = len(set(heads)) == 1 and len(scores) == 1
    kinds = (type(block.attention), type(block.feed_forward.layer), activation_of(block), type(position))
    return (
        same,
        *kinds,
        type(layer.score),
        has_normed_queries(layer),
        heads[0],
        turns,
        position if isinstance(position, T5Buckets) else None,
    )


# Where each weight goes

Names = dict[str, tuple[str, ...]]  # {theirs: ours, which follow each other along its first axis}


def names(model: nn.Module) -> Names:
    """All weights that both have. Tied ones of ours stand in several places."""
    found: Names = {}
    for theirs, (ours, side) in sides(model).items():
        found |= side_names(theirs, ours, side)
    if isinstance(model, WithHeads) and "pooled" in model.heads:
        found |= linear("pooler_dense", "heads.pooled.dense")
    return {theirs: ours for theirs, ours in found.items() if all(has(model, name) for name in ours)}


def has(model: nn.Module, name: str) -> bool:
    """Whether there is such a weight: not every layer has a bias."""
    path, _, last = name.rpartition(".")
    try:
        return getattr(model.get_submodule(path), last, None) is not None
    except AttributeError:
        return False


def linear(theirs: str, *ours: str) -> Names:
    return {f"{theirs}/{part}": tuple(f"{name}.{part}" for name in ours) for part in ("weight", "bias")}


def norm(theirs: str, ours: str) -> Names:
    return {f"{theirs}/gamma": (f"{ours}.weight",), f"{theirs}/beta": (f"{ours}.bias",)}


def side_names(theirs: str, ours: str, side: Any) -> Names:
    encodes = isinstance(side, Encoder)
    tokens = f"{ours}inputs.tokens.weight"
    found: Names = {f"{theirs}/embeddings{'_0' if encodes else ''}/weight": (tokens,)}
    found |= {"encoder/embeddings_1/weight": (f"{ours}inputs.segments.weight",)} if encodes else {}
    if type(side.inputs.position) is Learned:
        found[f"{theirs}/position_encodings/encodings"] = (f"{ours}inputs.position.table",)
    found |= norm(f"{theirs}/layernorm_embedding", f"{ours}inputs.norm")
    last = ".0" if isinstance(side.stack.norm, nn.Sequential) else ""
    found |= norm(f"{theirs}/layer_norm", f"{ours}stack.norm{last}")
    if not encodes:
        own = isinstance(side.head, Untied)
        found["decoder/projection/weight"] = (f"{ours}head.linear.weight" if own else tokens,)
        found["decoder/projection/bias"] = (f"{ours}head.linear.bias" if own else f"{ours}head.bias",)
    for i, block in enumerate(blocks(side)):
        found |= block_names(f"{theirs}/layer_{i}", f"{ours}stack.blocks.{i}", block)
    return found


def block_names(theirs: str, ours: str, block: Any) -> Names:
    query, key, value, out = (f"{ours}.attention.layer.{part}" for part in ("query", "key", "value", "out"))
    found: Names = norm(f"{theirs}/self_attention/layer_norm", f"{ours}.attention.norm")
    found |= linear(f"{theirs}/self_attention/linear_0", query, key, value)
    found |= linear(f"{theirs}/self_attention/linear_1", out)
    for there, here in (("q_norm", "query_norm"), ("k_norm", "key_norm")):
        found |= norm(f"{theirs}/self_attention/{there}", f"{ours}.attention.layer.{here}")
    found[f"{theirs}/self_attention/relative_attention_bias"] = (f"{ours}.attention.layer.position.table",)
    if block.cross is not None:
        query, key, value, out = (f"{ours}.cross.layer.{part}" for part in ("query", "key", "value", "out"))
        found |= norm(f"{theirs}/attention/layer_norm", f"{ours}.cross.norm")
        found |= linear(f"{theirs}/attention/linear_0", query)
        found |= linear(f"{theirs}/attention/linear_1", key, value)
        found |= linear(f"{theirs}/attention/linear_2", out)
    inside = f"{ours}.feed_forward.layer"
    gated = isinstance(block.feed_forward.layer, GatedFeedForward)
    found |= norm(f"{theirs}/ffn/layer_norm", f"{ours}.feed_forward.norm")
    found |= linear(f"{theirs}/ffn/linear_0", f"{inside}.{'gate' if gated else 'up'}")
    found |= linear(f"{theirs}/ffn/linear_0_noact", f"{inside}.up") if gated else {}
    return found | linear(f"{theirs}/ffn/linear_1", f"{inside}.down")
