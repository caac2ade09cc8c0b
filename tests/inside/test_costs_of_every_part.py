"""Every part of the package has its costs, and a part that nobody has thought of is counted instead of
refused."""

import subprocess
import sys

import pytest
import torch
from helpers import before_cases, long_cases, tiny
from helpers.kept_activations import kept as kept_by_autograd
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from heedful.inside.costs import costs, count_parameters, default_length
from heedful.inside.costs.counted import run, vectors
from heedful.inside.costs.positions import AT_INPUT, IN_SCORES, counted_scores, score_position
from heedful.inside.costs.tally import KEEPS, Tally
from heedful.models import FAMILIES, presets
from heedful.models.base.shells import Decoder, EncoderDecoder, needs_tree
from heedful.models.base.skeleton import skeleton
from heedful.parts.attention import Additive, Bilinear, Dot, SoftCapped
from heedful.parts.blocks import Block, Stack
from heedful.parts.embeddings import Inputs, TokenEmbedding, Untied
from heedful.parts.layers import ACTIVATIONS, FeedForward, PreNorm, RMSNorm
from heedful.parts.multihead import MultiHeadAttention
from heedful.parts.places import At
from heedful.parts.positions import POSITIONS
from heedful.parts.positions.absolute import Concatenated, Learned, Sinusoidal
from heedful.parts.positions.base import NoPosition, Position, Tree
from heedful.parts.positions.relative import ALiBi, Shaw, T5Buckets, TransformerXL
from heedful.parts.positions.rotary import Rotary
from heedful.parts.positions.syntax import StructuralAbsolute, StructuralRelative
from heedful.parts.watch import watch

B, T, D, H, K, V = 2, 13, 24, 3, 8, 37

# One of every scheme: those of the input, and those of the scores.
SCHEMES = {
    "none": NoPosition(),
    "sinusoidal": Sinusoidal(D),
    "learned": Learned(31, D),
    "structural-absolute": StructuralAbsolute(D),
    "rotary": Rotary(K),
    "shaw": Shaw(4, K),
    "shaw, a table a head": Shaw(4, K, heads=H),
    "transformer-xl": TransformerXL(D, H, K),
    "alibi": ALiBi(H),
    "t5": T5Buckets(H),
    "structural-relative": StructuralRelative(4, K),
    "concatenated": Concatenated(Sinusoidal(8)),
    "concatenated table": Concatenated(Learned(31, 8)),
}


class Unheard(Position):
    """A scheme that no rule knows: a learned matrix between queries and positions, added to the scores."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Linear(K, 31, bias=False)

    def bias(self, q_BHTK, k_BGSK, q_pos, k_pos, memo=None):
        return self.matrix(q_BHTK)[..., : k_BGSK.shape[2]]


class Moved(Position):
    """A scheme at the input that no rule knows."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Linear(D, D)

    def embed(self, x_BTD, positions):
        return torch.tanh(self.matrix(x_BTD))


def decoder(position=None, *, score=None, layer=None, norm=RMSNorm, head=None, activation="gelu"):
    """A small decoder with one scheme of positions, wherever that scheme belongs."""
    at_input = position if position is not None and type(position).embed is not Position.embed else None
    width = D + (at_input.added_width if at_input else 0)

    def block():
        own = NoPosition() if at_input is not None else position
        attention = MultiHeadAttention(width, H, key_width=K, position=own, score=score)
        feed_forward = layer or FeedForward(width, 50, activation)
        return Block(PreNorm(attention, norm(width)), PreNorm(feed_forward, norm(width)))

    stack = Stack([block() for _ in range(2)], norm(width))
    return Decoder(Inputs(TokenEmbedding(V, D), at_input), stack, head or Untied(width, V))


def ran(model, **given):
    """FLOPs that torch counts while the model really runs, by the plain formula."""
    if needs_tree(model):
        index = torch.arange(T).expand(B, T)
        given["places"] = At(Tree(index, (index - 1).clamp(min=-1)))
    with watch(model), FlopCounterMode(display=False) as counter:
        model(torch.randint(V, (B, T)), **given)
    return counter.get_total_flops()


def check(model):
    """FLOPs and parameters equal independent counts, and memory has something in every row that training
    needs."""
    found = costs(model, B, T)
    assert found.whole.flops == ran(model)
    assert found.parameters == count_parameters(model)
    assert found.memory["activations"] > 0 and found.memory["training"] > found.memory["activations"]
    assert found.memory["cache"] == 4 * B * T * 2 * H * 2 * K
    half = costs(model, B, T, precision="bf16")
    assert half.whole.flops == found.whole.flops
    assert half.memory["activations"] < found.memory["activations"]


def test_every_scheme_of_the_package_is_tried_here():
    assert set(POSITIONS) <= set(SCHEMES)
    known = {*AT_INPUT, *IN_SCORES}
    assert {type(position) for position in SCHEMES.values()} <= known


@pytest.mark.parametrize("name", SCHEMES)
def test_every_position_scheme_has_its_costs(name):
    check(decoder(SCHEMES[name]))


SCORED = [(name, S) for name, p in SCHEMES.items() if type(p) in IN_SCORES for S in (T, T + 4)]


# A tree is one sentence's, which looks at itself: then there are as many keys as queries.
@pytest.mark.parametrize("name, S", [(n, S) for n, S in SCORED if S == T or not SCHEMES[n].needs_tree])
def test_rules_of_positions_are_what_a_run_counts(name, S):
    layer = MultiHeadAttention(D, H, key_width=K, position=SCHEMES[name])
    more, flops, _ = score_position(layer, B, T, S)
    kept, counted = counted_scores(Tally(B, 4), layer, T, S)
    assert flops + 2 * B * H * T * S * 2 * K == counted
    kept -= 8 * T * S if name == "t5" else 0  # which bucket each pair falls in: one table for all layers
    if name != "rotary":  # rotated queries and keys take the place of those that came out of the projection
        assert 4 * more + 4 * B * H * T == pytest.approx(kept, rel=0.15)


# T5's bias learns, for which torch has no fused kernel on a CPU; a tree's rows have masks of their own, which
# are not counted, since they belong to the batch.
KEPT = [(name, T) for name in SCHEMES if name != "t5"]
KEPT += [(name, 128) for name, position in SCHEMES.items() if name != "t5" and position.longest is None]


@pytest.mark.parametrize("name, length", [(n, t) for n, t in KEPT if t == T or not SCHEMES[n].needs_tree])
def test_activations_with_every_position_scheme_are_what_autograd_keeps(name, length, gpu_kernels):
    model, index = decoder(SCHEMES[name]), torch.arange(length).expand(B, length)
    inputs = (torch.randint(V, (B, length)),)
    given = {"places": At(Tree(index, index - 1))} if SCHEMES[name].needs_tree else {}
    found = costs(model, B, length).memory["activations"]
    assert found == pytest.approx(kept_by_autograd(model, inputs, **given), rel=0.07)


def test_a_concatenated_encoding_widens_all_that_follows():
    found = costs(decoder(SCHEMES["concatenated table"]), B, T)
    embeddings, blocks = found.whole.parts[:2]
    assert [(part.name, part.parameters) for part in embeddings.parts] == [
        ("tokens", V * D),
        ("positions", 31 * 8),
    ]
    assert "32 to 50" in blocks.parts[1].detail and "concatenated" in embeddings.parts[1].detail


@pytest.mark.parametrize("position", [Unheard(), Moved(), Concatenated(Sinusoidal(4))])
def test_an_unheard_of_position_is_counted(position):
    check(decoder(position))


@pytest.mark.parametrize("score", [Additive(K, K, 7), Bilinear(K, K), SoftCapped(Dot(), 5.0)])
@pytest.mark.parametrize("name", ["none", "shaw", "alibi"])
def test_every_score_is_counted_with_every_position(score, name):
    check(decoder(SCHEMES[name], score=score))


class Doubled(nn.Module):
    """A layer that no rule knows."""

    def __init__(self, width):
        super().__init__()
        self.one, self.two = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x_BTD, aux=None):
        return self.two(self.one(x_BTD).relu())


class Bare(nn.Module):
    """A head that no rule knows."""

    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, V)

    def forward(self, x_BTD, embedding):
        return self.linear(x_BTD)


@pytest.mark.parametrize(
    "given",
    [
        {"layer": Doubled(D)},
        {"norm": nn.LayerNorm},
        {"head": Bare(D)},
        *({"activation": name} for name in ACTIVATIONS),
    ],
    ids=str,
)
def test_layers_norms_heads_and_activations_without_a_rule_are_counted(given):
    check(decoder(Rotary(K), **given))


def test_a_block_a_stack_and_inputs_without_a_rule_are_counted():
    class OtherBlock(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Doubled(D)

        def forward(self, x_BTD, *given):
            return x_BTD + self.layer(x_BTD)

    class OtherStack(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([OtherBlock()])

        def forward(self, x_BTD, views, source_BSD=None, source_view=None, cache=None):
            return self.blocks[0](x_BTD)

    class OtherInputs(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.position = TokenEmbedding(V, D), NoPosition()
            self.wider = nn.Linear(D, D)

        def forward(self, tokens_BT, positions):
            return self.wider(self.tokens(tokens_BT))

        def length(self, tokens_BT):
            return tokens_BT.shape[1]

    products = 2 * B * T * (2 * 2 * D * D + D * V)
    for stack in (Stack([OtherBlock()]), OtherStack()):
        for inputs, more in ((Inputs(TokenEmbedding(V, D)), 0), (OtherInputs(), D * D)):
            model = Decoder(inputs, stack, Untied(D, V))
            found = costs(model, B, T)
            assert found.whole.flops == products + 2 * B * T * more
            assert found.parameters == count_parameters(model)


def test_a_model_without_a_rule_is_counted():
    model = nn.Sequential(nn.Embedding(V, D), nn.Linear(D, 5))
    found = costs(model, B, T)
    assert (found.whole.flops, found.parameters) == (2 * B * T * D * 5, V * D + D * 5 + 5)
    assert found.memory["activations"] >= 4 * B * T * D


def test_a_run_on_the_meta_device_leaves_the_module_as_it_was():
    layer = nn.Linear(D, 5).eval()
    flops, kept, out = run(layer, lambda meta: meta(vectors(B, T, D)))
    assert (flops, kept, out.shape) == (2 * B * T * D * 5, 4 * B * T * D, (B, T, 5))
    assert layer.weight.device.type == "cpu" and not layer.training


def test_every_activation_has_its_rule():
    assert set(KEEPS) == set(ACTIVATIONS)


# Every architecture.

CASES = {f"preset {name}": case for name, case in presets().items()}
for group in (tiny.DECODERS, tiny.ENCODER_DECODERS, tiny.ENCODERS, before_cases.EVERY, long_cases.ALL):
    CASES |= {f"small {name}": case for name, case in group.items()}


@pytest.mark.parametrize("name", CASES)
def test_every_architecture_has_its_costs(name):
    module, config = CASES[name]
    architecture = module if isinstance(module, str) else module.__name__.rpartition(".")[2]
    model = skeleton(architecture, config)
    for precision in ("fp32", "bf16"):
        found = costs(model, 1, default_length(model, config), precision=precision)
        assert found.parameters == count_parameters(
            getattr(model, "decoder", model) if name.endswith("dalle") else model
        )
        assert min(found.flops_per_token.values()) > 0
        assert min(found.memory[row] for row in ("weights", "activations", "training", "inference")) > 0


def test_every_family_is_among_them():
    names = {m if isinstance(m, str) else m.__name__.rpartition(".")[2] for m, _ in CASES.values()}
    assert set(FAMILIES) - names == set()


@pytest.mark.parametrize("name", [*tiny.DECODERS, *tiny.ENCODER_DECODERS, *tiny.ENCODERS])
def test_flops_of_small_models_are_what_torch_counts(name):
    entry = {**tiny.DECODERS, **tiny.ENCODER_DECODERS, **tiny.ENCODERS}[name]
    model = tiny.build(entry, torch.float32)
    given = (torch.randint(17, (B, 5)), torch.randint(17, (B, 7)))
    two = isinstance(model, EncoderDecoder)
    with watch(model), FlopCounterMode(display=False) as counter:
        model(*given[: 1 + two])
    found = costs(model, B, 7, 5) if two else costs(model, B, 5)
    assert found.whole.flops == counter.get_total_flops()


def test_rules_need_no_compiler():
    """A known model is weighed without torch._dynamo, whose import takes longer than torch's own."""
    code = (
        "import sys; from heedful.inside.costs import costs; from heedful.models import presets;"
        "from heedful.models.base.skeleton import skeleton;"
        "names = ('gpt2', 't5-small', 'gpt3-175b', 'bert-base', 'modern-162m');"
        "[costs(skeleton(*presets()[name])) for name in names];"
        "print('torch._dynamo' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "False"
