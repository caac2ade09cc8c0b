"""Several machines: they compute what one process does, and whatever ends is named and goes on by itself."""

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Self

import pytest
from helpers import paced_train
from helpers.machines import Machine, end, launch, two_machines, wait_until, workers

from heedful.cli.main import main

DRIVER = str(Path(paced_train.__file__))
STEPS = 150
SETTINGS = {
    "data.text": "text",
    "data.tokenizer": "char",
    "model.context": 16,
    "model.layers": 2,
    "model.width": 12,
    "model.heads": 3,
    "model.ffn_width": 20,
    "model.dropout": 0.0,
    "train.batch_tokens": 80,  # five rows a step, for four processes
    "train.steps": STEPS,
    "train.warmup_steps": 2,
    "train.optimizer": "adamw",
    "train.learning_rate": 3e-3,
    "checkpoint.every": 10,
    "evaluate.every": 50,
    "evaluate.rows": 7,
}
BOUND = 8.0  # seconds


def command(run: str, **more: object) -> list[str]:
    asked = SETTINGS | {key.replace("__", "."): value for key, value in more.items()}
    return ["train", "lm", "--run", run, *(f"--set={key}={value}" for key, value in asked.items())]


class Pair:
    """Two machines with one disk."""

    def __init__(self, folder: Path, pair: list[Machine]) -> None:
        self.folder, self.pair = folder, pair

    @property
    def hosts(self) -> list[str]:
        return [machine.host for machine in self.pair]

    def launch(self, number: int, job: str, more: dict[str, object] | None = None, **environment: str):
        """The same command on one of the machines. more: settings."""
        environment |= {"HEEDFUL_HANG_SECONDS": str(BOUND)}
        asked = ["--", DRIVER, *command(job, **(more or {}))]
        return launch(self.pair[number], self.pair[0], job, self.folder, asked, **environment)

    def log(self, number: int) -> str:
        path = self.folder / f"{self.pair[number].name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def logs(self) -> str:
        return "\n".join(self.log(number)[-3000:] for number in (0, 1))

    def steps(self, run: str) -> list[dict]:
        path = self.folder / run / "metrics.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith(b"\n")]

    def wait_for_step(self, run: str, step: int) -> None:
        wait_until(lambda: any(line["step"] >= step for line in self.steps(run)), told=self.logs)

    def model(self, run: str) -> bytes:
        return (self.folder / run / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("machines")
    words = [f"{a}{b}" for a in "bdfgk" for b in "aeiou"]
    rng = random.Random(0)
    lines = [" ".join(rng.choice(words) for _ in range(n % 5 + 2)) for n in range(120)]
    (folder / "text").write_text("\n".join(lines) + "\n")
    with two_machines() as found:
        yield Pair(folder, found)


@pytest.fixture(scope="module")
def whole(pair) -> str:
    """The run that nothing has interrupted."""
    both = [pair.launch(number, "whole") for number in (0, 1)]
    try:
        assert [launcher.wait(timeout=180) for launcher in both] == [0, 0], pair.logs()
    finally:
        end(*both)
    return "whole"


def test_two_machines_log_what_one_process_does(pair, whole, monkeypatch):
    monkeypatch.chdir(pair.folder)
    assert main(command("alone")) == 0
    one, four = pair.steps("alone"), pair.steps(whole)
    assert [line.keys() for line in one] == [line.keys() for line in four] and len(one) == STEPS + 3
    for a, b in zip(one, four, strict=True):
        assert b == pytest.approx(a, rel=1e-6 if "norm" not in a else 1e-4), a["step"]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["hsdp", "hsdp,tensor=2", "fsdp,tensor=2"])
def test_two_machines_share_a_model_as_one_process_trains_it(way, pair, monkeypatch):
    """Seen: losses within 8.5e-8."""
    even = {"model__width": 16, "model__heads": 4, "train__steps": 6, "evaluate__every": 6}
    name = way.replace(",tensor=", "-")
    monkeypatch.chdir(pair.folder)
    assert main(command(f"alone-{name}", **even)) == 0
    both = [pair.launch(number, name, even | {"train__parallel": way}) for number in (0, 1)]
    try:
        assert [launcher.wait(timeout=180) for launcher in both] == [0, 0], pair.logs()
    finally:
        end(*both)
    one, four = pair.steps(f"alone-{name}"), pair.steps(name)
    assert len(one) == len(four) == 7
    for a, b in zip(one, four, strict=True):
        assert b == pytest.approx(a, rel=1e-6 if "norm" not in a else 1e-4), a["step"]


class Hurt:
    """A run on two machines whose processes end one after the other."""

    def __init__(self, pair: Pair, job: str, **environment: str) -> None:
        self.pair, self.job, self.environment = pair, job, environment
        self.both = [pair.launch(number, job, **environment) for number in (0, 1)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end(*self.both)

    def expect(self, what: str, on: int) -> None:
        """Until the log of a machine says so."""
        wait_until(lambda: what in self.pair.log(on), 60, self.pair.logs)

    def victim(self, choose) -> tuple[int, int]:
        """A process of the second machine: its rank and its number."""
        found = workers(self.both[1].pid)
        return choose(found), found[choose(found)]

    def start_again(self, number: int) -> None:
        self.both[number].wait(timeout=60)
        self.both[number] = self.pair.launch(number, self.job, **self.environment)

    def finish(self) -> None:
        assert [launcher.wait(timeout=180) for launcher in self.both] == [0, 0], self.pair.logs()


def assert_same(pair: Pair, run: str, expected: str) -> None:
    assert pair.steps(run) == pair.steps(expected)
    assert pair.model(run) == pair.model(expected)


@pytest.mark.slow
def test_a_process_that_hangs_or_dies_is_named_and_the_run_goes_on_by_itself(pair, whole):
    with Hurt(pair, "hurt") as hurt:
        pair.wait_for_step("hurt", 25)
        rank, pid = hurt.victim(max)
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        hurt.expect(f"error: process {rank} (pid {pid} on ", on=0)
        assert time.monotonic() - began < 60  # though another minute would be the transport's own patience
        os.kill(pid, signal.SIGKILL)  # as torchrun does half a minute later

        pair.wait_for_step("hurt", 55)
        rank, pid = hurt.victim(min)
        os.kill(pid, signal.SIGKILL)
        hurt.expect(f"error: process {rank} (pid {pid} on ", on=0)
        hurt.finish()
    assert (pair.log(0) + pair.log(1)).count("hurt was begun by this job: it goes on") == 2
    assert_same(pair, "hurt", whole)


def test_a_scheduler_that_ends_one_machine_makes_all_save_and_the_same_command_goes_on(pair, whole):
    with Hurt(pair, "ended") as hurt:
        pair.wait_for_step("ended", 45)
        hurt.both[1].send_signal(signal.SIGTERM)
        assert hurt.both[1].wait(timeout=60) == 1  # torchrun's word for any signal
        hurt.expect(f"(SIGTERM on {pair.hosts[1]}): go on with", on=0)
        status = json.loads((pair.folder / "ended" / "status.json").read_text())
        saved = pair.steps("ended")[-1]["step"]
        assert (status["reason"], status["step"]) == ("interrupted", saved) and saved < STEPS
        assert (pair.folder / "ended" / "checkpoints" / f"step-{saved}").is_dir()
    with Hurt(pair, "ended") as again:  # the scheduler has both machines once more
        again.finish()
    assert_same(pair, "ended", whole)


@pytest.mark.slow
def test_a_machine_that_is_lost_may_come_back(pair, whole):
    """torchrun of the first machine goes on meanwhile, and waits for the second one."""
    with Hurt(pair, "lost", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1") as hurt:
        pair.wait_for_step("lost", 25)
        os.kill(hurt.both[1].pid, signal.SIGKILL)
        hurt.expect(f"(torchrun on {pair.hosts[1]} has ended): go on with", on=0)
        hurt.start_again(1)
        pair.wait_for_step("lost", 75)
        hurt.both[1].send_signal(signal.SIGTERM)
        hurt.expect(f"(SIGTERM on {pair.hosts[1]}): go on with", on=0)
        hurt.start_again(1)
        hurt.finish()
    assert_same(pair, "lost", whole)


def test_a_job_goes_on_with_its_own_run_only(pair, whole, monkeypatch, capsys):
    monkeypatch.chdir(pair.folder)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "whole")
    assert main(command(whole)) == 0
    assert "whole was begun by this job: it goes on" in capsys.readouterr().err
    assert main([*command(whole), "--seed", "3"]) == 2
    assert "whole holds a run" in capsys.readouterr().err
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "another")
    assert main(command(whole)) == 2
    assert "whole holds a run" in capsys.readouterr().err
