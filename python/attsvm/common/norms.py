"""Norms and metrics of weights, their dual norms, and bounds on their rounding error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _core
from .check import as_floats, as_norm
from .storage import storable
from .types import Norm

NAMED = {"frobenius": (False, 2.0), **_core.NORM}
EPSILON = 2.0**-52
SMALL = 1e-100  # Entries between this and its inverse can be squared without underflow or overflow.
# Each rounding bound counts SPARE operations too many; for norms of singular values it is then multiplied by SPARE.
SPARE = 16


def norm_name(norm: str | float | Metric) -> str:
    """The norm's name for a sentence, to be followed by the word "norm"."""
    if isinstance(norm, str):
        return "Frobenius" if norm == "frobenius" else norm
    return "metric" if isinstance(norm, Metric) else f"l{norm:g}"


def size(W: np.ndarray, norm: Norm | Metric, dual: bool = False) -> Any:
    """The norm of each matrix of W (..., dk, dz), or its dual norm ``max_(||V|| <= 1) <V, W>``, as an array (...).

    The dual norm of a metric is again the norm of a metric.  The dual of the norm with exponent p, of entries or of
    singular values, has the exponent ``p / (p - 1)``.
    """
    largest = np.maximum(W.max(axis=(-2, -1)), -W.min(axis=(-2, -1)))
    if norm == "frobenius" and np.all((largest == 0) | ((largest > SMALL) & (largest < 1 / SMALL))):
        return np.sqrt(np.einsum("...ij,...ij->...", W, W))  # the common case: it needs no temporary arrays
    # the largest entry becomes 1, so that squares and powers do not leave the range of doubles
    W = W / np.where(largest > 0, largest, 1.0)[..., None, None]
    if isinstance(norm, Metric):
        return largest * norm.size(W, dual)
    singular, p = of_values(norm)
    values = np.linalg.svd(W, compute_uv=False) if singular else W.reshape(*W.shape[:-2], -1)
    return largest * np.linalg.norm(values, conjugate(p) if dual else p, axis=-1)


def of_values(norm: str | float) -> tuple[bool, float]:
    """Returns whether a norm is one of the singular values (True) or of the entries (False); and its exponent."""
    return NAMED[norm] if isinstance(norm, str) else (False, norm)


def conjugate(p: float) -> float:
    """The exponent of the dual norm, ``p / (p - 1)``."""
    return 1.0 if p == math.inf else math.inf if p == 1 else p / (p - 1)


def roundings(norm: Norm | Metric, dk: int, dz: int) -> float:
    """An upper bound on the relative rounding error of :func:`size`, for the norm and for its dual."""
    count = dk * dz + SPARE
    if isinstance(norm, Metric):
        return EPSILON * (count + norm.roundings)
    if of_values(norm)[0]:  # the SVD errs in each singular value by about max(dk, dz) roundings of the largest one
        count *= SPARE
    return EPSILON * count


def largest_of_unit(norm: Norm | Metric, dk: int, dz: int) -> float:
    """The largest dual norm among the matrices of Frobenius norm 1."""
    if isinstance(norm, Metric):
        return norm.largest_dual
    singular, p = of_values(norm)
    return (min(dk, dz) if singular else dk * dz) ** max(0.0, 1 / conjugate(p) - 0.5)


SYMMETRIC = 1e-12  # P may differ from its transpose by this fraction of its largest entry, for rounding.
WORST_CONDITION = 1e12  # Largest accepted condition number of P and R; beyond it rounding would decide the result.


@storable
@dataclass(repr=False, eq=False)
class Metric:
    """The norm ``sqrt(sum D W^2)`` for a positive D (dk, dz), or ``||P^(1/2) W R^(1/2)||_F`` for symmetric positive
    definite P (dk, dk) and R (dz, dz).

    The dual norm is ``sqrt(sum M^2 / D)``, or ``||P^(-1/2) M R^(-1/2)||_F``.
    """

    D: np.ndarray | None
    P: Any = None
    R: Any = None

    def __post_init__(self) -> None:
        if self.D is not None:
            self.roundings, self.largest_dual = 0.0, 1 / math.sqrt(self.D.min())
            return
        # A Cholesky factor L can replace a square root: if P = L L^T, then ||P^(1/2) W|| = ||L^T W||.
        sides = self.P, self.R
        self._roots = list(map(np.linalg.cholesky, sides))
        self.inverses = list(map(np.linalg.inv, self._roots))
        spectra = list(map(np.linalg.eigvalsh, sides))
        self.roundings = sum(8 * len(s) * s[-1] / s[0] for s in spectra)
        self.largest_dual = 1 / math.sqrt(spectra[0][0] * spectra[1][0])

    @property
    def value(self) -> Any:
        """The metric as the user gave it: D, or the tuple (P, R)."""
        return self.D if self.D is not None else (self.P, self.R)

    @property
    def numbers(self) -> np.ndarray:
        """The metric as C reads it, flat: D (dk dz), or P^-1 followed by R^-1."""
        if self.D is not None:
            return self.D.flatten()
        return np.concatenate([(root.T @ root).ravel() for root in self.inverses])

    def size(self, W: np.ndarray, dual: bool = False) -> Any:
        """The norm of W (..., dk, dz), or its dual norm, of shape (...)."""
        if self.D is not None:
            W = W / np.sqrt(self.D) if dual else W * np.sqrt(self.D)
        elif dual:
            W = self.inverses[0] @ W @ self.inverses[1].T
        else:
            W = self._roots[0].T @ W @ self._roots[1]
        return np.linalg.norm(W, axis=(-2, -1))


def read_norm(norm: Any, metric: Any, dk: int, dz: int) -> Norm | Metric:
    """The norm of W that the arguments ``norm`` and ``metric`` stand for; raises if they do not go together."""
    norm = as_norm("norm", norm)
    if metric is None:
        return norm
    if norm != "frobenius":
        raise ValueError(f"metric goes with norm='frobenius', got norm={norm!r}")
    return as_metric("metric", metric, dk, dz)


def as_metric(name: str, value: Any, dk: int, dz: int) -> Metric:
    """The metric made from D or from a tuple (P, R), checked."""
    value = value.value if isinstance(value, Metric) else value
    if not isinstance(value, tuple):
        D = as_floats(name, value, "dk, dz", (dk, dz))
        if D.min() <= 0:
            raise ValueError(f"{name} must be positive everywhere, got {D.min():g}")
        return Metric(D.copy())
    if len(value) != 2:
        raise ValueError(f"{name} must be an array D (dk, dz) or a tuple (P, R), got a tuple of {len(value)}")
    parts: list[np.ndarray] = []
    for i, letters, size in ((0, "dk, dk", dk), (1, "dz, dz", dz)):
        side = f"{name}[{i}]"
        found = as_floats(side, value[i], letters, (size, size))
        if (off := np.abs(found - found.T).max()) > SYMMETRIC * np.abs(found).max():
            raise ValueError(f"{side} must be symmetric, got entries that differ by {off:g}")
        spectrum = np.linalg.eigvalsh(found)
        if not spectrum[0] * WORST_CONDITION > spectrum[-1] > 0:
            raise ValueError(
                f"{side} must be positive definite, its eigenvalues within a factor of {WORST_CONDITION:g}; "
                f"got {spectrum[0]:g} to {spectrum[-1]:g}"
            )
        parts.append((found + found.T) / 2)
    return Metric(None, *parts)
