"""A page as a browser opens it: its answers to the questions of a comparison."""

from __future__ import annotations

import base64
import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..foreign import InputLimits, NetworkInput, Outputs
from .engines import Engine, engine_for
from .page import PAGE, block_of


def reopen(folder: Path, exact: bool = False) -> PageModel:
    """The page of a folder, or a page. Products are in float32 either way."""
    return PageModel(folder / PAGE if folder.is_dir() else folder)


class PageModel:
    """A page, opened in an engine when it is first asked."""

    limits = InputLimits(numbers=4_000_000, work=2e11)  # a page computes on one thread

    def __init__(self, page: Path, engine: Engine | None = None) -> None:
        self.page, self.engine = page, engine or engine_for(page)
        self.versions = {"page": f"{self.engine.version}, {self.engine.ask({'ask': 'kernels'})}"}

    @cached_property
    def spec(self) -> dict[str, Any]:
        return json.loads(block_of(self.page.read_text(encoding="utf-8"), "spec"))

    @property
    def writes(self) -> bool:
        return self.spec["does"] in ("translate", "generate")

    def outputs(self, rows: list[NetworkInput]) -> list[Outputs]:
        return [self.run(row) for row in rows]

    def run(self, row: NetworkInput) -> Outputs:
        """A row alone, by Hugging Face's names."""
        given = {"ids": row.ids, "target": row.target, "segments": row.segments}
        found = {name: stacked(some) for name, some in self.engine.ask({"ask": "outputs"} | given).items()}
        if "hidden" not in found:
            return found
        named = {"last_hidden_state": found.pop("hidden")}
        for name, theirs in self.spec["outputs"].items():
            parts = found[name][..., None].unbind(-2) if len(theirs) > 1 else [found[name]]
            named |= zip(theirs, parts, strict=True)
        return named

    def greedy(self, ids: list[int], new: int) -> list[int] | None:
        return self.engine.ask({"ask": "greedy", "ids": ids, "longest": new}) if self.writes else None

    def beam(self, ids: list[int], width: int, new: int) -> list[int] | None:
        if not self.writes:
            return None
        how = {"width": width, "longest": new, "length_penalty": "power", "length_alpha": 0.0}
        best = self.engine.ask({"ask": "beam", "ids": ids, "stopping": "exact", "forced": [], **how})[0]
        return best["tokens"][:-1] if best["ended"] else best["tokens"]

    def tokens(self, text: str) -> list[int] | None:
        return self.engine.ask({"ask": "tokens", "text": text})

    def embedding(self) -> Tensor:
        found = self.engine.ask({"ask": "embedding"})
        return floats(found["rows"]).view(-1, found["columns"])

    def attention(self, row: NetworkInput) -> dict[str, Tensor]:
        """{"encoder.self.0": [H, T, S]} of every layer; 0 where a query does not look."""
        given = {"ids": row.ids, "target": row.target, "segments": row.segments}
        found = self.engine.ask({"ask": "attention"} | given)
        return {name: table(entries) for name, entries in found.items()}


def floats(text: str) -> Tensor:
    """Numbers of a page, in base64."""
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), dtype="<f4").copy())


def stacked(rows: list[str]) -> Tensor:
    return torch.stack([floats(row) for row in rows])


def table(entries: list[Any]) -> Tensor:
    """Weights [H, T, S] from those of each query and head."""
    rows = [(int(t), int(head), int(start), floats(text)) for t, head, start, text in entries]
    heads, queries = 1 + max(row[1] for row in rows), 1 + max(row[0] for row in rows)
    weights_HTS = torch.zeros(heads, queries, max(start + len(some) for _, _, start, some in rows))
    for t, head, start, some in rows:
        weights_HTS[head, t, start : start + len(some)] = some
    return weights_HTS
