"""The tokenizers of GGUF files: they come back the same, and bad ones are refused."""

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import sentencepiece
import transformers
from helpers.gguf_cases import (
    MODELS,
    SPECIAL_TOKENS,
    TOKENS,
    bytes_tokenizer,
    entries,
    file_of,
    load_bytes,
    loaded_of,
    own_tensors,
)
from helpers.hostile_files import loads_or_says_why
from helpers.odd_texts import odd_texts
from helpers.sentencepiece_cases import made  # noqa: F401 (a fixture)

import heedful
from heedful.interop.gguf import vocabulary as gguf_words
from heedful.interop.gguf import write as to_gguf
from heedful.interop.gguf.reopen import reopen
from heedful.interop.hf.probes import corpus

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
        sentence_iterator=iter(prose),
        model_writer=model,
        vocab_size=700,
        model_type="bpe",
        byte_fallback=True,
        character_coverage=1.0,
        minloglevel=2,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        num_threads=1,
        split_digits=True,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    count = pieces.get_piece_size()
    kinds = [
        2 if pieces.is_unknown(n) else 3 if pieces.is_control(n) else 6 if pieces.is_byte(n) else 1
        for n in range(count)
    ]
    tokens = [pieces.id_to_piece(n) for n in range(count)]
    said = entries(tokens) | {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.scores": [pieces.get_score(n) for n in range(count)],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
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


@pytest.mark.parametrize("legacy", [False, True])
def test_a_llama_with_only_a_sentencepiece_file_goes_out(legacy, made, tmp_path):
    """transformers reads the same ids from the file as from the folder; so does llama.cpp's way of spaces."""
    folder = shutil.copytree(made[0] / "llama", tmp_path / "llama")
    rows = made[1]["llama"].get_piece_size() + 2
    sizes = {"hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 1, "num_attention_heads": 3}
    config = transformers.LlamaConfig(vocab_size=rows, bos_token_id=1, eos_token_id=2, **sizes)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    more = {str(rows - 2): {"content": "<|im_start|>", "special": True, "normalized": False}}
    said = {"tokenizer_class": "LlamaTokenizer", "legacy": legacy, "add_bos_token": True}
    said |= {
        "chat_template": "{{ bos_token }}[INST] {{ messages[0].content }} [/INST]<|im_start|>x{{ eos_token }}"
    }
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(said | named | {"added_tokens_decoder": more}))
    model = heedful.load(folder)
    (tmp_path / "out").mkdir()
    to_gguf.write(model.loaded, tmp_path / "out")
    back = heedful.load(tmp_path / "out")
    theirs, opened = transformers.AutoTokenizer.from_pretrained(folder), reopen(tmp_path / "out")
    for text in [*corpus(), *odd_texts(150)]:
        ids = theirs(text)["input_ids"]
        assert model.tokenizer.encode(text).ids == back.tokenizer.encode(text).ids == ids, text
        assert opened.tokens(text) == (None if legacy else ids), text
    assert back.chat_prompt("hi </s>") == model.chat_prompt("hi </s>")
    prompts = [model.chat_prompt("hi </s> there")]
    expected = theirs.apply_chat_template([{"role": "user", "content": "hi </s> there"}])["input_ids"]
    assert [row.ids for row in back.wording.prompt(prompts)] == [expected] and rows - 2 in expected
    metadata = to_gguf.vocabulary(model.loaded)
    kinds = dict(zip(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"], strict=True))
    wanted = {"<unk>": 2, "<s>": 3, "<|im_start|>": 3, "<0x0A>": 6, "▁the": 1, f"[PAD{rows - 1}]": 5}
    assert {token: kinds[token] for token in wanted} == wanted
    held = {key: value for key, value in metadata.items() if key != gguf_words.SPACES}
    lists = ("tokenizer.ggml.scores", "tokenizer.ggml.token_type")
    held |= {key: numpy.array(held[key]) for key in lists}
    plain, _ = gguf_words.read_vocabulary(tmp_path, held, rows)  # as llama.cpp reads it
    for text in corpus():
        if text and text[0] not in " ▁" and "<" not in text and "\0" not in text:
            assert plain.encode(text).ids == [1, *made[1]["llama"].encode(text)], text


def test_many_and_long_tokens_are_refused_or_read_soon(tmp_path):
    """Of a token of a thousand letters there are a thousand ways to make it; and every added token costs."""
    config = replace(MODELS["llama"], vocab=15000)
    said = entries([f"{i:x}" for i in range(15000)]) | {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.token_type": [3] * 15000,
    }
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
        ({"tokenizer.ggml.tokens": [f"t{i}" for i in range(294)]}, "294 tokens and has 293 embedding rows"),
        ({"tokenizer.ggml.tokens": "a"}, "no tokens"),
        ({"tokenizer.ggml.tokens": ["x" * 2000]}, "more than 1024 bytes"),
        ({"tokenizer.ggml.merges": ["t1 t2 t3"]}, "not pairs"),
        ({"tokenizer.ggml.merges": ["no such"]}, "not a tokenizer that can be read"),
        ({"tokenizer.ggml.pre": "(a+)+$"}, "splits texts as"),
        ({"tokenizer.ggml.model": "bert"}, "llama and gpt2"),
        ({"tokenizer.ggml.token_type": [1, 2]}, "does not fit 293 tokens"),
        ({"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [float("nan")] * 293}, "not finite"),
        (
            {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": 10**6},
            "has the number 1000000",
        ),
    ],
)
def test_bad_words_are_refused(other, why, tmp_path):
    said = entries(TOKENS, **{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2"}) | other
    with pytest.raises(heedful.BadInput, match=why) as error:
        load_bytes(file_of(said), tmp_path)
    assert str(tmp_path) in str(error.value)
