"""watch: the real weights of the real model, and no trace of it when it is off."""

import pytest
import torch
from helpers import tiny

from heedful import watch
from heedful.models.base.shells import EncoderDecoder
from heedful.parts.attention import attention_weights
from heedful.parts.masks import causal
from heedful.parts.multihead import MultiHeadAttention
from heedful.parts.places import Lengths
from heedful.parts.view import View

B, S, T = 2, 7, 5
EVERY = {**tiny.DECODERS, **tiny.ENCODER_DECODERS, **tiny.ENCODERS}


def run(model, T=T):
    torch.manual_seed(2)
    ids, source = torch.randint(17, (B, T)), torch.randint(17, (B, S))
    if isinstance(model, EncoderDecoder):
        return model(source, ids, Lengths(torch.tensor([7, 3])), Lengths(torch.tensor([5, 2])))
    return model(ids, Lengths(torch.tensor([5, 2])))


def flat(out) -> torch.Tensor:
    return torch.cat([t.flatten() for t in out.values()]) if isinstance(out, dict) else out


@pytest.mark.parametrize("name", EVERY)
def test_watching_changes_nothing_and_records_every_attention(name):
    model = tiny.build(EVERY[name])
    before = flat(run(model))
    with watch(model) as trace:
        during = flat(run(model))
    torch.testing.assert_close(during, before, atol=1e-12, rtol=0)
    assert torch.equal(flat(run(model)), before)
    paths = [path for path, module in model.named_modules() if isinstance(module, MultiHeadAttention)]
    assert list(trace) == paths
    for path, weights in trace.weights().items():
        attention = model.get_submodule(path)
        length = (
            S
            if "cross" in path or path.startswith("encoder.stack") and isinstance(model, EncoderDecoder)
            else T
        )
        assert weights.shape[:2] == (B, attention.heads) and weights.shape[-1] == length
        sums = weights.sum(-1)
        assert ((sums - 1).abs() < 1e-12).logical_or(sums == 0).all()


def test_recorded_weights_are_the_formulas():
    torch.manual_seed(4)
    layer = MultiHeadAttention(12, 3)
    x, view = torch.randn(B, T, 12), View(causal(), T, T)
    with watch(layer, also=("q", "k", "v", "scores")) as trace:
        out = layer(x, view)
    record = trace[""]
    expected = attention_weights(record.q[0], record.k[0], view)
    assert (record.weights[0] - expected).abs().max() < 1e-6
    torch.testing.assert_close(record.scores[0], record.q[0] @ record.k[0].mT / 2)
    mixed = (record.weights[0] @ record.v[0]).transpose(1, 2).flatten(2)
    torch.testing.assert_close(layer.out(mixed), out)
    by_hand = layer.query(x).view(B, T, 3, 4).transpose(1, 2)
    assert torch.equal(record.q[0], by_hand)


def test_generation_is_recorded_step_by_step():
    model = tiny.build(tiny.DECODERS["gpt2"])
    cache = model.growing_cache()
    with watch(model) as trace:
        for token in torch.randint(17, (4, 1, 1)):
            model(token, cache=cache)
    steps = trace["stack.blocks.1.attention.layer"].weights
    assert [tuple(w.shape) for w in steps] == [(1, 3, 1, n) for n in (1, 2, 3, 4)]


def test_weights_are_recorded_before_dropout_and_training_goes_on():
    layer = MultiHeadAttention(12, 3, dropout=0.5).train()
    x = torch.randn(B, T, 12, requires_grad=True)
    with watch(layer) as trace:
        layer(x).sum().backward()
    torch.testing.assert_close(trace[""].weights[0].sum(-1), torch.ones(B, 3, T))
    assert x.grad is not None and not trace[""].weights[0].requires_grad


def test_an_error_inside_leaves_the_model_as_it_was():
    model = tiny.build(tiny.DECODERS["gpt2"])
    before = run(model)
    with pytest.raises(RuntimeError, match="inside"), watch(model):
        raise RuntimeError("inside")
    assert all("attend" not in m.__dict__ for m in model.modules())
    assert torch.equal(run(model), before)


def test_two_watches_may_be_nested():
    model = tiny.build(tiny.DECODERS["gpt2"])
    with watch(model) as outer:
        run(model)
        with watch(model) as inner:
            run(model)
        run(model)
    path = "stack.blocks.0.attention.layer"
    assert (len(outer[path].weights), len(inner[path].weights)) == (3, 1)


def test_unknown_kinds_and_models_without_attention_are_refused():
    with (
        pytest.raises(ValueError, match='not "wieghts"'),
        watch(MultiHeadAttention(12, 3), also=("wieghts",)),
    ):
        pass
    with pytest.raises(ValueError, match="no attention to watch in Linear"), watch(torch.nn.Linear(2, 2)):
        pass


def test_a_compiled_model_is_watched_and_its_graph_is_untouched():
    """One graph, no break, the same after watching as before; while watched it runs eagerly and is seen."""
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    model = tiny.build(tiny.DECODERS["gpt2"], torch.float32)
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    eager = run(model)
    torch.testing.assert_close(run(compiled), eager)
    assert counter.frame_count == 1
    nodes = counter.op_count
    with watch(compiled) as trace:
        torch.testing.assert_close(run(compiled), eager)
    assert len(trace["stack.blocks.0.attention.layer"].weights) == 1
    torch.testing.assert_close(run(compiled), eager)
    assert (counter.frame_count, counter.op_count) == (1, nodes)
    torch._dynamo.reset()
