"""The tokens that each query selects, and the margins that weights and multipliers prove for a selection."""

from __future__ import annotations

import copy
import math
import sys
from typing import Any

import numpy as np

from .. import _core
from ..common.check import as_array, as_count, as_doubles, as_numeric, as_parts, check_finite, check_shape, describe
from ..common.norms import Metric, largest_of_unit, roundings, size
from ..common.storage import storable
from ..common.types import Norm
from .data import Data

CHOSEN = 0.9  # a query has chosen a token when it gives the token at least this probability
# A query that selects several tokens has chosen when it gives each of them at least HIGH, each other at most LOW.
LOW, HIGH = 1e-6, 1e-3
# smallest and largest size of the margins asked for, so that the squared norm of W stays in range
SMALLEST, LARGEST = 1e-150, 1e150
TIED = 1e-12  # two scores count as equal if they differ by at most this fraction of the window's largest score


@storable
class Selection:
    """The tokens that the queries select, checked: a reference token of each query, and all selected tokens if a query
    has several.

    ``reference`` (M,) is the first selected token of each query, counted in its window.  ``kept`` (entries,) flags all
    selected tokens; None if each query selects one.  ``rhs`` (entries,) is what each row must reach, divided by
    ``2**power`` so that the largest is about 1; minus infinity where there is no row; None for the usual 1 on margin
    rows and 0 on equality rows.
    """

    def __init__(self, data: Data, selected: Any, margins: Any = None):
        self.kept: np.ndarray | None = None
        self.rhs: np.ndarray | None = None
        self.power = 0
        self.tied = 0  # number of queries of a training run in which another token scores as much as the selected token
        # The selection is copied: C relies on it during the solve, and the answer keeps it.
        # Fast path: C reads a selection that is an array of integers.
        plain = _core.reference(data._handle, selected) if data._single else None
        if plain is not None:
            self.reference = plain
        else:
            self._read(data, selected)
        if margins is not None:
            self.rhs = as_entries(data, "margins", margins, of_margins=True).copy()
            # A reference outside its window is found later.  Clipped to the array, it raises no IndexError here.
            self.rhs.put(data._begin + self.reference, 0.0, mode="clip")
            largest = self.largest
            if largest > 0 and not SMALLEST <= largest <= LARGEST:
                raise ValueError(
                    f"margins must have their largest size between {SMALLEST:g} and {LARGEST:g}, got {largest:g}"
                )
            self.power = math.frexp(largest)[1] - 1
            self.rhs = np.ldexp(self.rhs, -self.power)

    def _state(self) -> dict[str, Any]:
        return vars(self)

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> Selection:
        selection = cls.__new__(cls)
        vars(selection).update({"tied": 0} | state)
        return selection

    def check(self, data: Data) -> None:
        """Raises an error unless this selection, read from a file, fits ``data``."""
        as_count("power", self.power, -(2**12))
        as_count("tied", self.tied)
        for name, kinds in (("reference", "iu"), ("kept", "b"), ("rhs", "f")):
            array = getattr(self, name)
            if array is not None or name == "reference":
                if not isinstance(array, np.ndarray) or array.dtype.kind not in kinds:
                    raise TypeError(f"{name} must be an array, got {array!r:.100}")
                check_shape(name, array, "n", (len(data.queries) if name == "reference" else data._entries,))
        if self.rhs is not None:
            check_finite("rhs", self.rhs[self.rhs > -np.inf])
        self.within(data)

    def _read(self, data: Data, selected: Any) -> None:
        scores = None  # of a training run
        if hasattr(selected, "undecided"):
            if selected.stacked:
                raise ValueError("selected must be one selection, got several runs: take one, run[r]")
            if selected.problem.heads is not None:
                raise ValueError(
                    "selected must be one selection, got a run of attention heads: take one, run.selected[h]"
                )
            selected, scores = selected.selected, selected.problem._fixed_scores
        layout = data._layout
        array = as_parts("selected", selected, not layout.uniform, _as_integers_or_bools)
        if (array[0] if isinstance(array, list) else array).dtype.kind != "b":
            self.reference = np.array(layout.flatten_queries("selected", array), dtype=np.intp)
            self._free_ties(data, scores)
            return
        kept = np.array(layout.flatten_entries("selected", array))
        some = np.logical_or.reduceat(kept, data._begin)
        if not some.all():
            raise ValueError(f"selected must hold a token for every query, got none for query {some.argmin()}")
        self.kept = kept
        self.reference = _core.top(data._handle, kept.astype(np.float64))

    def _free_ties(self, data: Data, scores: np.ndarray | None) -> None:
        """Drops the constraints between a query's selected token and tokens that score as much, since training does not
        separate such tokens."""
        if scores is None or len(scores) != data._entries:
            return
        chosen, query = data._begin + self.reference, data._query_of()
        largest = np.maximum.reduceat(np.abs(scores), data._begin)
        tied = np.abs(scores - scores[chosen][query]) <= TIED * largest[query]
        tied[chosen] = False
        if tied.any():
            self.rhs = np.where(tied, -np.inf, 1.0)
            self.rhs[chosen] = 0.0
            self.tied = int(np.logical_or.reduceat(tied, data._begin).sum())

    def flags(self, data: Data) -> np.ndarray:
        """Which entries (pairs of a query and a token) are selected, as a flat bool array."""
        flags = np.zeros(data._entries, dtype=bool) if self.kept is None else self.kept.copy()
        flags[data._begin + self.reference] = True
        return flags

    def asked(self, entries: np.ndarray) -> np.ndarray:
        """The margins asked of the given entries (pairs of a query and a token), in the units of the user's argument
        ``margins``."""
        if self.rhs is not None:
            return np.ldexp(self.rhs[entries], self.power)
        return np.ones(len(entries)) if self.kept is None else np.where(self.kept[entries], 0.0, 1.0)

    def without(self, gone: np.ndarray) -> Selection:
        """A copy of this selection without the constraints of the entries flagged in ``gone``."""
        part, asked = copy.copy(self), self.asked(np.arange(len(gone)))
        part.rhs = np.where(gone, -np.inf, np.ldexp(asked, -self.power))
        return part

    @property
    def largest(self) -> float:
        """The largest absolute value of the margins that the constraints ask for."""
        return 1.0 if self.rhs is None else math.ldexp(np.abs(self.rhs[self.rhs > -np.inf]).max(), self.power)

    def within(self, data: Data) -> Selection:
        """Returns this selection; raises ValueError if the reference token of a query lies outside its window."""
        if said := data._outside(self.reference):
            raise ValueError(said)
        return self


def as_entries(data: Data, name: str, value: Any, of_margins: bool = False) -> np.ndarray:
    """Reads an argument with one finite number per entry (pair of a query and a token) into a flat array.

    Tokens that a causal query cannot see must have 0.  With ``of_margins`` they may have any number, and some numbers
    may be minus infinity.
    """

    def read(name: str, part: Any) -> np.ndarray:
        array = as_doubles(as_numeric(name, part))
        check_finite(name, np.maximum(array, -sys.float_info.max) if of_margins else array)
        return array

    parts = as_parts(name, value, not data._layout.uniform, read)
    return np.ascontiguousarray(data._layout.flatten_entries(name, parts, hidden=of_margins))


def undecided(probabilities: np.ndarray, single: bool, low: float = LOW, high: float = HIGH) -> np.ndarray:
    """Which queries have not chosen their tokens yet, as a bool array (...), from attention probabilities (..., T).

    With ``single``, one token is to be selected: a query is undecided if its largest probability is below CHOSEN.
    Otherwise it is undecided if some probability lies strictly between ``low`` and ``high``.
    """
    if single:
        return np.asarray(probabilities.max(axis=-1) < CHOSEN)
    return np.asarray(((probabilities > low) & (probabilities < high)).any(axis=-1))


def number_undecided(run: Any) -> tuple[int, int]:
    """Returns the number of queries of a training run that have not chosen a token; and the number of all queries.

    A query counts once for each run and attention head.
    """
    flags = _flat(run.undecided)
    return int(flags.sum()), flags.size


def _flat(parts: Any) -> np.ndarray:
    """All numbers of an array, or of nested lists of arrays, as a flat array."""
    return np.concatenate([_flat(part) for part in parts]) if isinstance(parts, list) else np.ravel(parts)


def _as_integers_or_bools(name: str, value: Any) -> np.ndarray:
    array = as_array(name, value)
    if array.dtype.kind not in "iub":
        came = array.dtype if array.ndim else describe(value, array)
        came = f"{came}: weights W select data.select(W)" if array.dtype.kind == "f" and array.ndim == 2 else came
        raise TypeError(f"{name} must hold integers (one token per query) or bools (per entry), got {came}")
    return array


def intervals(
    data: Data, selection: Selection, W: np.ndarray, delta: np.ndarray, norm: Norm | Metric
) -> tuple[np.ndarray, np.ndarray]:
    """Proved lower and upper bounds on the largest margin of a unit-norm W, as two arrays (R,) with one bound for each
    of R given weights.

    Bound r comes from weights ``W[r]``, of W (R, dk, dz), and multipliers ``delta[r]``, of ``delta`` (R, entries).

    ``low`` is the least margin of W divided by its norm, ``high`` the dual norm of the combined rows divided by the sum
    of the multipliers.  Both are rounded outwards.  Negative multipliers of margin rows count as zero.
    """
    kept, power, shape = selection.kept, sum(data._powers or (0,)), data._W_shape
    dual = np.maximum(delta, 0.0)
    W, dual = _in_range(W), _in_range(dual if kept is None else np.where(kept, delta, dual))
    reference = selection.within(data).reference
    least, pull, total, off = _core.interval(data._in_range(), reference, kept, W, dual)
    outwards = 1 + roundings(norm, *shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where(least > 0, least / (outwards * size(W, norm)), 0.0)
        reached = outwards * (size(pull, norm, dual=True) + off * largest_of_unit(norm, *shape))
        high = np.where(total > 0, reached / total, math.inf)
    low[np.isnan(low)] = 0.0  # W = 0 gives 0 / 0
    return np.ldexp(low, power), np.ldexp(high, power)


def _in_range(stack: np.ndarray) -> np.ndarray:
    """Divides each array of a stack by a power of two, so that sums of its squares stay in range.

    The bounds of ``intervals`` do not depend on the scale of W or of the multipliers.
    """
    largest = np.abs(stack).max(axis=tuple(range(1, stack.ndim)), keepdims=True)
    return np.ldexp(stack, -np.frexp(largest)[1], order="C")
