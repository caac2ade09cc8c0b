"""Which examples make up step N: a pure function of (seed, N), so that there is no iterator whose state could
be lost.

An epoch is a fixed number of batches. Which examples share a batch, and the order of the batches, are
permutations keyed by (seed, epoch), and a permutation is computed one place at a time: nothing is shuffled,
nothing is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import TypeVar

import numpy as np

from ..errors import BadInput

Number = TypeVar("Number", int, np.ndarray)

WORD = (1 << 64) - 1
ROUNDS = 8
FEW = 256
GROWTH = 1.15  # of the lengths that end a bucket: on average, a row is then padded by about 7 %
SAMPLE = 200  # batches looked at to see how much is padding


# Keyed permutations


def splitmix(x: Number) -> Number:
    """Every bit of a 64-bit number into every bit of another (Steele, Lea and Flood 2014)."""
    x = (x + 0x9E3779B97F4A7C15) & WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def keyed(*numbers: int) -> int:
    """One key of several numbers, whose order matters."""
    key = 0
    for number in numbers:
        key = splitmix(key ^ (number & WORD))
    return key


def feistel(x: Number, side: int, keys: list[int]) -> Number:
    """A permutation of the places of a square.

    (row, column) becomes (column, row + hash(column)), which can be undone whatever the hash
    (Black and Rogaway 2002).
    """
    row, column = x // side, x % side
    for key in keys:
        row, column = column, (row + splitmix(column ^ key) % side) % side
    return row * side + column


def square(n: int, key: int) -> tuple[int, list[int]]:
    """The side of a square that has n places, and the keys of its rounds."""
    return isqrt(n - 1) + 1, [keyed(key, turn) for turn in range(ROUNDS)]


def permuted(i: int, n: int, key: int) -> int:
    """Where a permutation of range(n), chosen by its key, sends i.

    What lands on the few places from n on is sent on until it comes back, as it must: it is on a cycle.
    """
    if not 0 <= i < n:
        raise IndexError(f"place {i} of {n}")
    if n <= FEW:
        return int(order_of_few(n, key)[i])
    side, keys = square(n, key)
    i = feistel(i, side, keys)
    while i >= n:
        i = feistel(i, side, keys)
    return i


def permuted_array(places: np.ndarray, n: int, key: int) -> np.ndarray:
    """`permuted` of many at once."""
    if len(places) and not 0 <= int(places.min()) <= int(places.max()) < n:
        raise IndexError(f"places {places.min()} to {places.max()} of {n}")
    if n <= FEW:
        return order_of_few(n, key)[places]
    side, keys = square(n, key)
    x = feistel(places.astype(np.uint64), side, keys)
    while len(outside := np.flatnonzero(x >= n)):
        x[outside] = feistel(x[outside], side, keys)
    return x.astype(np.int64)


def order_of_few(n: int, key: int) -> np.ndarray:
    """A whole permutation, by the order of hashes: small squares know too few of them."""
    return np.argsort(splitmix(np.arange(n, dtype=np.uint64) ^ np.uint64(keyed(key))), kind="stable")


# Rows of their own lengths


class BucketPlan:
    """Batches of rows of like length, with at most `max_tokens` places each, padding included.

    Every row that is not too long comes exactly once in an epoch. Which rows a step has follows from the seed
    and the step alone.

    Args:
        lengths: Tokens of each row; or two such arrays, of sources and targets. The longer side counts.
        max_tokens: Places of a batch.
        seed: Seed of the order.
        longest: Rows with more tokens are left out.

    Attributes:
        batches: Batches of an epoch.
        left_out: Rows that are too long.
        bounds: The lengths that end a bucket.
        rows: Rows in a batch of each bucket.

    Example:
        >>> plan = BucketPlan(np.array([2, 9, 3, 2, 8]), max_tokens=12, seed=0, longest=8)
        >>> plan.batches, plan.left_out
        (3, 1)
        >>> sorted(int(row) for step in range(3) for row in plan.batch(step))
        [0, 2, 3, 4]
        >>> 0 <= plan.padding() < 0.2
        True
    """

    def __init__(
        self, lengths: np.ndarray | Sequence[np.ndarray], max_tokens: int, seed: int, longest: int
    ) -> None:
        if max_tokens < 1:
            raise BadInput(f"a batch has at least 1 token, not max_tokens = {max_tokens}")
        self.seed, self._sides = seed, sides_of(lengths)
        size: np.ndarray = np.maximum.reduce(self._sides)
        self.bounds = bucket_bounds(int(size[size <= longest].max(initial=1)))
        bucket = np.searchsorted(self.bounds, size).astype(np.uint16)
        bucket[size > longest] = len(self.bounds)  # after the last
        self._order = np.argsort(bucket, kind="stable")
        self._counts = np.bincount(bucket, minlength=len(self.bounds) + 1)
        self.left_out = int(self._counts[-1])
        self.rows = np.maximum(max_tokens // self.bounds, 1)  # in a batch of each bucket
        self._ends = np.cumsum(-(-self._counts[:-1] // self.rows))  # batches up to each bucket's last
        self.batches = int(self._ends[-1])
        if not self.batches:
            raise BadInput(
                f"no row is left to train on: {self.left_out} of {len(size)} are over {longest} tokens"
            )

    def batch(self, step: int) -> np.ndarray:
        """The rows of a step.

        Args:
            step: The step, counted from 0.

        Returns:
            Numbers of rows. The last batch of a bucket may be small.
        """
        epoch, place = divmod(checked_step(step), self.batches)
        number = permuted(place, self.batches, keyed(self.seed, epoch, 0))
        bucket = int(np.searchsorted(self._ends, number, "right"))
        rows, count = int(self.rows[bucket]), int(self._counts[bucket])
        first = (number - int(self._ends[bucket])) * rows + -(-count // rows) * rows
        places = np.arange(first, min(first + rows, count))
        places = permuted_array(places, count, keyed(self.seed, epoch, 1 + bucket))
        return self._order[int(self._counts[:bucket].sum()) + places]

    def padding(self) -> float:
        """The share of padding to expect when each side is padded to its longest row in the batch.

        Returns:
            A share from 0 to 1.
        """
        padded = real = 0
        for step in range(min(SAMPLE, self.batches)):
            ids = self.batch(step)
            for side in self._sides:
                padded += len(ids) * int(side[ids].max())
                real += int(side[ids].sum())
        return 1 - real / max(padded, 1)


def sides_of(lengths: np.ndarray | Sequence[np.ndarray]) -> list[np.ndarray]:
    """One array of lengths, or two that belong together."""
    sides = [lengths] if isinstance(lengths, np.ndarray) else list(lengths)
    for side in sides:
        if len(side) != len(sides[0]):
            raise BadInput(f"there are {len(sides[0])} sources and {len(side)} targets")
        if len(side) and side.min() < 0:
            raise BadInput(f"row {int(side.argmin())} has length {side.min()}")
    return sides


def bucket_bounds(longest: int) -> np.ndarray:
    """1, 2, 3, ... as long as one more exceeds the growth, then further apart, and at last the longest."""
    bounds, bound = [], 1
    while bound < longest:
        bounds.append(bound)
        bound = max(bound + 1, int(bound * GROWTH))
    return np.array([*bounds, longest])


def checked_step(step: int) -> int:
    if step < 0:
        raise IndexError(f"steps are counted from 0, not {step}")
    return step


# Windows of a stream


class WindowPlan:
    """Batches of a language model: windows of `length` tokens and the one that follows, from one long stream.

    Within an epoch no token is predicted twice. Each epoch shifts the windows, so that their edges differ.

    Args:
        tokens: Tokens of the stream.
        length: Tokens that a window predicts.
        rows: Windows in a batch.
        seed: Seed of the order.

    Attributes:
        windows: Windows of an epoch.
        batches: Batches of an epoch.

    Example:
        >>> plan = WindowPlan(tokens=1000, length=16, rows=4, seed=0)
        >>> plan.batches, plan.batch(0).shape
        (15, (4,))
    """

    def __init__(self, tokens: int, length: int, rows: int, seed: int) -> None:
        if length < 1 or rows < 1:
            raise BadInput(f"a batch has at least one window of one token, not {rows} of {length}")
        if tokens <= length:
            raise BadInput(f"the text has {tokens} tokens, too few for a window of {length} and the next one")
        self.tokens, self.length, self.seed = tokens, length, seed
        self.windows = max(tokens // length - 1, 1)  # one fewer than fit, for the room to shift
        self.rows = min(rows, self.windows)
        self.batches = self.windows // self.rows

    def batch(self, step: int) -> np.ndarray:
        """Where the windows of a step begin.

        Args:
            step: The step, counted from 0.

        Returns:
            Places in the stream; each window has `length` + 1 tokens from there.
        """
        epoch, place = divmod(checked_step(step), self.batches)
        shift = keyed(self.seed, epoch, 0) % min(self.length, self.tokens - self.windows * self.length)
        places = np.arange(place * self.rows, (place + 1) * self.rows)
        return shift + self.length * permuted_array(places, self.windows, keyed(self.seed, epoch, 1))


# Segments that follow each other


class SegmentPlan:
    """Batches for a model with a memory: every row is a place in the stream, and goes on at every step.

    Args:
        tokens: Tokens of the stream.
        length: Tokens that a segment predicts.
        rows: Rows in a batch.
        seed: Seed of the shift of each epoch.
        shifts: Whether each epoch shifts the rows, so that segments are cut elsewhere.

    Attributes:
        batches: Batches of an epoch.

    Example:
        >>> plan = SegmentPlan(tokens=101, length=5, rows=4, shifts=False)
        >>> plan.batch(0).tolist(), plan.batch(1).tolist()
        ([0, 25, 50, 75], [5, 30, 55, 80])
        >>> plan.place(step=plan.batches + 1)
        1
    """

    def __init__(self, tokens: int, length: int, rows: int, seed: int = 0, shifts: bool = True) -> None:
        if length < 1 or rows < 1:
            raise BadInput(f"a batch has at least one segment of one token, not {rows} of {length}")
        if tokens <= length:
            raise BadInput(
                f"the text has {tokens} tokens, too few for a segment of {length} and the next one"
            )
        self.tokens, self.length, self.seed, self.shifts = tokens, length, seed, shifts
        self.rows = min(rows, (tokens - 1) // length)
        self.batches = (tokens - 1) // (self.rows * length)

    def place(self, step: int) -> int:
        """Which segment of their rows a step has.

        Args:
            step: The step, counted from 0.

        Returns:
            The number of the segment, counted from 0.
        """
        return checked_step(step) % self.batches

    def batch(self, step: int) -> np.ndarray:
        """Where the segments of a step begin, row by row.

        Args:
            step: The step, counted from 0.

        Returns:
            Places in the stream; each segment has `length` + 1 tokens from there.
        """
        epoch, line = step // self.batches, self.batches * self.length
        room = min(self.length, self.tokens - self.rows * line)
        shift = keyed(self.seed, epoch, 0) % room if self.shifts else 0
        return shift + np.arange(self.rows) * line + self.place(step) * self.length


# Rows that are all alike


class RowPlan:
    """Batches of equally many rows, shuffled every epoch. The few rows left over differ by epoch.

    Args:
        count: Number of rows.
        rows: Rows in a batch.
        seed: Seed of the order.

    Attributes:
        batches: Batches of an epoch.

    Example:
        >>> plan = RowPlan(count=7, rows=3, seed=0)
        >>> plan.batches, len(set(plan.batch(0).tolist()) & set(plan.batch(1).tolist()))
        (2, 0)
    """

    def __init__(self, count: int, rows: int, seed: int) -> None:
        if count < 1 or rows < 1:
            raise BadInput(f"a batch has at least one row, not {rows} of {count}")
        self.count, self.seed, self.rows = count, seed, min(rows, count)
        self.batches = self.count // self.rows

    def batch(self, step: int) -> np.ndarray:
        """The rows of a step.

        Args:
            step: The step, counted from 0.

        Returns:
            Numbers of rows.
        """
        epoch, place = divmod(checked_step(step), self.batches)
        places = np.arange(place * self.rows, (place + 1) * self.rows)
        return permuted_array(places, self.count, keyed(self.seed, epoch, 0))


# Parts of a batch


def share(ids: np.ndarray, rank: int, world: int, micro: int = 0, micros: int = 1) -> np.ndarray:
    """The part of a batch for one rank and micro-batch: contiguous, near-equal, perhaps empty."""
    if not (0 <= rank < world and 0 <= micro < micros):
        raise IndexError(f"rank {rank} of {world}, micro-batch {micro} of {micros}")
    part, parts = rank * micros + micro, world * micros
    return ids[len(ids) * part // parts : len(ids) * (part + 1) // parts]


def shares(ids: np.ndarray, micros: int, rank: int = 0, world: int = 1) -> list[np.ndarray]:
    """The micro-batches of one process of several.

    Args:
        ids: The rows of a step.
        micros: Micro-batches of each process.
        rank: Number of the process.
        world: Number of processes.

    Returns:
        The rows of each micro-batch, without empty ones.

    Example:
        >>> [part.tolist() for part in shares(np.arange(6), micros=2, rank=1, world=2)]
        [[3], [4, 5]]
    """
    parts = [share(ids, rank, world, micro, micros) for micro in range(micros)]
    return [part for part in parts if len(part)]
