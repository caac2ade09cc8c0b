"""Long measurements of a worker: heads removed, patterns searched for, streams patched, models compared."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import BadInput
from ..inside.bootstrap import bootstrap
from ..inside.corpus import samples_of
from ..inside.edits import edit
from ..inside.heads import HeadProgress, measure_heads
from ..inside.look.inputs import tokens_of
from ..inside.model_inputs import ModelInput, forward, input_of
from ..inside.samples import Sample, Samples
from ..inside.scan import scan_patterns
from ..inside.similar import (
    Similarity,
    cka,
    head_differences,
    log_probabilities,
    streams_of,
    token_differences,
)
from ..inside.trace import Trace, trace
from ..interop.run_folder import CONFIG, RECIPE
from ..service.methods import Event, Given, Method, Work
from ..use.load import load
from ..use.model import Model
from .editing import editing
from .measured_views import (
    compare_views,
    head_rows,
    head_views,
    patch_rows,
    patch_view,
    pattern_rows,
    token_rows,
)
from .pictures import reads_images
from .python_code import code_of
from .runs import careful_json
from .tracing import Traces, labels_in, over
from .writing import ABILITIES, write_methods

OFTEN = 1.0  # seconds between two accounts of what is known
ENDS = 5  # texts where one of two models is better by most
CONTINUED = 20  # tokens that continue a text
SWAPS = 40  # pairs of words that are tried
SETTING = 200  # characters of a setting
Shown = Callable[[dict[str, Any]], list[dict[str, Any]]]  # of the numbers of a result
NAME = "clean"  # what patches call the trace that they take vectors from


def ablate(model: Model, given: Given, blob: bytes) -> Work:
    """The importance of every head, and what it does."""
    by = given.get("by", "zero")
    yield from in_steps(measure_heads(model.loaded, samples_for(model, given), by), head_rows, head_views)


def scan(model: Model, given: Given, blob: bytes) -> Work:
    """Which heads follow patterns, and in which texts."""
    patterns = given.get("patterns") or ["offset:-1"]
    yield from in_steps(scan_patterns(model.loaded, samples_for(model, given), patterns), pattern_rows)


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


def in_steps(steps: Generator[HeadProgress, None, Any], rows: Shown, views: Shown = lambda found: []) -> Work:
    """A measurement with its progress, what is known once a second, and all numbers last."""

    def numbers(found: Any) -> dict[str, Any]:
        return (known := found.as_json()) | {"rows": rows(known), "views": views(known)}

    told = time.monotonic()
    while True:
        try:
            at = next(steps)
        except StopIteration as end:
            yield over(numbers(end.value))
            return
        event: Event = {"progress": {"done": at.done, "total": at.total, "doing": at.doing}}
        if at.so_far is not None and time.monotonic() > told + OFTEN:
            event["partial"] = numbers(at.so_far())
            told = time.monotonic()
        yield event


# Patching.


def patch(model: Model, given: Given, blob: bytes) -> Work:
    """How much of the clean text's output comes back when one vector of the stream is taken from it."""
    loaded = model.loaded
    if reads_images(model):
        raise BadInput("patching compares two texts, and this model reads pictures")
    other = given.get("corrupted") or other_text(model, given["text"])
    clean = trace(loaded, given["text"], given.get("target"))
    yield None
    target = clean.words.translation if clean.words.answers else None
    corrupted = input_of(loaded, other, target)
    if len(corrupted.words.ids) != len(clean.words.ids):
        sizes = f"{len(clean.words.ids)} and {len(corrupted.words.ids)}"
        raise BadInput(f"the two texts have {sizes} tokens: give texts of equal length")
    shells = {name: layer for name, layer in sorted(clean.streams)}
    if not shells:
        raise BadInput(f"this {model.architecture} has no residual stream, so there are no vectors to patch")
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
    measure = "log-probability of what the model writes after the clean text"
    told |= {"measure": measure, "corrupted_text": other}
    yield over(told | {"rows": patch_rows(told), "views": [patch_view(told, given["text"])]})


def other_text(model: Model, text: str) -> str:
    """The text with one of its words in place of another, so that it has as many tokens."""
    size = len(tokens_of(model.loaded, text))
    words = [word for word in re.findall(r"[^\W\d_]+", text) if word.islower()]
    pairs = [(a, b) for a in words for b in words if a != b]
    for a, b in sorted(pairs, key=lambda pair: (far(*pair), -min(map(len, pair))))[:SWAPS]:
        other = re.sub(rf"\b{a}\b", b, text, count=1)
        if other != text and len(tokens_of(model.loaded, other)) == size:
            return other
    raise BadInput("no word of this text can stand in place of another: give a corrupted text")


def far(a: str, b: str) -> bool:
    """Whether two words differ much in length."""
    return abs(len(a) - len(b)) > 1


def positions_of(clean: Trace, shell: str) -> list[str]:
    """The labels of the vectors of a stream."""
    which = "encoder" if shell == "encoder" and "encoder" in clean.kinds else "self"
    return clean.kinds[which].down


def answer_of(clean: Trace) -> list[int]:
    """What is scored: the translation, or the most likely token after a text."""
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
        """Two models, or one with edits and without, on one text and on several, part by part."""
        pair = ComparedModels(model, self.get(given["other"]), given.get("edits") or [])
        yield {"progress": {"done": 0, "total": 1, "doing": "tokens"}}
        found: dict[str, Any] = {}
        for name, work in pair.parts(given).items():
            try:
                found[name] = yield from work
            except BadInput as refused:  # models that cannot be compared in one way can be in others
                found[name] = {"refused": str(refused)}
            found |= {"rows": token_rows(found.get("tokens", {})), "views": compare_views(found)}
            yield {"partial": dict(found)}
        yield over(found)


Part = Generator[Event | None, None, dict[str, Any]]  # progress, then numbers


@dataclass(frozen=True)
class ComparedModels:
    """Two models side by side. edits: of the first, within each piece of work."""

    first: Model
    second: Model  # loaded on its own, so that no edit reaches it
    edits: list[str]

    def editing(self) -> AbstractContextManager[None]:
        return editing(self.first, self.edits)

    def parts(self, given: Given) -> dict[str, Part]:
        """What is compared, by name."""
        one, other, text, target = self.first.loaded, self.second.loaded, given["text"], given.get("target")
        which = given.get("which")
        return {
            "settings": self.settings(),
            "tokens": self.at_once(lambda: token_differences(one, other, text, target)),
            "heads": self.at_once(lambda: head_differences(one, other, text, target, which=which)),
            "layers": self.layers(given),
            "scores": self.scores(given),
        }

    def settings(self) -> Part:
        """The settings that differ: name, first, second."""
        first, second = (settings_of(Path(one.folder)) for one in (self.first, self.second))
        yield None
        names = [name for name in {**first, **second} if first.get(name) != second.get(name)]
        return {
            "differ": [
                {"setting": name, "first": first.get(name), "second": second.get(name)} for name in names
            ]
        }

    def at_once(self, work: Callable[[], Any]) -> Part:
        """A part that takes one piece of work."""
        with self.editing():
            found = work().as_json()
        yield None
        return found

    def each(
        self, given: Given, doing: str, work: Callable[[Sample], Any]
    ) -> Generator[Event | None, None, list[Any]]:
        """What some work gives for every text."""
        samples, found = samples_for(self.first, given).samples[: given.get("count", 64)], []
        for done, sample in enumerate(samples, start=1):
            with self.editing():
                found.append(work(sample))
            yield {"progress": {"done": done, "total": len(samples), "doing": doing}}
        return found

    def layers(self, given: Given) -> Part:
        """CKA between the layers of both, over the mean vector of each text."""
        both = (self.first.loaded, self.second.loaded)
        rows = yield from self.each(
            given,
            "layers",
            lambda sample: [streams_of(one, [sample.text], None, "texts")[0] for one in both],
        )
        down, across = (
            [torch.cat(layer) for layer in zip(*side, strict=True)] for side in zip(*rows, strict=True)
        )
        table = torch.tensor([[cka(x, y) for y in across] for x in down])
        return Similarity(table, len(rows), "texts").as_json()

    def scores(self, given: Given) -> Part:
        """The mean log-probability of texts by both, the paired bootstrap, and the texts that differ most."""

        def score(sample: Sample) -> dict[str, Any]:
            text, target = sample.text, sample.target or None
            both = (log_probabilities(one.loaded, text, target)[1] for one in (self.first, self.second))
            first, second = (float(log_p.mean()) for log_p in both)
            return {"difference": first - second, "first": first, "second": second, "text": text}

        rows = yield from self.each(given, "scores", score)
        found = bootstrap([row["first"] for row in rows], [row["second"] for row in rows])
        ordered = sorted(rows, key=lambda row: -row["difference"])
        ends = ordered if len(ordered) <= 2 * ENDS else ordered[:ENDS] + ordered[-ENDS:]
        return {"bootstrap": found.as_json(), "sentence": found.text(), "texts": ends}


def settings_of(folder: Path) -> dict[str, str]:
    """The settings of a folder's recipe, or of its configuration where it has none, under one name each."""
    found: dict[str, str] = {}

    def walk(value: Any, name: str) -> None:
        if isinstance(value, dict) and value:
            for key, inside in value.items():
                walk(inside, f"{name}.{key}" if name else str(key))
        else:
            found[name] = json.dumps(value, ensure_ascii=False)[:SETTING]

    walk(careful_json(folder / RECIPE) or careful_json(folder / CONFIG), "")
    return found


# What a model makes of a text.


def output(traces: Traces) -> Method:
    """A method: the tokens that a model writes, with edits, or the most likely labels."""
    write = write_methods(traces)["studio_write"]

    def answer(model: Model, given: Given, blob: bytes) -> Work:
        tokens: list[tuple[str, float | None]] = []
        labels: list[tuple[str, float]] = []
        ability = next((name for name in ABILITIES if name in model.can), None)
        try:
            if ability:
                options = {"max_new_tokens": CONTINUED} if ability == "generate" else {}
                asked = {**given, "top": 0, "prefix_tokens": [], "target": None, "options": options}
                for event in write(model, asked, blob):
                    if event and "token" in event:
                        tokens.append((event["token"]["text"], event["token"]["log_probability"]))
                    yield None
            else:
                seen = traces.get(model, given | {"target": None}, blob).trace
                labels = labels_in(model, seen)
                tokens = (
                    [(word, None) for word in seen.words.translation.split()] if seen.words.answers else []
                )
        except BadInput as refused:
            yield over({"tokens": [], "labels": [], "refused": str(refused)})
            return
        none = "" if tokens or labels else "this model writes no text and predicts no label here"
        yield over({"tokens": tokens, "labels": labels, "refused": none})

    return answer


def measure_methods(traces: Traces | None = None) -> Mapping[str, Method]:
    """The methods of a worker that take long, and the one that shows what comes of edits."""
    long = {"ablate": ablate, "scan": scan, "patch": patch, "compare": OtherModel().compare}
    coded = {name: with_code(name, method) for name, method in long.items()}
    return {**coded, "output": output(traces or Traces())}


def with_code(name: str, method: Method) -> Method:
    """The same method, whose results also have the Python that gives them."""

    def measure(model: Model, given: Given, blob: bytes) -> Work:
        call = f'*_, last = measure_methods()["{name}"](model, {given!r}, b"")'
        lines = "from heedful.studio.measuring import measure_methods", call, 'last["result"]'
        for event in method(model, given, blob):
            for numbers in ("partial", "result"):
                if event is not None and numbers in event:
                    event[numbers]["code"] = code_of(model, [], *lines)
            yield event

    return measure
