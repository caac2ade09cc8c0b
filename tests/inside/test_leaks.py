"""The leak check: planted leaks of every shape are found, and sound decoders of every architecture pass."""

import dataclasses

import pytest
import torch
from helpers import before_cases, long_cases, tiny
from torch import nn

from heedful.inside.doctor import FAIL, OK, NotApplicable, Patient
from heedful.inside.doctor.leaks import no_leak
from heedful.inside.doctor.proof import unproven
from heedful.interop.loaded import Loaded
from heedful.models import gpt2, xl
from heedful.parts import fused
from heedful.parts.attention import attend_plain
from heedful.parts.before import convolution
from heedful.parts.cache import GrowingCache, StaticCache
from heedful.parts.long import linear, segments, sparse
from heedful.parts.masks import Mask, PerHead, causal, full, window
from heedful.parts.places import Lengths
from heedful.parts.sparse_masks import EveryNth, SameBlock, strided
from heedful.parts.view import left_padded

CASES = {**tiny.DECODERS, **tiny.ENCODER_DECODERS, **long_cases.ALL, **before_cases.EVERY}
CASES["gpt2"] = (gpt2, dataclasses.replace(tiny.DECODERS["gpt2"][1], context=90, layers=3))
XL = dataclasses.replace(long_cases.ALL["xl"][1], eval_memory_length=70)
CASES["xl"], CASES["xl, clamped"] = (xl, XL), (xl, dataclasses.replace(XL, max_distance=4))


def loaded(name: str) -> Loaded:
    file, config = CASES[name]
    return Loaded(file.__name__.rpartition(".")[2], config, tiny.build(CASES[name], torch.float32), None, {})


def decoder_of(model):
    return getattr(model, "decoder", model)


# The faults: each is given the decoder and a monkeypatch.


def masks(*given):
    def plant(decoder, patch):
        decoder.masks = given

    return plant


@dataclasses.dataclass(frozen=True)
class After(Mask):
    """From a position on, everyone sees everyone."""

    start: int

    def allows(self, b, h, q, k):
        return (k <= q) | (q >= self.start)


@dataclasses.dataclass(frozen=True)
class EvenTokens(Mask):
    """Even tokens see the next one; the rule says that it is past-only, and it is not."""

    past_only = True

    def allows(self, b, h, q, k):
        return k <= q + (q % 2 == 0).long()


@dataclasses.dataclass(frozen=True)
class GlobalToken(Mask):
    """One token sees all."""

    place: int

    def allows(self, b, h, q, k):
        return (k <= q) | (q == self.place)


class Changed(nn.Module):
    """A part followed by a function of its output."""

    def __init__(self, part, change):
        super().__init__()
        self.part, self.change = part, change

    def forward(self, *given, **more):
        return self.change(self.part(*given, **more))

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("part"), name)


def over_time(x):
    return (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5) if x.shape[1] > 1 else x


def one_ahead(x):
    return x + 0.1 * x.roll(-1, 1)


def mean_added(x):
    return x + 0.01 * x.mean(1, keepdim=True)


def by_rank(x):
    """Each token scaled by its rank in the text: no gradient knows."""
    return x * (1 + x.sum(-1, keepdim=True).detach().argsort(1).argsort(1) / 10)


def follow(path, change):
    def plant(decoder, patch):
        where, _, name = path.rpartition(".")
        parent = decoder.get_submodule(where)
        setattr(parent, name, Changed(getattr(parent, name), change))

    return plant


class Leftover:
    """What a module keeps from one call to the next."""

    last = 0.0

    def __call__(self, x):
        found, self.last = x + self.last, 0.1 * x.detach().mean()
        return found


def next_tokens(decoder, patch):
    embed = type(decoder.inputs.tokens).forward
    patch.setattr(
        type(decoder.inputs.tokens), "forward", lambda self, tokens: embed(self, tokens.roll(-1, 1))
    )


def everything_is_past(kind):
    """A cache that says of its keys that all stand at 0."""

    def plant(decoder, patch):
        begin = kind.begin

        def wrong(self, q_pos, B, T):
            slots, _ = begin(self, q_pos, B, T)
            return slots, torch.zeros(slots, dtype=torch.long)

        patch.setattr(kind, "begin", wrong)

    return plant


def shifted_rotary(decoder, patch):
    for block in decoder.stack.blocks:
        position = block.attention.layer.position
        patch.setattr(type(position), "rotate", lambda self, x, positions, memo=None: x.roll(-1, 2))


def current_segment(decoder, patch):
    def extended(self, x_BTD):
        before = self.before_BMD
        self.after_BMD = x_BTD[:, -self.length :].detach()
        return x_BTD if before is None else torch.cat([x_BTD[:, -before.shape[1] :], x_BTD], 1)

    patch.setattr(segments.SegmentLayer, "extended", extended)


def padded_left(decoder, patch):
    patch.setattr(Lengths, "positions", lambda self, T, past_only=False: left_padded(self.lengths_B, T))


def gathers_all(decoder, patch):
    decoder.masks = (strided(3),)
    allowed = sparse.allowed_pairs
    patch.setattr(
        sparse, "allowed_pairs", lambda *given: [torch.ones_like(pairs) for pairs in allowed(*given)]
    )


def all_slots(decoder, patch):
    patch.setattr(fused, "attend_stairs", lambda q, k, v, rate, scale, dropout: attend_plain(q, k, v))


def own_chunk(decoder, patch):
    def sums(q, k, v, chunk=64):
        return q @ (k.mT @ v) if q.shape[2] <= chunk else right(q, k, v, chunk)

    right = linear.causal_sums
    patch.setattr(linear, "causal_sums", sums)


def centered(decoder, patch):
    def both_sides(self, x_BTI, g_BTE, source, view, cache, i):
        return self.centered(x_BTI)

    patch.setattr(convolution.ConvolutionBlock, "causal", both_sides)


def backwards_too(decoder, patch):
    decoder.stack.register_forward_hook(lambda module, given, out: out + out.flip(1).cumsum(1).flip(1))


def from_the_end(decoder, patch):
    embed = type(decoder.inputs.position).embed
    patch.setattr(
        type(decoder.inputs.position), "embed", lambda self, x, positions: embed(self, x, positions.flip(-1))
    )


LEAKS = {
    "every 16th key": ("gpt2", masks(causal() | EveryNth(16))),
    "one head": ("gpt2", masks(PerHead((causal(), causal(), full())))),
    "one layer": ("gpt2", masks(causal(), full(), causal())),
    "beyond position 64": ("gpt2", masks(causal(), After(64))),
    "even tokens, by a rule that says otherwise": ("gpt2", masks(EvenTokens())),
    "a block in both directions": ("gpt2", masks(causal() | SameBlock(8))),
    "a window in both directions": ("llama", masks(causal(), window(2))),
    "a global token": ("t5", masks(causal() | GlobalToken(5))),
    "a normalization over time": ("gpt2", follow("stack.norm", over_time)),
    "a convolution that looks ahead": ("llama", follow("stack.blocks.1.feed_forward.layer", one_ahead)),
    "the mean of the text": ("gpt2", follow("inputs.dropout", mean_added)),
    "scores centered over time": ("transformer", follow("head", over_time)),
    "an order without gradients": ("gpt2", follow("stack.blocks.0.feed_forward.layer", by_rank)),
    "the next token's number": ("gpt2", next_tokens),
    "what another call left": ("llama", follow("stack.blocks.0.attention.layer.out", Leftover())),
    "a growing cache": ("gpt2", everything_is_past(GrowingCache)),
    "a static cache": ("t5", everything_is_past(StaticCache)),
    "a shifted rotary": ("llama", shifted_rotary),
    "the current segment as memory": ("xl", current_segment),
    "padding on the wrong side": ("gpt2", padded_left),
    "a gathering kernel": ("strided, merged", gathers_all),
    "slots that are not complete": ("compressed only", all_slots),
    "running sums": ("linear", own_chunk),
    "a convolution padded on both sides": ("convs2s", centered),
    "a recurrence in both directions": ("lstm", backwards_too),
    "positions from the end": ("gpt2", from_the_end),
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_planted_leak_is_found(name, monkeypatch):
    case, plant = LEAKS[name]
    made = loaded(case)
    plant(decoder_of(made.model), monkeypatch)
    found = no_leak(Patient(made))
    assert found.verdict == FAIL and found.number != 0, found


FAST = (
    "xl",
    "strided",
    "t-dmca",
    "linear",
    "fixed, merged",
    "window",
    "local",
    "lstm",
    "bahdanau",
    "convs2s",
)


@pytest.mark.parametrize(
    "name",
    [
        name if name in FAST else pytest.param(name, marks=pytest.mark.slow)
        for name in (*long_cases.ALL, *before_cases.EVERY)
    ],
)
def test_sound_decoders_pass_with_a_proof(name):
    made = loaded(name)
    found = no_leak(Patient(made))
    assert found.verdict == OK and "proven for every length" in found.summary, found


def test_the_text_is_longer_than_every_structure():
    made = loaded("xl")
    assert "measured at 142 tokens" in no_leak(Patient(made)).summary  # twice a memory of 70, and 2


def test_a_decoder_that_is_to_see_both_directions_is_not_checked():
    config = dataclasses.replace(CASES["gpt2"][1], causal=False)
    with pytest.raises(NotApplicable, match="as its settings say"):
        no_leak(Patient(Loaded("gpt2", config, gpt2.build(config).eval(), None, {})))


def test_a_part_without_a_proof_is_named_and_measured():
    made = loaded("llama")
    follow("stack.norm", torch.tanh)(made.model, None)
    found = no_leak(Patient(made))
    assert found.verdict == OK and "not proven: Changed at stack.norm" in found.summary
    assert "measured at 130 tokens" in found.summary


@pytest.mark.parametrize(
    "change, gap",
    [
        (lambda decoder: decoder.stack.norm.register_forward_hook(lambda *given: None), "was changed"),
        (lambda decoder: setattr(decoder.stack.blocks[0], "forward", lambda *given: None), "was changed"),
        (lambda decoder: setattr(decoder, "masks", (causal(), EvenTokens())), "EvenTokens of layer 2"),
        (lambda decoder: setattr(decoder, "masks", (causal() | window(2),)), "not past-only"),
    ],
)
def test_the_proof_does_not_hold_for_what_was_changed(change, gap):
    decoder = loaded("gpt2").model
    assert unproven(decoder) is None
    change(decoder)
    assert gap in unproven(decoder)
