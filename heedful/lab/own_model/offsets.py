"""Offsets on your own model: is the position k tokens further on a linear map of the position here?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...inside.doctor.fit import trained_rows
from ...inside.look.drawing import Drawing
from ...inside.look.positions import pairs_of
from ...interop.loaded import TEXT_KINDS
from ...models.base.shells import shells_of
from ...parts.positions.absolute import Absolute, Concatenated, Sinusoidal, frequencies
from ...parts.positions.base import Position
from ..figures import LinePanel, MapPanel, figure
from ..rules import CONTRADICTED, SUPPORTED
from .report import OwnModelReport, TriedStatement, held, refusal, schemes_of

if TYPE_CHECKING:
    from ...use.model import Model

NAME = "offsets"
OFFSETS = (1, 3, 7, 20, 50)
MOST = 512  # positions
FEWEST = 12  # positions: a map is fitted to half of them
ROUNDING = {torch.float32: 1e-9, torch.float16: 1e-2, torch.bfloat16: 1e-1}  # of tables in such precision
LINEAR = 0.05  # of the variance that a map may leave unexplained
PENALTIES = [10.0**-power for power in range(0, 15, 2)]  # of the largest singular value, squared
ASKED = "Is there one linear map from every position of this model to the position k tokens further on?"


def try_on(model: Model, data: str | None = None) -> OwnModelReport:
    """The claim on the position table of a model."""
    where, encoding = table_of(model)
    with torch.no_grad():
        if isinstance(encoding, Sinusoidal):
            return of_sinusoids(model, where, encoding)
        return of_learned(model, where, encoding)


def table_of(model: Model) -> tuple[str, Absolute]:
    """Where positions enter, and their encoding; refused where there is no table."""
    if model.kind not in TEXT_KINDS or not shells_of(model.model):
        raise refusal(NAME, model, "it has no positions in a row of tokens")
    found = {name: shell.inputs.position for name, shell in shells_of(model.model).items()}
    tables = {name: p for name, p in found.items() if isinstance(p, Absolute | Concatenated)}
    if not tables:
        raise refusal(NAME, model, no_table(model))
    first = next(iter(tables.values()))
    encoding: Absolute = first.encoding if isinstance(first, Concatenated) else first
    names = " and the ".join(name for name in tables if name)
    return f"at the input{f' of the {names}' if names else ''}", encoding


def no_table(model: Model) -> str:
    """Why a model has no table of positions."""
    others = schemes_of(model)
    if not others:
        return "it has no positions"
    how = others[0].__class__.__name__
    if type(others[0]).rotate is not Position.rotate:
        return f"its positions ({how}) rotate queries and keys, so moving by k is a rotation by construction"
    return f"its positions ({how}) are a function of the distance, so there is no table to map"


# Sinusoids: the map is known.


def of_sinusoids(model: Model, where: str, encoding: Sinusoidal) -> OwnModelReport:
    p_TD = encoding.encode(torch.arange(MOST)).double()
    offsets = offsets_for(len(p_TD))
    pairs_TP2 = pairs_of(p_TD, encoding.layout)
    w_P = frequencies(encoding.width, encoding.kind, encoding.base)
    numbers, lines = {}, {}
    for k in offsets:
        wrong_T = turned_apart(pairs_TP2, k, w_P).amax(-1)
        fitted_T = fitted_apart(pairs_TP2, k)
        numbers[f"k = {k}"] = {
            "error of the rotation": top(wrong_T),
            "error of the fitted map": top(fitted_T),
        }
        lines[f"k = {k}"] = {float(t): [float(wrong_T[t])] for t in range(0, len(wrong_T), 32)}
    limit = ROUNDING[encoding.precision]
    rotation, fitted = (max(row[name] for row in numbers.values()) for name in next(iter(numbers.values())))
    statements = (
        held("A rotation for each frequency gives p(t + k) from p(t).", rotation, limit, "error"),
        held(
            "A 2 x 2 map for each frequency, fitted to the first half of the positions, holds in the second.",
            fitted,
            limit,
            "error",
        ),
    )
    exact = all(one.verdict != CONTRADICTED for one in statements)
    finding = (
        "Yes, exactly: this model adds sinusoids, and moving by k tokens is the same rotation everywhere "
        f"(largest error {rotation:.0e}). Nothing was learned here. Whether the layers use the rotation is "
        "another question."
        if exact
        else f"No: the table of this model differs from sinusoids by {rotation:.0e}, more than rounding."
    )
    return OwnModelReport(
        NAME,
        model.folder,
        ASKED,
        statements,
        finding,
        f"sinusoidal positions {where}: {len(p_TD)} positions, width {encoding.width}, in float64",
        "offset",
        numbers,
        sinusoid_figure(lines, w_P, offsets),
    )


def top(errors: Tensor) -> float:
    return float(errors.max())


def turned_apart(pairs_TP2: Tensor, k: int, w_P: Tensor) -> Tensor:
    """[T, P]: how far (sin, cos) turned by k w lies from the pair k positions on."""
    s, c = (k * w_P).sin(), (k * w_P).cos()
    sin_TP, cos_TP = pairs_TP2[: len(pairs_TP2) - k].unbind(-1)
    moved_TP2 = torch.stack([sin_TP * c + cos_TP * s, cos_TP * c - sin_TP * s], -1)
    return (moved_TP2 - pairs_TP2[k:]).abs().amax(-1)


def fitted_apart(pairs_TP2: Tensor, k: int) -> Tensor:
    """The error at the second half of the positions of 2 x 2 maps that were fitted to the first."""
    here_PT2, there_PT2 = (side.transpose(0, 1) for side in (pairs_TP2[: len(pairs_TP2) - k], pairs_TP2[k:]))
    half = here_PT2.shape[1] // 2
    maps_P22 = torch.linalg.lstsq(here_PT2[:, :half], there_PT2[:, :half]).solution
    return (here_PT2[:, half:] @ maps_P22 - there_PT2[:, half:]).abs()


def rotation(k: int, w_P: Tensor, shown: int = 32) -> list[list[float]]:
    """The map for pairs side by side, of the first frequencies."""
    s, c = (k * w_P[:shown]).sin(), (k * w_P[:shown]).cos()
    blocks = torch.stack([torch.stack([c, s], -1), torch.stack([-s, c], -1)], -2)
    return torch.block_diag(*blocks).tolist()


def sinusoid_figure(
    lines: dict[str, dict[float, list[float]]], w_P: Tensor, offsets: Sequence[int]
) -> Drawing:
    k = offsets[min(2, len(offsets) - 1)]
    shown = min(32, len(w_P))
    return figure(
        "Moving by k positions in the table of this model",
        [
            MapPanel(
                f"the map for k = {k}",
                f"{2 * shown} x {2 * shown}: a 2 x 2 block for each frequency",
                rotation(k, w_P),
                cell=4,
            ),
            LinePanel("error of the rotation", "position t", lines, (False, True)),
        ],
        ["Largest difference between p(t + k) and the rotated p(t), over all dimensions."],
    )


# Learned tables: a map is fitted.


def of_learned(model: Model, where: str, encoding: Absolute) -> OwnModelReport:
    device = next(model.model.parameters()).device
    whole_TD = encoding.encode(torch.arange(encoding.longest or MOST, device=device)).double().cpu()
    p_TD = whole_TD[: trained_rows(whole_TD)][:MOST]
    if not p_TD.isfinite().all():
        raise refusal(NAME, model, "its position table is not finite: `heedful doctor` names the weights")
    if len(p_TD) < FEWEST:
        raise refusal(NAME, model, f"its table has {len(p_TD)} positions, and a fit needs {FEWEST}")
    offsets = offsets_for(len(p_TD))
    generator = torch.Generator().manual_seed(0)
    random_TD = torch.randn(p_TD.shape, generator=generator, dtype=torch.float64)
    numbers = {
        f"k = {k}": {
            "this table": unexplained(p_TD, k),
            "without moving": unmoved(p_TD, k),
            "a random table": unexplained(random_TD, k),
        }
        for k in offsets
    }
    linear = [k for k in offsets if numbers[f"k = {k}"]["this table"] <= LINEAR]
    statements = tuple(
        TriedStatement(
            f"Positions are learned: for k = {k}, no linear map gives p(t + k) from p(t) at other positions.",
            CONTRADICTED if k in linear else SUPPORTED,
            f"{numbers[f'k = {k}']['this table']:.0%} of the variance unexplained (at least {LINEAR:.0%})",
        )
        for k in offsets
    )
    return OwnModelReport(
        NAME,
        model.folder,
        ASKED,
        statements,
        learned_finding(numbers, offsets, linear),
        f"learned positions {where}: {len(p_TD)} of {len(whole_TD)} positions, width {p_TD.shape[1]}",
        "unexplained",
        numbers,
        learned_figure(numbers),
    )


def offsets_for(size: int) -> list[int]:
    """Those that leave enough positions."""
    return [k for k in OFFSETS if k <= size // 4]


def halves(size: int) -> tuple[Tensor, Tensor]:
    """Positions to fit to and positions to test with, at random."""
    order = torch.randperm(size, generator=torch.Generator().manual_seed(1))
    return order[: size // 2].sort().values, order[size // 2 :].sort().values


def unexplained(p_TD: Tensor, k: int) -> float:
    """The share of the variance of p(t + k) that a map of p(t) leaves, at positions it was not fitted to."""
    here_TD, there_TD = p_TD[: len(p_TD) - k], p_TD[k:]
    fit, test = halves(len(here_TD))
    return share(here_TD[test] @ fitted_map(here_TD[fit], there_TD[fit]), there_TD[test])


def unmoved(p_TD: Tensor, k: int) -> float:
    """The same if p(t) itself is taken for p(t + k)."""
    _, test = halves(len(p_TD) - k)
    return share(p_TD[test], p_TD[test + k])


def share(found_TD: Tensor, right_TD: Tensor) -> float:
    return float((found_TD - right_TD).square().sum() / (right_TD - right_TD.mean(0)).square().sum())


def fitted_map(x_ND: Tensor, y_ND: Tensor) -> Tensor:
    """Ridge regression. The penalty is the one with the least error when each row in turn is left out."""
    U_NR, s_R, Vh_RD = torch.linalg.svd(x_ND, full_matrices=False)
    best = None
    for penalty in (s_R[0].square() * share for share in PENALTIES):
        kept_R = s_R.square() / (s_R.square() + penalty)
        hat_N = (U_NR.square() * kept_R).sum(-1)
        residual_ND = y_ND - U_NR @ (kept_R[:, None] * (U_NR.T @ y_ND))
        left_out = float((residual_ND / (1 - hat_N).clamp(min=1e-9)[:, None]).square().sum())
        if best is None or left_out < best[0]:
            best = left_out, Vh_RD.T @ ((kept_R / s_R.clamp(min=1e-30))[:, None] * (U_NR.T @ y_ND))
    assert best is not None
    return best[1]


def learned_finding(
    numbers: dict[str, dict[str, float]], offsets: Sequence[int], linear: Sequence[int]
) -> str:
    first, last = (numbers[f"k = {k}"]["this table"] for k in (offsets[0], offsets[-1]))
    span = f"{first:.0%} of the variance is left at k = {offsets[0]}"
    span += f", {last:.0%} at k = {offsets[-1]}" if len(offsets) > 1 else ""
    if len(linear) == len(offsets):
        start = (
            "Yes, nearly, though this table was learned: one linear map fits positions that it has not seen"
        )
    elif linear:
        near = ", ".join(map(str, linear))
        start = f"It depends on the distance: one linear map is enough for k = {near}, and not for the others"
    else:
        start = "No, as expected of a learned table: no linear map fits positions that it has not seen"
    return f"{start} ({span}). Sinusoids rotate by construction; nothing makes a learned table do so."


def learned_figure(numbers: dict[str, dict[str, float]]) -> Drawing:
    names = next(iter(numbers.values()))
    lines = {
        name: {float(row.removeprefix("k = ")): [values[name]] for row, values in numbers.items()}
        for name in names
    }
    return figure(
        "A linear map from p(t) to p(t + k), fitted to half of the positions",
        [LinePanel("variance left unexplained at the others", "offset k, in tokens", lines, (True, True))],
        ["0: the map is exact. 1: no better than the mean position. Above 1: worse."],
    )
