"""Local regularisation paths: stationary points that stay in the cone of locally optimal tokens, for any head."""

from __future__ import annotations

import warnings

import attsvm
import numpy as np
import pytest
import reference


def local(seed):
    """A problem, and tokens that are locally optimal but not the best, to which training has gone."""
    while True:
        rng = np.random.default_rng(seed)
        X, Z, y, v = attsvm.sample.unit_sphere(5, 5, 8, rng)
        problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
        run = attsvm.train(problem, rng.uniform(-1, 1, (8, 8)) / np.sqrt(8), steps=4000, record=0)
        solution = attsvm.solve_svm(problem.data, run.selected)
        if not (run.selected == problem.optimal).all() and attsvm.theory.is_locally_optimal(problem, solution):
            return problem, run.selected
        seed += 1000


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore::attsvm.ConvergenceWarning")
def test_frobenius_path_turns_to_the_svm_of_its_own_tokens(seed):
    problem, selected = local(seed)
    svm = attsvm.solve_svm(problem.data, selected)
    radii = np.array([30.0, 100.0, 300.0]) / svm.margin
    path = attsvm.regularization_path(problem, radii, selected=selected)
    away = [1 - attsvm.correlation(W, svm.W) for W in path.weights]
    assert away[-1] < 1e-4 and away[-1] < away[0] / 10  # errors fall like one over the square of the radius
    for W, radius, gap, log_ridge in zip(path.weights, radii, path.gap, path.log_ridge, strict=True):
        np.testing.assert_array_equal(problem.data.select(W), selected)
        assert np.linalg.norm(W) == pytest.approx(radius, rel=1e-9) and gap <= 1e-5  # 1e-6, or where rounding ends it
        _, G, scale = reference.loss_and_grad(problem.data, problem.y, problem.head.v, "logistic", W)
        dual = np.linalg.norm(G)
        assert (np.vdot(G, W) + radius * dual) / (radius * dual) <= 2e-5
        assert log_ridge == pytest.approx(np.log(dual / 2 / radius) + scale, rel=1e-6)
    assert np.isnan(path.log_excess).all()


def test_nuclear_path_turns_to_the_nuclear_svm():
    problem, selected = local(1)
    svm = attsvm.solve_svm(problem.data, selected, "nuclear")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", attsvm.ConvergenceWarning)  # the nuclear ball has edges
        path = attsvm.regularization_path(problem, [100 / svm.margin], "nuclear", selected=selected)
    assert attsvm.correlation(path.weights[0], svm.W) > 0.999 and path.gap[0] < 1e-2
    assert attsvm.correlation(path.weights[0], attsvm.solve_svm(problem.data, selected).W) < 0.99
    np.testing.assert_array_equal(problem.data.select(path.weights[0]), selected)


def test_the_local_path_of_the_best_tokens_is_the_global_one():
    X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10, rng=0)
    problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    radii = np.array([10.0, 30.0]) / attsvm.solve_svm(problem.data, problem.optimal).margin
    one = attsvm.regularization_path(problem, radii, tol=1e-9)
    other = attsvm.regularization_path(problem, radii, selected=problem.optimal, tol=1e-9)
    np.testing.assert_allclose(other.weights, one.weights, rtol=0, atol=1e-3 * radii[-1])
    np.testing.assert_allclose(other.loss, one.loss, rtol=1e-9)
    np.testing.assert_allclose(other.log_ridge, one.log_ridge, rtol=1e-4)


def test_a_head_with_one_best_token_turns_to_its_svm():
    """1 . relu(V^T o) is convex: with label +1 no mixture is better than the best token."""
    for seed in range(4):
        X, Z, _, _ = attsvm.sample.unit_sphere(4, 5, 8, rng=seed)
        V = np.random.default_rng(seed).standard_normal((8, 8))
        problem = attsvm.Problem(attsvm.cross_attention(X, Z), None, attsvm.MLPHead(V / np.linalg.norm(V)))
        svm = attsvm.solve_svm(problem.data, problem.optimal)
        path = attsvm.regularization_path(problem, np.array([30.0, 100.0]) / svm.margin, selected=problem.optimal)
        assert attsvm.correlation(path.weights[-1], svm.W) > 0.9995 and path.gap.max() <= 1e-6
    from_zero = attsvm.regularization_path(problem, [1.0, 5.0])
    assert np.linalg.norm(from_zero.weights[0]) == pytest.approx(1) and from_zero.gap.max() <= 1e-6


def test_a_minimiser_inside_the_ball_is_found_there():
    """Two orthonormal tokens, of which the head wants a mixture: the loss has its minimum at finite weights."""
    data = attsvm.cross_attention([np.eye(2)], [[1.0]])
    problem = attsvm.Problem(data, None, attsvm.QuadraticHead([1.0, 0.8], lam=1.0), loss="linear")
    path = attsvm.regularization_path(problem, [1.0, 2.0], tol=1e-9)
    s = 0.55  # of the projection of (1, .8) / 2 onto the simplex
    for W in path.weights:
        assert W[0, 0] - W[1, 0] == pytest.approx(np.log(s / (1 - s)), abs=1e-4)
    assert np.linalg.norm(path.weights, axis=(1, 2)).max() < 0.5


def test_bad_input():
    problem, selected = local(0)
    with pytest.raises(ValueError, match="ridges must come without selected"):
        attsvm.regularization_path(problem, ridges=[1.0, 0.1], selected=selected)
    mlp = attsvm.Problem(problem.data, problem.y, attsvm.MLPHead(np.eye(8)))
    with pytest.raises(ValueError, match="ridges must come without selected and with a linear head"):
        attsvm.regularization_path(mlp, ridges=[1.0])
    with pytest.raises(ValueError, match="problem must have heads=None"):
        attsvm.regularization_path(attsvm.Problem(problem.data, problem.y, problem.head, heads=2), [1.0])
    copies = attsvm.Problem(attsvm.cross_attention([[[1.0], [1.0]]], [[1.0]]), None, attsvm.LinearHead([1.0]))
    with pytest.raises(ValueError, match="selected must be tokens that some W separates"):
        attsvm.regularization_path(copies, [1.0], selected=[0])
