"""watch: the real weights of the real model, and no trace of it when it is off."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from helpers import before_cases, tiny

from heedful import watch
from heedful.decode.greedy import greedy_translation
from heedful.models.base.shells import EncoderDecoder
from heedful.parts.attention import attention_weights
from heedful.parts.masks import causal
from heedful.parts.multihead import MultiHeadAttention
from heedful.parts.places import Lengths
from heedful.parts.view import View
from heedful.parts.watch import is_watched

B, S, T = 2, 7, 5
EVERY = {**tiny.DECODERS, **tiny.ENCODER_DECODERS, **tiny.ENCODERS}


def run(model, T=T):
    torch.manual_seed(2)
    ids, source = torch.randint(17, (B, T)), torch.randint(17, (B, S))
    if isinstance(model, EncoderDecoder):
        return model(source, ids, Lengths(torch.tensor([7, 3])), Lengths(torch.tensor([5, 2])))
    return model(ids, Lengths(torch.tensor([5, 2])))


def attributes(model) -> list[set[str]]:
    return [set(module.__dict__) for module in model.modules()]


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
    plain, before = attributes(model), run(model)
    with pytest.raises(RuntimeError, match="inside"), watch(model):
        assert attributes(model) == plain
        raise RuntimeError("inside")
    assert attributes(model) == plain
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


def test_weights_can_be_changed_and_are_recorded_as_they_were_used():
    """A head that looks at the first token only takes home that token's value."""
    torch.manual_seed(4)
    layer, x = MultiHeadAttention(12, 3), torch.randn(B, T, 12)

    def first_only(path, weights):
        assert path == ""
        return torch.zeros_like(weights).index_fill(-1, torch.tensor(0), 1.0)

    plain = layer(x)
    with watch(layer, change=first_only) as trace:
        changed = layer(x)
    expected = layer.out(layer.value(x)[:, :1]).expand(B, T, 12)
    torch.testing.assert_close(changed, expected)
    assert torch.equal(trace[""].weights[0], first_only("", trace[""].weights[0]))
    assert torch.equal(layer(x), plain)


def test_of_nested_watches_the_outer_one_sees_what_the_inner_one_changed():
    layer, x = MultiHeadAttention(12, 3), torch.randn(B, T, 12)
    with watch(layer, change=lambda path, weights: weights + 1) as outer:
        with watch(layer, change=lambda path, weights: weights * 0) as inner:
            layer(x)
        layer(x)
    assert (inner[""].weights[0] == 0).all() and (outer[""].weights[0] == 1).all()
    assert (outer[""].weights[1] > 1).all() and len(inner[""].weights) == 1


@pytest.mark.parametrize("name", before_cases.ATTENDING)
def test_weights_of_recurrent_decoders_can_be_changed(name):
    """Their words are computed one by one; what is recorded is what they used."""
    model = before_cases.build(name).eval()
    source, target = torch.randint(17, (B, S)), torch.randint(17, (B, T))
    plain = model(source, target)
    with watch(model, change=lambda path, weights: torch.ones_like(weights) / S) as trace:
        changed = model(source, target)
    for record in trace.values():
        (weights,) = record.weights
        assert weights.shape == (B, 1, T, S) and (weights == 1 / S).all()
    assert not torch.equal(changed, plain) and torch.equal(model(source, target), plain)


def test_threads_translate_and_look_at_one_model_at_once():
    """Four threads translate, four look and change; each gets what it gets alone."""
    model = tiny.build(tiny.ENCODER_DECODERS["transformer"], torch.float32).eval()
    torch.manual_seed(2)
    source, lengths, target = torch.randint(3, 17, (2, S)), torch.tensor([7, 3]), torch.randint(17, (2, T))
    plain, kinds = attributes(model), [type(module) for module in model.modules()]

    def translate():
        with torch.no_grad():
            return greedy_translation(model, source, lengths, bos=1, eos=2, longest=4)

    def look(change=None):
        with torch.no_grad(), watch(model, change=change) as trace:
            scores = model(source, target, Lengths(lengths))
        calls = {len(record.weights) for record in trace.values()}
        return [scores, *trace.weights().values(), torch.tensor(sorted(calls))]

    def even(path, weights):
        return torch.full_like(weights, 1 / weights.shape[-1])

    works = {"translate": translate, "look": look, "change": lambda: look(even)}
    alone = {name: work() for name, work in works.items()}
    assert not torch.equal(alone["look"][0], alone["change"][0])

    def repeat(name):
        torch.set_num_threads(1)
        found = [works[name]() for _ in range(125)]
        same = (lambda a, b: a == b) if name == "translate" else (lambda a, b: all(map(torch.equal, a, b)))
        return sum(same(one, alone[name]) for one in found)

    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(repeat, name) for name in ["translate"] * 4 + ["look", "change"] * 2]
        assert [job.result() for job in jobs] == [125] * 8
    assert attributes(model) == plain and [type(module) for module in model.modules()] == kinds


def test_watches_that_overlap_in_two_threads_leave_compiled_code_compiled():
    """torch's stance is one for all threads: whoever ends last restores it."""
    from torch._dynamo import eval_frame

    layer = MultiHeadAttention(12, 3)
    with ThreadPoolExecutor(1) as pool:
        one, other = watch(layer), watch(layer)
        one.__enter__()
        pool.submit(other.__enter__).result()
        one.__exit__(None, None, None)
        assert eval_frame._stance.stance == "force_eager" and not is_watched(layer)
        pool.submit(other.__exit__, None, None, None).result()
    assert eval_frame._stance.stance == "default"
