"""Record a trace of the demo for the studio's first screen: python tools/record_studio.py runs/demo

Writes heedful/studio/recorded.safetensors: the tensors of every layer, and the answers of a worker as JSON.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

import heedful
from heedful.studio.looking import about, alignment, flow, search
from heedful.studio.recorded import DEMO, FILE, KEPT, RUN
from heedful.studio.runs import ModelFolder
from heedful.studio.tracing import Traces, tensor_of
from heedful.studio.writing import write

TEXT = "Their small cat was a fast animal."
CARD = ("task", "architecture", "parameters", "best")
LIKE_PAGES: dict[str, dict[str, Any]] = {  # the options that they send at first
    "write": {"max_new_tokens": 60},
    "search": {
        "beam": 4,
        "length_alpha": 0.6,
        "beam_groups": 1,
        "max_new_tokens": 60,
        "stopping": "heuristic",
    },
}
MEASURES = ("weight", "norm", "zeroing", "gradient")
TENSORS = ("weights", "scores", "q", "k", "v", "allowed", *KEPT)


def result(work: Any) -> list[dict[str, Any]]:
    """The events of a method of the worker."""
    return [event for event in work if event is not None]


def told_with(method: Any, model: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What a method that streams was given, and its events."""
    given = {"text": TEXT, "edits": [], **given}
    events = result(method(model, given, b""))
    return {"given": given, "events": events}


def record(folder: str) -> None:
    model, traces = heedful.load(folder), Traces()
    given = {"text": TEXT, "target": None, "edits": []}
    told = result(traces.trace(model, given, b""))[-1]["result"]
    seen = traces.get(model, given, b"").trace
    tensors = {}
    for which, kind in told["kinds"].items():
        for layer in range(1, kind["layers"] + 1):
            for name in TENSORS:
                asked = {"name": name, "which": which, "layer": layer, "head": 0, "dtype": "f32"}
                tensors[f"{name}.{which}.{layer}"] = tensor_of(seen, asked).clone()
    for shell, blocks in told["shells"].items():
        tensors[f"stream.{shell}.{blocks}"] = seen.stream(shell, blocks).clone()
    aligned = alignment(traces)
    for by in MEASURES:
        layers = []
        for layer in range(1, told["kinds"]["cross"]["layers"] + 1):
            heads = range(told["kinds"]["cross"]["heads"] + 1)  # 0: the layer as a whole
            asked = {"trace": given, "by": by, "row": "prediction", "which": "cross", "layer": layer}
            found = [
                result(aligned(model, asked | {"head": head, "mean": int(head == 0)}, b""))[-1]["result"]
                for head in heads
            ]
            layers.append(torch.tensor([one["values"] for one in found]))
        tensors[f"alignment.{by}"] = torch.stack(layers)
    asked = {"trace": given, "by": "weight", "row": "prediction", "which": "cross"}
    best = result(aligned(model, asked | {"layer": 0, "head": 0, "mean": 0}, b""))[-1]["result"]["best"]
    tensors = {name: x if x.dtype == torch.uint8 else x.float() for name, x in tensors.items()}
    detail = seen.detail("cross", 1)
    assert detail.bias_HTS is None and detail.sublayer is not None and detail.sublayer.order == "pre-norm"
    card = ModelFolder(RUN, Path(folder)).card()
    facts = {
        "trace": {**told, "id": RUN, "seconds": 0.0},
        "card": {name: card[name] for name in ("task", "architecture", "parameters", "best")}
        | {"name": "demo"},
        "scale": detail.scale,
        "about": result(about(model, {}, b""))[-1]["result"],
        "aligner": best,
        "write": told_with(
            write, model, {"top": 10, "prefix_tokens": [], "target": None, "options": LIKE_PAGES["write"]}
        ),
        "search": told_with(search(traces), model, {"reference": None, "options": LIKE_PAGES["search"]}),
        "answers": {"flow 5": result(flow(traces)(model, {"trace": given, "top": 5}, b""))[-1]["result"]},
    }
    text = json.dumps(facts, ensure_ascii=False).replace(str(model.folder), DEMO)
    save_file(tensors, FILE, {"studio": text})
    print(f"{FILE}: {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    record(parser.parse_args().run)
