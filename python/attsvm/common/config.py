"""Threads and versions."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

from .. import _core
from .check import as_count

__all__ = ["__version__", "get_num_threads", "set_num_threads", "show_config"]

__version__ = "0.1.0"

# NumPy's OpenBLAS ends the process when it cannot map its work buffer, and keeps the one that it has: while there is
# memory to ask for, a product large enough to want one (_core does the same for its own).
np.matmul(np.zeros((128, 128)), np.zeros((128, 128)))


def set_num_threads(k: int) -> None:
    """Let one large problem use ``k`` threads; the default is 1.

    They share the loops over queries and live for one call, so a fork between calls finds none.  The carried OpenBLAS,
    which nobody else uses, stays on one thread of its own: they call it side by side.  Results repeat bit for bit with
    the same number of threads, of which there are 64 at most.

    Parameters
    ----------
    k : int
        At least 1; more than 64 counts as 64.

    Raises
    ------
    ValueError, TypeError
        For anything but a whole number from 1 on.

    Examples
    --------
    >>> import attsvm
    >>> attsvm.set_num_threads(1)
    """
    _core.set_num_threads(min(as_count("k", k, 1), 64))


def get_num_threads() -> int:
    """How many threads one large problem may use: what :func:`set_num_threads` has set, 1 until then.

    Examples
    --------
    >>> import attsvm
    >>> attsvm.set_num_threads(2)
    >>> attsvm.get_num_threads()
    2
    >>> attsvm.set_num_threads(1)
    """
    return int(_core.config()["threads"])


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
    print(f"attsvm {__version__}, NumPy {np.__version__}, Python {platform.python_version()}, {platform.machine()}")
    print(f"BLAS: {config['blas']}, {config['threads']} thread{'s' if config['threads'] != 1 else ''}")
