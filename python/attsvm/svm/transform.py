"""What a solver is asked and what it answers, in the units of the data and in those of C: powers of two, metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import _core
from ..attention.data import Data
from ..attention.layout import Layout
from ..attention.selection import Selection
from ..common.norms import Metric, of_values
from ..common.progress import Report


@dataclass(slots=True)
class Request:
    """The checked arguments of a solve, but for the data.  Slots, which are read four times as fast as named tuples."""

    selection: Selection
    norm: Any  # as as_norm gives it, or a Metric
    method: str
    tol: float
    max_iter: int = 0  # 0: the method's own limit
    C: float | None = None
    rank: int | None = None
    dual: np.ndarray | None = None  # multipliers of all entries to begin with
    W: np.ndarray | None = None  # weights to begin with
    report: Report | None = None


class Answer(NamedTuple):
    """What a method in C returns."""

    status: int
    W: np.ndarray
    dual: np.ndarray
    lower: float
    upper: float
    iterations: int = 0
    entry: int = -1  # the entry that cannot be; -1: none
    method: str | None = None
    exception: BaseException | None = None


LARGEST_EXPONENT = 1020  # of numbers that keep all their digits
OUT_OF_RANGE = (
    "tokens times queries must be of a scale at which rows, weights, multipliers and bounds lie within "
    "1e-307 .. 1e307, got {}: rescale X or Z"
)


def scaled_number(number: float, power: int, what: str) -> float:
    """``number * 2**power``; ValueError where it leaves double precision."""
    if power == 0 or number == 0 or not math.isfinite(number):
        return number
    exponent = math.frexp(number)[1] + power
    if not -LARGEST_EXPONENT < exponent < LARGEST_EXPONENT:
        raise ValueError(OUT_OF_RANGE.format(f"{what} of about 1e{round(exponent * math.log10(2)):+d}"))
    return math.ldexp(number, power)


def scaled_array(array: np.ndarray, power: int, what: str) -> np.ndarray:
    """``array * 2**power``; ValueError where its largest number leaves double precision."""
    if power == 0:
        return array
    scaled_number(float(np.abs(array).max()), power, what)
    return np.ldexp(array, power)


def of_order_one(dual: np.ndarray) -> np.ndarray:
    """The multipliers over a power of two, the largest between 1 and 2."""
    largest = float(np.abs(dual).max(initial=0.0))
    return np.ldexp(dual, 1 - math.frexp(largest)[1]) if largest > 0 else dual


def in_units(answer: Answer, rows: int, asked: int, soft: bool, norm: str | float) -> Answer:
    """The answer of C on rows over ``2**rows`` that were asked for margins over ``2**asked``, for the rows as they are.

    ``M = sum dual (x_a - x_t) z^T`` has the degree 1 in W; 0 in the norms "max" and "spectral"; and p - 1 in the
    entrywise norm of exponent p.  Where multipliers leave double precision though W does not, they come at order one:
    what they prove, ``||M|| / sum dual``, has no scale.  (Those of a soft margin have: they are slacks.)
    """
    if rows == asked == answer.status == 0:
        return answer
    W, dual = answer.W, answer.dual
    if not np.isfinite(dual).all():  # a method that rounding stopped leaves such, and they prove nothing
        dual = np.zeros_like(dual)
    if _core.STATUS[answer.status] == "infeasible":
        return answer._replace(dual=of_order_one(dual))
    power, what = (2 * (asked - rows), "an objective") if soft else (rows - asked, "a margin")
    lower, upper = (scaled_number(bound, power, what) for bound in (answer.lower, answer.upper))
    if soft or answer.lower > 0:  # else W means nothing, and is not shown
        W = scaled_array(W, asked - rows, "weights")
    if soft:
        dual = scaled_array(dual, asked - 2 * rows, "multipliers")
    else:
        degree = norm - 1 if not isinstance(norm, str) else 0 if of_values(norm)[1] == math.inf else 1
        dual = _of_degree(dual, degree * (asked - rows) - rows)
    return answer._replace(W=W, dual=dual, lower=lower, upper=upper)


def _of_degree(dual: np.ndarray, exponent: float) -> np.ndarray:
    largest = float(np.abs(dual).max(initial=0.0))
    if largest == 0 or not abs(math.log2(largest) + exponent) < LARGEST_EXPONENT:
        return of_order_one(dual)
    return dual * 2.0 ** (exponent / 2) * 2.0 ** (exponent / 2)


MOST = 2e8  # numbers in the tokens of a metric that is not of rank one, 1.6 GB


class Whitening:
    """``min ||W||`` in a metric as ``min ||V||_F`` over other data: ``V = L^T W M`` with ``P = L L^T``, ``R = M M^T``.

    The rows are ``(L^-1 (x_t - x_ref)) V (M^-1 z)``.  A metric D (dk, dz) that is no product of two vectors has
    ``V = sqrt(D) W`` as one vector: tokens ``vec(x z^T) / sqrt(D)`` of their own for each query, and the query 1.
    The difference to the reference token is taken before a token is multiplied: after it, a row that is short beside
    its tokens would be rounding.  Where queries share tokens, the difference is that to the sequence's first token.
    """

    def __init__(self, data: Data, metric: Metric, reference: np.ndarray):
        self.data, self.metric = data, metric
        q, chosen, token = data._rows_of(reference)
        if metric.D is None:
            layout, (left, right) = data._layout, metric.inverses
            if not layout.single or layout.begin is not None:  # queries may share tokens
                chosen = np.repeat(layout.first_tokens(), layout.counts)[q]
            keys = np.zeros(data.keys.shape)
            keys[token] = data._differences(token, chosen)
            self.plain = Data("metric", keys @ left.T, np.ascontiguousarray(data.queries @ right.T), None, layout)
            return
        entries = data._entries
        if entries * metric.D.size > MOST:
            raise ValueError(
                f"metric must be a tuple (P, R) where entries times dk dz are above {MOST:g}, "
                f"got an array D and {entries} entries"
            )
        rows = data._differences(token, chosen)[:, :, None] * data.queries[q][:, None, :] / np.sqrt(metric.D)
        lengths = np.diff(data.indptr)
        layout = Layout(lengths, np.ones_like(lengths), True)
        self.plain = Data("metric", rows.reshape(entries, -1), np.ones((len(data), 1)), None, layout)

    def back(self, V: np.ndarray) -> np.ndarray:
        """W of the plain problem's answer."""
        if self.metric.D is not None:
            return V.reshape(self.metric.D.shape) / np.sqrt(self.metric.D)
        left, right = self.metric.inverses
        return left.T @ V @ right
