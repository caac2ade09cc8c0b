"""x W^T, for training: gradients with as few passes over memory as there can be.

The gradient of W leaves its matrix product in fp32, as it was added up, instead of being rounded and turned
back. And where x goes on beside the product, around the layer that it begins, it has two gradients to add up:
the product that makes the one adds it to the other, in place.

    x ---+--- x W^T ...          forwards
         +--- x ---------
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import HALVES
from .operation import operation


def in_full(a_NF: Tensor, b_ND: Tensor) -> Tensor:
    """a^T b, of half precision as it is added up: in fp32."""
    if a_NF.dtype != b_ND.dtype:  # CUDA's product would refuse; so does every other
        raise TypeError(f"a product of {a_NF.dtype} and {b_ND.dtype} numbers: both must be of one kind")
    if a_NF.dtype not in HALVES:
        return a_NF.t() @ b_ND
    if a_NF.is_cuda:
        return torch.mm(a_NF.t(), b_ND, out_dtype=torch.float32)
    return a_NF.t().float() @ b_ND.float()


def _full_shape(a_NF: Tensor, b_ND: Tensor) -> Tensor:
    kind = torch.float32 if a_NF.dtype in HALVES else a_NF.dtype
    return a_NF.new_empty(a_NF.shape[1], b_ND.shape[1], dtype=kind)


def _add_product(total_ND: Tensor, a_NF: Tensor, b_FD: Tensor) -> None:
    total_ND.addmm_(a_NF, b_FD)


product_in_full = operation("product_in_full", "(Tensor a, Tensor b) -> Tensor", in_full, _full_shape)
add_product = operation(
    "add_product",
    "(Tensor(a!) total, Tensor a, Tensor b) -> ()",
    _add_product,
    lambda total_ND, a_NF, b_FD: None,
)


def slopes_of(
    slope_NF: Tensor, x: Tensor, weight_FD: Tensor, x_slope: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The gradients of x and of W.

    x_slope: the gradient that x has already, to which this one is added in place.
    """
    weight_slope_FD = product_in_full(slope_NF, x.flatten(0, -2))
    if x_slope is None:
        return (slope_NF @ weight_FD).view(x.shape), weight_slope_FD
    total_ND = x_slope.flatten(0, -2)
    add_product(total_ND, slope_NF, weight_FD)
    return total_ND.view(x.shape), weight_slope_FD


def multiplied(x: Tensor, half_FD: Tensor, bias_F: Tensor | None) -> Tensor:
    """x W^T + b."""
    if bias_F is None:
        return x @ half_FD.t()
    return torch.addmm(bias_F.to(x.dtype), x.flatten(0, -2), half_FD.t()).unflatten(0, x.shape[:-1])


class Product(torch.autograd.Function):
    """(x W^T + b, x), in the precision of x. residual: whether that x goes on, and has a gradient."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight_FD: Tensor, bias_F: Tensor | None, residual: bool
    ) -> tuple[Tensor, Tensor]:
        half_FD = weight_FD.to(x.dtype)
        ctx.save_for_backward(x, half_FD)
        ctx.residual, ctx.kind = residual, x.dtype if bias_F is None else bias_F.dtype
        return multiplied(x, half_FD, bias_F), x.view_as(x)

    @staticmethod
    def backward(ctx: Any, slope: Tensor, x_slope: Tensor) -> tuple[Tensor | None, ...]:
        (x, half_FD), slope_NF = ctx.saved_tensors, slope.flatten(0, -2)
        wanted = ctx.needs_input_grad[2]  # not where there is none, or another kernel sums for it
        bias_slope_F = slope_NF.sum(0, dtype=torch.float32).to(ctx.kind) if wanted else None
        return *slopes_of(slope_NF, x, half_FD, x_slope if ctx.residual else None), bias_slope_F, None
