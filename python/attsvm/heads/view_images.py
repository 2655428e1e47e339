"""Images of the interactive view, as PNG files inside the page."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..common.check import as_numeric

LARGEST = 224  # pixels to a side; of larger ones every second, third, .. pixel


def as_images(images: Iterable[Any] | None) -> list[str]:
    """Addresses that hold the images: (height, width, 3) bytes, or (3, height, width) floats, between their smallest
    (black) and largest (white)."""
    found = []
    for k, image in enumerate(() if images is None else images):
        pixels = as_numeric(f"images[{k}]", image)
        if pixels.dtype == np.uint8 and pixels.ndim == 3 and pixels.shape[2] == 3:
            colours = pixels
        elif pixels.dtype.kind == "f" and pixels.ndim == 3 and pixels.shape[0] == 3:
            low, high = float(pixels.min()), float(pixels.max())
            colours = (255 * (pixels - low) / max(high - low, 1e-300)).round().astype(np.uint8).transpose(1, 2, 0)
        else:
            raise ValueError(
                f"images[{k}] must be (height, width, 3) uint8 or (3, height, width) floats, got {pixels.dtype} of "
                f"shape {pixels.shape}"
            )
        step = -(-max(colours.shape[:2]) // LARGEST)
        found.append("data:image/png;base64," + base64.b64encode(_png(colours[::step, ::step])).decode())
    return found


def _png(colours: np.ndarray) -> bytes:
    """8 bits a colour, each row after a zero (no filter)."""
    height, width, _ = colours.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), colours.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    chunks = (struct.pack(">I", len(b)) + a + b + struct.pack(">I", zlib.crc32(a + b)) for a, b in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
