"""Positions: what order costs, at the input and in the scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import nn

from ...parts.disentangled import Disentangled
from ...parts.masks import full
from ...parts.multihead import MultiHeadAttention
from ...parts.positions.absolute import CaptionAndGrid, Concatenated, Learned, Sinusoidal
from ...parts.positions.base import NoPosition, Position, Positions, Tree
from ...parts.positions.relative import ALiBi, Shaw, T5Buckets, TransformerXL
from ...parts.positions.rotary import Rotary
from ...parts.positions.syntax import StructuralAbsolute, StructuralRelative
from ...parts.view import View
from .counted import count, ids, run, scaled, vectors
from .part import FULL, Part, whole
from .tally import Tally, rule_for

# At the input.


def input_position(tally: Tally, position: Position, T: int, width: int) -> Part:
    """Positions that are added to embeddings of `width`, or stand beside them; a scheme without a rule is
    run."""
    rule = rule_for(AT_INPUT, position)
    if rule is not None:
        return rule(tally, position, T)
    if type(position).embed is Position.embed:
        return Part("positions")
    x_BTD, places = vectors(tally.batch, T, width), places_of(position, tally.batch, T)
    return count(tally, "positions", position, lambda meta: meta.embed(x_BTD, places))


def learned(tally: Tally, position: Learned, T: int) -> Part:
    return tally.table("positions", position.table)


def caption_and_grid(tally: Tally, position: CaptionAndGrid, T: int) -> Part:
    tables = (position.text, position.row, position.column)
    return whole("positions", [tally.table("places", table.table) for table in tables])


def sinusoidal(tally: Tally, position: Sinusoidal, T: int) -> Part:
    return Part("positions", "sinusoids")


def structural_absolute(tally: Tally, position: StructuralAbsolute, T: int) -> Part:
    """Two matrices and a tanh."""
    rows = tally.batch * T
    parts = [tally.linear("fused", linear, rows) for linear in (position.from_index, position.from_depth)]
    fused = whole("positions", parts, "index and depth", FULL * 3 * rows * position.width)
    return replace(fused, parts=())


def concatenated(tally: Tally, position: Concatenated, T: int) -> Part:
    """The encoding's own cost: joining keeps nothing."""
    inner = input_position(tally, position.encoding, T, position.added_width)
    return replace(inner, detail=f"{inner.detail}, concatenated")


def places_of(position: Position, B: int, T: int) -> Positions:
    """Where T tokens stand, and a tree of as many words for schemes from syntax."""
    return Tree(ids(B, T), ids(B, T)) if position.needs_tree else ids(T)


AT_INPUT: dict[type, Callable[..., Part]] = {
    Learned: learned,
    CaptionAndGrid: caption_and_grid,
    Sinusoidal: sinusoidal,
    StructuralAbsolute: structural_absolute,
    Concatenated: concatenated,
}

# In the scores. Each rule gives the numbers kept and the FLOPs, beside those of plain fused attention, and
# which of the FLOPs are between queries and keys.

Extra = tuple[int, int, int]


def score_position(layer: MultiHeadAttention, B: int, T: int, S: int) -> Extra | None:
    """What a position scheme adds to attention with T queries and S keys; None if there is no rule for the
    scheme."""
    rule = rule_for(IN_SCORES, layer.position)
    return None if rule is None else rule(layer, B, T, S)


def counted_scores(tally: Tally, layer: MultiHeadAttention, T: int, S: int) -> tuple[int, int]:
    """Bytes kept and FLOPs between the projections, by running scores, positions and weighted values.

    Layers of one shape cost the same: only the first of them is run.
    """
    shapes = [(name, tuple(x.shape)) for name, x in layer.named_parameters()]
    key = (repr(layer), layer.heads, layer.kv_heads, repr(shapes), repr(layer.position), T, S)
    if key not in tally.scores:
        tally.scores[key] = run_scores(tally, layer, T, S)
    return tally.scores[key]


def run_scores(tally: Tally, layer: MultiHeadAttention, T: int, S: int) -> tuple[int, int]:
    B, H, G, device = tally.batch, layer.heads, layer.kv_heads, "meta"
    q_BHTK = vectors(B, H, T, layer.query.out_features // H)
    k_BGSK, v_BGSL = vectors(B, G, S, layer.key_width), vectors(B, G, S, layer.value_width)
    q_pos, k_pos = places_of(layer.position, B, T), places_of(layer.position, B, S)
    view = (
        View(full(), T, S, device, q_pos, k_pos) if layer.position.needs_tree else View(full(), T, S, device)
    )

    def use(meta: Any) -> Any:
        turn = meta.position.rotate
        return meta.attend(turn(q_BHTK, view.q_pos), turn(k_BGSK, view.k_pos), v_BGSL, view)

    flops, kept, _ = run(layer, use, beside=(q_BHTK, k_BGSK, v_BGSL))
    return scaled(tally, kept), flops


def nothing(layer: Any, B: int, T: int, S: int) -> Extra:
    return 0, 0, 0


def whole_bias(layer: Any, B: int, T: int, S: int) -> Extra:
    """A bias has to be there, whole, for the backward pass of a kernel."""
    return layer.heads * T * S, 0, 0


def turned(layer: Any, B: int, T: int, S: int) -> Extra:
    """Rotated queries lie head by head, and so does the output, which is copied when the heads are joined."""
    return B * T * layer.heads * layer.value_width, 0, 0


def edge_vectors(layer: Any, B: int, T: int, S: int) -> Extra:
    """The plain formula, which keeps its weights before and after masking, and for each table of edges its
    scores, the queries head by head, and which edge each pair uses: twice, an integer of 8 bytes."""
    tables = [module.keys_HRK.shape[1] for module in layer.position.modules() if isinstance(module, Shaw)]
    H, K, V, pairs = layer.heads, layer.key_width, layer.value_width, T * S
    edges = 4 * pairs * (1 + B if layer.position.needs_tree else 1)  # every sentence has a tree of its own
    kept = 2 * B * H * pairs + sum(B * H * T * (R + K) for R in tables) + edges + B * H * T * K + pairs // 2
    return kept, sum(2 * B * H * T * R * (K + V) for R in tables), 0


def transformer_xl(layer: Any, B: int, T: int, S: int) -> Extra:
    """Scores by distance, which become the bias; the sinusoids and their projection; and u with every key."""
    H, K, position = layer.heads, layer.key_width, layer.position
    pairs = 2 * B * H * S * K * T
    products = pairs + 2 * B * H * S * K + 2 * S * position.distance.weight.numel()
    return B * H * T * (S + 2 * K) + S * (position.width + H * K) + T * S // 4, products, pairs


def disentangled(layer: Any, B: int, T: int, S: int) -> Extra:
    """Each of the two ways: the table of distances projected, all its rows scored, then looked up."""
    H, K, (R, D) = layer.heads, layer.key_width, layer.position.table.weight.shape
    ways, normed = layer.position.terms - 1, not isinstance(layer.position.table.norm, nn.Identity)
    each = B * H * (T * K + T * R + R * K)  # who asks, head by head; all scores; the rows, for each sentence
    kept = ways * each + (B * H * T * S + normed * R * D if ways else 0)
    return kept, ways * (2 * R * D * H * K + 2 * B * H * T * R * K), 0


IN_SCORES: dict[type, Callable[..., Extra]] = {
    NoPosition: nothing,
    Rotary: turned,
    T5Buckets: whole_bias,
    ALiBi: whole_bias,
    Shaw: edge_vectors,
    StructuralRelative: edge_vectors,
    TransformerXL: transformer_xl,
    Disentangled: disentangled,
}
