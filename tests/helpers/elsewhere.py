"""A pretended device: tensors compute on the CPU, say that they are elsewhere, and refuse to meet others.

On a machine without a GPU nobody notices a constant that was made on the CPU. Here it is noticed: an
operation on tensors of two places fails as it does on a GPU, where only single numbers may come from the CPU.
Values are real, so that code which looks at them (lengths, how many tokens an expert got) runs as ever.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")
aten = torch.ops.aten
# What brings tensors from one place to another, or looks at numbers of the CPU on a GPU too: indices and
# lengths.
FROM_ANYWHERE = (
    aten.copy_.default,
    aten._to_copy.default,
    aten._local_scalar_dense.default,
    aten.index.Tensor,
    aten.index_put.default,
    aten._pack_padded_sequence.default,
)


class Elsewhere(Tensor):
    """A tensor of the device, around one of the CPU."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Self:
        made = Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            inner.stride(),
            inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
            requires_grad=inner.requires_grad,
        )
        made.inner = inner
        return made

    def __repr__(self, **_: Any) -> str:
        return f"Elsewhere({self.inner!r})"

    def tolist(self) -> Any:
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with There():
            return operation(*args, **(kwargs or {}))


class There(TorchDispatchMode):
    """While it is on, tensors may be made on the device."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)]
        there = any(isinstance(each, Elsewhere) for each in tensors)
        asked = kwargs.get("device")
        if asked is not None:
            there = torch.device(asked).type == DEVICE.type
            kwargs["device"] = torch.device("cpu")
        elif operation not in FROM_ANYWHERE:
            check(operation, tensors)
        if operation is aten._fused_sdp_choice.default:
            return 0  # by the formula, which every device has
        args, kwargs = tree_map(bare, (args, kwargs))
        out = operation(*args, **kwargs)
        if operation is aten._pack_padded_sequence.default:
            return Elsewhere(out[0]), out[1]  # sizes stay on the CPU
        return tree_map(lambda each: Elsewhere(each) if type(each) is Tensor else each, out) if there else out


def check(operation: Any, tensors: list[Tensor]) -> None:
    """Refuse tensors of two places; a single number may come from anywhere."""
    places = {isinstance(each, Elsewhere) for each in tensors if each.ndim}
    if len(places) > 1:
        shapes = [("there" if isinstance(each, Elsewhere) else "cpu", *each.shape) for each in tensors]
        raise RuntimeError(f"{operation}: expected all tensors to be on the same device, but found {shapes}")


def bare(each: Any) -> Any:
    return each.inner if isinstance(each, Elsewhere) else each


def brought(module: nn.Module) -> nn.Module:
    """The same module with its weights and buffers on the device; weights that were one stay one."""
    found: dict[int, Any] = {}
    for each in module.modules():
        for name, weight in list(each.named_parameters(recurse=False, remove_duplicate=False)):
            made = found.setdefault(
                id(weight), nn.Parameter(Elsewhere(weight.detach()), weight.requires_grad)
            )
            setattr(each, name, made)
        for name, buffer in list(each.named_buffers(recurse=False, remove_duplicate=False)):
            setattr(each, name, Elsewhere(buffer))
    return module
