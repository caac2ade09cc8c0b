"""GGUF, in and out: weights unpacked to the last bit, and transformers computes the same."""

import json
import random
import sys
from dataclasses import fields, replace

import gguf
import numpy as np
import pytest
import torch
from helpers.gguf_cases import (
    MODELS,
    SIZES,
    SPECIAL,
    TOKENS,
    bytes_tokenizer,
    entries,
    file_of,
    load_bytes,
    loaded_of,
    logits,
    own_tensors,
)
from tokenizers import Tokenizer, models

import heedful
from heedful.decode.beam import beam_search
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.greedy import greedy
from heedful.decode.step import step_of
from heedful.interop.foreign import NetworkInput
from heedful.interop.gguf import write as to_gguf
from heedful.interop.gguf.blocks import KINDS, unpack
from heedful.interop.gguf.reopen import reopen
from heedful.interop.hf.probes import corpus
from heedful.models import llama
from heedful.models.base.shells import classifier
from heedful.models.llama import LlamaConfig


@pytest.fixture(scope="module", params=MODELS)
def written(request, tmp_path_factory):
    """(a model of ours, its folder in float32)."""
    ours = loaded_of(MODELS[request.param], bytes_tokenizer())
    folder = tmp_path_factory.mktemp("model")
    to_gguf.write(ours, folder)
    return ours, folder


# Numbers


@pytest.mark.parametrize("number", KINDS)
def test_numbers_are_unpacked_as_theirs_bit_by_bit(number):
    kind, theirs = KINDS[number], gguf.GGMLQuantizationType(number)
    assert (kind.name, (kind.block, kind.bytes)) == (theirs.name, gguf.GGML_QUANT_SIZES[theirs])
    packed = np.random.default_rng(number).integers(0, 256, size=(5, 3 * kind.bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(packed, theirs)
    found = unpack(memoryview(packed.tobytes()), kind)
    assert found.dtype == np.float32 and found.shape == (5 * 3 * kind.block,)
    assert np.array_equal(found.view(np.uint32), expected.reshape(-1).view(np.uint32))


def test_many_blocks_are_unpacked_as_few(monkeypatch):
    packed = np.random.default_rng(1).integers(0, 256, size=(7, 34), dtype=np.uint8).tobytes()
    whole = unpack(memoryview(packed), KINDS[8])
    monkeypatch.setattr("heedful.interop.gguf.blocks.AT_ONCE", 3)
    assert np.array_equal(unpack(memoryview(packed), KINDS[8]), whole)


# Out, and what transformers makes of it


def test_transformers_computes_and_writes_the_same(written):
    ours, folder = written
    if ours.config.ffn_bias:
        return  # which its reader of such files does not know
    there = reopen(folder)
    dice = random.Random(5)
    for length in (1, 4, 11):
        ids = [dice.randrange(3, ours.config.vocab) for _ in range(length)]
        torch.testing.assert_close(
            there.outputs([NetworkInput(ids)])[0]["logits"], logits(ours.model, ids), rtol=1e-5, atol=1e-5
        )
        prompt = torch.tensor([ids])
        settings = BeamSettings(4, 1, "power", 0.0, stopping="exact")
        with torch.no_grad():
            alone = greedy(step_of(ours.model), prompt, longest=6, eos=1)[0].words
            beam = beam_search(step_of(ours.model), prompt, longest=6, eos=1, settings=settings)[0][0].words
        assert (there.greedy(ids, 6), there.beam(ids, 4, 6)) == (alone, beam)
    assert all(there.tokens(text) == ours.tokenizer.encode(text).ids for text in corpus())


@pytest.mark.parametrize("kind, far", [("float16", 1e-3), ("q8_0", 0.03)])
def test_other_kinds_are_near_and_transformers_reads_the_same_numbers(kind, far, tmp_path):
    ours = loaded_of(LlamaConfig(**SIZES | {"width": 48}), bytes_tokenizer())
    to_gguf.write(ours, tmp_path, kind)
    back, there = heedful.load(tmp_path), reopen(tmp_path)
    theirs = dict(back.model.named_parameters())
    for name, weight in ours.model.named_parameters():
        assert (theirs[name] - weight).abs().max() < far
    assert not torch.equal(theirs["inputs.tokens.weight"], ours.model.inputs.tokens.weight)
    ids = [7, 3, 250, 9]
    torch.testing.assert_close(
        there.outputs([NetworkInput(ids)])[0]["logits"], logits(back.model, ids), rtol=1e-5, atol=1e-5
    )


def test_refusals(tmp_path):
    ours = loaded_of(MODELS["llama"])
    assert to_gguf.refuse(ours) is None
    stretched = replace(MODELS["llama"], rope_scaling="linear", rope_factor=2.0)
    assert "scaled rotary" in to_gguf.refuse(loaded_of(stretched))
    near = replace(MODELS["llama"], window=5)
    assert "has no window, and this model has one of 5 tokens" in to_gguf.refuse(loaded_of(near))
    assert to_gguf.refuse(loaded_of(replace(near, window=47))) is None
    both = replace(MODELS["qwen3"], attention_bias=True)
    assert "qwen3 has no biases, and this model has" in to_gguf.refuse(loaded_of(both))
    assert "sees them" in to_gguf.refuse(loaded_of(replace(MODELS["llama"], causal=False)))
    assert "silu" in to_gguf.refuse(loaded_of(replace(MODELS["llama"], activation="relu")))
    headed = classifier(ours.model, ours.config, 3)
    assert "another head" in to_gguf.refuse(replace(ours, model=headed))
    assert "this is a gpt2" in to_gguf.refuse(replace(ours, architecture="gpt2"))
    spelled = Tokenizer(models.WordLevel({"a": 0}))
    assert "WordLevel" in to_gguf.refuse(replace(ours, tokenizer=spelled))
    lower = bytes_tokenizer("qwen2")
    spec = json.loads(lower.to_str()) | {"normalizer": {"type": "Lowercase"}}
    other = replace(ours, tokenizer=Tokenizer.from_str(json.dumps(spec)))
    with pytest.raises(heedful.BadInput, match="as no such tokenizer does"):
        to_gguf.write(other, tmp_path)
    with pytest.raises(heedful.BadInput, match="float32, float16, q8_0, not int4"):
        to_gguf.write(ours, tmp_path, "int4")
    assert list(tmp_path.iterdir()) == []


def test_absence_is_said_with_the_install_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(heedful.BadInput, match='gguf is not installed: pip install "heedful\\[gguf\\]"'):
        to_gguf.write(loaded_of(MODELS["llama"]), tmp_path)


# In


def test_what_went_out_comes_back_bit_by_bit(written):
    ours, folder = written
    for path in (folder, folder / "model.gguf"):
        back = heedful.load(path)
        for field in fields(ours.config):
            assert getattr(back.config, field.name) == getattr(ours.config, field.name), field.name
        theirs = dict(back.model.named_parameters())
        for name, weight in ours.model.named_parameters():
            assert torch.equal(theirs[name], weight), name
        assert back.special == SPECIAL


@pytest.mark.parametrize("version", [2, 3])
def test_a_file_made_by_hand_is_read(version, tmp_path):
    back = load_bytes(file_of(entries(TOKENS), version=version), tmp_path)
    expected = dict(loaded_of(MODELS["llama"]).model.named_parameters())
    assert all(torch.equal(weight, expected[name]) for name, weight in back.model.named_parameters())
    assert back.tokenizer is None and back.special == {}


def test_a_file_whose_tokens_see_those_after_them_is_read_so(tmp_path):
    both_ways = load_bytes(file_of(entries(TOKENS, **{"llama.attention.causal": False})), tmp_path)
    causal = load_bytes(file_of(entries(TOKENS, **{"llama.attention.causal": True})), tmp_path)
    assert causal.config == MODELS["llama"] == replace(both_ways.config, causal=True)
    for model, later in ((both_ways, True), (causal, False)):
        a, b = (logits(model.model, [5, 9, last]) for last in (7, 8))
        assert (not torch.equal(a[0], b[0])) == later
    with pytest.raises(heedful.BadInput, match="attention.causal is 0, not true or false"):
        load_bytes(file_of(entries(TOKENS, **{"llama.attention.causal": 0})), tmp_path)


def test_another_alignment_is_kept(tmp_path):
    said = entries(TOKENS, **{"general.alignment": 256})
    back = load_bytes(file_of(said, alignment=256), tmp_path)
    assert torch.equal(back.model.stack.norm.weight, loaded_of(MODELS["llama"]).model.stack.norm.weight)


def test_positions_that_turn_slower_are_read(tmp_path):
    plain = replace(MODELS["llama"], rotary_base=500000.0)
    c = replace(plain, rope_scaling="llama3", rope_factor=8.0)
    factors = (llama.build_position(plain).frequencies() / llama.build_position(c).frequencies()).float()
    assert 1 == factors.min() < factors.max() == 8
    tensors = own_tensors() | {"rope_freqs.weight": ((4,), 0, factors.numpy().tobytes())}
    said = entries(TOKENS, **{"llama.rope.freq_base": 500000.0})
    assert load_bytes(file_of(said, tensors), tmp_path).config == c
    wrong = factors.flip(0).contiguous().numpy().tobytes()
    with pytest.raises(heedful.BadInput, match="not those of LLaMA 3"):
        load_bytes(file_of(said, tensors | {"rope_freqs.weight": ((4,), 0, wrong)}), tmp_path)
    linear = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    found = load_bytes(file_of(entries(TOKENS, **linear)), tmp_path).config
    assert (found.rope_scaling, found.rope_factor) == ("linear", 4.0)
