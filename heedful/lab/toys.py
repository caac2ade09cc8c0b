"""Toy tasks that several claims share: batches as pure functions of a seed and a step.

Steps -1 and -2 are the test and the validation set. A task of one claim alone stands in its file.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .small import generator

MODULUS = 11


@dataclass(frozen=True)
class ToyBatch:
    """Tokens, and what is to be predicted: a token at each place, or a class for each row. -1 is nothing."""

    tokens_BT: Tensor
    targets: Tensor


def drawn(seed: int, step: int) -> torch.Generator:
    """Random numbers of one step of one seed."""
    return generator((seed + 1) * 1_000_003 + step + 1)


def fibonacci(seed: int, step: int, rows: int, length: int, modulus: int = MODULUS) -> ToyBatch:
    """Each word is the sum of the two before it; the first two are random, so nothing else is predictable."""
    words = list(torch.randint(modulus, (2, rows), generator=drawn(seed, step)))
    while len(words) < length:
        words.append((words[-1] + words[-2]) % modulus)
    tokens_BT = torch.stack(words, 1)
    targets_BT = torch.full_like(tokens_BT, -1)
    targets_BT[:, 1:-1] = tokens_BT[:, 2:]
    return ToyBatch(tokens_BT, targets_BT)


def before(seed: int, step: int, rows: int, length: int = 12, symbols: int = 10) -> ToyBatch:
    """Does symbol 0 come before symbol 1? Each occurs once, among others."""
    rng = drawn(seed, step)
    tokens_BT = torch.randint(2, symbols, (rows, length), generator=rng)
    order_BT = torch.rand(rows, length, generator=rng).argsort(-1)
    first_B, second_B = order_BT[:, 0], order_BT[:, 1]
    tokens_BT.scatter_(1, first_B[:, None], 0).scatter_(1, second_B[:, None], 1)
    return ToyBatch(tokens_BT, (first_B < second_B).long())


def twice(seed: int, step: int, rows: int, length: int = 12, symbols: int = 10) -> ToyBatch:
    """Does symbol 0 occur twice, or once? Order does not matter."""
    rng = drawn(seed, step)
    tokens_BT = torch.randint(1, symbols, (rows, length), generator=rng)
    order_BT = torch.rand(rows, length, generator=rng).argsort(-1)
    yes_B = torch.randint(2, (rows,), generator=rng)
    second_B = torch.where(yes_B == 1, order_BT[:, 1], order_BT[:, 0])
    tokens_BT.scatter_(1, order_BT[:, :1], 0).scatter_(1, second_B[:, None], 0)
    return ToyBatch(tokens_BT, yes_B)


def reverse(seed: int, step: int, rows: int, length: int = 12, symbols: int = 16) -> ToyBatch:
    """The text from its end to its start: every place looks at another one."""
    tokens_BT = torch.randint(symbols, (rows, length), generator=drawn(seed, step))
    return ToyBatch(tokens_BT, tokens_BT.flip(1))


def delayed(seed: int, step: int, rows: int, length: int, delay: int = 3, symbols: int = 16) -> ToyBatch:
    """Each place repeats the word that came `delay` words before it."""
    tokens_BT = torch.randint(symbols, (rows, length), generator=drawn(seed, step))
    targets_BT = torch.full_like(tokens_BT, -1)
    targets_BT[:, delay:] = tokens_BT[:, : length - delay]
    return ToyBatch(tokens_BT, targets_BT)
