"""Training curves: read once, thinned without losing an extreme, and anew when a run begins anew."""

import json
import math
import struct

import numpy as np
import pytest
from helpers.studio_cases import local_studio

from heedful.studio.curves import Curves, thinned
from heedful.studio.runs import id_of


def write(path, rows, mode="a"):
    with path.open(mode) as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def whole(curves):
    curves.whole = False
    while not curves.whole:
        curves.load()
    return curves


def test_new_rows_follow_a_cursor(tmp_path):
    path = tmp_path / "metrics.jsonl"
    curves = Curves(path)
    write(path, [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0, "valid_loss": 2.5}])
    first = whole(curves).since("", 10)
    assert first.anew and first.as_json()["rows"] == [
        {"step": 1, "loss": 3}, {"step": 2, "loss": 2, "valid_loss": 2.5}
    ]  # fmt: skip
    write(path, [{"step": 3, "loss": 1.5}])
    new = whole(curves).since(first.cursor, 10)
    assert not new.anew and new.columns["loss"].tolist() == [1.5]
    assert whole(curves).since(new.cursor, 10).rows == 0


def test_rows_that_come_while_somebody_watches_have_a_time(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, [{"step": 1, "loss": 3.0}])
    curves = whole(Curves(path))
    write(path, [{"step": 2, "loss": 2.0}])
    seconds = whole(curves).since("", 10).columns["seconds"]
    assert math.isnan(seconds[0]) and 0 <= seconds[1] < 3
    assert curves.looked is not None
    curves.looked -= 10  # nobody looked for so long
    write(path, [{"step": 3, "loss": 1.0}])
    assert math.isnan(whole(curves).since("", 10).columns["seconds"][2])


@pytest.mark.parametrize(
    "again", [[{"step": 1, "loss": 9.0}], [{"step": n, "loss": 9.0} for n in range(1, 50)]]
)
def test_a_run_that_begins_anew_is_sent_from_its_beginning(tmp_path, again):
    path = tmp_path / "metrics.jsonl"
    write(path, [{"step": n, "loss": 1.0} for n in range(1, 9)])
    curves = Curves(path)
    cursor = whole(curves).since("", 100).cursor
    write(path, again, "w")
    new = whole(curves).since(cursor, 100)
    assert new.anew and new.rows == len(again) and set(new.columns["loss"]) == {9.0}


def test_odd_lines_do_no_harm(tmp_path):
    path = tmp_path / "metrics.jsonl"
    odd = ['{"step": 1, "loss": NaN}', "not json", "[]", '{"step": 2, "loss": "<b>", "x": null, "y": true}']
    odd += [
        '{"step": 3, "loss": 1e400}',
        '{"step": 4, "loss": ' + "9" * 5000 + "}",
        '{"step": 5, "loss": 0.5}',
    ]
    path.write_text("\n".join(odd) + "\n")
    columns = whole(Curves(path)).since("", 100).columns
    assert columns.keys() == {"step", "loss"} and columns["loss"][-1] == 0.5
    assert json.dumps(whole(Curves(path)).since("", 100).as_json(), allow_nan=False)
    path.write_text(json.dumps({"step": 1} | {f"name {n}": n for n in range(500)}) + "\n")
    assert len(whole(Curves(path)).columns) == 64


def test_thinning_keeps_every_extreme():
    rng = np.random.default_rng(3)
    column = rng.normal(size=10_007)
    column[rng.integers(0, 10_007, 500)] = math.nan
    column[4321], column[77] = 99.0, -99.0
    found = thinned(column, 200)
    assert len(found) == 200 and np.nanmax(found) == 99 and np.nanmin(found) == -99
    pairs = found.reshape(-1, 2)
    parts = np.array_split(column, 100)
    assert all(np.nanmin(pair) >= np.nanmin(column) for pair in pairs) and len(parts) == len(pairs)


def test_columns_travel_as_bytes(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.json").write_text("{}")
    write(run / "metrics.jsonl", [{"step": n, "loss": 1 / n, "norm": n % 7} for n in range(1, 3001)])
    with local_studio(tmp_path) as client:
        path = f"/api/runs/{id_of(run)}/metrics"
        head, columns = read(client.get(path).body)
        assert head["thinned"] and head["rows"] == 2000 and columns["loss"].max() == 1
        head, columns = read(client.get(f"{path}?first=100&last=110&most=50").body)
        assert columns["step"].tolist() == [*range(100, 111)] and not head["thinned"]
        assert np.allclose(columns["loss"], 1 / np.arange(100, 111), rtol=1e-6)
        assert read(client.get(f"{path}?after={head['cursor']}").body)[0]["rows"] == 0
        assert client.get(f"{path}?most=1").status == 400


def read(body):
    (length,) = struct.unpack("<I", body[:4])
    head = json.loads(body[4 : 4 + length])
    numbers = np.frombuffer(body[4 + length :], "<f4").reshape(len(head["columns"]), head["rows"])
    return head, dict(zip(head["columns"], numbers, strict=True))
