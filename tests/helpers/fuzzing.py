"""Requests that schemathesis makes from the description of a service."""

import subprocess
import sys
from pathlib import Path
from typing import Any

CONFIG = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 413, 415]
"""


def fuzz(server: Any, tmp_path: Path, cases: int, *options: str) -> str:
    """Let schemathesis send requests that it makes from the description; what it reports."""
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG)
    done = subprocess.run(
        [
            sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run",
            f"http://127.0.0.1:{server.port}/openapi.json", "--max-examples", str(cases), "--seed", "3",
            "--warnings", "off", "--no-color",
            *options,
        ],
        capture_output=True, text=True, cwd=tmp_path, timeout=7200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout
