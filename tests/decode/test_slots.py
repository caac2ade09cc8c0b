"""Rows that join and leave a running batch: their news, their memory, their faults, their turns."""

import random

import pytest
import torch
from helpers.decoding_cases import model_of
from helpers.slot_cases import alone, random_rows, together

from heedful.decode.slots import Row, Slots, fits, prefill_for
from heedful.errors import BadInput
from heedful.models import gpt2, xl


def test_rows_that_are_dropped_leave_the_others_alone():
    model, dice = model_of("transformer", 17, sharper=3.0), random.Random(5)
    rows = random_rows(model, dice, 12)
    dropped = {1, 4, 5, 9}
    found = together(slots := Slots(model, prefill=4), rows, dice, dropped)
    for number, row in enumerate(rows):
        expected = alone(model, row)[0]
        assert found[number][0] == (expected[: len(found[number][0])] if number in dropped else expected)
    assert not slots.busy and slots.cache.rows == 0


def test_a_long_prompt_is_read_between_the_steps_of_the_others():
    model = model_of("llama", 17)
    slots, short, long = Slots(model, prefill=4), Row([3], 20), Row([5] * 13, 2)
    slots.add([short])
    slots.turn()
    slots.add([long])
    seen = [{news.row is short for news in slots.turn()} for _ in range(4)]
    assert seen == [{True}, {True}, {True}, {True, False}]


def test_the_likeliest_tokens_are_reported_with_their_log_probabilities():
    model = model_of("gpt2", 17)
    slots, row = Slots(model), Row([3, 4], 1, top=3)
    slots.add([row, Row([5], 1)])
    first, second = slots.turn()
    log_p = model(torch.tensor([[3, 4]]))[0, -1].log_softmax(-1)
    values, tokens = log_p.topk(3)
    assert (
        [token for token, _ in first.top] == tokens.tolist() and first.token == tokens[0] and second.top == ()
    )
    assert [value for _, value in first.top] == pytest.approx(values.tolist())


def test_a_row_without_a_choice_fails_alone():
    def never(scores_BV, context):
        return torch.full_like(scores_BV, float("-inf"))

    model = model_of("gpt2", 17)
    slots, bad, good = Slots(model), Row([3], 4, filters=[never]), Row([4], 4)
    slots.add([bad, good])
    news = [news for _ in range(4) for news in slots.turn()]
    assert [one.fault != "" for one in news if one.row is bad] == [True]
    assert [one.token for one in news if one.row is good] == alone(model, good)[0]


def test_models_with_another_memory_are_refused():
    model = xl.build(xl.XLConfig(vocab=17, layers=1, width=8, heads=2, ffn_width=9))
    assert not fits(model)
    with pytest.raises(BadInput, match="keys and values"):
        Slots(model)


# Bounds.


def test_the_memory_of_rows_is_known_before_they_join():
    for name in ("llama", "transformer pre-norm", "decoder of other parts"):
        model, dice = model_of(name, 17), random.Random(name)
        slots, rows = Slots(model, prefill=100), random_rows(model, dice, 5)
        for row in rows:
            row.ends, row.filters, row.longest = frozenset(), [], 7
        known = slots.bytes_for(rows)
        slots.add(rows)
        seen = 0
        while slots.busy:
            slots.turn()
            seen = max(seen, slots.cache.bytes)
        assert seen == known


def test_rows_wait_until_there_is_memory_for_them():
    model = model_of("llama", 17)
    rows = [Row([3, 4], 9) for _ in range(7)]
    limit = Slots(model).bytes_for(rows[:3])
    slots = Slots(model, most_bytes=limit)
    slots.add(rows)
    together, most = [], 0
    while slots.busy:
        together += slots.turn()
        most = max(most, len(slots.rows))
        assert slots.cache.bytes <= limit
    assert most == 3 and len(together) == 7 * 9


def test_a_row_that_never_fits_is_refused_and_the_others_are_written():
    model = model_of("gpt2", 17)  # with 31 positions
    slots = Slots(model, most_bytes=Slots(model).bytes_for([Row([3], 30)]))
    good = Row([5], 2)
    refused = {
        "empty": Row([], 3),
        "token 17": Row([3, 17], 3),
        "greatest length": Row([3], 0),
        "positions": Row([3] * 30, 3),
    }
    slots.add([*refused.values(), good])
    news = slots.turn() + slots.turn()
    assert [one.token for one in news if one.row is good] == alone(model, good)[0]
    for word, row in refused.items():
        (one,) = [one for one in news if one.row is row]
        assert word in one.fault and one.last and isinstance(one.cause, BadInput)
    tight = Slots(model, most_bytes=100)
    tight.add([good])
    assert "bytes" in tight.turn()[0].fault and not tight.busy


def test_memory_is_given_back_after_a_long_row_has_left():
    model = model_of("llama", 17)
    slots, short = Slots(model, prefill=600), Row([3], 60)
    slots.add([short])
    slots.turn()
    before = slots.cache.bytes
    slots.add([Row([5] * 600, 2), *(Row([6, 7], 2) for _ in range(9))])
    largest = 0
    while len(slots.rows) > 1 or slots.waiting:
        slots.turn()
        largest = max(largest, slots.cache.bytes)
    assert largest > 40 * before and slots.cache.bytes < 4 * before
    while slots.busy:
        slots.turn()
    assert slots.cache.bytes == 0


# Faults.


class Failing:
    """A model's `hidden` that fails on the tokens it is given, or when it is told to."""

    def __init__(self, model, monkeypatch) -> None:
        self.inner, self.bad, self.error = model.hidden, None, None
        monkeypatch.setattr(model, "hidden", self)

    def __call__(self, tokens_BT, *args, **kwargs):
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        if self.bad is not None and self.bad in tokens_BT:
            raise RuntimeError("bad token")
        return self.inner(tokens_BT, *args, **kwargs)


def test_a_prompt_that_cannot_be_read_fails_alone(monkeypatch):
    model = model_of("gpt2", 17)
    good = [Row([5, 6], 2), Row([7], 2), Row([8] * 9, 2)]
    expected = [alone(model, row)[0] for row in good]
    Failing(model, monkeypatch).bad = 14
    bad = [Row([14, 3], 2), Row([4] * 9 + [14], 2)]
    slots = Slots(model, prefill=8)
    slots.add([good[0], bad[0], good[1], bad[1], good[2]])
    news = []
    while slots.busy:
        news += slots.turn()
    assert [[one.token for one in news if one.row is row] for row in good] == expected
    for row in bad:
        assert [one.fault for one in news if one.row is row] == ["RuntimeError: bad token"]
    assert slots.cache.bytes == 0


@pytest.mark.parametrize("error", [MemoryError("full"), torch.OutOfMemoryError("full"), ValueError("odd")])
def test_a_step_that_fails_ends_its_rows_and_the_next_are_written(error, monkeypatch):
    model = model_of("transformer", 17)
    first, later = [Row([3], 9, source=[4, n + 1]) for n in range(3)], Row([5], 4, source=[6])
    expected = alone(model, later)[0]
    failing = Failing(model.decoder, monkeypatch)
    slots = Slots(model)
    slots.add(first)
    slots.turn()
    failing.error = error
    slots.add([later])
    news = slots.turn()
    assert [one.row for one in news if one.fault] == first
    assert all(one.last and one.cause is error and str(error) in one.fault for one in news if one.fault)
    while slots.busy:
        news += slots.turn()
    assert [one.token for one in news if one.row is later] == expected


def test_a_filter_that_fails_ends_its_row_alone():
    def broken(scores_BV, context):
        if context.tokens_BT.shape[1] > 2:
            raise IndexError("no such token")
        return scores_BV

    model = model_of("gpt2", 17)
    slots, bad, good = Slots(model), Row([3], 9, filters=[broken]), Row([4], 5)
    slots.add([bad, good])
    news = []
    while slots.busy:
        news += slots.turn()
    assert [one.fault for one in news if one.row is bad] == ["", "", "IndexError: no such token"]
    assert [one.token for one in news if one.row is good] == alone(model, good)[0]


# Fairness.


def test_short_prompts_join_while_long_ones_are_read():
    model = model_of("llama", 17)
    slots, long = Slots(model, prefill=4), [Row([5] * 90, 1), Row([6] * 80, 1)]
    slots.add(long)
    slots.turn()
    joined, turns = {}, 0
    while slots.busy:
        if turns % 5 == 0 and turns < 60:
            slots.add([Row([7] * (1 + turns // 5 % 9), 1)])
        for news in slots.turn():
            joined[news.row] = turns
        turns += 1
    assert all(joined[row] - 5 * n <= 8 for n, row in enumerate(r for r in joined if r not in long))
    assert max(joined[row] for row in long) < 2 * (90 + 80) / 4  # nobody waits for ever


def test_a_long_prompt_is_read_while_short_ones_keep_coming():
    model = model_of("llama", 17)
    slots, long, turns = Slots(model, prefill=4), Row([5] * 40, 1), 0
    slots.add([long])
    while not long.written:
        slots.add([Row([7, 8, 9], 1) for _ in range(3)])
        slots.turn()
        turns += 1
    assert turns <= 2 * 40 / 4


def test_small_models_read_more_of_prompts_between_two_steps():
    small, large = model_of("gpt2", 17), gpt2.build(gpt2.GPT2Config(layers=1, vocab=17, width=768))
    assert prefill_for(small) == Slots(small).prefill == 1024
    assert prefill_for(large) == Slots(large).prefill == 272
