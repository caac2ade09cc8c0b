"""Traces in the worker: made once, kept by their bytes, and handed out number by number."""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import BadInput
from ..inside.labels import HeadLabel, HeadTally
from ..inside.look.heads import habits, informations, sharpness
from ..inside.patterns import AttentionGrid
from ..inside.samples import Sample, TokenKinds, grids
from ..inside.trace import Trace, trace
from ..inside.trace_parts import Kind
from ..inside.weights_hash import hash_of_weights
from ..service.methods import Event, Given, Method, Work
from ..use.model import Model
from .editing import editing, means_for
from .pictures import input_of_model, reads_images
from .python_code import code_of, lines_of_steps, lines_of_trace

KEPT = 256 << 20  # bytes of traces
TYPES = {"f16": torch.float16, "f32": torch.float32, "u8": torch.uint8}
OF_SUBLAYER = {
    "x": "x_TD", "normed": "normed_TD", "source": "source_SD", "heads": "heads_TX", "out": "out_TD",
    "added": "added_TD", "sum": "sum_TD", "after": "after_TD",
}  # fmt: skip
OF_HEAD = {
    "W_q": "W_q_KD", "W_k": "W_k_KD", "W_v": "W_v_LD",
    "bias_q": "bias_q_K", "bias_k": "bias_k_K", "bias_v": "bias_v_L",
}  # fmt: skip


@dataclass(frozen=True)
class KeptTrace:
    """A trace, and what was measured of its heads."""

    id: str
    trace: Trace
    kinds: dict[str, dict[str, Any]]
    read: str | np.ndarray  # the text, or the pixels [H, W, C] of a picture


class Traces:
    """Traces by their ids, those not used for longest forgotten first."""

    def __init__(self, most: int = KEPT) -> None:
        self.most, self.found = most, OrderedDict[str, KeptTrace]()

    def get(self, model: Model, given: Given, blob: bytes) -> KeptTrace:
        """The trace of a text, or of the picture that it names; made again if it was forgotten."""
        id = id_of(model, given)
        if id not in self.found:
            read = input_of_model(model, given["text"], blob)
            how: dict[str, Any] = {"traces": self.known, "means": means_for(model, given["edits"])}
            seen = trace(model.loaded, read, given["target"], edits=given["edits"], **how)
            self.found[id] = KeptTrace(id, seen, facts_of(model, seen), read)
        self.found.move_to_end(id)
        while len(self.found) > 1 and sum(one.trace.nbytes for one in self.found.values()) > self.most:
            self.found.popitem(last=False)
        return self.found[id]

    @property
    def known(self) -> dict[str, Trace]:
        """Traces that patches may name."""
        return {id: kept.trace for id, kept in self.found.items()}

    def editing(self, model: Model, edits: list[str]) -> AbstractContextManager[None]:
        """The model with edits, within a `with` block."""
        return editing(model, edits, self.known)

    # Methods of the worker.

    def trace(self, model: Model, given: Given, blob: bytes) -> Work:
        """Send a text through the model."""
        start = time.monotonic()
        yield None
        kept = self.get(model, given, blob)
        seen = kept.trace
        yield over(
            {
                "id": kept.id,
                "text": given["text"],
                "translation": seen.words.translation if seen.words.answers else None,
                "kinds": kept.kinds,
                "shells": shells(seen),
                "picture": picture_of(model, kept),
                "labels": labels_in(model, seen),
                "agreement": seen.agreement,
                "provenance": seen.provenance,
                "edits": given["edits"],
                "code": code_of(model, [], *lines_of_trace(given, reads_images(model))),
                "seconds": round(time.monotonic() - start, 4),
            }
        )

    def thumbs(self, model: Model, given: Given, blob: bytes) -> Work:
        """All heads of a kind, as bytes."""
        yield numbers(
            self.get(model, given["trace"], blob).trace.thumbnails(given["which"], given["side"]), "u8"
        )

    def tensor(self, model: Model, given: Given, blob: bytes) -> Work:
        """Numbers of a head, of a layer, or of the residual stream."""
        kept = self.get(model, given["trace"], blob)
        if given["name"] == "pixels":
            if isinstance(kept.read, str):
                raise BadInput("this model reads texts: there are no pixels")
            yield numbers(torch.from_numpy(np.array(kept.read)), "u8")
            return
        yield numbers(tensor_of(kept.trace, given), given["dtype"])

    def steps(self, model: Model, given: Given, blob: bytes) -> Work:
        """One query of one head, and what the sublayer makes of it."""
        told, seen = given["trace"], self.get(model, given["trace"], blob).trace
        found = seen.steps(given["which"], given["layer"], given["head"], given["query"]).as_json()
        code = code_of(model, [], *lines_of_trace(told, reads_images(model)), *lines_of_steps(given))
        yield over(found | {"which": given["which"], "sublayer": sublayer_row(seen, given), "code": code})

    def sublayer(self, model: Model, given: Given, blob: bytes) -> Work:
        """The vectors of one query from before a sublayer to after it."""
        found = sublayer_row(self.get(model, given["trace"], blob).trace, given)
        if found is None:
            raise BadInput("this attention stands in no residual block: there is no sublayer to show")
        yield over(found)


def tensor_of(seen: Trace, given: Given) -> Tensor:
    """What a name stands for; without a head, that of all heads of a layer."""
    name, which, layer, head = given["name"], given["which"], given["layer"], given["head"] or None
    if name == "stream":
        return seen.stream(given["shell"], layer)
    if name in OF_SUBLAYER:
        found = getattr(seen.sublayer(which, layer), OF_SUBLAYER[name])
    elif name in OF_HEAD:
        found = getattr(seen.projections(which, layer, head or 1), OF_HEAD[name])
    elif name == "allowed":
        found = seen.allowed(which, layer).to(torch.uint8)
    elif name == "scores":
        found = seen.scores(which, layer, head)
    elif name == "weights" and given["dtype"] == "f16":
        found = seen.weights(which, layer, head)
    elif name == "weights":
        found = seen.detail(which, layer).weights_HTS
        found = found if head is None else found[seen.place(which, head)]
    elif head is None:
        heads = range(1, seen.kinds[seen.key(which, layer)[0]].heads + 1)
        found = torch.stack([seen.qkv(which, layer, one)["qkv".index(name)] for one in heads])
    else:
        found = seen.qkv(which, layer, head)["qkv".index(name)]
    if found is None:
        raise BadInput(f"this model has no {name} here")
    return found


def sublayer_row(seen: Trace, given: Given) -> dict[str, Any] | None:
    """The vectors of one query in a sublayer; None where there is none."""
    found = seen.detail(given["which"], given["layer"]).sublayer
    if found is None:
        return None
    row = given["query"] - 1
    names = [name for name in OF_SUBLAYER if name != "source"]
    tensors = {name: getattr(found, OF_SUBLAYER[name]) for name in names}
    if not 0 <= row < len(found.x_TD):
        raise BadInput(f"there is no query {row + 1}: give a number from 1 to {len(found.x_TD)}")
    return {"order": found.order} | {
        name: None if x is None else x[row].tolist() for name, x in tensors.items()
    }


def facts_of(model: Model, seen: Trace) -> dict[str, dict[str, Any]]:
    """What the page draws each kind of attention with, and what its heads do in this text."""
    words = seen.words
    sample = Sample(words.text, words.ids, answers=words.answers, written=words.read)
    tables = grids(TokenKinds(model.loaded), sample, bool(words.answers)) if words.ids else {}
    return {which: facts(seen, which, tables.get(which)) for which in seen.kinds}


def allowed_of(seen: Trace, which: str) -> Tensor:
    """The mask of every head, [N, T, S]; [1, T, S] where all layers have the same."""
    kind = seen.kinds[which]
    first, *others = (seen.allowed(which, layer) for layer in range(1, kind.layers + 1))
    if all(torch.equal(first, one) for one in others):
        return first[None]
    return torch.cat([one[None].expand(kind.heads, -1, -1) for one in (first, *others)])


def facts(seen: Trace, which: str, grid: AttentionGrid | None) -> dict[str, Any]:
    """What the page draws a kind of attention with. grid: its tokens, by which its heads are labeled."""
    kind = seen.kinds[which]
    weights_NTS = torch.cat([seen.weights(which, layer) for layer in range(1, kind.layers + 1)])
    tally = HeadTally()
    labels: list[list[HeadLabel]] = [[] for _ in weights_NTS]
    if grid is not None and grid.shape == weights_NTS.shape[1:]:
        tally.add(weights_NTS, allowed_of(seen, which), grid)
        labels = tally.labels()
    bits_N = tally.bits[0] if tally.bits else informations(weights_NTS)
    measures = [
        {"labels": [[one.name, one.share] for one in held], "bits": float(bits)} | measured(weights_TS, which)
        for weights_TS, bits, held in zip(weights_NTS, bits_N, labels, strict=True)
    ]
    by_layer = [measures[i : i + kind.heads] for i in range(0, len(measures), kind.heads)]
    return {
        "down": kind.down,
        "across": kind.across,
        "layers": kind.layers,
        "heads": kind.heads,
        "best": best_of(kind, by_layer),
        "measures": by_layer,
    }


def measured(weights_TS: Tensor, which: str) -> dict[str, Any]:
    """Figures of one head."""
    T, S = weights_TS.shape
    far_TS = (torch.arange(T)[:, None] - torch.arange(S)).abs()
    found = {
        "sharp": sharpness(weights_TS),
        "distance": float((weights_TS * far_TS).sum(-1).mean()),
    }
    return found | ({} if which == "cross" else habits(weights_TS))


def best_of(kind: Kind, measures: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """The most informative head."""
    places = [(layer, head) for layer in range(kind.layers) for head in range(kind.heads)]
    layer, head = max(places, key=lambda place: measures[place[0]][place[1]]["bits"])
    return {"layer": layer + 1, "head": head + 1}


def picture_of(model: Model, kept: KeptTrace) -> dict[str, Any] | None:
    """The size of a picture and how patches lie in it; None for a text."""
    if isinstance(kept.read, str):
        return None
    config = getattr(model.config, "reading", model.config)
    return {"size": list(kept.read.shape[:2]), "grid": config.grid, "leading": config.leading}


def labels_in(model: Model, seen: Trace) -> list[tuple[str, float]]:
    """The most likely labels with their probabilities; none of a model that does not classify."""
    labels, scores = model.loaded.labels, seen.outputs.get("classify")
    if not labels or scores is None or scores.dim() != 1:
        return []
    likeliest = scores.double().softmax(-1).topk(min(10, len(labels)))
    numbers = zip(likeliest.indices.tolist(), likeliest.values.tolist(), strict=True)
    return [(labels[number], share) for number, share in numbers]


def shells(seen: Trace) -> dict[str, int]:
    """{"encoder" or "decoder": blocks whose residual stream was kept}."""
    found: dict[str, int] = {}
    for shell, layer in seen.streams:
        found[shell] = max(found.get(shell, 0), layer)
    return found


def id_of(model: Model, given: Given) -> str:
    """What a trace is of: the same text, target, edits and weights have the same id."""
    weights = hash_of_weights(model.loaded.model)
    told = json.dumps([weights, given["text"], given["target"], given["edits"]])
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def over(result: dict[str, Any]) -> Event:
    """The end of a request."""
    return {"over": True, "result": result}


def numbers(found: Tensor, dtype: str) -> Event:
    """The end of a request whose answer is numbers: little-endian bytes."""
    kept = found.detach().cpu().to(TYPES[dtype]).contiguous()
    return over({"shape": list(kept.shape), "dtype": dtype}) | {"bytes": kept.numpy().tobytes()}


def trace_methods(traces: Traces) -> Mapping[str, Method]:
    """The methods of a worker that read its traces."""
    return {
        "trace": traces.trace,
        "thumbs": traces.thumbs,
        "tensor": traces.tensor,
        "steps": traces.steps,
        "sublayer": traces.sublayer,
    }
