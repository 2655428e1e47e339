"""What the commands' options have in common."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path


class UsageError(Exception):
    """Something the user gave does not fit; the message says what."""


def add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, default=Path("attsvm-report"), help="directory to write to (default attsvm-report)"
    )


def whole(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, got {text!r}")
        return int(text)

    return parse


def between(low: float, high: float, words: str) -> Callable[[str], float]:
    """A number strictly between two others; ``words`` say so."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not low < number < high:
            raise argparse.ArgumentTypeError(f"must be {words}, got {text!r}")
        return number

    return parse
