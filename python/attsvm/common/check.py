"""Checks of arguments: array-likes become float64 arrays; an error names the argument, what was expected and what
came."""

import math
import operator
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from .. import _core
from .types import Norm

# the norms that have a name; any other norm is given by its exponent
NORMS: tuple[str, ...] = get_args(get_args(Norm)[0])


def as_numeric(name: str, value: Any) -> np.ndarray:
    """The value as a NumPy array of real numbers; an array that already is one is returned itself."""
    if type(value) is np.ndarray and value.dtype.kind in "iuf":
        return value
    array = as_array(name, value)
    if array.dtype.kind == "c":
        raise TypeError(f"{name} must be real, got {array.dtype}")
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be an array of numbers, got {describe(value, array)}")
    return array


def as_array(name: str, value: Any) -> np.ndarray:
    """The value as a NumPy array of any type, without masked values."""
    parts = value if isinstance(value, (list, tuple)) else (value,)
    if any(isinstance(part, np.ma.MaskedArray) for part in parts):
        raise TypeError(f"{name} must be a plain array, got a masked array: fill or drop the masked values first")
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        if "bfloat16" in str(getattr(value, "dtype", "")):
            said = f"an array of a type that NumPy knows, got bfloat16: give {name}.float()"
        elif isinstance(error, ValueError):
            said = f"a rectangular array of numbers: {error}"
        else:
            said = f"something that NumPy can read as an array of numbers: {error}"
        raise ValueError(f"{name} must be {said}") from None


def depth(value: Any) -> int:
    """The number of dimensions of an array-like, or -1 if NumPy cannot tell (the caller's conversion then raises the
    error)."""
    try:
        return np.ndim(value)
    except (ValueError, TypeError, RuntimeError):
        return -1


def is_ragged(value: Any) -> bool:
    """True for a list or tuple whose parts have different shapes."""
    try:
        return isinstance(value, (list, tuple)) and len({np.shape(part) for part in value}) > 1
    except ValueError:  # a part is ragged itself: the caller's conversion reports the error
        return False


def as_parts(name: str, value: Any, ragged: bool, read: Callable[[str, Any], np.ndarray]) -> Any:
    """The result of ``read(name, value)``; if ``ragged`` and the value is a list of arrays, a list with the result for
    each array."""
    if ragged and isinstance(value, (list, tuple)) and any(depth(part) != 0 for part in value):
        return [read(f"{name}[{i}]", part) for i, part in enumerate(value)]
    return read(name, value)


def describe(value: Any, array: np.ndarray) -> str:
    kind = array.dtype.kind
    if kind in "OUSV" and array.ndim == 0:
        return type(value).__name__ + (": give its W" if hasattr(value, "W") else "")
    if kind == "O":
        return "an array of objects: give arrays of different lengths as a list, numbers as an array of float"
    if kind == "b":
        return "an array of bool: give numbers, np.where(condition, 1.0, -1.0) for labels"
    return f"an array of {array.dtype}"


def check_shape(
    name: str, array: np.ndarray, letters: str, sizes: Sequence[int | None] = (), empty: bool = False
) -> None:
    """Raises ValueError unless ``array`` has the shape described by ``letters``, such as "n, T, d"; without letters
    any shape will do.  ``sizes`` are the required lengths, None where any length will do.  Empty arrays are refused
    unless ``empty``."""
    if not letters:
        return
    wanted = letters.split(", ")
    sizes = tuple(sizes) or (None,) * len(wanted)
    if array.shape != sizes and (
        array.ndim != len(wanted) or any(size not in (None, n) for size, n in zip(sizes, array.shape, strict=True))
    ):
        comma = "," * (len(wanted) == 1)
        known = ", ".join(letter if size is None else str(size) for letter, size in zip(wanted, sizes, strict=True))
        equals = "" if known == letters else f" = ({known}{comma})"
        raise ValueError(f"{name} must have shape ({letters}{comma}){equals}, got {tuple(array.shape)}")
    if array.size == 0 and not empty:
        raise ValueError(f"{name} must not be empty, got shape {array.shape}")


def check_shapes(arrays: Mapping[str, Any], letters: Mapping[str, str], **known: int | None) -> None:
    """Raises ValueError unless each array has the shape of its letters, and each letter has one size throughout.  A
    digit in ``letters`` is a fixed size.  ``known`` gives the sizes of some letters.  Arrays may be empty, or None (not
    checked)."""
    for name, wanted in letters.items():
        if (array := arrays[name]) is not None:
            words = wanted.split(", ")
            sizes = tuple(int(word) if word.isdigit() else known.get(word) for word in words)
            check_shape(name, array, wanted, sizes, empty=True)
            known |= zip(words, array.shape, strict=True)


def check_parts(name: str, sizes: Any, total: int, least: int = 1) -> None:
    """Raises ValueError unless ``sizes`` is an array of integers of at least ``least`` that add up to ``total``.
    Allocates no array of such a size, since the numbers may come from a damaged file."""
    fits = isinstance(sizes, np.ndarray) and sizes.ndim == 1 and sizes.dtype.kind in "iu" and sizes.size > 0
    if not fits or sizes.min() < least or sizes.max() > total or int(sizes.sum()) != total:
        raise ValueError(f"{name} must be integers of at least {least} whose sum is {total}, got {sizes!r:.100}")


def check_finite(name: str, array: np.ndarray) -> None:
    # C finds the largest number without a temporary array; it returns None for types and layouts that it does not read.
    largest = _core.largest(array)
    if not (np.isfinite(array).all() if largest is None else math.isfinite(largest)):
        bad = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        where = f" at {bad if len(bad) > 1 else bad[0]}" if bad else ""
        raise ValueError(f"{name} must be finite, got {array[bad]}{where}")


def as_floats(
    name: str, value: Any, letters: str = "", sizes: Sequence[int | None] = (), keep_single: bool = False
) -> np.ndarray:
    """The value as a finite C-contiguous float64 array of the required shape, without ``letters`` of any shape.  With
    ``keep_single`` a float32 array stays float32."""
    array = as_numeric(name, value)
    check_shape(name, array, letters, sizes)
    single = keep_single and array.dtype == np.float32
    array = as_doubles(array) if not single else np.require(array, requirements=["C", "A"])
    check_finite(name, array)
    return array


def as_doubles(array: np.ndarray) -> np.ndarray:
    """The array as C reads it: float64, C-contiguous and aligned.  An array that already is so is returned itself."""
    # the usual case: np.require would return the array too, but only after slower checks
    if array.dtype == np.float64 and array.flags.carray:
        return array
    with np.errstate(over="ignore"):  # a long double out of range becomes infinite; check_finite reports it
        return np.require(array, np.float64, ["C", "A"])


def as_number(name: str, value: Any, least: float = -math.inf, above: float = -math.inf) -> float:
    """The value as a finite float; raises unless ``value >= least`` and ``value > above``."""
    if value is None or isinstance(value, (str, bytes)):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not isinstance(value, float) and (value := as_numeric(name, value)).ndim != 0:
        raise TypeError(f"{name} must be a number, got an array of shape {value.shape}")
    number = float(value)
    if not math.isfinite(number) or number < least or number <= above:
        bound = f" above {above:g}" if above > -math.inf else f" of at least {least:g}" if least > -math.inf else ""
        raise ValueError(f"{name} must be a finite number{bound}, got {number!r}")
    return number


def as_count(name: str, value: Any, least: int = 0) -> int:
    """The value as an int; raises unless it is an integer of at least ``least`` that fits an index in C."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be an integer, got bool")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    if number > sys.maxsize:
        raise ValueError(f"{name} must fit a {sys.maxsize.bit_length() + 1}-bit integer, got {number}")
    return number


def as_numbers_of(name: str, value: Any, kind: str, count: int, letters: str = "") -> np.ndarray:
    """The value as an integer array of numbers 0 .. count - 1, each the number of a token or of a class (``kind``).
    Raises for other numbers, and for a shape other than ``letters``, if given."""
    array, what = as_numeric(name, value), f"{name} must hold {kind} numbers"
    check_shape(name, array, letters)
    if array.dtype.kind == "f":
        raise TypeError(f"{what}, integers 0 .. {count - 1}, got {array.dtype}")
    outside = (array < 0) | (array >= count)
    if outside.any():
        raise ValueError(f"{what} 0 .. {count - 1}, got {array[outside][0]}")
    return array.astype(np.intp)


def as_index(index: Any, length: int) -> np.ndarray:
    """The positions that an index (integer, slice, list of integers, bool array) selects along an axis of this length,
    in the order of the index."""
    if not isinstance(index, slice):
        array = np.asarray(index)
        kind = array.dtype.kind
        if array.ndim > 1 or kind not in ("biu" if array.ndim else "iu"):
            came = type(index).__name__ if array.ndim < 2 and array.size else f"an array of shape {array.shape}"
            raise TypeError(f"index must be an integer, a slice, a list of integers or an array of bool, got {came}")
        if kind == "b" and len(array) != length:
            raise IndexError(f"index must hold {length} bool, got {len(array)}")
        index = np.flatnonzero(array) if kind == "b" else array
        outside = (index < -length) | (index >= length)
        if outside.any():
            raise IndexError(f"index must be below {length}, the number of sequences, got {index[outside][0]}")
    chosen = np.atleast_1d(np.arange(length)[index])
    if len(chosen) == 0:
        raise ValueError("index must choose at least one sequence")
    return chosen


def as_flag(name: str, value: Any) -> bool:
    """The value as a bool; raises TypeError for numbers and strings."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be a bool, got {type(value).__name__}")
    return bool(value)


def check_type(name: str, value: Any, cls: type, source: str = "") -> None:
    """Raises TypeError unless ``value`` is an instance of ``cls``; ``source`` names the function that makes one."""
    if not isinstance(value, cls):
        origin = f", from {source}" if source else ""
        raise TypeError(f"{name} must be a {cls.__name__}{origin}, got {type(value).__name__}")


def as_list(name: str, values: Any, cls: type, source: str) -> list[Any]:
    """The values as a list; raises TypeError unless each is an instance of ``cls``."""
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise TypeError(f"{name} must be a list of {cls.__name__}, from {source}, got {type(values).__name__}")
    values = list(values)
    for i, value in enumerate(values):
        check_type(f"{name}[{i}]", value, cls, source)
    return values


def as_choice(name: str, value: Any, choices: Collection[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return str.__str__(value)  # a plain str, even if value is of a subclass of str


def as_norm(name: str, value: Any) -> Norm:
    """The norm as the package stores it: a name of NORMS, or the exponent p > 1 of an entrywise norm. 2 becomes
    "frobenius" and infinity "max"."""
    if isinstance(value, str) and value in NORMS:
        return value  # type: ignore[return-value]  # one of the words of Norm
    # bool is a subclass of int: True is refused too, since 1 is no exponent
    if not isinstance(value, (int, float, np.integer, np.floating)) or not value > 1:
        meant = [word for word in NORMS if isinstance(value, str) and value and word.startswith(value.lower()[:3])]
        hint = f": say {meant[0]!r}" if meant else ""
        raise ValueError(f"{name} must be one of {', '.join(map(repr, NORMS))}, or a number p > 1, got {value!r}{hint}")
    return "frobenius" if value == 2 else "max" if value == math.inf else float(value)
