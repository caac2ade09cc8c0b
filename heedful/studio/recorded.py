"""A recorded trace of the demo: real numbers for the first screen, before there is any run.

`tools/record_studio.py` writes the file: a safetensors file with the tensors of every layer, whose metadata
has the answers that are JSON. It is read here by numpy, and answers what a worker would.
"""

from __future__ import annotations

import json
import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..service.fields import HttpError
from .python_code import code_in, codes_of_flow, lines_of_steps, lines_of_trace

FILE = Path(__file__).parent / "recorded.safetensors"
RUN = "recorded"  # the id of the run, and the beginning of its trace's
DEMO = "runs/demo"  # where `heedful demo` trains such a model
TYPES: dict[str, Any] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "U8": np.dtype("u1")}
ROWS = ("x", "normed", "heads", "out", "added", "sum", "after")
KEPT = ("x", "normed", "out")  # those that are in the file: the demo adds `out` to x, and no norm follows
OF_HEADS = ("weights", "scores", "q", "k", "v")


class RecordedTrace:
    """The numbers of the file."""

    def __init__(self, told: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        self.told, self.tensors = told, tensors

    @property
    def trace(self) -> dict[str, Any]:
        """The answer to a request for the trace."""
        return self.told["trace"]

    def card(self) -> dict[str, Any]:
        """What the list of runs says of it."""
        return {**self.told["card"], "id": RUN, "kind": "recorded", "text": self.trace["text"]}

    def made(self, text: str, target: str | None, edits: list[str]) -> dict[str, Any]:
        """The trace, if it is of this text."""
        if text != self.trace["text"] or target not in (None, self.trace["translation"]) or edits:
            raise HttpError(
                409,
                f'the recorded example has one text, "{self.trace["text"]}": train the demo for others',
                "text",
            )
        return {**self.trace, "code": self.code()}

    def code(self, *lines: str) -> str:
        """Python that gives such numbers once the demo is trained."""
        return code_in(DEMO, [], *lines_of_trace(self.given), *lines)

    @property
    def given(self) -> dict[str, Any]:
        return {"text": self.trace["text"], "target": None, "edits": []}

    def answer(self, do: str, given: dict[str, Any]) -> dict[str, Any]:
        """What a worker would answer."""
        if do == "thumbs":
            return self.thumbs(given["which"])
        if do == "tensor":
            return numbers(self.tensor(given), given["dtype"])
        if do in ("steps", "sublayer", "alignment"):
            return {"result": getattr(self, do)(**given)}
        key = " ".join([do, *(str(given[name]) for name in sorted(given))])
        if key not in self.told["answers"]:
            raise missing(do)
        return {"result": {**self.told["answers"][key], "codes": codes_of_flow(DEMO, self.given)}}

    def events(self, do: str, given: dict[str, Any]) -> list[dict[str, Any]]:
        """What was written, if it was asked for in this way."""
        self.made(given["text"], None, given["edits"])
        told = self.told[do]
        known = told["given"]
        if given | {"options": known["options"] | given["options"]} != known:
            raise HttpError(
                409, "the recorded example was written in one way only: train the demo for others"
            )
        return told["events"]

    def alignment(
        self, by: str, row: str, which: str | None, layer: int, head: int, mean: int
    ) -> dict[str, Any]:
        """Where the words of the translation come from, by the recorded numbers."""
        if which not in (None, "cross"):
            raise missing(f"alignment by {which}-attention")
        best, kind = self.told["aligner"], self.trace["kinds"]["cross"]
        values_LNTS, layer = self.tensors[f"alignment.{by}"], layer or best["layer"]
        number = 0 if mean else head or best["head"]  # the first of a layer is the layer as a whole
        L, N = values_LNTS.shape[:2]
        if layer > L or number >= N:
            raise HttpError(400, f"there are {L} layers with {N - 1} heads each", "head")
        skipped = 1 if row == "input" else 0
        return {
            "which": "cross", "layer": layer, "head": number or None, "best": best,
            "down": kind["down"][: len(kind["down"]) - skipped], "across": kind["across"],
            "values": values_LNTS[layer - 1, number, skipped:].tolist(), "gold": [], "error_rate": None,
            "by": by, "layers": L, "heads": N - 1, "code": "",
        }  # fmt: skip

    def layer(self, name: str, which: str, layer: int) -> np.ndarray:
        kind = self.trace["kinds"].get(which)
        if kind is None:
            raise HttpError(400, f"there is no {which}-attention in the recorded example", "which")
        if not 1 <= layer <= kind["layers"]:
            raise HttpError(
                400, f"there is no layer {layer}: layers are counted from 1 to {kind['layers']}", "layer"
            )
        if name == "heads":
            outputs = self.layer("weights", which, layer) @ self.layer("v", which, layer)
            return np.concatenate(list(outputs), -1)
        if name in ("sum", "after"):
            return self.layer("x", which, layer) + self.layer("out", which, layer)
        found = self.tensors.get(f"{'out' if name == 'added' else name}.{which}.{layer}")
        if found is None:
            raise missing(name)
        return found

    def head(self, name: str, which: str, layer: int, head: int) -> np.ndarray:
        found = self.layer(name, which, layer)
        if not 1 <= head <= len(found):
            raise HttpError(400, f"there is no head {head}: heads are counted from 1 to {len(found)}", "head")
        return found[head - 1]

    def thumbs(self, which: str) -> dict[str, Any]:
        layers = self.trace["kinds"].get(which, {}).get("layers", 0)
        weights = [self.layer("weights", which, number) for number in range(1, max(1, layers) + 1)]
        return numbers(np.rint(255 * np.stack(weights).astype("<f2").astype("<f4")), "u8")

    def tensor(self, given: dict[str, Any]) -> np.ndarray:
        name, which, layer, head = (given[one] for one in ("name", "which", "layer", "head"))
        if name == "stream":
            return self.stream(given["shell"], layer)
        if head and name in OF_HEADS:
            return self.head(name, which, layer, head)
        return self.layer(name, which, layer)

    def stream(self, shell: str, layer: int) -> np.ndarray:
        """The residual stream: what a self-attention reads, or the last of all."""
        last = self.tensors.get(f"stream.{shell}.{layer}")
        kind = "encoder" if shell == "encoder" else "self"
        return self.layer("x", kind, layer + 1) if last is None else last

    def steps(self, which: str, layer: int, head: int, query: int) -> dict[str, Any]:
        """One query of one head, by the recorded numbers."""
        kind = self.trace["kinds"].get(which, {})
        place = {"which": which, "layer": layer, "head": head, "query": query}
        q_TK, k_SK, v_SL, scores_TS, weights_TS = (
            self.head(name, which, layer, head) for name in ("q", "k", "v", "scores", "weights")
        )
        row = checked(query, len(q_TK))
        allowed_S = self.layer("allowed", which, layer)[row].astype(bool)
        scale = self.told["scale"]
        masked = [float(x) if may else None for x, may in zip(scores_TS[row], allowed_S, strict=True)]
        weighted_SL = weights_TS[row][:, None] * v_SL
        return {
            "query": query, "word": kind["down"][row], "layer": layer, "head": head, "keys": kind["across"],
            "q": q_TK[row].tolist(), "k": k_SK.tolist(), "v": v_SL.tolist(),
            "scores": (scores_TS[row] / scale).tolist(), "scale": scale, "scaled": scores_TS[row].tolist(),
            "bias": None, "allowed": allowed_S.tolist(), "masked": masked,
            "weights": weights_TS[row].tolist(),
            "weighted_values": weighted_SL.tolist(), "output": weighted_SL.sum(0).tolist(),
            "which": which, "sublayer": self.sublayer(which, layer, query),
            "code": self.code(*lines_of_steps(place)),
        }  # fmt: skip

    def sublayer(self, which: str, layer: int, query: int) -> dict[str, Any]:
        """One query through a sublayer."""
        tensors = {name: self.layer(name, which, layer) for name in ROWS}
        row = checked(query, len(tensors["x"]))
        return {"order": "pre-norm"} | {name: x[row].tolist() for name, x in tensors.items()}


def checked(query: int, most: int) -> int:
    if not 1 <= query <= most:
        raise HttpError(400, f"there is no query {query}: give a number from 1 to {most}", "query")
    return query - 1


def missing(what: str) -> HttpError:
    return HttpError(409, f"the recorded example has no {what}: train the demo, or open a run")


def numbers(found: np.ndarray, dtype: str) -> dict[str, Any]:
    """Numbers as a worker sends them."""
    kind = {"f16": "<f2", "f32": "<f4", "u8": "u1"}[dtype]
    return {"result": {"shape": list(found.shape), "dtype": dtype}, "bytes": found.astype(kind).tobytes()}


@cache
def recorded() -> RecordedTrace | None:
    """The recorded trace; None where the package has none."""
    if not FILE.is_file():
        return None
    data = FILE.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    told = json.loads(header.pop("__metadata__")["studio"])
    return RecordedTrace(told, {name: tensor(data[8 + length :], entry) for name, entry in header.items()})


def example() -> RecordedTrace:
    """The recorded trace, or a refusal."""
    found = recorded()
    if found is None:
        raise HttpError(404, "there is no recorded example in this installation", "run")
    return found


def tensor(data: bytes, entry: dict[str, Any]) -> np.ndarray:
    start, end = entry["data_offsets"]
    return np.frombuffer(data[start:end], TYPES[entry["dtype"]]).reshape(entry["shape"])
