"""trace: one input through a model, everything captured once and by the model's own modules."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import before_cases, caption_cases, long_cases, tiny
from helpers.look_cases import imported

from heedful.data.images.preprocessing import Preprocessing
from heedful.errors import BadInput
from heedful.inside.look.attention import look
from heedful.inside.trace import Trace, trace
from heedful.interop.loaded import Loaded
from heedful.models import vit

TEXT = "the cat sat on the mat"
FAMILIES = ("gpt2", "llama", "bert", "transformer")


@pytest.fixture(scope="module")
def loaded():
    return {name: imported(name) for name in FAMILIES}


@pytest.fixture(scope="module")
def traces(loaded):
    return {name: trace(one, TEXT) for name, one in loaded.items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_weights_are_those_that_look_shows_and_thumbnails_are_their_bytes(name, loaded, traces):
    seen = traces[name]
    for which, kind in seen.kinds.items():
        shown = look(loaded[name], TEXT, which=which)
        assert (shown.down, shown.across) == (kind.down, kind.across)
        thumbnails = seen.thumbnails(which)
        for head in shown.heads:
            weights = seen.weights(which, head.layer, head.head)
            assert (weights - head.weights_TS).abs().max() <= 2**-11
            assert seen.thumbnails(which).dtype is torch.uint8
            small = thumbnails[head.layer - 1, head.head - 1]
            if max(weights.shape) <= 32:
                assert (small.float() / 255 - weights).abs().max() <= 1 / 510 + 1e-6
        assert thumbnails.shape[:2] == (kind.layers, kind.heads)


def test_a_small_thumbnail_keeps_the_largest_weight(traces):
    small = traces["gpt2"].thumbnails("self", side=2)
    assert small.shape[2:] == (2, 2)
    assert (small[:, :, 0, 0] == 255).all()  # the first token sees itself only


@pytest.mark.parametrize("name", FAMILIES)
def test_the_streams_begin_with_the_embedding_and_lead_to_the_logits(name, loaded, traces):
    seen, model = traces[name], loaded[name].model
    assert 0 <= seen.agreement < 1e-4
    ids = torch.tensor([seen.words.ids])
    with torch.no_grad():
        if name == "bert":
            hidden = model.encoder.stack.norm(seen.stream("encoder", 2))
            logits = model.heads["masked_lm"](hidden, model.encoder.inputs)
            expected = model(ids)["masked_lm"][0]
            first = model.encoder.inputs(ids, torch.arange(ids.shape[1]))
            shell = "encoder"
        else:
            pair = name == "transformer"
            decoder = model.decoder if pair else model
            read = torch.tensor([seen.words.read]) if pair else ids
            hidden = decoder.stack.norm(seen.stream("decoder", len(decoder.stack.blocks)))
            logits = decoder.head(hidden, decoder.inputs.tokens)
            expected = (model(ids, read) if pair else model(ids))[0]
            first, shell = decoder.inputs(read, torch.arange(read.shape[1])), "decoder"
    torch.testing.assert_close(seen.stream(shell, 0), first[0])
    torch.testing.assert_close(seen.logits, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(seen.logits, logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_trace_comes_back_from_its_file(name, traces, tmp_path):
    seen = traces[name]
    seen.save(tmp_path / "a.safetensors", whole=True)
    back = Trace.load(tmp_path / "a.safetensors")
    assert (back.words, back.kinds, back.agreement) == (seen.words, seen.kinds, seen.agreement)
    assert back.provenance["weights_sha256"] == seen.provenance["weights_sha256"]
    which = next(iter(seen.kinds))
    assert torch.equal(back.weights(which, 2, 1), seen.weights(which, 2, 1))
    assert torch.equal(back.logits, seen.logits)
    assert back.steps(which, 1, 2, 1).as_json() == seen.steps(which, 1, 2, 1).as_json()
    assert torch.equal(back.sublayer(which, 2).after_TD, seen.sublayer(which, 2).after_TD)
    assert torch.equal(back.projections(which, 1, 2).W_v_LD, seen.projections(which, 1, 2).W_v_LD)


def test_a_file_without_steps_says_so(traces, tmp_path):
    traces["gpt2"].save(tmp_path / "a.safetensors")
    back = Trace.load(tmp_path / "a.safetensors")
    with pytest.raises(BadInput, match="whole=True"):
        back.steps("self", 1, 1, 1)
    (tmp_path / "b").write_text("no")
    with pytest.raises(BadInput, match="cannot be read as a trace"):
        Trace.load(tmp_path / "b")


def test_what_does_not_exist_is_refused(loaded, traces):
    seen = traces["gpt2"]
    with pytest.raises(BadInput, match='self-attention, not "cross"'):
        seen.weights("cross", 1, 1)
    with pytest.raises(BadInput, match="no layer 3: layers are counted from 1 to 2"):
        seen.weights("self", 3, 1)
    with pytest.raises(BadInput, match="no head 0: heads are counted from 1 to 3"):
        seen.weights("self", 1, 0)
    with pytest.raises(BadInput, match="this model has decoder"):
        seen.stream("encoder", 1)
    with pytest.raises(BadInput, match="from 0 to 2"):
        seen.stream("decoder", 3)
    with pytest.raises(BadInput, match="at most 3 are shown"):
        trace(loaded["gpt2"], TEXT, most=3)


# Other models


def loaded_of(entry, special=None):
    file, config = entry
    name = file.__name__.split(".")[-1]
    special = {"pad": 0, "bos": 1, "eos": 2, "decoder_start": 1} if special is None else special
    return Loaded(name, config, tiny.build(entry, torch.float32), None, special)


@pytest.mark.parametrize("name", ["bahdanau", "luong", "convs2s"])
def test_a_recurrent_model_shows_its_attention_and_says_why_no_stream(name, tmp_path):
    seen = trace(loaded_of(before_cases.EVERY[name]), "5 3 8 4 7", "6 7 8")
    assert list(seen.kinds) == ["cross"] and seen.agreement == 0
    steps = seen.steps("cross", 1, 1, 2)
    torch.testing.assert_close(steps.masked_S.softmax(-1), steps.weights_S)
    with pytest.raises(BadInput, match="no residual stream"):
        seen.stream("decoder", 0)
    with pytest.raises(BadInput, match="no residual block"):
        seen.sublayer("cross", 1)
    seen.save(tmp_path / "a", whole=True)
    assert Trace.load(tmp_path / "a").steps("cross", 1, 1, 2).as_json() == steps.as_json()


@pytest.mark.parametrize("name", ["lstm", "seq2seq"])
def test_a_model_without_attention_is_refused_in_a_sentence(name):
    with pytest.raises(BadInput, match=f"this {name} has no attention to look at"):
        trace(loaded_of(before_cases.EVERY[name]), "5 3 8 4 7")


def test_the_tokens_of_an_image_are_its_patches():
    pixels_HWC = np.random.default_rng(3).integers(0, 256, (12, 12, 3), np.uint8)
    seen = trace(loaded_of((vit, tiny.VIT), {}), pixels_HWC, preprocessing=Preprocessing())
    assert seen.kinds["self"].down == ["[CLS]", *(f"{row},{column}" for row in "123" for column in "123")]
    assert seen.weights("self", 2, 3).shape == (10, 10) and seen.logits.shape == (5,)
    assert seen.stream("encoder", 2).shape == (10, 12)
    torch.testing.assert_close(seen.weights("encoder", 1, 1), seen.weights("self", 1, 1))
    with pytest.raises(BadInput, match="reads images"):
        trace(loaded_of((vit, tiny.VIT), {}), "a text")


def test_the_words_of_a_caption_attend_to_patches():
    config = replace(caption_cases.CONFIG, source="grid")
    special = {"pad": 0, "bos": 1, "eos": 2, "decoder_start": 1}
    one = Loaded("captioner", config, caption_cases.built("grid").float().eval(), None, special)
    pixels_HWC = np.zeros((config.image_size, config.image_size, config.channels), np.uint8)
    seen = trace(one, pixels_HWC, "5 6 7", preprocessing=Preprocessing(channels=config.channels))
    assert seen.kinds["cross"].down == ["5", "6", "7", "2"] and seen.kinds["cross"].across[0] == "1,1"
    assert trace(one, pixels_HWC, preprocessing=Preprocessing(channels=config.channels)).words.answers


def test_compressed_keys_are_named_by_their_last_token(tmp_path):
    seen = trace(loaded_of(long_cases.LONG["compressed only"]), "5 3 8 4 7 9 2")
    assert seen.keys("self", 1) == ["5", "8", "9"] and seen.keys("self", 2) == seen.kinds["self"].across
    assert seen.weights("self", 1, 1).shape == (7, 3) and len(seen.steps("self", 1, 1, 7).keys) == 3
    assert "compressed" in seen.projections("self", 1, 1).changed
    assert seen.thumbnails("self").shape == (2, 3, 7, 7)
    seen.save(tmp_path / "a")
    assert Trace.load(tmp_path / "a").keys("self", 1) == ["5", "8", "9"]


def test_heads_may_have_masks_of_their_own():
    seen = trace(loaded_of(long_cases.LONG["strided, by head"]), "5 3 8 4 7 9 2 4 6")
    first, second = (seen.allowed("self", 1, head) for head in (1, 2))
    assert not torch.equal(first, second)
    assert torch.equal(seen.allowed("self", 1), first | second | seen.allowed("self", 1, 3))
    for head in (1, 2, 3):
        assert not seen.weights("self", 1, head)[~seen.allowed("self", 1, head)].any()


# Memory and threads


def test_a_trace_keeps_no_more_than_its_numbers(loaded, traces):
    """Weights at 2 bytes, the mask once, queries, keys, values, streams and logits at 4."""
    seen, c = traces["gpt2"], loaded["gpt2"].config
    T = len(seen.words.ids)
    qkv = 3 * c.layers * T * c.width * 4
    streams, logits = (c.layers + 1) * T * c.width * 4, T * c.vocab * 4
    assert seen.nbytes == c.layers * c.heads * T * T * 2 + T * T + qkv + streams + logits
    for layer in (1, 2, 1):
        seen.detail("self", layer)
    assert len(seen.details) <= 2


def test_large_logits_are_computed_again_when_they_are_needed(loaded, traces, monkeypatch):
    monkeypatch.setattr("heedful.inside.trace.KEPT_LOGITS", 7)
    seen = trace(loaded["gpt2"], TEXT)
    assert seen.outputs == {}
    assert torch.equal(seen.logits, traces["gpt2"].logits)


def test_traces_in_several_threads_do_not_mix(loaded, traces):
    texts = [TEXT, "a dog", "the fish ate the cat", "on the mat"]
    alone = [trace(loaded["gpt2"], text).stream("decoder", 2) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        together = [one.stream("decoder", 2) for one in pool.map(lambda t: trace(loaded["gpt2"], t), texts)]
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in loaded["gpt2"].model.modules())


def test_a_notebook_shows_all_heads(traces):
    picture = traces["transformer"]._repr_html_()
    assert "<svg" in picture and "layer 3, head 2" in picture
