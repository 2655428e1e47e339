"""The file that keeps results of heads as they are computed, so that an interrupted run can go on.

It is a sequence of npy records.  Each record holds the bytes of an npz file that :func:`attsvm.load` reads.
"""

import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..common.storage import load, save, storable
from ..common.threads import __version__
from .choices import hard_queries
from .head import Head


@storable
class Record(NamedTuple):
    """Results stored under a name, such as that of a head, and a digest of everything that the results depend on."""

    name: str
    digest: str
    state: dict[str, Any]


class Kept:
    """Results by name: results read from the file of an interrupted run, and results added in this run.

    ``wanted``: the names, each with the digest that its record must have.  ``maker``: the function that writes the
    file, for messages.
    """

    def __init__(self, file: str | os.PathLike[str] | None, wanted: dict[str, str], maker: str):
        self.path, self.wanted = None if file is None else Path(file), wanted
        self.found: dict[str, dict[str, Any]] = {}
        for record in _read(self.path, maker) if self.path and self.path.exists() else ():
            if wanted.get(record.name, record.digest) != record.digest:
                raise ValueError(f"{self.path} holds {record.name} of another model, text, version or options")
            if record.name in wanted:
                self.found[record.name] = record.state

    def add(self, name: str, state: dict[str, Any]) -> None:
        self.found[name] = state
        if not self.path:
            return
        whole = io.BytesIO()
        save(Record(name, self.wanted[name], state), whole)
        with open(self.path, "ab") as file:
            np.save(file, np.frombuffer(whole.getvalue(), np.uint8))


def digest(head: Head, options: dict[str, Any]) -> str:
    """Digest of a head's weights, its choices and the options; a stored result with another digest is refused."""
    found = hashlib.sha256(repr([__version__, head.most, head.threshold, head.module, head.space]).encode())
    for array in (head.K, head.Q, hard_queries(head, options.get("threshold")), head.text.lengths):
        found.update(array.tobytes())
    found.update(repr(sorted((name, np.asarray(value).tolist()) for name, value in options.items())).encode())
    return found.hexdigest()


def _read(path: Path, maker: str) -> Iterator[Record]:
    """The records of the file.  A last record that is incomplete, after an interruption, is removed from the file."""
    with open(path, "r+b") as file:
        while True:
            begin = file.tell()
            try:
                whole = np.load(file, allow_pickle=False)
            except EOFError:
                return
            except ValueError as error:
                if begin == 0:
                    raise ValueError(f"{path} is not a file of {maker}: {error}") from None
                file.truncate(begin)
                return
            record = load(io.BytesIO(whole.tobytes()))
            if not isinstance(record, Record):
                raise ValueError(f"{path} is not a file of {maker}: it holds a {type(record).__name__}")
            yield record
