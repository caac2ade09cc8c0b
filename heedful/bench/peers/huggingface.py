"""Hugging Face transformers: its GPT-2, LLaMA and Marian, from heedful's own weights."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from .. import units
from ..work import END, FULL, Decode, DecodeGPT2, TrainGPT2, TrainTransformer, Translate, Work, start_token
from . import Place, Variant, in_half

PACKAGE = DISTRIBUTION = "transformers"
INSTALL = "pip install transformers"


def variants(work: Work) -> list[Variant]:
    if isinstance(work, TrainGPT2) and work.attention != FULL:
        return []
    if isinstance(work, Decode):
        return [
            Variant("", same_weights=True),
            Variant("static cache, compiled", compiled=True, same_weights=True),
        ]
    if isinstance(work, Translate):
        return [Variant("", same_weights=True)]
    compiled = Variant("compiled", compiled=True, same_weights=True)
    return [Variant("", same_weights=True), compiled, in_half(compiled)]


def build(work: Work, variant: Variant, place: Place) -> Callable[[], Any]:
    transformers = import_module("transformers")

    model = load(transformers, work, place)
    if isinstance(work, TrainGPT2):
        windows_BT = units.windows(work, place)

        def loss_of(tokens_BT: Any) -> Any:
            scores_BTV = model(tokens_BT[:, :-1], use_cache=False).logits
            return units.cross_entropy(scores_BTV, tokens_BT[:, 1:])

        return units.training(model, loss_of, [windows_BT], variant.compiled, place)
    if isinstance(work, TrainTransformer):
        source_BS, target_BT = units.pairs(work, place)
        inputs_BT, answers_BT = target_BT[:, :-1].contiguous(), target_BT[:, 1:].contiguous()

        def translated(source_BS: Any, inputs_BT: Any, answers_BT: Any) -> Any:
            found = model(input_ids=source_BS, decoder_input_ids=inputs_BT, use_cache=False)
            return units.cross_entropy(found.logits, answers_BT)

        return units.training(model, translated, [source_BS, inputs_BT, answers_BT], variant.compiled, place)
    return generating(transformers, model.to(place.dtype).eval(), work, variant, place)


def load(transformers: Any, work: Work, place: Place) -> Any:
    """The model of the folder; GPT-2's activation in torch's one kernel, which computes the same."""
    gpt2 = isinstance(work, TrainGPT2 | DecodeGPT2)
    other = transformers.LlamaForCausalLM if isinstance(work, Decode) else transformers.MarianMTModel
    kind = transformers.GPT2LMHeadModel if gpt2 else other
    how = {"activation_function": "gelu_pytorch_tanh"} if gpt2 else {}
    config = kind.config_class.from_pretrained(place.weights, **how)
    model = kind.from_pretrained(place.weights, config=config, dtype="float32", attn_implementation="sdpa")
    return model.to(place.device)


def generating(
    transformers: Any, model: Any, work: Work, variant: Variant, place: Place
) -> Callable[[], Any]:
    """`generate`, which never meets an end of sentence."""
    settings: dict[str, Any] = {"do_sample": False, "use_cache": True}
    if isinstance(work, Decode):
        given_BT = units.prompts(work, place)
        settings |= {
            "max_new_tokens": work.new,
            "eos_token_id": None,
            "pad_token_id": 0,
            "bos_token_id": None,
        }
        read = work.prompt
    else:
        assert isinstance(work, Translate)
        given_BT = units.sources(work, place)
        settings |= {"max_new_tokens": work.new, "num_beams": work.beam, "eos_token_id": END}
        settings |= {"pad_token_id": start_token(work), "decoder_start_token_id": start_token(work)}
        read = 1
    if variant.compiled:
        compiling = transformers.CompileConfig()
        compiling._compile_all_devices = True  # transformers itself compiles on GPUs only
        settings |= {"cache_implementation": "static", "compile_config": compiling}
    model.generation_config = transformers.GenerationConfig(**settings)
    there_BT = torch.ones_like(given_BT)

    @torch.no_grad()
    def generate() -> Any:
        return model.generate(given_BT, attention_mask=there_BT)[:, read:]

    return generate
