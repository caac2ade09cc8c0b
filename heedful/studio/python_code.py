"""The Python that gives the numbers of a view: `heedful.load`, and one call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..service.methods import Given
from ..use.model import Model


def code_of(model: Model, edits: list[str], *lines: str) -> str:
    """Lines of Python after the model is loaded, and with its edits."""
    first = ["import heedful"] + ["from heedful.inside.edits import edit"] * bool(edits)
    inside = [f"with edit(model, {edits!r}):", *(f"    {line}" for line in lines)] if edits else list(lines)
    return "\n".join([*first, "", f"model = heedful.load({quoted(str(model.folder))})", *inside, ""])


def quoted(value: Any) -> str:
    """A value as Python writes it."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def arguments(given: Mapping[str, Any]) -> str:
    """Named arguments of a call that has others before."""
    return "".join(f", {name}={quoted(value)}" for name, value in given.items())


def lines_of_picture(text: str) -> list[str]:
    """The calls that label a picture, which a text names."""
    file = 'open("picture.png", "rb").read()' if text.startswith("picture:") else 'b""'
    return [
        "from heedful.studio.pictures import input_of_model",
        f"trace = model.trace(input_of_model(model, {quoted(text)}, {file}))",
        'trace.outputs["classify"].softmax(-1), model.loaded.labels',
    ]


def code_of_writing(model: Model, ability: str, given: Given, begun: str, continues: bool) -> str:
    """The call that writes the same. begun: what the answer must begin with."""
    options = given["options"] if given["options"].get("sample") else {"beam": 1} | given["options"]
    text = given["text"] + begun if continues else given["text"]
    prefix = {"prefix": begun} if begun and not continues else {}
    call = f"answer = model.{ability}({quoted(text)}{arguments(prefix | {'top': given['top']} | options)})"
    return code_of(model, given["edits"], call, "answer.tokens, answer.log_probabilities, answer.top")


def code_of_search(model: Model, given: Given) -> str:
    """The call that makes the same tree."""
    reference = {} if given["reference"] is None else {"reference": given["reference"]}
    call = f"tree = model.beam_tree({quoted(given['text'])}{arguments(given['options'] | reference)})"
    return code_of(model, given["edits"], call, "tree.nodes, tree.answers, tree.reference")


def code_of_alignment(model: Model, given: Given, layer: int, head: int | None) -> str:
    """The call that aligns in the same way."""
    told = given["trace"]
    chosen = {"target": told["target"], "by": given["by"], "which": given["which"], "row": given["row"]}
    call = f"seen = attribute(model.loaded, {quoted(told['text'])}"
    call += f"{arguments(chosen | {'layer': layer, 'head': head or 'mean'})})"
    lines = "from heedful.inside.attribute import attribute", call, "seen.chosen[0].weights_TS"
    return code_of(model, told["edits"], *lines)
