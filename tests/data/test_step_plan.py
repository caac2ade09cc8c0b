"""Plans: step N is a pure function of (seed, N), each row comes once an epoch, batches keep to their size."""

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heedful.data.plan import (
    BucketPlan,
    WindowPlan,
    bucket_bounds,
    feistel,
    keyed,
    permuted,
    permuted_array,
    share,
    splitmix,
)
from heedful.errors import BadInput

lengths_of_rows = st.lists(st.integers(0, 60), min_size=1, max_size=150)
seeds = st.integers(-(2**70), 2**70)


def epoch_of(plan, epoch):
    return [plan.batch(epoch * plan.batches + i) for i in range(plan.batches)]


# Permutations


@given(st.integers(1, 3000), seeds)
def test_a_permutation_is_one(n, key):
    assert sorted(permuted_array(np.arange(n), n, key).tolist()) == list(range(n))


@given(st.integers(1, 2**62), seeds, st.data())
def test_one_place_is_computed_as_many_are(n, key, data):
    places = data.draw(st.lists(st.integers(0, n - 1), max_size=5))
    found = permuted_array(np.array(places, np.int64), n, key)
    assert found.tolist() == [permuted(i, n, key) for i in places]
    assert len(set(found.tolist())) == len(set(places)) and all(0 <= i < n for i in found)


def test_the_hash_is_splitmix64():
    """The first numbers of the published generator with seed 1234567."""
    golden = 0x9E3779B97F4A7C15
    found = [splitmix((1234567 + turn * golden) % 2**64) for turn in range(3)]
    assert found == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert splitmix(np.array([1234567], np.uint64)).tolist() == found[:1]


def test_a_feistel_network_can_be_undone():
    side, keys = 37, [keyed(5, turn) for turn in range(8)]

    def undone(x):
        row, column = divmod(x, side)
        for key in reversed(keys):
            row, column = (column - splitmix(row ^ key)) % side, row
        return row * side + column

    assert [undone(feistel(x, side, keys)) for x in range(side**2)] == list(range(side**2))


@pytest.mark.parametrize("n", [3, 4])
def test_every_permutation_of_few_is_about_equally_likely(n):
    orders = {3: 6, 4: 24}[n]
    times = 100 * orders
    found = Counter(tuple(permuted(i, n, key) for i in range(n)) for key in range(times))
    chi_square = sum((count - 100) ** 2 / 100 for count in found.values())
    assert len(found) == orders
    assert chi_square < orders + 5 * (2 * orders) ** 0.5  # five standard deviations


@pytest.mark.parametrize("n", [300, 5000])
def test_places_of_many_look_random(n):
    """As many fixed points, neighbors that stay neighbors, and as much displacement as chance would give."""
    keys = range(40)
    found = np.stack([permuted_array(np.arange(n), n, key) for key in keys])
    assert abs(np.abs(found - np.arange(n)).mean() / (n / 3) - 1) < 0.03
    assert (found == np.arange(n)).sum(axis=1).mean() < 3  # 1 is expected
    assert (np.diff(found, axis=1) == 1).sum(axis=1).mean() < 3  # so here
    assert (found[0] == found[1:]).sum(axis=1).mean() < 3  # and between keys
    counts = np.stack([np.bincount(row[: n // 2] * 10 // n, minlength=10) for row in found])
    assert ((counts - n / 20) ** 2 / (n / 20)).sum() < 10 * len(
        keys
    ) * 0.8  # 9 * 0.5 each, without replacement


def test_keys_depend_on_every_number_and_their_order():
    keys = {keyed(a, b, c) for a in range(-3, 5) for b in range(8) for c in range(8)}
    assert len(keys) == 8**3
    assert keyed(1, 2) != keyed(2, 1) and keyed(0) != keyed(0, 0)


def test_places_outside_are_refused():
    for i in (-1, 5):
        with pytest.raises(IndexError, match="of 5"):
            permuted(i, 5, 0)
        with pytest.raises(IndexError, match="of 5"):
            permuted_array(np.array([0, i]), 5, 0)


# Buckets


@example([1], 9, 0, 0, 0)
@given(lengths_of_rows, st.integers(1, 200), seeds, st.integers(0, 70), st.integers(0, 3))
def test_every_row_comes_exactly_once_an_epoch(lengths, max_tokens, seed, longest, epoch):
    lengths = np.array(lengths)
    wanted = np.flatnonzero(lengths <= longest).tolist()
    if not wanted:
        with pytest.raises(BadInput, match=f"{len(lengths)} of {len(lengths)} are over {longest} tokens"):
            BucketPlan(lengths, max_tokens, seed, longest)
        return
    plan = BucketPlan(lengths, max_tokens, seed, longest)
    batches = epoch_of(plan, epoch)
    assert sorted(np.concatenate(batches).tolist()) == wanted
    assert plan.left_out == len(lengths) - len(wanted)
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= max_tokens
        assert len(batch) >= 1


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=100),
    st.integers(40, 300),
)
def test_the_longer_side_of_a_pair_counts(pairs, max_tokens):
    sides = [np.array(side) for side in zip((1, 30), *pairs, strict=True)]
    plan = BucketPlan(sides, max_tokens, 3, 30)
    batches = epoch_of(plan, 0)
    for batch in batches:
        assert max(len(batch) * side[batch].max() for side in sides) <= max_tokens
    assert sorted(np.concatenate(batches).tolist()) == np.flatnonzero(np.maximum(*sides) <= 30).tolist()


def test_a_batch_is_full_unless_its_bucket_ends():
    lengths = np.repeat([7, 20], [95, 33])
    plan = BucketPlan(lengths, 70, 1, 20)
    sizes = Counter((int(lengths[batch[0]]), len(batch)) for batch in epoch_of(plan, 0))
    assert sizes == {(7, 10): 9, (7, 5): 1, (20, 3): 11}
    assert plan.batches == 21


def test_steps_are_known_without_the_steps_before():
    """Pinned: another order would make a resumed run another run."""
    plan = BucketPlan(np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7]), 18, 7, 8)
    found = [plan.batch(step).tolist() for step in (0, 1, 5, 8, 10**12)]
    assert found == PINNED_BUCKETS
    again = subprocess.run([sys.executable, "-c", AGAIN], capture_output=True, text=True, check=True)
    assert again.stdout == f"{PINNED_BUCKETS[-1]} {PINNED_WINDOWS[-1]}\n"


AGAIN = """
import numpy as np
from heedful.data.plan import BucketPlan, WindowPlan
plan = BucketPlan(np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7], np.uint8), 18, 7, 8)
print(plan.batch(10**12).tolist(), WindowPlan(10**6, 7, 3, 5).batch(10**12).tolist())
"""
PINNED_BUCKETS = [[3, 1], [11], [6], [8, 4, 10], [11]]
PINNED_WINDOWS = [[745796, 101292, 541046], [892329, 516310, 432149]]


@pytest.mark.parametrize("seed, other", [(1, 2), (0, -1), (3, 3 + 2**32)])
def test_epochs_and_seeds_differ(seed, other):
    lengths = np.random.default_rng(0).integers(1, 30, 400)
    plan, plan_again, another = (BucketPlan(lengths, 60, s, 30) for s in (seed, seed, other))
    first, second = epoch_of(plan, 0), epoch_of(plan, 1)

    def together(batches):
        return {frozenset(batch.tolist()) for batch in batches if len(batch) > 1}

    assert [b.tolist() for b in first] == [b.tolist() for b in epoch_of(plan_again, 0)]
    for others in (second, epoch_of(another, 0)):
        assert len(together(first) & together(others)) < 0.1 * len(
            together(first)
        )  # other rows share a batch
        order = [int(lengths[batch].max()) for batch in first]
        assert order != [int(lengths[batch].max()) for batch in others]  # and batches come in another order


def test_batches_of_all_lengths_are_mixed():
    lengths = np.arange(1000) % 50 + 1
    first = np.concatenate(epoch_of(BucketPlan(lengths, 200, 4, 50), 0)[:50])
    assert 15 < lengths[first].mean() < 36


def test_bounds_grow_by_a_seventh():
    bounds = bucket_bounds(1000)
    assert bounds[:14].tolist() == list(range(1, 15)) and bounds[-1] == 1000
    growth = bounds[1:] / bounds[:-1]
    assert (growth[13:-1] > 1.05).all() and (growth[13:] <= 1.16).all() and len(bounds) < 60
    assert bucket_bounds(1).tolist() == [1] and bucket_bounds(3).tolist() == [1, 2, 3]


def test_padding_is_what_an_epoch_has():
    rng = np.random.default_rng(1)
    source = rng.integers(1, 60, 3000)
    target = np.clip(source + rng.integers(-4, 5, 3000), 1, None)
    plan = BucketPlan([source, target], 300, 1, 70)
    padded = sum(len(b) * side[b].max() for b in epoch_of(plan, 0) for side in (source, target))
    exact = 1 - (source.sum() + target.sum()) / padded
    assert plan.padding() == pytest.approx(exact, abs=0.02)
    assert 0.01 < plan.padding() < 0.2
    assert BucketPlan(np.full(9, 5), 20, 1, 9).padding() == 0


def test_lengths_that_cannot_be_are_refused():
    with pytest.raises(BadInput, match="3 sources and 2 targets"):
        BucketPlan([np.ones(3, int), np.ones(2, int)], 9, 0, 9)
    with pytest.raises(BadInput, match="row 1 has length -4"):
        BucketPlan(np.array([1, -4]), 9, 0, 9)
    with pytest.raises(BadInput, match="max_tokens = 0"):
        BucketPlan(np.ones(3, int), 0, 0, 9)
    with pytest.raises(BadInput, match="0 of 0"):
        BucketPlan(np.array([], int), 9, 0, 9)
    for plan in (BucketPlan(np.ones(3, int), 9, 0, 9), WindowPlan(9, 2, 2, 0)):
        with pytest.raises(IndexError, match="not -1"):
            plan.batch(-1)


# Windows


@given(st.integers(2, 500), st.integers(1, 60), st.integers(1, 20), seeds, st.integers(0, 5))
def test_windows_lie_in_the_text_and_no_token_is_predicted_twice(tokens, length, rows, seed, epoch):
    if tokens <= length:
        with pytest.raises(BadInput, match=f"{tokens} tokens, too few for a window of {length}"):
            WindowPlan(tokens, length, rows, seed)
        return
    plan = WindowPlan(tokens, length, rows, seed)
    batches = epoch_of(plan, epoch)
    starts = np.concatenate(batches)
    predicted = (starts[:, None] + 1 + np.arange(length)).ravel()
    assert len(set(predicted.tolist())) == len(predicted)
    assert starts.min() >= 0 and predicted.max() < tokens
    assert {len(batch) for batch in batches} == {plan.rows} and plan.rows <= rows


def test_windows_cover_nearly_all_and_edges_move():
    plan = WindowPlan(10_000, 64, 8, 3)
    starts = [np.concatenate(epoch_of(plan, epoch)) for epoch in range(30)]
    assert all(len(s) * 64 > 10_000 - 64 * 10 for s in starts)
    assert len({int(s.min()) % 64 for s in starts}) > 15  # another grid each epoch
    assert not np.array_equal(np.argsort(starts[0]), np.argsort(starts[1]))
    seen = np.zeros(10_000, int)
    for s in starts:
        seen[(s[:, None] + 1 + np.arange(64)).ravel()] += 1
    assert (seen[64:-160] > 20).all() and (seen[1:-20] > 0).all()  # nothing is always left out


def test_windows_are_known_without_the_steps_before():
    plan = WindowPlan(10**6, 7, 3, 5)
    assert (plan.batches, plan.windows) == (47_618, 142_856)
    assert [plan.batch(step).tolist() for step in (0, 10**12)] == PINNED_WINDOWS


def test_a_short_text_still_has_a_batch():
    plan = WindowPlan(12, 10, 8, 0)
    assert plan.batches == 1 and {int(plan.batch(step)[0]) for step in range(20)} == {0, 1}
    with pytest.raises(BadInput, match="not 0 of 10"):
        WindowPlan(100, 10, 0, 0)


# Parts


@settings(max_examples=200)
@given(st.integers(0, 40), st.integers(1, 9), st.integers(1, 6))
def test_parts_are_contiguous_near_equal_and_together_the_whole(count, world, micros):
    ids = np.arange(100, 100 + count)
    parts = [share(ids, rank, world, micro, micros) for rank in range(world) for micro in range(micros)]
    assert np.concatenate(parts).tolist() == ids.tolist()
    sizes = {len(part) for part in parts}
    assert max(sizes) - min(sizes) <= 1


def test_a_part_that_does_not_exist_is_refused():
    for rank, world, micro, micros in ((2, 2, 0, 1), (-1, 2, 0, 1), (0, 2, 3, 3), (0, 0, 0, 0)):
        with pytest.raises(IndexError, match=f"rank {rank} of {world}"):
            share(np.arange(3), rank, world, micro, micros)
