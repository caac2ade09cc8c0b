"""Matrices: the weights of linear layers, laid out for decoding on a CPU.

A step multiplies a few rows with every matrix of the model, so it costs the time to read the matrices. Each
kind here is y = x W^T + b for a few rows x, over weights in another order or in fewer bits; `matrices` knows
what this machine can do. Layers that read the same input are joined into one product. Nothing here has a
gradient.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor

from ..errors import BadInput


class LinearWeights:
    """Weight [N, K] and bias of a linear layer, or of several that read the same input, stacked."""

    def __init__(self, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> None:
        self.weights = [weight.detach() for weight in weights]
        kept = [bias.detach() for bias in biases if bias is not None]
        if len(kept) not in (0, len(biases)):
            raise ValueError("layers with and without bias cannot be joined")
        self.bias_N = torch.cat(kept) if len(kept) > 1 else kept[0] if kept else None
        for weight in self.weights:
            if weight.dtype != torch.float32 or weight.device.type != "cpu":
                raise BadInput(
                    f"packed weights are for a CPU and made from float32, "
                    f"not from {weight.dtype} on {weight.device}: "
                    f'load the model with device="cpu" and without dtype'
                )

    @property
    def size(self) -> int:
        return sum(weight.numel() for weight in self.weights)

    @property
    def weight_NK(self) -> Tensor:
        """The weight of one layer, or the weights of several, joined at every call."""
        return self.weights[0] if len(self.weights) == 1 else torch.cat(self.weights)


class Matrix(ABC):
    """x W^T + b, for rows x."""

    def __init__(self, layer: LinearWeights) -> None:
        self.layer, self.bias_N = layer, layer.bias_N

    @abstractmethod
    def __call__(self, x_RK: Tensor) -> Tensor: ...

    def onto(self, y_RN: Tensor, x_RK: Tensor) -> Tensor:
        """The product, added to y."""
        return self(x_RK).add_(y_RN)

    def rectified(self, x_RK: Tensor) -> Tensor:
        """ReLU of the product."""
        return torch.relu_(self(x_RK))


class PlainMatrix(Matrix):
    """torch's own product, but for a single row, which reads a wide matrix by columns, 1.4 to 1.9 x as fast.

    A matrix no wider than tall is read as it lies, and costs no copy.
    """

    @cached_property
    def weight_KN(self) -> Tensor:
        weight_NK = self.layer.weight_NK
        N, K = weight_NK.shape
        return weight_NK.t().contiguous() if N > K else weight_NK.t()

    @cached_property
    def several_KN(self) -> Tensor:
        return self.layer.weight_NK.t()

    def __call__(self, x_RK: Tensor) -> Tensor:
        return product(x_RK, self.weight_KN if x_RK.shape[0] == 1 else self.several_KN, self.bias_N)


class BlockedMatrix(Matrix):
    """A matrix in the blocks of oneDNN's kernels: 1.2 to 3 x as fast as `PlainMatrix`, the same to rounding.

    A single row reads 2,304 x 768 weights at 41 GB/s on one thread and at 51 on two, and `PlainMatrix` reads
    them at 26. The blocks are made when they are first needed.
    """

    def __init__(self, layer: LinearWeights) -> None:
        super().__init__(layer)
        self.multiply = torch.ops.mkldnn._linear_pointwise.default
        self.multiply_onto = torch.ops.mkldnn._linear_pointwise.binary

    @cached_property
    def blocks(self) -> Tensor:
        return torch.ops.mkldnn._reorder_linear_weight(self.layer.weight_NK.contiguous())

    def __call__(self, x_RK: Tensor) -> Tensor:
        return self.multiply(x_RK, self.blocks, self.bias_N, "none", [], "")

    def onto(self, y_RN: Tensor, x_RK: Tensor) -> Tensor:
        return self.multiply_onto(x_RK, y_RN, self.blocks, self.bias_N, "add")

    def rectified(self, x_RK: Tensor) -> Tensor:
        return self.multiply(x_RK, self.blocks, self.bias_N, "relu", [], "")


class Fp16Matrix(Matrix):
    """A matrix in fp16: a single row costs little more than half; a weight moves by at most 1/2048 of itself.

    Sums are in fp32. From about eight rows on, arithmetic is what costs, and nothing is gained.
    """

    def __init__(self, layer: LinearWeights) -> None:
        super().__init__(layer)
        self.multiply = torch.ops.quantized.linear_dynamic_fp16.default

    @cached_property
    def packed(self) -> Any:
        return torch.ops.quantized.linear_prepack_fp16(self.layer.weight_NK.contiguous(), self.bias_N)

    def __call__(self, x_RK: Tensor) -> Tensor:
        return self.multiply(x_RK, self.packed)


class Int8Matrix(Matrix):
    """A matrix in int8: each row of W, and each row of x, in 255 steps between -/+ its largest number.

    A weight moves by at most 1/254 of the largest of its row, an input by 1/254 of the largest of its own
    (1/126 on processors that add bytes with 7 bits). As each row of x has its own steps, what comes of it
    depends on no other row: a sentence in a batch is what it is alone.

    Fbgemm reads the whole matrix again for each few dozen rows. A vocabulary is too wide for the caches, so
    there oneDNN multiplies batches: 128 rows by 512 x 32,000 take 5.7 ms of processor time instead of 10.6.
    """

    def __init__(self, layer: LinearWeights) -> None:
        super().__init__(layer)
        self.levels = levels()
        self.multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default
        self.wide = sum(map(len, layer.weights)) >= WIDE and one_dnn_agrees()

    @cached_property
    def packed(self) -> Any:
        return in_bytes(self.layer.weight_NK)

    @cached_property
    def blocks(self) -> WideBytes:
        return WideBytes(self.layer.weight_NK)

    def __call__(self, x_RK: Tensor) -> Tensor:
        largest_R1 = x_RK.abs().amax(-1, keepdim=True).clamp_min_(SMALLEST)
        if self.wide and x_RK.shape[0] >= BATCH:
            y_RN = self.blocks(x_RK / largest_R1)
        else:
            y_RN = self.multiply(x_RK / largest_R1, 1 / self.levels, self.levels, self.packed)
        if self.bias_N is None:
            return y_RN.mul_(largest_R1)
        return torch.addcmul(self.bias_N, y_RN, largest_R1, out=y_RN)


SMALLEST = 1e-30  # of what is divided by: a row of zeros stays one
WIDE, BATCH = 8192, 16  # outputs and rows from which oneDNN's product of bytes is the faster one


def product(x_RK: Tensor, weight_KN: Tensor, bias_N: Tensor | None) -> Tensor:
    return torch.mm(x_RK, weight_KN) if bias_N is None else torch.addmm(bias_N, x_RK, weight_KN)


def steps_of(weight_NK: Tensor) -> Tensor:
    """The step of each row of a weight in bytes."""
    return weight_NK.abs().amax(1).clamp_min(SMALLEST).double() / 127


class WideBytes:
    """oneDNN's form of a weight in bytes: the product of rows between -1 and 1, the same as fbgemm's."""

    def __init__(self, weight_NK: Tensor) -> None:
        steps_N = steps_of(weight_NK)
        bytes_NK = torch.round(weight_NK / steps_N.float()[:, None]).clamp_(-127, 127).to(torch.int8)
        self.blocks = torch.ops.onednn.qlinear_prepack(bytes_NK, None)
        self.steps_N, self.middle_N = steps_N.float(), torch.zeros(len(steps_N), dtype=torch.int32)
        self.multiply = torch.ops.onednn.qlinear_pointwise.default

    def __call__(self, x_RK: Tensor) -> Tensor:
        bytes_RK = torch.round(x_RK * 127).add_(127).to(torch.uint8)
        weight = (self.blocks, self.steps_N, self.middle_N)
        return self.multiply(bytes_RK, 1 / 127, 127, *weight, None, 1.0, 0, torch.float32, "none", [], "")


@cache
def one_dnn_agrees() -> bool:
    """Whether oneDNN multiplies bytes here, with sums that do not overflow."""
    try:
        found = WideBytes(torch.ones(16, 64))(torch.ones(16, 64))
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
    return levels() == 127 and torch.allclose(found, torch.tensor(64.0), rtol=0.01)


def in_bytes(weight_NK: Tensor) -> Any:
    """Fbgemm's form of a weight: the packed bytes, and the step of each row."""
    steps_N = steps_of(weight_NK)
    middle_N = torch.zeros(len(steps_N), dtype=torch.long)
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # this type of tensor is deprecated; `missing` says where it is gone
            bytes_NK = torch.quantize_per_channel(weight_NK, steps_N, middle_N, 0, torch.qint8)
            return torch.ops.quantized.linear_prepack(bytes_NK, None)
    finally:
        torch.backends.quantized.engine = before


@cache
def levels() -> int:
    """Steps to either side of 0 for an input: 127, or 63 where the sum of two products of bytes overflows.

    That is so on x86 before VNNI, and found by multiplying the largest inputs with the largest weights.
    """
    multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
    found = multiply(torch.ones(1, 64), 1 / 127, 127, in_bytes(torch.ones(16, 64)))
    return 127 if torch.allclose(found, torch.tensor(64.0), rtol=0.01) else 63


# What this machine can do.

FBGEMM = "PyTorch's fbgemm, which is not part of this PyTorch or not for this processor"
NEEDS: dict[type[Matrix], str] = {
    BlockedMatrix: "PyTorch's oneDNN, which is not part of this PyTorch",
    Fp16Matrix: FBGEMM,
    Int8Matrix: FBGEMM,
}
KINDS: dict[str, type[Matrix]] = {"fp32": BlockedMatrix, "fp16": Fp16Matrix, "int8": Int8Matrix}
FEW = 1 << 17  # weights: so few are read in less time than the kernels for more take to begin


@cache
def missing(kind: type[Matrix]) -> str | None:
    """Why this machine has no such matrix, in words; None if it has. Found by trying a small one."""
    layer = LinearWeights([torch.ones(16, 8)], [None])
    try:
        found = kind(layer)(torch.ones(2, 8))
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        return f"{NEEDS[kind]} ({str(error).splitlines()[0]})"
    right = torch.allclose(found, torch.tensor(8.0), rtol=0.02)
    return None if right else f"{NEEDS[kind]} (it is wrong here)"


class Matrices:
    """Makes matrices of one kind, and plain ones of small layers."""

    def __init__(self, kind: type[Matrix]) -> None:
        self.kind = kind

    def __call__(self, layer: LinearWeights) -> Matrix:
        return (self.kind if layer.size >= FEW else PlainMatrix)(layer)


def matrices(weights: str) -> Matrices:
    """A maker of matrices in "fp32", "fp16" or "int8".

    Without oneDNN, it warns and makes plain ones for fp32.
    """
    if weights not in KINDS:
        raise BadInput(f'weights are {", ".join(KINDS)}, not "{weights}"')
    kind = KINDS[weights]
    if kind is not BlockedMatrix and (why := missing(kind)) is not None:
        raise BadInput(f'weights="{weights}" needs {why}: leave it out, and the model computes in float32')
    if kind is BlockedMatrix and (why := missing(kind)) is not None:
        warnings.warn(
            f"packing needs {why}: matrices stay as they are, and several rows cost more", stacklevel=3
        )
        kind = PlainMatrix
    return Matrices(kind)
