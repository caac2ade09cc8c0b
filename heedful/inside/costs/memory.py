"""Memory: bytes by use, for training and for inference."""

from __future__ import annotations

from typing import Any

from torch import nn

from ...models.base.heads import Classify, ClassifyBoth, MaskedLM, Span, Tag
from ...models.base.shells import Decoder, EncoderDecoder
from ...models.elmo import Neighbors
from ...models.syntax import Arcs, Relations
from ...parts.attention import Additive
from ...parts.before.attentive_decoders import Attentive, Searching
from ...parts.before.convolution import ConvolutionBlock
from ...parts.before.state_cache import StateStack
from ...parts.blocks import Block
from ...parts.embeddings import Untied
from ...parts.long.windowed_cache import Remembering
from ...parts.multihead import MultiHeadAttention
from .models import FROZEN, vectors_read
from .part import FULL, Part
from .tally import Tally


def memory(model: Any, tally: Tally, whole: Part, length: int, source_length: int) -> dict[str, int]:
    """Bytes by use, and the two sums people ask for.

    training: weights, gradients, optimizer, copies, activations, and the scores: twice in full precision (the
    loss keeps their logarithms), once in half, where a GPU computes scores and loss in one kernel
    (kernels/loss.py). inference: weights at this precision, and the cache.
    """
    half, trained = tally.number < FULL, whole.parameters - frozen(whole).parameters
    found = {
        "weights": FULL * whole.parameters,
        "gradients": FULL * trained,
        "optimizer": 2 * FULL * trained,
        "copies": tally.number * sum(tally.multiplied.values()) if half else 0,
        "activations": whole.kept,
        "logits": tally.number * tally.batch * scores(model, length),
    }
    found["training"] = sum(found.values()) + (0 if half else found["logits"])
    found["cache"] = tally.number * tally.batch * cached(model, length, source_length)
    found["inference"] = tally.number * whole.parameters + found["cache"]
    return found


def frozen(whole: Part) -> Part:
    """The part of a model that is used and not trained; an empty one if all of it is trained."""
    return next((part for part in whole.parts if part.name == FROZEN), Part(FROZEN))


def cached(model: Any, length: int, source_length: int) -> int:
    """Numbers a decoder keeps for one row of `length` tokens: keys and values, its own and the source's."""
    decoder = model
    if isinstance(model, EncoderDecoder):
        decoder, source_length = model.decoder, vectors_read(model.encoder, source_length)
    if not isinstance(decoder, Decoder):
        return 0
    if isinstance(decoder.stack, StateStack):
        return states(decoder.stack, source_length)
    numbers = 0
    for block in decoder.stack.blocks:
        crosses = attentions(block.cross) if isinstance(block, Block) and block.cross is not None else []
        for layer in attentions(block):
            size = source_length if layer in crosses else length
            if isinstance(layer, Remembering):
                numbers += layer.remembered(size)
            else:
                numbers += size * layer.kv_heads * (layer.key_width + layer.value_width)
    return numbers


def attentions(module: nn.Module) -> list[Any]:
    """The attentions of a module; one inside another belongs to it."""
    if isinstance(module, MultiHeadAttention | Remembering):
        return [module]
    return [layer for child in module.children() for layer in attentions(child)]


def states(stack: Any, source_length: int) -> int:
    """The same for recurrent and convolutional decoders: states do not grow with the text; sources are kept
    prepared."""
    windows = [block.window for block in stack.blocks if isinstance(block, ConvolutionBlock)]
    numbers = sum((window.kernel - 1) * window.inputs for window in windows)
    numbers += sum(block.state_width for block in stack.blocks if not isinstance(block, ConvolutionBlock))
    if isinstance(stack, Searching | Attentive):
        annotation = stack.start.in_features * 2  # the half that was read from the right begins a state
        score: Any = stack.cross.layer.score
        key = score.key.out_features if isinstance(score, Additive) else annotation
        fed = stack.combine.out_features if isinstance(stack, Attentive) and stack.input_feeding else 0
        return numbers + fed + source_length * (key + annotation)
    widths = [block.cross.query.out_features for block in stack.blocks if windows]
    return numbers + source_length * 2 * sum(widths)


def scores(model: Any, length: int) -> int:
    """Numbers in the largest table of scores that a row of `length` tokens gets."""
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
