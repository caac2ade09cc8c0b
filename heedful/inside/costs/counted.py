"""Parts without a rule: run once on the meta device, where torch counts the FLOPs and autograd shows what it
keeps.

The meta device has shapes and no numbers, so a run takes milliseconds. The first one imports much of torch
(about two seconds), which is why the parts of this package have rules.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .part import FULL, Part

if TYPE_CHECKING:
    from .tally import Tally


def count(tally: Tally, name: str, module: nn.Module, use: Callable[[Any], Any]) -> Part:
    """The part that `use(module)` costs, by running it; `use` is given the module on the meta device."""
    flops, kept, _ = run(module, use)
    matrices = [weight for weight in module.parameters() if weight.ndim > 1]
    tally.multiplied |= {id(weight): weight.numel() for weight in matrices}
    return Part(name, type(module).__name__, tally.weights(module.parameters()), flops, scaled(tally, kept))


def count_attention(
    attend: Callable[[Tensor, Tensor, Tensor], Tensor],
    length: int,
    source_length: int | None = None,
    *,
    heads: int = 1,
    width: int = 64,
) -> tuple[int, int]:
    """FLOPs of `attend(q, k, v)`, forward, and the bytes that it keeps for the backward pass, in fp32.

    attend: any attention, such as `attend_plain`; its masks must be on the device of q. length: of queries.
    source_length: of keys, if it is another one. width: of a head. Pairs that a mask hides count where they
    are computed.
    """

    def use(_: Any) -> Tensor:
        q, k, v = (vectors(1, heads, n, width) for n in (length, *[source_length or length] * 2))
        return attend(q, k, v)

    flops, kept, _ = run(nn.Identity(), use)
    return flops, kept


def scaled(tally: Tally, kept: int) -> int:
    """Bytes at the tally's precision of what takes `kept` bytes in fp32."""
    return kept * tally.number // FULL


def run(
    module: nn.Module, use: Callable[[Any], Any], beside: tuple[Tensor, ...] = ()
) -> tuple[int, int, Any]:
    """FLOPs of `use(module)`, bytes that autograd keeps for its backward pass, and the result.

    Weights are not counted as kept, nor are the tensors `beside` and the result: whoever uses them counts
    them.
    """
    from torch.utils.flop_counter import FlopCounterMode

    bones = on_meta(module)
    held: list[Tensor] = []  # alive until the end, so that no address is used twice

    def keep(tensor: Tensor) -> Tensor:
        held.append(tensor)
        return tensor

    saved = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    counter = FlopCounterMode(display=False)
    with torch.device("meta"), torch.enable_grad(), counter, FusedAttention(), saved:
        result = use(bones)
    results = list(result.values()) if isinstance(result, dict) else [result]
    others = {address(tensor) for tensor in (*bones.parameters(), *bones.buffers(), *beside, *results)}
    kept = {address(tensor): tensor.untyped_storage().nbytes() for tensor in held}
    return counter.get_total_flops(), sum(size for at, size in kept.items() if at not in others), result


def address(tensor: Tensor) -> int:
    """Where a tensor's storage lies, also on the meta device."""
    return tensor.untyped_storage()._cdata


def on_meta(module: nn.Module) -> Any:
    """A copy of a module with shapes and no numbers, in fp32 as it is trained; weights that are shared stay
    shared."""
    memo: dict[int, Any] = {}
    for weight in module.parameters():
        memo[id(weight)] = nn.Parameter(torch.empty(weight.shape, device="meta"), weight.requires_grad)
    for buffer in module.buffers():
        memo[id(buffer)] = torch.empty_like(buffer, device="meta")
    return copy.deepcopy(module, memo).train()


def vectors(*shape: int) -> Tensor:
    """Vectors that a part reads and hands gradients back to."""
    return torch.empty(shape, device="meta", requires_grad=True)


def ids(*shape: int) -> Tensor:
    """Token numbers."""
    return torch.empty(shape, device="meta", dtype=torch.long)


class FusedAttention(TorchFunctionMode):
    """Attention keeps what a GPU's fused kernel keeps; the meta device would take the formula, with its
    table."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not F.scaled_dot_product_attention:
            return func(*args, **kwargs)
        q, k, v, table = (*args, *[None] * (4 - len(args)))[:4]
        return FusedProducts.apply(q, k, v, kwargs.get("attn_mask", table))


class FusedProducts(torch.autograd.Function):
    """The products of attention. It keeps query, key, value, bias, output, and one log-sum-exp a row."""

    @staticmethod
    def forward(ctx: Any, q_BHTK: Tensor, k_BGSK: Tensor, v_BGSL: Tensor, table: Tensor | None) -> Tensor:
        groups = q_BHTK.shape[1] // k_BGSK.shape[1]
        scores_BHTS = q_BHTK @ k_BGSK.repeat_interleave(groups, 1).mT
        out_BHTL = scores_BHTS @ v_BGSL.repeat_interleave(groups, 1)
        ctx.save_for_backward(q_BHTK, k_BGSK, v_BGSL, table, out_BHTL, scores_BHTS.sum(-1))
        return out_BHTL

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise AssertionError("nothing goes backwards on the meta device")
