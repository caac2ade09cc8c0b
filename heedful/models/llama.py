"""LLaMA-style decoders (Touvron et al. 2023; LLaMA 3, SmolLM2, Qwen2): RMSNorm first, rotary positions, gated
feed-forward, and query heads that share key/value heads."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from reprlib import repr as short
from typing import Annotated, Any, Literal

from ..errors import BadInput
from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, Tied, TokenEmbedding, Untied
from ..parts.layers import GatedFeedForward, PreNorm, RMSNorm
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.rotary import LinearScaling, Llama3Scaling, Rotary, StretchedRotary
from .base.config import Config
from .base.fields import (
    AMOUNT,
    SIZE,
    Activation,
    AttentionDropout,
    Context,
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
from .base.settings import same_as
from .base.shells import Decoder
from .hf.folder import ACTIVATION_NAMES, one_of, read, read_activation, read_unless_null, refuse_unless
from .hf.names import Rule, Table, same, weight_and_bias


@dataclass(frozen=True)
class LlamaConfig(Config):
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
    attention_dropout: AttentionDropout = 0.0
    rotary_base: Annotated[float, AMOUNT, "base of the rotary frequencies (theta)"] = 10000.0
    eps: Eps = 1e-06
    tie_embeddings: TieEmbeddings = False
    out_bias: Annotated[bool, "with attention_bias, also in its output projection (Qwen2: no)"] = True
    rope_scaling: Annotated[
        Literal["none", "linear", "llama3"], "how rotary positions are scaled to longer contexts"
    ] = "none"
    rope_factor: Annotated[float, AMOUNT, "rotary positions are slowed down by this factor"] = 1.0
    rope_low_freq_factor: Annotated[
        float, AMOUNT, "llama3: frequencies below are scaled by the whole factor"
    ] = 1.0
    rope_high_freq_factor: Annotated[float, AMOUNT, "llama3: frequencies above are not scaled"] = 4.0
    rope_original_context: Annotated[int, SIZE, "llama3: the context before scaling"] = 8192

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rope_factor < 1 or (
            self.rope_scaling == "llama3" and self.rope_low_freq_factor >= self.rope_high_freq_factor
        ):
            raise ValueError(
                f"positions are stretched by 1 or more, and from low to high, "
                f"not by {self.rope_factor} from {self.rope_low_freq_factor} to {self.rope_high_freq_factor}"
            )


MODEL_TYPES = ("llama", "qwen2")  # Hugging Face's
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
    c = config
    position = build_position(c)
    stack = Stack([build_block(c, position) for _ in range(c.layers)], RMSNorm(c.width, c.eps))
    head = Tied() if c.tie_embeddings else Untied(c.width, c.vocab)
    model = Decoder(Inputs(TokenEmbedding(c.vocab, c.width)), stack, head)
    normal_(model, std=0.02)
    return model


def build_position(c: LlamaConfig) -> Rotary:
    if c.rope_scaling == "none":
        return Rotary(c.key_width, layout="halves", base=c.rotary_base)
    original = (c.rope_low_freq_factor, c.rope_high_freq_factor, c.rope_original_context)
    linear = c.rope_scaling == "linear"
    stretch = LinearScaling(c.rope_factor) if linear else Llama3Scaling(c.rope_factor, *original)
    return StretchedRotary(c.key_width, stretch, layout="halves", base=c.rotary_base)


def build_block(c: LlamaConfig, position: Rotary) -> Block:
    attention = MultiHeadAttention(
        c.width,
        c.heads,
        kv_heads=c.kv_heads,
        key_width=c.key_width,
        bias=c.attention_bias,
        out_bias=c.attention_bias and c.out_bias,
        dropout=c.attention_dropout,
        position=position,
    )
    feed_forward = GatedFeedForward(c.width, c.ffn_width, c.activation, bias=c.ffn_bias)
    return Block(
        PreNorm(attention, RMSNorm(c.width, c.eps)),
        PreNorm(feed_forward, RMSNorm(c.width, c.eps)),
    )


# Hugging Face: its rotary layout is "halves" too, so no permutation is needed. Qwen2 is LLaMA with other
# biases.


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> LlamaConfig:
    qwen = theirs.get("model_type") == "qwen2"
    refuse_unless(theirs, "use_sliding_window", False)
    refuse_unless_all_see(theirs)
    width, heads = read(theirs, "hidden_size", 4096), read(theirs, "num_attention_heads", 32)
    if theirs.get("head_dim") is None and width % heads:
        raise BadInput(f"hidden_size {width} cannot be divided into {heads} heads (num_attention_heads)")
    context = read(theirs, "max_position_embeddings", 32768 if qwen else 2048)
    return LlamaConfig(
        vocab=read(theirs, "vocab_size", 151936 if qwen else 32000),
        context=context,
        layers=read(theirs, "num_hidden_layers", 32),
        width=width,
        heads=heads,
        kv_heads=read_unless_null(theirs, "num_key_value_heads", 32 if qwen else heads),
        key_width=read_unless_null(theirs, "head_dim", width // heads),
        ffn_width=read(theirs, "intermediate_size", 22016 if qwen else 11008),
        activation=read_activation(theirs, "hidden_act", "silu"),
        attention_bias=qwen or read(theirs, "attention_bias", False),
        out_bias=not qwen,
        ffn_bias=not qwen and read(theirs, "mlp_bias", False),
        attention_dropout=read(theirs, "attention_dropout", 0.0),
        eps=read(theirs, "rms_norm_eps", 1e-6),
        tie_embeddings=read(theirs, "tie_word_embeddings", False),
        **read_rotary(theirs, context),
    )


def refuse_unless_all_see(theirs: dict[str, Any]) -> None:
    """Layers that see only so far back are not implemented."""
    kinds = theirs.get("layer_types") or []
    other = [kind for kind in kinds if kind != "full_attention"] if isinstance(kinds, list) else [kinds]
    if other:
        raise BadInput(f"layer_types names {short(other[0])}; heedful implements only full_attention")


def read_rotary(theirs: dict[str, Any], context: int) -> dict[str, Any]:
    """How positions turn. Today's configs say it all in one place, older ones the base beside it."""
    rope = theirs.get("rope_scaling") or theirs.get("rope_parameters") or {}
    if not isinstance(rope, dict):
        raise BadInput(f"rope_parameters must be an object {{...}}, not {short(rope)}")
    kind = one_of(ROPE_TYPES, "rope_type", rope.get("rope_type", rope.get("type", "default")))
    refuse_unless(theirs | rope, "partial_rotary_factor", 1.0)
    base = read(theirs | rope, "rope_theta", 10000.0)
    if base == 0:
        raise BadInput("rope_theta must be more than 0")
    found: dict[str, Any] = {"rotary_base": base, "rope_scaling": ROPE_TYPES[kind]}
    if kind != "default":
        found["rope_factor"] = read(rope, "factor", 1.0)
    if kind == "llama3":
        found["rope_low_freq_factor"] = read(rope, "low_freq_factor", 1.0)
        found["rope_high_freq_factor"] = read(rope, "high_freq_factor", 4.0)
        found["rope_original_context"] = read(rope, "original_max_position_embeddings", context)
    return found


ROPE_TYPES = {"default": "none", "linear": "linear", "llama3": "llama3"}


def write_rotary(c: LlamaConfig) -> dict[str, Any]:
    """The same; transformers before version 5 reads `rope_theta` and `rope_scaling`."""
    said: dict[str, Any] = {"rope_type": "default" if c.rope_scaling == "none" else c.rope_scaling}
    if c.rope_scaling != "none":
        said["factor"] = c.rope_factor
    if c.rope_scaling == "llama3":
        said |= {"low_freq_factor": c.rope_low_freq_factor, "high_freq_factor": c.rope_high_freq_factor}
        said["original_max_position_embeddings"] = c.rope_original_context
    older = {} if c.rope_scaling == "none" else {"rope_scaling": said}
    return {
        "rope_theta": c.rotary_base,
        **older,
        "rope_parameters": said | {"rope_theta": c.rotary_base},
    }


def write_config(c: LlamaConfig) -> dict[str, Any]:
    qwen = c.attention_bias and not c.out_bias
    if qwen and c.ffn_bias:
        raise BadInput("Hugging Face's Qwen2 has no biases in its feed-forward layers, and this model has")
    biases = {"attention_bias": c.attention_bias, "mlp_bias": c.ffn_bias}
    return {
        "model_type": "qwen2" if qwen else "llama",
        "architectures": ["Qwen2ForCausalLM" if qwen else "LlamaForCausalLM"],
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "num_hidden_layers": c.layers,
        "hidden_size": c.width,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.key_width,
        "intermediate_size": c.ffn_width,
        "hidden_act": ACTIVATION_NAMES[c.activation],
        **({"use_sliding_window": False} if qwen else biases),
        "attention_dropout": c.attention_dropout,
        **write_rotary(c),
        "rms_norm_eps": c.eps,
        "tie_word_embeddings": c.tie_embeddings,
    }


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
    for part in ("gate", "up", "down"):
        rules += linear(f"{theirs}.mlp.{part}_proj", f"{ours}.feed_forward.layer.{part}", c.ffn_bias)
    return Table(
        rules,
        prefix="model.",
        copies={"lm_head.weight": "model.embed_tokens.weight"} if c.tie_embeddings else {},
        ignored=("layers.{}.self_attn.rotary_emb.inv_freq",),
    )
