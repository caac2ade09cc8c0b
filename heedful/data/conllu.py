"""CoNLL-U: sentences with a tag, a head and a relation for each word, read one by one and checked, and
written.

    1   Bush    Bush    PROPN   _   _   2   nsubj   _   _       id, form, lemma, tag, tag of the language's
    own, 2   held    hold    VERB    _   _   0   root    _   _       features, head, relation, two more
                                                                (blank line)

A line 3-4 is the surface form of words 3 and 4 (`don't`), a line 2.1 a word that was left out: neither is a
word of the tree. Lines that begin with # are comments, of which `# text = ...` is kept.
https://universaldependencies.org/format
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import BadInput
from ..files import one_line, short
from .lines import TABLE_LINE, judged_lines
from .report import Fault, Report

COLUMNS = 10
MOST_WORDS = (
    2000  # in a sentence: more are a file whose blank lines are missing, and scores take the square of it
)
NUMBER = re.compile(r"[0-9]{1,9}")
RANGE = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
EMPTY_NODE = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})")
UNSAID = "_"
TEXT = re.compile(r"#\s*text\s*=\s*(.*)")


@dataclass(frozen=True)
class Surface:
    """What is written for some words together, such as `don't` for `do` and `n't`.

    Attributes:
        form: As it is written.
        first: Its first word, counted from 0.
        last: Its last word.

    Example:
        >>> Surface("don't", first=1, last=2).form
        "don't"
    """

    form: str
    first: int  # its words, counted from 0, the last included
    last: int


@dataclass(frozen=True)
class Sentence:
    """A sentence of a treebank.

    Attributes:
        forms: The words.
        tags: Part of speech of each word, such as NOUN; "_" where it is not known.
        heads: Head of each word, counted from 0; -1 is the root, or not known.
        relations: Relation of each word to its head, such as nsubj.
        text: The sentence as people write it, if the file has it.
        surfaces: Words that are written together.
        line: The line of its first word in the file.

    Example:
        >>> sentence = Sentence(("The", "cat", "sleeps"), ("DET", "NOUN", "VERB"), heads=(1, 2, -1))
        >>> sentence.forms[sentence.heads[0]], len(sentence)
        ('cat', 3)
    """

    forms: tuple[str, ...]
    tags: tuple[str, ...] = ()  # of Universal Dependencies, such as NOUN; "_" where it is not said
    heads: tuple[int, ...] = ()
    relations: tuple[str, ...] = ()  # to the head, such as nsubj
    text: str = ""  # as people write it, if the file says
    surfaces: tuple[Surface, ...] = ()  # of words that are written together
    line: int = 0  # of its first word in the file

    def __len__(self) -> int:
        return len(self.forms)


# Reading


def read_sentences(
    path: str | Path, *, need: Sequence[str] = ("heads",), report: Report | None = None
) -> Iterator[Sentence]:
    """Read the sentences of a treebank in CoNLL-U, one at a time.

    Args:
        path: The file, plain or gzip.
        need: What every word must have, of "tags", "heads" and "relations". Heads must form a tree.
        report: Where broken sentences are counted, or refused. None: the first one is refused.

    Yields:
        `Sentence`.

    Raises:
        BadInput: A sentence is broken; the message has the file, the line and the reason.

    Example:
        >>> tree = Sentence(("Cats", "sleep"), ("NOUN", "VERB"), (1, -1), ("nsubj", "root"))
        >>> _ = Path("trees.conllu").write_text(written(tree))
        >>> next(read_sentences("trees.conllu")).relations
        ('nsubj', 'root')
    """
    report = report or Report("refuse")
    for sentence in judged_sentences(path, need):
        if isinstance(sentence, Sentence):
            yield sentence
        else:
            report.bad(path, *sentence)


def judged_sentences(path: str | Path, need: Sequence[str]) -> Iterator[Sentence | tuple[int, Fault]]:
    """Every sentence, or the line and what is wrong with it."""
    made = Making()
    for number, line in enumerate(judged_lines(path, TABLE_LINE), 1):
        if isinstance(line, Fault):
            made.wrong(number, line)
        elif line.strip():
            made.take(number, line)
        else:
            yield from made.ended(need)
            made = Making()
    yield from made.ended(need)


class Making:
    """A sentence as its lines come; after the first fault, the rest of its lines are passed over."""

    def __init__(self) -> None:
        self.rows: list[
            tuple[str, str, int, str]
        ] = []  # form, tag, head as in the file (-1: not said), relation
        self.lines: list[int] = []
        self.surfaces: list[Surface] = []
        self.text = ""
        self.fault: tuple[int, Fault] | None = None

    def wrong(self, number: int, fault: Fault) -> None:
        self.fault = self.fault or (number, fault)

    def take(self, number: int, line: str) -> None:
        if self.fault is None and (found := self.read(number, line)) is not None:
            self.wrong(number, found)

    def read(self, number: int, line: str) -> Fault | None:
        """Take in a line, or say what is wrong with it."""
        if line.startswith("#"):
            if self.rows:
                return Fault("comment inside", "a comment stands between the words: put it before the first")
            if found := TEXT.fullmatch(line):
                self.text = found[1].strip()
            return None
        cells = line.split("\t")
        if len(cells) != COLUMNS:
            why = f"{len(cells)} columns, where CoNLL-U has {COLUMNS}, separated by tabs"
            return Fault("with a wrong number of columns", why)
        if not cells[1].strip():
            return Fault("without a form", "the word has no form: write _ if it is an underscore")
        if NUMBER.fullmatch(cells[0]):
            return self.word(number, cells)
        if found := RANGE.fullmatch(cells[0]):
            return self.range(int(found[1]), int(found[2]), cells[1])
        if found := EMPTY_NODE.fullmatch(cells[0]):
            return self.empty_node(int(found[1]))
        why = f"the first column is {short(cells[0])}, where a number, 3-4 or 2.1 is expected"
        return Fault("with a bad number", why)

    def word(self, number: int, cells: list[str]) -> Fault | None:
        expected = len(self.rows) + 1
        if int(cells[0]) != expected:
            return Fault("out of order", f"word {short(cells[0])} stands where word {expected} is expected")
        if len(self.rows) == MOST_WORDS:
            why = f"more than {MOST_WORDS:,} words in a sentence: is a blank line missing between two?"
            return Fault("too long", why)
        head = cells[6]
        if head != UNSAID and not NUMBER.fullmatch(head):
            why = f"the head is {short(head)}, where the number of a word, or 0 for the root, is expected"
            return Fault("with a bad head", why)
        self.rows.append((cells[1], cells[3], -1 if head == UNSAID else int(head), cells[7]))
        self.lines.append(number)
        return None

    def range(self, first: int, last: int, form: str) -> Fault | None:
        """The surface form of the words that follow."""
        before = (
            self.surfaces[-1].last + 2 if self.surfaces else 1
        )  # the first that is still free, as the file counts
        if first != len(self.rows) + 1 or last <= first or first < before:
            return Fault(
                "with a bad range", f"{first}-{last} must stand before word {first} and end after it"
            )
        self.surfaces.append(Surface(form, first - 1, last - 1))
        return None

    def empty_node(self, after: int) -> Fault | None:
        if after != len(self.rows):
            return Fault("out of order", f"an empty node of word {after} stands after word {len(self.rows)}")
        return None

    def ended(self, need: Sequence[str]) -> Iterator[Sentence | tuple[int, Fault]]:
        """The sentence, if there were words, or what was wrong with it."""
        if self.fault is None and self.rows:
            self.fault = self.missing(need) or self.no_tree("heads" in need)
        if self.fault is not None:
            yield self.fault
        elif self.rows:
            forms, tags, heads, relations = zip(*self.rows, strict=True)
            places = tuple(head - 1 if head > 0 else -1 for head in heads)
            found = tuple(self.surfaces)
            yield Sentence(forms, tags, places, relations, self.text, found, self.lines[0])

    def missing(self, need: Sequence[str]) -> tuple[int, Fault] | None:
        if self.surfaces and self.surfaces[-1].last >= len(self.rows):
            end = self.surfaces[-1].last + 1
            why = f"a range ends at word {end}, and the sentence has {len(self.rows)}"
            return self.lines[-1], Fault("with a bad range", why)
        for number, (_, tag, head, relation) in zip(self.lines, self.rows, strict=True):
            found = {"tags": tag != UNSAID, "heads": head >= 0, "relations": relation != UNSAID}
            for what in need:
                if not found[what]:
                    name = what.removesuffix("s")
                    return number, Fault(f"without a {name}", f"the word has no {name} in its column")
        return None

    def no_tree(self, needed: bool) -> tuple[int, Fault] | None:
        """What is wrong with the heads, where there are any."""
        heads = [head for _, _, head, _ in self.rows]
        if not needed and -1 in heads:
            return None
        found = fault_in_tree([head - 1 for head in heads])
        return None if found is None else (self.lines[found[0]], found[1])


def fault_in_tree(heads: Sequence[int]) -> tuple[int, Fault] | None:
    """Which word is wrong in what should be a tree, and why; heads are counted from 0, and -1 is the root."""
    roots = [word for word, head in enumerate(heads) if head == -1]
    for word, head in enumerate(heads):
        if not -1 <= head < len(heads):
            return word, Fault(
                "with a bad head", f"the head is word {head + 1}, and the sentence has {len(heads)}"
            )
        if head == word:
            return word, Fault("in a cycle", f"word {word + 1} is its own head")
    if len(roots) > 1:
        why = f"a second root: word {roots[0] + 1} is one already, and a sentence has one"
        return roots[1], Fault("with two roots", why)
    if (again := in_cycle(heads)) is not None:
        return again, Fault("in a cycle", f"word {again + 1} is reached again by going from head to head")
    return None


def in_cycle(heads: Sequence[int]) -> int | None:
    """A word from which no way leads to the root, on the way that goes round; None in a tree.

    In linear time.
    """
    seen = [0] * len(heads)  # by which walk
    for start in range(len(heads)):
        word = start
        while word != -1 and not seen[word]:
            seen[word] = start + 1
            word = heads[word]
        if word != -1 and seen[word] == start + 1:
            return word
    return None


def check_tree(heads: Sequence[int], words: int, where: str) -> None:
    """Refuse heads that are no tree over so many words; `where` begins the sentence that says so."""
    if len(heads) != words:
        raise BadInput(one_line(f"{where}: {words} words and {len(heads)} heads: give each word one"))
    found = fault_in_tree(heads)
    if found is not None:
        raise BadInput(one_line(f"{where}: {found[1].why}"))


# Writing


def written(sentence: Sentence, comments: Iterable[str] = ()) -> str:
    r"""A sentence in CoNLL-U.

    Args:
        sentence: The sentence.
        comments: Lines to put before it, without the "#".

    Returns:
        Its lines, and an empty one.

    Example:
        >>> print(written(Sentence(("Sleep",), ("VERB",), (-1,), ("root",)), ["by hand"]).replace("\t", " "))
        # by hand
        1 Sleep _ VERB _ _ 0 root _ _
        <BLANKLINE>
        <BLANKLINE>
    """
    lines = [f"# {flat(comment)}" for comment in comments]
    starts = {surface.first: surface for surface in sentence.surfaces}
    for i, form in enumerate(sentence.forms):
        if i in starts:
            lines.append(row(f"{i + 1}-{starts[i].last + 1}", starts[i].form))
        head = str(sentence.heads[i] + 1) if sentence.heads else UNSAID
        tag, relation = (some[i] if some else UNSAID for some in (sentence.tags, sentence.relations))
        lines.append(row(str(i + 1), form, tag, head, relation))
    return "\n".join([*lines, "", ""])


def row(number: str, form: str, tag: str = UNSAID, head: str = UNSAID, relation: str = UNSAID) -> str:
    return f"{number}\t{flat(form)}\t_\t{tag}\t_\t_\t{head}\t{relation}\t_\t_"


def flat(text: str) -> str:
    """A text with plain spaces: a tab or a line end would begin another cell or line."""
    return re.sub(r"\s", " ", text)
