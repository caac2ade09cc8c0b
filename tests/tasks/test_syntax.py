"""Tagging and parsing: the biaffine formula, batches, what is counted, and the two commands."""

import io
import json
import math
import sys
from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from helpers.runs import (
    CPU,
    TINY,
    Quiet,
    recipe_for,
    texts,  # noqa: F401 (fixtures)
)
from helpers.syntax_cases import LABELS, SENTENCES, B, D, L, N, model_of, vocab_of
from helpers.treebanks import BUSH, RANGES, row

from heedful import load
from heedful.cli.main import main
from heedful.corpora import phrasebook
from heedful.data.conllu import Sentence, fault_in_tree, read_sentences
from heedful.data.trees import Parsed, best_tree
from heedful.errors import BadInput
from heedful.runs import trainer
from heedful.tasks import parse, recipe, tag, words
from heedful.train.loss import NOTHING

# The formula


def test_arcs_are_a_matrix_between_two_roles_and_a_term_for_heads():
    arcs = model_of().heads["arcs"]
    x = torch.randn(B, N, D, dtype=torch.float64)
    found = arcs(x, arcs)

    def role(linear, vector):
        made = linear.weight @ vector + linear.bias
        return torch.where(made > 0, made, 0.1 * made)

    for b in range(B):
        for i in range(N):
            for j in range(N):
                d, h = role(arcs.roles.dependent, x[b, i]), role(arcs.roles.head, x[b, j])
                expected = h @ arcs.between.weight @ d + arcs.between.bias @ h
                torch.testing.assert_close(found[b, i, j], expected)


def test_relations_of_pairs_are_those_of_all_pairs():
    relations = model_of().heads["relations"]
    x = torch.randn(B, N, D, dtype=torch.float64)
    every = relations(x, relations)
    assert every.shape == (B, N, N, 5)
    found = relations.of(x[1, [0, 2, 5]], x[1, [3, 3, 1]])
    torch.testing.assert_close(found, every[1, [0, 2, 5], [3, 3, 1]])
    d, h = relations.roles(x[1, :1], x[1, 3:4])
    by_hand = (
        torch.cat([d, torch.ones(1, 1)], 1) @ relations.between_LKJ[2] @ torch.cat([h, torch.ones(1, 1)], 1).T
    )
    torch.testing.assert_close(found[0, 2], by_hand[0, 0])


def test_a_fresh_model_finds_all_heads_and_relations_alike():
    vocab, model = vocab_of(), model_of(trained=False)
    batch = words.collate(vocab, words.rows_of(vocab, LABELS, SENTENCES))
    with torch.no_grad():
        losses = [
            float(plain) for _, plain in parse.losses_of(model, batch, *words.words_of(model, batch), 0.0)
        ]
    heads = sum(len(s) * math.log(len(s)) for s in SENTENCES)
    assert losses[:2] == pytest.approx([heads, 14 * math.log(5)])
    assert losses[2] / 14 == pytest.approx(math.log(L), abs=0.1)


def test_a_head_that_is_none_is_refused_by_name():
    with pytest.raises(ValueError, match='there is no head "arc" for words; there are tag, arcs, relations'):
        model_of(heads=("arc",))
    with pytest.raises(ValueError, match="norm must be one of pre, post, not 'no'"):
        model_of(norm="no")


# Batches


@pytest.mark.parametrize("kind, size", [("bpe", 270), ("char", 40), ("word", 9), ("wordpiece", 40)])
def test_the_first_piece_speaks_for_its_word(kind, size):
    vocab = vocab_of(kind, size)
    rows = words.rows_of(vocab, LABELS, SENTENCES)
    batch = words.collate(vocab, rows)
    alone = [words.pieces_of(vocab, s.forms) for s in SENTENCES]
    for b, (sentence, pieces) in enumerate(zip(SENTENCES, alone, strict=True)):
        assert batch.words_B[b] == len(sentence) and batch.lengths_B[b] == sum(map(len, pieces)) + 2
        assert batch.tokens_BT[b, 0] == vocab.cls and batch.tokens_BT[b, batch.lengths_B[b] - 1] == vocab.sep
        for w, some in enumerate(pieces):
            start = int(batch.firsts_BW[b, w])
            assert batch.tokens_BT[b, start : start + len(some)].tolist() == some
        assert batch.heads_BW[b, : len(sentence)].tolist() == [head + 1 for head in sentence.heads]
        assert [list(LABELS.tags)[i] for i in batch.tags_BW[b, : len(sentence)]] == list(sentence.tags)
        assert (batch.tags_BW[b, len(sentence) :] == NOTHING).all()
    if kind == "bpe":
        assert max(len(some) for pieces in alone for some in pieces) > 1
    assert batch.count == 14


def test_a_word_that_says_nothing_to_the_vocabulary_still_has_a_piece():
    vocab = vocab_of("word", 20)
    assert words.pieces_of(vocab, ["cat", "\u00a0", "zebra"])[1:] == [[vocab.unk], [vocab.unk]]
    assert len(words.pieces_of(vocab_of(), ["x" * 999])[0]) == words.MOST_PIECES


@torch.no_grad()
def test_padding_and_company_change_nothing():
    vocab, model = vocab_of(), model_of()
    rows = words.rows_of(vocab, LABELS, SENTENCES)
    together = words.collate(vocab, rows)
    vectors = words.words_of(model, together)
    scores = parse.arc_scores(model.heads["arcs"], *vectors, together.words_B)
    found = parse.parse(model, together)
    total = parse.loss_of(model, together)
    parts = []
    for b, row_ in enumerate(rows):
        alone = words.collate(vocab, [row_])
        n = len(row_.sizes)
        single = parse.arc_scores(model.heads["arcs"], *words.words_of(model, alone), alone.words_B)
        torch.testing.assert_close(scores[b, :n, : n + 1], single[0])
        assert torch.isinf(scores[b, :, n + 1 :]).all()
        assert parse.parse(model, alone) == [found[b]]
        parts.append(parse.loss_of(model, alone))
    assert float(total.nll) == pytest.approx(sum(float(part.nll) for part in parts))
    assert total.count == sum(part.count for part in parts) == 14


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_loss_of_arcs_is_that_of_each_word_by_itself(smoothing):
    vocab, model = vocab_of(), model_of()
    batch = words.collate(vocab, words.rows_of(vocab, LABELS, SENTENCES))
    scores = parse.arc_scores(model.heads["arcs"], *words.words_of(model, batch), batch.words_B)
    total, plain = parse.arc_loss(scores, batch.heads_BW, smoothing)
    scores_ = scores.detach()
    expected = smooth = 0.0
    for b, sentence in enumerate(SENTENCES):
        n = len(sentence)
        for w in range(n):
            others = [c for c in range(n + 1) if c != w + 1]  # the root and every word but itself
            log_p = scores_[b, w, others].log_softmax(0)
            right = -float(log_p[others.index(sentence.heads[w] + 1)])
            expected += right
            smooth += (1 - smoothing) * right - smoothing * float(log_p.mean())
    assert float(plain.detach()) == pytest.approx(expected, rel=1e-5)
    assert float(total.detach()) == pytest.approx(smooth, rel=1e-5)
    total.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_trees_found_are_the_best_by_the_models_scores():
    vocab, model = vocab_of(), model_of()
    batch = words.collate(vocab, words.rows_of(vocab, LABELS, SENTENCES))
    vectors = words.words_of(model, batch)
    scores = parse.arc_scores(model.heads["arcs"], *vectors, batch.words_B).detach().numpy()
    relations = model.heads["relations"](torch.cat(vectors[::-1], 1), model)
    for b, (sentence, found) in enumerate(zip(SENTENCES, parse.parse(model, batch), strict=True)):
        n = len(sentence)
        assert fault_in_tree(found.heads) is None
        table = np.nan_to_num(np.roll(scores[b, :n, : n + 1], -1, 1), neginf=-999.0)
        assert found.heads == best_tree(table.astype(float))
        for w, head in enumerate(found.heads):
            assert found.relations[w] == int(relations[b, w + 1, head + 1].argmax())


def test_pieces_are_hidden_in_training_only_and_never_special_ones():
    vocab, model = vocab_of(), model_of(dropout=0.0, attention_dropout=0.0, head_dropout=0.0)
    batch = words.collate(vocab, words.rows_of(vocab, LABELS, SENTENCES))
    torch.manual_seed(0)
    hidden = words.hidden_pieces(batch.tokens_BT, 0.999999)
    special = batch.tokens_BT <= vocab.sep
    assert (hidden[~special] == vocab.mask).all() and torch.equal(hidden[special], batch.tokens_BT[special])
    plain = parse.loss_of(model, batch).nll
    assert torch.equal(parse.loss_of(model, batch, hide=0.9).nll, plain)
    assert not torch.equal(parse.loss_of(model.train(), batch, hide=0.9).nll, plain)
    assert torch.equal(parse.loss_of(model, batch).nll, plain)


# What is counted


def test_scores_count_heads_relations_and_tags_of_every_word():
    score = parse.ParseScore()
    score.add(parse.ParseResult([1, -1, 1], [0, 4, 2], [0, 1, 1]), [2, 0, 1], [0, 4, 2], [0, 1, 0])
    assert (score.words, score.heads, score.labeled, score.tags) == (3, 2, 2, 2)
    score.add(
        parse.ParseResult([-1], [4], [1]), [0], [NOTHING], [NOTHING]
    )  # what training does not know is never right
    assert (score.words, score.heads, score.labeled, score.tags) == (4, 3, 2, 2)


def test_baselines_are_what_they_say():
    usual = {"the": "DET", "cat": "NOUN", "fish": "VERB"}
    sentences = [Sentence(("the", "cat", "fish", "new"), ("DET", "NOUN", "NOUN", "VERB"))]
    labels = words.Labels({"DET": 1, "NOUN": 2, "VERB": 1}, {})
    assert tag.by_word(usual, labels, sentences) == 0.5  # "new" is guessed NOUN
    shares = [0.25, 0.5, 0.5, 0.25]
    assert tag.by_frequency(labels, sentences) == pytest.approx(-sum(map(math.log, shares)) / 4)
    chain = [Sentence(tuple("abc"), heads=(-1, 0, 1)), Sentence(tuple("ab"), heads=(1, -1))]
    assert parse.neighbors(chain) == (3 / 5, 2 / 5)
    assert parse.by_frequency(words.Labels({}, {}), chain) == pytest.approx(
        (3 * math.log(3) + 2 * math.log(2)) / 5
    )


# Runs


SMALL = {
    **TINY,
    "model.dropout": 0.0,
    "train.word_dropout": 0.0,
    "data.tokenizer": "word",
    "train.learning_rate": 1e-2,
    "train.label_smoothing": 0.0,
    "train.batch_tokens": 128,
    "train.weight_decay": 0.0,
}


def write_treebank(path, sentences=SENTENCES):
    from heedful.data.conllu import written

    path.write_text("".join(map(written, sentences)))
    return str(path)


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A parser, and a tagger, that know four sentences by heart."""
    folder = tmp_path_factory.mktemp("runs")
    file = write_treebank(folder / "a.conllu")
    data = {"data.table": file, "data.valid_table": file, "evaluate.every": 60, "train.steps": 60}
    for task in ("tag", "parse"):
        trainer.start(
            recipe.make(task, settings=SMALL | data | {"train.warmup_steps": 5}), folder / task, Quiet(), CPU
        )
    return folder


def evaluated(run_folder, *options, capsys):
    assert main(["evaluate", str(run_folder), "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_small_treebanks_are_learned_by_heart(learned, capsys):
    found = evaluated(learned / "parse", capsys=capsys)
    assert found["metrics"]["uas"] == found["metrics"]["las"] == found["metrics"]["accuracy"] == 1
    assert found["examples"] == 14 and found["unit"] == "words" and found["data"]["sentences"] == 4
    assert found["baselines"]["uas"]["score"] == pytest.approx(9 / 14)
    found = evaluated(learned / "tag", capsys=capsys)
    assert found["metrics"]["accuracy"] == 1 and found["metrics"]["labels"]["DET"]["count"] == 4
    assert found["baselines"]["accuracy"] == {"name": tag.BY_WORD, "score": 1.0}
    for task in ("tag", "parse"):
        assert main(["doctor", str(learned / task)]) == 0
        assert main(["info", str(learned / task)]) == 0
    capsys.readouterr()


def test_labels_that_training_does_not_know_count_as_wrong(learned, tmp_path, capsys):
    strange = Sentence(("the", "cat", "sleeps"), ("DET", "X", "VERB"), (1, 2, -1), ("det", "odd", "root"))
    file = write_treebank(tmp_path / "x", [strange])
    found = evaluated(learned / "parse", "--data", file, capsys=capsys)["metrics"]
    assert found["las"] == pytest.approx(found["uas"] - 1 / 3) and found["accuracy"] == pytest.approx(2 / 3)
    assert evaluated(learned / "tag", "--data", file, capsys=capsys)["metrics"]["accuracy"] == pytest.approx(
        2 / 3
    )


def test_what_evaluate_says_does_not_depend_on_the_batch(learned, capsys):
    whole, single = (
        evaluated(learned / "parse", "--batch", n, capsys=capsys)["metrics"] for n in ("32", "1")
    )
    assert whole["loss"] == pytest.approx(single["loss"], rel=1e-4) and whole["uas"] == single["uas"]


def answered(monkeypatch, capsysbinary, command, folder, lines, *options):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    code = main([command, str(folder), *options])
    return code, capsysbinary.readouterr()


LINES = "the dog sleeps .\n\n  a   fish eats\n\udcff\nSleep\n".encode("utf-8", "surrogateescape")


def test_lines_are_tagged_in_step(learned, monkeypatch, capsysbinary):
    code, said = answered(monkeypatch, capsysbinary, "tag", learned / "tag", LINES)
    out = said.out.decode().split("\n")
    assert code == 0 and out == [
        "the/DET dog/NOUN sleeps/VERB ./PUNCT",
        "",
        "a/DET fish/NOUN eats/VERB",
        "",
        "Sleep/VERB",
        "",
    ]
    assert b"line 4: not UTF-8" in said.err
    code, single = answered(
        monkeypatch, capsysbinary, "tag", learned / "parse", LINES, "--batch", "1", "--json"
    )
    rows = [json.loads(line) for line in single.out.splitlines()]
    assert [r.get("tags") for r in rows] == [
        ["DET", "NOUN", "VERB", "PUNCT"],
        [],
        ["DET", "NOUN", "VERB"],
        None,
        ["VERB"],
    ]
    assert all(0.25 < p <= 1 for r in rows for p in r.get("probabilities", [])) and "error" in rows[3]


def test_lines_are_parsed_into_what_can_be_read_again(learned, monkeypatch, capsysbinary, tmp_path):
    code, said = answered(monkeypatch, capsysbinary, "parse", learned / "parse", LINES)
    assert code == 0
    (tmp_path / "out").write_bytes(said.out)
    found = list(read_sentences(tmp_path / "out", need=("tags", "heads", "relations")))
    assert [s.forms for s in found] == [("the", "dog", "sleeps", "."), ("a", "fish", "eats"), ("Sleep",)]
    assert found[0].heads == (1, 2, -1, 2) and found[0].relations == ("det", "nsubj", "root", "punct")
    assert [line for line in said.out.decode().split("\n") if "sent_id" in line] == [
        f"# sent_id = {n}" for n in (1, 3, 5)
    ]
    code, single = answered(monkeypatch, capsysbinary, "parse", learned / "parse", LINES, "--batch", "1")
    assert single.out == said.out
    code, as_json = answered(monkeypatch, capsysbinary, "parse", learned / "parse", LINES, "--json")
    rows = [json.loads(line) for line in as_json.out.splitlines()]
    assert [r.get("heads") for r in rows] == [[2, 3, 0, 3], [], [2, 3, 0], None, [0]]


def test_a_model_tags_and_parses_from_python(learned):
    model = load(learned / "parse")
    assert model.can == ("tag", "parse", "embed", "look") and load(learned / "tag").can == (
        "tag",
        "embed",
        "look",
    )
    tree = model.parse("the cat sleeps .")
    assert isinstance(tree, Parsed) and tree == "the cat sleeps ." and tree.heads == (1, 2, -1, 2)
    assert tree.tags == ("DET", "NOUN", "VERB", "PUNCT") and model.parse([]) == []
    assert [str(t) for t in model.tag(["Sleep", "a fish"])] == ["Sleep/VERB", "a/DET fish/NOUN"]
    for text, why in {
        " ": "text 1 has no word",
        "a " * 2001: "text 1 has 2,001 words, and at most 2,000 are read",
    }.items():
        with pytest.raises(BadInput, match=why):
            model.parse(text)
    with pytest.raises(BadInput, match="is an encoder, which cannot parse; it can tag, embed and look"):
        load(learned / "tag").parse("a")


def test_ranges_and_empty_nodes_are_no_words_of_a_run(tmp_path, capsys):
    (tmp_path / "t").write_text("\n".join([*BUSH, "", *RANGES, ""]))
    data = {"data.table": str(tmp_path / "t"), "data.valid_table": str(tmp_path / "t"), "train.steps": 1}
    outcome = trainer.start(recipe.make("parse", settings=SMALL | data), tmp_path / "run", Quiet(), CPU)
    assert outcome.job.held_out == 12 and outcome.job.config.prediction_heads == ("tag", "arcs", "relations")


def test_the_phrasebook_is_a_treebank_of_heads_alone(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(phrasebook, "split", lambda name: list(islice(phrasebook.pairs(3), 30)))
    made = recipe.make("parse", "tiny", "phrasebook", SMALL | {"train.steps": 2, "train.warmup_steps": 0})
    talk = Quiet()
    outcome = trainer.start(made, tmp_path / "run", talk, CPU)
    assert outcome.job.config.prediction_heads == ("arcs",) and "learned of each word: heads" in talk.lines
    assert outcome.best.scores.keys() == {"loss", "uas"} and not (tmp_path / "run" / "labels.json").exists()
    batch = outcome.job.batches(0)[0]
    pair = phrasebook.split("train")[batch.ids[0]]
    assert [head - 1 for head in batch.heads_BW[0, : len(pair.heads)].tolist()] == list(pair.heads)
    model = load(tmp_path / "run")
    assert model.can == ("parse", "embed", "look")
    tree = model.parse("The cat sleeps .")
    assert tree.tags == tree.relations == () and len(tree.heads) == 4
    assert main(["evaluate", str(tmp_path / "run"), "--split", "long"]) == 0


def said(pairs):
    """Every word of some sentences with its tag."""
    return [found for p in pairs for found in zip(phrasebook.words(p.source), p.tags, strict=True)]


def test_a_tagger_learns_the_tags_of_the_phrasebook(tmp_path, capsys, monkeypatch):
    seeds = {"train": 3, "valid": 4, "test": 5}
    pages = {name: list(islice(phrasebook.pairs(seed), 30)) for name, seed in seeds.items()}
    monkeypatch.setattr(phrasebook, "split", pages.__getitem__)
    made = recipe.make("tag", "tiny", "phrasebook", SMALL | {"train.steps": 3, "train.warmup_steps": 0})
    talk = Quiet()
    outcome = trainer.start(made, tmp_path / "run", talk, CPU)
    counts = Counter(name for _, name in said(pages["train"]))
    tags = sorted(counts)
    assert (
        outcome.job.config.prediction_heads == ("tag",)
        and f"tags: {', '.join(tags)} ({len(tags)})" in talk.lines
    )
    batch = outcome.job.batches(0)[0]
    pair = pages["train"][batch.ids[0]]
    assert [tags[i] for i in batch.tags_BW[0, : len(pair.tags)]] == list(pair.tags)

    found = evaluated(tmp_path / "run", "--split", "test", capsys=capsys)
    asked, often = said(pages["test"]), Counter(said(pages["train"]))
    assert found["data"]["split"] == "test" and found["examples"] == len(asked)
    best_last = sorted(often, key=lambda row: (-often[row], row[1]), reverse=True)
    usual = dict(best_last)
    right = sum(usual.get(form, counts.most_common(1)[0][0]) == name for form, name in asked)
    assert found["baselines"]["accuracy"] == {"name": tag.BY_WORD, "score": pytest.approx(right / len(asked))}
    line = pages["valid"][0].source
    assert main(["tag", str(tmp_path / "run"), line]) == 0
    told = [word.rsplit("/", 1) for word in capsys.readouterr().out.split()]
    assert [form for form, _ in told] == line.split() and {name for _, name in told} <= set(tags)


ASKED = {  # what is asked of training, and what is said
    "no held-out file": (["parse", "--data", "good"], "give --data and --valid-data: treebanks (CoNLL-U)"),
    "a corpus without tags": (
        ["tag", "--corpus", "pylib"],
        'tag has no built-in corpus "pylib"; it has phrasebook',
    ),
    "another corpus": (
        ["parse", "--corpus", "pylib"],
        'parse has no built-in corpus "pylib"; it has phrasebook',
    ),
    "a file that is not there": (["tag", "--data", "gone", "--valid-data", "good"], "gone is missing"),
    "an empty file": (
        ["parse", "--data", "empty", "--valid-data", "good"],
        "empty has no sentence to learn from",
    ),
    "an empty held-out file": (
        ["parse", "--data", "good", "--valid-data", "empty"],
        "empty has no sentence to judge the model by",
    ),
    "a table for a treebank": (
        ["tag", "--data", "table", "--valid-data", "good"],
        "table:1: 2 columns, where CoNLL-U has 10",
    ),
    "a cycle": (["parse", "--data", "cycle", "--valid-data", "good"], "cycle:2: word 2 is reached again"),
    "two roots, held out": (["parse", "--data", "good", "--valid-data", "roots"], "roots:2: a second root"),
    "one tag": (["tag", "--data", "one", "--valid-data", "good"], "one has 1 tags: at least two are needed"),
    "no tags": (["tag", "--data", "untagged", "--valid-data", "good"], "untagged:1: the word has no tag"),
    "a setting of another task": (
        ["tag", "--data", "good", "--valid-data", "good", "--set", "model.context=9"],
        'tag with syntax has no setting "model.context"; model has layers, width',
    ),
    "too long for all": (
        ["tag", "--data", "good", "--valid-data", "good", "--set", "data.max_length=2"],
        "no row is left to train on",
    ),
}


@pytest.mark.parametrize("what", ASKED)
def test_what_cannot_be_learned_from_is_refused_in_a_sentence(what, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_treebank(tmp_path / "good")
    (tmp_path / "empty").write_text("\n\n# newdoc\n")
    (tmp_path / "table").write_text("sentence\tlabel\na\tb\n")
    (tmp_path / "cycle").write_text("\n".join([row(1), row(2, head=3), row(3, head=2), ""]))
    (tmp_path / "roots").write_text("\n".join([row(1), row(2), ""]))
    (tmp_path / "one").write_text("\n".join([row(1), row(2, head=1), ""]))
    (tmp_path / "untagged").write_text("\n".join([row(1, tag="_"), ""]))
    before = sorted(tmp_path.iterdir())
    line, said = ASKED[what]
    assert main(["train", *line, "--run", "run"]) == 2
    err = capsys.readouterr().err.strip().splitlines()
    assert said in err[-1] and len(err[-1]) < 300 and sorted(tmp_path.iterdir()) == before


def test_bad_sentences_are_dropped_and_said_if_so_asked(texts, tmp_path):
    with open(texts["a.conllu"], "a") as file:
        file.write(row(1, head=7) + "\n\n")
    talk = Quiet()
    trainer.start(recipe_for("parse", texts, 1, **{"data.bad_lines": "drop"}), tmp_path / "run", talk, CPU)
    assert any("1 line dropped: 1 with a bad head" in line for line in talk.lines)
