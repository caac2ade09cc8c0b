"""Sharded training by several processes, any of which may be killed at any moment, over and over.

    python tests/helpers/train_group.py FOLDER KILLS

Torch is imported once; the processes of each attempt are forks, as many as torchrun would start. Half of the
kills come by the clock, half ahead of something that a process does to the disk. As torchrun does, the others
are ended too, and all start again. Prints a JSON object with what was found.
"""

import gc
import json
import os
import random
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed.checkpoint  # before the forks: once is enough
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from heedful import files
from heedful.runs import checkpoint
from heedful.runs.resume import TrainingState, newest, of_step, restore, save
from heedful.runs.saving import Saver
from heedful.tasks import recipe
from heedful.train import optimizer, processes
from heedful.train.average import MovingAverage

CPU = torch.device("cpu")
STEPS, EVERY, OPERATIONS = 12, 2, 120
RECIPE = recipe.make("lm", settings={"data.text": "none", "checkpoint.every": EVERY})


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = nn.Linear(5, 11), nn.Linear(11, 3)

    def forward(self, x_BC: torch.Tensor) -> torch.Tensor:
        return self.second(nn.functional.dropout(self.first(x_BC).tanh(), 0.2))


def work(rank: int, size: int, port: int, run: Path, kill_at: int) -> None:
    """One process of the group, from the newest checkpoint to the last step."""
    group = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in group.items()} | {"HEEDFUL_HANG_SECONDS": "0"}
    world = processes.join_world(CPU)
    saved = newest(run, lambda line: None) if world.leads else None
    (step,) = world.from_leader([0.0 if saved is None else float(saved.state["step"])], CPU)
    files._before = killer(kill_at)
    model: nn.Module = Net()
    if size > 1:
        mesh = init_device_mesh("cpu", (size,))
        fully_shard(model, mesh=mesh)
    state = TrainingState(model, optimizer.adamw(model, 0.01, 0.1), None, MovingAverage(model, 0.9))
    if step:
        restore(state, saved or of_step(run, int(step)))
    with Saver(run, world, CPU, lambda: None) as saver:
        while state.step < STEPS:
            state.step += 1
            torch.manual_seed(state.step)
            x_BC = torch.randn(13, 5)
            (model(x_BC) - x_BC[:, :3].sin()).square().mean().backward()
            for each in state.optimizers:
                each.step()
                each.zero_grad()
            state.average.after(state.step, model)
            if state.step % EVERY == 0:
                save(state, saver, RECIPE, {})
    processes.leave_world(world)


def killer(at: int):
    """Ends this process ahead of the n-th thing that it does to the disk, in whatever thread."""
    count = 0

    def before(op: str, path: Path) -> None:
        nonlocal count
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)

    return before


def attempt(run: Path, size: int, victim: int = -1, kill_at: int = 0, after: float = 0.0) -> bool:
    """All processes once; whether they came to the end. Who waits for one that was killed is ended too."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = {}
    for rank in range(size):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work(rank, size, port, run, kill_at if rank == victim else 0)
                code = 0
            except BaseException:  # noqa: BLE001 (the exit code tells)
                if victim < 0:
                    traceback.print_exc()
            finally:
                os._exit(code)
        children[child] = rank
    if after:
        time.sleep(after)
        with suppress(ProcessLookupError):
            os.kill(next(child for child, rank in children.items() if rank == victim), signal.SIGKILL)
    whole = True
    while children:
        child, status = os.wait()
        del children[child]
        if status and whole:
            whole = False
            for other in children:
                os.kill(other, signal.SIGKILL)
    return whole


def result(run: Path) -> tuple[dict, dict]:
    return checkpoint.load(run / "checkpoints" / f"step-{STEPS}")


def same(a: Path, b: Path, exact: bool) -> bool:
    """Whether two runs ended alike."""
    one, two = result(a)[0], result(b)[0]
    close = torch.equal if exact else lambda x, y: torch.allclose(x, y, rtol=1e-5, atol=1e-7)
    return one.keys() == two.keys() and all(
        one[part].keys() == two[part].keys() and all(close(one[part][n], two[part][n]) for n in one[part])
        for part in one
    )


def fresh(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def main(folder: Path, kills: int) -> dict:
    torch.set_num_threads(1)
    gc.freeze()
    rng, found = random.Random(5), {"kills": 0, "by clock": 0, "runs": 0, "aside": 0, "same": True}
    for size in (4, 2, 1):
        assert attempt(fresh(folder, f"whole{size}"), size)
    began = time.perf_counter()
    assert attempt(fresh(folder, "timed"), 4)
    length = time.perf_counter() - began
    while found["kills"] < kills:
        run = fresh(folder, f"run{found['runs']}")
        done = False
        while not done and found["kills"] < kills:
            by_clock = rng.random() < 0.5
            when = {"after": rng.uniform(0.2, 1) * length} if by_clock else {}
            done = attempt(run, 4, rng.randrange(4), 0 if by_clock else rng.randrange(1, OPERATIONS), **when)
            found["kills"] += not done
            found["by clock"] += by_clock and not done
            left = (run / "checkpoints").iterdir() if (run / "checkpoints").is_dir() else ()
            found["aside"] += not done and any(".tmp-" in path.name for path in left)
        assert done or attempt(run, 4)
        found["runs"] += 1
        found["same"] &= same(folder / "whole4", run, exact=True)
    # a run that is begun by four, goes on with two, and ends with one, each interrupted in between
    run = fresh(folder, "fewer")
    for size in (4, 2, 1):
        if size > 1:
            attempt(run, size, 0, 40 if size == 4 else 75)
        else:
            found["went on after"] = newest(run, print).state["step"]
            assert attempt(run, size)
    found["fewer"] = same(folder / "whole1", run, exact=False)
    found["wider"] = same(folder / "whole4", folder / "whole1", exact=False)
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
