"""Metrics of weights: Frobenius norms of W with its entries, or its rows and columns, weighted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .check import as_floats
from .storage import storable

__all__ = ["Metric", "as_metric"]

SYMMETRIC = 1e-12  # of the largest entry: by how much rounding may make P differ from its transpose
WORST_CONDITION = 1e12  # of P and R: beyond it rounding decides


@storable
class Metric:
    """``sqrt(sum D W^2)`` of a positive D (dk, dz), or ``||P^(1/2) W R^(1/2)||_F`` of symmetric positive definite P
    (dk, dk) and R (dz, dz).

    The dual norm is ``sqrt(sum M^2 / D)``, or ``||P^(-1/2) M R^(-1/2)||_F``.
    """

    def __init__(self, D: np.ndarray | None, P: np.ndarray | None = None, R: np.ndarray | None = None):
        self.D, self.P, self.R = D, P, R
        if D is not None:
            self.roundings, self.largest_dual = 0.0, 1 / math.sqrt(D.min())
            return
        assert P is not None and R is not None
        self._roots = [np.linalg.cholesky(one) for one in (P, R)]  # P = L L^T: ||P^(1/2) W|| = ||L^T W||
        self.inverses = [np.linalg.inv(root) for root in self._roots]
        spectra = [np.linalg.eigvalsh(one) for one in (P, R)]
        self.roundings = sum(8 * len(s) * s[-1] / s[0] for s in spectra)
        self.largest_dual = 1 / math.sqrt(spectra[0][0] * spectra[1][0])

    @property
    def value(self) -> Any:
        """D, or (P, R)."""
        return self.D if self.D is not None else (self.P, self.R)

    @property
    def numbers(self) -> np.ndarray:
        """As C reads it: D (dk dz), or P^-1 and then R^-1."""
        if self.D is not None:
            return self.D.flatten()
        return np.concatenate([(root.T @ root).ravel() for root in self.inverses])

    def size(self, W: np.ndarray, dual: bool = False) -> Any:
        """The norm, or the dual norm, of W (..., dk, dz): (...)."""
        if self.D is not None:
            W = W / np.sqrt(self.D) if dual else W * np.sqrt(self.D)
        elif dual:
            W = self.inverses[0] @ W @ self.inverses[1].T
        else:
            W = self._roots[0].T @ W @ self._roots[1]
        return np.sqrt(np.square(W).sum(axis=(-2, -1)))

    def _state(self) -> dict[str, Any]:
        return {"D": self.D, "P": self.P, "R": self.R}


def as_metric(name: str, value: Any, dk: int, dz: int) -> Metric:
    """The metric of D, or of a tuple (P, R)."""
    if isinstance(value, Metric):
        return as_metric(name, value.value, dk, dz)
    if not isinstance(value, tuple):
        D = as_floats(name, value, "dk, dz", (dk, dz))
        if D.min() <= 0:
            raise ValueError(f"{name} must be positive everywhere, got {D.min():g}")
        return Metric(D.copy())
    if len(value) != 2:
        raise ValueError(f"{name} must be an array D (dk, dz) or a tuple (P, R), got a tuple of {len(value)}")
    parts: list[np.ndarray] = []
    for part, matrix, letter, size in ((0, value[0], "dk", dk), (1, value[1], "dz", dz)):
        found = as_floats(f"{name}[{part}]", matrix, f"{letter}, {letter}", (size, size))
        if (off := np.abs(found - found.T).max()) > SYMMETRIC * np.abs(found).max():
            raise ValueError(f"{name}[{part}] must be symmetric, got entries that differ by {off:g}")
        spectrum = np.linalg.eigvalsh(found)
        if not spectrum[0] * WORST_CONDITION > spectrum[-1] > 0:
            raise ValueError(
                f"{name}[{part}] must be positive definite, its eigenvalues within a factor of {WORST_CONDITION:g}; "
                f"got {spectrum[0]:g} to {spectrum[-1]:g}"
            )
        parts.append((found + found.T) / 2)
    return Metric(None, *parts)
