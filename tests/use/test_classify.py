"""Labels and their probabilities are those of the task, or of the Hugging Face folder."""

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.loaded_models import copied
from helpers.small_runs import (
    FILMS,
)

import heedful
import heedful.use.model
from heedful.tasks import classify as classify_task
from heedful.tasks.evaluation import EvaluationRequest


def test_labels_are_those_of_the_task(load):
    model = load("classify")
    texts = [*FILMS, "a very very good film and a bad story, good good good good good good"]
    labels = model.classify(texts)
    assert labels[: len(FILMS)] == list(FILMS.values())
    assert labels == [model.classify(text) for text in texts]
    for label in labels:
        assert sum(label.probabilities.values()) == pytest.approx(1)
        assert (
            label.probability == max(label.probabilities.values()) == next(iter(label.probabilities.values()))
        )
    assert sorted(labels[0].probabilities) == ["negative", "positive"]


@pytest.mark.parametrize("name", ["classify", "classify-pairs", "classify-decoder"])
def test_probabilities_are_those_that_evaluation_finds(name, load):
    model, run = load(name), Path(load(name).folder)
    asked = EvaluationRequest(run, heedful.use.model.recipe_of(run))
    measured = classify_task.measure(model.model, asked)
    texts, seconds = list(FILMS), list(FILMS) if name == "classify-pairs" else None
    found = model.classify(texts, seconds, batch=3)
    nll = -sum(np.log(one.probabilities[FILMS[text]]) for text, one in zip(texts, found, strict=True))
    assert nll / len(texts) == pytest.approx(measured.metrics["loss"], abs=1e-5)


def test_a_hugging_face_classifier_has_its_own_labels(theirs):
    model, ours, tokenizer = theirs("BertForSequenceClassification")
    for first, second in (("the cat", None), ("the cat", "on the mat")):
        encoding = tokenizer.encode(*filter(None, (first, second)))
        expected = model(torch.tensor([encoding.ids]), token_type_ids=torch.tensor([encoding.type_ids]))
        shares = expected.logits[0].softmax(-1).tolist()
        label = ours.classify(first, second)
        assert label.probabilities == pytest.approx(
            dict(zip(["bad", "good", "so-so"], shares, strict=True)), abs=1e-5
        )
        assert label == max(label.probabilities, key=label.probabilities.get)


def test_labels_without_names_of_their_own_are_numbers(theirs, tmp_path):
    _, ours, _ = theirs("BertForSequenceClassification")
    copied(ours, tmp_path, id2label={"0": "a", "1": "a", "2": "b"})
    assert sorted(heedful.load(tmp_path).classify("cat").probabilities) == ["0", "1", "2"]
