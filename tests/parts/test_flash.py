"""Sparse attention by triangles, as the flash kernel computes them: the masked formula, pair for pair."""

import pytest
import torch

from heedful.parts import fused
from heedful.parts.attention import attend_plain, repeat_heads
from heedful.parts.long import flash
from heedful.parts.long.flash import attend_flash, flash_pays, steps_of
from heedful.parts.masks import PerHead, causal, padding, window
from heedful.parts.packed_masks import document
from heedful.parts.sparse_masks import EveryNth, SameBlock, fixed, fixed_steps, strided, strided_steps
from heedful.parts.view import View

B, H, K = 2, 4, 5
MASKS = {
    "strided": strided,
    "strided, first step": lambda stride: strided_steps(stride)[0],
    "strided, second step": lambda stride: strided_steps(stride)[1],
    "strided, by head": lambda stride: PerHead(strided_steps(stride)),
    "far, then near": lambda stride: strided_steps(stride)[1] | strided_steps(stride)[0],
    "two strides": lambda stride: (causal() & window(2 * stride)) | (causal() & EveryNth(stride)),
    "fixed, first step": lambda stride: fixed_steps(stride, 1)[0],
    "fixed": lambda stride: fixed(stride, 1),
    "fixed, two tokens": lambda stride: fixed(stride, 2),
    "fixed, whole blocks": lambda stride: fixed(stride, stride),
    "fixed, tails first": lambda stride: fixed_steps(stride, 2)[1] | fixed_steps(stride, 2)[0],
    "fixed, second step": lambda stride: fixed_steps(stride, 2)[1],  # whose first queries see nobody
    "fixed, a tail for each head": lambda stride: fixed(stride, 1, 2),
    "fixed, second step, a tail for each head": lambda stride: fixed_steps(stride, 1, 2)[1],
    "fixed, by head": lambda stride: PerHead((fixed_steps(stride, 1)[0], fixed_steps(stride, 1, 2)[1])),
}


class Open:
    """The kernel's answer by the formula, with the whole table of scores."""

    def table(self, q, k, window_):
        k = repeat_heads(k.transpose(1, 2), q.shape[2])
        scores = q.transpose(1, 2) @ k.mT
        at = torch.arange(q.shape[1])
        apart = at[:, None] - at
        seen = (apart >= 0) & (apart <= (len(at) if window_ is None else window_))
        return scores.masked_fill(~seen, float("-inf")), k

    def forward(self, q, k, v, window_):
        scores, _ = self.table(q, k, window_)
        out = scores.softmax(-1) @ repeat_heads(v.transpose(1, 2), q.shape[2])
        return out.transpose(1, 2), scores.logsumexp(-1)

    def backward(self, grad, q, k, v, out, norm, window_):
        scores, every_k = self.table(q, k, window_)
        weights = (scores - norm[..., None]).exp()
        grad, out, q, every_v = (x.transpose(1, 2) for x in (grad, out, q, v))
        every_v = repeat_heads(every_v, q.shape[1])
        d_scores = weights * (grad @ every_v.mT - (grad * out).sum(-1, keepdim=True))
        dk, dv = (
            x.unflatten(1, (k.shape[2], -1)).sum(2).transpose(1, 2)
            for x in (d_scores.mT @ q, weights.mT @ grad)
        )
        return (d_scores @ every_k).transpose(1, 2), dk, dv


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(7)


def vectors(n, dtype=torch.float64):
    return [torch.randn(B, H, n, K, dtype=dtype, requires_grad=True) for _ in range(3)]


def with_gradients(attend, vectors_, view, *args, **kwargs):
    out = attend(*vectors_, view, *args, **kwargs)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return out, *torch.autograd.grad(out, vectors_, weight)


@pytest.mark.parametrize("stride", [2, 3, 7])
@pytest.mark.parametrize("name", MASKS)
def test_triangles_are_the_masked_formula_forwards_and_backwards(name, stride):
    mask = MASKS[name](stride)
    for n in (16, 21, 38):
        view, some = View(mask, n, n), vectors(n)
        expected = with_gradients(attend_plain, some, view)
        found = with_gradients(attend_flash, some, view, kernel=Open())
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, atol=1e-10, rtol=0)


def test_every_query_sees_the_keys_of_the_table_and_no_other():
    n, alike = 29, torch.zeros(1, H, 29, 29, dtype=torch.float64)
    for name, make in MASKS.items():
        view = View(make(4), n, n)
        values = torch.eye(n, dtype=torch.float64).expand(1, H, n, n)
        weights = attend_flash(alike, alike, values, view, kernel=Open())
        assert torch.equal(weights > 0, view.allowed(H).expand(1, H, n, n)), name


def test_scores_are_scaled_as_asked():
    view, some = View(strided(3), 20, 20), vectors(20)
    found = with_gradients(attend_flash, some, view, scale=0.7, kernel=Open())
    expected = with_gradients(attend_plain, some, view, None, 0.7)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=0)


def test_masks_of_another_form_are_refused():
    ids = torch.zeros(2, 24)
    for mask in (
        causal(),
        strided(4) & document(ids),
        fixed(4, 1) & padding(torch.tensor([24, 7])),
        causal() & SameBlock(4, 1),
        fixed_steps(4, 1)[0] | fixed_steps(6, 1)[1],
        causal() & (SameBlock(4) | EveryNth(4)),
        causal() & window(1),
    ):
        assert steps_of(mask) is None
        with pytest.raises(ValueError, match="no strided or fixed pattern"):
            attend_flash(*vectors(24), View(mask, 24, 24), kernel=Open())


def test_long_texts_on_a_gpu_take_the_kernel_where_it_saves_scores():
    with torch.device("meta"):
        q = torch.empty(1, 8, 8192, 64, dtype=torch.bfloat16)

    class OnGPU:
        """What a choice asks of a tensor on a GPU."""

        is_cuda, shape, dtype, device = True, q.shape, q.dtype, torch.device("cpu")

    def pays(mask, dropout=0.0, n=8192, **other):
        some = type("Some", (OnGPU,), {"shape": torch.Size((1, 8, n, 64)), **other})()
        return flash_pays(some, some, View(mask, n, n), dropout)

    assert pays(strided(90)) and pays(fixed(90, 8)) and pays(fixed(90, 11, 8))
    assert pays(PerHead(fixed_steps(90, 8)))
    assert not pays(strided(90), dropout=0.1)  # which it does not have
    assert not pays(strided(90), is_cuda=False) and not pays(strided(90), dtype=torch.float32)
    assert not pays(strided(3)) and not pays(causal()) and not pays(strided(30), n=1024)
    assert not pays(causal() & window(64))  # one triangle, for which there is nothing to merge
    assert not pays(strided(90), shape=torch.Size((1, 8, 8192, 60)))


def test_the_choice_of_kernel_takes_it(monkeypatch):
    monkeypatch.setattr(fused, "flash_pays", lambda *args: True)
    monkeypatch.setattr(flash.FLASH, "forward", Open().forward, raising=False)
    some, view = vectors(24), View(strided(4), 24, 24)
    found = fused.attend_fused(*some, view)
    torch.testing.assert_close(found, attend_plain(*some, view), atol=1e-10, rtol=0)
