"""Image files: read with care, into rows of 8-bit pixels.

A file's header is looked at before anything is decoded, so that a small file cannot ask for all memory. PNG
and JPEG are read by Pillow (`pip install heedful[vision]`), PPM, PGM and IDX by hand.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import struct
import warnings
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ...errors import BadInput
from ...files import naming, one_line

ENDINGS = (".png", ".jpg", ".jpeg", ".ppm", ".pgm")
MOST_PIXELS = 50_000_000  # of one image
MOST_BYTES = 200_000_000  # of one file
MOST_IN_IDX = 4_000_000_000

# Pillow's modes that become gray or color without losing what can be seen; others are refused.
MODES = {"1": "L", "L": "L", "RGB": "RGB", "CMYK": "RGB", "YCbCr": "RGB"}
MODES |= dict.fromkeys(("P", "LA", "PA", "RGBA"), "RGBA")

NETPBM = re.compile(rb"P([56])\s+(?:#[^\n]*\n\s*)*(\d{1,9})\s+(\d{1,9})\s+(\d{1,5})\s")


def is_image(path: Path) -> bool:
    """Whether a file's name says that it is an image."""
    return path.suffix.lower() in ENDINGS


def read_image(path: str | Path, on_white: bool = True) -> np.ndarray:
    """Read an image file: PNG and JPEG by Pillow, PPM and PGM without it.

    Args:
        path: The file.
        on_white: What is transparent becomes white. Otherwise its hidden color is taken.

    Returns:
        Pixels from 0 to 255: [H, W, 1] for gray, [H, W, 3] for red, green and blue.

    Raises:
        BadInput: The file is damaged, too large, or of another kind.

    Example:
        >>> _ = Path("dark.png").write_bytes(png_bytes(np.zeros((2, 3, 3), np.uint8)))
        >>> read_image("dark.png").shape
        (2, 3, 3)
    """
    path = Path(path)
    with naming(path):
        if not path.is_file():
            raise BadInput(f"{path} is {'not a file' if os.path.lexists(path) else 'not there'}")
        size = path.stat().st_size
        if not size:
            raise BadInput("the file is empty: remove it, or put a whole copy there")
        if size > MOST_BYTES:
            raise BadInput(f"the file has {size:,} bytes; at most {MOST_BYTES:,} are read")
        with open(path, "rb") as file:
            return image_in(file, on_white)


def image_in(file: BinaryIO, on_white: bool = True) -> np.ndarray:
    """The same of an open file, or of bytes in memory."""
    first = file.read(2)
    file.seek(0)
    return read_netpbm(file.read()) if first in (b"P5", b"P6") else read_by_pillow(file, on_white)


def refuse_large(width: int, height: int) -> None:
    """Before decoding: what would take too much memory."""
    if not width or not height:
        raise BadInput(f"the image has {width} x {height} pixels: there is nothing to see")
    if width * height > MOST_PIXELS:
        why = f"the image says it has {width:,} x {height:,} pixels"
        raise BadInput(f"{why}; at most {MOST_PIXELS:,} are decoded: make it smaller")


def read_netpbm(data: bytes) -> np.ndarray:
    """A binary PGM or PPM."""
    header = NETPBM.match(data)
    if header is None:
        raise BadInput("the header is no PGM's or PPM's: put a whole copy there")
    kind, width, height, most = (int(part) for part in header.groups())
    refuse_large(width, height)
    if most != 255:
        raise BadInput(f"its brightest value is {most}: save it with 8 bits, that is 255")
    channels = 3 if kind == 6 else 1
    pixels = np.frombuffer(data, np.uint8, offset=header.end())
    if pixels.size != width * height * channels:
        raise BadInput(
            f"it should have {width * height * channels:,} bytes of pixels and has {pixels.size:,}: "
            f"put a whole copy there"
        )
    return pixels.reshape(height, width, channels)


def read_by_pillow(file: BinaryIO, on_white: bool) -> np.ndarray:
    """A PNG or JPEG."""
    image_module = pillow()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's own about large images: they are refused here
        try:
            image = image_module.open(file, formats=("PNG", "JPEG"))
        except image_module.DecompressionBombError:
            raise BadInput(
                f"its header asks for more than {MOST_PIXELS:,} pixels: make the image smaller"
            ) from None
        except Exception:  # noqa: BLE001 (of many kinds, and none of them says it better)
            raise BadInput(
                "it is no PNG, JPEG, PPM or PGM that can be read: put a whole copy there"
            ) from None
        refuse_large(*image.size)
        if image.mode not in MODES:
            raise BadInput(f'its pixels are of the kind "{image.mode}": save it with 8 bits a color')
        try:
            image.load()
            upright = import_module("PIL.ImageOps").exif_transpose(
                image
            )  # a camera may have been held sideways
            mode = MODES[image.mode] if on_white or MODES[image.mode] != "RGBA" else "RGB"
            return flattened(upright.convert(mode), image_module)
        except Exception as error:  # noqa: BLE001
            why = one_line(str(error))[:120] or type(error).__name__
            raise BadInput(f"the image is damaged or cut off ({why}): put a whole copy there") from None


def flattened(image: Any, image_module: Any) -> np.ndarray:
    """Pixels, with what is transparent laid on white."""
    if image.mode == "RGBA":
        white = image_module.new("RGBA", image.size, (255, 255, 255, 255))
        image = image_module.alpha_composite(white, image).convert("RGB")
    pixels = np.array(image, np.uint8)
    return pixels if pixels.ndim == 3 else pixels[..., None]


def pillow() -> Any:
    try:
        return import_module("PIL.Image")
    except ImportError:
        raise BadInput(
            "PNG and JPEG are read by Pillow, which is not here: pip install heedful[vision]"
        ) from None


# IDX, the format of MNIST


def read_idx(path: str | Path) -> np.ndarray:
    """An IDX file of bytes, plain or gzip, as an array of the shape that its header gives."""
    path = Path(path)
    with naming(path):
        try:
            with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
                return idx_in(file)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise BadInput("the gzip file is damaged or cut off: put a whole copy there") from None


def idx_in(file: Any) -> np.ndarray:
    start = file.read(4)
    if len(start) != 4 or start[:2] != b"\0\0" or start[2] != 8 or not 1 <= start[3] <= 4:
        raise BadInput("it is no IDX file of bytes, which begins with 0, 0, 8 and 1 to 4 for its dimensions")
    sizes = file.read(4 * start[3])
    if len(sizes) != 4 * start[3]:
        raise BadInput("its header is cut off: put a whole copy there")
    shape = struct.unpack(f">{start[3]}I", sizes)
    count = math.prod(shape)
    if not 0 < count <= MOST_IN_IDX:
        raise BadInput(
            f"its header asks for {' x '.join(map(str, shape))} bytes; 1 to {MOST_IN_IDX:,} are read"
        )
    data = file.read(count + 1)
    if len(data) != count:
        many = "fewer" if len(data) < count else "more"
        raise BadInput(f"its header speaks of {count:,} bytes, and there are {many}: put a whole copy there")
    return np.frombuffer(data, np.uint8).reshape(shape)


# Writing


def png_bytes(pixels_HWC: np.ndarray) -> bytes:
    """A PNG of 8-bit pixels, [H, W, 1] or [H, W, 3]."""
    height, width, channels = pixels_HWC.shape
    if pixels_HWC.dtype != np.uint8 or channels not in (1, 3):
        raise TypeError(f"pixels are [H, W, 1 or 3] of uint8, not {pixels_HWC.shape} of {pixels_HWC.dtype}")
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # a 0 before each row: it is not filtered
    rows[:, 1:] = pixels_HWC.reshape(height, -1)
    kind = 2 if channels == 3 else 0
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0),
        b"IDAT": zlib.compress(rows.tobytes(), 9),
        b"IEND": b"",
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts.items()
    )
