"""Traces in the worker: made once, kept by their bytes, and handed out number by number."""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import BadInput
from ..inside.look.attention import Look, look
from ..inside.look.heads import information, sharpness
from ..inside.look.layers import kinds_of
from ..service.methods import Event, Given, Method, Work
from ..use.model import Model

KEPT = 256 << 20  # bytes of traces
TYPES = {"f16": torch.float16, "f32": torch.float32, "u8": torch.uint8}


class Traces:
    """Traces by their ids, those not used for longest forgotten first."""

    def __init__(self, most: int = KEPT) -> None:
        self.most, self.found = most, OrderedDict[str, dict[str, Look]]()

    def get(self, model: Model, given: Given) -> tuple[str, dict[str, Look]]:
        """The trace of a text, and its id."""
        id = id_of(model, given)
        if id not in self.found:
            kinds = kinds_of(model.model)
            self.found[id] = {
                which: look(model.loaded, given["text"], target=given["target"], which=which)
                for which in kinds
            }
        self.found.move_to_end(id)
        while len(self.found) > 16:
            self.found.popitem(last=False)
        return id, self.found[id]

    # Methods of the worker.

    def trace(self, model: Model, given: Given, blob: bytes) -> Work:
        """Send a text through the model."""
        start = time.monotonic()
        yield None
        id, seen = self.get(model, given)
        first = next(iter(seen.values()))
        yield over(
            {
                "id": id,
                "text": first.words.text,
                "translation": first.words.translation if first.is_pair else None,
                "kinds": {which: facts(one) for which, one in seen.items()},
                "agreement": None,
                "edits": given["edits"],
                "seconds": round(time.monotonic() - start, 4),
            }
        )

    def thumbs(self, model: Model, given: Given, blob: bytes) -> Work:
        """All heads of a kind, as bytes."""
        seen = self.of_kind(model, given)
        weights_LHTS = torch.stack(list(seen.weights.values()))
        t, s = (min(given["side"], n) for n in weights_LHTS.shape[2:])
        small = F.adaptive_max_pool2d(weights_LHTS, (t, s))
        yield numbers((small * 255).round().to(torch.uint8), "u8")

    def tensor(self, model: Model, given: Given, blob: bytes) -> Work:
        """Numbers of a head, or of a layer."""
        seen, layer, head = self.of_kind(model, given), given["layer"], given["head"]
        paths = list(seen.weights)
        if layer > len(paths):
            raise BadInput(f"there is no layer {layer}: layers are counted from 1 to {len(paths)}")
        record = seen.records[paths[layer - 1]]
        if given["name"] not in ("weights", "scores", "q", "k", "v"):
            raise BadInput(f"{given['name']} is not kept")
        found: Tensor = getattr(record, given["name"])[-1][0].float().cpu()
        yield numbers(found[head - 1] if head else found, given["dtype"])

    def steps(self, model: Model, given: Given, blob: bytes) -> Work:
        """One query of one head."""
        seen = self.of_kind(model, given)
        one = look(
            model.loaded, given["trace"]["text"], target=given["trace"]["target"],
            which=given["which"], layer=given["layer"], head=given["head"],
        )  # fmt: skip
        yield over(one.steps(given["query"]).as_json() | {"sublayer": None, "which": seen.which})

    def of_kind(self, model: Model, given: Given) -> Look:
        seen = self.get(model, given["trace"])[1]
        if given["which"] not in seen:
            raise BadInput(f"this model has no {given['which']}-attention: it has {' and '.join(seen)}")
        return seen[given["which"]]


def facts(seen: Look) -> dict[str, Any]:
    """What the page draws a kind of attention with."""
    heads = len(next(iter(seen.weights.values())))
    measured = [
        {"bits": information(one.weights_TS), "sharp": sharpness(one.weights_TS)} for one in seen.heads
    ]
    return {
        "down": seen.down,
        "across": seen.across,
        "layers": len(seen.weights),
        "heads": heads,
        "best": {"layer": seen.best.layer, "head": seen.best.head, "by": seen.best_by},
        "measures": [measured[start : start + heads] for start in range(0, len(measured), heads)],
    }


def id_of(model: Model, given: Given) -> str:
    """What a trace is of: the same text, target, edits and weights have the same id."""
    told = json.dumps([model.folder, given["text"], given["target"], given["edits"]])
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def over(result: dict[str, Any]) -> Event:
    """The end of a request."""
    return {"over": True, "result": result}


def numbers(found: Tensor, dtype: str) -> Event:
    """The end of a request whose answer is numbers: little-endian bytes."""
    kept = found.detach().cpu().to(TYPES[dtype]).contiguous()
    return over({"shape": list(kept.shape), "dtype": dtype}) | {"bytes": kept.numpy().tobytes()}


def trace_methods() -> Mapping[str, Method]:
    """The methods of a worker that share its traces."""
    traces = Traces()
    return {"trace": traces.trace, "thumbs": traces.thumbs, "tensor": traces.tensor, "steps": traces.steps}
