"""Scores are the likelihoods of the network."""

import numpy as np
import pytest
import torch
from helpers.loaded_models import PROMPTS, SOURCES, TEXTS


def test_the_score_of_an_answer_is_what_was_said_of_it_when_it_was_written(load):
    model = load("demo")
    answers = model.translate(SOURCES)
    for source, answer, scored in zip(SOURCES, answers, model.score(SOURCES, answers), strict=True):
        assert scored.tokens == answer.tokens and scored.given == ["[BOS]"]
        assert scored.log_probabilities == pytest.approx(answer.log_probabilities, abs=1e-5)
        assert scored.total == pytest.approx(answer.log_probability, abs=1e-4)
        assert scored.total == pytest.approx(model.score(source, answer, batch=1).total, abs=1e-4)
        assert scored.perplexity == pytest.approx(np.exp(-scored.total / len(scored.tokens)))


def test_the_score_of_a_text_is_its_likelihood(load, monkeypatch):
    model = load("lm")
    monkeypatch.setattr("heedful.use.score.SLICE", 5)  # several slices, and one that ends inside a row
    for prompt, scored in zip(PROMPTS[2:], model.score(PROMPTS[2:], batch=2), strict=True):
        ids = torch.tensor([model.wording.prompt([prompt])[0].ids])
        log_p = model.model(ids).log_softmax(-1)[0]
        expected = [float(log_p[t, ids[0, t + 1]]) for t in range(ids.shape[1] - 1)]
        assert scored.log_probabilities == pytest.approx(expected, abs=1e-5)
        assert scored.given + scored.tokens == model.wording.names(ids[0].tolist())


def test_a_hugging_face_decoder_scores_every_token(theirs):
    for name in ("gpt2", "llama"):
        model, ours, tokenizer = theirs(name)
        for text, scored in zip(TEXTS, ours.score(TEXTS), strict=True):
            ids = [0, *tokenizer.encode(text, add_special_tokens=False).ids]
            loss = model(torch.tensor([ids]), labels=torch.tensor([ids])).loss
            assert scored.total == pytest.approx(-float(loss) * (len(ids) - 1), rel=1e-4)
            assert scored.given == ["<|endoftext|>"] and scored.tokens == ours.wording.names(ids[1:])


def test_a_hugging_face_encoder_decoder_scores_pairs(theirs):
    model, ours, tokenizer = theirs("t5")
    for a, b in (TEXTS[:2], TEXTS[1:]):
        source, target = (torch.tensor([tokenizer.encode(text).ids]) for text in (a, b))
        loss = float(model(source, labels=target).loss) * target.shape[1]
        assert ours.score(a, b).total == pytest.approx(-loss, rel=1e-4)
