"""Workers from the HTTP process: how they start, fail, are waited for, and end."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heedful.service import workers
from heedful.service.fields import HttpError
from heedful.service.frames import Unpacker, packed
from heedful.service.workers import Answered, ServedModel, WorkerProcess

ROOT = Path(__file__).parents[2]
SAYS = """
import os, sys, json, struct
def say(message):
    text = json.dumps(message).encode()
    os.write(1, struct.pack("<II", len(text), 0) + text)
"""


@pytest.fixture
def worker(monkeypatch):
    """A function that makes a worker of a Python program."""

    def make(program: str) -> WorkerProcess:
        monkeypatch.setattr(workers, "command", lambda model: (sys.executable, "-c", SAYS + program))
        return WorkerProcess(ServedModel("stub", "folder"))

    return make


async def refusal(worker: WorkerProcess) -> HttpError:
    with pytest.raises(HttpError) as error:
        await worker.ready()
    return error.value


def test_a_request_waits_for_a_model_that_is_loaded_but_not_for_ever(worker, monkeypatch):
    monkeypatch.setattr(workers, "PATIENCE", 0.1)
    monkeypatch.setattr(workers, "MOST_PATIENT", 2)

    async def wait():
        slow = worker("import time; time.sleep(60)")
        found = await asyncio.gather(*(refusal(slow) for _ in range(3)))
        assert {(one.status, one.headers["retry-after"]) for one in found} == {(503, "5")}
        assert slow.patient == 0 and slow.state == "starting"
        await slow.stop()
        assert (await refusal(slow)).message == "the service is shutting down"

    asyncio.run(wait())


def test_a_model_that_cannot_be_loaded_says_why_and_is_tried_again_later(worker, monkeypatch):
    async def wait():
        broken = worker("say({'broken': 'there is no config.json'}); sys.exit(2)")
        lines: list[str] = []
        broken.noticed = lambda *_: lines.append(broken.state)
        for _ in range(2):
            assert "there is no config.json" in (await refusal(broken)).message
        assert sum("starting" in line for line in lines) == 1
        monkeypatch.setattr(workers, "RETRY", 0.0)
        assert "there is no config.json" in (await refusal(broken)).message
        assert sum("starting" in line for line in lines) == 2 and broken.restarts == 0

    asyncio.run(wait())


def test_a_worker_that_dies_again_and_again_while_loading_is_given_up(worker, monkeypatch):
    monkeypatch.setattr(workers, "BACK_OFF", (0.0, 0.0, 0.0))

    async def wait():
        dying = worker("sys.exit(7)")
        assert "exit code 7" in (await refusal(dying)).message
        assert dying.state == "broken" and dying.restarts == 2

    asyncio.run(wait())


def test_a_program_that_cannot_be_started_is_said_so(monkeypatch):
    monkeypatch.setattr(workers, "BACK_OFF", (0.0,))
    monkeypatch.setattr(workers, "command", lambda model: ("/nowhere/python",))
    found = asyncio.run(refusal(WorkerProcess(ServedModel("stub", "folder"))))
    assert "cannot be started" in found.message


def test_a_worker_is_alone_in_its_group_without_our_secrets_and_files(worker, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    monkeypatch.setenv("HF_TOKEN", "canary")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")

    async def look():
        with (tmp_path / "file").open("w") as file:
            os.set_inheritable(file.fileno(), True)
            curious = worker(
                "say({'ready': {'env': dict(os.environ), 'group': os.getpgrp() == os.getpid(),"
                " 'files': [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')"
                " if os.path.exists(f'/proc/self/fd/{n}')]}}); sys.stdin.read()"
            )
            await curious.ready()
            await curious.stop()
        return curious.facts

    facts = asyncio.run(look())
    assert "canary" not in json.dumps(facts["env"]) and facts["env"]["TOKENIZERS_PARALLELISM"] == "false"
    assert facts["group"] and str(tmp_path / "file") not in facts["files"]


def test_what_a_worker_has_started_ends_with_it(worker):
    async def look():
        parent = worker(
            "import subprocess\n"
            "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
            "say({'ready': {'child': child.pid}}); sys.stdin.read()"
        )
        await parent.ready()
        await parent.stop()
        return parent.facts["child"]

    state = Path(f"/proc/{asyncio.run(look())}/stat")
    while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)


def test_a_client_that_reads_too_slowly_loses_its_request_and_keeps_what_it_has(monkeypatch):
    monkeypatch.setattr(workers, "UNREAD", 3)
    answered = Answered()
    assert [answered.put({"piece": str(number)}) for number in range(5)] == [True, True, True, False, True]
    found = [answered.events.get_nowait() for _ in range(answered.events.qsize())]
    assert [event.get("piece") for event in found] == ["0", "1", "2", None]
    assert found[-1]["fault"]["status"] == 503


def test_a_worker_that_works_too_long_on_one_thing_is_started_again(worker, monkeypatch):
    async def wait():
        stuck = worker(
            "say({'ready': {}}); sys.stdin.buffer.read(9); say({'alive': 1e9}); import time; time.sleep(60)"
        )
        with pytest.raises(HttpError, match="busy with one piece of work"):
            async for _ in stuck.ask("write", {}):
                pass
        await stuck.stop()

    asyncio.run(wait())


def real_worker(folder: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "heedful.service.worker", folder]
    return subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_a_worker_ends_when_nobody_can_ask_it_any_more(tmp_path):
    with real_worker(str(tmp_path)) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


def test_a_worker_says_why_a_folder_is_no_model_and_answers_while_it_loads(tmp_path):
    with real_worker(str(tmp_path)) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(packed({"alive": True}))
        process.stdin.flush()
        frames = [frame.message for frame in Unpacker().feed(process.stdout.read())]
    assert frames[0]["alive"] >= 0 and str(tmp_path) in frames[1]["broken"]
    assert process.returncode == 2


def test_a_worker_whose_tasks_have_ended_is_stopped_all_the_same(worker):
    async def stop():
        quick = worker("say({'ready': {'can': []}}); sys.stdin.read()")
        await quick.ready()
        living = list(quick.tasks)
        quick.tasks.clear()  # as if its last words were read before anybody waits for them
        await quick.stop()
        assert quick.state == "stopped"
        await asyncio.gather(*living)

    asyncio.run(stop())
