"""Classify: tables, labels, rows, both kinds of model, and starting from another model."""

import json
import shutil

import pytest
import torch
import torch.nn.functional as F
from helpers.classify_cases import (  # noqa: F401 (fixtures)
    CPU,
    TINY,
    WORDS,
    Quiet,
    asked,
    files,
    job_of,
    models,
    origin_of,
    rows,
)

import heedful
from heedful.data.report import Report
from heedful.data.vocab import Vocab, train_vocab
from heedful.errors import BadInput
from heedful.models.base.shells import DecoderClassifier
from heedful.runs import setup, trainer
from heedful.tasks import classify, classify_data, task
from heedful.train import loop, optimizer, schedule


def vocab_of() -> Vocab:
    return train_vocab("word", [text for text, _ in rows(60)], 100)


def write(path, text: str) -> str:
    path.write_text(text)
    return str(path)


# Tables


def test_labels_are_read_sorted_and_written_into_the_run(files, tmp_path):
    job = job_of(files, tmp_path / "run")
    assert json.loads((tmp_path / "run" / "labels.json").read_text()) == {"bad": 20, "good": 20, "so so": 20}
    assert (
        job.config.labels == 3 and job.config.prediction_heads == ("pooled", "classify") and job.labels == 0
    )
    assert job.baselines["accuracy"] == ("accuracy (always the most frequent label)", pytest.approx(1 / 3))
    for made in job.batches(0):
        for i, label in zip(made.ids, made.labels_B.tolist(), strict=True):
            assert rows(60)[i][1] == ["bad", "good", "so so"][label]


def test_json_lines_are_the_same_table(files, tmp_path):
    tsv = job_of(files, tmp_path / "a")
    jsonl = job_of(files, tmp_path / "b", **{"data.table": files["train.jsonl"]})
    for a, b in zip(tsv.batches(1), jsonl.batches(1), strict=True):
        assert torch.equal(a.tokens_BT, b.tokens_BT) and torch.equal(a.labels_B, b.labels_B)


def test_columns_are_found_by_name(tmp_path):
    table = write(tmp_path / "t", "id\tpremise\thypothesis\tgold\n1\tit rains\tit is wet\tyes\n2\tx\ty\tno\n")
    data = classify_data.ClassifyData(text_column="premise", pair_column="hypothesis", label_column="gold")
    rows = classify_data.table_rows(data, table, Report())
    found = [(row.line, row.first, row.second, row.label) for row in rows]
    assert found == [(2, "it rains", "it is wet", "yes"), (3, "x", "y", "no")]


def test_what_is_wrong_with_a_table_is_one_sentence(files, tmp_path):
    header = "sentence\tlabel\n"
    cases = {
        r'unknown.tsv:4: .*train.tsv has no label "god"; did you mean "good"': {
            "data.valid_table": write(tmp_path / "unknown.tsv", header + "a\tgood\nonly one cell\nb\tgod\n")
        },
        'no column "sentence" or "text".* of title, label': {
            "data.table": write(tmp_path / "c1", "title\tlabel\na\tb\n")
        },
        'both columns "sentence" or "text"': {
            "data.table": write(tmp_path / "c2", "text\tsentence\tlabel\na\tb\tc\n")
        },
        'no column "lable"; did you mean "label"': {"data.label_column": "lable"},
        'no "label"': {"data.table": write(tmp_path / "c3", '{"text": "a", "lab": 1}\n')},
        'no label but "x"': {"data.table": write(tmp_path / "c4", header + "a\tx\nb\tx\n")},
        "has no row in its column label": {"data.table": write(tmp_path / "c5", header)},
        "no row to judge": {"data.valid_table": write(tmp_path / "c6", header)},
        "give --data and --valid-data": {"data.valid_table": ""},
        'no built-in corpus "facts"; it has phrasebook': {"data.corpus": "facts"},
        "data.label is for --corpus phrasebook": {"data.label": "tense"},
        "give data.label=translation": {"data.corpus": "phrasebook", "data.pair_column": "b"},
        "leaves no room": {"data.max_length": 2},
        "missing": {"data.table": str(tmp_path / "nowhere")},
        "is not a folder": {"train.from": str(tmp_path / "nowhere")},
    }
    for number, (message, settings) in enumerate(cases.items()):
        with pytest.raises(BadInput, match=message) as caught:
            job_of(files, tmp_path / f"run{number}", **settings)
        assert "\n" not in str(caught.value)


def test_held_out_rows_come_from_all_over_the_file():
    found = task.spread(list(range(100)), 10)
    assert found[0] == 0 and found[-1] == 99 and len(found) == 10 and task.spread([1, 2], 0) == [1, 2]


# Rows


def test_rows_are_those_of_bert_and_of_gpt1():
    v = Vocab
    tokens, segments = classify.encoder_row(v, [7, 8], [])
    assert tokens.tolist() == [v.cls, 7, 8, v.sep] and segments.tolist() == [0, 0, 0, 0]
    tokens, segments = classify.encoder_row(v, [7, 8], [9])
    assert tokens.tolist() == [v.cls, 7, 8, v.sep, 9, v.sep] and segments.tolist() == [0, 0, 0, 0, 1, 1]
    assert classify.decoder_row(v, [7, 8], [])[0].tolist() == [v.bos, 7, 8, v.eos]
    assert classify.decoder_row(v, [7, 8], [9])[0].tolist() == [v.bos, 7, 8, v.sep, 9, v.eos]


def test_texts_are_cut_at_the_end_the_longer_one_first():
    for a, b in ((5, 3), (3, 5), (9, 2), (2, 9), (9, 9), (4, 4), (12, 0), (0, 12), (3, 0)):
        first, second = classify.fit(list(range(a)), list(range(b)), 8)
        left, right = a, b
        while left + right > 8:  # BERT's own rule, one token at a time
            left, right = (left - 1, right) if left > right else (left, right - 1)
        assert len(first) + len(second) == left + right and abs(len(first) - left) <= 1
        assert first == list(range(len(first))) and second == list(range(len(second)))


# Models


TEXTS = [([7, 8, 9, 10, 11, 12, 13], [14, 15]), ([16], []), ([17, 18, 19], [20]), ([9, 8], [])]


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_the_loss_of_a_padded_batch_is_the_sum_over_single_texts(name):
    model, layout, loss_of, scores_of = models()[name]
    whole = classify.collate(Vocab, layout, 20, TEXTS, [0, 4, 2, 1])
    alone = [classify.collate(Vocab, layout, 20, [t], [n]) for t, n in zip(TEXTS, [0, 4, 2, 1], strict=True)]
    loss, losses = loss_of(model.eval(), whole), [loss_of(model, one) for one in alone]
    torch.testing.assert_close(loss.total, sum(one.total for one in losses))
    torch.testing.assert_close(
        loss.nll, F.cross_entropy(scores_of(model, whole), whole.labels_B, reduction="sum")
    )
    assert loss.count == 4 and whole.lengths_B.tolist() == [12, 3, 7, 4]


def test_what_lies_in_the_padding_is_never_read():
    for model, layout, loss_of, _ in models().values():
        made = classify.collate(Vocab, layout, 20, TEXTS, [0, 4, 2, 1])
        before = loss_of(model.eval(), made).total
        padding = torch.arange(made.tokens_BT.shape[1]) >= made.lengths_B[:, None]
        made.tokens_BT[padding] = 23
        torch.testing.assert_close(loss_of(model, made).total, before)


def test_a_decoders_loss_is_gpt1s():
    """L3 = L2 + lambda L1, L1 being the mean loss of a text's own tokens."""
    model, layout, loss_of, _ = models()["decoder"]
    made = classify.collate(Vocab, layout, 20, TEXTS, [0, 4, 2, 1])
    expected = 0.0
    for row, length, label in zip(made.tokens_BT, made.lengths_B.tolist(), made.labels_B, strict=True):
        row = row[:length]
        hidden = model.eval().decoder.hidden(row[None])[0]
        expected += F.cross_entropy(model.linear(hidden[-1]), label)
        expected += 0.3 * F.cross_entropy(model.decoder(row[None])[0, :-1], row[1:])
    torch.testing.assert_close(loss_of(model, made, lm_weight=0.3).total, expected)
    without = loss_of(model, made, lm_weight=0.0)
    assert torch.equal(without.total, without.nll)


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_one_batch_can_be_learned_by_heart(name):
    model, layout, loss_of, scores_of = models()[name]
    made = classify.collate(Vocab, layout, 20, TEXTS, [0, 4, 2, 1])
    settings = loop.LoopSettings(rate=1e-2, schedule=schedule.constant(10), steps=120)
    steps = list(loop.train(model, lambda step: [made], loss_of, optimizer.adamw(model, 1e-2, 0.0), settings))
    assert steps[-1].loss < 0.05
    with torch.no_grad():
        scores = classify.evaluate(model.eval(), classify.ClassifierKind(layout, scores_of, loss_of), [made])
    assert scores["accuracy"] == scores["macro_f1"] == 1


def test_macro_f1_by_hand():
    # Label 0: 2 right, 3 found, 2 there; label 1: 1, 1, 2; label 2 is never found, label 3 never right.
    assert classify.macro_f1([0, 0, 1, 0, 3], [0, 0, 1, 1, 2]) == pytest.approx((4 / 5 + 2 / 3 + 0 + 0) / 4)
    assert classify.macro_f1([0, 0, 0, 1], [0, 0, 1, 1]) == pytest.approx((4 / 5 + 2 / 3) / 2)
    assert classify.macro_f1([2, 1], [2, 1]) == 1


# Starting from another model


def taken_over(model, source) -> set[str]:
    """Names of the new model's weights that equal the old one's, as far as those go: three may be new."""
    old, found = dict(source.named_parameters()), set()
    for name, weight in model.named_parameters():
        its = old.get(name.removeprefix("decoder."))
        if its is not None and len(weight) - len(its) in (0, 3) and torch.equal(weight[: len(its)], its):
            found.add(name)
    return found


@pytest.mark.parametrize("kind", ["mlm", "lm", "bert", "gpt2"])
def test_a_run_takes_over_weights_and_tokenizer_and_goes_on_exactly(kind, origin_of, files, tmp_path):
    folder = origin_of(kind)
    settings = asked(files, **{"train.from": str(folder)})
    source = heedful.load(folder)

    job = job_of(files, tmp_path / "look", **{"train.from": str(folder)})
    model = setup.new_model(job, settings, CPU)
    assert any(line.startswith(f"start: {folder}, its sizes and its vocabulary") for line in job.plan)
    assert job.begin is not None and job.facts["from"]["sha256"] == classify_hash(folder)
    head = {name for name, _ in model.named_parameters() if name.startswith(("heads.classify", "linear"))}
    before = {name: dict(model.named_parameters())[name].clone() for name in head}
    job.begin(model)
    kept = taken_over(model, source.model)
    fresh = {name for name, _ in model.named_parameters()} - kept
    assert fresh == head | (
        {"heads.pooled.dense.weight", "heads.pooled.dense.bias"} if kind == "mlm" else set()
    )
    assert all(torch.equal(dict(model.named_parameters())[name], before[name]) for name in head)

    outcome = trainer.start(settings, tmp_path / "whole", Quiet(), CPU)
    if kind in ("mlm", "lm"):
        assert (tmp_path / "whole" / "tokenizer.json").read_bytes() == (
            folder / "tokenizer.json"
        ).read_bytes()
    facts = json.loads((tmp_path / "whole" / "recipe.json").read_text())["facts"]
    assert facts["from"] == {"folder": str(folder), "sha256": classify_hash(folder)}
    loaded = heedful.load(tmp_path / "whole")
    assert isinstance(loaded.model, DecoderClassifier) == (kind in ("lm", "gpt2"))
    for (name, a), b in zip(outcome.model.named_parameters(), loaded.model.parameters(), strict=True):
        assert torch.equal(a, b), name

    with pytest.raises(InterruptedError):
        trainer.start(settings, tmp_path / "cut", Quiet(until=3), CPU)
    folder.rename(tmp_path / "moved")  # a checkpoint needs it no more
    trainer.resume(tmp_path / "cut", Quiet(), CPU)
    for name in ("model.safetensors", "metrics.jsonl", "recipe.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def classify_hash(folder) -> str:
    import hashlib

    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def test_a_classifier_can_itself_be_started_from(origin_of, files, tmp_path):
    for kind in ("mlm", "lm"):
        settings = {"train.from": str(origin_of(kind))}
        trainer.start(asked(files, **settings), tmp_path / f"{kind}-1", Quiet(), CPU)
        again = {"train.from": str(tmp_path / f"{kind}-1")}
        job = job_of(files, tmp_path / f"{kind}-2", **again)
        model = setup.new_model(job, asked(files, **again), CPU)
        job.begin(model)
        source = heedful.load(tmp_path / f"{kind}-1").model
        old = dict(source.named_parameters())
        equal = {name for name, weight in model.named_parameters() if torch.equal(weight, old[name])}
        head = "heads.classify.linear" if kind == "mlm" else "linear"
        assert set(old) - equal == {f"{head}.weight", f"{head}.bias"}


def test_a_run_without_a_checkpoint_begins_again_only_from_the_same_weights(origin_of, files, tmp_path):
    settings = asked(files, **{"train.from": str(origin_of("mlm"))})
    with pytest.raises(InterruptedError):
        trainer.start(settings, tmp_path / "cut", Quiet(until=1), CPU)
    weights = tmp_path / "mlm" / "model.safetensors"
    shutil.copy(weights, tmp_path / "keep")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(BadInput, match="has other weights than when this run was begun"):
        trainer.resume(tmp_path / "cut", Quiet(), CPU)
    shutil.copy(tmp_path / "keep", weights)
    assert trainer.resume(tmp_path / "cut", Quiet(), CPU).finished


def test_what_cannot_be_started_from_is_refused(origin_of, files, tmp_path):
    with pytest.raises(BadInput, match="is a vit: only encoders like BERT"):
        job_of(files, tmp_path / "a", **{"train.from": str(origin_of("vit"))})
    folder = origin_of("bert")
    (folder / "vocab.txt").unlink()
    with pytest.raises(BadInput, match="has no tokenizer"):
        job_of(files, tmp_path / "b", **{"train.from": str(folder)})


def test_options_become_settings_and_published_models_learn_slowly(origin_of):
    from heedful.cli.shared.arguments import parse
    from heedful.cli.train import recipe_of

    words = ["classify", "--data", "a.tsv", "--valid-data", "b.tsv"]
    for kind, rate in (
        ("mlm", classify.TASK.starts.own["train.learning_rate"]),
        ("bert", classify.TASK.starts.published["train.learning_rate"]),
    ):
        folder = str(origin_of(kind))
        made = recipe_of(parse("train", [*words, "--from", folder]))
        assert (made.data.table, made.data.valid_table, made.train.from_) == ("a.tsv", "b.tsv", folder)
        assert made.train.learning_rate == rate
        assert (
            recipe_of(
                parse("train", [*words, "--from", folder, "--set", "train.learning_rate=0.5"])
            ).train.learning_rate
            == 0.5
        )


def test_a_text_that_spells_a_special_token_is_only_a_text(origin_of, files, tmp_path):
    job = job_of(files, tmp_path / "a", **{"train.from": str(origin_of("bert"))})
    (ids,) = job.vocab.encode_batch(["the [SEP] food"])
    assert (
        job.vocab.sep not in ids and job.vocab.decode(job.vocab.encode_batch(["the food"])[0]) == "the food"
    )


def test_it_learns(files, tmp_path):
    settings = {
        "model.width": 64,
        "train.learning_rate": 1e-3,
        "model.heads": 4,
        "train.steps": 80,
        "evaluate.every": 40,
        "train.batch_tokens": 256,
    }
    talk = Quiet()
    outcome = trainer.start(asked(files, **settings), tmp_path / "run", talk, CPU)
    assert outcome.best.scores["accuracy"] == 1.0
    assert any("→ good" in line for line in talk.lines)
