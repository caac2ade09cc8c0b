"""Masked language model: what is chosen, what becomes of it, and what the loss looks at."""

import math
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers.runs import Quiet

from heedful.data.vocab import SPECIALS, Vocab
from heedful.errors import BadInput
from heedful.models import bert, family
from heedful.runs.setup import make_job
from heedful.tasks import mlm, recipe
from heedful.train import loop, optimizer, schedule

LINE = "the cat sat on the mat and the dog sat on the log ."
V, PAIRS = 50, ("pooled", "masked_lm", "next_sentence")


def stream_of(tokens: int = 4000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(7, V, tokens).astype(np.uint16)


def tiny_model(dropout: float = 0.0):
    torch.manual_seed(0)
    return bert.build(
        bert.BertConfig(
            vocab=V,
            context=24,
            layers=2,
            width=24,
            heads=3,
            ffn_width=40,
            dropout=dropout,
            attention_dropout=dropout,
            prediction_heads=PAIRS,
        )
    )


def batch(pairs: bool = True, starts=(0, 400, 90, 1200), step: int = 3, seed: int = 5) -> mlm.MaskedBatch:
    return mlm.batch_of(stream_of(), starts, 20, pairs, V, seed, step)


def same(a: mlm.MaskedBatch, b: mlm.MaskedBatch) -> bool:
    return all(
        torch.equal(getattr(a, n), getattr(b, n))
        for n in ("tokens_BT", "segments_BT", "originals_BT", "places_N", "follows_B")
    )


def within(found: int, total: int, share: float) -> bool:
    """Not further from the expected number than five standard deviations of a binomial."""
    return abs(found - share * total) < 5 * math.sqrt(total * share * (1 - share))


# What is chosen


def test_fifteen_per_cent_are_chosen_and_become_80_10_10():
    stream, chosen, masked, same_token, other, total = stream_of(200_000), 0, 0, 0, 0, 0
    for start in range(0, 200_000, 500):
        row = stream[start : start + 500].astype(np.int64)
        read, places = mlm.blanks(row, 30_000, 1, 2, start, 0)
        chosen, total = chosen + len(places), total + len(row)
        masked += (read[places] == Vocab.mask).sum()
        same_token += (read[places] == row[places]).sum()
        other += ((read[places] != row[places]) & (read[places] != Vocab.mask)).sum()
        assert np.array_equal(np.delete(read, places), np.delete(row, places))
    assert within(chosen, total, 0.15)
    assert within(masked, chosen, 0.8) and within(same_token, chosen, 0.1) and within(other, chosen, 0.1)


def test_every_place_is_chosen_equally_often_and_replacements_are_ordinary_and_spread():
    row, counts, put = np.arange(7, 47), np.zeros(40), []
    for step in range(4000):
        read, places = mlm.blanks(row, V, 0, step, 0, 0)
        counts[places] += 1
        put += [n for n in read[places] if n != Vocab.mask]
    assert all(within(int(n), 4000, 0.15) for n in counts)
    put = np.array(put)
    assert put.min() == len(SPECIALS) and put.max() == V - 1


@pytest.mark.parametrize("pairs", [False, True])
def test_special_tokens_are_never_chosen_and_never_put_in(pairs):
    stream = stream_of()
    stream[::3] = Vocab.unk
    for step in range(30):
        made = mlm.batch_of(stream, [0, 777], 20, pairs, V, 0, step)
        assert (mlm.answers_of(made) >= len(SPECIALS)).all()
        changed = made.tokens_BT != made.originals_BT
        assert ((made.tokens_BT[changed] == Vocab.mask) | (made.tokens_BT[changed] >= len(SPECIALS))).all()
        assert (made.tokens_BT[:, 0] == Vocab.cls).all() and (made.tokens_BT[:, -1] == Vocab.sep).all()


def test_at_least_one_token_of_every_sequence_is_chosen():
    for length in (1, 2, 3, 7):
        for step in range(300):
            _, places = mlm.blanks(np.arange(7, 7 + length), V, 0, step, 0, 0)
            assert len(places) >= 1
    assert len(mlm.blanks(np.array([Vocab.cls, Vocab.unk, Vocab.sep]), V, 0, 0, 0, 0)[1]) == 0


@pytest.mark.parametrize("pairs", [False, True])
def test_blanks_follow_from_seed_step_and_example_alone(pairs):
    whole = batch(pairs)
    torch.manual_seed(99)
    np.random.seed(99)
    assert same(whole, batch(pairs))
    alone = [batch(pairs, starts=[start]) for start in whole.ids]  # the company does not matter
    assert torch.equal(whole.tokens_BT, torch.cat([one.tokens_BT for one in alone]))
    assert torch.equal(whole.follows_B, torch.cat([one.follows_B for one in alone]))
    assert not torch.equal(whole.tokens_BT, batch(pairs, step=4).tokens_BT)
    assert not torch.equal(whole.tokens_BT, batch(pairs, seed=6).tokens_BT)


# Rows


def test_a_window_stands_between_its_special_tokens():
    made, stream = batch(pairs=False), stream_of()
    assert made.originals_BT[1].tolist() == [Vocab.cls, *stream[400:420], Vocab.sep]
    assert made.segments_BT.sum() == 0 and len(made.follows_B) == 0


def test_half_of_the_pairs_follow_and_the_others_come_from_elsewhere():
    stream = np.arange(7, 1007)  # every token tells where it stood
    followed = 0
    for start in range(0, 980, 2):
        row, segments, follows = mlm.pair_row(stream, start, 20, 0, 0, start, 1)
        first, second = (row[segments == i] for i in (0, 1))
        assert first[0] == Vocab.cls and first[-1] == Vocab.sep == second[-1] and len(row) == 23
        a, b = first[1:-1] - 7, second[:-1] - 7
        assert np.array_equal(a, np.arange(start, start + len(a))) and np.array_equal(
            np.diff(b), np.ones(len(b) - 1)
        )
        assert 5 <= len(a) <= 15
        if follows:
            assert b[0] == a[-1] + 1
        else:
            assert b[-1] < start or b[0] >= start + 20
        followed += follows
    assert within(followed, 490, 0.5)


def test_every_place_elsewhere_is_possible_and_none_overlaps():
    for start in (0, 3, 11, 18):
        found = {mlm.elsewhere(30, start, 12, 4, draw) for draw in np.linspace(0, 0.9999, 500)}
        assert found == {p for p in range(27) if p + 4 <= start or p >= start + 12}


# Loss


def test_the_loss_is_that_of_chosen_positions_alone():
    model, made = tiny_model().eval(), batch(pairs=False)
    loss = mlm.loss_of(model, made)
    answers = torch.full_like(made.originals_BT, -100)
    answers.view(-1)[made.places_N] = made.originals_BT.view(-1)[made.places_N]
    scores = model(made.tokens_BT)["masked_lm"]
    torch.testing.assert_close(
        loss.total, F.cross_entropy(scores.flatten(0, 1), answers.flatten(), reduction="sum")
    )
    others = torch.ones(made.originals_BT.numel(), dtype=torch.bool)
    others[made.places_N] = False
    made.originals_BT.view(-1)[others] = 11
    assert torch.equal(mlm.loss_of(model, made).total, loss.total)
    made.originals_BT.view(-1)[made.places_N[0]] ^= 1
    assert not torch.equal(mlm.loss_of(model, made).total, loss.total)
    assert loss.count == len(made.places_N) and torch.equal(loss.total, loss.nll)


def test_over_a_step_total_by_count_is_the_sum_of_both_means():
    """However the step is cut into micro-batches, with rows of unequal numbers of blanks."""
    model, starts = tiny_model().eval(), (0, 400, 90, 1200, 2000)
    whole = batch(starts=starts)
    out = model(whole.tokens_BT, segments_BT=whole.segments_BT)
    words = F.cross_entropy(out["masked_lm"].flatten(0, 1)[whole.places_N], mlm.answers_of(whole))
    expected = words + F.cross_entropy(out["next_sentence"], whole.follows_B)
    for cuts in ([5], [1, 4], [2, 1, 2]):
        ends = np.cumsum(cuts)
        parts = mlm.step_of([batch(starts=starts[end - n : end]) for n, end in zip(cuts, ends, strict=True)])
        losses = [mlm.loss_of(model, part) for part in parts]
        count = sum(loss.count for loss in losses)
        torch.testing.assert_close(sum(loss.total for loss in losses) / count, expected)
        torch.testing.assert_close(sum(loss.nll for loss in losses) / count, words)


def test_the_first_loss_is_that_of_guessing():
    made = batch(pairs=False, starts=range(0, 3000, 50))
    loss = mlm.loss_of(tiny_model().eval(), made).nll.item() / made.count
    assert loss == pytest.approx(math.log(V), abs=0.1)


def test_one_batch_can_be_learned_by_heart():
    model, (made,) = tiny_model(), mlm.step_of([batch()])
    settings = loop.LoopSettings(rate=3e-3, schedule=schedule.constant(10), steps=150)
    steps = list(
        loop.train(model, lambda step: [made], mlm.loss_of, optimizer.adamw(model, 3e-3, 0.0), settings)
    )
    assert steps[-1].loss < 0.02 and steps[0].loss > 3
    with torch.no_grad():
        scores = mlm.evaluate(model.eval(), [made])
    assert scores["accuracy"] == 1 and scores["next_sentence"] == 1
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))


# Jobs


def job_of(tmp_path, **settings):
    (tmp_path / "text").write_text(f"{LINE}\n" * 200)
    tiny = {
        "model.layers": 1,
        "model.width": 12,
        "model.heads": 3,
        "model.ffn_width": 20,
        "model.context": 24,
    }
    asked = recipe.make(
        "mlm",
        settings={
            **tiny,
            "data.text": str(tmp_path / "text"),
            "data.tokenizer": "word",
            "train.batch_tokens": 96,
            **settings,
        },
    )
    (tmp_path / "run").mkdir(exist_ok=True)
    return make_job(asked, tmp_path / "run", Quiet())


@pytest.mark.parametrize("pairs", [False, True])
def test_a_job_made_again_gives_the_same_steps_and_the_same_evaluation(pairs, tmp_path):
    first, again = (job_of(tmp_path, **{"data.pairs": pairs}) for _ in range(2))
    for step in (0, 7, first.steps_per_epoch):
        for a, b in zip(first.batches(step), again.batches(step), strict=True):
            assert same(a, b) and a.ids == b.ids
    epoch = first.steps_per_epoch
    assert not any(same(a, b) for a in first.batches(0) for b in first.batches(epoch))
    torch.manual_seed(1)
    model = family("bert").build(first.config).eval()
    with torch.no_grad():
        scores = first.evaluate(model)
        assert scores == again.evaluate(model)
        told = [sample.line for sample in first.samples(model)]
    assert set(scores) == {"loss", "perplexity", "accuracy"} | ({"next_sentence"} if pairs else set())
    assert len(told) == 4
    blanks, filled = told[0].split("\n")
    assert "___" in blanks
    originals = re.sub(r"\[(?:“[\w.?]+” for )?“?([\w.]+)”?\]", r"\1", filled)
    assert originals.removeprefix("  → ").strip("'") in f"{LINE} {LINE} {LINE}"


def test_accumulated_micro_batches_hold_the_rows_of_the_step(tmp_path):
    whole, cut = (job_of(tmp_path, **{"data.pairs": True, "train.accumulation_steps": n}) for n in (1, 3))
    (one,), parts = whole.batches(2), cut.batches(2)
    assert len(parts) == 3 and torch.equal(one.tokens_BT, torch.cat([part.tokens_BT for part in parts]))
    assert {part.pair_weight for part in parts} == {one.pair_weight}


def test_what_cannot_be_is_one_sentence(tmp_path):
    for message, settings in {
        "mlm has no built-in corpus": {"data.corpus": "facts"},
        "no room for text": {"model.context": 2},
        "windows of 2998 need 2,999": {"model.context": 3000},
        'no setting "model.norm"': {"model.norm": "pre"},
    }.items():
        with pytest.raises(BadInput, match=message):
            job_of(tmp_path, **settings)
