"""The least norm beside Clarabel, by CVXPY, which knows nothing of certificates; a soft margin beside scikit-learn."""

from __future__ import annotations

import attsvm
import judge
import numpy as np
import pytest
from kinds import draw
from problems import CASES

NAMES = ["paper_size", "equalities", "causal", "ragged", "infeasible_contradiction"]
ASKED = [("contradictory equalities", 0)]
ASKED += [(f"margins: {kind}", 0) for kind in ("mixed", "lognormal", "signs", "met", "contradicting")]


def products(case):
    """Rows (m, dk, dz), what they ask for, and which are equalities."""
    rows = judge.rows_of(case)
    A = (rows.delta[:, :, None] * rows.z[rows.query][:, None, :]).astype(float)
    return A, rows.asked.astype(float), rows.equal


def least(case, norm):
    """Status and the least norm."""
    cp = pytest.importorskip("cvxpy")
    pytest.importorskip("clarabel")
    A, b, equal = products(case)
    W = cp.Variable(A.shape[1:])
    w, A = cp.vec(W, order="C"), A.reshape(len(b), -1)
    sizes = {"nuclear": cp.norm(W, "nuc"), "spectral": cp.sigma_max(W), "max": cp.norm(w, "inf")}
    size = sizes[norm] if norm in sizes else cp.pnorm(w, 2 if norm == "frobenius" else norm)
    rows = [A[~equal] @ w >= b[~equal], *([A[equal] @ w == b[equal]] if equal.any() else [])]
    program = cp.Problem(cp.Minimize(size), rows)
    program.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return program.status, program.value


@pytest.mark.filterwarnings("ignore::attsvm.ConvergenceWarning")
@pytest.mark.parametrize("norm", ["max", "spectral", "frobenius", "nuclear", 1.75, 3.0])
@pytest.mark.parametrize("which", [*NAMES, *ASKED], ids=str)
def test_the_norm_is_that_of_a_peer(which, norm):
    case = CASES[which]() if isinstance(which, str) else draw(*which)
    sol = attsvm.solve_svm(case.data, case.selected, norm, margins=case.asked)
    status, value = least(case, norm)
    if sol.status == "infeasible":
        assert status.startswith("infeasible"), (status, value)
    else:
        assert sol.status == "optimal" and value == pytest.approx(1 / sol.margin, rel=1e-6)
        assert 1 / sol.margin <= value * (1 + 1e-7)


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_scikit_learn_agrees(C):
    svm = pytest.importorskip("sklearn.svm")
    case = draw("random", 0)
    sol = attsvm.solve_svm(case.data, case.selected, C=C)
    A = products(case)[0].reshape(-1, sol.W.size)
    # Rows and their negatives, labelled +1 and -1, pay each slack twice: half the price gives our problem.
    both, labels = np.vstack([A, -A]), np.repeat([1, -1], len(A))
    machine = svm.LinearSVC(C=C / 2, loss="squared_hinge", fit_intercept=False, tol=1e-12, max_iter=1_000_000)
    W = machine.fit(both, labels).coef_.reshape(sol.W.shape)
    np.testing.assert_allclose(sol.W, W, atol=1e-6)  # liblinear stops at about 1e-8 of the objective
