"""Dropout that a run chooses: attention follows the rest, and what somebody or a corpus set stays."""

import pytest

from heedful.tasks import find_task, recipe
from heedful.tasks.recipe import choices
from heedful.tasks.recipe.choices import DataSize

SIZE = DataSize(1000, 100_000, "windows")  # seen 819 times by the default steps


def chosen(corpus="", **dropouts):
    """(dropout, attention dropout) of a language model with these settings, and the reasons."""
    task, given = find_task("lm"), {f"model.{name}": rate for name, rate in dropouts.items()}
    made = recipe.make("lm", "tiny", corpus, given | {"train.steps": 10_000, "train.batch_tokens": 8192})
    made, why = choices.apply(made, task.settle(made, SIZE), task.corpus_settings(corpus))
    return made.model.dropout, made.model.attention_dropout, why


def test_attention_drops_as_much_as_the_rest():
    assert chosen() == (0.4, 0.4, ["dropout 0.4: 1,000 windows will be seen 819.2 times"])


def test_dropout_that_was_given_is_attentions_too():
    assert chosen(dropout=0.2) == (0.2, 0.2, [])


def test_attention_dropout_that_was_given_stays():
    assert chosen(attention_dropout=0.3)[:2] == (0.4, 0.3)
    assert chosen(dropout=0.1, attention_dropout=0.3) == (0.1, 0.3, [])


@pytest.mark.parametrize("corpus", ["stories", "phrasebook"])
def test_a_corpus_without_dropout_has_none_in_attention(corpus):
    assert chosen(corpus) == (0.0, 0.0, [])
