"""Weights as other formats store them, rounded here: what the other library reads must equal them.

A quantized model differs from the original, and nobody can say by the difference alone whether a weight was
damaged. A model that heedful itself rounds in the same way differs from the export by nothing but damage.

    int8     rows of a matrix, each with one scale
    uint8    a whole table, with one scale and one zero point
    q8_0     blocks of 32 numbers of a row, each with one scale in float16
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from .loaded import Loaded

BLOCK = 32  # numbers that share a scale in q8_0
LARGEST = np.float32(127)
HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def with_weights(loaded: Loaded, weights: Mapping[str, Tensor]) -> Loaded:
    """The same model with other values of these parameters."""
    model = deepcopy(loaded.model)
    with torch.no_grad():
        for name, value in weights.items():
            model.get_parameter(name).copy_(value)
    return replace(loaded, model=model)


def in_half(weight: Tensor, kind: str) -> Tensor:
    """A weight stored as float16 or bfloat16, in float32 again."""
    return weight.detach().to(HALVES[kind]).float()


def int8_rows(weight: Tensor) -> Tensor:
    """CTranslate2's int8: the scale of a row multiplies it, and divides what is read."""
    rows = array(weight)
    largest = np.abs(rows).max(1, keepdims=True)
    largest[largest == 0] = LARGEST
    scales = 127.0 / largest
    return tensor(np.rint(rows * scales) / scales)


def int8_channels(weight: Tensor) -> Tensor:
    """onnxruntime's int8 of a matrix: the same, with the inverse scale."""
    rows = array(weight)
    scales = (2 * np.abs(rows).max(1, keepdims=True).astype(np.float64) / 254).astype(np.float32)
    scales[scales == 0] = 1
    return tensor(np.round(rows / scales) * scales)


def uint8_table(weight: Tensor) -> Tensor:
    """onnxruntime's uint8 of a table: the range from its least to its largest number, in 255 steps."""
    table = array(weight)
    least, most = min(np.float64(table.min()), 0.0), max(np.float64(table.max()), 0.0)
    step = (most - least) / 255
    if step == 0:
        return weight.detach().float()
    zero, scale = np.float32(np.round(-least / step)), np.float32(step)
    return tensor((np.clip(np.round(table / scale + zero), 0, 255) - zero) * scale)


def q8_0_blocks(weight: Tensor) -> Tensor:
    """llama.cpp's Q8_0: halves are rounded away from zero, and the scale is rounded to float16."""
    blocks = array(weight).reshape(-1, BLOCK)
    scales = np.abs(blocks).max(1, keepdims=True) / LARGEST
    with np.errstate(divide="ignore"):
        inverse = np.where(scales == 0, np.float32(0), 1 / scales)
    scaled = np.abs(blocks * inverse)
    whole = np.floor(scaled)
    whole = np.sign(blocks) * (whole + np.floor(2 * (scaled - whole)))
    return tensor(whole * scales.astype(np.float16).astype(np.float32)).view(weight.shape)


def array(weight: Tensor) -> np.ndarray:
    return weight.detach().float().cpu().numpy()


def tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.float32))
