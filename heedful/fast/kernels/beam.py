"""A step of beam search without the host: the best continuations of every prefix, ended or not.

The same as `extend` and `is_over` of heedful/decode/beam.py, for a search without groups, coverage and
filters. First the best word of every group of the vocabulary is found, then the best few of a row, which only
need another look at the groups that they come from; then one program a search does the rest. Where the best
must be found again and again, score and place are one 64-bit number: of equal scores the first place wins.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

GROUP = 128  # words
STRETCH = 32  # groups that one program goes through


@triton.jit
def _packed(score, place):
    """Score and place as one number, in the order of the score; of equals the first place is the greatest."""
    bits = score.to(tl.int32, bitcast=True)
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    bits = tl.where(score != score, 0x7FFFFFFF, bits)  # noqa: PLR0124 (no number: first, so that it is seen)
    return (bits.to(tl.int64) << 32) | (0x7FFFFFFF - place).to(tl.int64)


@triton.jit
def _score(packed):
    bits = (packed >> 32).to(tl.int32)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.float32, bitcast=True)


@triton.jit
def _place(packed):
    return 0x7FFFFFFF - (packed & 0x7FFFFFFF).to(tl.int32)


@triton.jit
def group_kernel(scores, highest, tops, totals, V, C, STRIDE, G: tl.constexpr, L: tl.constexpr):
    """The best word of each group of L, in a stretch of G groups."""
    row, c = tl.program_id(0).to(tl.int64), tl.program_id(1)
    g = tl.arange(0, G)
    v = c * (G * L) + g[:, None] * L + tl.arange(0, L)[None, :]
    z = tl.load(scores + row * STRIDE + v, mask=v < V, other=float("-inf"))
    top = tl.max(tl.max(z, 1), 0)
    total = tl.sum(tl.sum(tl.exp(z - tl.where(top == float("-inf"), 0.0, top)), 1), 0)
    tl.store(tops + row * C + c, top)
    tl.store(totals + row * C + c, total)
    keys = tl.where(v < V, _packed(z, v), -0x7FFFFFFFFFFFFFFF)
    tl.store(highest + (row * C + c) * G + g, tl.max(keys, 1))


@triton.jit
def top_kernel(
    scores, highest, tops_C, totals_C, best, tops, totals, V, C, STRIDE,
    COUNT: tl.constexpr, G: tl.constexpr, L: tl.constexpr, GP: tl.constexpr, SP: tl.constexpr,
):  # fmt: skip
    """The best few words of a row: each is the best of some group.

    Taken from it, its next best comes in its place.
    """
    LEAST: tl.constexpr = -0x7FFFFFFFFFFFFFFF
    row = tl.program_id(0).to(tl.int64)
    g, s = tl.arange(0, GP), tl.arange(0, SP)
    keys = tl.load(highest + row * C * G + g, mask=g < C * G, other=LEAST)
    for j in range(COUNT):
        key = tl.max(keys, 0)
        tl.store(best + row * COUNT + j, key)
        group = tl.where(key == LEAST, C * G, _place(key) // L)  # past the end, when there are no more
        v = group * L + tl.arange(0, L)
        z = tl.load(scores + row * STRIDE + v, mask=v < V, other=float("-inf"))
        mine = _packed(z, v)
        left = tl.max(tl.where((v < V) & (mine < key), mine, LEAST), 0)
        keys = tl.where(g == group, left, keys)
    top_S = tl.load(tops_C + row * C + s, mask=s < C, other=float("-inf"))
    total_S = tl.load(totals_C + row * C + s, mask=s < C, other=0.0)
    top = tl.max(top_S, 0)
    tl.store(tops + row, top)
    tl.store(totals + row, tl.sum(tl.where(s < C, total_S * tl.exp(top_S - top), 0.0), 0))


@triton.jit
def extend_kernel(
    best, tops, sums, ends, penalties, limits, base,
    totals, nodes, tokens, parents, scores_F, finished, over, steps, counts,
    all_before, all_tokens, all_log_p, all_best, N, V,
    W: tl.constexpr, E: tl.constexpr, CAND: tl.constexpr, RULE: tl.constexpr, LONGER: tl.constexpr,
    WP: tl.constexpr, CP: tl.constexpr,
):  # fmt: skip
    LEAST: tl.constexpr = -0x7FFFFFFFFFFFFFFF
    n = tl.program_id(0)
    w, c = tl.arange(0, WP), tl.arange(0, CP)
    row = n * W + w
    # The best words of every prefix, with their log-probabilities.
    here = (w[:, None] < W) & (c[None, :] < CAND)
    keys = tl.load(best + row[:, None] * CAND + c[None, :], mask=here, other=LEAST)
    partition_W = tl.load(tops + row, mask=w < W, other=0.0) + tl.log(
        tl.load(sums + row, mask=w < W, other=1.0)
    )
    log_p = _score(keys) - partition_W[:, None]
    sum_W = tl.load(totals + row, mask=w < W, other=float("-inf"))
    sums = sum_W[:, None] + log_p
    keys = tl.where(here & (keys > LEAST), _packed(sums, w[:, None] * V + _place(keys)), LEAST)
    # The best of all.
    sum_C = tl.full((CP,), float("-inf"), tl.float32)
    log_p_C = tl.full((CP,), float("-inf"), tl.float32)
    at_C = tl.zeros((CP,), tl.int32)
    for j in range(CAND):
        key = tl.max(tl.max(keys, 1), 0)
        hit = keys == key
        sum_C = tl.where(c == j, _score(key), sum_C)
        at_C = tl.where(c == j, _place(key), at_C)
        log_p_C = tl.where(c == j, tl.sum(tl.sum(tl.where(hit, log_p, 0.0), 1), 0), log_p_C)
        keys = tl.where(hit, LEAST, keys)
    real = c < CAND
    parent, token = at_C // V, at_C % V
    count, step = tl.load(counts + n), tl.load(steps + n) + 1
    before = tl.load(nodes + n * W + parent, mask=real, other=-1)
    node = tl.load(base) + (count * N + n) * CAND + c
    at = (count * N + n) * CAND + c
    tl.store(all_before + at, before, mask=real)
    tl.store(all_tokens + at, token.to(tl.int64), mask=real)
    tl.store(all_log_p + at, log_p_C, mask=real)
    # Those that end compete with those that have.
    ended = c < 0
    for e in tl.static_range(E):
        ended = ended | (token == tl.load(ends + e))
    limit, gone = tl.load(limits + n), tl.load(over + n)
    penalty = tl.load(penalties + step)
    enters = (ended | (step == limit)) & (c < W) & (gone == 0) & real
    new = tl.where(enters, _packed(tl.where(enters, sum_C / penalty, float("-inf")), W + c), LEAST)
    old_score = tl.load(scores_F + row, mask=w < W, other=float("-inf"))
    old_node = tl.load(finished + row, mask=w < W, other=-1)
    old = tl.where(w < W, _packed(old_score, w), LEAST)
    score_F = tl.full((WP,), float("-inf"), tl.float32)
    node_F = tl.full((WP,), -1, tl.int64)
    for j in range(W):
        key = tl.maximum(tl.max(old, 0), tl.max(new, 0))
        chosen = tl.sum(tl.where(old == key, old_node, 0), 0) + tl.sum(tl.where(new == key, node, 0), 0)
        score_F = tl.where(w == j, _score(key), score_F)
        node_F = tl.where(w == j, chosen, node_F)
        old, new = tl.where(old == key, LEAST, old), tl.where(new == key, LEAST, new)
    # Those that live on; and whether it is worth it.
    live = real & (ended == 0)
    rank = tl.cumsum(live.to(tl.int32), 0) - 1
    kept = live & (rank < W)
    highest = tl.max(tl.where(kept, sum_C, float("-inf")), 0)
    worst = tl.max(tl.where(w == W - 1, score_F, float("-inf")), 0)
    if RULE == 0:
        done = worst > float("-inf")
    elif RULE == 1:
        done = highest / penalty <= worst
    else:
        ideal = penalty
        if LONGER:
            ideal = tl.load(penalties + limit)
        done = highest / ideal <= worst
    done = done | (step == limit) | (highest == float("-inf"))
    summit = tl.max(tl.where(c == 0, sum_C, float("-inf")), 0)
    found = tl.max(tl.where(w == 0, old_score, float("-inf")), 0) > float("-inf")
    broken = tl.sum((sum_C != sum_C).to(tl.int32), 0) > 0  # noqa: PLR0124 (no number)
    summit = tl.where(broken, float("nan"), tl.where(found, 0.0, summit))
    tl.store(all_best + count * N + n, tl.where(gone != 0, 0.0, summit))
    tl.debug_barrier()  # everything of before has been read
    tl.store(totals + n * W + rank, sum_C, mask=kept)
    tl.store(nodes + n * W + rank, node, mask=kept)
    tl.store(tokens + n * W + rank, token.to(tl.int64), mask=kept)
    tl.store(parents + n * W + rank, parent.to(tl.int64), mask=kept)
    tl.store(scores_F + row, score_F, mask=w < W)
    tl.store(finished + row, node_F, mask=w < W)
    tl.store(over + n, tl.where(done, 1, gone))
    tl.store(steps + n, step)
    tl.store(counts + n, count + 1)


@triton.jit
def trade_kernel(origin, parents, lengths, SLOTS, W: tl.constexpr, WP: tl.constexpr, BS: tl.constexpr):
    """Prefixes of a search take over each other's past."""
    n = tl.program_id(0)
    w, s = tl.arange(0, WP), tl.program_id(1) * BS + tl.arange(0, BS)
    here = (w[:, None] < W) & (s[None, :] < SLOTS)
    parent = tl.load(parents + n * W + w, mask=w < W, other=0)
    past = tl.load(origin + (n * W + parent)[:, None] * SLOTS + s[None, :], mask=here, other=0)
    length = tl.load(lengths + n * W)
    tl.debug_barrier()
    own = (n * W + w)[:, None] + tl.zeros((WP, BS), tl.int32)
    kept = tl.where(s[None, :] < length, past, own.to(tl.int32))
    tl.store(origin + (n * W + w)[:, None] * SLOTS + s[None, :], kept, mask=here)


RULES = ("first_B", "heuristic", "exact")


@dataclass(frozen=True)
class Beams:
    """N beam searches of W prefixes each, in buffers of fixed size, and the candidates of the last steps."""

    width: int
    rule: str
    longer: bool  # the length penalty pays for longer sentences
    ends_E: Tensor
    penalties_L: Tensor  # by length
    limits_N: Tensor
    base: Tensor  # the number of the first node of these steps
    totals_NW: Tensor
    nodes_NW: Tensor
    parents_NW: Tensor
    scores_NF: Tensor
    finished_NF: Tensor
    over_N: Tensor
    steps_N: Tensor
    counts_N: Tensor  # steps since the columns were emptied
    before_HNC: Tensor
    tokens_HNC: Tensor
    log_p_HNC: Tensor
    best_HN: Tensor

    @classmethod
    def room(
        cls,
        N: int,
        width: int,
        rule: str,
        longer: bool,
        ends_E: Tensor,
        penalties_L: Tensor,
        count: int,
        V: int,
    ) -> Beams:
        """count: steps whose candidates are kept. V: words there are."""
        device, C = penalties_L.device, width * min(1 + max(1, len(ends_E)), V)

        def whole(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.long, device=device)

        def real(*shape: int) -> Tensor:
            return torch.zeros(shape, device=device)

        return cls(
            width, rule, longer, ends_E, penalties_L, whole(N), whole(1), real(N, width), whole(N, width),
            whole(N, width), real(N, width), whole(N, width), whole(N), whole(N), whole(N),
            whole(count, N, C), whole(count, N, C), real(count, N, C), real(count, N),
        )  # fmt: skip


def extend_beams(
    scores_RV: Tensor, tokens_R: Tensor, origin_RS: Tensor, lengths_R: Tensor, beams: Beams
) -> None:
    """Extend every prefix by one token, given the scores after it; rows of the step exchange their past."""
    b, V = beams, scores_RV.shape[1]
    (N, W), CAND = b.totals_NW.shape, b.tokens_HNC.shape[2]
    best_RC, tops_R, sums_R = best_words(scores_RV, N * W, CAND)
    wide = triton.next_power_of_2(W)
    extend_kernel[(N,)](
        best_RC, tops_R, sums_R, b.ends_E, b.penalties_L, b.limits_N, b.base, b.totals_NW, b.nodes_NW,
        tokens_R,
        b.parents_NW, b.scores_NF, b.finished_NF, b.over_N, b.steps_N, b.counts_N, b.before_HNC, b.tokens_HNC,
        b.log_p_HNC, b.best_HN, N, V, W=W, E=len(b.ends_E), CAND=CAND, RULE=RULES.index(b.rule),
        LONGER=b.longer,
        WP=wide, CP=triton.next_power_of_2(CAND), num_warps=4,
    )  # fmt: skip
    S = origin_RS.shape[1]
    trade_kernel[(N, triton.cdiv(S, 128))](
        origin_RS, b.parents_NW, lengths_R, S, W=W, WP=wide, BS=128, num_warps=4
    )


def best_words(scores_RV: Tensor, R: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best words of the first R rows, packed with their scores, best first: [R, count].

    Also each row's highest score, and its sum of exp(score - highest).
    """
    V, device = scores_RV.shape[1], scores_RV.device
    L = min(GROUP, triton.next_power_of_2(V))
    G = min(STRETCH, triton.next_power_of_2(triton.cdiv(V, L)))
    C = triton.cdiv(V, G * L)
    highest_RCG = torch.empty(R, C, G, dtype=torch.long, device=device)
    tops_RC, totals_RC = torch.empty(2, R, C, device=device)
    group_kernel[(R, C)](
        scores_RV, highest_RCG, tops_RC, totals_RC, V, C, scores_RV.stride(0), G=G, L=L, num_warps=4
    )
    best_RK, (tops_R, sums_R) = highest_RCG.new_empty(R, count), torch.empty(2, R, device=device)
    top_kernel[(R,)](
        scores_RV, highest_RCG, tops_RC, totals_RC, best_RK, tops_R, sums_R, V, C, scores_RV.stride(0),
        COUNT=count,
        G=G, L=L, GP=triton.next_power_of_2(C * G), SP=triton.next_power_of_2(C), num_warps=1,
    )  # fmt: skip
    return best_RK, tops_R, sums_R
