"""The tensors of a GGUF file beside ours: their names, and the order of rows in queries and keys.

llama.cpp rotates neighboring dimensions of a query and a key; heedful, like Hugging Face, rotates those half
a head apart. Files of the architecture "llama" therefore hold the rows of both projections in another order.
"""

from __future__ import annotations

from torch import Tensor

# {theirs: ours}
NAMES = {
    "token_embd.weight": "inputs.tokens.weight",
    "output_norm.weight": "stack.norm.weight",
    "output.weight": "head.linear.weight",
    "blk.{}.attn_norm.weight": "stack.blocks.{}.attention.norm.weight",
    "blk.{}.ffn_norm.weight": "stack.blocks.{}.feed_forward.norm.weight",
    "blk.{}.attn_q_norm.weight": "stack.blocks.{}.attention.layer.query_norm.weight",
    "blk.{}.attn_k_norm.weight": "stack.blocks.{}.attention.layer.key_norm.weight",
} | {
    f"blk.{{}}.{theirs}.{part}": f"stack.blocks.{{}}.{ours}.{part}"
    for theirs, ours in {
        "attn_q": "attention.layer.query",
        "attn_k": "attention.layer.key",
        "attn_v": "attention.layer.value",
        "attn_output": "attention.layer.out",
        "ffn_gate": "feed_forward.layer.gate",
        "ffn_up": "feed_forward.layer.up",
        "ffn_down": "feed_forward.layer.down",
    }.items()
    for part in ("weight", "bias")
}
TURNED = ("attn_q.", "attn_k.")  # whose rows stand in another order


def halved(rows: Tensor, key_width: int) -> Tensor:
    """Within each head, rows in pairs (0 1)(2 3).. put into halves: all first ones, then all second ones."""
    return rows.unflatten(0, (-1, key_width // 2, 2)).transpose(1, 2).flatten(0, 2)


def paired(rows: Tensor, key_width: int) -> Tensor:
    """The way back."""
    return rows.unflatten(0, (-1, 2, key_width // 2)).transpose(1, 2).flatten(0, 2)


def table_of(layers: int) -> dict[str, str]:
    """{theirs: ours} of every tensor that a model of so many layers may have."""
    table = {}
    for theirs, ours in NAMES.items():
        for layer in range(layers if "{}" in theirs else 1):
            table[theirs.format(layer)] = ours.format(layer)
    return table
