"""Reads and checks the arrays of ``attsvm run`` from an .npz file."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ..attention.data import Data
from ..attention.kinds import cross_attention, self_attention
from ..common.arguments import UsageError
from ..common.check import as_floats, as_numeric, check_shape

KNOWN = ("X", "Z", "y", "v", "lengths", "selected")


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name; a UsageError names arrays that are missing, unknown or in conflict."""
    with open(path, "rb") as file:
        try:
            if not zipfile.is_zipfile(file):
                raise UsageError(f"{path} is not an .npz archive (numpy.savez makes one)")
            archive: Any = np.load(file, allow_pickle=False)
        except UsageError:
            raise
        except Exception as error:  # zipfile and NumPy raise many kinds of exceptions for a damaged archive
            raise UsageError(f"{path} cannot be read: {error}") from None
        if unknown := sorted(set(archive.files) - set(KNOWN)):
            raise UsageError(f"{path} holds the unknown {', '.join(unknown)}; known are {', '.join(KNOWN)}")
        arrays: dict[str, np.ndarray] = {}
        for name in archive.files:
            try:
                arrays[name] = archive[name]
            except Exception as error:
                said = str(error) or type(error).__name__
                why = "pickled objects are refused" if "allow_pickle" in said else said
                raise UsageError(f"{name} cannot be read as an array of numbers: {why}") from None
            if not isinstance(arrays[name], np.ndarray):  # NumPy returns a member that is no .npy file as bytes
                raise UsageError(f"{name} is not an array")
    if "X" not in arrays:
        raise UsageError(f"{path} has no X (n, T, d), the tokens")
    given = [name for name in ("y", "v") if name in arrays]
    if "selected" in arrays and given:
        raise UsageError(f"selected replaces y and v: leave out either selected or {' and '.join(given)}")
    if "selected" not in arrays and len(given) < 2:
        have = {"y": "has y without v", "v": "has v without y"}.get("".join(given), "has neither y nor v")
        raise UsageError(f"{path} {have}: give y (n,) and v (d,), or selected (n,) to solve the SVMs alone")
    return arrays


def as_data(arrays: dict[str, np.ndarray]) -> Data:
    """Data without padding.  The queries are Z; if there is no Z, the query of a sequence is its first token."""
    X: Any = arrays["X"]
    if "lengths" in arrays:
        check_shape("X", X, "n, T, d")
        n, T, _ = X.shape
        lengths = as_numeric("lengths", arrays["lengths"])
        check_shape("lengths", lengths, "n", (n,))
        if lengths.dtype.kind == "f" or lengths.min() < 1 or lengths.max() > T:
            raise ValueError(f"lengths must be whole numbers from 1 to T = {T}, got {lengths}")
        X = [tokens[:length] for tokens, length in zip(X, lengths, strict=True)]
    if "Z" not in arrays:
        return self_attention(X)
    return cross_attention(X, as_floats("Z", arrays["Z"], "n, dz"))


def as_selected(arrays: dict[str, np.ndarray]) -> Any:
    """The selection that the user gave, without the entries of padding."""
    selected = arrays["selected"]
    if selected.dtype != bool or "lengths" not in arrays:
        return selected
    check_shape("selected", selected, "n, T", arrays["X"].shape[:2])
    pairs = list(zip(selected, arrays["lengths"], strict=True))
    if any(row[length:].any() for row, length in pairs):
        raise ValueError("selected must not hold a token beyond its sequence's length")
    return [row[:length] for row, length in pairs]
