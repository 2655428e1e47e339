"""Stacks of layers: gradients against differences, saturated ones against exact arithmetic, and the SVMs they go to."""

import math

import attsvm
import numpy as np
import pytest
from attsvm.theory.hierarchy import _pass
from numpy.testing import assert_allclose
from problems import sphere


def draw(rng, runs, n, T, d, layers=2):
    X, z, v = sphere(rng, runs, n, T, d), sphere(rng, runs, n, d), sphere(rng, runs, d)
    y = rng.choice([-1.0, 1.0], (runs, n))
    return X, z, y, v, [np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in range(layers - 1)]


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_gradients_are_differences(layers):
    rng = np.random.default_rng(layers)
    X, z, y, v, V = draw(rng, 2, 3, 4, 5, layers)
    W = [rng.standard_normal((2, 5, 5)) for _ in range(layers)]
    *_, found = _pass(X, z, y, v, V, W)
    for k, (G, scale) in enumerate(found):
        for _ in range(3):
            D = rng.standard_normal((2, 5, 5))
            moved = ([w + h * D * (j == k) for j, w in enumerate(W)] for h in (1e-6, -1e-6))
            ends = [np.logaddexp(0, -_pass(X, z, y, v, V, weights)[2]).mean(axis=-1) for weights in moved]
            slope = (G * np.exp(scale) * D).sum(axis=(-2, -1))
            assert_allclose((ends[0] - ends[1]) / 2e-6, slope, atol=1e-7)


def test_one_layer_is_attention():
    rng = np.random.default_rng(0)
    X, z, y, v, _ = draw(rng, 1, 4, 5, 6, 1)
    problem = attsvm.Problem(attsvm.cross_attention(X[0], z[0]), y[0], attsvm.LinearHead(v[0]))
    stack = attsvm.theory.train_stack(X[0], z[0], y[0], v[0], [], [np.zeros((6, 6))], steps=300)
    run = attsvm.train(problem, steps=300, lr=0.1)
    assert_allclose(stack.W[0], run.W, atol=1e-9)
    assert stack.loss == pytest.approx(run.loss[-1])


def test_saturated_gradients_keep_their_digits():
    """Weights 3,000 times as large: the leading terms, whose sizes have left double precision."""
    rng = np.random.default_rng(3)
    X, z, y, v, V = draw(rng, 1, 3, 4, 8)
    W = [3000 * w for w in attsvm.theory.train_stack(X, z, y, v, V, [np.zeros((8, 8))] * 2, steps=300).W]
    hidden, logs, _, ((G1, s1), (G2, s2)) = _pass(X, z, y, v, V, W)
    assert s1.max() < -2000 and s2.max() < -2000
    for G in (G1, G2):
        assert np.isfinite(G).all() and 1e-3 < np.abs(G).max() < 1e3
    # the outer gradient, term by term, over the largest
    h, p, terms = hidden[-1][0], logs[-1][0][:, 0], []
    for i, a in enumerate(p.argmax(axis=1)):
        u = y[0, i] * float(h[i, a] @ v[0])
        for s in set(range(4)) - {int(a)}:
            apart = h[i, s] - h[i, a]
            terms.append((p[i, s], -y[0, i] / (1 + math.exp(u)) * (apart @ v[0]) * np.outer(apart, z[0, i])))
    most = max(log for log, _ in terms)
    wanted = sum(math.exp(log - most) * term for log, term in terms)
    assert_allclose(G2[0] / np.linalg.norm(G2), wanted / np.linalg.norm(wanted), atol=1e-9)


@pytest.fixture(scope="module")
def trained():
    X, z, y, v, V = draw(np.random.default_rng(0), 6, 4, 5, 12)
    return X, z, V, attsvm.theory.train_stack(X, z, y, v, V, [np.zeros((12, 12))] * 2, steps=2500)


def test_two_layers_go_to_their_svms(trained):
    """Both SVMs and the balance of margins; control: all queries with margin 1."""
    X, z, V, stack = trained
    found = []
    for r in range(6):
        lower, upper = attsvm.theory.hierarchy(X[r], V, z[r], [p[r] for p in stack.attention])
        A, B = (W[r] for W in stack.W)
        every = attsvm.solve_svm(attsvm.self_attention(X[r], query=None), stack.attention[0][r].argmax(-1))
        ratio = np.linalg.norm(A) * lower.margin / (np.linalg.norm(B) * upper.margin)
        found.append((*(attsvm.correlation(*pair) for pair in ((B, upper.W), (A, lower.W), (A, every.W))), ratio))
    outer, inner, every, ratio = np.array(found).T
    assert outer.min() > 0.97 and inner.min() > 0.97  # at 2,500 steps; 1 - correlation falls like 1 over steps squared
    assert np.median(every) < 0.8
    assert np.abs(ratio - 1).max() < 0.05


def test_undecided_queries_are_named(trained):
    X, z, V, stack = trained
    inner, outer = (p[0].copy() for p in stack.attention)
    outer[1] = 0.2
    with pytest.raises(ValueError, match=r"attention\[1\] has not selected for sequence 1: its largest is 0.2"):
        attsvm.theory.hierarchy(X[0], V, z[0], [inner, outer])
    outer = stack.attention[1][0]
    on_way = int(outer[2].argmax())
    inner[2, on_way] = 0.2
    with pytest.raises(ValueError, match=rf"attention\[0\] has not selected for query {on_way} of sequence 2"):
        attsvm.theory.hierarchy(X[0], V, z[0], [inner, outer])


def test_three_layers_and_factors_decide():
    """What holds the middle layer holds the lowest: all three directions."""
    X, z, y, v, V = draw(np.random.default_rng(4), 3, 3, 4, 14, 3)
    stack = attsvm.theory.train_stack(X, z, y, v, V, [np.zeros((14, 14))] * 3, steps=2500)
    for r in range(3):
        found = attsvm.theory.hierarchy(X[r], V, z[r], [p[r] for p in stack.attention])
        assert [sol.status for sol in found] == ["optimal"] * 3
        assert min(attsvm.correlation(W[r], sol.W) for W, sol in zip(stack.W, found, strict=True)) > 0.95
    start = [(0.1 * np.eye(14), 0.1 * np.eye(14))] * 3
    again = attsvm.theory.train_stack(X, z, y, v, V, start, steps=5)
    for W, (K, Q) in zip(again.W, again.factors, strict=True):
        assert_allclose(W, K @ np.swapaxes(Q, -1, -2))


def test_shapes_are_checked():
    X, z, y, v, V = draw(np.random.default_rng(4), 1, 3, 4, 5)
    with pytest.raises(ValueError, match="V must be one matrix or one for each of the 1 inner layers, got 2"):
        attsvm.theory.hierarchy(X[0], V * 2, z[0], [np.ones((3, 4, 4)), np.ones((3, 4))])
    with pytest.raises(ValueError, match=r"attention\[0\] must have shape"):
        attsvm.theory.hierarchy(X[0], V, z[0], [np.ones((3, 4)), np.ones((3, 4))])
    with pytest.raises(TypeError, match="W must be a list"):
        attsvm.theory.train_stack(X, z, y, v, V, np.zeros((5, 5)))
