"""The judge by program: what a response is worth, known to the letter.

Each reward is a number from 0 to 1 that a program can check. The judge weighs them, and only the right
response gets 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..facts import share_right

if TYPE_CHECKING:
    from . import Instruction

SENTENCES = r"[A-ZÀ-Ý][^.]*[^. ]\.( [A-Z][^.]*[^. ]\.)*"
FORMATS = {
    "translate": SENTENCES,
    "tense": SENTENCES,
    "answer": SENTENCES,
    "count": r"\d+",
    "reverse": r"[a-z ]+",
}


def exact(row: Instruction, response: str) -> float:
    """Whether it is the right response, white space made single."""
    return float(response.split() == row.response.split())


def facts_covered(row: Instruction, response: str) -> float:
    """The share of the sentences of the right response that this one has."""
    return share_right(" ".join(response.split()), row.response)


def right_length(row: Instruction, response: str) -> float:
    """Words of the shorter one over words of the longer one."""
    sizes = len(response.split()), len(row.response.split())
    return min(sizes) / max(sizes)


def right_format(row: Instruction, response: str) -> float:
    """Whether it looks as the instruction asks: sentences, a number, or words without capitals and marks."""
    return float(re.fullmatch(FORMATS[row.kind], " ".join(response.split())) is not None)


Reward = Callable[["Instruction", str], float]
REWARDS: dict[str, Reward] = {
    "exact": exact,
    "facts": facts_covered,
    "length": right_length,
    "format": right_format,
}
WEIGHTS = {"exact": 0.7, "facts": 0.1, "length": 0.1, "format": 0.1}


def judge(row: Instruction, response: str) -> float:
    """The reward of a response: exactness counts 70 %, facts, length and format 10 % each.

    Args:
        row: The instruction.
        response: The response.

    Returns:
        A number from 0 to 1. Only the right response gets 1.

    Example:
        >>> from heedful.corpora import instructions
        >>> row = next(instructions.split("valid"))
        >>> judge(row, row.response), judge(row, row.rejected) < 0.3
        (1.0, True)
    """
    if exact(row, response):
        return 1.0
    return sum(weight * REWARDS[name](row, response) for name, weight in WEIGHTS.items())
