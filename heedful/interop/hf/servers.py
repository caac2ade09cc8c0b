"""Servers for many GPUs that read exported folders: what vLLM and Text Generation Inference list.

The facts are in servers.json. The page on serving large models shows the table that this file makes:
`python -m heedful.interop.hf.servers` prints it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

LISTS = Path(__file__).with_name("servers.json")


@dataclass(frozen=True)
class ServedFamily:
    """A family of exported folders, and which servers list it: "yes", "no", or how."""

    model_type: str
    class_name: str  # in `architectures`, for a preset of the family
    vllm: str
    tgi: str  # "one GPU": by transformers itself, not divided
    note: str


@cache
def lists() -> dict[str, Any]:
    """What servers.json says: versions, and families."""
    return json.loads(LISTS.read_text(encoding="utf-8"))


def served_families() -> list[ServedFamily]:
    """All families that heedful exports."""
    return [ServedFamily(class_name=row.pop("class"), **row) for row in map(dict, lists()["families"])]


def servers_table() -> str:
    """The families that a server lists, as a table of a page; and then the others."""
    listed = [one for one in served_families() if {one.vllm, one.tgi} != {"no"}]
    lines = ["| `model_type` | `architectures` | vLLM | TGI | note |", "|---|---|---|---|---|"]
    for one in listed:
        names = f"`{one.model_type}` | `{one.class_name}`"
        lines.append(f"| {names} | {one.vllm} | {one.tgi} | {one.note} |")
    others = ", ".join(f"`{one.model_type}`" for one in served_families() if one not in listed)
    return "\n".join(lines) + f"\n\nNeither lists {others}."


if __name__ == "__main__":
    print(servers_table())
