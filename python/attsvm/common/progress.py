"""What runs, for people to watch: the steps of a training run, the parts of a computation, the gap of a solver."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Report = Callable[[int, float], None]  # iterations so far, relative gap of the bounds (infinite: none yet)


def bar(*results: Any, **options: Any) -> Any:
    """A tqdm bar, or None where tqdm is not installed."""
    tqdm = _tqdm()
    return None if tqdm is None else tqdm(*results, **options)


def above_bars() -> contextlib.AbstractContextManager[Any]:
    """What is printed within stands above the bars that are shown."""
    tqdm = _tqdm()
    return contextlib.nullcontext() if tqdm is None else tqdm.external_write_mode()


def _tqdm() -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm


def counted(results: Iterable[Any], total: int, name: str, unit: str) -> Iterator[Any]:
    """The parts of a long computation as they are done, with a bar where tqdm is installed.

    Nothing is shown by a process that works for others, with which it shares stderr.
    """
    from multiprocessing import parent_process  # 10 ms

    shown = bar(results, total=total, desc=name, unit=unit, leave=False) if parent_process() is None else None
    yield from results if shown is None else shown


@contextlib.contextmanager
def closing_gap(tol: float) -> Iterator[Report | None]:
    """A bar over the digits of the gap where tqdm is installed, in a terminal or a notebook."""
    digits = round(max(-math.log10(tol), 0.1), 1)
    form = "{desc} {percentage:3.0f}%|{bar}| {n:.1f}/{total:.1f} digits [{elapsed}{postfix}]"
    shown = bar(total=digits, desc="solve_svm", bar_format=form)
    if shown is None:
        yield None
        return
    with shown:
        yield lambda iterations, gap: _move(shown, iterations, gap)


def _move(bar: Any, iterations: int, gap: float) -> None:
    bar.n = min(max(-math.log10(gap), 0.0) if gap > 0 else bar.total, bar.total)
    bar.set_postfix_str(f"iteration {iterations}, " + (f"gap {gap:.1e}" if math.isfinite(gap) else "no bounds yet"))
