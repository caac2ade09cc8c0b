"""A run in its folder: exact resume, honest files, and errors that name what is wrong."""

import gzip
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.runs import (
    CPU,
    TASKS,
    TINY,
    Interrupted,
    Quiet,
    losses,
    recipe_for,
    state_of,
    texts,  # noqa: F401 (fixtures)
)

import heedful
from heedful.data import sections, vocab, workers
from heedful.data.store import Store
from heedful.errors import BadInput
from heedful.runs import trainer
from heedful.tasks import lm_data, recipe, translate, translate_data


@pytest.mark.parametrize("task", TASKS)
def test_a_run_leaves_a_folder_that_is_a_model(task, texts, tmp_path):
    talk = Quiet()
    outcome = trainer.start(recipe_for(task, texts), tmp_path / "run", talk, CPU)
    assert outcome.finished and outcome.steps == 12
    assert any(line.startswith("data: ") for line in talk.lines) and any(
        "parameters" in line for line in talk.lines
    )
    assert [m["step"] for m in losses(tmp_path / "run") if "loss" in m] == list(range(1, 13))
    assert json.loads((tmp_path / "run" / "status.json").read_text())["reason"] == "done"
    loaded = heedful.load(tmp_path / "run")
    assert loaded.config == outcome.job.config
    for (name, weight), other in zip(
        loaded.model.named_parameters(), outcome.model.parameters(), strict=True
    ):
        assert torch.equal(weight, other), name
    assert (loaded.tokenizer is None) == (task in ("image-classify", "text-to-image-codes"))
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["train"]["steps"] == 12


@pytest.mark.parametrize("task", TASKS)
def test_resumed_runs_equal_uninterrupted_ones_byte_for_byte(task, texts, tmp_path):
    check_resumed(task, 2, (3, 4, 9), texts, tmp_path)  # before, at and after a checkpoint


@pytest.mark.parametrize("task", ["lm", "translate"])
def test_resumed_at_any_step_equals_uninterrupted_byte_for_byte(task, texts, tmp_path):
    check_resumed(task, 1, (1, 3, 4, 5, 8, 11, 12), texts, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_every_task_resumed_at_any_step_equals_uninterrupted(task, accumulate, texts, tmp_path):
    check_resumed(task, accumulate, (1, 3, 4, 5, 8, 11, 12), texts, tmp_path)


def check_resumed(task, accumulate, steps, texts, tmp_path):
    asked = recipe_for(task, texts, **{"train.accumulation_steps": accumulate})
    trainer.start(asked, tmp_path / "whole", Quiet(), CPU)
    expected = state_of(tmp_path / "whole")
    for step in steps:
        folder = tmp_path / f"cut-{step}"
        with pytest.raises(Interrupted):
            trainer.start(asked, folder, Quiet(until=step), CPU)
        assert trainer.resume(folder, Quiet(), CPU).finished
        found = state_of(folder)
        assert found.keys() == expected.keys()
        assert all(found[name] == expected[name] for name in expected), step


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_resumes_byte_for_byte_too(precision, texts, tmp_path):
    """fp16 with its scale of the loss, which is part of what is saved."""
    asked = recipe_for("lm", texts, **{"train.precision": precision})
    trainer.start(asked, tmp_path / "whole", Quiet(), CPU)
    with pytest.raises(Interrupted):
        trainer.start(asked, tmp_path / "cut", Quiet(until=6), CPU)
    trainer.resume(tmp_path / "cut", Quiet(), CPU)
    assert state_of(tmp_path / "cut") == state_of(tmp_path / "whole")
    found = [m["loss"] for m in losses(tmp_path / "whole") if "loss" in m]
    assert found[-1] < found[0]


def test_a_chain_of_interruptions_changes_nothing(texts, tmp_path):
    asked = recipe_for("lm", texts, **{"checkpoint.every": 2})
    trainer.start(asked, tmp_path / "whole", Quiet(), CPU)
    with pytest.raises(Interrupted):
        trainer.start(asked, tmp_path / "cut", Quiet(until=3), CPU)
    for until in (4, 6, 7, 9, 11):
        with pytest.raises(Interrupted):
            trainer.resume(tmp_path / "cut", Quiet(until=until), CPU)
    trainer.resume(tmp_path / "cut", Quiet(), CPU)
    assert state_of(tmp_path / "cut") == state_of(tmp_path / "whole")


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(texts, tmp_path):
    asked = recipe_for("translate", texts)
    for name, settings in {
        "a": asked,
        "b": asked,
        "c": recipe_for("translate", texts, **{"train.seed": 1}),
    }.items():
        trainer.start(settings, tmp_path / name, Quiet(), CPU)
    assert state_of(tmp_path / "a") == state_of(tmp_path / "b")
    assert state_of(tmp_path / "a")["model.safetensors"] != state_of(tmp_path / "c")["model.safetensors"]


def test_minutes_become_a_number_of_steps_that_is_written_down(texts, tmp_path):
    asked = recipe_for("lm", texts, **{"train.minutes": 0.001})
    outcome = trainer.start(asked, tmp_path / "run", Quiet(), CPU)
    written = json.loads((tmp_path / "run" / "recipe.json").read_text())["train"]
    assert written["minutes"] == 0 and written["steps"] == outcome.steps >= 1
    assert written["warmup_steps"] == 3  # as asked for


def test_minutes_make_the_warmup_a_quarter_of_the_steps_that_they_become(texts, tmp_path):
    settings = {**TINY, "data.text": texts["text"], "data.tokenizer": "char", "model.context": 16}
    del settings["train.warmup_steps"]
    asked = recipe.make("lm", settings=settings | {"train.minutes": 0.001})
    assert asked.train.warmup_steps == 100
    trainer.start(asked, tmp_path / "run", Quiet(), CPU)
    written = json.loads((tmp_path / "run" / "recipe.json").read_text())["train"]
    assert written["warmup_steps"] == min(100, written["steps"] // 4)


def test_a_damaged_newest_checkpoint_is_passed_over_and_said(texts, tmp_path):
    asked = recipe_for("lm", texts)
    trainer.start(asked, tmp_path / "whole", Quiet(), CPU)
    with pytest.raises(Interrupted):
        trainer.start(asked, tmp_path / "cut", Quiet(until=10), CPU)
    weights = tmp_path / "cut" / "checkpoints" / "step-8" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-3] ^= 4
    weights.write_bytes(data)
    talk = Quiet()
    trainer.resume(tmp_path / "cut", talk, CPU)
    assert any("step-8" in line and "damaged" in line for line in talk.lines)
    assert state_of(tmp_path / "cut") == state_of(tmp_path / "whole")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_stops_and_the_run_goes_on(number, texts, tmp_path):
    command = [
        sys.executable,
        "-m",
        "heedful",
        "train",
        "lm",
        "--text",
        texts["text"],
        "--run",
        str(tmp_path / "cut"),
        "--steps",
        "100000",
        *(
            word
            for key, value in {
                **TINY,
                "data.tokenizer": "char",
                "model.context": 16,
                "evaluate.every": 1000000,
            }.items()
            for word in ("--set", f"{key}={value}")
        ),
    ]
    child = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    for line in child.stderr:
        if line.startswith("step "):
            break
    child.send_signal(number)
    _, told = child.communicate(timeout=60)
    assert child.returncode == 75, told
    assert f"go on with `python -m heedful train --resume {tmp_path / 'cut'}`" in told
    saved = losses(tmp_path / "cut")[-1]["step"]
    assert json.loads((tmp_path / "cut" / "status.json").read_text()) | {"time": 0} == {
        "reason": "interrupted",
        "step": saved,
        "time": 0,
        "why": f"{number.name} on {socket.gethostname()}",
    }
    assert (tmp_path / "cut" / "checkpoints" / f"step-{saved}").is_dir()


def test_bad_input_is_one_sentence_and_overwrites_nothing(texts, tmp_path):
    trainer.start(recipe_for("lm", texts, steps=1), tmp_path / "run", Quiet(), CPU)
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file() and p.name != "lock"}
    short = tmp_path / "short"
    short.write_text("ba\n")
    cases = {
        "holds a run": (recipe_for("lm", texts), tmp_path / "run"),
        "100 .* 20|20 .* 100": (
            recipe_for("translate", texts, **{"data.target": texts["v.tgt"]}),
            tmp_path / "n1",
        ),
        "give --text": (recipe.make("lm", settings=TINY), tmp_path / "n2"),
        "valid-source": (recipe_for("translate", texts, **{"data.valid_source": ""}), tmp_path / "n3"),
        "missing|no such|not there": (
            recipe_for("lm", texts, **{"data.text": str(tmp_path / "nowhere")}),
            tmp_path / "n4",
        ),
        "context of 16 needs more": (recipe_for("lm", texts, **{"data.text": str(short)}), tmp_path / "n5"),
    }
    for message, (asked, folder) in cases.items():
        with pytest.raises((BadInput, ValueError), match=message) as caught:
            trainer.start(asked, folder, Quiet(), CPU)
        assert "\n" not in str(caught.value)
        assert folder == tmp_path / "run" or not folder.exists()
    with pytest.raises(BadInput, match="holds no run"):
        trainer.resume(tmp_path / "empty", Quiet(), CPU)
    assert before == {p: p.read_bytes() for p in before}


# Where sentence pairs come from, and vocabularies


def hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_source_and_target_may_have_a_vocabulary_each(texts, tmp_path):
    asked = recipe_for("translate", texts, **{"data.joint": "false"})
    talk = Quiet()
    outcome = trainer.start(asked, tmp_path / "run", talk, CPU)
    loaded = heedful.load(tmp_path / "run")
    source, target = (set(t.get_vocab()) for t in (loaded.tokenizer, loaded.target_tokenizer))
    assert {" ba", " ke"} <= source - target and {" BA", " KE"} <= target - source
    config, names = loaded.config, dict(loaded.model.named_parameters())
    assert not config.share_embeddings and (config.vocab, config.target_vocab) == (len(source), len(target))
    assert names["encoder.inputs.tokens.weight"].shape[0] == len(source)
    assert names["decoder.inputs.tokens.weight"].shape[0] == len(target)
    assert any(
        f"{len(source)} for the source and {len(target)} for the target" in line for line in talk.lines
    )

    vocab, store = (
        translate_data.read_vocabs(tmp_path / "run", joint=False),
        Store.open(tmp_path / "run" / "data"),
    )
    for name, side, file in (("source", vocab.source, "a.src"), ("target", vocab.target, "a.tgt")):
        rows = [side.decode(store.row(name, i).tolist()) for i in range(len(store))]
        assert rows == Path(texts[file]).read_text().splitlines()
    sentences = ["ba be bi", "ko", "fu fa fe fi fo"]
    found = translate.translate(loaded.model, vocab, sentences)
    assert found == translate.translate(outcome.model, outcome.job.vocab, sentences)
    assert any(found) and all(text == text.upper() for text in found)  # no word of the source can be written

    facts = json.loads((tmp_path / "run" / "recipe.json").read_text())["facts"]
    assert facts["vocab"] == hash_of(tmp_path / "run" / "tokenizer.json")
    assert facts["target_vocab"] == hash_of(tmp_path / "run" / "target_tokenizer.json")


def test_separate_vocabularies_resume_byte_for_byte_and_must_stay_the_same(texts, tmp_path):
    asked = recipe_for("translate", texts, **{"data.joint": False})
    trainer.start(asked, tmp_path / "whole", Quiet(), CPU)
    with pytest.raises(Interrupted):
        trainer.start(asked, tmp_path / "cut", Quiet(until=6), CPU)
    trainer.resume(tmp_path / "cut", Quiet(), CPU)
    assert state_of(tmp_path / "cut") == state_of(tmp_path / "whole")
    shutil.copy(tmp_path / "cut" / "tokenizer.json", tmp_path / "cut" / "target_tokenizer.json")
    with pytest.raises(BadInput, match=r"another target_tokenizer\.json"):
        trainer.resume(tmp_path / "cut", Quiet(), CPU)
    (tmp_path / "whole" / "target_tokenizer.json").unlink()
    with pytest.raises(BadInput, match=r"target_tokenizer\.json is missing"):
        heedful.load(tmp_path / "whole")


@pytest.mark.parametrize("kind", ["a.tsv", "a.jsonl.gz"])
def test_pairs_come_from_a_table_as_well_as_from_two_files(kind, texts, tmp_path):
    """Tab-separated or JSON lines, plain or gzip: the same pairs make the same model."""
    trainer.start(recipe_for("translate", texts), tmp_path / "files", Quiet(), CPU)
    tables = {}
    for split in "av":
        pairs = list(
            zip(
                *(Path(texts[f"{split}.{side}"]).read_text().splitlines() for side in ("src", "tgt")),
                strict=True,
            )
        )
        tables[split] = tmp_path / f"{split}-{kind}"
        if kind.endswith("gz"):
            rows = [json.dumps({"id": n, "en": a, "fr": b}) for n, (a, b) in enumerate(pairs)]
            tables[split].write_bytes(gzip.compress("\n".join(rows).encode()))
        else:
            rows = ["fr\tid\ten", *(f"{b}\t{n}\t{a}" for n, (a, b) in enumerate(pairs)), "bad line"]
            tables[split].write_text("\n".join(rows))
    nothing = {f"data.{name}": "" for name in ("source", "target", "valid_source", "valid_target")}
    columns = {"data.source_column": "en", "data.target_column": "fr"}
    given = {"data.table": str(tables["a"]), "data.valid_table": str(tables["v"])}
    talk = Quiet()
    trainer.start(
        recipe_for("translate", texts, **nothing, **columns, **given), tmp_path / "table", talk, CPU
    )
    assert state_of(tmp_path / "table") == state_of(tmp_path / "files")
    assert any("wrong number of cells" in line for line in talk.lines) == (kind == "a.tsv")

    cases = {
        "give --valid-data too": {**nothing, **columns, "data.table": given["data.table"]},
        'no (column )?"source"': {**nothing, **given},
        "give --source and --target, or --data, not both": {**columns, **given},
        "give --source and --target, .* or --data": nothing,
    }
    for message, settings in cases.items():
        with pytest.raises(BadInput, match=message) as caught:
            trainer.start(recipe_for("translate", texts, **settings), tmp_path / "none", Quiet(), CPU)
        assert "\n" not in str(caught.value) and not (tmp_path / "none").exists()


def test_a_vocabulary_is_learned_from_a_sample_of_a_large_text(texts, tmp_path, monkeypatch):
    lines = [f"word{n} and a few others\n" for n in range(3000)]
    text = tmp_path / "large"
    text.write_text("".join(lines))
    monkeypatch.setattr(sections, "PART", 2000)
    monkeypatch.setattr(lm_data, "SAMPLE", text.stat().st_size // 5)
    monkeypatch.setattr(workers, "MOST", 1)
    learned: list[str] = []

    def train_vocab(kind, pieces, size, lower):
        learned.extend(pieces)
        return vocab.train_vocab(kind, learned, size, lower)

    monkeypatch.setattr(lm_data, "train_vocab", train_vocab)
    asked = recipe_for(
        "lm", texts, **{"data.text": str(text), "data.tokenizer": "word", "data.vocab_size": 5000}
    )
    talk, again = Quiet(until=9), Quiet()
    with pytest.raises(Interrupted):
        trainer.start(asked, tmp_path / "run", talk, CPU)
    read = "".join(learned)
    assert 0.15 < len(read) / text.stat().st_size < 0.2  # of nine tenths, one piece in five
    places = [int(line[4:].split()[0]) for line in read.splitlines() if line.startswith("word")]
    assert np.histogram(places, 9, (0, 2700))[0].min() > 30  # from all over the text
    trainer.resume(tmp_path / "run", again, CPU)
    for told in (talk, again):
        assert any("learned from 1/5 of the text" in line for line in told.lines)


def test_a_bad_line_is_told_once_however_often_a_text_is_read(texts, tmp_path):
    good = Path(texts["text"]).read_bytes()
    for name, data in {"early": b"\xff\n" + good, "late": good + b"\xff\n"}.items():
        (tmp_path / name).write_bytes(data)
        for task in ("lm", "mlm"):
            talk = Quiet()
            asked = recipe_for(task, texts, steps=1, **{"data.text": str(tmp_path / name)})
            trainer.start(asked, tmp_path / f"{name}-{task}", talk, CPU)
            assert [line for line in talk.lines if "dropped" in line] == [
                f"1 line dropped: 1 not UTF-8 ({tmp_path / name}:{1 if name == 'early' else 121})"
            ]


def test_json_lines_may_have_the_text_in_another_column(texts, tmp_path):
    rows = [
        json.dumps({"n": n, "body": line})
        for n, line in enumerate(Path(texts["text"]).read_text().split("\n"))
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    asked = recipe_for(
        "lm", texts, steps=2, **{"data.text": str(tmp_path / "a.jsonl"), "data.text_column": "body"}
    )
    trainer.start(asked, tmp_path / "json", Quiet(), CPU)
    trainer.start(recipe_for("lm", texts, steps=2), tmp_path / "plain", Quiet(), CPU)
    assert (tmp_path / "json" / "train" / "text.bin").stat().st_size > 1000
    sizes = [(tmp_path / run / "train" / "text.bin").stat().st_size for run in ("json", "plain")]
    assert abs(sizes[0] - sizes[1]) < 0.1 * sizes[1]
    with pytest.raises(BadInput, match='no "text"; there are n, body'):
        trainer.start(
            recipe_for("lm", texts, **{"data.text": str(tmp_path / "a.jsonl")}), tmp_path / "no", Quiet(), CPU
        )
