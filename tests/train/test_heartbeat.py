"""Heartbeats: who is named when a run does not go on, and who is not."""

import os
import socket
import sys
import time
from dataclasses import replace

import pytest

from heedful.errors import LOST, BadInput
from heedful.files import started
from heedful.train import heartbeat
from heedful.train.heartbeat import BOUND, GRACE, SLOW, Beat, Heartbeat, Phase, behind, location

ELSEWHERE = "elsewhere"


class Shelf:
    """A board without a network."""

    address = "nowhere:1"

    def __init__(self) -> None:
        self.beats: dict[int, Beat] = {}
        self.down = False

    def write(self, beat: Beat) -> None:
        if self.down:
            raise RuntimeError
        self.beats[beat.rank] = beat

    def read(self) -> list[Beat]:
        if self.down:
            raise RuntimeError
        return [self.beats[rank] for rank in sorted(self.beats)]


class Run:
    """One process's heartbeat among three others that a test moves, in seconds that nobody waits for."""

    def __init__(self, monkeypatch, rank: int = 0, bound: float = BOUND) -> None:
        monkeypatch.setattr(heartbeat.threading.Thread, "start", lambda thread: None)
        monkeypatch.setattr(heartbeat.threading.Thread, "join", lambda thread, timeout=None: None)
        self.shelf, self.ended = Shelf(), []
        self.mine = Heartbeat(rank, 4, bound, self.shelf, self.ended.append)
        self.waits(True)
        for other in range(4):
            if other != rank:
                self.shelf.write(Beat(other, ELSEWHERE, 100 + other, "7", waits=True))

    def waits(self, waits: bool) -> None:
        self.mine.where_is = lambda: ("heedful/train/loop.py:1", waits)

    def at(self, phase: Phase, step: int, *ranks: int, **more) -> None:
        for rank in ranks:
            if rank == self.mine.beat.rank:
                self.mine.mark(phase, step)
            else:
                known = self.shelf.beats[rank]
                long = phase in heartbeat.LONG
                self.shelf.write(replace(known, step=step, phase=phase, long=long, **more))

    def passes(self, seconds: float, *silent: int) -> None:
        """Time passes, and all others but the silent ones go on publishing."""
        for _ in range(round(seconds / self.mine.pause)):
            for rank, beat in self.shelf.beats.items():
                if rank != self.mine.beat.rank and rank not in silent and beat.ended is None:
                    self.shelf.beats[rank] = replace(beat, number=beat.number + 1)
            self.mine.awake += self.mine.pause
            self.mine.exchange_once()
            if not self.ended:
                self.mine.consider()


@pytest.fixture
def run(monkeypatch) -> Run:
    found = Run(monkeypatch)
    found.at(Phase.COMPUTE, 1, 0, 1, 2, 3)
    found.at(Phase.COMPUTE, 12, 0, 1, 2, 3)
    return found


def test_a_silent_process_is_named_within_a_minute_and_all_end(run, capsys):
    run.passes(39, 2)
    assert run.ended == []
    run.passes(4, 2)
    assert run.ended[0] == LOST
    said = capsys.readouterr().err
    assert "error: process 2 (pid 102 on elsewhere) hangs or has ended" in said
    assert "when last heard of, it was computing, step 12" in said and said.count("process ") == 1
    assert run.mine.beat.ended == ""  # it followed


def test_while_steps_are_made_nobody_is_asked_or_blamed(run):
    for step in range(13, 40):
        run.passes(9, 1, 2, 3)
        run.at(Phase.COMPUTE, step, 0)
    assert run.ended == [] and run.mine.now == []


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.EVALUATE, Phase.SAVE])
def test_a_long_stage_of_one_process_is_waited_for(phase, run, capsys):
    run.at(phase, 11, 3)
    run.passes(3600)
    assert run.ended == [] and capsys.readouterr().err == ""
    run.passes(42, 3)
    assert run.ended[0] == LOST and "process 3" in capsys.readouterr().err


def test_the_first_computation_may_take_long_and_the_next_may_not(monkeypatch, capsys):
    run = Run(monkeypatch)
    run.at(Phase.COMPUTE, 1, 0)
    run.at(Phase.COMPUTE, 1, 1, 2, 3)
    for rank in (1, 2, 3):
        run.shelf.write(replace(run.shelf.beats[rank], long=True))
    run.passes(3600)
    assert run.ended == []
    run.at(Phase.COMPUTE, 2, 0, 1, 2, 3)
    run.passes(GRACE * BOUND + 2)
    assert run.ended[0] == LOST


def test_one_that_is_alive_and_behind_is_named_first_and_ended_later(run, capsys):
    run.at(Phase.READ, 12, 3, where="heedful/data/packing.py:7")
    run.passes(BOUND + 6)
    said = capsys.readouterr().err
    assert run.ended == []
    assert said.startswith("warning: process 3 (pid 103 on elsewhere) is stuck reading its examples, step 12")
    assert "at heedful/data/packing.py:7" in said and "unless it goes on" in said
    run.passes(GRACE * BOUND - BOUND - 4)
    assert run.ended[0] == LOST and "error: process 3" in capsys.readouterr().err


def test_slow_steps_make_the_bound_longer(run, capsys):
    slow = 60.0
    run.passes(slow)
    capsys.readouterr()
    run.at(Phase.COMPUTE, 13, 0, 1, 2, 3)
    run.at(Phase.READ, 13, 3)
    run.passes(SLOW * slow - 1)
    assert capsys.readouterr().err == "" and run.ended == []
    run.passes(6)
    assert "process 3" in capsys.readouterr().err


def test_within_one_stage_the_one_that_waits_for_nobody_is_to_blame():
    beats = [Beat(rank, ELSEWHERE, 1, "1", 1, 5, Phase.COMPUTE, False, waits=rank != 2) for rank in range(4)]
    assert [beat.rank for beat in behind(beats)] == [2]
    everyone = [replace(beat, waits=True) for beat in beats]
    assert behind(everyone) == everyone
    assert behind([]) == []


def test_if_all_wait_for_each_other_the_network_is_suspected(run, capsys):
    run.passes(BOUND + 6)
    assert "no process has come further than computing, step 12" in capsys.readouterr().err


def test_the_last_words_of_a_process_are_passed_on(run, capsys):
    run.shelf.write(replace(run.shelf.beats[1], ended="there is not enough memory"))
    run.shelf.write(replace(run.shelf.beats[3], ended=""))  # it only followed
    run.passes(15)
    assert run.ended[0] == LOST
    said = capsys.readouterr().err
    assert "error: process 1 (pid 101 on elsewhere) has ended: there is not enough memory\n" in said
    assert "process 3" not in said


def test_a_store_that_does_not_answer_is_named(run, capsys):
    run.shelf.down = True
    run.passes(45)
    assert run.ended[0] == LOST and "the store at nowhere:1 does not answer" in capsys.readouterr().err


def test_a_process_of_this_machine_that_is_dead_or_stopped_is_told_apart(run):
    here, pid = socket.gethostname(), os.getpid()
    alive = Beat(1, here, pid, started(pid))
    assert not alive.dead and not alive.stopped
    assert replace(alive, started="1").dead  # another process has its number by now
    assert not replace(alive, started="1", host=ELSEWHERE).dead
    assert "hangs or has ended" in alive.epitaph
    assert "has ended without a word" in replace(alive, started="1").epitaph


def test_one_process_of_a_machine_speaks(monkeypatch, capsys):
    run = Run(monkeypatch, rank=2)
    here = run.mine.beat.host
    run.at(Phase.COMPUTE, 1, 0, 1, 2, 3)
    run.at(Phase.COMPUTE, 12, 0, 1, 2, 3)
    for rank in (0, 1):
        run.shelf.write(
            replace(run.shelf.beats[rank], host=here, pid=os.getpid(), started=started(os.getpid()))
        )
    run.passes(43, 0)  # 0 is silent: 1 says so, not 2
    assert run.ended[0] == LOST and capsys.readouterr().err == ""


def test_time_in_which_this_process_was_suspended_does_not_count(run, monkeypatch):
    clock = iter([0.0, 1.0, 5000.0, 5001.0])
    monkeypatch.setattr(heartbeat.time, "monotonic", lambda: next(clock))
    rounds = iter([False, False, False, True])
    monkeypatch.setattr(run.mine.over, "wait", lambda pause: next(rounds))
    before = run.mine.awake
    run.mine.judge()
    assert run.mine.awake - before == 1 + heartbeat.MISSED + 1


def test_the_line_is_one_of_heedful_and_waiting_is_seen():
    ours, waits = location(sys._getframe())
    assert (ours, waits) == ("", False)  # a test is no part of it
    assert location(None) == ("", False)


@pytest.mark.parametrize("said", ["soon", "-1", "0.5", "nan", "1e9"])
def test_a_bound_that_is_none_is_refused(said, monkeypatch):
    monkeypatch.setenv(heartbeat.SETTING, said)
    with pytest.raises(BadInput, match=heartbeat.SETTING):
        heartbeat.start(0, 2)


def test_the_bound_0_turns_it_off(monkeypatch):
    monkeypatch.setenv(heartbeat.SETTING, "0")
    began = time.monotonic()
    assert heartbeat.start(0, 2) is None and time.monotonic() >= began
