"""What several tests share with tests/cli/test_cli.py."""

import subprocess
import sys


def start(*args, **how):
    """heedful in a process of its own."""
    command = [sys.executable, "-m", "heedful", *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)
