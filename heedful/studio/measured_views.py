"""What pages draw of a measurement: tables, bars and maps with their titles.

A view is {"title", "note"?, "from"?, "rows"?, "bars"?, "map"?, "curve"?}. The keys of rows are titles of
columns, `from` says where the numbers come from, and the cells of a map may name heads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Found = dict[str, Any]
KINDS = ("cross", "self", "encoder")


def head_rows(found: Found) -> list[Found]:
    """All heads with their importance."""
    return [
        {
            "head": one["head"],
            "rise": one["importance"],
            "95 % from": one["interval"][0],
            "to": one["interval"][1],
        }
        | {"bits": one["bits"], "labels": ", ".join(label["name"] for label in one["labels"])}
        for one in found["heads"]
    ]


def head_views(found: Found) -> list[Found]:
    """The importance of all heads as a map, the curve of removing them, and a table."""
    known = {one["head"]: one for one in found["heads"]}
    places = sorted({(KINDS.index(one["kind"]), one["layer"]) for one in found["heads"]})
    down = [f"{KINDS[kind]}.{layer}" for kind, layer in places]
    across = [str(n) for n in range(1, max(one["number"] for one in found["heads"]) + 1)]
    names = [[name if (name := f"{row}.{n}") in known else "" for n in across] for row in down]
    cells = {
        "values": [[known[name]["importance"] or 0.0 if name else 0.0 for name in row] for row in names],
        "said": [[importance_of(known[name]) if name else "" for name in row] for row in names],
    }
    lines = [[point["rise"] for point in found["curve"]]]
    lines += [[point["interval"][end] for point in found["curve"]] for end in (0, 1)]
    series = [{"name": "rise", "values": line, "hue": 0, "faint": n > 0} for n, line in enumerate(lines)]
    curve = {"x": [point["removed"] for point in found["curve"]], "xName": "k", "series": series}
    return [
        {
            "title": "Importance of each head",
            "note": f"{found['sentence'][0].upper()}{found['sentence'][1:]}.",
            "map": cells | {"names": names, "down": down, "across": across, "kind": "signed"},
        },
        {
            "title": "Without the k least important heads",
            "curve": curve | {"bands": [[1, 2]], "label": found["measured_in"]},
        },
        {"title": "All heads", "rows": head_rows(found), "from": found["measured_in"]},
    ]


def importance_of(one: Found) -> str:
    numbers = (one["importance"], *one["interval"])
    mean, low, high = ("unknown" if number is None else f"{number:.3g}" for number in numbers)
    return f"{one['head']}: importance {mean}, 95 % from {low} to {high}"


def pattern_rows(found: Found) -> list[Found]:
    """The heads that follow the first pattern."""
    return [
        {
            "head": one["head"],
            "share": one["share"],
            "95 % from": one["interval"][0],
            "to": one["interval"][1],
        }
        | {"shuffled": one["baseline"]}
        for one in found["patterns"][0]["heads"]
    ]


def patch_rows(found: Found) -> list[Found]:
    """The share that each vector brings back."""
    return [
        {"layer": layer, "position": place, "token": found["positions"][place - 1], "share": share}
        for layer, row in enumerate(found["recovered"], start=1)
        for place, share in enumerate(row, start=1)
    ]


def token_rows(found: Found) -> list[Found]:
    """The log-probabilities of each token by two models; none where they cannot be compared."""
    names = ("tokens", "first", "second", "difference")
    columns = [found.get(name, []) for name in names]
    return [dict(zip(("token", *names[1:]), row, strict=True)) for row in zip(*columns, strict=True)]


def patch_view(found: Found, text: str) -> Found:
    """The share of the output that each vector brings back, layers down."""
    after = f"{found['clean']:.3g} after “{text}”, {found['corrupted']:.3g} after “{found['corrupted_text']}”"
    return {
        "title": "Share of the output that comes back",
        "note": f"Log-probability of what the model writes after the first text: {after}.",
        "map": {
            "values": found["recovered"],
            "down": [f"layer {n + 1}" for n in range(len(found["recovered"]))],
            "across": found["positions"],
            "kind": "signed",
        },
        "from": "share that comes back with this clean vector, (patched − corrupted) / (clean − corrupted)",
    }


def token_view(found: Found) -> Found:
    said = "first {first:.3g} minus second {second:.3g}, natural logarithms"
    bars = [
        {"name": row["token"], "value": row["difference"], "from": said.format(**row)}
        for row in token_rows(found)
    ]
    return {"title": "Log-probability of each token, first minus second", "bars": bars}


def head_view(found: Found) -> Found:
    down = [f"{found['which']}.{n + 1}" for n in range(len(found["distance"]))]
    across = [str(n + 1) for n in range(len(found["distance"][0]))]
    return {
        "title": "How differently heads attend",
        "map": {"values": found["distance"], "down": down, "across": across},
        "from": "total variation distance, mean over the queries",
    }


def layer_view(found: Found) -> Found:
    return {
        "title": "How alike the layers are (first down, second across)",
        "map": {"values": found["cka"], "down": found["down"], "across": found["across"]},
        "from": f"linear CKA of the mean vectors of {found['rows']} texts",
    }


def score_view(found: Found) -> Found:
    return {
        "title": "Which model is better",
        "note": f"Mean log-probability per token: {found['sentence']}.",
        "rows": found["texts"],
        "from": "mean over the tokens of a text",
    }


def setting_view(found: Found) -> Found:
    return {
        "title": "Settings that differ",
        "note": "" if found["differ"] else "none",
        "rows": found["differ"],
    }


PARTS: dict[str, Callable[[Found], Found]] = {
    "tokens": token_view,
    "heads": head_view,
    "layers": layer_view,
    "scores": score_view,
    "settings": setting_view,
}
TITLES = {
    "tokens": "Log-probability of each token",
    "heads": "How differently heads attend",
    "layers": "How alike the layers are",
    "scores": "Which model is better",
}


def compare_views(found: Found) -> list[Found]:
    """The parts of a comparison that are there; a part that was refused says why."""
    return [
        {"title": TITLES[name], "note": part["refused"]} if "refused" in part else PARTS[name](part)
        for name in PARTS
        if (part := found.get(name))
    ]
