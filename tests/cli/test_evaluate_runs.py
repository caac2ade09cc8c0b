"""heedful evaluate: what every task has in common, and one sentence for whatever is wrong."""

import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers.runs import CPU, TINY, Interrupted, Quiet

import heedful
from heedful.cli import evaluate as evaluate_command
from heedful.cli.main import main
from heedful.cli.shared import terminal
from heedful.runs import trainer
from heedful.tasks import recipe
from heedful.tasks.evaluation import by_length


@pytest.mark.parametrize("kind", ["translate", "lm", "pairs", "classify", "decoder"])
def test_the_run_is_left_as_it_was_and_batches_change_nothing(kind, trained, evaluate):
    def state() -> dict:
        paths = [trained(kind), *trained(kind).rglob("*")]
        return {path: (path.stat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in paths}

    before = state()
    found = evaluate(trained(kind))
    assert state() == before
    assert list(found) == [
        "task",
        "run",
        "step",
        "data",
        "examples",
        "unit",
        "metrics",
        "baselines",
        "signature",
    ]
    status = json.loads((trained(kind) / "status.json").read_text())
    assert found["step"] == status["best_step"] and found["run"] == str(trained(kind))
    one = evaluate(trained(kind), "--batch", 1)["metrics"]
    for name, value in found["metrics"].items():
        if isinstance(value, float):
            assert one[name] == pytest.approx(value, rel=1e-4), name


@pytest.mark.parametrize("kind", ["translate", "lm", "pairs", "classify"])
def test_people_get_a_table(kind, trained, evaluate, capsys):
    metrics = evaluate(trained(kind))["metrics"]
    assert main(["evaluate", str(trained(kind))]) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(rf"evaluating {re.escape(str(trained(kind)))}\ntask: [a-z-]+; data: .+\n", err)
    lines = out.splitlines()
    assert lines[0].startswith(f"{trained(kind)}: ") and max(map(len, lines[1:])) <= 110
    for name, value in metrics.items():
        if isinstance(value, float):
            title, form = evaluate_command.SHOWN[name]
            assert any(line.startswith(f"  {title}") and form.format(value) in line.split() for line in lines)
    for label, s in metrics.get("labels", {}).items():
        expected = [label, *(f"{s[n]:.4f}" for n in ("precision", "recall", "f1"))]
        assert any(line.split()[:4] == expected for line in lines)
    if "accuracy_interval" in metrics:
        low, high = metrics["accuracy_interval"]
        assert f"{low:.1%} to {high:.1%}" in out


def test_an_interrupted_run_has_a_model_once_it_was_tried(files, tmp_path, evaluate, fails):
    settings = TINY | {"data.text": files["text"], "data.tokenizer": "char", "model.context": 13}
    for until, name in ((4, "early"), (7, "late")):  # tried at step 5
        with pytest.raises(Interrupted):
            trainer.start(
                recipe.make("lm", settings=settings | {"train.steps": 9}),
                tmp_path / name,
                Quiet(until=until),
                CPU,
            )
    sentence = fails(tmp_path / "early")
    assert "early has no model yet" in sentence and f"heedful train --resume {tmp_path}/early" in sentence
    assert evaluate(tmp_path / "late")["step"] is None


def test_what_is_no_run_is_told_in_a_sentence(trained, tmp_path, fails):
    copy = shutil.copytree(trained("classify"), tmp_path / "copy")
    assert "nowhere is not there: give the folder of a run" in fails(tmp_path / "nowhere")
    assert "is a file: give the folder" in fails(copy / "recipe.json")
    assert "labels.json is missing" in without(copy, "labels.json", fails)
    assert "tokenizer.json is missing" in without(copy, "tokenizer.json", fails)
    assert "no run: it has no recipe.json" in without(copy, "recipe.json", fails)
    assert "no model yet" in without(copy, "model.safetensors", fails)
    assert "no model yet" in without(copy, "config.json", fails)
    assert "from.json is missing" in without(
        shutil.copytree(trained("decoder"), tmp_path / "d"), "from.json", fails
    )
    tokenizer = json.loads((copy / "tokenizer.json").read_text())
    (copy / "tokenizer.json").write_text(json.dumps(tokenizer))  # the same to read, not the same bytes
    assert "tokenizer.json is not the one its model was trained with" in fails(copy)
    shutil.copy(trained("classify") / "tokenizer.json", copy)
    weights = bytearray((copy / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copy / "model.safetensors").write_bytes(weights)
    assert "model.safetensors is damaged" in fails(copy)
    (copy / "recipe.json").write_text('{"task": "translat"}')
    assert "recipe.json" in fails(copy) and 'did you mean "translate"' in fails(copy)
    assert "needs a RUN" in fails()


def without(folder: Path, name: str, fails) -> str:
    """What is said while a file is missing; nothing may be put in its place."""
    (folder / name).rename(folder.parent / "away")
    sentence = fails(folder)
    assert not (folder / name).exists()
    (folder.parent / "away").rename(folder / name)
    return sentence


@pytest.mark.parametrize(
    "kind, args, sentence",
    [
        (
            "translate",
            ["--text", "{text}"],
            (
                "--text does not fit {run}, a run of translate, which takes --source FILE and --target "
                "FILE, or --data FILE"
            ),
        ),
        ("lm", ["--source", "{a.src}"], "--source does not fit {run}, a run of lm, which takes --text PATH"),
        ("lm", ["--data", "{a.tsv}"], "--data does not fit"),
        ("classify", ["--target", "{a.tgt}"], "--target does not fit"),
        ("classify", ["--output", "x"], "--output is for translations"),
        (
            "translate",
            ["--source", "{a.src}"],
            "give --source FILE and --target FILE, or --data FILE: given is --source FILE",
        ),
        (
            "translate",
            ["--source", "{a.src}", "--target", "{a.tgt}", "--data", "{a.tsv}"],
            "given is --source FILE and --target FILE and --data FILE",
        ),
        (
            "translate",
            ["--source", "{a.src}", "--target", "{v.tgt}"],
            "a.src has 100 lines and {v.tgt} has 37",
        ),
        ("translate", ["--source", "nowhere", "--target", "{v.tgt}"], "--source nowhere is not there"),
        (
            "translate",
            ["--source", "{empty}", "--target", "{empty}"],
            "no pair of sentences to judge the model by",
        ),
        ("translate", ["--source", "{blank}", "--target", "{blank}"], "2 lines dropped: 2 empty"),
        ("translate", ["--split", "test"], "--split is of a built-in corpus, and {run} was trained on files"),
        (
            "translate",
            ["--source", "{a.src}", "--target", "{a.tgt}", "--split", "test"],
            "give either it or --source",
        ),
        ("translate", ["--output", "{text}"], "text is there already"),
        ("translate", ["--output", "{run}/out"], "lies in the run, which stays as it is"),
        ("translate", ["--output", "no/where/out"], "no/where is no folder"),
        ("translate", ["--batch", "0"], "--batch must be a whole number from 1 to 100,000, not 0"),
        ("lm", ["--beam", "2"], "--beam is for translate, summarize, caption, and "),
        ("translate", ["--beam", "1", "--length-alpha", "1"], "--length-alpha has no effect without --beam"),
        ("lm", ["--text", "{empty}"], "empty has 0 tokens to judge the model by: at least 2 are needed"),
        ("mlm", ["--text", "{empty}"], "empty has 0 tokens to judge the model by: at least 1 are needed"),
        ("pairs", ["--text", "{blank}"], "at least 30 are needed"),
        ("mlm", ["--text", "{foreign}"], "no word that the vocabulary knows"),
        ("lm", ["--split", "valid"], "--split is of a built-in corpus"),
        ("classify", ["--data", "{empty}"], "empty is empty"),
        ("classify", ["--data", "{header}"], "header has no row to judge the model by"),
        (
            "classify",
            ["--data", "{strange}"],
            'strange:2: {a.tsv} has no label "frond"; did you mean "front"?',
        ),
        (
            "classify",
            ["--set", "model.width=3"],
            (
                "--set model.width does not fit {run}: how its data are read is data.text_column, "
                "data.pair_column, data.label_column, data.bad_lines"
            ),
        ),
        ("classify", ["--set", "data.source_column=x"], "--set data.source_column does not fit"),
        ("lm", ["--set", "data.text_column=x"], "none is read here: give --text PATH too"),
        ("classify", ["--set", "width"], "--set takes part.name=value"),
        ("lm", ["--device", "cuda"], "there is no CUDA GPU here"),
    ],
)
def test_what_does_not_fit_is_told_in_a_sentence(
    kind, args, sentence, trained, files, tmp_path, fails, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    texts = {"empty": "", "blank": "\n \n", "foreign": "ЖЖЖ" * 9, "header": "sentence\tlabel\n"}
    texts["strange"] = texts["header"] + "ba\tfrond\n"
    names = {"{run}": str(trained(kind))} | {f"{{{name}}}": path for name, path in files.items()}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        names[f"{{{name}}}"] = str(tmp_path / name)

    def full(text: str) -> str:
        for name, path in names.items():
            text = text.replace(name, path)
        return text

    assert full(sentence) in fails(trained(kind), *map(full, args))
    assert not (trained("translate") / "out").exists()


def test_files_of_the_recipe_that_have_gone_are_named_with_what_to_give(trained, files, tmp_path, fails):
    for kind, setting, options in (
        ("translate", "valid_target", "--source FILE and --target FILE, or --data FILE"),
        ("classify", "valid_table", "--data FILE"),
    ):
        copy = shutil.copytree(trained(kind), tmp_path / kind)
        asked = json.loads((copy / "recipe.json").read_text())
        asked["data"][setting] = "held/out"
        (copy / "recipe.json").write_text(json.dumps(asked))
        assert f"judged by held/out that is not there any more: give {options}" in fails(copy)


def test_weights_that_are_no_numbers_are_exit_code_3(trained, tmp_path, fails):
    copy = shutil.copytree(trained("lm"), tmp_path / "copy")
    loaded = heedful.load(copy)
    with torch.no_grad():
        next(loaded.model.parameters()).fill_(math.nan)
    (copy / "model.json").unlink()
    from heedful.data.tensor_files import write_tensors

    write_tensors(copy / "model.safetensors", dict(loaded.model.named_parameters()))
    assert "loss is nan" in fails(copy, code=3)


def test_the_first_line_is_out_before_torch_is_imported(trained):
    code = f"""
import sys
from heedful.cli import evaluate as evaluate_command
from heedful.cli import main as cli
def stop(*args):
    print("torch" in sys.modules)
    raise KeyboardInterrupt
evaluate_command.read_run = stop
sys.exit(cli.main(["evaluate", {str(trained("lm"))!r}]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "False\n") and done.stderr.startswith("evaluating ")


def test_progress_is_told_once_it_takes_long(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: clock[0])
    for _ in terminal.track([0] * 40, "translating"):
        clock[0] += 0.5
    assert capsys.readouterr().err.splitlines() == [
        "translating: batch 6 of 40, about 17 s left",
        "translating: batch 26 of 40, about 7 s left",
    ]
    for _ in terminal.track(iter([0] * 7), "tokenizing"):
        clock[0] += 0.5
    assert capsys.readouterr().err == "tokenizing: part 6\n"
    for _ in terminal.track([0] * 5, "translating"):
        clock[0] += 0.5
    assert capsys.readouterr().err == ""


def test_on_a_terminal_progress_is_a_bar(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert list(terminal.track([3, 1, 2], "translating")) == [3, 1, 2]
    assert "translating" in capsys.readouterr().err


def test_groups_are_of_like_length_and_bounded():
    rng = random.Random(1)
    lengths = [rng.choice([1, 3, 9, 200]) for _ in range(57)]
    groups = by_length(lengths, 7, 60)
    assert sorted(i for group in groups for i in group) == list(range(57))
    for group in groups:
        assert len(group) == 1 or (len(group) <= 7 and len(group) * max(lengths[i] for i in group) <= 60)
    flat = [lengths[i] for group in groups for i in group]
    assert flat == sorted(flat) and by_length([], 7) == []
    assert max(map(len, groups)) == 7


def test_a_translation_of_two_lines_is_written_as_one(tmp_path):
    evaluate_command.write_lines(tmp_path / "out", ["a\nb", "", "c\r\nd"])
    assert (tmp_path / "out").read_bytes() == b"a b\n\nc  d\n"


def test_output_is_not_written_over_what_has_come_meanwhile(trained, tmp_path, monkeypatch, fails):
    original = evaluate_command.measure

    def slow(*args):
        measured = original(*args)
        (tmp_path / "out").write_text("precious")
        return measured

    monkeypatch.setattr(evaluate_command, "measure", slow)
    assert "it is not overwritten" in fails(trained("translate"), "--output", tmp_path / "out")
    assert os.listdir(tmp_path) == ["out"] and (tmp_path / "out").read_text() == "precious"
