"""What the tests of encoders share."""

import pytest
import transformers as hf

from helpers import deberta  # noqa: F401 (before transformers imports it, with a warning)


@pytest.fixture(autouse=True)
def _no_progress_bars():
    from transformers.utils import logging

    logging.disable_progress_bar()


SMALL = {"hidden_size": 20, "num_hidden_layers": 2, "num_attention_heads": 5, "intermediate_size": 36}
CONFIGS = {
    "roberta": lambda n, pad: hf.RobertaConfig(
        **SMALL, vocab_size=n, pad_token_id=pad, max_position_embeddings=60 + pad + 1, type_vocab_size=1
    ),
    "xlm_roberta": lambda n, pad: hf.XLMRobertaConfig(
        **SMALL, vocab_size=n, pad_token_id=pad, max_position_embeddings=60 + pad + 1, type_vocab_size=1
    ),
    "camembert": lambda n, pad: hf.CamembertConfig(
        **SMALL, vocab_size=n, pad_token_id=pad, max_position_embeddings=60 + pad + 1, type_vocab_size=1
    ),
    "electra": lambda n, pad: hf.ElectraConfig(
        **SMALL, vocab_size=n, pad_token_id=pad, max_position_embeddings=60, embedding_size=12
    ),
    "mpnet": lambda n, pad: hf.MPNetConfig(**SMALL, vocab_size=n, max_position_embeddings=62),
    "deberta_v1": lambda n, pad: hf.DebertaConfig(
        **SMALL,
        vocab_size=n,
        pad_token_id=pad,
        max_position_embeddings=60,
        relative_attention=True,
        pos_att_type="c2p|p2c",
        position_biased_input=False,
    ),
    "modernbert": lambda n, pad: hf.ModernBertConfig(
        **SMALL | {"num_hidden_layers": 4},
        vocab_size=n,
        pad_token_id=pad,
        bos_token_id=None,
        eos_token_id=None,
        cls_token_id=None,
        sep_token_id=None,
        max_position_embeddings=60,
        local_attention=4,
        classifier_pooling="mean",
    ),
    "distilbert": lambda n, pad: hf.DistilBertConfig(
        vocab_size=n,
        pad_token_id=pad,
        max_position_embeddings=60,
        dim=20,
        n_layers=2,
        n_heads=5,
        hidden_dim=36,
    ),
    "ernie": lambda n, pad: hf.ErnieConfig(
        **SMALL, vocab_size=n, pad_token_id=pad, max_position_embeddings=60, use_task_id=True
    ),
    "deberta": lambda n, pad: hf.DebertaV2Config(
        **SMALL,
        vocab_size=n,
        pad_token_id=pad,
        max_position_embeddings=60,
        relative_attention=True,
        position_buckets=8,
        pos_att_type="p2c|c2p",
        share_att_key=True,
        position_biased_input=False,
        norm_rel_ebd="layer_norm",
    ),
    "albert": lambda n, pad: hf.AlbertConfig(
        **SMALL, embedding_size=12, vocab_size=n, pad_token_id=pad, max_position_embeddings=60
    ),
}
