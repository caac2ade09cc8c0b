"""Communication: the formulas beside a simulation that sends every message."""

import heapq
import itertools
import math

import pytest

from heedful.planner.communication import Group, group_of
from heedful.planner.machines import Latency, find_cluster, find_gpu

NONE = Latency(0.0, 0.0, 0.0)
SOME = Latency(5e-6, 2e-6, 11e-6)


def ring_seconds(group: Group, size: float, rounds: int) -> float:
    """All messages of a ring, one event each: a GPU passes a piece on once it has arrived, a link carries
    one piece at a time. Latency passes on the way, so that the next piece may already leave."""
    n = group.size

    def link(sender: int) -> tuple[float, float]:
        """(bytes/s, latency) to the next GPU; the last one of a machine reaches the next machine."""
        if (sender + 1) % group.per_machine == 0 and group.machines > 1:
            return group.network, group.latency.network
        return group.nvlink, group.latency.nvlink

    free, last, order = [0.0] * n, 0.0, itertools.count()
    waiting = [(0.0, next(order), gpu, rounds * (n - 1)) for gpu in range(n)]  # each begins with its piece
    while waiting:
        ready, _, gpu, left = heapq.heappop(waiting)
        bandwidth, latency = link(gpu)
        free[gpu] = max(ready, free[gpu]) + size / n / bandwidth
        last = max(last, free[gpu] + latency)
        if left > 1:
            heapq.heappush(waiting, (free[gpu] + latency, next(order), (gpu + 1) % n, left - 1))
    return last + group.latency.start


def tree_seconds(machines: int, size: float, bandwidth: float, latency: float, pieces: int) -> float:
    """Two binary trees that sum half of the bytes each and hand the sums down, piece by piece. What is an
    inner machine of one is a leaf of the other. A machine sends one piece and receives one at a time."""
    piece = size / 2 / pieces / bandwidth
    sent, came = [0.0] * machines, [0.0] * machines  # when a machine's cables are free again
    missing, waiting, done = {}, [], 0.0

    def place(tree: int, node: int) -> int:
        return machines - 1 - node if tree else node

    def children(node: int) -> list[int]:
        return [child for child in (2 * node + 1, 2 * node + 2) if child < machines]

    def arrives(tree: int, node: int, k: int, time: float) -> None:
        """Piece k is complete in a node: it goes up, or from the root down."""
        if node:
            heapq.heappush(waiting, (time, k, tree, node, (node - 1) // 2, "up"))
        else:
            hand_down(tree, node, k, time)

    def hand_down(tree: int, node: int, k: int, time: float) -> None:
        for child in children(node):
            heapq.heappush(waiting, (time, k, tree, node, child, "down"))

    for tree, node, k in itertools.product((0, 1), range(machines), range(pieces)):
        missing[tree, node, k] = len(children(node))
        if not children(node):
            arrives(tree, node, k, 0.0)
    while waiting:
        ready, k, tree, sender, receiver, way = heapq.heappop(waiting)
        a, b = place(tree, sender), place(tree, receiver)
        begin = max(ready, sent[a], came[b])
        if begin > ready:  # whoever can go earlier goes first
            heapq.heappush(waiting, (begin, k, tree, sender, receiver, way))
            continue
        sent[a] = came[b] = begin + piece
        time = begin + piece + latency
        done = max(done, time)
        if way == "down":
            hand_down(tree, receiver, k, time)
        else:
            missing[tree, receiver, k] -= 1
            if not missing[tree, receiver, k]:
                arrives(tree, receiver, k, time)
    return done


@pytest.mark.parametrize("n", [2, 3, 5, 8])
@pytest.mark.parametrize("size", [1e3, 1e6, 1e9])
@pytest.mark.parametrize("latency", [NONE, SOME])
def test_a_ring_in_one_machine_takes_what_its_messages_take(n, size, latency):
    group = Group(n, 1, 300e9, math.inf, latency)
    assert group.all_gather(size) == pytest.approx(ring_seconds(group, size, 1), rel=1e-9)
    assert group.reduce_scatter(size) == group.all_gather(size)
    assert group.ring(size, 2) == pytest.approx(ring_seconds(group, size, 2), rel=1e-9)


@pytest.mark.parametrize("machines", [2, 3, 7])
def test_a_ring_of_one_gpu_per_machine_takes_what_its_messages_take(machines):
    group = Group(1, machines, 300e9, 20e9, SOME)
    for rounds in (1, 2):
        assert group.ring(5e6, rounds) == pytest.approx(ring_seconds(group, 5e6, rounds), rel=1e-9)


@pytest.mark.parametrize(("per_machine", "machines"), [(4, 2), (3, 5), (8, 4)])
@pytest.mark.parametrize("rounds", [1, 2])
def test_in_a_mixed_ring_the_slowest_link_decides(per_machine, machines, rounds):
    group = Group(per_machine, machines, 300e9, 40e9, SOME)
    large, small = 1e9, 1e4
    assert group.ring(large, rounds) == pytest.approx(ring_seconds(group, large, rounds), rel=0.02)
    # A small message meets at most one hop between machines more than the formula counts, a round.
    rest = ring_seconds(group, small, rounds) - group.ring(small, rounds)
    assert -1e-9 - rounds * small / group.bandwidth <= rest <= rounds * group.latency.network


@pytest.mark.parametrize("machines", [7, 15, 31])
def test_a_tree_takes_about_what_its_messages_take(machines):
    group = Group(1, machines, 300e9, 25e9, SOME)
    large, small = 4e9, 1e3
    # The pieces of this simulation queue up a little; those of the formula flow through the busiest cable.
    assert 1 <= tree_seconds(machines, large, 25e9, 11e-6, 60) / group.tree(large) < 1.25
    assert group.tree(small) - SOME.start <= 2 * math.ceil(math.log2(machines)) * 11e-6 * 1.01
    assert group.tree(small) - SOME.start >= tree_seconds(machines, small, 25e9, 11e-6, 1)


# Bus bandwidth as nccl-tests measures it: bytes that a ring has to send, over the seconds that it takes.
PUBLISHED = [
    (
        "h100",
        8,
        1,
        None,
        "all_reduce",
        16e9,
        370e9,
    ),  # github.com/NVIDIA/nccl-tests/issues/212, a ring
    ("a100", 8, 3, "800", "all_reduce", 128e6, 96e9),  # github.com/NVIDIA/nccl-tests/issues/119, 4 x HDR
    ("h100", 8, 4, None, "reduce_scatter", 8e9, 360e9),  # github.com/NVIDIA/nccl/issues/1229
    ("h100", 8, 8, None, "reduce_scatter", 8e9, 345e9),
    ("h100", 8, 16, None, "reduce_scatter", 8e9, 320e9),
    ("h100", 8, 32, None, "reduce_scatter", 8e9, 300e9),
    ("h100", 8, 64, None, "reduce_scatter", 8e9, 280e9),
]


@pytest.mark.parametrize(
    ("gpu", "per_machine", "machines", "network", "kind", "size", "published"), PUBLISHED
)
def test_bandwidths_are_within_20_percent_of_published_ones(
    gpu, per_machine, machines, network, kind, size, published
):
    cluster = find_cluster(find_gpu(gpu), per_machine * machines, per_machine, network)
    group = group_of(cluster, per_machine, machines)
    rounds = 2 if kind == "all_reduce" else 1
    sent = rounds * (group.size - 1) / group.size * size
    assert sent / group.ring(size, rounds) == pytest.approx(published, rel=0.2)


def test_trees_are_for_small_messages_and_many_machines():
    many = Group(8, 128, 300e9, 200e9, SOME)
    assert many.all_reduce(1e5) == many.tree(1e5) < many.ring(1e5, 2) / 20
    few = Group(8, 1, 300e9, math.inf, SOME)
    assert few.all_reduce(1e9) == few.ring(1e9, 2) < few.tree(1e9)


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather():
    group = Group(8, 4, 300e9, 200e9, NONE)
    assert group.ring(1e9, 2) == pytest.approx(group.reduce_scatter(1e9) + group.all_gather(1e9))


def test_one_gpu_exchanges_nothing():
    group = Group(1, 1, 300e9, 200e9, SOME)
    assert group.all_gather(1e9) == group.all_reduce(1e9) == group.reduce_scatter(1e9) == 0


def test_groups_of_one_machine_share_its_network():
    cluster = find_cluster(find_gpu("a100"), 1024)
    alone, shared = group_of(cluster, 8, 128), group_of(cluster, 2, 128, groups=4)
    assert alone.network == 4 * shared.network < cluster.network
    assert alone.nvlink == shared.nvlink
