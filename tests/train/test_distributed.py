"""Two processes give the losses of one, on the same global batch."""

import subprocess
import sys
from pathlib import Path

import pytest
from helpers import train_together

SCRIPT = Path(train_together.__file__)


def losses(processes: int, *kind: str) -> list[list[float]]:
    launch = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        if processes > 1
        else []
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *launch, str(SCRIPT), *kind],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [[float(x) for x in line.split()] for line in done.stdout.splitlines() if line[:1].isdigit()]


# Seen: 2e-7, the rounding of fp32, for Muon too; a shard orthogonalized by itself would be off by 1e-2.
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_two_processes_give_the_losses_of_one(optimizer, tolerance=1e-6):
    alone = losses(1, "ddp", optimizer)
    for kind in ("ddp", "fsdp"):
        together = losses(2, kind, optimizer)
        assert len(alone) == len(together) == 8
        for one, two in zip(alone, together, strict=True):
            assert two[0] == pytest.approx(one[0], rel=tolerance), kind  # the loss
            assert two[1] == pytest.approx(one[1], rel=tolerance), kind  # the gradient's norm
            assert two[2] == one[2] == 54  # tokens over all processes
