"""Every model makes its constants where its inputs are: nothing of the CPU gets into a model on a GPU.

No GPU is needed for it: `elsewhere` is a device that is not there.
"""

from contextlib import nullcontext
from dataclasses import fields, replace

import pytest
import torch
from helpers import before_cases, long_cases, structural_cases, syntax_cases, tiny
from helpers.elsewhere import DEVICE, Elsewhere, There, brought

from heedful.models.base.shells import EncoderDecoder
from heedful.parts import masks, sparse_masks
from heedful.parts.before.recurrent import PlainState
from heedful.parts.long.pieces import attend_in_pieces
from heedful.parts.long.sparse import attend_gathered
from heedful.parts.places import IN_ORDER, At, Lengths, Packed
from heedful.parts.view import View
from heedful.tasks import lm, parse, words
from heedful.tasks.long import Recurrent, SegmentBatch

B, S, T = 3, 9, 7
DECODERS = tiny.DECODERS | before_cases.DECODERS | long_cases.ALL
ENCODER_DECODERS = tiny.ENCODER_DECODERS | before_cases.ENCODER_DECODERS
SEGMENTS = [name for name in DECODERS if name.startswith("xl")]


@pytest.fixture(autouse=True)
def there(monkeypatch):
    """The device, and replacements for what torch does without asking it: literals, autocast, kernels."""
    real = torch.tensor

    def tensor(data, *, device=None, **more):
        made = real(data, **more)
        return Elsewhere(made) if device is not None and torch.device(device) == DEVICE else made

    def one_by_one(layer, x_BTI, state_BX):
        states = [state_BX]
        for x_BI in x_BTI.unbind(1):
            states.append(layer.step(x_BI, states[-1]))
        return torch.stack(states[1:], 1)

    monkeypatch.setattr(torch, "tensor", tensor)
    monkeypatch.setattr(torch, "autocast", lambda *args, **more: nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *args: False)
    monkeypatch.setattr(PlainState, "forward", one_by_one)
    torch.manual_seed(5)
    with There():
        yield


def tokens(*shape):
    return torch.randint(17, shape, device=DEVICE)


def numbers(*given):
    return torch.tensor(given, device=DEVICE)


def made(entry):
    return brought(tiny.build(entry)).train()


def learns(model, loss):
    """Every weight that has a gradient has it there."""
    loss.backward()
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    assert gradients and all(isinstance(gradient, Elsewhere) for gradient in gradients)


def write_on(run, cache):
    """Some tokens of unequal rows, one more of each, then other rows, and fewer tokens."""
    run(tokens(B, 4), Lengths(numbers(4, 2, 3)), cache)
    run(tokens(B, 1), IN_ORDER, cache)
    cache.reorder(numbers(2, 0, 0))
    run(tokens(B, 1), IN_ORDER, cache)
    cache.rewind(numbers(3, 2, 4))
    return run(tokens(B, 2), IN_ORDER, cache)


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_learns_and_writes(name):
    model = made(DECODERS[name])
    if name not in SEGMENTS:
        learns(model, lm.loss_of(model, lm.WindowBatch(tokens(B, T + 1))).total)
    learns(model, model(tokens(B, T), Lengths(numbers(7, 3, 5))).square().sum())
    documents_BT = numbers(*[0] * 3, *[1] * 4, *[4] * 7, *[0] * 6, -1).view(B, T)
    learns(model, model(tokens(B, T), Packed(documents_BT)).square().sum())
    with torch.no_grad():
        model.eval()
        out = write_on(lambda ids, places, cache: model(ids, places, cache=cache), model.growing_cache())
    assert isinstance(out, Elsewhere) and torch.isfinite(out.inner).all()


@pytest.mark.parametrize("name", SEGMENTS)
def test_segments_follow_each_other(name):
    model, loss = made(DECODERS[name]), Recurrent(4)
    for step in range(3):
        learns(model, loss(model, SegmentBatch(tokens(B, T + 1), step, step, 0)).total)


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_a_translator_learns_and_writes(name):
    model = made(ENCODER_DECODERS[name])
    source, places = tokens(B, S), Lengths(numbers(9, 2, 6))
    learns(model, model(source, tokens(B, T), places, Lengths(numbers(4, 7, 5))).square().sum())
    with torch.no_grad():
        model.eval()
        said = model.read(source, places)

        def run(ids, target_places, cache):
            return model.decode(said, ids, target_places, cache=cache)

        out = write_on(run, model.decoder.growing_cache())
    assert isinstance(out, Elsewhere)


@pytest.mark.parametrize("name", structural_cases.NAMES)
def test_positions_from_syntax(name):
    model: EncoderDecoder = brought(structural_cases.model_of(name))  # type: ignore[assignment]
    tree = structural_cases.tree_of()
    parts = {field.name: getattr(tree, field.name) for field in fields(tree)}
    moved = {key: Elsewhere(part) for key, part in parts.items() if isinstance(part, torch.Tensor)}
    source, target = (Elsewhere(ids) for ids in structural_cases.inputs())
    learns(model, model(source, target, At(replace(tree, **moved))).square().sum())


def test_a_parser_learns_and_parses():
    vocab, model = syntax_cases.vocab_of(), brought(syntax_cases.model_of()).train()
    batch = words.collate(vocab, words.rows_of(vocab, syntax_cases.LABELS, syntax_cases.SENTENCES))
    here = {field.name: getattr(batch, field.name) for field in fields(batch)}
    there = {key: Elsewhere(part) for key, part in here.items() if isinstance(part, torch.Tensor)}
    batch = replace(batch, **there)
    learns(model, parse.loss_of(model, batch, smoothing=0.1, hide=0.3).total)
    assert len(parse.parse(model.eval(), batch)) == len(syntax_cases.SENTENCES)


@pytest.mark.parametrize("attend", [attend_gathered, attend_in_pieces])
@pytest.mark.parametrize(
    "mask",
    [
        sparse_masks.strided(6),
        sparse_masks.fixed(6, 2),
        masks.causal() & masks.window(5),
        masks.PerHead(sparse_masks.strided_steps(6)),
        sparse_masks.fixed_steps(6, 2, 2)[1],
    ],
    ids=repr,
)
def test_gathered_attention_stays_there(mask, attend):
    q, k, v = (Elsewhere(torch.randn(2, 4, 40, 8)).requires_grad_() for _ in range(3))
    out = attend(q, k, v, View(mask, 40, 40, DEVICE))
    out.square().sum().backward()
    assert isinstance(q.grad, Elsewhere)


# The device itself.


def test_what_is_of_two_places_is_refused():
    x = Elsewhere(torch.randn(4, 3))
    for other in (torch.arange(3), torch.ones(4, 1)):
        with pytest.raises(RuntimeError, match="same device"):
            x * other
    with pytest.raises(RuntimeError, match="same device"):
        torch.where(x > 0, x, torch.zeros(4, 3))
    with pytest.raises(RuntimeError, match="same device"):
        x @ torch.ones(3, 2)
    assert isinstance(x * torch.tensor(2.0), Elsewhere)  # a single number may come from anywhere
    assert isinstance(x + torch.arange(3, device=x.device), Elsewhere)
    assert type(x.cpu()) is torch.Tensor


def test_numbers_are_those_of_the_cpu():
    entry, ids = DECODERS["strided, by head"], torch.randint(17, (B, T))
    expected = tiny.build(entry)(ids)
    found = brought(tiny.build(entry))(Elsewhere(ids))
    torch.testing.assert_close(found.inner, expected)


def test_a_constant_of_the_cpu_is_found_in_a_model(monkeypatch):
    """As if someone had forgotten to say where."""
    real = torch.arange
    monkeypatch.setattr(torch, "arange", lambda *args, device=None, **more: real(*args, **more))
    with pytest.raises(RuntimeError, match="same device"):
        made(DECODERS["t-dmca"])(tokens(B, T), Lengths(numbers(7, 3, 5)))
