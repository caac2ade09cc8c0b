"""The tree of a beam search: every candidate with its fate, as a picture, as text and as JSON.

`heedful.load(...).beam_tree("...")` makes one (see `heedful/use/beam_tree.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from math import exp
from typing import Any

from ..decode.beam_fates import FATES, Candidate, way_to
from .look.drawing import Drawing, Pictured, heading
from .look.shapes import FAINT, FRAME, MARGIN, SMALL, Box, Color, Line, TextLabel, color, width_of
from .look.themes import ink_on

KEPT = ("lives", "ended", "beaten")
HIGH, GAP, ROOM = 20, 34, 46  # pixels: of a row, between columns, for the number in a node
DROPPED: dict[str, Color] = {"fell off": (214, 214, 214), "forbidden": (214, 160, 160)}


@dataclass
class TreeNode(Candidate):
    """A prefix that a beam search considered: its last token, and how likely it is.

    Attributes:
        id: Its number.
        before: The number of the candidate that it extends; -1 for none.
        token: Number of the token.
        log_probability: Log-probability of the token before any filter.
        total: Log-probability of the whole prefix, as filters change it.
        score: What it is ranked by if it ends here.
        step: Its length in tokens.
        fate: "lives", "ended", "beaten", "fell off" or "forbidden".
        sentence: Number of the text.
        group: Number of the group in diverse beam search, from 1.
        text: The token as people read it.

    Example:
        >>> node = heedful.load("runs/demo").beam_tree("The cat sleeps.").at_step(1)[0]
        >>> node.text.strip(), node.fate
        ('Le', 'lives')
    """

    text: str = ""


@dataclass(frozen=True)
class Reference:
    """A given text, forced through the model with the settings of the search.

    Attributes:
        text: The text.
        tokens: Its tokens.
        log_probabilities: Log-probability of each token.
        total: Their sum.
        score: The score by the length penalty and the coverage penalty of the search.
        margin: The score of the best hypothesis minus this score.
        lost: The token, from 1, at which it left the beam; None if the search found it.
        verdict: What this means, in a sentence.

    Example:
        >>> tree = heedful.load("runs/demo").beam_tree("The cat sleeps.", reference="Le chat dort.")
        >>> tree.reference.lost, tree.reference.margin
        (None, 0.0)
    """

    text: str
    tokens: list[str]
    log_probabilities: list[float]
    total: float
    score: float
    margin: float
    lost: int | None
    verdict: str


@dataclass(frozen=True)
class BeamTree(Pictured):
    """A beam search for one text: all that it considered, as `Model.beam_tree` finds it.

    Attributes:
        text_in: The text.
        nodes: The candidates, in the order of their steps.
        best: Numbers of the nodes where the best hypotheses end, best first.
        answers: Their texts.
        settings: The settings of the search.
        reference: A given text in the same search, if there is one.
        groups: Groups of diverse beam search.

    Example:
        >>> tree = heedful.load("runs/demo").beam_tree("The cat sleeps.", beam=2)
        >>> tree.answers[0], [node.text for node in tree.way(tree.best[0])][:2]
        ('Le chat dort.', ['Le', 'chat'])
        >>> tree.steps, len(tree.at_step(1)) >= 2, tree.counts()["ended"] >= 1
        (6, True, True)
        >>> len(tree.text().splitlines()) > 5
        True
    """

    text_in: str
    nodes: list[TreeNode]
    best: list[int]
    answers: list[str]
    settings: dict[str, Any]
    reference: Reference | None = None
    groups: int = field(default=1)

    @property
    def steps(self) -> int:
        """Tokens of the longest candidate."""
        return max((node.step for node in self.nodes), default=0)

    def way(self, number: int) -> list[TreeNode]:
        """The nodes from the first token to one of them.

        Args:
            number: The node's number.

        Returns:
            The nodes.
        """
        return way_to(self.nodes, number)  # type: ignore[return-value]

    def at_step(self, step: int) -> list[TreeNode]:
        """The candidates of one step.

        Args:
            step: The step, from 1.

        Returns:
            The nodes, best first.
        """
        return sorted((node for node in self.nodes if node.step == step), key=lambda node: -node.total)

    def counts(self) -> dict[str, int]:
        """How many candidates have each fate.

        Returns:
            Counts by fate.
        """
        return {fate: sum(node.fate == fate for node in self.nodes) for fate in FATES}

    def as_json(self) -> dict[str, Any]:
        """Everything, for JSON."""
        kept = ("id", "before", "token", "text", "log_probability", "total", "score", "step", "fate", "group")
        return {
            "text": self.text_in,
            "settings": self.settings,
            "nodes": [{name: getattr(node, name) for name in kept} for node in self.nodes],
            "best": self.best,
            "answers": self.answers,
            "reference": None if self.reference is None else asdict(self.reference),
        }

    # As text.

    def summary(self) -> str:
        """The size of the tree in one line."""
        said_of = {"lives": "lived on"}
        shown = ", ".join(f"{n} {said_of.get(fate, fate)}" for fate, n in self.counts().items() if n)
        said = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        return f"{said}: {self.steps} steps, {len(self.nodes)} candidates: {shown}"

    def text(self, every: bool = False) -> str:
        """Draw the tree for a terminal: a branch is a line.

        Args:
            every: Also show candidates that were dropped.

        Returns:
            The lines.
        """
        shown = [node for node in self.nodes if every or node.fate in KEPT]
        children: dict[int, list[TreeNode]] = {}
        for node in sorted(shown, key=lambda node: -node.total):
            children.setdefault(node.before, []).append(node)
        lines = [self.summary()]
        for group in range(1, self.groups + 1):
            if self.groups > 1:
                lines.append(f"group {group}")
            roots = [node for node in children.get(-1, []) if node.group == group]
            lines += branches(roots, children, self.ranks())
        lines += [f"{place}. {answer}" for place, answer in enumerate(self.answers, 1)]
        return "\n".join(lines + ([] if self.reference is None else [self.reference.verdict]))

    def ranks(self) -> dict[int, int]:
        """The place of each of the best nodes, from 1."""
        return {node: place for place, node in enumerate(self.best, 1)}

    def marked(self, node: TreeNode) -> str:
        """A node's token; before it, the place of a best hypothesis that ends there."""
        rank = self.ranks().get(node.id)
        return node.text if rank is None else f"{rank}. {node.text}"

    # As a picture.

    def picture(self) -> Drawing:
        """The tree grows to the right, a column a step; dropped candidates are faint."""
        drawing = Drawing()
        title = "\n".join([f'Beam search: "{short(self.text_in)}"', self.summary()])
        top = heading(drawing, title) + 8
        boxes = self.places(top)
        on_way = {node.id for number in self.best[:1] for node in self.way(number)}
        for node in sorted(self.nodes, key=lambda node: node.fate in KEPT):
            if node.before >= 0:
                drawing.add(edge(node, boxes, node.id in on_way))
        for node in self.nodes:
            drawing.add(*drawn(node, boxes[node.id], node.id in on_way, self.marked(node)))
        low = max((box[1] for box in boxes.values()), default=top) + HIGH + 22
        for line in self.notes():
            drawing.add(TextLabel(MARGIN, low, line, SMALL + 1, fill=FAINT))
            low += 15
        return drawing

    def places(self, top: float) -> dict[int, tuple[float, float, float]]:
        """Left, top and width of the box of each node: a band for each group, in it the best above."""
        found: dict[int, tuple[float, float, float]] = {}
        left = float(MARGIN)
        tallest = max((len(some) for some in self.bands()), default=0)
        for step in range(1, self.steps + 1):
            column = self.at_step(step)
            wide = max((width_of(self.marked(node), SMALL + 1) for node in column), default=0) + ROOM
            for group in range(1, self.groups + 1):
                rows = sorted(
                    (node for node in column if node.group == group), key=lambda n: n.fate not in KEPT
                )
                for place, node in enumerate(rows):
                    y = top + ((group - 1) * (tallest + 1) + place) * HIGH
                    found[node.id] = left, y, wide
            left += wide + GAP
        return found

    def bands(self) -> Iterator[list[TreeNode]]:
        """The candidates of each group at each step."""
        for step in range(1, self.steps + 1):
            for group in range(1, self.groups + 1):
                yield [node for node in self.nodes if (node.step, node.group) == (step, group)]

    def notes(self) -> list[str]:
        """What stands below the picture."""
        numbers = "The number in a node is log P so far. The more color, the likelier the token."
        kinds = "Faint: fell off the beam. Reddish: forbidden by a filter. Framed: the best hypothesis."
        answers = [f"{place}. {answer}" for place, answer in enumerate(self.answers, 1)]
        return [numbers, kinds, *answers, *([] if self.reference is None else [self.reference.verdict])]


def branches(
    nodes: Sequence[TreeNode], children: dict[int, list[TreeNode]], ranks: dict[int, int], before: str = ""
) -> Iterator[str]:
    """Lines of a tree: tokens follow each other on a line as long as there is one way to go on."""
    for place, node in enumerate(nodes):
        last = place == len(nodes) - 1
        run = [node]
        while len(following := children.get(run[-1].id, [])) == 1:
            run.append(following[0])
        yield f"{before}{'└' if last else '├'}─ {' '.join(one.text for one in run)}  {ending(run[-1], ranks)}"
        yield from branches(following, children, ranks, before + ("   " if last else "│  "))


def ending(node: TreeNode, ranks: dict[int, int]) -> str:
    """What became of the last node of a line."""
    if node.fate in ("ended", "beaten"):
        place = f" {ranks[node.id]}." if node.id in ranks else ""
        return f"({node.fate}{place} score {node.score:.3f})"
    return f"({node.total:.3f})" if node.fate == "lives" else f"({node.fate} {node.total:.3f})"


def drawn(
    node: TreeNode, place: tuple[float, float, float], on_way: bool, word: str
) -> list[Box | TextLabel]:
    """A node: its token, and log P of all tokens up to it."""
    left, top, wide = place
    dropped = node.fate not in KEPT
    share = 0.75 * exp(min(0.0, node.log_probability))
    fill = None if dropped else color(share)
    ink = FAINT if fill is None else ink_on(fill)
    stroke = FRAME if on_way else DROPPED.get(node.fate, (150, 150, 150))
    known = f"log P {node.log_probability:.4f}, total {node.total:.4f}, score {node.score:.4f}: {node.fate}"
    box = Box(left, top, wide, HIGH - 4, fill, stroke, 2.0 if on_way else 1.0, f"{node.text}: {known}")
    return [
        box,
        TextLabel(left + 4, top + 12, word, SMALL + 1, fill=ink, bold=node.fate == "ended", on=fill),
        TextLabel(left + wide - 4, top + 12, f"{node.total:z.2f}", SMALL - 1, "end", fill=ink, on=fill),
    ]


def edge(node: TreeNode, boxes: dict[int, tuple[float, float, float]], on_way: bool) -> Line:
    """The line from a node to the one before it; a likelier token has a thicker one."""
    x, y, wide = boxes[node.before]
    to_x, to_y, _ = boxes[node.id]
    half = (HIGH - 4) / 2
    stroke = FRAME if on_way else DROPPED.get(node.fate, (120, 120, 120))
    thick = 0.6 if node.fate not in KEPT else 0.8 + 2.4 * exp(min(0.0, node.log_probability))
    return Line(x + wide, y + half, to_x, to_y + half, stroke, thick)


def short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
