"""Copies: every process has the whole model; buckets of gradients are added during the backward pass."""

import warnings

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from .wrapped import Wrapped


def replicate(model: nn.Module, bucket_megabytes: float = 25.0) -> DistributedDataParallel:
    """Gradients are views of the buckets, so there is no second copy of them.

    A weight that a micro-batch does not use has a gradient of 0 from it.
    """
    # What the extra look for unused weights costs is small, and which they are may differ between batches.
    warnings.filterwarnings("ignore", "find_unused_parameters=True was specified", UserWarning)
    # A graph of torch.compile is one block, so gradients come block by block without its own splitting.
    torch._dynamo.config.optimize_ddp = False
    made = DistributedDataParallel(
        Wrapped(model),
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
