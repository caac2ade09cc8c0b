"""Two "machines" of two processes each: own network, own host name, one disk; torchrun on each of them.

Where nobody may make network namespaces, the machines are two torchruns on this one's loopback.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

PORT = 29_871
NETWORK = "10.213.77."


@dataclass
class Machine:
    """What a command needs in front of it to run there."""

    name: str
    address: str
    interface: str
    prefix: list[str] = field(default_factory=list)

    @property
    def host(self) -> str:
        """What its processes call it."""
        return self.name if self.prefix else socket.gethostname()


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@contextmanager
def two_machines():
    """A pair of machines, with a cable between them if this machine lets us lay one."""
    names = [f"heedful-{os.getpid()}-{n}" for n in (1, 2)]
    cables = [f"hf{os.getpid() % 100_000}{end}" for end in "ab"]
    try:
        found = lay_cable(names, cables)
    except (OSError, subprocess.CalledProcessError):
        remove(names)
        yield [Machine(name, "127.0.0.1", "lo") for name in ("one", "two")]
        return
    try:
        yield found
    finally:
        remove(names)


def lay_cable(names: list[str], cables: list[str]) -> list[Machine]:
    if not all(map(shutil.which, ("ip", "unshare", "hostname"))):
        raise FileNotFoundError
    for name in names:
        run("ip", "netns", "add", name)
    run(
        "ip",
        "link",
        "add",
        cables[0],
        "netns",
        names[0],
        "type",
        "veth",
        "peer",
        cables[1],
        "netns",
        names[1],
    )
    found = []
    for number, (name, cable, host) in enumerate(zip(names, cables, ("one", "two"), strict=True), 1):
        inside = ["ip", "netns", "exec", name]
        run(*inside, "ip", "addr", "add", f"{NETWORK}{number}/24", "dev", cable)
        for link in (cable, "lo"):
            run(*inside, "ip", "link", "set", link, "up")
        named = ["unshare", "--uts", "sh", "-c", f'hostname {host}; exec "$@"', "sh"]
        run(*inside, *named, "true")
        found.append(Machine(host, f"{NETWORK}{number}", cable, [*inside, *named]))
    return found


def remove(names: list[str]) -> None:
    for name in names:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def launch(machine: Machine, first: Machine, job: str, folder: Path, args: list[str], **environment: str):
    """torchrun on a machine, two processes of four. What it says is added to folder/MACHINE.log."""
    words = [
        *machine.prefix,
        *(sys.executable, "-W", "ignore", "-m", "torch.distributed.run"),
        *("--nnodes", "2", "--nproc-per-node", "2", "--max-restarts", "5"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{first.address}:{PORT}", "--rdzv-id", job),
        *(f"--rdzv-conf=is_host={int(machine is first)}", "--local-addr", machine.address, *args),
    ]
    own = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": machine.interface}
    with (folder / f"{machine.name}.log").open("ab") as log:
        return subprocess.Popen(
            words,
            cwd=folder,
            env={**os.environ, **own, **environment},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def workers(launcher: int) -> dict[int, int]:
    """{rank: process} of those that a launcher has started."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == launcher:
                words = (path / "environ").read_bytes().split(b"\0")
                found |= {int(word[5:]): int(path.name) for word in words if word.startswith(b"RANK=")}
    return found


def wait_until(what, seconds: float = 120.0, told=lambda: ""):
    """What a function returns once it is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError(f"in vain: {told()}")


def end(*launchers: subprocess.Popen) -> None:
    """End what is left of some launchers, and of their processes."""
    family = [pid for launcher in launchers for pid in (*workers(launcher.pid).values(), launcher.pid)]
    for pid in family:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for launcher in launchers:
        launcher.wait()
