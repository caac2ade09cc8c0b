"""Costs in the studio: of a model's own sizes and of others, the rates of a machine, and a measured step."""

import pytest
from helpers.studio_cases import load

from heedful.inside.costs import changed, costs, crossover, largest_batch
from heedful.models.base.skeleton import skeleton

ROOM = 2**30


def asked(studio, name, **more):
    reply = studio.post("/api/cost", {"run": studio.id(name), **more})
    assert reply.status == 200, reply.body
    return reply.json


def finished(studio, **job):
    reply = studio.post("/api/jobs", job)
    assert reply.status == 200, reply.body
    return studio.stream(f"/api/jobs/{reply.json['id']}/events", None)


@pytest.mark.parametrize("name", ["demo", "lm"])
def test_the_costs_of_a_run_are_those_of_python(studio, stored, name):
    told = asked(studio, name, length=13, batch=2, room=ROOM)
    model = load(str(stored / name))
    source = told["costs"]["source_length"]
    found = costs(model.model, 2, 13, source)
    assert told["costs"]["memory"] == found.memory and told["costs"]["pairs"] == found.pairs
    assert told["crossover"] == crossover(model.model)
    assert [group["largest"] for group in told["groups"]] == [
        largest_batch(model.model, ROOM, 13, source, use=use) for use in ("training", "inference")
    ]
    attention = next(row for row in told["rows"] if row["name"] == "attention")
    formula = attention["from"].partition("FLOPs = ")[2]
    assert eval(formula.replace("×", "*").replace(",", "")) == attention["flops"]


def test_other_sizes_are_counted_on_a_model_without_numbers(studio, stored):
    sizes = {"layers": 5, "width": 96, "heads": 6}
    told = asked(studio, "lm", config=sizes, length=13, room=ROOM)
    model = load(str(stored / "lm"))
    bones = skeleton(model.architecture, changed(model.config, sizes))
    assert told["costs"]["parameters"] == costs(bones, 1, 13).parameters
    assert {one["name"]: one["value"] for one in told["fields"]}["width"] == 96
    namespace = {}
    exec(told["code"].rpartition("\nfound.")[0], namespace)  # noqa: S102 (our own code)
    assert namespace["found"].memory == told["costs"]["memory"]


def test_lengths_are_brought_into_the_range_that_the_model_allows(studio, stored):
    told = asked(studio, "lm", length=10**6, source_length=7)
    context = load(str(stored / "lm")).config.context
    assert told["costs"]["length"] == context and told["lengths"] == [[1, context], None]


@pytest.mark.parametrize(
    "config, sentence",
    [
        ({"layers": 10**9}, "layers, and 256 are the most"),
        ({"heads": 7}, "cannot be divided into 7 heads"),
        ({"size": 7}, "there is no size"),
        ({"width": True}, "must be"),
        ({"vocab": 10**12}, "vocab must be a whole number from 1 to"),
    ],
)
def test_sizes_that_cannot_be_are_refused_in_a_sentence(studio, config, sentence):
    reply = studio.post("/api/cost", {"run": studio.id("lm"), "config": config, "room": ROOM})
    assert reply.status == 400 and sentence in reply.json["error"]["message"]


def test_rates_are_measured_and_predict_seconds(studio):
    events = finished(studio, kind="calibrate", run=studio.id("lm"), precision="fp32")
    found = events[-2]["result"]
    assert found["flops_rate"] > 1e8 and found["bandwidth"] > 1e8 and len(found["rows"]) == 2
    rates = {name: found[name] for name in ("flops_rate", "bandwidth")}
    told = asked(studio, "lm", length=13, room=ROOM, **rates)
    assert told["groups"][-1]["name"] == "Predicted time"
    assert told["groups"][-1]["items"][1]["value"] > 0


@pytest.mark.parametrize("name, more", [("lm", {}), ("demo", {}), ("lm", {"config": {"layers": 3}})])
def test_a_step_is_measured_beside_what_was_predicted(studio, name, more):
    events = finished(
        studio, kind="verify", run=studio.id(name), batch=2, length=13, flops_rate=1e9, bandwidth=1e9, **more
    )
    flops, memory, time = events[-2]["result"]["rows"]
    assert flops["predicted"] == flops["measured"]
    assert 0.5 < memory["measured"] / memory["predicted"] < 4
    assert time["measured"] > 0 and time["predicted"] > 0


def test_a_step_that_would_take_minutes_is_refused(studio):
    run = studio.id("demo")
    end = finished(studio, kind="verify", run=run, batch=10**6, length=10**4)[-1]
    assert end["state"] == "failed" and "choose a smaller batch or length" in end["message"]
    assert studio.post("/api/jobs", {"kind": "calibrate", "run": run, "batch": 3}).status == 400
