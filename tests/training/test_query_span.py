"""Training in the span of the queries, W + C^T Z, beside the twin and beside steps on W itself."""

import importlib
import math

import attsvm
import numpy as np
import pytest
from attsvm.training.gradient import span_of
from compare import close
from numpy.testing import assert_allclose, assert_array_equal

train_module = importlib.import_module("attsvm.training.train")


def draw(rng, n=24, T=45, d=24, ragged=False, dtype=float):
    """Tokens of length one, more or less: a step of 0.1 must not throw a run about."""
    Z = rng.standard_normal((n, d)) / math.sqrt(d)
    X = [(rng.standard_normal((1 + t % T if ragged else T, d)) / math.sqrt(d)).astype(dtype) for t in range(n)]
    data = attsvm.cross_attention(X if ragged else np.stack(X), Z)
    return attsvm.Problem(data, rng.choice([-1.0, 1.0], n), attsvm.LinearHead(rng.standard_normal(d)))


def uses_span(problem, W):
    return span_of(problem, W.reshape(-1, *W.shape[-2:])) is not None


def on_W(monkeypatch, *args, **options):
    with monkeypatch.context() as patch:
        patch.setattr(train_module, "span_of", lambda *_: None)
        return attsvm.train(*args, **options)


def same_run(run, other, tol=1e-12):
    """Weights relative to their size; losses and logarithms of gradient norms."""
    close(run.weights, other.weights, tol)
    assert_array_equal(run.W, run.weights[-1] if run.problem.heads else run.weights[..., -1, :, :])
    assert_allclose(run.loss, other.loss, rtol=tol)
    assert_allclose(run.log_grad_norm, other.log_grad_norm, rtol=0, atol=100 * tol)


HEADS = {
    "linear": {},
    "four attention heads": dict(heads=4),
    "mlp": dict(head=attsvm.MLPHead(np.linspace(-1, 1, 24 * 8).reshape(24, 8), np.linspace(-2, 1, 8))),
    "trained": {},
}


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("n", [1, 24])
@pytest.mark.parametrize("rule", ["normalized jointly", "constant"])
def test_any_head_makes_the_run_on_W(rule, n, name, rng, monkeypatch):
    linear = draw(rng, n=n)
    problem = attsvm.Problem(linear.data, linear.y, **dict(head=linear.head) | HEADS[name])
    options = dict(rule=rule, steps=60, record=13, train_head=name == "trained")
    W = 0.1 * rng.standard_normal((*([4] if problem.heads else []), 24, 24))
    assert uses_span(problem, W)
    run, other = attsvm.train(problem, W, **options), on_W(monkeypatch, problem, W, **options)
    same_run(run, other)
    if name == "trained":
        close(run.head_records, other.head_records)


@pytest.mark.parametrize("rule", ["normalized", "normalized jointly", "constant", "polyak"])
@pytest.mark.parametrize("runs", [None, 3])
@pytest.mark.parametrize("shape", ["even", "ragged", "float32", "wide", "several queries"])
def test_it_is_the_run_on_W(shape, runs, rule, rng, monkeypatch):
    size = {"wide": dict(n=20, T=3, d=300), "ragged": dict(n=40, T=36, d=30)}.get(shape, {})
    problem = draw(rng, **size, ragged=shape == "ragged", dtype=np.float32 if shape == "float32" else float)
    if shape == "several queries":  # of each sequence, one of them zero
        Z = rng.standard_normal((4, 6, 24)) / 5
        Z[1, 2] = 0
        data = attsvm.cross_attention(problem.data.keys.reshape(4, -1, 24)[:, :45], Z)
        problem = attsvm.Problem(data, head=problem.head)
    d = problem.data.dk
    W = 0.1 * rng.standard_normal((d, d) if runs is None else (runs, d, d))
    assert uses_span(problem, W)
    options = dict(rule=rule, steps=60, record=13, runs=runs)
    same_run(attsvm.train(problem, W, **options), on_W(monkeypatch, problem, W, **options))


def test_gradients_that_have_underflowed_keep_their_direction(rng, monkeypatch):
    problem = draw(rng)
    W = 3000 * attsvm.solve_svm(problem.data, problem.optimal).W  # margins of 3000: the gradient is of size e^-3000
    run, other = attsvm.train(problem, W, lr=10.0, steps=30), on_W(monkeypatch, problem, W, lr=10.0, steps=30)
    assert run.log_grad_norm[0] < -2000
    assert_allclose(run.log_grad_norm, other.log_grad_norm, rtol=1e-12)
    # Logits of size 3000 round to 1e-12 of a softmax weight, in each of 30 steps of length 10 that build on each other.
    assert_allclose(run.W, other.W, rtol=0, atol=3e-8)


@pytest.mark.parametrize("apart", [1e-4, 1e-6])
def test_queries_that_cancel_keep_the_digits_of_the_norm(apart, rng, monkeypatch):
    """Pairs of almost equal queries with opposite labels: <P, Z Z^T P> alone would lose them, as the square of `apart`.
    The gradient itself has 1e-16 / apart."""
    X, Z = (np.repeat(rng.standard_normal((12, *shape)), 2, axis=0) for shape in ((44, 24), (24,)))
    Z[1::2] += apart * rng.standard_normal((12, 24))
    data, W = attsvm.cross_attention(X, Z), np.zeros((24, 24))
    problem = attsvm.Problem(data, [1.0, -1.0] * 12, attsvm.LinearHead(rng.standard_normal(24)), "linear")
    assert uses_span(problem, W)
    run, other = attsvm.train(problem, W, steps=1), on_W(monkeypatch, problem, W, steps=1)
    assert_allclose(run.log_grad_norm[0], other.log_grad_norm[0], rtol=0, atol=1e-14 / apart)
    close(run.W, other.W, 1e-14 / apart)


@pytest.mark.parametrize("unit", [1e-300, 1e-170, 1e-157, 1e-150, 1e-60, 1e-49, 1e49, 1e60, 1e160])
@pytest.mark.parametrize("what", ["tokens", "queries"])
@pytest.mark.parametrize("size", [{}, dict(n=6, T=8, d=10)], ids=["span", "W"])
def test_any_unit_trains_alike(size, what, unit, rng):
    """Where the products of queries leave the range of double precision, W moves instead; squares of gradients leave it
    long before the gradients do."""
    problem = draw(rng, **size)
    tokens, queries = (unit, 1.0) if what == "tokens" else (1.0, unit)
    X = problem.data.keys.reshape(len(problem.data), -1, problem.data.dk)
    data = attsvm.cross_attention(X * tokens, problem.data.queries * queries, X)
    scaled = attsvm.Problem(data, problem.y, problem.head)
    plain, run = attsvm.train(problem, steps=20), attsvm.train(scaled, steps=20, lr=0.1 / unit)
    close(run.W * unit, plain.W)
    assert_allclose(run.norm * unit, plain.norm, rtol=1e-12)
    assert_allclose(run.log_grad_norm - math.log(unit), plain.log_grad_norm, rtol=0, atol=1e-10)


@pytest.mark.parametrize("record", [0, 1, 7])
def test_a_run_in_chunks_is_the_same_run(record, rng, monkeypatch):
    problem, options = draw(rng), dict(W=rng.standard_normal((24, 24)), steps=200, record=record)
    whole = attsvm.train(problem, **options)
    monkeypatch.setattr(train_module, "BAR_PARTS", 9)
    assert attsvm.train(problem, **options, progress=True) == whole
    assert_array_equal(whole.W, whole.weights[-1])


def test_overflow_raises_with_the_weights_it_reached(rng):
    problem = draw(rng)
    data = attsvm.cross_attention(1e10 * problem.data.keys.reshape(24, 45, 24), problem.data.queries)
    problem = attsvm.Problem(data, problem.y, problem.head)
    with pytest.raises(FloatingPointError, match="at step 1") as caught:
        attsvm.train(problem, lr=1e300, steps=50, record=0)
    partial = caught.value.partial
    assert partial.status == "overflow" and list(partial.steps) == [0]
    assert_allclose(partial.W / 1e300, attsvm.train(problem, lr=1.0, steps=1).W, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [{}, dict(ridge=1e-3), dict(rule=attsvm.rules.mirror(p=3.0)), dict(ball=1.0), dict(reduce=lambda a: None)],
)
def test_other_steps_go_by_W(options, rng, monkeypatch):
    used = []
    monkeypatch.setattr(train_module, "span_of", lambda *_: used.append(1))
    attsvm.train(draw(rng), steps=1, **options)
    assert bool(used) == (not options)


def test_small_problems_and_many_queries_go_by_W(rng):
    assert not uses_span(draw(rng, n=40), np.zeros((24, 24)))
    assert not uses_span(draw(rng, n=6, T=8, d=10), np.zeros((10, 10)))
