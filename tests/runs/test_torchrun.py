"""`heedful train` under torchrun: two processes do what one does, one of them writes, and all end together.

Most questions are put to one start of the processes (run_together.py), the rest to the command itself.
"""

import json
import os
import random
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from helpers.run_together import cut_after
from helpers.torchrun import DRIVER, LAUNCH

from heedful.runs import checkpoint, setup, trainer
from heedful.runs.folder import RunFolder, Stop
from heedful.tasks import recipe

CPU = torch.device("cpu")
SIZES = {
    "model.layers": 2,
    "model.width": 12,
    "model.heads": 3,
    "model.ffn_width": 20,
    "model.dropout": 0.0,
    "train.steps": 8,
    "train.warmup_steps": 2,
    "train.optimizer": "adamw",
    "train.learning_rate": 3e-3,
    "checkpoint.every": 2,
    "checkpoint.keep": 9,
    "evaluate.every": 3,
    "evaluate.rows": 7,
    "evaluate.examples": 1,
}
LM = {
    "data.text": "text",
    "data.tokenizer": "char",
    "model.context": 16,
    "train.batch_tokens": 48,
}  # three rows a step
TRANSLATE = {
    "data.source": "a.src",
    "data.target": "a.tgt",
    "data.valid_source": "v.src",
    "data.valid_target": "v.tgt",
    "data.tokenizer": "word",
    "data.packed": False,
    "train.batch_tokens": 40,
    "train.accumulation_steps": 2,
    "train.ema_decay": 0.8,
}
CLASSIFY = {
    "data.table": "a.tsv",
    "data.valid_table": "v.tsv",
    "train.batch_tokens": 1,
}  # one row a step: one is idle
RUNS: dict[str, tuple[str, dict]] = {
    "translate": ("translate", TRANSLATE),
    "lm": (
        "lm",
        LM | {"train.optimizer": "muon", "train.average_checkpoints": 2, "model.ffn_width": 19},
    ),  # odd: unequal shards
    "mlm": (
        "mlm",
        LM | {"data.pairs": True, "train.accumulation_steps": 2, "train.activation_checkpointing": True},
    ),
    "classify": ("classify", CLASSIFY | {"data.tokenizer": "word"}),
    "from": (
        "classify",
        CLASSIFY | {"train.from": "alone/lm", "train.batch_tokens": 30, "model.dropout": 0.0},
    ),
    "half": ("lm", LM | {"train.precision": "fp16"}),
}
WAYS = {"dp": "ddp", "shard": "fsdp"}
LONG = LM | {"train.steps": 150, "checkpoint.every": 40, "checkpoint.keep": 2, "model.dropout": 0.1}


def write_texts(folder: Path) -> None:
    """A language model's text, a toy translation (words upper-cased and reversed), and a labeled table."""
    words = [f"{a}{b}" for a in "bdfgk" for b in "aeiou"]
    rng = random.Random(0)
    lines = [" ".join(rng.choice(words) for _ in range(n % 5 + 2)) for n in range(120)]
    mirrored = [" ".join(reversed(line.upper().split())) for line in lines]
    parts = {"a": slice(100), "v": slice(100, 120)}
    for name, part in parts.items():
        (folder / f"{name}.src").write_text("\n".join(lines[part]) + "\n")
        (folder / f"{name}.tgt").write_text("\n".join(mirrored[part]) + "\n")
        rows = [f"{line}\t{'front' if line[1] in 'ei' else 'back'}" for line in lines[part]]
        (folder / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    (folder / "text").write_text("\n".join(lines) + "\n")


def chosen(settings: dict) -> dict:
    """With small sizes, unless they come with a model to start from."""
    sized = "train.from" not in settings
    return {key: size for key, size in SIZES.items() if sized or not key.startswith("model.")} | settings


def options(settings: dict) -> list[str]:
    return [f"--set={key}={value}" for key, value in chosen(settings).items()]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


class Quiet:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def step(self, progress, steps) -> None:
        pass


def metrics(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Everything that must not depend on how often a run was interrupted."""
    newest = max((folder / "checkpoints").iterdir(), key=lambda path: int(path.name.split("-")[1]))
    names = [
        "model.safetensors",
        "metrics.jsonl",
        *(f"checkpoints/{newest.name}/{p.name}" for p in newest.iterdir()),
    ]
    return {
        name: (folder / name).read_bytes()
        for name in names
        if not name.endswith(("manifest.json", "state.json"))  # they tell how many processes there were
    }


def assert_alike(found: Path, expected: Path, tolerance: float) -> None:
    """The same numbers in metrics.jsonl but for rounding."""
    one, two = metrics(expected), metrics(found)
    assert [line.keys() for line in one] == [line.keys() for line in two]
    for a, b in zip(one, two, strict=True):
        assert b == pytest.approx(a, rel=10 * tolerance if "norm" in a else tolerance), (found, a["step"])
    for line in one:
        assert {"loss", "rate", "norm", "tokens", "step"} == line.keys() or "valid_loss" in line


# One start, many questions


def poison(name: str, rank: int, how: str, **settings) -> list:
    where = ["--run", name, *options(LM | {"checkpoint.every": 1, **settings})]
    return ["poisoned", rank, how, "train", "lm", *where]


POISONED = {
    "loss": poison("poison/loss", 1, "loss"),
    "layer": poison("poison/layer", 1, "layer", **{"train.parallel": "fsdp"}),
    "gradient": poison("poison/gradient", 0, "gradient"),
}
BAD = {
    "nowhere is missing": ["train", "lm", "--run", "bad/1", *options(LM | {"data.text": "nowhere"})],
    "holds a run: go on with `heedful train --resume dp/lm`": ["train", "lm", "--run", "dp/lm", *options(LM)],
    "train has no option --stpes": ["train", "lm", "--run", "bad/2", "--stpes", "3"],
    "a width of 256 cannot be divided into 7 heads": ["train", "lm", "--run", "bad/3", "--set=model.heads=7"],
    "give --text": ["train", "lm", "--run", "bad/4"],
    "there is no CUDA GPU": ["train", "lm", "--run", "bad/5", "--device", "cuda", *options(LM)],
    "bad/6 holds no run": ["train", "--resume", "bad/6"],
    "--steps cannot be given with --resume": ["train", "--resume", "dp/lm", "--steps", "3"],
    "train.seed 5": ["train", "--resume", "altered"],
    "--find-rate is for one process": ["train", "lm", "--find-rate", *options(LM)],
}


def plan() -> list[list]:
    """What the processes are to do, see run_together.py."""
    asked = []
    for kind, way in WAYS.items():
        for name, (task, settings) in RUNS.items():
            both = chosen(settings) | {"train.parallel": way}
            asked.append(["start", task, both, f"{kind}/{name}"])
    asked += [["cut", "dp/translate", "cut/dp", 4], ["resume", "cut/dp"]]
    asked += [["cut", "shard/lm", "cut/shard", 4], ["resume", "cut/shard"]]
    asked += [["cut", "shard/translate", "cut/ema", 6], ["resume", "cut/ema"]]
    asked += [["cut", "alone/lm", "cut/grown", 4], ["resume", "cut/grown"]]
    asked += [
        ["cut", "alone/lm", "cut/sharded", 4],
        ["edit", "cut/sharded", "train", "parallel", "fsdp"],
        ["resume", "cut/sharded"],
    ]
    asked += [["cut", "dp/lm", "altered", 4], ["edit", "altered", "train", "seed", 5]]
    asked += [["main", *args] for args in BAD.values()]
    asked += POISONED.values()
    asked += [["start", "lm", SIZES | LONG, "long"]]
    return asked


def launched(args: list[str], folder: Path, **more) -> subprocess.Popen:
    return subprocess.Popen(
        [*LAUNCH, *args],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


class Answers:
    """What became of each item of the plan, in each of the two processes."""

    def __init__(self, folder: Path, asked: list[list]) -> None:
        self.folder, self.asked = folder, asked
        self.found = [json.loads((folder / "answers" / f"{rank}.json").read_text()) for rank in (0, 1)]

    def of(self, item: list) -> list[dict]:
        return [found[self.asked.index(item)] for found in self.found]


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> Answers:
    folder = tmp_path_factory.mktemp("together")
    write_texts(folder)
    before = Path.cwd()
    os.chdir(folder)  # recipes name their files without a folder
    try:
        for name, (task, settings) in RUNS.items():
            asked = recipe.make(task, settings=chosen(settings))
            trainer.start(asked, folder / "alone" / name, Quiet(), CPU)
    finally:
        os.chdir(before)
    (folder / "answers").mkdir()
    (folder / "plan.json").write_text(json.dumps(plan()))
    with launched([str(DRIVER), "plan.json", "answers"], folder) as processes:
        try:
            told = processes.communicate(timeout=400)
        finally:
            processes.kill()
    assert processes.returncode == 0, told
    return Answers(folder, plan())


@pytest.mark.parametrize("kind", WAYS)
@pytest.mark.parametrize("name", RUNS)
def test_two_processes_log_and_score_what_one_does(name, kind, together):
    assert_alike(
        together.folder / kind / name, together.folder / "alone" / name, 1e-3 if name == "half" else 5e-6
    )
    weights, _ = checkpoint.load(together.folder / kind / name / "checkpoints" / "step-8")
    plain, _ = checkpoint.load(together.folder / "alone" / name / "checkpoints" / "step-8")
    assert weights.keys() == plain.keys()
    for part, tensors in plain.items():
        assert {n: t.shape for n, t in weights[part].items()} == {n: t.shape for n, t in tensors.items()}


@pytest.mark.parametrize("name", RUNS)
def test_only_the_leading_process_speaks(name, together):
    lead, other = together.of(
        ["start", RUNS[name][0], chosen(RUNS[name][1]) | {"train.parallel": "ddp"}, f"dp/{name}"]
    )
    assert lead["finished"] and other["finished"] and lead["steps"] == other["steps"] == 8
    assert any("2 processes" in line for line in lead["lines"]) and other["lines"] == []
    assert json.loads((together.folder / "dp" / name / "recipe.json").read_text())["facts"]["processes"] == 2


def test_the_processes_share_the_very_examples_of_one(together, monkeypatch):
    """All of them, each once, in order; sometimes one process has nothing to do."""
    monkeypatch.chdir(together.folder)
    idle = set()
    for name in RUNS:
        run = together.folder / "alone" / name
        job = setup.make_job(trainer.recipe_in(RunFolder.read_recipe(run)), run, Quiet())
        for step in range(6):
            alone = [i for batch in job.batches(step) for i in batch.ids]
            shares = [[i for batch in job.batches(step, rank, 2) for i in batch.ids] for rank in range(2)]
            assert shares[0] + shares[1] == alone != []
            idle |= {name} if not all(shares) else set()
    assert "classify" in idle


@pytest.mark.parametrize(
    "cut, whole", [("cut/dp", "dp/translate"), ("cut/shard", "shard/lm"), ("cut/ema", "shard/translate")]
)
def test_resumed_equals_uninterrupted_byte_for_byte(cut, whole, together):
    lead, _ = together.of(["resume", cut])
    assert any(line.startswith("going on after step") for line in lead["lines"])
    assert not any("warning" in line and "learned nothing" not in line for line in lead["lines"])
    found, expected = bytes_of(together.folder / cut), bytes_of(together.folder / whole)
    assert found.keys() == expected.keys() and len(found) >= 4
    assert all(found[name] == expected[name] for name in expected)


def test_one_process_may_become_two(together):
    for cut in ("cut/grown", "cut/sharded"):
        lead, other = together.of(["resume", cut])
        assert any("processes was 1 and is 2 now" in line for line in lead["lines"]) and other["lines"] == []
        assert any("train.parallel was 'auto' and is 'fsdp'" in line for line in lead["lines"]) == (
            cut == "cut/sharded"
        )
        assert_alike(together.folder / cut, together.folder / "alone" / "lm", 5e-6)


@pytest.mark.parametrize("name", ["translate", "lm"])
def test_two_sharded_processes_may_become_one(name, together, tmp_path, monkeypatch):
    monkeypatch.chdir(together.folder)
    cut_after(together.folder / "shard" / name, tmp_path / "cut", 4)
    talk = Quiet()
    outcome = trainer.resume(tmp_path / "cut", talk, CPU)
    assert outcome.finished and any("processes was 2 and is 1 now" in line for line in talk.lines)
    assert_alike(tmp_path / "cut", together.folder / "shard" / name, 5e-6)
    published = checkpoint.copy(tmp_path / "cut" / "model.safetensors")
    assert all(torch.equal(weight, published[name]) for name, weight in outcome.model.named_parameters())


@pytest.mark.parametrize("said", BAD)
def test_bad_input_is_said_once_and_leaves_nothing(said, together):
    lead, other = together.of(["main", *BAD[said]])
    assert lead["code"] == 2 and other["code"] == 1
    errors = [line for line in lead["err"].splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and said in errors[0]
    assert lead["out"] == other["out"] == other["err"] == ""
    left = list((together.folder / "bad").iterdir()) if (together.folder / "bad").exists() else []
    assert left == []


@pytest.mark.parametrize("how", POISONED)
def test_a_number_that_is_not_finite_in_one_process_stops_all_before_the_step(how, together):
    lead, other = together.of(POISONED[how])
    assert lead["code"] == other["code"] == 3 and other["err"] == other["out"] == ""
    run_folder = together.folder / "poison" / how
    (error,) = [line for line in lead["err"].splitlines() if line.startswith("error: ")]
    status = json.loads((run_folder / "status.json").read_text())
    assert status["reason"] == "not finite" and error == f"error: {status['error']}"
    assert error.startswith("error: step 3: the loss is")
    where = {
        "loss": "first in the loss itself of process 1",
        "layer": "first in stack.norm of process 1",
        "gradient": "in the backward pass",
    }
    assert where[how] in error
    assert examples_of(error) == shares_of_step(together.folder, 2, how), error
    assert [line["step"] for line in metrics(run_folder)] == [1, 2, 3]  # the log hides nothing
    assert [path.name for path in checkpoint.newest_first(run_folder / "checkpoints")] == ["step-2", "step-1"]
    tensors, _ = checkpoint.load(run_folder / "checkpoints" / "step-2")
    assert all(t.isfinite().all() for part in tensors.values() for t in part.values())
    assert not (run_folder / "lock").exists()


def examples_of(error: str) -> list[list[int]]:
    return json.loads(error[error.index("; examples ") + len("; examples ") : error.index(". The weights")])


def shares_of_step(folder: Path, step: int, how: str) -> list[list[int]]:
    """The examples to blame: those of the process at fault, or, where nobody knows, of both."""
    asked = trainer.recipe_in(json.loads((folder / "poison" / how / "recipe.json").read_text()))
    before = Path.cwd()
    os.chdir(folder)
    try:
        job = setup.make_job(asked, folder / "poison" / how, Quiet())
    finally:
        os.chdir(before)
    ranks = (0, 1) if how == "gradient" else (1,)
    return [list(batch.ids) for rank in ranks for batch in job.batches(step, rank, 2)]


# The command itself


def command(*args: str) -> list[str]:
    return ["-m", "--", "heedful", "train", *args]


def workers(launcher: int) -> dict[int, int]:
    """{rank: process} of those that a launcher has started."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == launcher:
                words = (path / "environ").read_bytes().split(b"\0")
                found |= {int(word[5:]): int(path.name) for word in words if word.startswith(b"RANK=")}
    return found


def alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_for_step(child: subprocess.Popen, folder: Path, step: int, most: float = 120.0) -> None:
    """Until the run has logged a step."""
    deadline = time.monotonic() + most
    while time.monotonic() < deadline and child.poll() is None:
        with suppress(OSError):
            if len((folder / "metrics.jsonl").read_bytes().splitlines()) >= step:
                return
        time.sleep(0.01)
    pytest.fail(f"no step {step}: {child.communicate()}")


def test_a_signal_to_one_process_saves_and_stops_all_and_the_run_goes_on(together):
    folder = together.folder
    with launched([str(DRIVER), "slowly", "train", "lm", *options(LONG)], folder) as child:
        try:
            wait_for_step(child, folder / "runs" / "lm", 20)
            os.kill(workers(child.pid)[0], signal.SIGTERM)  # the other has nothing to save, and waits for it
            out, err = child.communicate(timeout=120)
        finally:
            child.kill()
    assert child.returncode == 1 and out == ""  # torchrun's own word for any exit code but 0
    status = json.loads((folder / "runs" / "lm" / "status.json").read_text())
    saved = metrics(folder / "runs" / "lm")[-1]["step"]
    assert (status["reason"], status["step"]) == ("interrupted", saved) and saved < 150
    assert (folder / "runs" / "lm" / "checkpoints" / f"step-{saved}").is_dir()
    assert not (folder / "runs" / "lm" / "lock").exists()
    assert (
        "error:" not in err
        and err.count("`heedful train --resume runs/lm`") == err.count("run: runs/lm") == 1
    )

    with launched(command("--resume", "runs/lm"), folder) as child:
        out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    assert out.count("best at step") == 1 and not re.search("warning: (?!the (best )?held-out loss)", err)
    assert bytes_of(folder / "runs" / "lm") == bytes_of(folder / "long")


def test_a_signal_that_torchrun_passes_on_is_the_same_one(monkeypatch):
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    with Stop(again=60.0) as stop:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        assert stop.asked == "SIGTERM" and ended == []
    with Stop(again=0.05) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.06)
        os.kill(os.getpid(), signal.SIGTERM)
        assert ended == [130]


def test_the_command_ends_promptly_and_says_one_sentence_if_it_cannot_begin(together):
    with launched(
        command("lm", "--run", "bad/7", *options(LM | {"data.text": "nowhere"})), together.folder
    ) as child:
        out, err = child.communicate(timeout=120)
    assert child.returncode == 1 and out == ""
    assert [line for line in err.splitlines() if line.startswith("error: ")] == ["error: nowhere is missing"]
    assert not (together.folder / "bad" / "7").exists()


# Killed, whichever of them


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["launcher", 0, 1])
def test_killed_at_random_moments_the_run_ends_in_the_same_bytes(victim, together):
    folder, rng = together.folder, random.Random(str(victim))
    name = f"killed/{victim}"
    args = command("lm", "--run", name, *options(LONG))
    for turn in range(4):
        with launched(args, folder) as child:
            try:
                wait_for_step(child, folder / name, (turn + 1) * 25 + rng.randrange(20))
                family = {"launcher": child.pid, **workers(child.pid)}
                os.kill(family[victim], signal.SIGKILL)
                begun = time.monotonic()
                child.wait(timeout=60)
                while any(map(alive, family.values())) and time.monotonic() - begun < 60:
                    time.sleep(0.05)
                took = time.monotonic() - begun
            finally:
                child.kill()
        assert took <= (30 if victim == "launcher" else 15), took
        status = json.loads((folder / name / "status.json").read_text())
        assert status["reason"] == {"launcher": "interrupted", 0: "running", 1: "failed"}[victim]
        args = command("--resume", name)
    with launched(args, folder) as child:
        _, err = child.communicate(timeout=300)
    assert child.returncode == 0, err
    assert bytes_of(folder / name) == bytes_of(folder / "long")
