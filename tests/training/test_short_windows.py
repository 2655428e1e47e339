"""Short windows, which go eight side by side (csrc/attention/interleaved.h), beside extended precision."""

import attsvm
import numpy as np
import pytest
from numpy.testing import assert_allclose

LONG = 2.0**20  # a step that leaves the weights no digits


def draw(rng, lengths=None, d=5, dtype=float, spread=1.0):
    """Ragged windows in no order, or of these lengths; keys of a window differ by about `spread`."""
    lengths = rng.integers(1, 8, 300) if lengths is None else lengths
    X = [(rng.standard_normal(d) + spread * rng.standard_normal((T, d))).astype(dtype) for T in lengths]
    values = [rng.standard_normal((T, 3)) for T in lengths]
    data = attsvm.cross_attention(X, rng.standard_normal((len(X), d)), values)
    return attsvm.Problem(data, rng.choice([-1.0, 1.0], len(X)), attsvm.LinearHead(rng.standard_normal(3)))


def log_norm_and_direction(problem, W):
    """log ||dL/dW|| and dL/dW / ||dL/dW||, by differences to the selected token, whose weights reach e^-11000."""
    data, wide, G = problem.data, np.longdouble, 0
    U = data.queries.astype(wide) @ W.astype(wide).T
    for q, (start, stop) in enumerate(zip(data.start, data.stop, strict=True)):
        X = data.keys[start:stop].astype(wide)
        g = problem.y[q] * (data.values[start:stop].astype(wide) @ problem.head.v.astype(wide))
        logits = X @ U[q]
        a = logits.argmax()
        s = np.exp(logits - logits[a])
        s /= s.sum()
        lift = s @ (g - g[a])
        slope = 1 / (1 + np.exp(g[a] + lift))
        p = (s * (g - g[a] - lift)) @ (X - X[a])
        G = G - slope * np.outer(p, data.queries[q]) / len(data.queries)
    norm = np.sqrt((G * G).sum())
    return float(np.log(norm)), (G / norm).astype(float)


def agrees(problem, W, tol):
    run = attsvm.train(problem, W, lr=LONG, steps=1)
    log_norm, direction = log_norm_and_direction(problem, W)
    assert_allclose(run.log_grad_norm[0], log_norm, rtol=tol, atol=tol)
    assert_allclose((W - run.W) / LONG, direction, rtol=0, atol=10 * tol)
    return log_norm


@pytest.mark.parametrize("M, T, d", [(256, 64, 16), (256, 16, 64), (300, 4, 6)])
@pytest.mark.parametrize("runs", [1, 2, 17, 20, 33, 63, 65, 100, 128])
def test_every_number_of_runs_divides_the_queries_well(runs, M, T, d, rng):
    """Blocks of queries begin where groups of eight windows and panels of sixteen columns do."""
    problem = draw(rng, [T] * M, d)
    W = rng.standard_normal((runs, d, d)) / d
    found = attsvm.train(problem, W, lr=LONG, steps=1, runs=runs)
    for r in {0, runs // 2, runs - 1}:
        log_norm, direction = log_norm_and_direction(problem, W[r])
        assert_allclose((W[r] - found.W[r]) / LONG, direction, rtol=0, atol=1e-13)
        assert_allclose(found.log_grad_norm[r, 0], log_norm, rtol=1e-13)


LENGTHS = np.random.default_rng(0).permutation(900)
SHAPES = [{}, dict(dtype=np.float32), dict(lengths=1 + LENGTHS[:300] % 33, d=31), dict(lengths=1 + LENGTHS % 3, d=12)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_is_the_formula(shape, rng):
    problem = draw(rng, **shape)
    d = problem.data.dk
    W = rng.standard_normal((3, d, d)) / d
    for one in W:
        agrees(problem, one, 1e-14)
    KQ = attsvm.train(problem, K=np.eye(d), Q=W[0].T.copy(), lr=LONG, steps=1)
    expected = log_norm_and_direction(problem, W[0])[1] @ W[0].T  # dL/dK = dL/dW Q
    assert_allclose((np.eye(d) - KQ.K) / LONG, expected / np.linalg.norm(expected), rtol=0, atol=1e-13)


@pytest.mark.parametrize("spread", [1e-3, 1e-6])
def test_tokens_that_are_close_keep_their_digits(spread, rng):
    problem = draw(rng, spread=spread)
    W = rng.standard_normal((5, 5))
    agrees(problem, W, 2e-14)


def test_tokens_that_are_close_beside_a_smaller_one_of_little_weight(rng):
    Z, W = rng.standard_normal((50, 5)), rng.standard_normal((5, 5))
    U = Z @ W.T
    X = np.array([20.0, 20.0, 8.0, 20.0])[:, None] * (U / (U * U).sum(1, keepdims=True))[:, None]
    X += 1e-6 * rng.standard_normal((50, 4, 5))  # the third has e^-12 of their weight
    data = attsvm.cross_attention(X, Z, rng.standard_normal((50, 4, 5)))
    problem = attsvm.Problem(data, head=attsvm.LinearHead(rng.standard_normal(5)))
    agrees(problem, W, 1e-13)


@pytest.mark.parametrize("place", [0, 2])
def test_a_large_token_without_weight_costs_the_others_no_digits(place, rng):
    Z, W = rng.standard_normal((50, 5)), rng.standard_normal((5, 5))
    X = rng.standard_normal((50, 3, 5))
    X[:, place] = -1e8 * Z @ W.T
    problem = attsvm.Problem(attsvm.cross_attention(X, Z), head=attsvm.LinearHead(rng.standard_normal(5)))
    agrees(problem, W, 1e-14)


@pytest.mark.parametrize("size", [100.0, 1000.0])
def test_weights_that_have_underflowed_keep_their_direction(size, rng):
    """Rivals lie on both sides of underflow; the nearest of all is e^-size, in steps of 2^-52 size."""
    problem = draw(rng, rng.integers(1, 8, 40), 30)
    W = size * attsvm.solve_svm(problem.data, problem.optimal).W
    assert agrees(problem, W, 1e-14 * size) < -0.9 * size
