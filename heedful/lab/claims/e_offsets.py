"""Offsets are rotations: k words further on is one and the same linear map of sinusoidal positions."""

from __future__ import annotations

import torch
from torch import Tensor

from ...inside.look.drawing import Drawing
from ...parts.positions.absolute import frequencies, sinusoids
from ..claim import Claim, ClaimPart
from ..figures import LinePanel, MapPanel, figure
from ..results import Results, at
from ..rules import Direction, Exact
from ..small import largest_difference

WIDTH, SEEN, LENGTH = 64, 93, 400  # positions that a map is fitted to, and all positions
PLACES = (10, 50, 90, 100, 150, 200, 300, 390)  # where the error is drawn
OFFSETS = (7, 1, 3, 20, 50)  # of the first seeds
MOST = 128  # seeds and offsets


def offset(seed: int) -> int:
    return OFFSETS[seed] if seed < len(OFFSETS) else 1 + seed % MOST


def rotation(k: int, width: int = WIDTH, dtype: torch.dtype = torch.float64) -> Tensor:
    """M with M p(t) = p(t + k): for each frequency w, a rotation of (sin, cos) by the angle k w."""
    angles = k * frequencies(width)
    sines_and_cosines = zip(angles.sin(), angles.cos(), strict=True)
    blocks = [torch.stack([torch.stack([c, s]), torch.stack([-s, c])]) for s, c in sines_and_cosines]
    return torch.block_diag(*blocks).to(dtype)


def table(dtype: torch.dtype = torch.float64) -> Tensor:
    return sinusoids(torch.arange(LENGTH + MOST), frequencies(WIDTH)).to(dtype)


def errors(p_TD: Tensor, k: int, M: Tensor) -> dict[str, float]:
    """How far M p(t) is from p(t + k): the largest number, of all positions and of unseen ones."""
    wrong = (p_TD[k : k + LENGTH] - p_TD[:LENGTH] @ M.T).abs().amax(-1)
    named = {at("error", t): float(wrong[t]) for t in PLACES}
    return {"error": float(wrong.max()), "error on unseen positions": float(wrong[100:].max()), **named}


def closed_form(seed: int, size: str) -> dict[str, float]:
    k = offset(seed)
    single = table(torch.float32)
    float32 = largest_difference(single[k : k + LENGTH], single[:LENGTH] @ rotation(k, dtype=torch.float32).T)
    return {**errors(table(), k, rotation(k)), "error in float32": float32}


def pair_fit(seed: int, size: str) -> dict[str, float]:
    """Each frequency by itself: a 2 x 2 map, fitted to the first positions."""
    k, p_TD = offset(seed), table()
    pairs = [p_TD[:, i : i + 2] for i in range(0, WIDTH, 2)]
    maps = [small_map(pair[:SEEN], pair[k : k + SEEN]) for pair in pairs]
    return errors(p_TD, k, torch.block_diag(*maps))


def small_map(x_T2: Tensor, y_T2: Tensor) -> Tensor:
    """The 2 x 2 map from x to y with the least squares, by its normal equations: the same in every bit."""
    (a, b), (_, d) = (x_T2[:, :, None] * x_T2[:, None, :]).sum(0)
    adjugate = torch.stack([d, -b, -b, a]).view(2, 2)
    both = (y_T2[:, :, None] * x_T2[:, None, :]).sum(0)
    return both @ adjugate / (a * d - b * b)


def dense_map(p_TD: Tensor, k: int) -> Tensor:
    return torch.linalg.lstsq(p_TD[:SEEN], p_TD[k : k + SEEN], driver="gelsd").solution.T


def dense_fit(seed: int, size: str) -> dict[str, float]:
    """All 64 x 64 numbers of a map, fitted to the first positions."""
    k, p_TD = offset(seed), table()
    return errors(p_TD, k, dense_map(p_TD, k))


def random_table(seed: int, size: str) -> dict[str, float]:
    """Positions at random, as a learned table begins."""
    k, p_TD = offset(seed), torch.randn(LENGTH + MOST, WIDTH, dtype=torch.float64)
    return errors(p_TD, k, dense_map(p_TD, k))


ARMS = {
    "closed form": closed_form,
    "2 x 2 fit": pair_fit,
    "dense fit": dense_fit,
    "random table": random_table,
}
SEEDS = {"quick": 5, "standard": 5, "full": 5}


def summary(results: Results) -> str:
    largest = max(results.values("closed form", "error"))
    dense = results.mean("dense fit", "error on unseen positions")
    return (
        "Yes, exactly: for sinusoidal positions, moving by k words is one fixed rotation, the same at every "
        f"place (largest error {largest:.0e}). A 2 x 2 map per frequency, fitted to {SEEN} positions, works "
        f"at all others. A full matrix fitted to the same positions does not (error {dense:.2f}), and random "
        "positions have no such map."
    )


def draw(results: Results) -> Drawing:
    lines = {arm: results.series(arm, "error") for arm in ARMS}
    return figure(
        "Moving by k positions is a rotation",
        [
            MapPanel(
                "the map for k = 7", "64 x 64; a 2 x 2 block for each frequency", rotation(7).tolist(), cell=4
            ),
            LinePanel(
                "error of the map",
                f"position t; maps were fitted to t < {SEEN}",
                lines,
                (False, True),
                {"fitted up to here": SEEN},
            ),
        ],
        ["Largest difference between p(t + k) and the map of p(t). Dots: five offsets k."],
    )


CLAIM = Claim(
    says=(
        "With sinusoidal positions, the position k words further on is a linear function of the position "
        "here."
    ),
    lecture="L1 L5",
    predicts=(
        "We have p(t + k) = M p(t), a rotation for each frequency, to 1e-12 in float64. A 2 x 2 map per "
        "frequency that is fitted to few positions holds everywhere. A full matrix does not, and "
        "random positions have no such map."
    ),
    parts=(
        ClaimPart(
            "rotation",
            "One rotation maps every position to the position k words further on.",
            ARMS,
            Exact(("closed form",), {"error": 1e-12, "error in float32": 1e-4}),
            SEEDS,
        ),
        ClaimPart(
            "small fit",
            "A 2 x 2 map per frequency, fitted to 93 positions, holds at 300 others.",
            ARMS,
            Exact(("2 x 2 fit",), {"error on unseen positions": 1e-9}),
            SEEDS,
        ),
        ClaimPart(
            "dense fit",
            "A full matrix, fitted to the same positions, fails at others.",
            ARMS,
            Direction("dense fit", "closed form", "error on unseen positions", 0.1),
            SEEDS,
            control=True,
        ),
        ClaimPart(
            "random table",
            "Random positions have no such map.",
            ARMS,
            Direction("random table", "closed form", "error on unseen positions", 1.0),
            SEEDS,
            control=True,
        ),
    ),
    summary=summary,
    changes=(
        "The verdict would change with positions that are learned or cut off: nothing makes them rotate. "
        "That a model can use the rotation does not mean that it does."
    ),
    figure=draw,
    question=(
        "Is there one matrix that turns the code of position 3 into that of position 10, and of 103 into 110?"
    ),
    minutes={"quick": 0.05, "standard": 0.05, "full": 0.05},
)
