"""Beam search: as wide as the tree it is exhaustive search, one wide it is greedy, and in between it does
what a plain loop over lists does, and what Hugging Face does. Every search is also listened to: the fates
of its candidates, replayed, give the same result."""

import math
import random
from collections import Counter
from functools import cache

import pytest
import torch
from helpers.decoding_cases import (
    DECODERS,
    ENCODER_DECODERS,
    EOS,
    FAMILIES,
    Case,
    Forgetful,
    Pair,
    Spy,
    every_log_probability,
)
from helpers.decoding_cases import heard_search as beam_search

from heedful import watch
from heedful.decode import filters as f
from heedful.decode.beam_settings import LENGTH_PENALTIES, STOPPING, BeamSettings, coverage_penalty
from heedful.decode.greedy import greedy
from heedful.errors import BadInput

every_family = pytest.mark.parametrize("name", FAMILIES)
every_rule = pytest.mark.parametrize("stopping", STOPPING)
every_penalty = pytest.mark.parametrize(
    "penalty, alpha", [("gnmt", 0.6), ("power", 1.0), ("power", 0.0), ("gnmt", -0.7)]
)


def lp(penalty: str, length: int, alpha: float) -> float:
    return {"gnmt": ((5 + length) / 6) ** alpha, "power": length**alpha}[penalty]


@cache
def small(name: str, vocab: int, seed: int = 11, sharper: float = 1.0) -> Case:
    return Case(name, vocab, seed, sharper)


@cache
def telling(name: str) -> Case:
    """A model that ends its sentences now and then, so that every rule stops at its own time."""
    return small(name, 8, {"gpt2": 8, "llama": 5, "transformer": 6, "t5": 4}[name], 1.5)


@cache
def following(name: str, row: int, tokens: tuple[int, ...]) -> list[float]:
    """Log-probabilities of what comes next."""
    return telling(name).next(row, tokens).tolist()


@cache
def tree(name: str, row: int, vocab: int, longest: int, eos: int):
    return every_log_probability(small(name, vocab), row, longest, eos)


@cache
def looked(case: Case, row: int, written: tuple[int, ...]) -> torch.Tensor:
    """The last layer's attention to each source word while these tokens were chosen, heads averaged."""
    prompt = case.prompts[row, : case.lengths[row]].tolist()
    tokens = torch.tensor([[*prompt, *written[:-1]]])
    with torch.no_grad(), watch(case.model) as trace:
        case.model(case.source[row : row + 1, : case.source_lengths[row]], tokens)
    weights = trace[[p for p in trace if ".cross." in p][-1]].weights[0][0].mean(0)
    return weights[len(prompt) - 1 :].sum(0)


def cp(case: Case, row: int, written: tuple[int, ...]) -> float:
    return sum(math.log(min(a, 1.0)) for a in looked(case, row, written).tolist())


def check_against(found, expected: dict[tuple[int, ...], float]):
    """The same sequences with the same scores, best first."""
    best = sorted(expected.items(), key=lambda pair: -pair[1])[: len(found)]
    assert [tuple(h.tokens) for h in found] == [tokens for tokens, _ in best]
    assert [h.score for h in found] == pytest.approx([score for _, score in best], abs=1e-9)


# As wide as the tree.


@every_family
@every_rule
@every_penalty
def test_a_beam_as_wide_as_the_tree_finds_every_sequence(name, stopping, penalty, alpha):
    case, longest = small(name, 4), 3
    settings = BeamSettings(4**3, 4**3, penalty, alpha, stopping=stopping)
    found = beam_search(case.step(), case.prompts, case.lengths, longest=longest, eos=EOS, settings=settings)
    for row in range(3):
        every = tree(name, row, 4, longest, EOS)
        assert len(found[row]) == len(every) == 1 + 3 + 9 + 27
        check_against(found[row], {s: sum(p) / lp(penalty, len(s), alpha) for s, p in every.items()})
        for hypothesis in found[row]:
            assert hypothesis.log_probabilities == pytest.approx(every[tuple(hypothesis.tokens)], abs=1e-9)
            assert hypothesis.ended == (hypothesis.tokens[-1] == EOS)


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_and_with_the_coverage_penalty_too(name):
    case, longest = small(name, 3), 4
    settings = BeamSettings(3**4, 3**4, coverage_penalty=0.4)
    found = beam_search(
        case.step(watched=True), case.prompts, case.lengths, longest=longest, eos=EOS, settings=settings
    )
    for row in range(3):
        every = tree(name, row, 3, longest, EOS)
        plain = {s: sum(p) / lp("gnmt", len(s), 0.6) for s, p in every.items()}
        check_against(found[row], {s: score + 0.4 * cp(case, row, s) for s, score in plain.items()})


def test_coverage_penalty_is_the_papers():
    looked = torch.tensor([[[0.5, 2.0, 0.1, -1.0], [1.0, 1.0, 1.0, -3.0]]])
    assert coverage_penalty(looked)[0].tolist() == pytest.approx([math.log(0.5) + math.log(0.1), 0.0])
    assert coverage_penalty(torch.zeros(1, 1, 2)).isfinite().all()


# One wide.


@every_family
@every_penalty
@pytest.mark.parametrize("stopping", ["first_B", "heuristic"])
def test_a_beam_of_one_is_greedy(name, penalty, alpha, stopping):
    """Not with the exact rule if length pays: it goes on after an end; a longer sentence may score better.

    Nor with a repetition penalty, which acts on log-probabilities in a beam, on scores in greedy search."""
    case, rules = small(name, 9, 4), [f.forbidden([3]), f.no_repeat_ngram(3), f.minimum_length(2, {2, 5})]
    ends = {2, 5}
    for filters in ([], rules):
        expected = greedy(case.step(), case.prompts, case.lengths, longest=8, eos=ends, filters=filters)
        settings = BeamSettings(1, 1, penalty, alpha, stopping=stopping)
        found = beam_search(
            case.step(), case.prompts, case.lengths, longest=8, eos=ends, settings=settings, filters=filters
        )
        assert [row[0].tokens for row in found] == [h.tokens for h in expected]
        for (hypothesis,), one in zip(found, expected, strict=True):
            assert hypothesis.log_probabilities == pytest.approx(one.log_probabilities, abs=1e-9)


@every_family
def test_a_beam_of_one_with_the_exact_rule_is_greedy_where_length_does_not_pay(name):
    case, settings = small(name, 9, 4), BeamSettings(1, 1, "power", 0.0, stopping="exact")
    expected = greedy(case.step(), case.prompts, case.lengths, longest=8, eos=EOS)
    found = beam_search(case.step(), case.prompts, case.lengths, longest=8, eos=EOS, settings=settings)
    assert [row[0].tokens for row in found] == [h.tokens for h in expected]


# In between: the definition as a plain loop.


def plainly(case: Case, row: int, longest: int, ends: set[int], s: BeamSettings) -> dict:
    """Beam search over Python lists; one dict {tokens: score} of all groups' finished hypotheses."""
    groups = [{"live": [(0.0, ())], "finished": {}, "over": False} for _ in range(s.beam_groups)]

    def score(total: float, tokens: tuple[int, ...], at: int) -> float:
        covered = s.coverage_penalty * cp(case, row, tokens) if s.coverage_penalty else 0.0
        return total / lp(s.length_penalty, at, s.length_alpha) + covered

    for n in range(1, longest + 1):
        taken: Counter[int] = Counter()
        for group in groups:
            if group["over"]:
                continue
            everything = [
                (total + p, (*tokens, t))
                for total, tokens in group["live"]
                for t, p in enumerate(following(case.name, row, tokens))
            ]
            everything.sort(key=lambda c: -(c[0] - s.diversity_penalty * taken[c[1][-1]]))
            chosen = everything[: (1 + len(ends)) * s.width]
            for total, tokens in chosen[: s.width]:
                if tokens[-1] in ends or n == longest:
                    group["finished"][tokens] = score(total, tokens, n)
            best = sorted(group["finished"].items(), key=lambda pair: -pair[1])[: s.width]
            group["finished"] = dict(best)
            live = group["live"] = [c for c in chosen if c[1][-1] not in ends][: s.width]
            taken.update(tokens[-1] for _, tokens in live)
            full = len(best) == s.width
            if s.stopping == "first_B":
                group["over"] = full
            elif s.stopping == "heuristic":
                group["over"] = full and all(score(total, tokens, n) <= best[-1][1] for total, tokens in live)
            else:
                ideal = lp(s.length_penalty, longest if s.length_alpha > 0 else n, s.length_alpha)
                group["over"] = full and all(total / ideal <= best[-1][1] for total, _ in live)
    return {tokens: found for group in groups for tokens, found in group["finished"].items()}


SETTINGS = {
    "plain": {},
    "wider, by the mean": {"width": 5, "length_penalty": "power", "length_alpha": 1.0},
    "short ones": {"width": 2, "length_penalty": "power", "length_alpha": -0.5},
    "covering": {"width": 3, "coverage_penalty": 0.5},
    "groups": {"width": 2, "beam_groups": 3, "diversity_penalty": 0.8},
    "groups that cover": {
        "width": 3,
        "beam_groups": 2,
        "diversity_penalty": 1.5,
        "coverage_penalty": 0.3,
        "length_alpha": 1.0,
    },
}


@every_family
@every_rule
@pytest.mark.parametrize("what", SETTINGS)
def test_the_search_does_what_a_plain_loop_does(name, stopping, what):
    given = {"width": 3, "stopping": stopping, **SETTINGS[what]}
    if name in DECODERS and "coverage_penalty" in given:
        del given["coverage_penalty"]  # nothing to cover
    settings = BeamSettings(n_best=given["width"] * given.get("beam_groups", 1), **given)
    case, ends, limits = telling(name), {2, 5}, [7, 4, 6]
    step = case.step(watched=name in ENCODER_DECODERS)
    found = beam_search(step, case.prompts, case.lengths, longest=limits, eos=ends, settings=settings)
    for row in range(3):
        expected = plainly(case, row, limits[row], ends, settings)
        assert len(found[row]) == len(expected)
        check_against(found[row], expected)


@every_family
def test_the_rules_stop_at_different_times(name):
    """Or the test above could not tell them apart."""
    calls = {}
    for stopping in STOPPING:
        case = telling(name)
        spy = Spy(case.step())
        settings = BeamSettings(3, stopping=stopping, length_penalty="power", length_alpha=1.0)
        beam_search(spy, case.prompts, case.lengths, longest=12, eos={2, 5}, settings=settings)
        calls[stopping] = sum(spy.rows)
    assert calls["first_B"] < calls["heuristic"] < calls["exact"]


def scripted(following: dict[tuple[int, ...], dict[int, float]], vocab: int) -> Forgetful:
    """A model that says what it is told; what it is not told about is all equally likely."""

    def whole(tokens, lengths, rows):
        table = torch.empty(*tokens.shape, vocab, dtype=torch.float64)
        for b, row in enumerate(tokens.tolist()):
            for t in range(len(row)):
                said = following.get(tuple(row[1 : t + 1]), {})
                rest = (1 - sum(said.values())) / (vocab - len(said))
                table[b, t] = torch.tensor(
                    [said.get(v, rest) for v in range(vocab)], dtype=torch.float64
                ).log()
        return table

    return Forgetful(whole)


def test_where_length_costs_the_exact_rule_expects_no_more_than_the_present_length():
    """power with alpha -1: the score is log P times the length. After two steps two hypotheses have ended,
    the worse with -7.8; 3 4 lives with log P -0.97, and would have -9.7 at the greatest length, but at once
    ends with -3.2."""
    said = {(): {2: 0.31, 3: 0.4, 5: 0.289}, (3,): {4: 0.95, 2: 0.0499}, (3, 4): {2: 0.9}}
    settings = BeamSettings(2, 2, "power", -1.0, stopping="exact")
    (found,) = beam_search(scripted(said, 40), torch.zeros(1, 1).long(), longest=10, eos=2, settings=settings)
    assert [h.tokens for h in found] == [[2], [3, 4, 2]]
    assert found[1].score == pytest.approx(3 * math.log(0.4 * 0.95 * 0.9))


# Invariants.

EVERYTHING = [
    f.forbidden([3, [4, 4]]),
    f.forced_prefix([[5], [], [6, 1]]),
    f.no_repeat_ngram(3),
    f.minimum_length(2, {2, 7}),
]


@every_family
@pytest.mark.parametrize("groups", [1, 3])
def test_cached_equals_uncached_and_a_batch_equals_its_rows_alone(name, groups):
    case, limits = small(name, 11, 8, 1.5), [8, 5, 9]
    cover = 0.2 if name in ENCODER_DECODERS else 0.0
    settings = BeamSettings(
        4, 4, coverage_penalty=cover, beam_groups=groups, diversity_penalty=0.5 if groups > 1 else 0.0
    )
    given = {"eos": {2, 7}, "settings": settings, "filters": EVERYTHING}
    watched = bool(cover)
    found = beam_search(case.step(watched=watched), case.prompts, case.lengths, longest=limits, **given)
    if not watched:
        again = beam_search(case.forgetful(), case.prompts, case.lengths, longest=limits, **given)
        assert [[h.tokens for h in row] for row in found] == [[h.tokens for h in row] for row in again]
    for row in range(3):
        step, prompt = case.alone(row, watched=watched)
        own = [
            f.forced_prefix([[[5], [], [6, 1]][row]]) if rule is EVERYTHING[1] else rule
            for rule in EVERYTHING
        ]
        (alone,) = beam_search(step, prompt, longest=limits[row], **{**given, "filters": own})
        assert [h.tokens for h in found[row]] == [h.tokens for h in alone]
        assert [h.score for h in found[row]] == pytest.approx([h.score for h in alone], abs=1e-9)
        for h in found[row]:
            assert h.tokens[: len([[5], [], [6, 1]][row])] == [[5], [], [6, 1]][row]
            assert 3 not in h.tokens and len(h.words) >= 2
            assert all(pair != (4, 4) for pair in zip(h.tokens, h.tokens[1:], strict=False))


@every_family
@pytest.mark.parametrize("groups", [1, 2])
def test_the_n_best_are_sorted_distinct_and_score_what_they_say(name, groups):
    case = small(name, 8, 3)
    settings = BeamSettings(
        5, 5 * groups, "power", 0.8, beam_groups=groups, diversity_penalty=0.05 if groups > 1 else 0
    )
    found = beam_search(case.step(), case.prompts, case.lengths, longest=6, eos=EOS, settings=settings)
    for row in found:
        assert len(row) >= 5 and len({tuple(h.tokens) for h in row}) == len(row)
        assert [h.score for h in row] == sorted((h.score for h in row), reverse=True)
        for h in row:
            assert h.score == pytest.approx(sum(h.log_probabilities) / len(h.tokens) ** 0.8, abs=1e-9)
            assert h.ended == (h.tokens[-1] == EOS) and EOS not in h.words
    fewer = BeamSettings(5, 2, "power", 0.8, beam_groups=groups, diversity_penalty=0.05 if groups > 1 else 0)
    assert [row[:2] for row in found] == beam_search(
        case.step(), case.prompts, case.lengths, longest=6, eos=EOS, settings=fewer
    )


def test_groups_differ_as_much_as_they_are_told_to():
    case = small("gpt2", 9, 3)

    def found(**options):
        settings = BeamSettings(2, n_best=2 * options.get("beam_groups", 1), **options)
        given = {"longest": 5, "eos": None, "settings": settings}
        return beam_search(case.step(), case.prompts, case.lengths, **given)

    alone, apart = found(), found(beam_groups=3, diversity_penalty=1e6)
    for row in range(3):
        tokens = [tuple(h.tokens) for h in apart[row]]
        assert {tuple(h.tokens) for h in alone[row]} <= set(tokens), "the first group is a plain search"
        for place in range(5):
            # Whatever two groups agree on at a place, the later would have paid a fortune for.
            by_group = {t[place] for t in tokens}
            assert len(by_group) >= 3
    together = found(beam_groups=3, diversity_penalty=1e-9)
    assert [{tuple(h.tokens) for h in row} for row in together] == [
        {tuple(h.tokens) for h in row} for row in alone
    ]


def test_a_sentence_that_is_over_costs_nothing():
    case = small("gpt2", 9, 3)
    spy = Spy(case.step())
    beam_search(spy, case.prompts, case.lengths, longest=[1, 4, 2], eos=None, settings=BeamSettings(5))
    assert spy.rows == [3, 10, 5, 5]


def test_no_prompts_no_hypotheses():
    case = small("gpt2", 9, 3)
    assert beam_search(case.step(), case.prompts[:0], longest=3, eos=EOS) == []
    assert greedy(case.step(), case.prompts[:0], longest=3, eos=EOS) == []


def test_a_search_with_nowhere_left_to_go_is_over():
    """No token twice: once the vocabulary is used up, what has ended until then is the answer."""
    case, prompts = small("gpt2", 5, 3), torch.tensor([[1], [3], [4]])
    spy, settings = Spy(case.step()), BeamSettings(40, 40, stopping="first_B")
    given = {"longest": 30, "settings": settings, "filters": [f.no_repeat_ngram(1)]}
    for row in beam_search(spy, prompts, eos=EOS, **given):
        assert len(row) == 1 + 3 + 3 * 2 + 3 * 2 and all(h.ended for h in row)
    assert len(spy.rows) == 4
    with pytest.raises(BadInput, match="every token is forbidden as the next one of row 0: loosen"):
        beam_search(case.step(), prompts, eos=None, **given)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"width": 0}, "width is 0"),
        ({"n_best": 5}, "a beam of 4 cannot find 5"),
        ({"length_penalty": "gntm"}, f'"gntm" does not exist; there are {", ".join(LENGTH_PENALTIES)}'),
        ({"stopping": "never"}, f"there are {', '.join(STOPPING)}"),
        ({"length_alpha": math.inf}, "length_alpha is inf"),
        ({"coverage_penalty": -1.0}, "coverage_penalty is -1.0"),
        ({"beam_groups": 2}, "go together"),
        ({"diversity_penalty": 0.5}, "go together"),
        ({"coverage_penalty": 0.1}, "watched=True"),
    ],
)
def test_settings_that_mean_nothing_are_refused(given, message):
    with pytest.raises(BadInput, match=message):
        settings = BeamSettings(**given)
        case = small("t5", 9, 3)
        beam_search(case.step(), case.prompts, longest=3, eos=EOS, settings=settings)


# Beside Hugging Face.

EARLY = {"first_B": True, "heuristic": False, "exact": "never"}


@every_rule
@pytest.mark.parametrize("alpha", [-0.5, 0.0, 1.0, 2.0])
@pytest.mark.parametrize("name, seed", [("gpt2", 0), ("llama", 3), ("transformer", 3), ("t5", 0)])
def test_beam_search_equals_generate(name, seed, alpha, stopping, tmp_path):
    """Their length_penalty is `power`; GNMT's, coverage and (by now) groups they do not have."""
    pair, width = Pair(name, seed, tmp_path), 3
    options = {
        "max_new_tokens": 7,
        "num_beams": width,
        "num_return_sequences": width,
        "length_penalty": alpha,
    }
    expected, scores = pair.generate(False, early_stopping=EARLY[stopping], **options)
    step, prompts, lengths = pair.step(False)
    settings = BeamSettings(width, width, "power", alpha, stopping=stopping)
    found = beam_search(step, prompts, lengths, longest=7, eos=pair.ends(), settings=settings)
    assert [h.tokens for row in found for h in row] == expected
    assert [h.score for row in found for h in row] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "t5", "transformer"])
def test_beam_search_equals_generate_in_seventy_random_cases(name, tmp_path):
    """Beams of 1 to 8, unequal prompts; a beam of one is their greedy search, which has no score."""
    dice = random.Random(name)
    for seed in range(7):
        pair = Pair(name, seed, tmp_path / str(seed))
        for _ in range(10):
            width, alpha, longest = dice.randint(1, 8), dice.choice([0.0, 0.6, 1.0, 2.0]), dice.randint(1, 9)
            stopping = dice.choice(list(EARLY)) if width > 1 else "heuristic"
            best = dice.randint(1, width)
            options = {"max_new_tokens": longest, "num_beams": width, "num_return_sequences": best}
            if width > 1:
                options |= {"length_penalty": alpha, "early_stopping": EARLY[stopping]}
            expected, scores = pair.generate(False, **options)
            step, prompts, lengths = pair.step(False)
            settings = BeamSettings(width, best, "power", alpha, stopping=stopping)
            found = beam_search(step, prompts, lengths, longest=longest, eos=pair.ends(), settings=settings)
            assert [h.tokens for row in found for h in row] == expected, (seed, options)
            if width > 1:
                assert [h.score for row in found for h in row] == pytest.approx(scores, abs=1e-4)


ALL_HAVE = ["repeated less", "no n-gram twice", "least length", "bad words"]


@pytest.mark.parametrize(
    "name, what",
    [
        *((name, what) for name in (*DECODERS, *ENCODER_DECODERS) for what in ALL_HAVE),
        *((name, "forced") for name in ENCODER_DECODERS),  # after a prompt of one token
    ],
)
def test_filtered_beam_search_equals_generate(name, what, tmp_path):
    """Prompts of equal length, since they take padding for text (see test_greedy_equals_generate)."""
    pair = Pair(name, 3, tmp_path)
    theirs, ours = {
        "repeated less": ({"repetition_penalty": 1.7}, f.repetition_penalty(1.7)),
        "forced": ({"forced_bos_token_id": 7}, f.forced_prefix([[7]] * 3)),
        "no n-gram twice": ({"no_repeat_ngram_size": 2}, f.no_repeat_ngram(2)),
        "least length": ({"min_new_tokens": 5}, f.minimum_length(5, pair.ends())),
        "bad words": ({"bad_words_ids": [[4], [8, 8], [1, 3]]}, f.forbidden([4, [8, 8], [1, 3]])),
    }[what]
    expected, scores = pair.generate(True, max_new_tokens=7, num_beams=4, num_return_sequences=2, **theirs)
    step, prompts, lengths = pair.step(True)
    settings = BeamSettings(4, 2, "power", 1.0)
    found = beam_search(step, prompts, lengths, longest=7, eos=pair.ends(), settings=settings, filters=[ours])
    assert [h.tokens for row in found for h in row] == expected
    assert [h.score for row in found for h in row] == pytest.approx(scores, abs=1e-4)
