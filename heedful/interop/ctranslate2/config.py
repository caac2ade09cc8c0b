"""The config of a CTranslate2 model: its settings make up one of our architectures, or it is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from ...errors import BadInput
from ...files import short
from ...models.bert import BertConfig
from ...models.gpt1 import GPT1Config
from ...models.gpt2 import GPT2Config
from ...models.llama import LlamaConfig
from ...models.t5 import T5Config
from ...models.transformer import TransformerConfig
from ...parts.positions.absolute import Sinusoidal
from ..run_folder import CONFIG
from .file import Variables
from .layout import ACTIVATION_CODES, SCALING_CODES

FAR, FAR_HALF = 1e-3, 1e-2  # what a table of sinusoids may be off, far out: in fp32, and in 16 bits


def activation(variables: Variables, side: str) -> str:
    number = variables.setting(f"{side}/activation")
    found = next((name for name, theirs in ACTIVATION_CODES.items() if theirs == number), None)
    if found is None:
        known = ", ".join(ACTIVATION_CODES)
        raise BadInput(f"{variables.path}: {side}/activation is {number}; heedful knows {known}")
    return found


def longest(said: dict[str, Any], default: int) -> int:
    """How long a text may be, of positions that have no table; heedful writes it, others do not."""
    found = said.get("max_position_embeddings")
    return found if type(found) is int else default


def epsilon(said: dict[str, Any], default: float) -> float:
    found = said.get("layer_norm_epsilon")
    if found is not None and (not isinstance(found, float) or not 0 < found < 1):
        raise BadInput(f"{CONFIG}: layer_norm_epsilon is {short(found)}")
    return default if found is None else found


class Sizes(NamedTuple):
    """What the config of every architecture has."""

    layers: int
    heads: int
    width: int
    ffn_width: int

    @property
    def key_width(self) -> int:
        return self.width // max(self.heads, 1)


def sizes_of(variables: Variables, side: str, scaled: bool) -> Sizes:
    """The sizes of an encoder or a decoder; settings that heedful lacks are refused."""
    variables.may(f"{side}/alibi", 0)
    layers = variables.layers(side)
    if not layers:
        raise BadInput(f"{variables.path} has no layers in its {side}")
    tokens = "embeddings_0" if side == "encoder" else "embeddings"
    width = variables.shape(f"{side}/{tokens}/weight")[1]
    if not scaled:
        variables.need(f"{side}/scale_embeddings", 0, 1.0)
        if variables.get(f"{side}/scale_embeddings").dtype == torch.int8:  # a yes or no, where yes is a root
            variables.need(f"{side}/scale_embeddings", 0)
    hidden = variables.shape(f"{side}/layer_0/ffn/linear_0/weight")[0]
    return Sizes(layers, variables.setting(f"{side}/num_heads"), width, hidden)


def attention(
    variables: Variables,
    side: str,
    layers: int,
    wanted: Mapping[str, tuple[float, ...]],
    allowed: Mapping[str, tuple[float, ...]],
) -> None:
    """Each layer's settings of attention must be these, or may be those."""
    for i in range(layers):
        for name, values in wanted.items():
            variables.need(f"{side}/layer_{i}/self_attention/{name}", *values)
        for part in ("self_attention", "attention"):
            for name, values in allowed.items():
                variables.may(f"{side}/layer_{i}/{part}/{name}", *values)


def is_scaled(variables: Variables, side: str, width: int) -> bool:
    """Whether embeddings are multiplied by the root of their width: a yes or no, or the number."""
    name = f"{side}/scale_embeddings"
    found = variables.setting(name, 1)
    if name not in variables or variables.get(name).dtype == torch.int8:
        return bool(found)
    if math.isclose(found, math.sqrt(width), rel_tol=1e-6) or found == 1:
        return found != 1
    raise BadInput(
        f"{variables.path}: {name} is {found}, which is neither 1 nor the root of the width {width}"
    )


def of_transformer(variables: Variables, said: dict[str, Any]) -> tuple[str, Any]:
    """An encoder-decoder: T5's if it has relative biases, else the Transformer as it was published."""
    if "encoder/layer_0/self_attention/relative_attention_bias" in variables:
        return of_t5(variables, said)
    encoder, decoder = (sizes_of(variables, side, scaled=True) for side in ("encoder", "decoder"))
    pre = bool(variables.setting("encoder/pre_norm"))
    variables.need("decoder/pre_norm", int(pre))
    variables.may("encoder/embeddings_merge", 0, 1)  # there is one
    variables.need("decoder/activation", variables.setting("encoder/activation"))
    if epsilon(said, 1e-5) != 1e-5:
        raise BadInput(f"layer_norm_epsilon is {epsilon(said, 1e-5)}; heedful's transformer has 1e-5")
    positions, layout, context = positions_of(variables, encoder.width)
    context = longest(said, context) if positions == "rotary" else context
    if not variables.same("decoder/projection/weight", "decoder/embeddings/weight"):
        raise BadInput(f"{variables.path} has an output projection that differs from its embedding")
    turns = {"rotary_interleave": (1,), "rotary_base": (10000.0,)}
    for side, sizes in (("encoder", encoder), ("decoder", decoder)):
        key_width = max(encoder.width // max(sizes.heads, 1), 1)
        usual = float(torch.tensor(key_width**-0.5))
        allowed = {"queries_scale": (usual,), "head_dim": (key_width,)}
        wanted = turns | {"rotary_dim": (0, key_width)} if positions == "rotary" else {}
        attention(variables, side, sizes.layers, wanted, allowed)
    scaled = is_scaled(variables, "encoder", encoder.width)
    if is_scaled(variables, "decoder", encoder.width) != scaled:
        raise BadInput(f"{variables.path} scales the embeddings of one side only")
    return "transformer", TransformerConfig(
        vocab=variables.shape("encoder/embeddings_0/weight")[0],
        target_vocab=variables.shape("decoder/embeddings/weight")[0],
        share_embeddings=variables.same("encoder/embeddings_0/weight", "decoder/embeddings/weight"),
        context=context,
        **encoder._asdict(),
        decoder_layers=decoder.layers,
        decoder_heads=decoder.heads,
        decoder_ffn_width=decoder.ffn_width,
        activation=activation(variables, "encoder"),
        norm="pre" if pre else "post",
        positions=positions,
        sinusoid_layout=layout,
        scale_embeddings=scaled,
        output_bias="decoder/projection/bias" in variables,
    )


def positions_of(variables: Variables, width: int) -> tuple[str, str, int]:
    """(our name of the positions, the layout of the sinusoids, how many are stored)."""
    names = ("encoder/position_encodings/encodings", "decoder/position_encodings/encodings")
    turns = "encoder/layer_0/self_attention/rotary_dim" in variables
    if turns and not any(name in variables for name in names):
        return "rotary", "interleaved", TransformerConfig().context
    if not all(name in variables for name in names) or not variables.same(*names):
        raise BadInput(
            f"{variables.path} has positions that are neither rotary nor sinusoids shared by both sides"
        )
    rows, columns = variables.shape(names[0])
    table = variables.tensor(names[0])
    far = FAR if variables.get(names[0]).dtype == torch.float32 else FAR_HALF
    for layout in ("interleaved", "halves"):
        if columns == width and width % 2 == 0:
            ours = Sinusoidal(width, layout=layout).encode(torch.arange(rows))
            if bool(((table - ours).abs() <= far).all()):
                return "sinusoidal", layout, rows
    raise BadInput(f"{variables.path}: {names[0]} are not the sinusoids of Vaswani et al. 2017")


def of_t5(variables: Variables, said: dict[str, Any]) -> tuple[str, Any]:
    sizes, decoder = (sizes_of(variables, side, scaled=False) for side in ("encoder", "decoder"))
    variables.need("decoder/num_heads", sizes.heads)
    variables.may("encoder/embeddings_merge", 0, 1)
    variables.need("decoder/activation", variables.setting("encoder/activation"))
    variables.may("decoder/start_from_zero_embedding", 0)
    bias = variables.shape("encoder/layer_0/self_attention/relative_attention_bias")
    longest = variables.setting("encoder/layer_0/self_attention/relative_attention_max_distance")
    key_width = variables.shape("encoder/layer_0/self_attention/linear_1/weight")[1] // max(sizes.heads, 1)
    wanted = {"relative_attention_max_distance": (longest,), "queries_scale": (1.0,)}
    for side, count in (("encoder", sizes.layers), ("decoder", decoder.layers)):
        variables.need(f"{side}/pre_norm", 1)
        attention(variables, side, count, wanted, {"head_dim": (key_width,)})
        for i in range(count if side == "decoder" else 0):
            variables.need(f"{side}/layer_{i}/attention/queries_scale", 1.0)
        first = f"{side}/layer_0/self_attention/relative_attention_bias"
        for i in range(count):
            if not variables.same(first, f"{side}/layer_{i}/self_attention/relative_attention_bias"):
                raise BadInput(f"{variables.path} has a different relative attention bias in layer {i}")
    scale = variables.setting("decoder/scale_outputs", 1.0)
    if not (scale == 1 or math.isclose(scale, sizes.width**-0.5, rel_tol=1e-6)):
        raise BadInput(f"{variables.path}: decoder/scale_outputs is {scale}")
    if not variables.same("encoder/embeddings_0/weight", "decoder/embeddings/weight"):
        raise BadInput(f"{variables.path} has two vocabularies, and T5 has one")
    return "t5", T5Config(
        vocab=variables.shape("encoder/embeddings_0/weight")[0],
        **sizes._asdict(),
        decoder_layers=decoder.layers,
        key_width=key_width,
        activation=activation(variables, "encoder"),
        gated="encoder/layer_0/ffn/linear_0_noact/weight" in variables,
        buckets=bias[0],
        max_distance=longest,
        eps=epsilon(said, 1e-6),
        tie_embeddings=variables.same("decoder/projection/weight", "decoder/embeddings/weight"),
        scale_output=scale != 1,
    )


def of_decoder(variables: Variables, said: dict[str, Any]) -> tuple[str, Any]:
    """GPT-1, GPT-2 or LLaMA: by where the norm stands, and whether positions turn."""
    sizes = sizes_of(variables, "decoder", scaled=False)
    vocab = variables.shape("decoder/embeddings/weight")[0]
    tied = variables.same("decoder/projection/weight", "decoder/embeddings/weight")
    variables.may("decoder/start_from_zero_embedding", 0)
    pre, first = bool(variables.setting("decoder/pre_norm")), "decoder/layer_0/self_attention"
    if f"{first}/rotary_dim" in variables:
        return "llama", llama(variables, said, sizes, vocab, tied)
    attention(variables, "decoder", sizes.layers, {}, {"head_dim": (sizes.key_width,)})
    kind = GPT2Config if pre else GPT1Config
    return "gpt2" if pre else "gpt1", kind(
        vocab=vocab,
        context=variables.shape("decoder/position_encodings/encodings")[0],
        **sizes._asdict(),
        activation=activation(variables, "decoder"),
        eps=epsilon(said, 1e-5),
        tie_embeddings=tied,
    )


def llama(variables: Variables, said: dict[str, Any], sizes: Sizes, vocab: int, tied: bool) -> LlamaConfig:
    first = "decoder/layer_0/self_attention"
    kv_heads = variables.setting(f"{first}/num_heads_kv", sizes.heads)
    key_width = variables.setting(f"{first}/head_dim", sizes.key_width)
    base = variables.setting(f"{first}/rotary_base", 10000.0)
    wanted = {"rotary_dim": (0, key_width), "rotary_interleave": (0,), "rotary_base": (base,)}
    stretch, named = read_scaling(variables, first)
    wanted |= {"num_heads_kv": (kv_heads,)} if kv_heads != sizes.heads else {}
    wanted |= {name: (variables.setting(f"{first}/{name}"),) for name in named}
    wanted |= {"head_dim": (key_width,)} if key_width * sizes.heads != sizes.width else {}
    attention(
        variables, "decoder", sizes.layers, wanted, {"num_heads_kv": (kv_heads,), "head_dim": (key_width,)}
    )
    if base <= 0:
        raise BadInput(f"{variables.path}: {first}/rotary_base is {base}")
    return LlamaConfig(
        vocab=vocab,
        context=longest(said, LlamaConfig().context),
        **sizes._asdict(),
        kv_heads=kv_heads,
        key_width=key_width,
        activation=activation(variables, "decoder"),
        attention_bias=f"{first}/linear_0/bias" in variables,
        out_bias=f"{first}/linear_0/bias" not in variables or f"{first}/linear_1/bias" in variables,
        ffn_bias="decoder/layer_0/ffn/linear_0/bias" in variables,
        rotary_base=base,
        qk_norm=f"{first}/q_norm/gamma" in variables,
        eps=epsilon(said, 1e-6),
        tie_embeddings=tied,
        **stretch,
    )


def read_scaling(variables: Variables, first: str) -> tuple[dict[str, Any], list[str]]:
    """How rotary positions are stretched, and which settings say it."""
    if f"{first}/rotary_scaling_type" not in variables:
        return {}, []
    number = variables.setting(f"{first}/rotary_scaling_type")
    kind = next((name for name, theirs in SCALING_CODES.items() if theirs == number), None)
    if kind is None:
        raise BadInput(
            f"{variables.path}: {first}/rotary_scaling_type is {number}, which heedful does not read"
        )
    named = {"rope_factor": "rotary_scaling_factor"}
    if kind == "llama3":
        named |= {
            "rope_low_freq_factor": "rotary_low_freq_factor",
            "rope_high_freq_factor": "rotary_high_freq_factor",
        }
        named |= {"rope_original_context": "original_max_position_embeddings"}
    found = {ours: variables.setting(f"{first}/{theirs}") for ours, theirs in named.items()}
    return {"rope_scaling": kind, **found}, ["rotary_scaling_type", *named.values()]


def of_encoder(variables: Variables, said: dict[str, Any]) -> tuple[str, Any]:
    """BERT without a head, or with the pooled vector."""
    sizes = sizes_of(variables, "encoder", scaled=False)
    variables.need("encoder/pre_norm", 0)
    if "encoder/embeddings_1/weight" not in variables:
        raise BadInput(
            f"{variables.path} is an encoder without segments, and heedful reads only BERT encoders"
        )
    variables.need("encoder/embeddings_merge", 1)
    attention(variables, "encoder", sizes.layers, {}, {"head_dim": (sizes.key_width,)})
    pooled = "pooler_dense/weight" in variables
    if pooled:
        variables.need("pooler_activation", ACTIVATION_CODES["tanh"])
    return "bert", BertConfig(
        vocab=variables.shape("encoder/embeddings_0/weight")[0],
        context=variables.shape("encoder/position_encodings/encodings")[0],
        segments=variables.shape("encoder/embeddings_1/weight")[0],
        layers=sizes.layers,
        width=sizes.width,
        heads=sizes.heads,
        ffn_width=sizes.ffn_width,
        activation=activation(variables, "encoder"),
        eps=epsilon(said, 1e-5),
        prediction_heads=("pooled",) if pooled else (),
    )


SPECIFICATIONS: dict[str, Callable[[Variables, dict[str, Any]], tuple[str, Any]]] = {
    "TransformerSpec": of_transformer,
    "TransformerDecoderSpec": of_decoder,
    "TransformerEncoderSpec": of_encoder,
}
