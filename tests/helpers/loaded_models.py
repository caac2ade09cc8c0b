"""Models to use: what they are given, and Hugging Face folders of tiny models with random weights."""

import json
import os
from pathlib import Path

import tokenizers as tk
import torch
import transformers as hf

import heedful
import heedful.use.model
from helpers.small_runs import (
    PAIRS,
    small_run,  # noqa: F401 (fixtures)
)
from helpers.tokenizer_cases import byte_level, unigram, word_piece

SOURCES = [*PAIRS, "the cat", "a fish eats the dog and the cat and i am a teacher"]


PROMPTS = ["the cat", "t", "the dog ate the", "the mat. the d", "sat on"]


TEXTS = ["The cat sat on the mat.", "it's a", "Là-bas, 1234 mats; see we'll dort!"]


HOW = [
    {"beam": 1},
    {"beam": 3, "n_best": 2},
    {"sample": True, "seed": 5},
    {"sample": True, "temperature": 1.7, "top_p": 0.9, "min_p": 0.01, "top_k": 9},
    {"repetition_penalty": 1.9, "no_repeat_ngram_size": 2},
    {"beam": 2, "bad_words": ["le", "chat"], "max_new_tokens": 4},
]


def spread(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    """Weights that let every part matter."""
    torch.manual_seed(seed)
    for weight in model.parameters():
        if weight.requires_grad:
            weight.add_(torch.randn_like(weight) * 0.25)
    return model.eval()


def template(tokenizer: tk.Tokenizer, single: str) -> tk.Tokenizer:
    names = [part for part in single.split() if part != "$A"]
    tokenizer.post_processor = tk.processors.TemplateProcessing(
        single=single, special_tokens=[(name, tokenizer.token_to_id(name)) for name in names]
    )
    return tokenizer


def t5_tokens() -> tk.Tokenizer:
    tokenizer = unigram()
    tokenizer.add_special_tokens(["</s>", "<pad>"])
    return template(tokenizer, "$A </s>")


def make_theirs(name: str) -> tuple[torch.nn.Module, tk.Tokenizer]:
    few = {"num_hidden_layers": 2, "num_attention_heads": 3, "hidden_size": 12, "intermediate_size": 20}
    if name == "gpt2":
        tokenizer = byte_level()
        config = hf.GPT2Config(
            vocab_size=400, n_positions=64, n_embd=12, n_layer=2, n_head=3, bos_token_id=0, eos_token_id=0
        )
        return hf.GPT2LMHeadModel(config), tokenizer
    if name == "llama":
        tokenizer = template(byte_level(), "<|endoftext|> $A")
        config = hf.LlamaConfig(
            **few, vocab_size=340, num_key_value_heads=1, bos_token_id=0, eos_token_id=[7, 9, 21]
        )
        return hf.LlamaForCausalLM(config), tokenizer
    if name == "t5":
        tokenizer = t5_tokens()
        size, end, pads = (
            tokenizer.get_vocab_size(),
            tokenizer.token_to_id("</s>"),
            tokenizer.token_to_id("<pad>"),
        )
        config = hf.T5Config(
            vocab_size=size + 5,
            d_model=12,
            d_kv=4,
            d_ff=20,
            num_layers=2,
            num_heads=3,
            decoder_start_token_id=pads,
            eos_token_id=end,
            pad_token_id=pads,
        )
        return hf.T5ForConditionalGeneration(config), tokenizer
    if name == "marian":
        tokenizer = t5_tokens()
        size, end, pads = (
            tokenizer.get_vocab_size(),
            tokenizer.token_to_id("</s>"),
            tokenizer.token_to_id("<pad>"),
        )
        config = hf.MarianConfig(
            vocab_size=size,
            decoder_vocab_size=size,
            d_model=12,
            encoder_layers=2,
            decoder_layers=1,
            encoder_attention_heads=3,
            decoder_attention_heads=2,
            encoder_ffn_dim=20,
            decoder_ffn_dim=14,
            max_position_embeddings=64,
            pad_token_id=pads,
            eos_token_id=end,
            decoder_start_token_id=pads,
            forced_eos_token_id=None,
            scale_embedding=True,
        )
        model = hf.MarianMTModel(config)
        model.generation_config.bad_words_ids = [[pads], [5], [11, 3]]
        return model, tokenizer
    tokenizer = word_piece()
    config = hf.BertConfig(**few, vocab_size=tokenizer.get_vocab_size() + 3, max_position_embeddings=23)
    config.id2label = {0: "bad", 1: "good", 2: "so-so"}
    return getattr(hf, name)(config), tokenizer


def copied(ours: heedful.Model, folder: Path, **changes: object) -> None:
    """The same folder elsewhere, with other words in its configs."""
    for name in os.listdir(ours.folder):
        (folder / name).write_bytes((Path(ours.folder) / name).read_bytes())
    for name in ("config.json", "generation_config.json"):
        if (folder / name).exists():
            (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | changes))
