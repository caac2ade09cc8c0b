"""The layers that PEFT's adapters stand beside, and what they are called.

theirs   base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight   [rank, in]; lora_B
ours     encoder.stack.blocks.0.attention.layer.query.A                             [out, rank], and B
"""

from __future__ import annotations

import math

import torch

from ...errors import BadInput
from ...models.hf.names import Rule

BEFORE = "base_model.model."  # what all their names begin with
HEADS = {"classify": "SEQ_CLS", "tag": "TOKEN_CLS", "span": "QUESTION_ANS"}  # and what PEFT calls their tasks


def is_turned(rule: Rule, sizes: list[tuple[int, ...]]) -> bool:
    """Whether their weight is [in, out]. Otherwise it must be ours, one below the other; or it is refused."""
    ours = torch.arange(sum(math.prod(size) for size in sizes)).view(-1, sizes[0][1])
    theirs = rule.join(ours.split([size[0] for size in sizes]))
    if theirs.shape == ours.shape and torch.equal(theirs, ours):
        return False
    if theirs.T.shape == ours.shape and torch.equal(theirs.T, ours):
        return True
    raise BadInput(f"{rule.ours[0]} is in another order over there, which adapters of theirs cannot follow")
