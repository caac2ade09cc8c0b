"""Operations: a model lists the matrix products and the attention that it really computes."""

from collections import Counter

import pytest
import torch
from torch import nn

from heedful.inside.costs import costs
from heedful.inside.costs.operations import AttentionProducts, MatrixProduct, VectorPass
from heedful.models import family, presets
from heedful.models.base.skeleton import skeleton
from heedful.models.gpt2 import GPT2Config
from heedful.models.llama import LlamaConfig
from heedful.models.transformer import TransformerConfig

B, T, S = 2, 5, 7
WHOLE = (
    "gpt2", "gpt3-125m", "bert-base", "t5-small", "transformer-base", "smollm2-135m", "vit-b16", "pythia-70m",
)  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_operations_have_all_flops_of_a_transformer(name):
    length = 197 if name.startswith("vit") else 64
    found = costs(skeleton(*presets()[name]), 3, length, precision="bf16").whole
    assert sum(run.flops for run in found.operations if not isinstance(run, VectorPass)) == found.flops


SIZES = {"vocab": 29, "context": 11, "layers": 2, "width": 12, "heads": 3, "ffn_width": 20}
MODELS = {
    "gpt2": (GPT2Config(**SIZES), None),
    "llama": (LlamaConfig(**{**SIZES, "kv_heads": 1}), None),
    "transformer": (TransformerConfig(**SIZES, target_vocab=29), S),
}


@pytest.mark.parametrize("name", MODELS)
def test_products_have_the_shapes_that_linear_layers_are_called_with(name):
    """Columns of products with the same input are added up, since some are computed as one."""
    config, source = MODELS[name]
    expected, model = Counter[tuple[int, int]](), family(name).build(config)

    def note(module: nn.Linear, args: tuple, out: torch.Tensor) -> None:
        expected[args[0].shape[:-1].numel(), module.in_features] += module.out_features

    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(note)
    model(*(torch.randint(1, 29, (B, length)) for length in (source, T) if length))
    if not any(key.startswith(("head.linear", "decoder.head.linear")) for key, _ in model.named_modules()):
        expected[B * T, 12] += 29  # scores by the embedding's own matrix
    columns = Counter[tuple[int, int]]()
    for run in costs(skeleton(name, config), B, T, source).whole.operations:
        if isinstance(run, MatrixProduct):
            columns[run.rows, run.inner] += run.outer
    assert columns == expected


def test_queries_keys_and_values_of_the_same_vectors_are_one_product():
    found = costs(skeleton("transformer", MODELS["transformer"][0]), B, T, S).whole.operations
    products = Counter((r.rows, r.inner, r.outer) for r in found if isinstance(r, MatrixProduct))
    assert products[B * S, 12, 36] == products[B * T, 12, 36] == 2  # self-attention of either side
    assert products[B * S, 12, 24] == 2  # keys and values of the source
    assert products[B * T, 12, 12] == 3 * 2 and products[B * S, 12, 12] == 2  # queries of the source; outputs


def test_attention_knows_whose_keys_it_reads():
    found = costs(skeleton("transformer", MODELS["transformer"][0]), B, T, S).whole.operations
    attentions = Counter(run for run in found if isinstance(run, AttentionProducts))
    assert attentions == {
        AttentionProducts(B * 3, S, S, 4): 2,
        AttentionProducts(B * 3, T, T, 4): 2,
        AttentionProducts(B * 3, T, S, 4, of_source=True): 2,
    }
