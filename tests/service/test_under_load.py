"""A real service under load: answers are those of the model alone, and whoever leaves leaves nothing."""

import asyncio
import json
import os
import signal
import socket

import pytest
from helpers.load_cases import (
    Asked,
    ask,
    crowd,
    gauges,
    kill,
    mixed,
    until_calm,
    workers_of,
)
from helpers.serve_cases import serving, wait_until_ready

import heedful

LONG = Asked("/v1/completions", {"model": "lm", "prompt": "the", "max_tokens": 4000, "temperature": 0}, "")
STREAM = Asked(LONG.path, LONG.body | {"stream": True}, "")


@pytest.fixture(scope="module")
def service(served):
    found = served("lm", "demo", options=("--rows", "4", "--waiting", "80"))
    wait_until_ready(found)
    return found


@pytest.fixture(scope="module")
def requests(stored):
    return mixed(heedful.load(stored / "lm"), heedful.load(stored / "demo"))


def test_many_clients_of_all_kinds_get_the_answers_that_a_model_gives_alone(service, requests):
    counts = asyncio.run(crowd(service, requests, clients=64, seconds=4))
    assert counts["answered"] > 64 and counts["cut"] > 5
    until_calm(service)


def test_clients_that_hang_up_anywhere_free_their_rows_and_change_nobodys_answer(service, requests):
    asyncio.run(hang_up(service, requests, 100))


@pytest.mark.slow
def test_a_thousand_clients_of_a_model_that_hang_up_free_their_rows(service, requests):
    asyncio.run(hang_up(service, requests, 1000))


async def hang_up(service, requests, count):
    """So many clients that leave, 20 at a time, beside some that stay."""
    long_prompt = Asked("/v1/translate", {"model": "demo", "texts": "the cat " * 1500, "stream": True}, "")
    for start in range(0, count, 20):
        cuts = [
            ask(service, (LONG, STREAM, long_prompt)[i % 3], cut=(-1, 0.0, 0.01, 0.03, 0.1)[i % 5])
            for i in range(20)
        ]
        beside = [requests[(start + i) % len(requests)] for i in range(4)]
        found = await asyncio.gather(*cuts, *(ask(service, one) for one in beside))
        assert all(one.status in (0, 400) for one in found[:20])
        for one, asked in zip(found[20:], beside, strict=True):
            assert (one.status, one.text) == (200, asked.answer)
    await asyncio.to_thread(until_calm, service)


def test_where_the_queue_is_full_clients_are_told_when_to_come_back_and_others_are_served(service, requests):
    async def overload():
        return await asyncio.gather(*(ask(service, requests[i % len(requests)]) for i in range(260)))

    found = asyncio.run(overload())
    refused = [one for one in found if one.status == 429]
    assert refused and all(int(one.headers["retry-after"]) >= 1 for one in refused)
    served = [(one, requests[i % len(requests)]) for i, one in enumerate(found) if one.status == 200]
    assert len(served) + len(refused) == 260 and all(one.text == asked.answer for one, asked in served)
    until_calm(service)
    assert asyncio.run(ask(service, requests[0])).text == requests[0].answer


def test_signs_of_life_come_while_a_worker_reads_a_long_prompt(service):
    text = ("the small cat " * 2200)[:30_000]
    long = Asked("/v1/translate", {"model": "demo", "texts": text, "beam": 1, "max_new_tokens": 2}, "")

    async def watch():
        reading = asyncio.create_task(ask(service, long))
        lives = 0
        while not reading.done():
            assert (await asyncio.to_thread(service.get, "/health")).status == 200
            lives += not reading.done()
        return lives, await reading

    lives, found = asyncio.run(watch())
    assert lives > 5 and found.status == 200, found


def test_killed_in_the_middle_a_worker_ends_its_streams_cleanly_and_the_service_is_ready_again(
    service, requests
):
    async def killed():
        tasks = [asyncio.create_task(ask(service, one)) for one in (STREAM, LONG, STREAM)]
        while gauges(service)['heedful_rows{model="lm",state="running"}'] != 3:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        kill(service, "lm")
        beside = await ask(service, next(one for one in requests if one.body["model"] == "demo"))
        return beside, await asyncio.gather(*tasks)

    beside, (stream, plain, _) = asyncio.run(killed())
    assert stream.status == 200 and "SIGKILL" in stream.error and stream.text
    assert plain.status == 503 and "SIGKILL" in plain.error
    assert beside.status == 200
    health = json.loads(service.get("/health").body)["models"]["lm"]
    assert health["state"] == "starting" and health["restarts"] == 1
    waits = next(one for one in requests if one.body["model"] == "lm")
    assert asyncio.run(ask(service, waits)).text == waits.answer  # it waits until the model is there again
    wait_until_ready(service)
    until_calm(service)


def test_told_to_stop_under_load_a_service_finishes_what_runs_and_ends_with_0(stored, tmp_path, requests):
    own = [one for one in requests if one.body["model"] == "lm"]
    with serving(str(stored / "lm"), log=tmp_path / "log", options=("--rows", "2")) as service:

        async def stopped():
            running = [asyncio.create_task(ask(service, one)) for one in own[:2]]
            stays = socket.create_connection(("127.0.0.1", service.port))
            while not gauges(service)['heedful_rows{model="lm",state="running"}']:
                if all(one.done() for one in running):  # they were quick
                    running = [asyncio.create_task(ask(service, one)) for one in own[:2]]
                await asyncio.sleep(0)
            (worker,) = workers_of(service).values()
            service.process.send_signal(signal.SIGTERM)
            found = await asyncio.gather(*running)
            stays.close()
            return worker, found

        worker, found = asyncio.run(stopped())
        assert [(one.status, one.text) for one in found] == [(200, one.answer) for one in own[:2]]
        assert service.process.wait(30) == 0
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)
        with socket.create_server(("127.0.0.1", service.port)):  # nothing keeps a new one from starting
            pass
