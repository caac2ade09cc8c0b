"""Scaling: how heedful's time and memory grow with the length, the batch, or the size of the model.

Every point is a training step, its median time and the most memory it took. A series ends where the next
point would take too long or not fit, judged by how the last ones grew, and it is said where.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import BadInput
from .host import Host
from .measure import Failed, alone
from .plot import PlotPanel, Series, plot
from .records import append, output_of
from .records import replace as write
from .table import NOTHING, milliseconds, rate, size, table
from .work import FULL, GPT2, TrainGPT2, as_json

FITS = 0.7  # of the free memory that a point is expected to take at most
TURNS = 3
ATTENTIONS = (FULL, "window 256", "strided 128", "fixed 128")
SIZES = {  # layers, width, heads
    "cpu": ((2, 64, 2), (3, 128, 4), (4, 192, 6), (6, 256, 8), (6, 384, 6), (8, 512, 8)),
    "cuda": ((4, 256, 4), (8, 512, 8), (12, 768, 12), (24, 1024, 16), (36, 1280, 20), (48, 1600, 25)),
}


@dataclass(frozen=True)
class Point:
    """A work, and where it stands on the axis that grows."""

    x: int
    work: TrainGPT2


def powers(low: int, high: int) -> list[int]:
    """low, twice as much, and so on up to high."""
    return [low << i for i in range((high // low).bit_length())]


def points_of(against: str, device: str, small: bool) -> dict[str, list[Point]]:
    """The series of a plot. For the size, x is filled in once parameters are counted."""
    wide = device == "cuda" and not small
    if against == "length":
        lengths = [16, 32, 64] if small else powers(512, 65536)
        sizes = {"layers": 4, "width": 768, "heads": 12} if wide else {"layers": 2, "width": 128, "heads": 4}
        names = ("full", "window 8", "strided 4", "fixed 8") if small else ATTENTIONS
        return {
            name: [
                Point(n, TrainGPT2(**sizes, vocab=256, length=n, batch=1, attention=name)) for n in lengths
            ]
            for name in names
        }
    base = TrainGPT2(**GPT2, length=1024, batch=8) if wide else TrainGPT2(4, 128, 4, 256, 64, 4)
    if against == "batch":
        batches = [1, 2, 4] if small else powers(1, 64)
        return {"full": [Point(n, replace(base, batch=n)) for n in batches]}
    shapes = SIZES["cuda" if wide else "cpu"][: 3 if small else None]
    works = [replace(base, layers=a, width=b, heads=c) for a, b, c in shapes]
    return {"full": [Point(0, work) for work in works]}


def scaling(args: Any, host: Host) -> int:
    """Measure, tell, and write a table and a picture beside the file of results."""
    if args.work or args.peer:
        raise BadInput("scaling measures heedful alone, on its own workloads: leave out --work and --peer")
    host.introduce(args)
    lines = output_of(args)
    found: list[dict[str, Any]] = []
    records: list[dict[str, Any]] = []
    known = points_of(args.against, host.device, args.small)
    asked = {name: points for name, points in known.items() if chosen(name, args.only)}
    if not asked:
        raise BadInput(f"--only {args.only[0]}: --against {args.against} has {', '.join(known)}")
    for name, points in asked.items():
        for point in series(name, points, host, args):
            found.append(point)
            records.append({**host.shared, "bench": "scaling", "against": args.against, **point})
            if lines is not None:
                append(lines, records[-1:])
    host.say("")
    written = write_all(args, host, lines, records)
    if args.json:
        print(json.dumps({"results": records}, indent=2))
    else:
        print(f"\n{scaling_table(args.against, found)}")
        print("".join(f"\n{path}" for path in written))
    return 0 if any(point["ms"] for point in found) else 1


def chosen(name: str, only: Sequence[str]) -> bool:
    """Whether a line was asked for: by a part of its name."""
    return not only or any(part in name for part in only)


def series(name: str, points: Sequence[Point], host: Host, args: Any) -> Iterator[dict[str, Any]]:
    """The points of one line, until one does not fit, takes too long, or fails."""
    worker = host.start(host.place.threads, True)
    found: list[dict[str, Any]] = []
    try:
        for point in points:
            predicted = host.worker.ask("predict", work=as_json(point.work), place=asdict(host.place))
            x = point.x or predicted["parameters"]
            record = {"series": name, "x": x, "sizes": as_json(point.work), "flops": predicted["flops"]}
            why = too_much(found, args.seconds, host.machine["memory"])
            if why is None:
                host.say(f"{name}: {x:,}")
                try:
                    result = alone(worker, point.work, host.place, TURNS)
                    record |= {"ms": 1000 * result.seconds, "memory_bytes": result.memory, "failed": None}
                    found.append(record)
                    yield record
                    continue
                except Failed as error:
                    why = str(error)
            yield {**record, "ms": None, "memory_bytes": None, "failed": why}
            break
    finally:
        worker.close()


def too_much(found: Sequence[dict[str, Any]], seconds: float, room: int | None) -> str | None:
    """Why the next point should not be tried: each of the last two points has grown so many times."""
    if len(found) < 2:
        return None
    time = grown(found[-2]["ms"], found[-1]["ms"])
    if time > 1000 * seconds:
        return f"would take about {time / 1000:.0f} s a step (--seconds {seconds:g})"
    used = [point["memory_bytes"] for point in found[-2:]]
    if room is not None and all(used) and grown(*used) > FITS * room:
        return f"would take about {size(grown(*used))} of the {size(room)} that are free"
    return None


def grown(before: float, now: float) -> float:
    """The next number if growth goes on as it was, and at least doubles."""
    return now * max(2.0, now / before)


def write_all(args: Any, host: Host, lines: Path | None, records: Sequence[dict[str, Any]]) -> list[Path]:
    """A table for programs and the picture, beside the lines of JSON."""
    if lines is None:
        return []
    stem = lines.with_name(f"scaling-{args.against}-{host.device}")
    write(stem.with_suffix(".csv"), as_csv(args.against, records))
    write(stem.with_suffix(".svg"), picture(args.against, records))
    return [lines, stem.with_suffix(".csv"), stem.with_suffix(".svg")]


COLUMNS = ("series", "x", "ms", "tokens_per_second", "memory_bytes", "flops", "failed")


def as_csv(against: str, records: Sequence[dict[str, Any]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([X[against] if name == "x" else name for name in COLUMNS])
    for r in records:
        row = {**r, "tokens_per_second": tokens_per_second(r)}
        writer.writerow(["" if row[name] is None else row[name] for name in COLUMNS])
    return file.getvalue()


X = {"length": "tokens", "batch": "rows", "size": "parameters"}


def tokens_per_second(r: dict[str, Any]) -> float | None:
    return r["sizes"]["batch"] * r["sizes"]["length"] * 1000 / r["ms"] if r["ms"] else None


def scaling_table(against: str, found: Sequence[dict[str, Any]]) -> str:
    rows = []
    for r in found:
        speed = tokens_per_second(r)
        per_second = r["flops"] / r["ms"] * 1000 if r["ms"] else None
        rows.append(
            [
                r["series"],
                f"{r['x']:,}",
                milliseconds(r["ms"]) if r["ms"] else NOTHING,
                f"{speed:,.0f}" if speed else NOTHING,
                rate(per_second, "FLOP/s") if per_second else NOTHING,
                size(r["memory_bytes"]) if r["memory_bytes"] else NOTHING,
                r["failed"] or "",
            ]
        )
    return table(("attention", X[against], "ms", "tokens/s", "dense rate", "memory", ""), rows)


def picture(against: str, records: Sequence[dict[str, Any]]) -> str:
    """Time and memory, side by side."""
    first = records[0]
    threads = f"{first['threads']} thread{'s' * (first['threads'] > 1)}"
    who = first["hardware"]["gpu"] or f"{first['hardware']['cpu']}, {threads}"
    s = first["sizes"]
    what = f"{s['layers']} layers of {s['width']}" if against != "size" else "models of growing size"
    across = {"length": "tokens in a row", "batch": "rows in a batch", "size": "parameters"}[against]

    def panel(title: str, name: str, words: Callable[[float], str], base: int) -> PlotPanel:
        lines = [
            Series(kind, [(r["x"], r[name]) for r in records if r["series"] == kind and r[name]])
            for kind in dict.fromkeys(r["series"] for r in records)
        ]
        x = (plain_count, 10) if against == "size" else (binary_count, 2)
        return PlotPanel(title, across, lines, words, *x, base)

    time = panel("milliseconds per training step", "ms", lambda v: f"{v:,.0f}" if v >= 1 else f"{v:g}", 10)
    memory = panel("peak memory", "memory_bytes", lambda v: size(v).replace(".0 ", " "), 4)
    stopped = [f"{r['series']}: {r['x']:,} {r['failed']}" for r in records if r["failed"]]
    return plot(finding(against, records), [time, memory], [f"{what}, {who}", *stopped])


def finding(against: str, records: Sequence[dict[str, Any]]) -> str:
    """What the last points say: the title of the picture."""
    done = [r for r in records if r["ms"]]
    if len(done) < 2:
        return f"A training step against the {against}"
    last = max(r["x"] for r in done)
    ends = sorted((r for r in done if r["x"] == last), key=lambda r: r["ms"])
    if len(ends) > 1:
        ratio = ends[-1]["ms"] / ends[0]["ms"]
        return (
            f"At {last:,} tokens, {ends[-1]['series']} takes {ratio:.1f} times as long as {ends[0]['series']}"
        )
    first = min(done, key=lambda r: r["x"])
    grown, longer = last / first["x"], ends[0]["ms"] / first["ms"]
    return f"With {grown:,.0f} times the {X[against]}, a step takes {longer:,.0f} times as long"


def binary_count(n: float) -> str:
    return f"{n / 1024:,.0f} Ki" if n >= 1024 else f"{n:,.0f}"


def plain_count(n: float) -> str:
    return f"{n / 1e9:g} G" if n >= 1e9 else f"{n / 1e6:g} M" if n >= 1e6 else f"{n / 1e3:g} k"
