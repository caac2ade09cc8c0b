"""trace: one input through a model, everything captured once and by the model's own modules."""

import pytest
import torch
from helpers.look_cases import imported

from heedful.errors import BadInput
from heedful.inside.look.attention import look
from heedful.inside.trace import Trace, trace

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
