"""Rows that join and leave a lane of kernels write what they write alone, by the plain parts.

Without a GPU the kernels run in Triton's interpreter, number by number: sizes are very small.
"""

import random
from dataclasses import replace

import pytest
import torch
from helpers.kernel_cases import DEVICE, MODELS, shaken, tiny_gpt2, tiny_llama, tiny_transformer

from heedful.decode.choices import chosen
from heedful.decode.filters import (
    Context,
    min_p,
    no_repeat_ngram,
    repetition_penalty,
    temperature,
    top_k,
    top_p,
)
from heedful.decode.greedy import greedy
from heedful.decode.sampling import Dice, rolls, sample
from heedful.decode.slots import Row, Slots
from heedful.decode.step import step_of
from heedful.fast import gpu_slots, lane, prompt_reader
from heedful.fast.cuda_graph import RunnerPool
from heedful.fast.decoding import FastModel, slots_for
from heedful.fast.gpu_decoder import GPUDecoder
from heedful.fast.gpu_slots import GPUSlots
from heedful.fast.row_choice import RowChoice, TokenChooser, split
from heedful.models.base.shells import EncoderDecoder

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp")
END, VOCAB = 0, 23
SLOW = pytest.mark.slow  # the interpreter takes its time
FILTERS = [
    [],
    [],
    [repetition_penalty(1.3)],
    [no_repeat_ngram(2), temperature(0.7), top_k(5)],
    [temperature(1.4), top_p(0.8)],
    [top_k(7), min_p(0.05)],
]


def fast_model(model) -> FastModel:
    parts = (model.decoder, model.encoder) if isinstance(model, EncoderDecoder) else (model, None)
    return FastModel(model, lambda: RunnerPool(GPUDecoder(parts[0]), parts[1]))


def random_rows(model, dice: random.Random, count: int, most: int = 9) -> list[Row]:
    def words(longest):
        return [dice.randrange(VOCAB) for _ in range(dice.randint(1, longest))]

    reads = isinstance(model, EncoderDecoder)
    return [
        Row(
            words(7),
            dice.randint(1, most),
            frozenset([END]),
            words(6) if reads else None,
            dice.choice(FILTERS),
            dice.choice([None, None, 1000 + number]),
            dice.choice([0, 0, 0, 2]),
        )
        for number in range(count)
    ]


def alone(model, row: Row):
    """What a search of this text alone writes by the plain parts."""
    tensor = lambda x: torch.tensor([x], device=DEVICE)
    source = (
        () if row.source is None else (tensor(row.source), torch.tensor([len(row.source)], device=DEVICE))
    )
    how = {"longest": row.longest, "eos": END, "filters": row.filters}
    if row.seed is None:
        return greedy(step_of(model, *source), tensor(row.prompt), **how)[0]
    return sample(step_of(model, *source), tensor(row.prompt), **how, seed=[row.seed])[0]


def together(slots: Slots, rows: list[Row], dice: random.Random, dropped=frozenset()):
    """What the rows write when each joins at a random moment; those dropped are removed at one."""
    waiting, written = list(rows), {row: [] for row in rows}
    while waiting or slots.busy:
        for _ in range(min(len(waiting), dice.choice([0, 0, 1, 3]))):
            slots.add([waiting.pop(0)])
        for news in slots.turn():
            written[news.row].append(news)
        for number in dropped:
            if dice.random() < 0.2:
                slots.remove(rows[number])
    return written


@pytest.mark.parametrize(
    "name", [name if name in ("gpt2", "transformer") else pytest.param(name, marks=SLOW) for name in MODELS]
)
def test_rows_that_join_at_random_write_what_they_write_alone(name, monkeypatch):
    monkeypatch.setattr(gpu_slots, "FEWEST_SLOTS", 8)  # that the lane grows
    model, dice = shaken(MODELS[name]()), random.Random(name)
    rows = random_rows(model, dice, 8, most=6)
    slots = slots_for(fast_model(model), prefill=12)
    assert isinstance(slots, GPUSlots)
    for row, news in together(slots, rows, dice).items():
        expected = alone(model, row)
        assert [one.token for one in news] == expected.tokens
        assert [one.log_probability for one in news] == pytest.approx(expected.log_probabilities, abs=1e-4)
        assert [one.last for one in news] == [False] * (len(news) - 1) + [True]
        assert all(len(one.top) == row.top for one in news) and news[-1].ended == expected.ended
    assert not slots.busy and len(slots.free) == slots.lane.rows


def test_rows_that_are_dropped_leave_the_others_alone():
    model, dice = shaken(tiny_gpt2()), random.Random(5)
    rows, dropped = random_rows(model, dice, 7, most=6), {1, 4, 5}
    found = together(slots := GPUSlots(fast_model(model)), rows, dice, dropped)
    for number, row in enumerate(rows):
        tokens, expected = [one.token for one in found[row]], alone(model, row).tokens
        assert tokens == (expected[: len(tokens)] if number in dropped else expected)
    assert not slots.busy and len(slots.free) == slots.lane.rows


def test_nothing_is_heard_of_a_row_once_it_is_removed():
    model = shaken(tiny_llama())
    slots, row, other = GPUSlots(fast_model(model)), Row([3, 4], 9), Row([5], 9)
    slots.add([row, other])
    slots.turn(), slots.turn()
    slots.remove(row)
    assert {news.row for _ in range(3) for news in slots.turn()} == {other}
    assert row not in slots.seats and len(slots.seats) == 1


def test_rows_move_to_the_front_when_many_have_left():
    model, dice = shaken(tiny_transformer()), random.Random(2)
    rows = [Row([3], 2 if n < 4 else 6, source=[dice.randrange(VOCAB) for _ in range(3)]) for n in range(5)]
    slots, sizes = GPUSlots(fast_model(model)), []
    slots.add(rows)
    written = {row: [] for row in rows}
    while slots.busy:
        for news in slots.turn():
            written[news.row].append(news.token)
        sizes.append(max((seat.place for seat in slots.seats.values()), default=0))
    assert sizes[0] == 4 and max(sizes[2:]) == 0
    assert all(tokens == alone(model, row).tokens for row, tokens in written.items())


def test_a_long_prompt_is_read_between_the_steps_of_the_others():
    model = shaken(tiny_llama())
    slots, short, long = GPUSlots(fast_model(model), prefill=4), Row([3], 12), Row([5] * 11, 2)
    slots.add([short])
    slots.turn()
    slots.add([long])
    seen = [{news.row is short for news in slots.turn()} for _ in range(5)]
    assert seen == [{True}, {True}, {True}, {True, False}, {True, False}]


def test_the_memory_of_rows_that_have_left_is_used_again():
    slots, held = GPUSlots(fast_model(shaken(tiny_llama()))), 0
    for _ in range(2):
        slots.add([Row([3], 2), Row([5, 6], 3)])
        while slots.busy:
            slots.turn()
        assert slots.bytes == (held := held or slots.bytes)
    assert len(slots.free) == slots.lane.rows


@pytest.mark.parametrize("make", [tiny_llama, tiny_transformer])
def test_what_takes_long_at_first_can_be_done_before(make):
    slots = GPUSlots(fast_model(shaken(make())))
    slots.warm_up(1)
    assert not slots.busy and slots.bytes > 0 and not slots.seats


def test_rows_wait_for_memory():
    fast = fast_model(shaken(tiny_llama()))
    eight = GPUSlots(fast).bytes_for([Row([3], 5)] * 8)
    slots = GPUSlots(fast, most_bytes=eight)
    slots.add([Row([3], 5) for _ in range(11)])
    assert len(slots.with_room()) == 8
    slots.add([Row([3], 300)])
    assert slots.turn()[0].fault.startswith("a prompt of 1 tokens and 300 more need")


def test_a_very_long_lane_is_given_up_when_nobody_is_in_it(monkeypatch):
    monkeypatch.setattr(gpu_slots, "MANY_SLOTS", 16)
    slots = GPUSlots(fast_model(shaken(tiny_llama())))
    slots.add([Row([3, 4, 5], 2)])
    slots.turn()
    assert slots.bytes > 0
    while slots.busy:
        slots.turn()
    assert slots.bytes == 0


@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:All-NaN")
def test_a_row_without_a_choice_fails_alone():
    def never(scores_BV, context):
        return torch.full_like(scores_BV, float("-inf"))

    model = shaken(tiny_gpt2())
    slots, bad, good, lost = (
        GPUSlots(fast_model(model)),
        Row([3], 4, filters=[never]),
        Row([4], 4),
        Row([6], 4),
    )
    slots.add([bad, good, lost])
    news = slots.turn() + slots.turn()
    slots.lane.runner.past[:, :, slots.seats[lost].place] = torch.nan
    news += [news for _ in range(5) for news in slots.turn()]
    assert ["forbidden" in one.fault for one in news if one.row is bad] == [True]
    assert "not numbers" in [one.fault for one in news if one.row is lost][-1]
    assert [one.token for one in news if one.row is good] == alone(model, good).tokens


def test_the_likeliest_tokens_are_reported():
    model = shaken(tiny_gpt2())
    slots, row = GPUSlots(fast_model(model)), Row([3, 4], 2, top=3)
    slots.add([row, Row([5], 2)])
    news = [news for _ in range(3) for news in slots.turn()]
    tokens = [one.token for one in news if one.row is row]
    log_p = model(torch.tensor([[3, 4, tokens[0]]], device=DEVICE))[0, 1:].log_softmax(-1)
    for one, values in zip([one for one in news if one.row is row], log_p, strict=True):
        best = values.topk(3)
        assert [token for token, _ in one.top] == best.indices.tolist()
        assert [value for _, value in one.top] == pytest.approx(best.values.tolist(), abs=1e-4)


def test_rows_of_all_kinds_are_chosen_for_at_once_as_each_alone():
    kinds = [*FILTERS, [temperature(0.5), top_k(3), top_p(0.6), min_p(0.1)], [top_p(1.0)], [top_p(0.0)]]
    rows = [
        Row([n % 5, 2, 3], 4, filters=kinds[n % len(kinds)], seed=n if n % 4 else None) for n in range(40)
    ]
    choice = RowChoice([TokenChooser(row) for row in rows], torch.device("cpu"))
    whole = Context.prompts(torch.tensor([row.prompt for row in rows]), None)
    for row in rows:
        row.begin()

    def context(some):
        return replace(whole if some is None else whole.select(some), batch=1)

    for _ in range(3):
        scores = torch.randn(40, 31).mul(2).round(decimals=1)  # with equals
        tokens, *_ = choice(scores, context)
        assert tokens.tolist() == [chosen([row], scores[n, None])[0][0] for n, row in enumerate(rows)]
    assert len(choice.groups) == 2  # rows that share filters are filtered together


def test_the_last_filters_are_told_from_the_others():
    penalty, heat, k, p = repetition_penalty(1.2), temperature(0.5), top_k(3), top_p(0.5)
    assert split([penalty, heat, p]) == ((penalty,), [heat, p])
    assert split([p, k]) == ((p,), [k])
    assert split([heat, penalty]) == ((heat, penalty), [])
    assert split([heat, heat]) == ((heat,), [heat])


def test_rolls_are_those_of_dice():
    dice, found = Dice([7], torch.device("cpu")), rolls(7)
    assert [float(dice.roll()) for _ in range(70)] == [next(found) for _ in range(70)]


def test_sizes_are_few():
    assert [lane.step_size(n) for n in (1, 2, 5, 8, 9, 33, 65)] == [1, 4, 8, 8, 16, 64, 128]
    assert [lane.lane_size(n) for n in (1, 8, 9, 64, 65)] == [8, 8, 64, 64, 128]
    assert [prompt_reader.reading_size(n) for n in (1, 4, 5, 16, 17)] == [4, 4, 8, 16, 32]


def test_models_without_kernels_take_the_plain_way():
    assert type(slots_for(FastModel(shaken(tiny_gpt2())))) is Slots
