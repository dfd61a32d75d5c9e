"""Small pictures as PNG files, without an imaging library."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from jaxtyping import UInt8

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def png(pixels: UInt8[np.ndarray, "row column 3"]) -> bytes:
    """An RGB picture as the bytes of a PNG file.

    >>> png(np.zeros((2, 3, 3), np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    rows, columns, _ = pixels.shape
    # Every row begins with the number of its filter: 0, none.
    lines = np.concatenate([np.zeros((rows, 1), np.uint8), pixels.reshape(rows, -1)], axis=1)
    head = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)  # 8 bits a channel, RGB
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return _SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )


def to_bytes(images: np.ndarray) -> UInt8[np.ndarray, "..."]:
    """Pixels from -1 (black) to 1 as whole numbers from 0 to 255."""
    return np.clip(np.rint((images + 1) * 127.5), 0, 255).astype(np.uint8)
