"""A folder turned into text from Python: every method equals what the parts below it give, alone and in batches."""

import copy
import doctest
import inspect
import io
import json
import os
import pickle
import re
import shutil
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import tokenizers as tk
import torch
import transformers as hf
from helpers.small_runs import (
    FILMS,
    PAIRS,
    small_run,  # noqa: F401 (fixtures)
)
from helpers.tokenizer_cases import AWKWARD, byte_level, unigram, word_piece

import heedful
import heedful.use.model
from heedful import BadInput, Loaded
from heedful.data.vocab import read_vocab
from heedful.decode import filters as f
from heedful.decode.beam import beam_search
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.greedy import greedy, greedy_continuation
from heedful.decode.prompts import pad
from heedful.decode.sampling import sample
from heedful.decode.step import step_of
from heedful.models import gpt2, vit
from heedful.tasks import classify as classify_task
from heedful.tasks import translate as translate_task
from heedful.tasks.evaluation import Asked
from heedful.use import writing
from heedful.use.results import Answer, Filled, Guess, Label
from heedful.use.wording import LONGEST, wording_of
from heedful.use.writing import Options, Writing, seed_of

SOURCES = [*PAIRS, "the cat", "a fish eats the dog and the cat and i am a teacher"]
PROMPTS = ["the cat", "t", "the dog ate the", "the mat. the d", "sat on"]


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def load(small_run):
    kept = {}

    def get(name: str) -> heedful.Model:
        if name not in kept:
            kept[name] = heedful.load(small_run(name))
        return kept[name]

    return get


def test_every_example_in_the_documentation_of_the_model_holds(small_run, monkeypatch):
    for name, toy in {
        "demo": "toy",
        **{task: f"toy-{task}" for task in ("lm", "mlm", "classify", "span", "choose", "parse", "summarize")},
    }.items():
        folder = Path(small_run(name))
        (folder.parent / toy).symlink_to(name)
    monkeypatch.chdir(folder.parent.parent)
    heard, runner = io.StringIO(), doctest.DocTestRunner()
    for test in doctest.DocTestFinder().find(heedful.use.model, globs={"load": heedful.load}):
        runner.run(test, out=heard.write)
    assert heard.getvalue() == "" and runner.summarize(verbose=False).attempted >= 20


# Translating


@pytest.mark.parametrize("name", ["demo", "bytes", "separate"])
def test_greedy_translations_are_those_that_training_is_judged_by(name, load):
    model = load(name)
    vocab = translate_task.read_vocabs(Path(model.folder), name != "separate")
    expected = translate_task.translate(model.model, vocab, SOURCES)
    assert model.translate(SOURCES, beam=1) == expected
    assert name != "demo" or expected[: len(PAIRS)] == list(PAIRS.values())


def direct(model, source: str, settings: BeamSettings) -> list:
    words = model.wording
    (row,) = words.source([source])
    step = step_of(model.model, *pad([row]), watched=bool(settings.coverage))
    prompt = torch.tensor([[model.special["decoder_start"]]])
    (found,) = beam_search(
        step, prompt, longest=2 * len(row) + 20, eos=model.special["eos"], settings=settings
    )
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam": 2},
        {"beam": 3, "n_best": 3, "length_penalty": "power", "alpha": 1.5},
        {"stopping": "exact", "n_best": 2},
        {"coverage": 0.7, "n_best": 4},
        {"beam": 2, "groups": 3, "diversity": 0.8, "n_best": 6},
    ],
)
def test_a_beam_is_the_beam_search_of_decode(options, load):
    model = load("demo")
    settings = BeamSettings(
        **({"width": options.get("beam", 4)} | {k: v for k, v in options.items() if k != "beam"})
    )
    for source, answer in zip(SOURCES, model.translate(SOURCES, **options, batch=3), strict=True):
        found = direct(model, source, settings)
        assert [str(one) for one in answer.n_best] == [model.wording.decoded(one.words) for one in found]
        for mine, theirs in zip(answer.n_best, found, strict=True):
            assert mine.score == pytest.approx(theirs.score, abs=1e-5)
            assert mine.log_probabilities == pytest.approx(theirs.log_probabilities, abs=1e-5)
            assert mine.tokens == model.wording.names(theirs.tokens) and mine.ended == theirs.ended
        assert answer is answer.n_best[0] and answer.log_probability == sum(answer.log_probabilities)


HOW = [
    {"beam": 1},
    {"beam": 3, "n_best": 2},
    {"sample": True, "seed": 5},
    {"sample": True, "temperature": 1.7, "top_p": 0.9, "min_p": 0.01, "top_k": 9},
    {"repetition_penalty": 1.9, "no_repeat_ngram": 2},
    {"beam": 2, "forbid": ["le", "chat"], "longest": 4},
]


@pytest.mark.parametrize("how", [*HOW, {"prefix": "le chien", "beam": 2}, {"sample": True, "prefix": "je"}])
def test_a_text_is_answered_alike_alone_and_among_others(how, load):
    model = load("demo")
    whole = model.translate(SOURCES, **how)
    assert whole == model.translate(SOURCES, **how, batch=1) == model.translate(SOURCES, **how, batch=3)
    if not how.get("sample"):
        assert whole == [model.translate(source, **how) for source in SOURCES]
        assert model.translate(SOURCES[::-1], **how) == whole[::-1]
    if how.keys() & {"sample", "forbid", "prefix"}:
        assert whole != model.translate(SOURCES, beam=1)


def test_what_is_drawn_depends_on_the_seed_and_on_the_place_only(load):
    model = load("demo")
    (row,) = model.wording.source([SOURCES[1]])
    for place in (0, 3):
        step = step_of(model.model, *pad([row]))
        start = torch.tensor([[model.special["decoder_start"]]])
        expected = sample(
            step, start, longest=2 * len(row) + 20, eos=model.special["eos"], seed=[seed_of(8, place)]
        )
        texts = [SOURCES[0]] * place + [SOURCES[1]]
        found = model.translate(texts, sample=True, seed=8)[place]
        assert found.tokens == model.wording.names(expected[0].tokens)
    assert model.translate(["the dog"] * 9, sample=True, temperature=3.0) != model.translate(
        ["the dog"] * 9, sample=True, temperature=3.0, seed=1
    )


def test_filters_do_what_they_say(load):
    model = load("demo")
    source = "the cat sleeps"
    assert model.translate(source, forbid=["chat"]) == "le chien dort"
    assert model.translate(source, prefix="le chien mange").startswith("le chien mange")
    assert len(model.translate(source, longest=2, beam=1).tokens) == 2
    assert not model.translate(source, longest=2, beam=1).ended


FILTERS = {
    "repetition_penalty": (3.0, f.repetition_penalty),
    "no_repeat_ngram": (3, f.no_repeat_ngram),
    "temperature": (2.5, f.temperature),
    "top_k": (2, f.top_k),
    "top_p": (0.6, f.top_p),
    "min_p": (0.2, f.min_p),
}


@pytest.mark.parametrize("name", FILTERS)
def test_each_filter_is_that_of_decode(name, load):
    model, (value, make) = load("lm"), FILTERS[name]
    drawn = {"sample": True, "temperature": 2.5, "seed": 3} if name in writing.SAMPLING else {}
    (row,) = model.wording.prompt(["the cat"])
    filters = ([f.temperature(2.5)] if drawn else []) + ([] if name == "temperature" else [make(value)])
    how = {"longest": 17, "eos": model.special["eos"], "filters": filters}
    if drawn:
        (expected,) = sample(step_of(model.model), torch.tensor([row]), seed=[seed_of(3, 0)], **how)
    else:
        (expected,) = greedy(step_of(model.model), torch.tensor([row]), **how)
    found = model.generate("the cat", longest=17, **(drawn | {name: value}))
    assert found.tokens == model.wording.names(expected.tokens)
    without = {key: held for key, held in drawn.items() if key != name}
    assert found != model.generate("the cat", longest=17, **without)


def test_an_empty_text_has_an_empty_translation(load):
    found = load("demo").translate(["", "the cat sleeps", " \t"])
    assert found == ["", "le chat dort", ""] and found[0].tokens == [] and found[0].n_best == [found[0]]
    assert load("demo").translate([]) == []


# Going on


@pytest.mark.parametrize("name", ["lm", "lm-bytes"])
@pytest.mark.parametrize("how", [*HOW[:5], {"beam": 2, "longest": 4, "forbid": ["c"]}])
def test_a_prompt_is_continued_alike_alone_and_among_others(name, how, load):
    model = load(name)
    how = {"longest": 11} | how
    whole = model.generate(PROMPTS, **how)
    assert whole == model.generate(PROMPTS, **how, batch=1) == model.generate(PROMPTS, **how, batch=2)
    assert whole[0] == model.generate(PROMPTS[0], **how)


def test_past_the_context_the_oldest_is_forgotten(load):
    model = load("lm")
    for prompt in ("the cat", "the dog ate the fish. th", "the dog ate the fish. t"):
        ids = torch.tensor(model.wording.prompt([prompt])[0])
        expected = greedy_continuation(model.model, ids, 60, model.config.context)
        found = model.generate(prompt, longest=60)
        assert found.tokens == model.wording.names(expected) and len(found) == 60
        assert "".join(model.stream(prompt, longest=60)) == found
    both = model.generate(["the cat", "the dog ate the fish. t"], longest=60)
    assert both[1] == found
    drawn = {"sample": True, "temperature": 2.0, "longest": 60, "seed": 3}
    assert model.generate(["the", "the cat"], **drawn)[0] == model.generate("the", **drawn)
    long = "the cat sat on the mat. the dog ate the fish. the cat sat on the mat. the"
    assert model.generate(long, longest=5) == " dog "
    assert len(model.generate(long, longest=500, beam=2).tokens) == 13  # a beam stops where its table is full


def test_an_answer_goes_on_where_its_prompt_ends(load):
    """prompt + answer is the text that all the tokens spell."""
    for name in ("lm", "lm-bytes"):
        model = load(name)
        for prompt in PROMPTS:
            answer = model.generate(prompt, longest=7, sample=True)
            ids = model.wording.prompt([prompt])[0]
            new = [model.tokenizer.token_to_id(token) for token in answer.tokens if token != "[EOS]"]
            assert prompt + answer == model.wording.decoded([*ids, *new])


@pytest.mark.parametrize("sampled", [{}, {"sample": True, "temperature": 0.7}])
def test_a_draft_changes_the_speed_and_not_the_text(sampled, load):
    model, draft = load("lm"), load("draft")
    how = sampled | {"longest": 40}
    with_it = model.generate(PROMPTS, **how, draft=draft, ahead=3)
    assert with_it == model.generate(PROMPTS, **how, draft=draft, ahead=3, batch=2)
    assert with_it[0] == "".join(model.stream(PROMPTS[0], **how, draft=draft, ahead=3))
    if not sampled:
        assert with_it == model.generate(PROMPTS, **how)
    else:  # its own draft: every guess is right, and what is drawn is still a text of the model's
        assert all(len(answer.tokens) == 40 for answer in model.generate(PROMPTS, **how, draft=model))


@pytest.mark.parametrize("name", ["demo", "bytes", "separate", "lm", "lm-bytes"])
@pytest.mark.parametrize("how", [{}, {"sample": True, "temperature": 1.4, "seed": 4}])
def test_a_stream_adds_up_to_the_whole(name, how, load):
    model = load(name)
    do = model.translate if "translate" in model.can else model.generate
    for text in ("the cat", "i am a student"):
        whole = do(text, **({"beam": 1} | how if not how else how), longest=17)
        pieces = list(model.stream(text, **how, longest=17))
        assert "".join(pieces) == whole and all(pieces)
    assert "translate" not in model.can or list(model.stream("")) == []


def test_no_piece_of_a_stream_ends_inside_a_character():
    config = gpt2.GPT2Config(vocab=400, context=11, layers=1, width=12, heads=3, hidden=20)
    words = wording_of(Loaded("gpt2", config, gpt2.build(config), byte_level(), {}), "here", own=True)
    for text in AWKWARD:
        ids = words.prompt([text])[0]
        for at in (0, 1, len(ids) // 2):
            if words.decoded(ids[:at]).endswith("\ufffd"):
                continue  # a prompt is a text and ends with a character
            pieces = list(words.pieces(ids[at:], ids[:at]))
            assert "".join(pieces) == words.text(ids[at:], ids[:at])
            assert words.decoded(ids[:at]) + "".join(pieces) == text.replace("<|endoftext|>", "")
            assert "\ufffd" in text or not any("\ufffd" in piece for piece in pieces)
    half = words.prompt(["猫"])[0][:1]
    assert list(words.pieces(half)) == ["\ufffd"]  # nothing follows: it is told as it is


# Scores


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
    monkeypatch.setattr("heedful.use.scoring.SLICE", 5)  # several slices, and one that ends inside a row
    for prompt, scored in zip(PROMPTS[2:], model.score(PROMPTS[2:], batch=2), strict=True):
        ids = torch.tensor(model.wording.prompt([prompt]))
        log_p = model.model(ids).log_softmax(-1)[0]
        expected = [float(log_p[t, ids[0, t + 1]]) for t in range(ids.shape[1] - 1)]
        assert scored.log_probabilities == pytest.approx(expected, abs=1e-5)
        assert scored.given + scored.tokens == model.wording.names(ids[0].tolist())


# Blanks, labels, vectors


def test_what_follows_a_blank_is_read_as_in_a_sentence(load):
    """A full stop that touches a blank is not one with a space before it."""
    model = load("mlm")
    vocab = read_vocab(Path(model.folder) / "tokenizer.json")
    (row,) = vocab.encode_batch(["the dog ate the fish. the cat"])
    row[row.index(vocab.tokenizer.token_to_id(" fish"))] = vocab.mask
    assert model.wording.blanked("the dog ate the [MASK]. the cat") == [vocab.cls, *row, vocab.sep]


def test_blanks_are_filled_in_by_what_stood_there(load):
    model = load("mlm")
    texts = [
        "the [MASK] sat on the mat.", "the mat. the [MASK] ate the fish.", "the cat [MASK] on the [MASK]."
    ]  # fmt: skip
    found = model.fill(texts, top=3)
    assert found == ["the cat sat on the mat.", "the mat. the dog ate the fish.", "the cat sat on the mat."]
    assert [len(one.blanks) for one in found] == [1, 1, 2] and all(
        len(b) == 3 for one in found for b in one.blanks
    )
    assert found == [model.fill(text, batch=1) for text in texts]
    vocab = read_vocab(Path(model.folder) / "tokenizer.json")
    (a, b) = vocab.encode_batch(["the", "sat on the mat."])
    row = torch.tensor([[vocab.cls, *a, vocab.mask, *b, vocab.sep]])
    best = model.model(row)["masked_lm"][0, 1 + len(a)].softmax(-1)
    for guess in found[0].blanks[0]:
        number = vocab.tokenizer.token_to_id(f" {guess.word}")
        assert guess.probability == pytest.approx(float(best[number]), abs=1e-6)


@pytest.mark.parametrize(
    "name, text, before, after",
    [
        ("mlm-bytes", "the [MASK] sat", "the", " sat"),  # the blank has the space with it
        ("mlm-bytes", "the[MASK] sat", "the", " sat"),
        ("mlm-chars", "the [MASK]at", "the ", "at"),  # the blank is one character
    ],
)
def test_a_blank_stands_where_a_token_stood(name, text, before, after, load):
    model = load(name)
    vocab = read_vocab(Path(model.folder) / "tokenizer.json")
    a, b = vocab.encode_batch([before, after])
    assert model.wording.blanked(text) == [vocab.cls, *a, vocab.mask, *b, vocab.sep]
    filled = model.fill(text, top=2)
    assert filled == text.replace("[MASK]", filled.blanks[0][0].word)


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
    asked = Asked(run, heedful.use.scoring.recipe_of(run))
    measured = classify_task.measure(model.model, asked)
    texts, seconds = list(FILMS), list(FILMS) if name == "classify-pairs" else None
    found = model.classify(texts, seconds, batch=3)
    surprise = -sum(np.log(one.probabilities[FILMS[text]]) for text, one in zip(texts, found, strict=True))
    assert surprise / len(texts) == pytest.approx(measured.metrics["loss"], abs=1e-5)


@pytest.mark.parametrize("name", ["demo", "lm", "mlm", "classify", "classify-decoder"])
@pytest.mark.parametrize("pooling", ["mean", "class"])
def test_a_vector_is_the_last_layers(name, pooling, load):
    model, texts = load(name), ["the cat", "the dog ate", "a"]
    network, words = model.model, model.wording
    if pooling == "class" and name in ("demo", "lm"):
        with pytest.raises(BadInput, match="without a class token"):
            model.embed(texts, pooling=pooling)
        return
    found = model.embed(texts, pooling=pooling, batch=2)
    assert found.shape == (3, model.config.width) and found.dtype == torch.float32
    for text, vector in zip(texts, found, strict=True):
        (plain,) = words.target([text])
        named = model.tokenizer.token_to_id
        row = {"demo": plain, "lm": plain, "classify-decoder": [named("[BOS]"), *plain, named("[EOS]")]}
        ids = torch.tensor([row.get(name, [named("[CLS]"), *plain, named("[SEP]")])])
        reader = {"lm": lambda: network.hidden, "classify-decoder": lambda: network.decoder.hidden}
        hidden = reader.get(name, lambda: network.encoder)()(ids)[0]
        expected = hidden.mean(0) if pooling == "mean" else hidden[-1 if name == "classify-decoder" else 0]
        torch.testing.assert_close(vector, expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(model.embed(text, pooling=pooling), vector, atol=1e-5, rtol=0)
    unit = model.embed(texts, pooling=pooling, normalize=True)
    torch.testing.assert_close(unit, found / found.norm(dim=-1, keepdim=True))
    assert model.embed([]).shape == (0, model.config.width)


# Hugging Face folders


def spread(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    """Weights that let every part matter."""
    torch.manual_seed(seed)
    for weight in model.parameters():
        if weight.requires_grad:
            weight.add_(torch.randn_like(weight) * 0.25)
    return model.eval()


def template(tokenizer: tk.Tokenizer, single: str) -> tk.Tokenizer:
    names = [part for part in single.split() if part != "$A"]
    tokenizer.post_processor = tk.processors.TemplateProcessing(
        single=single, special_tokens=[(name, tokenizer.token_to_id(name)) for name in names]
    )
    return tokenizer


def t5_tokens() -> tk.Tokenizer:
    tokenizer = unigram()
    tokenizer.add_special_tokens(["</s>", "<pad>"])
    return template(tokenizer, "$A </s>")


def make_theirs(name: str) -> tuple[torch.nn.Module, tk.Tokenizer]:
    few = {"num_hidden_layers": 2, "num_attention_heads": 3, "hidden_size": 12, "intermediate_size": 20}
    if name == "gpt2":
        tokenizer = byte_level()
        config = hf.GPT2Config(vocab_size=400, n_positions=64, n_embd=12, n_layer=2, n_head=3, bos_token_id=0, eos_token_id=0)  # fmt: skip
        return hf.GPT2LMHeadModel(config), tokenizer
    if name == "llama":
        tokenizer = template(byte_level(), "<|endoftext|> $A")
        config = hf.LlamaConfig(
            **few, vocab_size=340, num_key_value_heads=1, bos_token_id=0, eos_token_id=[7, 9, 21]
        )
        return hf.LlamaForCausalLM(config), tokenizer
    if name == "t5":
        tokenizer = t5_tokens()
        size, end, pads = (
            tokenizer.get_vocab_size(),
            tokenizer.token_to_id("</s>"),
            tokenizer.token_to_id("<pad>"),
        )
        config = hf.T5Config(vocab_size=size + 5, d_model=12, d_kv=4, d_ff=20, num_layers=2, num_heads=3, decoder_start_token_id=pads, eos_token_id=end, pad_token_id=pads)  # fmt: skip
        return hf.T5ForConditionalGeneration(config), tokenizer
    if name == "marian":
        tokenizer = t5_tokens()
        size, end, pads = (
            tokenizer.get_vocab_size(),
            tokenizer.token_to_id("</s>"),
            tokenizer.token_to_id("<pad>"),
        )
        config = hf.MarianConfig(
            vocab_size=size, decoder_vocab_size=size, d_model=12, encoder_layers=2, decoder_layers=1, encoder_attention_heads=3,
            decoder_attention_heads=2, encoder_ffn_dim=20, decoder_ffn_dim=14, max_position_embeddings=64,
            pad_token_id=pads, eos_token_id=end, decoder_start_token_id=pads, forced_eos_token_id=None, scale_embedding=True,
        )  # fmt: skip
        model = hf.MarianMTModel(config)
        model.generation_config.bad_words_ids = [[pads], [5], [11, 3]]
        return model, tokenizer
    tokenizer = word_piece()
    config = hf.BertConfig(**few, vocab_size=tokenizer.get_vocab_size() + 3, max_position_embeddings=23)
    config.id2label = {0: "bad", 1: "good", 2: "so-so"}
    return getattr(hf, name)(config), tokenizer


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """(their model, our model, the tokenizer) of a Hugging Face folder."""
    folder, kept = tmp_path_factory.mktemp("theirs"), {}

    def get(name: str):
        if name not in kept:
            model, tokenizer = make_theirs(name)
            spread(model, 3).save_pretrained(folder / name)
            tokenizer.save(str(folder / name / "tokenizer.json"))
            kept[name] = model, heedful.load(folder / name), tokenizer
        return kept[name]

    return get


TEXTS = ["The cat sat on the mat.", "it's a", "Là-bas, 1234 mats; see we'll dort!"]


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "marian"])
@pytest.mark.parametrize("beam", [1, 3])
def test_a_hugging_face_folder_writes_what_transformers_writes(name, beam, theirs):
    """The special tokens around a text, those that begin and end one, and those never to be written."""
    model, ours, tokenizer = theirs(name)
    do = ours.translate if name in ("t5", "marian") else ours.generate
    how = {"beam": beam, "longest": 13}
    how |= {"length_penalty": "power", "alpha": 1.0, "n_best": 2} if beam > 1 else {}
    for text, answer in zip(TEXTS, do(TEXTS, **how), strict=True):
        ids = tokenizer.encode(text).ids
        their = model.generate(
            torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), num_beams=beam, do_sample=False,
            max_new_tokens=13, length_penalty=1.0, num_return_sequences=2 if beam > 1 else 1, pad_token_id=399 if name == "gpt2" else 1,
        )  # fmt: skip
        for one, row in zip(answer.n_best, their.tolist(), strict=True):
            new = row[1:] if name in ("t5", "marian") else row[len(ids) :]
            new = new[: len(one.tokens)]
            assert one.tokens == ours.wording.names(new)
        assert (answer.tokens[-1] in ours.wording.names(ours.wording.ends)) == answer.ended


def test_the_special_tokens_of_a_folder_are_where_it_says(theirs):
    _, llama, tokens = theirs("llama")
    assert llama.wording.ends == [7, 9, 21] and llama.wording.prompt([""]) == [[0]]
    assert llama.wording.prompt(["cat"]) == [[0, *tokens.encode("cat", add_special_tokens=False).ids]]
    _, t5, tokens = theirs("t5")
    assert t5.wording.source(["cat"])[0][-1] == tokens.token_to_id("</s>") == t5.wording.ends[0]
    assert t5.wording.start == tokens.token_to_id("<pad>")
    _, marian, tokens = theirs("marian")
    assert marian.wording.never == [[tokens.token_to_id("<pad>")], [5], [11, 3]]
    _, gpt, tokens = theirs("gpt2")
    assert gpt.wording.prompt(["", "cat"]) == [[0], tokens.encode("cat").ids]
    ended = template(byte_level(), "$A <|endoftext|>")
    config = gpt2.GPT2Config(vocab=400, context=11, layers=1, width=12, heads=3, hidden=20)
    words = wording_of(Loaded("gpt2", config, gpt2.build(config), ended, {"bos": 0}), "nowhere", own=False)
    assert words.prompt(["cat", ""]) == [
        ended.encode("cat").ids[:-1],
        [0],
    ]  # to go on, a text must not have ended


def copied(ours: heedful.Model, folder: Path, **changes: object) -> None:
    """The same folder elsewhere, with other words in its configs."""
    for name in os.listdir(ours.folder):
        (folder / name).write_bytes((Path(ours.folder) / name).read_bytes())
    for name in ("config.json", "generation_config.json"):
        if (folder / name).exists():
            (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | changes))


def test_any_of_several_tokens_ends_a_text(theirs, tmp_path):
    _, ours, tokenizer = theirs("llama")
    whole = ours.generate(TEXTS[0], longest=13)
    at = max(whole.tokens.index(token) for token in whole.tokens)
    copied(ours, tmp_path, eos_token_id=[7, tokenizer.token_to_id(whole.tokens[at])])
    ended = heedful.load(tmp_path).generate(TEXTS[0], longest=13)
    assert ended.ended and ended.tokens == whole.tokens[: at + 1] and len(ended) < len(whole)


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


def test_a_hugging_face_bert_fills_blanks_and_embeds(theirs):
    model, ours, tokenizer = theirs("BertForMaskedLM")
    texts = ["the [MASK] sat on the mat", "the cat's [MASK], isn't [MASK]?"]
    for text, filled in zip(texts, ours.fill(texts, top=4), strict=True):
        ids = tokenizer.encode(text).ids
        shares = model(torch.tensor([ids])).logits[0].softmax(-1)
        places = [i for i, token in enumerate(ids) if token == tokenizer.token_to_id("[MASK]")]
        for place, guesses in zip(places, filled.blanks, strict=True):
            best = shares[place].topk(4)
            assert [g.probability for g in guesses] == pytest.approx(best.values.tolist(), abs=1e-5)
            assert [g.word for g in guesses] == [ours.wording.word(n) for n in best.indices.tolist()]
    hidden = model.bert(torch.tensor([tokenizer.encode("the cat").ids])).last_hidden_state[0]
    torch.testing.assert_close(ours.embed("the cat"), hidden.mean(0), atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.embed("the cat", pooling="class"), hidden[0], atol=1e-5, rtol=0)


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


def test_words_that_a_vocabulary_lacks_are_found_where_they_stand(load, theirs):
    texts = ["the  zebra sleeps, zoë", "the cat", "", "cat [MASK]"]
    words = [["zebra", ",", "zoë"], [], [], ["[", "MASK", "]"]]
    assert load("demo").unknown_words(texts) == words  # by whole words
    assert load("mlm").unknown_words(["the [MASK], [MASK]. zoë"]) == [[",", "zoë"]]  # where a blank is none
    assert load("lm").unknown_words(["the zebra ø"]) == [["z", "b", "r", "ø"]]  # by characters
    assert load("bytes").unknown_words(["日本 the zebra"]) == [[]]  # there is nothing that bytes do not know
    _, ours, tokenizer = theirs("BertForSequenceClassification")
    text = "the cat 日本 sat"
    unknown = tokenizer.encode(text).ids.count(tokenizer.token_to_id("[UNK]"))
    assert len(ours.unknown_words([text])[0]) == unknown > 0


# Refusals


@pytest.mark.parametrize(
    "name, call, sentence",
    [
        ("demo", lambda m: m.generate("x"), "is an encoder-decoder, which cannot generate; it can translate, stream, score, embed and look"),
        ("demo", lambda m: m.classify("x"), "cannot classify"),
        ("lm", lambda m: m.translate("x"), "is a decoder, which cannot translate; it can generate, stream, score, embed and look"),
        ("lm", lambda m: m.fill("x [MASK]"), "cannot fill"),
        ("mlm", lambda m: m.generate("x"), "is an encoder, which cannot generate; it can fill, embed and look"),
        ("mlm", lambda m: m.stream("x"), "cannot stream"),
        ("classify", lambda m: m.score("x"), "cannot score; it can classify, embed and look"),
        ("classify-decoder", lambda m: m.generate("x"), "is a classifier, which cannot generate"),
        ("demo", lambda m: m.translate("x", beem=3), 'there is no option "beem"; did you mean "beam"?'),
        ("demo", lambda m: m.translate("x", beam=0), "`beam` must be a whole number from 1 to 1,000, not 0"),
        ("demo", lambda m: m.translate("x", beam=2.0), "`beam` must be a whole number"),
        ("demo", lambda m: m.translate("x", batch=0), "`batch` must be a whole number"),
        ("demo", lambda m: m.translate("x", longest=-3), "`longest` must be a whole number"),
        ("demo", lambda m: m.translate("x", seed="a"), "`seed` must be a whole number"),
        ("demo", lambda m: m.translate("x", temperature=0.5), "`temperature` does nothing unless tokens are drawn"),
        ("demo", lambda m: m.translate("x", top_k=5), "`top_k` does nothing unless"),
        ("demo", lambda m: m.translate("x", sample=True, beam=3), "ask for one of them"),
        ("demo", lambda m: m.translate("x", sample=True, temperature=0.0), "`temperature` must be a number from 0.001 to 1,000.0, not 0.0"),
        ("demo", lambda m: m.translate("x", sample=True, top_p=1.5), "`top_p` must be a number from 0.0 to 1.0, not 1.5"),
        ("demo", lambda m: m.translate("x", alpha=float("nan")), "`alpha` must be a number from -5.0 to 5.0, not nan"),
        ("demo", lambda m: m.translate("x", beam=10**20), "`beam` must be a whole number from 1 to 1,000"),
        ("demo", lambda m: m.translate("x", batch=True), "`batch` must be a whole number"),
        ("demo", lambda m: m.translate("x", longest=10**20), "`longest` must be a whole number from 1 to 1,000,000"),
        ("demo", lambda m: m.translate("x", sample=True, temperature=1e-300), "`temperature` must be a number from 0.001"),
        ("demo", lambda m: m.translate("x", repetition_penalty=0), "`repetition_penalty` must be a number from 0.001"),
        ("demo", lambda m: m.translate("x", sample=True, n_best=2), "`n_best` is for beam search"),
        ("demo", lambda m: m.translate("x", beam=1, alpha=1.0), "`alpha` is for beam search: ask for a `beam` of 2 or more"),
        ("demo", lambda m: m.translate("x", n_best=5), "a beam of 4 cannot find 5 hypotheses"),
        ("demo", lambda m: m.translate("x", length_penalty="gnm"), 'length_penalty "gnm" does not exist'),
        ("demo", lambda m: m.translate("x", groups=2), "groups above 1 and diversity above 0 go together"),
        ("demo", lambda m: m.translate("x", forbid="chat"), '`forbid` takes a list of words: ["chat"]'),
        ("demo", lambda m: m.translate("x", forbid=["zebra"]), '"zebra" is not in the vocabulary'),
        ("demo", lambda m: m.translate("x", forbid=[" "]), "an empty word cannot be forbidden"),
        ("demo", lambda m: m.translate("x", ahead=3), "give `draft` too"),
        ("demo", lambda m: m.translate("x", draft=m), "it is for generate"),
        ("demo", lambda m: m.translate(3), "texts are a string or a list of strings, not int"),
        ("demo", lambda m: m.translate(["a", None]), "text 2 is NoneType: texts are strings"),
        ("demo", lambda m: m.translate("\ud800"), "a text cannot be tokenized"),
        ("demo", lambda m: m.stream("x", beam=2), "a beam decides at the end"),
        ("demo", lambda m: m.stream(["x"]), "stream takes one text"),
        ("demo", lambda m: m.score("x"), "which scores pairs: give their targets too"),
        ("demo", lambda m: m.score(["x"], ["y", "z"]), "there are 1 and 2"),
        ("demo", lambda m: m.score("x", ["y"]), "two by two"),
        ("demo", lambda m: m.score(["the", ""], ["y", "z"]), "text 2 is empty"),
        ("demo", lambda m: m.embed(["the", " "]), "text 2 is empty"),
        ("demo", lambda m: m.embed("x", pooling="max"), '`pooling` is "mean" or "class"'),
        ("demo", lambda m: m.embed("x", batch=0), "`batch` must be a whole number"),
        ("lm", lambda m: m.generate("x", prefix="y"), "put it there"),
        ("lm", lambda m: m.generate(["the", ""]), "text 2 is empty, and"),
        ("lm", lambda m: m.generate("the", n_best=2), "`n_best` is for beam search"),
        ("lm", lambda m: m.generate("the", beam=2, coverage=0.5), "no cross-attention"),
        ("lm", lambda m: m.generate("the", draft=m, beam=2), "a draft guesses for one hypothesis"),
        ("lm", lambda m: m.generate("the", draft="runs/lm"), "a draft is a decoder that was loaded by heedful.load"),
        ("lm", lambda m: m.score("the", "cat"), "it has no use for targets"),
        ("lm", lambda m: m.score("t"), "text 1 has one token"),
        ("lm", lambda m: m.score(["the", "the cat " * 9]), "text 2 has 72 tokens, and the model reads at most 24: cut it"),
        ("lm", lambda m: m.embed("the cat " * 9), "text 1 has 72 tokens"),
        ("mlm", lambda m: m.fill("the cat"), "text 1 has no [MASK] to fill in"),
        ("mlm", lambda m: m.fill("the [MASK]", top=0), "`top` must be a whole number"),
        ("mlm", lambda m: m.fill(["[MASK]", "the [MASK] " * 20]), "text 2 has 42 tokens"),
        ("classify", lambda m: m.classify("x", "y"), "was trained on single texts"),
        ("classify-pairs", lambda m: m.classify("x"), "was trained on pairs of texts"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_a_sentence(name, call, sentence, load):
    with pytest.raises(BadInput) as error:
        call(load(name))
    assert sentence in str(error.value)


def test_a_draft_needs_the_same_vocabulary(load):
    with pytest.raises(BadInput, match="a draft needs the same vocabulary"):
        load("lm").generate("the", draft=load("lm-bytes"))


def test_what_a_hugging_face_folder_lacks_is_named(theirs, tmp_path):
    _, ours, _ = theirs("t5")
    copied(ours, tmp_path, decoder_start_token_id=None, bos_token_id=None)
    with pytest.raises(BadInput, match="lacks decoder_start_token_id"):
        heedful.load(tmp_path).translate("x")
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(BadInput, match="has no tokenizer"):
        heedful.load(tmp_path).translate("x")


def test_a_model_of_images_says_so():
    config = vit.ViTConfig(image=12, patch=4, layers=1, width=12, attention_heads=3, hidden=20, labels=5)
    model = heedful.Model(Loaded("vit", config, vit.build(config), None, {}), "here")
    with pytest.raises(BadInput, match="here reads pictures: look_at takes the name of a file"):
        model.look("x")
    assert model.can == ("look",) and "can look" in repr(model)
    for method in (model.embed, model.classify):  # it has no head for labels
        with pytest.raises(BadInput, match="here is a model of images, which cannot .*; it can look"):
            method("x")


def test_a_gpu_that_is_not_there_is_not_used(small_run, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert heedful.load(small_run("demo"), device="auto").device.type == "cpu"
    with pytest.raises(BadInput, match="no CUDA GPU"):
        heedful.load(small_run("demo"), device="cuda")


# What a model looks like


def test_a_model_keeps_what_was_loaded(load, tmp_path):
    model = load("separate")
    loaded = model.loaded
    for name in ("architecture", "config", "model", "tokenizer", "target_tokenizer", "special"):
        assert getattr(model, name) is getattr(loaded, name)
    heedful.save(load("lm"), tmp_path / "saved")
    assert heedful.load(tmp_path / "saved").generate("the cat", longest=5) == load("lm").generate(
        "the cat", longest=5
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


@pytest.mark.parametrize(
    "name, method",
    [("demo", "translate"), ("lm", "generate"), ("mlm", "embed"), ("classify", "classify"), ("lm", "score")],
)
def test_python_refuses_the_same_long_texts_as_the_shell(name, method, load):
    with pytest.raises(BadInput, match=f"text 2 is longer than {LONGEST} characters: cut it"):
        getattr(load(name), method)(["a film", "a" * (LONGEST + 1)])


def test_labels_of_another_run_are_refused(small_run, tmp_path):
    shutil.copytree(small_run("classify"), tmp_path / "run")
    (tmp_path / "run" / "labels.json").write_text('{"bad": 1, "good": 2, "so-so": 3}')
    with pytest.raises(BadInput, match="labels.json names 3 labels, and the model tells 2 apart: put back"):
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


def test_help_shows_every_option():
    names = [f.name for f in fields(Writing)]
    assert names == list(Options.__annotations__)
    others = {"translate": ("draft", "ahead"), "generate": ("prefix",), "stream": ()}
    for method, without in others.items():
        shown = inspect.signature(getattr(heedful.Model, method)).parameters
        assert list(shown)[2:] == [name for name in names if name not in without]
        assert shown["batch"].default == 32


def test_results_are_strings_and_can_be_copied():
    answer = Answer("le chat", -0.5, [" le", " chat"], [-0.2, -0.3])
    label = Label("good", {"good": 0.8, "bad": 0.2})
    filled = Filled("the cat", [[Guess("cat", 0.9)]])
    for one in (answer, label, filled):
        for again in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
            assert again == one and type(again) is type(one) and vars(again).keys() == vars(one).keys()
        assert json.dumps(one) == json.dumps(str(one))
    assert copy.deepcopy(answer).n_best[0] == answer and label.probability == 0.8


def test_a_greedy_answer_is_that_of_decode(load):
    model = load("lm")
    (row,) = model.wording.prompt(["the cat"])
    (found,) = greedy(step_of(model.model), torch.tensor([row]), longest=9, eos=model.special["eos"])
    answer = model.generate("the cat", longest=9)
    assert answer.tokens == model.wording.names(found.tokens)
    assert answer.score == pytest.approx(found.score, abs=1e-5)


def test_batches_hold_a_bounded_number_of_tokens(load, monkeypatch):
    """However many texts a batch may have, long ones go in smaller batches."""
    sizes = []
    whole = writing.Writer.together
    monkeypatch.setattr(
        writing.Writer, "together", lambda self, given: sizes.append(len(given)) or whole(self, given)
    )
    monkeypatch.setattr(writing, "MOST_TOKENS", 48)
    model = load("demo")
    expected = [model.translate(source, beam=3) for source in SOURCES]
    sizes.clear()
    assert model.translate(SOURCES, beam=3) == expected
    assert sum(sizes) == len(SOURCES) and max(sizes) < len(SOURCES)


def test_a_model_looks_at_what_look_sees(load):
    from heedful.inside.look.attention import look

    model = load("demo")
    mine, theirs = (
        see("the cat sleeps", layer=1, head=2)
        for see in (model.look, lambda *a, **b: look(model.loaded, *a, **b))
    )
    assert mine.text() == theirs.text() and mine.words.translation == "le chat dort"
