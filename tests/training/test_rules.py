"""Rules of training beyond the plain ones, runs side by side, a trained head, threads, keys that stay elsewhere."""

import math
from types import SimpleNamespace

import attsvm
import numpy as np
import pytest
import reference
import reference_rules as twin
from builders import build_case, problem_of, starts


def reached(run, trained):
    return [run.W] if trained == "W" else [run.K, run.Q]


def close(found, expected, rtol=1e-12):
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=rtol * np.abs(theirs).max())


# ------------------------------------------------------------------------------------ rules against their twins


def test_polyak_ends_where_the_target_is_met(sphere):
    s = sphere()
    run = attsvm.train(s.problem, rule=attsvm.rules.polyak(target_loss=s.problem.loss(np.zeros((10, 10))) - 1e-3))
    assert run.status == "target reached" and 0 < run.steps[-1] < 100
    assert run.message == f"ended at step {run.steps[-1]}: the loss has come down to the target of the Polyak step"
    assert run.message in repr(run)
    assert attsvm.train(s.problem, rule=attsvm.rules.polyak(target_loss=10.0)).status == "target reached"


@pytest.mark.parametrize("trained", ["W", "KQ", "runs"])
@pytest.mark.parametrize("loss", ["logistic", "exponential", "linear"])
def test_polyak_goes_on_where_the_loss_is_its_infimum_to_the_last_bit(trained, loss, sphere):
    """The loss is constant in double precision from about step 70 on; the direction of W is within 1e-4 of its SVM
    after 2,000 steps all the same (6e-6 for the logistic loss), a hundredth of where it would stay."""
    s = sphere(loss=loss)
    start = dict(zip("KQ", np.random.default_rng(0).standard_normal((2, 10, 10)) / 3, strict=True))
    start = start if trained == "KQ" else {"W": np.zeros((10, 10))}
    if trained == "runs":
        start = {"W": np.zeros((2, 10, 10)), "runs": 2}
    run = attsvm.train(s.problem, **start, rule="polyak", lr=1e9, record=500)
    assert run.status == "completed" and (np.diff(run.norm, axis=-1) > 1).all()
    run = run[1] if trained == "runs" else run
    assert run.loss[-1] - s.problem.infimum() < 1e-14
    if trained != "KQ":  # factors go to another limit
        assert attsvm.correlation(run.W, attsvm.solve_svm(run.data, run.selected).W) > 1 - 1e-4


@pytest.mark.parametrize("kind", ["cross", "causal_ragged", "cross_gemm"])
@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
@pytest.mark.parametrize("rule", ["normalized", "constant", "polyak"])
def test_each_projected_step_is_the_nearest_point(kind, norm, rule):
    case = build_case(kind)
    problem, weights = problem_of(case), starts(case, "W")
    for radius in (0.3, 1.0, 30.0):
        free = attsvm.train(problem, **weights, rule=rule, steps=1).W
        run = attsvm.train(problem, **weights, rule=rule, steps=1, ball=(norm, radius))
        np.testing.assert_allclose(run.W, reference.projection_ball(free, norm, radius), rtol=0, atol=1e-12)
        weights = dict(W=run.W)


def test_factors_are_kept_in_the_ball_of_their_squares(sphere, rng):
    """||K||^2 + ||Q||^2 <= 2 radius, so ||K Q^T||_* <= radius."""
    s = sphere()
    K, Q = rng.standard_normal((2, 10, 4))
    run = attsvm.train(s.problem, K=K, Q=Q, steps=50, ball=("nuclear", 2.0))
    assert (run.K**2).sum() + (run.Q**2).sum() == pytest.approx(4.0, rel=1e-12)
    assert np.linalg.norm(run.W, "nuc") <= 2.0 + 1e-12
    free = attsvm.train(s.problem, K=K, Q=Q, steps=1)
    shrink = math.sqrt(4.0 / ((free.K**2).sum() + (free.Q**2).sum()))
    np.testing.assert_allclose(
        attsvm.train(s.problem, K=K, Q=Q, steps=1, ball=("nuclear", 2.0)).K, shrink * free.K, rtol=1e-13
    )


# ------------------------------------------------------------------------------------ runs side by side


def test_a_stationary_run_waits_for_the_others(sphere, rng):
    s = sphere()
    K, Q = rng.standard_normal((2, 2, 10, 3))
    K[0] = Q[0] = 0
    run = attsvm.train(s.problem, K=K, Q=Q, runs=2, steps=10)
    assert run.status == "completed" and not run.W[0].any() and run.W[1].any()
    assert attsvm.train(s.problem, K=0 * K, Q=0 * Q, runs=2, steps=10).status == "stationary"
    assert "2 runs of 10 steps on K, Q (m=3): completed" in repr(run)


# ------------------------------------------------------------------------------------ sizes, scales, threads


@pytest.mark.parametrize(
    "n, T, d", [pytest.param(300, 6, 20, marks=pytest.mark.slow), (140, 6, 20), (40, 33, 17), (3, 150, 9)]
)
@pytest.mark.parametrize("kind", ["cross", "causal"])
def test_30_steps_follow_the_twin(n, T, d, kind, rng):
    """Several blocks of queries, all tails of the vector loops, the rows that go through products."""
    if kind == "causal":
        n, T = max(1, n // 50), min(T, 40)
    X, v = rng.standard_normal((n, T, d)) / math.sqrt(d), rng.standard_normal(d)
    data = attsvm.causal_attention(X) if kind == "causal" else attsvm.cross_attention(X, rng.standard_normal((n, d)))
    y = data._layout.shape_queries(rng.choice([-1.0, 1.0], len(data)))
    W = 0.1 * rng.standard_normal((d, d))
    run = attsvm.train(attsvm.Problem(data, y, attsvm.LinearHead(v)), W, lr=0.1, steps=30, record=0)
    close([run.W], twin.train(SimpleNamespace(data=data, y=y, v=v), (W,), 30)[-1])


def in_products(X, rng, loss):
    """Eight queries of each sequence of tokens X (n, T, d), too long to go side by side; values have one number."""
    data = attsvm.cross_attention(X, rng.standard_normal((len(X), 8, 5)), rng.standard_normal((*X.shape[:2], 1)))
    return data, attsvm.Problem(data, head=attsvm.LinearHead([1.0]), loss=loss)


@pytest.mark.parametrize("apart", [1e-5, 1e-9])
def test_tokens_all_but_equal_keep_their_digits_in_a_product(apart, rng):
    """P as a product would cancel to 1e-16 / apart, by differences it does not."""
    X = rng.standard_normal((3, 1, 26)) + apart * rng.standard_normal((3, 40, 26))
    (data, problem), W = in_products(X, rng, "linear"), rng.standard_normal((26, 5))
    _, gradient = problem.loss_and_grad(W, scaled=True)
    _, exact = reference.decimal_gradient(data, None, [1.0], "linear", W)
    assert reference.decimal_ratio(gradient.W, gradient.log_scale, exact) < 1e-12


def test_copies_of_one_token_add_nothing_in_a_product(rng):
    """Their gradient is exactly zero, whatever the values, and must not drown what others add at e^-thousands."""
    X = rng.standard_normal((6, 40, 26))
    X[::2] = X[::2, :1]
    (data, problem), W = in_products(X, rng, "logistic"), 1e4 * rng.standard_normal((26, 5))
    _, gradient = problem.loss_and_grad(W, scaled=True)
    _, G, scale = reference.loss_and_grad(data, None, [1.0], "logistic", W)
    # A log scale of some thousands is itself rounded to 1e-12.
    np.testing.assert_allclose(gradient.W, G * np.exp(scale - gradient.log_scale), rtol=0, atol=1e-10)


# ------------------------------------------------------------------------------------ keys that stay where they are


def test_single_precision_keys_cost_their_rounding_alone(rng):
    """The run is that of the rounded tokens; against the unrounded ones it is off by some 6e-8 a step."""
    X, Z, v = rng.standard_normal((50, 9, 11)) / 3, rng.standard_normal((50, 11)) / 3, rng.standard_normal(11)
    y, runs = rng.choice([-1, 1], 50), {}
    for name, keys in (
        ("single", X.astype(np.float32)),
        ("rounded", X.astype(np.float32).astype(float)),
        ("double", X),
    ):
        # The values stay in double precision: this is about the keys.
        problem = attsvm.Problem(attsvm.cross_attention(keys, Z, X), y, attsvm.LinearHead(v))
        assert problem.data.keys.dtype == keys.dtype
        runs[name] = attsvm.train(problem, steps=50).W
    size = np.abs(runs["double"]).max()
    # Loops over float and double are compiled apart: a product may be rounded before it is added in one of them.
    assert np.abs(runs["single"] - runs["rounded"]).max() < 50 * 1e-14 * size
    assert 1e-9 * size < np.abs(runs["single"] - runs["double"]).max() < 50 * 6e-8 * size


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_keys_in_a_memory_map(dtype, tmp_path, rng):
    X, Z, v = (rng.standard_normal((200, 7, 10)).astype(dtype), rng.standard_normal((200, 10)), rng.standard_normal(10))
    np.save(tmp_path / "tokens.npy", X)
    mapped = np.load(tmp_path / "tokens.npy", mmap_mode="r")
    data = attsvm.cross_attention(mapped, Z)
    assert np.shares_memory(data.keys, mapped)
    problems = [attsvm.Problem(d, head=attsvm.LinearHead(v)) for d in (data, attsvm.cross_attention(X, Z))]
    np.testing.assert_array_equal(*(attsvm.train(p, steps=20).W for p in problems))
