"""Transfer between host and device without waiting: the host asks for numbers before it gives the device more
to do.

A plain `tolist`, or `torch.tensor(..., device="cuda")`, stops the host until the device has done all that it
was given so far. Then the device has nothing to do until the host comes back with more.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEAD = 4  # tokens that a device is given to write before the host looks at those before


class HostCopy:
    """Tensors of one shape on their way to the host.

    What the device is given to do meanwhile does not delay them.
    """

    def __init__(self, *columns: Tensor) -> None:
        self.columns, self.sent = columns, None
        if columns[0].is_cuda:
            # Each copy takes its time, so all go at once. A float64 holds every token, node and float32
            # exactly.
            whole = columns[0][None] if len(columns) == 1 else torch.stack([x.double() for x in columns])
            self.columns = whole.to("cpu", non_blocking=True).unbind()  # into pinned memory
            self.sent = torch.cuda.current_stream(columns[0].device).record_event()

    def wait(self) -> tuple[Tensor, ...]:
        """The tensors, once they are here; integers may come as floats."""
        if self.sent is not None:
            self.sent.synchronize()
        return self.columns


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on the device, which copies it when it gets there."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)
