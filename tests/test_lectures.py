"""The lectures' worked examples by the real functions."""

import math
from itertools import pairwise

import pytest
import torch
from helpers import tiny
from torch import nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode

from heedful.errors import BadInput
from heedful.inside.costs import count_parameters
from heedful.inside.costs.layers import attention as attention_costs
from heedful.inside.costs.tally import Tally
from heedful.models import find_preset
from heedful.models.base.skeleton import skeleton
from heedful.parts.attention import Dot, ScaledDot, attend_plain, attention_weights, masked_softmax
from heedful.parts.layers import FeedForward, LayerNorm, PreNorm, layer_norm
from heedful.parts.masks import causal, full, window
from heedful.parts.multihead import MultiHeadAttention, split_heads
from heedful.parts.places import Lengths, Source
from heedful.parts.positions.absolute import Sinusoidal, frequencies, sinusoids
from heedful.parts.watch import watch

B, T, S, D = 2, 5, 7, 12


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(13)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def close(found, expected, atol=1e-12):
    torch.testing.assert_close(found, expected, atol=atol, rtol=0, check_dtype=False)


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(17, shape)


def numbers(*sentences: str) -> list[torch.Tensor]:
    """Each sentence as token numbers [1, T], one vocabulary for all."""
    words = sorted({word for sentence in sentences for word in sentence.split()})
    return [torch.tensor([[words.index(word) for word in sentence.split()]]) for sentence in sentences]


# Why


def test_one_model_reads_a_sentence_trimmed_with_gaps_or_permuted():
    """Any length in one batch, padding without effect; and a word means something else in each version."""
    encoder = tiny.build(tiny.ENCODERS["bert"]).encoder
    rows = [[3, 8, 5, 11, 2, 9], [3, 8, 5, 11], [3, 5, 2, 9], [9, 5, 3, 2, 11, 8]]
    lengths = torch.tensor([len(row) for row in rows])
    batch = torch.tensor([row + [0] * (6 - len(row)) for row in rows])
    vectors = encoder(batch, Lengths(lengths))
    for row, length, found in zip(rows, lengths, vectors, strict=True):
        close(found[:length], encoder(torch.tensor([row]))[0])
    fives = [vectors[b, row.index(5)] for b, row in enumerate(rows)]
    assert all(not torch.allclose(a, b, atol=1e-3) for a, b in pairwise([*fives, fives[0]]))


def test_the_three_types_of_task_have_their_shapes():
    classify = tiny.build(tiny.ENCODERS["bert"])
    assert classify(tokens(B, S))["classify"].shape == (B, 5)  # sequence to vector
    model = tiny.build(tiny.ENCODER_DECODERS["transformer"])
    assert model(tokens(B, S), tokens(B, T)).shape == (B, T, tiny.VOCAB)  # sequence to sequence
    target, vector, other = tokens(B, T), Source(normal(B, 1, D)), Source(normal(B, 1, D))
    scores = model.decode(vector, target)  # vector to sequence
    assert scores.shape == (B, T, tiny.VOCAB) and not torch.allclose(scores, model.decode(other, target))


# Attention


def test_a_soft_lookup_becomes_a_dictionary_as_scores_grow():
    keys, values, query = (
        torch.eye(4)[None, None],
        normal(1, 1, 4, 3).float(),
        torch.eye(4)[2].view(1, 1, 1, 4),
    )
    soft, hard = attention_weights(query, keys, scale=1.0), attention_weights(query, keys, scale=1000.0)
    assert (soft > 0.1).all() and soft.argmax() == 2
    assert hard.flatten().tolist() == [0, 0, 1, 0]
    assert torch.equal(attend_plain(query, keys, values, scale=1000.0), values[:, :, 2:3])


def test_four_keys_with_weights_6_1_2_1_give_that_mean_of_their_values():
    weights = torch.tensor([0.6, 0.1, 0.2, 0.1], dtype=torch.float64)
    query, keys, values = torch.ones(1, 1, 1, 1).double(), weights.log().view(1, 1, 4, 1), normal(1, 1, 4, 3)
    close(attention_weights(query, keys).flatten(), weights)
    context = 0.6 * values[0, 0, 0] + 0.1 * values[0, 0, 1] + 0.2 * values[0, 0, 2] + 0.1 * values[0, 0, 3]
    close(attend_plain(query, keys, values)[0, 0, 0], context)


def test_self_attention_without_parameters_is_an_operation_on_sets():
    """y_i = sum_j softmax_j(x_i . x_j) x_j: shuffle what goes in, and the same comes out, shuffled."""
    x = normal(1, 1, T, 4)
    y = attend_plain(x, x, x, scale=1.0)
    for i in range(T):
        e = [math.exp(x[0, 0, i] @ x[0, 0, j]) for j in range(T)]
        close(y[0, 0, i], sum(e[j] / sum(e) * x[0, 0, j] for j in range(T)))
    order = torch.tensor([3, 0, 4, 1, 2])
    shuffled = x[:, :, order]
    close(attend_plain(shuffled, shuffled, shuffled, scale=1.0), y[:, :, order])


def test_weights_multiply_the_values_of_the_keys_not_of_the_query():
    """With v_i in place of v_j the sum would give every word its own value back: weights sum to one."""
    q, k, v = normal(1, 1, T, 4), normal(1, 1, T, 4), normal(1, 1, T, 3)
    weights = attention_weights(q, k)[0, 0]
    out = attend_plain(q, k, v)[0, 0]
    for i in range(T):
        close(out[i], sum(weights[i, j] * v[0, 0, j] for j in range(T)))
        close(sum(weights[i, j] * v[0, 0, i] for j in range(T)), v[0, 0, i])
        assert not torch.allclose(out[i], v[0, 0, i])


def test_two_matrix_products_are_the_whole_of_self_attention():
    """softmax(XQ (XK)^T) XV, unscaled as the slide first shows it; then scaled."""
    x = normal(1, T, D)
    for score, scale in ((Dot(), 1.0), (ScaledDot(), 1 / math.sqrt(D))):
        layer = MultiHeadAttention(D, 1, bias=False, score=score).double()
        Q, K, V = layer.query.weight.T, layer.key.weight.T, layer.value.weight.T
        XQ, XK, XV = x[0] @ Q, x[0] @ K, x[0] @ V
        close(layer(x)[0], ((XQ @ XK.T * scale).softmax(-1) @ XV) @ layer.out.weight.T)


def test_hi_how_are_you_has_four_by_four_scores_which_are_then_scaled():
    """The scores of "Hi" are the slide's; the other rows, and the width of 64, are our own."""
    hi = [98, 27, 10, 12]
    rows = [hi, [31, 90, 24, 66], [15, 40, 88, 52], [8, 71, 45, 93]]
    table, words = torch.tensor(rows).double(), torch.eye(4, 64).double()
    layer = MultiHeadAttention(64, 1, bias=False).double()
    with torch.no_grad():
        layer.query.weight.copy_(torch.eye(64))
        layer.key.weight.zero_()[:4, :4] = table  # query i times key j is score i, j
        queries, keys = layer.query(words)[None, None], layer.key(words)[None, None]
        close(Dot()(queries, keys)[0, 0], table)
        scaled = ScaledDot()(queries, keys)[0, 0]
        assert scaled[0].tolist() == [12.25, 3.375, 1.25, 1.5]
        with watch(layer) as trace:
            layer(words[None])
    weights = trace[""].weights[0][0, 0]
    for i, row in enumerate(rows):
        powers = [math.exp(score / 8) for score in row]
        close(scaled[i], table[i] / 8)
        close(weights[i], torch.tensor(powers, dtype=torch.float64) / sum(powers))
    assert [round(w, 4) for w in weights[0].tolist()] == [0.9998, 0.0001, 0.0, 0.0]
    assert (weights.amax(-1) < table.softmax(-1).amax(-1)).all()  # scaling softens


def test_large_scores_leave_the_softmax_hardly_any_gradient():
    def gradient(size: float) -> float:
        scores = (size * torch.tensor([[[[3.0, 1.0, 2.0, 0.0]]]])).requires_grad_()
        masked_softmax(scores)[..., 0].sum().backward()
        return float(scores.grad.abs().max())

    assert gradient(1.0) > 0.1
    assert gradient(20.0) < 1e-6


def test_thinking_machines_goes_from_scores_to_weights_to_a_mixture():
    """The known walk-through: scores 112 and 96, by sqrt(64) = 8 they are 14 and 12; weights .88, .12."""
    query = torch.ones(1, 1, 1, 64)
    keys = torch.stack([torch.full((64,), 112 / 64), torch.full((64,), 96 / 64)])[None, None]
    values = normal(1, 1, 2, 64).float()
    assert Dot()(query, keys).flatten().tolist() == [112, 96]
    assert ScaledDot()(query, keys).flatten().tolist() == [14, 12]
    weights = attention_weights(query, keys).flatten()
    assert [round(w, 2) for w in weights.tolist()] == [0.88, 0.12]
    close(
        attend_plain(query, keys, values)[0, 0, 0],
        weights[0] * values[0, 0, 0] + weights[1] * values[0, 0, 1],
        1e-6,
    )


def test_several_heads_cost_what_one_costs_and_are_only_a_reshape():
    x, H, K = normal(1, T, D), 4, 3
    one, many = MultiHeadAttention(D, 1).double(), MultiHeadAttention(D, H).double()
    assert count_parameters(one) == count_parameters(many) == 4 * D * (D + 1)
    assert attention_costs(Tally(1, 4), one, T, S).flops == attention_costs(Tally(1, 4), many, T, S).flops
    assert split_heads(x, H).shape == (1, H, T, K) and split_heads(x, H).data_ptr() == x.data_ptr()
    outputs = []
    for h in range(H):  # each head has its own K columns of the three matrices
        rows = slice(h * K, (h + 1) * K)
        q, k, v = (m.weight[rows] @ x[0].T + m.bias[rows, None] for m in (many.query, many.key, many.value))
        outputs.append((q.T @ k / math.sqrt(D / H)).softmax(-1) @ v.T)
        assert outputs[-1].shape == (T, D // H)
    close(many(x)[0], many.out(torch.cat(outputs, dim=-1)))


def test_two_heads_keep_two_words_apart_where_one_head_blurs_them():
    keys, values = torch.eye(4).double()[None, None], normal(1, 1, 4, 3)
    both = (keys[:, :, 1:2] + keys[:, :, 3:4]) * 1000  # one query that asks for two words
    close(attend_plain(both, keys, values)[0, 0, 0], (values[0, 0, 1] + values[0, 0, 3]) / 2)
    each = torch.stack([keys[0, 0, 1:2], keys[0, 0, 3:4]])[None] * 1000  # two queries, a head each
    close(attend_plain(each, keys, values)[0, :, 0], values[0, 0, [1, 3]])


def test_every_output_word_is_connected_to_every_source_word_directly():
    """No bottleneck: the encoder hands on a vector a word, and the gradient reaches all in one step."""
    model = tiny.build(tiny.ENCODER_DECODERS["transformer"])
    memory = model.encoder(tokens(1, S)).detach().requires_grad_()
    assert memory.shape == (1, S, D)
    first = model.decoder.stack.blocks[0].cross.layer
    out = first(normal(1, T, D), None, memory)
    for t in range(T):
        (gradient,) = torch.autograd.grad(out[0, t].square().sum(), memory, retain_graph=True)
        assert (gradient[0].norm(dim=-1) > 0).all()


def test_every_decoder_layer_reads_the_top_of_the_encoder():
    model = tiny.build(tiny.ENCODER_DECODERS["transformer"])
    read: list[torch.Tensor] = []
    for block in model.decoder.stack.blocks:
        for part in (block.cross.layer.key, block.cross.layer.value):
            part.register_forward_pre_hook(lambda _, args: read.append(args[0]))
    source, target = numbers("Je suis etudiant", "<s> I am a student")
    assert model(source, target).shape[:2] == (1, 5)
    top = model.encoder(source)
    assert len(read) == 2 * 3 and all(torch.equal(x, top) for x in read)


def test_distant_words_meet_in_one_step_and_through_neighbors_only_in_many():
    def steps(mask, size: int) -> int:
        here = torch.arange(size)
        step = mask.dense(here, here)[0, 0].expand(size, size).double()
        reached, n = step, 1
        while not reached[-1, 0]:
            reached, n = reached @ step, n + 1
        return n

    assert [steps(full(), size) for size in (3, 9, 27)] == [1, 1, 1]
    assert [steps(causal(), size) for size in (3, 9, 27)] == [1, 1, 1]
    assert [steps(causal() & window(2), size) for size in (3, 9, 27)] == [2, 8, 26]


def test_the_number_of_steps_does_not_grow_with_the_length():
    """What cannot run at once is a chain of operations; a model has the same chain for 3 words as for 30."""

    class Count(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.calls += 1
            return func(*args, **(kwargs or {}))

    model, found = tiny.build(tiny.DECODERS["gpt2"]), []
    for length in (3, 30):
        with torch.no_grad(), Count() as count:
            model(tokens(1, length))
        found.append(count.calls)
    assert found[0] == found[1] > 0


# Order


def test_the_heat_map_of_ten_tokens_at_width_64_is_fast_on_the_left_and_still_on_the_right():
    table = Sinusoidal(64).encode(torch.arange(10))
    assert table.shape == (10, 64)
    assert table[0].tolist() == [0.0, 1.0] * 32
    sines, cosines = table[:, 0::2], table[:, 1::2]
    assert sines[:, 0].min() < -0.9 and sines[:, 0].max() > 0.9
    assert sines[:, 16:].abs().max() < 0.1 and cosines[:, 16:].min() > 0.99


def test_each_pair_of_a_sinusoid_is_periodic_with_wavelengths_up_to_10000_times_two_pi():
    w = frequencies(512)
    wavelengths = 2 * math.pi / w
    assert wavelengths[0] == 2 * math.pi and 0.96 < wavelengths[-1] / (10000 * 2 * math.pi) < 1
    for i in (0, 100, 255):
        place = torch.tensor([3.0, 3.0 + wavelengths[i]], dtype=torch.float64)
        here, later = sinusoids(place, w)
        close(here[2 * i : 2 * i + 2], later[2 * i : 2 * i + 2], 1e-9)
        assert not torch.allclose(here, later)


def test_frequencies_are_counted_from_zero():
    """From 1 to D/2 leaves out the fastest pair and adds a slower one; from 0 to D/2 is a pair too many."""
    from_one = torch.tensor([10000 ** (-2 * i / D) for i in range(1, D // 2 + 1)], dtype=torch.float64)
    ours = frequencies(D)
    assert ours[0] == 1 and len(ours) == D // 2
    close(ours[1:], from_one[:-1])
    assert from_one[-1] == pytest.approx(1e-4) and ours[-1] > 2e-4
    assert Sinusoidal(D).encode(torch.tensor([1])).shape == (1, D)
    assert sinusoids(torch.tensor([1]), torch.cat([ours, from_one[-1:]])).shape == (1, D + 2)


# The block


def test_attention_alone_only_averages_and_feed_forward_does_not():
    q, k, v, u = normal(1, 1, T, 4), normal(1, 1, S, 4), normal(1, 1, S, D), normal(1, 1, S, D)
    mixed = attend_plain(q, k, v)
    assert (mixed >= v.amin(2, keepdim=True)).all() and (mixed <= v.amax(2, keepdim=True)).all()
    close(attend_plain(q, k, 2 * v - 3 * u), 2 * mixed - 3 * attend_plain(q, k, u))
    layer = FeedForward(D, 20, bias=False).double()
    assert not torch.allclose(layer(-v), -layer(v))


def test_layer_norm_takes_a_true_mean_and_keeps_eps_beside_the_variance():
    """The slide sums without 1/d, and adds eps to the standard deviation: no mean of 0, no variance of 1."""
    x, one, zero = (
        torch.tensor([1.0, 2.0, 3.0, 6.0]).double(),
        torch.ones(4).double(),
        torch.zeros(4).double(),
    )
    close(layer_norm(x, one, zero, 0.5), (x - 3) / 2)  # variance 3.5, plus 0.5, is 4
    deviation = math.sqrt(3.5)
    for slide in ((x - 12) / math.sqrt(4), (x - 3) / math.sqrt(deviation + 0.5), (x - 3) / (deviation + 0.5)):
        assert not torch.allclose(layer_norm(x, one, zero, 0.5), slide, atol=0.02)
    normed = layer_norm(x, one, zero, 0.0)
    assert normed.mean().abs() < 1e-12 and normed.var(correction=0) == pytest.approx(1)


def test_layer_norm_centers_the_gradient_and_divides_it_by_the_spread():
    """Xu 2019: what helps is that mean and variance have derivatives, not the numbers that they give."""
    x, one, zero = normal(B, T, D), torch.ones(D), torch.zeros(D)
    back = normal(B, T, D) + 3
    for spread in (0.1, 7.0):
        wide = (spread * x).requires_grad_()
        (gradient,) = torch.autograd.grad(layer_norm(wide, one, zero, 0.0), wide, back)
        along = (gradient * wide).sum(-1)
        close(gradient.mean(-1), torch.zeros(B, T))
        close(along, torch.zeros(B, T))  # the size of the input is not pushed
        normed = layer_norm(wide, one, zero, 0.0)
        rest = back - back.mean(-1, keepdim=True) - (back * normed).mean(-1, keepdim=True) * normed
        close(gradient, rest / wide.std(-1, correction=0, keepdim=True), 1e-10)


class WithoutSkip(nn.Module):
    """What `PreNorm` would be if it did not add its input."""

    def __init__(self, layer: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.layer, self.norm = layer, norm

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        return self.layer(self.norm(x_BTD))


def bends(kind: type[nn.Module], seed: int) -> float:
    """The curvature of the loss along a random direction, in which each matrix moves by its own norm."""
    torch.manual_seed(seed)
    blocks = [kind(FeedForward(8, 16), LayerNorm(8)) for _ in range(8)]
    model, x, y = nn.Sequential(*blocks).double(), normal(1, 20, 8), normal(1, 20, 8)
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    steps = {name: torch.randn_like(weight) for name, weight in weights.items()}
    steps = {name: step * weights[name].norm() / step.norm() for name, step in steps.items()}
    losses = []
    for far in torch.linspace(-1, 1, 41):
        moved = {name: weight + far * steps[name] for name, weight in weights.items()}
        losses.append((functional_call(model, moved, (x,)) - y).square().mean())
    slopes = torch.stack(losses).detach().diff()
    return float(slopes.diff().abs().sum() / slopes.abs().sum())


def test_with_skips_the_loss_bends_less():
    with_skips, without = ([bends(kind, seed) for seed in range(3)] for kind in (PreNorm, WithoutSkip))
    assert max(with_skips) < 0.8 * min(without)


def test_happy_mid_autumn_festival_is_masked_both_ways():
    """The slide keeps j < i, so "Happy" sees nobody; the usual mask keeps j <= i."""
    words = ["Happy", "mid", "autumn", "festival"]
    here = torch.arange(len(words))
    strict, usual = (mask.dense(here, here) for mask in (causal(strict=True), causal()))
    assert strict[0, 0].int().tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]
    assert usual[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    scores = normal(1, 1, 4, 4)
    minus_infinity = scores.masked_fill(~usual, float("-inf"))
    close(masked_softmax(scores, usual), minus_infinity.softmax(-1))
    weights = masked_softmax(scores, strict)[0, 0]
    assert weights[0].tolist() == [0, 0, 0, 0]
    close(weights[2], torch.cat([scores[0, 0, 2, :2].softmax(-1), torch.zeros(2).double()]))


@pytest.mark.parametrize("name", tiny.DECODERS)
def test_one_forward_per_prefix_equals_one_masked_forward(name):
    """To hide the future one may leave it out, prefix by prefix; the mask does the same for all at once."""
    model, ids = tiny.build(tiny.DECODERS[name]), tokens(B, T)
    prefixes = [model(ids[:, : t + 1])[:, -1] for t in range(T)]
    close(model(ids), torch.stack(prefixes, dim=1))


# The models


def test_the_gpt_table_has_the_lectures_sizes_and_nothing_undisclosed():
    gpt1 = find_preset("gpt1")[1]
    assert (gpt1.layers, gpt1.heads) == (12, 12)
    for name, printed in (("gpt1", 117e6), ("gpt2-xl", 1.5e9), ("gpt3-175b", 175e9)):
        assert count_parameters(skeleton(*find_preset(name))) == pytest.approx(printed, rel=0.04), name
    for name in ("gpt3.5", "gpt4"):
        with pytest.raises(BadInput, match=f'no preset "{name}"'):
            find_preset(name)


def test_a_blank_is_filled_in_from_both_sides():
    (ids,) = numbers("Let's make [MASK] chicken ! [SEP] It [MASK] great with orange sauce")
    segments = (torch.arange(12) > 5).long()[None]
    model, seen = tiny.build(tiny.ENCODERS["bert"]), []

    def keep(module, args, out):
        seen.append(out.detach().requires_grad_())
        return seen[0]

    model.encoder.inputs.register_forward_hook(keep)
    scores = model(ids, segments_BT=segments)["masked_lm"]
    for blank in (2, 7):
        (gradient,) = torch.autograd.grad(scores[0, blank].square().sum(), seen[0], retain_graph=True)
        assert (gradient[0].norm(dim=-1) > 0).all()


# Results and limits


def test_pairs_cost_the_square_of_the_length():
    layer = MultiHeadAttention(D, 3)
    with watch(layer) as trace:
        for length in (T, 2 * T):
            layer(torch.randn(1, length, D))
    assert [w.numel() for w in trace[""].weights] == [3 * T**2, 3 * (2 * T) ** 2]
    one, two = (attention_costs(Tally(1, 4), layer, n, n).flops for n in (T, 2 * T))
    pairs = 2 * 2 * D * T**2  # scores and weighted values, two FLOPs each for D numbers a pair
    assert two - 2 * one == 2 * pairs  # all else grows in step with the length
