"""Chunks: a step that is looked at late writes the same as one that is looked at after every token."""

import math

import pytest
import torch
from helpers.decoding_cases import Case, Spy

from heedful.decode import filters as f
from heedful.decode.beam import beam_search
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.greedy import greedy
from heedful.decode.prefix_tree import PrefixTree
from heedful.decode.sampling import Sampler, sample
from heedful.decode.step import LEAD, DecoderStep, Step
from heedful.decode.streaming import (
    HostCopy,
    greedy_choice,
    hypotheses,
    join_chunks,
    read_chunk,
    stream,
    stream_chunks,
    to_device,
)
from heedful.errors import BadInput, NotFinite

NEVER = -math.inf


def late(case, chunk):
    """The case's step, looked at after so many tokens."""
    step = case.step()
    step.__class__ = type("Late", (DecoderStep,), {"chunk": chunk})
    return step


class Scripted(Step):
    """Says what it was told to say, whatever it is fed: best[n][row] is the score of token n + 1 of a row,
    the others have one less."""

    def __init__(self, best, chunk=1, room=None):
        self.best, self.now, self.rows = best, chunk, list(range(len(best[0])))
        self.fed, self.room = 0, room

    chunk = property(lambda self: self.now)
    tokens_left = property(lambda self: None if self.room is None else self.room - self.fed)

    def __call__(self, tokens_BT, lengths_B=None):
        if self.room is not None and self.fed >= self.room:
            raise ValueError("there is no more room")
        scores = torch.tensor([self.best[min(self.fed, len(self.best) - 1)][row] for row in self.rows])
        self.fed += 1
        table = (scores[:, None] - 1).repeat(1, 9)
        table[:, self.fed % 9] = scores
        return table[:, None]

    def reorder(self, rows, siblings=False):
        self.rows = [self.rows[r] for r in rows.tolist()]

    def rewind(self, lengths_B):
        raise AssertionError("greedy search and beams never go back")


def prompts(rows):
    return torch.ones(rows, 1, dtype=torch.long)


every_chunk = pytest.mark.parametrize("chunk", [1, 2, 5, 16])


# The same text


@every_chunk
@pytest.mark.parametrize("soon", [False, True])
@pytest.mark.parametrize("name", ["gpt2", "transformer"])
def test_streams_are_the_same_however_late_they_are_looked_at(name, soon, chunk):
    case = Case(name, seed=5)
    limits = [12, 4, 9]
    for rules in ([], [f.no_repeat_ngram(2), f.temperature(0.7)]):
        free = greedy(case.step(), case.prompts, case.lengths, longest=limits, filters=rules)
        for eos in (None, {free[0].tokens[5], free[2].tokens[2]}):
            for make in (lambda: greedy_choice, lambda: Sampler([3, 4, 5], torch.device("cpu"))):
                given = {"longest": limits, "eos": eos, "filters": rules, "soon": soon}
                found, expected = (
                    list(stream(step, case.prompts, case.lengths, choose=make(), **given))
                    for step in (late(case, chunk), case.step())
                )
                assert [[t._replace(log_probability=0) for t in some] for some in found] == [
                    [t._replace(log_probability=0) for t in some] for some in expected
                ]
                for mine, theirs in zip(hypotheses(found, 3), hypotheses(expected, 3), strict=True):
                    assert mine.log_probabilities == pytest.approx(theirs.log_probabilities, abs=1e-10)


def test_chunks_joined_are_the_stream_joined():
    case, given = Case("llama", seed=2), {"choose": greedy_choice, "longest": [3, 6, 5], "eos": {4, 9}}
    whole = join_chunks(stream_chunks(late(case, 4), case.prompts, case.lengths, **given), 3)
    assert whole == hypotheses(stream(late(case, 4), case.prompts, case.lengths, **given), 3)
    assert [len(h.tokens) <= n for h, n in zip(whole, [3, 6, 5], strict=True)] == [True] * 3


@every_chunk
def test_beams_with_filters_are_the_same_however_late_they_are_looked_at(chunk):
    case = Case("gpt2", seed=5, sharper=1.5)
    given = {"longest": [9, 4, 7], "eos": {2, 11}, "filters": [f.no_repeat_ngram(2)]}
    for settings in (
        BeamSettings(width=3, n_best=3),
        BeamSettings(width=2, beam_groups=2, diversity_penalty=0.5),
    ):
        found, expected = (
            beam_search(step, case.prompts, case.lengths, settings=settings, **given)
            for step in (late(case, chunk), case.step())
        )
        for mine, theirs in zip(found, expected, strict=True):
            assert [h.tokens for h in mine] == [h.tokens for h in theirs]
            assert [h.score for h in mine] == pytest.approx([h.score for h in theirs], abs=1e-9)


# What is written in vain, and how soon


@pytest.mark.parametrize("chunk", [8, 16])
def test_when_all_have_ended_few_tokens_were_written_in_vain(chunk):
    """They write 1, 2, 3, ...: the end is seen with its chunk, while the device writes a few of the next."""
    for end in range(1, 9):
        step = Scripted([[1.0, 1.0]], chunk)
        (one, _) = greedy(step, prompts(2), longest=60, eos=end)
        assert one.tokens == list(range(1, end + 1))
        looked_at_with = 1 if end == 1 else 1 + chunk
        assert step.fed == looked_at_with + LEAD


def test_where_nothing_ends_early_nothing_is_written_in_vain():
    for longest in (1, 2, 5, 30, 33):
        step = Scripted([[1.0]], 16)
        assert len(greedy(step, prompts(1), longest=longest)[0].tokens) == longest == step.fed


def test_who_waits_gets_the_first_tokens_at_once():
    step = Scripted([[1.0]], 8)
    words = stream(step, prompts(1), choose=greedy_choice, longest=40)
    fed = []
    for _ in range(16):
        next(words)
        fed.append(step.fed)
    assert fed == [1, 3, 3, 7, 7, 7, 7] + [23] * 8 + [
        31
    ]  # once stream_chunks are long, the next is under way


def test_rows_that_have_ended_are_dropped_with_the_next_look():
    case = Case("gpt2")

    class Counted(Spy):
        chunk = 3

    spy = Counted(case.step())
    greedy(spy, case.prompts, case.lengths, longest=[1, 7, 4])
    assert spy.rows == [3, 2, 2, 2, 1, 1, 1]


# What is wrong


@every_chunk
def test_what_was_written_before_a_fault_is_handed_over(chunk):
    best = [[1.0, 1.0, 1.0]] * 3 + [[1.0, math.nan, NEVER]]
    words = stream(Scripted(best, chunk), prompts(3), choose=greedy_choice, longest=20, soon=False)
    assert [[t.token for t in next(words)] for _ in range(3)] == [[1] * 3, [2] * 3, [3] * 3]
    with pytest.raises(NotFinite, match="row 1 are not numbers"):
        next(words)
    with pytest.raises(NotFinite, match="row 1 are not numbers"):
        greedy(Scripted(best, chunk), prompts(3), longest=20)


@every_chunk
def test_after_its_end_a_row_may_be_anything(chunk):
    best = [[1.0, 1.0]] * 2 + [[1.0, math.nan]] * 3 + [[NEVER, math.nan]]
    short, long = greedy(Scripted(best, chunk), prompts(2), longest=[5, 2])[::-1]
    assert (short.tokens, long.tokens) == ([1, 2], [1, 2, 3, 4, 5])
    with pytest.raises(BadInput, match="as the next one of row 0"):
        greedy(Scripted(best, chunk), prompts(2), longest=[6, 2])


@every_chunk
def test_rows_keep_their_numbers_when_others_have_ended(chunk):
    best = [[1.0] * 3] * 3 + [[1.0, 1.0, math.nan]]
    with pytest.raises(NotFinite, match="row 2 are not numbers"):
        greedy(Scripted(best, chunk), prompts(3), longest=[1, 9, 9])


def test_the_first_fault_counts_of_a_chunk_that_has_several():
    best = torch.tensor([[0.0, 0.0], [0.0, NEVER], [math.nan, 0.0]])
    chunk, doubtful = read_chunk((torch.ones(3, 2), best, best), [4, 7], 0, [9] * 8, frozenset())
    assert chunk.tokens == [[1], [1]] and chunk.over == [False, False]
    assert doubtful == ([0.0, NEVER], [4, 7])


@every_chunk
def test_room_is_used_up_to_its_end_and_no_further(chunk):
    """A text that ends in time is written, though a whole chunk would not have fitted."""
    for room in (6, 7, 8):
        step = Scripted([[1.0]], chunk, room)
        assert greedy(step, prompts(1), longest=30, eos=6)[0].tokens == [1, 2, 3, 4, 5, 6]
    with pytest.raises(ValueError, match="no more room"):
        greedy(Scripted([[1.0]], chunk, 5), prompts(1), longest=30, eos=6)


@every_chunk
def test_a_beam_uses_its_room_to_the_end(chunk):
    case = Case("gpt2")  # 31 positions
    longest = [31 - n + 1 for n in case.lengths.tolist()]
    settings = BeamSettings(width=2)
    found, expected = (
        beam_search(step, case.prompts, case.lengths, longest=longest, eos=2, settings=settings)
        for step in (late(case, chunk), case.step())
    )
    assert [h[0].tokens for h in found] == [h[0].tokens for h in expected]


def test_a_learned_table_is_filled_to_its_end_however_late_one_looks():
    case = Case("gpt2")
    longest = [31 - n + 1 for n in case.lengths.tolist()]
    full = greedy(late(case, 16), case.prompts, case.lengths, longest=longest)
    assert [len(h.tokens) for h in full] == longest
    with pytest.raises(ValueError, match="32 tokens does not fit the learned position table of 31"):
        greedy(late(case, 16), case.prompts, case.lengths, longest=[n + 1 for n in longest])


# To the host and back


def test_numbers_of_every_kind_arrive_as_they_were():
    tokens, nodes = torch.tensor([0, 50256, 2**31]), torch.tensor([-1, 2**40, 3])
    scores = torch.tensor([0.1, NEVER, math.nan])
    found = HostCopy(tokens, nodes, scores).wait()
    assert torch.equal(found[0].long(), tokens) and torch.equal(found[1].long(), nodes)
    assert torch.equal(found[2].float().nan_to_num(7), scores.nan_to_num(7))
    assert torch.equal(to_device(tokens, torch.device("cpu")), tokens)


def test_a_tree_is_read_from_its_nodes_to_the_root():
    tree = PrefixTree()
    first = tree.grow(torch.tensor([[-1, -1]]), torch.tensor([[5, 6]]), torch.tensor([[0.5, 0.25]]))
    second = tree.grow(first[:, [1, 0]], torch.tensor([[7, 8]]), torch.tensor([[1.0, 2.0]]))
    nodes = [*second[0].tolist(), first[0, 1].item()]
    assert tree.read(nodes) == [([6, 7], [0.25, 1.0]), ([5, 8], [0.5, 2.0]), ([6], [0.25])]
    assert tree.read([]) == []


def test_sampling_draws_the_same_however_late_one_looks():
    case = Case("llama", seed=3)
    found, expected = (
        sample(step, case.prompts, case.lengths, longest=[5, 70, 9], eos=4, seed=8)
        for step in (late(case, 16), case.step())
    )
    assert [h.tokens for h in found] == [h.tokens for h in expected]
