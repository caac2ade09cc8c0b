"""Tiny random Hugging Face models of every family, all sizes odd, and how to call them beside ours."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import torch
import transformers as hf
from torch import Tensor, nn

from heedful.models.base.shells import WithHeads
from heedful.parts.places import At, Lengths
from heedful.parts.view import right_padded
from helpers import deberta, hf_zoo_decoders, hf_zoo_encoders, hf_zoo_llamas
from helpers.hf_cases import (
    Case,
    decoder_case,
    encoder_case,
    encoder_decoder_case,
    lengths_and_positions,
    pairs,
    pick,
)

CASES_PER_FAMILY = 8


def gpt2(rng: random.Random) -> Case:
    n = pick(rng)
    config = hf.GPT2Config(
        vocab_size=n["vocab"], n_positions=n["context"], n_embd=n["width"], n_layer=n["layers"],
        n_head=n["heads"], n_inner=rng.choice([None, n["hidden"]]),
        activation_function=rng.choice(["gelu_new", "relu", "gelu"]),
        tie_word_embeddings=rng.random() < 0.6, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return decoder_case(hf.GPT2LMHeadModel(config), rng, n["vocab"])


def gpt1(rng: random.Random) -> Case:
    n = pick(rng)
    config = hf.OpenAIGPTConfig(
        vocab_size=n["vocab"], n_positions=n["context"], n_embd=n["width"], n_layer=n["layers"],
        n_head=n["heads"], afn=rng.choice(["gelu", "relu", "silu"]),
        tie_word_embeddings=rng.random() < 0.4,
    )  # fmt: skip
    return decoder_case(hf.OpenAIGPTLMHeadModel(config), rng, n["vocab"])


def bert(rng: random.Random) -> Case:
    n = pick(rng)
    labels = rng.choice([2, 3, 5])
    config = hf.BertConfig(
        vocab_size=n["vocab"], hidden_size=n["width"], num_hidden_layers=n["layers"],
        num_attention_heads=n["heads"], intermediate_size=n["hidden"], max_position_embeddings=n["context"],
        hidden_act=rng.choice(["gelu", "relu"]), type_vocab_size=rng.choice([2, 3]),
    )  # fmt: skip
    B, T = 3, rng.choice([5, 9])
    tokens, segments = torch.randint(n["vocab"], (B, T)), torch.randint(2, (B, T))
    lengths, positions, side = lengths_and_positions(rng, B, T)
    real = positions >= 0
    kind, outputs = rng.choice(list(BERT_HEADS.items()))
    config.num_labels = 2 if kind is hf.BertForQuestionAnswering else labels
    theirs = kind(config)
    if side == "left":  # BERT reads its class off the first slot, so a sentence head needs it to be real
        lengths, positions, real = (
            torch.full((B,), T),
            right_padded(torch.full((B,), T), T),
            torch.ones(B, T).bool(),
        )

    def compare(theirs: nn.Module, ours: WithHeads) -> Iterator[tuple[Tensor, Tensor]]:
        expected = theirs(input_ids=tokens, attention_mask=real.long(), token_type_ids=segments)
        for places in (Lengths(lengths), At(positions)):
            found = ours(tokens, places, segments)
            assert set(found) >= set(outputs)
            for head, field in outputs.items():
                if head == "span":
                    both = torch.stack([expected.start_logits, expected.end_logits], -1)
                    yield both[real], found[head][real]
                else:
                    a, b = getattr(expected, field), found[head]
                    yield (a[real], b[real]) if a.ndim == 3 else (a, b)

    return Case(theirs, compare)


BERT_HEADS = {
    hf.BertModel: {"pooled": "pooler_output"},
    hf.BertForPreTraining: {"masked_lm": "prediction_logits", "next_sentence": "seq_relationship_logits"},
    hf.BertForMaskedLM: {"masked_lm": "logits"},
    hf.BertForNextSentencePrediction: {"next_sentence": "logits"},
    hf.BertForSequenceClassification: {"classify": "logits"},
    hf.BertForTokenClassification: {"tag": "logits"},
    hf.BertForQuestionAnswering: {"span": "start_logits"},
}


def distilbert(rng: random.Random) -> Case:
    n = pick(rng)
    config = hf.DistilBertConfig(
        vocab_size=n["vocab"], dim=n["width"], n_layers=n["layers"], n_heads=n["heads"],
        hidden_dim=n["hidden"], max_position_embeddings=n["context"],
        activation=rng.choice(["gelu", "relu"]), seq_classif_dropout=0.3, qa_dropout=0.4,
        attention_dropout=0.05,
    )  # fmt: skip
    return encoder_case("DistilBert", config, rng)


def ernie(rng: random.Random) -> Case:
    n, segments, tasks = pick(rng), rng.choice([2, 4]), rng.choice([None, 3, 16])
    config = hf.ErnieConfig(
        vocab_size=n["vocab"], hidden_size=n["width"], num_hidden_layers=n["layers"],
        num_attention_heads=n["heads"], intermediate_size=n["hidden"], max_position_embeddings=n["context"],
        hidden_act=rng.choice(["gelu", "relu"]), type_vocab_size=segments, use_task_id=tasks is not None,
        task_type_vocab_size=tasks or 3, classifier_dropout=rng.choice([None, 0.3]), layer_norm_eps=1e-5,
    )  # fmt: skip
    return encoder_case("Ernie", config, rng, segments)


def albert(rng: random.Random) -> Case:
    n, segments = pick(rng), rng.choice([2, 3])
    config = hf.AlbertConfig(
        vocab_size=n["vocab"], embedding_size=rng.choice([8, 11]), hidden_size=n["width"],
        num_hidden_layers=n["layers"], num_attention_heads=n["heads"], intermediate_size=n["hidden"],
        max_position_embeddings=n["context"], hidden_act=rng.choice(["gelu_new", "gelu", "relu"]),
        type_vocab_size=segments, hidden_dropout_prob=0.1, classifier_dropout_prob=rng.choice([0.1, 0.3]),
    )  # fmt: skip
    return encoder_case("Albert", config, rng, segments)


def deberta(rng: random.Random) -> Case:
    n, segments, relative = pick(rng), rng.choice([0, 0, 2]), rng.random() < 0.85
    config = hf.DebertaV2Config(
        vocab_size=n["vocab"], hidden_size=n["width"], num_hidden_layers=n["layers"],
        num_attention_heads=n["heads"], intermediate_size=n["hidden"],
        max_position_embeddings=n["context"], hidden_act=rng.choice(["gelu", "relu"]),
        type_vocab_size=segments, relative_attention=relative, max_relative_positions=rng.choice([-1, 9]),
        position_biased_input=rng.random() < 0.4 or not relative,
        pos_att_type=rng.choice([["p2c", "c2p"], ["c2p"], ["p2c"], []]),
        pooler_hidden_act=rng.choice(["gelu", "tanh"]), legacy=rng.random() < 0.5, pad_token_id=0,
        share_att_key=rng.random() < 0.5, position_buckets=rng.choice([-1, 4, 6]),
        norm_rel_ebd=rng.choice(["none", "layer_norm" if relative else "none"]),
        **rng.choice(
            [{}, {}, {"conv_kernel_size": rng.choice([3, 5]), "conv_act": rng.choice(["gelu", "tanh"])}]
        ),
    )  # fmt: skip
    return encoder_case("DebertaV2", config, rng, segments)


def t5(rng: random.Random) -> Case:
    n = pick(rng)
    config = hf.T5Config(
        vocab_size=n["vocab"], d_model=n["width"], d_kv=rng.choice([3, 5]), d_ff=n["hidden"],
        num_layers=n["layers"], num_decoder_layers=rng.choice([1, 2]), num_heads=n["heads"],
        relative_attention_num_buckets=rng.choice([8, 32]),
        relative_attention_max_distance=rng.choice([6, 128]),
        feed_forward_proj=rng.choice(["relu", "gated-gelu", "gated-silu"]),
        tie_word_embeddings=rng.random() < 0.6, decoder_start_token_id=0,
    )  # fmt: skip
    theirs = hf.T5ForConditionalGeneration(config)
    if rng.random() < 0.4:  # T5 1.1 has an output matrix of its own; a fresh config cannot say so
        theirs.config.tie_word_embeddings = theirs.config.scale_decoder_outputs = False
        theirs.lm_head.weight = nn.Parameter(torch.zeros_like(theirs.shared.weight))
    return encoder_decoder_case(theirs, rng, n["vocab"], n["vocab"])


def transformer(rng: random.Random) -> Case:
    n = pick(rng)
    shared = rng.random() < 0.6
    target_vocab = n["vocab"] if shared else n["vocab"] + 4
    config = hf.MarianConfig(
        vocab_size=n["vocab"], decoder_vocab_size=target_vocab, share_encoder_decoder_embeddings=shared,
        d_model=n["width"], encoder_layers=n["layers"], decoder_layers=rng.choice([1, 2]),
        encoder_attention_heads=n["heads"],
        decoder_attention_heads=n["heads"] if rng.random() < 0.5 else 2 if n["width"] % 2 == 0 else 1,
        encoder_ffn_dim=n["hidden"], decoder_ffn_dim=rng.choice([9, 15]),
        max_position_embeddings=n["context"], activation_function=rng.choice(["swish", "relu", "gelu"]),
        scale_embedding=rng.random() < 0.5, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
        forced_eos_token_id=1,
    )  # fmt: skip
    theirs = hf.MarianMTModel(config)
    theirs.final_logits_bias.normal_()
    return encoder_decoder_case(theirs, rng, n["vocab"], target_vocab)


def pegasus(rng: random.Random) -> Case:
    n = pick(rng)
    theirs = hf.PegasusForConditionalGeneration(hf.PegasusConfig(**pairs(rng, n)))
    theirs.final_logits_bias.normal_()
    return encoder_decoder_case(theirs, rng, n["vocab"], n["vocab"])


def bart(rng: random.Random) -> Case:
    n = pick(rng)
    theirs = hf.BartForConditionalGeneration(hf.BartConfig(**pairs(rng, n)))
    theirs.final_logits_bias.normal_()
    return encoder_decoder_case(theirs, rng, n["vocab"], n["vocab"])


def mbart(rng: random.Random) -> Case:
    n = pick(rng)
    theirs = hf.MBartForConditionalGeneration(hf.MBartConfig(**pairs(rng, n)))
    theirs.final_logits_bias.normal_()
    return encoder_decoder_case(theirs, rng, n["vocab"], n["vocab"])


def deit(rng: random.Random) -> Case:
    n = pick(rng)
    patch, grid = rng.choice([2, 3]), rng.choice([2, 3])
    config = hf.DeiTConfig(
        hidden_size=n["width"], num_hidden_layers=n["layers"], num_attention_heads=n["heads"],
        intermediate_size=n["hidden"], image_size=patch * grid, patch_size=patch,
        num_channels=rng.choice([1, 3]), qkv_bias=rng.random() < 0.5, num_labels=rng.choice([2, 5]),
        hidden_act=rng.choice(["gelu", "relu"]),
    )  # fmt: skip
    kinds = [hf.DeiTModel, hf.DeiTForImageClassification, hf.DeiTForImageClassificationWithTeacher]
    theirs = rng.choice(kinds)(config)
    images = torch.randn(3, config.num_channels, patch * grid, patch * grid)

    def compare(theirs: nn.Module, ours: WithHeads) -> Iterator[tuple[Tensor, Tensor]]:
        expected, found = theirs(images), ours(images)
        if isinstance(theirs, hf.DeiTModel):
            yield expected.last_hidden_state, ours.encoder(images)
            yield expected.pooler_output, found["pooled"]
            yield expected.last_hidden_state[:, 0], found["class_token"]
        else:
            yield expected.logits, found["classify"]

    return Case(theirs, compare)


def vit(rng: random.Random) -> Case:
    n = pick(rng)
    patch, grid = rng.choice([2, 3]), rng.choice([2, 3])
    config = hf.ViTConfig(
        hidden_size=n["width"], num_hidden_layers=n["layers"], num_attention_heads=n["heads"],
        intermediate_size=n["hidden"], image_size=patch * grid, patch_size=patch,
        num_channels=rng.choice([1, 3]), qkv_bias=rng.random() < 0.5, num_labels=rng.choice([2, 5]),
        hidden_act=rng.choice(["gelu", "relu"]),
    )  # fmt: skip
    kind = rng.choice([hf.ViTModel, hf.ViTForImageClassification])
    theirs = kind(config)
    images = torch.randn(3, config.num_channels, patch * grid, patch * grid)

    def compare(theirs: nn.Module, ours: WithHeads) -> Iterator[tuple[Tensor, Tensor]]:
        expected, found = theirs(images), ours(images)
        if kind is hf.ViTModel:
            yield expected.last_hidden_state, ours.encoder(images)
            yield expected.pooler_output, found["pooled"]
            yield expected.last_hidden_state[:, 0], found["class_token"]
        else:
            yield expected.logits, found["classify"]

    return Case(theirs, compare)


FAMILIES = {
    f.__name__: f
    for f in (
        transformer,
        gpt1,
        gpt2,
        bert,
        t5,
        vit,
        distilbert,
        ernie,
        deit,
        albert,
        deberta,
    )
}
FAMILIES |= {f.__name__: f for f in (pegasus, bart, mbart)}
FAMILIES |= hf_zoo_decoders.FAMILIES | hf_zoo_encoders.FAMILIES | hf_zoo_llamas.FAMILIES


def make(family: str, seed: int) -> Case:
    """One case; weights are spread out so that no part of the model is idle."""
    torch.manual_seed(seed)
    case = FAMILIES[family](random.Random(f"{family} {seed}"))
    spread(case.theirs)
    case.theirs.eval()
    return case


def spread(model: nn.Module) -> None:
    """Give every weight a value that matters."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:  # Marian's sinusoids do not
                noise = torch.randn_like(weight) * (0.3 if weight.ndim > 1 else 0.1)
                weight.copy_(noise + (weight.ndim == 1) * weight)


def write(case: Case, folder: Path, **options: object) -> None:
    case.theirs.save_pretrained(folder, **options)
