"""What several tests share with tests/tasks/test_structural.py."""

import torch

from heedful.models import transformer
from heedful.parts.positions.base import Tree

B, S, T, D, H = 2, 7, 5, 12, 3


NAMES = ("structural-absolute", "structural-relative", "structural")


HEADS = torch.tensor([[1, -1, 3, 1], [-1, 0, 0, -1]])  # the second sentence has three words


WORDS = torch.tensor([[0, 1, 1, 2, 3, 3, 3], [0, 0, 1, 2, 2, -1, -1]])


LENGTHS = torch.tensor([7, 5])


def model_of(name, **more):
    torch.manual_seed(3)
    config = transformer.TransformerConfig(
        vocab=17,
        target_vocab=17,
        layers=2,
        decoder_layers=2,
        width=D,
        heads=H,
        decoder_heads=H,
        ffn_width=20,
        decoder_ffn_width=20,
        positions=name,
        max_distance=2,
        buckets=2,
        **more,
    )
    return transformer.build(config).double().eval()


def tree_of(lengths=LENGTHS, heads=HEADS, words=WORDS):
    index = torch.where(torch.arange(words.shape[1]) < lengths[:, None], torch.arange(words.shape[1]), -1)
    return Tree(index, heads, words)


def inputs():
    generator = torch.Generator().manual_seed(1)
    return torch.randint(17, (B, S), generator=generator), torch.randint(17, (B, T), generator=generator)
