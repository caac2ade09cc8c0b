"""Cases of tiny Hugging Face models: their sizes, their inputs, and how to call them beside ours."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import transformers as hf
from torch import Tensor, nn

from heedful.models.base.shells import EncoderDecoder, WithHeads
from heedful.parts.places import At, Lengths
from heedful.parts.view import left_padded, right_padded


@dataclass
class Case:
    """A model of theirs, inputs, and what to compare: [(their output, our output), ...] at real positions."""

    theirs: nn.Module
    compare: Callable[[nn.Module, nn.Module], Iterator[tuple[Tensor, Tensor]]]


def pick(rng: random.Random) -> dict[str, int]:
    heads = rng.choice([1, 2, 3, 5])
    return {
        "heads": heads,
        "width": heads * rng.choice([4, 6, 10]),
        "hidden": rng.choice([7, 13, 24]),
        "layers": rng.choice([1, 2, 3]),
        "vocab": rng.choice([11, 19, 37]),
        "context": rng.choice([17, 23]),
    }


def lengths_and_positions(rng: random.Random, B: int, T: int) -> tuple[Tensor, Tensor, str]:
    lengths = torch.tensor([T] + [rng.randint(1, T) for _ in range(B - 1)])
    side = rng.choice(["left", "right"])
    return lengths, (left_padded if side == "left" else right_padded)(lengths, T), side


def decoder_case(theirs: nn.Module, rng: random.Random, vocab: int, counts_itself: bool = False) -> Case:
    """counts_itself: finds positions itself, from the mask."""
    B, T = 3, rng.choice([5, 9])
    tokens = torch.randint(vocab, (B, T))
    lengths, positions, side = lengths_and_positions(rng, B, T)
    real = positions >= 0

    def compare(theirs: nn.Module, ours: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
        given = {"position_ids": positions.clamp(min=0)} if side == "left" and not counts_itself else {}
        expected = theirs(input_ids=tokens, attention_mask=real.long(), **given).logits
        yield expected[real], ours(tokens, At(positions))[real]
        if side == "right":
            yield expected[real], ours(tokens, Lengths(lengths))[real]

    return Case(theirs, compare)


def encoder_decoder_case(
    theirs: nn.Module, rng: random.Random, source_vocab: int, vocab: int, pad: int | None = None
) -> Case:
    """pad: the number of padding, for a model that counts positions of all other tokens."""
    B, S, T = 3, rng.choice([7, 11]), rng.choice([4, 6])
    source, target = torch.randint(source_vocab, (B, S)), torch.randint(vocab, (B, T))
    source_lengths = torch.tensor([S, rng.randint(1, S), rng.randint(1, S)])
    target_lengths = torch.tensor([T, rng.randint(1, T), rng.randint(1, T)])
    keep = right_padded(source_lengths, S) >= 0
    real = right_padded(target_lengths, T) >= 0
    if pad is not None:
        source, target = (torch.where(ids == pad, pad + 1, ids) for ids in (source, target))
        source = torch.where(keep, source, pad)

    def compare(theirs: nn.Module, ours: EncoderDecoder) -> Iterator[tuple[Tensor, Tensor]]:
        expected = theirs(input_ids=source, attention_mask=keep.long(), decoder_input_ids=target).logits
        yield expected[real], ours(source, target, Lengths(source_lengths), Lengths(target_lengths))[real]

    return Case(theirs, compare)


def pairs(rng: random.Random, n: dict[str, int]) -> dict[str, object]:
    """The settings that Pegasus, BART and mBART have in common."""
    return {
        "vocab_size": n["vocab"], "d_model": n["width"], "encoder_layers": n["layers"],
        "decoder_layers": rng.choice([1, 2]), "encoder_attention_heads": n["heads"],
        "decoder_attention_heads": rng.choice([n["heads"], 2]), "encoder_ffn_dim": n["hidden"],
        "decoder_ffn_dim": rng.choice([9, 15]), "max_position_embeddings": n["context"],
        "activation_function": rng.choice(["swish", "relu", "gelu"]),
        "scale_embedding": rng.random() < 0.5, "pad_token_id": 1, "eos_token_id": 2,
        "decoder_start_token_id": 2, "forced_eos_token_id": None,
    }  # fmt: skip


def encoder_case(
    family: str,
    config: hf.PretrainedConfig,
    rng: random.Random,
    segments: int = 0,
    counts_itself: bool = False,
) -> Case:
    """One of the classes of an encoder's family. segments: how many it tells apart; counts_itself: finds
    places itself."""
    part, outputs = rng.choice([(part, heads) for part, heads in HEADS.items() if hasattr(hf, family + part)])
    config.num_labels = 2 if "span" in outputs else rng.choice([2, 3, 5])
    theirs = getattr(hf, family + part)(config)
    B, T, pad = 3, rng.choice([5, 9]), config.pad_token_id
    lengths, positions, side = lengths_and_positions(rng, B, T)
    if side == "left" and not {"masked_lm", "tag", "span"} & outputs.keys():  # the first slot must be real
        lengths, positions, side = torch.full((B,), T), right_padded(torch.full((B,), T), T), "right"
    real = positions >= 0
    others = torch.tensor([number for number in range(config.vocab_size) if number != pad])
    tokens = torch.where(real, others[torch.randint(len(others), (B, T))], pad)
    types = torch.randint(segments, (B, T)) if segments else None

    def compare(theirs: nn.Module, ours: WithHeads) -> Iterator[tuple[Tensor, Tensor]]:
        given = {"token_type_ids": types} if segments else {}
        if side == "left" and not counts_itself:
            given["position_ids"] = positions.clamp(min=0)
        expected = theirs(input_ids=tokens, attention_mask=real.long(), **given)
        ways = [At(positions), *([Lengths(lengths)] if side == "right" else [])]
        for places in ways:
            found = ours(tokens, places, types)
            found["hidden"] = ours.encoder(tokens, places, types)
            for head, field in outputs.items():
                if not hasattr(expected, field):  # DistilBERT and DeBERTa have no pooling layer
                    continue
                a, b = getattr(expected, field), found[head]
                a = torch.stack([a, expected.end_logits], -1) if head == "span" else a
                yield (a[real], b[real]) if a.ndim == 3 or head == "replaced" else (a, b)

    return Case(theirs, compare)


HEADS = {
    "Model": {"hidden": "last_hidden_state", "pooled": "pooler_output"},
    "ForPreTraining": {
        "replaced": "logits",
        "masked_lm": "prediction_logits",
        "next_sentence": "seq_relationship_logits",
        "sentence_order": "sop_logits",
    },
    "ForMaskedLM": {"masked_lm": "logits"},
    "ForNextSentencePrediction": {"next_sentence": "logits"},
    "ForSequenceClassification": {"classify": "logits"},
    "ForTokenClassification": {"tag": "logits"},
    "ForQuestionAnswering": {"span": "start_logits"},
}
