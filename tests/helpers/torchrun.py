"""What several tests share with tests/runs/test_torchrun.py."""

import sys
from pathlib import Path

from helpers import run_together

DRIVER = Path(run_together.__file__)


LAUNCH = [
    sys.executable,
    "-W",
    "ignore",
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node",
    "2",
]
