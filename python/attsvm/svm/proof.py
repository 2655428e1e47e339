"""Proofs in exact arithmetic of what an answer says, found with NumPy and checked by ``attsvm/check.py``.

``check.py`` states what is proved and from what.  Here the witnesses it asks for are computed in floating point: the
factors of a matrix whose nuclear or spectral norm is bounded, and, where equations must be met exactly, a square part
of them that is far from singular, with its inverse.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from .. import check
from ..common.files import replacing
from .separation import Separation
from .solve import solve_svm

DEPENDENT = 1e-9  # of the largest: what is left of an equation that depends on others
BITS = (28, 44, 53)  # of an inverse, the fewest that do: products of short integers are fast
MULTIPLES = range(1, 13)  # by which the factors of dependent equations become whole
NUDGES = (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10)  # of W, into the margins that it misses by rounding


def write_proof(sol: Separation, path: Any) -> str:
    """Writes the proof and returns its statement; ValueError, and no file, where there is none."""
    proof, statement, _ = proved(sol)
    text, name = _text(proof | {"statement": statement}), os.fspath(path)
    with replacing(name) as file:
        file.write(gzip.compress(text, mtime=0) if name.endswith(".gz") else text)
    return statement


def proved(sol: Separation) -> tuple[dict[str, Any], str, Fraction | None]:
    """The content of the file, what it proves and the proved gap; ValueError with the reason where there is none."""
    why = "no witness was found"
    for proof in _candidates(sol):
        try:
            return (proof, *check.theorem(_text(proof)))
        except (AssertionError, ValueError) as error:
            why = str(error)
    raise ValueError(f"not proved: {why}")


def _text(proof: dict[str, Any]) -> bytes:
    return json.dumps(proof, separators=(",", ":")).encode()


def _candidates(sol: Separation) -> Iterator[dict[str, Any]]:
    """Contents of files that may prove the answer, the likeliest first."""
    if sol.method == "working set":
        raise ValueError("the rows of other processes are not here: a proof needs all")
    if sol.status == "infeasible":
        yield from _contradictions(_Rows(sol))
    elif sol.W is not None and sol.status != "no constraint":
        yield from _weights(_Rows(sol))
    else:
        raise ValueError(f"an answer that is {sol.status!r} proves nothing: {sol.message}")


class _Rows:
    """The rows of an answer, in the numbers of the file: queries without rows and tokens that none sees are dropped."""

    def __init__(self, sol: Separation):
        data, selection = sol.data, sol.selection
        queries = np.flatnonzero(data.stop - data.start > 1)
        seen = np.zeros(len(data.keys) + 1, dtype=np.intp)  # how many windows begin less how many end, at each token
        np.add.at(seen, data.start[queries], 1)
        np.add.at(seen, data.stop[queries], -1)
        tokens = np.flatnonzero(seen.cumsum()[:-1])
        self.keys, self.queries = data.keys[tokens].astype(np.float64), data.queries[queries]
        self.start = np.searchsorted(tokens, data.start[queries])
        self.stop = self.start + (data.stop - data.start)[queries]
        self.selected = selection.reference[queries]
        lengths = self.stop - self.start
        entries = np.concatenate([np.arange(data.indptr[q], data.indptr[q + 1]) for q in queries])
        self.query = np.repeat(np.arange(len(queries)), lengths)
        self.token = entries - data.indptr[queries][self.query]
        reference = self.token == self.selected[self.query]
        self.kept = reference if selection.kept is None else selection.kept[entries]
        self.rhs = None if selection.rhs is None else np.ldexp(selection.rhs[entries], selection.power)
        self.sol, self.several = sol, selection.kept is not None
        self.dual = np.where(reference, 0.0, sol.flat_dual[entries])
        self.equation = self.kept & ~reference
        a, t = self.start[self.query] + self.selected[self.query], self.start[self.query] + self.token
        self.chosen, self.key = a, t

    def differences(self, rows: np.ndarray) -> np.ndarray:
        return self.keys[self.chosen[rows]] - self.keys[self.key[rows]]

    def combined(self, dual: np.ndarray) -> np.ndarray:
        """``sum dual (x_a - x_t) z^T``."""
        rows = np.flatnonzero(dual)
        return (dual[rows, None] * self.differences(rows)).T @ self.queries[self.query[rows]]

    def names(self, rows: np.ndarray) -> list[tuple[int, int]]:
        return list(zip(self.query[rows].tolist(), self.token[rows].tolist(), strict=True))

    def file(self, claim: str, dual: np.ndarray, W: np.ndarray | None, witness: dict[str, Any]) -> dict[str, Any]:
        """The content of the file, but for its statement."""
        sol, some = self.sol, np.flatnonzero(dual)
        windows = np.split(np.arange(len(self.query)), np.cumsum(self.stop - self.start)[:-1])
        used = list(zip(self.names(some), _hex(dual[some]), strict=True))
        return {
            "format": "attsvm-proof-1",
            "statement": None,
            "claim": claim,
            "norm": sol.norm if isinstance(sol.norm, str) else float(sol.norm).hex(),
            "C": None if sol.C is None else float(sol.C).hex(),
            "keys": _hex(self.keys),
            "queries": _hex(self.queries),
            "start": self.start.tolist(),
            "stop": self.stop.tolist(),
            "selected": self.selected.tolist(),
            "kept": [np.flatnonzero(self.kept[part]).tolist() for part in windows] if self.several else None,
            "rhs": None if self.rhs is None else [_hex(self.rhs[part]) for part in windows],
            "W": None if W is None else _hex(W),
            "dual": [[*name, x] for name, x in used],
            "witness": witness,
        }


def _hex(array: np.ndarray) -> Any:
    """Doubles as hexadecimal strings, in lists of the array's shape."""
    if array.ndim > 1:
        return [_hex(row) for row in array]
    return [x.hex() for x in array.tolist()]


# ------------------------------------------------------------------------------------- weights and their bound


def _weights(rows: _Rows) -> Iterator[dict[str, Any]]:
    sol, found, inward = rows.sol, np.asarray(rows.sol.W), None
    witness = _equations_of_weights(rows)
    M = rows.combined(rows.dual)
    for nudge in NUDGES if rows.rhs is not None and sol.C is None else NUDGES[:1]:
        if nudge and inward is None:
            inward = np.abs(found).max() * _inward(sol)
        W = found if inward is None else found + nudge * inward
        if sol.norm in ("nuclear", "spectral"):  # a norm of metric= would have its witness here
            witness |= {"W": _factors(W, sol.norm == "nuclear"), "dual": _factors(M, sol.norm == "spectral")}
        yield rows.file("optimal" if sol.status == "optimal" else "feasible", rows.dual, W, witness)


def _inward(sol: Separation) -> np.ndarray:
    """A direction in which all margins grow: with margins of either sign, stretching W does not do it."""
    inner = solve_svm(sol.data, sol.selected, tol=1e-3)
    W = np.asarray(inner.W if inner.W is not None and inner.status == "optimal" else sol.W)
    return W / np.abs(W).max()


def _factors(A: np.ndarray, balanced: bool) -> list[Any]:
    """U^T and V^T with U V^T = A, from singular vectors; ``balanced``: either times the roots of the values."""
    U, sizes, Vt = np.linalg.svd(A, full_matrices=False)
    left, right = (np.sqrt(sizes), np.sqrt(sizes)) if balanced else (sizes, np.ones_like(sizes))
    return [_hex((U * left).T), _hex(right[:, None] * Vt)]


def _equations_of_weights(rows: _Rows) -> dict[str, Any]:
    """What `check.step` needs where W must meet equations, whose unknowns are its entries."""
    at = np.flatnonzero(rows.equation)
    if not len(at):
        return {}
    differences, queries = rows.differences(at), rows.queries[rows.query[at]]
    A = (differences[:, :, None] * queries[:, None, :]).reshape(len(at), -1)
    places = [divmod(k, queries.shape[1]) for k in range(A.shape[1])]
    return _square(A, rows.names(at), places, np.ones(A.shape[1])) or {"basis": [], "dependent": [], "inverse": []}


# ------------------------------------------------------------------------------------- contradictions


def _contradictions(rows: _Rows) -> Iterator[dict[str, Any]]:
    exact = {"lift": False, "basis": [], "dependent": [], "inverse": []}
    yield rows.file("infeasible", rows.dual, None, exact)
    for dual in (*_of_one_query(rows), rows.dual):
        for lift in (False, True):
            found = _contradiction(rows, dual, lift)
            if found is not None:
                yield found


def _of_one_query(rows: _Rows) -> Iterator[np.ndarray]:
    """The multipliers of equal queries, where those alone add the rows up to zero."""
    b = rows.kept == 0 if rows.rhs is None else rows.rhs
    _, kind = np.unique(rows.queries, axis=0, return_inverse=True)
    kind = kind.ravel()[rows.query]
    for k in np.unique(kind[rows.dual != 0]):
        dual = np.where(kind == k, rows.dual, 0.0)
        some = np.flatnonzero(dual)
        parts = dual[some, None] * rows.differences(some)
        if np.abs(parts.sum(axis=0)).max() <= 1e-6 * np.abs(parts).sum() and dual @ b > 0:
            yield dual / np.abs(dual).max()


def _contradiction(rows: _Rows, dual: np.ndarray, lift: bool) -> dict[str, Any] | None:
    at = np.flatnonzero(dual)
    D, Z = rows.differences(at), rows.queries[rows.query[at]]
    if lift:
        _, last, kind = np.unique(rows.keys[::-1], axis=0, return_index=True, return_inverse=True)
        place = len(rows.keys) - 1 - last[kind.ravel()[::-1]]  # the last of the keys that are equal to each
        D = np.zeros((len(at), len(rows.keys)))
        np.add.at(D, (np.arange(len(at)), place[rows.chosen[at]]), 1.0)
        np.add.at(D, (np.arange(len(at)), place[rows.key[at]]), -1.0)
    keys, queries = np.flatnonzero(D.any(axis=0)), np.flatnonzero(Z.any(axis=0))
    A = (D[:, keys, None] * Z[:, None, queries]).reshape(len(at), -1).T
    places = [(i, j) for i in keys.tolist() for j in queries.tolist()]
    touched = A.any(axis=1)
    A, places = A[touched], [place for place, there in zip(places, touched, strict=True) if there]
    found = _square(A, places, rows.names(at), np.where(rows.equation[at], np.abs(dual).max(), np.abs(dual[at])))
    if found is None:
        return None
    # the basis takes up what rounding and the solver's tolerance have left
    names = {name: k for k, name in enumerate(rows.names(at))}
    basis = [names[tuple(name)] for name in found["basis"]]
    exact = dual.copy()
    for _ in range(2):
        rest = A @ exact[at]
        exact[at[basis]] -= np.linalg.lstsq(A[:, basis], rest, rcond=None)[0]
    if (exact[at][~rows.equation[at]] < 0).any():
        return None
    return rows.file("infeasible", exact, None, {"lift": lift, **found})


# ------------------------------------------------------------------------------------- square parts of equations


def _square(A: np.ndarray, equations: list[Any], unknowns: list[Any], weights: np.ndarray) -> dict[str, Any] | None:
    """A square part of equations (rows, in the order of their names) that is far from singular, how the others depend
    on them, and its inverse.  ``weights``: the unknowns that should be part of it.  None: dependent in no simple way.
    """
    sizes = np.abs(A).max(axis=1)
    scaled = A / np.where(sizes > 0, sizes, 1.0)[:, None] * (weights / weights.max())
    free = np.sort(_pivots(scaled.T))
    basis = _pivots(scaled[free])
    if len(basis) < len(free):
        return None
    inverse = np.linalg.inv(A[np.ix_(free, basis)])
    dependent = []
    for k in np.setdiff1d(np.arange(len(A)), free):
        factors = A[k, basis] @ inverse
        factors[np.abs(factors) < 1e-7] = 0.0
        whole = next((n for n in MULTIPLES if np.abs(n * factors - np.rint(n * factors)).max(initial=0) < 1e-6), None)
        if whole is None:
            return None
        others = np.flatnonzero(factors)
        listed = [(k, float(whole)), *zip(free[others], -np.rint(whole * factors[others]), strict=True)]
        dependent.append([[*equations[i], float(x).hex()] for i, x in listed])
    return {
        "basis": [list(unknowns[k]) for k in basis],
        "dependent": dependent,
        "inverse": _hex(_rounded(inverse, A[np.ix_(free, basis)]).T),
    }


def _pivots(A: np.ndarray) -> np.ndarray:
    """Columns that span all, chosen one by one: the longest of what the chosen ones leave of the others."""
    A, chosen = A.copy(), []
    least = DEPENDENT * np.sqrt((A**2).sum(axis=0).max(initial=0.0))
    for _ in range(min(A.shape)):
        lengths = np.sqrt((A**2).sum(axis=0))
        k = int(lengths.argmax())
        if lengths[k] <= least:
            break
        q = A[:, k] / lengths[k]
        A -= np.outer(q, q @ A)
        A[:, k] = 0.0
        chosen.append(k)
    return np.array(chosen, dtype=np.intp)


def _rounded(inverse: np.ndarray, B: np.ndarray) -> np.ndarray:
    """The inverse to few bits, as long as it is one."""
    exponent = int(np.frexp(np.abs(inverse).max())[1])
    for bits in BITS[:-1]:
        short = np.ldexp(np.rint(np.ldexp(inverse, bits - exponent)), exponent - bits)
        if np.abs(np.eye(len(B)) - short @ B).sum(axis=1).max() < 0.5:
            return short
    return inverse
