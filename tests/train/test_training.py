"""Training: losses, schedules, optimizers and the loop, each against its definition."""

import itertools
import math
from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from helpers import tiny
from torch import nn

from heedful.data.batch import Seen, seen_in
from heedful.errors import NotFinite
from heedful.models import gpt2, transformer
from heedful.parts.places import Lengths
from heedful.tasks import configs, lm, translate, translate_rows
from heedful.train import loop, optimizer, schedule
from heedful.train.loss import NOTHING, Loss, cross_entropy, sequence_loss
from heedful.train.processes import IdleBatch


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(8)


# Loss


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_smoothed_loss_is_szegedys_and_torchs(smoothing):
    scores, answers = torch.randn(7, 11, dtype=torch.float64), torch.randint(11, (7,))
    answers[[2, 5]] = NOTHING
    smoothed, plain = cross_entropy(scores, answers, smoothing)
    log_p = scores.log_softmax(-1)
    expected = 0.0
    for row, answer in zip(log_p, answers, strict=True):
        if answer != NOTHING:
            target = torch.full((11,), smoothing / 11, dtype=torch.float64)
            target[answer] += 1 - smoothing
            expected -= (target * row).sum()
    torch.testing.assert_close(smoothed, expected)
    torch.testing.assert_close(plain, F.cross_entropy(scores, answers, reduction="sum"))
    torch.testing.assert_close(
        smoothed, F.cross_entropy(scores, answers, reduction="sum", label_smoothing=smoothing)
    )


def test_the_floor_of_a_smoothed_loss_is_the_targets_entropy():
    """1.377 nats for 37,000 words and 0.1: the reference's figure."""
    V, eps = 37000, 0.1
    target = torch.full((V,), eps / V, dtype=torch.float64)
    target[0] += 1 - eps
    best, _ = cross_entropy(target.log()[None], torch.tensor([0]), eps)
    assert best.item() == pytest.approx(-(target * target.log()).sum().item())
    assert best.item() == pytest.approx(1.377, abs=1e-3)


def test_the_loss_is_fp32_even_of_half_precision_scores():
    scores = (torch.randn(3, 5000) * 4).bfloat16()
    answers = torch.tensor([1, 2, 3])
    total, _ = cross_entropy(scores, answers)
    assert total.dtype == torch.float32
    assert total.item() == pytest.approx(
        F.cross_entropy(scores.double(), answers, reduction="sum").item(), rel=1e-5
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_scoring_in_chunks_changes_nothing(smoothing):
    head, answers = nn.Linear(6, 13).double(), torch.randint(13, (3, 8))
    answers[0, 5:] = NOTHING
    results = []
    for chunk in (None, 4, 5, 100):
        head.zero_grad()
        hidden = torch.linspace(-1, 1, 144, dtype=torch.float64).view(3, 8, 6).requires_grad_()
        loss = sequence_loss(head, hidden, answers, 21, smoothing, chunk)
        loss.total.backward()
        results.append((loss.total.detach(), loss.nll.detach(), hidden.grad, head.weight.grad.clone()))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-12)
    assert loss.count == 21


# Schedules


def test_noam_is_the_papers_formula_and_its_peak():
    for width, warmup in ((512, 4000), (1024, 4000), (64, 10), (48, 1)):
        rate = schedule.schedule("noam", warmup, 20 * warmup, floor=0.5, width=width)
        for step in (1, max(1, warmup // 2), warmup, warmup + 1, 10 * warmup):
            rising, falling = step / math.sqrt(width * warmup**3), 1 / math.sqrt(width * step)
            assert rate(step) == pytest.approx(min(rising, falling), rel=1e-12)
    assert schedule.noam(512, 4000)(4000) == pytest.approx(6.99e-4, abs=1e-6)
    assert schedule.noam(1024, 4000)(4000) == pytest.approx(4.94e-4, abs=1e-6)
    assert schedule.noam(16, 0)(1) == 0.25


@pytest.mark.parametrize("name", schedule.SCHEDULES)
def test_schedules_rise_to_one_and_never_leave_it_upwards(name):
    rate = schedule.schedule(name, warmup=10, steps=100, floor=0.1)
    unit = math.sqrt(10) if name == "noam" else 1  # of width 1
    found = [unit * rate(step) for step in range(1, 101)]
    assert found[:10] == pytest.approx([i / 10 for i in range(1, 11)])
    assert max(found) == pytest.approx(1) and all(a >= b for a, b in itertools.pairwise(found[9:]))
    ends = {"noam": math.sqrt(0.1), "cosine": 0.1, "linear": 0.1, "wsd": 0.1, "constant": 1}
    assert found[-1] == pytest.approx(ends[name])
    if name == "wsd":
        assert found[79] == 1 and found[89] == pytest.approx(0.55)
    if name == "cosine":
        assert found[54] == pytest.approx(0.1 + 0.9 * 0.5)


def test_schedules_work_without_a_warm_up_and_unknown_names_are_refused():
    assert schedule.schedule("cosine", 0, 10)(1) < 1 and schedule.schedule("constant", 0, 10)(1) == 1
    with pytest.raises(ValueError, match='no schedule "cosin"'):
        schedule.schedule("cosin", 1, 2)


# Optimizers


def test_only_matrices_decay():
    model = gpt2.build(tiny.DECODERS["gpt2"][1])
    names = optimizer.decayed(model)
    assert "stack.blocks.0.attention.layer.query.weight" in names
    assert not names & {
        "inputs.tokens.weight",
        "inputs.position.table",
        "stack.norm.weight",
        "stack.norm.bias",
    }
    assert all(dict(model.named_parameters())[n].ndim == 2 for n in names)


@pytest.mark.parametrize("kind", optimizer.OPTIMIZERS)
def test_an_optimizer_continues_from_its_saved_state_to_the_same_bytes(kind):
    def fresh():
        torch.manual_seed(1)
        model = gpt2.build(tiny.DECODERS["gpt2"][1]).eval()
        return model, optimizer.OPTIMIZERS[kind](model, 1e-2, 0.1)

    def steps(model, optimizers, n):
        for i in range(n):
            torch.manual_seed(i)
            model(torch.randint(tiny.VOCAB, (2, 9))).square().mean().backward()
            for o in optimizers:
                o.step()
                o.zero_grad()

    model, optimizers = fresh()
    steps(model, optimizers, 3)
    weights = {k: v.clone() for k, v in model.state_dict().items()}
    state = {k: v.clone() for k, v in optimizer.state_tensors(model, optimizers).items()}
    steps(model, optimizers, 4)
    other, others = fresh()
    other.load_state_dict(weights)
    optimizer.load_state_tensors(other, others, state)
    steps(other, others, 4)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
    assert state.keys() == optimizer.state_tensors(other, others).keys()


# The loop


@dataclass(frozen=True)
class Numbers:
    rows: torch.Tensor
    ids: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return len(self.rows)

    def to(self, device):
        return self


class Said(Numbers):
    """A batch that says what it has, other than its targets."""

    @property
    def seen(self):
        return Seen(len(self.ids), "pictures")


def toy_loss(model, batch):
    error = (model(batch.rows) - batch.rows.sum(-1, keepdim=True)).square().sum()
    return Loss(error, error, batch.count)


def toy_run(parts, steps=5, start=0, model=None, optimizers=None, seed=3, **settings):
    """A few steps on rows that are a pure function of the step, cut into `parts` micro-batches."""
    if model is None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
        optimizers = optimizer.adamw(model, 0.1, 0.0)

    def batches(step):
        rows = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
        return [Numbers(part) for part in rows.split(parts)]

    how = loop.LoopSettings(rate=0.1, schedule=schedule.constant(2), steps=steps, seed=seed, **settings)
    return model, optimizers, list(loop.train(model, batches, toy_loss, optimizers, how, start))


def test_accumulated_micro_batches_of_unequal_size_equal_the_full_batch():
    whole, _, report = toy_run([7])
    cut, _, cut_report = toy_run([1, 4, 2])
    for a, b in zip(whole.parameters(), cut.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)
    assert [p.loss for p in report] == pytest.approx([p.loss for p in cut_report], rel=1e-6)


def test_speed_is_told_in_what_a_batch_says_it_has_and_else_in_target_tokens():
    plain, said = Numbers(torch.zeros(3, 4)), Said(torch.zeros(3, 4), ids=(7, 8))
    assert seen_in([plain, plain]) == (6, "tokens") and seen_in([said, said, said]) == (6, "pictures")
    assert seen_in([said, IdleBatch(said)]) == (
        2,
        "pictures",
    )  # a process that has nothing to do has seen nothing
    assert IdleBatch(plain).seen == (0, "tokens") and seen_in([IdleBatch(said)]) == (0, "pictures")
    _, _, report = toy_run([1, 4, 2], steps=2)
    assert [p.seen for p in report] == [(7, "tokens")] * 2
    assert loop.Progress(1, 0.5, 4200, 0.1, 1.0, 2.0).a_second(2.0) == "2,100 tokens"
    assert [Seen(n, "pictures").a_second(4.0) for n in (41, 39, 1)] == [
        "10 pictures",
        "9.8 pictures",
        "0.2 pictures",
    ]


def test_a_run_cut_in_two_equals_one_run():
    whole, _, report = toy_run([7], steps=6)
    model, optimizers, first = toy_run([7], steps=2)
    _, _, rest = toy_run([7], steps=6, start=2, model=model, optimizers=optimizers)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), model.parameters(), strict=True))
    assert [p.loss for p in first + rest] == [p.loss for p in report]
    assert [p.step for p in rest] == [3, 4, 5, 6]


def test_clipping_limits_the_gradient_and_the_rate_follows_its_schedule():
    _, _, report = toy_run([7], clip=1e-3)
    assert [p.rate for p in report] == pytest.approx([0.05, 0.1, 0.1, 0.1, 0.1])
    assert report[0].norm > 1e-3 and report[0].tokens == 7


def test_random_numbers_follow_from_seed_and_step():
    seeds = {loop.seed_for(s, "step", n) for s in range(3) for n in range(50)}
    assert len(seeds) == 150 and loop.seed_for(0, "step", 1) == 2**63 - 1 & loop.seed_for(0, "step", 1)
    assert loop.seed_for(1, "step", 2) == loop.seed_for(1, "step", 2)


def test_a_device_alone_is_seeded_as_all_of_them_are():
    torch.manual_seed(2**62 + 5)
    expected = torch.rand(3)
    loop.seed_device(2**62 + 5, torch.device("cpu"))
    assert torch.equal(torch.rand(3), expected)


def test_a_loss_that_is_not_finite_stops_before_the_step_and_names_the_layer():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    with torch.no_grad():
        model[2].weight[0, 3] = float("inf")
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(NotFinite, match="step 1: the loss is .*first in 2;.*learning rate"):
        toy_run([7], model=model, optimizers=optimizer.adamw(model, 0.1, 0.0))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


# Tasks


def pair_batch():
    import numpy as np

    rng = np.random.default_rng(0)
    sources, targets = ([rng.integers(7, 17, n) for n in sizes] for sizes in ((5, 2, 7), (3, 6, 1)))
    return sources, targets, translate_rows.collate(sources, targets, bos=1, eos=2, padding=0)


def test_a_batch_of_pairs_is_shifted_padded_and_counted():
    sources, targets, batch = pair_batch()
    assert batch.count == 3 + 6 + 1 + 3
    assert batch.source_lengths_B.tolist() == [5, 2, 7]
    assert batch.target_BT[0].tolist() == [1, *targets[0], 0, 0, 0]
    assert batch.answers_BT[0].tolist() == [*targets[0], 2, NOTHING, NOTHING, NOTHING]
    assert batch.source_BS[1].tolist() == [*sources[1], 0, 0, 0, 0, 0]


def test_translation_loss_equals_the_sum_over_single_sentences():
    model = tiny.build(tiny.ENCODER_DECODERS["transformer"])
    sources, targets, batch = pair_batch()
    whole = translate.loss_of(model, batch, 0.1)
    alone = [
        translate.loss_of(model, translate_rows.collate([s], [t], 1, 2, 0), 0.1)
        for s, t in zip(sources, targets, strict=True)
    ]
    torch.testing.assert_close(whole.total, sum(one.total for one in alone))
    scores = model(batch.source_BS, batch.target_BT, Lengths(batch.source_lengths_B))
    plain = F.cross_entropy(scores.flatten(0, 1), batch.answers_BT.flatten(), reduction="sum")
    torch.testing.assert_close(whole.nll, plain)


def test_language_model_loss_is_next_token_cross_entropy():
    model = tiny.build(tiny.DECODERS["gpt2"])
    tokens = torch.randint(tiny.VOCAB, (3, 9))
    loss = lm.loss_of(model, lm.WindowBatch(tokens))
    scores = model(tokens[:, :-1])
    torch.testing.assert_close(
        loss.total, F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
    )
    assert loss.count == 24


def test_configs_come_from_the_recipe():
    from heedful.tasks.recipe import make

    config = configs.config_of(make("translate", "tiny"), vocab=50, target_vocab=50, share_embeddings=True)
    assert (config.layers, config.width, config.vocab, config.share_embeddings) == (2, 128, 50, True)
    assert isinstance(transformer.build(config), nn.Module)
    asked = make("lm", "tiny", settings={"model.context": 32})
    config = configs.config_of(asked, vocab=65, target_vocab=3)  # which a decoder does not have
    assert (config.context, config.vocab) == (32, 65)
    started = configs.started_config(asked, replace(config, width=192, dropout=0.3))
    assert started.width == 192 and started.dropout == asked.model.dropout


# Memory


@pytest.mark.parametrize("name", [*tiny.DECODERS, *tiny.ENCODER_DECODERS])
def test_recomputed_blocks_give_the_same_gradients_and_keep_less(name):
    """Also with dropout: the second computation sees the same random numbers."""
    file, config = {**tiny.DECODERS, **tiny.ENCODER_DECODERS}[name]
    torch.manual_seed(0)
    model = file.build(config).double().train()
    ids = torch.randint(17, (3, 9))

    def run():
        torch.manual_seed(5)
        model.zero_grad()
        kept: dict[int, int] = {}

        def keep(t):
            kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            out = (
                model(ids)
                if name in tiny.DECODERS
                else model(ids[:, :7], ids, Lengths(torch.tensor([7, 2, 5])))
            )
        out.square().sum().backward()
        return out.detach(), [p.grad.clone() for p in model.parameters()], sum(kept.values())

    plain, plain_grads, plain_kept = run()
    for module in model.modules():
        if hasattr(module, "recompute"):
            module.recompute = True
    again, grads, kept = run()
    assert torch.equal(plain, again)
    assert all(torch.equal(a, b) for a, b in zip(plain_grads, grads, strict=True))
    assert kept < 0.6 * plain_kept
