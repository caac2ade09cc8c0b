"""A text is tokenized once, from Python and from the command line."""

import io
from collections import Counter

import pytest

import heedful
from heedful.cli import main as cli

TEXT = "the cat sat on the zebra"


class Counted:
    """A tokenizer that counts how often it is given each text."""

    def __init__(self, tokenizer, counts):
        self.tokenizer, self.counts = tokenizer, counts

    def __getattr__(self, name):
        return getattr(self.tokenizer, name)

    def encode(self, text, *others, **how):
        self.counts.update([text])
        return self.tokenizer.encode(text, *others, **how)

    def encode_batch(self, texts, **how):
        self.counts.update(text for text in texts if text)
        return self.tokenizer.encode_batch(texts, **how)

    def encode_batch_fast(self, texts, **how):
        self.counts.update(text for text in texts if text)
        return self.tokenizer.encode_batch_fast(texts, **how)


def counting(model: heedful.Model) -> Counter:
    """Let every tokenizer of a model count."""
    counts: Counter = Counter()
    words = model.wording
    words.reads, words.writes = Counted(words.reads, counts), Counted(words.writes, counts)
    vocabs = [words.vocab] if model.can[0] == "summarize" else []
    vocabs += [model.classifier.vocab] if "classify" in model.can and model.own else []
    vocabs += [model.question_reader.vocab] if "answer" in model.can else []
    vocabs += [model.vocab] if {"tag", "parse"} & set(model.can) else []
    for vocab in vocabs:
        vocab.tokenizer = Counted(vocab.tokenizer, counts)
    return counts


ABILITIES = {
    "translate": ("demo", lambda model, text: model.translate(text)),
    "generate": ("lm", lambda model, text: model.generate(text, max_new_tokens=3)),
    "stream": ("lm", lambda model, text: list(model.stream(text, max_new_tokens=3))),
    "summarize": ("summarize", lambda model, text: model.summarize(text)),
    "score": ("lm", lambda model, text: model.score(text)),
    "embed": ("mlm", lambda model, text: model.embed(text)),
    "classify": ("classify", lambda model, text: model.classify(text)),
}


@pytest.mark.parametrize("ability", ABILITIES)
def test_from_python(ability, small_run):
    name, do = ABILITIES[ability]
    model = heedful.load(small_run(name))
    counts = counting(model)
    do(model, TEXT[:20])
    assert counts == {TEXT[:20]: 1}


def test_words_are_tokenized_once_however_often_they_stand_there(small_run):
    model = heedful.load(small_run("parse"))
    counts = counting(model)
    model.tag(["the cat sleeps", "the cat eats"])
    assert counts == {" the": 1, " cat": 1, " sleeps": 1, " eats": 1}


def test_a_context_is_tokenized_once_however_many_questions_there_are(small_run):
    model = heedful.load(small_run("span"))
    counts, context = counting(model), "the dog eats . the cat sleeps ."
    asked = ["who sleeps ?", "who eats ?"]
    assert [str(one) for one in model.answer(asked, [context] * 2)] == ["cat", "dog"]
    assert counts == {context: 1, asked[0]: 1, asked[1]: 1}


COMMANDS = {
    "translate": ("demo", ["--json"]),
    "generate": ("lm", ["--max-new-tokens", "3"]),
    "summarize": ("summarize", []),
    "embed": ("mlm", []),
    "classify": ("classify", []),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_from_the_command_line(command, small_run, monkeypatch, capsys):
    """One row has the faults of a text, its unknown words, its length, and what the model reads."""
    name, options = COMMANDS[command]
    model = heedful.load(small_run(name))
    counts = counting(model)
    monkeypatch.setattr("heedful.use.load.load", lambda *args, **how: model)
    lines = [TEXT, "the dog ate it", "", "the fish"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode())))
    assert cli.main([command, str(small_run(name)), *options]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert counts == {line: 1 for line in lines if line}


def test_a_blank_cuts_a_text_and_each_piece_is_tokenized_once(small_run):
    model = heedful.load(small_run("mlm"))
    counts = counting(model)
    model.fill("the [MASK] sat on the mat.")
    assert counts == {"the ": 1, ", sat on the mat.": 1}


@pytest.mark.parametrize("name", ["demo", "bytes", "lm", "mlm", "classify"])
def test_what_is_unknown_in_a_row_is_unknown_to_the_model(name, small_run):
    """Where a tokenizer puts special tokens around a text, they are no words of it."""
    model = heedful.load(small_run(name))
    texts = ["the  zebra sleeps, zoë", "the cat", " \t"]
    ids = {model.wording.reads.token_to_id("[UNK]")}
    for row in (*model.wording.source(texts), *model.wording.sentence(texts)):
        assert len(row.unknown) == sum(number in ids for number in row.ids)
    assert [row.unknown for row in model.wording.source(texts)] == model.unknown_words(texts)
