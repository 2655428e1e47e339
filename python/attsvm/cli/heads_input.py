"""What ``attsvm heads`` reads: a model, and the text or the images that it is given."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..common.arguments import UsageError
from ..heads.model import Head

TOKENS = (10, 50)  # of a sentence: fewer say little, more cannot be looked at
MOST_TOKENS = 50_000  # that are kept of a text


def load_reader() -> Any:
    """The module that loads models; a UsageError where PyTorch or transformers is missing."""
    try:
        import transformers  # noqa: F401

        from ..torch import pretrained
    except ImportError as error:
        words = f"reading a model needs PyTorch and transformers ({error}): pip install torch transformers"
        raise UsageError(words) from None
    return pretrained


def read_heads(args: argparse.Namespace, model: Path) -> tuple[list[Head], str]:
    """The heads asked for, and what was read, in words."""
    try:
        heads, given = load_reader().read_pretrained(
            model,
            args.text,
            TOKENS,
            progress=not args.training,
            layers=args.layers,
            heads=args.heads,
            space=args.space,
            threshold=args.threshold,
            tokens=MOST_TOKENS,
            queries=args.queries,
            seed=args.seed,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    tokens = int(heads[0].text.lengths.sum())
    return heads, f"{len(heads)} heads, {given}, {tokens} tokens; seed {args.seed}."
