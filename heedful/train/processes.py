"""Many processes: each takes its share of a step's examples, and gradients are added up.

Under `torchrun` the same command trains on several GPUs or machines; `parallel/` spreads the model over them.
Every way of it has the same examples in a step and the same divisor, the number of target tokens over all
processes, so the losses are those of one process, to rounding.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..data.batch import Seen, seen_in
from ..errors import BadInput, Lost
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
    launcher: int = field(default_factory=os.getppid, repr=False)  # the process that started this one
    pulse: Heartbeat | None = field(default=None, compare=False, repr=False)
    tensor: int = 1  # processes that compute each example together
    group: Any = field(
        default=None, compare=False, repr=False
    )  # those with other examples than this one, if not all

    @property
    def leads(self) -> bool:
        """The one process that prints and writes."""
        return self.rank == 0

    @property
    def share(self) -> int:
        """Which share of a step's examples this process has."""
        return self.rank // self.tensor

    @property
    def shares(self) -> int:
        """How many such shares there are."""
        return self.size // self.tensor

    def in_groups(self, tensor: int) -> World:
        """The same world, where so many processes compute each example together; all must call this."""
        if tensor == 1 or self.size == 1:
            return self
        groups = [dist.new_group(list(range(first, self.size, tensor))) for first in range(tensor)]
        return replace(self, tensor=tensor, group=groups[self.rank % tensor])

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
        """The sum over all shares of a step's examples."""
        if self.shares > 1:
            dist.all_reduce(value, group=self.group)
        return value

    def any(self, here: bool, device: torch.device) -> bool:
        """Whether it is so in any process."""
        if self.size == 1:
            return here
        found = torch.tensor(int(here), device=device)
        dist.all_reduce(found)
        return bool(found)

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


def is_spread(model: nn.Module) -> bool:
    """Whether a process has only a part of some weight."""
    return any(hasattr(weight, "full_tensor") for weight in model.parameters())


def placed_as(weight: Tensor, tensor: Tensor) -> Tensor:
    """A whole tensor, sharded as a weight of its shape is."""
    if not hasattr(weight, "full_tensor") or tensor.shape != weight.shape:
        return tensor.to(weight.device)
    from torch.distributed.tensor import distribute_tensor

    like: Any = weight  # every process has the whole tensor, so none is sent
    return distribute_tensor(tensor.to(weight.device), like.device_mesh, like.placements, src_data_rank=None)
