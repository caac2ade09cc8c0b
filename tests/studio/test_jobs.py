"""Long work: its events can be followed from any place, it can be ended, and it gives Python's numbers."""

import asyncio
import http.client
import json
import threading
import time

import pytest
from helpers.studio_cases import load, ran

from heedful.service.fields import HttpError
from heedful.studio.jobs import Jobs

TEXT, OTHER = "My aunts are curious.", "My uncles are curious."


def finished(studio, **asked):
    """All events of a job."""
    reply = studio.post("/api/jobs", asked)
    assert reply.status == 200, reply.body
    events = studio.stream(f"/api/jobs/{reply.json['id']}/events", None)
    assert events[-1]["state"] == "done", events[-1]
    assert [event["number"] for event in events] == [*range(1, len(events) + 1)]
    return reply.json["id"], events


def result(events):
    return events[-2]["result"]


def test_heads_are_removed_one_by_one_with_progress(studio, stored):
    id, events = finished(studio, kind="ablate", run=studio.id("demo"), count=3)
    model = load(str(stored / "demo"))
    found = dict(result(events))
    assert {row["head"]: row["rise"] for row in found.pop("rows")} == {
        one["head"]: one["importance"] for one in found["heads"]
    }
    same = ran(found.pop("code"), "last")["result"]
    assert same["heads"] == found["heads"]
    cells = found.pop("views")[0]["map"]
    assert cells["names"][0][1] == "cross.1.2" and cells["down"][-1] == "encoder.3"
    assert cells["values"][0][1] == model.heads(count=3)["cross.1.2"].importance
    assert found == model.heads(count=3).as_json()
    assert events[0]["progress"]["total"] == events[-3]["progress"]["done"]
    rest = studio.stream(f"/api/jobs/{id}/events", None, last_event_id=str(len(events) - 2))
    assert rest == events[-2:]
    assert studio.get(f"/api/jobs/{id}/events", last_event_id="x").status == 400


def test_patterns_are_searched_for(studio):
    asked = {
        "kind": "scan",
        "run": studio.id("lm"),
        "patterns": ["offset:-1", "same"],
        "texts": ["the old king is old"] * 3,
    }
    patterns = result(finished(studio, **asked)[1])["patterns"]
    assert [one["pattern"] for one in patterns] == ["offset:-1", "same"] and patterns[0]["heads"]


def test_patching_a_whole_stream_brings_the_output_back(studio):
    asked = {"kind": "patch", "run": studio.id("lm"), "text": "the old king", "corrupted": "the new king"}
    found = result(finished(studio, **asked)[1])
    assert found["shell"] == "decoder" and len(found["recovered"][0]) == len(found["positions"])
    assert found["recovered"][-1][-1] == pytest.approx(1, abs=1e-4)
    assert found["recovered"][-1][0] == pytest.approx(0, abs=1e-4)
    pair = {"kind": "patch", "run": studio.id("demo"), "text": TEXT, "corrupted": OTHER, "shell": "encoder"}
    found = result(finished(studio, **pair)[1])
    assert found["clean"] > found["corrupted"] and len(found["recovered"]) == 3
    own = result(finished(studio, kind="patch", run=studio.id("demo"), text="The small cat was fast.")[1])
    assert own["corrupted_text"] == "The fast cat was fast."
    longer = studio.post("/api/jobs", pair | {"corrupted": "My very old uncles are curious."}).json["id"]
    end = studio.stream(f"/api/jobs/{longer}/events", None)[-1]
    assert end["state"] == "failed" and "equal length" in end["message"]


def test_a_model_compared_with_itself_is_the_same(studio):
    run = studio.id("demo")
    found = result(finished(studio, kind="compare", run=run, other=run, text=TEXT, count=3)[1])
    assert set(found["tokens"]["difference"]) == {0.0} and found["settings"] == {"differ": []}
    assert [row["first"] for row in found["rows"]] == found["tokens"]["first"]
    assert found["layers"]["cka"][2][2] == pytest.approx(1)
    assert (
        found["scores"]["bootstrap"]["ties"] == 3 and max(max(row) for row in found["heads"]["distance"]) == 0
    )


def test_a_model_with_edits_is_compared_with_itself(studio):
    run = studio.id("demo")
    asked = {
        "kind": "compare",
        "run": run,
        "other": run,
        "text": TEXT,
        "target": "Mes tantes sont curieuses.",
    }
    events = finished(studio, **asked, count=3, edits=["zero:cross.3.*"])[1]
    found, parts = result(events), [event["partial"] for event in events if "partial" in event]
    assert {*parts[-1]} == {"settings", "tokens", "heads", "layers", "scores", "views", "rows", "code"}
    assert parts[-1] == found
    assert [len(part["views"]) for part in parts] == [1, 2, 3, 4, 5]
    assert max(map(abs, found["tokens"]["difference"])) > 0.1
    assert max(max(row) for row in found["heads"]["distance"]) == 0  # the last layer attends as before
    assert found["layers"]["cka"][3][3] == pytest.approx(1)  # of the encoder, which was not edited
    assert found["scores"]["bootstrap"]["ties"] < 3
    again = result(finished(studio, **asked, count=3)[1])
    assert set(again["tokens"]["difference"]) == {0.0}  # the edits are gone


def test_the_output_follows_the_edits(studio, stored):
    asked = {"run": studio.id("demo"), "text": TEXT}
    plain = studio.post("/api/output", asked).json
    edited = studio.post("/api/output", asked | {"edits": ["zero:cross.*.*"]}).json
    written = str(load(str(stored / "demo")).translate(TEXT, beam=1))
    assert "".join(written.split()) == "".join(text for text, _ in plain["tokens"][:-1]).replace(" ", "")
    assert plain["tokens"] != edited["tokens"] and not plain["refused"]
    labels = studio.post("/api/output", {"run": studio.id("classify"), "text": "is it old ?"}).json["labels"]
    assert sum(share for _, share in labels) == pytest.approx(1)
    assert "no edit" in studio.post("/api/output", asked | {"edits": ["bogus"]}).json["refused"]


def test_a_search_for_patterns_says_what_it_knows_as_it_runs(studio, monkeypatch):
    monkeypatch.setattr("heedful.studio.measuring.OFTEN", 0)
    asked = {
        "kind": "scan",
        "run": studio.id("lm"),
        "patterns": ["offset:-1"],
        "texts": ["the old king is old"] * 3,
    }
    events = finished(studio, **asked)[1]
    parts = [event["partial"] for event in events if "partial" in event]
    assert len(parts) == 3 and parts[-1] == result(events)
    assert parts[0]["patterns"][0]["heads"][0]["interval"] == [None, None]  # one text shows no spread


def test_checks_come_one_by_one(studio):
    events = finished(studio, kind="doctor", run=studio.id("lm"))[1]
    assert result(events)["checks"] == len(events) - 2 and "verdict" in events[0]["check"]


@pytest.mark.parametrize(
    "asked, field",
    [
        ({"kind": "ablate"}, "run"),
        ({"kind": "scan", "run": "lm"}, "patterns"),
        ({"kind": "doctor", "run": "lm", "steps": 4}, "steps"),
        ({"kind": "compare", "run": "lm", "text": "a"}, "other"),
        ({"kind": "abalte"}, "kind"),
    ],
)
def test_jobs_that_cannot_be_are_refused(studio, asked, field):
    asked |= {"run": studio.id(asked["run"])} if "run" in asked else {}
    reply = studio.post("/api/jobs", asked)
    assert (reply.status, reply.json["error"]["param"]) == (400, field)
    assert studio.delete("/api/jobs/0123456789ab").status == 404


def test_a_job_that_is_ended_closes_its_work_and_no_other():
    async def main():
        told, closed = [], []
        jobs = Jobs(told.append)

        async def work(name):
            try:
                for number in range(100):
                    yield {"progress": number}
                    await asyncio.sleep(0.01)
            finally:
                closed.append(name)

        first, second = (jobs.start("x", None, {}, work(name)) for name in "ab")
        await asyncio.sleep(0.05)
        await jobs.cancel(first.id)
        assert closed == ["a"] and (first.state, second.state) == ("cancelled", "running")
        followed = [event async for event in first.follow(0)]
        assert followed[-1]["state"] == "cancelled" and len(told) == 3
        await jobs.cancel(second.id)
        with pytest.raises(HttpError):
            jobs.get("other")

    asyncio.run(main())


def test_who_goes_away_while_it_is_written_disturbs_nobody(studio):
    """Two clients write at once, and one of them leaves in the middle."""
    asked = {"run": studio.id("demo"), "text": TEXT, "top": 3}
    expected, found = studio.stream("/api/write", asked), []

    def other():
        found.append(studio.stream("/api/write", asked))

    threads = [threading.Thread(target=other) for _ in range(2)]
    for thread in threads:
        thread.start()
    connection = http.client.HTTPConnection("127.0.0.1", studio.port)
    connection.request(
        "POST", "/api/write", json.dumps(asked), studio.headers | {"content-type": "application/json"}
    )
    connection.getresponse().read(10)
    connection.close()
    for thread in threads:
        thread.join(20)
    assert found == [expected, expected]
    end = time.monotonic() + 20
    while studio.studio.service.running and time.monotonic() < end:
        time.sleep(0.01)
    assert studio.studio.service.running == 0
