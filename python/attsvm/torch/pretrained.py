"""Models that the transformers library loads from a folder, or from its local cache."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from ..common.progress import counted
from ..heads.model import Head
from ..heads.text import EXAMPLE, read_sentences
from .images import BATCH as IMAGES
from .images import find_images, image_batches
from .read import read

BATCH = 32  # sentences of one length
LONGEST = 10_000  # characters of a sentence: more are not cut into tokens, only to see that there are too many


def load(model: Any) -> tuple[torch.nn.Module, Any]:
    """A model and its tokenizer (its image processor where it takes images), from a folder or by a name in the local
    cache; nothing is downloaded.

    Parameters
    ----------
    model : path-like or str

    Returns
    -------
    torch.nn.Module, tokenizer or image processor

    Raises
    ------
    ValueError
        Naming what cannot be loaded, and why; a model that takes neither text nor images.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

    name = str(model)
    try:
        loaded = AutoModel.from_pretrained(name, local_files_only=True).float().eval()
        if takes_images(loaded):
            return loaded, AutoImageProcessor.from_pretrained(name, local_files_only=True)
        taken = getattr(loaded, "main_input_name", "input_ids")
        if taken != "input_ids":
            raise ValueError(f"it takes {taken}, not text or images: use attsvm.torch.read")
        return loaded, AutoTokenizer.from_pretrained(name, local_files_only=True)
    except Exception as error:  # a damaged folder raises whatever the part that met it first raises
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"transformers cannot load {name}: {reason[0]}") from None


def takes_images(model: torch.nn.Module) -> bool:
    """Whether the model looks at images."""
    return getattr(model, "main_input_name", "") == "pixel_values"


def text_batches(
    tokenizer: Any, sentences: Sequence[str], lengths: tuple[int, int], both: bool = False
) -> tuple[list[dict[str, torch.Tensor]], int]:
    """Sentences of these lengths as batches of one length each, so that nothing is padded, and how many there are.

    ``both``: the model has a decoder beside its encoder, which is given the same tokens.
    """
    groups: dict[int, list[list[int]]] = {}
    for sentence in sentences:
        if len(sentence) > LONGEST:
            continue
        ids = tokenizer(sentence)["input_ids"]
        if lengths[0] <= len(ids) <= lengths[1]:
            groups.setdefault(len(ids), []).append(ids)
    found = list(_cut(groups))
    if both:
        found = [{**batch, "decoder_input_ids": batch["input_ids"]} for batch in found]
    return found, sum(len(group) for group in groups.values())


def _cut(groups: dict[int, list[list[int]]]) -> Iterator[dict[str, torch.Tensor]]:
    for length in sorted(groups):
        for at in range(0, len(groups[length]), BATCH):
            ids = torch.tensor(groups[length][at : at + BATCH])
            yield {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def read_pretrained(
    model: Any, files: Sequence[Path] = (), lengths: tuple[int, int] = (10, 50), progress: bool = False, **options: Any
) -> tuple[list[Head], str]:
    """The heads of a model folder (or a name in the local cache), and what it was given, in words.

    Parameters
    ----------
    model : path-like or str
    files : list of path-like
        A text file of sentences, by default the example sentences; for a model that takes images a folder or image
        files, by default scikit-learn's digits.
    lengths : pair of int
        Sentences of fewer or more tokens are left out.
    progress : bool
        Show a bar.
    **options
        As for :func:`read`.

    Returns
    -------
    list of Head, str

    Raises
    ------
    ValueError
        As :func:`read`; where the model cannot be loaded, or too few sentences or images are left.
    """
    loaded, processor = load(model)
    if takes_images(loaded):
        batches: Iterable[Any]
        images, words = find_images(files)
        total = -(-len(images) // IMAGES)
        batches = image_batches(processor, images, getattr(loaded.config, "num_channels", 3))
        tokenizer = None
    else:
        if len(files) > 1:
            raise ValueError(f"{model} reads text: one file of it is taken, got {len(files)}")
        sentences = read_sentences(files[0] if files else EXAMPLE)
        most = getattr(loaded.config, "max_position_embeddings", None) or lengths[1]
        low, high = lengths[0], min(lengths[1], int(most))
        both = bool(getattr(loaded.config, "is_encoder_decoder", False))
        found, total = text_batches(processor, sentences, (low, high), both)
        if total < 2:
            raise ValueError(f"the text has {total} sentences of {low} to {high} tokens, too few to learn from")
        words = f"{total} of {len(sentences)} sentences ({low} to {high} tokens)"
        batches, total, tokenizer = found, len(found), processor
    if progress:
        batches = counted(batches, total, "read", "batch")
    return read(loaded, batches, tokenizer, **options), words


def checkpoints(folder: Any) -> list[tuple[int, Path]]:
    """The ``checkpoint-STEP`` folders that a Trainer wrote, in the order of their steps."""
    found = [path for path in Path(folder).glob("checkpoint-*") if path.name.rpartition("-")[2].isdecimal()]
    return sorted((int(path.name.rpartition("-")[2]), path) for path in found)
