"""Tiny random Hugging Face encoders after RoBERTa and ALBERT, for the zoo."""

from __future__ import annotations

import random

import transformers as hf

from helpers.hf_cases import Case, encoder_case, pick


def counting_from_padding(rng: random.Random, name: str, kind: type[hf.PretrainedConfig]) -> Case:
    """RoBERTa's network under another name."""
    n, pad, segments = pick(rng), rng.choice([0, 1, 4]), rng.choice([1, 2])
    config = kind(
        vocab_size=n["vocab"], hidden_size=n["width"], num_hidden_layers=n["layers"],
        num_attention_heads=n["heads"], intermediate_size=n["hidden"],
        max_position_embeddings=n["context"] + pad + 1, hidden_act=rng.choice(["gelu", "relu"]),
        type_vocab_size=segments, layer_norm_eps=1e-5, pad_token_id=pad,
        classifier_dropout=rng.choice([None, 0.3]), bos_token_id=5, eos_token_id=7,
    )  # fmt: skip
    return encoder_case(name, config, rng, segments, counts_itself=True)


def roberta(rng: random.Random) -> Case:
    return counting_from_padding(rng, "Roberta", hf.RobertaConfig)


def xlm_roberta(rng: random.Random) -> Case:
    return counting_from_padding(rng, "XLMRoberta", hf.XLMRobertaConfig)


def camembert(rng: random.Random) -> Case:
    return counting_from_padding(rng, "Camembert", hf.CamembertConfig)


def electra(rng: random.Random) -> Case:
    n, segments = pick(rng), rng.choice([1, 2, 3])
    config = hf.ElectraConfig(
        vocab_size=n["vocab"], embedding_size=rng.choice([8, 11, n["width"]]), hidden_size=n["width"],
        num_hidden_layers=n["layers"], num_attention_heads=n["heads"], intermediate_size=n["hidden"],
        max_position_embeddings=n["context"], hidden_act=rng.choice(["gelu", "relu", "gelu_new"]),
        type_vocab_size=segments, layer_norm_eps=rng.choice([1e-12, 1e-5]),
        classifier_dropout=rng.choice([None, 0.3]),
    )  # fmt: skip
    return encoder_case("Electra", config, rng, segments)


def mpnet(rng: random.Random) -> Case:
    n = pick(rng)
    config = hf.MPNetConfig(
        vocab_size=n["vocab"], hidden_size=n["width"], num_hidden_layers=n["layers"],
        num_attention_heads=n["heads"], intermediate_size=n["hidden"],
        max_position_embeddings=n["context"] + 2, hidden_act=rng.choice(["gelu", "relu"]),
        layer_norm_eps=rng.choice([1e-12, 1e-5]), hidden_dropout_prob=rng.choice([0.1, 0.3]),
    )  # fmt: skip
    return encoder_case("MPNet", config, rng, counts_itself=True)


def deberta_v1(rng: random.Random) -> Case:
    n, segments, relative = pick(rng), rng.choice([0, 0, 2]), rng.random() < 0.85
    config = hf.DebertaConfig(
        vocab_size=n["vocab"], hidden_size=n["width"], num_hidden_layers=n["layers"],
        num_attention_heads=n["heads"], intermediate_size=n["hidden"],
        max_position_embeddings=n["context"], hidden_act=rng.choice(["gelu", "relu"]),
        type_vocab_size=segments, relative_attention=relative, max_relative_positions=rng.choice([-1, 9, 4]),
        position_biased_input=rng.random() < 0.4 or not relative,
        pos_att_type=rng.choice([["p2c", "c2p"], ["c2p"], ["p2c"], []]),
        pooler_hidden_act=rng.choice(["gelu", "tanh"]), legacy=rng.random() < 0.5, pad_token_id=0,
    )  # fmt: skip
    return encoder_case("Deberta", config, rng, segments)


def modernbert(rng: random.Random) -> Case:
    n, local, layers = pick(rng), rng.choice([2, 3, 6]), rng.choice([1, 2, 4])
    turns = {
        kind: {"rope_type": "default", "rope_theta": rng.choice([160000.0, 500.0])}
        for kind in ("full_attention", "sliding_attention")
    }
    config = hf.ModernBertConfig(
        vocab_size=n["vocab"], hidden_size=n["width"], num_hidden_layers=layers,
        num_attention_heads=n["heads"], intermediate_size=n["hidden"], max_position_embeddings=n["context"],
        hidden_activation=rng.choice(["gelu", "silu"]), local_attention=local, rope_parameters=turns,
        layer_types=rng.choice([None, [rng.choice(list(turns)) for _ in range(layers)]]),
        attention_bias=rng.random() < 0.5, mlp_bias=rng.random() < 0.5, norm_bias=rng.random() < 0.5,
        decoder_bias=rng.random() < 0.7, classifier_bias=rng.random() < 0.5,
        classifier_activation=rng.choice(["gelu", "relu"]), classifier_pooling=rng.choice(["cls", "mean"]),
        norm_eps=rng.choice([1e-5, 1e-3]), pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return encoder_case("ModernBert", config, rng)


FAMILIES = {f.__name__: f for f in (roberta, xlm_roberta, camembert, electra, mpnet, deberta_v1, modernbert)}
