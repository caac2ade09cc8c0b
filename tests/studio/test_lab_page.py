"""What the Lab page asks for: all claims without torch, and what is new of records and reports."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.lab_cases import append, lab_folder, record_line, report_of
from helpers.script_payloads import NAMES, PAYLOADS
from helpers.studio_cases import local_studio, ran

from heedful.cli.lab import LabOptions
from heedful.lab import claim
from heedful.studio import lab_records
from heedful.studio.lab_records import CHARACTERS, claims, lab_cards

FULL = {"error": 0.5}


def marks(found):
    return ",".join(card["mark"] for card in found["cards"])


def test_all_claims_are_listed_by_their_letters_with_their_commands():
    found = claims(Path("runs/lab"))
    expected = [claim.find_claim(name) for name in claim.claim_files()]
    assert len(found) >= 11
    for one, own in zip(found, expected, strict=True):
        assert (one["letter"], one["name"], one["lecture"]) == (own.letter, own.name, own.lecture)
        assert one["says"] == own.says, "the sentence of a claim is written out in its file"
        assert one["command"] == f"heedful lab run {own.letter}" and "on two cores" in one["note"]
    elsewhere = claims(Path("other runs/lab"))
    assert elsewhere[0]["command"] == f"heedful lab run {expected[0].letter} --run 'other runs/lab'"
    assert str(lab_records.USUAL) == LabOptions().run and lab_records.SIZES == claim.SIZES


def test_claims_are_listed_without_torch(tmp_path):
    code = (
        "import sys; from pathlib import Path; from heedful.studio.lab_records import lab_cards; "
        f"print(len(lab_cards(Path({str(tmp_path)!r}))['claims']), 'torch' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == f"{len(claim.claim_files())} False\n"


def test_reports_of_the_lab_are_cards_and_damaged_ones_are_counted(tmp_path):
    assert lab_cards(tmp_path)["cards"] == []
    outside = tmp_path.parent / "secret.json"
    outside.write_text(json.dumps(report_of(summary="secret")))
    lab_folder(tmp_path, "offsets", record_line("closed form", 0, error=1e-14), report=report_of())
    lab_folder(tmp_path, "own", report=report_of(says="A claim of my own."))
    lab_folder(tmp_path, "odd", report=report_of(verdict="<b>"))
    (lab_folder(tmp_path, "torn") / "report.json").write_text("{")
    (lab_folder(tmp_path, "link") / "report.json").symlink_to(outside)
    lab_folder(tmp_path, "empty")
    (tmp_path / "lab" / "away").symlink_to(tmp_path.parent)
    with local_studio(tmp_path) as client:
        found = client.get("/api/lab").json
    assert found["skipped"] == 4 and [card["id"] for card in found["cards"]] == ["e.offsets", "~own"]
    card = found["cards"][0]
    assert (card["verdict"], card["lecture"], card["live"]) == ("exact", "L1 L5", "")
    assert card["command"].endswith("--quick") and card["note"] == "2026-11-18, quick, 4 measurements:"
    assert card["figure"].startswith("data:image/svg+xml;base64,")
    assert [part["says"].rpartition("(")[2] for part in card["parts"]][1] == "control, expected: supported)"
    assert card["rows"] == [{"arm": "closed form", "seed": 0, "size": "quick", "numbers": {"error": 1e-14}}]
    (tmp_path / "lab" / "offsets" / "report.json").write_text(json.dumps(report_of(arms={})))
    (tmp_path / "lab" / "own" / "report.json").unlink()
    for name in ("odd", "torn", "link"):
        (tmp_path / "lab" / name / "report.json").unlink()
    assert ran(found["code"], "report")["name"] == "offsets"


def test_texts_of_a_report_are_bounded_and_parts_that_are_none_are_left_out(tmp_path):
    good = report_of()["parts"][0]
    parts = [3, None, {}, good | {"why": ["a"]}, good | {"verdict": "<b>"}, good | {"rule": "r" * 10**5}]
    said = {
        "says": "s" * 10**5,
        "summary": "t" * 10**5,
        "date": {"a": 1},
        "trials": "many",
        "size": "x" * 999,
    }
    lab_folder(tmp_path, "offsets", report=report_of(parts=parts, **said))
    (card,) = lab_cards(tmp_path)["cards"]
    assert len(card["says"]) == len(card["summary"]) == len(card["parts"][0]["rule"]) == CHARACTERS
    assert len(card["parts"]) == 1 and card["trials"] == 0 and len(card["note"]) < 60
    assert "command" not in card  # of no size that there is


def test_a_run_is_followed_line_by_line_from_before_its_report_to_after_it(tmp_path):
    folder = lab_folder(tmp_path, "offsets", record_line("closed form", 0, **FULL), '{"arm": "dense f')
    first = lab_cards(tmp_path)
    (card,) = first["cards"]
    assert card["verdict"] is None and card["live"] == "no report yet" and card["anew"]
    assert [row["seed"] for row in card["rows"]] == [0]  # a torn line waits
    assert lab_cards(tmp_path, marks(first)) == {"cards": [], "skipped": 0}
    append(folder, 'it", "seed": 1, "size": "full", "numbers": {"error": 2}}\n' + record_line("x", 2, **FULL))
    second = lab_cards(tmp_path, marks(first))
    (card,) = second["cards"]
    assert [(row["arm"], row["seed"]) for row in card["rows"]] == [("dense fit", 1), ("x", 2)]
    assert not card["anew"] and "verdict" not in card and "figure" not in card
    (folder / "report.json").write_text(json.dumps(report_of()))
    third = lab_cards(tmp_path, marks(second))
    (card,) = third["cards"]
    assert card["verdict"] == "exact" and card["rows"] == [] and not card["anew"] and card["live"] == ""
    (folder / "records.jsonl").write_text(record_line("closed form", 5, **FULL) * 9)  # a run began anew
    (card,) = lab_cards(tmp_path, marks(third))["cards"]
    assert card["anew"] and len(card["rows"]) == 9 and card["live"] == "newer than the report"
    (folder / "records.jsonl").unlink()
    (card,) = lab_cards(tmp_path, marks(third))["cards"]
    assert card["anew"] and card["rows"] == []


def test_looking_again_takes_few_bytes(tmp_path):
    lines = [
        record_line("closed form", seed, **{f"error_at_{n}": 0.1 * n for n in range(40)})
        for seed in range(200)
    ]
    folder = lab_folder(tmp_path, "offsets", *lines, report=report_of())
    with local_studio(tmp_path) as client:
        first = client.get("/api/lab")
        path = f"/api/lab?after={marks(first.json)}"
        assert len(first.body) > 100_000 and len(client.get(path).body) < 60
        append(folder, record_line("closed form", 200, **FULL))
        assert len(client.get(path).body) < 400


def test_lines_that_are_no_records_are_left_out(tmp_path):
    good = json.loads(record_line("closed form", 0, **FULL))
    lines = [
        3, [], "text", {}, good | {"arm": 3}, good | {"arm": ""}, good | {"arm": "a" * 201},
        good | {"seed": 1.5}, good | {"seed": True}, good | {"seed": 10**9}, good | {"size": "huge"},
        good | {"size": ["quick"]}, good | {"numbers": [1]}, good | {"numbers": None},
    ]  # fmt: skip
    torn = ['{"arm": NaN', "[" * 10**5, '{"seed": ' + "9" * 5000 + "}", "\udcff"]
    odd = {"a": "1", "b": None, "c": True, "d": 10**400, "n" * 201: 1, "e": 1 / 3, "f": [1], "g": -5}
    text = (
        "".join(json.dumps(line) + "\n" for line in [*lines, good | {"numbers": odd}])
        + "\n".join(torn)
        + "\n"
    )
    nan = '{"arm": "x", "seed": 1, "size": "quick", "numbers": {"a": NaN, "b": Infinity, "c": 2}}\n'
    many = record_line("y", 2, **{f"n{i}": i for i in range(900)})
    folder = lab_folder(tmp_path, "offsets")
    (folder / "records.jsonl").write_bytes((text + nan + many).encode("utf-8", "surrogateescape"))
    (card,) = lab_cards(tmp_path)["cards"]
    assert [row["numbers"] for row in card["rows"][:2]] == [{"e": 0.333333, "g": -5.0}, {"c": 2.0}]
    assert len(card["rows"]) == 3 and len(card["rows"][2]["numbers"]) == 500


def test_numbers_of_the_training_come_after_what_was_measured(tmp_path):
    line = record_line("learned", 0, learning_rate=0.1, validation_at_0={}, accuracy=0.5, steps=7)
    lab_folder(tmp_path, "order", line)
    (card,) = lab_cards(tmp_path)["cards"]
    assert list(card["rows"][0]["numbers"]) == ["accuracy", "steps", "learning rate"]


def test_links_out_of_a_folder_are_not_followed(tmp_path):
    outside = tmp_path.parent / "outside"
    outside.mkdir()
    for name, text in (("records.jsonl", record_line("secret", 0, **FULL)), ("figure.svg", "<svg/>")):
        (outside / name).write_text(text)
    folder = lab_folder(tmp_path, "offsets", report=report_of())
    (folder / "figure.svg").unlink()
    for name in ("records.jsonl", "figure.svg"):
        (folder / name).symlink_to(outside / name)
    (tmp_path / "lab" / "order").symlink_to(outside)
    found = lab_cards(tmp_path)
    assert [card["name"] for card in found["cards"]] == ["offsets"] and found["skipped"] == 1
    assert found["cards"][0]["rows"] == [] and found["cards"][0]["figure"] is None


@pytest.mark.parametrize("name", [NAMES[0], "__proto__", "a,b", "é\n", "-" * 200, "0-0-0-0"])
def test_folders_with_hostile_names_are_cards_that_can_be_followed(tmp_path, name):
    folder = lab_folder(tmp_path, name, record_line("x", 0, **FULL), report=report_of(says=PAYLOADS[0]))
    with local_studio(tmp_path) as client:
        first = client.get("/api/lab").json
        (card,) = first["cards"]
        assert card["id"] == f"~{name}" and card["says"] == PAYLOADS[0]
        path = f"/api/lab?after={marks(first)}"
        assert client.get(path).json["cards"] == []
        append(folder, record_line("x", 1, **FULL))
        assert [row["seed"] for row in client.get(path).json["cards"][0]["rows"]] == [1]


@pytest.mark.parametrize(
    "after", ["-", "x", "0-0-0-0", "%00", "00000000-00000000-999999999999-00000000", "%F0%9F"]
)
def test_marks_of_nothing_give_everything(tmp_path, after):
    lab_folder(tmp_path, "offsets", record_line("x", 0, **FULL), report=report_of())
    with local_studio(tmp_path) as client:
        found = client.get(f"/api/lab?after={after}").json
        assert found["cards"][0]["anew"] and found["cards"][0]["verdict"] == "exact" and "claims" not in found
        assert client.get(f"/api/lab?after={'a' * 40_000}").status == 431
        assert client.get("/api/lab?before=1").status == 400


def test_a_mark_beyond_the_end_of_a_file_begins_anew(tmp_path):
    lab_folder(tmp_path, "offsets", record_line("x", 0, **FULL))
    name, report, _, tail = lab_cards(tmp_path)["cards"][0]["mark"].split("-")
    (card,) = lab_cards(tmp_path, f"{name}-{report}-{10**12 - 1}-{tail}")["cards"]
    assert card["anew"] and len(card["rows"]) == 1
