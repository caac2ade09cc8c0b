"""Prediction: whether the costs that `heedful info` and `heedful plan` predict are those that are measured.

On a GPU that `heedful plan` knows, the time is predicted as it does. Elsewhere, or with --utilization, it is
the FLOPs of a step over the matrix-product rate of this machine and the share of it that training is said to
reach. The memory is that of weights, gradients, optimizer and activations.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

from ..errors import BadInput
from .host import Host
from .measure import Failed, alone
from .records import append, output_of
from .table import NOTHING, milliseconds, percent, size, table
from .work import TrainGPT2, Work, as_json, choose, settings

UTILIZATION = {"cpu": 0.6, "cuda": 0.5}  # of the matrix-product rate, unless --utilization says another
TURNS = 5


def works_of(args: Any, device: str) -> dict[str, Work]:
    """The training works, and those with GPT-2's parts with half the batch too: errors should be the same."""
    known = {name: work for name, work in settings(device, args.small).items() if work.trains}
    halves = {
        f"{name}-half": replace(work, batch=work.batch // 2)
        for name, work in known.items()
        if isinstance(work, TrainGPT2)
    }
    return choose(args.work, known | halves)


def prediction(args: Any, host: Host) -> int:
    """A line for each work: predicted, measured, and by how much it was wrong."""
    if args.only or args.peer:
        raise BadInput("costs measures heedful alone: leave out --only and --peer")
    share = args.utilization
    works = works_of(args, host.device)
    host.introduce(args)
    records: list[dict[str, Any]] = []
    for name, work in works.items():
        host.say(name)
        records.append({**host.shared, "bench": "costs", "work": name, **one(work, host, share)})
        if (where := output_of(args)) is not None:
            append(where, records[-1:])
    host.say("")
    if args.json:
        print(json.dumps({"results": records}, indent=2))
    else:
        print(f"\n{how_predicted(records)}\n\n{prediction_table(records)}")
    return 0 if all(r["failed"] is None for r in records) else 1


def how_predicted(records: list[dict[str, Any]]) -> str:
    """Where the times come from."""
    shares = {r["utilization_predicted"] for r in records if not r["failed"]}
    if shares == {None}:
        return "predicted as by heedful plan"
    return f"predicted at {' or '.join(map(percent, shares))} of the peak matrix-product rate"


def one(work: Work, host: Host, share: float | None) -> dict[str, Any]:
    """What was predicted of a work and what was measured; share: of the matrix-product rate."""
    predicted = host.worker.ask("predict", work=as_json(work), place=asdict(host.place))
    worker = host.start(host.place.threads, True)
    try:
        found = alone(worker, work, host.place, TURNS)
    except Failed as error:
        return {"sizes": as_json(work), "predicted": predicted, "failed": str(error)}
    finally:
        worker.close()
    seconds = found.seconds
    if share is None and "seconds" not in predicted:
        share = UTILIZATION[host.device]
    expected = predicted["seconds"] if share is None else predicted["flops"] / host.ceilings["flops"] / share
    return {
        "sizes": as_json(work),
        "utilization_predicted": share,
        "utilization": predicted["flops"] / host.ceilings["flops"] / seconds,
        "flops": predicted["flops"],
        "ms_predicted": 1000 * expected,
        "ms": 1000 * seconds,
        "ms_error": expected / seconds - 1,
        "memory_predicted": predicted["memory"],
        "memory_bytes": found.memory,
        "memory_error": predicted["memory"] / found.memory - 1 if found.memory else None,
        "failed": None,
    }


TIME, MEMORY = ("ms predicted", "measured", "error"), ("memory predicted", "measured", "error")
HEADINGS = ("work", *TIME, "utilization", *MEMORY, "")


def prediction_table(records: list[dict[str, Any]]) -> str:
    return table(HEADINGS, [prediction_row(r) for r in records])


def prediction_row(r: dict[str, Any]) -> list[str]:
    if r["failed"]:
        return [r["work"], *[NOTHING] * 7, f"failed: {r['failed']}"]
    return [
        r["work"],
        milliseconds(r["ms_predicted"]),
        milliseconds(r["ms"]),
        signed(r["ms_error"]),
        percent(r["utilization"]),
        size(r["memory_predicted"]),
        size(r["memory_bytes"]),
        signed(r["memory_error"]),
        "",
    ]


def signed(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:+.0f} %"
