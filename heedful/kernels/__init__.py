"""Kernels for GPUs, where small work is all launches and large work all memory: each does at once what the parts do one
after the other, and is proven equal to them.

For the decoding step: `linear`, `attend`, `embed`, `choose`, `beam`. For training: `loss`. They are written in Triton,
which comes with torch for CUDA; nothing imports them where it is missing.
"""

from importlib.util import find_spec

THERE = find_spec("triton") is not None
