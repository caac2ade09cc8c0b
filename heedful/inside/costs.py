"""Costs: how many numbers a model learns, computes and keeps, by arithmetic alone. Nothing is run.

Parameters: every weight once, also where it is used twice (tied embeddings). Active ones are those that a token meets: of
a layer's experts, it meets the few that it is sent to.

FLOPs: matrix products only, two for each multiply-and-add. Attention counts all S keys for every query:
masks, the causal one included, are not taken off, since a model that computes the whole table pays for all
of it. Training is three times the forward pass: the backward pass has two products for each of its one.

Memory: weights, gradients and AdamW's two moments in fp32; what the forward pass keeps for the backward pass;
and the keys and values a decoder keeps while it writes. What is kept is counted where it is used, each tensor
once, as the kernels of a GPU keep it: attention is fused (query, key, value, output and one log-sum-exp a row,
never a table of scores), a norm keeps its input and its statistics, dropout keeps one byte a number. With bf16
(autocast) matrix products keep 2 bytes a number, norms keep 4, and each matrix has a second copy of 2.
The batch itself and the loss are not counted. What is frozen is computed once, forwards, and has neither gradients nor moments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from torch import Tensor, nn

from ..models.albert import NarrowInputs
from ..models.base.heads import (
    Classify,
    ClassifyBoth,
    FirstToken,
    MaskedLM,
    MaxOverTokens,
    MeanOverTokens,
    Pooled,
    Span,
    Tag,
)
from ..models.base.shells import Decoder, Encoder, EncoderDecoder, WithHeads
from ..models.captioner import Grid, OneVector
from ..models.clip import Clip
from ..models.dalle import Dalle
from ..models.dvae import DVAE, Residual
from ..models.elmo import Neighbors
from ..models.elmo_reader import Featured
from ..models.ernie import TaskInputs
from ..models.judge import Judge
from ..models.syntax import Arcs, Relations
from ..models.vit import PatchInputs
from ..parts.attention import Additive, Bilinear, Dot, MultiHeadAttention, ScaledDot
from ..parts.before.attentive_decoders import Attentive, Searching
from ..parts.before.both_ways import ProjectedLSTM, TwoDirections
from ..parts.before.characters import CharacterCNN, Spelled
from ..parts.before.convolution import ConvolutionBlock, ConvolutionDecoder, ConvolutionEncoder, NormedLinear
from ..parts.before.lookup import Lookup
from ..parts.before.recurrent import (
    BidirectionalStack,
    BothWays,
    CandidateGRU,
    LastStates,
    Recurrence,
    RecurrentStack,
)
from ..parts.blocks import Block, Stack
from ..parts.disentangled import ConvolvedBlock, Disentangled
from ..parts.experts import Experts
from ..parts.layers import (
    ACTIVATIONS,
    FeedForward,
    GatedFeedForward,
    Inputs,
    LayerNorm,
    PostNorm,
    PreNorm,
    RMSNorm,
    Tied,
    Untied,
)
from ..parts.long.compressed import RATE, CompressedAttention, CompressedInput
from ..parts.long.linear import CHUNK, KernelAttention
from ..parts.long.windowed_cache import Remembering
from ..parts.positions.absolute import CaptionAndGrid, Learned, Sinusoidal
from ..parts.positions.base import NoPosition, Position, check_length
from ..parts.positions.relative import Shaw, T5Buckets, TransformerXL
from ..parts.positions.rotary import Rotary
from ..parts.positions.syntax import StructuralAbsolute, StructuralRelative

PRECISIONS = {"fp32": 4, "bf16": 2}  # bytes of a number in a matrix product
FULL = 4  # bytes of a number that stays in fp32 whatever the precision


@dataclass(frozen=True)
class Part:
    """A piece of a model and what it costs, its own parts included."""

    name: str
    detail: str = ""
    parameters: int = 0
    flops: int = 0  # forward, for the whole batch
    kept: int = 0  # bytes kept for the backward pass, for the whole batch
    count: int = 1  # how many equal ones these are together
    parts: tuple[Part, ...] = ()
    idle: int = 0  # parameters that a token does not meet


@dataclass(frozen=True)
class Costs:
    """What a model costs at one batch and length."""

    whole: Part
    batch: int
    length: int
    source_length: int | None  # encoder-decoders only
    precision: str
    tokens: str  # what "a token" is in `flops_per_token`
    flops_per_token: dict[str, int]
    memory: dict[str, int]  # bytes

    @property
    def parameters(self) -> int:
        return self.whole.parameters

    @property
    def active(self) -> int:
        """Parameters that a token meets: all, but for experts that it is not sent to."""
        return self.whole.parameters - self.whole.idle


def count_parameters(model: nn.Module) -> int:
    """Numbers a model learns, each weight once."""
    return sum(weight.numel() for weight in model.parameters())


def count_active(model: nn.Module) -> int:
    """Numbers of those that a token meets."""
    mixtures = [module for module in model.modules() if isinstance(module, Experts)]
    return count_parameters(model) - sum(map(count_idle, mixtures))


def count_idle(layer: Experts) -> int:
    """Numbers of the experts that a token is not sent to; all experts are alike."""
    return (len(layer.experts) - layer.gate.chosen) * count_parameters(layer.experts[0])


def costs(
    model: Any,
    batch: int = 1,
    length: int = 512,
    source_length: int | None = None,
    precision: str = "fp32",
) -> Costs:
    """What `model` costs for a batch of rows of `length` tokens (reading `source_length`, if it reads a source)."""
    if precision not in PRECISIONS:
        raise ValueError(f'precision is {" or ".join(PRECISIONS)}, not "{precision}"')
    model = model.decoder if isinstance(model, Dalle) else model
    reads_source = isinstance(model, EncoderDecoder)
    if source_length is not None and not reads_source:
        raise ValueError("only an encoder-decoder has a source length: this model reads one sequence")
    if reads_source and source_length is None:
        source_length = patches_of(model.encoder) or length
    for name, size in {"batch": batch, "length": length, "source length": source_length}.items():
        if size is not None and size < 1:
            raise ValueError(f"{name} must be at least 1, not {size}")
    check_lengths(model, length, source_length)
    walk = Walk(batch, PRECISIONS[precision])
    whole = walk.model(model, length, source_length or 0)
    return Costs(
        whole,
        batch,
        length,
        source_length,
        precision,
        tokens_of(model),
        flops_per_token(model, whole, batch, length, source_length),
        memory(model, walk, whole, length, source_length or 0),
    )


def default_length(model: Any, config: Any) -> int:
    """The longest the model is made for: its patches, its context, or 512 where nothing ends."""
    if isinstance(model, Dalle):
        return config.context
    if isinstance(model, DVAE | Judge):
        return CELLS if isinstance(model, DVAE) else config.image**2
    inputs = inputs_of(model)
    if isinstance(inputs, PatchInputs) and not isinstance(model, EncoderDecoder):
        return len(inputs.position.table)
    return getattr(config, "context", CAPTION if isinstance(inputs, PatchInputs) else 512)


CAPTION = 64  # tokens of a caption, which has no end of its own
CELLS = 1024  # of a picture, where nothing says how large it is: DALL-E's


def patches_of(encoder: Any) -> int | None:
    """Tokens of a picture, of an encoder that reads pictures: their size decides it."""
    return encoder.inputs.position.longest if isinstance(encoder.inputs, PatchInputs) else None


def handed_on(encoder: Any, tokens: int) -> int:
    """Vectors of so many tokens that a decoder sees: of pictures, perhaps one."""
    return encoder.project_out.length(tokens) if isinstance(encoder.project_out, Grid | OneVector) else tokens


def inputs_of(model: Any) -> Any:
    if isinstance(model, Clip):
        return model.pictures.encoder.inputs  # type: ignore[union-attr]
    return (model if isinstance(model, Decoder | Encoder) else model.encoder).inputs


def check_lengths(model: Any, length: int, source_length: int | None) -> None:
    """Refuse what a learned table of positions cannot hold, and any length but its own for an image."""
    if isinstance(model, DVAE | Judge):
        return
    inputs, read = inputs_of(model), length if source_length is None else source_length
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
        return "target token, the encoder's share included"
    if isinstance(model, DVAE | Judge):
        return "cell" if isinstance(model, DVAE) else "pixel"
    return "patch or class token" if isinstance(inputs_of(model), PatchInputs) else "token"


def flops_per_token(
    model: Any, whole: Part, batch: int, length: int, source_length: int | None
) -> dict[str, int]:
    """Forward and training; for an encoder-decoder also the forward pass of each side by its own tokens."""
    forward, still = whole.flops / (batch * length), frozen(whole).flops / (batch * length)
    found = {"forward": round(forward), "training": round(3 * forward - 2 * still)}
    if source_length is not None:
        encoder, decoder = whole.parts
        found["encoder"] = round(encoder.flops / (batch * source_length))
        found["decoder"] = round(decoder.flops / (batch * length))
    return found


def memory(model: Any, walk: Walk, whole: Part, length: int, source_length: int) -> dict[str, int]:
    """Bytes by use, and the two sums people ask for.

    training: weights, gradients, optimizer, copies, activations, and the scores: twice in full (the loss keeps their
    logarithms), once in half precision, which is a GPU's, where scores and loss are one kernel (kernels/loss.py).
    inference: weights at the precision asked for, and the cache.
    """
    half, trained = walk.number < FULL, whole.parameters - frozen(whole).parameters
    found = {
        "weights": FULL * whole.parameters,
        "gradients": FULL * trained,
        "optimizer": 2 * FULL * trained,
        "copies": walk.number * sum(walk.multiplied.values()) if half else 0,
        "activations": whole.kept,
        "logits": walk.number * walk.batch * scores(model, length),
    }
    found["training"] = sum(found.values()) + (0 if half else found["logits"])
    found["cache"] = walk.number * walk.batch * cached(model, length, source_length)
    found["inference"] = walk.number * whole.parameters + found["cache"]
    return found


FROZEN = "language models"


def frozen(whole: Part) -> Part:
    """The part of a model that is used and not trained; an empty one if all of it is."""
    return next((part for part in whole.parts if part.name == FROZEN), Part(FROZEN))


def cached(model: Any, length: int, source_length: int) -> int:
    """Numbers a decoder keeps for one row of `length` tokens: keys and values, its own and the source's."""
    decoder = model
    if isinstance(model, EncoderDecoder):
        decoder, source_length = model.decoder, handed_on(model.encoder, source_length)
    if not isinstance(decoder, Decoder):
        return 0
    if hasattr(decoder.stack, "own_cache"):
        return states(decoder.stack, source_length)
    numbers, blocks = 0, list[Any](decoder.stack.blocks)
    for block in blocks:
        for residual, size in ((block.attention, length), (block.cross, source_length)):
            if residual is not None:
                layer = residual.layer
                if isinstance(layer, Remembering):
                    numbers += layer.remembered(size)
                    continue
                numbers += size * layer.kv_heads * (layer.key_width + layer.value_width)
    return numbers


def states(stack: Any, source_length: int) -> int:
    """The same of what remembers states: they do not grow with the text. Sources are kept prepared for their scores."""
    windows = [block.window for block in stack.blocks if isinstance(block, ConvolutionBlock)]
    numbers = sum((window.kernel - 1) * window.inputs for window in windows)
    numbers += sum(block.state_width for block in stack.blocks if not isinstance(block, ConvolutionBlock))
    if isinstance(stack, Searching | Attentive):
        annotation = (
            stack.start.in_features * 2
        )  # of which the half that was read from the right begins a state
        score: Any = stack.cross.layer.score
        key = score.key.out_features if isinstance(score, Additive) else annotation
        fed = stack.combine.out_features if isinstance(stack, Attentive) and stack.input_feeding else 0
        return numbers + fed + source_length * (key + annotation)
    return numbers + source_length * 2 * sum(
        block.cross.query.out_features for block in stack.blocks if windows
    )


def scores(model: Any, length: int) -> int:
    """Numbers in the largest table of scores a row of `length` tokens gets."""
    if isinstance(model, EncoderDecoder):
        return scores(model.decoder, length)
    if isinstance(model, Decoder):
        matrix = model.head.linear if isinstance(model.head, Untied) else model.inputs.tokens
        return length * matrix.weight.shape[0]
    sizes = [0]
    for head in getattr(model, "heads", nn.ModuleDict()).values():
        if isinstance(head, MaskedLM):
            sizes.append(length * head.bias.numel())
        elif isinstance(head, Neighbors):
            sizes.append(length * 2 * head.words.linear.out_features)
        elif isinstance(head, Arcs):
            sizes.append(length * (length + 1))
        elif isinstance(head, Relations):
            sizes.append(length * len(head.between_LKJ))
        elif isinstance(head, Tag | Span | Classify | ClassifyBoth):
            sizes.append(head.linear.out_features * (length if isinstance(head, Tag | Span) else 1))
    return max(sizes)


# What an activation keeps: tensors beside its result, and whether it keeps its result.
KEEPS = {
    "relu": (0, True),
    "tanh": (0, True),
    "gelu": (1, False),
    "gelu_tanh": (1, False),
    "silu": (1, False),
    "gelu_sigmoid": (2, False),
}


class Walk:
    """One walk through a model: each method is the cost of one kind of module, and tallies its weights."""

    def __init__(self, batch: int, number: int) -> None:
        """number: bytes of a number in a matrix product."""
        self.batch, self.number = batch, number
        self.seen: set[int] = set()  # weights counted already
        self.multiplied: dict[int, int] = {}  # weights that matrix products use: their sizes

    # Shells.

    def model(self, model: Any, T: int, S: int) -> Part:
        if isinstance(model, EncoderDecoder):
            encoder = self.encoder(model.encoder, S)
            return whole("model", [encoder, self.decoder(model.decoder, T, handed_on(model.encoder, S))])
        if isinstance(model, WithHeads):
            encoder = self.encoder(model.encoder, T)
            return whole("model", [*encoder.parts, self.heads(model, T)])
        if isinstance(model, Decoder):
            return replace(self.decoder(model, T, 0), name="model")
        if isinstance(model, Encoder):
            return replace(self.encoder(model, T), name="model")
        if isinstance(model, Clip):
            return self.towers(model, T)
        if isinstance(model, DVAE):
            encoder = self.convolutions("encoder", model.encoder, T * model.config.patch**2)
            return whole("model", [encoder, self.convolutions("decoder", model.decoder, T)])
        if isinstance(model, Judge):
            questions = [self.linear("question", linear, self.batch) for linear in list[Any](model.questions)]
            return whole("model", [self.convolutions("body", model.body, T), whole("questions", questions)])
        raise unknown(model)

    def towers(self, model: Clip, T: int) -> Part:
        """Captions as long as can be, and pictures."""
        longest = model.words.inputs.position.longest
        words = replace(self.encoder(model.words, longest), name="words")
        pictures = replace(self.encoder(model.pictures.encoder, T), name="pictures")
        linears = [self.linear("", linear, self.batch) for linear in (model.from_words, model.from_pictures)]
        common = replace(whole("common space", linears), parts=())
        sharpness = Part("sharpness", parameters=self.weights(model.log_sharpness))
        return whole("model", [words, pictures, common, sharpness])

    def convolutions(self, name: str, layers: Any, places: int) -> Part:
        """Convolutions one after the other, which begin with so many places of a picture; each keeps what it reads."""
        parts = []
        for layer in [inner for outer in layers for inner in within(outer)]:
            if isinstance(layer, nn.MaxPool2d):
                places //= 4
            elif isinstance(layer, nn.Linear):
                linear = self.linear("linear", layer, self.batch)
                parts.append(replace(linear, kept=self.number * self.batch * layer.in_features))
            elif isinstance(layer, nn.Conv2d):
                read, places = places, places // layer.stride[0] ** 2
                flops = 2 * self.batch * places * layer.weight.numel()
                kept = self.number * self.batch * read * layer.in_channels
                detail = f"{layer.in_channels:,} to {layer.out_channels:,}, {layer.kernel_size[0]} wide"
                parts.append(Part("convolution", detail, self.weights(*layer.parameters()), flops, kept))
        return whole(name, parts)

    def encoder(self, encoder: Any, T: int) -> Part:
        if isinstance(encoder, Featured):
            return self.featured(encoder, T)
        return whole("encoder", [self.inputs(encoder.inputs, T), *self.stack(encoder.stack, T, 0)])

    def featured(self, encoder: Featured, T: int) -> Part:
        """Language models that keep nothing, since they learn nothing, and what reads them."""
        models = replace(self.encoder(encoder.features.model, T), name=FROZEN, kept=0)
        rows, mixes = self.batch * T, [mix for mix in (encoder.mix, encoder.output) if mix is not None]
        width = self.width(encoder.features.model)
        mixed = Part(
            "mix",
            f"{len(encoder.mix.weights)} layers",
            self.weights(*(weight for mix in mixes for weight in mix.parameters())),
            len(mixes) * 2 * rows * width,
            FULL * rows * width * (1 + len(mixes) * encoder.mix.norm),
        )
        dropped = self.dropout(encoder.dropout, len(mixes) * rows * width // len(encoder.mix.weights))
        parts = [self.inputs(encoder.inputs, T), models, mixed, *self.stack(encoder.stack, T, 0)]
        return whole("encoder", parts, kept=dropped)

    def width(self, encoder: Any) -> int:
        """Numbers in what an encoder says of a token."""
        if isinstance(encoder, Featured):
            own = list[Any](encoder.stack.blocks)[-1].width
            both = self.width(encoder.features.model) // len(encoder.mix.weights)
            return own + (0 if encoder.output is None else both)
        if isinstance(encoder.stack, TwoDirections):
            forwards = list[Any](encoder.stack.forwards)
            return 2 * (1 + len(forwards)) * forwards[0].width
        return encoder.stack.blocks[0].attention.layer.out.out_features

    def decoder(self, decoder: Any, T: int, S: int) -> Part:
        inputs, blocks = self.inputs(decoder.inputs, T), self.stack(decoder.stack, T, S)
        return whole("decoder", [inputs, *blocks, self.scoring(decoder.head, decoder.inputs, T)])

    def stack(self, stack: Any, T: int, S: int) -> list[Part]:
        """Equal blocks as one part. What blocks share (T5's distances) stands beside them, counted once."""
        if not isinstance(stack, Stack):
            return self.before_attention(stack, T, S)
        distances = self.distances(stack)
        blocks = alike([self.block(block, T, S) for block in stack.blocks])
        first: Any = stack.blocks[0]
        last = self.norm(stack.norm, self.batch * T, first.attention.layer.out.out_features)
        # Every block's cross-attention keeps the same thing: the encoder's output, once for all of them.
        source = self.number * self.batch * S * first.cross.layer.key.in_features if S else 0
        return [distances, *blocks, Part("source", kept=source), replace(last, name="last norm")]

    def distances(self, stack: Stack) -> Part:
        tables = [p for m in stack.modules() if isinstance(m, Position) for p in m.parameters()]
        return Part("distances", "added to the scores" if tables else "", self.weights(*tables))

    def block(self, block: Any, T: int, S: int) -> Part:
        if not isinstance(block, Block):
            raise unknown(block)
        parts, norms = [], []
        for name, residual in (
            ("attention", block.attention),
            ("cross-attention", block.cross),
            ("feed-forward", block.feed_forward),
        ):
            if residual is None:
                continue
            if not isinstance(residual, PreNorm | PostNorm):
                raise unknown(residual)
            part = self.sublayer(residual.layer, T, S if name == "cross-attention" else T)
            width = residual.norm.weight.numel()  # type: ignore[operator]
            norms.append(self.norm(residual.norm, self.batch * T, width))
            dropout = self.dropout(residual.dropout, self.batch * T * width)
            parts.append(replace(part, name=name, kept=part.kept + dropout))
        if isinstance(block, ConvolvedBlock):
            parts.append(self.neighbors(block, T))
            norms.append(self.norm(block.norm, self.batch * T, block.convolution.out_channels))
        return whole("block", [*parts, replace(whole("norms", norms), parts=())])

    def neighbors(self, block: ConvolvedBlock, T: int) -> Part:
        """A convolution over the tokens that a block reads."""
        layer, rows = block.convolution, self.batch * T
        _, beside, result = self.activation(block.activation)
        kept = self.number * rows * layer.in_channels * (1 + beside + result)
        kept += self.dropout(block.dropout, rows * layer.out_channels)
        weights = self.weights(*layer.parameters())
        return Part(
            "convolution", f"{layer.kernel_size[0]} wide", weights, 2 * rows * layer.weight.numel(), kept
        )

    def sublayer(self, layer: nn.Module, T: int, S: int) -> Part:
        if isinstance(layer, MultiHeadAttention):
            return self.attention(layer, T, S)
        if isinstance(layer, FeedForward | GatedFeedForward):
            return self.feed_forward(layer, self.batch * T)
        if isinstance(layer, Experts):
            return self.experts(layer, self.batch * T)
        if isinstance(layer, CompressedAttention):
            return self.compressed(layer, T)
        if isinstance(layer, KernelAttention):
            return self.sums(layer, T)
        if isinstance(layer, Remembering):
            return self.attention(layer.inner, T, S)
        raise unknown(layer)

    # Layers.

    def inputs(self, inputs: Any, T: int) -> Part:
        rows = self.batch * T
        if isinstance(inputs, PatchInputs):
            tokens = {"class token": inputs.class_token, "distillation token": inputs.distillation_token}
            there = {name: token for name, token in tokens.items() if token is not None}
            read = rows - len(there) * self.batch
            patches = self.linear("patches", inputs.embedding, read)
            kept = self.number * read * inputs.embedding.in_features
            first = [Part(name, parameters=self.weights(token)) for name, token in there.items()]
            parts = [replace(patches, kept=kept), *first, self.position(inputs.position, rows)]
            width = inputs.embedding.out_features
        elif isinstance(inputs, Inputs):
            table = inputs.tokens.weight
            parts = [self.table("tokens", table), self.position(inputs.position, rows)]
            if inputs.segments is not None:
                parts.append(self.table("segments", inputs.segments.weight))
            if isinstance(inputs, TaskInputs):
                parts.append(self.table("tasks", inputs.tasks.weight))
            width = table.shape[1]
            parts.append(self.norm(inputs.norm, rows, width))
            if isinstance(inputs, NarrowInputs):
                widen = self.linear("widened", inputs.widen, rows)
                parts.append(replace(widen, kept=self.number * rows * width))
        elif isinstance(inputs, Spelled):
            parts, width = (
                [self.letters(inputs.words, inputs.letters, rows)],
                inputs.words.projection.out_features,
            )
        else:
            raise unknown(inputs)
        return whole("embeddings", parts, kept=self.dropout(inputs.dropout, rows * width))

    def letters(self, words: CharacterCNN, letters: int, rows: int) -> Part:
        """As if every word were as long as can be, and occurred once."""
        letter_width = words.letters.embedding_dim
        parts = [self.table("letters", words.letters.weight)]
        for size, filters in enumerate(list[Any](words.convolutions), 1):
            places = rows * (letters - size + 1)
            flops = 2 * places * filters.weight.numel()
            detail = f"{filters.out_channels:,} of width {size}"
            kept = FULL * places * filters.out_channels
            parts.append(Part("filters", detail, self.weights(*filters.parameters()), flops, kept))
        for highway in list[Any](words.highways):
            width = highway.gate.in_features
            linears = [self.linear("", linear, rows) for linear in (highway.change, highway.gate)]
            part = whole("highway", linears, f"{width:,} wide", self.number * 4 * rows * width)
            parts.append(replace(part, parts=()))
        projection = self.linear("projection", words.projection, rows)
        parts.append(replace(projection, kept=self.number * rows * words.projection.in_features))
        return whole("spelling", parts, f"{letters} letters", FULL * rows * letters * letter_width)

    def position(self, position: Position, rows: int) -> Part:
        """A lookup or a formula: it computes no product and keeps nothing."""
        if isinstance(position, Learned):
            return self.table("positions", position.table)
        if isinstance(position, CaptionAndGrid):
            tables = (position.text, position.row, position.column)
            return whole("positions", [self.table("places", table.table) for table in tables])
        if isinstance(position, Sinusoidal | NoPosition):
            return Part("positions", "sinusoids" if isinstance(position, Sinusoidal) else "")
        if isinstance(position, StructuralAbsolute):
            linears = (position.from_index, position.from_depth)
            parts = [self.linear("fused", linear, rows) for linear in linears]
            return replace(
                whole("positions", parts, "index and depth", FULL * 3 * rows * position.width), parts=()
            )
        raise unknown(position)

    def table(self, name: str, table: Tensor) -> Part:
        shared = id(table) in self.seen
        rows, width = table.shape
        return Part(
            name, "shared with the encoder" if shared else f"{rows:,} x {width:,}", self.weights(table)
        )

    def attention(self, layer: MultiHeadAttention, T: int, S: int) -> Part:
        """T queries, S keys: four projections, T x S scores, T x S weighted values."""
        if not isinstance(layer.score, Dot | ScaledDot):
            raise unknown(layer.score)
        if not isinstance(
            layer.position,
            NoPosition | Rotary | T5Buckets | Shaw | StructuralRelative | TransformerXL | Disentangled,
        ):
            raise unknown(layer.position)
        B, H, G, K, V = self.batch, layer.heads, layer.kv_heads, layer.key_width, layer.value_width
        projections = [
            self.linear("query", layer.query, B * T),
            self.linear("key", layer.key, B * S),
            self.linear("value", layer.value, B * S),
            self.linear("out", layer.out, B * T),
            self.norm(layer.query_norm, B * T * H, K),
            self.norm(layer.key_norm, B * S * G, K),
        ]
        numbers = B * T * (layer.query.in_features + H * K + H * V) + B * S * G * (K + V)
        if isinstance(layer.position, T5Buckets):
            numbers += H * T * S  # a bias that learns has to be there, whole
        if isinstance(layer.position, Rotary):  # turned queries lie head by head, and so does the output,
            numbers += B * T * H * V  # which is copied when the heads are joined
        products = 2 * B * H * T * S * (K + V)
        if isinstance(
            layer.position, Shaw | StructuralRelative
        ):  # the open formula, which keeps its scores and weights
            tables = [m for m in layer.position.modules() if isinstance(m, Shaw)]
            numbers += B * H * T * S * (3 + 2 * len(tables))
            products += sum(2 * B * H * T * table.keys_HRK.shape[1] * (K + V) for table in tables)
        if isinstance(layer.position, TransformerXL):  # scores by distance, and u with every key
            numbers += 2 * B * H * T * S + B * H * T * K + S * layer.position.width
            products += 2 * B * H * S * K * (T + 1) + 2 * S * layer.position.distance.weight.numel()
        if isinstance(
            layer.position, Disentangled
        ):  # each way: the table projected, all its rows scored, then looked up
            R, D = layer.position.table.weight.shape
            ways = layer.position.terms - 1
            each = (
                B * H * (T * K + T * R + R * K)
            )  # who asks, head by head; all scores; the rows, for each sentence
            normed = not isinstance(layer.position.table.norm, nn.Identity)
            numbers += ways * each + (B * H * T * S + normed * R * D if ways else 0)
            products += ways * (2 * R * D * H * K + 2 * B * H * T * R * K)
        part = whole("attention", projections, kept=self.number * numbers + FULL * B * H * T)
        groups = f", {G} for keys" if G != H else ""
        return replace(part, detail=f"{H} heads{groups}, {K} wide", flops=part.flops + products, parts=())

    def compressed(self, layer: CompressedAttention, T: int) -> Part:
        """T queries, a third as many keys, and the convolutions that make them so few."""
        inner, B, slots = layer.inner, self.batch, T // RATE
        H, K, V, S = inner.heads, inner.key_width, inner.value_width, 1 + slots
        before = isinstance(layer, CompressedInput)  # then keys and values are made of what is compressed
        linears = [
            self.linear("query", inner.query, B * T),
            self.linear("key", inner.key, B * (S if before else T)),
            self.linear("value", inner.value, B * (S if before else T)),
            self.linear("out", inner.out, B * T),
            *(self.linear("compress", convolution, B * slots) for convolution in layer.convolutions),
        ]
        numbers = B * T * (inner.query.in_features + H * K + H * V) + B * S * inner.kv_heads * (K + V)
        numbers += sum(B * slots * convolution.in_features for convolution in layer.convolutions)
        part = whole("attention", linears, kept=self.number * numbers + FULL * B * H * T)
        detail = f"{H} heads, {K} wide, {RATE} tokens as one"
        return replace(part, detail=detail, flops=part.flops + 2 * B * H * T * S * (K + V), parts=())

    def sums(self, layer: KernelAttention, T: int) -> Part:
        """Running sums: weights within chunks, a matrix for each chunk before."""
        inner, B = layer.inner, self.batch
        H, K, V, N = inner.heads, inner.key_width, inner.value_width + 1, -(-T // CHUNK) * CHUNK
        names = ("query", "key", "value", "out")
        linears = [self.linear(name, getattr(inner, name), B * T) for name in names]
        products = 2 * B * H * N * (2 * K * V + CHUNK * (K + V))
        numbers = B * T * (inner.query.in_features + H * (K + V))
        kept = self.number * numbers + FULL * B * H * (N * (2 * K + 2 * V + CHUNK) + N // CHUNK * K * V)
        part = whole("attention", linears, kept=kept)
        detail = f"{H} heads, {K} wide, running sums"
        return replace(part, detail=detail, flops=part.flops + products, parts=())

    def experts(self, layer: Experts, rows: int) -> Part:
        """A gate, and for every token as many feed-forward layers as it is sent to. The noise of training is left out."""
        E, K = len(layer.experts), layer.gate.chosen
        width = layer.gate.weight.shape[0]
        gate = Part("gate", "", self.weights(*layer.gate.parameters()), 2 * rows * width * E)
        first, *others = [self.feed_forward(expert, rows * K) for expert in layer.experts]  # type: ignore[arg-type]
        all_of_them = first.parameters + sum(other.parameters for other in others)
        # Beside what the experts keep: the gate's scores and shares, and each expert's output, to be weighed.
        kept = first.kept + FULL * rows * (width + 2 * E) + self.number * rows * K * width
        return Part(
            "experts",
            f"{K} of {E}, {first.detail}".rpartition(",")[0],
            gate.parameters + all_of_them,
            gate.flops + first.flops,
            kept,
            idle=count_idle(layer),
        )

    def feed_forward(self, layer: FeedForward | GatedFeedForward, rows: int) -> Part:
        """The same matrices at every position; what the activation keeps depends on which it is."""
        gated = isinstance(layer, GatedFeedForward)
        linears = [
            self.linear(name, m, rows) for name, m in layer.named_children() if isinstance(m, nn.Linear)
        ]
        name, beside, result = self.activation(layer.activation)
        width, hidden = layer.up.in_features, layer.up.out_features
        # Beside what the activation keeps: the input of `down`, and of the product where there is a gate.
        copies = beside + 1 + (2 if gated else result and layer.dropout.p > 0)
        kept = self.number * rows * (width + copies * hidden) + self.dropout(layer.dropout, rows * hidden)
        part = whole("feed-forward", linears, kept=kept)
        detail = f"{width:,} to {hidden:,}, {'gated ' if gated else ''}{name}"
        return replace(part, detail=detail, parts=())

    def activation(self, function: Any) -> tuple[str, int, bool]:
        """Its name, how many tensors it keeps beside its result, and whether it keeps its result."""
        name = next((name for name, known in ACTIVATIONS.items() if known is function), None)
        if name not in KEEPS:
            raise ValueError(f"heedful has no rule for what the activation {function!r} keeps")
        return name, *KEEPS[name]

    def norm(self, norm: nn.Module, rows: int, width: int) -> Part:
        """A norm keeps its input and, for each row, a mean and a scale (RMSNorm: a scale)."""
        if isinstance(norm, nn.Identity):
            return Part("norm")
        if isinstance(norm, nn.Sequential):
            return replace(whole("norm", [self.norm(each, rows, width) for each in norm]), parts=())
        if isinstance(norm, nn.Dropout):
            return Part("norm", kept=self.dropout(norm, rows * width))
        if isinstance(norm, LayerNorm | RMSNorm):
            statistics = 2 if isinstance(norm, LayerNorm) else 1
            return Part(
                "norm", parameters=self.weights(*norm.parameters()), kept=FULL * rows * (width + statistics)
            )
        raise unknown(norm)

    def dropout(self, dropout: Any, numbers: int) -> int:
        """Bytes: which numbers were let through, one byte each."""
        return numbers if dropout.p > 0 else 0

    def linear(self, name: str, layer: nn.Linear, rows: int) -> Part:
        """Parameters and FLOPs only: its input is kept by whoever calls, once for all who share it."""
        self.multiplied[id(layer.weight)] = layer.weight.numel()
        detail = f"{layer.in_features:,} to {layer.out_features:,}"
        return Part(name, detail, self.weights(*layer.parameters()), 2 * rows * layer.weight.numel())

    def weights(self, *weights: Tensor) -> int:
        """How many numbers these hold, leaving out what was counted before."""
        new = {id(weight): weight.numel() for weight in weights if id(weight) not in self.seen}
        self.seen |= new.keys()
        return sum(new.values())

    # What came before the Transformer. Recurrence is computed in fp32 whatever the precision.

    def before_attention(self, stack: Any, T: int, S: int) -> list[Part]:
        B, rows = self.batch, self.batch * T
        if isinstance(stack, BidirectionalStack | LastStates | RecurrentStack):
            return alike([self.recurrence(block, rows) for block in stack.blocks])
        if isinstance(stack, TwoDirections):
            blocks = [self.recurrence(block, rows) for block in (*stack.forwards, *stack.backwards)]
            return alike(blocks)
        if isinstance(stack, Searching):
            readout = [
                self.dense("", layer, rows)
                for layer in (stack.from_state, stack.from_word, stack.from_context)
            ]
            return [
                self.recurrence(stack.blocks[0], rows),
                self.lookup(stack.cross.layer, T, S, stack.blocks[0].width, stack.from_context.in_features),  # type: ignore[arg-type]
                replace(self.dense("start", stack.start, B), detail=""),
                replace(whole("maxout", readout), parts=()),
            ]
        if isinstance(stack, Attentive):
            width = stack.combine.out_features
            return [
                *alike([self.recurrence(block, rows) for block in stack.blocks]),
                self.lookup(stack.cross.layer, T, S, width, stack.combine.in_features - width),
                replace(self.dense("start", stack.start, B), detail=""),
                self.dense("combined", stack.combine, rows),
            ]
        if isinstance(stack, ConvolutionEncoder | ConvolutionDecoder):
            blocks = [self.convolution(block, T, S) for block in stack.blocks]
            return [
                self.dense("enter", stack.enter, rows),
                *alike(blocks),
                self.dense("leave", stack.leave, rows),
            ]
        raise unknown(stack)

    def recurrence(self, block: Any, rows: int) -> Part:
        """Two products a token. What is kept: the input, the gates and the states."""
        if isinstance(block, BothWays):
            ways = [self.recurrence(way, rows) for way in (block.from_left, block.from_right)]
            return replace(whole("block", ways, f"both ways, {block.width // 2:,} wide each"), parts=())
        if isinstance(block, CandidateGRU):
            layers = [self.dense("", layer, rows) for layer in block.children()]
            gates = FULL * rows * 4 * block.width
            return replace(whole("block", layers, f"{block.width:,} wide", gates), parts=())
        if isinstance(block, ProjectedLSTM):
            matrices = sum(weight.numel() for weight in block.parameters() if weight.ndim == 2)
            kept = FULL * rows * (block.inputs + 6 * block.cells + block.width)
            detail = f"{block.cells:,} cells, {block.width:,} wide"
            return Part("block", detail, self.weights(*block.parameters()), 2 * rows * matrices, kept)
        if not isinstance(block, Recurrence):
            raise unknown(block)
        inward, onward, *_ = block.weights
        flops = 2 * rows * (inward.numel() + onward.numel())
        kept = FULL * rows * (block.inputs + inward.shape[0] + block.state_width)
        return Part("block", f"{block.width:,} wide", self.weights(*block.parameters()), flops, kept)

    def convolution(self, block: Any, T: int, S: int) -> Part:
        rows, window = self.batch * T, block.window
        parts = [
            replace(
                self.dense("window", window.linear, rows),
                detail=f"{window.kernel} words, {window.width:,} wide",
            )
        ]
        parts += [self.dense("skip", block.skip, rows)] if isinstance(block.skip, NormedLinear) else []
        if block.cross is not None:
            width = block.cross.query.out_features
            parts += [self.dense("query", block.cross.query, rows)]
            parts += [self.lookup(block.cross.lookup.layer, T, S, width, width)]
            parts += (
                [self.dense("out", block.cross.out, rows)]
                if isinstance(block.cross.out, NormedLinear)
                else []
            )
        gate = FULL * rows * 2 * window.width + self.dropout(window.dropout, rows * window.inputs)
        return whole("block", parts, kept=gate)

    def lookup(self, layer: Lookup, T: int, S: int, query: int, value: int) -> Part:
        """T queries, S keys: their scores and the weighted values; the keys are prepared once."""
        B, score = self.batch, layer.score
        flops, kept = 2 * B * T * S * value, FULL * B * T * S
        if isinstance(score, Additive):
            hidden = score.key.out_features
            flops += 2 * B * (T * score.query.weight.numel() + S * score.key.weight.numel() + T * S * hidden)
            kept += FULL * B * T * S * hidden
        elif isinstance(score, Bilinear):
            flops += 2 * B * T * (score.W.numel() + S * score.W.shape[1])
        elif isinstance(score, Dot):
            flops += 2 * B * T * S * query
        else:
            raise unknown(score)
        return Part("lookup", type(score).__name__.lower(), self.weights(*layer.parameters()), flops, kept)

    def dense(self, name: str, layer: Any, rows: int) -> Part:
        """A linear layer with its input, however its weights are kept."""
        sizes = layer.in_features * layer.out_features
        detail = f"{layer.in_features:,} to {layer.out_features:,}"
        return Part(
            name, detail, self.weights(*layer.parameters()), 2 * rows * sizes, FULL * rows * layer.in_features
        )

    # Heads.

    def scoring(self, head: nn.Module, inputs: Any, T: int) -> Part:
        """A decoder's head: a score for each word of the vocabulary."""
        rows, table = self.batch * T, inputs.tokens.weight
        if isinstance(head, Untied):
            part = self.linear("head", head.linear, rows)
        elif isinstance(head, Tied):
            part = self.tied("head", table, head.bias, rows)
        else:
            raise unknown(head)
        width = head.linear.in_features if isinstance(head, Untied) else table.shape[1]
        return replace(part, kept=self.number * rows * width)

    def tied(self, name: str, table: Tensor, bias: Tensor | None, rows: int) -> Part:
        self.multiplied[id(table)] = table.numel()
        own = self.weights(bias) if bias is not None else 0
        return Part(name, "the token embedding again", own, 2 * rows * table.numel())

    def heads(self, model: WithHeads, T: int) -> Part:
        """What is read off an encoder. Its output is kept once, if any head multiplies it."""
        inputs: Any = model.encoder.inputs
        found = {name: self.head(name, head, inputs, T) for name, head in model.heads.items()}
        width = self.width(model.encoder)
        kept = self.number * self.batch * T * width if any(part.flops for part in found.values()) else 0
        return whole("heads", list(found.values()), kept=kept)

    def head(self, name: str, head: nn.Module, inputs: Any, T: int) -> Part:
        """One head; a pooled vector several of them read is computed by each, as the model does."""
        B = self.batch
        if isinstance(head, FirstToken | MeanOverTokens | MaxOverTokens):
            return Part(name, "no weights")
        if isinstance(head, Pooled):
            kept = FULL * B * head.dense.out_features + self.dropout(head.dropout, B * head.dense.in_features)
            return replace(self.linear(name, head.dense, B), kept=kept)
        if isinstance(head, Classify):
            linear = self.linear(name, head.linear, B)
            kept = self.number * B * head.linear.in_features
            return replace(
                whole(name, [self.head("pool", head.pool, inputs, T), linear], linear.detail, kept), parts=()
            )
        if isinstance(head, ClassifyBoth):
            linears = [self.linear(name, linear, B) for linear in (head.linear, head.taught)]
            return replace(whole(name, linears, "the mean of two"), parts=())
        if isinstance(head, Neighbors):
            part = self.linear(name, head.words.linear, 2 * B * T)
            return replace(part, kept=self.dropout(head.dropout, 2 * B * T * head.width))
        if isinstance(head, Tag | Span):
            return self.linear(name, head.linear, B * T)
        if isinstance(head, Arcs | Relations):
            return self.biaffine(name, head, T)
        if isinstance(head, MaskedLM):
            rows, width = B * T, head.dense.out_features
            _, beside, result = self.activation(head.activation)
            parts = [
                self.linear("dense", head.dense, rows),
                self.norm(head.norm, rows, width),
                self.tied("scores", inputs.tokens.weight, head.bias, rows),
            ]
            # A result the activation keeps is the norm's input, which the norm counts, at fp32.
            shared = result and self.number == FULL
            kept = self.number * rows * width * (beside + 1 + (result and not shared))
            return whole(name, parts, kept=kept)
        raise unknown(head)

    def biaffine(self, name: str, head: Arcs | Relations, T: int) -> Part:
        """Words in two roles, and a matrix between them: for all pairs, or for each relation of a word to its head."""
        rows = self.batch * T
        roles = [self.linear(which, getattr(head.roles, which), rows) for which in ("dependant", "head")]
        small = head.roles.head.out_features
        if isinstance(head, Arcs):
            between = self.linear("between", head.between, rows)
            products, kept = 2 * rows * T * small, self.number * 5 * rows * small
        else:
            matrices, K, J = head.between_LKJ.shape
            between = Part("between", f"{matrices} x {K} x {J}", self.weights(head.between_LKJ))
            products, kept = 2 * rows * matrices * K * J, self.number * rows * (4 + matrices) * small
        return replace(
            whole(name, [*roles, between], kept=kept),
            flops=sum(p.flops for p in (*roles, between)) + products,
        )


def whole(name: str, parts: Iterable[Part], detail: str = "", kept: int = 0) -> Part:
    """Parts together, and what is kept beside theirs; parts that are not there fall away."""
    there = tuple(part for part in parts if part != Part(part.name))
    return Part(
        name,
        detail,
        sum(part.parameters for part in there),
        sum(part.flops for part in there),
        kept + sum(part.kept for part in there),
        parts=there,
        idle=sum(part.idle for part in there),
    )


def within(layer: Any) -> list[Any]:
    """A layer, or those that it is made of."""
    return [layer.near, layer.own] if isinstance(layer, Residual) else [layer]


def alike(blocks: Sequence[Part]) -> list[Part]:
    """Neighbors that cost the same become one part, "12 blocks"."""
    groups = [list(group) for _, group in groupby(blocks)]
    return [times(group[0], len(group), f"{len(group)} block{'s' * (len(group) > 1)}") for group in groups]


def times(part: Part, count: int, name: str | None = None) -> Part:
    """`count` of them together."""
    return Part(
        name or part.name,
        part.detail,
        count * part.parameters,
        count * part.flops,
        count * part.kept,
        count,
        tuple(times(inner, count) for inner in part.parts),
        count * part.idle,
    )


def unknown(module: object) -> ValueError:
    return ValueError(f"heedful has no rule for what {type(module).__name__} costs")
