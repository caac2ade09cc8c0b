"""Whole models: encoders, decoders, both together, and the models of pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import nn

from ...models.base.shells import Decoder, Encoder, EncoderDecoder, WithHeads
from ...models.captioner import Grid, OneVector
from ...models.clip import Clip
from ...models.dvae import DVAE, Residual
from ...models.elmo_reader import Featured
from ...models.judge import Judge
from ...parts.before.both_ways import TwoDirections
from .counted import count, ids
from .embeddings import embeddings
from .heads import heads_of_encoder, vocabulary_head
from .layers import stack_parts
from .part import FULL, Part, product, whole
from .tally import Tally, rule_for

FROZEN = "language models"  # the name of a part that is used and not trained


def model_cost(tally: Tally, model: Any, T: int, S: int) -> Part:
    """A model that reads (or writes) T tokens, and S of a source; a model without a rule is run on token
    numbers."""
    rule = rule_for(RULES, model)
    if rule is not None:
        return replace(rule(tally, model, T, S), name="model")
    part = count(tally, "model", model, lambda meta: meta(ids(tally.batch, T)))
    return whole("model", [replace(part, name=type(model).__name__, detail="")])


def encoder_decoder(tally: Tally, model: EncoderDecoder, T: int, S: int) -> Part:
    encoder = encoder_cost(tally, model.encoder, S)
    return whole("model", [encoder, decoder_cost(tally, model.decoder, T, vectors_read(model.encoder, S))])


def encoder_with_heads(tally: Tally, model: WithHeads, T: int, S: int) -> Part:
    encoder, inputs = encoder_cost(tally, model.encoder, T), model.encoder.inputs
    heads = heads_of_encoder(tally, model.heads, inputs, T, encoder_width(model.encoder))
    return whole("model", [*encoder.parts, heads])


def encoder_alone(tally: Tally, model: Any, T: int, S: int) -> Part:
    return encoder_cost(tally, model, T)


def decoder_alone(tally: Tally, model: Decoder, T: int, S: int) -> Part:
    return decoder_cost(tally, model, T, 0)


def encoder_cost(tally: Tally, encoder: Any, T: int) -> Part:
    if isinstance(encoder, Featured):
        return featured(tally, encoder, T)
    inputs, width = embeddings(tally, encoder.inputs, T)
    return whole("encoder", [inputs, *stack_parts(tally, encoder.stack, T, 0, width)])


def decoder_cost(tally: Tally, decoder: Any, T: int, S: int) -> Part:
    inputs, width = embeddings(tally, decoder.inputs, T)
    blocks = stack_parts(tally, decoder.stack, T, S, width)
    return whole("decoder", [inputs, *blocks, vocabulary_head(tally, decoder.head, decoder.inputs, T, width)])


def featured(tally: Tally, encoder: Featured, T: int) -> Part:
    """Frozen language models, which keep nothing since they learn nothing, and the network that reads
    them."""
    inputs, width = embeddings(tally, encoder.inputs, T)
    models = replace(encoder_cost(tally, encoder.features.model, T), name=FROZEN, kept=0)
    rows, mixes = tally.batch * T, [mix for mix in (encoder.mix, encoder.output) if mix is not None]
    found = encoder_width(encoder.features.model)
    mixed = Part(
        "mix",
        f"{len(encoder.mix.weights)} layers",
        tally.weights(weight for mix in mixes for weight in mix.parameters()),
        len(mixes) * 2 * rows * found,
        FULL * rows * found * (1 + len(mixes) * encoder.mix.norm),
        formula=product(len(mixes), 2, rows, found),
    )
    dropped = tally.dropout(encoder.dropout, len(mixes) * rows * found // len(encoder.mix.weights))
    return whole(
        "encoder", [inputs, models, mixed, *stack_parts(tally, encoder.stack, T, 0, width)], kept=dropped
    )


def encoder_width(encoder: Any) -> int:
    """Dimensions of an encoder's vectors."""
    if isinstance(encoder, Featured):
        own = list[Any](encoder.stack.blocks)[-1].width
        both = encoder_width(encoder.features.model) // len(encoder.mix.weights)
        return own + (0 if encoder.output is None else both)
    if isinstance(encoder.stack, TwoDirections):
        forwards = list[Any](encoder.stack.forwards)
        return 2 * (1 + len(forwards)) * forwards[0].width
    return encoder.stack.blocks[0].attention.layer.out.out_features


def vectors_read(encoder: Any, tokens: int) -> int:
    """How many vectors a decoder sees of so many tokens: of pictures, perhaps one."""
    return encoder.project_out.length(tokens) if isinstance(encoder.project_out, Grid | OneVector) else tokens


# Models of pictures.


def clip(tally: Tally, model: Clip, T: int, S: int) -> Part:
    """Captions as long as can be, and pictures."""
    longest = model.words.inputs.position.longest
    words = replace(encoder_cost(tally, model.words, longest), name="caption encoder")
    pictures = replace(encoder_cost(tally, model.pictures.encoder, T), name="image encoder")
    linears = [tally.linear("", linear, tally.batch) for linear in (model.from_words, model.from_pictures)]
    common = replace(whole("projections", linears), parts=())
    sharpness = Part("temperature", parameters=tally.weights([model.log_sharpness]))
    return whole("model", [words, pictures, common, sharpness])


def dvae(tally: Tally, model: DVAE, T: int, S: int) -> Part:
    encoder = convolutions(tally, "encoder", model.encoder, T * model.config.patch_size**2)
    return whole("model", [encoder, convolutions(tally, "decoder", model.decoder, T)])


def judge(tally: Tally, model: Judge, T: int, S: int) -> Part:
    questions = [tally.linear("question", linear, tally.batch) for linear in list[Any](model.questions)]
    return whole("model", [convolutions(tally, "body", model.body, T), whole("questions", questions)])


def convolutions(tally: Tally, name: str, layers: Any, places: int) -> Part:
    """Convolutions in a row, the first over so many places of a picture; each keeps what it reads."""
    parts = []
    for layer in [inner for outer in layers for inner in layers_within(outer)]:
        if isinstance(layer, nn.MaxPool2d):
            places //= 4
        elif isinstance(layer, nn.Linear):
            linear = tally.linear("linear", layer, tally.batch)
            parts.append(replace(linear, kept=tally.number * tally.batch * layer.in_features))
        elif isinstance(layer, nn.Conv2d):
            read, places = places, places // layer.stride[0] ** 2
            flops = 2 * tally.batch * places * layer.weight.numel()
            kept = tally.number * tally.batch * read * layer.in_channels
            detail = f"{layer.in_channels:,} to {layer.out_channels:,}, {layer.kernel_size[0]} wide"
            weights = tally.weights(layer.parameters())
            formula = product(2, tally.batch, places, layer.weight.numel())
            parts.append(Part("convolution", detail, weights, flops, kept, formula=formula))
    return whole(name, parts)


def layers_within(layer: Any) -> list[Any]:
    """A layer, or the two that a residual layer of pictures consists of."""
    return [layer.near, layer.own] if isinstance(layer, Residual) else [layer]


RULES: dict[type, Callable[..., Part]] = {
    EncoderDecoder: encoder_decoder,
    WithHeads: encoder_with_heads,
    Decoder: decoder_alone,
    Encoder: encoder_alone,
    Featured: encoder_alone,
    Clip: clip,
    DVAE: dvae,
    Judge: judge,
}
