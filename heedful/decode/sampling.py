"""Sampling: draw the next token from the model's distribution. The same seed gives the same text.

Every row has a generator of its own, so what is drawn in a row does not depend on which rows stand beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ..errors import BadInput
from .filters import Filter
from .prompts import Ends
from .scores import running_sum
from .step import Step
from .streaming import Hypothesis, join_chunks, stream_chunks, to_device

BLOCK = 64  # draws made at once: a generator's call costs more than its number


def row_seeds(seed: int | Sequence[int], rows: int) -> list[int]:
    """A seed for each row: those given, or one each derived from the one given."""
    if not isinstance(seed, int):
        if len(seed) != rows:
            raise BadInput(f"there are {rows} prompts but {len(seed)} seeds: give one for all, or one each")
        return list(seed)
    digests = (hashlib.sha256(f"{seed} {row}".encode()).digest() for row in range(rows))
    return [int.from_bytes(digest[:8], "little") >> 1 for digest in digests]


def rolls(seed: int) -> Iterator[float]:
    """What a row of this seed rolls, one after the other."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.rand(BLOCK, generator=generator, dtype=torch.float64).tolist()


class Dice:
    """Random numbers in [0, 1) for each row, from its own generator; `each` of them a roll."""

    def __init__(self, seeds: Sequence[int], device: torch.device, each: int = 1) -> None:
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.device, self.each, self.rolls = device, each, 0

    def roll(self) -> Tensor:
        """[B, each], new every time."""
        at = self.rolls % BLOCK
        if at == 0:
            shape = (BLOCK, self.each)
            drawn = [torch.rand(shape, generator=g, dtype=torch.float64) for g in self.generators]
            self.block = to_device(torch.stack(drawn, 1), self.device)
        self.rolls += 1
        return self.block[at]


def draw(weights_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """A token a row, at random in proportion to the weights: where the running sum passes a random height."""
    heights_BV = running_sum(weights_BV.double()).contiguous()
    # A double below 1 times the total stays below the total, rounded or not: some token always lies above.
    height_B1 = uniform_B[:, None] * heights_BV[:, -1:]
    found_B = torch.searchsorted(heights_BV, height_B1, right=True)[:, 0]
    return found_B.clamp(max=weights_BV.shape[-1] - 1)  # NaN weights give any token, and are refused later


class Sampler:
    """The choice that makes a stream random."""

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self.dice = Dice(seeds, device)

    def __call__(self, scores_BV: Tensor, rows_B: Tensor) -> Tensor:
        return draw(scores_BV.double().softmax(-1), self.dice.roll()[rows_B, 0])


def sample(
    step: Step,
    prompts_BT: Tensor,
    lengths_B: Tensor | None = None,
    *,
    longest: int | Sequence[int],
    eos: Ends = None,
    seed: int | Sequence[int] = 0,
    filters: Sequence[Filter] = (),
) -> list[Hypothesis]:
    """A random continuation of each prompt.

    Temperature, top-k and the like are filters; the distribution is what they leave, normalized.

    Args:
        step: As in `greedy`.
        prompts_BT: As in `greedy`.
        lengths_B: As in `greedy`.
        longest: As in `greedy`.
        eos: As in `greedy`.
        seed: One for the batch, or one for each row.
        filters: As in `greedy`.

    Returns:
        A `Hypothesis` for each prompt.

    Example:
        >>> from heedful.decode.filters import top_k
        >>> from heedful.decode.step import step_of
        >>> model = heedful.load("runs/lm").model
        >>> (found,) = sample(step_of(model), torch.tensor([[5, 7]]), longest=3, seed=1, filters=[top_k(5)])
        >>> len(found.tokens)
        3
    """
    choose = Sampler(row_seeds(seed, len(prompts_BT)), prompts_BT.device)
    chunks = stream_chunks(
        step, prompts_BT, lengths_B, choose=choose, longest=longest, eos=eos, filters=filters
    )
    return join_chunks(chunks, len(prompts_BT))
