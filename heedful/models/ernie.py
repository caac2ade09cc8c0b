"""ERNIE (Sun et al. 2019): BERT that masks phrases and names.

Version 2.0 (Sun et al. 2020) adds task embeddings.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any

from torch import Tensor, nn

from ..parts.embeddings import Inputs, TokenEmbedding
from ..parts.layers import LayerNorm
from ..parts.positions.absolute import Learned
from ..parts.positions.base import Positions
from . import bert
from .base.fields import SIZE
from .base.shells import WithHeads
from .bert import BertConfig, assemble, build_block, build_heads, find_architecture, find_heads
from .hf.folder import read
from .hf.names import Table, same


@dataclass(frozen=True)
class ErnieConfig(BertConfig):
    tasks: Annotated[int | None, SIZE, "task embeddings; None: it has none"] = None


MODEL_TYPES = ("ernie",)  # Hugging Face's
PRESETS = {"ernie-1.0-base": ErnieConfig(vocab=18000, context=513, activation="relu", eps=1e-5)}


class TaskInputs(Inputs):
    """Inputs with an embedding of the pre-training task, always the first one after pre-training."""

    def __init__(self, tasks: int, tokens: TokenEmbedding, *others: Any) -> None:
        super().__init__(tokens, *others)
        self.tasks = nn.Embedding(tasks, tokens.weight.shape[1])

    def forward(self, tokens_BT: Tensor, positions: Positions, segments_BT: Tensor | None = None) -> Tensor:
        x_BTD = self.sum(tokens_BT, positions, segments_BT)
        return self.finish(x_BTD + self.tasks.weight[0])


def build(config: ErnieConfig) -> WithHeads:
    """The encoder and its heads, with fresh weights: N(0, 0.02)."""
    c = config
    parts = (
        TokenEmbedding(c.vocab, c.width),
        Learned(c.context, c.width),
        nn.Embedding(c.segments, c.width),
        LayerNorm(c.width, c.eps),
        c.dropout,
    )
    inputs = Inputs(*parts) if c.tasks is None else TaskInputs(c.tasks, *parts)
    return assemble(inputs, [build_block(c) for _ in range(c.layers)], build_heads(c))


# Hugging Face: BERT's names behind another prefix.

ARCHITECTURES = {name.replace("Bert", "Ernie"): heads for name, heads in bert.ARCHITECTURES.items()}


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> ErnieConfig:
    tasks = read(theirs, "task_type_vocab_size", 3)
    return ErnieConfig(
        **bert.read_sizes(theirs, BertConfig()),
        prediction_heads=find_heads(theirs, names, ARCHITECTURES),
        tasks=tasks if read(theirs, "use_task_id", False) else None,
    )


def write_config(c: ErnieConfig) -> dict[str, Any]:
    told = (
        {"use_task_id": False} if c.tasks is None else {"use_task_id": True, "task_type_vocab_size": c.tasks}
    )
    architecture = find_architecture(c.prediction_heads, ARCHITECTURES, "ErnieForPreTraining")
    return {"model_type": "ernie", "architectures": [architecture], **bert.write_sizes(c), **told}


def names(c: ErnieConfig) -> Table:
    tasks = same("ernie.embeddings.task_type_embeddings.weight", "encoder.inputs.tasks.weight")
    return bert.names(c, "ernie.", [tasks])
