"""Hugging Face's decoders that classify: `...ForSequenceClassification` reads the last token; no bias."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import BadInput
from ..hf.names import Table, same
from .shells import DecoderClassifier

ENDING = "ForSequenceClassification"
# Each of our files, with the last bias before the head, which the head's own can be put into.
LAST_BIAS = {"gpt1": "decoder.stack.blocks.{last}.feed_forward.norm.bias", "gpt2": "decoder.stack.norm.bias"}
FAMILIES = (*LAST_BIAS, "llama", "gemma3", "phi3")
TEXT_ONLY = {"Gemma3": "Gemma3Text"}  # whose own name classifies texts with pictures
OFF = 1e-6  # by how much, of its own size, a bias may be off after it was moved


def is_classifier(architecture: str, theirs: Mapping[str, Any], names: Collection[str] = ()) -> bool:
    """Whether a config describes a decoder that classifies; if it names no class, whether the weights do."""
    named = theirs.get("architectures")
    if not named:
        return architecture in FAMILIES and "score.weight" in names
    first = named[0] if isinstance(named, list) else named
    return architecture in FAMILIES and isinstance(first, str) and first.endswith(ENDING)


def class_name(language_model: str) -> str:
    """GPT2LMHeadModel, LlamaForCausalLM: the class of the same family that classifies."""
    for ending in ("LMHeadModel", "ForCausalLM"):
        language_model = language_model.removesuffix(ending)
    return TEXT_ONLY.get(language_model, language_model) + ENDING


def names(table: Table) -> Table:
    """A decoder's names as they are in a classifier, which has a head for labels instead of one for words."""
    rules = [
        replace(rule, ours=tuple(f"decoder.{name}" for name in rule.ours))
        for rule in table.rules
        if rule.theirs != "lm_head.weight"
    ]
    return replace(table, rules=[*rules, same("score.weight", "linear.weight")], copies={})


def config_of(config: Any) -> Any:
    """Without a matrix of its own for words, for which a classifier's folder has no place."""
    return replace(config, tie_embeddings=True)


def as_theirs(architecture: str, config: Any, ours: Mapping[str, Tensor]) -> tuple[Any, Mapping[str, Tensor]]:
    """The same scores without a bias in the head: the last norm's bias is moved so that it gives it."""
    if architecture not in FAMILIES:
        raise BadInput(
            f"Hugging Face has no {architecture} that classifies: heedful.load reads the run's own folder, "
            f"and a classify run that began from a GPT, from an encoder or from nothing can be saved"
        )
    kept = {name: weight for name, weight in ours.items() if name != "decoder.head.linear.weight"}
    bias_L = kept.pop("linear.bias", None)
    sizes_only = bias_L is not None and bias_L.is_meta  # whether such a model could be exported at all
    if bias_L is None or not (sizes_only or bias_L.any()):
        return config_of(config), kept
    if architecture not in LAST_BIAS:
        raise BadInput(
            f"the head of this {architecture} has a bias, for which Hugging Face's has no place: "
            f"heedful.load reads the run's own folder, and export --to onnx has a place for it"
        )
    if sizes_only:
        return config_of(config), kept
    place = LAST_BIAS[architecture].format(last=config.layers - 1)
    kept[place] = moved(kept[place], kept["linear.weight"], bias_L)
    return config_of(config), kept


def moved(shift_D: Tensor, weight_LD: Tensor, bias_L: Tensor) -> Tensor:
    """The smallest change of `shift` that adds `bias` to weight @ shift."""
    weight, bias = weight_LD.detach().double(), bias_L.detach().double()
    more_D = torch.linalg.pinv(weight) @ bias
    if (weight @ more_D - bias).norm() > OFF * bias.norm():
        raise BadInput(
            f"the head's bias cannot be put elsewhere "
            f"(its {len(bias)} labels are not separated by as many directions), "
            f"and Hugging Face's has none: heedful.load reads the run's own folder"
        )
    return (shift_D.double() + more_D).to(shift_D.dtype)


def without_bias(model: nn.Module) -> nn.Module:
    """A classifier as it comes from them."""
    model.get_submodule("linear").bias = None  # type: ignore[assignment]
    return model


def is_taught_here(model: nn.Module) -> bool:
    """Whether this is a classifier that a run of heedful's made of a decoder: theirs have no bias."""
    return isinstance(model, DecoderClassifier) and model.linear.bias is not None
