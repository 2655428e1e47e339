"""The file in which reports of heads are kept as they are done: one npy record after another, each the bytes of an npz
file that :func:`attsvm.load` reads."""

from __future__ import annotations

import hashlib
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..common.config import __version__
from ..common.storage import load, save, storable
from .choices import hard_queries
from .model import Head

Task = tuple[Head, dict[str, Any]]  # a head and the options of its analysis


@storable
@dataclass(frozen=True, eq=False)
class Record:
    """What was found of one head: its name, a digest of what decided it, and the report's state without the head."""

    name: str
    digest: str
    state: dict[str, Any]


class Kept:
    """What a file holds of these tasks, by their number; and adds to it."""

    def __init__(self, file: str | os.PathLike[str] | None, tasks: list[Task]):
        self.path, self.found = None if file is None else Path(file), {}
        if self.path is None:
            return
        self.records = [Record(head.name, _digest(head, options), {}) for head, options in tasks]
        wanted = {record.name: (k, record.digest) for k, record in enumerate(self.records)}
        for record in _read(self.path):
            k, digest = wanted.get(record.name, (None, record.digest))
            if digest != record.digest:
                raise ValueError(f"{self.path} holds {record.name} of another model, text, version or options")
            if k is not None:
                self.found[k] = record.state

    def add(self, k: int, state: dict[str, Any]) -> None:
        if self.path is None:
            return
        whole = io.BytesIO()
        save(Record(self.records[k].name, self.records[k].digest, state), whole)
        with open(self.path, "ab") as file:
            np.save(file, np.frombuffer(whole.getvalue(), np.uint8))


def _digest(head: Head, options: dict[str, Any]) -> str:
    """Of the weights, of what the head chooses, and of all that is asked."""
    found = hashlib.sha256(repr([__version__, head.most, head.threshold, head.module, head.space]).encode())
    for array in (head.K, head.Q, hard_queries(head, options.get("threshold")), head.text.lengths):
        found.update(array.tobytes())
    found.update(repr(sorted((name, np.asarray(value).tolist()) for name, value in options.items())).encode())
    return found.hexdigest()


def _read(path: Path) -> list[Record]:
    """The records of the file; a last one that an interruption cut short is dropped from it."""
    found: list[Record] = []
    if not path.exists():
        return found
    with open(path, "r+b") as file:
        while True:
            begin = file.tell()
            try:
                whole = np.load(file, allow_pickle=False)
            except EOFError:
                return found
            except ValueError as error:
                if not found:
                    raise ValueError(f"{path} is not a file of analyze_model: {error}") from None
                file.truncate(begin)
                return found
            record = load(io.BytesIO(whole.tobytes()))
            if not isinstance(record, Record):
                raise ValueError(f"{path} is not a file of analyze_model: it holds a {type(record).__name__}")
            found.append(record)
