"""A trainer small enough to be killed five hundred times, which treats its folder as the real one does.

python tests/helpers/train_toy.py RUN [--steps N] [--every K] [--keep K] [--resume] [--background]
Exit codes: 0 done, 2 bad input, 3 not finite, 4 no readable checkpoint, 5 disk full, 75 stopped by a signal
and saved.

`Server` is a process that has imported torch once and is forked for each run; a run in it can be told to kill
itself, or to send itself a signal, ahead of the n-th thing that it does to the disk.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import json
import math
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from heedful import files
from heedful.errors import BadInput, DiskFull, NoCheckpoint, NotFinite
from heedful.runs import checkpoint
from heedful.runs.folder import Lock, RunFolder, Stop
from heedful.runs.saving import Saver
from heedful.train.processes import World

DONE, FAILED, BAD_INPUT, NOT_FINITE, NO_CHECKPOINT, DISK_FULL, STOPPED = 0, 1, 2, 3, 4, 5, 75
SEED = 7


class Toy:
    """A network with dropout and its optimizer; each step is a function of the weights and (seed, step)."""

    def __init__(self) -> None:
        torch.manual_seed(SEED)
        self.model = nn.Sequential(nn.Linear(5, 11), nn.Tanh(), nn.Dropout(0.2), nn.Linear(11, 3))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def step(self, step: int) -> float:
        torch.manual_seed(SEED * 1_000_003 + step)
        x = torch.randn(13, 5)
        loss = (self.model(x) - torch.sin(x[:, :3])).square().mean()
        if not math.isfinite(loss.item()):
            raise NotFinite(f"the loss of step {step} is {loss.item()}")
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def tensors(self) -> dict[str, dict[str, torch.Tensor]]:
        moments = {
            f"{number}.{name}": value
            for number, values in self.optimizer.state_dict()["state"].items()
            for name, value in values.items()
        }
        return {"model": self.model.state_dict(), "optimizer": moments}

    def restore(self, tensors: dict[str, dict[str, torch.Tensor]]) -> None:
        self.model.load_state_dict(tensors["model"])
        state: dict[int, dict[str, torch.Tensor]] = {}
        for key, value in tensors["optimizer"].items():
            number, name = key.split(".")
            state.setdefault(int(number), {})[name] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})


def facts() -> dict[str, object]:
    return {"torch": torch.__version__, "threads": torch.get_num_threads(), "world": 1, "accumulation": 1}


def begin(toy: Toy, run: RunFolder) -> int:
    """Put back the newest whole checkpoint; the step it is of."""
    found = run.latest()
    if found is None:
        run.metrics.drop_after(0)
        return 0
    folder, remarks = found
    for remark in remarks:
        print(remark, file=sys.stderr)
    tensors, state = checkpoint.load(folder)
    toy.restore(tensors)
    run.metrics.drop_after(state["step"])
    return state["step"]


def train(args: argparse.Namespace) -> int:
    with (
        Stop() as stop,
        RunFolder.open(args.run) if args.resume else create(args) as run,
        Saver(args.run, World(), torch.device("cpu"), run.sync_logs) as saver,
    ):
        toy = Toy()
        step = begin(toy, run)
        while step < args.steps:
            step += 1
            run.metrics.append({"step": step, "loss": toy.step(step)})
            if step % args.every == 0 or step == args.steps or stop.asked:
                saver.save(step, toy.tensors(), {"step": step, "facts": facts()}, args.keep)
            if not args.background or stop.asked or saver.failed:
                saver.wait()
            if stop.asked and step < args.steps:
                run.status("interrupted", step=step, signal=stop.asked)
                return STOPPED
        saver.wait()
        run.write_model(toy.model.state_dict(), step=step)
        run.status("done", step=step)
    return DONE


def create(args: argparse.Namespace) -> RunFolder:
    return RunFolder.create(args.run, {"seed": SEED, "steps": args.steps}, config={"width": 11})


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=2)
    parser.add_argument("--keep", type=int, default=2)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--background", action="store_true", help="go on while a checkpoint is written")
    try:
        return train(parser.parse_args(argv))
    except (BadInput, DiskFull, NotFinite) as error:
        print(f"error: {error}", file=sys.stderr)
        kinds = {NoCheckpoint: NO_CHECKPOINT, DiskFull: DISK_FULL, NotFinite: NOT_FINITE}
        return kinds.get(type(error), BAD_INPUT)


@contextmanager
def memory() -> Iterator[Path]:
    """A folder in memory where the system has one: a kill spares what the system holds."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as name:
        yield Path(name)


# Other things to be done in a process that may be killed.


def numbers(seed: float) -> dict[str, dict[str, torch.Tensor]]:
    """Tensors that a seed tells apart."""
    return {
        "model": {"a": torch.full((3, 5), seed), "b": torch.arange(7)},
        "optimizer": {"c": torch.full((2,), seed)},
    }


def save_again(run: str, step: str, seed: str) -> int:
    """Write another checkpoint of a step that has one."""
    checkpoint.save(Path(run), int(step), numbers(float(seed)), {"seed": float(seed)})
    return DONE


def publish(run: str, seed: str) -> int:
    with RunFolder.open(run) as folder:
        folder.write_model(numbers(float(seed))["model"])
    return DONE


def leave(run: str) -> int:
    """End like any program, without giving the folder up."""
    RunFolder.open(run)
    atexit._run_exitfuncs()
    return DONE


def hold_and_die(run: str) -> int:
    """Own a folder, start a child that outlives us, and be killed."""
    RunFolder.open(run)
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, b"!")
        time.sleep(5)
        os._exit(0)
    os.read(reading, 1)  # the child has begun, and let go of what it must not hold
    os.kill(os.getpid(), signal.SIGKILL)
    return FAILED


def take_turns(path: str, processes: str, rounds: str) -> int:
    """Several processes take one lock over and over; two at once would find each other's mark."""
    children = [os.fork() or turns(Path(path), int(rounds)) for _ in range(int(processes))]
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


def turns(path: Path, rounds: int) -> int:
    code, had = FAILED, 0
    try:
        while had < rounds:
            try:
                lock = Lock(path)
            except BadInput:
                continue
            mark = path.with_suffix(".mark")
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            os.unlink(mark)
            lock.release()
            had += 1
        code = DONE
    finally:
        os._exit(code)


# The server.


class Server:
    """Runs `main` and its like in forks of a process that has torch; one at a time."""

    def __init__(self, folder: Path) -> None:
        shared, self.errors = folder / "flags", folder / "errors"
        shared.write_bytes(bytes(mmap.PAGESIZE))
        self.flags = mapped(shared)  # byte 0: a save is at work; byte 1: signals are listened to
        self.errors.touch()
        command = [sys.executable, __file__, "--serve", str(shared), str(self.errors)]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        assert self.process.stdout.readline() == "ready\n"

    def start(
        self, *args: object, do: str = "main", kill_at: int = 0, signal_at: int = 0, signal: int = 0
    ) -> int:
        """Begin; returns the process id. kill_at, signal_at: before which operation on the disk, from 1."""
        self.flags[:16] = bytes(16)
        request = {"do": do, "args": [str(a) for a in args], "kill_at": kill_at, "signal_at": signal_at}
        print(json.dumps({**request, "signal": signal}), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def wait(self) -> int:
        """The exit code; minus the signal's number if a signal ended the process."""
        print(file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def run(self, *args: object, **faults) -> int:
        self.start(*args, **faults)
        return self.wait()

    def wait_until_listening(self) -> None:
        began = time.perf_counter()
        while not self.flags[1]:
            assert time.perf_counter() - began < 20
            time.sleep(0.001)

    @property
    def in_save(self) -> bool:
        return self.flags[0] == 1

    @property
    def said(self) -> str:
        return self.errors.read_text()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.flags.close()


def mapped(path: Path | str) -> mmap.mmap:
    """Memory that processes share, and that a kill leaves as it is."""
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), mmap.PAGESIZE)


def serve(shared: str, errors: str) -> None:
    torch.set_num_threads(1)
    toy = Toy()  # the first optimizer imports a thousand modules: once is enough
    toy.model(torch.zeros(1, 5))
    toy.optimizer.step()  # but no backward pass: its threads would not survive a fork
    gc.freeze()
    print("ready", flush=True)
    while line := sys.stdin.readline():
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os._exit(work(request, shared, errors))
        print(child, flush=True)
        sys.stdin.readline()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def work(request: dict, shared: str, errors: str) -> int:
    """In the fork: put the faults in place and do what is asked."""
    os.dup2(os.open(errors, os.O_WRONLY | os.O_TRUNC), 2)
    flags = mapped(shared)
    files._before = hook(request, flags)
    checkpoint.save, Saver.work = flagged(checkpoint.save, flags), flagged(Saver.work, flags)
    try:
        call = globals()[request["do"]]
        return call(request["args"]) if call is main else call(*request["args"])
    except BaseException:  # noqa: BLE001 (whatever it is, the exit code tells)
        traceback.print_exc()
        return FAILED


def hook(request: dict, flags: mmap.mmap):
    """Counts what is done to the disk, and strikes ahead of the number asked for."""
    count = 0

    def before(op: str, path: Path) -> None:
        nonlocal count
        flags[1] = 1
        count += 1
        if count == request["kill_at"]:
            os.kill(os.getpid(), signal.SIGKILL)
        if count == request["signal_at"]:
            os.kill(os.getpid(), request["signal"])

    return before


def flagged(call, flags: mmap.mmap):
    """The same, with a flag raised while it is at work that a kill leaves raised."""

    def wrapped(*args, **options):
        flags[0] = 1
        try:
            return call(*args, **options)
        finally:
            flags[0] = 0

    return wrapped


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
    else:
        torch.set_num_threads(1)
        sys.exit(main(sys.argv[1:]))
