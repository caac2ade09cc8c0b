"""A cache that grows: room is made ahead of need, and nobody can tell it from one that concatenates."""

import pytest
import torch
from helpers import tiny
from helpers.decoding_cases import EOS, FAMILIES, Case

from heedful.decode.beam import beam_search
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.greedy import greedy
from heedful.parts.cache import GrowingCache, GrowingLayer

B, G, K, L = 3, 2, 5, 4


def new(T=1, seed=0, B=B, L=L):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(B, G, T, K, generator=made), torch.randn(B, G, T, L, generator=made)


def fed(memory, *pieces):
    """One call: every layer appends the same."""
    for k, v in pieces:
        memory.begin(None, len(k), k.shape[2])
        found = [layer.append(k, v) for layer in memory.layers]
        memory.advance()
    return found[0]


def joined(*pieces):
    return tuple(torch.cat(some, 2) for some in zip(*pieces, strict=True))


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_what_is_appended_is_remembered_in_order():
    memory, pieces = GrowingCache(2), [new(T, T) for T in (3, 1, 1, 2, 1, 7, 1, 1, 1)]
    for n in range(1, len(pieces) + 1):
        assert equal(fed(memory, pieces[n - 1]), joined(*pieces[:n]))
        assert (
            equal(memory.layers[1].kv, joined(*pieces[:n])) and memory.size == joined(*pieces[:n])[0].shape[2]
        )


def test_most_tokens_are_written_without_copying_the_others():
    memory, copies, before = GrowingCache(1), 0, 0
    fed(memory, new(3))
    for _ in range(200):
        fed(memory, new())
        now = memory.layers[0].room[0].data_ptr()
        copies, before = copies + (now != before), now
    assert copies < 25


def test_a_call_that_fails_changes_nothing():
    memory, pieces = GrowingCache(2), [new(3, 1), new(1, 2), new(1, 3)]
    fed(memory, *pieces[:2])
    memory.begin(None, B, 1)
    memory.layers[0].append(*new(1, 9))  # and the second layer never comes to it
    assert equal(memory.layers[0].kv, joined(*pieces[:2])) and memory.size == 4
    assert equal(fed(memory, pieces[2]), joined(*pieces))


@pytest.mark.parametrize("L", [4, K])  # a spare buffer of keys can take values if they are as wide
@pytest.mark.parametrize("rows", [[2, 0, 1], [0, 0, 2], [1, 1], [0, 0, 1, 1, 2, 2]])
def test_rows_change_places_and_go_on(rows, L):
    memory, pieces = GrowingCache(2), [new(3, 1, L=L), new(1, 2, L=L)]
    fed(memory, *pieces)
    past = joined(*pieces)
    for seed in range(3):  # spare buffers come into use at the second and third
        at = torch.tensor(rows) % memory.lengths().shape[0]
        memory.reorder(at)
        more = new(1, seed, len(rows), L)
        past = joined([x[at] for x in past], more)
        assert equal(fed(memory, more), past) and equal(memory.layers[1].kv, past)


def test_rows_that_stay_are_not_copied():
    memory = GrowingCache(2)
    fed(memory, new(3), new())
    before = [layer.room for layer in memory.layers]
    memory.reorder(torch.arange(B))
    assert all(layer.room is room for layer, room in zip(memory.layers, before, strict=True))
    memory.reorder(torch.arange(B - 1))
    assert memory.layers[0].kv[0].shape[0] == B - 1


def test_what_others_gave_is_never_written_on():
    """Keys and values of a call, or put in by hand, may still be in use elsewhere."""
    given = new(6, 1, L=K)
    kept = tuple(x.clone() for x in given)
    memory = GrowingCache(1)
    memory.layers[0].kv = given
    memory.reorder(torch.tensor([1, 0, 2]))
    memory.reorder(torch.tensor([2, 0, 1]))
    assert equal(given, kept)
    memory.layers[0].kv = given
    memory.rewind(torch.tensor([4, 2, 4]))
    memory.layers[0].append(*new(1, 2, L=K))
    memory.advance()
    memory.reorder(torch.tensor([1, 0, 2]))
    assert equal(given, kept) and memory.size == 5


def test_gradients_flow_through_what_is_remembered():
    layer, pieces, total = GrowingLayer(), [new(2, 1), new(1, 2), new(1, 3)], 0
    for k, v in pieces:
        total = total + layer.append(k.requires_grad_(), v)[0].square().sum()
        layer.advance()
    total.backward()
    for times, (k, _) in zip((3, 2, 1), pieces, strict=True):
        torch.testing.assert_close(k.grad, 2 * times * k.detach())


def test_another_precision_is_not_squeezed_into_the_room_there_is():
    layer, first = GrowingLayer(), new(2, 1)
    layer.append(*(x.bfloat16() for x in first))
    layer.advance()
    found, _ = layer.append(*new(1, 2))
    assert found.dtype == torch.float32 and torch.equal(found[:, :, 2:], new(1, 2)[0])


@pytest.mark.parametrize("name", FAMILIES)
def test_models_write_the_same_as_without_a_cache(name):
    case = Case(name)
    ends = list(range(EOS, tiny.VOCAB, 6))
    ours, theirs = (
        greedy(step, case.prompts, case.lengths, longest=12, eos=ends)
        for step in (case.step(), case.forgetful())
    )
    assert [one.tokens for one in ours] == [one.tokens for one in theirs]
    settings = BeamSettings(width=3, n_best=2)
    ours, theirs = (
        beam_search(step, case.prompts, case.lengths, longest=[12, 3, 7], eos=ends, settings=settings)
        for step in (case.step(), case.forgetful())
    )
    assert [[h.tokens for h in some] for some in ours] == [[h.tokens for h in some] for some in theirs]
