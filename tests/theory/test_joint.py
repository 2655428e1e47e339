"""Head and attention trained together: label SVM against a conic solver, relaxed SVM of attention."""

from __future__ import annotations

import attsvm
import numpy as np
import pytest

TOKENS = {
    "tight": [[[0, 0], [1, 1]], [[0, 0], [1, -1]], [[0, 0], [0.5, 1]]],
    "not tight": [[[0, 0], [1, 1]], [[0, 0], [1, -1]], [[0, 0], [0.5, 1.5]]],
}


def example(kind):
    return attsvm.Problem(attsvm.prompt_attention(TOKENS[kind]), [1, -1, 1], attsvm.LinearHead([-1.0, 0.0]))


def test_exact_numbers_of_the_precursor():
    for kind, full in (("tight", [4 / 3, 1 / 3]), ("not tight", [1.25, 0.25])):
        problem = example(kind)
        v = attsvm.theory.label_svm(problem, [1, 1, 1])
        np.testing.assert_allclose(v.W.ravel(), [0, 1], atol=1e-12)
        np.testing.assert_allclose(attsvm.solve_svm(problem.data, [1, 1, 1]).W.ravel(), full, rtol=1e-9)
        margins = attsvm.theory.relaxed_margins(problem, [1, 1, 1])
        relaxed = attsvm.solve_svm(problem.data, [1, 1, 1], margins=margins)
        np.testing.assert_allclose(relaxed.W.ravel(), [1, 0], atol=1e-9)


def test_joint_training_goes_to_the_relaxed_svm_where_it_is_not_tight():
    """In 450-digit arithmetic the direction of p is (1.0000, .0031) at step 1,000; else it goes to (4/3, 1/3)."""
    start = {"W": [[0.0], [-1.0]], "steps": 1000, "train_head": True}
    run, tight = (attsvm.train(example(kind), **start) for kind in ("not tight", "tight"))
    p = run.W.ravel() / np.linalg.norm(run.W)
    assert p[1] == pytest.approx(0.0031, abs=5e-5) and attsvm.correlation(run.v, [0, 1]) > 1 - 1e-9
    assert np.degrees(np.arccos(attsvm.correlation(tight.W[:, 0], [4 / 3, 1 / 3]))) < 1
    assert attsvm.correlation(tight.v, [0, 1]) > 0.999 and (tight.selected == 1).all()


@pytest.mark.parametrize("norm", [2.0, 3.0])
def test_label_svm_against_a_conic_solver(norm):
    cvxpy = pytest.importorskip("cvxpy")
    pytest.importorskip("clarabel")
    X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10, rng=4)
    problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    selected = np.array([3, 1, 4, 1, 5, 2])
    w = cvxpy.Variable(10)
    rows = [y[i] * (w @ X[i, t]) >= 1 for i, t in enumerate(selected)]
    value = cvxpy.Problem(cvxpy.Minimize(cvxpy.pnorm(w, norm)), rows).solve(solver=cvxpy.CLARABEL)
    mine = attsvm.theory.label_svm(problem, selected, norm)
    assert np.linalg.norm(mine.W.ravel(), norm) == pytest.approx(value, rel=1e-6)  # clarabel stops at 1e-8
    by_default = attsvm.theory.label_svm(problem, norm=norm)
    np.testing.assert_allclose(by_default.W, attsvm.theory.label_svm(problem, problem.optimal, norm).W, rtol=1e-12)


def test_margins_are_one_for_the_support_of_the_labels():
    X, Z, y, v = attsvm.sample.unit_sphere(12, 3, 4, rng=0)
    ragged = [x[: 2 + i % 2] for i, x in enumerate(X)]
    problem = attsvm.Problem(attsvm.cross_attention(ragged, Z), y, attsvm.LinearHead(v))
    support = attsvm.theory.label_svm(problem).support[:, 1]
    assert 0 < support.sum() < 12
    for row, here, x in zip(attsvm.theory.relaxed_margins(problem), support, ragged, strict=True):
        assert row.tolist() == [float(here)] * len(x)


def test_bad_input():
    problem = example("tight")
    with pytest.raises(ValueError, match="norm must be 'frobenius' or a number"):
        attsvm.theory.label_svm(problem, norm="nuclear")
    with pytest.raises(TypeError, match="selected must be one token per query, got bools"):
        attsvm.theory.label_svm(problem, np.ones((3, 2), dtype=bool))
    with pytest.raises(ValueError, match="selected must be token indices"):
        attsvm.theory.label_svm(problem, [0, 2, 0])
    with pytest.raises(ValueError, match="whose labels some v separates"):
        attsvm.theory.relaxed_margins(problem, [0, 0, 0])
    with pytest.raises(TypeError, match="problem must be a Problem"):
        attsvm.theory.label_svm(problem.data)
