"""Models that the transformers library loads from a folder or its local cache, and their text or images."""

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..common.progress import counted
from ..heads.head import Head
from ..heads.sequences import EXAMPLE, read_sentences
from .read import read

BATCH = 32  # largest number of sentences in a batch, all of one length
IMAGES = 8  # largest number of images in a batch: with 197 patches each, about as many tokens as a batch of sentences
MADE = 200  # number of images of digits that are read if no image files are given, with 197 patches each
SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
SAMPLE = 3  # number of batches on which the damage is measured, with one forward pass of each batch for each head
IMAGE_INPUT = "pixel_values"  # name of the main input of a model that takes images
LONGEST = 10_000  # a sentence of more characters than this is left out before it is cut into tokens


def load(model: Any) -> tuple[torch.nn.Module, Any]:
    """Returns a model; and its tokenizer or, for a model that takes images, its image processor.

    They come from a folder, or from the local cache by a name; nothing is downloaded.

    Parameters
    ----------
    model : path-like or str

    Returns
    -------
    torch.nn.Module, tokenizer or image processor

    Raises
    ------
    ValueError
        If the model cannot be loaded (the message says why), or takes neither text nor images.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

    name = str(model)
    try:
        loaded = AutoModel.from_pretrained(name, local_files_only=True).float().eval()
        taken = getattr(loaded, "main_input_name", "input_ids")
        makers = {"input_ids": AutoTokenizer, IMAGE_INPUT: AutoImageProcessor}
        if taken not in makers:
            raise ValueError(f"it takes {taken}, not text or images: use attsvm.torch.read")
        return loaded, makers[taken].from_pretrained(name, local_files_only=True)
    except Exception as error:  # a damaged folder can raise any exception
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"transformers cannot load {name}: {reason[0]}") from None


def text_batches(
    tokenizer: Any, sentences: Sequence[str], low: int, high: int, both: bool
) -> tuple[list[dict[str, torch.Tensor]], int]:
    """Returns batches of the sentences with ``low`` to ``high`` tokens; and the number of these sentences.

    All sentences of a batch have the same length, so that there is no padding.  ``both``: the model has an encoder and
    a decoder, which get the same tokens.
    """
    rows = [tokenizer(sentence)["input_ids"] for sentence in sentences if len(sentence) <= LONGEST]
    rows = sorted((ids for ids in rows if low <= len(ids) <= high), key=len)
    names = ["input_ids", "decoder_input_ids"] if both else ["input_ids"]
    found = [
        dict.fromkeys(names, ids) | {"attention_mask": torch.ones_like(ids)}
        for _, group in itertools.groupby(rows, len)
        for ids in torch.tensor(list(group)).split(BATCH)
    ]
    return found, len(rows)


def read_pretrained(
    model: Any, files: Sequence[Path], lengths: tuple[int, int], progress: bool | None, **options: Any
) -> tuple[list[Head], str, torch.nn.Module, list[Any]]:
    """The attention heads of a model that transformers loads from a folder or its local cache, and some inputs.

    ``files`` is a text file of sentences, by default the example sentences.  For a model that takes images it is a
    folder or image files, by default scikit-learn's digits.  Sentences with fewer or more tokens than ``lengths`` are
    left out.  The options are those of :func:`read`.

    Returns the heads, a sentence on the inputs, the model, and ``SAMPLE`` of the batches, evenly spaced.

    Raises
    ------
    ValueError
        As :func:`read`; if the model cannot be loaded, or too few sentences or images are left.
    """
    loaded, processor = load(model)
    if getattr(loaded, "main_input_name", None) == IMAGE_INPUT:
        images, words = find_images(files)
        channels = getattr(loaded.config, "num_channels", 3)
        batches: Iterable[Any] = image_batches(processor, images, channels)
        total, tokenizer = -(-len(images) // IMAGES), None
        sample = list(image_batches(processor, images[:: -(-len(images) // (SAMPLE * IMAGES))], channels))
    else:
        if len(files) > 1:
            raise ValueError(f"{model} reads text: one file of it is taken, got {len(files)}")
        sentences = read_sentences(files[0] if files else EXAMPLE)
        low, high = lengths
        high = min(high, int(getattr(loaded.config, "max_position_embeddings", None) or high))
        both = getattr(loaded.config, "is_encoder_decoder", False)
        found, total = text_batches(processor, sentences, low, high, both)
        if total < 2:
            raise ValueError(f"the text has {total} sentences of {low} to {high} tokens, too few to learn from")
        words = f"{total} of {len(sentences)} sentences ({low} to {high} tokens)"
        batches, total, tokenizer = found, len(found), processor
        sample = found[:: -(-len(found) // SAMPLE)]
    batches = counted(batches, total, "read", "batch", progress)
    return read(loaded, batches, tokenizer, progress=False, **options), words, loaded, sample


def checkpoints(folder: Any) -> list[tuple[int, Path]]:
    """The steps and folders ``checkpoint-STEP`` that a Trainer wrote, in the order of steps."""
    found = [(path.name.rpartition("-")[2], path) for path in Path(folder).glob("checkpoint-*")]
    return sorted((int(step), path) for step, path in found if step.isdecimal())


def find_images(files: Sequence[Path]) -> tuple[list[Any], str]:
    """Returns images as paths of files, or as arrays of digits if no file is given; and a description of the images.

    A folder stands for its image files, in the order of their names.
    """
    if not files:
        return _digits(), f"{MADE} images (handwritten digits of scikit-learn, resized by the model's processor)"
    found: list[Any] = []
    for path in map(Path, files):
        found += sorted(own for own in path.iterdir() if own.suffix.lower() in SUFFIXES) if path.is_dir() else [path]
    if len(found) < 2:
        raise ValueError(f"{', '.join(map(str, files))} has {len(found)} images, too few to learn from")
    return found, f"{len(found)} images"


def _digits() -> list[np.ndarray]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ValueError(
            "the model takes images: give a folder of them, or image files (without scikit-learn there are no example "
            "images)"
        ) from None
    return [(15 * image).astype(np.uint8) for image in load_digits().images[:MADE]]  # pixels have values 0 .. 16


def image_batches(processor: Any, images: Sequence[Any], channels: int) -> Iterator[dict[str, Any]]:
    """Yields batches of a model's inputs, with at most ``IMAGES`` images each."""
    for at in range(0, len(images), IMAGES):
        opened = [_opened(image, "L" if channels == 1 else "RGB") for image in images[at : at + IMAGES]]
        yield {IMAGE_INPUT: processor(images=opened, return_tensors="pt")[IMAGE_INPUT]}


def _opened(image: Any, mode: str) -> Any:
    from PIL import Image

    if isinstance(image, np.ndarray):
        return Image.fromarray(image).convert(mode)
    try:
        with Image.open(image) as file:
            return file.convert(mode)
    except FileNotFoundError:
        raise
    except Exception as error:  # a damaged file can raise any exception
        raise ValueError(f"{image} is not an image: {error}") from None
