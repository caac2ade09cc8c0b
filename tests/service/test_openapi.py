"""/openapi.json says what the routes do: schemathesis makes requests from it, and none breaks anything."""

import json
import re

import pytest
from helpers.fuzzing import fuzz
from helpers.service_cases import quick_routes, running

from heedful.service.limits import Limits
from heedful.service.openai_routes import openai_routes
from heedful.service.server import routes_of as every_route

LIMITS = Limits(request_seconds=5.0, ping_seconds=0.5, characters=300, texts=8, tokens=50)


def test_every_route_is_described_with_its_request_and_its_refusals():
    with running(LIMITS, key="0123456789abcdef") as server:
        found = json.loads(server.call("GET /openapi.json")[2])
    assert found["openapi"] == "3.1.0"
    assert list(found["paths"]) == [
        "/health", "/ready", "/metrics", "/openapi.json", "/write", "/seen", "/fail"
    ]  # fmt: skip
    write = found["paths"]["/write"]["post"]
    assert write["summary"] == "Write words that follow from a text."
    assert write["requestBody"]["content"] == {
        "application/json": {"schema": {"$ref": "#/components/schemas/StubRequest"}}
    }
    assert write["responses"]["200"]["content"]["application/json"] == {"example": {"text": " w1 w2"}}
    assert {"400", "401", "408", "413", "415", "429", "503", "504"} <= set(write["responses"])
    assert write["security"] == [{"key": []}] and "security" not in found["paths"]["/health"]["get"]
    fields = found["components"]["schemas"]["StubRequest"]
    assert fields["required"] == ["text"] and fields["properties"]["text"]["maxLength"] == 300


def test_requests_of_openai_may_have_fields_that_nobody_knows():
    with running(LIMITS, routes=openai_routes) as server:
        found = json.loads(server.call("GET /openapi.json")[2])
    assert found["components"]["schemas"]["CompletionRequest"]["additionalProperties"] is True
    assert found["paths"]["/v1/models/{name}"]["get"]["parameters"][0]["name"] == "name"


def check(server, lines: list[str], report: str, least: int) -> None:
    """Nothing failed, no traceback was written, and the worker is the one that was started."""
    generated = re.search(r"(\d[\d,]*) generated", report)
    assert generated is not None and int(generated[1].replace(",", "")) >= least
    records = [json.loads(line) for line in lines]
    assert [one for one in records if "fault" in one] == []
    assert {one["status"] for one in records if "status" in one} <= {200, 400, 401, 404, 405, 413, 415}
    assert server.service.workers["stub"].restarts == 0 and server.seen()["running"] == 0


def test_requests_made_from_the_description_are_answered_as_it_says(tmp_path, capfd):
    with running(LIMITS, routes=quick_routes, places=8, waiting=99) as server:
        report = fuzz(server, tmp_path, 30, "--include-path", "/write")
        check(server, capfd.readouterr().err.splitlines(), report, 50)


def both(service):
    return [*quick_routes(service), *every_route(service)]


CROSSED = ("--exclude-checks", "positive_data_acceptance")  # top_logprobs needs logprobs: no schema says so


def test_requests_to_every_route_made_from_the_description_break_nothing(tmp_path, capfd):
    only = ("--include-path-regex", "^/v1/", "--phases", "fuzzing")
    with running(LIMITS, routes=both, places=8, waiting=99) as server:
        report = fuzz(server, tmp_path, 6, *only, *CROSSED)
        check(server, capfd.readouterr().err.splitlines(), report, 60)


@pytest.mark.slow
def test_twenty_thousand_requests_per_endpoint_break_nothing(tmp_path, capfd):
    with running(LIMITS, routes=both, places=8, waiting=99) as server:
        report = fuzz(server, tmp_path, 20_000, "--include-method", "POST", *CROSSED)
        check(server, capfd.readouterr().err.splitlines(), report, 60_000)
