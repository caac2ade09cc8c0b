"""Trees over words: the best one for a table of scores, and texts that know their own.

`best_tree` is the algorithm of Chu and Liu (1965) and Edmonds (1967): every word takes its best head; a cycle
is made one word, whose best entrance then says where the cycle is cut. `Parsed` is a text with its words and
their heads, so that the pieces that a vocabulary cuts it into can inherit their word's place in the tree.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NoReturn, Self

import numpy as np

from ..errors import BadInput
from ..files import one_line, short
from .conllu import Sentence, Surface, check_tree, read_sentences
from .lines import LINE, judged_lines, refuse_unequal
from .report import Report, fault_of

# The best tree


def best_tree(scores: np.ndarray) -> list[int]:
    """The heads of the tree with the greatest sum of scores and exactly one root; scores[i, j]: word i under
    j.

    Words are counted from 0, and column n (the last) is the root: scores are [n, n + 1], and the answer has
    -1 there.
    """
    count, columns = scores.shape
    if columns != count + 1 or not np.isfinite(scores).all():
        raise ValueError(f"scores of {count} words are finite and {count} x {count + 1}, not {scores.shape}")
    if not count:
        return []
    table = np.full((count + 1, count + 1), -np.inf)  # node 0 is the root
    table[1:, 1:], table[1:, 0] = scores[:, :count], scores[:, count]
    np.fill_diagonal(table, -np.inf)
    # A second root would cost more than all other heads together could gain (Gabow and Tarjan 1984).
    table[1:, 0] -= 1 + (count + 1) * (scores.max() - scores.min())
    return [int(head) - 1 for head in arborescence(table)[1:]]


@dataclass(frozen=True)
class Contraction:
    """A cycle that was made one node, and which real ends each edge into and out of it has."""

    cycle: list[int]
    heads: np.ndarray  # of the cycle's nodes, inside it
    enters: np.ndarray  # [head]: the node of the cycle that the edge from this head enters by
    leaves: np.ndarray  # [dependent]: the node of the cycle that this dependent hangs on


def arborescence(scores: np.ndarray) -> np.ndarray:
    """Each node's head in the best tree that hangs on node 0; scores[i, j]: node i under node j.

    Nodes keep their numbers: a cycle lives on as its first node, and the others are cut off from all.
    """
    scores, undone = scores.copy(), []
    gone = np.zeros(len(scores), bool)
    while True:
        heads = scores.argmax(1)
        heads[0] = 0
        cycle = find_cycle(heads, gone)
        if not cycle:
            break
        undone.append(contract(scores, heads, cycle))
        gone[cycle[1:]] = True
    for made in reversed(undone):
        expand(heads, made)
    return heads


def find_cycle(heads: np.ndarray, gone: np.ndarray) -> list[int]:
    """The nodes of a cycle that does not pass the root; none in a tree."""
    seen = gone.astype(int)  # 1: not to be walked from
    seen[0] = 1
    for start in range(len(heads)):
        node = start
        while not seen[node]:
            seen[node] = start + 2
            node = int(heads[node])
        if seen[node] == start + 2:
            cycle = [node]
            while heads[cycle[-1]] != node:
                cycle.append(int(heads[cycle[-1]]))
            return cycle
    return []


def contract(scores: np.ndarray, heads: np.ndarray, cycle: list[int]) -> Contraction:
    """Make a cycle one node, its first. To enter it costs the head that the entered node gives up."""
    given_up = scores[cycle, heads[cycle]]
    into, out = scores[cycle] - given_up[:, None], scores[:, cycle]
    made = Contraction(
        cycle, heads[cycle].copy(), np.array(cycle)[into.argmax(0)], np.array(cycle)[out.argmax(1)]
    )
    node = cycle[0]
    scores[node], scores[:, node] = into.max(0), out.max(1)
    scores[cycle[1:]] = scores[:, cycle[1:]] = -np.inf
    scores[node, node] = -np.inf
    return made


def expand(heads: np.ndarray, made: Contraction) -> None:
    """Give a cycle its nodes back: one of them takes the head from outside, the others keep theirs."""
    node = made.cycle[0]
    outside = heads[node]
    inside = np.isin(np.arange(len(heads)), made.cycle)
    hanging = (heads == node) & ~inside
    heads[hanging] = made.leaves[hanging]
    heads[made.cycle] = made.heads
    heads[made.enters[outside]] = outside


# Texts with their trees


class Parsed(str):
    """A text with its words and their heads, as `Model.parse` gives it. It is a string.

    A model whose positions come from syntax reads its tree.

    Args:
        text: The text itself.
        words: The words.
        heads: Head of each word, counted from 0; -1 is the root.
        tags: Part of speech of each word.
        relations: Relation of each word to its head.
        surfaces: Words that are written together.

    Example:
        >>> tree = Parsed("The cat sleeps.", ("The", "cat", "sleeps", "."), heads=(1, 2, -1, 2))
        >>> tree, tree.words[tree.heads[0]]
        ('The cat sleeps.', 'cat')
        >>> len(tree.sentence)
        4
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    tags: tuple[str, ...]
    relations: tuple[str, ...]
    surfaces: tuple[Surface, ...]

    def __new__(
        cls,
        text: str,
        words: Sequence[str],
        heads: Sequence[int],
        tags: Sequence[str] = (),
        relations: Sequence[str] = (),
        surfaces: Sequence[Surface] = (),
    ) -> Self:
        self = super().__new__(cls, text)
        self.words, self.heads = tuple(words), tuple(heads)
        self.tags, self.relations, self.surfaces = tuple(tags), tuple(relations), tuple(surfaces)
        return self

    @property
    def sentence(self) -> Sentence:
        """The sentence as a treebank has it."""
        return Sentence(self.words, self.tags, self.heads, self.relations, str(self), self.surfaces)

    def __reduce__(self) -> tuple[Any, ...]:
        known = (str(self), self.words, self.heads, self.tags, self.relations, self.surfaces)
        return Parsed, known


def parsed(text: str, sentence: Sentence, where: str) -> Parsed:
    """A text with the tree of its sentence, whose words must be the text's; `where` begins the message."""
    check_tree(sentence.heads, len(sentence), where)
    found = Parsed(text, sentence.forms, sentence.heads, sentence.tags, sentence.relations, sentence.surfaces)
    spans(found, where)
    return found


def spans(text: Parsed, where: str = "a text") -> list[tuple[int, int]]:
    """Where each word stands in the text: its first character and the one after its last.

    Words that are written together and are no parts of what is written (French `du` for `de le`) all stand
    there.
    """
    found: list[tuple[int, int]] = []
    at = 0
    for form, words in written_words(text):
        start = past_space(text, at)
        end = end_of(text, start, form)
        if end is None:
            rest = short(text[start : start + 30])
            raise BadInput(
                one_line(f"{where}: the tree has the word {short(form)} where the text has {rest}")
            )
        at = end
        parts = [text.words[word] for word in words]
        if "".join(parts) == text[start:end]:
            for part in parts:
                found.append((start, start + len(part)))
                start += len(part)
        else:
            found += [(start, end)] * len(parts)
    if rest := text[at:].strip():
        raise BadInput(
            one_line(f"{where}: the tree ends before {short(rest)}: text and tree differ in length")
        )
    return found


def written_words(text: Parsed) -> Iterator[tuple[str, range]]:
    """What is written for each word, or for several together, with their numbers."""
    starts, word = {surface.first: surface for surface in text.surfaces}, 0
    while word < len(text.words):
        surface = starts.get(word) or Surface(text.words[word], word, word)
        yield surface.form, range(word, surface.last + 1)
        word = surface.last + 1


def past_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def end_of(text: str, at: int, form: str) -> int | None:
    """Where a form ends that begins here; white space inside it may be written otherwise."""
    for character in form:
        if character.isspace():
            at = past_space(text, at)
        elif text[at : at + 1] == character:
            at += 1
        else:
            return None
    return at


def words_of_pieces(text: Parsed, pieces: Sequence[tuple[int, int]], where: str = "a text") -> list[int]:
    """The word that each piece of a text belongs to, by where the piece stands: that of its first letter.

    A piece inherits its word's place in the tree. White space belongs to the word after it, at the end to the
    last.
    """
    begins = [start for start, _ in spans(text, where)]
    found = []
    for start, end in pieces:
        at = start + len(text[start:end]) - len(text[start:end].lstrip())
        if at == end:  # all of it is space
            at = past_space(text, end)
        last = begins[max(0, bisect_right(begins, at) - 1)]
        found.append(bisect_left(begins, last))  # of several that stand in one place, the first
    return found


def read_parsed(
    source: str, target: str, trees: str, report: Report, *, limit: int = LINE
) -> Iterator[tuple[Parsed, str]]:
    """Pairs of good lines, the sources with their trees: a tree for each line of the source with text."""
    grown = read_sentences(trees, report=Report("refuse"))
    left, right = judged_lines(source, limit), judged_lines(target, limit)
    lines = sentences = 0
    for number, (a, b) in enumerate(zip_longest(left, right), 1):
        if a is None or b is None:
            longer = number + sum(1 for _ in (right if a is None else left))
            refuse_unequal(source, target, *((number - 1, longer) if a is None else (longer, number - 1)))
        if (fault := fault_of(a)) is not None:
            report.bad(source, number, fault)
            continue
        lines += 1
        sentence = next(grown, None)
        if sentence is None:
            refuse_unequal_trees(source, lines + sum(fault_of(x) is None for x in left), trees, sentences)
        sentences += 1
        where = f"{trees}:{sentence.line}: the tree of {source}:{number}"
        text = parsed(str(a), sentence, where)
        if (fault := fault_of(b)) is not None:
            report.bad(target, number, fault)
        else:
            yield text, str(b)
    if more := sum(1 for _ in grown):
        refuse_unequal_trees(source, lines, trees, sentences + more)


def refuse_unequal_trees(source: str, lines: int, trees: str, sentences: int) -> NoReturn:
    pairing = "each line that says something has its tree, in the same order"
    raise BadInput(
        one_line(f"{source} has {lines} lines of text and {trees} has {sentences} trees: {pairing}")
    )
