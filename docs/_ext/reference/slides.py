"""The slide map: what slides write and teach, and where heedful has it.

docs/learn/slides.toml has every fact once. A concept that several lectures teach is shown in each of them.
What the file names must exist: source lines, tests, headings, commands and claims. Else the build stops.
"""

import ast
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from repository import SOURCE, definition, lines

from heedful.cli.shared import arguments
from heedful.cli.shared.commands import COMMANDS
from heedful.cli.train import recipe_of
from heedful.errors import BadInput
from heedful.lab.contents import claim_texts

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
FILE = DOCS / "learn" / "slides.toml"
CLAIMS = "explain/claims.md"
LECTURES = ("L1", "L2", "L3", "L4", "L5")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Symbol:
    """What slides write, what it means, and what the code calls it."""

    slide: str
    means: str
    names: list[str]
    code: str
    read: str

    def faults(self) -> Iterator[str]:
        yield from faults_of_source(self.code)
        yield from faults_of_page(self.read)
        file, _, name = self.code.partition("::")
        for word in self.names:
            if not re.search(rf"\b{re.escape(word)}\b", text_of(file, name)):
                yield f"{self.code} does not say {word}"

    def row(self) -> list[str]:
        """The symbol, its meaning with a lesson, its names in code, and where they stand."""
        lesson = re.sub(r"^learn/(\d).*", r"lesson&nbsp;\1", self.read)
        names = ", ".join(f"`{name}`" for name in self.names)
        return [
            self.slide,
            f"{self.means} ([{lesson}](../{self.read}))",
            names,
            to_source(self.code, self.names[0]),
        ]


@dataclass(frozen=True)
class Concept:
    """What lectures teach, and all that heedful has for it."""

    part: str
    name: str
    lectures: str
    know: str
    read: str
    code: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    command: str = ""
    claim: str = ""

    def faults(self) -> Iterator[str]:
        """What it names and is not there."""
        if not self.lectures or set(self.lectures.split()) - {*LECTURES}:
            yield f"{self.name}: no lecture {self.lectures}"
        if bool(self.code) != bool(self.tests) or not self.code and (self.command or self.claim):
            yield f"{self.name}: code needs a test, and the rest needs code"
        for source in (*self.code, *self.tests):
            yield from faults_of_source(source)
        yield from faults_of_page(self.read)
        if self.command:
            yield from faults_of_command(self.command)
        if self.claim and self.claim not in claim_headings():
            yield f"{CLAIMS} has no claim {self.claim}"

    def row(self) -> list[str]:
        return [f"**{self.name}**\\\n{self.know}", "\\\n".join(self.places())]

    def places(self) -> Iterator[str]:
        """The lesson, the source with its tests, the command, and the claim."""
        yield to_page(self.read)
        if not self.code:
            yield "not in heedful"
            return
        tests = ", ".join(f"[test]({test})" for test in self.tests)
        yield f"{', '.join(map(to_source, self.code))} ({tests})"
        if self.command:
            yield f"`{self.command}`"
        if self.claim:
            heading = claim_headings()[self.claim]
            letter, _, verdict = heading.partition(" ")[0], *heading.partition(": ")[1:]
            link = f"[claim {letter}: {verdict}](../{CLAIMS}#{slug(heading)})"
            yield f"`heedful lab run {self.claim}` ({link})"


@cache
def contents() -> tuple[tuple[Symbol, ...], tuple[Concept, ...]]:
    """(symbols, concepts), in the order of the file."""
    found = tomllib.loads(FILE.read_text(encoding="utf-8"))
    symbols = tuple(Symbol(**one) for one in found.pop("symbols"))
    concepts = (Concept(part, name, **one) for part, some in found.items() for name, one in some.items())
    return symbols, tuple(concepts)


# What must exist.


def faults_of_source(source: str) -> Iterator[str]:
    """A file with a name in it: FILE::NAME."""
    match = SOURCE.fullmatch(source)
    if not match or not match[2] or not (ROOT / match[1]).is_file() or match[2] not in lines(match[1]):
        yield f"there is no {source}"


def faults_of_page(address: str) -> Iterator[str]:
    page, _, anchor = address.partition("#")
    if not (DOCS / page).is_file() or (anchor and anchor not in headings(page)):
        yield f"there is no page {address}"


def faults_of_command(line: str) -> Iterator[str]:
    """A command of heedful, with options and settings that exist."""
    program, command, *rest = shlex.split(line)
    if program != "heedful" or command not in COMMANDS:
        yield f"there is no command {line}"
        return
    try:
        given = arguments.parse(command, rest)
        if command == "train" and not given.from_ and given.task != "text-to-image":
            recipe_of(given)
    except (BadInput, SystemExit) as fault:
        yield f"{line}: {fault}"


@cache
def headings(page: str) -> dict[str, str]:
    """{anchor: heading} of a page, as GitHub names them."""
    text = FENCE.sub("", (DOCS / page).read_text(encoding="utf-8"))
    return {slug(title): title for title in HEADING.findall(text)}


def slug(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@cache
def claim_headings() -> dict[str, str]:
    """{claim: its heading on the page of claims, which ends in the verdict}."""
    found = {title.split()[1].strip(":"): title for title in headings(CLAIMS).values() if ":" in title}
    return {claim.name: found[claim.name] for claim in claim_texts() if claim.name in found}


def text_of(file: str, name: str) -> str:
    """The source of a function or class, decorators excluded."""
    return ast.unparse(definition(file, name))


# What the page shows.


def to_source(source: str, word: str = "") -> str:
    """A link to a function or class, or to the line in it that assigns a word."""
    return f"[`{source.partition('::')[2]}`]({source}{'#' if word else ''}{word})"


def to_page(address: str) -> str:
    """A link from docs/learn to a heading: the title of its page, and its own."""
    page, _, anchor = address.partition("#")
    first, *_ = headings(page).values()
    title = f"{first}: {headings(page)[anchor]}" if anchor else first
    return f"[{title.replace('[', chr(92) + '[').replace(']', chr(92) + ']')}](../{address})"


def check(some: Iterable[Symbol | Concept]) -> None:
    if faults := [fault for one in some for fault in one.faults()]:
        raise ValueError(f"{FILE.name}: {'; '.join(faults)}")


def symbols_table() -> str:
    symbols, _ = contents()
    check(symbols)
    titles = ["on slides", "meaning", "in code", "source"]
    return listed((18, 27, 19, 36), titles, [one.row() for one in symbols])


def lecture(name: str) -> str:
    """The concepts of a lecture: a heading and a table for each part."""
    mine = [one for one in contents()[1] if name in one.lectures.split()]
    check(mine)
    parts = dict.fromkeys(one.part for one in mine)
    titles = ["concept, and what to know", "where it is"]
    return "\n".join(
        f"### {name}: {part[0].lower()}{part[1:]}\n\n"
        + listed((45, 55), titles, [one.row() for one in mine if one.part == part])
        for part in parts
    )


def listed(widths: tuple[int, ...], titles: list[str], rows: list[list[str]]) -> str:
    """A table whose cells may have several lines, and stand below each other where the screen is narrow."""
    shares = " ".join(map(str, widths))
    text = f":::{{container}} looked-up slides\n```{{list-table}}\n:header-rows: 1\n:widths: {shares}\n\n"
    for row in (titles, *rows):
        cells = [cell.replace("\n", "\n    ") for cell in row]
        text += "".join(f"{'  ' if i else '* '}- {cell}\n" for i, cell in enumerate(cells))
    return f"{text}```\n:::\n"


PLACES = {
    "symbols of slides": symbols_table,
    **{f"slides of {name}": partial(lecture, name) for name in LECTURES},
}
