"""What several tests share with tests/models/test_long_models.py."""

from heedful.models import dmca, linear, sparse, xl
from helpers import tiny

SIZES = {"vocab": tiny.VOCAB, "context": 31, "width": 12, "heads": 3, "ffn_width": 20}


LONG = {
    "xl": (xl, xl.XLConfig(**SIZES, layers=2, memory_length=5, eval_memory_length=200, max_distance=300)),
    "xl, clamped": (
        xl,
        xl.XLConfig(**SIZES, layers=2, memory_length=5, eval_memory_length=200, max_distance=4),
    ),
    "strided": (
        sparse,
        sparse.SparseConfig(**SIZES, layers=2, pattern="strided", stride=3, summary_length=1),
    ),
    "strided, merged": (
        sparse,
        sparse.SparseConfig(
            **SIZES, layers=2, pattern="strided", head_pattern="merged", stride=2, summary_length=1
        ),
    ),
    "strided, by head": (
        sparse,
        sparse.SparseConfig(
            **SIZES, layers=2, pattern="strided", head_pattern="heads", stride=2, summary_length=1
        ),
    ),
    "t-dmca": (dmca, dmca.DMCAConfig(**SIZES, layers=5, block=16)),
    "t-dmca, tensor2tensor": (
        dmca,
        dmca.DMCAConfig(**SIZES, layers=3, block=5, look_back=True, compress="input", norm="pre"),
    ),
    "compressed only": (dmca, dmca.DMCAConfig(**SIZES, layers=2, layer_pattern="mf")),
    "t-d": (dmca, dmca.DMCAConfig(**SIZES, layers=2, layer_pattern="f")),
    "linear": (linear, linear.LinearConfig(**SIZES, layers=2)),
}


# These attend to blocks of the row: what stands in a block depends on where in the row a text begins.
BLOCKED = {
    "fixed": (sparse, sparse.SparseConfig(**SIZES, layers=2, pattern="fixed", stride=4, summary_length=1)),
    "fixed, merged": (
        sparse,
        sparse.SparseConfig(
            **SIZES, layers=2, pattern="fixed", head_pattern="merged", stride=5, summary_length=2
        ),
    ),
    "fixed, by head": (
        sparse,
        sparse.SparseConfig(
            **SIZES, layers=2, pattern="fixed", head_pattern="heads", stride=4, summary_length=2
        ),
    ),
    "window": (sparse, sparse.SparseConfig(**SIZES, layers=2, pattern="window", stride=3, summary_length=1)),
    "local": (dmca, dmca.DMCAConfig(**SIZES, layers=2, layer_pattern="l", block=3)),
}


ALL = {**LONG, **BLOCKED}
