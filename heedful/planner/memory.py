"""Memory: bytes that one GPU holds while it trains, for each sharding.

Weights, gradients and AdamW's moments are divided by the number of shards, activations and scores by the
number of GPUs that share a product. What those GPUs all keep is the input of each norm and of each layer.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..inside.costs import Costs, Part
from .shardings import Sharding
from .training_step import is_block, layers_of, norms_of, vectors_of

FULL, HALF = 4, 2  # bytes of a number in fp32 and in bf16
GATHERED = FULL  # of a weight that FSDP gathers: autocast makes its bf16 copy afterwards
SPARE = 0.08  # share of a GPU's memory for CUDA, NCCL and gaps between tensors


@dataclass(frozen=True)
class Memory:
    """Bytes of one GPU by use.

    Attributes:
        weights: Weights in fp32.
        gradients: Gradients in fp32.
        optimizer: AdamW's moments.
        copies: Copies of the matrices in bf16.
        activations: What the forward pass keeps for the backward pass.
        logits: Scores of the vocabulary.
        buffers: What FSDP gathers and sends.

    Example:
        >>> Memory(weights=4, gradients=4, optimizer=8, copies=2, activations=9, logits=1, buffers=0).total
        28
    """

    weights: float
    gradients: float
    optimizer: float
    copies: float
    activations: float
    logits: float
    buffers: float

    @property
    def total(self) -> float:
        """All bytes together."""
        return sum(getattr(self, field.name) for field in fields(self))


def memory_of(sharding: Sharding, found: Costs, checkpointing: bool) -> Memory:
    """The bytes of one GPU for a micro-batch of `found`."""
    parameters, shards, tensor = found.parameters, sharding.shards, sharding.tensor
    kept = checkpointed(found, tensor) if checkpointing else kept_activations(found, tensor)
    return Memory(
        weights=FULL * parameters / shards,
        gradients=FULL * parameters / shards,
        optimizer=2 * FULL * parameters / shards,
        copies=found.memory["copies"] / tensor,
        activations=kept,
        logits=found.memory["logits"] / tensor,
        buffers=buffers(found) / tensor if sharding.gathers else 0.0,
    )


def buffers(found: Costs) -> float:
    """What FSDP gathers and scatters: the weights of two blocks and of all that is in no block, and the
    gradients of the largest of these, before and after they are put in order to be sent."""
    parts = all_parts(found)
    blocks = [part for part in parts if is_block(part)]
    largest = max((part.parameters // part.count for part in blocks), default=0)
    outside = found.parameters - sum(part.parameters for part in blocks)
    return GATHERED * (2 * largest + outside) + 2 * FULL * max(largest, outside)


def all_parts(found: Costs) -> list[Part]:
    """Parts in which blocks are found: of a model, or of its encoder and its decoder."""
    if found.source_length is None:
        return list(found.whole.parts)
    return [part for side in found.whole.parts for part in side.parts]


def kept_activations(found: Costs, tensor: int) -> float:
    """Bytes that the forward pass keeps for the backward pass."""
    return sum(kept_by(part, tensor) for part in all_parts(found))


def kept_by(part: Part, tensor: int) -> float:
    """Bytes that a part keeps on each of the GPUs that share its products."""
    if tensor == 1:
        return part.kept
    everywhere = min(part.kept, kept_everywhere(part))
    return everywhere + (part.kept - everywhere) / tensor


def kept_everywhere(part: Part) -> float:
    """What each GPU keeps whole: inputs of norms in fp32, and those of layers in bf16."""
    norms = sum(run.numbers for run in norms_of(part))
    return FULL * norms + HALF * layers_of(part) * vectors_of(part)


def checkpointed(found: Costs, tensor: int) -> float:
    """The same with activation checkpointing: the input of every block, and all that one block keeps."""
    parts = all_parts(found)
    blocks = [part for part in parts if is_block(part)]
    inputs = sum(part.count * HALF * vectors_of(part) for part in blocks)
    one = max((kept_by(part, tensor) / part.count for part in blocks), default=0.0)
    return inputs + one + sum(kept_by(part, tensor) for part in parts if not is_block(part))
