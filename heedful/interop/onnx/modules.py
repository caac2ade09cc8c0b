"""The modules that are recorded as graphs of ONNX, each with its example inputs and the names of its axes.

A graph computes what the model computes. Only the place of its keys and values differs: they come from the
caller, through a cache (`CallerCache`), and go back to the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...models.base.shells import Decoder, DecoderClassifier, Encoder, EncoderDecoder, WithHeads
from ...models.vit import PatchInputs
from ...parts.cache import Cache, KeysValues, LayerCache
from ...parts.places import At, Source
from ..hf.tokenizer_files import tells_segments
from ..loaded import Loaded
from .graph import Graph

MODEL, ENCODER = "model.onnx", "encoder_model.onnx"
FIRST, NEXT = "decoder_model.onnx", "decoder_with_past_model.onnx"
LONGEST = 5  # tokens of an example: graphs hold for any number


def graphs(loaded: Loaded) -> dict[str, Graph]:
    """{file: its graph}."""
    model = loaded.model
    if isinstance(model, EncoderDecoder):
        return {
            ENCODER: encoder_graph(model.encoder),
            FIRST: first_tokens_graph(model),
            NEXT: next_tokens_graph(model),
        }
    if isinstance(model, Decoder):
        return {MODEL: decoder_graph(model)}
    if isinstance(model, DecoderClassifier):
        return {MODEL: classifier_graph(model)}
    assert isinstance(model, WithHeads)
    sees = isinstance(model.encoder.inputs, PatchInputs)
    return {MODEL: image_graph(model, loaded.config) if sees else heads_graph(model)}


BATCH, LENGTH, PAST = "batch_size", "sequence_length", "past_sequence_length"
SOURCE, TOTAL = "encoder_sequence_length", "total_sequence_length"
ROWS = {0: BATCH, 1: LENGTH}


def example_tokens(shell: Any, rows: int, length: int) -> Tensor:
    """Example tokens, all different from row to row."""
    return torch.arange(rows * length).view(rows, length) % len(shell.inputs.tokens.weight)


def example_length(shell: Any, most: int = LONGEST) -> int:
    """Tokens of an example, with as many before: few enough for any table."""
    longest = shell.inputs.position.longest
    return most if longest is None else max(2, min(most, longest // 2))


def slots_of(mask_BT: Tensor) -> Tensor:
    """Slots as positions, padding as -1."""
    return torch.where(mask_BT > 0, torch.arange(mask_BT.shape[1]), -1)


def positions_of(mask_BT: Tensor) -> Tensor:
    """Positions that count real tokens only, padding as -1: prompts of unequal length may end together."""
    return torch.where(mask_BT > 0, mask_BT.cumsum(-1) - 1, -1)


class CallerCache(Cache):
    """Keys and values that come from the caller and go back to them."""

    def __init__(self, pasts: Sequence[KeysValues | None], q_pos: Tensor, k_pos: Tensor) -> None:
        self.layers: list[CallerLayerCache] = [CallerLayerCache(past) for past in pasts]
        self.q_pos, self.k_pos = q_pos, k_pos

    def next_positions(self, T: int, lengths_B: Tensor | None = None) -> Tensor:
        return self.q_pos

    def begin(self, q_pos: Tensor | None, B: int, T: int) -> tuple[int, Tensor]:
        return self.k_pos.shape[1], self.k_pos

    def advance(self) -> None:
        pass

    def reorder(self, rows: Tensor) -> None:
        self.q_pos, self.k_pos = self.q_pos[rows], self.k_pos[rows]
        for layer in self.layers:
            layer.present = (
                None if layer.present is None else (layer.present[0][rows], layer.present[1][rows])
            )

    def rewind(self, lengths_B: Tensor) -> None:
        self.k_pos = torch.where(self.k_pos < lengths_B[:, None], self.k_pos, -1)


class CallerLayerCache(LayerCache):
    def __init__(self, past: KeysValues | None) -> None:
        super().__init__()
        self.past, self.present = past, past

    def append(self, k_BGTK: Tensor, v_BGTL: Tensor) -> KeysValues:
        if self.past is not None:
            k_BGTK, v_BGTL = torch.cat([self.past[0], k_BGTK], 2), torch.cat([self.past[1], v_BGTL], 2)
        self.present = k_BGTK, v_BGTL
        return self.present


def in_pairs(flat: Sequence[Tensor]) -> list[KeysValues]:
    return list(zip(flat[::2], flat[1::2], strict=True))


class OfDecoder(nn.Module):
    """What the modules of a decoder share."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder


class DecoderModule(OfDecoder):
    """A decoder: new tokens, which of all tokens are real, and keys and values of those before."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        k_pos = positions_of(attention_mask)
        cache = CallerCache(in_pairs(past), k_pos[:, past[0].shape[2] :], k_pos)
        scores_BTV = self.decoder(input_ids, cache=cache)
        return scores_BTV, *(part for layer in cache.layers for part in layer.present or ())


def decoder_graph(decoder: Decoder) -> Graph:
    T = example_length(decoder)
    inputs = {
        "input_ids": (example_tokens(decoder, 3, T), ROWS),
        "attention_mask": (torch.ones(3, 2 * T - 1, dtype=torch.long), {0: BATCH, 1: TOTAL}),
    }
    inputs |= {
        f"past_key_values.{name}": value for name, value in example_cache(decoder, 3, T - 1, PAST).items()
    }
    outputs = {"logits": ROWS}
    outputs |= {f"present.{name}": {0: BATCH, 2: TOTAL} for name in example_cache(decoder, 3, 0, TOTAL)}
    return Graph(DecoderModule(decoder), inputs, outputs)


def example_cache(
    decoder: Decoder, rows: int, length: int, axis: str, side: str = "", cross: bool = False
) -> dict[str, tuple[Tensor, dict[int, str]]]:
    """{layer.key, layer.value: an example, its axes}."""
    found = {}
    for number, layer in enumerate(decoder.crosses() if cross else decoder.attentions()):
        for name, width in (("key", layer.key_width), ("value", layer.value_width)):
            example = torch.zeros(rows, layer.kv_heads, length, width)
            found[f"{number}.{side}{name}"] = example, {0: BATCH, 2: axis}
    return found


class EncoderModule(nn.Module):
    """An encoder alone."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor]:
        return (self.encoder(input_ids, At(slots_of(attention_mask))),)


def encoder_graph(encoder: Encoder) -> Graph:
    T = example_length(encoder)
    tokens = example_tokens(encoder, 3, T)
    inputs = {"input_ids": (tokens, ROWS), "attention_mask": (torch.ones_like(tokens), ROWS)}
    return Graph(EncoderModule(encoder), inputs, {"last_hidden_state": ROWS})


class FirstTokensModule(OfDecoder):
    """A decoder's first tokens, and all that later ones need of the source."""

    def forward(self, mask: Tensor, input_ids: Tensor, source_BSD: Tensor) -> tuple[Tensor, ...]:
        here_BT = torch.arange(input_ids.shape[1]).expand(input_ids.shape)
        cache = CallerCache([None] * len(self.decoder.stack.blocks), here_BT, here_BT)
        scores_BTV = self.decoder(input_ids, cache=cache, source=Source(source_BSD, At(slots_of(mask))))
        own = (part for layer in cache.layers for part in (*(layer.present or ()), *(layer.source_kv or ())))
        return scores_BTV, *own


def first_tokens_graph(model: EncoderDecoder) -> Graph:
    S, T = example_length(model.encoder), example_length(model.decoder)
    width = model.encoder(example_tokens(model.encoder, 1, 2)).shape[-1]
    inputs = {
        "encoder_attention_mask": (torch.ones(3, S, dtype=torch.long), {0: BATCH, 1: SOURCE}),
        "input_ids": (example_tokens(model.decoder, 3, T), ROWS),
        "encoder_hidden_states": (torch.zeros(3, S, width), {0: BATCH, 1: SOURCE}),
    }
    return Graph(
        FirstTokensModule(model.decoder),
        inputs,
        {"logits": ROWS} | cache_axes(model.decoder, "present", LENGTH),
    )


def cache_axes(decoder: Decoder, what: str, length: str) -> dict[str, dict[int, str]]:
    """{name: axes} of keys and values, a layer's own before those of its source."""
    found = {}
    for number in range(len(decoder.stack.blocks)):
        for side, axis in (("decoder", length), ("encoder", SOURCE)):
            for name in ("key", "value"):
                found[f"{what}.{number}.{side}.{name}"] = {0: BATCH, 2: axis}
    return found


class NextTokensModule(OfDecoder):
    """A decoder's next tokens: its own past comes and goes, that of the source only comes."""

    def forward(self, mask: Tensor, input_ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        pairs = in_pairs(past)
        own, source = pairs[::2], pairs[1::2]
        k_pos = torch.arange(own[0][0].shape[2] + input_ids.shape[1])
        k_pos = k_pos.expand(input_ids.shape[0], k_pos.shape[0])
        cache = CallerCache(own, k_pos[:, own[0][0].shape[2] :], k_pos)
        for layer, source_kv in zip(cache.layers, source, strict=True):
            layer.source_kv = source_kv
        read_BSD = source[0][0][:, 0]  # its length is looked at, and nothing else
        scores_BTV = self.decoder(input_ids, cache=cache, source=Source(read_BSD, At(slots_of(mask))))
        return scores_BTV, *(part for layer in cache.layers for part in layer.present or ())


def next_tokens_graph(model: EncoderDecoder) -> Graph:
    decoder, S, T = model.decoder, example_length(model.encoder), example_length(model.decoder)
    own = example_cache(decoder, 3, T - 1, PAST, "decoder.")
    source = example_cache(decoder, 3, S, SOURCE, "encoder.", cross=True)
    inputs = {
        "encoder_attention_mask": (torch.ones(3, S, dtype=torch.long), {0: BATCH, 1: SOURCE}),
        "input_ids": (example_tokens(decoder, 3, T), ROWS),
    }
    order = [name.removeprefix("past_key_values.") for name in cache_axes(decoder, "past_key_values", PAST)]
    inputs |= {f"past_key_values.{name}": (own | source)[name] for name in order}
    outputs = {"logits": ROWS} | {f"present.{name}": {0: BATCH, 2: TOTAL} for name in own}
    return Graph(NextTokensModule(decoder), inputs, outputs)


class OfHeads(nn.Module):
    """What the modules of an encoder with heads share. outputs: the names of what they return."""

    def __init__(self, model: WithHeads, outputs: Sequence[str]) -> None:
        super().__init__()
        self.model, self.outputs = model, outputs


class HeadsModule(OfHeads):
    """An encoder with what is read off it."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor, *segments: Tensor) -> tuple[Tensor, ...]:
        hidden_BTD = self.model.encoder(input_ids, At(slots_of(attention_mask)), *segments)
        return head_outputs(self.model, hidden_BTD, self.outputs)


def head_outputs(model: WithHeads, hidden_BTD: Tensor, outputs: Sequence[str]) -> tuple[Tensor, ...]:
    """What heads say, under their names."""
    found = {"last_hidden_state": hidden_BTD}
    for name, theirs in names_of(model).items():
        whole = model.heads[name](hidden_BTD, model.encoder.inputs)
        found |= zip(theirs, whole.unbind(-1) if len(theirs) > 1 else [whole], strict=True)
    return tuple(found[name] for name in outputs)


# What a head's numbers are called, and their axes besides the batch.
OUTPUTS = {
    "pooled": (("pooler_output",), {}),
    "masked_lm": (("logits",), {1: LENGTH}),
    "classify": (("logits",), {}),
    "classify_mean": (("logits",), {}),
    "tag": (("logits",), {1: LENGTH}),
    "replaced": (("logits",), {1: LENGTH}),
    "span": (("start_logits", "end_logits"), {1: LENGTH}),
    "next_sentence": (("seq_relationship_logits",), {}),
    "sentence_order": (("sop_logits",), {}),
}


def names_of(model: WithHeads) -> dict[str, tuple[str, ...]]:
    """{head: its outputs}; the first that gives logits has that name, others have their own before it."""
    found: dict[str, tuple[str, ...]] = {}
    for name in model.heads:
        if name in OUTPUTS:
            theirs = OUTPUTS[name][0]
            taken = theirs[0] in [each for some in found.values() for each in some]
            found[name] = tuple(f"{name}_{each}" for each in theirs) if taken else theirs
    return found


def outputs_of(model: WithHeads) -> dict[str, dict[int, str]]:
    """{output: its axes}: of scores only scores, of a bare encoder its hidden states."""
    named = names_of(model)
    scores = {
        theirs: {0: BATCH} | OUTPUTS[name][1]
        for name, some in named.items()
        if name != "pooled"
        for theirs in some
    }
    if scores:
        return scores
    return {"last_hidden_state": ROWS} | {each: {0: BATCH} for some in named.values() for each in some}


def heads_graph(model: WithHeads) -> Graph:
    T, outputs = example_length(model.encoder), outputs_of(model)
    tokens = example_tokens(model.encoder, 3, T)
    inputs = {"input_ids": (tokens, ROWS), "attention_mask": (torch.ones_like(tokens), ROWS)}
    if tells_segments(model):
        inputs["token_type_ids"] = torch.zeros_like(tokens), ROWS
    return Graph(HeadsModule(model, list(outputs)), inputs, outputs)


class ImageModule(OfHeads):
    """A model of pictures."""

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, ...]:
        return head_outputs(self.model, self.model.encoder(pixel_values), self.outputs)


def image_graph(model: WithHeads, config: Any) -> Graph:
    images = torch.zeros(3, config.channels, config.image_size, config.image_size)
    outputs = {name: {0: BATCH} for name in outputs_of(model)}
    return Graph(ImageModule(model, list(outputs)), {"pixel_values": (images, {0: BATCH})}, outputs)


class ClassifierModule(nn.Module):
    """A decoder read at each row's last real token."""

    def __init__(self, model: DecoderClassifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor]:
        hidden_BTD = self.model.decoder.hidden(input_ids, At(positions_of(attention_mask)))
        last_B11 = slots_of(attention_mask).amax(-1)[:, None, None]
        last_BD = hidden_BTD.gather(1, last_B11.expand(-1, 1, hidden_BTD.shape[-1]))[:, 0]
        return (self.model.linear(last_BD),)


def classifier_graph(model: DecoderClassifier) -> Graph:
    tokens = example_tokens(model.decoder, 3, example_length(model.decoder))
    inputs = {"input_ids": (tokens, ROWS), "attention_mask": (torch.ones_like(tokens), ROWS)}
    return Graph(ClassifierModule(model), inputs, {"logits": {0: BATCH}})
