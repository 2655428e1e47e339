"""The SVM in a metric: the plain Frobenius problem on other tokens and queries, its answer brought back."""

from __future__ import annotations

import numpy as np

from ..attention.data import Data
from ..attention.layout import Layout
from ..common.metric import Metric

__all__ = ["Whitening"]

MOST = 2e8  # numbers in the tokens of a metric that is not of rank one, 1.6 GB


class Whitening:
    """``min ||W||`` in a metric as ``min ||V||_F`` over other data: ``V = L^T W M`` with ``P = L L^T``, ``R = M M^T``.

    The rows are ``(L^-1 (x_ref - x_t)) V (M^-1 z)``.  A metric D (dk, dz) that is no product of two vectors has
    ``V = sqrt(D) W`` as one vector: tokens ``vec(x z^T) / sqrt(D)`` of their own for each query, and the query 1.
    """

    def __init__(self, data: Data, metric: Metric):
        self.data, self.metric = data, metric
        if metric.D is None:
            left, right = metric.inverses
            keys = data.keys.astype(np.float64) @ left.T
            self.plain = Data("metric", keys, np.ascontiguousarray(data.queries @ right.T), None, data.layout)
            return
        entries = int(data.indptr[-1])
        if entries * metric.D.size > MOST:
            raise ValueError(
                f"metric must be a tuple (P, R) where entries times dk dz are above {MOST:g}, "
                f"got an array D and {entries} entries"
            )
        q = data.query_of()
        token = np.arange(entries) - data.indptr[q] + data.start[q]
        rows = data.keys[token].astype(np.float64)[:, :, None] * data.queries[q][:, None, :] / np.sqrt(metric.D)
        lengths = np.diff(data.indptr)
        layout = Layout(lengths, np.ones_like(lengths), True)
        self.plain = Data("metric", rows.reshape(entries, -1), np.ones((len(data), 1)), None, layout)

    def back(self, V: np.ndarray) -> np.ndarray:
        """W of the plain problem's answer."""
        if self.metric.D is not None:
            return V.reshape(self.metric.D.shape) / np.sqrt(self.metric.D)
        left, right = self.metric.inverses
        return left.T @ V @ right
