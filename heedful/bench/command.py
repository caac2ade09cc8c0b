"""The command: `heedful bench`, and `python -m heedful.bench`, which differ only in who reads the options.

Progress goes to stderr, results to stdout, and every result to a file of JSON lines as soon as its work is
done.
"""

from __future__ import annotations

from typing import Any

from ..errors import BadInput
from .beside import beside_peers, show_list
from .host import opened
from .prediction import prediction
from .scaling import scaling

WHAT = {"peers": beside_peers, "scaling": scaling, "costs": prediction}


def run_bench(args: Any) -> int:
    """Do what was asked for; 0 if heedful itself ran."""
    check(args)
    with opened(args) as host:
        return show_list(args, host) if args.list else WHAT[args.what](args, host)


def check(args: Any) -> None:
    """What can be seen to be wrong before anything is started."""
    for name in ("threads", "rounds", "at_once"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise BadInput(f"--{name.replace('_', '-')} must be at least 1, not {getattr(args, name)}")
    if not args.seconds > 0:
        raise BadInput(f"--seconds must be above 0, not {args.seconds}")
    if args.utilization is not None and not 0 < args.utilization <= 1:
        raise BadInput(f"--utilization must be above 0 and at most 1, not {args.utilization}")
