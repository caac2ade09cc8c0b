"""Pages compute what models compute: every family, number by number, with the same rounded weights."""

from dataclasses import replace

import pytest
import torch
from helpers import hf_zoo, tiny
from helpers.html_cases import in_node, rounded, tiny_loaded, written
from helpers.tokenizer_cases import byte_level

import heedful
from heedful.certify.own import OwnModel
from heedful.data.vocab import train_vocab
from heedful.decode.beam import beam_search
from heedful.decode.beam_settings import BeamSettings
from heedful.interop.foreign import NetworkInput
from heedful.interop.html.write import refuse
from heedful.models import transformer
from heedful.models.base.shells import EncoderDecoder, classifier

ENTRIES = {**tiny.DECODERS, **tiny.ENCODER_DECODERS, **tiny.ENCODERS}
WITHOUT = {
    "deberta": "the part ConvolvedBlock has no JavaScript: export to onnx",
    "deberta version 1": "the part DisentangledAttention has no JavaScript: export to onnx",
}
ABLE = [name for name in ENTRIES if name not in WITHOUT]
IDS = [3, 5, 7, 11, 13, 4, 6]
TARGET = [1, 9, 8, 7, 6]
CLOSE = 1e-5  # of the largest number


def both(name, folder, kind="float16", plain=False):
    """Our model with rounded weights, and its page."""
    loaded = tiny_loaded(name, ENTRIES[name])
    page = written(loaded, folder, kind)
    return OwnModel(rounded(loaded, folder, kind)), in_node(page, plain)


def row_for(name):
    return NetworkInput(IDS, TARGET if name in tiny.ENCODER_DECODERS else None)


def assert_close(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert value.shape == theirs[name].shape
        assert float((value - theirs[name]).abs().max()) <= CLOSE * float(value.abs().max()), name


@pytest.mark.parametrize("name", ABLE)
def test_every_family_computes_the_same_numbers_and_texts(name, tmp_path):
    ours, page = both(name, tmp_path, "int8" if len(name) % 2 else "float16")
    segments = [0, 0, 0, 1, 1, 1, 1] if name in ("bert", "ernie", "albert", "encoder") else None
    row = NetworkInput(IDS, TARGET if name in tiny.ENCODER_DECODERS else None, segments)
    assert_close(ours.outputs([row])[0], page.outputs([row])[0])
    assert_close(ours.attention(row), page.attention(row))
    new = 64 if name in tiny.ENCODER_DECODERS and "bart" not in name else 24
    new = 28 if name in ("bart", "mbart") else new  # their tables of positions end at 31
    assert page.greedy(IDS[:3], new) == ours.greedy(IDS[:3], new)
    assert page.beam(IDS[:3], 3, 12) == ours.beam(IDS[:3], 3, 12)


@pytest.mark.parametrize("kind", ["float16", "int8"])
@pytest.mark.parametrize("name", ["llama", "transformer", "bert"])
def test_plain_javascript_computes_the_same(name, kind, tmp_path):
    ours, page = both(name, tmp_path, kind, plain=True)
    assert page.versions["page"].endswith("JavaScript")
    assert_close(ours.outputs([row_for(name)])[0], page.outputs([row_for(name)])[0])
    assert page.greedy(IDS[:3], 20) == ours.greedy(IDS[:3], 20)


def test_a_decoder_that_classifies_computes_the_same(tmp_path):
    loaded = tiny_loaded("gpt2", ENTRIES["gpt2"])
    judging = classifier(loaded.model, loaded.config, 4).eval()
    judging.linear.weight.data.normal_()
    loaded = replace(loaded, model=judging, labels=("a", "b", "c", "d"))
    page, ours = in_node(written(loaded, tmp_path)), OwnModel(rounded(loaded, tmp_path, "float16"))
    assert_close(ours.outputs([NetworkInput(IDS)])[0], page.outputs([NetworkInput(IDS)])[0])
    assert_close(ours.attention(NetworkInput(IDS)), page.attention(NetworkInput(IDS)))
    assert page.spec["does"] == "classify" and page.spec["scores"] == "softmax"


def test_each_side_has_its_own_vocabulary(tmp_path):
    loaded = tiny_loaded("transformer pre-norm", ENTRIES["transformer pre-norm"])
    written_by = train_vocab("word", ["le chat dort"], 17).tokenizer
    page = in_node(written(replace(loaded, target_tokenizer=written_by), tmp_path))
    ids = written_by.encode("le chat dort").ids
    assert page.engine.ask({"ask": "text", "ids": ids}) == "le chat dort"
    assert page.tokens("le chat") == loaded.tokenizer.encode("le chat").ids


def test_rounded_weights_stay_near_the_model(tmp_path):
    loaded = tiny_loaded("gpt2", ENTRIES["gpt2"])
    page = in_node(written(loaded, tmp_path))
    ours, theirs = (each.outputs([row_for("gpt2")])[0]["logits"] for each in (OwnModel(loaded), page))
    apart = float((ours - theirs).abs().max()) / float(ours.abs().max())
    assert 0 < apart < 2e-2


@pytest.mark.parametrize("name", WITHOUT)
def test_a_part_without_javascript_is_refused_by_name(name):
    assert refuse(tiny_loaded(name, ENTRIES[name])) == WITHOUT[name]


SCHEMES = ("shaw", "alibi", "concatenated", "sinusoidal+rotary", "learned", "none")


@pytest.mark.parametrize("positions", SCHEMES)
def test_every_position_scheme_computes_the_same(positions, tmp_path):
    config = transformer.TransformerConfig(
        **tiny.SHALLOW, target_vocab=tiny.VOCAB, positions=positions, max_distance=3, position_width=4
    )
    loaded = tiny_loaded("transformer", (transformer, config))
    page = in_node(written(loaded, tmp_path))
    ours = OwnModel(rounded(loaded, tmp_path, "float16"))
    assert_close(ours.outputs([row_for("transformer")])[0], page.outputs([row_for("transformer")])[0])
    assert page.greedy(IDS, 20) == ours.greedy(IDS, 20)


def test_a_long_prompt_is_read_in_parts_and_the_context_can_be_passed(tmp_path):
    loaded = tiny_loaded("decoder", ENTRIES["decoder"])
    page, ours = in_node(written(loaded, tmp_path)), OwnModel(rounded(loaded, tmp_path, "float16"))
    ids = [n % 29 for n in range(150)]  # more than are read at once
    assert_close(ours.outputs([NetworkInput(ids)])[0], page.outputs([NetworkInput(ids)])[0])
    limited = tiny_loaded("gpt2", ENTRIES["gpt2"])
    page = in_node(written(limited, tmp_path / "limited"))
    assert len(page.greedy(IDS, 70)) == 70  # the table of positions ends at 31: the later half is read again


SEARCHES = (("gnmt", 0.6, "heuristic"), ("power", 1.0, "first_B"), ("gnmt", 1.5, "exact"))


def test_beam_search_follows_every_setting(tmp_path):
    ours, page = both("transformer pre-norm", tmp_path)
    for penalty, alpha, stopping in SEARCHES:
        step, prompt = ours.begun(IDS)
        settings = BeamSettings(4, 4, penalty, alpha, stopping=stopping)
        expected = beam_search(step, prompt, longest=15, eos=2, settings=settings)[0]
        how = {"length_penalty": penalty, "length_alpha": alpha, "stopping": stopping, "forced": []}
        found = page.engine.ask({"ask": "beam", "ids": IDS, "width": 4, "longest": 15, **how})
        assert [one["tokens"] for one in found] == [one.tokens for one in expected]
        assert [one["score"] for one in found] == pytest.approx([one.score for one in expected], abs=1e-4)


def test_sampling_follows_its_filters_and_its_seed(tmp_path):
    _, page = both("gpt2", tmp_path)

    def drawn(**how):
        return page.engine.ask({"ask": "sample", "ids": IDS, "longest": 20, **how})

    assert drawn(top_k=1, seed=5) == drawn(top_p=0.05, temperature=0.01) == page.greedy(IDS, 20)
    assert drawn(seed=3) == drawn(seed=3) != drawn(seed=4)


def test_sampling_draws_by_probability(tmp_path):
    """A first token, drawn 2,000 times: each share within five standard deviations."""
    ours, page = both("gpt2", tmp_path)
    shares = ours.outputs([NetworkInput(IDS)])[0]["logits"][-1].double().softmax(-1)
    firsts = [page.engine.ask({"ask": "sample", "ids": IDS, "longest": 1, "seed": n})[0] for n in range(2000)]
    counts = torch.tensor(firsts).bincount(minlength=len(shares)) / 2000
    assert float(((counts - shares).abs() / (shares * (1 - shares) / 2000).sqrt().clamp(min=1e-4)).max()) < 5


@pytest.mark.parametrize("family", sorted(hf_zoo.FAMILIES))
def test_models_of_other_tools_compute_the_same_or_are_refused(family, tmp_path):
    hf_zoo.write(hf_zoo.make(family, 1), tmp_path / "theirs")
    loaded = replace(heedful.load(str(tmp_path / "theirs")).loaded, tokenizer=byte_level())
    if (why := refuse(loaded)) is not None:
        assert "has no JavaScript: export to onnx" in why
        return
    page = in_node(written(loaded, tmp_path / "page"))
    target = [1, 9, 8, 7, 6] if isinstance(loaded.model, EncoderDecoder) else None
    row = NetworkInput([3, 5, 7, 1, 9, 4, 6], target)
    assert_close(OwnModel(rounded(loaded, tmp_path, "float16")).outputs([row])[0], page.outputs([row])[0])
