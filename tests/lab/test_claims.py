"""Claims: identities hold, arms are pure, records survive a kill, and reports say what they must."""

import json
import math
import random
import time
from importlib import import_module
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from heedful.cli.main import main
from heedful.lab import claim as claims
from heedful.lab import run as runs
from heedful.lab.claim import ClaimPart, claim_files, find_claim, measured
from heedful.lab.processes import at_once, in_turn, measurement
from heedful.lab.report import report_of, write_page, write_report
from heedful.lab.results import Results
from heedful.lab.rules import VERDICTS, Exact
from heedful.lab.run import ClaimRun, code_hash, key_of, records_in, sources_of, trials
from heedful.studio.lab_records import CHARACTERS, lab_cards

NAMES = list(claim_files())


SECONDS = 30  # of CPU, for the identities of all claims together


def test_identities_hold_for_all_claims_within_half_a_minute():
    torch.utils.checkpoint  # noqa: B018 (imported before the clock starts)
    began, verdicts = time.process_time(), {}
    for name in NAMES:
        claim = find_claim(name)
        found = Results({arm: {0: measured(work, 0, "quick")} for arm, work in claim.identities.items()})
        verdicts |= {
            (name, part.name): part.rule.judge(found).verdict for part in claim.parts if part.identity
        }
    assert verdicts and set(verdicts.values()) == {"exact"}, verdicts
    assert time.process_time() - began < SECONDS


def random_states():
    return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()


@pytest.mark.parametrize("name", NAMES)
def test_an_arm_measures_the_same_again_in_every_bit(name):
    claim = find_claim(name)
    for arm in list(claim.identities)[:2]:
        assert measurement(claim, arm, 1, "quick")[:3] == measurement(claim, arm, 1, "quick")[:3]


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_says_all_that_a_student_needs(name):
    claim = find_claim(name)
    assert claim.letter == claim_files()[name].stem[0] and find_claim(claim.letter).name == name
    for text in (claim.says, claim.predicts, claim.changes, claim.question, *(p.says for p in claim.parts)):
        assert text[0].isupper() and text[-1] in ".?"
    assert claim.expected in VERDICTS and set(claim.minutes) == set(claims.SIZES)
    assert set(claim.lecture.split()) <= {"L1", "L2", "L3", "L4", "L5"}
    assert len({part.name for part in claim.parts}) == len(claim.parts)
    assert claim.arms


@pytest.mark.parametrize("name", NAMES)
def test_every_claim_runs_and_draws_with_few_steps(name, tmp_path, monkeypatch):
    """No verdict is expected: two seeds and three steps show nothing."""
    module = import_module(f"heedful.lab.claims.{claim_files()[name].stem}")
    for steps in [one for one in vars(module) if one.startswith("STEPS")]:
        monkeypatch.setattr(module, steps, dict.fromkeys(claims.SIZES, 3))
    run, before = ClaimRun(find_claim(name), tmp_path, seeds=2), random_states()
    for record in run:
        assert record.numbers and all(map(math.isfinite, record.numbers.values()))
        assert random_states() == before  # the arm left the random numbers of others alone
    report = report_of(run)
    write_report(tmp_path, report)
    write_page(tmp_path / "page", report)
    assert report.judgment.verdict in VERDICTS and report.summary and report.text()
    said = f"{report.claim.summary(run.results)} {report.claim.changes}"
    assert said.endswith(".") and len(said) <= CHARACTERS  # or the studio would cut it
    ElementTree.fromstring((tmp_path / "figure.svg").read_text())
    assert (tmp_path / "figure.svg").stat().st_size < 1_000_000  # the studio shows no larger one


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_quick_run_takes_its_expected_verdict(name, tmp_path):
    run = ClaimRun(find_claim(name), tmp_path, processes=2)
    list(run)
    report = report_of(run)
    assert not report.surprises, report.text()


# Runs and reports, on a claim that takes no time.


@pytest.fixture
def tiny(monkeypatch):
    """The claim of offsets, which takes a moment."""
    return find_claim("offsets")


def test_a_run_that_was_killed_goes_on_to_the_same_report(tiny, tmp_path):
    whole = ClaimRun(tiny, tmp_path / "whole")
    list(whole)
    for cut in (0, 1, 7):
        folder = tmp_path / f"cut-{cut}"
        steps = iter(ClaimRun(tiny, folder))
        for _ in range(cut):
            next(steps)
        steps.close()
        if cut:
            with (folder / "records.jsonl").open("ab") as file:
                file.write(b'{"arm": "closed fo')  # torn by the kill
        again = ClaimRun(tiny, folder)
        assert len(again) == len(whole.wanted) - cut
        list(again)
        for arm, by_seed in whole.results.records.items():
            for seed, numbers in by_seed.items():
                assert again.results.records[arm][seed] == numbers
        assert len((folder / "records.jsonl").read_text().splitlines()) == len(whole.wanted)
        one, other = (report_of(run, "today").as_json() for run in (again, whole))
        assert one["verdict"] == other["verdict"] and one["trials"] == other["trials"]


def test_what_is_recorded_is_not_measured_again(tiny, tmp_path):
    list(ClaimRun(tiny, tmp_path))
    assert len(ClaimRun(tiny, tmp_path)) == 0
    assert len(ClaimRun(tiny, tmp_path, "full")) == len(trials(tiny, "full"))
    assert len(ClaimRun(tiny, tmp_path, seeds=7)) == 2 * len(tiny.arms)


def test_seeds_take_turns_so_that_an_early_stop_leaves_as_many_of_each_arm(tiny):
    assert trials(tiny, "quick", 2) == [(arm, seed) for seed in range(2) for arm in tiny.arms]


def test_a_key_follows_the_files_that_a_claim_reads_and_no_others(monkeypatch):
    files = {name: {path.relative_to(runs.ROOT).as_posix() for path in sources_of(path)}
             for name, path in claim_files().items()}  # fmt: skip
    assert "parts/positions/absolute.py" in files["offsets"] and "lab/small.py" in files["offsets"]
    assert "lab/toys.py" in files["order"] and "lab/toys.py" not in files["offsets"]
    assert not any("lab/rules.py" in some or "lab/figures.py" in some for some in files.values())
    before = {name: code_hash(path) for name, path in claim_files().items()}
    read = type(runs.ROOT).read_bytes
    for source in ("lab/toys.py", "parts/positions/absolute.py", "lab/claims/e_offsets.py", "lab/figures.py"):
        changed = runs.ROOT / source
        code_hash.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(
                type(changed), "read_bytes", lambda path, file=changed: read(path) + b"#" * (path == file)
            )
            after = {name: code_hash(path) for name, path in claim_files().items()}
        assert {name for name in NAMES if before[name] != after[name]} == {
            name for name in NAMES if source in files[name]
        }
    code_hash.cache_clear()


def test_records_of_other_code_are_measured_again(tiny, tmp_path, monkeypatch):
    list(ClaimRun(tiny, tmp_path))
    monkeypatch.setattr(runs, "code_hash", lambda path: "other")
    assert records_in(tmp_path, tiny) == {}
    again = ClaimRun(tiny, tmp_path)
    list(again)
    lines = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert [line["key"] for line in lines] == [key_of(tiny, arm, seed, "quick") for arm, seed in again.wanted]


def test_the_studio_reads_what_a_run_writes(tiny, tmp_path):
    folder = tmp_path / "lab" / tiny.name
    run = ClaimRun(tiny, folder)
    list(run)
    write_report(folder, report_of(run))
    found = lab_cards(tmp_path)
    assert found["skipped"] == 0 and len(found["cards"]) == 1
    card = found["cards"][0]
    assert (card["name"], card["verdict"], card["lecture"]) == ("offsets", "exact", "L1 L5")
    assert card["trials"] == len(run.wanted) and card["figure"].startswith("data:image/svg+xml")
    said = json.loads((folder / "report.json").read_text())
    assert list(said)[:7] == ["name", "says", "verdict", "lecture", "summary", "date", "trials"]
    root = ElementTree.fromstring((folder / "figure.svg").read_text())
    assert root.tag.endswith("svg") and "light-dark(" in (folder / "figure.svg").read_text()


def test_a_worksheet_has_no_answer_and_its_key_has_all(tiny, tmp_path):
    run = ClaimRun(tiny, tmp_path)
    list(run)
    report = report_of(run)
    assert {path.name for path in write_page(tmp_path / "page", report)} == {
        "page.html", "worksheet.html", "key.html",
    }  # fmt: skip
    worksheet = (tmp_path / "page" / "worksheet.md").read_text()
    key = (tmp_path / "page" / "key.md").read_text()
    page = (tmp_path / "page" / "page.md").read_text()
    assert tiny.says in worksheet and tiny.question in worksheet
    for ruling, part in zip(report.judgment.rulings, tiny.parts, strict=True):
        assert ruling.why not in worksheet and ruling.why in key and ruling.why in page
        assert part.says in worksheet and part.rule.says() in worksheet
    assert report.summary not in worksheet and tiny.predicts not in worksheet
    assert report.finding in key and tiny.changes in key and report.summary in page
    assert "http" not in worksheet + key + page


def test_a_surprise_is_reported_instead_of_the_prepared_sentence(tiny, tmp_path):
    from dataclasses import replace

    impossible = replace(tiny.parts[0], rule=Exact(("closed form",), {"error": -1.0}))
    run = ClaimRun(replace(tiny, parts=(impossible, *tiny.parts[1:])), tmp_path)
    list(run)
    report = report_of(run)
    assert report.judgment.verdict == "depends" and len(report.surprises) == 1
    assert report.summary.startswith("This run does not show what was predicted.")
    assert "was expected" in report.summary


def test_a_rule_for_an_arm_that_is_not_there_is_refused(tiny):
    from dataclasses import replace

    broken = ClaimPart("p", "", {}, Exact(("gone",), {"x": 0.0}))
    with pytest.raises(ValueError, match="gone"):
        replace(tiny, parts=(broken,)).arms  # noqa: B018


# The command.


def test_the_command_lists_runs_and_reports(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["lab"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in listed] == NAMES and all("not run" in line for line in listed)
    assert main(["lab", "run", "e", "--seeds", "3", "--report", "pages"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("e  offsets: exact\n")
    assert (tmp_path / "runs/lab/offsets/report.json").is_file() and (tmp_path / "pages/key.md").is_file()
    assert main(["lab", "run", "offsets", "--seeds", "3", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["claims"][0]
    assert said["verdict"] == "exact" and said["as_expected"] and said["trials"] == 12
    assert main(["lab", "--json"]) == 0
    rows = {row["name"]: row["verdict"] for row in json.loads(capsys.readouterr().out)["claims"]}
    assert rows["offsets"] == "exact" and rows["order"] is None


def test_a_verdict_that_is_not_expected_is_exit_code_3(tmp_path, capsys):
    """With one seed there is no interval, so a direction stays inconclusive."""
    assert main(["lab", "run", "e", "--seeds", "1", "--run", str(tmp_path)]) == 3
    captured = capsys.readouterr()
    assert captured.out.startswith("e  offsets: inconclusive\n")
    assert captured.err.splitlines()[-1] == "not as expected: offsets"


def test_two_processes_measure_what_one_measures(tmp_path):
    """Each arm has the same numbers in every bit, whatever ran before it and in which process."""
    claim = find_claim("mask")
    arms = [(arm, seed) for seed in (1, 0) for arm in ("causal", "no mask", "one too far")]
    alone = {(arm, seed): numbers for arm, seed, numbers, _ in in_turn(claim, arms, "quick")}
    again = {(arm, seed): numbers for arm, seed, numbers, _ in at_once(claim, arms[::-1], "quick", 2)}
    assert alone == again
