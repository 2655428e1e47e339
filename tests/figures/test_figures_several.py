"""The figures on several tokens, queries and attention heads measure what they say, and their claims can fail."""

from __future__ import annotations

import attsvm
import numpy as np
import pytest
from attsvm.figures import quadratic_head, several_tokens, soft_and_hard

# ------------------------------------------------------------------------------------ several tokens


def test_an_accepted_run_is_what_the_package_says():
    rng = np.random.default_rng(4)
    found = several_tokens.accepted(6, rng)
    assert found["trained"] == 1 + found["undecided"] + found["all kept"] + found["not separable"]
    assert found["drawn"] >= found["trained"]
    rng = np.random.default_rng(4)
    for _ in range(found["drawn"]):  # the last draw is the accepted one
        X, Z, y, _ = attsvm.sample.unit_sphere(3, 4, 6, rng)
        V, W = rng.standard_normal((6, 6)), rng.uniform(-1, 1, (6, 6)) / np.sqrt(6)
    data = attsvm.cross_attention(X, Z)
    problem = attsvm.Problem(data, y, attsvm.MLPHead(V / np.linalg.norm(V)))
    stop = found["end"]
    run = attsvm.train(problem, W, steps=stop, record=0)
    p = run.probabilities
    assert not attsvm.theory.selected_sets(p)[1].any()
    parts = attsvm.theory.decompose(data, p, run.W)
    assert found["both"][-1] == pytest.approx(1 - parts.correlation, abs=1e-9)
    assert found["svm"][-1] == pytest.approx(1 - attsvm.correlation(run.W, parts.W_svm), abs=1e-9)
    one = attsvm.solve_svm(data, p.argmax(axis=1))
    assert found["one"][-1] == pytest.approx(1 - attsvm.correlation(run.W, one.W), abs=1e-9)
    assert found["masked"] == pytest.approx(p[~parts.selected].max(), rel=1e-6)


def test_descent_ends_where_the_textbook_gradient_has_no_digit_left():
    """Beyond that step a gradient of the published formula moves W hardly any more; before, both runs are one."""
    rng = np.random.default_rng(0)
    for _ in range(40):
        X, Z, y, v = attsvm.sample.unit_sphere(3, 4, 8, rng)
        data, W = attsvm.cross_attention(X, Z), rng.standard_normal((8, 8)) / 8
        run = attsvm.train(attsvm.Problem(data, y, attsvm.QuadraticHead(v, 0.0)), W, record=10)
        last = several_tokens.end(run)
        assert run.log_grad_norm[last] < several_tokens.END or last == len(run.steps) - 1
        assert (run.log_grad_norm[:last] >= several_tokens.END).all()
        assert last < len(run.steps) - 1  # a linear head saturates


# ------------------------------------------------------------------------------------ quadratic head


def test_projection_and_falling_probabilities():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 6))
    s = quadratic_head.projection(x)
    np.testing.assert_allclose(s.sum(axis=1), 1)
    assert (s >= 0).all()
    for other in rng.dirichlet(np.ones(6), 50):
        assert (((x - s) ** 2).sum(axis=1) <= ((x - other) ** 2).sum(axis=1) + 1e-12).all()
    assert quadratic_head.still(np.array([1e-3, 0.5]), np.array([5e-4, 0.5])).tolist() == [False, True]


# ------------------------------------------------------------------------------------ soft and hard


def test_plain_training_in_numpy_is_that_of_the_package():
    rng = np.random.default_rng(1)
    X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10, rng)
    W = rng.uniform(-1, 1, (10, 10)) / np.sqrt(10)
    scores = y[:, None] * (X @ v)
    path = soft_and_hard.descend("plain", X[None], Z[None], scores[None], W[None], [])
    run = attsvm.train(attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v)), W, steps=300, record=20)
    np.testing.assert_allclose(path[:16, 0], run.weights, atol=1e-9)


def test_penalised_gradient_equals_a_central_difference(monkeypatch):
    rng = np.random.default_rng(2)
    X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10, rng)
    W = rng.uniform(-1, 1, (10, 10))
    scores = y[:, None] * (X @ v)

    def loss(W):
        s = soft_and_hard.softmax(np.einsum("ntd,nd->nt", X, Z @ W.T))
        entropy = -(s * np.log(s)).sum(axis=1)
        return (np.logaddexp(0, -(s * scores).sum(axis=1)) + soft_and_hard.PENALTY * entropy).mean()

    G = np.zeros_like(W)
    for index in np.ndindex(W.shape):
        step = np.zeros_like(W)
        step[index] = 1e-6
        G[index] = (loss(W + step) - loss(W - step)) / 2e-6
    monkeypatch.setattr(soft_and_hard, "STEPS", 1)
    monkeypatch.setattr(soft_and_hard, "EVERY", 1)
    moved = soft_and_hard.descend("entropy", X[None], Z[None], scores[None], W[None], [])[1, 0] - W
    np.testing.assert_allclose(moved, -soft_and_hard.LR * G / np.linalg.norm(G), atol=1e-7)
