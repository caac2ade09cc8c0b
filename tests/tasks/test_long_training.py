"""Language models of long texts, from a recipe to a run: rows that go on, a saved memory, refusals."""

import numpy as np
import pytest
import torch
from helpers.runs import (
    CPU,
    Interrupted,
    Quiet,
    recipe_for,
    state_of,
    texts,  # noqa: F401 (fixtures)
)

import heedful
from heedful.corpora import phrasebook
from heedful.data.plan import SegmentPlan
from heedful.errors import BadInput
from heedful.models import family
from heedful.models.xl import XLConfig
from heedful.runs import trainer
from heedful.runs.setup import make_job
from heedful.tasks import configs, lm, recipe
from heedful.tasks.long import Recurrent, SegmentBatch, Segments

KINDS = {
    "xl": {"model.memory_length": 20, "model.eval_memory_length": 24},
    "sparse": {
        "model.pattern": "fixed",
        "model.head_pattern": "heads",
        "model.stride": 4,
        "model.summary_length": 2,
    },
    "window": {"model.architecture": "sparse", "model.pattern": "window", "model.stride": 5},
    "dmca": {"model.block": 5, "model.layers": 3, "model.look_back": True, "model.compress": "input"},
    "t-d": {"model.architecture": "dmca", "model.layer_pattern": "f"},
    "linear": {},
}


def long_recipe(kind, texts, steps=12, **more):
    return recipe_for("lm", texts, steps, **{"model.architecture": kind, **KINDS[kind], **more})


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_trained_loaded_evaluated_and_continued(kind, texts, tmp_path):
    talk = Quiet()
    outcome = trainer.start(long_recipe(kind, texts), tmp_path / "run", talk, CPU)
    assert outcome.finished
    model = heedful.load(tmp_path / "run")
    assert model.config == outcome.job.config
    text = model.generate("ba", max_new_tokens=40)
    assert len(text) >= 40
    assert model.generate(["ba", "ba be bi"], max_new_tokens=40)[0] == text  # whatever stands beside it
    assert model.score("ba be bi bo bu").perplexity > 1


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_run_with_a_memory_is_resumed_byte_for_byte(accumulate, texts, tmp_path):
    asked = long_recipe("xl", texts, **{"train.accumulation_steps": accumulate})
    trainer.start(asked, tmp_path / "whole", Quiet(), CPU)
    expected = state_of(tmp_path / "whole") | carried(tmp_path / "whole")
    for step in (3, 5, 9):
        with pytest.raises(Interrupted):
            trainer.start(asked, tmp_path / f"cut-{step}", Quiet(until=step), CPU)
        assert trainer.resume(tmp_path / f"cut-{step}", Quiet(), CPU).finished
        assert state_of(tmp_path / f"cut-{step}") | carried(tmp_path / f"cut-{step}") == expected


def carried(folder):
    (path,) = folder.glob("checkpoints/step-12/carried.safetensors")
    return {"carried": path.read_bytes()}


def test_a_checkpoint_without_its_memory_is_not_gone_on_from_in_silence(texts, tmp_path, monkeypatch):
    asked = long_recipe("xl", texts)
    with pytest.raises(Interrupted):
        trainer.start(asked, tmp_path / "cut", Quiet(until=6), CPU)
    monkeypatch.setattr(Recurrent, "load", lambda self, tensors, steps: None)
    with pytest.raises(ValueError, match="whose memory is not there"):
        trainer.resume(tmp_path / "cut", Quiet(), CPU)


# Segments.


@pytest.mark.parametrize("tokens, length, rows", [(101, 5, 4), (60, 7, 3), (23, 5, 9), (12, 11, 2)])
def test_rows_go_on_from_step_to_step_and_no_token_is_predicted_twice(tokens, length, rows):
    plan = SegmentPlan(tokens, length, rows, seed=5)
    for epoch in range(3):
        steps = range(epoch * plan.batches, (epoch + 1) * plan.batches)
        starts = np.array([plan.batch(step) for step in steps])
        assert (np.diff(starts, axis=0) == length).all() and [plan.place(s) for s in steps] == list(
            range(plan.batches)
        )
        predicted = (starts[..., None] + 1 + np.arange(length)).ravel()
        assert len(set(predicted)) == len(predicted) and predicted.max() < tokens and starts.min() >= 0
        assert len(predicted) > tokens - 1 - rows * length
    assert (
        plan.batch(1 % plan.batches) == SegmentPlan(tokens, length, rows, seed=5).batch(1 % plan.batches)
    ).all()
    first = {int(SegmentPlan(500, 20, 4, seed).batch(0)[0]) for seed in range(20)}
    assert len(first) > 5


def test_a_text_too_short_for_a_segment_is_refused():
    with pytest.raises(BadInput, match="too few for a segment of 9"):
        SegmentPlan(9, 9, 1, 0)


def tiny_xl(memory=8, recall=8, **more):
    torch.manual_seed(1)
    config = XLConfig(17, 4, memory, recall, 50, 2, 12, 3, 20, "relu", 0.0, **more)
    model = family("xl").build(config).double()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model


STREAM = np.random.default_rng(0).integers(0, 17, 85)
LENGTHS = np.array([85])


@torch.no_grad()
def test_a_step_sees_what_the_one_before_left_and_the_same_when_asked_twice():
    model, segments = tiny_xl(), Segments(STREAM, 4, LENGTHS)
    plan, loss = segments.plan(3, seed=0), Recurrent(8)
    found = []
    for step in range(3):
        for _ in range(2):
            (batch,) = segments.batches(plan, step, 1)
            found.append(float(loss(model, batch).nll))
    assert found[0] == found[1] and found[2] == found[3] and found[4] == found[5]
    fresh = float(Recurrent(8)(model, SegmentBatch(batch.tokens_BT, 0, 0, 0)).nll)
    assert fresh != found[4]
    with pytest.raises(ValueError, match="whose memory is not there"):
        loss(model, SegmentBatch(batch.tokens_BT, 7, 2, 0))


@torch.no_grad()
def test_micro_batches_see_the_memory_of_their_own_rows_however_they_are_shared_out():
    model, segments = tiny_xl(), Segments(STREAM, 4, LENGTHS)
    plan, sums, kept = segments.plan(3, seed=0), [], []
    for shared in ([1, 1, 1], [3, 3, 3], [2, 1, 3]):
        loss = Recurrent(8)
        steps = [[loss(model, batch) for batch in segments.batches(plan, n, m)] for n, m in enumerate(shared)]
        sums.append([float(sum(part.nll for part in parts)) for parts in steps])
        kept.append(loss.tensors())
    assert sums[1] == pytest.approx(sums[0], abs=1e-9) and sums[2] == pytest.approx(sums[0], abs=1e-9)
    for other in kept[1:]:
        torch.testing.assert_close(other, kept[0], atol=1e-12, rtol=0)
    again = Recurrent(8)
    again.load(kept[0], 3)
    (batch,) = segments.batches(plan, 3, 1)
    assert float(again(model, batch).nll) == pytest.approx(float(loss(model, batch).nll), abs=1e-9)


def test_evaluation_has_a_memory_of_its_own_length_which_may_be_longer_than_in_training():
    def loss(recall, context=4, rows=1):
        held_out = Segments(STREAM, context, LENGTHS)
        with torch.no_grad():
            return lm.evaluate(tiny_xl(recall=recall), held_out, 1.0, None, rows)["loss"]

    one_segment = loss(1, context=84)
    assert loss(100) == pytest.approx(one_segment, abs=1e-12)  # all that came before: one long segment
    assert loss(8) != pytest.approx(one_segment, abs=1e-6)
    assert loss(100, rows=3) != pytest.approx(one_segment, abs=1e-6)  # three rows begin without a memory


def test_several_processes_are_refused():
    segments = Segments(STREAM, 4, LENGTHS)
    with pytest.raises(BadInput, match="without torchrun"):
        segments.batches(segments.plan(3, 0), 0, 1, rank=1, world=2)


# Recipes.


@pytest.mark.parametrize(
    "settings, said",
    [
        (
            {"model.memory_length": 5},
            'lm with gpt2 has no setting "model.memory_length"; it is for --architecture xl',
        ),
        (
            {"model.architecture": "xl", "model.block": 5},
            'lm with xl has no setting "model.block"; it is for --architecture dmca or mixture_dmca',
        ),
        (
            {"model.architecture": "sparse", "model.activation": "gelu"},
            'lm with sparse has no setting "model.activation"; model has ',
        ),
        ({"model.architecture": "xl", "data.pack": "documents"}, "data.pack is stream"),
    ],
)
def test_what_a_model_does_not_have_is_refused(settings, said):
    with pytest.raises(BadInput, match=said):
        recipe.make("lm", settings=settings)


def test_a_summary_longer_than_its_block_is_refused():
    settings = {"model.architecture": "sparse", "model.stride": 3, "model.summary_length": 4}
    with pytest.raises(BadInput, match=r"summary_length is 4, more than a block \(stride\) of 3"):
        recipe.make("lm", settings=settings)


def test_strides_are_near_the_root_of_the_context_unless_told():
    def config(**more):
        settings = {"model.architecture": "sparse", "model.context": 1000, **more}
        return configs.config_of(recipe.make("lm", settings=settings), vocab=100)

    assert (config().stride, config().summary_length) == (31, 3)
    assert config(**{"model.stride": 64}).summary_length == 8


# A source, a delimiter and a target as one text.


def test_the_phrasebook_is_written_as_pairs_in_one_row(tmp_path):
    settings = {
        "model.architecture": "dmca",
        "model.layers": 3,
        "model.width": 16,
        "model.heads": 2,
        "model.ffn_width": 24,
        "model.context": 48,
        "model.block": 16,
        "data.pack": "documents",
        "train.steps": 2,
        "train.batch_tokens": 96,
        "evaluate.rows": 2,
    }
    asked = recipe.make("lm", "tiny", "phrasebook", settings)
    job = make_job(asked, tmp_path, Quiet())
    (batch,) = job.batches(0)
    text = job.vocab.decode(batch.tokens_BT[0][batch.documents_BT[0] == 0].tolist())
    source, target = text.split("→")
    assert (source.strip(), target.strip()) in {
        (pair.source, pair.target) for pair in phrasebook.split("train")
    }
    torch.manual_seed(0)
    first = next(iter(phrasebook.split("valid"))).source
    pairs = {(pair.source, pair.target) for pair in phrasebook.split("valid")}
    sample, *others = job.samples(family("dmca").build(job.config).eval())
    assert sample.source == f"{first} →" and len(others) == 3  # the answer is what the model writes
    assert all((one.source.removesuffix(" →"), one.reference) in pairs for one in [sample, *others])
    loss = job.loss(family("dmca").build(job.config), batch)
    assert loss.count == batch.count == int((batch.answers_BT >= 0).sum())  # source and target both count


@pytest.mark.parametrize(
    "architecture, openly, compiled",
    [
        ("gpt2", True, True),
        ("sparse", True, False),
        ("dmca", True, False),
        ("linear", True, False),
        ("xl", False, False),  # its memory changes from step to step
        ("mixture_dmca", False, False),  # experts group tokens by sizes that the host must know
    ],
)
def test_only_steps_that_never_ask_the_host_are_recorded(architecture, openly, compiled):
    for compiles, expected in ((False, openly), (True, compiled)):
        settings = {"model.architecture": architecture, "train.compile": compiles}
        assert lm.steady(recipe.make("lm", settings=settings)) == expected
