"""The fates of a beam search's candidates. That they replay to its result is tested on every search of
test_beam.py (see `heard_search`)."""

import pytest
import torch
from helpers.decoding_cases import EOS, FAMILIES, Case

from heedful.decode import filters as f
from heedful.decode.beam import beam_search
from heedful.decode.beam_fates import FATES, Fates, way_to
from heedful.decode.beam_settings import BeamSettings


def heard(filters=(), longest=6, **given):
    case, fates = Case("gpt2", 8, 8, 1.5), Fates()
    settings = BeamSettings(**{"width": 3, "n_best": 2} | given)
    found = beam_search(
        case.step(),
        case.prompts,
        case.lengths,
        longest=longest,
        eos={EOS, 5},
        settings=settings,
        filters=filters,
        heard=fates,
    )
    return case, fates, found


@pytest.mark.parametrize("groups", [{}, {"beam_groups": 2, "diversity_penalty": 0.7}])
def test_only_what_lives_is_extended_and_no_more_than_the_beam_is_wide(groups):
    _, fates, _ = heard(**groups)
    assert {one.fate for one in fates.candidates} <= set(FATES) - {"forbidden"}
    for row in range(3):
        every = fates.of_sentence(row)
        assert [one.id for one in every] == list(range(len(every)))
        assert all(every[n].fate == "lives" and every[n].group == every[c].group for c, n in edges(every))
        for group in {one.group for one in every}:
            for step in range(1, 7):
                here = [
                    one
                    for one in every
                    if (one.step, one.group) == (step, group) and one.token not in (EOS, 5)
                ]
                living = [one.total for one in here if one.fate == "lives"]
                fallen = [one.total for one in here if one.fate == "fell off"]
                assert len(living) <= 3
                assert groups or not living or not fallen or min(living) >= max(fallen)


def edges(every):
    return [(one.id, one.before) for one in every if one.before >= 0]


def test_totals_and_log_probabilities_are_the_models_own():
    case, fates, _ = heard()
    for row in range(3):
        every = fates.of_sentence(row)
        for one in every[:: max(1, len(every) // 7)]:
            way = way_to(every, one.id)
            tokens = tuple(each.token for each in way)
            assert len(tokens) == one.step
            assert one.log_probability == pytest.approx(
                case.next(row, tokens[:-1])[tokens[-1]].item(), abs=1e-9
            )
            assert one.total == pytest.approx(sum(each.log_probability for each in way), abs=1e-9)
            assert one.score == pytest.approx(one.total / ((5 + one.step) / 6) ** 0.6, abs=1e-9)


def test_what_a_filter_rules_out_is_named_with_what_it_would_have_been_worth():
    _, plain, _ = heard()
    likely = next(one.token for one in plain.of_sentence(0) if one.fate == "lives")
    case, fates, found = heard([f.forbidden([likely])])
    every = fates.of_sentence(0)
    ruled = [one for one in every if one.fate == "forbidden"]
    assert ruled and {one.token for one in ruled} == {likely}
    first = next(one for one in ruled if one.step == 1)
    assert first.total == pytest.approx(case.next(0, ())[likely].item(), abs=1e-9)
    assert first.score == pytest.approx(first.total)
    assert all(likely not in h.tokens for h in found[0])
    assert not {one.before for one in every} & {one.id for one in ruled}


def test_finished_hypotheses_end_are_beaten_or_fall_off():
    _, fates, found = heard(longest=8, stopping="exact", length_penalty="power", length_alpha=1.0)
    for row in range(3):
        every = fates.of_sentence(row)
        ended = sorted((one.score for one in every if one.fate == "ended"), reverse=True)
        beaten = [one.score for one in every if one.fate == "beaten"]
        assert len(ended) == 3 and max(beaten, default=ended[-1]) <= ended[-1]
        assert ended[:2] == [h.score for h in found[row]]
    assert {one.fate for one in fates.candidates} == {"lives", "ended", "beaten", "fell off"}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("groups", [{}, {"beam_groups": 2, "diversity_penalty": 0.7}])
def test_nobody_listening_changes_what_is_found(name, groups):
    case, settings = Case(name, 8, 5, 1.5), BeamSettings(3, 3, **groups)
    given = {"longest": [7, 4, 6], "eos": {EOS, 5}, "settings": settings, "filters": [f.no_repeat_ngram(2)]}
    one, other = (
        beam_search(case.step(), case.prompts, case.lengths, **given, heard=listener)
        for listener in (None, Fates())
    )
    assert one == other


def test_a_listened_search_takes_no_quicker_way():
    case, prompts = Case("gpt2", 9, 3), torch.tensor([[1], [3], [4]])

    def refuse(*_):
        raise AssertionError("the quick way tells nobody anything")

    def step():
        made = case.step()
        made.extend_searches = refuse
        return made

    given = {"longest": 3, "eos": EOS, "settings": BeamSettings(2)}
    assert beam_search(step(), prompts, **given, heard=Fates())
    with pytest.raises(AssertionError, match="quick"):
        beam_search(step(), prompts, **given)
