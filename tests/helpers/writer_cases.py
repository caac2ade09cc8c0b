"""Folders of the families that generate text, as transformers writes them."""

import json

import pytest
import tokenizers as tk
import torch
import transformers as hf

from heedful.interop.hf.weights import find_weights
from helpers.small_runs import PAIRS

NEW = 24


@pytest.fixture(autouse=True)
def _no_progress_bars():
    from transformers.utils import logging

    logging.disable_progress_bar()


def spread(model: torch.nn.Module) -> torch.nn.Module:
    """Weights of a size that leaves no part idle."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * (0.3 if weight.ndim > 1 else 0.1) + (weight.ndim == 1))
    return model


def same_files(one, other) -> None:
    """The same weights, bit for bit, and the same words about them."""
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    for name in ("config.json", "generation_config.json"):
        assert json.loads((one / name).read_text()) == json.loads((other / name).read_text())
    assert find_weights(one).keys() == find_weights(other).keys()


# Their families


def byte_level() -> tk.Tokenizer:
    """As BART's and GPT-2's: bytes merged by frequency, <s> and </s> around a text."""
    made = tk.Tokenizer(tk.models.BPE())
    made.pre_tokenizer, made.decoder = (
        tk.pre_tokenizers.ByteLevel(add_prefix_space=False),
        tk.decoders.ByteLevel(),
    )
    trainer = tk.trainers.BpeTrainer(
        vocab_size=290,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        show_progress=False,
        initial_alphabet=tk.pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator([*PAIRS, *PAIRS.values()], trainer)
    made.post_processor = tk.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return made


PAIR = {
    "vocab_size": 290, "d_model": 12, "encoder_layers": 2, "decoder_layers": 1,
    "encoder_attention_heads": 3, "decoder_attention_heads": 2, "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 14, "max_position_embeddings": 90, "pad_token_id": 1, "eos_token_id": 2,
    "bos_token_id": 0, "decoder_start_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
TURNS = {
    "rope_type": "llama3", "rope_theta": 900.0, "factor": 5.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}  # fmt: skip
FEW = {
    "vocab_size": 290, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2,
    "num_attention_heads": 3, "num_key_value_heads": 1, "bos_token_id": 0, "eos_token_id": [2, 7, 285],
    "pad_token_id": 1, "rope_parameters": TURNS, "max_position_embeddings": 190,
}  # fmt: skip
WINDOWED = {"use_sliding_window": True, "sliding_window": 7}
PATTERN = {"sliding_window_pattern": 2, "sliding_window": 6, "query_pre_attn_scalar": 9}
LONGROPE = {
    "rope_type": "longrope", "partial_rotary_factor": 0.5, "short_factor": [2.0], "long_factor": [3.0]
}  # fmt: skip
THEIRS = {
    "bart": lambda: hf.BartForConditionalGeneration(hf.BartConfig(**PAIR)),
    "mbart": lambda: hf.MBartForConditionalGeneration(hf.MBartConfig(**PAIR)),
    "pegasus": lambda: hf.PegasusForConditionalGeneration(hf.PegasusConfig(**PAIR)),
    "marian": lambda: hf.MarianMTModel(hf.MarianConfig(**PAIR)),
    "t5": lambda: hf.T5ForConditionalGeneration(
        hf.T5Config(
            vocab_size=290,
            d_model=12,
            d_kv=5,
            d_ff=20,
            num_layers=2,
            num_decoder_layers=1,
            num_heads=3,
            feed_forward_proj="gated-gelu",
            tie_word_embeddings=False,
            decoder_start_token_id=1,
            pad_token_id=1,
            eos_token_id=2,
        )
    ),
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**FEW, attention_bias=True)),
    "qwen2": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**FEW, tie_word_embeddings=True)),
    "mistral": lambda: hf.MistralForCausalLM(hf.MistralConfig(**FEW, sliding_window=5)),
    "qwen3": lambda: hf.Qwen3ForCausalLM(
        hf.Qwen3Config(**FEW, **WINDOWED, head_dim=6, layer_types=["sliding_attention", "full_attention"])
    ),
    "gemma3": lambda: hf.Gemma3ForCausalLM(
        hf.Gemma3TextConfig(**FEW | {"rope_parameters": None}, head_dim=6, **PATTERN)
    ),
    "phi3": lambda: hf.Phi3ForCausalLM(
        hf.Phi3Config(
            **FEW | {"rope_parameters": dict(LONGROPE), "max_position_embeddings": 9000},
            sliding_window=11,
            original_max_position_embeddings=190,
        )
    ),
    "llama that sees all": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**FEW, is_causal=False)),
    "gpt2": lambda: hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=290, n_positions=190, n_embd=12, n_layer=2, n_head=3, bos_token_id=0, eos_token_id=2
        )
    ),
    "openai-gpt": lambda: hf.OpenAIGPTLMHeadModel(
        hf.OpenAIGPTConfig(vocab_size=290, n_positions=190, n_embd=12, n_layer=2, n_head=3)
    ),
}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """(their model, its folder) of a family."""
    root, made = tmp_path_factory.mktemp("theirs"), {}

    def get(name: str):
        if name not in made:
            torch.manual_seed(5)
            model = THEIRS[name]().eval()
            with torch.no_grad():
                for weight in model.parameters():
                    if weight.requires_grad:
                        weight.copy_(torch.randn_like(weight) * 0.4 + (weight.ndim == 1))
            if name in ("bart", "mbart"):
                model.generation_config.forced_bos_token_id = 4
                model.generation_config.bad_words_ids = [[9], [12, 5]]
            if name == "openai-gpt":
                model.generation_config.eos_token_id = 2
            model.save_pretrained(root / name)
            byte_level().save(str(root / name / "tokenizer.json"))
            made[name] = model, root / name
        return made[name]

    return get
