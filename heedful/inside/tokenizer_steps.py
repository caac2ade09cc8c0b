"""What a tokenizer does with one word, step by step: merges, longest matches, or the most likely path.

Each function here is the algorithm of a kind of tokenizer in plain Python, from its tokenizer.json:

    BPE         start from characters; merge the neighbors that were learned first, until none is left
    WordPiece   take the longest known piece, left to right
    Unigram     of all ways to cut the word into known pieces, take the one with the largest sum of scores
    WordLevel   look the word up

`spelling.py` compares their results with those of the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

LONGEST = 1000  # characters of a word: each merge looks at all of it
PENALTY = 10.0  # by which an unknown character scores less than the worst piece (sentencepiece)


@dataclass(frozen=True)
class TokenizerStep:
    """One step of a tokenizer: what was joined or taken, and the pieces of the word after it.

    Attributes:
        pieces: The pieces of the word.
        made: The new piece; "" in the first step.
        left: In a merge, the left part of the new piece.
        right: In a merge, the right part.
        rank: In a merge, its place among the merges that were learned, from 1.
        score: In a unigram model, the log-probability of the piece.

    Example:
        >>> TokenizerStep(["th", "e"], made="th", left="t", right="h", rank=1).made
        'th'
    """

    pieces: list[str]
    made: str = ""
    left: str = ""
    right: str = ""
    rank: int | None = None
    score: float | None = None


Steps = tuple[list[int], list[TokenizerStep]]  # the tokens of a word, and how they came about
Replay = Callable[[str], Steps]


class CannotReplay(Exception):
    """A tokenizer does something that is not replayed."""


def replay_of(model: dict[str, Any]) -> Replay:
    """The algorithm of a model of tokenizer.json."""
    kinds: dict[str, Callable[[dict[str, Any]], Replay]] = {
        "BPE": bpe,
        "WordPiece": word_piece,
        "Unigram": unigram,
        "WordLevel": word_level,
    }
    kind = str(model.get("type"))
    if kind not in kinds:
        raise CannotReplay(f"models of kind {kind} are not replayed")
    replay = kinds[kind](model)

    def bounded(word: str) -> Steps:
        if len(word) > LONGEST:
            raise CannotReplay(f"a word has {len(word):,} characters; at most {LONGEST:,} are replayed")
        return replay(word)

    return bounded


# BPE


def bpe(model: dict[str, Any]) -> Replay:
    """Byte pair encoding: bytes or characters, merged in the order in which merges were learned."""
    if model.get("dropout"):
        raise CannotReplay("it leaves out merges at random (dropout)")
    vocab, prefix = model["vocab"], model.get("continuing_subword_prefix") or ""
    suffix, names = model.get("end_of_word_suffix") or "", {number: name for name, number in vocab.items()}
    unknown = vocab.get(model.get("unk_token"))
    ranks: dict[tuple[int, int], tuple[int, int]] = {}
    for rank, pair in enumerate(model["merges"], 1):
        a, b = pair.split(" ") if isinstance(pair, str) else pair
        ranks[vocab[a], vocab[b]] = rank, vocab[a + b[len(prefix) :]]

    def letters(word: str) -> list[int]:
        found: list[int] = []
        for place, letter in enumerate(word):
            name = (prefix if place else "") + letter + (suffix if place == len(word) - 1 else "")
            if name in vocab:
                found.append(vocab[name])
            elif model.get("byte_fallback") and (spelled := in_bytes(name, vocab)):
                found += spelled
            elif unknown is not None and not (model.get("fuse_unk") and found[-1:] == [unknown]):
                found.append(unknown)
        return found

    def replay(word: str) -> Steps:
        if model.get("ignore_merges") and word in vocab:
            return [vocab[word]], [TokenizerStep([word], word)]
        ids = letters(word)
        steps = [TokenizerStep([names[number] for number in ids])]
        while best := min(known_pairs(ids), default=None):
            rank, at, made = best
            left, right = names[ids[at]], names[ids[at + 1]]
            ids[at : at + 2] = [made]
            steps.append(TokenizerStep([names[number] for number in ids], names[made], left, right, rank))
        return ids, steps

    def known_pairs(ids: list[int]) -> list[tuple[int, int, int]]:
        """(rank, place, what it becomes) of each pair of neighbors that has a merge."""
        found = [(at, ranks.get(pair)) for at, pair in enumerate(pairwise(ids))]
        return [(merge[0], at, merge[1]) for at, merge in found if merge is not None]

    return replay


def in_bytes(name: str, vocab: dict[str, int]) -> list[int]:
    """The tokens of a character's bytes; none if the vocabulary lacks one of them."""
    found = [vocab.get(f"<0x{byte:02X}>") for byte in name.encode()]
    return [number for number in found if number is not None] if None not in found else []


# WordPiece


def word_piece(model: dict[str, Any]) -> Replay:
    """The longest known piece at each place; a word with an unknown rest is unknown as a whole."""
    vocab, prefix = model["vocab"], model["continuing_subword_prefix"]
    unknown, longest = model["unk_token"], model["max_input_chars_per_word"]

    def replay(word: str) -> Steps:
        found: list[str] = []
        steps, start = [TokenizerStep([word])], 0
        while start < len(word) <= longest:
            ends = range(len(word), start, -1)
            known = (end for end in ends if (prefix if start else "") + word[start:end] in vocab)
            end = next(known, None)
            if end is None:
                break
            found.append((prefix if start else "") + word[start:end])
            rest = [(prefix if end else "") + word[end:]] if end < len(word) else []
            steps.append(TokenizerStep([*found, *rest], found[-1]))
            start = end
        if start < len(word):
            return [vocab[unknown]], [*steps, TokenizerStep([unknown], unknown)]
        return [vocab[piece] for piece in found], steps

    return replay


# Unigram


def unigram(model: dict[str, Any]) -> Replay:
    """The way through the word with the largest sum of log-probabilities (Viterbi)."""
    entries = model["vocab"]
    vocab = {piece: number for number, (piece, _) in enumerate(entries)}
    scores = {piece: score for piece, score in entries}
    unknown, widest = model.get("unk_id"), max((len(piece) for piece, _ in entries), default=1)
    unknown_score = min((score for _, score in entries), default=0.0) - PENALTY
    fuses = model.get("fuse_unk", True)

    def best_way(word: str) -> list[tuple[str, float, bool]]:
        """(piece, score, whether it is known) from the first to the last."""
        ends: list[tuple[float, int, bool]] = [(0.0, -1, True)] + [(-math.inf, -1, True)] * len(word)
        reached = [True] + [False] * len(word)
        for start in range(len(word)):
            before, single = ends[start][0], False
            for end in range(start + 1, min(len(word), start + widest) + 1):
                piece = word[start:end]
                if piece in vocab:
                    single = single or end == start + 1
                    total = before + scores[piece]
                    if not reached[end] or total > ends[end][0]:
                        ends[end], reached[end] = (total, start, True), True
            total = before + unknown_score
            if not single and (not reached[start + 1] or total > ends[start + 1][0]):
                ends[start + 1], reached[start + 1] = (total, start, False), True
        found, at = [], len(word)
        while at > 0:
            start, known = ends[at][1], ends[at][2]
            piece = word[start:at]
            score = scores[piece] if known else unknown_score
            found.append((piece, score, known and vocab[piece] != unknown))
            at = start
        return found[::-1]

    def replay(word: str) -> Steps:
        ids: list[int] = []
        fused: list[tuple[str, float, bool]] = []
        for piece, score, known in best_way(word):
            if fuses and not known and fused and not fused[-1][2]:
                fused[-1] = fused[-1][0] + piece, fused[-1][1] + score, False
            else:
                fused.append((piece, score, known))
        steps = [TokenizerStep([word])]
        for place, (piece, score, known) in enumerate(fused, 1):
            spelled = in_bytes(piece, vocab) if model.get("byte_fallback") and piece not in vocab else []
            if not known and not spelled and unknown is None:
                raise CannotReplay("it has no token for what it does not know")
            ids += [vocab[piece]] if known else spelled or [int(unknown or 0)]
            rest = "".join(each[0] for each in fused[place:])
            pieces = [each[0] for each in fused[:place]] + ([rest] if rest else [])
            steps.append(TokenizerStep(pieces, piece, score=score))
        return ids, steps

    return replay


def word_level(model: dict[str, Any]) -> Replay:
    """A word has a number, or is unknown."""
    vocab, unknown = model["vocab"], model.get("unk_token")

    def replay(word: str) -> Steps:
        name = word if word in vocab else unknown
        if name is None or name not in vocab:
            raise CannotReplay("it has no token for what it does not know")
        last = [] if name == word else [TokenizerStep([name], name)]
        return [vocab[name]], [TokenizerStep([word]), *last]

    return replay
