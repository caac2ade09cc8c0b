import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels of GPUs, number by number

import socket

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)  # tests run side by side, one a core
settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same random numbers for a test whichever others run before it, and beside which."""
    torch.manual_seed(0)


def only_here(connect):
    """A socket's `connect` that fails the test where another machine is meant."""

    def guarded(self, address, *rest):
        name = "localhost" if self.family == socket.AF_UNIX else str(address[0])
        if name not in ("localhost", "::1") and not name.startswith("127."):
            pytest.fail(f"a test wants to reach {name}")
        return connect(self, address, *rest)

    return guarded


socket.socket.connect = only_here(socket.socket.connect)  # type: ignore[method-assign]
socket.socket.connect_ex = only_here(socket.socket.connect_ex)  # type: ignore[method-assign]
