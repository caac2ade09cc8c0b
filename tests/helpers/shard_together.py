"""Tensors spread in many ways, saved and read again in other ways, by processes that torchrun has started.

    torchrun --nproc-per-node 4 tests/helpers/shard_together.py FOLDER

Process R writes what it found to FOLDER/R.json.
"""

import json
import os
import sys
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from heedful import files
from heedful.errors import BadInput, DiskFull, NotFinite
from heedful.runs import checkpoint
from heedful.runs.saving import Saver
from heedful.train import processes

CPU = torch.device("cpu")
SHAPES = {"even": (8, 12), "uneven": (7, 5), "short": (3, 2), "cube": (5, 4, 6), "one": (), "bias": (9,)}
# {name: (mesh, how each of its axes places a tensor)}
WAYS = {
    "fsdp": ((4,), lambda ndim: [Shard(0)]),
    "hsdp": ((2, 2), lambda ndim: [Replicate(), Shard(0)]),
    "tensor": ((2, 2), lambda ndim: [Shard(0), Shard(ndim - 1)]),
    "columns": ((4,), lambda ndim: [Shard(ndim - 1)]),
    "copies": ((2, 2), lambda ndim: [Replicate(), Replicate()]),
}


def numbers() -> dict[str, torch.Tensor]:
    made = torch.Generator().manual_seed(3)
    found = {name: torch.randn(shape, generator=made) for name, shape in SHAPES.items()}
    return found | {"half": torch.randn(6, 4, generator=made).bfloat16(), "count": torch.arange(11)}


def spread(way: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same tensors, placed; single numbers stay plain, as counters of optimizers do."""
    shape, places = WAYS[way]
    mesh = init_device_mesh("cpu", shape)
    return {
        name: distribute_tensor(tensor, mesh, places(tensor.ndim)) if tensor.ndim else tensor.clone()
        for name, tensor in tensors.items()
    }


def same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    return found.keys() == expected.keys() and all(
        torch.equal(processes.whole(found[name]), tensor) for name, tensor in expected.items()
    )


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.up, self.down = nn.Linear(6, 9), nn.Linear(9, 6)

    def forward(self, x_BC: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x_BC).relu())


def both_ways(model: nn.Module) -> nn.Module:
    """Tensor parallel by two, and FSDP2 over the other axis: the same axis of a weight is cut twice."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    parallelize_module(model, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return fully_shard(model, mesh=mesh["data"])


def main(folder: Path) -> dict:
    world = processes.join_world(CPU)
    found: dict = {"pieces": {}, "reshards": {}}
    tensors = numbers()

    with Saver(folder / "run", world, CPU, lambda: None) as saver:
        for step, way in enumerate(WAYS, 1):
            placed = spread(way, tensors)
            saver.save(step, {"model": placed, "average": {"plain": tensors["even"]}}, {"step": step}, 9)
            saver.wait()
            path = folder / "run" / "checkpoints" / f"step-{step}"
            found["pieces"][way] = [p.name for p in sorted(path.iterdir())]
            whole, state = checkpoint.load(path)
            assert same(whole["model"], tensors) and same(whole["average"], {"plain": tensors["even"]})
            assert state == {"step": step}
            for other in WAYS:
                empty = spread(other, {name: torch.zeros_like(tensor) for name, tensor in tensors.items()})
                checkpoint.Saved.open(path).read("model", empty)
                found["reshards"][f"{way} {other}"] = same(empty, tensors)

        # a model under tensor parallelism and FSDP2 at once
        plain, model = TwoLayers(), both_ways(TwoLayers())
        placed = {name: weight.detach() for name, weight in model.named_parameters()}
        found["cut twice"] = [type(p).__name__ for p in placed["up.weight"].placements]
        saver.save(20, {"model": placed}, {}, 9)
        saver.wait()
        whole, _ = checkpoint.load(folder / "run" / "checkpoints" / "step-20")
        expected = {name: weight.detach() for name, weight in plain.named_parameters()}
        found["both"] = same(whole["model"], expected)

        found["errors"] = errors(folder / "run", world, saver, tensors)
    processes.leave_world(world)
    return found


def errors(run: Path, world, saver: Saver, tensors: dict) -> list:
    """What each process is told when something goes wrong in one of them."""
    told = []
    poisoned = {name: tensor.clone() for name, tensor in tensors.items()}
    poisoned["even"][-1, -1] = torch.nan  # of the last process under fsdp
    for step, spoiled in ((30, poisoned), (31, tensors), (32, tensors)):
        placed = spread("fsdp", spoiled)
        honest = files.put
        if step == 31 and world.rank == 2:
            files.put = full
        saver.save(step, {"model": placed}, {}, 9)
        try:
            saver.wait()
            told.append("saved")
        except (NotFinite, DiskFull, BadInput) as error:
            told.append([type(error).__name__, str(error)])
        files.put = honest
        world.wait(CPU)
        told.append(sorted(p.name for p in (run / "checkpoints").iterdir() if p.name.startswith("step-3")))
        world.wait(CPU)
    return told


def full(handle: int, data: memoryview) -> int:
    raise OSError(28, os.strerror(28))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    (folder / "run").mkdir(exist_ok=True)
    answer = main(folder)
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(answer))
