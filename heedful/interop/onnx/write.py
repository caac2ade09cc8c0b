"""Out to ONNX: graphs that onnxruntime runs, for any batch and length, with the names that Hugging Face's Optimum gives.

    decoder              model.onnx                      tokens and past keys and values in, scores and present ones out
    encoder-decoder      encoder_model.onnx              the source, once
                         decoder_model.onnx              the first tokens; gives keys and values of the source too
                         decoder_with_past_model.onnx    every token after
    encoder, classifier  model.onnx                      what its heads say, or hidden states

A graph is what the model itself computes, recorded by torch.export: there is no second model to keep in step. Where its
keys and values lie is the one thing that differs, and a cache is an argument: `Handed` hands them through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...decode.beam import BeamSettings, beam_search
from ...decode.greedy import greedy
from ...decode.step import Step
from ...errors import BadInput
from ...files import present, read_json
from ...models.base.heads import DecoderClassifier
from ...models.base.shells import Decoder, Encoder, EncoderDecoder, WithHeads
from ...models.vit import PatchInputs
from ...parts.blocks import Stack
from ...parts.cache import Cache, GrowingCache, KeysValues, LayerCache
from ...parts.experts import Experts
from ..formats import quiet
from ..hf.beside import (
    GENERATION,
    as_json,
    generation_config,
    tells_segments,
    token_ids,
    tokenizer_files,
    write_files,
)
from ..load import Loaded, in_their_terms
from ..packages import needed
from ..parity import each_text, padded, real
from ..run_folder import CONFIG

KINDS = ("float32", "int8")
OPSET = 18
LARGEST = 2_000_000_000  # bytes: a file of more than 2 GiB is no ONNX file, and its weights go beside it
MODEL, ENCODER = "model.onnx", "encoder_model.onnx"
FIRST, NEXT = "decoder_model.onnx", "decoder_with_past_model.onnx"
LONGEST = 5  # tokens of an example: graphs hold for any number


def refuse(loaded: Loaded) -> str | None:
    """Why this model cannot be such a graph, or None."""
    model, name = loaded.model, loaded.architecture
    if not isinstance(model, Decoder | EncoderDecoder | WithHeads | DecoderClassifier):
        return f"heedful knows no ONNX convention for {name}"
    shells = [m for m in model.modules() if isinstance(m, Encoder | Decoder)]
    if any(type(shell.stack) is not Stack for shell in shells):
        return f"{name} is not made of attention, for which alone ONNX runners have conventions"
    if any(isinstance(m, Experts) for m in model.modules()):
        return f"{name} decides as it runs which experts a token meets, and a graph is drawn before"
    for shell in shells:
        if isinstance(shell, Decoder) and type(shell.growing_cache()) is not GrowingCache:
            return f"{name} remembers more than keys and values, and ONNX runners hand on only those"
        if isinstance(shell, Encoder) and shell.needs_tree:
            return f"{name} reads sentences with their trees, which ONNX runners do not have"
    if isinstance(model, EncoderDecoder) and isinstance(model.encoder.inputs, PatchInputs):
        return f"{name} reads pictures and writes words, for which heedful has no ONNX graph yet"
    odd = [head for head in getattr(model, "heads", ()) if head not in OUTPUTS and head != "class_token"]
    return f"heedful knows no ONNX convention for what {name} says: {', '.join(odd)}" if odd else None


# Writing


def write(loaded: Loaded, folder: Path, kind: str = "float32") -> None:
    """The graphs, and beside them the config, the tokenizer and how to write."""
    why = refuse(loaded)
    if why is not None:
        raise BadInput(why)
    if kind not in KINDS:
        raise BadInput(f"ONNX models are written as {' or '.join(KINDS)}, not {kind}")
    for package in ("onnx", "onnxscript") if kind == "float32" else ("onnx", "onnxscript", "onnxruntime"):
        with quiet():
            needed(package, "onnx")
    for name, graph in graphs(loaded).items():
        graph.write(folder / name)
        if kind == "int8":
            quantize(folder / name)
    write_files(folder, beside(loaded))


def beside(loaded: Loaded) -> dict[str, str | bytes]:
    """{name of a file: its text} of everything but the graphs."""
    try:
        config = in_their_terms(loaded)[0]
    except BadInput:  # there is no such model at Hugging Face, but its graph runs
        config = {"model_type": loaded.architecture, "heedful": asdict(loaded.config)} | token_ids(loaded)
    files = tokenizer_files(loaded) | {CONFIG: as_json(config)}
    writing = generation_config(loaded)
    return files if writing is None else files | {GENERATION: as_json(writing)}


def quantize(path: Path) -> None:
    """Matrices as int8, and what is multiplied with them as it comes: onnxruntime's dynamic quantization."""
    with quiet():
        theirs = needed("onnxruntime.quantization", "onnx")
        whole = path.with_suffix(".whole.onnx")
        path.rename(whole)
        theirs.quantize_dynamic(whole, path, per_channel=True, weight_type=theirs.QuantType.QInt8)
        whole.unlink()
        path.with_name(f"{path.name}.data").unlink(
            missing_ok=True
        )  # the weights of a large one, as they were


class Graph:
    """A module to record: example inputs by name, each with the names of its axes that may have any size."""

    def __init__(
        self,
        module: nn.Module,
        inputs: dict[str, tuple[Tensor, dict[int, str]]],
        outputs: dict[str, dict[int, str]],
    ) -> None:
        self.module, self.inputs, self.outputs = module.eval(), inputs, outputs

    def write(self, path: Path) -> None:
        """As an ONNX file."""
        given = tuple(tensor for tensor, _ in self.inputs.values())
        with quiet(), torch.no_grad():
            program = torch.onnx.export(
                Several(self.module),
                (list(given),),
                dynamo=True,
                opset_version=OPSET,
                input_names=list(self.inputs),
                output_names=list(self.outputs),
                dynamic_shapes=(
                    [dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for _, axes in self.inputs.values()],
                ),
                verbose=False,
                optimize=False,
            )
            assert program is not None
            simplify(program.model)
            forget(program.model)
            self.name_axes(program.model)
            size = sum(weight.numel() * weight.element_size() for weight in self.module.parameters())
            program.save(path, external_data=size > LARGEST)

    def name_axes(self, model: Any) -> None:
        """Say which axes are the batch and which a length; torch calls them by numbers."""
        named = {name: axes for name, (_, axes) in self.inputs.items()} | self.outputs
        for value in (*model.graph.inputs, *model.graph.outputs):
            for axis, name in named[value.name].items():
                value.shape[axis] = name


def simplify(model: Any) -> None:
    """Compute beforehand what depends on no input; but keep a weight that is used in two ways once, as a tied head's is."""
    optimizer = needed("onnxscript.optimizer", "onnx")

    def should_fold(node: Any) -> bool | None:
        shared = node.op_type == "Transpose" and len(node.inputs[0].uses()) > 1
        return False if shared else None

    optimizer.optimize_ir(model, should_fold=should_fold)


def forget(model: Any) -> None:
    """Leave out what torch notes of each node: the lines of code it came from, with the folders of this machine."""
    values = [value for node in model.graph for value in node.outputs]
    for noted in (
        *model.graph,
        *values,
        *model.graph.inputs,
        *model.graph.initializers.values(),
        model.graph,
        model,
    ):
        noted.metadata_props.clear()


class Several(nn.Module):
    """A module given its inputs in one list: torch.export then takes them in that order."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, given: list[Tensor]) -> tuple[Tensor, ...]:
        return self.module(*given)


# The graphs of each kind of model


def graphs(loaded: Loaded) -> dict[str, Graph]:
    """{file: its graph}."""
    model = loaded.model
    if isinstance(model, EncoderDecoder):
        return {ENCODER: reading(model.encoder), FIRST: beginning(model), NEXT: going_on(model)}
    if isinstance(model, Decoder):
        return {MODEL: continuing(model)}
    if isinstance(model, DecoderClassifier):
        return {MODEL: judging(model)}
    assert isinstance(model, WithHeads)
    return {
        MODEL: seeing(model, loaded.config) if isinstance(model.encoder.inputs, PatchInputs) else heads(model)
    }


BATCH, LENGTH, PAST = "batch_size", "sequence_length", "past_sequence_length"
SOURCE, TOTAL = "encoder_sequence_length", "total_sequence_length"
ROWS = {0: BATCH, 1: LENGTH}


def tokens_like(shell: Any, rows: int, length: int) -> Tensor:
    """Example tokens, all different from row to row."""
    return torch.arange(rows * length).view(rows, length) % len(shell.inputs.tokens.weight)


def length_of(shell: Any, most: int = LONGEST) -> int:
    """Tokens of an example, with as many before: few enough for any table."""
    longest = shell.inputs.position.longest
    return most if longest is None else max(2, min(most, longest // 2))


def places(mask_BT: Tensor) -> Tensor:
    """Slots as positions, padding as -1."""
    return torch.where(mask_BT > 0, torch.arange(mask_BT.shape[1]), -1)


def counted(mask_BT: Tensor) -> Tensor:
    """Positions that count real tokens only, padding as -1: prompts of unequal length may end together."""
    return torch.where(mask_BT > 0, mask_BT.cumsum(-1) - 1, -1)


class Handed(Cache):
    """Keys and values that come from the caller and go back to them."""

    def __init__(self, pasts: Sequence[KeysValues | None], q_pos: Tensor, k_pos: Tensor) -> None:
        self.layers: list[HandedLayer] = [HandedLayer(past) for past in pasts]
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


class HandedLayer(LayerCache):
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


class Continuing(nn.Module):
    """A decoder: new tokens, which of all tokens are real, and keys and values of those before."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        k_pos = counted(attention_mask)
        cache = Handed(in_pairs(past), k_pos[:, past[0].shape[2] :], k_pos)
        scores_BTV = self.decoder(input_ids, cache=cache)
        return scores_BTV, *(part for layer in cache.layers for part in layer.present or ())


def continuing(decoder: Decoder) -> Graph:
    T = length_of(decoder)
    inputs = {
        "input_ids": (tokens_like(decoder, 3, T), ROWS),
        "attention_mask": (torch.ones(3, 2 * T - 1, dtype=torch.long), {0: BATCH, 1: TOTAL}),
    }
    inputs |= {
        f"past_key_values.{name}": value for name, value in keys_values(decoder, 3, T - 1, PAST).items()
    }
    outputs = {"logits": ROWS}
    outputs |= {f"present.{name}": {0: BATCH, 2: TOTAL} for name in keys_values(decoder, 3, 0, TOTAL)}
    return Graph(Continuing(decoder), inputs, outputs)


def keys_values(
    decoder: Decoder, rows: int, length: int, axis: str, side: str = "", cross: bool = False
) -> dict[str, tuple[Tensor, dict[int, str]]]:
    """{layer.key, layer.value: an example, its axes}."""
    found = {}
    for number, layer in enumerate(decoder.crosses() if cross else decoder.attentions()):
        for name, width in (("key", layer.key_width), ("value", layer.value_width)):
            example = torch.zeros(rows, layer.kv_heads, length, width)
            found[f"{number}.{side}{name}"] = example, {0: BATCH, 2: axis}
    return found


class Reading(nn.Module):
    """An encoder alone."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor]:
        return (self.encoder(input_ids, positions=places(attention_mask)),)


def reading(encoder: Encoder) -> Graph:
    T = length_of(encoder)
    tokens = tokens_like(encoder, 3, T)
    inputs = {"input_ids": (tokens, ROWS), "attention_mask": (torch.ones_like(tokens), ROWS)}
    return Graph(Reading(encoder), inputs, {"last_hidden_state": ROWS})


class Beginning(nn.Module):
    """A decoder's first tokens, and all that later ones need of the source."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, mask: Tensor, input_ids: Tensor, source_BSD: Tensor) -> tuple[Tensor, ...]:
        here_BT = torch.arange(input_ids.shape[1]).expand(input_ids.shape)
        cache = Handed([None] * len(self.decoder.stack.blocks), here_BT, here_BT)
        scores_BTV = self.decoder(
            input_ids, cache=cache, source_BSD=source_BSD, source_positions=places(mask)
        )
        own = (part for layer in cache.layers for part in (*(layer.present or ()), *(layer.source_kv or ())))
        return scores_BTV, *own


def beginning(model: EncoderDecoder) -> Graph:
    S, T = length_of(model.encoder), length_of(model.decoder)
    width = model.encoder(tokens_like(model.encoder, 1, 2)).shape[-1]
    inputs = {
        "encoder_attention_mask": (torch.ones(3, S, dtype=torch.long), {0: BATCH, 1: SOURCE}),
        "input_ids": (tokens_like(model.decoder, 3, T), ROWS),
        "encoder_hidden_states": (torch.zeros(3, S, width), {0: BATCH, 1: SOURCE}),
    }
    return Graph(Beginning(model.decoder), inputs, {"logits": ROWS} | sides(model.decoder, "present", LENGTH))


def sides(decoder: Decoder, what: str, length: str) -> dict[str, dict[int, str]]:
    """{name: axes} of keys and values, a layer's own before those of its source."""
    found = {}
    for number in range(len(decoder.stack.blocks)):
        for side, axis in (("decoder", length), ("encoder", SOURCE)):
            for name in ("key", "value"):
                found[f"{what}.{number}.{side}.{name}"] = {0: BATCH, 2: axis}
    return found


class GoingOn(nn.Module):
    """A decoder's next tokens: its own past comes and goes, that of the source only comes."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, mask: Tensor, input_ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        pairs = in_pairs(past)
        own, source = pairs[::2], pairs[1::2]
        k_pos = torch.arange(own[0][0].shape[2] + input_ids.shape[1])
        k_pos = k_pos.expand(input_ids.shape[0], k_pos.shape[0])
        cache = Handed(own, k_pos[:, own[0][0].shape[2] :], k_pos)
        for layer, source_kv in zip(cache.layers, source, strict=True):
            layer.source_kv = source_kv
        read_BSD = source[0][0][:, 0]  # its length is looked at, and nothing else
        scores_BTV = self.decoder(input_ids, cache=cache, source_BSD=read_BSD, source_positions=places(mask))
        return scores_BTV, *(part for layer in cache.layers for part in layer.present or ())


def going_on(model: EncoderDecoder) -> Graph:
    decoder, S, T = model.decoder, length_of(model.encoder), length_of(model.decoder)
    own = keys_values(decoder, 3, T - 1, PAST, "decoder.")
    source = keys_values(decoder, 3, S, SOURCE, "encoder.", cross=True)
    inputs = {
        "encoder_attention_mask": (torch.ones(3, S, dtype=torch.long), {0: BATCH, 1: SOURCE}),
        "input_ids": (tokens_like(decoder, 3, T), ROWS),
    }
    order = [name.removeprefix("past_key_values.") for name in sides(decoder, "past_key_values", PAST)]
    inputs |= {f"past_key_values.{name}": (own | source)[name] for name in order}
    outputs = {"logits": ROWS} | {f"present.{name}": {0: BATCH, 2: TOTAL} for name in own}
    return Graph(GoingOn(decoder), inputs, outputs)


class Heads(nn.Module):
    """An encoder with what is read off it."""

    def __init__(self, model: WithHeads, outputs: Sequence[str]) -> None:
        super().__init__()
        self.model, self.outputs = model, outputs

    def forward(self, input_ids: Tensor, attention_mask: Tensor, *segments: Tensor) -> tuple[Tensor, ...]:
        places_BT = places(attention_mask)
        hidden_BTD = self.model.encoder(input_ids, None, *segments, positions=places_BT)
        return said(self.model, hidden_BTD, self.outputs)


def said(model: WithHeads, hidden_BTD: Tensor, outputs: Sequence[str]) -> tuple[Tensor, ...]:
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


def heads(model: WithHeads) -> Graph:
    T, outputs = length_of(model.encoder), outputs_of(model)
    tokens = tokens_like(model.encoder, 3, T)
    inputs = {"input_ids": (tokens, ROWS), "attention_mask": (torch.ones_like(tokens), ROWS)}
    if tells_segments(model):
        inputs["token_type_ids"] = torch.zeros_like(tokens), ROWS
    return Graph(Heads(model, list(outputs)), inputs, outputs)


class Seeing(nn.Module):
    """A model of pictures."""

    def __init__(self, model: WithHeads, outputs: Sequence[str]) -> None:
        super().__init__()
        self.model, self.outputs = model, outputs

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, ...]:
        return said(self.model, self.model.encoder(pixel_values), self.outputs)


def seeing(model: WithHeads, config: Any) -> Graph:
    images = torch.zeros(3, config.channels, config.image, config.image)
    outputs = {name: {0: BATCH} for name in outputs_of(model)}
    return Graph(Seeing(model, list(outputs)), {"pixel_values": (images, {0: BATCH})}, outputs)


class Judging(nn.Module):
    """A decoder read at each row's last real token."""

    def __init__(self, model: DecoderClassifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor]:
        hidden_BTD = self.model.decoder.hidden(input_ids, positions=counted(attention_mask))
        last_B11 = places(attention_mask).amax(-1)[:, None, None]
        last_BD = hidden_BTD.gather(1, last_B11.expand(-1, 1, hidden_BTD.shape[-1]))[:, 0]
        return (self.model.linear(last_BD),)


def judging(model: DecoderClassifier) -> Graph:
    tokens = tokens_like(model.decoder, 3, length_of(model.decoder))
    inputs = {"input_ids": (tokens, ROWS), "attention_mask": (torch.ones_like(tokens), ROWS)}
    return Graph(Judging(model), inputs, {"logits": {0: BATCH}})


# Opened again by onnxruntime


def elsewhere(folder: Path) -> Runtime:
    """The graphs of a folder in onnxruntime."""
    return Runtime(folder)


class Session:
    """One graph, given and giving tensors by name."""

    def __init__(self, path: Path) -> None:
        with quiet():
            runtime = needed("onnxruntime", "onnx")
            how = runtime.SessionOptions()
            how.log_severity_level = 3
            how.intra_op_num_threads = torch.get_num_threads()
            how.add_session_config_entry("session.intra_op.allow_spinning", "0")
            self.session = runtime.InferenceSession(str(path), how, providers=["CPUExecutionProvider"])
        self.inputs = {value.name: value.shape for value in self.session.get_inputs()}
        self.outputs = [value.name for value in self.session.get_outputs()]

    def __call__(self, **given: Tensor) -> dict[str, Tensor]:
        fed = {name: given[name].contiguous().numpy() for name in self.inputs}
        out = self.session.run(None, fed)
        return {name: torch.from_numpy(array) for name, array in zip(self.outputs, out, strict=True)}


class Runtime:
    """A model in onnxruntime, whose scores heedful's own searches are given, token by token through the cache."""

    def __init__(self, folder: Path) -> None:
        config = read_json(folder / CONFIG)
        numbers = {name: config.get(f"{name}_token_id") for name in ("bos", "eos", "decoder_start")}
        special = {name: number for name, number in numbers.items() if type(number) is int}
        self.end, self.start = special.get("eos"), special.get("decoder_start", special.get("bos", 0))
        self.pairs = present(folder / ENCODER)
        names = (ENCODER, FIRST, NEXT) if self.pairs else (MODEL,)
        self.sessions = {name: Session(folder / name) for name in names}

    @property
    def writes(self) -> bool:
        return self.pairs or any("past_key_values" in name for name in self.sessions[MODEL].inputs)

    def logits(self, ids: list[int], target: list[int] | None) -> Tensor | None:
        return self.batch([ids], [target])[0]

    def batch(self, rows: list[list[int]], targets: list[list[int] | None]) -> list[Tensor]:
        """Scores of several texts at once, padded at their ends."""
        tokens_BT, lengths_B = padded(rows)
        if self.writes:
            step: OnnxStep = self.step(tokens_BT, lengths_B)
            if self.pairs:
                tokens_BT, lengths_B = padded([target or [self.start] for target in targets])
            scores_BTV = step(tokens_BT, lengths_B)
            return each_text(scores_BTV, lengths_B)
        mask_BT = real(tokens_BT, lengths_B)
        given = {"token_type_ids": torch.zeros_like(tokens_BT)}
        out = self.sessions[MODEL](input_ids=tokens_BT, attention_mask=mask_BT, **given)
        return each_text(said_first(out), lengths_B, out.get("pooler_output"))

    def other_heads(self, ids: list[int]) -> list[Tensor]:
        if self.writes:
            return []
        tokens_1T = torch.tensor([ids])
        given = {"attention_mask": torch.ones_like(tokens_1T), "token_type_ids": torch.zeros_like(tokens_1T)}
        out = self.sessions[MODEL](input_ids=tokens_1T, **given)
        firsts = ("last_hidden_state", "pooler_output", "logits", "start_logits", "end_logits")
        return [part[0] if part.ndim == 3 else part for name, part in out.items() if name not in firsts]

    def pictures(self, images_BCHW: Tensor) -> list[Tensor]:
        out = self.sessions[MODEL](pixel_values=images_BCHW)
        found = said_first(out)
        return each_text(found, torch.full((len(found),), found.shape[1]), out.get("pooler_output"))

    def step(self, tokens_BT: Tensor, lengths_B: Tensor) -> OnnxStep:
        if not self.pairs:
            return DecoderStep(self.sessions[MODEL])
        mask_BS = real(tokens_BT, lengths_B)
        read = self.sessions[ENCODER](input_ids=tokens_BT, attention_mask=mask_BS)["last_hidden_state"]
        return PairStep(self.sessions[FIRST], self.sessions[NEXT], mask_BS, read)

    def begun(self, ids: list[int]) -> tuple[Step, Tensor]:
        prompt = torch.tensor([[self.start] if self.pairs else ids])
        return self.step(*padded([ids])), prompt

    def greedy(self, ids: list[int], new: int) -> list[int] | None:
        if not self.writes:
            return None
        step, prompt_1T = self.begun(ids)
        return greedy(step, prompt_1T, longest=new, eos=self.end)[0].words

    def beam(self, ids: list[int], width: int, new: int) -> list[int] | None:
        if not self.writes:
            return None
        step, prompt_1T = self.begun(ids)
        settings = BeamSettings(width, 1, "power", 0.0, stopping="exact")
        return beam_search(step, prompt_1T, longest=new, eos=self.end, settings=settings)[0][0].words

    def tokens(self, text: str) -> list[int] | None:
        return None  # onnxruntime has no tokenizer: the folder's is heedful's own


def said_first(out: dict[str, Tensor]) -> Tensor:
    """What the first head says, of every token or of the whole."""
    first, *others = out.values()
    return torch.stack([first, others[0]], -1) if "start_logits" in list(out)[:1] else first


class OnnxStep(Step):
    """A graph as a step: keys and values are kept here."""

    def __init__(self) -> None:
        self.past: dict[str, Tensor] = {}

    def keep(self, out: dict[str, Tensor]) -> Tensor:
        self.past |= {
            name.replace("present", "past_key_values"): part for name, part in out.items() if name != "logits"
        }
        return out["logits"]


class DecoderStep(OnnxStep):
    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session, self.mask_BS = session, torch.zeros(0, 0)

    def __call__(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        if not self.past:
            B = len(tokens_BT)
            shapes = {name: shape for name, shape in self.session.inputs.items() if name.startswith("past")}
            self.past = {name: torch.zeros(B, shape[1], 0, shape[3]) for name, shape in shapes.items()}
            self.mask_BS = torch.zeros(B, 0, dtype=torch.long)
        new_BT = torch.ones_like(tokens_BT) if lengths_B is None else real(tokens_BT, lengths_B)
        self.mask_BS = torch.cat([self.mask_BS, new_BT], 1)
        return self.keep(self.session(input_ids=tokens_BT, attention_mask=self.mask_BS, **self.past))

    def reorder(self, rows: Tensor, siblings: bool = False) -> None:
        self.past = {name: part[rows] for name, part in self.past.items()}
        self.mask_BS = self.mask_BS[rows]

    def rewind(self, lengths_B: Tensor) -> None:
        self.mask_BS = self.mask_BS * (self.mask_BS.cumsum(1) <= lengths_B[:, None])


class PairStep(OnnxStep):
    def __init__(self, first: Session, then: Session, mask_BS: Tensor, source_BSD: Tensor) -> None:
        super().__init__()
        self.first, self.then, self.mask_BS, self.source_BSD = first, then, mask_BS, source_BSD

    def __call__(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        given = {"encoder_attention_mask": self.mask_BS, "input_ids": tokens_BT}
        if not self.past:
            return self.keep(self.first(**given, encoder_hidden_states=self.source_BSD))
        return self.keep(self.then(**given, **self.past))

    def reorder(self, rows: Tensor, siblings: bool = False) -> None:
        self.past = {name: part[rows] for name, part in self.past.items()}
        self.mask_BS, self.source_BSD = self.mask_BS[rows], self.source_BSD[rows]

    def rewind(self, lengths_B: Tensor) -> None:
        """All rows to one length: their graph counts slots, and is not told which are real."""
        if len(lengths_B.unique()) > 1:
            raise ValueError("rows of this graph cannot be cut to different lengths")
        self.past = {
            name: part[:, :, : int(lengths_B[0])] if ".decoder." in name else part
            for name, part in self.past.items()
        }
