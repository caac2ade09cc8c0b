"""Benches without processes: workers that answer as they are told, and hosts that they work on."""

import argparse
from dataclasses import replace

from heedful.bench import __main__ as program
from heedful.bench import ours
from heedful.bench import work as works
from heedful.bench.measure import Failed, Result, contest
from heedful.bench.peers import Contender, Place, Variant

CPU = Place("cpu", 1)
TRAINING, DECODING = works.SMALL["train-gpt2"], works.SMALL["decode-gpt2"]


class Pretended:
    """A worker that takes so many seconds a unit; it fails to build, or at a turn, if told to."""

    def __init__(self, diary, speeds, broken=None):
        self.diary, self.speeds, self.broken, self.turns = diary, speeds, broken or {}, 0
        self.name = ""

    def ask(self, do, **given):
        if do == "build":
            self.name = Contender.from_json(given["contender"]).name
            self.diary.append(("build", self.name))
            if self.broken.get(self.name) == "build":
                raise Failed("ValueError: it will not")
            return {"answer": [[1, 2, 3]], "unit": self.speeds[self.name], "compile": None, "memory": 5000}
        assert do == "turn"
        self.turns += 1
        self.diary.append(("turn", self.name, given["units"]))
        if self.broken.get(self.name) == self.turns:
            raise Failed("was ended by signal 9")
        return {"seconds": self.speeds[self.name] * self.turns, "cpu": 0.0}

    def close(self):
        self.diary.append(("close", self.name))


def contender(name, numbers="", **more):
    return Contender(name, Variant(numbers=numbers, **more))


def play(names, broken=None, rounds=3, speeds=None, at_once=1):
    """A contest of pretended workers: what happened, and what came of it."""
    diary = []
    speeds = speeds or dict.fromkeys(names, 0.1)
    results = contest(
        [contender(name) for name in names],
        DECODING,
        CPU,
        rounds,
        1.0,
        lambda line: None,
        start=lambda threads, ours: Pretended(diary, speeds, broken),
        at_once=at_once,
    )
    return diary, results


def asked_for(**more):
    return argparse.Namespace(**{**vars(program.parser().parse_args([])), **more})


CEILINGS = {"flops": 1e9, "bandwidth": 1e6}


class Answering:
    """A worker of the host that knows only costs."""

    def ask(self, do, **given):
        known = {
            "ceilings": CEILINGS,
            "absent": {"rare": "not installed: pip install rare"},
            "contenders": [contender("heedful").as_json(), contender("slow").as_json()],
            "prepare": {"answer": [[1, 2, 3]]},
        }
        if do in known:
            return known[do]
        assert do == "predict"
        return ours.predict(works.from_json(given["work"]), Place(**given["place"]))


def results_of(answer=((1, 2, 3),), **seconds):
    made = {
        "heedful": contender("heedful", same_weights=True),
        "slow": contender("slow", differs="no biases"),
        "fast": contender("fast", same_weights=True, differs="no biases"),
        "eight": contender("eight", "int8", same_weights=True),
        "broken": contender("broken"),
    }
    found = []
    for name, turn in seconds.items():
        result = Result(made[name], turns=[turn] * 3, answer=answer, elsewhere=[0.0])
        found.append(replace(result, failed="it broke", turns=[]) if turn is None else result)
    return found


# A peer of one's own, which does nothing
PEER = """
from heedful.bench.peers import Variant

def variants(work):
    return [Variant("x", differs="everything")]

def build(work, variant, place):
    return lambda: None
"""
