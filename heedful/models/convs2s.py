"""ConvS2S (Gehring et al. 2017): convolutions over all words at once, and attention in every decoder layer.

Where widths differ, a linear layer stands between them, as in fairseq; where they are equal, nothing does, as
in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import nn

from ..parts.before.convolution import ConvolutionDecoder, ConvolutionEncoder, NormedLinear
from ..parts.embeddings import Inputs, TokenEmbedding, Untied
from ..parts.positions.absolute import Learned
from .base.config import Config
from .base.fields import (
    SIZE,
    Context,
    Dropout,
    EmbeddingWidth,
    KernelSize,
    Layers,
    ShareEmbeddings,
    TargetVocab,
    Vocab,
    Width,
)
from .base.recurrent import check_shared, embeddings
from .base.settings import same_as
from .base.shells import Decoder, Encoder, EncoderDecoder


@dataclass(frozen=True)
class ConvS2SConfig(Config):
    vocab: Vocab = 40000
    target_vocab: TargetVocab = 40000
    share_embeddings: ShareEmbeddings = False
    context: Context = 1024
    layers: Layers = 9
    width: Width = 512
    kernel_size: KernelSize = 3
    # Further layers: the width and the kernel of each.
    more_layers: Annotated[tuple[int, ...], "width and kernel of each layer after the equal ones"] = ()
    embedding_width: EmbeddingWidth = same_as("width")
    output_width: Annotated[int, SIZE, "width before the output scores"] = same_as("width")
    dropout: Dropout = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shared(self.share_embeddings, self.vocab, self.target_vocab)
        if len(self.more_layers) % 2 or not all(type(size) is int and size > 0 for size in self.more_layers):
            raise ValueError(f"more_layers are a width and a kernel each, not {self.more_layers!r:.100}")

    @property
    def widths(self) -> list[int]:
        return [*[self.width] * self.layers, *self.more_layers[::2]]

    @property
    def kernels(self) -> list[int]:
        return [*[self.kernel_size] * self.layers, *self.more_layers[1::2]]


PRESETS = {"convs2s-en-de": ConvS2SConfig(more_layers=(1024, 3) * 4 + (2048, 1) * 2, embedding_width=768)}


def build(config: ConvS2SConfig) -> EncoderDecoder:
    """The encoder-decoder, with fresh weights."""
    c = config
    source, target = embeddings(c.vocab, c.target_vocab, c.embedding_width, c.share_embeddings)
    encoder = ConvolutionEncoder(c.embedding_width, c.widths, c.kernels, c.dropout, attends=len(c.widths))
    decoder = ConvolutionDecoder(c.embedding_width, c.widths, c.kernels, c.dropout, c.output_width)
    head = Untied(c.output_width, c.target_vocab)
    head.linear = NormedLinear(c.output_width, c.target_vocab, 1 - c.dropout)  # type: ignore[assignment]
    model = EncoderDecoder(
        Encoder(build_inputs(c, source), encoder),
        Decoder(build_inputs(c, target), decoder, head),
    )
    for module in model.modules():
        if isinstance(module, TokenEmbedding):
            nn.init.normal_(module.weight, std=0.1)
        elif isinstance(module, Learned):
            nn.init.normal_(module.table, std=0.1)
    return model


def build_inputs(c: ConvS2SConfig, tokens: TokenEmbedding) -> Inputs:
    return Inputs(tokens, Learned(c.context, c.embedding_width), dropout=c.dropout)
