"""Sparse attention in pieces: the masked formula, pair for pair, in memory linear in the length."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from heedful.lab.clock import saved_bytes
from heedful.parts import fused
from heedful.parts.attention import attend_plain
from heedful.parts.fused import attend_fused
from heedful.parts.long import pieces
from heedful.parts.long.pieces import attend_in_pieces, period, pieces_pay, repeats
from heedful.parts.long.sparse import attend_gathered, layouts_of
from heedful.parts.masks import PerHead, causal, full, padding, window
from heedful.parts.packed_masks import document
from heedful.parts.sparse_masks import EveryNth, SameBlock, fixed, fixed_steps, strided, strided_steps
from heedful.parts.view import View, right_padded

B, H, K, L = 2, 4, 5, 3
MASKS = {
    "strided": strided,
    "strided, first step": lambda stride: strided_steps(stride)[0],
    "strided, second step": lambda stride: strided_steps(stride)[1],
    "strided, by head": lambda stride: PerHead(strided_steps(stride)),
    "far, then near": lambda stride: strided_steps(stride)[1] | strided_steps(stride)[0],
    "strided, a wider window": lambda stride: causal() & (SameBlock(stride, 2) | EveryNth(stride)),
    "fixed": lambda stride: fixed(stride, 1),
    "fixed, two tokens": lambda stride: fixed(stride, 2),
    "fixed, second step": lambda stride: fixed_steps(stride, 2)[1],  # whose first queries see nobody
    "fixed, a tail for each head": lambda stride: fixed(stride, 1, 2),
    "fixed, by head": lambda stride: PerHead((fixed_steps(stride, 1)[0], fixed_steps(stride, 1, 2)[1])),
    "blocks and two before": lambda stride: causal() & SameBlock(stride, 2),
}
CUT = {name: make for name, make in MASKS.items() if name != "strided, a wider window"}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(5)


def vectors(n, dtype=torch.float64):
    return [torch.randn(B, H, n, width, dtype=dtype, requires_grad=True) for width in (K, K, L)]


def close(found, expected, exact):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=exact, rtol=0)


def with_gradients(attend, vectors_, view, *args):
    out = attend(*vectors_, view, *args)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return out, *torch.autograd.grad(out, vectors_, weight)


@pytest.mark.parametrize("dtype, exact", [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("stride", [2, 3, 7])
@pytest.mark.parametrize("name", CUT)
def test_pieces_are_the_masked_formula_forwards_and_backwards(name, stride, dtype, exact):
    mask = CUT[name](stride)
    for n in (1, 2, 5, 21, 38):
        view, some = View(mask, n, n), vectors(n, dtype)
        expected = with_gradients(attend_plain, some, view)
        for most in (1, 200, 1 << 18):
            close(with_gradients(attend_in_pieces, some, view, None, most), expected, exact)


@pytest.mark.parametrize("name", CUT)
def test_every_query_sees_the_keys_of_the_table_and_no_other(name):
    n, stride = 29, 4
    view = View(CUT[name](stride), n, n)
    alike = torch.zeros(1, H, n, K, dtype=torch.float64)
    weights = attend_in_pieces(
        alike, alike, torch.eye(n, dtype=torch.float64).expand(1, H, n, n), view, None, 90
    )
    assert torch.equal(weights > 0, view.allowed(H).expand(1, H, n, n))


def test_scores_are_scaled_as_asked():
    view, some = View(strided(3), 20, 20), vectors(20)
    found, expected = (with_gradients(attend, some, view, None, 0.7) for attend in (in_turn, attend_plain))
    close(found, expected, 1e-10)


def in_turn(q, k, v, view, bias, scale):
    return attend_in_pieces(q, k, v, view, scale)


def test_masks_that_differ_from_piece_to_piece_are_refused():
    some = vectors(24)
    ids = torch.tensor([[0] * 9 + [1] * 15, [0] * 24])
    for mask in (
        MASKS["strided, a wider window"](3),  # blocks are the same for every third column only
        strided(4) & document(ids),
        fixed(4, 1) & padding(torch.tensor([24, 7])),
        causal() & window(6) & SameBlock(4),
        fixed(4, 1) | fixed(6, 1),
    ):
        view = View(mask, 24, 24)
        assert not repeats(mask, layouts_of(mask) or ()) and not pieces_pay(view, H, 0.0)
        with pytest.raises(ValueError, match="not the same for every piece"):
            attend_in_pieces(*some, view)
    places = torch.arange(24)
    for view in (View(strided(4), 24, 30), View(strided(4), 24, 24, q_pos=places, k_pos=places)):
        with pytest.raises(ValueError, match="not one text in order"):
            attend_in_pieces(*some, view)


def test_a_mask_is_the_same_again_after_its_period():
    here = torch.arange(30)
    for mask, expected in ((strided(4), 1), (fixed(5, 2), 5), (fixed(4, 1) | fixed(6, 1), 12), (full(), 1)):
        assert period(mask) == expected
        assert torch.equal(mask.dense(here, here), mask.dense(here + expected, here + expected))
    assert period(strided(4) & document(torch.zeros(1, 30))) is None


def test_the_choice_of_kernel_takes_pieces_for_whole_texts_and_else_what_covers_the_case(monkeypatch):
    n, asked = 400, []
    some = vectors(n)

    def noted(*args):
        asked.append(1)
        return attend_in_pieces(*args)

    monkeypatch.setattr(fused, "attend_in_pieces", noted)
    monkeypatch.setattr(pieces, "LONG", 300)
    places, lengths = torch.arange(n), torch.tensor([n, 100])
    here = right_padded(lengths, n)
    for view, chosen in (
        (View(strided(16), n, n), True),
        (View(fixed(16, 1), n, n), True),
        (View(fixed_steps(16, 1)[1], n, n), True),
        (View(PerHead((causal() & SameBlock(16), fixed_steps(16, 1)[1])), n, n), True),
        (View(strided_steps(16)[0], n, n), False),  # a band alone, and columns alone, have a kernel
        (View(strided_steps(16)[1], n, n), False),
        (View(causal(), n, n), False),
        (View(strided(16) & document(torch.zeros(2, n)), n, n), False),
        (View(strided(16) & padding(lengths), n, n), False),
        (View(strided(16), n, n, q_pos=places, k_pos=places), False),
        (View(strided(16), n, n, q_pos=here, k_pos=here), False),
    ):
        asked.clear()
        found, expected = attend_fused(*some, view), attend_plain(*some, view)
        there = (torch.atleast_2d(view.q_pos) >= 0)[:, None, :, None]
        torch.testing.assert_close(found * there, expected * there, atol=1e-10, rtol=0)
        assert bool(asked) == chosen
    cached, (q, k, v) = View(strided(8), 2, n), some
    close([attend_fused(q[:, :, :2], k, v, cached)], [attend_plain(q[:, :, :2], k, v, cached)], 1e-10)
    assert not pieces_pay(View(strided(16), n, n), H, dropout=0.1)
    assert not pieces_pay(View(strided(200), n, n), H, 0.0)  # too many scores
    assert not pieces_pay(View(strided(16), 256, 256), H, 0.0)  # too short


def test_several_queries_share_keys(monkeypatch):
    monkeypatch.setattr(pieces, "LONG", 300)
    n = 400
    (q, _, _), view = vectors(n), View(strided(16), n, n)
    k, v = (torch.randn(B, 2, n, width, dtype=torch.float64) for width in (K, L))
    close([attend_fused(q, k, v, view)], [attend_plain(q, k, v, view)], 1e-10)


def test_in_half_precision_scores_are_summed_in_full():
    n = 120
    view, some = View(strided(16), n, n), [x.detach() for x in vectors(n, torch.float32)]
    with torch.autocast("cpu", torch.bfloat16):
        found = attend_in_pieces(*some, view)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), attend_plain(*some, view), atol=3e-2, rtol=0)


class Largest(TorchDispatchMode):
    """Remembers how many numbers the largest tensor has that comes up."""

    found = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.found = max(self.found, out.numel() if isinstance(out, torch.Tensor) else 0)
        return out


@pytest.mark.parametrize("make", [strided, lambda stride: fixed(stride, 2)])
def test_memory_grows_in_proportion_to_the_length(make):
    kept, largest = {}, {}
    for n in (256, 1024, 4096):
        q, k, v = vectors(n, torch.float32)
        view = View(make(math.isqrt(n)), n, n)
        kept[n] = saved_bytes(lambda q=q, k=k, v=v, view=view: attend_in_pieces(q, k, v, view))
        with Largest() as mode:
            attend_in_pieces(q, k, v, view, None, 16 * n).sum().backward()
        largest[n] = mode.found
    assert kept[4096] == 4 * kept[1024] == 16 * kept[256]
    assert kept[4096] == 4 * 4096 * B * H * (2 * K + 2 * L + 1)  # queries, keys, values, output, a number
    assert largest[4096] <= 4 * largest[1024] <= 16 * largest[256]
    q, k, v = vectors(4096, torch.float32)
    assert saved_bytes(lambda: attend_gathered(q, k, v, view)) > 8 * kept[4096]
