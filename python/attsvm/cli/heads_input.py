"""What ``attsvm heads`` reads: a model, and the text or the images that it is given."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ..heads.bert import read_bert
from ..heads.model import Head
from ..heads.text import EXAMPLE, read_sentences
from .arguments import UsageError

TOKENS = (10, 50)  # of a sentence: fewer say little, more cannot be looked at
LONGEST = 10_000  # characters of a sentence: more are not cut into tokens, only to see that there are too many
MOST_TOKENS = 50_000  # that are kept of a text


def load_reader() -> Any:
    try:
        import transformers  # noqa: F401

        from ..torch import pretrained
    except ImportError as error:
        raise UsageError(f"a model that is no BERT folder needs torch and transformers: {error}") from None
    return pretrained


def read_folder(args: argparse.Namespace, folder: Path) -> tuple[list[Head], str]:
    """Heads by transformers, and what the model was given, in words."""
    options = {"layers": args.layers, "heads": args.heads, "space": args.space, "threshold": args.threshold}
    try:
        return load_reader().read_pretrained(
            folder,
            args.text,
            TOKENS,
            progress=not args.training,
            tokens=MOST_TOKENS,
            queries=args.queries,
            seed=args.seed,
            **options,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None


def read_heads(args: argparse.Namespace) -> tuple[list[Head], str]:
    """The heads asked for, and what was read, in words."""
    if not _is_bert(args.model):
        heads, given = read_folder(args, args.model)
        tokens = int(heads[0].text.lengths.sum())
        return heads, f"{len(heads)} heads, {given}, {tokens} tokens; seed {args.seed}."
    if len(args.text) > 1:
        raise UsageError(f"{args.model} reads text: one file of it is taken, got {len(args.text)}")
    text = args.text[0] if args.text else EXAMPLE
    try:
        model = read_bert(args.model)
        sentences = read_sentences(text)
    except ValueError as error:
        raise UsageError(str(error)) from None
    for name, most in (("layers", model.layers), ("heads", model.heads)):
        if max(getattr(args, name) or [0]) >= most:
            raise UsageError(f"--{name} must lie in 0-{most - 1}, got {max(getattr(args, name))}")
    low, high = TOKENS[0], min(TOKENS[1], model.longest)
    kept = [
        sentence
        for sentence in sentences
        if len(sentence) <= LONGEST and low <= len(model.tokenizer.encode(sentence)) <= high
    ]
    if len(kept) < 2:
        raise UsageError(f"{text} has {len(kept)} sentences of {low} to {high} tokens, too few to learn from")
    try:
        heads = model.read(kept, args.layers, progress=True)
    except ValueError as error:  # weights that are no numbers
        raise UsageError(f"{args.model}: {error}") from None
    if args.heads is not None:
        heads = [head for head in heads if head.number in args.heads]
    read = f"{len(heads)} heads, {len(kept)} of {len(sentences)} sentences ({low} to {high} tokens)"
    return heads, f"{read}, {len(heads[0].text.keys)} tokens; seed {args.seed}."


def _is_bert(folder: Path) -> bool:
    """Whether NumPy can read it; so that what is missing is named, also a folder without a configuration."""
    config = folder / "config.json"
    if not config.is_file():
        return folder.exists() or folder.is_absolute() or len(folder.parts) > 2
    try:
        kind = json.loads(config.read_text(encoding="utf-8")).get("model_type")
    except (ValueError, AttributeError, RecursionError):
        return True
    return kind in (None, "bert") and ((folder / "vocab.txt").is_file() or not (folder / "tokenizer.json").is_file())
