"""The comparison with another library's model, and its certificate."""

import json
import sys
from dataclasses import replace

import pytest
import torch
from helpers import tiny
from helpers.export_cases import ENDS, certificate, names
from helpers.look_cases import imported
from safetensors.torch import load_file, save_file

import heedful
from heedful.certify.certificate import Tolerance, write_certificate
from heedful.certify.compare import certify, compared
from heedful.certify.inputs import inputs_for
from heedful.certify.own import OwnModel
from heedful.certify.sides import Sides
from heedful.interop.foreign import InputLimits
from heedful.interop.formats import exportable, refusals
from heedful.interop.hf import write as to_hf
from heedful.interop.packages import quiet
from heedful.models import bert

# The comparison itself


class Twin:
    """Our own model in the part of another library's, with something changed."""

    def __init__(self, loaded, **changes):
        self.here, self.changes = OwnModel(loaded), changes

    def __getattr__(self, name):
        def ask(*given):
            found = getattr(self.here, name)(*given)
            return self.changes[name](found) if name in self.changes else found

        if name not in ("outputs", "greedy", "beam", "tokens"):
            raise AttributeError(name)
        return ask


def logits(change):
    """A change of the logits of every row."""
    return lambda rows: [{"logits": change(row["logits"])} for row in rows]


def nothing(found):
    return [{} for _ in found] if isinstance(found, list) and found and isinstance(found[0], dict) else None


def beside(loaded, kind="float32", tolerance=None, **changes):
    """The certificate of a twin."""
    ours, twin = OwnModel(loaded), Twin(loaded, **changes)
    return certify(Sides(ours, ours, twin, twin, kind, lambda line: None, given=tolerance))


@pytest.fixture(scope="module")
def gpt2():
    return replace(imported("gpt2"), special=ENDS)


def test_a_twin_is_the_same_and_a_certificate_is_always_the_same(gpt2):
    first, second = (beside(gpt2) for _ in range(2))
    assert first == second and first.verdict == "same"
    assert first.check("outputs").result["compared"]["logits"]["largest"] == 0


@pytest.mark.parametrize(
    "changes, verdict, fault",
    [
        ({"outputs": logits(lambda x: x + 1e-7)}, "same", ""),
        ({"outputs": logits(lambda x: x + 1e-3)}, "different", "logits differ by"),
        ({"outputs": logits(lambda x: x * torch.nan)}, "different", "logits differ by inf"),
        ({"outputs": logits(lambda x: x[:-1])}, "different", "logits differ by inf"),
        ({"outputs": logits(lambda x: x.flip(-1))}, "different", "logits differ by"),
        ({"greedy": lambda x: [*x[:-1], x[-1] ^ 1]}, "different", "greedy outputs are equal in only 0 of 6"),
        ({"beam": lambda x: x[:-1]}, "different", "beam outputs are equal in only 0 of 6"),
        ({"tokens": lambda x: x[1:]}, "different", "the tokenizers agree on only"),
        ({"tokens": nothing}, "same", ""),
        ({"outputs": nothing, "greedy": nothing}, "same", ""),
        (
            dict.fromkeys(("outputs", "greedy", "beam", "tokens"), nothing),
            "not checked",
            "the other library returns nothing",
        ),
    ],
)
def test_what_differs_is_named(changes, verdict, fault, gpt2):
    found = beside(gpt2, **changes)
    assert found.verdict == verdict and "; ".join(found.faults).startswith(fault)
    json.dumps(found.as_json(), allow_nan=False)


def test_outputs_between_which_nothing_decides_are_counted_apart(gpt2):
    """Two tokens with one row of weights: which of them is written says nothing of the model."""
    loaded = imported("gpt2", seed=12)
    with torch.no_grad():
        table = loaded.model.inputs.tokens.weight
        table.copy_(table[torch.arange(len(table)) // 2 * 2])
    loaded = replace(loaded, special={})
    turned = dict.fromkeys(("greedy", "beam"), lambda row: [token ^ 1 for token in row])
    found = beside(loaded, **turned)
    assert found.verdict == "same"
    for name in ("greedy", "beam"):
        result = found.check(name).result
        assert (result["equal"], result["within_rounding"]) == (0, 6)


def test_fewer_bits_are_measured_without_any_slack(gpt2):
    """Every tenth prediction has another likeliest token, by a hair: the certificate says so."""

    def turn(logits_TV):
        turned = logits_TV.clone()
        top = turned[::10].topk(2, -1)
        turned[::10] = turned[::10].scatter(-1, top.indices, top.values.flip(-1))
        return turned

    found = beside(gpt2, kind="q8_0", tolerance=Tolerance(1.0, 1.0, 1.0, 1.0), outputs=logits(turn))
    assert found.verdict == "within the q8_0 tolerance"
    top = found.check("agreement").result["top_tokens"]
    assert 0.85 < top["equal"] / top["of"] < 0.92
    assert f"({top['equal'] / top['of']:.2%})" in found.check("agreement").line


def test_a_tolerance_may_be_given(gpt2):
    changed = logits(lambda x: x + 1e-3)
    assert beside(gpt2, tolerance=Tolerance(1e-2, 1.0, 1.0, 1.0), outputs=changed).verdict == "same"


# What is given to both


@pytest.mark.parametrize("name", ["gpt2", "bert", "t5", "transformer"])
def test_every_row_is_read_and_an_input_is_as_long_as_the_context(name):
    loaded = imported(name)
    found = inputs_for(OwnModel(loaded))
    longest = getattr(loaded.config, "context", 512)
    assert found.lengths[0] == 1 and found.lengths[-1] == longest
    pad = {loaded.special["pad"]} if "pad" in loaded.special else set()
    every = set(range(loaded.config.vocab))
    assert {token for row in found.all for token in row.ids} == every - pad
    if name in ("t5", "transformer"):
        decoded = {token for row in found.all for token in row.target}
        assert decoded >= every - {loaded.special["eos"]}
        assert max(len(row.target) for row in found.all) == longest
    if name == "bert":
        assert {kind for row in found.all for kind in row.segments} == {0, 1}


def test_work_is_limited_and_said(gpt2):
    found = inputs_for(OwnModel(gpt2), InputLimits(numbers=10**6, work=0))
    assert not found.covering and found.read < found.rows == gpt2.config.vocab


# Heads, and files


def test_every_head_is_compared(tmp_path):
    config = bert.BertConfig(
        vocab=29,
        context=31,
        layers=1,
        width=12,
        heads=3,
        ffn_width=20,
        prediction_heads=("pooled", "masked_lm", "next_sentence"),
    )
    loaded = heedful.Loaded("bert", config, tiny.build((bert, config), torch.float32), None, {"pad": 0})
    to_hf.write(loaded, tmp_path)
    found = compared(loaded, tmp_path, "hf", "float32", print)
    assert found.verdict == "same"
    assert found.check("outputs").result["compared"].keys() == {
        "last_hidden_state",
        "pooler_output",
        "logits",
        "seq_relationship_logits",
    }
    weights = load_file(tmp_path / "model.safetensors")
    weights["cls.seq_relationship.bias"][1] += 0.01
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    found = compared(loaded, tmp_path, "hf", "float32", print)
    assert found.verdict == "different"
    assert any(fault.startswith("seq_relationship_logits differ") for fault in found.faults)


def test_a_certificate_is_written_whole(gpt2, tmp_path):
    found = beside(gpt2)
    (tmp_path / "weights").write_bytes(b"x")
    content = write_certificate(found, tmp_path)
    assert names(tmp_path) == ["parity.json", "weights"] and certificate(tmp_path) == content
    assert content == json.loads(json.dumps(found.as_json())) | {"files": content["files"]}
    assert list(content["files"]) == ["weights"] and len(content["files"]["weights"]) == 64


def test_quiet_is_over_when_it_is_over(capsys):
    import logging
    import warnings

    with quiet():
        print("out")
        print("err", file=sys.stderr)
        warnings.warn("odd", stacklevel=1)
        logging.getLogger("x").error("log")
    print("said")
    assert capsys.readouterr() == ("said\n", "") and logging.root.manager.disable == 0


def test_refusals_and_exportable_agree(gpt2):
    assert (
        exportable(gpt2)
        == [name for name, why in refusals(gpt2).items() if why is None]
        == ["hf", "ctranslate2", "onnx", "html"]
    )
