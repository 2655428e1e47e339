"""The SVM in any norm as it is, and in a metric as a Frobenius problem over whitened tokens."""

from dataclasses import replace

import numpy as np

from ..attention.data import Data
from ..attention.layout import Layout
from ..attention.selection import intervals
from ..common.norms import Metric, size
from .methods import CODE, solve_request
from .request import Request
from .separation import Separation
from .support import products

LOOSEST = 2.3e-5  # largest gap that rounding may leave in an optimal answer (CERTIFICATE_LOOSEST of certificate.h)
MOST = 2e8  # largest number of elements in the tokens of a solve whose metric is an array D (1.6 GB)


def solve_in_norm(data: Data, request: Request) -> Separation:
    """Solves an SVM in any norm, and in a metric.

    In a metric ``(P, R) = (L L^T, M M^T)`` it is a Frobenius problem for the weights ``V = L^T W M``; the bounds are
    computed again from the original tokens.

    The norm of W in the metric is ``||V||_F``.

    The rows are ``(L^-1 (x_t - x_ref)) V (M^-1 z)``.  For a metric given as an array D (dk, dz), V is the flat vector
    ``sqrt(D) W``: each query gets tokens ``vec(x z^T) / sqrt(D)`` of its own, and the query becomes the number 1.  The
    reference token is subtracted before a token is multiplied; afterwards, rows that are short relative to their tokens
    would be lost to rounding.  If queries share tokens, the first token of the sequence is subtracted instead.
    """
    metric = request.norm
    if not isinstance(metric, Metric):
        return solve_request(data, request)
    q, chosen, token = data._rows_of(request.selection.reference)
    if metric.D is None:
        layout, (left, right) = data._layout, metric.inverses
        if not layout.single or layout.begin is not None:  # queries may share tokens
            chosen = np.repeat(layout.first_tokens(), layout.counts)[q]
        keys = np.zeros(data.keys.shape)
        keys[token] = data._differences(token, chosen)
        keys, queries = keys @ left.T, data.queries @ right.T
    else:
        entries = data._entries
        if entries * metric.D.size > MOST:
            raise ValueError(
                f"metric must be a tuple (P, R) where entries times dk dz are above {MOST:g}, "
                f"got an array D and {entries} entries"
            )
        layout = Layout(data.lengths, np.ones_like(data.lengths), True)
        keys = products(data._differences(token, chosen), data.queries[q]) / np.sqrt(metric.D.ravel())
        queries = np.ones((len(data), 1))
    plain = solve_request(Data("metric", keys, queries, None, layout), replace(request, norm="frobenius"))
    answer, V = plain.answer, plain.answer.W
    W = left.T @ V @ right if metric.D is None else V.reshape(metric.D.shape) / np.sqrt(metric.D)
    low, high = answer.lower, answer.upper
    if request.C is None and request.selection.rhs is None and plain.W is not None and plain.status != "no constraint":
        low, high = (
            float(end[0]) for end in intervals(data, request.selection, W[None], plain.flat_dual[None], metric)
        )
        if low > 0:  # scale W so that its least margin is 1 again after rounding in the whitening
            W = W / (low * size(W, metric))
        if not high <= low * (1 + LOOSEST):
            answer = answer._replace(status=CODE["iteration limit"])
    return Separation(data, request, answer._replace(W=W, lower=low, upper=high))
