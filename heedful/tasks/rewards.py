"""Rewards: what a response is worth, known to a program or predicted by a reward model.

    judge     of the corpus instructions: what its program says, from 0 to 1
    exact     whether it is the right response
    facts     the share of the right response's sentences that it has
    length    words of the shorter one over words of the longer one
    format    of the corpus instructions: whether it looks as the instruction asks
    RUN       the score of a reward model, which `heedful train reward` has made

A response without an end is worth what no other is: 0 to a program, and to a reward model as little as the
worst one beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..corpora.instructions import Instruction
from ..corpora.instructions.judge import REWARDS, judge
from ..errors import BadInput
from ..files import one_line
from ..interop.run.read import weights_hash
from ..models import nearest
from ..train.device import find_device
from .instruct_data import CORPUS, ResponseRow
from .recipe.settings import Recipe

Program = Callable[[Instruction, str], float]
PROGRAMS: Mapping[str, Program] = {"judge": judge, **REWARDS}
OF_THE_CORPUS = ("judge", "format")  # rewards that ask what kind of instruction it is


@dataclass(frozen=True)
class ProgramRewards:
    """What a program says of the responses to some rows."""

    rows: Sequence[ResponseRow]
    program: Program

    def __call__(
        self, prompts: Sequence[int], responses: Sequence[str], ended: Sequence[bool]
    ) -> list[float]:
        return [
            self.program(known(self.rows[number]), said) if whole else 0.0
            for number, said, whole in zip(prompts, responses, ended, strict=True)
        ]


def known(row: ResponseRow) -> Instruction:
    """What a program knows of a row; of a row of somebody's own, its prompt and the right response."""
    return row.instruction or Instruction("", row.asked, row.response, "", "")


@lru_cache(1)
def reward_model(folder: str) -> Any:
    """A reward model, loaded once for all rows that it judges."""
    from .reward_scores import RewardModel

    return RewardModel.load(folder, find_device("auto"))


@dataclass(frozen=True)
class ModelRewards:
    """The scores of a reward model."""

    rows: Sequence[ResponseRow]
    folder: str

    def __call__(
        self, prompts: Sequence[int], responses: Sequence[str], ended: Sequence[bool]
    ) -> list[float]:
        asked = [self.rows[number].before for number in prompts]
        scores = reward_model(self.folder).scores(list(zip(asked, responses, strict=True)))
        worst = min(scores)
        return [score if whole else worst for score, whole in zip(scores, ended, strict=True)]


def rewards_of(recipe: Recipe, rows: Sequence[ResponseRow]) -> ProgramRewards | ModelRewards:
    """The rewards that a recipe asks for, of the responses to some rows."""
    name = recipe.train.reward
    return ProgramRewards(rows, PROGRAMS[name]) if name in PROGRAMS else ModelRewards(rows, name)


def check_reward(recipe: Recipe) -> None:
    """Refuse a reward that there is not, or that the data cannot be judged by."""
    name = recipe.train.reward
    if name in OF_THE_CORPUS and recipe.data.corpus != CORPUS:
        others = ", ".join(other for other in PROGRAMS if other not in OF_THE_CORPUS)
        raise BadInput(
            f"the reward {name} knows the instructions of --corpus {CORPUS} only: set train.reward to "
            f"{others}, or to the folder of a reward model"
        )
    if name not in PROGRAMS and not Path(name).is_dir():
        known = nearest(name, PROGRAMS)
        raise BadInput(one_line(f'train.reward is "{name}", which is neither a reward nor a folder{known}'))


def reward_facts(recipe: Recipe) -> dict[str, Any]:
    """What a run depends on, of the reward."""
    name = recipe.train.reward
    return {} if name in PROGRAMS else {"reward model": weights_hash(Path(name))}
