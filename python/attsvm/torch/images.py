"""Images for a model that takes them: files, or scikit-learn's digits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 8  # of 197 patches: about as many tokens as a batch of sentences
MADE = 200  # digits: as many as 50,000 tokens hold in the usual 197 patches
SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}


def find_images(files: Sequence[Path]) -> tuple[list[Any], str]:
    """Paths of image files (those of a folder, in order), or arrays of digits where none are given; and in words."""
    if not files:
        return _digits(), f"{MADE} images (handwritten digits of scikit-learn, resized by the model's processor)"
    found: list[Path] = []
    for path in map(Path, files):
        if path.is_dir():
            found += sorted(inner for inner in path.iterdir() if inner.suffix.lower() in SUFFIXES)
        else:
            found.append(path)
    if len(found) < 2:
        raise ValueError(f"{', '.join(map(str, files))} has {len(found)} images, too few to learn from")
    return list(found), f"{len(found)} images"


def _digits() -> list[np.ndarray]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ValueError(
            "the model takes images: give a folder of them, or image files (without scikit-learn there are no example "
            "images)"
        ) from None
    return [(15 * image).astype(np.uint8) for image in load_digits().images[:MADE]]  # 0 .. 16 there


def image_batches(processor: Any, images: Sequence[Any], channels: int) -> Iterator[dict[str, Any]]:
    """What the model takes, some images at a time."""
    for at in range(0, len(images), BATCH):
        opened = [_opened(image, "L" if channels == 1 else "RGB") for image in images[at : at + BATCH]]
        yield {"pixel_values": processor(images=opened, return_tensors="pt")["pixel_values"]}


def _opened(image: Any, mode: str) -> Any:
    from PIL import Image

    if isinstance(image, np.ndarray):
        return Image.fromarray(image).convert(mode)
    try:
        with Image.open(image) as file:
            return file.convert(mode)
    except FileNotFoundError:
        raise
    except Exception as error:  # a damaged file raises whatever the format's reader raises
        raise ValueError(f"{image} is not an image: {error}") from None
