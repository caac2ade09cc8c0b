"""A service as clients meet it: a real server and real workers."""

import pytest

import heedful


def test_a_service_lists_its_models_and_what_they_can_do(served):
    listed = served("demo", "lm", options=("--languages", "en:fr")).get("/v1/models").json["data"]
    assert [one["id"] for one in listed] == ["demo", "lm"]
    assert "translate" in listed[0]["can"] and "generate" in listed[1]["can"]


def test_workers_answer_what_the_methods_of_their_models_give(served, stored):
    service = served("demo", "lm", options=("--languages", "en:fr"))
    demo, lm = heedful.load(stored / "demo"), heedful.load(stored / "lm")
    texts = ["My aunts are curious.", "The small girl eats a red apple."]
    found = service.post("/v1/translate", {"model": "demo", "texts": texts, "beam": 3}).json["translations"]
    assert [one["text"] for one in found] == demo.translate(texts, beam=3)
    found = service.post("/v1/score", {"model": "lm", "texts": texts}).json["scores"]
    assert [one["log_probability"] for one in found] == pytest.approx([one.total for one in lm.score(texts)])
    found = service.post("/v1/embeddings", {"model": "demo", "input": texts}).json["data"]
    assert found[1]["embedding"] == pytest.approx(demo.embed(texts)[1].tolist(), abs=1e-5)
    (found,) = service.post("/v1/tokenize", {"model": "lm", "texts": texts[0]}).json["texts"]
    assert [one["id"] for one in found["tokens"]] == lm.tokenizer.encode(texts[0]).ids
