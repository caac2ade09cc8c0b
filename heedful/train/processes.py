"""Many processes: each takes its share of a step's examples, and gradients are added up.

Under `torchrun` the same command trains on several GPUs or machines. Data parallel keeps a copy of the model
in every process; "fsdp" keeps a shard in each (FSDP2). Either way a step has the same examples and the same
divisor, the number of target tokens over all processes, so the losses are those of one process, to rounding.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..data.batch import Seen, seen_in
from ..errors import BadInput, Lost
from ..parts.blocks import Block
from . import heartbeat, meeting
from .heartbeat import Heartbeat, Phase
from .loss import Loss

PATIENCE = timedelta(minutes=30)  # for the other processes, which may be reading a large corpus
SENTENCE = 4096  # bytes of a text that all processes get


@dataclass(frozen=True)
class World:
    """Which process this is, of how many."""

    rank: int = 0
    size: int = 1
    launcher: int = field(default_factory=os.getppid)  # the process that started this one
    pulse: Heartbeat | None = field(default=None, compare=False)

    @property
    def leads(self) -> bool:
        """The one process that prints and writes."""
        return self.rank == 0

    @property
    def abandoned(self) -> bool:
        """Whether torchrun was killed: it has then ended none of its processes, and nobody else would."""
        return self.size > 1 and os.getppid() != self.launcher

    def mark(self, phase: Phase, step: int = 0) -> None:
        """Tell the others how far this process is: at a phase of a step."""
        if self.pulse is not None:
            self.pulse.mark(phase, step)

    def tell_end(self, why: str = "") -> None:
        """Tell the others that this process ends, and why, if that is of its own accord."""
        if self.pulse is not None:
            self.pulse.leave(why)

    @property
    def speaks(self) -> bool:
        """Whether this process says for its machine which other one is gone."""
        return self.leads or (self.pulse is not None and self.pulse.speaks)

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def any(self, here: bool, device: torch.device) -> bool:
        """Whether it is so in any process."""
        return here if self.size == 1 else bool(self.sum(torch.tensor(int(here), device=device)))

    def from_leader(self, numbers: list[float], device: torch.device) -> list[float]:
        """The leading process's numbers, in every process; as many everywhere."""
        if self.size == 1:
            return numbers
        shared = torch.tensor(numbers, dtype=torch.float64, device=device)
        dist.broadcast(shared, 0)
        return shared.tolist()

    def take_over(self, model: nn.Module) -> None:
        """Every process gets the leading one's weights."""
        if self.size > 1:
            for weight in model.parameters():
                dist.broadcast(weight.data, 0)

    def texts(self, mine: str, device: torch.device) -> list[str]:
        """A short text of each process, in every process."""
        if self.size == 1:
            return [mine]
        padded = bytearray(mine.encode(errors="replace")[:SENTENCE].ljust(SENTENCE, b"\0"))
        sent = torch.frombuffer(padded, dtype=torch.uint8).to(device)
        found = [torch.empty_like(sent) for _ in range(self.size)]
        dist.all_gather(found, sent)
        return [bytes(text.tolist()).rstrip(b"\0").decode(errors="replace") for text in found]

    def wait(self, device: torch.device) -> None:
        """Until every process has come as far."""
        self.any(False, device)

    def add_gradients(self, model: nn.Module) -> None:
        """Data parallel: every process gets the sum of all gradients. FSDP has done so already."""
        if self.size == 1 or is_sharded(model):
            return
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        flat = torch.cat([g.flatten() for g in gradients])  # one message instead of hundreds
        dist.all_reduce(flat)
        for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))


def join_world(device: torch.device) -> World:
    """The world torchrun describes in the environment; a world of one without it."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return World()
    rank, backend = int(os.environ["RANK"]), "nccl" if device.type == "cuda" else "gloo"
    if dist.is_initialized():
        return World(rank, size, pulse=heartbeat.start(rank, size))
    try:
        if not meeting.shared():
            dist.init_process_group(backend, timeout=PATIENCE)
            return World(rank, size, pulse=heartbeat.start(rank, size))
        with meeting.Meeting(rank, size, PATIENCE) as name:
            pulse = heartbeat.start(rank, size, name)
            store = dist.PrefixStore(name, meeting.connect(PATIENCE))
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
            return World(rank, size, pulse=pulse)
    except RuntimeError as error:
        raise Lost(f"process {rank} on {socket.gethostname()} cannot reach the others: {error}") from error


def own_device(device: torch.device) -> torch.device:
    """Under torchrun each process of a machine takes a GPU of its own."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if device.type != "cuda" or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return device
    if local >= torch.cuda.device_count():
        raise BadInput(
            f"process {local + 1} of this machine finds {torch.cuda.device_count()} GPUs: start fewer"
        )
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def leave_world(world: World) -> None:
    world.tell_end()
    if world.size > 1 and dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def connected(world: World) -> Iterator[None]:
    """Say plainly what the transport says in its own words when the process at its other end is gone."""
    try:
        yield
    except RuntimeError as error:
        if world.size == 1 or not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise
        gone = "" if world.pulse is None else world.pulse.missing()
        world.tell_end()
        raise Lost(gone or "another process of this run has ended, and the rest cannot go on") from error


def is_sharded(model: nn.Module) -> bool:
    return isinstance(model, ShardedModel)


@dataclass(frozen=True)
class IdleBatch:
    """A batch whose loss counts nothing, for a process whose share of a step is empty.

    Every process must make the same calls, or the others wait for it.
    """

    batch: Any
    count: int = 0
    ids: tuple[int, ...] = ()

    @property
    def seen(self) -> Seen:
        return Seen(0, seen_in([self.batch]).unit)

    def to(self, device: torch.device) -> IdleBatch:
        return IdleBatch(self.batch.to(device))


def fill_idle(mine: Sequence[Any], batches: int, anyone: Callable[[], Any]) -> list[Any]:
    """This process's micro-batches, made up to the number that every process has."""
    return [*mine, *(IdleBatch(anyone()) for _ in range(batches - len(mine)))]


def with_idle(loss_of: Callable[[nn.Module, Any], Loss]) -> Callable[[nn.Module, Any], Loss]:
    """A loss that knows idle batches."""

    def loss(model: nn.Module, batch: Any) -> Loss:
        if not isinstance(batch, IdleBatch):
            return loss_of(model, batch)
        found = loss_of(model, batch.batch)
        expert_load_LE = None if found.expert_load_LE is None else 0 * found.expert_load_LE
        return Loss(0 * found.total, 0 * found.nll, 0, expert_load_LE)

    return loss


# Sharded weights: whole ones to write them down, shards to go on.


def whole(tensor: Tensor) -> Tensor:
    """A tensor in one piece; if it is sharded, every process must ask."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def placed_as(weight: Tensor, tensor: Tensor) -> Tensor:
    """A whole tensor, sharded as a weight of its shape is."""
    if not hasattr(weight, "full_tensor") or tensor.shape != weight.shape:
        return tensor.to(weight.device)
    from torch.distributed.tensor import distribute_tensor

    like: Any = weight
    return distribute_tensor(tensor.to(weight.device), like.device_mesh, like.placements)


class ShardedModel(nn.Module):
    """A model for FSDP: all that is done with it happens inside one forward pass, with gathered weights."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, do: Callable[[nn.Module], Any]) -> Any:
        return do(self.model)


def bare(model: nn.Module) -> nn.Module:
    """The model itself, whose paths are those of the plain one."""
    return model.model if isinstance(model, ShardedModel) else model


def within(model: nn.Module, do: Callable[[nn.Module], Any]) -> Any:
    """Do something with a model that may be sharded; then every process must."""
    if not isinstance(model, ShardedModel):
        return do(model)
    done = model(do)
    if not torch.is_grad_enabled():  # with gradients, the backward pass shards the weights again
        model.reshard()  # type: ignore[operator]
    return done


def sharded_loss(loss_of: Callable[[nn.Module, Any], Loss]) -> Callable[[nn.Module, Any], Loss]:
    """The loss of a sharded model, for the loop."""

    def loss(whole: nn.Module, batch: Any) -> Loss:
        def sums(model: nn.Module) -> tuple[Tensor, Tensor, Tensor | None]:
            found = loss_of(model, batch)
            return found.total, found.nll, found.expert_load_LE

        total, nll, expert_load_LE = within(whole, sums)
        return Loss(total, nll, batch.count, expert_load_LE)

    return loss


def shard(model: nn.Module, world: World, device: torch.device) -> ShardedModel:
    """Split every weight over the processes (FSDP2), block by block; gradients are added, not averaged."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    mesh = init_device_mesh(device.type, (world.size,))
    for module in model.modules():
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    whole = ShardedModel(model)
    fully_shard(whole, mesh=mesh)
    for module in whole.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)  # the loss was divided by the tokens of all processes
            module.set_force_sum_reduction_for_comms(True)
    return whole
