"""Positions against fp64 loops of their definitions."""

import itertools
import math

import pytest
import torch

from heedful.parts.attention import Dot
from heedful.parts.masks import causal
from heedful.parts.multihead import MultiHeadAttention
from heedful.parts.positions import POSITIONS
from heedful.parts.positions.absolute import Concatenated, Learned, Sinusoidal, frequencies, sinusoids
from heedful.parts.positions.base import NoPosition, Tree
from heedful.parts.positions.relative import ALiBi, Shaw, T5Buckets, TransformerXL, alibi_slopes, t5_bucket
from heedful.parts.positions.rotary import Rotary
from heedful.parts.positions.syntax import (
    StructuralAbsolute,
    StructuralRelative,
    depths,
    structural_distances,
)
from heedful.parts.view import View

B, T, S, H, K, D = 2, 5, 7, 3, 4, 12
Q_POS, K_POS = torch.arange(2, 7), torch.arange(7)
ROWS_Q, ROWS_K = (
    torch.tensor([[3, 4, 5, 6, 0], [0, 9, 2, 3, 1]]),
    torch.tensor([[0, 1, 2, 3, 4, 5, 6], [9, 8, 7, 3, 2, 1, 0]]),
)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(3)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def close(found, expected, atol=1e-12):
    torch.testing.assert_close(found, expected, atol=atol, rtol=0, check_dtype=False)


# Sinusoids


def test_sinusoids_are_the_papers_formula():
    table = Sinusoidal(D).encode(torch.arange(T))
    for p, i in itertools.product(range(T), range(D // 2)):
        angle = p / 10000 ** (2 * i / D)
        assert table[p, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-12)
        assert table[p, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-12)


def test_the_lectures_example_of_width_four():
    """Position 1 at D = 4: sin 1, cos 1, sin 1/100, cos 1/100."""
    expected = torch.tensor([math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)])
    close(Sinusoidal(4).encode(torch.tensor([1]))[0], expected, 1e-7)


def test_halves_are_a_permutation_of_interleaved_with_equal_products():
    interleaved, halves = (
        Sinusoidal(D).encode(torch.arange(9)),
        Sinusoidal(D, "halves").encode(torch.arange(9)),
    )
    assert torch.equal(halves, torch.cat([interleaved[:, 0::2], interleaved[:, 1::2]], -1))
    products = halves.double() @ halves.double().T
    distance = (torch.arange(9)[:, None] - torch.arange(9)).double()
    close(products, torch.cos(distance[..., None] * frequencies(D)).sum(-1), 1e-6)


def test_tensor2tensor_frequencies_end_at_one_over_the_base_and_differ():
    paper, t2t = frequencies(D), frequencies(D, "t2t")
    assert t2t[-1].item() == pytest.approx(1e-4, rel=1e-12)
    assert paper[-1].item() == pytest.approx(10000.0 ** (-(D - 2) / D), rel=1e-12)
    assert not any(torch.isclose(w, paper).any() for w in t2t[1:])


def test_a_shift_is_a_rotation():
    """PE(p + k) = PE(p) R_k, the same R_k for every p."""
    k, w = 3, frequencies(D)
    table = sinusoids(torch.arange(20), w).double()
    sin, cos = table[:, 0::2], table[:, 1::2]
    turn_s, turn_c = torch.sin(k * w), torch.cos(k * w)
    close(table[k:, 0::2], (sin * turn_c + cos * turn_s)[:-k], 1e-6)
    close(table[k:, 1::2], (cos * turn_c - sin * turn_s)[:-k], 1e-6)


def test_added_or_concatenated():
    x = normal(B, T, D)
    close(Sinusoidal(D).embed(x, torch.arange(T)), x + Sinusoidal(D).encode(torch.arange(T)))
    for encoding in (Sinusoidal(6), Learned(9, 6).double()):
        joined = Concatenated(encoding)
        wide = joined.embed(x, torch.arange(T))
        assert wide.shape == (B, T, D + joined.added_width) and joined.added_width == 6
        assert torch.equal(wide[..., :D], x)
        assert torch.equal(wide[..., D:], encoding.encode(torch.arange(T)).expand(B, T, 6))


def test_concatenation_is_addition_through_a_projection():
    """[e ; P] W = e W_e + P W_p."""
    x, W = normal(B, T, D), normal(D + 6, 8)
    wide = Concatenated(Sinusoidal(6)).embed(x, torch.arange(T)) @ W
    close(wide, x @ W[:D] + Sinusoidal(6).encode(torch.arange(T)) @ W[D:], 1e-5)


def test_a_learned_table_ends_where_it_ends():
    table = Learned(6, D)
    assert table.embed(torch.zeros(1, 6, D), torch.arange(6)).shape == (1, 6, D)
    with pytest.raises(ValueError, match="7 tokens .* table of 6"):
        table.embed(torch.zeros(1, 7, D), torch.arange(7))


def test_padding_counts_as_position_zero_in_tables():
    positions = torch.tensor([[-1, -1, 0, 1]])
    for scheme in (Sinusoidal(D), Learned(4, D)):
        assert torch.equal(scheme.encode(positions)[0], scheme.encode(torch.tensor([0, 0, 0, 1])))


# Relative


@pytest.mark.parametrize("heads", [1, H])
@pytest.mark.parametrize("q_pos, k_pos", [(Q_POS, K_POS), (ROWS_Q, ROWS_K)])
def test_shaw_is_its_definition(heads, q_pos, k_pos):
    clip, Kv = 2, 6
    shaw = Shaw(clip, K, Kv, heads=heads).double()
    q, k, weights = normal(B, H, T, K), normal(B, H, S, K), normal(B, H, T, S).softmax(-1)
    bias, values = shaw.bias(q, k, q_pos, k_pos), shaw.values(weights, q_pos, k_pos)
    q_pos, k_pos = q_pos.expand(B, T), k_pos.expand(B, S)
    for b, h, i in itertools.product(range(B), range(H), range(T)):
        total = torch.zeros(Kv, dtype=torch.float64)
        for j in range(S):
            edge = max(-clip, min(clip, int(k_pos[b, j] - q_pos[b, i]))) + clip
            close(bias[b, h, i, j], q[b, h, i] @ shaw.keys_HRK[h % heads, edge] / math.sqrt(K))
            total += weights[b, h, i, j] * shaw.values_HRL[h % heads, edge]
        close(values[b, h, i], total)


def test_shaw_sees_distance_only_and_clips_it():
    shaw = Shaw(2, K).double()
    q, k = normal(B, H, T, K), normal(B, H, S, K)
    close(shaw.bias(q, k, Q_POS + 40, K_POS + 40), shaw.bias(q, k, Q_POS, K_POS))
    bias = shaw.bias(q, k, torch.full((T,), 6), K_POS)
    assert torch.equal(bias[..., 0], bias[..., 3]) and not torch.equal(bias[..., 4], bias[..., 5])
    blind = Shaw(0, K).double().bias(q, k, Q_POS, K_POS)
    assert torch.equal(blind[..., :1].expand_as(blind), blind)


@pytest.mark.parametrize(
    "q_pos, k_pos",
    [
        (Q_POS, K_POS),
        (
            torch.tensor([[3, 4, 5, 6, 2], [0, 6, 2, 3, 1]]),
            torch.tensor([[0, 1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1, 0]]),
        ),
    ],
)
def test_transformer_xl_is_its_four_terms(q_pos, k_pos):
    xl = TransformerXL(D, H, K).double()
    torch.nn.init.normal_(xl.u_HK), torch.nn.init.normal_(xl.v_HK)
    q, k = normal(B, H, T, K), normal(B, H, S, K)
    bias = xl.bias(q, k, q_pos, k_pos)
    R = sinusoids(torch.arange(S), frequencies(D), interleaved=False).double()
    W = xl.distance.weight.view(H, K, D)
    q_pos, k_pos = q_pos.expand(B, T), k_pos.expand(B, S)
    checked = 0
    for b, h, i, j in itertools.product(range(B), range(H), range(T), range(S)):
        distance = int(q_pos[b, i] - k_pos[b, j])
        if distance < 0:
            continue  # the future: masked
        r = W[h] @ R[distance]
        content_position, content_bias, position_bias = (
            q[b, h, i] @ r,
            xl.u_HK[h] @ k[b, h, j],
            xl.v_HK[h] @ r,
        )
        close(bias[b, h, i, j], (content_position + content_bias + position_bias) / math.sqrt(K), 1e-6)
        checked += 1
    assert checked > B * H * T * 2


def test_transformer_xl_equals_the_authors_shift():
    """Their trick: score distances S-1..0 once, then shift each row into place; valid on the causal part."""
    xl = TransformerXL(D, H, K).double()
    torch.nn.init.normal_(xl.v_HK)
    q, k = normal(B, H, T, K), normal(B, H, S, K)
    R = sinusoids(torch.arange(S - 1, -1, -1), frequencies(D), interleaved=False).double()
    r = (R @ xl.distance.weight.T).view(S, H, K).transpose(0, 1)
    raw = (q + xl.v_HK[:, None]) @ r.mT
    padded = torch.cat([raw.new_zeros(B, H, T, 1), raw], -1).view(B, H, S + 1, T)
    shifted = padded[:, :, 1:].reshape(B, H, T, S) / math.sqrt(K)
    lower = View(causal(), T, S).allowed(1)[0, 0]
    close(xl.bias(q, k, Q_POS, K_POS)[..., lower], shifted[..., lower], 1e-6)


def test_transformer_xl_can_clamp_far_distances():
    xl = TransformerXL(D, H, K, clamp=2).double()
    q, k = normal(B, H, 1, K), torch.zeros(B, H, S, K, dtype=torch.float64)
    bias = xl.bias(q, k, torch.tensor([6]), K_POS)
    close(bias[..., 0], bias[..., 4])
    assert not torch.allclose(bias[..., 4], bias[..., 5])


def test_alibi_slopes_and_bias():
    assert alibi_slopes(8) == [2.0**-h for h in range(1, 9)]
    assert alibi_slopes(6) == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]
    bias = ALiBi(6).bias(normal(B, 6, T, K), normal(B, 6, S, K), Q_POS, K_POS)
    for h, i, j in itertools.product(range(6), range(T), range(S)):
        if K_POS[j] <= Q_POS[i]:
            close(bias[h, i, j], torch.tensor(-alibi_slopes(6)[h] * float(Q_POS[i] - K_POS[j])), 1e-6)


@pytest.mark.parametrize(
    "both_ways, buckets, longest", [(True, 32, 128), (False, 32, 128), (True, 8, 20), (False, 6, 11)]
)
def test_t5_buckets_are_hugging_faces(both_ways, buckets, longest):
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(-300, 301)
    theirs = T5Attention._relative_position_bucket(distance, both_ways, buckets, longest)
    assert torch.equal(t5_bucket(distance, buckets, longest, both_ways), theirs)


def test_t5_bias_is_looked_up_per_head():
    t5 = T5Buckets(H, 8, 20).double()
    torch.nn.init.normal_(t5.table)
    bias = t5.bias(normal(B, H, T, K), normal(B, H, S, K), Q_POS, K_POS)
    for h, i, j in itertools.product(range(H), range(T), range(S)):
        assert bias[h, i, j] == t5.table[t5_bucket(K_POS[j] - Q_POS[i], 8, 20), h]


# Structural

BUSH_HELD_A_TALK_WITH_SHARON = torch.tensor([[1, -1, 3, 1, 1, 4]])


def test_structural_positions_of_the_worked_example():
    heads = BUSH_HELD_A_TALK_WITH_SHARON
    assert depths(heads).tolist() == [[1, 0, 2, 1, 1, 2]]
    expected = [
        [0, 1, -3, -2, -2, -3],
        [-1, 0, -2, -1, -1, -2],
        [3, 2, 0, 1, -3, -4],
        [2, 1, -1, 0, -2, -3],
        [2, 1, 3, 2, 0, -1],
        [3, 2, 4, 3, 1, 0],
    ]
    for scope in ("edge", "path"):
        assert structural_distances(heads, scope).tolist() == [expected]


def random_tree(size: int) -> list[int]:
    order = torch.randperm(size).tolist()
    heads = [-1] * size
    for n, word in enumerate(order[1:], 1):
        heads[word] = order[int(torch.randint(n, ()))]
    return heads


@pytest.mark.parametrize("scope", ["edge", "path"])
def test_structural_distances_equal_a_walk_up_the_tree(scope):
    for size in (1, 2, 5, 9, 9, 9):
        heads = random_tree(size)

        def ancestors(i, heads=heads):
            return [] if heads[i] < 0 else [heads[i], *ancestors(heads[i])]

        found = structural_distances(torch.tensor([heads]), scope)[0]
        for i, j in itertools.product(range(size), repeat=2):
            near = (
                (heads[i] == j or heads[j] == i)
                if scope == "edge"
                else (i in ancestors(j) or j in ancestors(i))
            )
            a, b = len(ancestors(i)), len(ancestors(j))
            assert found[i, j] == (0 if i == j else a - b if near else (1 if i > j else -1) * (a + b))


def test_structural_edges_and_paths_differ_for_a_grandparent():
    chain = torch.tensor([[-1, 0, 1]])
    assert (
        structural_distances(chain, "edge")[0, 0, 2] == -2
        and structural_distances(chain, "path")[0, 0, 2] == -2
    )
    backwards = torch.tensor([[1, 2, -1]])
    assert structural_distances(backwards, "edge")[0, 0, 2] == -2
    assert structural_distances(backwards, "path")[0, 0, 2] == 2


def test_structural_schemes_enter_as_defined_and_need_a_tree():
    tree = Tree(torch.arange(6), BUSH_HELD_A_TALK_WITH_SHARON)
    absolute, relative = StructuralAbsolute(D).double(), StructuralRelative(2, K, heads=H).double()
    sinusoid = Sinusoidal(D).encode
    expected = torch.tanh(
        absolute.from_index(sinusoid(tree.index))
        + absolute.from_depth(sinusoid(torch.tensor([[1, 0, 2, 1, 1, 2]])))
    )
    close(absolute.encode(tree), expected)
    q, k = normal(1, H, 6, K), normal(1, H, 6, K)
    bias = relative.bias(q, k, tree, tree)
    steps = structural_distances(tree.heads_BW)[0].clamp(-2, 2) + 2
    for h, i, j in itertools.product(range(H), range(6), range(6)):
        edge = (
            relative.sequence.keys_HRK[h, max(-2, min(2, j - i)) + 2] + relative.tree.keys_HRK[h, steps[i, j]]
        )
        close(bias[0, h, i, j], q[0, h, i] @ edge / math.sqrt(K))
    layer = MultiHeadAttention(D, H, position=StructuralRelative(2, K, heads=H))
    view = View(causal(), 6, 6, q_pos=tree, k_pos=tree)
    assert layer(torch.randn(1, 6, D), view).shape == (1, 6, D)
    with pytest.raises(TypeError, match="tree"):
        layer(torch.randn(1, 6, D))


# Rotary


def test_rotary_turns_pairs_by_position_times_frequency():
    x = normal(B, H, T, K)
    turned = Rotary(K).rotate(x, Q_POS)
    as_complex = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    expected = as_complex * torch.polar(torch.ones(1, dtype=torch.float64), Q_POS[:, None] * frequencies(K))
    close(turned, torch.view_as_real(expected).flatten(-2), 1e-6)


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_rotary_scores_depend_on_distance_only(layout):
    rotary = Rotary(8, layout)
    q, k = normal(1, 1, 1, 8), normal(1, 1, 1, 8)

    def score(p, r):
        return (rotary.rotate(q, torch.tensor([p])) @ rotary.rotate(k, torch.tensor([r])).mT).item()

    assert score(3, 1) == pytest.approx(score(1003, 1001), abs=1e-4)
    assert score(3, 1) != pytest.approx(score(3, 2), abs=1e-3)


def test_the_two_rotary_layouts_are_a_permutation_of_columns():
    x = normal(B, H, T, 8)
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    close(Rotary(8).rotate(x, Q_POS)[..., order], Rotary(8, "halves").rotate(x[..., order], Q_POS))


def test_rotary_takes_positions_of_each_row():
    x = normal(B, H, T, K)
    both = Rotary(K).rotate(x, ROWS_Q)
    for b in range(B):
        close(both[b : b + 1], Rotary(K).rotate(x[b : b + 1], ROWS_Q[b]))


# All of them


def test_no_position_is_order_blind_and_every_other_is_not():
    assert set(POSITIONS.values()) >= {
        NoPosition,
        Sinusoidal,
        Learned,
        Shaw,
        Rotary,
        ALiBi,
        T5Buckets,
        Concatenated,
    }
    x = normal(1, 6, D)
    order = torch.tensor([1, 0, 3, 2, 5, 4])
    tree = Tree(torch.arange(6), BUSH_HELD_A_TALK_WITH_SHARON)
    schemes = {
        "none": NoPosition(),
        "sinusoidal": Sinusoidal(D),
        "learned": Learned(6, D),
        "shaw": Shaw(2, K),
        "transformer-xl": TransformerXL(D, H, K),
        "rotary": Rotary(K),
        "alibi": ALiBi(H),
        "t5": T5Buckets(H),
        "structural-absolute": StructuralAbsolute(D),
        "structural-relative": StructuralRelative(2, K),
    }
    schemes["concatenated"] = Concatenated(Sinusoidal(4))
    assert schemes.keys() - {"transformer-xl"} == POSITIONS.keys()  # which is for causal attention alone
    for name, scheme in schemes.items():
        wide = D + scheme.added_width
        layer = MultiHeadAttention(wide, H, key_width=K, position=scheme, score=Dot()).double()
        torch.nn.init.normal_(layer.position.table) if name in ("t5", "learned") else None
        places = tree if "structural" in name else torch.arange(6)

        def run(x, layer=layer, places=places):
            from heedful.parts.masks import full

            return layer(layer.position.embed(x, places), View(full(), 6, 6, q_pos=places, k_pos=places))

        shuffled, back = run(x[:, order]), run(x)[:, order]
        assert torch.allclose(shuffled, back) == (name == "none"), name


def test_layers_share_tables_through_the_memo_and_only_there():
    x, q, k = normal(1, H, 4, K), normal(1, H, 4, K), normal(1, H, 4, K)
    here, later = torch.arange(4), torch.arange(5, 9)
    t5 = T5Buckets(H).double()
    torch.nn.init.normal_(t5.table)
    for scheme, run in {
        "rotary": lambda p, memo: Rotary(K).rotate(x, p, memo),
        "alibi": lambda p, memo: ALiBi(H).bias(q, k, p, here, memo),
        "t5": lambda p, memo: t5.bias(q, k, p, here, memo),
    }.items():
        memo: dict = {}
        first = run(here, memo)
        assert (
            len(memo) == 1 and torch.equal(run(here, memo), first) and torch.equal(run(here, None), first)
        ), scheme
        assert not torch.equal(run(later, None), first), scheme
