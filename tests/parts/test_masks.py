"""Masks against the plain loops of their definitions, in every form a kernel can ask for."""

import itertools
import xml.etree.ElementTree as ET

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import flex_attention

from heedful.parts import view as parts_view
from heedful.parts.masks import Full, Mask, PerHead, causal, full, padding, prefix, window
from heedful.parts.packed_masks import document
from heedful.parts.picture_masks import picture_column, picture_convolution, picture_row
from heedful.parts.sparse_masks import EveryNth, fixed, fixed_steps, strided, strided_steps
from heedful.parts.view import View, left_padded, right_padded

T = 23
LENGTHS = torch.tensor([5, 23, 0])
IDS = torch.arange(T)[None] // torch.tensor([[4], [7], [23]])


def loop(rule, B=1, H=1, size=T) -> torch.Tensor:
    """allowed[b, h, q, k] by asking a Python function of four numbers."""
    cells = [bool(rule(*bhqk)) for bhqk in itertools.product(range(B), range(H), range(size), range(size))]
    return torch.tensor(cells).view(B, H, size, size)


def far_apart(one: tuple[int, int], other: tuple[int, int]) -> int:
    """The larger of the distances in rows and in columns."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


# name: (mask, its definition as a function of numbers, batch rows, heads)
DEFINITIONS = {
    "full": (full(), lambda b, h, q, k: True, 1, 1),
    "causal": (causal(), lambda b, h, q, k: k <= q, 1, 1),
    "strictly causal": (causal(strict=True), lambda b, h, q, k: k < q, 1, 1),
    "window": (window(4), lambda b, h, q, k: abs(q - k) < 4, 1, 1),
    "sliding window": (causal() & window(4), lambda b, h, q, k: q - 4 < k <= q, 1, 1),
    "padding": (padding(LENGTHS), lambda b, h, q, k: k < LENGTHS[b], 3, 1),
    "document": (document(IDS), lambda b, h, q, k: IDS[b, q] == IDS[b, k], 3, 1),
    "prefix": (prefix(LENGTHS), lambda b, h, q, k: k <= q or k < LENGTHS[b], 3, 1),
    "strided near": (strided_steps(5)[0], lambda b, h, q, k: max(0, q - 5) <= k <= q, 1, 1),
    "strided far": (strided_steps(5)[1], lambda b, h, q, k: k <= q and (q - k) % 5 == 0, 1, 1),
    "strided": (strided(5), lambda b, h, q, k: k <= q and (q - k <= 5 or (q - k) % 5 == 0), 1, 1),
    "fixed own": (fixed_steps(6, 2)[0], lambda b, h, q, k: k <= q and k // 6 == q // 6, 1, 1),
    "fixed tail": (fixed_steps(6, 2)[1], lambda b, h, q, k: k <= q and k % 6 in (4, 5), 1, 1),
    "fixed": (fixed(6, 2), lambda b, h, q, k: k <= q and (k // 6 == q // 6 or k % 6 in (4, 5)), 1, 1),
    "fixed, a tail a head": (
        fixed_steps(6, 2, head_groups=3)[1],
        lambda b, h, q, k: k <= q and k % 6 in range(4 - 2 * h, 6 - 2 * h),
        1,
        3,
    ),
    "per head": (
        PerHead(strided_steps(5)),
        lambda b, h, q, k: k <= q and (q - k <= 5 if h == 0 else (q - k) % 5 == 0),
        1,
        2,
    ),
    "both": (
        causal() & padding(LENGTHS) & document(IDS),
        lambda b, h, q, k: k <= q and k < LENGTHS[b] and IDS[b, q] == IDS[b, k],
        3,
        1,
    ),
    "either": (
        document(IDS) | EveryNth(7),
        lambda b, h, q, k: IDS[b, q] == IDS[b, k] or (q - k) % 7 == 0,
        3,
        1,
    ),
    "picture row": (picture_row(5, 3), lambda b, h, q, k: k <= q and (k < 5 or q - k <= 3), 1, 1),
    "picture column": (picture_column(5, 3), lambda b, h, q, k: k <= q and (k < 5 or (q - k) % 3 == 0), 1, 1),
    "picture convolution": (
        picture_convolution(5, 3, 3),
        lambda b, h, q, k: k <= q and (k < 5 or far_apart(divmod(q - 5, 3), divmod(k - 5, 3)) < 2),
        1,
        1,
    ),
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_mask_is_its_definition(name):
    mask, rule, B, H = DEFINITIONS[name]
    here = torch.arange(T)
    expected = loop(rule, B, H)
    assert torch.equal(mask.dense(here, here, H).expand(B, H, T, T), expected)

    slots = mask.flex(here, here)
    every = torch.tensor(list(itertools.product(range(B), range(H), range(T), range(T)))).T
    assert torch.equal(slots(*every).view(B, H, T, T), expected)

    picture = mask.picture(T, row=B - 1, head=H - 1)
    drawn = torch.tensor([[cell == "■" for cell in line.split()] for line in picture.splitlines()])
    assert torch.equal(drawn, expected[B - 1, H - 1])


@pytest.mark.parametrize("name", DEFINITIONS)
def test_positions_are_looked_up_and_nobody_sees_position_minus_one(name):
    mask, rule, B, H = DEFINITIONS[name]
    q_pos, k_pos = (
        torch.tensor([[3, 0, 11], [7, 7, 22], [5, 1, 2]]),
        torch.tensor([[0, -1, 2, 9], [-1, -1, 3, 4], [4, 3, 2, 1]]),
    )
    q_pos, k_pos = q_pos[:B], k_pos[:B]
    expected = torch.zeros(B, H, 3, 4, dtype=torch.bool)
    for b, h, i, j in itertools.product(range(B), range(H), range(3), range(4)):
        q, k = int(q_pos[b, i]), int(k_pos[b, j])
        expected[b, h, i, j] = k >= 0 and bool(rule(b, h, q, k))
    assert torch.equal(mask.dense(q_pos, k_pos, H).expand(B, H, 3, 4), expected)
    every = torch.tensor(list(itertools.product(range(B), range(H), range(3), range(4)))).T
    assert torch.equal(mask.flex(q_pos, k_pos)(*every).view(B, H, 3, 4), expected)


leaves = st.sampled_from([m for m, *_ in DEFINITIONS.values()])
masks = st.recursive(
    leaves,
    lambda m: st.tuples(m, m, st.booleans()).map(lambda t: t[0] & t[1] if t[2] else t[0] | t[1]),
    max_leaves=5,
)


@given(masks, masks)
@settings(max_examples=60, deadline=None)
def test_combining_is_logic(a: Mask, b: Mask):
    def six(mask: Mask) -> torch.Tensor:
        return mask.dense(torch.arange(T), torch.arange(T), heads=6).expand(3, 6, T, T)

    assert torch.equal(six(a & b), six(a) & six(b))
    assert torch.equal(six(a | b), six(a) | six(b))
    assert torch.equal(six(a & (a | b)), six(a))


def test_strided_steps_connect_everything_and_fixed_ones_with_the_residual():
    here = torch.arange(T)
    lower = causal().dense(here, here)[0, 0]
    near, far = (m.dense(here, here)[0, 0].float() for m in strided_steps(5))
    assert torch.equal(near @ far > 0, lower) and torch.equal(far @ near > 0, lower)
    own, tail = (m.dense(here, here)[0, 0].float() for m in fixed_steps(6, 2))
    assert not torch.equal(tail @ own > 0, lower)
    both = ((own + tail) > 0).float()
    assert torch.equal(both @ both > 0, lower)


def test_prints_as_a_picture():
    assert str(causal()).splitlines()[:4] == [
        "Causal(strict=False)",
        " ■ · · · · · · ·",
        " ■ ■ · · · · · ·",
        " ■ ■ ■ · · · · ·",
    ]
    assert repr(causal() & window(3) | full()) == "((Causal(strict=False) & Window(width=3)) | Full())"
    assert "lengths=[5, 23, 0]" in repr(padding(LENGTHS))


def test_a_picture_has_the_words_of_a_sentence():
    words = ["I", "love", "<you>"]
    assert causal().picture(words=words).splitlines() == ["    I ■ · ·", " love ■ ■ ·", "<you> ■ ■ ■"]
    drawn = ET.fromstring(causal().svg(words=words))
    texts = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert [texts.count(word) for word in words] == [2, 2, 2]
    hints = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert hints[0] == "Causal(strict=False)" and len(hints) == 10
    assert "query love may not attend to key <you>" in hints


def test_padding_positions():
    lengths = torch.tensor([2, 4, 0])
    assert right_padded(lengths, 4).tolist() == [[0, 1, -1, -1], [0, 1, 2, 3], [-1] * 4]
    assert left_padded(lengths, 4).tolist() == [[-1, -1, 0, 1], [0, 1, 2, 3], [-1] * 4]


def test_symbolic_masks_stay_recognizable_for_kernels():
    assert View(causal(), 5, 5).is_causal and not View(causal(), 5, 7).is_causal
    assert not View(causal() & window(3), 5, 5).is_causal and not View(causal(strict=True), 5, 5).is_causal
    assert not View(causal(), 5, 5, q_pos=torch.arange(5), k_pos=torch.arange(5)).is_causal
    assert View(causal(), 1, 7).sees_all and not View(causal(), 2, 7).sees_all
    assert View(full(), 5, 7).sees_all and not View(full(), 5, 7, k_pos=torch.arange(7)).sees_all
    assert Full() == full() and causal() == causal() and causal() != causal(strict=True)


def test_without_positions_queries_are_the_last_of_the_keys():
    allowed = View(causal(), 2, 5).allowed(H=1)[0, 0]
    assert allowed.tolist() == [[True] * 4 + [False], [True] * 5]


def test_block_tables_of_plain_windows_are_kept_and_are_right():
    rows = document(torch.tensor([[0] * 100 + [1] * 90]))
    with torch.inference_mode():  # what is made while writing must serve training
        kept = View(causal() & window(7), 190, 190).blocks(2, 3)
    again = View(causal() & window(7), 190, 190).blocks(5, 3)
    assert again is kept and not kept.kv_indices.is_inference()
    assert View(causal() & window(8), 190, 190).blocks(2, 3) is not kept
    mask = causal() & rows
    assert View(mask, 190, 190).blocks(1, 3) is not View(mask, 190, 190).blocks(
        1, 3
    )  # rows of a batch are not kept
    here = torch.arange(190)
    shown = kept.mask_mod(torch.tensor(0), torch.tensor(0), here[:, None], here)
    assert torch.equal(shown, (causal() & window(7)).dense(here, here, 1).view(190, 190))


@pytest.mark.parametrize("rows, heads", [(None, None), (2, None), (2, 4)])
@pytest.mark.parametrize("T, S", [(700, 700), (389, 901)])
def test_block_tables_made_in_strips_are_those_made_at_once(rows, heads, T, S, monkeypatch):
    ids = torch.arange(S).div(torch.tensor([[170], [260]]), rounding_mode="floor")
    mask = causal() & (window(130) if rows is None else document(ids))
    if heads:
        mask = PerHead((mask, causal() & window(300)))
    q_pos, k_pos = torch.arange(S - T, S), torch.arange(S)
    whole = parts_view.make_blocks(mask, rows, heads, q_pos, k_pos)
    made = []
    create = flex_attention.create_block_mask
    monkeypatch.setattr(
        flex_attention, "create_block_mask", lambda *a, **k: made.append(a) or create(*a, **k)
    )
    monkeypatch.setattr(parts_view, "STRIP", 2 * 128 * S * (rows or 1) * (heads or 1))
    strips = parts_view.make_blocks(mask, rows, heads, q_pos, k_pos)
    assert len(made) == -(-T // 256)
    assert strips.seq_lengths == whole.seq_lengths == (T, S) and strips.BLOCK_SIZE == whole.BLOCK_SIZE
    rule = flex_attention.create_mask(strips.mask_mod, rows or 1, heads or 1, T, S, device="cpu")
    assert torch.equal(rule, mask.dense(q_pos, k_pos, heads or 1).expand_as(rule))
    for name in (
        "kv_num_blocks",
        "kv_indices",
        "full_kv_num_blocks",
        "full_kv_indices",
        "q_num_blocks",
        "q_indices",
        "full_q_num_blocks",
        "full_q_indices",
    ):
        assert torch.equal(getattr(strips, name), getattr(whole, name)), name


def test_only_masks_that_leave_large_blocks_empty_are_called_sparse():
    sparse = {name for name, (mask, *_) in DEFINITIONS.items() if mask.sparse}
    assert sparse == {"window", "sliding window", "document", "strided near", "fixed own", "both"}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_mask_that_says_it_sees_itself_has_no_empty_row(name):
    mask, _, _, H = DEFINITIONS[name]
    allowed = mask.dense(torch.arange(T), torch.arange(T), H)
    own = allowed.diagonal(dim1=-2, dim2=-1).all()
    assert not mask.sees_self or own
    assert mask.sees_self or name in {
        "strictly causal",
        "padding",
        "fixed tail",
        "fixed, a tail a head",
        "both",
    }


def test_nonsense_is_refused():
    for attempt in (
        lambda: window(0),
        lambda: EveryNth(0),
        lambda: fixed(0, 1),
        lambda: fixed(6, 2, head_groups=4),
    ):
        with pytest.raises(ValueError, match="at least 1|do not fit"):
            attempt()
    with pytest.raises(TypeError):
        causal() & torch.ones(2, 2).bool()
    assert len(document(torch.tensor([[0, 0, 1]])).picture().splitlines()) == 3
