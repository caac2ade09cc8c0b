"""A step by CUDA graphs writes what the plain step writes, in every search, whatever is done to its rows.

Without a GPU the kernels run in Triton's interpreter, number by number: sizes are very small.
"""

import itertools
from dataclasses import replace

import pytest
import torch
from helpers.kernel_cases import (
    DEVICE,
    MODELS,
    fast,
    plain,
    shaken,
    tiny_gpt2,
    tiny_llama,
    tiny_transformer,
)

from heedful.decode import step as steps
from heedful.decode.beam import Rules, beam_search, begin, extend_by_one, extend_run
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.greedy import greedy
from heedful.decode.prefix_tree import PrefixTree
from heedful.decode.prompts import pad
from heedful.decode.sampling import sample
from heedful.fast.cuda_graph import rounded
from heedful.fast.gpu_beam import KINDS, beams_on
from heedful.fast.gpu_decoder import GPUDecoder, NoKernel, gpu_decoder_of, norm_of
from heedful.fast.kernels.norms import NO_NORM
from heedful.models import t5

pytestmark = pytest.mark.filterwarnings(
    "ignore:overflow encountered in exp"
)  # the interpreter's: 1 / (1 + inf) is 0


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(3)


def random(*shape):
    return torch.randn(*shape, device=DEVICE)


class Late(steps.DecoderStep):
    chunk = 4


@pytest.mark.parametrize("name", MODELS)
def test_a_step_of_kernels_writes_the_same_text(name):
    model = shaken(MODELS[name]())
    source = None if name in ("gpt2", "llama") else [[3, 4, 5, 6, 7], [8, 9], [10, 11, 12]]
    prompts, lengths = pad([[1, 5, 7], [2], [4, 3]], DEVICE)
    given = {"longest": [9, 6, 8], "eos": 0}
    found = greedy(fast(model, source), prompts, lengths, **given)
    expected = greedy(plain(model, source), prompts, lengths, **given)
    assert [h.tokens for h in found] == [h.tokens for h in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.log_probabilities == pytest.approx(theirs.log_probabilities, abs=1e-4)


@pytest.mark.parametrize(
    "given",
    [
        {
            "settings": BeamSettings(width=2, stopping="first_B", length_penalty="power", length_alpha=0.0),
            "eos": [0, 5, 9],
        },
        {"settings": BeamSettings(width=2, stopping="exact", length_alpha=1.3, n_best=2), "eos": [3, 0]},
        {"settings": BeamSettings(width=4, stopping="exact", length_alpha=-0.5, n_best=4), "eos": None},
    ],
    ids=["first", "exact", "endless"],
)
def test_every_kind_of_beam_search_is_the_same_by_kernels(given):
    model = shaken(tiny_gpt2())
    prompts, lengths = pad([[1, 5, 7], [2], [4, 11]], DEVICE)
    found = beam_search(fast(model), prompts, lengths, longest=[5, 7, 6], **given)
    expected = beam_search(plain(model), prompts, lengths, longest=[5, 7, 6], **given)
    assert all(map(alike, found, expected))


@pytest.mark.parametrize("name", ["gpt2", "transformer"])
def test_beams_share_their_past(name):
    model = shaken(MODELS[name]())
    source = None if name == "gpt2" else [[3, 4, 5, 6, 7], [8, 9]]
    prompts, lengths = pad([[1, 5, 7], [2]], DEVICE)
    settings = BeamSettings(width=3, n_best=2)
    given = {"longest": [7, 9], "eos": 0, "settings": settings}
    found = beam_search(fast(model, source), prompts, lengths, **given)
    expected = beam_search(plain(model, source), prompts, lengths, **given)
    assert [[h.tokens for h in some] for some in found] == [[h.tokens for h in some] for some in expected]
    assert [h.score for some in found for h in some] == pytest.approx(
        [h.score for some in expected for h in some], abs=1e-4
    )


def searches_after_a_token(step, rules, rows):
    """A search for each row, of two prefixes."""
    scores = step.last(torch.arange(1, rows + 1, device=DEVICE)[:, None])
    searches = begin([9] * rows, rules.settings, torch.float32, scores.device)
    return extend_by_one(searches, scores, step, tree := PrefixTree(), rules, 1, None), tree


@pytest.mark.parametrize("make", [fast, plain], ids=["kernels", "parts"])
def test_a_search_that_is_over_finds_nothing_more(make):
    ends = torch.arange(0, 23, 2, device=DEVICE)  # so many that something ends in every step
    settings = BeamSettings(width=2, length_penalty="power", length_alpha=4.0)  # the longer, the better
    rules = Rules(settings, tuple(ends.tolist()), ends, 9, ())
    step = make(shaken(tiny_gpt2()))
    searches, tree = searches_after_a_token(step, rules, 2)
    before = replace(searches, over_N=torch.tensor([True, False], device=DEVICE))
    kept = before.finished_NF.clone()
    after, _ = extend_run(before, step, tree, rules, 1, 2, None)
    assert (after.finished_NF == kept).all(1).tolist() == [True, False]
    assert bool(after.over_N[0]) and not after.lowest_N.isnan().any()


@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_what_is_no_number_is_still_known_after_some_steps():
    ends = torch.zeros(0, dtype=torch.long, device=DEVICE)
    rules, step = Rules(BeamSettings(width=2), (), ends, 9, ()), fast(shaken(tiny_gpt2()))
    searches, tree = searches_after_a_token(step, rules, 3)
    step.runner.past[:, :, 1] = torch.nan  # what the second search remembers
    searches, _ = extend_run(searches, step, tree, rules, 1, 2, None)
    assert searches.lowest_N.isnan().tolist() == [False, True, False]


def test_sampling_draws_the_same():
    model, prompts = shaken(tiny_gpt2()), torch.tensor([[1, 2], [3, 4]], device=DEVICE)
    found = sample(fast(model), prompts, longest=8, eos=0, seed=5)
    assert [h.tokens for h in found] == [
        h.tokens for h in sample(plain(model), prompts, longest=8, eos=0, seed=5)
    ]


def test_a_step_can_be_cut_short_and_fed_several_tokens():
    model, tokens = shaken(tiny_gpt2()), torch.tensor([[1, 2, 3, 4, 5, 6]], device=DEVICE)
    one, other = fast(model), plain(model)
    for some in ([0, 1, 2], [3], [4]):
        torch.testing.assert_close(
            one.last(tokens[:, some]), other.last(tokens[:, some]), rtol=1e-4, atol=1e-4
        )
    one.rewind(torch.tensor([4], device=DEVICE)), other.rewind(torch.tensor([4], device=DEVICE))
    torch.testing.assert_close(one(tokens[:, 3:6]), other(tokens[:, 3:6]), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(one.last(tokens[:, :1]), other.last(tokens[:, :1]), rtol=1e-4, atol=1e-4)


def test_rows_that_share_their_past_can_be_cut_short():
    model, tokens = shaken(tiny_llama()), torch.tensor([[1, 2, 3], [4, 5, 6]], device=DEVICE)
    one, other = fast(model), plain(model)
    for step in (one, other):
        step.last(tokens)
        step.last(tokens[:, :1])
        step.reorder(torch.tensor([0, 0], device=DEVICE), siblings=True)
        step.rewind(torch.tensor([2, 4], device=DEVICE))
    for some in ([1], [2], [0]):
        found, expected = one.last(tokens[:, some]), other.last(tokens[:, some])
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_runner_stays_while_what_is_forgotten_makes_room():
    model, token = shaken(tiny_llama()), torch.ones(1, 1, dtype=torch.long, device=DEVICE)
    step = fast(model)
    step.last(token), step.last(token)
    runner, step.used = step.runner, step.runner.spare  # so many were fed, and all but two forgotten
    step.last(token)
    assert step.runner is runner and step.used == 3


def test_nothing_of_another_text_is_left_on_a_runner():
    model, tokens = shaken(tiny_llama()), torch.tensor([[1, 2, 3], [4, 5, 6]], device=DEVICE)
    one, other = fast(model), plain(model)
    for kv in (runner := one.runners.borrow(2, one.least, None)).buffers.keys_values:
        [x.fill_(torch.nan) for x in kv]
    one.runners.give_back(runner)
    for step in (one, other):
        step.last(tokens, torch.tensor([3, 1], device=DEVICE))
    for some in ([1], [0, 2], [1]):
        found, expected = one.last(tokens[:, some]), other.last(tokens[:, some])
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_as_many_tokens_as_rows():
    step = fast(shaken(tiny_gpt2()))
    step.last(torch.ones(3, 2, dtype=torch.long, device=DEVICE))
    with pytest.raises(ValueError, match="the step has 3 rows, but 1 were given"):
        step.last(torch.ones(1, 1, dtype=torch.long, device=DEVICE))


def test_more_ends_than_words():
    model, prompts = shaken(tiny_gpt2()), torch.tensor([[1, 2]], device=DEVICE)
    given = {"longest": 3, "eos": range(23, 50), "settings": BeamSettings(width=2, n_best=2)}
    found = beam_search(fast(model), prompts, **given)
    assert all(map(alike, found, beam_search(plain(model), prompts, **given)))


def test_a_runner_forgets_the_oldest_kind_of_search():
    step = fast(shaken(tiny_gpt2()))
    step.last(torch.ones(1, 2, dtype=torch.long, device=DEVICE))
    runner = step.with_room()

    def beams(eos):
        return beams_on(
            runner, Rules(BeamSettings(width=1), (eos,), torch.tensor([eos], device=DEVICE), 5, ())
        )

    kinds = [beams(eos) for eos in range(KINDS + 1)]
    assert len(runner.beams) == KINDS
    assert beams(1) is kinds[1] and beams(0) is not kinds[0]


@pytest.mark.parametrize("rows", [1, 2])
def test_a_head_may_scale_what_it_reads(rows):
    model, tokens = shaken(tiny_gpt2()), torch.ones(rows, 2, dtype=torch.long, device=DEVICE)
    model.head.scale, model.stack.norm.eps = 0.1, 0.1  # that the scale is not the norm's to see
    one, other = fast(model), plain(model)
    one.last(tokens), other.last(tokens)
    found, expected = one.last(tokens[:, :1]), other.last(tokens[:, :1])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_prompt_may_be_read_in_lower_precision():
    model, tokens = shaken(tiny_gpt2()), torch.ones(1, 2, dtype=torch.long, device=DEVICE)
    one, other = fast(model), plain(model)
    with torch.autocast(DEVICE, torch.bfloat16):
        one.last(tokens), other.last(tokens)
    found, expected = one.last(tokens[:, :1]), other.last(tokens[:, :1])
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


def test_a_runner_grows_and_is_lent_again():
    model = shaken(tiny_llama())
    step = fast(model, room=1)
    runners = step.runners
    tokens = torch.randint(23, (1, 90), device=DEVICE)
    step.last(tokens[:, :60]), (other := plain(model)).last(tokens[:, :60])
    for n in range(60, 70):  # past the 64 slots that a runner has at first
        found, expected = step.last(tokens[:, n : n + 1]).clone(), other.last(tokens[:, n : n + 1])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    runner = step.runner
    del step
    assert runner in runners.free
    assert runners.borrow(1, 100, None) is runner and runner not in runners.free


def test_positions_end_where_the_table_ends():
    model, tokens = shaken(tiny_gpt2()), torch.ones(1, 19, dtype=torch.long, device=DEVICE)
    step = fast(model)
    step.last(tokens)
    step.last(tokens[:, :1])
    with pytest.raises(ValueError, match="does not fit the learned position table of 20"):
        step.last(tokens[:, :1])
    step.leave()
    with pytest.raises(ValueError, match="does not fit the learned position table of 20"):
        step.inner.check_room(1, None)


def test_what_has_no_kernel_is_left_alone():
    model = t5.build(
        t5.T5Config(vocab=23, layers=1, decoder_layers=1, width=8, heads=2, key_width=4, ffn_width=12)
    )
    assert gpu_decoder_of(model.decoder.eval()) is None
    with pytest.raises(NoKernel, match="training"):
        GPUDecoder(tiny_gpt2().train())
    assert norm_of(torch.nn.BatchNorm1d(3)) is None and norm_of(torch.nn.Identity()) is NO_NORM


def test_rows_come_in_few_sizes():
    assert [rounded(n) for n in (1, 2, 3, 5, 7, 9, 13, 64, 65, 100)] == [1, 2, 3, 6, 8, 12, 16, 64, 96, 128]


# Looking late


def alike(found, expected):
    """The same but for rounding."""
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-5)
    return [(h.tokens, h.ended) for h in found] == [(h.tokens, h.ended) for h in expected]


@pytest.mark.parametrize("chunk", [2, 5])
def test_looking_late_changes_nothing(chunk, monkeypatch):
    model = shaken(tiny_transformer())
    prompts, lengths = pad([[1, 5, 7], [2], [4, 3]], DEVICE)
    source = [[3, 4, 5, 6, 7], [8, 9], [10, 11, 12]]

    def late():
        inner = plain(model, source)
        made = Late.__new__(Late)
        made.__dict__.update(inner.__dict__)
        return made

    monkeypatch.setattr(Late, "chunk", chunk)
    for eos, longest in itertools.product((0, [0, 7, 9, 15], None), (1, [9, 4, 13])):
        given = {"longest": longest, "eos": eos}
        found = greedy(late(), prompts, lengths, **given)
        assert alike(found, greedy(plain(model, source), prompts, lengths, **given))
        for stopping in ("heuristic", "first_B", "exact"):
            settings = BeamSettings(width=3, n_best=3, stopping=stopping)
            found = beam_search(late(), prompts, lengths, **given, settings=settings)
            expected = beam_search(plain(model, source), prompts, lengths, **given, settings=settings)
            assert all(map(alike, found, expected))
