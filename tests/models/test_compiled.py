"""Compiled equals eager: one graph without breaks, for every shape, and no recompilation while decoding."""

import pytest
import torch
from helpers import tiny
from torch._dynamo.testing import CompileCounterWithBackend

from heedful.parts.blocks import Stack
from heedful.parts.places import Lengths, Packed

# Experts group tokens by sizes that the host must know, so theirs is more than one graph.
GROUPING = {"mixture", "mixture_transformer"}
# These are made of parts that others have, and compiling takes seconds.
OF_KNOWN_PARTS = {"opt narrow, unbiased", "gptj", "bloom", "m2m100"}
LEFT_OUT = GROUPING | OF_KNOWN_PARTS
DECODERS = {name: config for name, config in tiny.DECODERS.items() if name not in LEFT_OUT}
ENCODER_DECODERS = {name: config for name, config in tiny.ENCODER_DECODERS.items() if name not in LEFT_OUT}
EVERY = {**DECODERS, **ENCODER_DECODERS, **tiny.ENCODERS}


@pytest.fixture
def counter():
    torch._dynamo.reset()
    yield CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()


def inputs(name: str, B: int = 3, S: int = 9, T: int = 7) -> tuple[torch.Tensor | Lengths, ...]:
    torch.manual_seed(6)
    ids, places = torch.randint(17, (B, T)), Lengths(torch.tensor([T, 2, 5]))
    if name in tiny.ENCODER_DECODERS:
        return torch.randint(17, (B, S)), ids, Lengths(torch.tensor([S, 3, 1])), places
    return ids, places


@pytest.mark.parametrize("recompute", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("name", EVERY)
def test_compiled_equals_eager_in_one_graph(name, recompute, counter):
    model = tiny.build(EVERY[name])
    for module in model.modules():
        if isinstance(module, Stack):
            module.recompute = recompute
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    given = inputs(name)

    def scores(model):
        model.zero_grad()
        out = model(*given)
        out = torch.cat([t.flatten() for t in out.values()]) if isinstance(out, dict) else out
        out.square().sum().backward()
        return out.detach(), [p.grad.clone() for p in model.parameters()]

    expected, expected_grads = scores(model)
    found, grads = scores(compiled)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)
    for a, b in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(a, b, atol=1e-8, rtol=1e-8)
    assert counter.frame_count == 1


@pytest.mark.parametrize("name", [*DECODERS, *ENCODER_DECODERS])
def test_a_static_cache_step_compiles_once(name, counter):
    model = tiny.build(EVERY[name])
    decoder = getattr(model, "decoder", model)
    ids, prompt = torch.randint(17, (3, 9)), 3
    lengths = torch.tensor([3, 1, 2])
    cache = decoder.static_cache(3, 15)
    with torch.no_grad():
        if decoder is model:
            model(ids[:, :prompt], Lengths(lengths), cache=cache)
            step = torch.compile(lambda token: model(token, cache=cache), backend=counter, fullgraph=True)
        else:
            source, source_lengths = torch.randint(17, (3, 8)), torch.tensor([8, 2, 5])
            said = model.read(source, Lengths(source_lengths))
            model.decode(said, ids[:, :prompt], Lengths(lengths), cache=cache)
            step = torch.compile(
                lambda token: model.decode(said, token, cache=cache), backend=counter, fullgraph=True
            )
        found = torch.cat([step(ids[:, t : t + 1]) for t in range(prompt, 9)], 1)
        assert counter.frame_count == 1
        for b, n in enumerate(lengths):
            alone = torch.cat([ids[b, :n], ids[b, prompt:]])[None]
            if decoder is model:
                expected = model(alone)
            else:
                expected = model(source[b : b + 1], alone, Lengths(source_lengths[b : b + 1]))
            torch.testing.assert_close(found[b], expected[0, n:], atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", ["gpt2", "gpt3", "llama"])
def test_packed_documents_compile_without_breaks(name, counter):
    model = tiny.build(EVERY[name])
    ids, documents = torch.randint(17, (2, 7)), torch.tensor([[0, 0, 1, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1, 1]])
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    expected = model(ids, Packed(documents))
    torch.testing.assert_close(compiled(ids, Packed(documents)), expected, atol=1e-10, rtol=0)
    assert counter.frame_count == 1
