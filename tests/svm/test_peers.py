"""The least norm beside independent solvers: HiGHS, Clarabel by CVXPY, DAQP; of soft margins CVXPY and scikit-learn."""

from __future__ import annotations

import warnings

import attsvm
import judge
import numpy as np
import pytest
from kinds import draw
from problems import CASES, Case

NAMES = [
    *["paper_size", "tight_as_many_rows_as_unknowns", "more_tokens_than_dimensions", "overloaded", "equalities"],
    *["redundant_equalities", "causal", "ragged", "several_queries", "infeasible_contradiction", "correlated"],
    *["duplicate_token_kept", "infeasible_inside_hull", "contradicting_equalities", "prompt"],
]
FEW = ["paper_size", "causal", "ragged", "ragged_equalities", "equalities", "spread_norms"]
ASKED = [f"margins: {kind}" for kind in ("mixed", "lognormal", "zeros", "signs", "met", "contradicting")]
# Name or kind and number, norm, and how near the peer comes to the least norm; the quick ones run always.
PAIRS = [
    *((name, norm, 2e-6) for norm in ("max", "spectral") for name in FEW),
    *(((kind, number), norm, 1e-5) for norm in ("max", "spectral") for kind in ASKED[::3] for number in range(4)),
]
MORE = [
    *((name, norm, 1e-6) for norm in ("frobenius", "nuclear") for name in NAMES),
    *(("paper_size", p, 1e-6) for p in (1.75, 3.0)),
    *(((kind, number), norm, 1e-5) for norm in ("frobenius", "nuclear") for kind in ASKED for number in range(8)),
]


def rows_of(case):
    """Rows (m, dk, dz), what they ask for, and which are equalities."""
    rows = judge.rows_of(case)
    A = (rows.delta[:, :, None] * rows.z[rows.query][:, None, :]).astype(float)
    return A, rows.asked.astype(float), rows.equal


def least(case, norm):
    """Status and the least norm: by Clarabel; the max norm by HiGHS,  min h  s.t.  |W_ij| <= h  and the rows."""
    rows, b, equal = rows_of(case)
    A = rows.reshape(len(b), -1)
    D = A.shape[1]
    if norm == "max":
        box, A = np.vstack([np.c_[s * np.eye(D), -np.ones(D)] for s in (1, -1)]), np.c_[A, np.zeros(len(b))]
        found = pytest.importorskip("scipy.optimize").linprog(
            np.append(np.zeros(D), 1.0), np.vstack([-A[~equal], box]), np.append(-b[~equal], np.zeros(2 * D)),
            *((A[equal], b[equal]) if equal.any() else ()), bounds=[(None, None)] * D + [(0, None)], method="highs",
        )  # fmt: skip
        return {0: "optimal", 2: "infeasible"}.get(found.status, "?"), found.fun
    cp = pytest.importorskip("cvxpy")
    pytest.importorskip("clarabel")
    W = cp.Variable((case.data.dk, case.data.dz))
    w = cp.vec(W, order="C")
    size = {"frobenius": cp.norm(W, "fro"), "nuclear": cp.norm(W, "nuc"), "spectral": cp.sigma_max(W)}
    raw = judge.rows_of(case)
    left = [delta @ W @ z for delta, z in zip(raw.delta.astype(float), raw.z.astype(float)[raw.query], strict=True)]
    rows = [x == asked if eq else x >= asked for x, asked, eq in zip(left, b, equal, strict=True)]
    program = cp.Problem(cp.Minimize(size[norm] if norm in size else cp.pnorm(w, norm)), rows)
    program.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return program.status, program.value


@pytest.mark.parametrize(("which", "norm", "near"), [*PAIRS, *(pytest.param(*p, marks=pytest.mark.peer) for p in MORE)])
def test_the_norm_is_that_of_a_peer(which, norm, near):
    case = CASES[which]() if isinstance(which, str) else draw(*which)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", attsvm.ConvergenceWarning)
        sol = attsvm.solve_svm(case.data, case.selected, norm, margins=case.asked)
    status, value = least(case, norm)
    if sol.status == "infeasible":
        # Where rows all but contradict each other its tolerance lets it end with huge weights.
        assert status.startswith("infeasible") or not isinstance(which, str) and value > 1e4, (status, value)
    elif sol.status == "no constraint":
        assert value == pytest.approx(0.0, abs=1e-6)
    elif isinstance(which, str) or sol.status == "optimal" and sol.margin > 1e-4:  # the peer's own accuracy
        assert sol.status == "optimal" and value == pytest.approx(1 / sol.margin, rel=near, abs=near / 10)
        assert 1 / sol.margin <= value * (1 + near / 10) or norm not in ("frobenius", "nuclear")


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_scikit_learn_agrees(C):
    svm = pytest.importorskip("sklearn.svm")
    X, Z, _, _ = attsvm.sample.unit_sphere(12, 8, 5, rng=1)
    data, selected = attsvm.cross_attention(X, Z), np.random.default_rng(1).integers(0, 8, 12)
    sol = attsvm.solve_svm(data, selected, C=C)
    A = rows_of(Case(data, selected))[0].reshape(84, -1)
    # Rows and their negatives, labelled +1 and -1, pay each slack twice: half the price gives our problem.
    both, labels = np.vstack([A, -A]), np.repeat([1, -1], len(A))
    machine = svm.LinearSVC(C=C / 2, loss="squared_hinge", fit_intercept=False, tol=1e-12, max_iter=1_000_000)
    W = machine.fit(both, labels).coef_.reshape(sol.W.shape)
    np.testing.assert_allclose(sol.W, W, atol=1e-6)  # liblinear stops at about 1e-8 of the objective
