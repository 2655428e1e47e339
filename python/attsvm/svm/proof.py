"""Writes exact proofs of an SVM answer: their witnesses are computed here with NumPy, and ``attsvm/check.py`` checks
them.

``check.py`` states what is proved and from which witnesses.  Two kinds of witnesses are computed here, in floating
point: factors of a matrix whose nuclear or spectral norm must be bounded; and, where equations must hold exactly, a
square subsystem that is far from singular, with its inverse.
"""

import gzip
import json
import math
import os
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from .. import check
from ..common.check import as_count
from ..common.norms import of_values
from ..common.storage import replacing
from .cycle import equal_rows
from .influence import moving, owners, without
from .separation import Separation
from .support import ROUNDED, products, pulls

# an equation depends on others if its part independent of them is below this fraction of the largest equation
DEPENDENT = 1e-9
BINDING = 1e-6  # a margin binds if W exceeds it by less than this fraction of the largest margin asked
# Largest number of equations that a dependent equation may combine: for 40 of them, its exact factors take minutes.
MOST_DEPENDED = 12
# Step lengths by which W is moved, in turn, along a direction in which all binding margins grow, if W misses a margin.
NUDGES = (0.0, 1e-13, 1e-11, 1e-9)


def write_proof(sol: Separation, path: Any, gone: int | None = None) -> str:
    """Writes the proof of an answer and returns its statement; raises ValueError, and writes no file, if there is none.

    With ``gone``, the proof is of the answer without that sequence.  If the sequence has no part in the answer, that is
    this answer with the sequence left out.
    """
    left_out = None
    if gone is not None:
        owner = owners(sol)
        left_out = owner == as_count("without", gone)
        if not left_out.any():
            raise ValueError(f"without must be a sequence, 0 .. {owner[-1]}, got {gone}")
        if (left_out & moving(sol)).any():
            sol, left_out = without(sol, left_out), None
    proof, statement, _ = proved(sol, left_out)
    text, name = _text(proof | {"statement": statement}), os.fspath(path)
    with replacing(name) as file:
        file.write(gzip.compress(text, mtime=0) if name.endswith(".gz") else text)
    return statement


def proved(sol: Separation, left_out: np.ndarray | None = None) -> tuple[dict[str, Any], str, Fraction | None]:
    """Returns the content of a proof file for an SVM answer; the statement that the file proves; and the proved gap
    (None where no W exists).  Raises ValueError with the reason if there is no proof.

    ``left_out`` flags entries; the file then also states that the same is proved without their rows.
    """
    if sol.metric is not None:
        raise ValueError("not proved: the checker knows no metric")
    if sol.method == "working set":
        raise ValueError("not proved: the rows of other processes are not here")
    if sol.status == "infeasible":
        candidates = _contradictions
    elif sol.W is not None and sol.flat_dual.any():
        candidates = _weights
    else:
        raise ValueError(f"not proved: an answer that is {sol.status!r} and has no multipliers proves nothing")
    why = "no witness was found"
    for proof in candidates(_Rows(sol, left_out)):
        try:
            return (proof, *check.theorem(_text(proof)))
        except (AssertionError, ValueError) as error:
            if proof["witness"].get("basis") != []:  # with no basis the proof needs equations that hold exactly
                why = str(error)
    raise ValueError(f"not proved: {why}")


def _text(proof: dict[str, Any]) -> bytes:
    return json.dumps(proof, separators=(",", ":")).encode()


class _Rows:
    """The rows (constraints) of an SVM answer, numbered as in the proof file.  Queries without rows and tokens that no
    query sees are left out."""

    def __init__(self, sol: Separation, left_out: np.ndarray | None = None):
        data, selection = sol.data, sol.selection
        query, chosen, key = data._rows_of(selection.reference)
        self.sol, self.entries = sol, np.flatnonzero(data.lengths[query] > 1)
        queries, self.query = np.unique(query[self.entries], return_inverse=True)
        tokens, self.key = np.unique(key[self.entries], return_inverse=True)
        self.keys, self.queries = data.keys[tokens].astype(np.float64), data.queries[queries]
        self.chosen = np.searchsorted(tokens, chosen[self.entries])
        self.start = np.searchsorted(tokens, data.start[queries])
        self.stop, self.selected = self.start + data.lengths[queries], selection.reference[queries]
        self.names = np.column_stack([self.query, self.key - self.start[self.query]])
        reference = self.key == self.chosen
        self.kept = selection.flags(data)[self.entries]
        self.equation = self.kept & ~reference
        self.rhs = None if selection.rhs is None else selection.asked(self.entries)
        gone = np.zeros_like(reference) if left_out is None else left_out[self.entries]
        self.dual = np.where(reference | gone, 0.0, sol.flat_dual[self.entries])
        self.without = np.unique(self.query[gone]).tolist()

    def differences(self, rows: np.ndarray) -> np.ndarray:
        return self.keys[self.chosen[rows]] - self.keys[self.key[rows]]

    def dense(self, rows: np.ndarray) -> np.ndarray:
        """The matrices (x_a - x_t) z^T of the given rows of the SVM, each as a flat row."""
        return products(self.differences(rows), self.queries[self.query[rows]])

    def combined(self) -> np.ndarray:
        """The sum of the SVM's rows times their multipliers, ``sum dual (x_a - x_t) z^T``."""
        rows = np.flatnonzero(self.dual)
        return (self.dual[rows, None] * self.differences(rows)).T @ self.queries[self.query[rows]]

    def entry(self, row: int, i: int, j: int) -> Fraction:
        """Entry (i, j) of the matrix (x_a - x_t) z^T of one row of the SVM, as an exact fraction."""
        difference = Fraction(self.keys[self.chosen[row], i]) - Fraction(self.keys[self.key[row], i])
        return difference * Fraction(self.queries[self.query[row], j])

    def file(
        self, claim: str, dual: np.ndarray, W: np.ndarray | None, witness: dict[str, Any], used: Any = None
    ) -> dict[str, Any]:
        """The content of a proof file, whose statement is still empty.

        The multipliers of the rows ``used`` are listed even if they are zero; by default all nonzero ones are listed.
        """
        sol, some = self.sol, np.flatnonzero(dual) if used is None else used
        ends = np.cumsum(self.stop - self.start)[:-1]
        return {
            "format": "attsvm-proof-1",
            "statement": None,
            "claim": claim,
            "norm": sol.norm if isinstance(sol.norm, str) else _hex(sol.norm),
            "C": _hex(sol.C),
            "keys": _hex(self.keys),
            "queries": _hex(self.queries),
            "start": self.start.tolist(),
            "stop": self.stop.tolist(),
            "selected": self.selected.tolist(),
            "kept": (
                None
                if sol.selection.kept is None
                else [np.flatnonzero(part).tolist() for part in np.split(self.kept, ends)]
            ),
            "rhs": None if self.rhs is None else [_hex(part) for part in np.split(self.rhs, ends)],
            "W": _hex(W),
            "dual": [[*name, x] for name, x in zip(self.names[some].tolist(), _hex(dual[some]), strict=True)],
            "witness": witness,
        } | ({"without": self.without} if self.without else {})


def _hex(array: Any) -> Any:
    """An array of doubles as nested lists of hexadecimal strings; None stays None."""
    return None if array is None else np.vectorize(float.hex, otypes=[object])(array).tolist()


# ------------------------------------------------------------------------------ proofs of weights and their bound


def _weights(rows: _Rows) -> Iterator[dict[str, Any]]:
    """Yields contents of proof files that may prove weights and their bound, the likeliest first."""
    sol, W = rows.sol, rows.sol.W
    at, witness = np.flatnonzero(rows.equation), {}
    if len(at):  # the witness that some W near the answer meets its equality rows exactly; the unknowns are its entries
        places = list(np.ndindex(W.shape))
        witness = _square(
            rows.dense(at), rows.names[at].tolist(), places, 1.0, lambda k, e: rows.entry(at[e], *places[k])
        ) or {"basis": []}
    held = _factors("dual", rows.combined(), sol.norm)
    for nudge in NUDGES if rows.rhs is not None and sol.C is None else NUDGES[:1]:
        moved = W + nudge * _inward(rows) if nudge else W
        claim = "optimal" if sol.status == "optimal" else "feasible"
        yield rows.file(claim, rows.dual, moved, witness | _factors("W", moved, sol.norm) | held)


def _inward(rows: _Rows) -> np.ndarray:
    """A direction for the answer's W along which every binding margin grows by the largest margin asked, while
    equations keep their values.

    W may miss a margin by rounding.  If the margins asked differ, W cannot simply be stretched; it is moved along this
    direction instead.
    """
    sol, largest = rows.sol, rows.sol.selection.largest
    excess = sol.flat_margins[rows.entries] - rows.rhs
    binding = np.flatnonzero(rows.equation | ~rows.kept & (excess < BINDING * largest))
    more = np.where(rows.equation[binding], 0.0, largest)
    return np.linalg.lstsq(rows.dense(binding), more, rcond=None)[0].reshape(sol.W.shape)


def _factors(name: str, A: np.ndarray, norm: str | float) -> dict[str, Any]:
    """The witness with which check.py bounds the nuclear or spectral norm of A: factors U^T and V^T with U V^T = A.  It
    is empty for other norms.

    A is "W", or "dual": the rows times their multipliers, whose dual norm is bounded.  If the bound is one of the
    nuclear norm, each factor gets the square roots of the singular values; else U gets the singular values.
    """
    if not of_values(norm)[0]:
        return {}
    U, sizes, Vt = np.linalg.svd(A, full_matrices=False)
    power = 0.5 if (norm == "nuclear") == (name == "W") else 1.0
    return {name: [_hex((U * sizes**power).T), _hex((Vt.T * sizes ** (1 - power)).T)]}


# --------------------------------------------------------------------------------- proofs that no weights exist


def _contradictions(rows: _Rows) -> Iterator[dict[str, Any]]:
    """Yields contents of proof files that may prove that no weights exist, the likeliest first."""
    # first the solver's multipliers unchanged: exact for equal tokens, zero queries and preference cycles
    yield rows.file("infeasible", rows.dual, None, {"basis": []})
    needed = np.where(pulls(rows.sol, rows.entries) > ROUNDED, rows.dual, 0.0)
    for lift in (False, True):
        yield from _contradiction(rows, needed, lift)
    if rows.sol.C is None:  # rounding may hide a separating W of large norm: prove that each has a large norm
        yield rows.file("excluded", rows.dual, None, _factors("dual", rows.combined(), rows.sol.norm))


def _contradiction(rows: _Rows, dual: np.ndarray, lift: bool) -> Iterator[dict[str, Any]]:
    """Yields a proof file that no W exists, if one is found: multipliers close to ``dual`` with which the rows add up
    to exactly zero.  With ``lift``, unequal tokens are treated as orthogonal."""
    at = np.flatnonzero(dual)
    D, Z = rows.differences(at), rows.queries[rows.query[at]]
    if lift:
        # for each key, the index of the last key that equals it (0.0 equals -0.0)
        last, kind, _ = equal_rows(rows.keys[::-1] + 0.0)
        place = (len(kind) - 1 - last[kind])[::-1]
        chosen, token = (place[of[at], None] == np.arange(len(place)) for of in (rows.chosen, rows.key))
        D = 1.0 * chosen - token
    keys = np.flatnonzero(D.any(axis=0))
    A = products(D[:, keys], Z).T
    touched = np.flatnonzero(A.any(axis=1))
    i, j = divmod(touched, Z.shape[1])
    places = np.column_stack([keys[i], j]).tolist()
    names, wanted = rows.names[at].tolist(), np.where(rows.equation[at], np.abs(dual).max(), np.abs(dual[at]))

    def entry(unknown: int, equation: int) -> Fraction:
        i, j = places[equation]
        return Fraction(D[unknown, i]) * Fraction(Z[unknown, j]) if lift else rows.entry(at[unknown], i, j)

    found = _square(A[touched], places, names, wanted / wanted.max(), entry)
    if found is None:
        return
    # change the multipliers of the subsystem's rows so that all rows times their multipliers add up to zero
    basis = [names.index(name) for name in found["basis"]]
    exact = dual.copy()
    exact[at[basis]] -= np.linalg.lstsq(A[:, basis], A @ dual[at], rcond=None)[0]
    if (rows.equation | (exact >= 0)).all():
        yield rows.file("infeasible", exact, None, {"lift": lift, **found}, at)


# ------------------------------------------------------------------------ square subsystems of linear equations


def _square(
    A: np.ndarray, equations: list[Any], unknowns: list[Any], weights: Any, entry: Callable[[int, int], Fraction]
) -> dict[str, Any] | None:
    """A square subsystem of the equations A that is far from singular, its inverse, and how the other equations depend
    on it; None if these are not found.

    One reason: an equation depends on too many others for exact factors.

    Rows of A are equations, columns unknowns, with the given names.  Unknowns of large ``weights``, of which the
    largest is 1, are preferred for the subsystem.  ``entry(j, i)`` is the exact value of A[i, j].
    """
    sizes = np.abs(A).max(axis=1)
    scaled = A / np.where(sizes > 0, sizes, 1.0)[:, None] * weights
    free = np.sort(_pivots(scaled.T))
    basis = _pivots(scaled[free])
    if len(basis) < len(free):
        return None
    inverse = np.linalg.inv(A[np.ix_(free, basis)])
    dependent = []
    for k in np.setdiff1d(np.arange(len(A)), free):
        factors = A[k, basis] @ inverse
        others = np.flatnonzero(np.abs(factors) * sizes[free] > DEPENDENT * sizes[k])
        if len(others) > MOST_DEPENDED:
            return None
        some = basis[_pivots(A[np.ix_(free[others], basis)])]
        if len(some) < len(others):
            return None
        combined = np.append(free[others], k)
        exact = _solved(np.frompyfunc(entry, 2, 1).outer(some, combined))
        if exact is None:
            return None
        scale = math.lcm(*(x.denominator for x in exact))
        whole = [scale, *(int(-x * scale) for x in exact)]
        dependent.append([[*equations[e], x] for e, x in zip(np.roll(combined, 1), whole, strict=True)])
    return {"basis": [unknowns[k] for k in basis], "dependent": dependent, "inverse": _hex(inverse.T)}


def _solved(rows: np.ndarray) -> list[Fraction] | None:
    """The exact solution x of the linear equations ``A x = b`` with the fractions ``rows = [A, b]``; None if A is
    singular."""
    for k in range(len(rows)):
        pivots = k + np.flatnonzero(rows[k:, k])
        if not len(pivots):
            return None
        rows[[k, pivots[0]]] = rows[[pivots[0], k]]
        rows[k] /= rows[k, k]
        others = np.arange(len(rows)) != k
        rows[others] -= np.outer(rows[others, k], rows[k])
    return rows[:, -1].tolist()


def _pivots(A: np.ndarray) -> np.ndarray:
    """The indices of columns that span the column space of A, by pivoted QR: each step chooses the column whose part
    orthogonal to the chosen columns is largest."""
    A, chosen = A.copy(), []
    least = DEPENDENT * np.linalg.norm(A, axis=0).max(initial=0.0)
    for _ in range(min(A.shape)):
        lengths = np.linalg.norm(A, axis=0)
        k = lengths.argmax()
        if lengths[k] <= least:
            break
        q = A[:, k] / lengths[k]
        A -= np.outer(q, q @ A)
        A[:, k] = 0.0
        chosen.append(k)
    return np.array(chosen, dtype=np.intp)
