"""The quantized weights of GGUF files, unpacked to fp32: each row is cut into blocks that share a scale.

    Q8_0, Q4_0, Q5_0    32 whole numbers q and one scale d:          d q
    Q4_1, Q5_1          the same and a least value m:                d q + m
    Q2_K .. Q6_K        256 numbers in groups of 16 or 32, whose scales (and least values) are integers

The order of operations is that of llama.cpp, so that results are the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Array = np.ndarray
AT_ONCE = 1 << 14  # blocks unpacked at a time: what is between packed and unpacked stays small


def unpack(data: memoryview, kind: QuantizationType) -> Array:
    """All values of a tensor in one row, in fp32."""
    packed = np.frombuffer(data, dtype=np.uint8).reshape(-1, kind.bytes)
    numbers = np.empty((len(packed), kind.block), dtype=np.float32)
    with np.errstate(all="ignore"):  # damaged scales may be infinite
        for start in range(0, len(packed), AT_ONCE):
            blocks = packed[start : start + AT_ONCE]
            numbers[start : start + AT_ONCE] = kind.unpack(blocks).reshape(len(blocks), kind.block)
    return numbers.reshape(-1)


def half(bytes_N2: Array) -> Array:
    """Two bytes as one fp16 number, in fp32."""
    return np.ascontiguousarray(bytes_N2).view(np.float16).astype(np.float32)


def bits(bytes_NX: Array, width: int, shifts: tuple[int, ...], row: int) -> Array:
    """Numbers of `width` bits out of bytes, `row` bytes at a time: by the first shift, by the next."""
    cut = bytes_NX.reshape(len(bytes_NX), -1, 1, row) >> np.array(shifts, np.uint8).reshape(1, 1, -1, 1)
    return (cut & np.uint8((1 << width) - 1)).reshape(len(bytes_NX), -1)


def fifth_bits(bytes_N4: Array) -> Array:
    """The 32 bits of four bytes, lowest first, each at the place of 16."""
    return np.unpackbits(bytes_N4, axis=1, bitorder="little") << np.uint8(4)


def f32(b: Array) -> Array:
    return np.ascontiguousarray(b).view(np.float32)


def bf16(b: Array) -> Array:
    return (np.ascontiguousarray(b).view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def q8_0(b: Array) -> Array:
    return b[:, 2:].view(np.int8).astype(np.float32) * half(b[:, :2])


def q4_0(b: Array) -> Array:
    q = bits(b[:, 2:], 4, (0, 4), 16).astype(np.int8) - np.int8(8)
    return half(b[:, :2]) * q.astype(np.float32)


def q4_1(b: Array) -> Array:
    return half(b[:, :2]) * bits(b[:, 4:], 4, (0, 4), 16).astype(np.float32) + half(b[:, 2:4])


def q5_0(b: Array) -> Array:
    q = (bits(b[:, 6:], 4, (0, 4), 16) | fifth_bits(b[:, 2:6])).astype(np.int8) - np.int8(16)
    return half(b[:, :2]) * q.astype(np.float32)


def q5_1(b: Array) -> Array:
    q = bits(b[:, 8:], 4, (0, 4), 16) | fifth_bits(b[:, 4:8])
    return half(b[:, :2]) * q.astype(np.float32) + half(b[:, 2:4])


def q2_k(b: Array) -> Array:
    scales, d, least = b[:, :16], half(b[:, 80:82]), half(b[:, 82:84])
    q = bits(b[:, 16:80], 2, (0, 2, 4, 6), 32).reshape(len(b), 16, 16).astype(np.float32)
    scale = d * (scales & np.uint8(15)).astype(np.float32)
    minimum = least * (scales >> np.uint8(4)).astype(np.float32)
    return scale[..., None] * q - minimum[..., None]


def q3_k(b: Array) -> Array:
    """16 scales of six bits: four of each in the first eight bytes, two in the last four."""
    low, high = bits(b[:, 96:104], 4, (0, 4), 8), bits(b[:, 104:108], 2, (0, 2, 4, 6), 4)
    scales = (low | (high << np.uint8(4))).astype(np.int8) - np.int8(32)
    scale = half(b[:, 108:110]) * scales.astype(np.float32)
    less = bits(b[:, :32], 1, tuple(range(8)), 32) ^ np.uint8(1)  # a bit that is not set takes 4 away
    q = bits(b[:, 32:96], 2, (0, 2, 4, 6), 32).astype(np.int8) - (less << np.uint8(2)).astype(np.int8)
    return scale[..., None] * q.reshape(len(b), 16, 16).astype(np.float32)


def eight_scales(b: Array) -> tuple[Array, Array]:
    """Scales and least values of eight groups: d, the least d, and twelve bytes with six bits for each."""
    d, least, packed = half(b[:, :2]), half(b[:, 2:4]), b[:, 4:16]
    one, two, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([one & 63, (rest & 15) | ((one >> 2) & 48)], axis=1)
    minima = np.concatenate([two & 63, (rest >> 4) | ((two >> 2) & 48)], axis=1)
    return (d * scales.astype(np.float32))[..., None], (least * minima.astype(np.float32))[..., None]


def q4_k(b: Array) -> Array:
    scale, minimum = eight_scales(b)
    q = bits(b[:, 16:], 4, (0, 4), 32).reshape(len(b), 8, 32).astype(np.float32)
    return scale * q - minimum


def q5_k(b: Array) -> Array:
    scale, minimum = eight_scales(b)
    q = bits(b[:, 48:], 4, (0, 4), 32) | (bits(b[:, 16:48], 1, tuple(range(8)), 32) << np.uint8(4))
    return scale * q.reshape(len(b), 8, 32).astype(np.float32) - minimum


def q6_k(b: Array) -> Array:
    scales = np.ascontiguousarray(b[:, 192:208]).view(np.int8).astype(np.float32)
    q = bits(b[:, :128], 4, (0, 4), 64) | (bits(b[:, 128:192], 2, (0, 2, 4, 6), 32) << np.uint8(4))
    q = (q.astype(np.int8) - np.int8(32)).reshape(len(b), 16, 16)
    return (half(b[:, 208:210]) * scales)[..., None] * q.astype(np.float32)


@dataclass(frozen=True)
class QuantizationType:
    """A type of ggml's: how blocks of weights are stored."""

    name: str
    block: int  # numbers in a block
    bytes: int  # of a block
    unpack: Callable[[Array], Array]


KINDS = {
    0: QuantizationType("F32", 1, 4, f32),
    1: QuantizationType("F16", 1, 2, half),
    2: QuantizationType("Q4_0", 32, 18, q4_0),
    3: QuantizationType("Q4_1", 32, 20, q4_1),
    6: QuantizationType("Q5_0", 32, 22, q5_0),
    7: QuantizationType("Q5_1", 32, 24, q5_1),
    8: QuantizationType("Q8_0", 32, 34, q8_0),
    10: QuantizationType("Q2_K", 256, 84, q2_k),
    11: QuantizationType("Q3_K", 256, 110, q3_k),
    12: QuantizationType("Q4_K", 256, 144, q4_k),
    13: QuantizationType("Q5_K", 256, 176, q5_k),
    14: QuantizationType("Q6_K", 256, 210, q6_k),
    30: QuantizationType("BF16", 1, 2, bf16),
}
