"""How the processes of an attempt meet: in a part of the store that no earlier attempt has written in.

torchrun keeps one store for all its attempts, and each of its launchers counts restarts for itself. Processes
that are started again would find there the addresses of those that have ended, and try to reach them
(https://github.com/pytorch/pytorch/issues/135712). So each process asks process 0 under a name of its own
where to meet, and only the living process 0 answers.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from contextlib import suppress
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import Store

PAUSE = 0.05  # seconds between two looks at who has asked


def connect(patience: timedelta) -> Store:
    """Another connection to the store of the rendezvous: nothing waits for an answer that another awaits."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=patience)


def shared() -> bool:
    """Whether torchrun keeps the store, so that earlier attempts may have written in it."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


class Meeting:
    """A name for this attempt, the same in all its processes; process 0 answers until the `with` ends."""

    def __init__(self, rank: int, size: int, patience: timedelta) -> None:
        self.rank, self.size, self.over = rank, size, threading.Event()
        self.store = connect(patience)
        self.name = ""
        self.thread = threading.Thread(target=self.answer, args=(connect(patience),), daemon=True)

    def __enter__(self) -> str:
        if self.rank == 0:
            self.name = secrets.token_hex(8)
            self.thread.start()
            return self.name
        mine = secrets.token_hex(8)
        self.store.set(f"heedful/asked/{self.rank}", mine)
        self.name = self.store.get(f"heedful/answer/{self.rank}/{mine}").decode()
        return self.name

    def __exit__(self, *_: object) -> None:
        self.over.set()
        if self.thread.is_alive():
            self.thread.join()

    def answer(self, store: Store) -> None:
        """Tell whoever asks. One that has ended may have asked too: its answer is read by nobody."""
        known: dict[int, bytes] = {}
        while not self.over.is_set():
            with suppress(RuntimeError):
                for rank in range(1, self.size):
                    key = f"heedful/asked/{rank}"
                    if store.check([key]) and (asked := store.get(key)) != known.get(rank):
                        store.set(f"heedful/answer/{rank}/{asked.decode()}", self.name)
                        known[rank] = asked
            time.sleep(PAUSE)
