"""Classify on the phrasebook: labels that the grammar knows, for one text and for two."""

from pathlib import Path

import pytest

from heedful.corpora import phrasebook
from heedful.corpora.phrasebook.labels import labeled
from heedful.data.report import Report
from heedful.tasks import classify, classify_data, recipe

TINY = {
    "model.layers": 1,
    "model.width": 12,
    "model.heads": 3,
    "model.ffn_width": 20,
    "train.batch_tokens": 90,
}


@pytest.fixture(autouse=True)
def few_sentences(monkeypatch):
    """As many sentences as a test needs, drawn as ever."""
    monkeypatch.setattr(
        phrasebook, "SIZES", {"train": 70, "valid": 21, "test": 11, "combinations": 9, "long": 5}
    )
    monkeypatch.setattr(phrasebook, "RARE", 0)
    monkeypatch.setattr(phrasebook, "familiar", lambda side: Everything())
    phrasebook.drawn.cache_clear()
    yield
    phrasebook.drawn.cache_clear()


class Everything:
    """Words of a training set so small that it has hardly any."""

    def issuperset(self, words: list[str]) -> bool:
        return True


def recipe_of(**settings: object) -> recipe.Recipe:
    return recipe.make("classify", "tiny", "phrasebook", TINY | {f"data.{k}": v for k, v in settings.items()})


def job_of(made: recipe.Recipe, folder: Path):
    return classify.job(made, classify_data.read(made, folder, None, lambda line: None))


def test_a_job_reads_the_labels_of_the_grammar(tmp_path):
    job = job_of(recipe_of(label="tense"), tmp_path)
    labels = sorted({row.label for row in labeled("train", "tense")})
    assert labels == ["future", "past", "present"] and job.config.labels == 3 and job.held_out == 21
    seen: dict[int, str] = {}
    for step in range(job.steps_per_epoch):
        (batch,) = job.batches(step)
        seen |= {i: labels[n] for i, n in zip(batch.ids, batch.labels_B.tolist(), strict=True)}
    assert [seen[i] for i in range(70)] == [row.label for row in labeled("train", "tense")]


def test_the_number_of_the_subject_is_the_default_label(tmp_path):
    found = recipe_of()
    assert found.data.label == "number"
    job_of(found, tmp_path)
    assert classify_data.read_labels(found, tmp_path)[0] == ["plural", "singular"]


def test_translations_are_two_texts_in_two_segments(tmp_path):
    job = job_of(recipe_of(label="translation"), tmp_path)
    (batch,) = job.batches(1)
    assert set(batch.segments_BT.unique().tolist()) == {0, 1}
    row = list(labeled("train", "translation"))[batch.ids[0]]
    expected = classify.encoder_row(job.vocab, *job.vocab.encode_batch([row.first, row.second]))
    length = int(batch.lengths_B[0])
    assert batch.tokens_BT[0, :length].tolist() == expected[0].tolist()
    assert batch.segments_BT[0, :length].tolist() == expected[1].tolist()


@pytest.mark.parametrize("split", ["valid", "test", "combinations", "long"])
def test_every_held_out_split_can_be_evaluated(split):
    rows = classify_data.held_out_rows(recipe_of(), ["plural", "singular"], Report(), split)
    assert [row.first for row in rows] == [pair.source for pair in phrasebook.split(split)]
    assert [row.number for row in rows] == [pair.number == "singular" for pair in phrasebook.split(split)]
