"""LLaMA-style decoders (Touvron et al. 2023): RMSNorm first, rotary positions, gated feed-forward layers, and
query heads that share key/value heads.

Also LLaMA 3 (Grattafiori et al. 2024), Mistral (Jiang et al. 2023), Qwen2 (Yang et al. 2024), Qwen3 (Yang et
al. 2025) and SmolLM2 (Allal et al. 2025).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, Tied, TokenEmbedding, Untied
from ..parts.layers import GatedFeedForward, PreNorm, RMSNorm
from ..parts.masks import Mask, causal, full, window
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.base import Position
from ..parts.positions.rotary import (
    LinearScaling,
    Llama3Scaling,
    Rotary,
    Scaling,
    StretchedRotary,
    YarnScaling,
)
from .base.config import Config
from .base.fields import (
    AMOUNT,
    SIZE,
    Activation,
    AttentionDropout,
    Context,
    Dropout,
    Eps,
    FfnWidth,
    Heads,
    KeyValueHeads,
    KeyWidth,
    Layers,
    TieEmbeddings,
    Vocab,
    Width,
    divided,
)
from .base.initialize import normal_
from .base.settings import GIVEN, same_as
from .base.shells import Decoder
from .hf import llama as theirs_llama
from .hf.names import Rule, Table, same, weight_and_bias


@dataclass(frozen=True)
class LlamaConfig(Config):
    gated: ClassVar[bool] = True  # three matrices in a feed-forward layer instead of two

    vocab: Vocab = 32000
    context: Context = 2048
    layers: Layers = 32
    width: Width = 4096
    heads: Heads = 32
    kv_heads: KeyValueHeads = same_as("heads")
    key_width: KeyWidth = divided("width", "heads")
    ffn_width: FfnWidth = 11008
    activation: Activation = "silu"
    attention_bias: Annotated[bool, "biases in attention"] = False
    ffn_bias: Annotated[bool, "biases in the feed-forward layer"] = False
    dropout: Dropout = 0.0
    attention_dropout: AttentionDropout = 0.0
    rotary_base: Annotated[float, AMOUNT, "base of the rotary frequencies (theta)"] = 10000.0
    eps: Eps = 1e-06
    tie_embeddings: TieEmbeddings = False
    out_bias: Annotated[bool, "with attention_bias, also in its output projection (Qwen2: no)"] = True
    rope_scaling: Annotated[
        Literal["none", "linear", "llama3", "yarn"], "how rotary positions are scaled to longer contexts"
    ] = "none"
    rope_factor: Annotated[float, AMOUNT, "rotary positions are slowed down by this factor"] = 1.0
    rope_low_freq_factor: Annotated[
        float, AMOUNT, "llama3: frequencies below are scaled by the whole factor"
    ] = 1.0
    rope_high_freq_factor: Annotated[float, AMOUNT, "llama3: frequencies above are not scaled"] = 4.0
    rope_original_context: Annotated[int, SIZE, "llama3, yarn: the context before scaling"] = 8192
    rope_beta_fast: Annotated[float, AMOUNT, "yarn: pairs that turn more often are not scaled"] = 32.0
    rope_beta_slow: Annotated[float, AMOUNT, "yarn: pairs that turn less often are scaled in full"] = 1.0
    rope_truncate: Annotated[bool, "yarn: scaling begins and ends at a whole pair"] = True
    rope_magnitude: Annotated[float, AMOUNT, "yarn: queries and keys are multiplied by this"] = 1.0
    qk_norm: Annotated[bool, "norms of queries and keys, head by head (Qwen3)"] = False
    window: Annotated[int | None, SIZE, "tokens that a windowed layer sees; None: all"] = None
    windowed_layers: Annotated[tuple[int, ...], "the layers that have it, if not all have", GIVEN] = ()
    causal: Annotated[bool, "whether no token sees those after it", GIVEN] = True
    saved_as: Annotated[
        Literal["", "llama", "mistral", "ministral", "qwen2", "qwen3"],
        "Hugging Face's model_type, if other settings do not tell it",
        GIVEN,
    ] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.windowed_layers and (self.window is None or max(self.windowed_layers) >= self.layers):
            raise ValueError(f"layers {self.windowed_layers} of {self.layers} see a window of {self.window}")
        if self.rope_factor < 1 or (
            self.rope_scaling == "llama3" and self.rope_low_freq_factor >= self.rope_high_freq_factor
        ):
            raise ValueError(
                f"positions are stretched by 1 or more, and from low to high, "
                f"not by {self.rope_factor} from {self.rope_low_freq_factor} to {self.rope_high_freq_factor}"
            )

    @property
    def kinds(self) -> tuple[bool, ...]:
        """Whether each layer has the window."""
        some = self.windowed_layers or range(self.layers)
        return tuple(self.window is not None and layer in some for layer in range(self.layers))


MODEL_TYPES = ("llama", "mistral", "ministral", "qwen2", "qwen3")  # Hugging Face's
PRESETS = {
    "smollm2-135m": LlamaConfig(
        vocab=49152,
        context=8192,
        layers=30,
        width=576,
        heads=9,
        kv_heads=3,
        key_width=64,
        ffn_width=1536,
        rotary_base=100000.0,
        eps=1e-5,
        tie_embeddings=True,
    ),
    "llama3-8b": LlamaConfig(
        vocab=128256,
        context=8192,
        kv_heads=8,
        ffn_width=14336,
        rotary_base=500000.0,
        eps=1e-5,
    ),
    "qwen2-0.5b": LlamaConfig(
        vocab=151936,
        context=131072,
        layers=24,
        width=896,
        heads=14,
        kv_heads=2,
        key_width=64,
        ffn_width=4864,
        rotary_base=1000000.0,
        tie_embeddings=True,
        attention_bias=True,
        out_bias=False,
    ),
}


def build(config: LlamaConfig) -> Decoder:
    """The decoder, with fresh weights: N(0, 0.02)."""
    return build_with(config, build_position(config))


def build_with(c: LlamaConfig, position: Position) -> Decoder:
    stack = Stack([build_block(c, position) for _ in range(c.layers)], RMSNorm(c.width, c.eps))
    head = Tied() if c.tie_embeddings else Untied(c.width, c.vocab)
    inputs = Inputs(TokenEmbedding(c.vocab, c.width), dropout=c.dropout)
    model = Decoder(inputs, stack, head, masks_of(c))
    normal_(model, std=0.02)
    return model


def masks_of(c: LlamaConfig) -> tuple[Mask, ...]:
    """What layers see: one mask for all of them, or one for each.

    A window counts the token itself and those before it. One that looks both ways reaches as far as this to
    either side, and one token farther (as transformers has it).
    """
    everything = causal() if c.causal else full()
    if c.window is None:
        return (everything,)
    near = causal() & window(c.window) if c.causal else window(c.window + 1)
    masks = tuple(near if windowed else everything for windowed in c.kinds)
    return masks if c.windowed_layers else masks[:1]


def build_position(c: LlamaConfig) -> Rotary:
    if c.rope_scaling == "none":
        return Rotary(c.key_width, layout="halves", base=c.rotary_base)
    return StretchedRotary(c.key_width, scaling_of(c), layout="halves", base=c.rotary_base)


def scaling_of(c: LlamaConfig) -> Scaling:
    """How rotary positions are scaled to longer contexts."""
    if c.rope_scaling == "linear":
        return LinearScaling(c.rope_factor)
    if c.rope_scaling == "llama3":
        turns = (c.rope_low_freq_factor, c.rope_high_freq_factor)
        return Llama3Scaling(c.rope_factor, *turns, c.rope_original_context)
    return YarnScaling(
        c.rope_factor,
        c.rope_beta_fast,
        c.rope_beta_slow,
        c.rope_original_context,
        c.rotary_base,
        c.rope_truncate,
        c.rope_magnitude,
    )


def build_block(c: LlamaConfig, position: Position) -> Block:
    attention = MultiHeadAttention(
        c.width,
        c.heads,
        kv_heads=c.kv_heads,
        key_width=c.key_width,
        bias=c.attention_bias,
        out_bias=c.attention_bias and c.out_bias,
        dropout=c.attention_dropout,
        position=position,
        qk_norm=(lambda width: RMSNorm(width, c.eps)) if c.qk_norm else None,
    )
    feed_forward = GatedFeedForward(c.width, c.ffn_width, c.activation, bias=c.ffn_bias)
    return Block(
        PreNorm(attention, RMSNorm(c.width, c.eps), c.dropout),
        PreNorm(feed_forward, RMSNorm(c.width, c.eps), c.dropout),
    )


# Hugging Face: its rotary layout is "halves" too, so no permutation is needed.


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> LlamaConfig:
    c = LlamaConfig(**theirs_llama.read_settings(theirs))
    named = theirs.get("model_type", "llama")
    return c if theirs_llama.variant_of(c) == named else replace(c, saved_as=named)


def write_config(c: LlamaConfig) -> dict[str, Any]:
    return theirs_llama.write_settings(c)


def names(c: LlamaConfig) -> Table:
    theirs, ours = "model.layers.{}", "stack.blocks.{}"

    def linear(a: str, b: str, bias: bool) -> list[Rule]:
        return weight_and_bias(a, b) if bias else [same(f"{a}.weight", f"{b}.weight")]

    attention = {"q": "query", "k": "key", "v": "value", "o": "out"}
    head = [] if c.tie_embeddings else [same("lm_head.weight", "head.linear.weight")]
    rules = [
        same("model.embed_tokens.weight", "inputs.tokens.weight"),
        same("model.norm.weight", "stack.norm.weight"),
        same(f"{theirs}.input_layernorm.weight", f"{ours}.attention.norm.weight"),
        same(f"{theirs}.post_attention_layernorm.weight", f"{ours}.feed_forward.norm.weight"),
        *head,
    ]
    for a, b in attention.items():
        bias = c.attention_bias and (c.out_bias or b != "out")
        rules += linear(f"{theirs}.self_attn.{a}_proj", f"{ours}.attention.layer.{b}", bias)
    if c.qk_norm:
        for a, b in (("q_norm", "query_norm"), ("k_norm", "key_norm")):
            rules.append(same(f"{theirs}.self_attn.{a}.weight", f"{ours}.attention.layer.{b}.weight"))
    for part in ("gate", "up", "down"):
        rules += linear(f"{theirs}.mlp.{part}_proj", f"{ours}.feed_forward.layer.{part}", c.ffn_bias)
    return Table(
        rules,
        prefix="model.",
        copies={"lm_head.weight": "model.embed_tokens.weight"} if c.tie_embeddings else {},
        ignored=("layers.{}.self_attn.rotary_emb.inv_freq",),
    )
