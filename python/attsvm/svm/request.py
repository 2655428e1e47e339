"""What a solver method in C is given and returns, and the change of units between Python and C."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import _core
from ..attention.selection import Selection
from ..common.norms import of_values
from ..common.progress import Report


@dataclass(slots=True)
class Request:
    """The checked arguments of an SVM solve, except the data.  The class has slots, which are faster to read than a
    named tuple."""

    selection: Selection
    norm: Any  # the norm: a name, an exponent p, or a Metric
    method: str
    tol: float
    max_iter: int = 0  # largest number of iterations; 0: the method's default
    C: float | None = None
    rank: int | None = None
    dual: np.ndarray | None = None  # starting multipliers, one for each pair of a query and a token
    W: np.ndarray | None = None  # starting weights
    report: Report | None = None


class Answer(NamedTuple):
    """What a solver method in C returns: status code, W, multipliers, and the bounds that they prove."""

    status: int
    W: np.ndarray
    dual: np.ndarray
    lower: float
    upper: float
    iterations: int = 0
    entry: int = -1  # index of an entry (query and token) whose constraint no W meets, even alone; -1 if there is none
    method: str | None = None
    exception: BaseException | None = None


SHARDED = "working set"  # method of an answer whose rows are sharded over processes
LARGEST_EXPONENT = 1020  # largest exponent, of either sign, of a double that keeps all of its digits
OUT_OF_RANGE = (
    "tokens times queries must be of a scale at which rows, weights, multipliers and bounds lie within "
    "1e-307 .. 1e307, got {}: rescale X or Z"
)


def scaled_number(number: float, power: int, what: str) -> float:
    """``number * 2**power``; raises ValueError if the result leaves double precision."""
    if power == 0 or number == 0 or not math.isfinite(number):
        return number
    exponent = math.frexp(number)[1] + power
    if not -LARGEST_EXPONENT < exponent < LARGEST_EXPONENT:
        raise ValueError(OUT_OF_RANGE.format(f"{what} of about 1e{round(exponent * math.log10(2)):+d}"))
    return math.ldexp(number, power)


def scaled_array(array: np.ndarray, power: int, what: str) -> np.ndarray:
    """``array * 2**power``; raises ValueError if its largest number leaves double precision."""
    scaled_number(np.abs(array).max(), power, what)
    return np.ldexp(array, power)


def of_order_one(array: np.ndarray) -> np.ndarray:
    """The array divided by a power of two, so that its largest absolute value is between 1 and 2; zeros stay zeros."""
    return np.ldexp(array, 1 - math.frexp(np.abs(array).max(initial=0.0))[1])


def in_units(answer: Answer, rows: int, asked: int, soft: bool, norm: str | float) -> Answer:
    """Converts an answer of C to the units of the data.  C has solved a problem with rows divided by ``2**rows`` and
    margins divided by ``2**asked``.

    ``M = sum dual (x_a - x_t) z^T`` scales as the power 1 of W; as the power 0 in the norms "max" and "spectral"; and
    as the power p - 1 in the entrywise norm of exponent p.  If the multipliers would leave double precision although W
    does not, they are returned at order one: the bound that they prove, ``||M|| / sum dual``, does not depend on their
    scale.  Multipliers of a soft margin are slacks, whose scale matters; for them it is an error.
    """
    if rows == asked == answer.status == 0:
        return answer
    W, dual = answer.W, answer.dual
    # multipliers that are not finite (from a method that rounding stopped) prove nothing
    if not np.isfinite(dual).all():
        dual = np.zeros_like(dual)
    power, what = (2 * (asked - rows), "an objective") if soft else (rows - asked, "a margin")
    if _core.STATUS[answer.status] == "infeasible":
        with np.errstate(over="ignore"):
            lower, upper = np.ldexp((answer.lower, answer.upper), power).tolist()
        return answer._replace(dual=of_order_one(dual), lower=lower, upper=upper)
    lower, upper = (scaled_number(bound, power, what) for bound in (answer.lower, answer.upper))
    if soft or answer.lower > 0:  # without a positive lower bound W proves nothing, and the user does not get it
        W = scaled_array(W, asked - rows, "weights")
    if soft:
        dual = scaled_array(dual, asked - 2 * rows, "multipliers")
    else:
        degree = norm - 1 if not isinstance(norm, str) else 0 if of_values(norm)[1] == math.inf else 1
        exponent, largest = degree * (asked - rows) - rows, np.abs(dual).max(initial=0.0)
        in_range = largest > 0 and abs(math.log2(largest) + exponent) < LARGEST_EXPONENT
        dual = dual * 2.0 ** (exponent / 2) * 2.0 ** (exponent / 2) if in_range else of_order_one(dual)
    return answer._replace(W=W, dual=dual, lower=lower, upper=upper)
