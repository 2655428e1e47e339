"""Awkward problems at random, judged from raw data in long double and by a linear program: no wrong status.

Counts by kind and status are printed (``pytest -s``); ATTSVM_CAMPAIGN asks for another number of problems.
"""

from __future__ import annotations

import collections
import os
import warnings

import attsvm
import numpy as np
import pytest

COUNT = int(os.environ.get("ATTSVM_CAMPAIGN", "10000"))
KINDS = (
    "near duplicates", "planted near duplicates", "whole scales", "mixed scales", "offsets", "integer ties", "float32",
    "collinear", "low-rank queries", "identical windows", "one-token windows", "contradictory equalities", "margins",
)  # fmt: skip
EPS = np.finfo(float).eps
LOOSEST = 2.3e-5  # the largest gap that rounding may add to the tolerance
WAYS = [
    {}, {"method": "block"}, {"method": "interior"}, {"norm": "nuclear"}, {"norm": 1.5}, {"norm": 3.0}, {"norm": "p"},
    {"norm": "p"}, {"norm": "max"}, {"norm": "spectral"}, {"C": "C"}, {"norm": "nuclear", "rank": 1}, {"tol": 1e-5},
]  # fmt: skip


def problem(kind, rng):
    """Tokens (n, T, dk), queries (n, dz), bools (n, T) and margins or None."""
    n, T, dk, dz = (int(k) for k in rng.integers([1, 2, 1, 1], [6, 6, 5, 4]))
    X, Z, margins = rng.standard_normal((n, T, dk)), rng.standard_normal((n, dz)), None
    kept = np.arange(T) == rng.integers(T, size=(n, 1))
    if rng.random() < 0.3:
        kept |= rng.random((n, T)) < 0.3
    if kind.endswith("near duplicates"):
        i = rng.integers(n)
        near = 10.0 ** -rng.integers(3, 16)
        X[i, T - 1] = X[i, 0] + near * (rng.standard_normal(dk) if kind[0] == "n" else np.eye(dk)[0])
    elif kind == "whole scales":
        X, Z = X * 10.0 ** rng.integers(-300, 300), Z * 10.0 ** rng.choice([0, 0, -100, 100])
    elif kind == "mixed scales":
        X = X * 10.0 ** rng.integers(-12, 12, size=(n, T, 1))
    elif kind == "offsets":
        X = X + 10.0 ** rng.integers(0, 14)
    elif kind == "integer ties":
        X, Z = rng.integers(-1, 2, (n, T, dk)) * 1.0, rng.integers(-1, 2, (n, dz)) * 1.0
    elif kind == "float32":
        X = X.astype(np.float32)
    elif kind == "collinear":
        X = X[:, :1] + rng.standard_normal((n, T, 1)) * X[:, -1:]
    elif kind == "low-rank queries":
        Z = np.outer(rng.standard_normal(n), rng.standard_normal(dz))
    elif kind == "identical windows":
        X[:], Z[:] = X[0], Z[0]
    elif kind == "one-token windows":
        X, kept = X[:, :1], kept[:, :1] | True
    elif kind == "contradictory equalities":
        X[:], Z[:], kept = X[0], Z[0], rng.random((n, T)) < 0.5
        kept[:, 0] = True
    elif kind == "margins":
        margins = rng.standard_normal((n, T)) * 10.0 ** rng.integers(-3, 4)
    return X, Z, kept, margins


def rows_of(X, Z, kept, margins):
    """Rows (m, D), what they must reach, and which are equalities, in long double from differences."""
    rows, asked, equal, at = [], [], [], []
    for q in range(len(X)):
        first = int(np.argmax(kept[q]))
        for t in range(X.shape[1]):
            if t != first:
                rows.append(np.outer(X[q, first].astype(np.longdouble) - X[q, t], Z[q].astype(np.longdouble)).ravel())
                equal.append(bool(kept[q, t]))
                asked.append(margins[q, t] if margins is not None else 0.0 if kept[q, t] else 1.0)
                at.append((q, t))
    D = X.shape[2] * Z.shape[1]
    return np.array(rows, np.longdouble).reshape(-1, D), np.array(asked, np.longdouble), np.array(equal, bool), at


def norms_of(W, norm):
    """The norm of W and that of its dual, of a long double matrix: entries relative to the largest, whose powers stay
    in range; singular values of these in double precision."""
    largest = np.abs(W).max(initial=0)
    if largest == 0:
        return np.longdouble(0), np.longdouble(0)
    V = np.abs(W / largest).ravel()
    if norm == "frobenius":
        both = np.sqrt((V**2).sum()), np.sqrt((V**2).sum())
    elif norm in ("nuclear", "spectral"):
        values = np.linalg.svd((W / largest).astype(float), compute_uv=False)
        both = (values.sum(), values[0]) if norm == "nuclear" else (values[0], values.sum())
    elif norm == "max":
        both = V.max(), V.sum()
    else:
        p = np.longdouble(norm)
        both = (V**p).sum() ** (1 / p), (V ** (p / (p - 1))).sum() ** ((p - 1) / p)
    return largest * both[0], largest * both[1]


def certified_gap(sol, A, b, equal, at, shape):
    """By how much W is proved to be above the least norm, or the soft margin's objective above the least, relatively.

    Any lam with its signs gives ||W|| >= b.lam / ||A^* lam||_dual; and the soft margin, along its ray,
    (b.lam)^2 / (2 ||A^* lam||_dual^2 + sum lam_k^2 / C).  W and lam are double precision numbers: a slack or a sum
    A^* lam of the size of their rounding is taken for zero."""
    lam = np.array([np.asarray(sol.dual)[q][t] for q, t in at], np.longdouble)
    if (lam[~equal] < 0).any():
        return np.longdouble(np.inf)
    # Beyond double precision multipliers may come with a factor, of which neither bound depends.
    lam = lam / np.abs(lam).max(initial=0) if lam.any() else lam
    W = sol.W.astype(np.longdouble)
    norm = norms_of(W, sol.norm)[0]
    pull = norms_of((A.T @ lam).reshape(shape), sol.norm)[1]
    gained = b @ lam
    if sol.C is None:
        return norm * pull / gained - 1 if gained > 0 else np.longdouble(np.inf) if norm > 0 else np.longdouble(0)
    length = np.sqrt((A**2).sum(1))
    missing = b - A @ W.ravel() - 4 * EPS * length * np.sqrt((W**2).sum())
    short = np.maximum(missing, 0)[~equal]
    pull = max(pull - EPS * (np.abs(lam) * length).sum(), np.longdouble(0))
    reached = norm**2 / 2 + np.longdouble(sol.C) * (short**2).sum()
    below = 2 * pull**2 + (lam[~equal] ** 2).sum() / np.longdouble(sol.C)
    if reached == 0:
        return np.longdouble(0)
    return reached * below / gained**2 - 1 if gained > 0 else np.longdouble(np.inf)


def judge(sol, X, Z, kept, margins, tol, linprog):
    """What is wrong with the answer, or None."""
    A, b, equal, at = rows_of(X, Z, kept, margins)
    length = np.sqrt((A**2).sum(1))
    size = np.sqrt((sol.W.astype(np.longdouble) ** 2).sum()) if sol.W is not None else np.longdouble(0)
    if sol.status == "infeasible":
        lam = np.array([np.asarray(sol.certificate)[q][t] for q, t in at], np.longdouble)
        left, right = np.sqrt(((A.T @ lam) ** 2).sum()), (np.abs(lam) * length).sum()
        if not ((lam[~equal] >= 0).all() and b @ lam > 0 and left <= 1.001e-9 * right):
            return "the certificate proves nothing"
    elif sol.status == "optimal":
        got, largest = A @ sol.W.astype(np.longdouble).ravel(), np.abs(b).max()
        if sol.C is None and (got < b - 1e-9 * largest - 1e-13 * length * size)[~equal].any():
            return "a margin row is missed"
        if (np.abs(got - b) > 1e-9 * length * size + 1e-9 * largest)[equal].any():
            return "an equality row is off"
        # The tolerance, and what rounding of rows as long as this forbids (certificate.h).
        allowed = 1.2 * max(tol, min(100 * EPS * float(length.max() * size / largest), LOOSEST))
        if not certified_gap(sol, A, b, equal, at, (X.shape[2], Z.shape[1])) <= allowed:
            return f"the gap is not certified to {allowed:.1e}"
    judged = sol.status in ("optimal", "infeasible") and sol.C is None
    if judged and 1e-6 < length.min(initial=1) <= length.max() < 1e6:
        unit, level = (A / length[:, None]).astype(float), (b / length).astype(float)
        signs = np.where(equal, 0, 1)
        program = linprog(  # the most by which the margin rows can be exceeded, in a box
            np.r_[np.zeros(A.shape[1]), -1.0],
            A_ub=np.c_[-unit[~equal], signs[~equal]] if (~equal).any() else None,
            b_ub=-level[~equal] if (~equal).any() else None,
            A_eq=np.c_[unit[equal], signs[equal]] if equal.any() else None,
            b_eq=level[equal] if equal.any() else None,
            bounds=[(-1e7, 1e7)] * A.shape[1] + [(0, 1)],
            method="highs",
        )
        if program.status == 0 and -program.fun > 1e-3 and sol.status == "infeasible":
            return "a linear program separates with room"
        # W lies in the box; the program works to 1e-7, which says something of W of moderate size alone.
        if program.status == 2 and sol.status == "optimal" and size * max(1, length.max()) < 1e4:
            return "a linear program finds no W"
    return None


@pytest.mark.slow
def test_thousands_of_awkward_problems():
    linprog = pytest.importorskip("scipy.optimize").linprog
    counts, wrong, named = collections.Counter(), [], 0
    for seed in range(COUNT):
        rng = np.random.default_rng([20231122, seed])
        kind, way = KINDS[seed % len(KINDS)], dict(WAYS[int(rng.integers(len(WAYS)))])
        if "C" in way:
            way["C"] = 10.0 ** rng.integers(-12, 13)
        if way.get("norm") == "p":  # 1.0001 .. 1000: may end at its iteration limit, never wrong
            way["norm"] = 1 + 10.0 ** rng.uniform(-4, 3)
        X, Z, kept, margins = problem(kind, rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", attsvm.ConvergenceWarning)
            try:
                sol = attsvm.solve_svm(attsvm.cross_attention(X, Z), kept, margins=margins, **way)
            except ValueError as error:
                named += 1
                assert "scale" in str(error), (seed, kind, way, error)
                continue
        assert sol.status in repr(sol) and sol.gap >= 0 and sol.margin is not None
        counts[kind, sol.status] += 1
        why = judge(sol, X, Z, kept, margins, way.get("tol", 1e-9), linprog)
        if why is not None:
            wrong.append((seed, kind, way, sol.status, why))
    for (kind, status), count in sorted(counts.items()):
        print(f"{kind:26s} {status:16s} {count}")
    print(f"{named} named a scale, {len(wrong)} wrong")
    assert not wrong, wrong[:10]
