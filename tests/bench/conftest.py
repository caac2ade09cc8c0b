"""What tests of the bench share: no pauses between turns, and a host whose worker knows only costs."""

import pytest
from helpers.bench_cases import Answering

from heedful.bench import measure
from heedful.bench.host import Host


@pytest.fixture
def no_pause(monkeypatch):
    monkeypatch.setattr(measure, "PAUSE", 0.0)


@pytest.fixture
def host():
    machine = {
        "device": "cpu",
        "threads": 1,
        "memory": 10**9,
        "hardware": {"cpu": "a chip", "cores": 2, "gpu": None},
        "versions": {"python": "3", "torch": "2"},
    }
    return Host(Answering(), machine, True, lambda line: None)
