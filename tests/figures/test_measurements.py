"""Helpers of the figures that no claim holds against NumPy: each against its definition or the package.

What a figure measures is stored as numbers too (``test_every_figure.py``).
"""

import attsvm
import numpy as np
import pytest
from attsvm.reproduce import problems
from attsvm.reproduce.figures import basin, joint_training, mirror_descent, next_token, several_tokens
from attsvm.reproduce.textbook import projection, softmax, support_margins
from numpy.testing import assert_allclose


def test_endings_are_what_they_say(rng):
    seen = set()
    for _ in range(60):
        problem = problems.sphere_problem(rng, 5, 5, 6)
        run = attsvm.train(problem, steps=int(rng.choice([30, 1500])), record=0)
        end = problems.ending(run, "frobenius")
        assert end.pop("proved") == (run.limit().status == "proved") and sum(end.values()) == 1
        (word,) = (word for word, true in end.items() if true)
        seen.add(word)
        if (run.probabilities.max(axis=1) > 0.99).all():
            locally = attsvm.diagnose(problem, run.selected).locally_optimal
            same = (run.selected == problem.optimal).all()
            assert word == ("global" if same else "local" if locally else "neither")
        else:
            assert word == "neither"
    assert seen == {"global", "local", "neither"}


def test_the_cone_of_the_basins_is_derived_by_hand(rng):
    problem, solution = basin.instance(rng, True)
    found = basin.cone(rng, problem, solution)
    assert found["in the cone"] == 0 and found["mu"] < 1e-9 and found["R"] < 1e-10
    assert not basin.descends(problem, -solution.W, -solution.W).all()


def test_a_definition_turned_round_is_seen(rng, monkeypatch):
    problem = problems.sphere_problem(rng, 5, 5, 8)
    solution = attsvm.solve_svm(problem.data, problem.optimal)
    assert not problems.differs(problem, solution)
    monkeypatch.setattr(problems.theory, "is_locally_optimal", lambda problem, solution: False)
    assert problems.differs(problem, solution)


def test_figures_give_up_drawing(rng, monkeypatch):
    """Where no problem is as they want it, as after a mistake in what judges it."""
    monkeypatch.setattr(problems, "DRAWS", 3)
    monkeypatch.setattr(several_tokens, "judge", lambda *_: "undecided")
    with pytest.raises(RuntimeError, match="none of 3 random problems was accepted"):
        several_tokens.accepted(4, rng)


def test_local_score_is_a_squared_loss_and_its_gradient(rng):
    E, labels, (o, step) = rng.standard_normal((5, 8)), np.arange(3), rng.standard_normal((2, 3, 8))
    score = next_token.squared_loss(E, labels)
    value, gradient = score(o)
    assert_allclose(value, -((1 - softmax(o @ E.T)[np.arange(3), labels]) ** 2))
    slope = (score(o + 1e-6 * step)[0] - score(o - 1e-6 * step)[0]) / 2e-6
    assert_allclose((gradient * step).sum(axis=1), slope, rtol=1e-6)


def test_the_finite_part_s_basis_is_of_all_differences_within_components():
    *_, found = next_token.draw(np.random.default_rng(10))  # its components have two differences
    basis, _, _ = next_token.finite_part(found)
    assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-12)
    X, Z = found.data.keys.reshape(*found.selected.shape, -1), found.data.queries
    for x, z, kept in zip(X, Z, found.selected, strict=True):
        for t in x[kept]:
            row = np.outer(x[kept][0] - t, z).ravel()
            assert_allclose(basis @ (basis.T @ row), row, atol=1e-12)


def test_between_maximises_the_least_score_and_margin():
    X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10, rng=5)
    data = attsvm.cross_attention(X, Z)
    selected, score = (X @ v).argmax(axis=1), np.random.default_rng(0).random(6)

    def least(W):
        return (score + support_margins(data, selected, W / np.linalg.norm(W)).min(axis=1)).min()

    W = joint_training.between(data, selected, score).W
    best = least(W)
    assert best > least(attsvm.solve_svm(data, selected).W)
    rng = np.random.default_rng(1)
    assert all(least(W + 0.05 * rng.standard_normal((10, 10))) < best for _ in range(200))


def test_attention_that_has_not_saturated_gives_no_number(monkeypatch):
    monkeypatch.setattr(joint_training, "RANDOM_STEPS", 5)
    assert np.isnan(list(joint_training.experiment(np.random.default_rng(0)).values())).all()


def test_divergence_is_that_of_the_potential():
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((2, 4, 5))
    for p in (1.75, 2.0, 3.0):
        a, b = (X.ravel() / (np.abs(X) ** p).sum() ** (1 / p) for X in (A, B))
        potential = [(np.abs(x) ** p).sum() / p for x in (a, b)]
        by_hand = potential[0] - potential[1] - (np.sign(b) * np.abs(b) ** (p - 1)) @ (a - b)
        assert mirror_descent.divergence(A, B, p) == pytest.approx(by_hand, rel=1e-12)
    assert mirror_descent.divergence(A, B, 2.0) == pytest.approx(1 - attsvm.correlation(A, B), rel=1e-12)


def test_projection_is_the_nearest_point_of_the_simplex():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 6))
    s = projection(x)
    assert_allclose(s.sum(axis=1), 1)
    assert (s >= 0).all()
    for other in rng.dirichlet(np.ones(6), 50):
        assert (((x - s) ** 2).sum(axis=1) <= ((x - other) ** 2).sum(axis=1) + 1e-12).all()
