"""Presence and frequency penalties and biases do in every search what a plain loop does."""

import math
from collections import Counter
from functools import cache

import pytest
import torch
from helpers.decoding_cases import EOS, FAMILIES, Case, every_log_probability

from heedful.decode import filters as f
from heedful.decode.beam import beam_search
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.greedy import greedy
from heedful.decode.sampling import Dice, row_seeds, sample
from heedful.decode.slots import Row, Slots
from heedful.decode.speculative import speculative_greedy
from heedful.errors import BadInput
from heedful.models.base.shells import EncoderDecoder

PRESENCE, FREQUENCY, BIAS = 0.9, 0.35, {4: 0.8, 7: -100, 9: -0.6, EOS: -2.5}
FILTERS = [f.biased(BIAS), f.presence(PRESENCE), f.frequency(FREQUENCY)]
every_family = pytest.mark.parametrize("name", FAMILIES)


@cache
def case_of(name: str, vocab: int = 13) -> Case:
    return Case(name, vocab, seed=3, sharper=1.2)


def lowered(log_p: list[float], written: tuple[int, ...], bias: dict[int, float] = BIAS) -> list[float]:
    """Log-probabilities as the definitions change them, token by token."""
    counts, changed = Counter(written), []
    for token, value in enumerate(log_p):
        value += -math.inf if bias.get(token) == -100 else bias.get(token, 0)
        changed.append(value - PRESENCE * (counts[token] > 0) - FREQUENCY * counts[token])
    return changed


def loop(case: Case, row: int, longest: int, choose) -> list[int]:
    """One row by full forwards alone."""
    written: tuple[int, ...] = ()
    while len(written) < longest and EOS not in written:
        written += (choose(lowered(case.next(row, written).tolist(), written)),)
    return list(written)


def drawn_by(dice: Dice):
    def draw(scores: list[float]) -> int:
        weights = [math.exp(score - max(scores)) for score in scores]
        height, total = float(dice.roll()[0, 0]) * sum(weights), 0.0
        for token, weight in enumerate(weights):
            total += weight
            if total > height:
                return token
        return len(weights) - 1

    return draw


@every_family
def test_greedy_sampling_and_speculation_do_what_a_plain_loop_does(name):
    case, how = case_of(name), {"longest": 11, "eos": EOS, "filters": FILTERS}
    expected = [loop(case, row, 11, lambda z: z.index(max(z))) for row in range(3)]
    found = greedy(case.step(), case.prompts, case.lengths, **how)
    assert [h.tokens for h in found] == expected
    plain = greedy(case.step(), case.prompts, case.lengths, longest=11, eos=EOS)
    assert [h.tokens for h in plain] != expected
    for h, row in zip(found, range(3), strict=True):  # the model's own, whatever was chosen
        own = [case.next(row, tuple(h.tokens[:n])).tolist()[t] for n, t in enumerate(h.tokens)]
        assert h.log_probabilities == pytest.approx(own, abs=1e-9)
    drafted = speculative_greedy(
        case.step(), Case(name, 13, seed=3).step(), case.prompts, case.lengths, ahead=3, **how
    )
    assert [h.tokens for h in drafted] == expected
    seeds = row_seeds(5, 3)
    drawn = sample(case.step(), case.prompts, case.lengths, seed=5, **how)
    dice = [Dice([seed], torch.device("cpu")) for seed in seeds]
    assert [h.tokens for h in drawn] == [loop(case, row, 11, drawn_by(dice[row])) for row in range(3)]


@pytest.mark.parametrize("name", ["llama", "transformer"])
def test_a_beam_as_wide_as_the_tree_ranks_every_sequence_by_its_lowered_scores(name):
    case, bias = case_of(name, 4), {0: 0.8, 3: -0.6}
    filters = [f.biased(bias), f.presence(PRESENCE), f.frequency(FREQUENCY)]
    settings = BeamSettings(4**3, 4**3, "power", 0.7)
    given = {"longest": 3, "eos": EOS, "settings": settings, "filters": filters}
    found = beam_search(case.step(), case.prompts, case.lengths, **given)
    for row in range(3):
        expected = {}
        for tokens in every_log_probability(case, row, 3, EOS):
            scores = [
                lowered(case.next(row, tokens[:n]).tolist(), tokens[:n], bias)[t]
                for n, t in enumerate(tokens)
            ]
            expected[tokens] = sum(scores) / len(tokens) ** 0.7
        best = sorted(expected.items(), key=lambda pair: -pair[1])
        assert [tuple(h.tokens) for h in found[row]] == [tokens for tokens, _ in best]
        assert [h.score for h in found[row]] == pytest.approx([score for _, score in best], abs=1e-9)


def test_tokens_of_an_answer_that_are_no_longer_read_count_too():
    scores = torch.zeros(3, 6, dtype=torch.double)
    context = f.Context.prompts(torch.tensor([[1, 2], [2, 2], [4, 5]]), torch.tensor([2, 1, 2]))
    context = context.then(torch.tensor([2, 3, 4])).select(torch.tensor([2, 0, 1]))
    earlier = [[5, 5], [], [4]]
    found = f.frequency((0.5, earlier))(scores, context)
    assert found.tolist() == [[0, 0, 0, 0, -1, 0], [0, 0, -0.5, 0, 0, -1], [0, 0, 0, -0.5, 0, 0]]
    found = f.presence((0.5, earlier))(scores, context)
    assert found.tolist() == [[0, 0, 0, 0, -0.5, 0], [0, 0, -0.5, 0, 0, -0.5], [0, 0, 0, -0.5, 0, 0]]


def test_a_bias_of_a_hundred_leaves_no_choice():
    scores = torch.tensor([[3.0, 1.0, 2.0, 0.0]])
    context = f.Context.prompts(torch.tensor([[1]]), None)
    assert f.biased({1: 100, 3: 100, 0: 50})(scores, context).tolist() == [[-math.inf, 1, -math.inf, 0]]
    assert f.biased({0: -100, 2: 1.5})(scores, context).tolist() == [[-math.inf, 1, 3.5, 0]]
    case = case_of("gpt2")
    found = greedy(case.step(), case.prompts, case.lengths, longest=4, filters=[f.biased({6: 100})])
    assert [h.tokens for h in found] == [[6] * 4] * 3
    with pytest.raises(BadInput, match="token 13 does not exist in a vocabulary of 13"):
        greedy(case.step(), case.prompts, case.lengths, longest=4, filters=[f.biased({13: 1.0})])


# One row that knows nothing of a batch.


def filters_of(row: int) -> list[f.Filter]:
    """Every filter, each made for one row."""
    return [
        *FILTERS,
        f.repetition_penalty(1.1),
        f.no_repeat_ngram(3),
        f.no_repeat_source_ngram((2, [[row, 3, 4, 5]])),
        f.forbidden([[3, 3], [8]]),
        f.minimum_length([3 + row], EOS),
        f.forced_prefix([[5, 6, 3][: row + 1]]),
        f.forced_end(([EOS], [8 + row])),
        f.suppressed([10]),
        f.suppressed_first(([1, 4], [row])),
        f.temperature(0.9),
        f.top_k(9),
        f.top_p(0.95),
        f.min_p(0.001),
    ]


@every_family
@pytest.mark.parametrize("seed", [None, 21])
def test_every_filter_works_for_rows_that_join_a_running_batch(name, seed):
    case = case_of(name)
    rows, expected = [], []
    for row in range(3):
        source = (
            case.source[row, : case.source_lengths[row]].tolist()
            if isinstance(case.model, EncoderDecoder)
            else None
        )
        prompt, longest = case.prompts[row, : case.lengths[row]].tolist(), 9 + row
        rows.append(Row(prompt, longest, frozenset([EOS]), source, filters_of(row), seed))
        step, prompt_1T = case.alone(row)
        how = {"longest": longest, "eos": EOS, "filters": filters_of(row)}
        one = greedy(step, prompt_1T, **how) if seed is None else sample(step, prompt_1T, seed=[seed], **how)
        expected.append(one[0].tokens)
        assert one[0].tokens[: row + 1] == [5, 6, 3][: row + 1] and len(one[0].tokens) > 3 + row
    slots, written = Slots(case.model), {id(row): [] for row in rows}
    for row in [*rows, None, None, None, None, None, None, None, None, None, None]:
        slots.add([] if row is None else [row])
        for news in slots.turn():
            assert not news.fault
            written[id(news.row)].append(news.token)
    while slots.busy:
        for news in slots.turn():
            written[id(news.row)].append(news.token)
    assert [written[id(row)] for row in rows] == expected
