"""Workers of the studio: one for a model, made room for without disturbing those who wait."""

import asyncio

import pytest

from heedful.service.workers import WorkerProcess
from heedful.studio import studio as studios
from heedful.studio.runs import ModelFolders
from heedful.studio.server import new_service
from heedful.studio.studio import Studio


@pytest.fixture
def quiet(tmp_path, monkeypatch):
    """A studio with four folders whose workers start no process; ending one takes a moment."""
    for name in "abcd":
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")

    async def stop(worker):
        await asyncio.sleep(0.01)
        worker.state = "stopped"

    monkeypatch.setattr(WorkerProcess, "stop", stop)
    monkeypatch.setattr(studios, "LOADED", 2)
    studio = Studio(ModelFolders(tmp_path), new_service())
    return studio, {one.path.name: one.id for one in studio.folders.scan()}


def test_requests_that_come_together_share_a_worker_and_end_one_other(quiet):
    studio, ids = quiet

    async def ask():
        for name in "ab":
            await studio.worker(ids[name])
        return await asyncio.gather(*(studio.worker(ids["c"]) for _ in range(3)))

    first, *others = asyncio.run(ask())
    assert all(one is first for one in others)
    assert set(studio.service.workers) == {"b", "c"}


def test_a_model_that_somebody_waits_for_is_not_ended_while_it_loads(quiet):
    studio, ids = quiet

    async def ask():
        (await studio.worker(ids["a"])).patient = 1
        await studio.worker(ids["b"])
        await studio.worker(ids["c"])

    asyncio.run(ask())
    assert set(studio.service.workers) == {"a", "c"}
