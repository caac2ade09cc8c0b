"""The costs of a model at one batch and length, and which lengths it can have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...models.base.shells import Decoder, Encoder, EncoderDecoder
from ...models.clip import Clip
from ...models.dalle import Dalle
from ...models.dvae import DVAE
from ...models.judge import Judge
from ...models.vit import PatchInputs
from ...parts.positions.base import check_length
from ..look.drawing import Drawing, Pictured
from .memory import frozen, memory
from .models import model_cost
from .part import Part
from .picture import costs_picture
from .tally import Tally

PRECISIONS = {"fp32": 4, "bf16": 2}  # bytes of a number in a matrix product
CAPTION = 64  # tokens of a caption, which has no end of its own
CELLS = 1024  # of a picture, where nothing says how large it is: DALL-E's


@dataclass(frozen=True)
class Costs(Pictured):
    """What a model costs at one batch and length, as `costs` finds it.

    Attributes:
        whole: The model as a tree of parts.
        batch: Rows of the batch.
        length: Tokens of a row.
        source_length: Tokens of a source; encoder-decoders only.
        precision: Type of the numbers in matrix products: "fp32" or "bf16".
        tokens: What `flops_per_token` counts by.
        flops_per_token: FLOPs of a forward pass and of a training step.
        memory: Bytes by purpose, such as weights, gradients and activations.

    Example:
        >>> found = costs(heedful.load("runs/lm").model, batch=2, length=32)
        >>> found.parameters == found.active, found.pairs < found.whole.flops
        (True, True)
        >>> sorted(found.flops_per_token)
        ['forward', 'training']
    """

    whole: Part
    batch: int
    length: int
    source_length: int | None
    precision: str
    tokens: str
    flops_per_token: dict[str, int]
    memory: dict[str, int]

    @property
    def parameters(self) -> int:
        """Parameters of the model."""
        return self.whole.parameters

    @property
    def pairs(self) -> int:
        """FLOPs between queries and keys, which grow with the square of the length."""
        return self.whole.pairs

    @property
    def active(self) -> int:
        """Parameters used per token: all except those of experts to which the token is not sent."""
        return self.whole.parameters - self.whole.idle

    def picture(self) -> Drawing:
        """Parameters, FLOPs and memory as bars."""
        return costs_picture(self)


def costs(
    model: Any,
    batch: int = 1,
    length: int = 512,
    source_length: int | None = None,
    precision: str = "fp32",
) -> Costs:
    """What a model costs for a batch of rows: parameters, FLOPs and memory, by arithmetic.

    Args:
        model: The network; it may be on the meta device, without numbers.
        batch: Rows.
        length: Tokens of a row.
        source_length: Tokens of a source, if the model reads one.
        precision: "fp32", "bf16" or "fp16".

    Returns:
        `Costs`, which a notebook shows as a picture.

    Example:
        >>> found = costs(heedful.load("runs/lm").model, batch=2, length=32)
        >>> found.parameters, sorted(found.flops_per_token)
        (51072, ['forward', 'training'])
    """
    if precision not in PRECISIONS:
        raise ValueError(f'precision is {" or ".join(PRECISIONS)}, not "{precision}"')
    model = model.decoder if isinstance(model, Dalle) else model
    reads_source = isinstance(model, EncoderDecoder)
    if source_length is not None and not reads_source:
        raise ValueError(
            "only an encoder-decoder has a source length, and this model reads one sequence: leave it out"
        )
    if reads_source and source_length is None:
        source_length = patches_of(model.encoder) or length
    for name, size in {"batch": batch, "length": length, "source length": source_length}.items():
        if size is not None and size < 1:
            raise ValueError(f"{name} must be at least 1, not {size}")
    check_lengths(model, length, source_length)
    tally = Tally(batch, PRECISIONS[precision])
    whole = model_cost(tally, model, length, source_length or 0)
    return Costs(
        whole,
        batch,
        length,
        source_length,
        precision,
        tokens_of(model),
        flops_per_token(whole, batch, length, source_length),
        memory(model, tally, whole, length, source_length or 0),
    )


def flops_per_token(whole: Part, batch: int, length: int, source_length: int | None) -> dict[str, int]:
    """Forward and training; for an encoder-decoder also the forward pass of each side by its own tokens."""
    forward, still = whole.flops / (batch * length), frozen(whole).flops / (batch * length)
    found = {"forward": round(forward), "training": round(3 * forward - 2 * still)}
    if source_length is not None:
        encoder, decoder = whole.parts
        found["encoder"] = round(encoder.flops / (batch * source_length))
        found["decoder"] = round(decoder.flops / (batch * length))
    return found


# Lengths.


def default_length(model: Any, config: Any) -> int:
    """The longest the model is made for: its patches, its context, or 512 where nothing ends."""
    if isinstance(model, Dalle):
        return config.context
    if isinstance(model, DVAE | Judge):
        return CELLS if isinstance(model, DVAE) else config.image_size**2
    inputs = inputs_of(model)
    if isinstance(inputs, PatchInputs) and not isinstance(model, EncoderDecoder):
        return len(inputs.position.table)
    return getattr(config, "context", CAPTION if isinstance(inputs, PatchInputs) else 512)


def patches_of(encoder: Any) -> int | None:
    """Tokens of a picture, for an encoder that reads pictures: their size decides it."""
    return encoder.inputs.position.longest if isinstance(encoder.inputs, PatchInputs) else None


def inputs_of(model: Any) -> Any:
    """The inputs of a model that reads tokens or patches; None for any other."""
    if isinstance(model, Clip):
        return model.pictures.encoder.inputs  # type: ignore[union-attr]
    return getattr(
        model if isinstance(model, Decoder | Encoder) else getattr(model, "encoder", None), "inputs", None
    )


def check_lengths(model: Any, length: int, source_length: int | None) -> None:
    """Refuse what a learned table of positions cannot hold, and any length but its own for an image."""
    inputs, read = inputs_of(model), length if source_length is None else source_length
    if inputs is None:
        return
    if isinstance(inputs, PatchInputs) and read != inputs.position.longest:
        raise ValueError(
            f"the image decides the length: {inputs.image} x {inputs.image} pixels are always "
            f"{inputs.position.longest} tokens (the class token and the patches), never {read}"
        )
    check_length(read, inputs.position)
    if isinstance(model, EncoderDecoder):
        check_length(length, model.decoder.inputs.position)


def tokens_of(model: Any) -> str:
    """What the FLOPs of one token are divided by."""
    if isinstance(model, EncoderDecoder):
        return "target token, including the encoder"
    if isinstance(model, DVAE | Judge):
        return "cell" if isinstance(model, DVAE) else "pixel"
    return "patch or class token" if isinstance(inputs_of(model), PatchInputs) else "token"
