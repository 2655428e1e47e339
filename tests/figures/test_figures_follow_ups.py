"""The figures on the precursor and the follow-ups measure what they say, and their claims can fail."""

from __future__ import annotations

import attsvm
import numpy as np
import pytest
from attsvm.figures import joint_training, mirror_descent, next_token, optimisers, precursor, rates, several_classes

# ------------------------------------------------------------------------------------ next token


def test_local_score_is_the_squared_loss_of_the_softmax_over_the_vocabulary():
    rng = np.random.default_rng(0)
    sequences, labels, E, found = next_token.draw(rng)
    assert not found.acyclic
    W = rng.standard_normal((8, 8))
    head = attsvm.CallableHead(next_token.squared_loss(E, labels))
    problem = attsvm.Problem(attsvm.cross_attention(E[sequences], E[sequences[:, -1]]), None, head, loss="linear")
    out = problem.data.attended(W) @ E.T
    p = np.exp(out) / np.exp(out).sum(axis=1, keepdims=True)
    assert problem.loss(W) == pytest.approx(((1 - p[np.arange(6), labels]) ** 2).mean(), rel=1e-12)
    _, G = problem.loss_and_grad(W)
    step = rng.standard_normal((8, 8))
    slope = (problem.loss(W + 1e-6 * step) - problem.loss(W - 1e-6 * step)) / 2e-6
    assert (G * step).sum() == pytest.approx(slope, rel=1e-6)


def test_finite_part_minimises_the_loss_on_the_tokens_of_the_components():
    *_, found = next_token.draw(np.random.default_rng(1))
    basis, W_fin, gradient = next_token.finite_part(found)
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-12)
    np.testing.assert_allclose(basis @ (basis.T @ W_fin.ravel()), W_fin.ravel(), atol=1e-12)
    assert gradient < 1e-9
    far = W_fin + 50 * attsvm.solve_svm(found.data, found.selected).W  # the other tokens have no attention left
    least = found.problem.loss(far)
    rng = np.random.default_rng(2)
    for _ in range(20):
        away = (basis @ rng.standard_normal(basis.shape[1])).reshape(8, 8)
        assert found.problem.loss(far + 0.1 * away) > least


# ------------------------------------------------------------------------------------ precursor, joint training


def test_exact_offsets_balance_the_pull_of_the_two_sequences():
    for loss in precursor.LOSSES:
        for C in (2, 5):
            problem = precursor.problem_of([[[0, 0, 0], [1, 1, C]], [[0, 0, 0], [1, -1, 1]]], loss)
            p = np.array([[30.0], [precursor.exact_offset(loss, C)]])
            _, gradient = problem.loss_and_grad(p, scaled=True)
            assert abs(gradient.W[1, 0]) < 1e-9 * abs(gradient.W[0, 0])


def test_between_maximises_the_least_score_and_margin():
    X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10, rng=5)
    data = attsvm.cross_attention(X, Z)
    selected, score = (X @ v).argmax(axis=1), np.random.default_rng(0).random(6)

    def least(W):
        logits = data.logits(W / np.linalg.norm(W))
        top = np.take_along_axis(logits, selected[:, None], axis=1)
        np.put_along_axis(logits, selected[:, None], -np.inf, axis=1)
        return (score + top[:, 0] - logits.max(axis=1)).min()

    W = joint_training.between(data, selected, score).W
    best = least(W)
    assert best > least(attsvm.solve_svm(data, selected).W)
    rng = np.random.default_rng(1)
    assert all(least(W + 0.05 * rng.standard_normal((10, 10))) < best for _ in range(200))


def test_attention_that_has_not_saturated_gives_no_number(monkeypatch):
    monkeypatch.setattr(joint_training, "RANDOM_STEPS", 5)
    assert np.isnan(list(joint_training.experiment(np.random.default_rng(0)).values())).all()


# ------------------------------------------------------------------------------------ mirror descent, rates


def test_divergence_is_that_of_the_potential():
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((2, 4, 5))
    for p in (1.75, 2.0, 3.0):
        a, b = (X.ravel() / (np.abs(X) ** p).sum() ** (1 / p) for X in (A, B))
        potential = [(np.abs(x) ** p).sum() / p for x in (a, b)]
        by_hand = potential[0] - potential[1] - (np.sign(b) * np.abs(b) ** (p - 1)) @ (a - b)
        assert mirror_descent.divergence(A, B, p) == pytest.approx(by_hand, rel=1e-12)
    assert mirror_descent.divergence(A, B, 2.0) == pytest.approx(1 - attsvm.correlation(A, B), rel=1e-12)
    for p, steps in mirror_descent.STEPS.items():
        chosen = mirror_descent.records(p)
        assert len(set(chosen)) == mirror_descent.POINTS and chosen[0] == 0 and chosen[-1] == steps


def test_slope_of_a_power_law():
    steps = rates.RECORD.astype(float)
    found = rates.slope(steps, np.stack([3 * steps**-0.5, steps**-1.0, np.log(steps + 1)]))
    np.testing.assert_allclose(found[:2], [-0.5, -1], atol=1e-12)
    assert 0.1 < found[2] < 0.15


def test_the_exponent_is_that_of_a_power():
    along = 1 - 0.7 * np.power(optimisers.RECORDS.astype(float), [[-0.5], [-0.25]])
    np.testing.assert_allclose(optimisers.exponent(along), [-0.5, -0.25], rtol=1e-10)


# ------------------------------------------------------------------------------------ several classes


def test_mixture_is_the_best_of_the_simplex():
    rng = np.random.default_rng(0)
    for _ in range(10):
        outputs, c = rng.standard_normal((4, 5)), rng.integers(5)
        s = several_classes.mixture(outputs, c)
        assert s.min() >= 0 and s.sum() == pytest.approx(1)
        assert several_classes.stationarity(outputs, c, s) < 1e-8

        def log_probability(s, outputs=outputs, c=c):
            return np.log(several_classes.softmax(s @ outputs)[c])

        assert all(log_probability(s) >= log_probability(other) - 1e-12 for other in rng.dirichlet(np.ones(4), 200))
    x = rng.standard_normal(6)
    near = several_classes.projection(x)
    assert near.min() >= 0 and near.sum() == pytest.approx(1)
    others = rng.dirichlet(np.ones(6), 200)
    assert (((others - x) ** 2).sum(axis=1) >= ((near - x) ** 2).sum() - 1e-12).all()
