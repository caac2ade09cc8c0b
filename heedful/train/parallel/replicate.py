"""Copies: every process has the whole model; buckets of gradients are added during the backward pass."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from .wrapped import Wrapped

BUCKET_MEGABYTES = 25.0  # torch's own: large enough for a network, small enough to begin early


class WithUnused(Wrapped):
    """A wrapped model, and a weight that nobody uses.

    Which weights are used may differ between batches and processes, so torch looks for unused ones in each
    pass. Where it finds none, it says in every run that it should not have looked.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.unused = nn.Parameter(next(model.parameters()).new_zeros(1))


def replicate(model: nn.Module, bucket_megabytes: float = BUCKET_MEGABYTES) -> DistributedDataParallel:
    """Gradients are views of the buckets, so there is no second copy of them.

    A weight that a micro-batch does not use has a gradient of 0 from it.
    """
    # A graph of torch.compile is one block, so gradients come block by block without its own splitting.
    torch._dynamo.config.optimize_ddp = False
    made = DistributedDataParallel(
        WithUnused(model),
        bucket_cap_mb=bucket_megabytes,
        gradient_as_bucket_view=True,
        find_unused_parameters=True,
        init_sync=False,  # all have the same weights: from the seed, or from the checkpoint
    )
    made.broadcast_buffers = False  # tables, which are the same everywhere
    made.register_comm_hook(None, add_up)
    return made


def add_up(state: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """The sum over all processes: the loss was divided by the tokens of all of them."""
    sent = dist.all_reduce(bucket.buffer(), async_op=True)
    return sent.get_future().then(lambda done: done.value()[0])
