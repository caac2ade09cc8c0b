"""The timeline of a step: beside a simulation of two lines of work, and at its limits."""

import itertools
from dataclasses import replace

import pytest

from heedful.planner.machines import find_cluster, find_gpu
from heedful.planner.shardings import Sharding
from heedful.planner.timeline import BUCKET, Exchange, exchange_of, step_time, with_copies, with_shards
from heedful.planner.training_step import ComputeTime, TimedSection

BLOCKS = [TimedSection(True, n, f, b, 2, 1000) for n, f, b in [(7, 1.0, 2.5), (5, 3.0, 4.0), (9, 0.5, 1.5)]]
REST = TimedSection(False, 11, 0.7, 1.1, 1, 1000)


def exchange(gather: float, scatter: float, add: float = 0.0) -> Exchange:
    return Exchange(lambda n: gather * n, lambda n: scatter * n, lambda n: add * n, lambda n: 0.0)


def simulated(gather: float, scatter: float) -> float:
    """FSDP as jobs of two lines, one that computes and one that sends: each job begins once those that it
    needs have ended and its line is free, in the order in which they are listed."""
    jobs: dict[str, tuple[str, float, list[str]]] = {"gather rest": ("send", gather * REST.parameters, [])}
    for i, block in enumerate(BLOCKS):
        room = [f"forward {i - 2}"] if i >= 2 else []
        jobs[f"gather {i}"] = ("send", gather * block.parameters, room)
        jobs[f"forward {i}"] = ("compute", block.forward, [f"gather {i}", "gather rest"])
    last = len(BLOCKS) - 1
    jobs["head"] = ("compute", REST.forward + REST.backward, [f"forward {last}"])
    for i, block in reversed(list(enumerate(BLOCKS))):
        begun = f"forward {last}" if i == last else f"begin {i + 1}"
        jobs[f"gather again {i}"] = ("send", gather * block.parameters, [begun])
        if i < last:
            jobs[f"scatter {i + 1}"] = ("send", scatter * BLOCKS[i + 1].parameters, [f"backward {i + 1}"])
        jobs[f"begin {i}"] = ("compute", 0.0, [f"gather again {i}", "head"])
        jobs[f"backward {i}"] = ("compute", block.backward, [f"begin {i}"])
    jobs["scatter 0"] = ("send", scatter * BLOCKS[0].parameters, ["backward 0"])
    jobs["scatter rest"] = ("send", scatter * REST.parameters, ["backward 0"])
    free, ended = {"send": 0.0, "compute": 0.0}, {}
    waiting = {line: [name for name in jobs if jobs[name][0] == line] for line in free}
    while any(waiting.values()):
        for line, names in waiting.items():
            if names and all(needed in ended for needed in jobs[names[0]][2]):
                name = names.pop(0)
                _, seconds, needs = jobs[name]
                free[line] = ended[name] = max([free[line], *(ended[n] for n in needs)]) + seconds
    return max(free.values())


@pytest.mark.parametrize(("gather", "scatter"), [*itertools.product([0.0, 0.01, 0.1, 0.3, 2.0], repeat=2)])
def test_sharded_steps_take_as_long_as_their_jobs(gather, scatter):
    found = with_shards([*BLOCKS, REST], exchange(gather, scatter), last=True)
    assert found == pytest.approx(simulated(gather, scatter))


def test_free_exchanges_cost_nothing_and_endless_ones_everything():
    busy = sum(section.forward + section.backward for section in (*BLOCKS, REST))
    everything = sum(section.parameters for section in (*BLOCKS, REST))
    assert with_shards([*BLOCKS, REST], exchange(0, 0), True) == pytest.approx(busy)
    assert with_copies([*BLOCKS, REST], exchange(0, 0), 1) == pytest.approx(busy)
    slow = with_shards([*BLOCKS, REST], exchange(0, 1e6), True)
    assert slow == pytest.approx(1e6 * everything, rel=1e-4)


def test_copies_of_shards_add_up_in_the_last_micro_batch_alone():
    slow = exchange(0, 0, add=100)
    assert with_shards([*BLOCKS, REST], slow, True) > 10 * with_shards([*BLOCKS, REST], slow, False)


def test_buckets_are_sent_while_the_backward_pass_goes_on():
    blocks = [replace(block, parameters=BUCKET) for block in BLOCKS]  # each fills a bucket
    busy = sum(section.forward + section.backward for section in (*blocks, REST))
    each = 1e-9
    hidden = with_copies([*blocks, REST], exchange(0, 0, each), 1)
    assert hidden == pytest.approx(
        busy + each * (BUCKET + REST.parameters), rel=0.02
    )  # only the last one shows
    small = [replace(block, parameters=1) for block in BLOCKS]
    assert with_copies([*small, REST], exchange(0, 0, 1), 1) == pytest.approx(busy + 3 + REST.parameters)


def test_only_the_last_micro_batch_of_copies_is_sent():
    one, three = (with_copies([*BLOCKS, REST], exchange(0, 0, 1), n) for n in (1, 3))
    busy = sum(section.forward + section.backward for section in (*BLOCKS, REST))
    assert three - one == pytest.approx(2 * busy)


def test_parts_of_a_step_add_up():
    cluster = find_cluster(find_gpu("h100"), 32)
    compute = ComputeTime((*BLOCKS, REST), update=0.4)
    sharding = Sharding("hsdp", 2, cluster)
    found = step_time(sharding, compute, micro_batches=3, checkpointing=True, share=0.8)
    once = compute.forward + compute.backward + compute.recomputed()
    assert found.waiting == pytest.approx(0.2 * 3 * once)
    assert found.compute == pytest.approx(0.8 * 3 * once + 0.4 * 2 / 8)
    shared = exchange_of(sharding).share(1000)
    # forwards, backwards, and forwards again: two exchanges in each of three blocks; two for the rest
    assert found.communication >= 3 * (3 * 3 * 2 + 2) * shared * 0.999
    assert found.total == found.compute + found.communication + found.waiting


def test_one_gpu_communicates_nothing():
    alone = Sharding("ddp", 1, find_cluster(find_gpu("h100"), 1))
    found = step_time(alone, ComputeTime((*BLOCKS, REST), 0.4), 2, False, 1.0)
    assert (found.communication, found.waiting) == (0, 0)
