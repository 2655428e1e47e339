"""The SVM in a metric: the plain problem on other tokens, bounds of its own from the tokens as they are."""

from __future__ import annotations

import io

import attsvm
import numpy as np
import pytest
import reference
from builders import build_case


def positive_definite(rng, d):
    A = rng.standard_normal((d, 2 * d))
    return A @ A.T / d


def root(P, power):
    values, vectors = np.linalg.eigh(P)
    return vectors * values**power @ vectors.T


def bounds(data, selected, W, dual, D):
    """(lower, upper) in the metric D, from the raw tokens."""
    rows = reference.svm_rows(data, selected)
    lam = reference.svm_multipliers(data, rows, dual)
    asked = ~np.array([equal for *_, equal in rows])
    pull = reference.svm_adjoint(rows, lam, W.shape)
    least = reference.svm_apply(rows, W)[asked].min()
    return least / np.sqrt((D * W**2).sum()), np.sqrt((pull**2 / D).sum()) / lam[asked].sum()


@pytest.mark.parametrize("name", ["cross", "causal_ragged", "cross_several_queries", "cross_float32", "cross_gemm"])
def test_an_answer_in_a_metric_is_certified_by_its_tokens(name):
    case = build_case(name)
    data, rng = case.data, case.rng
    selected = data.select(rng.standard_normal((data.dk, data.dz)))
    D = rng.uniform(0.2, 3.0, (data.dk, data.dz))
    sol = attsvm.solve_svm(data, selected, metric=D)
    assert sol.status == "optimal" and sol.gap < 1e-9 and sol.unique is True
    low, high = bounds(data, selected, sol.W, sol.dual, D)
    np.testing.assert_allclose((sol.margin, sol.margin_bound), (low, high), rtol=1e-9)
    np.testing.assert_array_equal(sol.metric, D)
    share = attsvm.theory.margin_share(data, selected, sol.W, metric=D)
    assert 1 - 1e-8 < share[0] <= share[1] <= 1
    other = attsvm.solve_svm(data, selected).W
    assert attsvm.theory.margin_share(data, selected, other, metric=D)[1] < 1


@pytest.mark.parametrize("kept", [False, True])
def test_a_pair_of_matrices_is_whitening(kept):
    rng = np.random.default_rng(1)
    X, Z, _, _ = attsvm.sample.unit_sphere(6, 8, 10, rng=rng)
    P, R = positive_definite(rng, 10), positive_definite(rng, 10)
    data, plain = attsvm.cross_attention(X, Z), attsvm.cross_attention(X @ root(P, -0.5), Z @ root(R, -0.5))
    selected = rng.integers(0, 8, 6)
    if kept:
        selected = np.eye(8, dtype=bool)[selected]
        selected[2, :2] = True
    sol, other = attsvm.solve_svm(data, selected, metric=(P, R)), attsvm.solve_svm(plain, selected)
    np.testing.assert_allclose(root(P, 0.5) @ sol.W @ root(R, 0.5), other.W, atol=1e-6)
    assert sol.margin == pytest.approx(other.margin, rel=1e-8) and sol.gap < 1e-8
    soft = attsvm.solve_svm(data, selected, metric=(P, R), C=0.7)
    assert soft.objective == pytest.approx(attsvm.solve_svm(plain, selected, C=0.7).objective, rel=1e-8)
    file = io.BytesIO()
    sol.save(file)
    file.seek(0)
    assert attsvm.load(file) == sol and sol.to_dict()["norm"] == "metric"
    with pytest.raises(ValueError, match="the checker knows no metric"):
        sol.prove(io.BytesIO())


def test_metrics_that_say_the_same_have_one_answer():
    rng = np.random.default_rng(2)
    X, Z, _, _ = attsvm.sample.unit_sphere(5, 6, 7, rng=rng)
    data, selected = attsvm.cross_attention(X, Z), [0, 1, 2, 3, 4]
    d, e = rng.uniform(0.1, 3, 7), rng.uniform(0.1, 3, 7)
    one = attsvm.solve_svm(data, selected, metric=np.outer(d, e))
    two = attsvm.solve_svm(data, selected, metric=(np.diag(d), np.diag(e)))
    np.testing.assert_allclose(one.W, two.W, atol=1e-7)
    same = attsvm.solve_svm(data, selected, metric=np.ones((7, 7)))
    assert same.margin == pytest.approx(attsvm.solve_svm(data, selected).margin, rel=1e-9)
    X[1, 0] = X[1, 1]
    copied = attsvm.cross_attention(X, Z)
    assert attsvm.solve_svm(copied, selected, metric=np.outer(d, e)).status == "infeasible"


def test_what_goes_with_no_metric_is_refused():
    X, Z, _, _ = attsvm.sample.unit_sphere(3, 4, 5)
    data, D = attsvm.cross_attention(X, Z), np.ones((5, 5))
    with pytest.raises(ValueError, match="metric goes with norm='frobenius', got norm='max'"):
        attsvm.solve_svm(data, [0, 1, 2], "max", metric=D)
    with pytest.raises(ValueError, match="metric must have shape"):
        attsvm.solve_svm(data, [0, 1, 2], metric=np.ones((5, 4)))
    with pytest.raises(ValueError, match="metric goes without reduce and progress"):
        attsvm.solve_svm(data, [0, 1, 2], metric=D, progress=True)


def test_adam_of_a_long_memory_is_nearest_to_its_own_metric():
    X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    run = attsvm.train(
        problem, rule=attsvm.rules.adam(betas=(0.9, 0.999)), lr=lambda k: 0.1 / (k + 1) ** 0.5, steps=8000, record=0
    )
    own = attsvm.solve_svm(problem.data, run, metric=run.metric)
    other = {norm: attsvm.solve_svm(problem.data, run, norm) for norm in ("frobenius", "max")}
    nearest = attsvm.correlation(run.W, own.W)
    assert nearest > 0.9 and all(nearest > attsvm.correlation(run.W, sol.W) for sol in other.values())
    low, high = run.margins(metric=run.metric)
    assert low[-1] <= own.margin_bound and high[-1] >= own.margin
    assert attsvm.train(problem, steps=1).metric is None


def test_no_interval_in_a_metric_is_false():
    """Weights on their way, and as near as can be, in metrics of both kinds that are far from the identity."""
    rng = np.random.default_rng(4)
    for draw in range(60):
        X, Z, y, v = attsvm.sample.unit_sphere(5, 6, 7, rng)
        problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
        A, B = rng.standard_normal((2, 7, 7))
        metric = (
            np.exp(2 * rng.standard_normal((7, 7))) if draw % 2 else (A @ A.T + 0.1 * np.eye(7), B @ B.T + np.eye(7))
        )
        W = attsvm.train(problem, steps=(3, 30, 300)[draw % 3], record=0, rule=attsvm.rules.normalized(metric=metric)).W
        selected = problem.data.select(W)
        answer = attsvm.solve_svm(problem.data, selected, metric=metric)
        for weights in (W, answer.W):
            low, high = problem.margin_interval(weights, selected, metric=metric)
            assert low <= answer.margin_bound and answer.margin <= high < np.inf
        assert low > answer.margin * (1 - 1e-6)
