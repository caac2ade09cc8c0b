"""What a head does: constructed tables get their labels, and tables without a pattern get none."""

import math

import pytest
import torch

from heedful.errors import BadInput
from heedful.inside.doctor.heads import LayerUse
from heedful.inside.heads import unused
from heedful.inside.labels import LABELED, REPEATED, HeadTally, label, repeated, repeated_label
from heedful.inside.patterns import AttentionGrid, estimate, parse_pattern, shares

TOKENS = torch.tensor([1, 7, 8, 9, 7, 8, 5, 9, 7, 6, 8, 7, 4])  # 1 and 4 are marks; words occur again
MARKS = (TOKENS == 1) | (TOKENS == 4) | (TOKENS == 5)
T = len(TOKENS)


def grid(kind="self", **more):
    return AttentionGrid(kind, TOKENS, TOKENS, MARKS, MARKS, **more)


def attending(cells_TS, allowed_TS, share=0.9):
    """Rows with so much of their weight on some cells, and the rest on the other allowed keys."""
    on = (cells_TS & allowed_TS).double()
    off = (allowed_TS & ~cells_TS).double()
    weights = share * on / on.sum(-1, True).clamp(min=1) + (1 - share) * off / off.sum(-1, True).clamp(min=1)
    return weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)


CAUSAL = torch.ones(T, T, dtype=torch.bool).tril()
FULL = torch.ones(T, T, dtype=torch.bool)
CASES = [
    (name, mask) for name in LABELED for mask in ("causal", "full") if (name, mask) != ("one after", "causal")
]


@pytest.mark.parametrize(("name", "mask"), CASES)
def test_a_head_that_does_one_thing_gets_its_label(name, mask):
    allowed = CAUSAL if mask == "causal" else FULL
    found = {
        each.name: each for each in label(attending(LABELED[name].cells(grid()), allowed), grid(), allowed)
    }
    assert found[name].share == pytest.approx(0.9, abs=0.08)
    assert found[name].baseline < found[name].share - 0.25
    assert sum(other.endswith(" back") for other in found) <= 1


def test_a_uniform_head_and_random_ones_are_broad_at_most():
    for allowed in (CAUSAL, FULL):
        uniform = allowed / allowed.sum(-1, keepdim=True)
        assert [each.name for each in label(uniform, grid(), allowed)] == ["broad"]
        for seed in range(20):
            scores = torch.randn(T, T, generator=torch.Generator().manual_seed(seed))
            weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
            assert {each.name for each in label(weights, grid(), allowed)} <= {"broad"}


def test_the_baseline_is_the_mean_over_shuffles_of_each_rows_allowed_keys():
    random = torch.Generator().manual_seed(3)
    weights = torch.randn(T, T, generator=random).masked_fill(~CAUSAL, -torch.inf).softmax(-1).double()
    patterns = [parse_pattern(each) for each in ("offset:-2", "first", "any>marks", "same", "after-same")]
    total = torch.zeros(len(patterns))
    for _ in range(600):
        mixed = weights.clone()
        for t in range(T):
            mixed[t, : t + 1] = weights[t, torch.randperm(t + 1, generator=random)]
        total += shares(mixed[None], CAUSAL[None], grid(), patterns).weights_PN[:, 0] / 600
    expected = shares(weights[None], CAUSAL[None], grid(), patterns).baseline_PN[:, 0]
    assert torch.allclose(total.double(), expected, atol=0.12)
    assert (expected > 0.2).all()


def test_classes_of_tokens_and_trees_are_patterns():
    words_to_marks = parse_pattern("words>marks").cells(grid())
    assert words_to_marks[1, 0] and words_to_marks[1, 12] and not words_to_marks[0].any()
    assert not words_to_marks[:, 1].any()
    parents = torch.zeros(T, T, dtype=torch.bool)
    parents[3, 5] = True
    tree = grid("encoder", parents_TS=parents)
    assert parse_pattern("parent").cells(tree)[3, 5] and parse_pattern("child").cells(tree)[5, 3]
    assert (
        parse_pattern("parent").cells(grid()) is None
        and parse_pattern("offset:-1").cells(grid("cross")) is None
    )
    for wrong in ("offset:x", "offset:-2000", "before", "words>verbs", "words>marks>any", ""):
        with pytest.raises(BadInput, match="a pattern is offset:-1"):
            parse_pattern(wrong)


def test_an_aligner_beats_the_diagonal_and_a_diagonal_head_does_not():
    places = [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]
    turned = {(5 - i, i) for i in range(6)}
    backwards = torch.eye(6).flip(0).double()[None]
    straight = torch.eye(6).double()[None]
    tally = HeadTally()
    for _ in range(3):
        tally.add_alignment(torch.cat([backwards, straight]), places, turned)
    (found,), missed = tally.aligner(0), tally.aligner(1)
    assert (found.name, found.share, found.baseline, missed) == ("aligner", 1.0, 0.0, [])
    level = HeadTally()
    level.add_alignment(straight, places, {(i, i) for i in range(6)})  # what the diagonal finds is no merit
    assert level.aligner(0) == []


def test_heads_that_do_nothing_or_the_same_are_idle_and_twins():
    random = torch.Generator().manual_seed(5)
    scores = torch.randn(2, T, T, generator=random) * 2
    one_key = torch.zeros(T, T)
    one_key[:, 2] = 1
    tables = torch.stack([scores[0].softmax(-1), one_key, scores[0].softmax(-1), scores[1].softmax(-1)])
    use = LayerUse()
    use.add(tables, FULL)
    use.add(tables[:, :7, :7] / tables[:, :7, :7].sum(-1, keepdim=True).clamp(min=1e-9), FULL[:7, :7])
    found = {(h, each.name) for h, each in unused(use, [3])}
    assert found == {(0, "twin of 3"), (2, "twin of 1"), (1, "idle"), (3, "idle")}


def test_induction_is_found_in_repeated_random_tokens():
    tokens = repeated(6, range(3, 40), 4)
    assert tokens.shape == (4, 12) and torch.equal(tokens[:, :6], tokens[:, 6:])
    assert all(len(set(row[:6].tolist())) == 6 for row in tokens) and int(tokens.min()) >= 3
    allowed = torch.ones(12, 12, dtype=torch.bool).tril()
    copying = torch.eye(12)
    copying[6:] = torch.eye(12).roll(5, 0)[6:]  # place t attends to t - 5: the token after the earlier one
    uniform = allowed / allowed.sum(-1, keepdim=True)
    both = torch.stack([copying, uniform]).expand(4, 2, 12, 12)
    first, second = repeated_label(both, allowed[None], tokens)
    assert first[0].name == REPEATED and first[0].share > 0.9 and second == []
    exact = sum(1 / (t + 1) for t in range(6, 12)) / 6  # one key of t + 1 in each row of the second half
    assert first[0].baseline == pytest.approx(exact) and first[0].rows == 24


def test_intervals_cover_the_truth_as_often_as_they_say():
    random = torch.Generator().manual_seed(1)
    studies, texts, mean = 600, 14, 0.3
    counts = torch.randint(3, 20, (texts, studies), generator=random).double()
    effects = mean + torch.randn(texts, studies, generator=random).double()  # texts differ, not only tokens
    sums = counts * effects + counts.sqrt() * torch.randn(texts, studies, generator=random).double()
    found = estimate(sums, counts)
    covered = ((found.low < mean) & (mean < found.high)).double().mean()
    assert 0.91 < float(covered) < 0.98
    alone = estimate(torch.tensor([6.0]), torch.tensor([3.0]))
    assert alone.at()[0] == 2 and math.isnan(alone.at()[1])
