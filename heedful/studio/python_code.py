"""The Python that gives the numbers of a view: `heedful.load`, and one call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..service.methods import Given
    from ..use.model import Model


def code_of(model: Model, edits: list[str], *lines: str) -> str:
    """Lines of Python after the model is loaded, and with its edits."""
    return code_in(str(model.folder), edits, *lines)


def code_in(folder: str, edits: list[str], *lines: str) -> str:
    """The same for a model in a folder."""
    first = ["import heedful"] + ["from heedful.inside.edits import edit"] * bool(edits)
    inside = [f"with edit(model, {edits!r}):", *(f"    {line}" for line in lines)] if edits else list(lines)
    return "\n".join([*first, "", f"model = heedful.load({quoted(folder)})", *inside, ""])


def quoted(value: Any) -> str:
    """A value as Python writes it."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def arguments(given: Mapping[str, Any]) -> str:
    """Named arguments of a call that has others before."""
    return "".join(f", {name}={quoted(value)}" for name, value in given.items())


def input_lines(given: Given, pictures: bool) -> tuple[list[str], str]:
    """What must be imported for the input of a model, and the arguments that are its text and its target."""
    text, first = quoted(given["text"]), list[str]()
    if pictures:
        file = 'open("picture.png", "rb").read()' if given["text"].startswith("picture:") else 'b""'
        text, first = (
            f"input_of_model(model, {text}, {file})",
            ["from heedful.studio.pictures import input_of_model"],
        )
    return first, text + (f", {quoted(given['target'])}" if given["target"] else "")


def lines_of_trace(given: Given, pictures: bool = False) -> list[str]:
    """The call that makes the same trace. pictures: the text is the name of one."""
    first, read = input_lines(given, pictures)
    edits = f", edits={given['edits']!r}" if given["edits"] else ""
    return [*first, f"trace = model.trace({read}{edits})"]


def lines_of_steps(given: Mapping[str, Any]) -> list[str]:
    """One query of one head of a trace, step by step."""
    which, row = quoted(given["which"]), given["query"] - 1
    return [
        f"steps = trace.steps({which}, {given['layer']}, {given['head']}, {given['query']})",
        "steps.scores_S, steps.scaled_S, steps.masked_S, steps.weights_S",
        "steps.weighted_SL, steps.output_L",
        f"sublayer = trace.sublayer({which}, {given['layer']})",
        f"sublayer.x_TD[{row}], sublayer.heads_TX[{row}], sublayer.out_TD[{row}]",
    ]


def codes_of_flow(folder: str, given: Given, pictures: bool = False) -> dict[str, str]:
    """What every layer of a model would predict ("lens"), and how far tokens have traveled ("rollout")."""
    first, read = input_lines(given, pictures)
    lens = "from heedful.inside.lens import lens", f"found = lens(model.loaded, {read}).as_json()"
    rolled = (
        "from heedful.inside.rollout import rollout_of",
        f"found = rollout_of(model.loaded, {read}).as_json()",
    )
    found = {
        name: code_in(folder, given["edits"], *first, *lines)
        for name, lines in (("lens", lens), ("rollout", rolled))
    }
    if pictures:
        weights = '[trace.weights("self", layer + 1) for layer in range(trace.kinds["self"].layers)]'
        rolled = "from heedful.inside.rollout import rollout", f"found = rollout({weights})"
        found["rollout"] = code_in(folder, [], *lines_of_trace(given, pictures), *rolled)
    return found


def lines_of_picture(text: str) -> list[str]:
    """The calls that label a picture, which a text names."""
    told: Given = {"text": text, "target": None, "edits": []}
    return [*lines_of_trace(told, True), 'trace.outputs["classify"].softmax(-1), model.loaded.labels']


def code_of_writing(model: Model, ability: str, given: Given, begun: str, left: int | None) -> str:
    """The call that writes the same. begun: what the answer must begin with.

    left: how many tokens may follow that, of a model that continues its text; None of one that answers it.
    """
    sampled, notes = bool(given["options"].get("sample")), list[str]()
    options = given["options"] if sampled else {"beam": 1} | given["options"]
    text, prefix = given["text"], {"prefix": begun} if begun else {}
    if begun and left is not None:
        text, prefix, options = text + begun, {}, options | {"max_new_tokens": left}
        notes = ["# The studio draws for the given tokens too, so other tokens follow here."] * sampled
    call = f"answer = model.{ability}({quoted(text)}{arguments(prefix | {'top': given['top']} | options)})"
    return code_of(model, given["edits"], *notes, call, "answer.tokens, answer.log_probabilities, answer.top")


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
