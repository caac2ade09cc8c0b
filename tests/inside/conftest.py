from itertools import islice

import pytest
import torch
from helpers import tiny
from helpers.kept_activations import use_gpu_kernels
from helpers.look_cases import Runs

from heedful.corpora import phrasebook
from heedful.data.vocab import train_vocab
from heedful.interop.loaded import Loaded
from heedful.models import transformer


@pytest.fixture
def gpu_kernels(monkeypatch):
    use_gpu_kernels(monkeypatch)


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def phrases():
    """A fresh translator with the words of a few phrases, and the phrases."""
    pairs = list(islice(phrasebook.pairs(5), 30))
    vocab = train_vocab("word", (text for pair in pairs for text in (pair.source, pair.target)), 600)
    sizes = {"vocab": vocab.size, "target_vocab": vocab.size, "width": 12, "heads": 3, "decoder_heads": 2}
    sizes |= {"layers": 1, "decoder_layers": 2, "ffn_width": 20, "decoder_ffn_width": 14}
    config = transformer.TransformerConfig(**sizes)
    model = tiny.build((transformer, config), torch.float32)
    special = {"pad": 0, "bos": 1, "eos": 2, "decoder_start": 1}
    return Loaded("transformer", config, model, vocab.tokenizer, special), vocab, pairs
