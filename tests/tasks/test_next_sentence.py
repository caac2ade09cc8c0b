"""Next-sentence prediction: pairs are cut between lines, and what does not follow is of another document."""

import math

import numpy as np
import pytest
import torch

from heedful.corpora import stories
from heedful.data.report import Report
from heedful.data.tokenizing import lines_of
from heedful.data.vocab import Vocab, train_vocab
from heedful.models import bert
from heedful.tasks import lm_data, mlm, recipe
from heedful.tasks.next_sentence import Lines
from heedful.train import loop, optimizer, schedule

END = Vocab.eos


def text_of(*documents: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """A stream in which every token but the mark of an end is its own place plus 100, and its lines."""
    lengths = [size for document in documents for size in (*document, 1)]
    stream = np.arange(100, 100 + sum(lengths))
    stream[np.cumsum([sum(document) + 1 for document in documents]) - 1] = END
    return stream, np.array(lengths)


def test_lines_that_begin_a_document_are_no_places_to_cut():
    stream, lengths = text_of([3, 2, 4], [5], [1, 6])
    lines = Lines.of(stream, lengths, END)
    assert lines.starts.tolist() == [3, 5, 17] and lines.bounds.tolist() == [0, 10, 16, 24]


def test_empty_lines_and_a_text_without_marks_are_no_trouble():
    lines = Lines.of(np.arange(100, 109), np.array([2, 0, 3, 0, 0, 4]), END)
    assert lines.starts.tolist() == [2, 5] and lines.bounds.tolist() == [0, 9]


def test_a_window_is_cut_at_any_line_of_its_middle_half():
    lines = Lines(np.array([2, 6, 9, 14, 21]), np.array([0, 40]))
    assert {lines.cut(1, 20, draw) for draw in np.linspace(0, 0.999, 50)} == {6, 9, 14}
    assert lines.cut(22, 16, 0.5) is None


def test_what_does_not_follow_is_any_line_of_another_document_beside_the_window():
    lines = Lines(np.array([3, 5, 12, 15, 23, 26, 33]), np.array([0, 10, 20, 30, 40]))
    found = {lines.elsewhere(15, 11, 8, 4, draw) for draw in np.linspace(0, 0.999, 99)}
    assert found == {3, 5, 23, 26, 33}
    assert {lines.elsewhere(15, 11, 8, 8, draw) for draw in np.linspace(0, 0.999, 99)} == {23, 26}  # too long
    alone = Lines(np.array([3, 5, 12, 15, 23, 26]), np.array([0, 40]))
    assert {alone.elsewhere(15, 11, 8, 4, draw) for draw in np.linspace(0, 0.999, 99)} == {3, 5, 23, 26}
    assert Lines(np.array([15]), np.array([0, 40])).elsewhere(15, 11, 8, 4, 0.5) is None


def test_rows_of_pairs_are_full_and_both_parts_begin_with_a_line():
    draw = np.random.default_rng(4)
    stream, lengths = text_of(*(draw.integers(2, 7, 5).tolist() for _ in range(60)))
    lines = Lines.of(stream, lengths, END)
    begun = set((np.cumsum(lengths) - lengths).tolist())
    kinds = {0: 0, 1: 0}
    for start in range(0, len(stream) - 24, 3):
        row, segments, follows = mlm.pair_row(stream, start, 24, 0, 0, start, 1, lines=lines)
        first, second = row[segments == 0][1:-1], row[segments == 1][:-1]
        assert len(row) == 27 and len(first) + len(second) == 24
        cut, there = start + len(first), int(second[0]) - 100
        assert cut in begun and there in lines.starts
        documents = np.searchsorted(lines.bounds, (cut, there), "right")
        assert (there == cut) == follows and (documents[0] == documents[1]) == follows
        kinds[follows] += 1
    assert min(kinds.values()) > 0.42 * sum(kinds.values())


@pytest.mark.parametrize("pairs", [False, True])
def test_stories_are_kept_apart_only_where_pairs_are_made(pairs, monkeypatch):
    monkeypatch.setattr(stories, "SIZES", {"train": 30, "valid": 7, "test": 5})
    stories.drawn.cache_clear()
    made = recipe.make("mlm", "tiny", "stories", {"data.pairs": pairs})
    source, about = lm_data.TextSource(made, Report()), {"bytes": 0}
    vocab = train_vocab("word", [story.text for story in stories.split("train")], 4000)
    rows = [row["text"] for row in lm_data.rows_of(source, "valid", vocab, about)]
    told = list(stories.split("valid"))
    stories.drawn.cache_clear()
    if pairs:
        kept = [[sentence.text for sentence in story.sentences] for story in told]
        expected = [vocab.encode_batch([text])[0] if text else [END] for some in kept for text in (*some, "")]
        assert [row.tolist() for row in rows] == expected
    else:
        assert END not in np.concatenate(rows)
    assert about["bytes"] == sum(len(story.text.encode()) for story in told)


def test_lines_of_pieces_keep_their_ends():
    assert list(lines_of(["a\n\nb", "\nc\n"])) == ["a\n", "\n", "b", "\n", "c\n"]


def test_pairs_of_a_few_stories_can_be_learned_by_heart():
    told = [stories.story("train", number) for number in range(5)]
    vocab = train_vocab("word", [story.text for story in told], 4000)
    texts = [text for story in told for text in (*(sentence.text for sentence in story.sentences), "")]
    rows = [vocab.encode_batch([text])[0] if text else [END] for text in texts]
    stream = np.concatenate(rows)
    lines = Lines.of(stream, np.array([len(row) for row in rows]), END)
    starts = list(range(0, len(stream) - 29, 11))
    step = mlm.step_of([mlm.batch_of(stream, starts, 29, True, vocab.size, 0, 0, lines)])
    model = small_bert(vocab.size, context=32)
    settings = loop.LoopSettings(rate=5e-3, schedule=schedule.linear(10, 120), steps=120)
    list(loop.train(model, lambda _: step, mlm.loss_of, optimizer.adamw(model, 5e-3, 0.0), settings))
    with torch.no_grad():
        assert mlm.evaluate(model.eval(), step)["next_sentence"] == 1 > mlm.share_of_larger(step) + 0.3


def test_the_first_loss_of_pairs_is_that_of_guessing_and_reaches_every_layer():
    stream, lengths = text_of(*([4, 5, 3, 6] for _ in range(30)))
    stream = np.where(stream == END, END, 7 + stream % 43)
    made = mlm.batch_of(stream, range(0, 400, 9), 24, True, 50, 0, 0, Lines.of(stream, lengths, END))
    model = small_bert(50, context=27)
    _, scores_B2 = mlm.scores_of(model, made)
    loss = torch.nn.functional.cross_entropy(scores_B2, made.follows_B)
    assert loss.item() == pytest.approx(math.log(2), abs=0.02)
    loss.backward()
    unreached = {name for name, weight in model.named_parameters() if weight.grad is None}
    assert unreached and all(name.startswith("heads.masked_lm") for name in unreached)
    assert all(weight.grad.any() for name, weight in model.named_parameters() if name not in unreached)


def small_bert(vocab: int, context: int):
    torch.manual_seed(0)
    config = bert.BertConfig(
        vocab=vocab,
        context=context,
        layers=2,
        width=24,
        heads=3,
        ffn_width=40,
        dropout=0.0,
        prediction_heads=("pooled", "masked_lm", "next_sentence"),
    )
    return bert.build(config)
