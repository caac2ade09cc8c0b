"""Rows that join and leave a running batch write what they would write alone."""

import random

import pytest
import torch
from helpers import tiny
from helpers.decoding_cases import model_of
from helpers.long_cases import BLOCKED, LONG
from helpers.slot_cases import WRITERS, alone, gaps, largest_difference, random_rows, together, zoo_model

from heedful.decode.filters import forced_prefix
from heedful.decode.slots import Slots, fits
from heedful.fast.decoding import for_decoding
from heedful.models import gpt2, llama, transformer

OWN = {**tiny.DECODERS, **tiny.ENCODER_DECODERS}
SPARSE = {name: entry for name, entry in {**LONG, **BLOCKED}.items() if fits(tiny.build(entry))}
# Wide enough that their matrices are packed.
WIDE = {"vocab": 611, "width": 384, "heads": 6, "ffn_width": 448, "layers": 2}
PACKED = {
    "gpt2": (gpt2, gpt2.GPT2Config(**WIDE, context=40)),
    "llama": (llama, llama.LlamaConfig(**WIDE, context=40, kv_heads=2, key_width=64)),
    "transformer": (
        transformer,
        transformer.TransformerConfig(
            **WIDE, decoder_layers=2, decoder_heads=6, decoder_ffn_width=448, target_vocab=611
        ),
    ),
}


def wide_model(name: str):
    """One whose matrices are large enough to be packed, in fp32."""
    model = tiny.build(PACKED[name], torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.3 if weight.ndim > 1 else 1.0)
    return model


def difference(model, name: str, count: int, prefill: int, orders: int = 2) -> float:
    """Of rows that join at random moments to each alone; then in another order, so beside others."""
    dice = random.Random(f"{name} {count} {prefill}")
    rows = random_rows(model, dice, count)
    worst = 0.0
    for _ in range(orders):
        dice.shuffle(rows)
        worst = max(worst, largest_difference(model, rows, together(Slots(model, prefill), rows, dice)))
    return worst


@pytest.mark.parametrize("name", OWN)
def test_rows_that_join_at_random_write_what_they_write_alone(name):
    assert difference(model_of(name, 17, sharper=3.0), name, 9, prefill=6) < 1e-9


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_attention_sees_the_same_of_rows_that_join(name):
    assert difference(tiny.build(SPARSE[name]), name, 6, prefill=6) < 1e-9


@pytest.mark.parametrize("name", WRITERS)
def test_families_of_hugging_face_write_the_same_in_packed_weights(name):
    model = for_decoding(zoo_model(name, 0)).model
    assert difference(model, name, 6, prefill=6) < 1e-5


@pytest.mark.parametrize("weights", ["fp32", "fp16"])
def test_packed_matrices_write_the_same(weights):
    model = for_decoding(wide_model("gpt2"), weights).model
    assert difference(model, "gpt2", 6, prefill=9) < 1e-5


def test_int8_matrices_write_the_same_but_for_their_own_rounding():
    """Where the last bit of an input decides between two of its 255 steps, all that follows is rounded in
    another way: what rows write beside others differs less than int8 differs from fp32."""
    plain, dice = wide_model("gpt2"), random.Random(3)
    model, rows = for_decoding(plain, "int8").model, random_rows(plain, dice, 7)
    for row in rows:
        row.filters = [forced_prefix([[dice.randrange(611) for _ in range(row.longest)]])]
    in_fp32, own = 0.0, 0.0
    for number, (tokens, log_p) in together(Slots(model, 9), rows, dice).items():
        expected, in_int8 = alone(model, rows[number])
        assert tokens == expected
        own = max([own, *gaps(in_int8, log_p)])
        in_fp32 = max([in_fp32, *gaps(in_int8, alone(plain, rows[number])[1])])
    assert own < in_fp32 < 0.5


LARGE = [f"wide {name}" for name in PACKED]
THEIRS = [f"Hugging Face's {name}" for name in WRITERS]
PAIRS = [(name, weights) for name in [*THEIRS, *OWN, *SPARSE, *LARGE] for weights in ("plain", "fp32")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "weights"), [*PAIRS, *((name, "fp16") for name in LARGE)])
def test_2_to_32_rows_of_every_family_write_the_same(name, weights, record_property):
    worst = 0.0
    for seed in range(2 if name in THEIRS else 1):
        if name in THEIRS:
            model = zoo_model(name.split()[-1], seed)
        elif name in LARGE:
            model = wide_model(name.removeprefix("wide "))
        else:
            model = tiny.build((SPARSE | OWN)[name], torch.float32)
        model = model if weights == "plain" else for_decoding(model, weights).model
        for count, prefill in ((2, 5), (7, 64), (32, 9)):
            worst = max(worst, difference(model, f"{name} {seed}", count, prefill, orders=1))
    record_property("largest difference", worst)
    assert worst < 1e-5
