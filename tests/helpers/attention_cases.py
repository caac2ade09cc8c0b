"""Generated attention problems: lengths, heads, groups, masks, biases and dtypes, on a CPU and a GPU."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.parts.attention import AnyMask
from heedful.parts.masks import Mask, PerHead, causal, full, padding, prefix, window
from heedful.parts.packed_masks import document
from heedful.parts.sparse_masks import fixed, strided, strided_steps
from heedful.parts.view import View, left_padded

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
MASKS = (
    "none",
    "table",
    "empty rows",
    "full",
    "causal",
    "strict",
    "window",
    "padding",
    "document",
    "prefix",
    "strided",
    "fixed",
    "per head",
    "either",
    "left padded",
    "cache slots",
)
BIASES = ("none", "shared", "own")


@dataclass
class Problem:
    q: Tensor
    k: Tensor
    v: Tensor
    mask: AnyMask
    bias: Tensor | None
    scale: float | None
    about: str

    def leaves(self) -> list[Tensor]:
        return [t for t in (self.q, self.k, self.v, self.bias) if t is not None]

    def to(self, dtype: torch.dtype) -> Problem:
        """A copy in another precision, with gradients of its own."""
        q, k, v, bias = (
            None if t is None else t.detach().to(dtype).requires_grad_()
            for t in (self.q, self.k, self.v, self.bias)
        )
        return Problem(q, k, v, self.mask, bias, self.scale, self.about)


def make(
    seed: int,
    device: str = "cpu",
    sizes: tuple[int, ...] = (1, 2, 3, 5, 7, 11),
    widths: tuple[int, ...] = (1, 3, 4, 8),
    dtypes: tuple[torch.dtype, ...] = DTYPES,
    masks: tuple[str, ...] = MASKS,
    biases: tuple[str, ...] = BIASES,
) -> tuple[Problem, torch.dtype]:
    """One problem in fp64, and the precision to try it in."""
    rng = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    B, G, groups = rng.choice((1, 2, 3)), rng.choice((1, 2, 3)), rng.choice((1, 1, 2, 3))
    H, T, S = G * groups, rng.choice(sizes), rng.choice(sizes)
    kind = rng.choice(masks)
    if kind not in ("none", "table", "empty rows", "cache slots"):
        S = T if rng.random() < 0.5 else max(T, S)  # in order: queries are the last T of S keys
    K, Kv = rng.choice(widths), rng.choice(widths)
    dtype = rng.choice(dtypes)
    bias_kind = rng.choice(biases)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).double().to(device)

    bias = {"none": None, "shared": (1, H, T, S), "own": (B, H, T, S)}[bias_kind]
    problem = Problem(
        q=normal(B, H, T, K),
        k=normal(B, G, S, K),
        v=normal(B, G, S, Kv),
        mask=make_mask(kind, rng, generator, device, B, H, T, S),
        bias=None if bias is None else normal(*bias),
        scale=rng.choice((None, None, 1.0, 0.3)),
        about=f"seed {seed}: B{B} H{H} G{G} T{T} S{S} K{K} Kv{Kv} mask {kind}, bias {bias_kind}, {dtype}",
    )
    return problem, dtype


def make_mask(
    kind: str, rng: random.Random, generator: torch.Generator, device: str, B: int, H: int, T: int, S: int
) -> AnyMask:
    if kind == "none":
        return None
    if kind in ("table", "empty rows"):
        shape = rng.choice(((T, S), (1, 1, T, S), (B, 1, T, S), (B, H, T, S), (B, 1, 1, S)))
        table = torch.rand(shape, generator=generator) < 0.6
        if kind == "empty rows":
            table[..., rng.randrange(shape[-2]), :] = False
        return table.to(device)
    lengths = torch.tensor([rng.randint(0, S) for _ in range(B)], device=device)
    if kind == "left padded":
        positions = left_padded(lengths, S)
        return View(causal(), T, S, device, positions[:, S - T :], positions)
    if kind == "cache slots":  # a static cache: keys anywhere, some slots empty, queries somewhere among them
        k_pos = torch.stack([torch.randperm(S, generator=generator) for _ in range(B)])
        k_pos[torch.rand(B, S, generator=generator) < 0.3] = -1
        q_pos = torch.randint(0, S, (B, T), generator=generator)
        return View(causal(), T, S, device, q_pos.to(device), k_pos.to(device))
    ids = torch.randint(0, 3, (B, S), generator=generator).sort(-1).values.to(device)
    rules: dict[str, Mask] = {
        "full": full(),
        "causal": causal(),
        "strict": causal(strict=True),
        "window": causal() & window(rng.randint(1, 4)),
        "padding": padding(lengths),
        "document": causal() & document(ids),
        "prefix": prefix(lengths),
        "strided": strided(3),
        "fixed": fixed(4, 2),
        "per head": PerHead(strided_steps(2)),
        "either": (causal() & padding(lengths)) | window(2),
    }
    return View(rules[kind], T, S, device)
