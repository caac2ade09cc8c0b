"""GGUF, in and out: numbers unpacked to the last bit, transformers computes the same, tokenizers agree, bad files are refused."""

import io
import json
import random
import shutil
import struct
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import sentencepiece
import torch
from helpers import tiny
from helpers.binary_cases import boundaries
from helpers.hostile_files import loads_or_says_why, mutate
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

import heedful
from heedful.decode.beam import beam_search
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.greedy import greedy
from heedful.decode.step import step_of
from heedful.interop.gguf import read as from_gguf
from heedful.interop.gguf import vocabulary as gguf_words
from heedful.interop.gguf import write as to_gguf
from heedful.interop.gguf.blocks import KINDS, unpack
from heedful.interop.gguf.reopen import reopen
from heedful.interop.gguf.vocabulary import SPLITS
from heedful.interop.hf.probes import corpus
from heedful.interop.loaded import Loaded
from heedful.models import llama
from heedful.models.base.heads import classifier
from heedful.models.llama import LlamaConfig

SIZES = {
    "vocab": 293,
    "context": 47,
    "layers": 2,
    "width": 30,
    "heads": 6,
    "kv_heads": 2,
    "key_width": 8,
    "hidden": 64,
}
MODELS = {
    "llama": LlamaConfig(**SIZES),
    "tied": LlamaConfig(**SIZES, tied=True, rotary_base=500.0, eps=1e-5),
    "biases": LlamaConfig(**SIZES, attention_bias=True, feed_forward_bias=True),
    "qwen2": LlamaConfig(
        **SIZES | {"key_width": 5 * 2, "heads": 3, "kv_heads": 1}, attention_bias=True, out_bias=False
    ),
}
SPECIAL = {"bos": 0, "eos": 1, "pad": 2}


SPECIAL_TOKENS = ("<|begin|>", "<|end|>", "<|endoftext|>")


def bytes_tokenizer(pre="gpt-2", begins=False, size=280, special=SPECIAL_TOKENS):
    """A byte-level BPE that splits texts in a named way, with merges learned from a few of the probes."""
    spec = {
        "version": "1.0", "pre_tokenizer": SPLITS[pre], "decoder": SPLITS["gpt-2"],
        "normalizer": {"type": "NFC"} if pre == "qwen2" else None,
        "model": {"type": "BPE", "vocab": {}, "merges": [], "ignore_merges": pre == "llama-bpe"},
    }  # fmt: skip
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    spec = json.loads(tokenizer.to_str())
    spec["model"]["vocab"] |= {"Ġmats": len(spec["model"]["vocab"])}  # which no merges make
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    if begins:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|begin|> $A", special_tokens=[("<|begin|>", 0)]
        )
    return tokenizer


def loaded_of(config, tokenizer=None, special=SPECIAL):
    return Loaded("llama", config, tiny.build((llama, config), torch.float32), tokenizer, special)


@pytest.fixture(scope="module", params=MODELS)
def written(request, tmp_path_factory):
    """(a model of ours, its folder in float32)."""
    ours = loaded_of(MODELS[request.param], bytes_tokenizer())
    folder = tmp_path_factory.mktemp("model")
    to_gguf.write(ours, folder)
    return ours, folder


@torch.no_grad()
def logits(model, ids):
    return model(torch.tensor([ids]))[0]


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
    if ours.config.feed_forward_bias:
        return  # which its reader of such files does not know
    there = reopen(folder)
    dice = random.Random(5)
    for length in (1, 4, 11):
        ids = [dice.randrange(3, ours.config.vocab) for _ in range(length)]
        torch.testing.assert_close(there.logits(ids, None), logits(ours.model, ids), rtol=1e-5, atol=1e-5)
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
    torch.testing.assert_close(there.logits(ids, None), logits(back.model, ids), rtol=1e-5, atol=1e-5)


def test_refusals(tmp_path):
    ours = loaded_of(MODELS["llama"])
    assert to_gguf.refuse(ours) is None
    stretched = replace(MODELS["llama"], stretch="linear", stretch_factor=2.0)
    assert "stretched" in to_gguf.refuse(loaded_of(stretched))
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


def entries(tokens, **other):
    """What every file says, for one made by hand."""
    c = MODELS["llama"]
    return {
        "general.architecture": "llama", "llama.context_length": c.context, "llama.embedding_length": c.width,
        "llama.block_count": c.layers, "llama.feed_forward_length": c.hidden, "llama.attention.head_count": c.heads,
        "llama.attention.head_count_kv": c.kv_heads, "llama.attention.key_length": c.key_width,
        "llama.attention.layer_norm_rms_epsilon": 1e-6, "tokenizer.ggml.tokens": tokens, **other,
    }  # fmt: skip


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def value_of(value):
    """Kind and value, as a file has them."""
    if isinstance(value, bytes):
        return value  # as it is, kind and all
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value) if value < 2**32 else struct.pack("<IQ", 10, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if value and isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    inner = (6, "f") if value and isinstance(value[0], float) else (5, "i")
    return struct.pack("<IIQ", 9, inner[0], len(value)) + struct.pack(f"<{len(value)}{inner[1]}", *value)


def file_of(said, tensors=None, version=3, counts=None, alignment=32):
    """A file by hand: {name: (shape, kind, bytes)}."""
    tensors = own_tensors() if tensors is None else tensors
    out = io.BytesIO()
    out.write(b"GGUF" + struct.pack("<IQQ", version, *(counts or (len(tensors), len(said)))))
    for key, value in said.items():
        out.write(text(key) + value_of(value))
    place = 0
    for name, (shape, kind, data) in tensors.items():
        out.write(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, place))
        place += -(-len(data) // alignment) * alignment
    out.write(bytes(-out.tell() % alignment))
    for _, _, data in tensors.values():
        out.write(data + bytes(-len(data) % alignment))
    return out.getvalue()


def own_tensors(config=MODELS["llama"]):
    ours = loaded_of(config)
    return {
        name: (tuple(value.shape), 0, value.numpy().tobytes())
        for name, value in to_gguf.tensors(ours, "llama").items()
    }


TOKENS = [f"t{i}" for i in range(MODELS["llama"].vocab)]


def load_bytes(data, tmp_path):
    path = tmp_path / "a.gguf"
    path.write_bytes(data)
    return heedful.load(path)


@pytest.mark.parametrize("version", [2, 3])
def test_a_file_made_by_hand_is_read(version, tmp_path):
    back = load_bytes(file_of(entries(TOKENS), version=version), tmp_path)
    expected = dict(loaded_of(MODELS["llama"]).model.named_parameters())
    assert all(torch.equal(weight, expected[name]) for name, weight in back.model.named_parameters())
    assert back.tokenizer is None and back.special == {}


def test_another_alignment_is_kept(tmp_path):
    said = entries(TOKENS, **{"general.alignment": 256})
    back = load_bytes(file_of(said, alignment=256), tmp_path)
    assert torch.equal(back.model.stack.norm.weight, loaded_of(MODELS["llama"]).model.stack.norm.weight)


def test_positions_that_turn_slower_are_read(tmp_path):
    plain = replace(MODELS["llama"], rotary_base=500000.0)
    c = replace(plain, stretch="llama3", stretch_factor=8.0)
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
    assert (found.stretch, found.stretch_factor) == ("linear", 4.0)


# Tokenizers


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("pre", ["llama-bpe", "qwen2", "smollm", "gpt-2"])
def test_a_byte_level_tokenizer_comes_back_the_same(pre, begins, tmp_path):
    tokenizer = bytes_tokenizer(pre, begins)
    to_gguf.write(loaded_of(MODELS["llama"], tokenizer), tmp_path)
    back = heedful.load(tmp_path).tokenizer
    for probe in corpus():
        ids = tokenizer.encode(probe).ids
        assert back.encode(probe).ids == ids and back.decode(ids) == tokenizer.decode(ids)


def test_a_text_that_spells_a_special_token_stays_a_text(tmp_path):
    tokenizer = bytes_tokenizer()
    tokenizer.encode_special_tokens = True
    to_gguf.write(loaded_of(MODELS["llama"], tokenizer), tmp_path)
    assert 2 not in heedful.load(tmp_path).tokenizer.encode("<|endoftext|>").ids


def test_a_special_token_that_the_file_has_not_is_only_a_text(tmp_path):
    """transformers makes one up."""
    tokenizer = bytes_tokenizer("llama-bpe", special=SPECIAL_TOKENS[:2])
    assert tokenizer.token_to_id("<|endoftext|>") is None
    to_gguf.write(loaded_of(replace(MODELS["llama"], vocab=tokenizer.get_vocab_size()), tokenizer), tmp_path)
    for text in ("<|endoftext|>a<|endoftext|>", "a b"):
        assert reopen(tmp_path).tokens(text) == tokenizer.encode(text).ids


def test_sentencepiece_scores_give_its_own_pieces(tmp_path):
    """Against the sentencepiece library itself, bytes and all."""
    prose = Path(gguf_words.__file__).read_text().splitlines()
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(prose), model_writer=model,
        vocab_size=700, model_type="bpe", byte_fallback=True, character_coverage=1.0, minloglevel=2,
        normalization_rule_name="identity", remove_extra_whitespaces=False, num_threads=1, split_digits=True,
    )  # fmt: skip
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    count = pieces.get_piece_size()
    kinds = [
        2 if pieces.is_unknown(n) else 3 if pieces.is_control(n) else 6 if pieces.is_byte(n) else 1
        for n in range(count)
    ]
    tokens = [pieces.id_to_piece(n) for n in range(count)]
    said = entries(tokens) | {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [pieces.get_score(n) for n in range(count)],
        "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
    }  # fmt: skip
    back = load_bytes(file_of(said, own_tensors(replace(MODELS["llama"], vocab=count))), tmp_path)
    assert back.special == {"bos": 1, "eos": 2}
    for probe in [*corpus(), *prose]:
        if "<" in probe or "\0" in probe:
            continue  # there, a text cannot spell a special token; and it stops at a zero
        ids = pieces.encode(probe)
        assert back.tokenizer.encode(probe).ids == [1, *ids], probe
        if probe and not probe.startswith(" "):
            assert back.tokenizer.decode(ids) == pieces.decode(ids)
    to_gguf.write(replace(loaded_of(back.config, back.tokenizer, back.special)), tmp_path)
    (tmp_path / "a.gguf").unlink()
    again = heedful.load(tmp_path).tokenizer
    assert all(again.encode(probe).ids == back.tokenizer.encode(probe).ids for probe in corpus())


def test_many_and_long_tokens_are_refused_or_read_soon(tmp_path):
    """Of a token of a thousand letters there are a thousand ways to make it; and every added token costs."""
    config = replace(MODELS["llama"], vocab=15000)
    said = entries([f"{i:x}" for i in range(15000)]) | {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.token_type": [3] * 15000,
    }  # fmt: skip
    path = tmp_path / "a.gguf"
    path.write_bytes(file_of(said, own_tensors(config)))
    assert loads_or_says_why(path)
    for tokens in (["a" * n for n in range(1, 1001)], [f"{i:04}" + "a" * 1000 for i in range(4500)]):
        said = entries(tokens) | {"tokenizer.ggml.model": "llama"}
        path.write_bytes(file_of(said, own_tensors(config)))
        assert not loads_or_says_why(path)


@pytest.mark.parametrize(
    "other, why",
    [
        ({"tokenizer.ggml.tokens": ["a"] * 3}, "twice"),
        ({"tokenizer.ggml.tokens": [f"t{i}" for i in range(294)]}, "294 tokens, and has vectors for 293"),
        ({"tokenizer.ggml.tokens": "a"}, "no tokens"),
        ({"tokenizer.ggml.tokens": ["x" * 2000]}, "more than 1024 bytes"),
        ({"tokenizer.ggml.merges": ["t1 t2 t3"]}, "not pairs"),
        ({"tokenizer.ggml.merges": ["no such"]}, "not a tokenizer that can be read"),
        ({"tokenizer.ggml.pre": "(a+)+$"}, "splits texts as"),
        ({"tokenizer.ggml.model": "bert"}, "llama and gpt2"),
        ({"tokenizer.ggml.token_type": [1, 2]}, "does not go with 293 tokens"),
        ({"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [float("nan")] * 293}, "not finite"),
        ({"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": 10**6}, "has the number 1000000"),
    ],
)  # fmt: skip
def test_bad_words_are_refused(other, why, tmp_path):
    said = entries(TOKENS, **{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2"}) | other
    with pytest.raises(heedful.BadInput, match=why) as error:
        load_bytes(file_of(said), tmp_path)
    assert str(tmp_path) in str(error.value)


# Bad files


@pytest.fixture
def small(tmp_path):
    config = replace(MODELS["llama"], layers=1, hidden=32, vocab=290)
    to_gguf.write(loaded_of(config, bytes_tokenizer()), tmp_path, "q8_0")
    return tmp_path / "model.gguf"


def test_a_file_altered_at_random_loads_or_is_refused(small):
    whole = small.read_bytes()
    assert loads_or_says_why(small)
    dice, refused = random.Random(8), 0
    for _ in range(200):
        small.write_bytes(mutate(whole, dice))
        refused += not loads_or_says_why(small)
    assert refused > 50


def test_a_beginning_altered_at_random_loads_or_is_refused(small):
    """Most of a file is weights, of which any are good; here all damage is before them."""
    whole = small.read_bytes()
    begin = whole.index(b"tokenizer.ggml.tokens")
    dice, refused = random.Random(9), 0
    for _ in range(200):
        small.write_bytes(mutate(whole[:begin], dice) + whole[begin:])
        refused += not loads_or_says_why(small)
    assert refused > 100


def test_a_file_cut_anywhere_is_refused(small):
    whole = small.read_bytes()
    places = boundaries(small, heedful.load)
    assert len(places) > 500
    for place in [*places[::3], *(place + 1 for place in places[::11]), len(whole) - 40]:
        small.write_bytes(whole[:place])
        assert not loads_or_says_why(small)


@pytest.mark.parametrize(
    "data, why",
    [
        (b"", "empty|is not a folder"),
        (b"GGUF", "damaged"),
        (b"GGUX" + bytes(100), "no GGUF file"),
        (file_of(entries(TOKENS), version=1), "version 1"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(100), "version 50331648"),
        (file_of(entries(TOKENS), counts=(2**40, 5)), "announces 1099511627776 tensors"),
        (file_of(entries(TOKENS), counts=(5, 2**63)), "announces 9223372036854775808 keys"),
        (file_of({"general.alignment": 0}), "alignment is 0"),
        (file_of({"general.alignment": 48}), "alignment is 48"),
        (file_of({"a": struct.pack("<I", 99)}), "of a kind 99"),
        (file_of({"a": struct.pack("<IQ", 8, 2**62)}), "has 4611686018427387904 bytes"),
        (file_of({"a": struct.pack("<IIQ", 9, 4, 2**62)}), "announces 4611686018427387904"),
        (file_of({"a": struct.pack("<IIQ", 9, 8, 2**62)}), "announces 4611686018427387904"),
        (file_of({"a": struct.pack("<IIQIQIQ", 9, 9, 1, 9, 1, 9, 1)}), "a list of a kind 9"),
        (file_of({"a": 1}).replace(text("a"), text(b"\xff")), "not UTF-8"),
        (file_of({"general.architecture": "llama"}, {"x": ((2**40, 2**40), 0, b"")}), "would lie at"),
        (file_of({"general.architecture": "llama"}, {"x": ((0, 4), 0, b"")}), "rows of 4 numbers"),
        (file_of({"general.architecture": "llama"}, {"x": ((3, 33), 8, bytes(34))}), "in blocks of 32"),
        (file_of({"general.architecture": "llama"}, {"x": ((3,), 4, bytes(34))}), "stored as kind 4"),
        (file_of({"general.architecture": "llama"}, {"x": ((1,) * 5, 0, bytes(4))}), "5 axes"),
        (file_of({"general.architecture": "gemma"}), "architecture 'gemma'"),
        (file_of(entries(TOKENS, **{"split.count": 3})), "one of 3 files"),
        (file_of(entries(TOKENS, **{"llama.expert_count": 8})), "sets llama.expert_count to 8"),
        (file_of(entries(TOKENS, **{"llama.rope.scaling.type": "yarn"})), "rope.scaling.type to 'yarn'"),
        (file_of(entries(TOKENS, **{"llama.attention.sliding_window": 4})), "sliding_window"),
        (file_of(entries(TOKENS) | {"llama.block_count": 2**31 - 1}), "announces 2147483647 layers"),
        (file_of(entries(TOKENS) | {"llama.attention.head_count": 0}), "head_count is 0"),
        (file_of(entries(TOKENS) | {"llama.attention.head_count": 2**31 - 1}), "due"),
        (file_of(entries(TOKENS) | {"llama.attention.head_count": "six"}), "head_count is 'six'"),
        (file_of(entries(TOKENS) | {"llama.attention.key_length": 7}), "odd width 7"),
        (file_of(entries(TOKENS) | {"llama.rope.dimension_count": 4}), "not the width of a head"),
        (file_of(entries(TOKENS) | {"llama.feed_forward_length": 2**31 - 1}), "due"),
        (file_of(entries(TOKENS) | {"llama.embedding_length": 31}), "is not 30"),
        (file_of(entries(TOKENS), own_tensors() | {"more": ((1,), 0, bytes(4))}), "no place for"),
        (file_of(entries(TOKENS), dict(list(own_tensors().items())[1:])), "has no token_embd.weight"),
        (file_of(entries(TOKENS), dict(list(own_tensors().items())[:-1])), "lacks blk.1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_lies_are_refused(data, why, tmp_path):
    with pytest.raises(heedful.BadInput, match=why) as error:
        load_bytes(data, tmp_path)
    assert str(tmp_path / "a.gguf") in str(error.value) and str(error.value).isprintable()


def test_twice_is_refused(tmp_path):
    whole = file_of(entries(TOKENS))
    name = text("blk.0.attn_q.weight")
    with pytest.raises(heedful.BadInput, match="blk.0.attn_q.weight' twice"):
        load_bytes(whole.replace(text("blk.0.attn_k.weight"), name), tmp_path)
    key = text("llama.attention.head_count_kv")
    said = entries(TOKENS)
    twice = file_of(said | {"llama.attention.head_count_kX": 1}).replace(
        text("llama.attention.head_count_kX"), key
    )
    with pytest.raises(heedful.BadInput, match="head_count_kv' twice"):
        load_bytes(twice, tmp_path)


def test_a_tensor_outside_the_file_or_off_its_place_is_refused(tmp_path):
    whole = bytearray(file_of(entries(TOKENS)))
    at = whole.index(text("output_norm.weight")) + len(text("output_norm.weight")) + 4 + 8 + 4
    for place in (2**63, len(whole), 8):
        struct.pack_into("<Q", whole, at, place)
        with pytest.raises(heedful.BadInput, match="output_norm.weight' would lie at"):
            load_bytes(bytes(whole), tmp_path)


def test_tensors_that_lie_over_each_other_are_refused(tmp_path):
    """A file of some bytes could otherwise unpack to any number of them."""
    data, start = file_of(entries(TOKENS)), struct.pack("<Q", 0)
    for name in own_tensors():
        at = data.index(text(name)) + len(text(name))
        rank = struct.unpack_from("<I", data, at)[0]
        place = at + 4 + 8 * rank + 4
        data = data[:place] + start + data[place + 8 :]
    data = data[: len(data) - len(data) // 3]
    with pytest.raises(heedful.BadInput, match="some lie over others"):
        load_bytes(data, tmp_path)


def test_folders(small, tmp_path):
    folder = small.parent
    shutil.copy(small, folder / "other.gguf")
    with pytest.raises(heedful.BadInput, match="2 GGUF files, model.gguf, other.gguf: name one"):
        heedful.load(folder)
    (folder / "other.gguf").unlink()
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "model.gguf").symlink_to(small)
    with pytest.raises(heedful.BadInput, match="leads out of its folder"):
        heedful.load(inner)
    assert from_gguf.is_one(folder) and not from_gguf.is_one(tmp_path / "nothing")
    nameless = small.rename(tmp_path / "weights")
    assert heedful.load(nameless).architecture == "llama"


LYING = """
import pathlib, resource, struct, sys
import heedful
path = pathlib.Path(sys.argv[1])
heedful.load(path)
print([name for name in ("gguf", "transformers", "ctranslate2") if name in sys.modules])
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before, files, whole = peak(), sorted(path.parent.iterdir()), path.read_bytes()
def text(data): return struct.pack("<Q", len(data)) + data
head = lambda tensors, keys: b"GGUF" + struct.pack("<IQQ", 3, tensors, keys)
lists = text(b"a") + struct.pack("<IIQ", 9, 8, 60_000_000)
tensor = text(b"x") + struct.pack("<IQQIQ", 2, 2**12, 2**14, 0, 0)
for start in (head(2**40, 0), head(0, 2**24), head(0, 1) + lists, head(1, 0) + tensor, whole[:2000]):
    with open(path, "wb") as file:
        file.write(start)
        file.truncate(600 << 20)  # a file of holes: it takes no room on the disk
    try:
        heedful.load(path)
        sys.exit("it was believed")
    except heedful.BadInput:
        pass
assert sorted(path.parent.iterdir()) == files
print(peak() - before)
"""


def test_a_lie_about_sizes_takes_no_memory_and_loading_needs_no_other_library(small):
    done = subprocess.run(
        [sys.executable, "-c", LYING, small], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    imported, grown = done.stdout.splitlines()
    assert imported == "[]" and int(grown) <= 50
