"""The SVM in a metric: the plain Frobenius problem on other tokens and queries, its answer brought back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..attention.data import Data
from ..attention.intervals import intervals
from ..attention.layout import Layout
from ..common.metric import Metric
from .methods import solve_request
from .request import Request
from .separation import Separation

__all__ = ["Whitening", "solve_in_metric"]

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


def solve_in_metric(data: Data, request: Request, metric: Metric) -> Separation:
    """The plain problem on whitened tokens; both bounds are computed again from the tokens as they are."""
    if request.norm != "frobenius":
        raise ValueError(f"metric goes with norm='frobenius', got norm={request.norm!r}")
    whitening = Whitening(data, metric)
    plain = solve_request(whitening.plain, request)
    answer, W = plain.answer, whitening.back(plain.answer.W)
    low, high = answer.lower, answer.upper
    bounded = plain.W is not None and plain.status != "no constraint"
    if bounded and request.C is None and request.selection.rhs is None:
        ends = intervals(data, request.selection, W[None], plain.flat_dual[None], metric)
        low, high = (float(end[0]) for end in ends)
    found = answer._replace(W=W, lower=low, upper=high)
    return Separation(data, replace(request, norm=metric), found)
