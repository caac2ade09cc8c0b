"""What a worker says of its model: what it is, its positions, alignments, searches, checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..errors import BadInput
from ..inside.attribute import attribute
from ..inside.corpus import built_in, samples_of
from ..inside.doctor import examine
from ..inside.lens import lens
from ..inside.look.attention import Look
from ..inside.look.heads import Head, practice
from ..inside.look.layers import kinds_of
from ..inside.look.positions import positions
from ..inside.model_inputs import refuse_without_attention
from ..inside.rollout import rollout, rollout_of
from ..inside.spelling import spell
from ..inside.token_statistics import statistics
from ..inside.trace import Trace
from ..interop.loaded import IN_WORDS, Captioner
from ..models.base.shells import EncoderDecoder
from ..service.methods import Event, Given, Method, Work
from ..use.beam_tree import command_of, options_of, tree_in_turns
from ..use.model import Model
from ..use.wording import tokenize
from .ordered import ordered
from .pictures import EXAMPLE, input_of_model, reads_images
from .python_code import code_of, code_of_alignment, code_of_search, codes_of_flow, quoted
from .spelled import spelled
from .tracing import Traces, over
from .writing import ABILITIES, finished, parting, row_of

SENTENCE = "The cat sat on the mat because it was tired."
MASKED = "The cat [MASK] on the mat because it was tired."
EXAMPLES = {"translate": "Their small cat was a fast animal."}


def about(model: Model, given: Given, blob: bytes) -> Work:
    """What pages need to know of a model before they show it."""
    kinds = [which for which in kinds_of(model.model) if which != "encoder" or has_source(model)]
    writes = next((name for name in ABILITIES if name in model.can), None)
    yield over(
        {
            "architecture": model.architecture,
            "kind": IN_WORDS[model.kind],
            "task": model.task or None,
            "can": list(model.can),
            "reads": "pictures" if reads_images(model) else "texts",
            "writes": writes,
            "kinds": kinds if attends(model) else [],
            "pair": has_source(model),
            "predicts": writes is not None or "fill" in model.can,
            "labels": list(model.loaded.labels)[:100],
            "tokenizers": sum(one is not None for one in (model.tokenizer, model.target_tokenizer)),
            "own_data": model.own and model.recipe is not None,
            "example": example_of(model),
        }
    )


def example_of(model: Model) -> str:
    """What a model is shown at first: a sentence as long as it may read, or a built-in picture."""
    if reads_images(model):
        return EXAMPLE
    text, room = EXAMPLES.get(model.task, SENTENCE), getattr(model.config, "context", None)
    text = MASKED if "fill" in model.can else text
    while (
        model.tokenizer and room and " " in text and len(tokenize(model.tokenizer, [text])[0].ids) > room - 2
    ):
        text = text.rpartition(" ")[0]
    return text


def has_source(model: Model) -> bool:
    """Whether the model writes with one stack what it reads with another."""
    return model.kind in (EncoderDecoder, Captioner)


def attends(model: Model) -> bool:
    """Whether there is an attention to look at."""
    try:
        refuse_without_attention(model.loaded)
    except BadInput:
        return False
    return True


def show_positions(model: Model, given: Given, blob: bytes) -> Work:
    """How order enters the model, as tables."""
    trained = getattr(model.recipe.data, "max_length", None) if model.own and model.recipe else None
    how = {"base": given.get("base"), "trained": trained}

    def found() -> dict[str, Any]:
        schemes = positions(model.loaded, given["length"], **how)
        return {"positions": [ordered(one) | {"code": code(n)} for n, one in enumerate(schemes)]}

    def code(n: int) -> str:
        call = f"found = positions(model.loaded, {given['length']}, base={given.get('base')})[{n}]"
        numbers = "found.sheets[0].numbers, found.similarity, found.rotations"
        return code_of(model, [], "from heedful.inside.look.positions import positions", call, numbers)

    yield over(or_refused(found))


def alignment(traces: Traces) -> Method:
    """A method: where each output of a trace comes from, by one of four measures."""

    def align(model: Model, given: Given, blob: bytes) -> Work:
        told = given["trace"]
        layer, head = given["layer"] or None, given["head"] or None
        which, gold = given["which"], practice(Path(model.folder)) if model.own else []
        yield None
        with traces.editing(model, told["edits"]):
            seen = attribute(
                model.loaded, told["text"], by=given["by"], target=told["target"], which=which, layer=layer,
                head=head or ("mean" if given["mean"] else "best"), row=given["row"], gold=gold,
            )  # fmt: skip
        pair = next((one for one in gold if one.source == told["text"]), None)
        found = aligned(seen.beside(pair), seen.chosen[0])
        kept = traces.get(model, told, blob).trace
        kind = kept.kinds[kept.key(found["which"], 1)[0]]
        found |= {"by": given["by"], "layers": kind.layers, "heads": kind.heads}
        yield over(found | {"code": code_of_alignment(model, given, found["layer"], found["head"])})

    return align


def aligned(seen: Look, head: Head) -> dict[str, Any]:
    """The values of one head, and how well they align where that is known."""
    return {
        "which": seen.which,
        "layer": head.layer,
        "head": head.head,
        "best": {"layer": seen.best.layer, "head": seen.best.head, "by": seen.best_by},
        "down": seen.down,
        "across": seen.across,
        "values": head.weights_TS.tolist(),
        "gold": sorted(map(list, seen.marked)),
        "error_rate": seen.error_rate(head),
    }


def flow(traces: Traces) -> Method:
    """A method: what each layer would predict, what sublayers add, and how far words have traveled."""

    def look_through(model: Model, given: Given, blob: bytes) -> Work:
        told = given["trace"]
        read = input_of_model(model, told["text"], blob)
        yield None
        with traces.editing(model, told["edits"]):
            seen = or_refused(lambda: lens(model.loaded, read, told["target"], top=given["top"]).as_json())
        yield None
        if isinstance(read, str):
            with traces.editing(model, told["edits"]):
                rolled = or_refused(lambda: rollout_of(model.loaded, read, told["target"]).as_json())
        else:
            rolled = or_refused(lambda: rollout_of_picture(traces.get(model, told, blob).trace))
        codes = codes_of_flow(str(model.folder), told, not isinstance(read, str))
        yield over({"lens": seen, "rollout": rolled, "codes": codes})

    return look_through


def or_refused(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What some work finds, or the sentence by which it refuses a model that it is not for."""
    try:
        return work()
    except BadInput as refused:
        return {"refused": str(refused)}


def rollout_of_picture(seen: Trace) -> dict[str, Any]:
    """The rollout of a picture through the layers of its encoder."""
    if "cross" in seen.kinds:
        raise BadInput("a rollout of captions is not computed: look at the layers one by one")
    kind = seen.kinds["self"]
    weights_TT = rollout([seen.weights("self", layer) for layer in range(1, kind.layers + 1)])
    found = {"which": "self", "down": kind.down, "across": kind.across}
    return found | {"rollout": weights_TT.tolist(), "rest": [0.0] * len(kind.down)}


def search(traces: Traces) -> Method:
    """A method: a beam search, step by step, with the fate of every candidate."""

    def tree(model: Model, given: Given, blob: bytes) -> Work:
        command = command_of(model)
        how = options_of(model, command, given["options"])
        work = tree_in_turns(model, command, row_of(model, command, given["text"]), how, given["reference"])
        found = None
        while found is None:
            with traces.editing(model, given["edits"]):
                try:
                    next(work)
                except StopIteration as end:
                    found = end.value
            yield None
        told = found.as_json() | {"finished": finished(found), "parting": parting(found)}
        told["code"] = code_of_search(model, given)
        nodes = told.pop("nodes")
        for step in range(1, found.steps + 1):
            yield {"step": step, "nodes": [node for node in nodes if node["step"] == step]}
        yield over(told)

    return tree


def spell_text(model: Model, given: Given, blob: bytes) -> Work:
    """A text through the tokenizer: its pieces, and how they came about."""
    tokenizer = model.wording.writes if given["target"] else model.wording.reads
    call = f"model.{'target_' if given['target'] else ''}tokenizer, {quoted(given['text'])}"
    lines = (
        "from heedful.inside.spelling import spell",
        f"found = spell({call})",
        "print(found.as_text(merges=True))",
    )
    yield over(spelled(spell(tokenizer, given["text"])) | {"code": code_of(model, [], *lines)})


def token_statistics(model: Model, given: Given, blob: bytes) -> Work:
    """What the tokenizer makes of the held-out texts of the run, or of built-in sentences."""
    target = given["target"] and model.target_tokenizer is not None
    tokenizer = model.wording.writes if target else model.wording.reads
    if model.own and model.recipe is not None and model.kind is not Captioner and attends(model):
        samples = samples_of(model.loaded, Path(model.folder), model.recipe, count=given["count"])
        source, texts = samples.source, [one.target if target else one.text for one in samples.samples]
    else:
        source, texts = "built-in sentences", [str(text) for text in built_in(model.loaded, given["count"])]
    yield None
    *_, found = statistics(tokenizer, texts)
    yield over(found.as_json() | {"source": source, "summary": f"{source}\n{found.as_text()}"})


def check(model: Model, given: Given, blob: bytes) -> Work:
    """Every check of `heedful doctor`, one after the other."""
    recipe = model.recipe if model.own else None
    count = 0
    for found in examine(model.loaded, Path(model.folder), recipe):
        count += 1
        yield {"check": finding(found), "progress": {"done": count}}
    yield over({"checks": count})


def finding(found: Any) -> Event:
    if isinstance(found, tuple):
        return {"name": found[0], "verdict": "not checked", "summary": found[1]}
    return asdict(found)


def look_methods(traces: Traces) -> Mapping[str, Method]:
    """The methods of a worker that say what its model is."""
    return {
        "about": about,
        "positions": show_positions,
        "alignment": alignment(traces),
        "search": search(traces),
        "flow": flow(traces),
        "doctor": check,
        "spell": spell_text,
        "token_statistics": token_statistics,
    }
