"""Traces over HTTP have the numbers that Python gives, whole or in bytes."""

import numpy as np
import pytest
from helpers.studio_cases import load, ran

TEXT = "My aunts are curious."


@pytest.fixture(scope="module")
def traced(studio, stored):
    seen = studio.trace("demo", TEXT)
    return seen, load(str(stored / "demo")).trace(TEXT)


def test_a_trace_says_what_the_page_draws(traced):
    told, expected = traced
    assert told["translation"] == expected.words.translation and told["agreement"] < 1e-4
    assert {which: (kind["layers"], kind["heads"]) for which, kind in told["kinds"].items()} == {
        which: (kind.layers, kind.heads) for which, kind in expected.kinds.items()
    }
    assert told["kinds"]["cross"]["down"] == expected.kinds["cross"].down
    assert len(told["kinds"]["self"]["measures"][2]) == 4
    assert told["shells"] == {"encoder": 3, "decoder": 3}
    assert ran(told["code"], "trace").words.translation == told["translation"]


def test_bytes_are_the_numbers_of_the_trace(studio, traced):
    told, expected = traced
    path = f"/api/trace/{told['id']}"
    assert (studio.numbers(f"{path}/thumbs?which=cross") == expected.thumbnails("cross").numpy()).all()
    weights = studio.numbers(f"{path}/tensor?name=weights&which=cross&layer=2&head=3&dtype=f16")
    exact = expected.detail("cross", 2).weights_HTS[2].numpy()
    assert np.abs(weights.astype("f4") - exact).max() <= 2**-11
    every = studio.numbers(f"{path}/tensor?name=weights&which=cross&layer=2&dtype=f32")
    assert np.array_equal(every[2], exact) and len(every) == 4
    keys = studio.numbers(f"{path}/tensor?name=k&which=encoder&layer=1&head=1&dtype=f32")
    assert np.array_equal(keys, expected.qkv("encoder", 1, 1)[1].numpy())
    stream = studio.numbers(f"{path}/tensor?name=stream&shell=decoder&layer=0&dtype=f32")
    assert np.array_equal(stream, expected.stream("decoder", 0).numpy())


def test_steps_and_sublayers_are_those_of_the_trace(studio, traced):
    told, expected = traced
    query = "which=self&layer=2&head=1&query=3"
    steps = studio.get(f"/api/trace/{told['id']}/steps?{query}").json
    sublayer, same = steps.pop("sublayer"), ran(steps.pop("code"), "steps")
    assert same.as_json() == expected.steps("self", 2, 1, 3).as_json()
    assert steps == {**expected.steps("self", 2, 1, 3).as_json(), "which": "self"}
    assert sublayer["sum"] == expected.sublayer("self", 2).sum_TD[2].tolist()
    alone = studio.get(f"/api/trace/{told['id']}/sublayer?which=self&layer=2&query=3").json
    assert alone == sublayer


def test_the_same_text_has_the_same_trace_and_an_edit_another(studio, traced):
    told, _ = traced
    assert studio.trace("demo", TEXT)["id"] == told["id"]
    edited = studio.trace("demo", TEXT, target=told["translation"], edits=["uniform:cross.1.2"])
    assert edited["id"] != told["id"] and edited["edits"] == ["uniform:cross.1.2"]
    weights = studio.numbers(
        f"/api/trace/{edited['id']}/tensor?name=weights&which=cross&layer=1&head=2&dtype=f32"
    )
    assert np.allclose(weights, 1 / weights.shape[1])
    same = ran(edited["code"], "trace").detail("cross", 1).weights_HTS[1].numpy()
    assert np.array_equal(same, weights)


def test_a_forgotten_trace_is_made_again(studio, traced, monkeypatch):
    told, _ = traced
    path = f"/api/trace/{told['id']}/thumbs?which=self"
    before = studio.get(path).body
    worker = studio.studio.service.workers["demo"]
    worker.loop.methods["trace"].__self__.found.clear()
    assert studio.get(path).body == before


def test_the_flow_is_that_of_the_lens(studio, traced, stored):
    found = studio.get(f"/api/trace/{traced[0]['id']}/flow?top=3").json
    model = load(str(stored / "demo"))
    assert found["lens"]["predicted"] == model.lens(TEXT).as_json()["predicted"]
    assert len(found["lens"]["layers"][1]["top"][0]) == 3 and "refused" not in found["rollout"]
    assert ran(found["codes"]["lens"], "found")["predicted"] == found["lens"]["predicted"]
    assert ran(found["codes"]["rollout"], "found")["rollout"] == found["rollout"]["rollout"]


@pytest.mark.parametrize("by", ["weight", "norm", "zeroing", "gradient"])
def test_alignments_come_by_four_measures(studio, traced, stored, by):
    told, _ = traced
    found = studio.get(f"/api/trace/{told['id']}/alignment?by={by}&which=cross&layer=3&mean=1").json
    seen = load(str(stored / "demo")).look(TEXT, which="cross", layer=3, head="mean", by=by)
    assert np.allclose(found["values"], seen.chosen[0].weights_TS.tolist(), atol=1e-6)
    assert (found["down"], found["across"]) == (seen.down, seen.across)


@pytest.mark.parametrize(
    "query, field",
    [
        ("tensor?name=weights&which=cross&layer=9", None),
        ("tensor?name=weights&which=cross&layer=1&head=7", None),
        ("tensor?name=weights&which=cross&layer=one", "layer"),
        ("tensor?name=wieghts&which=cross&layer=1", "name"),
        ("steps?which=cross&layer=1&head=1&query=99", None),
        ("steps?which=cross&layer=1&haed=1&query=1", "haed"),
        ("thumbs?which=cross&which=self", "which"),
        ("thumbs", "which"),
    ],
)
def test_wrong_queries_are_refused_in_a_sentence(studio, traced, query, field):
    reply = studio.get(f"/api/trace/{traced[0]['id']}/{query}")
    assert reply.status == 400 and reply.json["error"]["param"] == field
    assert studio.get("/api/trace/0123456789abcdef/thumbs?which=self").status == 404


def test_other_models_have_traces_too(studio):
    for name, kinds in {"lm": {"self"}, "mlm": {"self"}, "classify": {"self"}}.items():
        assert kinds <= studio.trace(name, "the old king")["kinds"].keys()


def test_an_encoder_alone_has_one_attention_under_two_names(studio):
    path = f"/api/trace/{studio.trace('mlm', 'the old king')['id']}/alignment?layer=1&head=1&which="
    one, other = (studio.get(path + which).json for which in ("self", "encoder"))
    assert one["values"] == other["values"] and one["heads"] == other["heads"]


def test_the_recorded_example_answers_as_a_worker_does(studio):
    told = studio.get("/api/runs").json["recorded"]
    reply = studio.post("/api/trace", {"run": "recorded", "text": told["text"]})
    kind = reply.json["kinds"]["cross"]
    assert reply.json["id"] == "recorded" and kind["layers"] == 3
    thumbs = studio.numbers("/api/trace/recorded/thumbs?which=cross")
    weights = studio.numbers("/api/trace/recorded/tensor?name=weights&which=cross&layer=3&head=2&dtype=f32")
    assert thumbs.shape == (3, 4, len(kind["down"]), len(kind["across"]))
    assert np.abs(thumbs[2, 1] / 255 - weights).max() < 0.5 / 255 + 2**-11
    assert np.allclose(weights.sum(-1), 1, atol=1e-6)
    steps = studio.get("/api/trace/recorded/steps?which=self&layer=2&head=3&query=4").json
    scores = np.array([x if x is not None else -np.inf for x in steps["masked"]])
    assert np.allclose(np.exp(scores) / np.exp(scores).sum(), steps["weights"], atol=1e-5)
    assert np.allclose(np.dot(steps["k"], steps["q"]), steps["scores"], atol=1e-4)
    heads = np.array(steps["sublayer"]["heads"]).reshape(4, -1)
    assert np.allclose(heads[2], steps["output"], atol=1e-5)
    flow = studio.get("/api/trace/recorded/flow").json
    assert flow["lens"]["text"] == told["text"]
    for code in (reply.json["code"], steps["code"], *flow["codes"].values()):
        assert 'heedful.load("runs/demo")' in code and compile(code, "code", "exec")
    assert studio.post("/api/trace", {"run": "recorded", "text": "other"}).status == 409
    asked = {"run": "recorded", "text": told["text"]}
    events = studio.stream("/api/write", asked)
    assert events[-1]["done"]["text"] == reply.json["translation"]
    assert studio.post("/api/write", asked | {"prefix_tokens": [5]}).status == 409
    assert studio.stream("/api/search", asked | {"beam": 4})[-1]["done"]["answers"] == [
        reply.json["translation"]
    ]


def test_the_recorded_example_knows_its_alignments(studio):
    def asked(query):
        return studio.get(f"/api/trace/recorded/alignment?{query}")

    best = asked("").json
    weights = studio.numbers(
        f"/api/trace/recorded/tensor?name=weights&which=cross&layer={best['layer']}&head={best['head']}&dtype=f32"
    )
    assert np.allclose(best["values"], weights, atol=1e-6)
    whole = asked("layer=2&mean=1&by=norm&row=input").json
    assert (whole["layer"], whole["head"]) == (2, None)
    assert len(whole["values"]) == len(whole["down"]) == len(best["down"]) - 1
    assert asked("layer=4&head=1").status == 400 and asked("which=self").status == 409


def test_a_head_is_replaced_by_its_mean_over_held_out_texts(studio, stored):
    plain = studio.trace("lm", "the cat sat")
    edited = studio.trace("lm", "the cat sat", edits=["mean:self.1.1"])
    assert edited["id"] != plain["id"] and edited["edits"] == ["mean:self.1.1"]
    after = [
        studio.numbers(f"/api/trace/{one['id']}/tensor?name=stream&layer=1&dtype=f32")
        for one in (plain, edited)
    ]
    assert np.abs(after[0] - after[1]).max() > 1e-4
