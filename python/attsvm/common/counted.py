"""How many of the parts of a long computation are done."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any


def counted(results: Iterable[Any], total: int, name: str, unit: str) -> Iterator[Any]:
    """A tqdm bar, or a line now and then where tqdm is not installed."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        every = max(1, total // 10)
        for i, result in enumerate(results, start=1):
            yield result
            if i % every == 0 or i == total:
                print(f"{name}: {i} of {total} {unit}s", file=sys.stderr)
        return
    yield from tqdm(results, total=total, desc=name, unit=unit, leave=False)
