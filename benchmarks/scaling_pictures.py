"""Draw the pictures of scaling again, from the figures in scaling.jsonl.

    python -m benchmarks.scaling_pictures

The figures have four digits: they were read from the pictures that `heedful bench scaling` drew.
"""

from __future__ import annotations

import json
from pathlib import Path

from heedful.bench.scaling import picture

RECORD = Path(__file__).with_name("scaling.jsonl")


def main() -> None:
    records = [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()]
    for against in dict.fromkeys(record["against"] for record in records):
        drawn = picture(against, [record for record in records if record["against"] == against])
        RECORD.with_name(f"scaling-{against}.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
