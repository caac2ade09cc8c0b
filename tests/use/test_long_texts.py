"""Texts as long as the context are read whole; longer ones are refused, or cut with a warning."""

import warnings

import pytest
import tokenizers as tk
import torch
import transformers as hf
from helpers.writer_cases import PAIR, byte_level

import heedful
from heedful import BadInput
from heedful.cli.main import main

FEW = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "intermediate_size": 12}
KINDS = {
    "gpt2": (19, hf.GPT2LMHeadModel, lambda: hf.GPT2Config(
        vocab_size=290, n_positions=19, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=2)),
    "llama": (23, hf.LlamaForCausalLM, lambda: hf.LlamaConfig(
        vocab_size=290, max_position_embeddings=23, bos_token_id=0, eos_token_id=2, **FEW)),
    "bert": (21, hf.BertForMaskedLM, lambda: hf.BertConfig(
        vocab_size=291, max_position_embeddings=21, **FEW)),
    "judge": (17, hf.BertForSequenceClassification, lambda: hf.BertConfig(
        vocab_size=291, max_position_embeddings=17, **FEW)),
    "t5": (25, hf.T5ForConditionalGeneration, lambda: hf.T5Config(
        vocab_size=290, d_model=8, d_kv=4, d_ff=12, num_layers=1, num_heads=2, decoder_start_token_id=1,
        eos_token_id=2)),
    "bart": (27, hf.BartForConditionalGeneration, lambda: hf.BartConfig(
        **PAIR | {"max_position_embeddings": 27, "d_model": 12, "encoder_layers": 1})),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("contexts")

    def get(name: str):
        if not (root / name).exists():
            torch.manual_seed(3)
            KINDS[name][1](KINDS[name][2]()).save_pretrained(root / name)
            tokenizer = byte_level()
            if name in ("gpt2", "llama"):
                tokenizer.post_processor = tk.processors.ByteLevel()
            if name in ("bert", "judge"):
                tokenizer.add_special_tokens(["[MASK]"])
            tokenizer.save(str(root / name / "tokenizer.json"))
        return root / name

    return get


def calls(name: str, model: heedful.Model, tokens: int):
    """Everything that reads a text of so many tokens, the special ones included."""
    alone = "z" * tokens if name in ("gpt2", "llama") else "z" * (tokens - 2)
    if name in ("gpt2", "llama"):
        yield lambda: model.score(alone)
    elif name == "bert":
        yield lambda: model.fill("z" * (tokens - 3) + "[MASK]")
    elif name == "judge":
        yield lambda: model.classify(alone)
    else:
        yield lambda: model.translate(alone, max_new_tokens=2)
        yield lambda: list(model.stream(alone, max_new_tokens=2))
        yield lambda: model.score(alone, "the cat")
    yield lambda: model.embed(alone)


@pytest.mark.parametrize("name", KINDS)
def test_a_text_as_long_as_the_context_is_read(name, folder):
    for call in calls(name, heedful.load(folder(name)), KINDS[name][0]):
        call()


@pytest.mark.parametrize("name", ["gpt2", "bert", "judge", "bart"])
def test_a_text_of_one_token_more_is_refused_with_both_numbers(name, folder):
    context = KINDS[name][0]
    for call in calls(name, heedful.load(folder(name)), context + 1):
        with pytest.raises(
            BadInput, match=f"text 1 has {context + 1} tokens, and the model reads at most {context}: cut it"
        ):
            call()


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_positions_without_an_end_read_any_length(name, folder):
    for call in calls(name, heedful.load(folder(name)), 4 * KINDS[name][0]):
        call()


def test_a_prompt_as_long_as_the_context_is_read_whole_and_a_longer_one_from_its_end(folder, capfd):
    model, new = heedful.load(folder("gpt2")), {"max_new_tokens": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.generate("z" * 19, **new)
        whole = model.generate("z" * 9, **new)
    words = "text 1 has 20 tokens, and the model reads at most 19: it reads the last 9"
    with pytest.warns(UserWarning, match=words):
        assert model.generate("a" + "z" * 19, **new) == whole
    with pytest.warns(UserWarning, match=words):
        assert "".join(model.stream("a" + "z" * 19, **new)) == whole
    assert main(["generate", str(folder("gpt2")), "--max-new-tokens", "3", "z" * 20]) == 0
    assert "warning: the text has 20 tokens" in capfd.readouterr().err


def test_a_target_beyond_the_context_is_refused(folder):
    model = heedful.load(folder("bart"))
    model.score("the cat", "z" * 26)
    with pytest.raises(BadInput, match="target 1 has 28 tokens, and the model writes at most 27: cut it"):
        model.score("the cat", "z" * 27)
