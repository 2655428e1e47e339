"""The gradient in the logits as multipliers of the attention SVM, and the interval of the largest margin it proves."""

from __future__ import annotations

import io
import math
import re

import attsvm
import numpy as np
import pytest
import reference
from builders import BUILDERS, build_case, problem_of

NORMS = ["frobenius", "nuclear", "max", "spectral", 1.1, 1.5, 3.0]
TWIN = 1e-12  # relative to the largest entry: sums of some hundred terms

HEADS = {
    "linear": lambda rng, case: attsvm.LinearHead(case.v),
    "quadratic": lambda rng, case: attsvm.QuadraticHead(case.v, lam=0.4),
    "mlp": lambda rng, case: attsvm.MLPHead(rng.standard_normal((case.data.values.shape[1], 5))),
    "callable": lambda rng, case: attsvm.CallableHead(lambda o: (np.sin(o).sum(axis=1), np.cos(o))),
}


def by_rows(data, rows, shaped):
    entries = reference.per_entry(data, shaped)
    return np.array([float(entries[q][t]) for q, t, *_ in rows])


def assert_is_the_gradient(problem, W, selected=None):
    """-dL/dW = exp(log_scale) sum delta (x_ref - x_t) z^T, to rounding."""
    data, shape = problem.data, W.shape
    delta, log_scale = problem.multipliers(W, selected)
    _, gradient = problem.loss_and_grad(W, scaled=True)
    rows = reference.svm_rows(data, data.select(W) if selected is None else selected)
    pull = reference.svm_adjoint(rows, by_rows(data, rows, delta), shape)
    if gradient.log_scale == -math.inf:
        assert log_scale == -math.inf and not pull.any()
        return 0.0
    error = np.abs(pull + math.exp(gradient.log_scale - log_scale) * gradient.W).max() / np.abs(pull).max()
    return float(error)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", BUILDERS)
def test_multipliers_make_the_gradient(name, head):
    worst = 0.0
    for seed, loss in enumerate(("logistic", "exponential", "linear", "logistic")):
        case = build_case(name, seed=seed)
        problem = attsvm.Problem(case.data, case.y, HEADS[head](case.rng, case), loss)
        W = case.rng.standard_normal((case.data.dk, case.data.dz)) * (30.0 if seed == 3 else 1.0)
        worst = max(worst, assert_is_the_gradient(problem, W))
    assert worst < 1e-11


@pytest.mark.parametrize("loss", ["logistic", "exponential", "linear", "log"])
def test_multipliers_are_the_twin_s(loss):
    for name in ("cross", "cross_several_queries", "causal_ragged", "cross_gemm", "cross_float32", "self_all"):
        case = build_case(name, positive=loss == "log")
        data, y = case.data, case.y
        problem = attsvm.Problem(data, y, attsvm.LinearHead(case.v), loss)
        W = case.rng.standard_normal((data.dk, data.dz))
        delta, log_scale = problem.multipliers(W)
        parts = zip(reference.logits(data, W), reference.scores(data, y, case.v), strict=True)
        for row, (logit, g) in zip(reference.per_entry(data, delta), parts, strict=True):
            c, scale = reference.softmax_pull_back(logit, g)
            mean = np.exp(reference.log_softmax(logit)) @ g
            _, slope = reference.loss_value(loss, mean, math.log(mean) if loss == "log" else 0.0)
            expected = np.zeros_like(c) if scale == -math.inf else -c * np.exp(scale + slope - log_scale) / len(data)
            expected[np.argmax(logit)] = 0.0
            np.testing.assert_allclose(row, expected, rtol=0, atol=TWIN)


@pytest.mark.parametrize("combine", ["sum", "concatenate"])
def test_multipliers_of_attention_heads(combine):
    rng = np.random.default_rng(3)
    X, Z, y, _ = attsvm.sample.unit_sphere(4, 6, 5, rng=rng)
    data = attsvm.cross_attention(X, Z)
    head = attsvm.QuadraticHead(rng.standard_normal(5 if combine == "sum" else 15), 0.2)
    problem = attsvm.Problem(data, y, head, heads=3, combine=combine)
    W = rng.standard_normal((3, 5, 5))
    delta, log_scale = problem.multipliers(W)
    _, gradient = problem.loss_and_grad(W, scaled=True)
    assert delta.shape == (3, 4, 6) and log_scale.shape == (3,)
    low, high = problem.margin_interval(W)
    for h in range(3):
        rows = reference.svm_rows(data, data.select(W[h]))
        lam = by_rows(data, rows, delta[h])
        pull = reference.svm_adjoint(rows, lam, (5, 5)) * math.exp(log_scale[h] - gradient.log_scale[h])
        np.testing.assert_allclose(pull, -gradient.W[h], atol=1e-12)
        ends = reference.certificate(data, data.select(W[h]), W[h], delta[h], "frobenius")
        np.testing.assert_allclose((low[h], high[h]), ends, rtol=1e-10)


def test_another_reference_and_several_selected_tokens():
    case = build_case("cross_gemm")
    problem = problem_of(case)
    W = case.rng.standard_normal((case.data.dk, case.data.dz)) / 10
    assert assert_is_the_gradient(problem, W, case.rng.integers(0, 13, 40)) < 1e-11
    kept = case.rng.random((40, 13)) < 0.3
    kept[:, 5] = True
    assert assert_is_the_gradient(problem, W, kept) < 1e-11
    delta, _ = problem.multipliers(W, kept)
    np.testing.assert_array_equal(delta[np.arange(40), kept.argmax(axis=1)], 0)
    assert (delta < 0).any()  # as they are, not clipped


@pytest.mark.parametrize("heads", [None, 2])
def test_multipliers_of_runs_are_those_of_each(rng, heads):
    """Of a linear head, and through two attention heads."""
    X, Z = rng.standard_normal((5, 4, 3)), rng.standard_normal((5, 2))
    data = attsvm.cross_attention(X, Z)
    problem = attsvm.Problem(data, [1, -1, 1, 1, -1], attsvm.LinearHead([1.0, 2.0, -1.0]), heads=heads)
    W = rng.standard_normal((3 * (heads or 1), 3, 2))
    together = problem._logit_gradients(W, None, None)
    alone = [problem._logit_gradients(part, None, None) for part in np.split(W, 3)]
    for found, expected in zip(together, map(np.concatenate, zip(*alone, strict=True)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_multipliers_outlive_double_precision():
    X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    sol = attsvm.solve_svm(problem.data, problem.optimal)
    delta, log_scale = problem.multipliers(1e4 * sol.W)
    assert log_scale < -5000 and 0.1 < np.abs(delta).max() <= 1
    assert assert_is_the_gradient(problem, 1e4 * sol.W) < 1e-11
    low, high = problem.margin_interval(1e4 * sol.W)
    assert low == pytest.approx(sol.margin, rel=1e-8) and high >= sol.margin


# ------------------------------------------------------------------------------------ the interval


def draw_interval(rng):
    """A draw of data, selection, norm, and weights on the way: the interval and the certified answer."""
    name, norm = str(rng.choice(list(BUILDERS))), NORMS[rng.integers(len(NORMS))]
    case = build_case(name, seed=int(rng.integers(1 << 30)))
    head = HEADS[str(rng.choice(list(HEADS)))](rng, case)
    problem = attsvm.Problem(case.data, case.y, head, str(rng.choice(["logistic", "exponential", "linear"])))
    W = attsvm.train(problem, lr=0.2, steps=int(rng.choice([3, 30, 300])), record=0).W
    selected = case.data.select(W)
    if rng.random() < 0.2:
        W = W + rng.standard_normal(W.shape) * np.linalg.norm(W) / 10
    sol = attsvm.solve_svm(case.data, selected, norm)
    if sol.W is not None and rng.random() < 0.2:
        W = sol.W  # both ends as near as they can be
    return problem, W, selected, norm, sol


def assert_true(problem, W, selected, norm, sol):
    low, high = problem.margin_interval(W, selected, norm)
    assert type(low) is float and type(high) is float and 0 <= low and 0 <= high
    assert low <= sol.margin_bound and sol.margin <= high, (norm, low, high, sol)
    if sol.status == "infeasible":
        assert low == 0
    return low, high


@pytest.mark.filterwarnings("ignore::attsvm.svm.solve.ConvergenceWarning")
def test_no_interval_is_false():
    rng = np.random.default_rng(11)
    for _ in range(200):
        drawn = draw_interval(rng)
        low, high = assert_true(*drawn)
        problem, W, selected, norm, _ = drawn
        twin = reference.certificate(problem.data, selected, W, problem.multipliers(W, selected)[0], norm)
        assert low <= twin[0] and twin[1] <= high  # outwards, and by rounding alone
        np.testing.assert_allclose((low, high), twin, rtol=1e-9, atol=1e-13)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::attsvm.svm.solve.ConvergenceWarning")
def test_no_interval_of_ten_thousand_is_false():
    rng = np.random.default_rng(12)
    for _ in range(10_000):
        assert_true(*draw_interval(rng))


def test_an_interval_of_sets_needs_equal_logits():
    case = build_case("cross_gemm")
    data = case.data
    problem = attsvm.Problem(data, case.y, attsvm.QuadraticHead(case.v, 0.5))
    kept = np.zeros((40, 13), dtype=bool)
    kept[:, [2, 7]] = True
    sol = attsvm.solve_svm(data, kept)
    low, high = problem.margin_interval(sol.W, kept)
    assert 0.999 * sol.margin < low <= sol.margin_bound and high >= sol.margin
    twin = reference.certificate(data, kept, sol.W, problem.multipliers(sol.W, kept)[0], "frobenius")
    np.testing.assert_allclose((low, high), twin, rtol=1e-9)
    bent = sol.W + 1e-6 * np.linalg.norm(sol.W) * case.rng.standard_normal(sol.W.shape)
    assert problem.margin_interval(bent, kept)[0] == 0
    assert problem.margin_interval(np.zeros_like(bent), kept)[0] == 0


def test_intervals_of_degenerate_questions():
    X, Z, y, v = attsvm.sample.unit_sphere(4, 5, 6)
    X[1, 3] = X[1, 2]  # a copy of what is selected: infeasible
    data = attsvm.cross_attention(X, Z)
    problem = attsvm.Problem(data, y, attsvm.LinearHead(v))
    W = attsvm.solve_svm(attsvm.cross_attention(np.delete(X, 3, axis=1), Z), [0, 0, 2, 1]).W
    selected = data.select(W)
    low, high = problem.margin_interval(W, [0, 2, 2, 1])
    assert low == 0 and high >= 0
    pairs = attsvm.Problem(attsvm.cross_attention(X[:, :2], Z), y, attsvm.LinearHead(v))
    worst = np.argmin(pairs.scores, axis=1)  # the other token scores more: no multiplier is positive
    assert pairs.margin_interval(np.zeros((6, 6)), worst) == (0.0, math.inf)
    single = attsvm.Problem(attsvm.cross_attention(X[:, :1], Z), y, attsvm.LinearHead(v))
    assert single.margin_interval(W) == (math.inf, math.inf)  # nothing is asked, as solve_svm says
    assert attsvm.solve_svm(single.data, [0] * 4).margin == math.inf
    assert problem.margin_interval(W, selected)[0] >= 0
    with pytest.raises(ValueError, match="selected must be token indices"):
        problem.margin_interval(W, [0, 9, 0, 0])
    with pytest.raises(ValueError, match="metric goes with norm='frobenius'"):
        problem.margin_interval(W, norm="max", metric=np.ones((6, 6)))


@pytest.mark.parametrize("power", [-230, 230])
def test_an_interval_has_the_scale_of_the_data(power):
    X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    plain = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    W = attsvm.train(plain, steps=300, record=0).W
    scaled = attsvm.Problem(attsvm.cross_attention(np.ldexp(X, power), Z, values=X), y, attsvm.LinearHead(v))
    found = scaled.margin_interval(np.ldexp(W, -power), norm="nuclear")
    np.testing.assert_allclose(np.ldexp(found, -power), plain.margin_interval(W, norm="nuclear"), rtol=1e-10)


def positive_definite(rng, d):
    A = rng.standard_normal((d, 2 * d))
    return A @ A.T / d


def root(P, power=0.5):
    values, vectors = np.linalg.eigh(P)
    return vectors * values**power @ vectors.T


def test_a_metric_is_the_plain_norm_of_other_tokens():
    rng = np.random.default_rng(5)
    X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 5, rng=rng)
    P, R = positive_definite(rng, 5), positive_definite(rng, 5)
    problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    whitened = attsvm.cross_attention(X @ root(P, -0.5), Z @ root(R, -0.5), values=X)
    other = attsvm.Problem(whitened, y, attsvm.LinearHead(v))
    W = attsvm.train(problem, steps=500, record=0).W
    expected = other.margin_interval(root(P) @ W @ root(R))
    np.testing.assert_allclose(problem.margin_interval(W, metric=(P, R)), expected, rtol=1e-9)
    d, e = rng.uniform(0.1, 3, 5), rng.uniform(0.1, 3, 5)
    np.testing.assert_allclose(
        problem.margin_interval(W, metric=np.outer(d, e)), problem.margin_interval(W, metric=(np.diag(d), np.diag(e)))
    )
    for wrong, message in (
        (-np.ones((5, 5)), "metric must be positive everywhere"),
        ((P, P - 9 * np.eye(5)), r"metric\[1\] must be positive definite"),
        ((np.triu(P), R), r"metric\[0\] must be symmetric"),
        ((P,), "must be an array D"),
    ):
        with pytest.raises(ValueError, match=message):
            problem.margin_interval(W, metric=wrong)


# ------------------------------------------------------------------------------------ runs


def small(**kwargs):
    X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    return attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v), **kwargs)


RULES = {
    "normalized": ({}, "frobenius"),
    "constant": ({"lr": 3.0}, "frobenius"),
    "sign": ({"lr": 0.01}, "max"),
    "spectral": ({"lr": 0.03}, "spectral"),
    "mirror": ({"rule": attsvm.rules.mirror(p=3.0)}, 3.0),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_run_encloses_the_margin_of_its_rule(rule):
    problem, (kwargs, norm) = small(), RULES[rule]
    run = attsvm.train(problem, **{"rule": rule} | kwargs, steps=1500)
    low, high = run.margins()
    sol = attsvm.solve_svm(problem.data, run.selected, norm)
    assert low.shape == high.shape == run.steps.shape
    assert (low <= sol.margin_bound).all() and (high >= sol.margin).all()
    assert low[-1] > 0.6 * sol.margin and high[-1] < 1.2 * sol.margin
    printed = re.search(r"margin +(\S+) \.\. (\S+) \(proved\)", repr(run))
    assert float(printed[1]) <= low[-1] and high[-1] <= float(printed[2]) < 1.01 * high[-1]
    assert f"{printed[1]} .. {printed[2]} (proved)" in run._repr_html_()


def test_the_direction_of_a_run():
    problem = small()
    run = attsvm.train(problem, steps=500)
    gradient = problem.loss_and_grad(run.W, scaled=True)[1].W
    np.testing.assert_allclose(run.direction, -gradient / np.linalg.norm(gradient), atol=1e-12)
    for kwargs in (
        {"rule": "sign"},
        {"rule": "spectral"},
        {"rule": attsvm.rules.mirror(p=3.0)},
        {"momentum": 0.9},
        {"rule": attsvm.rules.adam(betas=(0.9, 0.99))},
        {"rule": "adagrad"},
        {"rule": "shampoo"},
        {"rule": "sign", "momentum": 0.5},
    ):
        # A long step from where 20 steps end goes there, whatever the rule keeps of the past.
        lr = np.r_[np.full(20, 0.01), 1e7]
        here = attsvm.train(problem, steps=20, lr=0.01, **kwargs)
        there = attsvm.train(problem, steps=21, lr=lr, **kwargs)
        if not kwargs.get("momentum") and here.rule not in ("adam", "adagrad", "shampoo"):
            assert attsvm.correlation(here.direction, there.W) > 1 - 1e-6, kwargs
        else:  # the mean then holds one gradient more
            assert attsvm.correlation(here.direction, there.W) > 0.9, kwargs
    K = np.eye(10) / 3
    factors = attsvm.train(problem, K=K, Q=K, steps=50)
    _, dK, dQ = problem.loss_and_grad(K=factors.K, Q=factors.Q)
    expected = -(dK / np.linalg.norm(dK) @ factors.Q.T + factors.K @ dQ.T / np.linalg.norm(dQ))
    assert attsvm.correlation(factors.direction, expected) > 1 - 1e-12
    assert attsvm.train(problem, K=np.stack([K, K]), Q=np.stack([K, K]), runs=2, steps=5).direction.shape == (2, 10, 10)


def test_a_run_warms_the_solver():
    problem = small()
    run = attsvm.train(problem, steps=3000, record=0)
    cold = attsvm.solve_svm(problem.data, run.selected, method="active")
    warm = attsvm.solve_svm(problem.data, run.selected, method="active", warm_start=run)
    assert warm.iterations < cold.iterations and warm.margin == pytest.approx(cold.margin, rel=1e-9)
    with pytest.raises(ValueError, match=r"take one, run\[r\]"):
        attsvm.solve_svm(problem.data, run.selected, warm_start=attsvm.train(problem, runs=2, steps=1))


def test_a_run_is_saved_with_its_problem_but_not_with_a_function():
    file = io.BytesIO()
    run = attsvm.train(small(), rule="shampoo", steps=5)
    run.save(file)
    file.seek(0)
    back = attsvm.load(file)
    assert back == run and back.problem.loss(run.W) == run.loss[-1]
    np.testing.assert_array_equal(back.margins(), run.margins())
    in_metric = attsvm.rules.normalized
    for rule in (in_metric(np.ones((10, 10))), in_metric((np.eye(10), np.eye(10))), "adagrad"):
        several, again = attsvm.train(small(), runs=2, steps=5, rule=rule), io.BytesIO()
        several.save(again)
        again.seek(0)
        assert attsvm.load(again) == several and np.shape(several[1].margins()) == np.shape(run.margins())
    data = run.data
    called = attsvm.Problem(data, None, attsvm.CallableHead(lambda o: (o.sum(axis=1), np.ones_like(o))))
    with pytest.raises(TypeError, match="CallableHead cannot be saved: a file holds numbers, no functions"):
        attsvm.train(called, steps=1).save(io.BytesIO())
