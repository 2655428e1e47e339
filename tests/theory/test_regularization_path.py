"""The regularisation path: stationary points, no worse than an independent minimiser's, that turn to the SVM."""

from __future__ import annotations

import math

import attsvm
import numpy as np
import pytest
import reference
from attsvm import _core

RADII = np.array([1.0, 5.0, 10.0, 20.0, 30.0])  # in units of 1 / margin: loss gaps of about exp(-1) .. exp(-30)


def one_problem(n=6, T=8, d=10, rng=0, loss="logistic"):
    X, Z, y, v = attsvm.sample.unit_sphere(n, T, d, rng)
    if loss == "log":
        return attsvm.Problem(attsvm.cross_attention(np.abs(X) + 0.1, Z), None, attsvm.LinearHead(np.abs(v)), loss=loss)
    return attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v), loss=loss)


def frank_wolfe_gap(problem, W, radius, norm):
    """Relative, from the gradient by readable pairs."""
    _, G, _ = reference.loss_and_grad(problem.data, problem.y, problem.head.v, problem._loss_name, W)
    _, dual = reference.matrix_norms(G, norm)
    return (np.vdot(G, W) + radius * dual) / (radius * dual)


@pytest.mark.parametrize("norm", _core.BALL)
def test_points_are_stationary_and_turn_to_the_svm(norm):
    for seed in range(3):
        problem = one_problem(rng=seed)
        svm = attsvm.solve_svm(problem.data, problem.optimal, norm)
        path = attsvm.regularization_path(problem, RADII / svm.margin, norm)
        for W, radius, gap in zip(path.weights, path.radii, path.gap, strict=True):
            assert reference.matrix_norms(W, norm)[0] == pytest.approx(radius, rel=1e-9)
            assert gap <= 1e-6
            assert frank_wolfe_gap(problem, W, radius, norm) == pytest.approx(gap, abs=1e-9)
        off = [1 - attsvm.correlation(W, svm.W) for W in path.weights]
        assert (np.diff(off) < 0).all() and off[-1] < 5e-3
        assert (np.diff(path.loss) <= 0).all() and (np.diff(path.log_excess) < 0).all()


@pytest.mark.parametrize("loss", _core.LOSS)
def test_log_excess_is_that_of_the_loss(loss):
    """Against five hundred digits, from small weights to where the excess itself underflows."""
    problem = one_problem(rng=2, loss=loss)
    margin = attsvm.solve_svm(problem.data, problem.optimal).margin
    path = attsvm.regularization_path(problem, np.array([0.1, 1.0, 10.0, 100.0, 900.0]) / margin)
    head = problem.head.v
    for W, found in zip(path.weights, path.log_excess, strict=True):
        exact = reference.decimal_log_excess(problem.data, problem._labels, head, loss, W)
        assert found == pytest.approx(exact, rel=1e-12, abs=1e-11)
    assert path.log_excess[-1] < -745


@pytest.mark.parametrize("loss", ["logistic", "exponential", "linear", "log"])
def test_log_gradient_is_that_of_the_problem(loss):
    problem = one_problem(rng=2, loss=loss)
    W = np.zeros((10, 10))
    for ball, norm in enumerate(_core.BALL):
        status, log_excess, log_gradient, gap, *_ = _core.regularization_path_point(
            problem._objective, W, ball, 3.0, 1e-6, 1000
        )
        _, G = problem.loss_and_grad(W)
        assert log_gradient == pytest.approx(math.log(reference.matrix_norms(G, norm)[1]), abs=1e-9)
        assert status == 0 and gap <= 1e-6 and np.isfinite(log_excess)


@pytest.mark.parametrize("norm", _core.BALL)
def test_no_worse_than_an_independent_minimiser(norm, rng):
    """SciPy's L-BFGS-B: W scaled onto the sphere, or into the ball of factors, from many starts."""
    minimize = pytest.importorskip("scipy.optimize").minimize
    problem, radius = one_problem(4, 4, 5, rng=1), 6.0

    def sphere(x):
        W = x.reshape(5, 5)
        size = np.linalg.norm(W)
        loss, G = problem.loss_and_grad(radius * W / size)
        G = radius * (G / size - np.vdot(G, W) * W / size**3)
        return loss, G.ravel()

    def factors(x):
        K, Q = x.reshape(2, 5, 5)
        square = (x**2).sum()
        scale = 2 * radius / square  # ||K||^2 + ||Q||^2 = 2 radius
        loss, G = problem.loss_and_grad(scale * K @ Q.T)
        inner = np.vdot(G, K @ Q.T)
        dK = scale * (G @ Q) - 2 * scale / square * inner * K
        dQ = scale * (G.T @ K) - 2 * scale / square * inner * Q
        return loss, np.concatenate([dK.ravel(), dQ.ravel()])

    objective, size = (sphere, 25) if norm == "frobenius" else (factors, 50)
    found = min(
        minimize(objective, rng.standard_normal(size), jac=True, method="L-BFGS-B", tol=1e-14).fun for _ in range(12)
    )
    path = attsvm.regularization_path(problem, [radius], norm)
    assert path.loss[0] <= found + 1e-7
    assert path.loss[0] >= found - 1e-4


@pytest.mark.parametrize("norm", _core.BALL)
def test_a_ridge_is_a_radius(norm):
    problem, ridges = one_problem(), [1e-2, 1e-4, 1e-8]
    path = attsvm.regularization_path(problem, norm=norm, ridges=ridges)
    np.testing.assert_allclose(path.log_ridge, np.log(ridges), atol=1e-3)
    assert (np.diff(path.radii) > 0).all()
    for W, ridge in zip(path.weights, ridges, strict=True):
        _, G = problem.loss_and_grad(W)
        if norm == "frobenius":  # G + 2 ridge W = 0
            assert np.linalg.norm(G + 2 * ridge * W) < 5e-3 * np.linalg.norm(G)  # the square root of the gap
        else:  # ||K||^2 + ||Q||^2 = 2 ||W||_* at balanced factors, whose gradients vanish with the ridge's
            U, sigma, V = np.linalg.svd(W)
            K, Q = U * np.sqrt(sigma), V.T * np.sqrt(sigma)
            _, dK, dQ = problem.loss_and_grad(K=K, Q=Q)
            scale = np.linalg.norm(dK) + np.linalg.norm(dQ)
            assert np.linalg.norm(dK + 2 * ridge * K) + np.linalg.norm(dQ + 2 * ridge * Q) < 2e-2 * scale


def test_of_ties_a_path_turns_to_another_direction():
    """The head reads one coordinate, in which two tokens are best: nothing is asked between them."""
    X, Z, y, _ = attsvm.sample.unit_sphere(4, 6, 12, rng=6)
    best, q = (y[:, None] * X[:, :, 0]).argmax(axis=1), np.arange(4)
    X[q, (best + 1) % 6, 0] = X[q, best, 0]
    problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(np.eye(12)[0]))
    svm = attsvm.solve_svm(problem.data, problem.optimal)
    path = attsvm.regularization_path(problem, np.array([100.0, 1000.0]) / svm.margin)
    one, other = path.weights
    assert attsvm.correlation(one, other) > 0.999 and attsvm.correlation(other, svm.W) < 0.95


def test_infeasible_data_have_a_path_that_stays_inside():
    problem = one_problem(6, 5, 2, rng=1)
    assert attsvm.feasible(problem.data, problem.optimal).status == "infeasible"
    path = attsvm.regularization_path(problem, [1.0, 10.0, 1000.0])
    assert (path.gap <= 1e-6).all() and path.log_excess[-1] > -10
    assert "largest gap" in str(path)


def test_nothing_to_learn():
    alone = attsvm.Problem(attsvm.cross_attention([[[1.0, 2.0]]], [[1.0]]), head=attsvm.LinearHead([1.0, 0.0]))
    path = attsvm.regularization_path(alone, [1.0, 2.0])
    assert (path.log_excess == -np.inf).all() and (path.gap == 0).all() and not path.weights.any()


@pytest.mark.parametrize("norm", _core.BALL)
def test_a_point_that_stops_early_warns_and_says_its_gap(norm):
    said = "some points stopped above the tolerance: the largest gap of 1 points"
    with pytest.warns(attsvm.ConvergenceWarning, match=said):
        path = attsvm.regularization_path(one_problem(), [200.0], norm, max_iter=2)
    assert path.gap[0] > 1e-6
    assert frank_wolfe_gap(one_problem(), path.weights[0], 200.0, norm) == pytest.approx(path.gap[0], rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"problem": "none", "radii": [1.0]}, TypeError, "problem must be a Problem"),
        ({}, ValueError, "give either radii or ridges"),
        ({"radii": [1.0], "ridges": [1.0]}, ValueError, "give either radii or ridges"),
        ({"radii": [2.0, 1.0]}, ValueError, "radii must be growing"),
        ({"radii": [0.0, 1.0]}, ValueError, "radii must be positive, got 0"),
        ({"ridges": [1.0, 2.0]}, ValueError, "ridges must be falling"),
        ({"radii": [1.0], "norm": 3.0}, ValueError, "norm must be one of 'frobenius', 'nuclear'"),
        ({"radii": [[1.0]]}, ValueError, "radii must have shape"),
        ({"radii": [1.0], "tol": 0.0}, ValueError, "tol must be"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, match):
    arguments = {"problem": one_problem(), **arguments}
    with pytest.raises(error, match=match):
        attsvm.regularization_path(**arguments)


def test_interrupted_it_leaves_the_points_so_far(monkeypatch):
    point, calls = _core.regularization_path_point, []
    (interrupted,) = (code for code, word in _core.STATUS.items() if word == "interrupted")

    def regularization_path_point(*arguments):
        calls.append(1)
        answer = point(*arguments)
        return (interrupted, *answer[1:]) if len(calls) == 4 else answer

    monkeypatch.setattr(_core, "regularization_path_point", regularization_path_point)
    problem = one_problem()
    with pytest.raises(KeyboardInterrupt) as caught:
        attsvm.regularization_path(problem, np.arange(100.0, 110.0))
    assert 1 <= len(caught.value.partial.radii) <= 3
    assert caught.value.partial.weights.shape[1:] == (10, 10)


def test_overflow_is_told():
    data = attsvm.cross_attention([[[1e100, 0.0], [0.0, 1e100]]], [[1e100, 1.0]])
    problem = attsvm.Problem(data, head=attsvm.LinearHead([1e-100, 0.0]))
    with pytest.raises(FloatingPointError, match="the point of radius 1e\\+150 cannot be computed"):
        attsvm.regularization_path(problem, [1e-100, 1e150])
