"""Turns stay short and batches large; results come in order, and refusals name the right text."""

import pytest

from heedful.decode.turns import finish
from heedful.errors import BadInput
from heedful.service.paces import CHARACTERS, FEWEST, MOST, ROWS, TURN, Pace, cut_in_turns


def turns_of(work):
    """How many turns something takes, and its result."""
    count = 0
    while True:
        try:
            next(work)
            count += 1
        except StopIteration as end:
            return count, end.value


def test_results_come_in_the_order_of_the_texts():
    lengths, seen = [7, 1, 30, 2, 9, 3], []
    pace = Pace(tokens=18)
    pace.note = lambda tokens, seconds: None
    turns, found = turns_of(pace.in_turns(lengths, lambda some: seen.append(some) or [10 * i for i in some]))
    assert found == [0, 10, 20, 30, 40, 50]
    assert seen == [[1, 3, 5], [0, 4], [2]] and turns == 3  # of like length, at most 18 tokens or one text


def test_a_turn_grows_while_it_is_short_and_shrinks_where_it_is_long():
    pace = Pace(tokens=64)
    for _ in range(20):
        pace.note(int(pace.tokens), TURN / 100)
    assert pace.tokens == MOST and pace.rows(1) == ROWS
    pace = Pace(tokens=4096, shortest=1e-3)
    for _ in range(20):
        pace.note(int(pace.tokens), pace.tokens * TURN / 100)  # a hundred tokens take as long as a turn may
    assert pace.tokens == pytest.approx(100, rel=0.1)
    for _ in range(20):
        pace.note(int(pace.tokens), 9.0)
    assert pace.tokens == FEWEST and pace.rows(500) == 1


def test_where_any_text_takes_long_a_turn_may_take_a_little_longer():
    pace = Pace(tokens=16)
    for _ in range(30):
        pace.note(int(pace.tokens), 0.1 + pace.tokens * 1e-4)
    assert pace.tokens > 500  # and not one text a turn, which would take as long


def test_a_refusal_counts_from_the_first_text():
    def refuse(texts):
        for place, text in enumerate(texts, 1):
            if not text:
                raise BadInput(f"text {place} is empty")
        return texts

    texts = ["a" * CHARACTERS, "b", ""]
    with pytest.raises(BadInput, match="text 3 is empty"):
        finish(cut_in_turns(refuse, texts))
    pace = Pace(tokens=1)
    with pytest.raises(BadInput, match="text 3 is empty"):
        finish(pace.in_turns([5, 6, 7], lambda some: refuse([texts[i] for i in some])))


def test_long_texts_are_cut_into_tokens_in_several_turns():
    texts = ["a" * CHARACTERS, "b", "c" * CHARACTERS, "d"]
    work = cut_in_turns(lambda some, others: [*zip(some, others, strict=True)], texts, [None] * 4)
    assert turns_of(work) == (3, [(text, None) for text in texts])
