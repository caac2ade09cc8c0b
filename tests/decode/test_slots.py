"""Rows that join and leave a running batch write what they would write alone."""

import random

import pytest
import torch
from helpers import tiny
from helpers.decoding_cases import model_of

from heedful.decode.filters import no_repeat_ngram, repetition_penalty, temperature, top_k
from heedful.decode.greedy import greedy
from heedful.decode.sampling import sample
from heedful.decode.slots import Row, Slots, fits
from heedful.decode.step import step_of
from heedful.errors import BadInput
from heedful.fast.cpu_decoder import packed
from heedful.models import xl
from heedful.models.base.shells import EncoderDecoder

WRITERS = {**tiny.DECODERS, **tiny.ENCODER_DECODERS}
END = 2


def random_rows(model, dice: random.Random, count: int) -> list[Row]:
    """Rows of all kinds."""
    vocab, rows = 17, []
    for number in range(count):
        filters = [[], [], [repetition_penalty(1.3)], [no_repeat_ngram(2), temperature(0.7), top_k(5)]]
        rows.append(
            Row(
                [dice.randrange(vocab) for _ in range(dice.randint(1, 14))],
                dice.randint(1, 12),
                frozenset([END]),
                [dice.randrange(vocab) for _ in range(dice.randint(1, 9))]
                if isinstance(model, EncoderDecoder)
                else None,
                dice.choice(filters),
                dice.choice([None, None, 1000 + number]),
            )
        )
    return rows


def alone(model, row: Row) -> tuple[list[int], list[float]]:
    """What a search of this text alone writes."""
    source = () if row.source is None else (torch.tensor([row.source]), torch.tensor([len(row.source)]))
    how = {"longest": row.longest, "eos": END, "filters": row.filters}
    if row.seed is not None:
        (found,) = sample(step_of(model, *source), torch.tensor([row.prompt]), **how, seed=[row.seed])
    else:
        (found,) = greedy(step_of(model, *source), torch.tensor([row.prompt]), **how)
    return found.tokens, found.log_probabilities


def together(slots: Slots, rows: list[Row], dice: random.Random, dropped: set[int] = frozenset()):
    """What the rows write when each joins at a random moment; those dropped are removed at one."""
    waiting, written = list(enumerate(rows)), {number: ([], []) for number in range(len(rows))}
    numbers = {id(row): number for number, row in waiting}
    while waiting or slots.busy:
        for _ in range(min(len(waiting), dice.choice([0, 0, 1, 3]))):
            slots.add([waiting.pop(0)[1]])
        for news in slots.turn():
            written[numbers[id(news.row)]][0].append(news.token)
            written[numbers[id(news.row)]][1].append(news.log_probability)
        for number in dropped:
            if dice.random() < 0.2:
                slots.remove(rows[number])
    return written


@pytest.mark.parametrize("name", WRITERS)
def test_rows_that_join_at_random_write_what_they_write_alone(name):
    model, dice = model_of(name, 17, sharper=3.0), random.Random(name)
    rows = random_rows(model, dice, 12)
    slots = Slots(model, prefill=6)
    for number, (tokens, log_p) in together(slots, rows, dice).items():
        expected, their_log_p = alone(model, rows[number])
        assert tokens == expected
        assert log_p == pytest.approx(their_log_p, abs=1e-9)
    assert not slots.cache.lengths and not slots.busy


@pytest.mark.parametrize("name", ["gpt2", "llama", "transformer", "t5"])
def test_packed_weights_write_the_same(name):
    model, dice = model_of(name, 17, sharper=3.0).float(), random.Random(name)
    rows = random_rows(model, dice, 9)
    found = together(Slots(packed(model), prefill=6), rows, dice)
    assert {n: tokens for n, (tokens, _) in found.items()} == {
        n: alone(model, row)[0] for n, row in enumerate(rows)
    }


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
