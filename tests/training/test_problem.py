"""Scores, loss and gradient: against the NumPy twins, central differences, and sixty decimal digits."""

import copy
import math
import pickle
import tracemalloc

import attsvm
import numpy as np
import pytest
import reference
from attsvm import _core
from compare import close
from numpy.testing import assert_allclose, assert_array_equal

LOSSES = list(_core.LOSS)
HEADS = ["shared", "per query"]
# One BLAS product or sum of a few hundred terms: relative to the largest entry, some hundred roundings.
TWIN = 1e-12


@pytest.mark.parametrize("length", [1, 31, 32, 40])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("head", HEADS)
def test_scores_of_values_of_any_length_and_precision(length, dtype, head, rng):
    """Short values are read eight at a time, long ones alone; every query sees every token of its sequence.  Equal
    values have equal scores, to the last bit, wherever they stand."""
    X, values = rng.standard_normal((3, 9, 2)), rng.standard_normal((3, 9, length)).astype(dtype)
    values[:, 8] = values[:, 0]
    v = rng.standard_normal(length if head == "shared" else (3, 9, length))
    y = rng.choice([-1.0, 1.0], (3, 9))
    data = attsvm.self_attention(X, None, values)
    scores = attsvm.Problem(data, y, attsvm.LinearHead(v)).scores
    each = np.broadcast_to(v, (3, 9, length))
    close(scores, y[..., None] * np.einsum("nsd,ntd->nst", each, values.astype(float)))
    assert_array_equal(scores[..., 8], scores[..., 0])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("of", [np.ndarray, np.memmap])  # which takes the road of what is no plain array
def test_data_and_problem_make_nothing_as_large_as_the_tokens(of, dtype):
    """Of a view or a memory map neither a copy, nor an array of bools, nor the tokens in another precision: scores are
    1/64 or 1/32 of them."""
    X, Z, y, head = (
        np.ones((256, 16, 64), dtype).view(of),
        np.ones((256, 2)),
        np.ones(256),
        attsvm.LinearHead(np.ones(64)),
    )

    def make(n):
        attsvm.Problem(attsvm.cross_attention(X[:n], Z[:n], copy=False), y[:n], head)

    make(2)
    tracemalloc.start()
    try:
        make(256)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < X.nbytes / 10, peak / X.nbytes


# ------------------------------------------------------------------------------------ peers


@pytest.mark.peer
def test_torch_tensors_are_array_likes(sphere):
    torch = pytest.importorskip("torch")
    s = sphere()
    X, Z, y, v = map(torch.tensor, (s.X, s.Z, s.y, s.v))
    problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    assert problem.loss(torch.zeros(10, 10)) == s.problem.loss(np.zeros((10, 10)))


# ------------------------------------------------------------------------------------ extreme numerics


def exact_case(size, loss, seed):
    """Tokens, queries and weights that are small dyadic numbers times a power of two: logits are exact in double
    precision at any size of W, so that only the gradient's own rounding is seen."""
    rng = np.random.default_rng(seed)
    X, Z = rng.integers(-8, 9, (4, 5, 4)) / 8, rng.integers(-8, 9, (4, 4)) / 8
    W = rng.integers(-8, 9, (4, 4)) * 2.0 ** round(math.log2(size / 16 / math.sqrt(5)))
    positive = loss == "log"
    v = rng.standard_normal((4, 4))
    data = attsvm.cross_attention(X, Z, rng.uniform(0.1, 1, (4, 5, 4)) if positive else None)
    return data, None if positive else rng.choice([-1.0, 1.0], 4), np.abs(v) if positive else v, W


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e3, 1e6], ids="{:g}".format)
def test_scaled_gradient_has_every_digit_at_any_size_of_W(size, seed, loss):
    """And of factors, one of them the identity."""
    data, y, v, W = exact_case(size, loss, seed)
    problem, one = attsvm.Problem(data, y, attsvm.LinearHead(v), loss), np.eye(4)
    exact_value, exact = reference.decimal_gradient(data, y, v, loss, W)
    for weights, name in ((dict(W=W), "W"), (dict(K=W, Q=one), "K"), (dict(K=one, Q=W.T), "Q")):
        value, gradient = problem.loss_and_grad(**weights, scaled=True)
        assert value == pytest.approx(float(exact_value), rel=TWIN)
        assert name != "W" or np.abs(gradient.W).max() == 1
        # A log scale of size L is itself rounded to eps * L, which is a relative error of the gradient.
        found, tol = getattr(gradient, name), TWIN + 4e-16 * abs(gradient.log_scale)
        assert reference.decimal_ratio(found.T if name == "Q" else found, gradient.log_scale, exact) < tol


@pytest.mark.parametrize("kind", ["one_token", "zero_query", "copies_of_one_token", "equal_scores"])
@pytest.mark.parametrize("size", [1.0, 1e4, 1e6], ids="{:g}".format)
@pytest.mark.parametrize("heads", [None, 1])  # by the linear evaluator and by the general one
def test_queries_that_add_nothing_do_not_drown_the_others(kind, size, heads, rng):
    """Their gradient is exactly zero and so has no scale; the others' may be e^-100000."""
    X, Z = [*rng.integers(-8, 9, (3, 5, 4)) / 8], rng.integers(-8, 9, (3, 4)) / 8
    W = rng.integers(-8, 9, (4, 4)) * 2.0 ** round(math.log2(size / 20))
    values, head = [*X], attsvm.LinearHead(rng.standard_normal(4))
    if kind == "one_token":
        X[1] = values[1] = X[1][:1]
    elif kind == "zero_query":
        Z[1] = 0
    elif kind == "copies_of_one_token":
        X[1] = 0 * X[1] + X[1][0]
    else:
        values[1] = 0 * X[1] + X[1][0]
    mine, theirs = (
        attsvm.Problem(attsvm.cross_attention(X[at], Z[at], values[at]), head=head, heads=heads).loss_and_grad(
            W if heads is None else W[None], scaled=True
        )[1]
        for at in (slice(None), slice(None, None, 2))
    )
    assert_allclose(mine.W, theirs.W, rtol=0, atol=1e-13)
    # A mean over three queries instead of two.
    assert mine.log_scale == pytest.approx(theirs.log_scale + math.log(2 / 3), rel=1e-14, abs=1e-14)


def test_a_common_part_of_all_tokens_costs_no_digits(rng):
    """Softmax does not see a vector added to every token of a window; the gradient must not either."""
    X, Z, v = rng.integers(-8, 9, (3, 5, 4)) / 8, rng.standard_normal((3, 4)), rng.standard_normal(4)
    W = np.zeros((4, 4))
    plain = attsvm.Problem(attsvm.cross_attention(X, Z, X), head=attsvm.LinearHead(v))
    moved = attsvm.Problem(attsvm.cross_attention(X + 2.0**30, Z, X), head=attsvm.LinearHead(v))
    close(moved.loss_and_grad(W)[1], plain.loss_and_grad(W)[1], 1e-14)


@pytest.mark.parametrize("head", ["linear", "of two attention heads", "trained", "mlp"])
def test_scales_at_which_the_gradient_underflows_are_named(head, sphere):
    """Scores of 1e-200 times tokens of 1e-200: not a gradient of zero, and no stationary point."""
    s = sphere()
    data = attsvm.cross_attention(s.X * 1e-200, s.Z)
    kind = attsvm.MLPHead(np.ones((10, 3))) if head == "mlp" else attsvm.LinearHead(s.v)
    problem = attsvm.Problem(data, s.y, kind, heads=2 if head == "of two attention heads" else None)
    W = np.zeros((2, 10, 10) if problem.heads else (10, 10))
    calls = [
        lambda: attsvm.train(problem, W, steps=3, train_head=head == "trained"),
        lambda: problem.loss_and_grad(W, scaled=True),
        lambda: attsvm.regularization_path(problem, [1.0]),
    ]
    for call in calls if head == "linear" else calls[:2]:
        with pytest.raises(ValueError, match="1e-305, got about 1e-200, 1e-200 and 1e0: rescale X, Z or the head"):
            call()
    zero = attsvm.Problem(data, s.y, attsvm.LinearHead(np.zeros(10)))  # whose gradient is zero
    assert attsvm.train(zero, steps=3).status == "stationary"


def test_logits_out_of_range_raise(sphere):
    s = sphere()
    problem = attsvm.Problem(attsvm.cross_attention(s.X * 1e200, s.Z, s.X), s.y, attsvm.LinearHead(s.v))
    with pytest.raises(FloatingPointError, match="gradient"):
        problem.loss_and_grad(np.full((10, 10), 1e200))


# ------------------------------------------------------------------------------------ inputs


def test_a_problem_can_be_pickled_and_copied(sphere):
    """The capsule that C reads is made anew."""
    s, W = sphere(), np.random.default_rng(0).standard_normal((2, 10, 10))
    for problem, at in [
        (attsvm.Problem(s.data, s.y, attsvm.LinearHead(s.v), "exponential"), W[0]),
        (attsvm.Problem(s.data, s.y, attsvm.MLPHead(np.ones((20, 3))), heads=2, combine="concatenate"), W),
    ]:
        for other in (pickle.loads(pickle.dumps(problem)), copy.copy(problem)):
            assert repr(other) == repr(problem) and other.loss(at) == problem.loss(at)


@pytest.mark.parametrize("T", [4, 200], ids=["side by side", "one by one"])
def test_blocks_of_queries_add_up(T, rng):
    """C takes 128 at once, each block on the scale of its largest slope: here near e^-30, e^-10 and 1."""
    X, Z, v = rng.standard_normal((300, T, 6)), rng.standard_normal((300, 5)), 0.1 * rng.standard_normal((300, 6))
    X[:, :, 0], v[:, 0] = 1.0, np.repeat([30.0, 10.0, 0.0], 100)
    problem = attsvm.Problem(attsvm.cross_attention(X, Z), None, attsvm.LinearHead(v))
    W = 0.3 * rng.standard_normal((6, 5))
    parts = [problem[k : k + 100].loss_and_grad(W)[1] for k in (0, 100, 200)]
    whole = problem.loss_and_grad(W)[1]
    close(np.mean(parts, axis=0), whole)
