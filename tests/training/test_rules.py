"""Rules of training, what belongs to each, and what none of them may lose."""

import math
import pickle
from types import SimpleNamespace

import attsvm
import numpy as np
import pytest
import reference
import reference_rules as twin
from builders import SIGNED, build_case, problem_of, starts
from compare import close
from marks import slow
from numpy.testing import assert_allclose, assert_array_equal, assert_equal

# ------------------------------------------------------------------------------------ rules against their twins


def test_polyak_ends_where_the_target_is_met(sphere):
    problem = sphere().problem
    target = problem.loss(np.zeros((10, 10))) - 1e-3
    run, at_once = (attsvm.train(problem, rule=RULES.polyak(target_loss=loss)) for loss in (target, 10.0))
    assert run.status == at_once.status == "target reached" and at_once.steps[-1] == 0 < run.steps[-1] < 100
    assert run.message == f"ended at step {run.steps[-1]}: the loss has come down to the target of the Polyak step"
    assert run.message in repr(run)


@pytest.mark.parametrize("trained", ["W", "KQ", "runs"])
@pytest.mark.parametrize("loss", SIGNED)
def test_polyak_goes_on_where_the_loss_is_its_infimum_to_the_last_bit(trained, loss, sphere):
    """The loss is constant in double precision from about step 70 on; the direction of W is within 1e-4 of its SVM
    after 2,000 steps all the same (6e-6 for the logistic loss), a hundredth of where it would stay."""
    problem, (K, Q) = sphere(loss=loss).problem, np.random.default_rng(0).standard_normal((2, 10, 10)) / 3
    start = {"W": {}, "KQ": dict(K=K, Q=Q), "runs": dict(runs=2)}[trained]
    run = attsvm.train(problem, **start, rule="polyak", lr=1e9, record=500)
    assert run.status == "completed" and (np.diff(run.norm, axis=-1) > 1).all()
    run = run[1] if trained == "runs" else run
    assert run.loss[-1] - problem.infimum() < 1e-14
    if trained != "KQ":  # factors go to another limit
        assert attsvm.correlation(run.W, attsvm.solve_svm(run.data, run.selected).W) > 1 - 1e-4


@pytest.mark.parametrize("trained", ["W", "KQ", "runs", "head"])
@pytest.mark.parametrize("rule", ["normalized", "momentum", "adam", "adagrad", "shampoo", "sign"])
def test_a_run_goes_on_as_if_it_had_never_ended(rule, trained, sphere):
    """With all that its rule keeps, and its count of steps, which the rate and Adam's means see."""
    if rule == "shampoo" and trained == "head":
        pytest.skip("its roots are those of matrices")
    case, (K, Q) = sphere(), np.random.default_rng(0).standard_normal((2, 10, 3))
    start = {"KQ": dict(K=K, Q=Q), "runs": dict(W=np.stack([K @ Q.T, Q @ K.T]))}.get(trained, {})
    way = dict(rule="normalized", momentum=0.9) if rule == "momentum" else dict(rule=rule)
    way |= dict(runs=2) if trained == "runs" else dict(train_head=trained == "head")
    way["lr"] = lambda k: 0.1 / (k + 1)
    whole = attsvm.train(case.problem, **start, **way, steps=60)
    half = attsvm.train(case.problem, **start, **way, steps=25)
    seen = half.W.copy()
    rest = attsvm.train(case.problem, W=half, **way, steps=35)
    assert_array_equal(rest.W, whole.W)
    assert_equal(rest.parameters, whole.parameters)
    assert_array_equal(half.W, seen)
    assert rest.steps.tolist() == [25, 60]
    with pytest.raises(ValueError, match="W is a run by .* a run goes on by its own rule"):
        attsvm.train(case.problem, W=half, **way | dict(rule="constant", momentum=0.5 * (rule != "momentum")))


@pytest.mark.parametrize("kind", ["cross", "causal_ragged", "cross_gemm"])
@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
@pytest.mark.parametrize("rule", ["normalized", "constant", "polyak"])
def test_each_projected_step_is_the_nearest_point(kind, norm, rule):
    case = build_case(kind)
    problem, weights = problem_of(case), starts(case, "W")
    for radius in (0.3, 1.0, 30.0):
        free = attsvm.train(problem, **weights, rule=rule, steps=1).W
        run = attsvm.train(problem, **weights, rule=rule, steps=1, ball=(norm, radius))
        assert_allclose(run.W, reference.projection_ball(free, norm, radius), rtol=0, atol=1e-12)
        weights = dict(W=run.W)


def test_factors_are_kept_in_the_ball_of_their_squares(sphere, rng):
    """||K||^2 + ||Q||^2 <= 2 radius, so ||K Q^T||_* <= radius."""
    problem, (K, Q) = sphere().problem, rng.standard_normal((2, 10, 4))
    free = attsvm.train(problem, K=K, Q=Q, steps=1)
    shrink = math.sqrt(4.0 / ((free.K**2).sum() + (free.Q**2).sum()))
    run = attsvm.train(problem, K=K, Q=Q, steps=1, ball=("nuclear", 2.0))
    assert_allclose([run.K, run.Q], [shrink * free.K, shrink * free.Q], rtol=1e-13)


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


@pytest.mark.parametrize("n, T, d", [slow(300, 6, 20), (140, 6, 20), (40, 33, 17), (3, 150, 9)])
@pytest.mark.parametrize("causal", [False, True])
def test_30_steps_follow_the_twin(n, T, d, causal, rng):
    """Several blocks of queries, all tails of the vector loops, the rows that go through products."""
    n, T = (max(1, n // 50), min(T, 40)) if causal else (n, T)
    X, v = rng.standard_normal((n, T, d)) / math.sqrt(d), rng.standard_normal(d)
    data = attsvm.causal_attention(X) if causal else attsvm.cross_attention(X, rng.standard_normal((n, d)))
    y, W = data._layout.shape_queries(rng.choice([-1.0, 1.0], len(data))), 0.1 * rng.standard_normal((d, d))
    case = SimpleNamespace(data=data, y=y, v=v)
    run, path = attsvm.train(problem_of(case), W, lr=0.1, steps=30, record=0), twin.train(case, (W,), 30)
    close(run.W, path[-1][0])


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
    assert_allclose(gradient.W, G * np.exp(scale - gradient.log_scale), rtol=0, atol=1e-10)


# ------------------------------------------------------------------------------------ steps without a gradient


RULES = attsvm.rules


@pytest.mark.parametrize("rule", ["sign", "adagrad", "adam", RULES.adam(betas=(0.0, 0.0))], ids=str)
def test_a_step_leaves_entries_without_gradient(rule):
    """Zeros in the query: a column of the gradient is exactly zero."""
    data = attsvm.cross_attention(np.random.default_rng(0).standard_normal((3, 4, 5)), [[1.0, 0.0, -2.0]] * 3)
    W = np.random.default_rng(1).standard_normal((5, 3))
    run = attsvm.train(attsvm.Problem(data, None, attsvm.LinearHead(np.ones(5))), W, rule=rule, steps=7, lr=0.25)
    assert_array_equal(run.W[:, 1], W[:, 1])
    assert (run.W != W)[:, [0, 2]].all()


def test_a_spectral_step_has_the_rank_of_the_gradient():
    """One query: the gradient has rank one, and so has the step, whatever rounding leaves of the other directions."""
    rng = np.random.default_rng(2)
    data = attsvm.cross_attention(rng.standard_normal((1, 6, 7)), rng.standard_normal((1, 5)))
    run = attsvm.train(attsvm.Problem(data, None, attsvm.LinearHead(np.ones(7))), rule="spectral", steps=1, lr=1.0)
    assert_allclose(np.linalg.svd(run.W, compute_uv=False), [1, 0, 0, 0, 0], atol=1e-15)


# ------------------------------------------------------------------------------------ metrics


@pytest.mark.parametrize("rule", [word for word, rule in RULES.BY_WORD.items() if rule.squares])
def test_a_metric_is_what_turns_the_gradient_into_the_step(rule, sphere):
    """The next step is -D / metric, or -P^-1 D R^-1; frozen, it goes to the SVM of that metric."""
    problem = sphere().problem
    run, further = (attsvm.train(problem, rule=rule, steps=steps, record=0) for steps in (400, 401))
    D, P = problem.loss_and_grad(run.W)[1] if run.mean is None else run.mean, run.metric
    step = -np.linalg.solve(P[0], D) @ np.linalg.inv(P[1]) if isinstance(P, tuple) else -D / P
    assert attsvm.correlation(further.W - run.W, step) > 0.999
    assert attsvm.correlation(run.direction, step) > 1 - 1e-9
    frozen = attsvm.train(problem, run.W, rule=RULES.normalized(metric=P), steps=3000, lr=0.3, record=0)
    answer = attsvm.solve_svm(problem.data, frozen, metric=P, warm_start=frozen)
    assert attsvm.correlation(frozen.W, answer.W) > 0.995
    low, high = frozen.margins()
    assert 0.95 * answer.margin < low[-1] <= answer.margin_bound and answer.margin <= high[-1] < 1.05 * answer.margin


@pytest.mark.parametrize("metric", ["D", "PR"])
@pytest.mark.parametrize("rule, momentum", [("normalized", 0.0), ("constant", 0.0), ("normalized", 0.5)])
@pytest.mark.parametrize("kind", ["cross", "causal_ragged", "cross_float32"])
def test_steps_in_a_metric_are_the_twins(kind, rule, momentum, metric):
    case = build_case(kind)
    start, sizes = starts(case, "W"), (case.data.dk, case.data.dz)
    sides = tuple(np.diag(case.rng.uniform(0.5, 2, d)) + 0.1 for d in sizes)
    chosen = getattr(RULES, rule)(metric=case.rng.uniform(0.5, 2, sizes) if metric == "D" else sides)
    options = dict(rule=chosen, momentum=momentum, lr=0.1)
    run = attsvm.train(problem_of(case), **start, **options, steps=6, record=1)
    found = [w for (w,) in twin.train(case, tuple(start.values()), 6, **options)]
    assert_allclose(run.weights, found, rtol=0, atol=1e-10)


# ------------------------------------------------------------------------------------ records of rules


def test_a_record_is_its_word_and_frozen(sphere):
    problem = sphere().problem
    for word, record in RULES.BY_WORD.items():
        one, other = (attsvm.train(problem, rule=rule, steps=3) for rule in (word, record))
        assert one == other and one.rule == word
        assert pickle.loads(pickle.dumps(record)) == record
    with pytest.raises(AttributeError):
        record.eps = 1.0
