"""The twins of training: the same model to all others, and the same to the bit where there is no kernel."""

import copy

import pytest
import torch
from helpers import tiny
from torch._dynamo.testing import CompileCounterWithBackend

from heedful import watch
from heedful.decode.greedy import greedy_translation
from heedful.fast.training import TWINS, for_training, gelu_by_sigmoid, plain_class
from heedful.parts.blocks import Stack
from heedful.parts.layers import FeedForward, GatedFeedForward, gelu_tanh
from heedful.parts.multihead import MultiHeadAttention
from heedful.parts.places import Lengths
from heedful.runs import setup
from heedful.tasks import recipe

EVERY = {**tiny.DECODERS, **tiny.ENCODER_DECODERS, **tiny.ENCODERS}


def inputs(name: str, B: int = 3, S: int = 9, T: int = 7) -> tuple[torch.Tensor | Lengths, ...]:
    torch.manual_seed(6)
    ids, places = torch.randint(17, (B, T)), Lengths(torch.tensor([T, 2, 5]))
    if name in tiny.ENCODER_DECODERS:
        return torch.randint(17, (B, S)), ids, Lengths(torch.tensor([S, 3, 1])), places
    return ids, places


def outputs(model, given) -> list[torch.Tensor]:
    """What a model gives, and the gradients of all its weights."""
    model.zero_grad()
    torch.manual_seed(3)
    out = model(*given)
    out = torch.cat([t.flatten() for t in out.values()]) if isinstance(out, dict) else out
    out.square().sum().backward()
    return [out.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("name", EVERY)
def test_twins_are_the_same_model_to_the_bit(name):
    model = tiny.build(EVERY[name]).train()
    kinds = [type(module) for module in model.modules()]
    expected, names = outputs(model, inputs(name)), list(model.state_dict())
    assert for_training(model) is model
    assert any(type(module) is not kind for module, kind in zip(model.modules(), kinds, strict=True))
    for module, kind in zip(model.modules(), kinds, strict=True):
        assert isinstance(module, kind) and plain_class(module) is kind
    assert list(model.state_dict()) == names
    for again in (model, copy.deepcopy(model), for_training(model)):
        for found, plain in zip(outputs(again, inputs(name)), expected, strict=True):
            assert torch.equal(found, plain)


@pytest.mark.parametrize(
    "name, recompute",
    [
        ("gpt2", True),
        ("llama", False),
        ("transformer", False),
        ("t5 gated, untied", False),
        ("deberta", False),
    ],
)
def test_compiled_twins_equal_the_plain_model_in_one_graph(name, recompute):
    """With joined projections and the sigmoid form of GELU, which only compiled training on a CPU uses."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    model = tiny.build(EVERY[name])
    for module in model.modules():
        if isinstance(module, Stack):
            module.recompute = recompute
        if isinstance(module, FeedForward | GatedFeedForward):
            module.activation = gelu_tanh
    expected = outputs(model, inputs(name))
    compiled = torch.compile(for_training(model), backend=counter, fullgraph=True)
    for found, plain in zip(outputs(compiled, inputs(name)), expected, strict=True):
        torch.testing.assert_close(found, plain, atol=1e-8, rtol=1e-8)
    assert counter.frame_count == 1
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which torch.compile hides by itself
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name, graphs", [("gpt2", 1), ("llama", 1), ("modern", 1), ("transformer", 2)])
def test_one_graph_serves_all_blocks_of_a_stack(name, graphs, recompute, monkeypatch):
    """What they share is made before the first; else its graph would differ from those of the others, and a
    block that is computed again would be another than the one whose output was kept."""
    torch._dynamo.reset()
    counter, kept = CompileCounterWithBackend("aot_eager"), torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", lambda module: kept(module, backend=counter))
    model = tiny.build(EVERY[name]).train()
    expected = outputs(model, inputs(name))
    for module in for_training(model, compiled=True).modules():
        if isinstance(module, Stack):
            module.recompute = recompute
            assert len(module.blocks) > 1
    for _ in range(2):
        for found, plain in zip(outputs(model, inputs(name)), expected, strict=True):
            torch.testing.assert_close(found, plain, atol=1e-12, rtol=1e-9)
    assert counter.frame_count == graphs


def test_compiled_training_joins_projections_and_takes_the_sigmoid():
    """What torch.compile is given: one product for queries, keys and values, and no tanh."""
    torch._dynamo.reset()
    graphs = []
    model = tiny.build(tiny.DECODERS["gpt2"], torch.float32)

    def keep(graph, _):
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    for twin in (False, True):
        torch._dynamo.reset()
        made = for_training(model) if twin else model
        torch.compile(made, backend=keep, fullgraph=True)(*inputs("gpt2"))
    plain, twins = (
        {kind: sum(kind in target for target in graph) for kind in ("linear", "gelu", "sigmoid")}
        for graph in graphs
    )
    blocks = len(model.stack.blocks)
    assert plain["linear"] - twins["linear"] == 2 * blocks
    assert (plain["gelu"], plain["sigmoid"]) == (blocks, 0) and (twins["gelu"], twins["sigmoid"]) == (
        0,
        blocks,
    )
    torch._dynamo.reset()


def test_the_sigmoid_form_of_gelu_is_the_same_function():
    x = torch.linspace(-6, 6, 101, dtype=torch.float64)
    torch.testing.assert_close(gelu_by_sigmoid(x), gelu_tanh(x), atol=1e-14, rtol=1e-12)


def test_twins_translate_and_are_watched_as_the_plain_model_is():
    model = tiny.build(tiny.ENCODER_DECODERS["transformer"]).eval()
    source, target, places, _ = inputs("transformer")

    def found():
        with torch.no_grad(), watch(model) as trace:
            model(source, target, places)
        with torch.no_grad():
            said = greedy_translation(model, source, places.lengths_B, bos=1, eos=2, longest=5)
        return said, trace.weights()

    (said, weights), (again, seen) = found(), (for_training(model), found())[1]
    assert said == again and weights.keys() == seen.keys()
    assert all(torch.equal(weights[path], seen[path]) for path in weights)


@pytest.mark.parametrize("settings", [{}, {"train.compile": True}])
def test_the_trainer_always_asks_for_twins(settings, monkeypatch):
    asked = []
    monkeypatch.setattr(setup, "for_training", lambda model, **how: asked.append(how) or for_training(model))
    made = recipe.make("lm", settings={"data.text": "pylib", **settings})
    model, _ = setup.prepare_model(tiny.build(tiny.DECODERS["gpt2"]), None, made, torch.device("cpu"))
    assert asked == [{"compiled": bool(settings), "several": False}]
    attentions = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    assert attentions and all(type(module) is TWINS[MultiHeadAttention] for module in attentions)
