"""Vision Transformer (Dosovitskiy et al. 2021): cut an image into patches, and read them like words.

DeiT (Touvron et al. 2021) has a second token in front, the distillation token, which was taught by another
model. Where it has two classifiers, one for each of these tokens, their scores are averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..parts.blocks import Block, Stack
from ..parts.layers import FeedForward, LayerNorm, PreNorm
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.absolute import Learned
from ..parts.positions.base import Positions
from .base.config import Config
from .base.fields import (
    Activation,
    AttentionDropout,
    Channels,
    Dropout,
    Eps,
    FfnWidth,
    Heads,
    ImageSize,
    Labels,
    Layers,
    PatchSize,
    PredictionHeads,
    Width,
    ratio,
)
from .base.heads import Classify, ClassifyBoth, FirstToken, MeanOverTokens, Pooled
from .base.initialize import normal_
from .base.shells import Encoder, WithHeads
from .hf.folder import (
    ACTIVATION_NAMES,
    read,
    read_activation,
    read_architecture,
    read_labels,
    refuse_unless,
    write_labels,
)
from .hf.names import Table, reshaped, same, weight_and_bias


@dataclass(frozen=True)
class ViTConfig(Config):
    image_size: ImageSize = 224
    patch_size: PatchSize = 16
    channels: Channels = 3
    layers: Layers = 12
    width: Width = 768
    heads: Heads = 12
    ffn_width: FfnWidth = ratio(4, "width")
    activation: Activation = "gelu"
    qkv_bias: Annotated[bool, "biases of queries, keys and values"] = True
    dropout: Dropout = 0.0
    attention_dropout: AttentionDropout = 0.0
    eps: Eps = 1e-12
    prediction_heads: PredictionHeads = ("class_token",)
    labels: Labels = 1000
    distilled: Annotated[bool, "a distillation token (DeiT)"] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image_size % self.patch_size:
            raise ValueError(
                f"an image of {self.image_size} pixels cannot be cut into patches of {self.patch_size}"
            )
        if "classify_both" in self.prediction_heads and not self.distilled:
            raise ValueError("the head classify_both reads a distillation token too: set distilled")

    @property
    def grid(self) -> int:
        """Patches along one side."""
        return self.image_size // self.patch_size

    @property
    def leading(self) -> int:
        """Tokens before the patches."""
        return 2 if self.distilled else 1

    @property
    def tokens(self) -> int:
        """All of an image."""
        return self.leading + self.grid**2


MODEL_TYPES = ("vit", "deit")  # Hugging Face's
PRESETS = {
    "vit-ti16": ViTConfig(width=192, heads=3, ffn_width=768),
    "vit-s16": ViTConfig(width=384, heads=6, ffn_width=1536),
    "vit-b16": ViTConfig(),
    "vit-l16": ViTConfig(layers=24, width=1024, heads=16, ffn_width=4096),
    "vit-h14": ViTConfig(patch_size=14, layers=32, width=1280, heads=16, ffn_width=5120),
    "deit-b16": ViTConfig(prediction_heads=("classify_both",), distilled=True),
}


def patches(images_BCHW: Tensor, size: int) -> Tensor:
    """[B, C, H, W] to [B, N, C * size * size]: patches row by row, each as one long vector."""
    x = images_BCHW.unfold(2, size, size).unfold(3, size, size)  # B C rows columns size size
    return x.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


class PatchInputs(nn.Module):
    """Patches through one matrix (a convolution, stride = kernel), a class token in front, positions.

    A distillation token, if there is one, stands between the class token and the patches.
    """

    def __init__(self, c: ViTConfig) -> None:
        super().__init__()
        self.image, self.patch = c.image_size, c.patch_size
        self.embedding = nn.Linear(c.channels * c.patch_size**2, c.width)
        self.class_token = nn.Parameter(torch.zeros(c.width))
        self.distillation_token = nn.Parameter(torch.zeros(c.width)) if c.distilled else None
        self.position = Learned(c.tokens, c.width)
        self.dropout = nn.Dropout(c.dropout)

    def length(self, images_BCHW: Tensor) -> int:
        if images_BCHW.shape[-2:] != (self.image, self.image):
            height, width = images_BCHW.shape[-2:]
            raise ValueError(
                f"this model reads images of {self.image} x {self.image} pixels, not {height} x {width}: "
                f"resize the images, or the model with vit.resized"
            )
        return len(self.position.table)

    def forward(self, images_BCHW: Tensor, positions: Positions, segments: None = None) -> Tensor:
        x_BND = self.embedding(patches(images_BCHW, self.patch))
        first_FD = torch.stack([t for t in (self.class_token, self.distillation_token) if t is not None])
        first_BFD = first_FD.expand(len(x_BND), -1, -1)
        x_BTD = self.position.embed(torch.cat([first_BFD, x_BND], dim=1), positions)
        return self.dropout(x_BTD)


PictureEncoder = WithHeads  # a kind of its own: tasks that read words cannot train it


def build(config: ViTConfig) -> PictureEncoder:
    """The encoder and its heads, with fresh weights; the classifier starts at zero, as for fine-tuning."""
    c = config
    stack = Stack([build_block(c) for _ in range(c.layers)], LayerNorm(c.width, c.eps))
    model = WithHeads(Encoder(PatchInputs(c), stack), build_heads(c))
    normal_(model, std=0.02)
    for head in model.heads.values():
        for linear in head.children() if isinstance(head, Classify | ClassifyBoth) else ():
            if isinstance(linear, nn.Linear):
                nn.init.zeros_(linear.weight)
    return model


def build_block(c: ViTConfig) -> Block:
    attention = MultiHeadAttention(
        c.width, c.heads, bias=c.qkv_bias, out_bias=True, dropout=c.attention_dropout
    )
    feed_forward = FeedForward(c.width, c.ffn_width, c.activation)
    return Block(
        PreNorm(attention, LayerNorm(c.width, c.eps), c.dropout),
        PreNorm(feed_forward, LayerNorm(c.width, c.eps), c.dropout),
    )


def build_heads(c: ViTConfig) -> dict[str, nn.Module]:
    """By name; what both tokens say of the labels is the model's "classify"."""
    known: dict[str, Callable[[], nn.Module]] = {
        "class_token": FirstToken,
        "pooled": lambda: Pooled(c.width),
        "classify": lambda: Classify(FirstToken(), c.width, c.labels),
        "classify_mean": lambda: Classify(MeanOverTokens(c.leading), c.width, c.labels),
        "classify_both": lambda: ClassifyBoth(c.width, c.labels),
    }
    for head in c.prediction_heads:
        if head not in known:
            raise ValueError(f'ViT has no head "{head}"; it has {", ".join(known)}')
    if {"classify", "classify_both"} <= set(c.prediction_heads):
        raise ValueError("the heads classify and classify_both are two ways to one answer: leave out one")
    return {head.removesuffix("_both"): known[head]() for head in c.prediction_heads}


def interpolate(table_TD: Tensor, grid: int, leading: int = 1) -> Tensor:
    """Positions for another resolution: the grid's by bicubic interpolation; the leading tokens' kept."""
    first, rest = table_TD[:leading], table_TD[leading:]
    old = round(len(rest) ** 0.5)
    square = rest.unflatten(0, (old, old)).permute(2, 0, 1)[None]
    square = F.interpolate(square, size=(grid, grid), mode="bicubic", align_corners=False)
    return torch.cat([first, square[0].permute(1, 2, 0).flatten(0, 1)])


def resized(model: WithHeads, config: ViTConfig, image: int) -> tuple[WithHeads, ViTConfig]:
    """The same weights for images of another size: same patches, more or fewer of them."""
    config = replace(config, image_size=image)
    weights = model.state_dict()
    key = "encoder.inputs.position.table"
    weights[key] = interpolate(weights[key], config.grid, config.leading)
    other = build(config).to(weights[key]).train(model.training)
    other.load_state_dict(weights)
    return other, config


# Hugging Face


ARCHITECTURES = {
    "vit": {"ViTModel": ("class_token", "pooled"), "ViTForImageClassification": ("classify",)},
    "deit": {
        "DeiTModel": ("class_token", "pooled"),
        "DeiTForImageClassification": ("classify",),
        "DeiTForImageClassificationWithTeacher": ("classify_both",),
    },
}


def find_class(theirs: dict[str, Any], names: Collection[str], known: Collection[str]) -> str:
    """The class that a config names, or else the one whose head is in the file."""
    if theirs.get("architectures"):
        return read_architecture(theirs, known)
    both = "cls_classifier.weight" in names
    return list(known)[2 if both else 1 if "classifier.weight" in names else 0]


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> ViTConfig:
    refuse_unless(theirs, "pooler_act", "tanh")
    kind = "deit" if theirs.get("model_type") == "deit" else "vit"
    heads = ARCHITECTURES[kind][find_class(theirs, names, ARCHITECTURES[kind])]
    if names and not any(name.endswith("pooler.dense.weight") for name in names):
        heads = tuple(head for head in heads if head != "pooled")
    if theirs.get("pooler_output_size") is not None:
        refuse_unless(theirs, "pooler_output_size", read(theirs, "hidden_size", 768))
    return ViTConfig(
        image_size=read(theirs, "image_size", 224),
        patch_size=read(theirs, "patch_size", 16),
        channels=read(theirs, "num_channels", 3),
        layers=read(theirs, "num_hidden_layers", 12),
        width=read(theirs, "hidden_size", 768),
        heads=read(theirs, "num_attention_heads", 12),
        ffn_width=read(theirs, "intermediate_size", 3072),
        activation=read_activation(theirs, "hidden_act", "gelu"),
        qkv_bias=read(theirs, "qkv_bias", True),
        dropout=read(theirs, "hidden_dropout_prob", 0.0),
        attention_dropout=read(theirs, "attention_probs_dropout_prob", 0.0),
        eps=read(theirs, "layer_norm_eps", 1e-12),
        prediction_heads=heads,
        labels=read_labels(theirs),
        distilled=kind == "deit",
    )


def write_config(c: ViTConfig) -> dict[str, Any]:
    kind = "deit" if c.distilled else "vit"
    labeled = [
        name for name, heads in ARCHITECTURES[kind].items() if set(heads) & LABELED & set(c.prediction_heads)
    ]
    return {
        "model_type": kind,
        "architectures": labeled or list(ARCHITECTURES[kind])[:1],
        "image_size": c.image_size,
        "patch_size": c.patch_size,
        "num_channels": c.channels,
        "num_hidden_layers": c.layers,
        "hidden_size": c.width,
        "num_attention_heads": c.heads,
        "intermediate_size": c.ffn_width,
        "hidden_act": ACTIVATION_NAMES[c.activation],
        "qkv_bias": c.qkv_bias,
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.attention_dropout,
        "layer_norm_eps": c.eps,
        **write_labels(c.labels),
    }


LABELED = {"classify", "classify_both"}


def names(c: ViTConfig) -> Table:
    prefix = "deit." if c.distilled else "vit."
    block, layer, inputs = "encoder.stack.blocks.{}", f"{prefix}encoder.layer.{{}}", "encoder.inputs"
    first = (1, 1, c.width)
    qkv = [
        rule
        for part in ("query", "key", "value")
        for rule in weight_and_bias(f"{layer}.attention.attention.{part}", f"{block}.attention.layer.{part}")
        if c.qkv_bias or rule.theirs.endswith("weight")
    ]
    kernel = (c.width, c.channels, c.patch_size, c.patch_size)
    return Table(
        [
            reshaped(f"{prefix}embeddings.cls_token", f"{inputs}.class_token", first, (c.width,)),
            reshaped(
                f"{prefix}embeddings.distillation_token", f"{inputs}.distillation_token", first, (c.width,)
            ),
            reshaped(
                f"{prefix}embeddings.position_embeddings",
                f"{inputs}.position.table",
                (1, c.tokens, c.width),
                (c.tokens, c.width),
            ),
            reshaped(
                f"{prefix}embeddings.patch_embeddings.projection.weight",
                f"{inputs}.embedding.weight",
                kernel,
                (c.width, c.channels * c.patch_size**2),
            ),
            same(f"{prefix}embeddings.patch_embeddings.projection.bias", f"{inputs}.embedding.bias"),
            *qkv,
            *weight_and_bias(f"{layer}.attention.output.dense", f"{block}.attention.layer.out"),
            *weight_and_bias(f"{layer}.layernorm_before", f"{block}.attention.norm"),
            *weight_and_bias(f"{layer}.intermediate.dense", f"{block}.feed_forward.layer.up"),
            *weight_and_bias(f"{layer}.output.dense", f"{block}.feed_forward.layer.down"),
            *weight_and_bias(f"{layer}.layernorm_after", f"{block}.feed_forward.norm"),
            *weight_and_bias(f"{prefix}layernorm", "encoder.stack.norm"),
            *weight_and_bias(f"{prefix}pooler.dense", "heads.pooled.dense"),
            *weight_and_bias(
                "cls_classifier" if "classify_both" in c.prediction_heads else "classifier",
                "heads.classify.linear",
            ),
            *weight_and_bias("distillation_classifier", "heads.classify.taught"),
        ],
        prefix=prefix,
        bare=not LABELED & set(c.prediction_heads),
    )
