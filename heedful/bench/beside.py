"""Beside the peers: every chosen work, everyone taking turns; the table of each as soon as it is done."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from .host import Host
from .measure import Failed, Result, agreement, best_peer, contest, floor_of
from .peers import OURS, Contender
from .records import append, output_of
from .table import apart_table, contest_table, milliseconds, rate
from .work import READ, Work, as_json, choose, dropout_of, settings

BUSY = 0.1  # of a processor kept busy by others, above which figures are said to be doubtful


def beside_peers(args: Any, host: Host) -> int:
    """Measure, tell and record; 0 if heedful itself did every work."""
    works = choose(args.work, settings(host.device, args.small))
    absent = host.worker.ask("absent", asked=list(args.peer))
    host.introduce(args)
    where, everything, did = output_of(args), list[dict[str, Any]](), list[bool]()
    for name, work in works.items():
        try:
            records = one_work(args, host, name, work)
        except Failed as error:
            records = []
            host.say("")
            print(f"{name}: heedful could not create the weights: {error}", file=sys.stderr)
        did.append(any(r["failed"] is None for r in records if r["peer"] == OURS))
        everything += records
        if where is not None:
            append(where, records)
        if records and not args.json:
            show(host, name, work, records)
    if args.json:
        print(json.dumps({"results": everything, "absent": absent}, indent=2))
    else:
        if apart := reading_and_writing(everything):
            print(f"\nReading prompts apart from writing\n\n{apart_table(apart)}")
        print("".join(f"\n{peer}: {how}" for peer, how in absent.items()))
        print(f"results were appended to {where}" if where else "nothing was recorded: give --output FILE")
    return 0 if all(did) else 1


def show(host: Host, name: str, work: Work, records: Sequence[dict[str, Any]]) -> None:
    """The table of one work."""
    host.say("")
    print(f"\n{name}: {work.describe()}\n{floor_line(records)}\n\n{contest_table(records)}", flush=True)
    warn_of_others(records)


def one_work(args: Any, host: Host, name: str, work: Work) -> list[dict[str, Any]]:
    """The records of all contenders at one work."""
    everyone = contenders(args, host, work)
    with tempfile.TemporaryDirectory() as folder:
        place = replace(host.place, weights=folder)
        host.say(f"{name}: creating the weights")
        expected = host.worker.ask("prepare", work=as_json(work), place=asdict(place), folder=folder)
        predicted = host.worker.ask("predict", work=as_json(work), place=asdict(place))
        results = contest(
            everyone, work, place, args.rounds, args.seconds, host.say, host.start, args.at_once
        )
    return records_of(host, name, work, results, expected["answer"], predicted.get("flops"))


def contenders(args: Any, host: Host, work: Work) -> list[Contender]:
    """Who is to do a work here."""
    found = host.worker.ask("contenders", work=as_json(work), asked=list(args.peer))
    there = [Contender.from_json(each) for each in found]
    return chosen([each for each in there if each.variant.device in ("", host.device)], args.only)


def chosen(everyone: Sequence[Contender], only: Sequence[str]) -> list[Contender]:
    """heedful's plain way always, and of the rest those whose name contains a text that was asked for."""
    return [
        each
        for i, each in enumerate(everyone)
        if i == 0 or not only or any(text.lower() in each.name.lower() for text in only)
    ]


def records_of(
    host: Host, name: str, work: Work, results: Sequence[Result], expected: Any, flops: float | None
) -> list[dict[str, Any]]:
    """What is kept of each result."""
    precision = host.place.precision

    def numbers(contender: Contender) -> str:
        return contender.variant.numbers or precision

    shared = {**host.shared, "bench": "peers", "work": name, "sizes": as_json(work)}
    return [
        {**shared, **record(r, work, floor_of(work, numbers(r.contender), precision, flops, host.ceilings))}
        | rivals(r, best_peer(results, numbers, numbers(r.contender)))
        | {"numbers": numbers(r.contender), "agreement": agreed(r, work, expected)}
        for r in results
    ]


def reading_and_writing(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of works measured with and without writing: the time of the prompts, and the speed of the rest.

    The first new token belongs to the prompt. ratio: of writing, to the fastest peer with such numbers.
    """
    done = {(r["work"], r["contender"]): r for r in records if r["failed"] is None}
    found = []
    for (name, contender), whole in done.items():
        read = done.get((name + READ, contender))
        if read is None or whole["ms"] <= read["ms"]:
            continue
        sizes, writing = whole["sizes"], whole["ms"] - read["ms"]
        found.append(
            {
                "work": name,
                "contender": contender,
                "ours": whole["peer"] == OURS,
                "numbers": whole["numbers"],
                "read_ms": read["ms"],
                "read_per_second": 1000 * sizes["batch"] * sizes["prompt"] / read["ms"],
                "written_per_second": 1000 * sizes["batch"] * (sizes["new"] - 1) / writing,
            }
        )
    for row in found:
        rivals = [
            other["written_per_second"]
            for other in found
            if (other["work"], other["numbers"]) == (row["work"], row["numbers"]) and not other["ours"]
        ]
        row["ratio"] = row["written_per_second"] / max(rivals) if rivals else None
    return found


def agreed(r: Result, work: Work, expected: Any) -> dict[str, float] | None:
    """How near a result is to the answer of these weights; where dropout makes all differ, its rate."""
    if r.failed or not r.contender.variant.same_weights:
        return None
    if dropout := dropout_of(work):
        return {"dropout": dropout}
    return agreement(r.answer, expected)


def record(r: Result, work: Work, floor: Any) -> dict[str, Any]:
    """A result by itself."""
    failed, seconds = r.failed, r.seconds if r.turns and not r.failed else None
    return {
        "peer": r.contender.peer,
        "contender": r.contender.name,
        "version": r.contender.version,
        "failed": failed,
        "ms": None if seconds is None else 1000 * seconds,
        "turns_ms": [1000 * turn for turn in r.turns],
        "spread": r.spread if seconds and len(r.turns) > 1 else None,
        "tokens_per_second": work.tokens / seconds if seconds else None,
        "floor_ms": 1000 * floor.seconds,
        "floor_by": "arithmetic" if floor.arithmetic >= floor.moving else "traffic",
        "of_floor": floor.seconds / seconds if seconds and floor.seconds else None,
        "of_peak": floor.arithmetic / seconds if seconds and floor.flops else None,
        "of_bandwidth": floor.moving / seconds if seconds and floor.traffic else None,
        "compile_seconds": r.compiling,
        "memory_bytes": r.memory,
        "busy_elsewhere": max(r.elsewhere, default=None),
        "differs": r.contender.variant.differs,
    }


def rivals(r: Result, best: Result | None) -> dict[str, Any]:
    """How many times as fast as the fastest peer that multiplies the same kind of numbers."""
    if best is None or r.failed or not r.turns:
        return {"ratio": None, "best_peer": None}
    return {"ratio": best.seconds / r.seconds, "best_peer": best.contender.name}


def floor_line(records: Sequence[dict[str, Any]]) -> str:
    """What nobody can beat here, and why."""
    first, ceilings = records[0], records[0]["ceilings"]
    if first["floor_by"] == "arithmetic":
        why = f"all its matrix products at {rate(ceilings['flops'], 'FLOP/s')}"
    else:
        why = f"all weights and caches read at {rate(ceilings['bandwidth'], 'B/s')}"
    return f"floor {milliseconds(first['floor_ms'])} ms: {why}"


def warn_of_others(records: Sequence[dict[str, Any]]) -> None:
    most = max((r["busy_elsewhere"] or 0 for r in records), default=0)
    if most > BUSY:
        print(
            f"  warning: other processes used up to {most:.1f} CPUs during the measurement", file=sys.stderr
        )


def show_list(args: Any, host: Host) -> int:
    """The works of this device, and who would do each."""
    host.say("")
    for name, work in choose(args.work, settings(host.device, args.small)).items():
        names = [each.name for each in contenders(args, host, work)]
        print(f"{name}: {work.describe()}\n  " + "\n  ".join(names))
    for peer, how in host.worker.ask("absent", asked=list(args.peer)).items():
        print(f"{peer}: {how}")
    return 0
