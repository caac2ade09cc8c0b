"""Costs of models that nobody has built: formulas, crossovers, batches and sizes agree with brute force."""

import pytest
import torch

from heedful.errors import BadInput
from heedful.inside.costs import (
    changed,
    costs,
    count_parameters,
    crossover,
    largest_batch,
    lengths_of,
    memory_formulas,
    seconds,
    sizes_of,
)
from heedful.inside.costs.sizes import growth
from heedful.models import family, presets
from heedful.models.bahdanau import BahdanauConfig
from heedful.models.base.skeleton import skeleton
from heedful.models.dmca import DMCAConfig
from heedful.models.gpt2 import GPT2Config
from heedful.models.linear import LinearConfig
from heedful.models.llama import LlamaConfig
from heedful.models.lstm import LSTMConfig
from heedful.models.mixture import MixtureConfig
from heedful.models.t5 import T5Config
from heedful.models.transformer import TransformerConfig
from heedful.models.vit import ViTConfig
from heedful.models.xl import XLConfig

SIZES = {"vocab": 97, "layers": 3, "width": 48, "ffn_width": 176}
MODELS = {
    "gpt2": ("gpt2", GPT2Config(**SIZES, context=10**6, heads=4)),
    "llama": ("llama", LlamaConfig(**SIZES, context=31, heads=6, kv_heads=2, key_width=10)),
    "transformer": (
        "transformer",
        TransformerConfig(
            vocab=97, target_vocab=97, layers=2, decoder_layers=3, width=48, heads=4, ffn_width=80
        ),
    ),
    "shaw": (
        "transformer",
        TransformerConfig(vocab=97, target_vocab=97, layers=1, width=48, positions="shaw"),
    ),
    "xl": ("xl", XLConfig(**SIZES, heads=4)),
    "t5": ("t5", T5Config(vocab=97, layers=2, width=48, heads=4, key_width=10, ffn_width=176)),
    "mixture": ("mixture", MixtureConfig(**SIZES, context=10**6, heads=4, experts=5)),
    "bahdanau": ("bahdanau", BahdanauConfig(vocab=97, target_vocab=89, width=24)),
}


def bones(name):
    return skeleton(*MODELS[name])


@pytest.mark.parametrize("name", MODELS)
def test_what_is_between_queries_and_keys_grows_with_the_square_and_nothing_else_does(name):
    model = bones(name)
    one, two, three = (costs(model, 2, length) for length in (40, 80, 120))
    assert (two.pairs, three.pairs) == (4 * one.pairs, 9 * one.pairs)
    rest = [found.whole.flops - found.pairs for found in (one, two, three)]
    assert rest[2] - rest[1] == rest[1] - rest[0] > 0


def leaves(part):
    return [part] if not part.parts else [leaf for one in part.parts for leaf in leaves(one)]


@pytest.mark.parametrize("name", MODELS)
def test_every_formula_gives_the_flops_of_its_part(name):
    found = costs(bones(name), 2, 24)
    parts = [part for part in [*leaves(found.whole), found.whole] if part.flops]
    assert parts and all(part.formula for part in parts)
    for part in parts:
        assert eval(part.formula.replace("×", "*").replace(",", "")) == part.flops, part.formula


@pytest.mark.parametrize("name", MODELS)
def test_the_crossover_is_the_first_length_at_which_pairs_cost_as_much_as_the_rest(name):
    model = bones(name)
    found = crossover(model)
    first = next(n for n in range(1, 5000) if 2 * costs(model, 1, n).pairs >= costs(model, 1, n).whole.flops)
    assert found == first


@pytest.mark.parametrize("name", MODELS)
def test_the_share_of_pairs_follows_from_three_lengths(name):
    model, grows = bones(name), growth(bones(name))
    for length in (1, 13, 500, 10**5):
        found = costs(model, 1, length)
        assert grows.share(length) == pytest.approx(found.pairs / found.whole.flops, rel=1e-6)


def test_the_crossover_of_a_decoder_is_six_widths_and_what_the_head_adds():
    config = GPT2Config(vocab=1, context=10**6, layers=1, width=64, heads=4)
    assert (
        crossover(skeleton("gpt2", config)) == 6 * 64 + 1
    )  # 24 n d^2 against 4 n^2 d, and one row of a head


@pytest.mark.parametrize("name, config", [("lstm", LSTMConfig()), ("linear", LinearConfig())])
def test_without_pairs_there_is_no_crossover(name, config):
    assert crossover(skeleton(name, config)) is None


def test_compressed_attention_crosses_later():
    compressed = DMCAConfig(vocab=97, layers=2, width=48, heads=4, ffn_width=176, layer_pattern="m")
    full = DMCAConfig(vocab=97, layers=2, width=48, heads=4, ffn_width=176, layer_pattern="f")
    assert crossover(skeleton("dmca", compressed)) > 2 * crossover(skeleton("dmca", full))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("use", ["training", "inference"])
@pytest.mark.parametrize("name", MODELS)
def test_the_largest_batch_fits_and_one_more_does_not(name, use, precision):
    model = bones(name)
    for room in (10**5, 3 * 10**7, 10**9):
        found = largest_batch(model, room, 24, None, precision, use)
        needed = [
            costs(model, batch, 24, None, precision).memory[use] for batch in (max(1, found), found + 1)
        ]
        assert needed[1] > room and (found == 0 or needed[0] <= room)


def test_a_batch_of_an_encoder_that_keeps_nothing_has_no_end():
    model = skeleton("vit", ViTConfig(image_size=20, patch_size=5, layers=1, width=48, heads=4, labels=7))
    assert largest_batch(model, 10**9, 17, use="inference") is None
    assert lengths_of(model) == ((17, 17), None)


def test_a_changed_config_costs_what_a_model_of_these_sizes_has():
    config = changed(
        MODELS["llama"][1], {"layers": 2, "width": 24, "heads": "4", "ffn_width": 52, "vocab": 61}
    )
    model = family("llama").build(config)
    found = costs(skeleton("llama", config), 2, 13)
    assert found.parameters == count_parameters(model) == sum(w.numel() for w in model.parameters())
    assert costs(model, 2, 13) == found


def test_a_shared_vocabulary_changes_on_both_sides():
    config = changed(MODELS["transformer"][1], {"vocab": 50})
    assert (config.vocab, config.target_vocab) == (50, 50)
    assert "target_vocab" not in sizes_of(config)


@pytest.mark.parametrize(
    "sizes, sentence",
    [
        ({"layer": 2}, 'no size "layer"; did you mean "layers"'),
        ({"layers": 0}, "layers must be a whole number from 1 to"),
        ({"layers": 10**6}, "1,000,003 layers, and 256 are the most"),
        ({"positions": "up"}, "positions must be one of none, sinusoidal"),
        ({"positions": "rotary", "score": "additive"}, "rotary positions are relative only"),
        ({"dropout": 0.5}, 'no size "dropout"'),
    ],
)
def test_sizes_that_cannot_be_are_refused(sizes, sentence):
    with pytest.raises(BadInput, match=sentence):
        changed(MODELS["transformer"][1], sizes)


def test_all_presets_have_sizes_to_change():
    for architecture, config in presets().values():
        assert sizes_of(config), architecture


# Formulas of memory, and seconds.


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_formulas_of_memory_give_the_bytes(precision):
    found = costs(bones("gpt2"), 3, 24, precision=precision)
    for name in ("weights", "gradients", "optimizer", "copies", "logits", "cache"):
        numbers = [
            int(word.replace(",", "")) for word in memory_formulas(found)[name].split() if word[0].isdigit()
        ]
        assert torch.tensor(numbers).prod() == found.memory[name], memory_formulas(found)[name]
    assert set(memory_formulas(found)) == set(found.memory)


def test_seconds_are_flops_over_the_rate_or_bytes_over_the_bandwidth():
    found = costs(bones("gpt2"), 4, 24)
    quick = seconds(found, 1e9, 1e30)
    assert quick["forward"].value == found.whole.flops / 1e9
    assert quick["training"].value == pytest.approx(3 * found.whole.flops / 1e9)
    slow = seconds(found, 1e30, 1e6)
    assert slow["token"].value == pytest.approx(found.memory["inference"] / 1e6)
    assert slow["training"].value == pytest.approx(28 * found.parameters / 1e6)
    assert "token" not in seconds(costs(skeleton("vit", ViTConfig()), 1, 197), 1e9, 1e9)


def test_costs_take_three_lines():
    architecture, config = presets()["gpt2"]
    found = costs(skeleton(architecture, config), batch=8, length=512)
    assert (found.parameters, found.whole.flops > found.pairs > 0) == (124_439_808, True)
