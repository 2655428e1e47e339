"""Progress bars: for the steps of a training run, the parts of a long computation, and the gap of a solver."""

import contextlib
import math
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# called with the iterations so far and the relative gap of the bounds (infinite while there are no bounds)
Report = Callable[[int, float], None]
LINES_APART = 1.0  # seconds between two lines of progress, where tqdm is not installed
PATIENCE = 1.0  # Seconds a solver runs before it shows its gap by default (progress=None).


def watched(progress: bool | None) -> bool:
    """Whether to show progress.  By default (None) it is shown in the main thread, if stderr is a terminal or a
    notebook.

    A child process of multiprocessing never shows progress, since it shares stderr with its siblings.
    """
    if progress is None:
        notebook = type(sys.stderr).__module__ == "ipykernel.iostream"
        looked = notebook or (sys.stderr is not None and sys.stderr.isatty())
        progress = looked and threading.current_thread() is threading.main_thread()
    if not progress:
        return False
    from multiprocessing import parent_process  # imported here, since multiprocessing is slow to load

    return parent_process() is None


def bar(*results: Any, **options: Any) -> Any:
    """A tqdm progress bar made with these arguments, or None where tqdm is not installed."""
    tqdm = _tqdm()
    return None if tqdm is None else tqdm(*results, **options)


def above_bars() -> contextlib.AbstractContextManager[Any]:
    """A context in which printed lines appear above the progress bars instead of breaking them."""
    tqdm = _tqdm()
    return contextlib.nullcontext() if tqdm is None else tqdm.external_write_mode()


def _tqdm() -> Any:
    try:
        # in a notebook without widgets tqdm warns and falls back on a text bar
        with warnings.catch_warnings(action="ignore"):
            from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm


def counted(
    results: Iterable[Any], total: int | None, name: str, unit: str, progress: bool | None = True
) -> Iterator[Any]:
    """Yields the results as they come, and shows their number in a progress bar, or now and then in a line where tqdm
    is not installed."""
    if not watched(progress):
        yield from results
        return
    shown = bar(results, total=total, desc=name, unit=unit, leave=False)
    every = max(1, (total or 100) // 10)
    for i, result in enumerate(results if shown is None else shown, start=1):
        yield result
        if shown is None and (i % every == 0 or i == total):
            print(f"{name}: {i}{f' of {total}' if total else ''} {unit}s", file=sys.stderr)


@contextlib.contextmanager
def closing_gap(tol: float, progress: bool | None) -> Iterator[Report]:
    """Yields a function that shows a solver's gap: as a bar over the digits of the gap, or as lines on stderr where
    tqdm is not installed.  Unless ``progress`` asks for it, the bar appears only after the solver has run for a while,
    and disappears at the end."""
    begun, last, shown = time.monotonic(), -math.inf, None
    digits = round(max(-math.log10(tol), 0.1), 1)
    form = "{desc} {percentage:3.0f}%|{bar}| {n:.1f}/{total:.1f} digits [{elapsed}{postfix}]"

    def report(iterations: int, gap: float) -> None:
        nonlocal last, shown
        now = time.monotonic()
        if last == -math.inf:  # nothing is shown yet
            if not progress and now - begun < PATIENCE:
                return
            shown = bar(total=digits, desc="solve_svm", bar_format=form, leave=bool(progress))
        text = f"iteration {iterations}, " + (f"gap {gap:.1e}" if math.isfinite(gap) else "no bounds yet")
        if shown is not None:
            shown.n = max(-math.log10(gap if gap > tol else tol), 0.0)
            shown.set_postfix_str(text)
        elif now - last < LINES_APART:
            return
        else:
            print(f"solve_svm: {text} after {now - begun:.1f} s", file=sys.stderr, flush=True)
        last = now

    try:
        yield report
    finally:
        if shown is not None:
            shown.close()
