"""Random problems of every awkward kind, each answer judged from the raw tokens.

    python tests/support/campaign.py [--problems 2000] [--first 0] [--norms frobenius nuclear max spectral]

For each kind: how many answers were "optimal", "infeasible", ...; what was wrong, if anything was; the seconds spent.
A problem is rebuilt by ``problem(kind, seed)``.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
import warnings

import attsvm
import numpy as np
import reference
from problems import Case, sphere
from scipy.optimize import linprog

EPS = np.finfo(float).eps
# Margins below this part of the longest row are left to the certificates alone: the LP works to about 1e-9.
CLEAR = 1e-7
# Entries of the LP's matrix up to which it is asked.
LP_AFFORDABLE = 250_000


# --------------------------------------------------------------------------------------------- problems


def _size(rng, least, most):
    return int(round(np.exp(rng.uniform(np.log(least), np.log(most + 0.49)))))


def _shape(rng, kind):
    n, T, d = _size(rng, 2, 40), _size(rng, 2, 24), _size(rng, 2, 32)
    if kind == "T-1 > d":
        T, d = _size(rng, 5, 24), _size(rng, 2, 10)
        d = min(d, T - 2)
    elif kind == "n > d":
        n, d = _size(rng, 6, 60), _size(rng, 2, 12)
        d = min(d, n - 1)
    elif kind == "n = 1":
        n = 1
    return n, T, d


def _tokens(rng, kind, n, T, d):
    X = sphere(rng, n, T, d)
    if kind == "duplicates" or kind == "near duplicates":
        apart = 0.0 if kind == "duplicates" else 10.0 ** rng.uniform(-9, -2)
        for i in range(n):
            copies = rng.integers(0, T, (max(1, T // 3), 2))
            for to, source in copies[copies[:, 0] != copies[:, 1]]:
                X[i, to] = X[i, source] + apart * sphere(rng, d)
    elif kind == "spread norms":
        X *= np.exp(rng.standard_normal((n, T, 1)))
    elif kind == "correlated":
        X = rng.standard_normal((n, T, d)) / np.arange(1, d + 1) @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    return X


def _queries(rng, kind, n, d):
    Z = sphere(rng, n, d)
    if kind == "spread norms":
        Z *= np.exp(rng.standard_normal((n, 1)))
    elif kind == "correlated":
        Z = rng.standard_normal((n, d)) / np.arange(1, d + 1) @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    elif kind == "zero queries":
        Z[rng.random(n) < 0.2] = 0
    return Z


def _data(rng, kind):
    n, T, d = _shape(rng, kind)
    if kind == "ragged":
        X = [sphere(rng, int(rng.integers(1, T + 1)), d) for _ in range(n)]
        return attsvm.cross_attention(X, sphere(rng, n, _size(rng, 1, 24)))
    if kind == "causal":
        return attsvm.causal_attention(sphere(rng, max(1, n // 8), min(T, 10), d))
    X = _tokens(rng, kind, n, T, d)
    return attsvm.cross_attention(X, _queries(rng, kind, n, d))


def _selection(rng, kind, data):
    """At random, or what random weights select (so that it can be met), the latter with some tokens exchanged."""
    chosen = np.concatenate([np.atleast_1d(x) for x in data.select(rng.standard_normal((data.dk, data.dz)))]).ravel()
    lengths = data.stop - data.start
    change = rng.random(len(chosen)) < rng.choice([0.0, 0.1, 1.0])
    chosen = np.where(change, (rng.random(len(chosen)) * lengths).astype(int), chosen)
    if kind == "zero queries":  # whose other tokens must all be kept, else nothing can be met
        kept = np.zeros(data.indptr[-1], dtype=bool)
        kept[data.indptr[:-1] + chosen] = True
        if rng.random() < 0.8:
            for q in np.flatnonzero(~data.queries.any(axis=1)):
                kept[data.indptr[q] : data.indptr[q + 1]] = True
        return data.layout.shape_entries(kept, False)
    if kind == "equalities" or (kind == "duplicates" and rng.random() < 0.3):
        kept = rng.random(data.indptr[-1]) < 0.3
        kept[data.indptr[:-1] + chosen] = True
        return data.layout.shape_entries(kept, False)
    return data.layout.shape_queries(chosen)


KINDS = ["random", "T-1 > d", "n > d", "duplicates", "near duplicates", "spread norms", "correlated", "n = 1"]
KINDS += ["zero queries", "ragged", "causal", "equalities"]


def problem(kind, seed):
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    data = _data(rng, kind)
    return Case(data, _selection(rng, kind, data))


# --------------------------------------------------------------------------------------------- the judge


def largest_margin_in_a_box(rows):
    """max t  s.t.  A(W) >= t on margin rows of unit length, A(W) = 0 on equality rows, |W| <= 1."""
    A, equal = [], []
    for _, _, delta, z, is_equality in rows:
        row = np.outer(delta, z).ravel()
        size = np.linalg.norm(row)
        if size == 0 and not is_equality:
            return 0.0  # a copy of the selected token, or a zero query
        if size > 0:
            A.append(row / size)
            equal.append(is_equality)
    A, equal = np.array(A), np.array(equal, dtype=bool)
    D = A.shape[1]
    answer = linprog(
        np.append(np.zeros(D), -1.0),
        A_ub=np.hstack([-A[~equal], np.ones(((~equal).sum(), 1))]),
        b_ub=np.zeros((~equal).sum()),
        A_eq=np.hstack([A[equal], np.zeros((equal.sum(), 1))]) if equal.any() else None,
        b_eq=np.zeros(equal.sum()) if equal.any() else None,
        bounds=[(-1, 1)] * D + [(0, 1)],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert answer.status == 0  # zero is feasible and the box is bounded
    return answer.x[-1]


def judge(case, norm, **options):
    """(answer, what is wrong with it or None)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", attsvm.ConvergenceWarning)
        sol = attsvm.solve_svm(case.data, case.selected, norm, **options)
    rows = reference.svm_rows(case.data, case.selected)
    rho = max((np.linalg.norm(delta) * np.linalg.norm(z) for _, _, delta, z, _ in rows), default=0.0)
    affordable = len(rows) * case.data.dk * case.data.dz <= LP_AFFORDABLE
    if sol.status == "infeasible":
        if reference.farkas(case.data, case.selected, sol.certificate) > 1e-9:
            return sol, "no Farkas certificate"
        if affordable and largest_margin_in_a_box(rows) > CLEAR:
            return sol, "not infeasible"
    elif sol.status == "no constraint":
        if sol.W.any() or not all(equal or not delta.any() or not z.any() for *_, delta, z, equal in rows):
            return sol, "there are constraints"
    elif sol.W is not None:
        lower, upper = reference.certificate(case.data, case.selected, sol.W, sol.dual, norm)
        allowed = max(1e-9, 100 * EPS * rho / sol.margin)
        if abs(lower / sol.margin - 1) > 1e-12 + allowed / 5 or upper > sol.margin_bound * (1 + 1e-12 + allowed / 5):
            return sol, f"bounds {lower!r}, {upper!r} instead of {sol.margin!r}, {sol.margin_bound!r}"
        if sol.status == "optimal" and not upper / lower - 1 <= allowed * 1.2:
            return sol, f"gap {upper / lower - 1:.1e}"
    return sol, None


def run(problems, first=0, report=None, norms=("frobenius", "nuclear")):
    """{(kind, norm): Counter of statuses}, the seconds of each, and the list of everything that needs a look."""
    counts, seconds, remarks = collections.defaultdict(collections.Counter), collections.Counter(), []
    for i in range(first, first + problems):
        kind, norm = KINDS[i % len(KINDS)], norms[i // len(KINDS) % len(norms)]
        begin = time.perf_counter()
        sol, wrong = judge(problem(kind, i), norm)
        seconds[kind, norm] += time.perf_counter() - begin
        counts[kind, norm][sol.status] += 1
        if wrong is not None or sol.status in ("undecided", "iteration limit"):
            remarks.append((kind, i, norm, sol.status, wrong, sol))
            if report is not None:
                what = f"{sol.status} by {sol.method}, gap {sol.gap:.1e}, margin {sol.margin:.1e}"
                report(f"{kind!r}, {i}, {norm}: {what} {wrong or ''}")
    return counts, seconds, remarks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--norms", nargs="+", default=("frobenius", "nuclear"))
    args = parser.parse_args()
    counts, seconds, remarks = run(
        args.problems, args.first, lambda line: print(line, file=sys.stderr, flush=True), args.norms
    )
    words = ["optimal", "infeasible", "no constraint", "iteration limit", "undecided"]
    print(f"{'kind':>16} {'norm':>10} " + " ".join(f"{word:>15}" for word in words) + f" {'seconds':>8}")
    for (kind, norm), count in sorted(counts.items()):
        print(f"{kind:>16} {norm:>10} " + " ".join(f"{count[word]:15}" for word in words)
              + f" {seconds[kind, norm]:8.1f}")  # fmt: skip
    wrong = sum(remark[4] is not None for remark in remarks)
    print(f"{args.problems} problems: {wrong} wrong, {len(remarks) - wrong} not settled")


if __name__ == "__main__":
    main()
