"""The head with several classes against readable formulas and finite differences."""

from __future__ import annotations

import attsvm
import numpy as np
import pytest


def instance(seed=0, C=5):
    rng = np.random.default_rng(seed)
    X, Z, _, _ = attsvm.sample.unit_sphere(4, 4, 8, rng)
    V, classes = rng.standard_normal((8, C)), rng.integers(C, size=4)
    data = attsvm.cross_attention(X, Z)
    return data, V, classes, attsvm.Problem(data, head=attsvm.SoftmaxHead(V, classes), loss="linear")


def test_loss_is_the_cross_entropy():
    data, V, classes, problem = instance()
    W = np.random.default_rng(1).standard_normal((8, 8))
    outputs = data.attended(W) @ V
    by_hand = [np.log(np.exp(u).sum()) - u[c] for u, c in zip(outputs, classes, strict=True)]
    assert problem.loss(W) == pytest.approx(np.mean(by_hand), rel=1e-13)
    scores = data.values.reshape(4, 4, 8) @ V
    one = [u[:, c] - np.log(np.exp(u).sum(axis=1)) for u, c in zip(scores, classes, strict=True)]
    np.testing.assert_allclose(problem.scores, one, rtol=1e-12)


def test_gradient_equals_central_differences():
    *_, problem = instance(2)
    rng = np.random.default_rng(3)
    W, step = rng.standard_normal((2, 8, 8))
    _, G = problem.loss_and_grad(W)
    slope = (problem.loss(W + 1e-6 * step) - problem.loss(W - 1e-6 * step)) / 2e-6
    assert (G * step).sum() == pytest.approx(slope, rel=1e-6)  # differences of 1e-6 in double precision


@pytest.mark.parametrize("sure", [20.0, 50.0, 700.0])
def test_a_query_sure_of_its_class_keeps_its_value_and_gradient(sure):
    """By hand, where the other classes have e^-sure each: 1 - p would be zero beyond 36.  The query that is as sure of
    another class has all of it to win."""
    V = np.array([[sure, 0.0, 0.0], [0.0, 1.0, 3.0]])
    head = attsvm.SoftmaxHead(V, classes=[0, 1])
    value, gradient = head.value_and_grad(np.array([[1.0, 0.0], [1.0, 0.0]]))
    rest = np.exp(-sure)  # of each of two classes; their squares are below rounding
    np.testing.assert_allclose(value, [-2 * rest, -sure], rtol=1e-8)
    np.testing.assert_allclose(gradient, [[2 * sure * rest, -4 * rest], [-sure, 1.0]], rtol=1e-8)


def test_two_classes_are_the_logistic_loss_of_a_linear_head():
    """softmax of two outputs is the logistic function of their difference."""
    data, V, _, _ = instance(4, C=2)
    y = np.array([1, -1, -1, 1])
    two = attsvm.Problem(data, head=attsvm.SoftmaxHead(V, (y < 0).astype(int)), loss="linear")
    linear = attsvm.Problem(data, y, attsvm.LinearHead(V[:, 0] - V[:, 1]))
    W = np.random.default_rng(5).standard_normal((8, 8))
    (a, G), (b, H) = two.loss_and_grad(W), linear.loss_and_grad(W)
    assert a == pytest.approx(b, rel=1e-13)
    np.testing.assert_allclose(G, H, atol=1e-15)
    one, other = (attsvm.train(problem, steps=300, record=0).W for problem in (two, linear))
    np.testing.assert_allclose(one, other, atol=1e-9)


def test_ragged_queries():
    rng = np.random.default_rng(0)
    X, Z = [rng.standard_normal((T, 3)) for T in (2, 4)], [rng.standard_normal((S, 3)) for S in (2, 1)]
    data, V = attsvm.cross_attention(X, Z), rng.standard_normal((3, 4))
    problem = attsvm.Problem(data, head=attsvm.SoftmaxHead(V, [[3, 0], [1]]), loss="linear")
    outputs = np.concatenate(data.attended(np.eye(3))) @ V
    by_hand = np.log(np.exp(outputs).sum(axis=1)) - outputs[np.arange(3), [3, 0, 1]]
    assert problem.loss(np.eye(3)) == pytest.approx(by_hand.mean(), rel=1e-13)
    assert repr(problem.head) == "SoftmaxHead(dv=3, C=4)"


def test_bad_input():
    data, V, classes, _ = instance()
    with pytest.raises(ValueError, match="classes must hold class numbers 0 .. 4, got 5"):
        attsvm.SoftmaxHead(V, [0, 5, 1, 1])
    with pytest.raises(TypeError, match="classes must hold class numbers, integers"):
        attsvm.SoftmaxHead(V, classes.astype(float))
    with pytest.raises(ValueError, match=r"classes must have shape \(n,\) = \(4,\), got \(3,\)"):
        attsvm.Problem(data, head=attsvm.SoftmaxHead(V, classes[:3]), loss="linear")
    with pytest.raises(ValueError, match=r"V must have shape \(dv, C\) = \(8, C\), got \(7, 5\)"):
        attsvm.Problem(data, head=attsvm.SoftmaxHead(V[:7], classes), loss="linear")
