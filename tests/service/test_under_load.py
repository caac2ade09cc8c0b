"""A real service under load: answers are those of the model alone, and whoever leaves leaves nothing."""

import asyncio
import json
import os
import signal
import socket
import sys
import time

import pytest
from helpers.load_cases import (
    Asked,
    ask,
    crowd,
    descriptors,
    gauges,
    kill,
    memory,
    mixed,
    until_calm,
    workers_of,
)
from helpers.loop_cases import writing
from helpers.serve_cases import serving, wait_until_ready

import heedful
from heedful.service import workers
from heedful.service.fields import HttpError

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


# Long ones: run them with -m slow -s, one at a time; they print figures for benchmarks/RESULTS.md.


def figures_of(service):
    """Bytes and descriptors of the HTTP process and of the workers."""
    pids = {"http": service.process.pid, **workers_of(service)}
    return {name: (memory(pid), descriptors(pid)) for name, pid in pids.items()}


@pytest.mark.slow
def test_for_ten_minutes_all_answers_are_right_and_memory_and_descriptors_stay(service, requests):
    asyncio.run(crowd(service, requests, clients=64, seconds=60))
    until_calm(service)
    before, total = figures_of(service), {"answered": 0, "cut": 0}
    for part in range(1, 10):
        counts = asyncio.run(crowd(service, requests, clients=64, seconds=60, seed=1000 * part))
        until_calm(service)
        total = {name: total[name] + counts[name] for name in total}
        print(part, counts, figures_of(service), flush=True)
    after = figures_of(service)
    print(f"load {os.getloadavg()}, {total}, before {before}, after {after}")
    for name in before:
        assert after[name][0] - before[name][0] < 16 << 20, name
        assert after[name][1] <= before[name][1] + 2, name


@pytest.mark.slow
def test_five_hundred_clients_are_refused_at_once_or_served(service, requests):
    async def overload():
        return await asyncio.gather(*(ask(service, requests[i % len(requests)]) for i in range(500)))

    for _ in range(3):
        found = asyncio.run(overload())
        refused = sorted(one.seconds for one in found if one.status in (429, 503))
        served = [(one, requests[i % len(requests)]) for i, one in enumerate(found) if one.status == 200]
        assert len(refused) + len(served) == 500
        assert all(one.text == asked.answer for one, asked in served)
        start = time.monotonic()
        until_calm(service)
        middle, late = (1000 * refused[int(share * len(refused))] for share in (0.5, 0.99))
        print(f"{len(served)} served, {len(refused)} refused: {middle:.0f} ms p50, {late:.0f} ms p99")
        print(f"calm after {time.monotonic() - start:.2f} s")


@pytest.mark.slow
def test_half_open_connections_and_slow_readers_do_not_hold_up_others(stored, tmp_path, requests):
    own = [one for one in requests if one.body["model"] == "lm"]
    with serving(str(stored / "lm"), log=tmp_path / "log", options=("--limit", "connections=600")) as service:
        half = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(500)]
        for one in half:
            one.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n")
        start = time.monotonic()
        times = [asyncio.run(ask(service, one)) for one in own * 3]
        assert all(one.text == asked.answer for one, asked in zip(times, own * 3, strict=True))
        closed = 0
        for one in half:
            one.settimeout(30)
            closed += b" 408 " in one.recv(4096)
            one.close()
        print(f"{closed} of 500 closed after {time.monotonic() - start:.1f} s, {len(times)} others answered")
        assert closed == 500


@pytest.mark.slow
def test_killed_a_hundred_times_a_worker_is_there_again(stored, monkeypatch):
    monkeypatch.setattr(workers, "BACK_OFF", (0.0, 0.0, 0.0, 0.0))
    command = (sys.executable, "-m", "heedful.service.worker", str(stored / "lm"))
    monkeypatch.setattr(workers, "command", lambda model: command)

    async def kills():
        worker = workers.WorkerProcess(workers.ServedModel("lm", str(stored / "lm")))
        given = writing("the cat", max_new_tokens=4)
        for _ in range(100):
            found = [event async for event in worker.ask("write", given)]
            assert found[-1]["over"]
            stream = worker.ask("write", writing("the", max_new_tokens=4000, streams=True))
            assert "piece" in await anext(stream)
            worker.kill()
            with pytest.raises(HttpError, match="SIGKILL"):
                async for _ in stream:
                    pass
            assert not worker.asked
        assert worker.restarts == 100
        await worker.stop()

    asyncio.run(kills())


@pytest.mark.slow
def test_a_full_service_refuses_one_client_after_the_other_at_once(service, requests):
    async def refusals():
        full = [asyncio.create_task(ask(service, STREAM)) for _ in range(84)]
        while sum(value for name, value in gauges(service).items() if '"lm"' in name) < 84:
            await asyncio.sleep(0.05)
        found = [await ask(service, LONG) for _ in range(200)]
        for one in full:
            one.cancel()
        return found

    found = asyncio.run(refusals())
    times = sorted(one.seconds for one in found if one.status == 429)
    start = time.monotonic()
    until_calm(service)
    print(f"{len(times)} of 200 refused: {1000 * times[100]:.1f} ms p50, {1000 * times[197]:.1f} ms p99")
    print(f"calm {time.monotonic() - start:.2f} s after 84 clients left; load {os.getloadavg()[0]:.1f}")
    assert len(times) == 200
