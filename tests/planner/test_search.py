"""The search: what it chooses fits and is not slower than any other plan, and the rest is arithmetic."""

import itertools
import math

import pytest

from heedful.errors import BadInput
from heedful.models import find_preset
from heedful.planner.bill import bill_of
from heedful.planner.machines import find_cluster, find_gpu
from heedful.planner.memory import SPARE
from heedful.planner.published import generations, published_trainings
from heedful.planner.remedies import notes, remedies
from heedful.planner.search import CLOSE, Planner, fastest
from heedful.planner.shardings import shardings
from heedful.planner.subject import Subject, read_count


def planner_of(
    name: str, gpus: int, gpu: str = "h100", batch: float | None = None, context: int | None = None
):
    cluster = find_cluster(find_gpu(gpu), gpus)
    subject = Subject(name, *find_preset(name), context)
    return Planner(subject.workload(cluster, batch), cluster), subject


def test_nothing_that_fits_is_much_faster_than_the_best():
    planner, _ = planner_of("gpt2-xl", 16, batch=2**18)
    best = fastest(planner.all())
    assert best.fits and best.memory.total <= (1 - SPARE) * 80e9
    for sharding, rows, checkpointing in itertools.product(
        shardings(planner.cluster, planner.work.model), (1, 2, 4, 8, 16), (False, True)
    ):
        mine = math.ceil(planner.work.rows / sharding.replicas)
        plan = planner.plan(sharding, rows, math.ceil(mine / rows), checkpointing)
        assert not plan.fits or plan.step.total >= best.step.total / (1 + CLOSE) - 1e-9


def test_simple_plans_are_preferred_and_larger_models_need_more():
    simple = fastest(planner_of("gpt2", 8)[0].all())
    assert (simple.sharding.parallel, simple.sharding.tensor, simple.checkpointing) == ("ddp", 1, False)
    large = fastest(planner_of("llama3-8b", 64, context=4096)[0].all())
    assert large.sharding.parallel == "fsdp" and large.fits


def test_rows_of_a_step_are_all_computed():
    for name, gpus, batch in (("gpt2", 8, 100_000), ("gpt2", 6, 77_777), ("gpt2", 8, 1024)):
        planner, _ = planner_of(name, gpus, batch=batch)
        for plan in planner.all():
            computed = plan.rows * plan.micro_batches * plan.sharding.replicas
            assert computed >= planner.work.rows
            assert (plan.step.waiting > 0) == (computed > planner.work.rows)


def test_more_gpus_are_faster_and_never_in_proportion():
    steps = [fastest(planner_of("gpt2-xl", gpus, batch=2**19)[0].all()).step.total for gpus in (8, 16, 32)]
    assert steps[0] / 2 < steps[1] < steps[0] and steps[1] / 2 < steps[2] < steps[1]


def test_a_slower_network_takes_longer():
    fast, slow = (
        fastest(Planner(work, find_cluster(find_gpu("h100"), 64, network=network)).all())
        for work in [planner_of("gpt2-xl", 64, batch=2**17)[0].work]
        for network in (None, "ethernet-25")
    )
    assert slow.step.total > 1.2 * fast.step.total


def test_what_helps_where_nothing_fits():
    planner, _ = planner_of("gpt3-13b", 2)
    assert not fastest(planner.all()).fits
    told = list(remedies(planner.work, planner.cluster))
    gpus = int(told[0].split()[1])
    assert told[0].startswith("--gpus ") and gpus > 2
    assert fastest(planner_of("gpt3-13b", gpus)[0].all()).fits
    assert not fastest(planner_of("gpt3-13b", gpus // 2)[0].all()).fits


def test_gpus_that_wait_are_told():
    planner, _ = planner_of("gpt2", 64, batch=32 * 1024)
    best = fastest(planner.all())
    if best.step.waiting:
        assert any("--batch" in note for note in notes(best, planner.work))
    planner, _ = planner_of("gpt2", 8, batch=9 * 1024)
    assert any("9 rows in 8 parts; --batch 16384" in note for note in notes(planner.all()[0], planner.work))


def test_the_bill_is_arithmetic():
    planner, _ = planner_of("gpt2", 8)
    plan = fastest(planner.all())
    found = bill_of(plan, planner.work, tokens=1e9, price=2.5, watts=500)
    assert found.steps == math.ceil(1e9 / 2**19)
    hours = found.steps * plan.step.total * 8 / 3600
    assert (found.gpu_hours, found.dollars, found.kwh) == pytest.approx((hours, 2.5 * hours, hours / 2))
    assert found.days == pytest.approx(hours / 8 / 24)


@pytest.mark.parametrize(
    ("text", "count"), [("300B", 3e11), ("1.5t", 1.5e12), ("4e11", 4e11), ("524,288", 2**19), ("20k", 2e4)]
)
def test_counts_as_people_write_them(text, count):
    assert read_count("--tokens", text) == pytest.approx(count)


@pytest.mark.parametrize("text", ["", "x", "-3B", "1e99", "0", "nan", "inf", "3 B", "٣B", "1e9b" * 9])
def test_other_texts_are_no_counts(text):
    with pytest.raises(BadInput, match="--tokens is a number of tokens such as 300B"):
        read_count("--tokens", text)


def test_a_batch_of_less_than_a_row_is_refused():
    with pytest.raises(BadInput, match="--batch 100 is less than one row of 1,024 tokens"):
        planner_of("gpt2", 8, batch=100)


# What was published.


@pytest.mark.parametrize("preset", [name for name in published_trainings() if name.startswith("gpt3")])
def test_compute_of_gpt3_is_that_of_its_paper(preset):
    """Brown et al. 2020, table D.1, counts 6 FLOPs a parameter and token; we count attention and scores."""
    known, subject = published_trainings()[preset], Subject(preset, *find_preset(preset))
    costs = subject.costs
    assert 6 * costs.parameters * known.tokens == pytest.approx(known.flops, rel=0.05)
    per_token = costs.flops_per_token["training"]
    pairs = 3 * costs.pairs / subject.length
    tables = 6 * subject.config.context * subject.config.width  # of positions: looked up, not multiplied
    assert per_token == pytest.approx(6 * costs.parameters + pairs - tables, rel=0.001)


def test_generations_are_those_of_the_lectures():
    found = {one.name: one for one in generations()}
    assert list(found) == ["GPT-1", "GPT-2", "GPT-3", "GPT-3.5", "GPT-4"]
    for name, parameters in {"GPT-1": 117e6, "GPT-2": 1.5e9, "GPT-3": 175e9}.items():
        counted = Subject(name, *find_preset(found[name].preset)).costs.parameters
        assert found[name].said == parameters == pytest.approx(counted, rel=0.05)
    assert "499 B tokens" in found["GPT-3"].data
