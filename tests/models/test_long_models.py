"""Models for long texts: what holds for every decoder holds for these, whatever their caches and masks."""

import math

import pytest
import torch
import torch.nn.functional as F
from helpers import tiny
from helpers.invariant_cases import B, T, close, tokens
from helpers.long_cases import ALL, LONG
from helpers.tensor_names import told  # noqa: F401 (fixtures)
from models import test_invariants as invariants
from torch.utils.flop_counter import FlopCounterMode

from heedful.inside.costs import costs, count_parameters
from heedful.models import dmca, linear, sparse, xl
from heedful.parts.long.segments import SegmentMemory
from heedful.parts.places import Lengths, Packed
from heedful.parts.watch import watch

every = pytest.mark.parametrize("name", ALL)


@pytest.fixture(autouse=True)
def _these(monkeypatch):
    monkeypatch.setattr(tiny, "DECODERS", ALL)
    torch.manual_seed(5)


@every
def test_the_future_does_not_leak(name):
    model = tiny.build(ALL[name])
    n = 19
    leaks = invariants.future_leaks(model, model, tokens(1, n))
    assert not leaks.triu(1).any() and leaks.diagonal().all()
    if name in LONG and name != "strided, by head" and name != "t-dmca":
        assert torch.equal(leaks, torch.ones(n, n).tril().bool()) or name == "t-dmca, tensor2tensor"


@every
@pytest.mark.parametrize("side", ["left", "right", "right by lengths"])
def test_padding_changes_nothing(name, side):
    invariants.test_padding_changes_nothing_in_a_decoder(name, side)


@every
def test_a_batch_equals_its_rows_one_by_one(name):
    invariants.test_a_batch_equals_its_rows_one_by_one(name)


@every
@pytest.mark.parametrize("pieces", [[1] * T, [3, 1, 1, 2], [T]])
def test_cached_equals_uncached(name, pieces):
    invariants.test_cached_equals_uncached_in_a_decoder(name, "growing", pieces)


@every
@pytest.mark.parametrize("side", ["left", "right"])
def test_unequal_prompts_continue_as_if_alone(name, side):
    invariants.test_unequal_prompts_continue_as_if_alone(name, "growing", side)


@every
def test_reordered_and_rewound_caches_continue_from_there(name):
    invariants.test_reordered_and_rewound_caches_continue_from_there(name, "growing")


@every
def test_a_failed_call_leaves_the_cache_as_it_was(name):
    invariants.test_a_failed_call_leaves_the_cache_as_it_was(name, "growing")


@every
def test_packed_documents_equal_separate_ones(name):
    invariants.test_packed_documents_equal_separate_ones(name)


def hidden_by_layer(model, ids, **more):
    """What every block hands on."""
    found = []
    hooks = [
        block.register_forward_hook(lambda _, __, out: found.append(out)) for block in model.stack.blocks
    ]
    model.hidden(ids, **more)
    for hook in hooks:
        hook.remove()
    return found


@pytest.mark.parametrize("name", ["xl", "xl, clamped"])
def test_segments_with_a_memory_of_everything_are_one_long_segment_in_every_layer(name):
    model, ids = tiny.build(ALL[name]), tokens(B, 17)
    whole, memory, parts = hidden_by_layer(model, ids), SegmentMemory(len(model.stack.blocks), 40), []
    for piece in ids.split([5, 4, 1, 7], dim=1):
        parts.append(hidden_by_layer(model, piece, cache=memory))
        memory = memory.after()
    for layer, expected in enumerate(whole):
        close(torch.cat([part[layer] for part in parts], dim=1), expected)
    short = SegmentMemory(len(model.stack.blocks), 2)
    model.hidden(ids[:, :5], cache=short)
    assert not torch.equal(hidden_by_layer(model, ids[:, 5:], cache=short.after())[-1], whole[-1][:, 5:])


def test_only_gradients_differ_between_segments_and_one_long_one():
    model, ids = tiny.build(ALL["xl"]), tokens(B, 9)
    model.hidden(ids)[:, 5:].square().sum().backward()
    whole = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    memory = SegmentMemory(len(model.stack.blocks), 9)
    model.hidden(ids[:, :5], cache=memory)
    model.hidden(ids[:, 5:], cache=memory.after()).square().sum().backward()
    last = "stack.blocks.1.feed_forward.layer.up.weight"
    for name, weight in model.named_parameters():
        if name == last:
            close(weight.grad, whole[name])
    assert not torch.allclose(model.inputs.tokens.weight.grad, whole["inputs.tokens.weight"])


def test_a_memory_can_be_recomputed_through():
    model, ids = tiny.build(ALL["xl"]), tokens(B, 9)
    found = []
    for recompute in (False, True):
        model.stack.recompute = recompute
        model.zero_grad()
        memory = SegmentMemory(len(model.stack.blocks), 4)
        model.hidden(ids[:, :5], cache=memory)
        after = memory.after()
        model.hidden(ids[:, 5:], cache=after).square().sum().backward()
        found.append(([weight.grad.clone() for weight in model.parameters()], after.states()))
    close(found[1], found[0])


def test_u_and_v_are_shared_by_all_layers():
    model = tiny.build(ALL["xl"])
    names = [name for name, _ in model.named_parameters() if name.endswith(("u_HK", "v_HK"))]
    assert len(names) == 2


@every
def test_every_model_is_watched_and_its_weights_sum_to_one(name):
    model, ids = tiny.build(ALL[name]), tokens(1, 40 if model_takes_forty(name) else 31)
    expected = model(ids)
    with watch(model) as trace:
        close(model(ids), expected)
    weights = trace.weights()
    assert len(weights) == len(model.stack.blocks)
    for table in weights.values():
        sums = table.sum(-1)
        close(sums[sums > 0], torch.ones_like(sums[sums > 0]))


def model_takes_forty(name):
    return ALL[name][0] is not sparse


@pytest.mark.parametrize("name", ["window", "local", "t-dmca", "linear", "xl", "fixed, merged"])
def test_long_rows_are_read_token_by_token_as_they_are_read_at_once(name, monkeypatch):
    """Long enough for every cache to forget, and for gathering to pay."""
    from heedful.parts.long import compressed
    from heedful.parts.long import linear as linear_attention
    from heedful.parts.long import windowed_cache as remember

    for module in (remember, compressed, linear_attention):
        monkeypatch.setattr(module, "SLACK", 3)
    file, config = ALL[name]
    model = tiny.build((file, type(config)(**{**vars(config), "context": 90})))
    ids, cache = tokens(2, 80), model.growing_cache()
    with torch.no_grad():
        pieces = [model(piece, cache=cache) for piece in ids.split([9] + [1] * 71, dim=1)]
        close(torch.cat(pieces, dim=1), model(ids))


# Fresh models, and what they cost.

FRESH = {"vocab": 1000, "context": 64, "width": 48, "heads": 4, "ffn_width": 80, "layers": 4, "dropout": 0.0}
MAKERS = {
    "xl": lambda: xl.build(xl.XLConfig(**FRESH)),
    "sparse": lambda: sparse.build(sparse.SparseConfig(**FRESH, stride=8, summary_length=2)),
    "window": lambda: sparse.build(
        sparse.SparseConfig(**FRESH, pattern="window", stride=8, summary_length=2)
    ),
    "t-dmca": lambda: dmca.build(dmca.DMCAConfig(**FRESH, block=16)),
    "t-dmca, pre-norm": lambda: dmca.build(dmca.DMCAConfig(**FRESH, block=16, norm="pre", compress="input")),
    "linear": lambda: linear.build(linear.LinearConfig(**FRESH)),
}
fresh = pytest.mark.parametrize("name", MAKERS)


@fresh
def test_a_fresh_model_guesses(name):
    scores = MAKERS[name]()(tokens(4, 64, vocab=1000)).flatten(0, 1).detach()
    loss = F.cross_entropy(scores, tokens(4 * 64, vocab=1000))
    assert abs(float(loss) - math.log(1000)) < 0.1


@fresh
def test_it_learns_one_batch_by_heart(name):
    model, ids = MAKERS[name](), tokens(2, 20, vocab=1000)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(60):
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.5


@pytest.mark.parametrize("name", ["sparse", "window"])
def test_what_adds_to_the_residual_starts_smaller_the_deeper_the_model(name):
    model = MAKERS[name]()
    inner = "inner." if name == "window" else ""
    for i in range(4):
        block = model.stack.blocks[i]
        for path in (f"attention.layer.{inner}out", "feed_forward.layer.down"):
            assert float(block.get_submodule(path).weight.detach().std()) == pytest.approx(
                0.02 / math.sqrt(8), rel=0.1
            )
        assert float(block.feed_forward.layer.up.weight.detach().std()) == pytest.approx(0.02, rel=0.1)


@fresh
def test_costs_are_those_that_torch_counts(name):
    """Watched where a mask leaves scores out, which still count, and as it runs where sums replace scores."""
    model, ids = MAKERS[name](), tokens(2, 64, vocab=1000)
    found = costs(model, 2, 64)
    with FlopCounterMode(display=False) as counter:
        if name == "linear":
            model(ids)
        else:
            with watch(model):
                model(ids)
    assert found.whole.flops == counter.get_total_flops()
    assert found.parameters == count_parameters(model)


def test_what_is_kept_while_writing_is_less():
    def cache(name, length):
        return costs(MAKERS[name](), 1, length).memory["cache"] / 4

    plain = 2 * 48  # keys and values of one token
    assert cache("xl", 64) == 4 * 64 * plain
    assert cache("window", 64) == 4 * 8 * plain
    assert cache("t-dmca", 60) == (2 * 16 + 2 * (1 + 20)) * plain
    assert cache("t-dmca, pre-norm", 60) == 2 * 16 * plain + 2 * (1 + 20) * 48  # the input, once
    assert cache("linear", 64) == cache("linear", 6) == 4 * 4 * 12 * 13


def test_tensor_names_tell_the_truth(told):
    found, heard = told
    documents = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]])
    for entry in ALL.values():
        model, ids, lengths = tiny.build(entry), tokens(2, 5), torch.tensor([5, 3])
        with watch(model):
            model(ids, Lengths(lengths))
        model(tokens(2, 29))
        model(ids, Packed(documents))
        cache = model.growing_cache()
        model(ids, Lengths(lengths), cache=cache)
        cache.reorder(torch.tensor([1, 0]))
        cache.rewind(torch.tensor([2, 3]))
        model(ids[:, :2], cache=cache)
    memory = SegmentMemory(len(tiny.build(ALL["xl"]).stack.blocks), 3)
    tiny.build(ALL["xl"])(ids, cache=memory)
    tiny.build(ALL["xl"])(ids, cache=memory.after())
    assert found == []
    assert {"attend_laid_out", "RunningSumsLayer.extend", "filled", "SegmentLayer.extended"} <= heard
