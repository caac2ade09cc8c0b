"""A service as clients meet it: a real server and real workers."""


def test_a_service_lists_its_models_and_what_they_can_do(served):
    listed = served("demo", "lm", options=("--languages", "en:fr")).get("/v1/models").json["data"]
    assert [one["id"] for one in listed] == ["demo", "lm"]
    assert "translate" in listed[0]["can"] and "generate" in listed[1]["can"]
