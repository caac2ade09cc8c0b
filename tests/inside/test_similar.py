"""Similarity of two models: CKA by its definition, differences of log-probabilities and of heads."""

from dataclasses import replace
from importlib import import_module

import pytest
import torch
from helpers import tiny
from helpers.look_cases import imported
from torch import nn

from heedful.errors import BadInput
from heedful.inside.similar import cka, head_differences, similar, token_differences
from heedful.interop.loaded import Loaded
from heedful.parts.watch import watch

TEXT, OTHER = "The cat sat on the mat.", "A dog ate the fish"


def two(name):
    """Two models of one family with one tokenizer."""
    first = imported(name)
    module = import_module(f"heedful.models.{name}")
    return first, replace(first, model=tiny.build((module, first.config), torch.float32, 12))


def hsic(k_NN, l_NN):
    """The definition: the trace of centered Gram matrices."""
    n = len(k_NN)
    center = torch.eye(n, dtype=torch.float64) - 1 / n
    return torch.trace(k_NN @ center @ l_NN @ center) / (n - 1) ** 2


def by_definition(x_ND, y_NE):
    k, m = x_ND.double() @ x_ND.double().mT, y_NE.double() @ y_NE.double().mT
    return float(hsic(k, m) / (hsic(k, k) * hsic(m, m)).sqrt())


def test_cka_is_that_of_centered_gram_matrices():
    x_ND, y_NE = torch.randn(9, 5) + 3, torch.randn(9, 7)
    assert cka(x_ND, y_NE) == pytest.approx(by_definition(x_ND, y_NE), rel=1e-12)
    turned, _ = torch.linalg.qr(torch.randn(5, 5))
    assert cka(x_ND, 2.5 * x_ND @ turned + 1) == pytest.approx(1, abs=1e-6)
    assert cka(x_ND, torch.ones(9, 2)) == 0
    with pytest.raises(BadInput):
        cka(x_ND[:1], y_NE[:1])


def hidden_by_hooks(model, *args):
    """Input and output of every block, by hooks of this test's own."""
    found = {}
    for side, shell in (("encoder", model.encoder), ("decoder", getattr(model, "decoder", None))):
        for i, block in enumerate(shell.stack.blocks if shell else ()):
            block.register_forward_hook(
                lambda _, given, out, at=(side, i): found.update({at: (given[0][0], out[0])})
            )
    with torch.no_grad():
        model(*args)
    return found


def test_layers_are_compared_over_the_tokens_of_all_texts():
    first, second = two("t5")
    found = similar(first, second, [TEXT, OTHER])
    assert found.cka_LM.shape == (3, 3) and found.names[0] == ["embedding", "layer 1", "layer 2"]
    streams = []
    for loaded in (first, second):
        rows = []
        for text in (TEXT, OTHER):
            ids = torch.tensor([loaded.tokenizer.encode(text).ids])
            seen = hidden_by_hooks(loaded.model, ids, torch.tensor([[0]]))
            rows.append([seen["encoder", 0][0], seen["encoder", 0][1], seen["encoder", 1][1]])
        streams.append([torch.cat(each) for each in zip(*rows, strict=True)])
    assert found.rows == len(streams[0][0])
    expected = torch.tensor([[by_definition(x, y) for y in streams[1]] for x in streams[0]])
    torch.testing.assert_close(found.cka_LM.double(), expected.double(), rtol=1e-5, atol=1e-6)
    targets = similar(first, second, [TEXT, OTHER], ["mat", "the dog"])
    assert targets.cka_LM.shape == (4, 4)
    alone = similar(first, first, [TEXT, OTHER])
    torch.testing.assert_close(alone.cka_LM, alone.cka_LM.T)
    torch.testing.assert_close(alone.cka_LM.diagonal(), torch.ones(3))
    assert (
        "<svg" in found._repr_html_() and "embedding" in found.text() and found.as_json()["unit"] == "tokens"
    )


def test_models_that_cut_texts_otherwise_are_compared_text_by_text():
    first, second = imported("gpt1"), imported("bert")
    with pytest.raises(BadInput, match='over="texts"'):
        similar(first, second, [TEXT, OTHER])
    found = similar(first, second, [TEXT, OTHER, "a cat"], over="texts")
    assert found.rows == 3 and found.cka_LM.shape == (3, 3)


def test_log_probabilities_of_both_models_are_their_own():
    first, second = two("gpt2")
    found = token_differences(first, second, TEXT)
    ids = first.tokenizer.encode(TEXT).ids
    for loaded, each_T in ((first, found.first_T), (second, found.second_T)):
        with torch.no_grad():
            loss = nn.functional.cross_entropy(
                loaded.model(torch.tensor([ids[:-1]]))[0], torch.tensor(ids[1:]), reduction="none"
            )
        torch.testing.assert_close(each_T.float(), -loss, rtol=1e-4, atol=1e-5)
    assert len(found.tokens) == len(ids) - 1
    torch.testing.assert_close(found.difference_T, found.first_T - found.second_T)
    pair = token_differences(*two("t5"), TEXT, "the mat")
    assert pair.tokens[-1] == "</s>" and "sum" in pair.text() and "<svg" in pair._repr_html_()
    other = imported("t5")
    own = token_differences(other, other, TEXT)
    assert own.difference_T.abs().max() == 0
    with pytest.raises(BadInput, match="decoders"):
        token_differences(imported("bert"), imported("bert"), TEXT)
    with pytest.raises(BadInput, match="different tokens"):
        token_differences(first, imported("gpt1"), TEXT)


def test_heads_are_compared_weight_by_weight():
    first, second = two("gpt2")
    found = head_differences(first, second, TEXT)
    ids = torch.tensor([first.tokenizer.encode(TEXT).ids])
    seen = []
    for loaded in (first, second):
        with torch.no_grad(), watch(loaded.model) as trace:
            loaded.model(ids)
        seen.append(list(trace.weights().values()))
    difference = seen[0][1][0, 2] - seen[1][1][0, 2]
    torch.testing.assert_close(found.weights[1][2], difference)
    assert float(found.distance_LH[1, 2]) == pytest.approx(
        float(difference.abs().sum() / 2 / len(difference))
    )
    assert found.distance_LH.shape == (2, 3) and "head 3" in found.text() and "<svg" in found._repr_html_()
    cross = head_differences(*two("t5"), TEXT, which="cross")
    assert cross.distance_LH.shape == (3, 3) and cross.which == "cross"


def test_heads_of_different_number_are_refused_with_both_numbers():
    module, _ = tiny.DECODERS["gpt2"]
    models = [
        Loaded("gpt2", c, tiny.build((module, c), torch.float32), None, {})
        for c in (type(tiny.DECODERS["gpt2"][1])(**tiny.ALONE, heads=h) for h in (3, 2))
    ]
    with pytest.raises(BadInput, match="layer 1 has 3 heads in one model and 2"):
        head_differences(*models, "5 3 8")
