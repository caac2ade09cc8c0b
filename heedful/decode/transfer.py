"""Between host and device without waiting: what the host wants to look at is sent for before the device gets more to do.

A plain `tolist`, or `torch.tensor(..., device="cuda")`, stops the host until the device has done all that it was given
so far; and then the device has nothing to do until the host comes back with more.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

LEAD = 4  # tokens that a device is given to write before the host looks at those before


class Arriving:
    """Tensors of one shape on their way to the host. What the device is told to do meanwhile does not hold them up."""

    def __init__(self, *columns: Tensor) -> None:
        self.columns, self.sent = columns, None
        if columns[0].is_cuda:
            self.columns = packed(columns).to("cpu", non_blocking=True).unbind()  # into pinned memory
            self.sent = torch.cuda.current_stream(columns[0].device).record_event()

    def look(self) -> tuple[Tensor, ...]:
        """The tensors, once they are here; whole numbers may come as floats."""
        if self.sent is not None:
            self.sent.synchronize()
        return self.columns


def packed(columns: Sequence[Tensor]) -> Tensor:
    """In one piece, since each journey takes its time. A float64 holds every token, node and float32 exactly."""
    return torch.stack([column.double() for column in columns])


def sent(x: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on the device, which takes it when it comes to it."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)
