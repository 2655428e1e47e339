"""The regularisation path: stationary points, no worse than an independent minimiser's, that turn to the SVM."""

import math

import attsvm
import judge
import numpy as np
import pytest
import reference
from attsvm import _core
from builders import build_case, problem_of, tied
from limits import by_scores
from numpy.testing import assert_allclose, assert_array_equal

RADII = np.array([1.0, 5.0, 10.0, 20.0, 30.0])  # in units of 1 / margin: loss gaps of about exp(-1) .. exp(-30)


def of_loss(loss):
    return problem_of(build_case("cross", positive=loss == "log", seed=2), loss)


def frank_wolfe_gap(problem, W, radius, norm):
    """Relative, from the gradient by readable pairs."""
    _, G, _ = reference.loss_and_grad(problem.data, problem.y, problem.head.v, problem._loss_name, W)
    _, dual = judge.norms_of(G, norm)
    return (np.vdot(G, W) + radius * dual) / (radius * dual)


@pytest.mark.parametrize("norm", _core.BALL)
def test_points_are_stationary_and_turn_to_the_svm(norm, sphere):
    for seed in range(3):
        problem = sphere(seed=seed).problem
        svm = attsvm.solve_svm(problem.data, problem.optimal, norm)
        path = attsvm.regularization_path(problem, RADII / svm.margin, norm)
        for W, radius, gap in zip(path.weights, path.radii, path.gap, strict=True):
            assert judge.norms_of(W, norm)[0] == pytest.approx(radius, rel=1e-9)
            assert gap <= 1e-6
            assert frank_wolfe_gap(problem, W, radius, norm) == pytest.approx(gap, abs=1e-9)
        off = [1 - attsvm.correlation(W, svm.W) for W in path.weights]
        assert (np.diff(off) < 0).all() and off[-1] < 5e-3
        assert (np.diff(path.loss) <= 0).all() and (np.diff(path.log_excess) < 0).all()


@pytest.mark.parametrize("loss", _core.LOSS)
def test_log_excess_is_that_of_the_loss(loss):
    """Against five hundred digits, from small weights to where the excess itself underflows."""
    problem = of_loss(loss)
    margin = attsvm.solve_svm(problem.data, problem.optimal).margin
    path = attsvm.regularization_path(problem, np.array([0.1, 1.0, 10.0, 100.0, 900.0]) / margin)
    head = problem.head.v
    for W, found in zip(path.weights, path.log_excess, strict=True):
        exact = reference.decimal_log_excess(problem.data, problem._labels, head, loss, W)
        assert found == pytest.approx(exact, rel=1e-12, abs=1e-11)
    assert path.log_excess[-1] < -745


@pytest.mark.parametrize("loss", _core.LOSS)
def test_log_gradient_is_that_of_the_problem(loss):
    problem = of_loss(loss)
    W = np.zeros((4, 3))
    for ball, norm in enumerate(_core.BALL):
        status, log_excess, log_gradient, gap, *_ = _core.regularization_path_point(
            problem._objective, W, ball, 3.0, 1e-6, 1000
        )
        _, G = problem.loss_and_grad(W)
        assert log_gradient == pytest.approx(math.log(judge.norms_of(G, norm)[1]), abs=1e-9)
        assert status == 0 and gap <= 1e-6 and np.isfinite(log_excess)


@pytest.mark.parametrize("norm", _core.BALL)
def test_no_worse_than_an_independent_minimiser(norm, rng, sphere):
    """SciPy's L-BFGS-B: W scaled onto the sphere, or into the ball of factors, from many starts."""
    minimize = pytest.importorskip("scipy.optimize").minimize
    problem, radius = sphere(4, 4, 5, seed=1).problem, 6.0

    def loss(x):
        if norm == "frobenius":
            return problem.loss(radius * x.reshape(5, 5) / np.linalg.norm(x))
        K, Q = x.reshape(2, 5, 5)
        return problem.loss(2 * radius / (x**2).sum() * K @ Q.T)  # ||K||^2 + ||Q||^2 = 2 radius

    starts = rng.standard_normal((12, 25 if norm == "frobenius" else 50))
    found = min(minimize(loss, start, method="L-BFGS-B", tol=1e-14).fun for start in starts)
    path = attsvm.regularization_path(problem, [radius], norm)
    assert path.loss[0] <= found + 1e-7
    assert path.loss[0] >= found - 1e-4


@pytest.mark.parametrize("norm", _core.BALL)
def test_a_ridge_is_a_radius(norm, sphere):
    problem, ridges = sphere().problem, [1e-2, 1e-4, 1e-8]
    path = attsvm.regularization_path(problem, norm=norm, ridges=ridges)
    assert_allclose(path.log_ridge, np.log(ridges), atol=1e-3)
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
    """Nothing is asked between two best tokens."""
    problem, *_ = tied()
    svm = attsvm.solve_svm(problem.data, problem.optimal)
    path = attsvm.regularization_path(problem, np.array([100.0, 1000.0]) / svm.margin)
    one, other = path.weights
    assert attsvm.correlation(one, other) > 0.999 and attsvm.correlation(other, svm.W) < 0.95


def test_infeasible_data_have_a_path_that_stays_inside(sphere):
    problem = sphere(6, 5, 2, seed=1).problem
    assert attsvm.feasible(problem.data, problem.optimal).status == "infeasible"
    path = attsvm.regularization_path(problem, [1.0, 10.0, 1000.0])
    assert (path.gap <= 1e-6).all() and path.log_excess[-1] > -10
    assert "largest gap" in str(path)


def test_nothing_to_learn():
    path = attsvm.regularization_path(by_scores([[[1.0, 2.0]]], [[1.0]]), [1.0, 2.0])
    assert (path.log_excess == -np.inf).all() and (path.gap == 0).all() and not path.weights.any()


@pytest.mark.parametrize("norm", _core.BALL)
def test_a_point_that_stops_early_warns_and_says_its_gap(norm, sphere):
    said = "some points stopped above the tolerance: the largest gap of 1 points"
    with pytest.warns(attsvm.ConvergenceWarning, match=said):
        path = attsvm.regularization_path(sphere().problem, [200.0], norm, max_iter=2)
    assert path.gap[0] > 1e-6
    assert frank_wolfe_gap(sphere().problem, path.weights[0], 200.0, norm) == pytest.approx(path.gap[0], rel=1e-9)


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
def test_wrong_arguments_are_named(arguments, error, match, sphere):
    arguments = {"problem": sphere().problem, **arguments}
    with pytest.raises(error, match=match):
        attsvm.regularization_path(**arguments)


def test_interrupted_it_leaves_the_points_so_far(monkeypatch, sphere):
    point, calls = _core.regularization_path_point, []
    (interrupted,) = (code for code, word in _core.STATUS.items() if word == "interrupted")

    def regularization_path_point(*arguments):
        calls.append(1)
        answer = point(*arguments)
        return (interrupted, *answer[1:]) if len(calls) == 4 else answer

    monkeypatch.setattr(_core, "regularization_path_point", regularization_path_point)
    with pytest.raises(KeyboardInterrupt) as caught:
        attsvm.regularization_path(sphere().problem, np.arange(100.0, 110.0))
    assert 1 <= len(caught.value.partial.radii) <= 3
    assert caught.value.partial.weights.shape[1:] == (10, 10)


def test_overflow_is_told():
    data = attsvm.cross_attention([[[1e100, 0.0], [0.0, 1e100]]], [[1e100, 1.0]])
    problem = attsvm.Problem(data, head=attsvm.LinearHead([1e-100, 0.0]))
    with pytest.raises(FloatingPointError, match="the point of radius 1e\\+150 cannot be computed"):
        attsvm.regularization_path(problem, [1e-100, 1e150])


@pytest.fixture
def local(sphere):
    """A problem, and tokens that are locally optimal but not the best, to which training has gone."""

    def make(seed=6):
        problem = sphere(seed=seed).problem
        return problem, attsvm.train(problem, steps=3000).selected

    return make


@pytest.mark.parametrize("seed", [6, 14, 20, 24])
@pytest.mark.filterwarnings("ignore::attsvm.ConvergenceWarning")
def test_frobenius_path_turns_to_the_svm_of_its_own_tokens(local, seed):
    problem, selected = local(seed)
    svm = attsvm.solve_svm(problem.data, selected)
    radii = np.array([30.0, 100.0, 300.0]) / svm.margin
    path = attsvm.regularization_path(problem, radii, selected=selected)
    away = [1 - attsvm.correlation(W, svm.W) for W in path.weights]
    assert away[-1] < 1e-4 and away[-1] < away[0] / 10  # errors fall like one over the square of the radius
    for W, radius, gap, log_ridge in zip(path.weights, radii, path.gap, path.log_ridge, strict=True):
        assert_array_equal(problem.data.select(W), selected)
        assert np.linalg.norm(W) == pytest.approx(radius, rel=1e-9) and gap <= 1e-5  # 1e-6, or where rounding ends it
        _, G, scale = reference.loss_and_grad(problem.data, problem.y, problem.head.v, "logistic", W)
        dual = np.linalg.norm(G)
        assert (np.vdot(G, W) + radius * dual) / (radius * dual) <= 2e-5
        assert log_ridge == pytest.approx(np.log(dual / 2 / radius) + scale, rel=1e-6)
    assert np.isnan(path.log_excess).all()


@pytest.mark.filterwarnings("ignore::attsvm.ConvergenceWarning")  # the nuclear ball has edges
def test_nuclear_path_turns_to_the_nuclear_svm(local):
    problem, selected = local()
    svm = attsvm.solve_svm(problem.data, selected, "nuclear")
    path = attsvm.regularization_path(problem, [100 / svm.margin], "nuclear", selected=selected)
    assert attsvm.correlation(path.weights[0], svm.W) > 0.999 and path.gap[0] < 1e-2
    assert attsvm.correlation(path.weights[0], attsvm.solve_svm(problem.data, selected).W) < 0.99
    assert_array_equal(problem.data.select(path.weights[0]), selected)


def test_the_local_path_of_the_best_tokens_is_the_global_one(sphere):
    problem = sphere().problem
    radii = np.array([10.0, 30.0]) / attsvm.solve_svm(problem.data, problem.optimal).margin
    one = attsvm.regularization_path(problem, radii, tol=1e-9)
    other = attsvm.regularization_path(problem, radii, selected=problem.optimal, tol=1e-9)
    assert_allclose(other.weights, one.weights, rtol=0, atol=1e-3 * radii[-1])
    assert_allclose(other.loss, one.loss, rtol=1e-9)
    assert_allclose(other.log_ridge, one.log_ridge, rtol=1e-4)


def test_a_head_with_one_best_token_turns_to_its_svm(sphere):
    """1 . relu(V^T o) is convex: with label +1 no mixture is better than the best token."""
    for seed in range(4):
        V = np.random.default_rng(seed).standard_normal((8, 8))
        problem = attsvm.Problem(sphere(4, 5, 8, seed).data, None, attsvm.MLPHead(V / np.linalg.norm(V)))
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


def test_a_stationary_point_need_not_be_a_minimiser():
    problem = by_scores([[[-4.0], [0.0]], [[-2.0], [1.0]]], [[12.0, 0.0], [-6.0, 3.0]])
    path = attsvm.regularization_path(problem, [10.0])
    assert path.loss > problem.loss([[0.4]]) + 0.1
    assert path.message == "every point is stationary in its ball, to the tolerance"


def test_what_has_no_local_path_is_refused(local):
    problem, selected = local()
    with pytest.raises(ValueError, match="ridges must come without selected"):
        attsvm.regularization_path(problem, ridges=[1.0, 0.1], selected=selected)
    mlp = attsvm.Problem(problem.data, problem.y, attsvm.MLPHead(np.eye(10)))
    with pytest.raises(ValueError, match="ridges must come without selected and with a linear head"):
        attsvm.regularization_path(mlp, ridges=[1.0])
    with pytest.raises(ValueError, match="problem must have heads=None"):
        attsvm.regularization_path(attsvm.Problem(problem.data, problem.y, problem.head, heads=2), [1.0])
    copies = by_scores([[[1.0], [1.0]]], [[1.0, 0.0]])
    with pytest.raises(ValueError, match="selected must be tokens that some W separates"):
        attsvm.regularization_path(copies, [1.0], selected=[0])
