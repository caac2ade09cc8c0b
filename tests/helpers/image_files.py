"""What several tests share with tests/data/test_images.py."""

import gzip
import struct
import zlib

import numpy as np

from heedful.data.images import files as images

H, W = 6, 9


def pixels(channels=3, height=H, width=W, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def put(path, channels=3, seed=0, **size):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(images.png_bytes(pixels(channels, seed=seed, **size)))
    return path


def huge_png(width, height):
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [header, b"IDAT" + zlib.compress(b"\0" * 100), b"IEND"]
    body = b"".join(struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks)
    return b"\x89PNG\r\n\x1a\n" + body


def idx(array):
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def by_class(folder, **counts):
    for name, count in counts.items():
        for i in range(count):
            put(folder / name / f"{i}.png", seed=i)
    return folder


def write_idx(folder, train=25, test=7, labels=3):
    folder.mkdir(exist_ok=True)
    for part, count in (("train", train), ("t10k", test)):
        known = np.random.default_rng(count).integers(0, 256, (count, H, W), dtype=np.uint8)
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(known)))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(count, dtype=np.uint8) % labels))
    return folder
