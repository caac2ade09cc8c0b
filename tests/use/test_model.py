"""What a loaded model keeps, shows and can do; what it is saved as; the examples of its documentation."""

import copy
import inspect
import json
import pickle
import re
import shutil

import pytest
import tokenizers as tk
import torch
import transformers as hf
from helpers.small_runs import (
    FILMS,
)

import heedful
import heedful.use.model
from heedful import BadInput
from heedful.decode.options import NOT_STREAMED, decoding_options
from heedful.use.results import Answer, Filled, Guess, Label


def test_a_model_keeps_what_was_loaded(load, tmp_path):
    model = load("separate")
    loaded = model.loaded
    for name in ("architecture", "config", "model", "tokenizer", "target_tokenizer", "special"):
        assert getattr(model, name) is getattr(loaded, name)
    heedful.save(load("lm"), tmp_path / "saved")
    assert heedful.load(tmp_path / "saved").generate("the cat", max_new_tokens=5) == load("lm").generate(
        "the cat", max_new_tokens=5
    )


@pytest.mark.parametrize("name", ["classify", "classify-pairs"])
def test_a_saved_classifier_keeps_its_labels_and_what_stands_around_a_text(name, load, tmp_path):
    model, texts = load(name), list(FILMS)
    seconds = texts[::-1] if name == "classify-pairs" else None
    heedful.save(model, tmp_path)
    found = model.classify(texts, seconds)
    again = heedful.load(tmp_path).classify(texts, seconds)
    assert again == found and {*again[0].probabilities} == {"negative", "positive"}
    theirs = hf.BertForSequenceClassification.from_pretrained(tmp_path)
    assert theirs.config.id2label == {0: "negative", 1: "positive"}
    assert theirs.config.label2id == {"negative": 0, "positive": 1}
    tokenizer = tk.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for n, (text, label) in enumerate(zip(texts, found, strict=True)):
        read = tokenizer.encode(text, seconds[n] if seconds else None)
        logits = theirs(torch.tensor([read.ids]), token_type_ids=torch.tensor([read.type_ids])).logits
        shares = dict(zip(theirs.config.id2label.values(), logits[0].softmax(-1).tolist(), strict=True))
        assert label.probabilities == pytest.approx(shares, abs=1e-5)
        assert again[n].probabilities == pytest.approx(shares, abs=1e-5)


def test_a_saved_encoder_is_looked_at_as_its_run_is(load, tmp_path):
    heedful.save(load("mlm"), tmp_path)
    seen, again = (model.look("the cat") for model in (load("mlm"), heedful.load(tmp_path)))
    assert seen.down == again.down == ["[CLS]", "the", "cat", "[SEP]"]


@pytest.mark.parametrize(
    "name, words",
    [
        ("separate", "this one is otherwise (pre-norm with a vocabulary for each side): it cannot be saved"),
    ],
)
def test_what_hugging_face_has_no_layout_for_is_refused_with_the_reason(name, words, load, tmp_path):
    with pytest.raises(BadInput, match=re.escape(words)) as refused:
        heedful.save(load(name), tmp_path / "saved")
    assert "heedful.load reads the run's own folder" in str(refused.value)
    assert not (tmp_path / "saved").exists()


def test_a_gpu_that_is_not_there_is_not_used(small_run, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert heedful.load(small_run("demo"), device="auto").device.type == "cpu"
    with pytest.raises(BadInput, match="no CUDA GPU"):
        heedful.load(small_run("demo"), device="cuda")


def test_labels_of_another_run_are_refused(small_run, tmp_path):
    shutil.copytree(small_run("classify"), tmp_path / "run")
    (tmp_path / "run" / "labels.json").write_text('{"bad": 1, "good": 2, "so-so": 3}')
    with pytest.raises(BadInput, match="labels.json names 3 labels, and the model has 2: restore"):
        heedful.load(tmp_path / "run")


def test_a_notebook_shows_a_small_table(load):
    shown = load("separate")._repr_html_()
    for words in (
        "<table>",
        "transformer, an encoder-decoder",
        "translate, stream, score, embed, look",
        "cpu",
    ):
        assert words in shown
    assert f"{load('separate').parameter_count:,}" in shown and " to " in shown
    model = heedful.Model(load("lm").loaded, "<b>&")
    assert "&lt;b&gt;&amp;" in model._repr_html_() and "<b>" not in model._repr_html_()
    assert "generate, stream, score, embed and look" in repr(load("lm"))


def test_help_of_stream_shows_every_option_that_it_takes():
    shown = inspect.signature(heedful.Model.stream).parameters
    known = {name: option.use for name, option in decoding_options().items() if option.use.commands}
    typed = [name for name, use in known.items() if not {name, use.needs} & {*NOT_STREAMED}]
    assert list(shown)[2:] == ["source_lang", "target_lang", *typed]


def test_results_are_strings_and_can_be_copied():
    answer = Answer("le chat", -0.5, [" le", " chat"], [-0.2, -0.3])
    label = Label("good", {"good": 0.8, "bad": 0.2})
    filled = Filled("the cat", [[Guess("cat", 0.9)]])
    for one in (answer, label, filled):
        for again in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
            assert again == one and type(again) is type(one) and vars(again).keys() == vars(one).keys()
        assert json.dumps(one) == json.dumps(str(one))
    assert copy.deepcopy(answer).n_best[0] == answer and label.probability == 0.8


def test_a_model_looks_at_what_look_sees(load):
    from heedful.inside.look.attention import look

    model = load("demo")
    mine, theirs = (
        see("the cat sleeps", layer=1, head=2)
        for see in (model.look, lambda *a, **b: look(model.loaded, *a, **b))
    )
    assert mine.text() == theirs.text() and mine.words.translation == "le chat dort"
