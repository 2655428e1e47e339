"""Files: results as npz archives, files that are replaced only when complete, CSV tables, and pickles of memory maps.

A result is an npz archive of arrays and one JSON text that describes them; nothing is pickled.  The text holds
``{"format": 1, "attsvm": version, "content": ...}``; in the content an array is ``{"array": member}``, a tuple
``{"tuple": [...]}``, and an object ``{"type": name, "state": {...}}`` whose state goes back to the class of that name.
The decorator :func:`storable` registers a class.  Its state is what ``_state()`` returns, or the fields of a dataclass.
When a file is read ``_from_state`` makes the object (by default the constructor), then ``_check()`` is called, if there
is one: both raise if the parts do not fit together.
"""

import contextlib
import csv
import dataclasses
import functools
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, TypeVar

import numpy as np

from .threads import __version__

FORMAT = 1
MEMBER = "attsvm"  # name of the archive's member that holds the JSON text
ELSEWHERE = {
    ".json": "json.dump(result.to_dict(), file) writes its numbers, prove(path) of an answer its proof",
    ".csv": "result.to_dataframe().to_csv(file) writes its table",
}

_classes: dict[str, Any] = {}
late: list[Callable[[], object]] = []  # functions that import more storable classes, for a file with an unknown one
_C = TypeVar("_C", bound=type)


def storable(cls: _C) -> _C:
    """Class decorator: objects of this class can be saved as part of a result."""
    _classes[cls.__name__] = cls
    return cls


def state_of(value: Any) -> dict[str, Any]:
    """The parts of an object of a storable class that a file keeps, as a dictionary."""
    if hasattr(value, "_state"):
        return value._state()
    if isinstance(value, tuple):  # a named tuple
        return value._asdict()  # type: ignore[attr-defined]
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def save(value: Any, file: Any) -> None:
    """Writes an object of a storable class as an npz file.  ``file`` is a path or a file opened for writing bytes."""
    if (suffix := os.path.splitext(str(getattr(file, "name", file)))[1].lower()) in ELSEWHERE:
        raise ValueError(f"file must be an npz file, got {file!r}: {ELSEWHERE[suffix]}")
    members: dict[str, Any] = {}
    content = {"format": FORMAT, "attsvm": __version__, "content": _pack(value, members)}
    members[MEMBER] = np.array(json.dumps(content))
    opened = contextlib.nullcontext(file) if hasattr(file, "write") else replacing(file)
    with opened as handle:  # savez gets an open file, since it would append .npz to a name
        np.savez(handle, **members)


def load(file: Any) -> Any:
    """Read a result that its ``save`` has written.

    Parameters
    ----------
    file : path or binary file

    Returns
    -------
    Run, Separation, Reports and so on
        Equal to what was saved.

    Raises
    ------
    ValueError
        A file that is not a result of attsvm, one of a later format, or one that is damaged.  Nothing in a file is ever
        executed.

    Examples
    --------
    >>> import io
    >>> data = attsvm.cross_attention([[[1.0, 0.0], [0.0, 0.0]]], [[1.0, 0.0]])
    >>> sol, file = attsvm.solve_svm(data, [0]), io.BytesIO()
    >>> sol.save(file)
    >>> _ = file.seek(0)
    >>> attsvm.load(file) == sol
    True
    """
    # fspath refuses a number, which open() would take for a file descriptor
    name = getattr(file, "name", file) if hasattr(file, "read") else os.fspath(file)
    try:
        archive = np.load(file, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("a single array")
        with archive:
            header = json.loads(str(archive[MEMBER]))
            if header["format"] > FORMAT:
                raise ValueError(f"its format {header['format']} is that of attsvm {header['attsvm']}, a later version")
            return _unpack(header["content"], archive)
    except OSError:
        raise
    except Exception as error:  # for a damaged file, zipfile, NumPy and the constructors raise many kinds of errors
        reason = str(error) or type(error).__name__
        raise ValueError(f"file must be a result written by its save(), got {name!r}: {reason:.300}") from None


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal.  Arrays, numbers, and lists, dicts and objects of these are compared by value; NaN
    equals NaN."""
    if isinstance(a, (np.ndarray, float)) and isinstance(b, (np.ndarray, float)):
        a, b = np.asarray(a), np.asarray(b)
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
    if a is b or type(a) is not type(b):
        return a is b
    if type(a).__name__ in _classes:
        a, b = state_of(a), state_of(b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def _pack(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The value in a form that JSON can hold.  Its arrays are moved to ``arrays``, under names that the JSON refers
    to."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, (int, float, str)):
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise TypeError(f"only arrays of numbers can be saved, got {value.dtype}")
        name = f"array{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    cls = type(value)
    if cls in (tuple, list):
        parts = [_pack(part, arrays) for part in value]
        return parts if cls is list else {"tuple": parts}
    if cls is dict:
        return {"dict": [_pack(list(pair), arrays) for pair in value.items()]}
    name = cls.__name__
    if _classes.get(name) is not cls:
        raise TypeError(f"{name} cannot be saved: a file holds numbers, no functions")
    return {"type": name, "state": {key: _pack(part, arrays) for key, part in state_of(value).items()}}


def _unpack(content: Any, archive: Any) -> Any:
    """Restores a value that ``_pack`` has packed.  The constructors of the classes raise an error if a value is not
    valid."""
    if isinstance(content, list):
        return [_unpack(part, archive) for part in content]
    if not isinstance(content, dict):
        return content
    if "array" in content:
        array = archive[content["array"]]
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{content['array']} must hold numbers, got {array.dtype}")
        return array
    if "tuple" in content:
        return tuple(_unpack(content["tuple"], archive))
    if "dict" in content:
        return dict(_unpack(content["dict"], archive))
    name = content["type"]
    if name not in _classes:
        for load_module in late:
            load_module()
    if name not in _classes:
        raise ValueError(f"a {name!r:.80}, which this version of attsvm does not know")
    cls = _classes[name]
    state = {key: _unpack(part, archive) for key, part in content["state"].items()}
    made = cls._from_state(state) if hasattr(cls, "_from_state") else cls(**state)
    if hasattr(made, "_check"):
        made._check()
    return made


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Context: a binary file to write that replaces ``path`` at the end.  On any error the old file is left unchanged.

    The new file keeps the permissions of the old one.  A symbolic link stays, and its target is replaced.  A pipe or a
    terminal cannot be replaced and is written to directly.
    """
    target = os.path.realpath(os.fspath(path))  # fspath refuses a number, which open() would take for a file descriptor
    if os.path.exists(target) and not os.path.isfile(target):
        with open(target, "wb") as file:
            yield file
        return
    beside = os.path.join(os.path.dirname(target), f".attsvm-{os.urandom(8).hex()}")
    try:
        with open(beside, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(target):
            os.chmod(beside, os.stat(target).st_mode)
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        raise


class Mapped:
    """Base class that pickles memory-mapped arrays as file paths and offsets; the receiving process needs the same
    files."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: _place(value) for name, value in vars(self).items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            vars(self)[name] = value() if isinstance(value, functools.partial) else value


def _place(value: Any) -> Any:
    """Returns a function that maps the array again, if ``value`` is a contiguous array in a memory-mapped file; any
    other value is returned itself."""
    root = value
    while isinstance(getattr(root, "base", None), np.ndarray):
        root = root.base
    if not isinstance(root, np.memmap) or root.filename is None or not value.size or not value.flags.c_contiguous:
        return value
    begin = value.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return functools.partial(np.memmap, root.filename, value.dtype, "r", root.offset + begin, value.shape)


def write_lines(file: IO[bytes], rows: Iterable[Sequence[Any]]) -> None:
    """Appends rows to a file as CSV in UTF-8, in a single write; floats are written so that they read back exactly."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    file.write(text.getvalue().encode())


def write_table(path: str | os.PathLike[str], header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Writes a CSV table to a file, which replaces an older file at ``path``."""
    with replacing(path) as file:
        write_lines(file, [header, *rows])
