"""Single numbers of stored weights are changed at random: what changes an output is found by outputs alone.

Neither hashes nor the comparison of weights help here. A change is real if the other library's outputs change
by more than rounding, on inputs that the certificate does not use.
"""

import random
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from helpers import tiny
from helpers.export_cases import ENDS
from helpers.look_cases import imported

import heedful
from heedful.certify import inputs
from heedful.certify.certificate import EXACT
from heedful.certify.checks import outputs
from heedful.certify.compare import compared
from heedful.certify.inputs import InputDrawing
from heedful.certify.own import OwnModel
from heedful.certify.sides import opened
from heedful.interop.formats import FORMATS
from heedful.models import bert, llama

CASES = [("hf", "float32"), ("gguf", "q8_0"), ("ctranslate2", "int8"), ("onnx", "float32")]


def encoder():
    """With segments and every head that Hugging Face has beside them."""
    heads = ("pooled", "masked_lm", "next_sentence")
    sizes = {"vocab": 29, "context": 31, "layers": 2, "width": 12, "heads": 3, "ffn_width": 20}
    config = bert.BertConfig(**sizes, prediction_heads=heads)
    return heedful.Loaded("bert", config, tiny.build((bert, config), torch.float32), None, {"pad": 0})


def blocks_of_32():
    """A LLaMA whose rows are blocks of Q8_0, which has 32 numbers in each."""
    sizes = {"vocab": 67, "context": 31, "layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "key_width": 8}
    config = llama.LlamaConfig(**sizes, ffn_width=64)
    return heedful.Loaded("llama", config, tiny.build((llama, config), torch.float32), None, ENDS)


MODELS = {
    "hf": encoder,
    "gguf": blocks_of_32,
    "ctranslate2": lambda: replace(imported("gpt2"), special=ENDS),
    "onnx": lambda: replace(imported("gpt2"), special=ENDS),
}


@dataclass
class Tally:
    """Patches that changed an output, and how many of them were found."""

    patches: int = 0
    changed: int = 0
    found: int = 0
    missed: tuple = ()


def patched(loaded, dice):
    """The same model with one number of one weight changed, and where."""
    model = deepcopy(loaded.model)
    name, weight = dice.choice(list(model.named_parameters()))
    at = tuple(dice.randrange(size) for size in weight.shape)
    with torch.no_grad():
        by = dice.choice((-1, 1)) * dice.uniform(0.1, 1) * max(float(weight.std(correction=0)), 0.02)
        weight[at] += by
    return replace(loaded, model=model), f"{name}{list(at)} by {by:.3g}"


def patch_graph(source, folder, dice):
    """A copy of an ONNX folder with one number of one weight changed, and where."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(source / "model.onnx")
    weights = [
        each
        for each in graph.graph.initializer
        if each.data_type == 1 and len(each.dims) and each.dims[0] > 1
    ]
    chosen = dice.choice(weights)
    values = numpy_helper.to_array(chosen).copy()
    at = tuple(dice.randrange(size) for size in values.shape)
    by = dice.choice((-1, 1)) * dice.uniform(0.1, 1) * max(float(values.std()), 0.02)
    values[at] += by
    chosen.CopyFrom(numpy_helper.from_array(values, chosen.name))
    onnx.save(graph, folder / "model.onnx")
    (folder / "config.json").write_bytes((source / "config.json").read_bytes())
    return f"{chosen.name}{list(at)} by {by:.3g}"


def other_inputs(loaded):
    """Inputs that the certificate does not use: another drawing of all of them."""
    drawing = InputDrawing(OwnModel(loaded))
    drawing.dice = random.Random(1)
    return drawing.inputs().all


def apart(before, after):
    """The largest difference of two lists of outputs, as a share of the largest number of each output."""
    worst = 0.0
    for name in before[0]:
        scale = max(float(row[name].abs().max()) for row in before)
        off = max(float((a[name] - b[name]).abs().max()) for a, b in zip(before, after, strict=True))
        worst = max(worst, off / scale)
    return worst


def damage(form, kind, count, seed, folder: Path):
    """Patch an export `count` times."""
    loaded, dice, tally = MODELS[form](), random.Random(f"{form} {seed}"), Tally()
    whole = folder / "whole"
    whole.mkdir()
    FORMATS[form].write(loaded, whole, kind)
    sides = opened(loaded, whole, form, kind, lambda line: None)
    assert not outputs.check(sides).faults
    rows = other_inputs(loaded)
    before = [sides.exact.outputs([row])[0] for row in rows]
    for number in range(count):
        place = folder / str(number)
        place.mkdir()
        if form == "onnx":
            where = patch_graph(whole, place, dice)
        else:
            other, where = patched(loaded, dice)
            FORMATS[form].write(other, place, kind)
        sides = opened(loaded, place, form, kind, lambda line: None)
        change = apart(before, [sides.exact.outputs([row])[0] for row in rows])
        tally.patches += 1
        if change > EXACT:
            tally.changed += 1
            found = bool(outputs.check(sides).faults)
            tally.found += found
            tally.missed += () if found else (f"{where}: outputs change by {change:.2g}",)
    return tally


@pytest.mark.parametrize("form, kind", CASES)
def test_a_changed_number_is_found_by_outputs(form, kind, tmp_path):
    tally = damage(form, kind, 10, 0, tmp_path)
    assert tally.missed == () and tally.changed == tally.found >= 4


@pytest.mark.slow
@pytest.mark.parametrize("form, kind", CASES)
def test_of_700_changed_numbers_all_that_change_an_output_are_found(form, kind, tmp_path):
    tally = damage(form, kind, 175, 1, tmp_path)
    print(form, kind, tally)
    assert tally.missed == () and tally.patches == 175 and tally.changed == tally.found > 70


# Damage that is larger than one number


def zero_head(model):
    layer = model.stack.blocks[-1].attention.layer
    layer.out.weight[:, : layer.value_width] = 0


def zero_row(model):
    model.stack.blocks[0].feed_forward.layer.up.weight[1] = 0


def swap_layers(model):
    one, two = model.stack.blocks
    kept = {name: value.clone() for name, value in one.state_dict().items()}
    one.load_state_dict(two.state_dict())
    two.load_state_dict(kept)


@pytest.mark.parametrize("change", [zero_head, zero_row, swap_layers])
@pytest.mark.parametrize(
    "form, kind", [("gguf", "float32"), ("gguf", "float16"), ("gguf", "q8_0"), ("ctranslate2", "int8")]
)
def test_a_zeroed_head_row_or_swapped_layer_passes_in_no_kind(form, kind, change, tmp_path):
    loaded = blocks_of_32()
    model = deepcopy(loaded.model)
    with torch.no_grad():
        change(model)
    FORMATS[form].write(replace(loaded, model=model), tmp_path, kind)
    found = compared(loaded, tmp_path, form, kind, lambda line: None)
    assert found.verdict == "different"
    assert any(fault.startswith("logits differ") for fault in found.faults)


def test_inputs_do_not_depend_on_what_was_drawn_before():
    loaded = imported("gpt2")
    assert inputs.inputs_for(OwnModel(loaded)) == inputs.inputs_for(OwnModel(loaded))
