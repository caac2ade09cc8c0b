"""Steps, greedy decoding, streaming and filters: each equals its definition, computed without any cache."""

import math
import random

import pytest
import torch
from helpers.decoding_cases import DECODERS, ENCODER_DECODERS, EOS, FAMILIES, Case, Pair, Spy, model_of
from helpers.tensor_names import told  # noqa: F401 (fixtures)

from heedful import watch
from heedful.decode import filters as f
from heedful.decode.beam import beam_search
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.filters import Context, left_padded
from heedful.decode.greedy import greedy
from heedful.decode.prompts import pad
from heedful.decode.sampling import sample
from heedful.decode.scores import apply
from heedful.decode.speculative import speculative_greedy
from heedful.decode.step import step_of
from heedful.decode.streaming import greedy_choice, hypotheses, stream
from heedful.errors import BadInput, NotFinite
from heedful.parts.places import Lengths

every_family = pytest.mark.parametrize("name", FAMILIES)
NEVER = float("-inf")


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-10, rtol=0)


# Steps.


@every_family
@pytest.mark.parametrize("seed", range(3))
def test_a_step_with_a_cache_equals_one_without_whatever_is_done_to_it(name, seed):
    """Feed unequal pieces, reorder, copy, drop and rewind rows at random."""
    case, rng = Case(name, seed=seed), random.Random(seed)
    steps = case.step(), case.forgetful()
    fed, rows = [0, 0, 0], 3
    with torch.no_grad():
        for turn in range(7):
            T = rng.randint(1, 3)
            tokens = torch.randint(case.vocab, (rows, T))
            lengths = (
                None if turn % 3 == 1 else torch.tensor([rng.randint(turn == 0, T) for _ in range(rows)])
            )
            real = [T] * rows if lengths is None else lengths.tolist()
            found, expected = (step(tokens, lengths) for step in steps)
            for b in range(rows):
                close(found[b, : real[b]], expected[b, : real[b]])
            fed = [a + b for a, b in zip(fed, real, strict=True)]
            order = torch.tensor([rng.randrange(rows) for _ in range(rng.randint(2, 5))])
            fed, rows = [fed[r] for r in order], len(order)
            keep = torch.tensor([rng.randint(1, n) for n in fed]) if turn % 2 else None
            for step in steps:
                step.reorder(order)
                if keep is not None:
                    step.rewind(keep)
            fed = fed if keep is None else keep.tolist()


@every_family
def test_the_last_scores_are_those_of_the_last_real_token(name):
    case = Case(name)
    with torch.no_grad():
        everything = case.step()(case.prompts, case.lengths)
        last = case.step().last(case.prompts, case.lengths)
    close(last, everything[torch.arange(3), case.lengths - 1])
    close(last, Spy(case.step()).last(case.prompts, case.lengths))


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_a_watched_step_shows_how_each_head_looks_at_the_source(name):
    case = Case(name)
    step = case.step(watched=True)
    assert case.step().attention is None
    with torch.no_grad(), watch(case.model) as trace:
        case.model(case.source, case.prompts, Lengths(case.source_lengths))
    path = [p for p in trace if ".cross." in p][-1]
    whole = trace[path].weights[0]
    with torch.no_grad():
        scores = step.last(case.prompts, case.lengths)
    close(scores, case.step().last(case.prompts, case.lengths).detach())
    for b in range(3):
        n = case.source_lengths[b]
        close(step.attention[b, :, :n], whole[b, :, case.lengths[b] - 1, :n])
        assert (step.attention[b, :, n:] == -1).all()
    seen, rows = step.attention, torch.tensor([2, 0, 0, 1])
    step.reorder(rows)
    assert torch.equal(step.attention, seen[rows])


def test_a_step_is_refused_what_does_not_belong_to_it():
    decoder, pair = model_of("gpt2"), model_of("t5")
    with pytest.raises(BadInput, match="reads no source"):
        step_of(decoder, torch.ones(1, 2, dtype=torch.long))
    with pytest.raises(BadInput, match="needs a source"):
        step_of(pair)
    with pytest.raises(BadInput, match="no cross-attention"):
        step_of(decoder, watched=True)


def test_a_learned_table_is_filled_to_its_end_and_no_further():
    """31 positions; the newest token is not fed, so that one more fits.

    Rows reach the end at different times.
    """
    case = Case("gpt2")
    longest = [31 - n + 1 for n in case.lengths.tolist()]
    full = greedy(case.step(), case.prompts, case.lengths, longest=longest)
    assert [len(h.tokens) for h in full] == longest
    with pytest.raises(ValueError, match="32 tokens does not fit the learned position table of 31"):
        greedy(case.step(), case.prompts, case.lengths, longest=[longest[0], longest[1] + 1, longest[2]])


def test_what_does_not_fit_is_refused_before_anything_is_computed(monkeypatch):
    """A table on a GPU does not say what was too long."""
    case = Case("gpt2")
    for lengths in (None, torch.tensor([31, 4, 30])):
        step = case.step()
        with torch.no_grad():
            step.last(torch.ones(3, 31, dtype=torch.long), lengths)
        monkeypatch.setattr(case.model, "hidden", None)
        with pytest.raises(ValueError, match="32 tokens does not fit"):
            step.last(torch.ones(3, 1, dtype=torch.long))
        monkeypatch.undo()


# Greedy and streaming.


@every_family
def test_greedy_is_the_likeliest_token_again_and_again(name):
    case = Case(name)
    found = greedy(case.step(), case.prompts, case.lengths, longest=7)
    for row, hypothesis in enumerate(found):
        written, log_p = [], []
        for _ in range(7):
            after = case.next(row, tuple(written))
            written.append(int(after.argmax()))
            log_p.append(float(after.max()))
        assert hypothesis.tokens == written == hypothesis.words and not hypothesis.ended
        assert hypothesis.log_probabilities == pytest.approx(log_p, abs=1e-10)
        assert hypothesis.score == pytest.approx(sum(log_p), abs=1e-10)


@every_family
def test_greedy_cached_equals_uncached_and_a_batch_equals_its_rows_alone(name):
    case = Case(name, seed=5)
    rules = [f.no_repeat_ngram(2), f.repetition_penalty(1.3)]
    limits = [9, 4, 7]
    free = greedy(case.step(), case.prompts, case.lengths, longest=limits, filters=rules)
    ends = {free[0].tokens[4], free[2].tokens[2]}  # so that rows end at different times
    found = greedy(case.step(), case.prompts, case.lengths, longest=limits, eos=ends, filters=rules)
    again = greedy(case.forgetful(), case.prompts, case.lengths, longest=limits, eos=ends, filters=rules)
    assert len({len(h.tokens) for h in found}) > 1 and {h.ended for h in found} != {False}
    for row, (a, b) in enumerate(zip(found, again, strict=True)):
        assert a.tokens == b.tokens and a.ended == b.ended
        assert a.log_probabilities == pytest.approx(b.log_probabilities, abs=1e-10)
        step, prompt = case.alone(row)
        (c,) = greedy(step, prompt, longest=limits[row], eos=ends, filters=rules)
        assert a.tokens == c.tokens and a.score == pytest.approx(c.score, abs=1e-10)
        assert a.words == [t for t in a.tokens if t not in ends]


@every_family
def test_streaming_gives_the_same_tokens_one_by_one(name):
    case = Case(name, seed=2)
    whole = greedy(case.step(), case.prompts, case.lengths, longest=[3, 6, 5])
    came = list(stream(case.step(), case.prompts, case.lengths, choose=greedy_choice, longest=[3, 6, 5]))
    assert [[t.row for t in news] for news in came] == [[0, 1, 2]] * 3 + [[1, 2]] * 2 + [[1]]
    assert [[t.last for t in news] for news in came][2:] == [
        [True, False, False],
        [False, False],
        [False, True],
        [True],
    ]
    assert hypotheses(came, 3) == whole


def test_a_stream_can_be_left_before_its_end():
    case = Case("llama")
    words = stream(case.step(), case.prompts, case.lengths, choose=greedy_choice, longest=10**9)
    first = [next(words), next(words)]
    words.close()
    short = greedy(case.step(), case.prompts, case.lengths, longest=2)
    assert hypotheses(first, 3) == [type(h)(h.tokens, h.score, h.log_probabilities, False) for h in short]


def test_rows_that_have_ended_cost_nothing():
    spy = Spy(Case("gpt2").step())
    case = Case("gpt2")
    greedy(spy, case.prompts, case.lengths, longest=[1, 5, 3])
    assert spy.rows == [3, 2, 2, 1, 1]


def test_gradients_are_not_kept_and_may_be_kept_in_between():
    case = Case("gpt2")
    words = stream(case.step(), case.prompts, choose=greedy_choice, longest=2)
    next(words)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    "given, message",
    [
        ({"lengths_B": torch.tensor([2, 0, 1])}, "prompt 1 is empty"),
        ({"lengths_B": torch.tensor([2, 5, 1])}, "length of 5 in a table of 4"),
        ({"lengths_B": torch.tensor([2, 2])}, "3 prompts but 2 lengths"),
        ({"longest": 0}, "greatest length is 0"),
        ({"longest": [3, 4]}, "3 prompts but 2 greatest lengths"),
        ({"filters": [f.forced_prefix([[1]])]}, "3 prompts but 1 prefixes"),
        ({"filters": [f.forbidden([99])]}, "token 99 does not exist in a vocabulary of 29"),
        ({"filters": [f.forced_prefix([[1], [2], [99]])]}, "token 99 does not exist"),
        ({"filters": [f.forbidden(range(29))]}, "every token is forbidden as the next one of row 0"),
        ({"filters": [f.forced_prefix([[], [3], []]), f.forbidden([3])]}, "as the next one of row 1"),
    ],
)
def test_what_cannot_be_decoded_is_refused_in_a_sentence(given, message):
    case = Case("gpt2")
    with pytest.raises(BadInput, match=message):
        greedy(case.step(), case.prompts, **{"longest": 3, **given})


def test_a_broken_model_is_told_from_a_forbidden_word():
    case = Case("gpt2")
    case.model.head.scale = math.nan
    for search in (greedy, sample, beam_search):
        with pytest.raises(NotFinite, match="row 0 are not numbers"):
            search(case.step(), case.prompts, longest=3, eos=EOS)


# Filters: each against its definition, spelt out for one row.


def text(*rows: list[int], prompts: list[int] | None = None) -> Context:
    """Rows of tokens as filters see them; prompts: how much of each is the prompt."""
    tokens, lengths = pad(rows)
    counts = lengths - torch.tensor(prompts or [0] * len(rows))
    return Context(left_padded(tokens, lengths), counts, torch.arange(len(rows)), len(rows))


def kept(scores: torch.Tensor) -> list[list[int]]:
    return [[i for i, s in enumerate(row) if s > NEVER] for row in scores.tolist()]


def some_scores(rows=5, vocab=13, seed=0) -> torch.Tensor:
    """Whole numbers, so that many are equal; and one token already forbidden."""
    scores = torch.randint(-4, 4, (rows, vocab), generator=torch.Generator().manual_seed(seed)).double()
    scores[:, 3] = NEVER
    return scores


def ranked(row: list[float]) -> list[int]:
    """Likeliest first; of equals, the lower number."""
    return sorted(range(len(row)), key=lambda i: (-row[i], i))


@pytest.mark.parametrize("k", [1, 2, 5, 12, 13, 50])
def test_top_k_keeps_the_k_likeliest_and_of_equals_the_first(k):
    scores = some_scores()
    expected = [sorted(i for i in ranked(row)[:k] if row[i] > NEVER) for row in scores.tolist()]
    assert kept(f.top_k(k)(scores, text(*[[1]] * 5))) == expected


@pytest.mark.parametrize("p", [0.0, 0.25, 0.3, 0.5, 0.9, 0.999, 1.0])
def test_top_p_keeps_the_smallest_set_that_holds_p(p):
    level = torch.zeros(1, 4).double()  # four quarters: every border is an exact tie
    for scores in (some_scores(), some_scores(seed=1) / 3, level):
        expected = []
        for row in scores.tolist():
            total = math.fsum(math.exp(s) for s in row)
            chosen, mass = [], 0.0
            for i in ranked(row):
                if chosen and (mass >= p - 1e-12 and p < 1 or row[i] == NEVER):
                    break
                chosen.append(i)
                mass += math.exp(row[i]) / total
            expected.append(sorted(chosen))
        assert kept(f.top_p(p)(scores, text(*[[1]] * len(scores)))) == expected
    assert len(kept(f.top_p(0.5)(level, text([1])))[0]) == 2


@pytest.mark.parametrize("m", [0.0, 0.1, 0.5, 1.0])
def test_min_p_keeps_what_is_at_least_m_times_as_likely_as_the_likeliest(m):
    scores = some_scores(seed=2) * math.log(2)  # ratios are powers of two: 0.5 is an exact tie
    for row, found in zip(scores.tolist(), kept(f.min_p(m)(scores, text(*[[1]] * 5))), strict=True):
        best = max(row)
        assert found == [
            i for i, s in enumerate(row) if s > NEVER and 2.0 ** round((s - best) / math.log(2)) >= m
        ]


def test_temperature_divides():
    scores = some_scores()
    assert torch.equal(f.temperature(0.5)(scores, text(*[[1]] * 5)), scores * 2)


def test_repetition_penalty_lowers_what_was_written_and_nothing_else():
    scores, written = torch.tensor([[2.0, -2.0, 0.0, 4.0], [2.0, -2.0, 0.0, 4.0]]), text([0, 1, 1], [3])
    found = f.repetition_penalty(2.0)(scores, written)
    assert found.tolist() == [[1.0, -4.0, 0.0, 4.0], [2.0, -2.0, 0.0, 2.0]]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_ngram_comes_twice(n):
    rng = random.Random(n)
    rows = [[rng.randrange(3) for _ in range(rng.randint(1, 9))] for _ in range(20)]
    found = kept(f.no_repeat_ngram(n)(torch.zeros(20, 4), text(*rows)))
    for row, allowed in zip(rows, found, strict=True):
        seen = {tuple(row[i : i + n]) for i in range(len(row) - n + 1)}
        ending = row[len(row) - n + 1 :] if len(row) >= n - 1 else None
        assert allowed == [t for t in range(4) if ending is None or (*ending, t) not in seen]


def test_forbidden_words_and_sequences():
    rows = [[1, 2], [2, 1], [0, 1, 2, 1], [3]]
    never = [[4], 5, [1, 3], [2, 1, 0], [9, 9, 9, 9, 9, 9, 9]]
    for some in (rows, rows[:2]):
        found = kept(f.forbidden(never)(torch.zeros(len(some), 10), text(*some)))
        for row, allowed in zip(some, found, strict=True):
            banned = {4, 5} | ({3} if row[-1] == 1 else set()) | ({0} if row[-2:] == [2, 1] else set())
            assert allowed == [t for t in range(10) if t not in banned]


def test_forced_prefixes_and_least_lengths_count_new_tokens_only():
    written = text([7, 7, 7], [7], [7, 1], prompts=[2, 1, 1])  # 1, 0 and 1 new tokens
    forced = f.forced_prefix([[4, 5], [], [6]])(torch.zeros(3, 8), written)
    assert kept(forced) == [[5], list(range(8)), list(range(8))]
    long = f.minimum_length(1, {2, 3})(torch.zeros(3, 5), written)
    assert kept(long) == [[0, 1, 2, 3, 4], [0, 1, 4], [0, 1, 2, 3, 4]]
    each = f.minimum_length([2, 0, 1], {2, 3})(torch.zeros(3, 5), written)
    assert kept(each) == [[0, 1, 4], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]


def test_filters_apply_in_the_order_given_and_leave_what_they_get_alone():
    scores, written = torch.tensor([[0.0, 1.0, 2.0, 3.0]]), text([3])
    before = scores.clone()
    every = [f.temperature(2.0), f.top_k(2), f.top_p(0.5), f.min_p(0.5), f.repetition_penalty(3.0)]
    every += [f.no_repeat_ngram(1), f.forbidden([1]), f.forced_prefix([[2]]), f.minimum_length(2, 0)]
    for one in every:
        one(scores, written)
        assert torch.equal(scores, before)
    # With the penalty first, token 3 falls behind; with top-k first, it alone is left.
    penalty = f.repetition_penalty(10.0)
    assert kept(apply([penalty, f.top_k(1)], scores, written)) == [[2]]
    assert kept(apply([f.top_k(1), penalty], scores, written)) == [[3]]


def test_filters_work_in_single_precision_at_least():
    half = torch.tensor([[1.0, 2.0]], dtype=torch.bfloat16)
    assert apply([f.temperature(3.0)], half, text([0])).dtype == torch.float32
    assert apply([], half.double(), None).dtype == torch.float64


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: f.temperature(0), "use greedy"),
        (lambda: f.temperature(math.nan), "not a positive number"),
        (lambda: f.top_k(0), "k must be at least 1"),
        (lambda: f.top_p(1.5), "between 0 and 1"),
        (lambda: f.min_p(-0.1), "between 0 and 1"),
        (lambda: f.repetition_penalty(0), "1 changes nothing"),
        (lambda: f.no_repeat_ngram(0), "n must be at least 1"),
        (lambda: f.forbidden([[]]), "at least one"),
        (lambda: f.forbidden([[3, -1]]), "by their numbers"),
        (lambda: f.minimum_length(3, None), "without an end token"),
    ],
)
def test_a_filter_that_means_nothing_is_refused(make, message):
    with pytest.raises(BadInput, match=message):
        make()


# Beside Hugging Face.

THEIRS_AND_OURS = {
    "plain": ({}, lambda ends: []),
    "no n-gram twice": ({"no_repeat_ngram_size": 2}, lambda ends: [f.no_repeat_ngram(2)]),
    "repetition penalty": ({"repetition_penalty": 1.7}, lambda ends: [f.repetition_penalty(1.7)]),
    "least length": ({"min_new_tokens": 4}, lambda ends: [f.minimum_length(4, ends)]),
    "bad words": (
        {"bad_words_ids": [[4], [8], [3, 3], [0, 0], [7, 7, 7]]},
        lambda ends: [f.forbidden([4, 8, [3, 3], [0, 0], [7, 7, 7]])],
    ),
    "all at once": (
        {
            "repetition_penalty": 1.2,
            "no_repeat_ngram_size": 3,
            "bad_words_ids": [[5], [9, 9]],
            "min_new_tokens": 2,
        },
        lambda ends: [
            f.repetition_penalty(1.2),
            f.no_repeat_ngram(3),
            f.forbidden([5, [9, 9]]),
            f.minimum_length(2, ends),
        ],
    ),
}


@pytest.mark.parametrize("what", THEIRS_AND_OURS)
@pytest.mark.parametrize("name, seed", [(name, seed) for name in FAMILIES for seed in (0, 3)])
def test_greedy_equals_generate(name, seed, what, tmp_path):
    """Prompts of equal length where history matters: they count their padding (on the left) as text, and so
    penalize or forbid the padding's token; here padding is nobody."""
    options, filters = THEIRS_AND_OURS[what]
    pair, even = Pair(name, seed, tmp_path), what != "plain" and name in DECODERS
    # They let an end of sentence be a bad word only as part of a longer one; here what is forbidden is
    # forbidden.
    never = [token for token in (4, 5, 8) if token in pair.ends()]
    assert not never, "the cases agree only if no single bad word ends a sentence"
    expected, _ = pair.generate(even, max_new_tokens=8, do_sample=False, **options)
    step, prompts, lengths = pair.step(even)
    found = greedy(step, prompts, lengths, longest=8, eos=pair.ends(), filters=filters(pair.ends()))
    assert [h.tokens for h in found] == expected


def test_tensor_names_tell_the_truth_in_every_search(told):
    found, heard = told
    case, draft = Case("transformer", vocab=7), Case("transformer", vocab=7, seed=4)
    rules = [f.forbidden([0, [3, 3]]), f.forced_prefix([[4, 5], [], [6]]), f.minimum_length(2, EOS)]
    rules += [f.repetition_penalty(1.2), f.no_repeat_ngram(4), f.top_k(5), f.top_p(0.9), f.min_p(0.01)]
    given = {"longest": [6, 4, 7], "eos": EOS, "filters": rules}
    greedy(case.step(), case.prompts, case.lengths, **given)
    sample(case.step(), case.prompts, case.lengths, **given)
    speculative_greedy(case.step(), draft.step(), case.prompts, case.lengths, **given)
    for settings in (
        BeamSettings(coverage_penalty=0.2),
        BeamSettings(width=3, beam_groups=2, diversity_penalty=0.5),
    ):
        beam_search(case.step(watched=True), case.prompts, case.lengths, settings=settings, **given)
    assert set(found) == set()
    assert {"extend", "candidates", "check", "guess", "draw", "stream_chunks", "DecoderStep.hidden"} <= heard
