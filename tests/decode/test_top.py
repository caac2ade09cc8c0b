"""The likeliest tokens beside each that was written: a full forward says the same, in every search."""

import pytest
from helpers.decoding_cases import EOS, FAMILIES, Case

from heedful.decode.filters import repetition_penalty, temperature
from heedful.decode.sampling import Sampler, row_seeds
from heedful.decode.speculative import FilteredDistribution, all_on_the_argmax, softmax, speculate
from heedful.decode.step import DecoderStep
from heedful.decode.streaming import greedy_choice, hypotheses, join_chunks, stream, stream_chunks

FILTERS = [repetition_penalty(1.4), temperature(0.8)]  # what is reported does not depend on them


def check(case: Case, found, top: int) -> None:
    for row, one in enumerate(found):
        assert len(one.top) == len(one.tokens) > 0
        for n, some in enumerate(one.top):
            log_p = case.next(row, tuple(one.tokens[:n])).tolist()
            best = sorted(range(len(log_p)), key=lambda token: -log_p[token])[:top]
            assert [token for token, _ in some] == best
            assert [value for _, value in some] == pytest.approx([log_p[t] for t in best], abs=1e-9)


@pytest.mark.parametrize("name", FAMILIES)
def test_greedy_sampling_and_speculation_report_the_likeliest_tokens(name):
    case = Case(name, 11, seed=5)
    given = {"longest": [7, 4, 9], "eos": EOS}
    chooses = [greedy_choice, Sampler(row_seeds(3, 3), case.prompts.device)]
    for choose in chooses:
        how = {"choose": choose, "filters": FILTERS, "top": 4, **given}
        for chunk in (1, 4):  # as a device writes: several tokens before the host looks
            step = case.step()
            step.__class__ = type("Late", (DecoderStep,), {"chunk": chunk})
            check(case, hypotheses(stream(step, case.prompts, case.lengths, **how), 3), 4)
    for distribution in (all_on_the_argmax, softmax):
        drawn = FilteredDistribution(distribution, FILTERS)
        how = {"distribution": drawn, "ahead": 3, "top": 2, **given}
        draft = Case(name, 11, seed=6).step()
        check(case, hypotheses(speculate(case.step(), draft, case.prompts, case.lengths, **how), 3), 2)


def test_more_than_the_vocabulary_has_is_all_of_it_and_without_any_there_are_none():
    case = Case("gpt2", 5)
    how = {"choose": greedy_choice, "longest": 3}
    whole = join_chunks(stream_chunks(case.step(), case.prompts, case.lengths, top=9, **how), 3)
    check(case, whole, 5)
    plain = join_chunks(stream_chunks(case.step(), case.prompts, case.lengths, **how), 3)
    assert [one.top for one in plain] == [[]] * 3 and [h.tokens for h in plain] == [h.tokens for h in whole]


def test_rows_that_are_stopped_report_no_more_than_they_wrote():
    case = Case("llama", 11, seed=5)
    how = {"choose": greedy_choice, "longest": 8, "top": 3, "stop": lambda row, token: row == 1}
    found = join_chunks(stream_chunks(case.step(), case.prompts, case.lengths, **how), 3)
    assert len(found[1].tokens) == 1
    check(case, found, 3)
