"""Trace: one input through a model, and everything that its attentions and blocks did, kept once.

    seen = heedful.load("runs/demo").trace("The small girl eats a red apple.")
    seen.weights("cross", 3, 2)          # [T, S], layers and heads counted from 1
    seen.stream("decoder", 2)            # the residual stream after block 2; 0 is the embedding

All numbers come from one forward pass of the model's own modules, computed by the formula. Weights are kept
in fp16; queries, keys, values and streams in fp32. Scores, exact weights and the inside of a sublayer are
captured by one more pass with the same input when somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import __version__
from ..data.images.preprocessing import Preprocessing
from ..errors import BadInput, NotFinite
from ..interop.loaded import Loaded
from ..parts.watch import is_edited
from .capture import Captured, TraceSource, capture, trace_kinds
from .edit_spellings import Edit, ForceHead, HeadChoice, MaskToken, Patch, parsed
from .edits import HeadMeans, edit, mask_id
from .look.drawing import Drawing
from .look.heat_maps import Panel, small_multiples
from .look.inputs import InputTokens
from .look.steps import Steps, find
from .model_inputs import ModelInput, forward, input_of
from .sublayer import Projections, Sublayer, plain
from .trace_file import read_trace, write_trace
from .trace_parts import Kind, LayerDetail
from .weights_hash import hash_of_weights

MOST = 1024  # tokens
KEPT_LOGITS = 1 << 24  # numbers: larger logits are computed again when they are needed
STREAMS = {"encoder": "encoder", "decoder": "self"}  # the kind of attention that has these positions
DETAILS = 2  # layers whose exact inside is kept


class Trace:
    """One input through a model: `Model.trace` makes it. Layers, heads and queries are counted from 1.

    `logits` is the model's output, None for an encoder without heads. `edits` says how the model was changed.

    Args:
        words: The input, and what an encoder-decoder writes.
        kinds: {"cross", "self" or "encoder": its layers, heads, queries and keys}.
        captured: What was recorded.
        agreement: The largest difference between these outputs and those of the fast path.
        facts: What made the trace: versions, model and edits.
        source: The model, for what one more pass captures; None for a trace that was read from a file.
        details: The exact inside of some layers.

    Example:
        >>> seen = heedful.load("runs/demo").trace("My aunts are curious.")
        >>> seen.weights("cross", 1, 2).shape, seen.scores("cross", 1).shape
        (torch.Size([6, 5]), torch.Size([4, 6, 5]))
        >>> [tensor.shape[0] for tensor in seen.qkv("cross", 1, 2)], seen.stream("encoder", 0).shape
        ([6, 5, 5], torch.Size([5, 32]))
        >>> seen.steps("cross", 3, 2, "tantes").weighted_SL.shape
        torch.Size([5, 8])
    """

    def __init__(
        self,
        words: InputTokens,
        kinds: dict[str, Kind],
        captured: Captured,
        agreement: float,
        facts: dict[str, Any],
        source: TraceSource | None = None,
        details: dict[tuple[str, int], LayerDetail] | None = None,
    ) -> None:
        self.words, self.kinds, self.agreement = words, kinds, agreement
        self.attention, self.streams, self.outputs = captured.attention, captured.streams, captured.outputs
        self.masks, self.columns = captured.masks, captured.columns
        self.facts, self.source = facts, source
        self.details = details or {}

    # What was captured

    def weights(self, which: str, layer: int, head: int | None = None) -> Tensor:
        """The attention weights of a head or a layer.

        Args:
            which: "cross", "self" or "encoder".
            layer: A layer, counted from 1.
            head: A head, counted from 1. None: the whole layer.

        Returns:
            [T, S] of a head, or [H, T, S] of a layer.
        """
        weights_HTS = self.attention[self.key(which, layer)].weights_HTS.float()
        return weights_HTS if head is None else weights_HTS[self.place(which, head)]

    def qkv(self, which: str, layer: int, head: int) -> tuple[Tensor, Tensor, Tensor]:
        """The queries, keys and values of a head.

        Args:
            which: "cross", "self" or "encoder".
            layer: A layer, counted from 1.
            head: A head, counted from 1.

        Returns:
            Queries [T, K], keys [S, K] and values [S, L].
        """
        found, h = self.attention[self.key(which, layer)], self.place(which, head)
        return found.q_HTK[h], found.k_HSK[h], found.v_HSL[h]

    def scores(self, which: str, layer: int, head: int | None = None) -> Tensor:
        """The scaled scores of a head or a layer, before bias and mask.

        Args:
            which: "cross", "self" or "encoder".
            layer: A layer, counted from 1.
            head: A head, counted from 1. None: the whole layer.

        Returns:
            [T, S] of a head, or [H, T, S] of a layer.
        """
        scores_HTS = self.detail(which, layer).scores_HTS
        return scores_HTS if head is None else scores_HTS[self.place(which, head)]

    def stream(self, shell: str, layer: int) -> Tensor:
        """The residual stream after a block.

        Args:
            shell: "encoder" or "decoder".
            layer: A block, counted from 1; 0 is the embedding.

        Returns:
            Vectors [T, D].
        """
        if not any(name == shell for name, _ in self.streams):
            raise BadInput(self.no_stream(shell))
        if (shell, layer) not in self.streams:
            last = max(number for name, number in self.streams if name == shell)
            raise BadInput(f"there is no block {layer}: the {shell} has a stream from 0 to {last}")
        return self.streams[shell, layer]

    def allowed(self, which: str, layer: int, head: int | None = None) -> Tensor:
        """Which keys each query may attend to, [T, S]; without a head, in any of a layer's heads."""
        mask = self.masks[self.key(which, layer)]
        if head is None:
            return mask.any(0)
        return mask[self.place(which, head) % len(mask)]

    def keys(self, which: str, layer: int) -> list[str]:
        """The labels of a layer's keys: those of `kinds`, or the last token of each compressed one."""
        key = self.key(which, layer)
        across = self.kinds[key[0]].across
        return [across[place] for place in self.columns[key]] if key in self.columns else across

    @property
    def logits(self) -> Tensor | None:
        """The model's output: scores of the next token [T, V], or what an encoder's head says."""
        name = output_name(self.facts["outputs"])
        if name is None:
            return None
        if name not in self.outputs:
            self.outputs[name] = self.of_model("its logits").again()[name]
        return self.outputs[name]

    # What one more pass captures

    def detail(self, which: str, layer: int) -> LayerDetail:
        """The exact inside of a layer's attention."""
        key = self.key(which, layer)
        if key not in self.details:
            found = self.of_model(f"the inside of {which}-attention {layer}").detail(*key)
            if len(self.details) >= DETAILS:
                self.details.pop(next(iter(self.details)))
            self.details[key] = found
        return self.details[key]

    def sublayer(self, which: str, layer: int) -> Sublayer:
        """A layer's attention from the residual stream before it to the sum after it."""
        found = self.detail(which, layer).sublayer
        if found is None:
            raise BadInput(
                f"the attention of this {self.facts['architecture']} stands in no residual block: there is "
                "no sublayer to show"
            )
        return found

    def projections(self, which: str, layer: int, head: int) -> Projections:
        """What a head computes q, k and v from: its inputs, and its rows of the three matrices."""
        self.sublayer(which, layer)
        return self.detail(which, layer).projections[self.place(which, head)]

    def steps(self, which: str, layer: int, head: int, query: int | str) -> Steps:
        """Scores, mask, weights and weighted values of one query.

        Args:
            which: "cross", "self" or "encoder".
            layer: A layer, counted from 1.
            head: A head, counted from 1.
            query: The query's number, from 1, or its word.

        Returns:
            `Steps`, which print as a table.
        """
        key, h = self.key(which, layer), self.place(which, head)
        kind, found, detail = self.kinds[key[0]], self.attention[key], self.detail(which, layer)
        t = find(kind.down, query)
        return Steps(
            layer=layer,
            head=head,
            query=t + 1,
            word=kind.down[t],
            keys=self.keys(which, layer),
            q_K=found.q_HTK[h, t],
            k_SK=found.k_HSK[h],
            v_SL=found.v_HSL[h],
            scores_S=detail.dots_HTS[h, t],
            scale=detail.scale,
            scaled_S=detail.scores_HTS[h, t],
            bias_S=None if detail.bias_HTS is None else detail.bias_HTS[h, t],
            allowed_S=self.allowed(which, layer, head)[t],
            weights_S=detail.weights_HTS[h, t],
            added_L=None if detail.added_HTL is None else detail.added_HTL[h, t],
            q_position_K=None if detail.q_position_HTK is None else detail.q_position_HTK[h, t],
            k_position_SK=None if detail.k_position_HSK is None else detail.k_position_HSK[h],
            no_parts=detail.no_parts,
        )

    # Pictures

    def thumbnails(self, which: str, side: int = 32) -> Tensor:
        """All heads as small pictures: uint8 [L, H, t, s], 255 for a weight of 1.

        Where there are more than `side` queries or keys, a pixel has the largest weight of those it covers.
        """
        kind = self.kinds[self.key(which, 1)[0]]
        size = min(len(kind.down), side), min(len(kind.across), side)
        pictures = [
            F.adaptive_max_pool2d(self.weights(which, layer), size).mul(255).round().to(torch.uint8)
            for layer in range(1, kind.layers + 1)
        ]
        return torch.stack(pictures)

    def picture(self, which: str | None = None) -> Drawing:
        """All heads of one kind of attention, side by side."""
        which = next(iter(self.kinds)) if which is None else which
        kind = self.kinds[self.key(which, 1)[0]]
        panels = [
            Panel(f"layer {layer}, head {head}", self.weights(which, layer, head).tolist())
            for layer in range(1, kind.layers + 1)
            for head in range(1, kind.heads + 1)
        ]
        title = f"{which}-attention: {kind.layers} layers of {kind.heads} heads\n{self.words.text}"
        return small_multiples(panels, min(kind.heads, 12), kind.down, kind.across, title)

    def svg(self, which: str | None = None) -> str:
        """The picture as the text of an SVG file."""
        return self.picture(which).svg()

    def _repr_html_(self) -> str:
        return self.picture().html()

    def __repr__(self) -> str:
        sizes = ", ".join(
            f"{which} {one.layers} x {one.heads} heads of {len(one.down)} x {len(one.across)}"
            for which, one in self.kinds.items()
        )
        return f"<trace of {self.words.text[:40]!r}: {sizes}>"

    # Where it comes from, and files

    @property
    def edits(self) -> list[str]:
        """How the model was changed."""
        return self.facts["edits"]

    @property
    def provenance(self) -> dict[str, Any]:
        """The model, its weights' SHA-256, versions and edits that these numbers come from."""
        if "weights_sha256" not in self.facts:
            self.facts["weights_sha256"] = hash_of_weights(self.of_model("its weights").loaded.model)
        return self.facts

    @property
    def nbytes(self) -> int:
        """How many bytes of tensors the trace holds."""
        attention = [x for one in self.attention.values() for x in vars(one).values()]
        kept = [*attention, *self.streams.values(), *self.outputs.values()]
        kept += {id(mask): mask for mask in self.masks.values()}.values()
        return sum(x.numel() * x.element_size() for x in kept)

    def save(self, path: str | Path, whole: bool = False) -> None:
        """Write the trace as a safetensors file.

        whole: with the exact inside of every layer, so that `steps`, `scores` and `sublayer` need no model.
        """
        keys = list(self.attention) if whole else []
        details = {key: self.details.get(key) or self.of_model("its steps").detail(*key) for key in keys}
        write_trace(self, Path(path), details)

    @staticmethod
    def load(path: str | Path) -> Trace:
        """The trace of a file. It has no model: what was not saved is refused."""
        return Trace(**read_trace(Path(path)))

    # Checks

    def key(self, which: str, layer: int) -> tuple[str, int]:
        """Where a layer's attention is kept; a model that is an encoder alone has one kind for both names."""
        if which == "encoder" and "encoder" not in self.kinds and "cross" not in self.kinds:
            which = "self"
        if which not in self.kinds:
            has = " and ".join(self.kinds)
            raise BadInput(f'this {self.facts["architecture"]} has {has}-attention, not "{which}"')
        if (which, layer) not in self.attention:
            last = self.kinds[which].layers
            raise BadInput(f"there is no layer {layer}: layers are counted from 1 to {last}")
        return which, layer

    def place(self, which: str, head: int) -> int:
        """The place of a head, from 0."""
        heads = self.kinds[self.key(which, 1)[0]].heads
        if not 1 <= head <= heads:
            raise BadInput(f"there is no head {head}: heads are counted from 1 to {heads}")
        return head - 1

    def no_stream(self, shell: str) -> str:
        """Why there is no residual stream of this name."""
        names = dict.fromkeys(name for name, _ in self.streams)
        if names:
            return f"there is no stream of the {shell}: this model has {' and '.join(names)}"
        return (
            f"this {self.facts['architecture']} has no residual stream: its layers are no blocks of attention"
        )

    def of_model(self, what: str) -> TraceSource:
        """The model and the input, for what has to be captured by one more pass."""
        if self.source is None:
            raise BadInput(f"this trace was read from a file without {what}: save it with whole=True")
        return self.source


def trace(
    loaded: Loaded,
    text: str | np.ndarray,
    target: str | None = None,
    *,
    edits: Sequence[Edit | str] = (),
    traces: Mapping[str, Trace] | None = None,
    means: HeadMeans | None = None,
    most: int = MOST,
    preprocessing: Preprocessing | None = None,
) -> Trace:
    """One input through a model, everything captured.

    text: a text, or the pixels [H, W, C] of an image that is ready for the model. target: of an
    encoder-decoder, instead of its own greedy translation. edits: changes of the model that hold during the
    trace, such as "zero:cross.3.2"; traces and means: what they refer to (`edit`). most: tokens of the text,
    and of the target. preprocessing: how the numbers of pixels become inputs; by default as the folder says.
    """
    if is_edited():
        raise BadInput('a trace has its own edits: give them to it, as in edits=["zero:cross.3.2"]')
    changes = parsed(edits)

    def editing() -> AbstractContextManager[None]:
        return edit(loaded, changes, traces=traces, means=means) if changes else nullcontext()

    with editing():
        given = input_of(loaded, text, target, most, preprocessing)
    source = TraceSource(loaded, masked(loaded, given, changes), editing)
    kinds = trace_kinds(loaded, source.given)
    check_places(changes, kinds)
    found = capture(source, kinds)
    if not all(torch.isfinite(one.weights_HTS).all() for one in found.attention.values()):
        raise NotFinite(
            "the attention of this model is not finite: `heedful doctor` names the weights that are not"
        )
    with editing():
        agreement = disagreement(forward(loaded.model, source.given), found.outputs)
    facts = facts_of(loaded, found.outputs) | {"edits": [one.spelling for one in changes]}
    small = {name: x for name, x in found.outputs.items() if x.numel() <= KEPT_LOGITS}
    captured = replace(found, outputs=small)
    return Trace(source.given.words, kinds, captured, agreement, facts, source)


def masked(loaded: Loaded, given: ModelInput, edits: Sequence[Edit]) -> ModelInput:
    """The input with the tokens that `mask` edits hide, so that labels show what the model reads."""
    ids = list(given.words.ids)
    for one in edits:
        if isinstance(one, MaskToken):
            if one.token > len(ids):
                raise BadInput(f"{one.spelling}: the text has {len(ids)} tokens, and no token {one.token}")
            ids[one.token - 1] = mask_id(loaded, one.spelling)
    return replace(given, words=replace(given.words, ids=ids))


def check_places(edits: Sequence[Edit], kinds: dict[str, Kind]) -> None:
    """Refuse edits at places that this input does not have."""
    for one in edits:
        if isinstance(one, ForceHead):
            kind = kinds["self" if one.heads.which not in kinds else one.heads.which]
            for what, number, count in (("query", one.query, kind.down), ("key", one.key, kind.across)):
                if number > len(count):
                    raise BadInput(f"{one.spelling}: there is no {what} {number}; there are {len(count)}")
        if isinstance(one, Patch) and one.position is not None:
            which = one.place.which if isinstance(one.place, HeadChoice) else STREAMS[one.place.shell]
            count = kinds[which if which in kinds else "self"].down
            if one.position > len(count):
                raise BadInput(f"{one.spelling}: there is no position {one.position}; there are {len(count)}")


def disagreement(fast: dict[str, Tensor], outputs: dict[str, Tensor]) -> float:
    """The largest difference between two passes."""
    differences = [(plain(fast[name]) - outputs[name]).abs().max() for name in outputs]
    return float(max(differences))


def output_name(names: Sequence[str]) -> str | None:
    """Which output a model is used for."""
    known = ("logits", "masked_lm", "classify", "tag", "span")
    return next((name for name in known if name in names), None)


def facts_of(loaded: Loaded, outputs: dict[str, Tensor]) -> dict[str, Any]:
    """What is said of a trace's origin."""
    weight = next(loaded.model.parameters())
    config = asdict(loaded.config) if is_dataclass(loaded.config) else {}  # type: ignore[arg-type]
    return {
        "architecture": loaded.architecture,
        "config": config,
        "dtype": str(weight.dtype).removeprefix("torch."),
        "device": str(weight.device),
        "parameters": sum(one.numel() for one in loaded.model.parameters()),
        "heedful": __version__,
        "torch": torch.__version__,
        "outputs": list(outputs),
    }
