"""Head and attention trained together: label SVM by its conditions of optimality, relaxed SVM of attention."""

import attsvm
import numpy as np
import pytest
from attsvm.theory import label_svm, relaxed_margins
from numpy.testing import assert_allclose


def example(kind):
    tokens = [[[0, 0], [1, 1]], [[0, 0], [1, -1]], [[0, 0], [0.5, 1 if kind == "tight" else 1.5]]]
    return attsvm.Problem(attsvm.prompt_attention(tokens), [1, -1, 1], attsvm.LinearHead([-1.0, 0.0]))


def test_exact_numbers_of_the_precursor():
    for kind, full in (("tight", [4 / 3, 1 / 3]), ("not tight", [1.25, 0.25])):
        problem = example(kind)
        v = label_svm(problem, [1, 1, 1])
        assert_allclose(v.W.ravel(), [0, 1], atol=1e-12)
        assert_allclose(attsvm.solve_svm(problem.data, [1, 1, 1]).W.ravel(), full, rtol=1e-9)
        margins = relaxed_margins(problem, [1, 1, 1])
        relaxed = attsvm.solve_svm(problem.data, [1, 1, 1], margins=margins)
        assert_allclose(relaxed.W.ravel(), [1, 0], atol=1e-9)


def test_joint_training_goes_to_the_relaxed_svm_where_it_is_not_tight():
    """In 450-digit arithmetic the direction of p is (1.0000, .0031) at step 1,000; else it goes to (4/3, 1/3)."""
    start = {"W": [[0.0], [-1.0]], "steps": 1000, "train_head": True}
    run, tight = (attsvm.train(example(kind), **start) for kind in ("not tight", "tight"))
    p = run.W.ravel() / np.linalg.norm(run.W)
    assert p[1] == pytest.approx(0.0031, abs=5e-5) and attsvm.correlation(run.v, [0, 1]) > 1 - 1e-9
    assert np.degrees(np.arccos(attsvm.correlation(tight.W[:, 0], [4 / 3, 1 / 3]))) < 1
    assert attsvm.correlation(tight.v, [0, 1]) > 0.999 and (tight.selected == 1).all()


@pytest.mark.parametrize("norm", [2.0, 3.0])
@pytest.mark.parametrize("by_default", [True, False])
def test_label_svm_meets_the_conditions_of_optimality(sphere, norm, by_default):
    """Margins of 1, and multipliers of the tight ones whose sum is the gradient of the norm."""
    s = sphere(seed=4)
    selected = s.problem.optimal if by_default else np.array([3, 1, 4, 1, 5, 2])
    found = label_svm(s.problem, None if by_default else selected, norm)
    v, rows, dual = found.W.ravel(), s.y[:, None] * s.X[np.arange(6), selected], found.dual[:, 1]
    assert (rows @ v).min() == pytest.approx(1, abs=1e-9) and (dual >= 0).all()
    assert_allclose(dual * (rows @ v - 1), 0, atol=1e-6 * dual.max())
    assert attsvm.correlation(dual @ rows, np.sign(v) * np.abs(v) ** (norm - 1)) > 1 - 1e-9


def test_margins_are_one_for_the_support_of_the_labels(sphere):
    s = sphere(12, 3, 4)
    ragged = [x[: 2 + i % 2] for i, x in enumerate(s.X)]
    problem = attsvm.Problem(attsvm.cross_attention(ragged, s.Z), s.y, s.problem.head)
    support = label_svm(problem).support[:, 1]
    assert 0 < support.sum() < 12
    for row, here, x in zip(relaxed_margins(problem), support, ragged, strict=True):
        assert row.tolist() == [float(here)] * len(x)


def test_bad_input():
    problem = example("tight")
    with pytest.raises(ValueError, match="norm must be 'frobenius' or a number"):
        label_svm(problem, norm="nuclear")
    with pytest.raises(TypeError, match="selected must be one token per query, got bools"):
        label_svm(problem, np.ones((3, 2), dtype=bool))
    with pytest.raises(ValueError, match="selected must be token indices"):
        label_svm(problem, [0, 2, 0])
    with pytest.raises(ValueError, match="whose labels some v separates"):
        relaxed_margins(problem, [0, 0, 0])
    with pytest.raises(TypeError, match="problem must be a Problem"):
        label_svm(problem.data)
