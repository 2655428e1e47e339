"""Threads and versions."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

from . import _core
from ._check import as_count

__all__ = ["set_num_threads", "show_config"]


def set_num_threads(k: int) -> None:
    """Let one large problem use ``k`` threads (1 until asked).

    They share the loops over queries and live for one call, so a fork between calls finds none.  The carried OpenBLAS,
    which nobody else uses, stays on one thread of its own: they call it side by side.  Results repeat bit for bit with
    the same number of threads, of which there are 64 at most.

    Examples
    --------
    >>> import attsvm
    >>> attsvm.set_num_threads(1)
    """
    _core.set_num_threads(min(as_count("k", k, 1), 64))


def show_config() -> None:
    """Print versions, the BLAS in use and the threads of a call.

    Examples
    --------
    >>> import attsvm
    >>> attsvm.show_config()  # doctest: +ELLIPSIS
    attsvm ...
    BLAS: ...
    """
    config: dict[str, Any] = _core.config()
    from . import __version__

    print(
        f"attsvm {__version__}, NumPy {np.__version__}, Python {platform.python_version()}, {platform.machine()}"
    )
    print(f"BLAS: {config['blas']}, {config['threads']} thread{'s' if config['threads'] != 1 else ''}")
