"""What runs, for people to watch: the steps of a training run, the gap of a solver."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

Report = Callable[[int, float], None]  # iterations so far, relative gap of the bounds (infinite: none yet)
LINES_APART = 1.0  # seconds between plain lines


@contextlib.contextmanager
def steps_made(progress: bool, total: int) -> Iterator[Any]:
    """A tqdm bar, or None when it is not wanted or tqdm is not installed."""
    if not progress:
        yield None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield None
        return
    with tqdm(total=total, unit="step", desc="train") as bar:
        yield bar


@contextlib.contextmanager
def closing_gap(tol: float) -> Iterator[Report]:
    """A bar over the digits of the gap where tqdm is installed, in a terminal or a notebook; else lines on stderr."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield _lines()
        return
    digits = round(max(-math.log10(tol), 0.1), 1)
    form = "{desc} {percentage:3.0f}%|{bar}| {n:.1f}/{total:.1f} digits [{elapsed}{postfix}]"
    with tqdm(total=digits, desc="solve_svm", bar_format=form) as bar:
        yield lambda iterations, gap: _move(bar, iterations, gap)


def _move(bar: Any, iterations: int, gap: float) -> None:
    bar.n = min(max(-math.log10(gap), 0.0) if gap > 0 else bar.total, bar.total)
    bar.set_postfix_str(_words(iterations, gap), refresh=False)
    bar.refresh()


def _lines() -> Report:
    begun, last = time.monotonic(), -math.inf

    def report(iterations: int, gap: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= LINES_APART:
            last = now
            print(f"solve_svm: {_words(iterations, gap)} after {now - begun:.1f} s", file=sys.stderr, flush=True)

    return report


def _words(iterations: int, gap: float) -> str:
    return f"iteration {iterations}, " + (f"gap {gap:.1e}" if math.isfinite(gap) else "no bounds yet")
