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
from heedful.interop.formats import exportable, refusals
from heedful.interop.hf import write as to_hf
from heedful.interop.hf.reopen import reopen
from heedful.interop.packages import quiet
from heedful.interop.parity.certificate import Bound, write_certificate
from heedful.interop.parity.compare import certify
from heedful.interop.parity.own import OwnModel
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

        if name not in ("logits", "greedy", "beam", "tokens"):
            raise AttributeError(name)
        return ask


@pytest.fixture(scope="module")
def gpt2():
    return replace(imported("gpt2"), special=ENDS)


def test_a_twin_is_the_same_and_a_certificate_is_always_the_same(gpt2):
    first, second = (certify(gpt2, Twin(gpt2), format="hf") for _ in range(2))
    assert first == second and first.verdict == "same" and first.logits.largest == 0


@pytest.mark.parametrize(
    "changes, verdict, fault",
    [
        ({"logits": lambda x: x + 1e-7}, "same", ""),
        ({"logits": lambda x: x + 1e-3}, "different", "logits differ by"),
        ({"logits": lambda x: x * torch.nan}, "different", "logits differ by inf"),
        ({"logits": lambda x: x[:-1]}, "different", "logits differ by inf"),
        ({"logits": lambda x: x.flip(-1)}, "different", "logits differ by"),
        ({"greedy": lambda x: [*x[:-1], x[-1] ^ 1]}, "different", "greedy outputs are equal in only 0 of 6"),
        ({"beam": lambda x: x[:-1]}, "different", "beam outputs are equal in only 0 of 6"),
        ({"tokens": lambda x: x[1:]}, "different", "the tokenizers agree on only"),
        ({"tokens": lambda x: None}, "same", ""),
        ({"logits": lambda x: None, "greedy": lambda x: None}, "same", ""),
        (
            {name: lambda x: None for name in ("logits", "greedy", "beam", "tokens")},
            "not checked",
            "the other library returns nothing",
        ),
    ],
)
def test_what_differs_is_named(changes, verdict, fault, gpt2):
    found = certify(gpt2, Twin(gpt2, **changes), format="hf")
    assert found.verdict == verdict and "; ".join(found.faults).startswith(fault)
    json.dumps(found.as_json(), allow_nan=False)


def test_log_probabilities_will_do(gpt2):
    twin = Twin(gpt2, logits=lambda x: x.log_softmax(-1))
    assert certify(gpt2, twin, format="hf").verdict == "different"
    twin.says_log_probabilities = True
    assert certify(gpt2, twin, format="hf").verdict == "same"


def test_outputs_between_which_nothing_decides_are_ties(gpt2):
    """Two tokens with one row of weights: which of them is written says nothing of the model."""
    loaded = imported("gpt2", seed=12)
    with torch.no_grad():
        table = loaded.model.inputs.tokens.weight
        table.copy_(table[torch.arange(len(table)) // 2 * 2])
    loaded = replace(loaded, special={})
    twin = Twin(loaded, **dict.fromkeys(("greedy", "beam"), lambda row: [token ^ 1 for token in row]))
    found = certify(loaded, twin, format="hf")
    assert found.verdict == "same" and found.greedy.ties == found.beam.ties == 6 and not found.greedy.same


def test_a_second_head_is_looked_at_too(tmp_path):
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
    assert certify(loaded, reopen(tmp_path), format="hf").verdict == "same"
    weights = load_file(tmp_path / "model.safetensors")
    weights["cls.seq_relationship.bias"][1] += 0.01
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    assert certify(loaded, reopen(tmp_path), format="hf").verdict == "different"


def test_a_bound_may_be_given(gpt2):
    twin = Twin(gpt2, logits=lambda x: x + 1e-3)
    assert certify(gpt2, twin, format="hf", bound=Bound(1e-2, 1.0, 1.0)).verdict == "same"


def test_a_certificate_is_written_whole(gpt2, tmp_path):
    found = certify(gpt2, Twin(gpt2), format="hf")
    write_certificate(found, tmp_path)
    assert names(tmp_path) == ["parity.json"] and certificate(tmp_path) == found.as_json()


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
        == ["hf", "ctranslate2", "onnx"]
    )
