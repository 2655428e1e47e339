"""A soft margin beside scikit-learn."""

import attsvm
import judge
import numpy as np
import pytest
from kinds import draw


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_scikit_learn_agrees(C):
    svm = pytest.importorskip("sklearn.svm")
    case = draw("random", 0)
    sol = attsvm.solve_svm(case.data, case.selected, C=C)
    rows = judge.rows_of(case)
    A = np.einsum("mi,mj->mij", rows.delta, rows.z[rows.query]).reshape(-1, sol.W.size).astype(float)
    # Rows and their negatives, labelled +1 and -1, pay each slack twice: half the price gives our problem.
    both, labels = np.vstack([A, -A]), np.repeat([1, -1], len(A))
    machine = svm.LinearSVC(C=C / 2, loss="squared_hinge", fit_intercept=False, tol=1e-12, max_iter=1_000_000)
    W = machine.fit(both, labels).coef_.reshape(sol.W.shape)
    np.testing.assert_allclose(sol.W, W, atol=1e-6)  # liblinear stops at about 1e-8 of the objective
