"""Results as files: an npz archive of arrays with one JSON text that says what they are.  Nothing is pickled.

The text holds ``{"format": 1, "attsvm": version, "content": ...}``; in the content an array is ``{"array": member}``, a
tuple ``{"tuple": [...]}``, and an object ``{"type": name, "state": {...}}`` whose state goes back to the class of that
name.  A class takes part by :func:`storable`; its state is what ``_state()`` returns, the fields of a dataclass unless
it says otherwise, and ``_from_state`` makes the object again.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from .config import __version__
from .files import replacing

__all__ = ["load", "same", "save", "storable"]

FORMAT = 1
MEMBER = "attsvm"  # the archive's member with the text

_classes: dict[str, Any] = {}
_late: list[Callable[[], object]] = []
_C = TypeVar("_C", bound=type)


def storable(cls: _C) -> _C:
    """Class decorator: objects of this class can be part of a file."""
    _classes[cls.__name__] = cls
    return cls


def storable_later(load_module: Callable[[], object]) -> None:
    """Calling this makes more classes storable: when a file holds one of a name not known yet."""
    _late.append(load_module)


def state_of(value: Any) -> dict[str, Any]:
    """What an object of a storable class consists of."""
    if hasattr(value, "_state"):
        return dict(value._state())
    if isinstance(value, tuple):  # a named one
        return dict(value._asdict())  # type: ignore[attr-defined]
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def save(value: Any, file: Any) -> None:
    """Write an object of a storable class.  ``file`` is a path or a file opened for writing bytes."""
    arrays: dict[str, np.ndarray] = {}
    content = _pack(value, arrays)
    text = json.dumps({"format": FORMAT, "attsvm": __version__, "content": content})
    members: dict[str, Any] = {MEMBER: np.array(text), **arrays}
    if hasattr(file, "write"):
        np.savez(file, **members)
        return
    with replacing(file) as handle:  # not by name, to which savez would append .npz
        np.savez(handle, **members)


def load(file: Any) -> Any:
    """Read a result that its ``save`` has written.

    Parameters
    ----------
    file : path or binary file

    Returns
    -------
    Run, Separation, Path, Decomposition, Diagnosis, NextToken, SoftLabels, HeadReport or Reports
        Equal to what was saved.

    Raises
    ------
    ValueError
        A file that is not a result of attsvm, or one of a later format.  Nothing in a file is ever executed.

    Examples
    --------
    >>> import attsvm
    >>> import io
    >>> data = attsvm.cross_attention([[[1.0, 0.0], [0.0, 0.0]]], [[1.0, 0.0]])
    >>> sol, file = attsvm.solve_svm(data, [0]), io.BytesIO()
    >>> sol.save(file)
    >>> _ = file.seek(0)
    >>> attsvm.load(file) == sol
    True
    """
    import zipfile  # which loads shutil, lzma and more: only files need it

    name = getattr(file, "name", file) if hasattr(file, "read") else file
    wrong = f"file must be a result written by its save(), got {name!r}"
    try:
        archive = np.load(file, allow_pickle=False)
    except (ValueError, zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"{wrong}: {error}") from None
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise ValueError(f"{wrong}: a single array")
    with archive:
        if MEMBER not in archive.files:
            raise ValueError(f"{wrong}: an npz file of arrays {', '.join(archive.files[:5])}")
        header = json.loads(str(archive[MEMBER][()]))
        if header["format"] > FORMAT:
            raise ValueError(
                f"file has format {header['format']}, written by attsvm {header['attsvm']}; this version reads "
                f"formats up to {FORMAT}: install that one"
            )
        return _unpack(header["content"], archive)


def same(a: Any, b: Any) -> bool:
    """Equality of numbers, arrays and what consists of them: by value, NaN equal to NaN."""
    if a is b:
        return True
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if type(a).__name__ in _classes:
        return same(state_of(a), state_of(b))
    return bool(a == b)


def _pack(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The value as JSON knows it, its arrays put aside."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise TypeError(f"only arrays of numbers can be saved, got {value.dtype}")
        name = f"array{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if type(value) is tuple:
        return {"tuple": [_pack(part, arrays) for part in value]}
    if type(value) is list:
        return [_pack(part, arrays) for part in value]
    if isinstance(value, dict):
        return {"dict": [[_pack(key, arrays), _pack(part, arrays)] for key, part in value.items()]}
    name = type(value).__name__
    if _classes.get(name) is not type(value):
        raise TypeError(f"{name} cannot be saved: a file holds numbers, no functions")
    return {"type": name, "state": {key: _pack(part, arrays) for key, part in state_of(value).items()}}


def _unpack(content: Any, archive: Any) -> Any:
    if isinstance(content, list):
        return [_unpack(part, archive) for part in content]
    if not isinstance(content, dict):
        return content
    if "array" in content:
        return archive[content["array"]]
    if "tuple" in content:
        return tuple(_unpack(part, archive) for part in content["tuple"])
    if "dict" in content:
        return {_unpack(key, archive): _unpack(part, archive) for key, part in content["dict"]}
    if content["type"] not in _classes:
        for load_module in _late:
            load_module()
    cls = _classes.get(content["type"])
    if cls is None:
        raise ValueError(f"file holds a {content['type']}, which this version of attsvm does not know")
    state = {key: _unpack(part, archive) for key, part in content["state"].items()}
    return cls._from_state(state) if hasattr(cls, "_from_state") else cls(**state)
