"""How a file is written: beside the older one, which it replaces when all of it is on the disk."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import IO, Any

__all__ = ["replacing"]


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """A file to write that takes the place of ``path`` at the end; whatever fails before, the older file stays.

    It has the older file's permissions, those of a new file where there was none, and lies where a symbolic link
    points to.  What cannot be replaced (a pipe, a terminal) is written to directly.  Text is UTF-8, its line ends as
    written.
    """
    target = os.path.realpath(os.fspath(path))  # fspath: a number would be an open file of others
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    older = os.stat(target).st_mode if os.path.exists(target) else None
    if older is not None and not stat.S_ISREG(older):
        with open(target, mode, **text) as file:  # type: ignore[call-overload]
            yield file
        return
    beside = os.path.join(os.path.dirname(target), f".attsvm-{os.urandom(8).hex()}")
    try:
        with open(beside, mode.replace("w", "x"), **text) as file:  # type: ignore[call-overload]
            yield file
            file.flush()
            os.fsync(file.fileno())
        if older is not None:
            os.chmod(beside, stat.S_IMODE(older))
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        raise
