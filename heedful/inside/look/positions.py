"""How order enters a model, drawn: its position table, the angles of its rotations, or the bias of its
scores."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from ...errors import BadInput
from ...interop.loaded import Loaded
from ...models.base.shells import Decoder
from ...parts.blocks import Block
from ...parts.multihead import MultiHeadAttention
from ...parts.positions.absolute import Absolute, Concatenated, Sinusoidal, frequencies
from ...parts.positions.base import NoPosition, Position
from ...parts.positions.relative import ALiBi, T5Buckets
from ...parts.positions.rotary import PartialRotary, Rotary
from .drawing import Drawing
from .layers import attending_shells
from .sheets import Sheet, sheets

LENGTH = 48  # positions drawn, unless said otherwise
MOST = 512
COLUMNS = 128  # coordinates drawn
FAR = 32  # distances drawn, each way
ROWS = 24  # of a table in a terminal
SHADES = "·░▒▓█"  # from the most negative to the most positive


@dataclass(frozen=True)
class OffsetScores:
    """The product of two positions by their offset 0, 1, ...: its mean, least and greatest over the pairs."""

    mean: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class Rotations:
    """An offset of k positions turns each pair of coordinates by k times its frequency.

    errors: for k = 0, 1, ..., the largest distance of a pair of the model from the turned one.
    """

    frequencies: list[float]
    errors: list[float]

    def matrices(self, k: int) -> Tensor:
        """[P, 2, 2]: the rotation of each pair by an offset of k."""
        angles_P = k * torch.tensor(self.frequencies, dtype=torch.float64)
        cos_P, sin_P = angles_P.cos(), angles_P.sin()
        return torch.stack([torch.stack([cos_P, -sin_P], -1), torch.stack([sin_P, cos_P], -1)], -2)


@dataclass(frozen=True)
class PositionLook:
    """How order enters one part of a model."""

    where: str
    kind: str
    told: str  # in a sentence
    sheets: list[Sheet]
    similarity: OffsetScores | None = None  # of tables and rotations
    rotations: Rotations | None = None  # of sinusoids and rotary positions
    base: float | None = None  # of their frequencies
    trained: int | None = None  # positions that training can have seen

    def text(self, width: int = 100) -> str:
        """For a terminal: what it is, and its first table as shades from the lowest number to the highest."""
        sheet = self.sheets[0]
        most = max(abs(x) for row in sheet.numbers for x in row) or 1.0
        names = sheet.rows or [str(j) for j in range(len(sheet.numbers))]
        rows = list(zip(names, sheet.numbers, strict=True))[:ROWS]
        left = max(len(name) for name, _ in rows)
        lines = [
            f"{name:>{left}} {''.join(signed(x / most) for x in row[: width - left - 1])}"
            for name, row in rows
        ]
        ends = f"{SHADES[0]} is {-most:.3g}, {SHADES[-1]} is {most:.3g}"
        scale = f"{sheet.name}: {sheet.down} downwards, {sheet.across} across; {ends}"
        left_out = len(sheet.numbers) - len(rows), max(0, sheet.size[1] - (width - left - 1))
        more = [f"{n} more {what}" for n, what in zip(left_out, (sheet.down, "columns"), strict=True) if n]
        lines += [f"({' and '.join(more)}: the picture has them)"] if more else []
        return "\n".join([f"{self.kind}, {self.where}:", self.told, scale, "", *lines])

    def as_json(self) -> dict[str, Any]:
        tables = [
            {
                "name": s.name,
                "rows": s.down,
                "columns": s.across,
                "first_column": s.first,
                "numbers": s.numbers,
            }
            for s in self.sheets
        ]
        more = {name: one and asdict(one) for name, one in self.by_offset().items()}
        told = {"where": self.where, "kind": self.kind, "meaning": self.told, "tables": tables}
        return told | {"base": self.base, "trained": self.trained} | more

    def by_offset(self) -> dict[str, Any]:
        """What depends on the offset of two positions."""
        return {"similarity": self.similarity, "rotations": self.rotations}


def signed(share: float) -> str:
    """A shade for a number from -1 to 1."""
    return SHADES[round((share + 1) / 2 * (len(SHADES) - 1))]


def positions(
    loaded: Loaded, length: int = LENGTH, *, base: float | None = None, trained: int | None = None
) -> list[PositionLook]:
    """Every way in which order enters a model; for each, tables of numbers.

    length: how many positions. base: of the frequencies, instead of the model's own. trained: tokens of the
    longest text in training; by default the context of the model.
    """
    check_length(length)
    shells: dict[Any, list[str]] = {}
    first: dict[Any, tuple[str, Position, bool]] = {}
    for shell, place, position, causal in places(loaded.model):
        if not isinstance(position, NoPosition):
            key = same(position)
            first.setdefault(key, (place, position, causal))
            shells.setdefault(key, [])
            if shell not in shells[key]:
                shells[key].append(shell)
    trained = trained or getattr(loaded.config, "context", None)
    found = []
    for key, (place, position, causal) in first.items():
        where, shown = place + of_shells(shells[key]), rebased(position, base)
        order = order_of(where, shown, causal, length, loaded.model)
        longest = getattr(position, "longest", None)
        found.append(replace(order, trained=min((n for n in (trained, longest) if n), default=None)))
    return found


def rebased(position: Position, base: float | None) -> Position:
    """The same position with frequencies of another base, where it has frequencies."""
    if isinstance(position, PartialRotary):
        return PartialRotary(cast(Rotary, rebased(position.rotary, base)))
    if base is None or not isinstance(position, Sinusoidal | Rotary):
        return position
    found = copy(position)
    found.base = base
    return found


def check_length(length: int) -> None:
    if not 2 <= length <= MOST:
        raise BadInput(f"--length must be from 2 to {MOST} positions, not {length}")


def places(model: nn.Module) -> Iterator[tuple[str, str, Position, bool]]:
    """(shell, place, position, whether nobody looks ahead there): at the input of each, then inside its
    attentions."""
    for name, shell in attending_shells(model).items():
        causal = isinstance(shell, Decoder)
        yield name, "at the input", shell.inputs.position, causal
        for block in shell.stack.blocks:
            if not isinstance(block, Block):
                continue  # a convolution, or a recurrence
            layer = block.attention.layer
            assert isinstance(layer, MultiHeadAttention)
            yield name, "in the self-attention", layer.position, causal


def of_shells(names: list[str]) -> str:
    """Whose it is, where a model has several parts."""
    return "" if names == [""] else f" of the {' and the '.join(names)}"


def same(position: Position) -> Any:
    """Two positions with the same key give the same numbers."""
    if isinstance(position, PartialRotary):
        return same(position.rotary)
    if isinstance(position, Rotary):
        return position.kind
    if isinstance(position, Sinusoidal):
        return "sinusoidal", position.width, position.layout, position.kind, position.base, position.offset
    if isinstance(position, ALiBi):
        return "alibi", position.heads
    return id(position)


@torch.no_grad()
def order_of(where: str, position: Position, causal: bool, length: int, model: nn.Module) -> PositionLook:
    if position.needs_tree:
        raise BadInput(
            f"{type(position).__name__} depends on the sentence's tree: it has no table of its own to draw"
        )
    if isinstance(position, Absolute | Concatenated):
        return absolute(where, position, length, next(model.parameters()).device)
    if isinstance(position, PartialRotary):
        position = position.rotary  # of the dimensions that it turns
    if isinstance(position, Rotary):
        return rotary(where, position, length)
    if isinstance(position, ALiBi | T5Buckets):
        return bias(where, position, causal)
    raise BadInput(
        f"{type(position).__name__} depends on the words as well: it has no table of its own to draw"
    )


def absolute(
    where: str, position: Any, length: int, device: torch.device, columns: int = COLUMNS
) -> PositionLook:
    """A vector for each position: the table, and how alike positions are."""
    encoding: Absolute = getattr(position, "encoding", position)
    length = min(length, encoding.longest or length)
    table_TD = encoding.encode(torch.arange(length, device=device)).float().cpu()
    unit_TD = table_TD / table_TD.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    kind = "sinusoidal" if isinstance(encoding, Sinusoidal) else "learned"
    told = {
        "sinusoidal": "sines and cosines of falling frequency: "
        "fast on one side, slow on the other, nothing learned",
        "learned": f"a learned table of {encoding.longest} positions: "
        "what lies beyond its end cannot be read",
    }[kind]
    drawn_TC, every = thinned(table_TD, columns)
    across = (
        "dimension"
        if every == 1
        else f"dimension (one pair in {every} drawn, {table_TD.shape[1]} dimensions in all)"
    )
    table = Sheet("the table", drawn_TC.tolist(), "positions", across)
    alike_TT = (unit_TD @ unit_TD.T).tolist()
    alike = Sheet("how alike positions are (cosine)", alike_TT, "positions", "position")
    scores = by_offset(table_TD.double() @ table_TD.double().T)
    if not isinstance(encoding, Sinusoidal):
        return PositionLook(where, kind, told, [table, alike], scores)
    w = frequencies(encoding.width, encoding.kind, encoding.base)
    turned = rotations(pairs_of(table_TD, encoding.layout).flip(-1), w)  # cosine first
    return PositionLook(where, kind, told, [table, alike], scores, turned, encoding.base)


def by_offset(products_TT: Tensor) -> OffsetScores:
    """Mean, least and greatest along each diagonal, from the main one down."""
    diagonals = [products_TT.diagonal(-k) for k in range(len(products_TT))]
    rows = ([float(summary(one)) for one in diagonals] for summary in (torch.mean, torch.min, torch.max))
    return OffsetScores(*rows)


def pairs_of(x_TD: Tensor, layout: str) -> Tensor:
    """[T, P, 2]: the coordinates that turn together."""
    return x_TD.unflatten(-1, (-1, 2)) if layout == "interleaved" else x_TD.unflatten(-1, (2, -1)).mT


def rotations(pairs_TP2: Tensor, w_P: Tensor) -> Rotations:
    """How well turned pairs, as complex numbers, meet those of later positions."""
    z_TP = torch.view_as_complex(pairs_TP2.double().contiguous())
    errors = [
        float((z_TP[k:] - z_TP[: len(z_TP) - k] * torch.exp(1j * k * w_P)).abs().max())
        for k in range(len(z_TP))
    ]
    return Rotations(w_P.tolist(), errors)


def thinned(table_TD: Tensor, columns: int) -> tuple[Tensor, int]:
    """At most so many columns: every nth pair of coordinates, and n."""
    D = table_TD.shape[1]
    every = -(-D // columns)
    if every == 1:
        return table_TD, 1
    pairs = torch.arange(0, D // 2, every)
    return table_TD[:, torch.stack([2 * pairs, 2 * pairs + 1], 1).flatten()], every


def rotary(where: str, position: Rotary, length: int) -> PositionLook:
    """Angles, and what they do to a query and a key that were equal."""
    w = position.frequencies()
    angles_TP = torch.arange(length, dtype=torch.float64)[:, None] * w
    distance_TT = (torch.arange(length)[:, None] - torch.arange(length)).double()
    alike_TT = (distance_TT[..., None] * w).cos().mean(-1)
    told = f"queries and keys are turned, pair by pair of {position.width} dimensions, "
    told += "by position times frequency"
    cosines = Sheet("cosine of the angle", angles_TP.cos().tolist(), "positions", "pair of dimensions")
    alike = Sheet("q·k of equal vectors", alike_TT.tolist(), "queries", "position of the key")
    ones_TK = position.rotate(torch.ones(1, 1, length, position.width), torch.arange(length))[0, 0]
    turned = rotations(pairs_of(ones_TK, position.layout), w)
    return PositionLook(where, "rotary", told, [cosines, alike], by_offset(alike_TT), turned, position.base)


def bias(where: str, position: ALiBi | T5Buckets, causal: bool, far: int = FAR) -> PositionLook:
    """What is added to the score, for each head by distance."""
    ahead = 0 if causal else far
    q_pos, k_pos = torch.tensor([far]), torch.arange(far + ahead + 1)
    heads = position.heads if isinstance(position, ALiBi) else position.table.shape[1]
    nothing = torch.zeros(1, heads, 1, 1)
    if isinstance(position, T5Buckets):
        q_pos, k_pos = q_pos.to(position.table.device), k_pos.to(position.table.device)
    numbers_HS = position.bias(nothing, nothing, q_pos, k_pos).reshape(heads, -1).float().cpu()
    kind = "ALiBi" if isinstance(position, ALiBi) else "T5 buckets"
    told = {
        "ALiBi": "each head subtracts its own slope times the distance from the score",
        "T5 buckets": "each head adds a learned number for the distance: "
        "exact near by, the same for all far away",
    }[kind]
    rows = [f"head {h + 1}" for h in range(heads)]
    sheet = Sheet("added to the score", numbers_HS.tolist(), "heads", "key minus query", -far, rows)
    return PositionLook(where, kind, told, [sheet])


def picture_of(orders: list[PositionLook], name: str) -> Drawing:
    """All of it in one picture, a line for each way in which order enters."""
    lines = [
        [replace(s, name=f"{s.name} ({order.kind}, {order.where})") for s in order.sheets[:1]]
        + order.sheets[1:]
        for order in orders
    ]
    below = [f"{order.kind}, {order.where}: {order.told}" for order in orders]
    return sheets(lines, f"how order enters {name}", below)
