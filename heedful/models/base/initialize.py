"""Initialization: the few ways the papers fill their matrices."""

from __future__ import annotations

import math

from torch import nn

from ...parts.embeddings import TokenEmbedding
from ...parts.positions.absolute import Learned


def normal_(model: nn.Module, std: float) -> None:
    """N(0, std) for every matrix, embedding and learned position; biases 0 (GPT, BERT, LLaMA)."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=std)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding | TokenEmbedding):
            nn.init.normal_(module.weight, std=std)
        elif isinstance(module, Learned):
            nn.init.normal_(module.table, std=std)


LEVEL = 1 / 0.02  # what makes embeddings of N(0, 0.02) as large as the Transformer's, beside sinusoids of 0.7


def level_(model: nn.Module) -> None:
    """Glorot-uniform matrices and embeddings N(0, 0.02), for a decoder that adds sinusoids to
    embeddings times `LEVEL`.

    Words are then neither much smaller than positions nor, in a tied head, so large that each predicts
    itself.
    """
    xavier_(model)
    for module in model.modules():
        if isinstance(module, TokenEmbedding):
            nn.init.normal_(module.weight, std=0.02)


def xavier_(model: nn.Module) -> None:
    """Glorot-uniform matrices, biases 0, embeddings N(0, D^-1/2) (Vaswani et al. 2017, tensor2tensor)."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, TokenEmbedding):
            nn.init.normal_(module.weight, std=1 / math.sqrt(module.weight.shape[1]))
