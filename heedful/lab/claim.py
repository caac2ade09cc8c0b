"""A claim: a sentence of the lectures, a prediction, arms that measure, and a rule for each part.

A file in claims/ has one `CLAIM`. An arm is a function of a seed and a size (quick, standard or full) that
returns numbers. It is pure: it reads nothing but its arguments, and its random numbers follow from the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

import torch

from ..errors import BadInput
from ..models import nearest
from ..tasks.student import LEVEL
from .contents import claim_files
from .results import Numbers, Results
from .rules import CONTRADICTED, DEPENDS, EXACT, INCONCLUSIVE, SUPPORTED, Exact, Ruling, VerdictRule

if TYPE_CHECKING:
    from ..inside.look.drawing import Drawing

Arm = Callable[[int, str], Numbers]
SIZES = ("quick", "standard", "full")
IDENTITY = {"quick": 2, "standard": 3, "full": 5}  # seeds of what has no noise
LEARNING = {"quick": 4, "standard": 6, "full": 10}  # four of four are most: Wilson's interval begins at .51


@dataclass(frozen=True)
class ClaimPart:
    """One statement of a claim, the arms that measure it, and the rule that decides."""

    name: str
    says: str
    arms: Mapping[str, Arm]  # those that the rule does not name are for the figure
    rule: VerdictRule
    seeds: Mapping[str, int] = field(default_factory=lambda: IDENTITY)
    expects: str = ""  # the verdict; without it, exact of an identity and supported of anything else
    control: bool = False  # shows that the measurement works: if it fails, the claim is inconclusive
    clocked: bool = False  # its arms measure time, so nothing else runs beside them

    @property
    def expected(self) -> str:
        return self.expects or (EXACT if self.identity else SUPPORTED)

    @property
    def identity(self) -> bool:
        """Whether the part is an identity, which runs with every change of the library."""
        return isinstance(self.rule, Exact)


@dataclass(frozen=True)
class Claim:
    """A sentence of the lectures as an experiment.

    Attributes:
        says: The lecture's sentence, in other words.
        lecture: Numbers of the lectures.
        predicts: What the rules require, in words.
        parts: Statements, each with its experiments and its rule.
        summary: From results to the verdict in plain words.
        changes: What would change the verdict.
        figure: From results to a drawing.
        question: What students answer before they see numbers.
        minutes: Minutes on two cores, by size.
        first_seed: The first seed.
        letter: Its letter.
        name: Its name.

    Example:
        >>> claim = find_claim("order")
        >>> claim.letter, [part.name for part in claim.parts][:1] == [claim.parts[0].name], claim.expected
        ('c', True, 'supported')
    """

    says: str
    lecture: str
    predicts: str
    parts: tuple[ClaimPart, ...]
    summary: Callable[[Results], str]
    changes: str
    figure: Callable[[Results], Drawing]
    question: str
    minutes: Mapping[str, float]
    first_seed: int = 0
    letter: str = ""
    name: str = ""

    @cached_property
    def arms(self) -> dict[str, tuple[Arm, Mapping[str, int]]]:
        """{arm: its function and its seeds} of all parts; parts share arms by name."""
        found: dict[str, tuple[Arm, Mapping[str, int]]] = {}
        for part in self.parts:
            missing = set(part.rule.arms) - part.arms.keys()
            if missing:
                raise ValueError(f"part {part.name} has a rule for {sorted(missing)}, which are not its arms")
            for name, arm in part.arms.items():
                if name in found and found[name][0] is not arm:
                    raise ValueError(f"two arms of one claim are called {name}")
                found[name] = (arm, part.seeds if name not in found else larger(found[name][1], part.seeds))
        return found

    @property
    def clocked(self) -> set[str]:
        """The arms that run alone, because they measure time."""
        return {name for part in self.parts if part.clocked for name in part.arms}

    @property
    def identities(self) -> dict[str, Arm]:
        """The arms of exact parts."""
        return {name: part.arms[name] for part in self.parts if part.identity for name in part.rule.arms}

    @property
    def expected(self) -> str:
        """The verdict that its file expects."""
        return combined([(part.control, part.expected) for part in self.parts])


def larger(one: Mapping[str, int], other: Mapping[str, int]) -> Mapping[str, int]:
    return {size: max(one[size], other[size]) for size in SIZES}


# Judging.


@dataclass(frozen=True)
class Judgment:
    """What a run says of a claim."""

    verdict: str
    rulings: tuple[Ruling, ...]  # one a part

    def surprises(self, claim: Claim) -> list[ClaimPart]:
        """The parts whose verdict is not the expected one."""
        return [
            part
            for part, ruling in zip(claim.parts, self.rulings, strict=True)
            if ruling.verdict != part.expected
        ]


def judge(claim: Claim, results: Results) -> Judgment:
    """Every part by its rule; those with a p-value are judged together, so that luck does not add up."""
    alone = [part.rule.judge(results) for part in claim.parts]
    levels = holm_levels([ruling.p for ruling in alone])
    rulings = tuple(
        first if first.p is None else part.rule.judge(results, level)
        for part, first, level in zip(claim.parts, alone, levels, strict=True)
    )
    pairs = [(part.control, ruling.verdict) for part, ruling in zip(claim.parts, rulings, strict=True)]
    return Judgment(combined(pairs), rulings)


def holm_levels(chances: list[float | None]) -> list[float]:
    """The level of each part by Holm's method (1979): once one fails its level, all larger p-values do."""
    order = sorted((p, i) for i, p in enumerate(chances) if p is not None)
    levels, failed = [LEVEL] * len(chances), False
    for rank, (p, i) in enumerate(order):
        levels[i] = 0.0 if failed else LEVEL / (len(order) - rank)
        failed = failed or p >= levels[i]
    return levels


def combined(parts: list[tuple[bool, str]]) -> str:
    """One verdict of (is a control, verdict) of all parts."""
    if any(control and verdict not in (EXACT, SUPPORTED) for control, verdict in parts):
        return INCONCLUSIVE
    found = {verdict for control, verdict in parts if not control}
    if INCONCLUSIVE in found:
        return INCONCLUSIVE
    if CONTRADICTED in found:
        return CONTRADICTED if found == {CONTRADICTED} else DEPENDS
    return EXACT if found == {EXACT} else SUPPORTED


# Measuring, and finding claims.


def measured(arm: Arm, seed: int, size: str) -> dict[str, float]:
    """What an arm measures. Its random numbers follow from the seed; those of the process go on as before."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return {name: float(value) for name, value in arm(seed, size).items()}


def find_claim(called: str) -> Claim:
    """A claim of `heedful lab` by its name or its letter.

    Args:
        called: The name, such as "order", or the letter, such as "c".

    Returns:
        The claim: what the lecture says, its parts, and their rules.

    Raises:
        BadInput: There is no such claim.

    Example:
        >>> find_claim("c").name
        'order'
    """
    files = claim_files()
    letters = {path.stem[0]: name for name, path in files.items()}
    name = letters.get(called, called)
    if name not in files:
        known = [*files, *letters] if len(called) == 1 else list(files)
        raise BadInput(f"there is no claim {called!r}{nearest(called, known)}")
    module = import_module(f"{__package__}.claims.{files[name].stem}")
    return replace(module.CLAIM, letter=files[name].stem[0], name=name)
