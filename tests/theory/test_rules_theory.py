"""Where the rules of training go: claims of mirror descent, of the Polyak step, of the flow."""

import attsvm
import numpy as np
import reference


def test_mirror_descent_stays_in_the_cone_of_active_rows(sphere):
    """sign(W) |W|^(p-1) of the l3 SVM solution is a combination of its rows."""
    s = sphere()
    sol = attsvm.solve_svm(s.data, s.problem.optimal, norm=3.0)
    rows = reference.svm_rows(s.data, s.problem.optimal)
    weights = reference.svm_multipliers(s.data, rows, sol.dual)
    dual = np.sign(sol.W) * np.abs(sol.W) ** 2
    assert attsvm.correlation(reference.svm_adjoint(rows, weights, (10, 10)), dual) > 1 - 1e-9


def test_small_steps_conserve_the_difference_of_gramians(sphere, rng):
    """K^T K - Q^T Q is constant along the flow: over a fixed time it drifts in proportion to the step."""
    s = sphere()
    K, Q = 0.5 * rng.standard_normal((2, 10, 4))
    drift = []
    for lr in (0.2, 0.1, 0.05):
        run = attsvm.train(s.problem, K=K, Q=Q, rule="constant", lr=lr, steps=round(100 / lr), record=0)
        drift.append(np.linalg.norm((run.K.T @ run.K - run.Q.T @ run.Q) - (K.T @ K - Q.T @ Q)))
        moved = np.linalg.norm(run.K.T @ run.K - K.T @ K)
    assert drift[-1] < 0.02 * moved
    np.testing.assert_allclose(np.divide(drift[:-1], drift[1:]), 2.0, rtol=0.1)


def test_the_polyak_step_is_faster_than_the_constant_one(sphere):
    """The loss falls to a tenth of its distance to the infimum in fewer steps."""
    s = sphere()
    best = np.logaddexp(0, -np.max(s.problem.scores, axis=1)).mean()
    polyak = attsvm.train(s.problem, rule="polyak", lr=10.0, steps=200, record=1).loss - best
    constant = attsvm.train(s.problem, rule="constant", lr=1.0, steps=200, record=1).loss - best
    assert polyak[-1] < 0.1 * constant[-1]
