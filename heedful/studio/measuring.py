"""Long measurements of a worker: heads removed, patterns searched for, streams patched, models compared."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import BadInput
from ..inside.bootstrap import bootstrap
from ..inside.corpus import samples_of
from ..inside.edits import edit
from ..inside.heads import measure_heads
from ..inside.model_inputs import ModelInput, forward, input_of
from ..inside.samples import Samples
from ..inside.scan import scan_patterns
from ..inside.similar import head_differences, log_probabilities, similar, token_differences
from ..inside.trace import Trace, trace
from ..service.methods import Given, Method, Work
from ..use.model import Model, load
from .tracing import over

NAME = "clean"  # what patches call the trace that they take vectors from


def ablate(model: Model, given: Given, blob: bytes) -> Work:
    """The importance of every head, and what it does."""
    yield from in_steps(measure_heads(model.loaded, samples_for(model, given), given.get("by", "zero")))


def scan(model: Model, given: Given, blob: bytes) -> Work:
    """Which heads follow patterns, and in which texts."""
    patterns = given.get("patterns") or ["offset:-1"]
    yield from in_steps(scan_patterns(model.loaded, samples_for(model, given), patterns))


def samples_for(model: Model, given: Given) -> Samples:
    """The texts of a request, of --data, or of the run."""
    folder, texts = Path(model.folder) if model.own else None, given.get("texts")
    pairs: Any = texts
    if texts and given.get("targets"):
        if len(texts) != len(given["targets"]):
            raise BadInput(
                f"there are {len(texts)} texts and {len(given['targets'])} targets: give one for each"
            )
        pairs = list(zip(texts, given["targets"], strict=True))
    how = {"texts": pairs, "data": None if texts else given.get("data"), "count": given.get("count", 64)}
    return samples_of(model.loaded, folder, model.recipe if model.own else None, **how)


def in_steps(steps: Generator[Any, None, Any]) -> Work:
    """A measurement with its progress, and its numbers last."""
    while True:
        try:
            yield {"progress": asdict(next(steps))}
        except StopIteration as end:
            yield over(end.value.as_json())
            return


# Patching.


def patch(model: Model, given: Given, blob: bytes) -> Work:
    """How much of the clean text's output comes back when one vector of the stream is taken from it."""
    loaded = model.loaded
    clean = trace(loaded, given["text"], given.get("target"))
    yield None
    target = clean.words.translation if clean.words.answers else None
    corrupted = input_of(loaded, given["corrupted"], target)
    if len(corrupted.words.ids) != len(clean.words.ids):
        sizes = f"{len(clean.words.ids)} and {len(corrupted.words.ids)}"
        raise BadInput(f"the two texts have {sizes} tokens: give texts of equal length")
    shells = {name: layer for name, layer in sorted(clean.streams)}
    shell = given.get("shell") or next(iter(sorted(shells, reverse=True)))
    if shell not in shells:
        raise BadInput(f"this model has no {shell}: it has {' and '.join(shells) or 'no residual stream'}")
    labels = positions_of(clean, shell)
    answer = answer_of(clean)
    whole, before = score_of(clean.logits, answer), patched_score(loaded.model, corrupted, answer)
    recovered: list[list[float]] = []
    for layer in range(1, shells[shell] + 1):
        recovered.append([])
        for position in range(1, len(labels) + 1):
            with edit(model, [f"patch:{shell}.{layer}@{position}<{NAME}"], traces={NAME: clean}):
                found = patched_score(loaded.model, corrupted, answer)
            recovered[-1].append((found - before) / ((whole - before) or 1.0))
            yield {
                "progress": {
                    "done": (layer - 1) * len(labels) + position,
                    "total": shells[shell] * len(labels),
                }
            }
    told = {"shell": shell, "positions": labels, "recovered": recovered, "clean": whole, "corrupted": before}
    yield over(told | {"measure": "log-probability of what the model writes after the clean text"})


def positions_of(clean: Trace, shell: str) -> list[str]:
    """The labels of the vectors of a stream."""
    which = "encoder" if shell == "encoder" and "encoder" in clean.kinds else "self"
    return clean.kinds[which].down


def answer_of(clean: Trace) -> list[int]:
    """What is scored: the translation, or the likeliest token after a text."""
    if clean.logits is None:
        raise BadInput("this model predicts no tokens, so there is no output to bring back")
    return clean.words.answers or [int(clean.logits[-1].argmax())]


def patched_score(network: Any, given: ModelInput, answer: list[int]) -> float:
    return score_of(forward(network, given).get("logits"), answer)


def score_of(logits_TV: Tensor | None, answer: list[int]) -> float:
    """The log-probability of the last tokens of an output."""
    if logits_TV is None or logits_TV.dim() != 2:
        raise BadInput("this model predicts no tokens, so there is no output to bring back")
    log_p_TV = logits_TV.detach().double().cpu().log_softmax(-1)[-len(answer) :]
    return float(log_p_TV.gather(-1, torch.tensor(answer)[:, None]).sum())


# Two models.


class OtherModel:
    """The model that is compared with the worker's own: the last one stays in memory."""

    def __init__(self) -> None:
        self.folder = ""
        self.model: Model | None = None

    def get(self, folder: str) -> Model:
        if folder != self.folder or self.model is None:
            self.folder, self.model = folder, load(folder)
        return self.model

    def compare(self, model: Model, given: Given, blob: bytes) -> Work:
        """Two models on one text, and on several: tokens, heads, layers, scores."""
        other, text, target = self.get(given["other"]), given["text"], given.get("target")
        yield {"progress": {"done": 1, "total": 5}}
        first, second = model.loaded, other.loaded
        found: dict[str, Any] = {}
        for done, (name, work) in enumerate(
            {
                "tokens": lambda: token_differences(first, second, text, target).as_json(),
                "heads": lambda: head_differences(
                    first, second, text, target, which=given.get("which")
                ).as_json(),
                "layers": lambda: similar(first, second, texts_for(model, given), over="texts").as_json(),
                "scores": lambda: scores(model, other, given),
            }.items()
        ):
            try:
                found[name] = work()
            except BadInput as refused:  # models that cannot be compared in one way can be in others
                found[name] = {"refused": str(refused)}
            yield {"progress": {"done": done + 2, "total": 5}, "part": {name: found[name]}}
        yield over(found)


def texts_for(model: Model, given: Given) -> list[str]:
    """Texts to compare models on."""
    return [one.text for one in islice(samples_for(model, given).samples, given.get("count", 64))]


def scores(model: Model, other: Model, given: Given) -> dict[str, Any]:
    """The mean log-probability of each text by both models, and the paired bootstrap of their difference."""
    samples = samples_for(model, given).samples[: given.get("count", 64)]
    pairs = [(one.text, one.target or None) for one in samples]
    first, second = (
        [float(log_probabilities(each.loaded, text, target)[1].mean()) for text, target in pairs]
        for each in (model, other)
    )
    rows = [
        {"text": text, "target": target, "first": a, "second": b}
        for (text, target), a, b in zip(pairs, first, second, strict=True)
    ]
    return {"bootstrap": bootstrap(first, second).as_json(), "texts": rows}


def measure_methods() -> Mapping[str, Method]:
    """The methods of a worker that take long."""
    return {"ablate": ablate, "scan": scan, "patch": patch, "compare": OtherModel().compare}
