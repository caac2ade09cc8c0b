"""Costs: how many numbers a model learns, computes and keeps, by arithmetic. Parts without a rule are counted
by torch.

Parameters: every weight once, also where it is used twice (tied embeddings). Active ones are those that a
token meets: of a layer's experts, it meets the few that it is sent to.

FLOPs: matrix products only, two for each multiply-and-add. Attention counts all S keys for every query:
masks, the causal one included, are not taken off, since a model that computes the whole table pays for all of
it. Training is three times the forward pass: the backward pass has two products for each of its one.

Memory: weights, gradients and AdamW's two moments in fp32; what the forward pass keeps for the backward pass;
and the keys and values a decoder keeps while it writes. What is kept is counted where it is used, each tensor
once, as the kernels of a GPU keep it: attention is fused (query, key, value, output and one log-sum-exp a
row, never a table of scores), a norm keeps its input and its statistics, dropout keeps one byte a number.
With bf16 (autocast) matrix products keep 2 bytes a number, norms keep 4, and each matrix has a second copy of
2. The batch itself and the loss are not counted. What is frozen is computed once, forwards, and has neither
gradients nor moments.

estimate.py   costs(model): everything together
part.py, tally.py   how the costs of parts add up, and the rules of the smallest ones
models.py, layers.py, embeddings.py, positions.py, heads.py, before.py   the rules, by kind of part
counted.py    what becomes of a part without a rule, and of any attention alone
memory.py     bytes by use
sizes.py      other sizes, the length at which attention costs most, the largest batch that fits
picture.py    parameters, FLOPs and memory as bars
explain.py    the formulas of memory, and seconds at the rates of a machine
"""

from .counted import count_attention
from .estimate import Costs, costs, default_length
from .explain import Figure, memory_formulas, seconds
from .part import Part, count_active, count_parameters
from .sizes import changed, crossover, largest_batch, lengths_of, sizes_of

__all__ = [
    "Costs", "Figure", "Part", "changed", "costs", "count_active", "count_attention", "count_parameters",
    "crossover", "default_length", "largest_batch", "lengths_of", "memory_formulas", "seconds", "sizes_of",
]  # fmt: skip
