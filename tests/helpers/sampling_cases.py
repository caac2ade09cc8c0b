"""What several tests share with tests/decode/test_sampling.py."""

import math
from functools import cache

from helpers.decoding_cases import EOS, Case, every_sequence


def expected_of(case: Case, longest: int, change=lambda p: p) -> dict[tuple[int, ...], float]:
    """The probability of every sequence after prompt 1, each step's probabilities changed as told."""

    @cache
    def after(begun: tuple[int, ...]) -> list[float]:
        return change(case.next(1, begun).exp().tolist())

    return {
        sequence: math.prod(after(sequence[:i])[token] for i, token in enumerate(sequence))
        for sequence in every_sequence(4, longest, EOS)
    }


def sharpened(p: list[float]) -> list[float]:
    """Temperature 0.6, then the two likeliest."""
    hot = [x ** (1 / 0.6) for x in p]
    best = sorted(range(len(p)), key=lambda i: -hot[i])[:2]
    return [hot[i] / sum(hot[j] for j in best) if i in best else 0.0 for i in range(len(p))]
