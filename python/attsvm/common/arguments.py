"""Argument types and helpers that several subcommands of the command line share."""

import argparse
import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path


class UsageError(Exception):
    """Raised for an argument of the user that does not fit; the message says which and why."""


@contextlib.contextmanager
def refused(*kinds: type[Exception]) -> Iterator[None]:
    """Context: an error of one of these kinds becomes a UsageError with the same message."""
    try:
        yield
    except kinds as error:
        raise UsageError(str(error)) from None


def add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, default=Path("attsvm-report"), help="directory to write to (default attsvm-report)"
    )


LARGEST = 10**9  # largest count that an option accepts; a larger one is taken for a typing mistake


def whole(least: int, most: int = LARGEST) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isdecimal() and len(text) <= 20 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {most}, got {shortened(text)!r}")
        return int(text)

    return parse


def shortened(text: str) -> str:
    """The text on one line, cut to at most 300 characters."""
    text = " ".join(text.split())
    return text if len(text) <= 300 else text[:297] + "..."


def between(low: float, high: float, words: str) -> Callable[[str], float]:
    """An argparse type for numbers strictly between ``low`` and ``high``; ``words`` describe that range in the
    error."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not low < number < high:
            raise argparse.ArgumentTypeError(f"must be {words}, got {shortened(text)!r}")
        return number

    return parse
