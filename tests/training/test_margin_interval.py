"""The gradient in the logits as multipliers of the attention SVM, and the interval of the largest margin it proves."""

import math
import re

import attsvm
import judge
import numpy as np
import pytest
from builders import BUILDERS, SIGNED, build_case, paper, problem_of
from numpy.testing import assert_allclose
from problems import Case

NORMS = ["frobenius", "nuclear", "max", "spectral", 1.1, 1.5, 3.0]
TWIN = 1e-12  # relative to the largest entry: sums of some hundred terms

HEADS = {
    "linear": lambda rng, case: attsvm.LinearHead(case.v),
    "quadratic": lambda rng, case: attsvm.QuadraticHead(case.v, lam=0.4),
    "mlp": lambda rng, case: attsvm.MLPHead(rng.standard_normal((case.data.values.shape[1], 5))),
    "callable": lambda rng, case: attsvm.CallableHead(lambda o: (np.sin(o).sum(axis=1), np.cos(o))),
}


def test_multipliers_are_zero_at_any_reference():
    """Of several selected tokens at the first of them; as they are, not clipped."""
    case = build_case("cross_gemm")
    W, tokens = case.rng.standard_normal((case.data.dk, case.data.dz)) / 10, np.arange(13)
    delta, log_scale = problem_of(case).multipliers(W)
    kept = case.rng.random((40, 13)) < 0.3
    kept[:, 5] = True
    top, first = case.data.select(W)[:, None] == tokens, kept.argmax(axis=1)[:, None] == tokens
    full = np.where(top, -delta.sum(axis=1, keepdims=True), delta)  # those of a query sum to zero
    for selected in (kept, kept.argmax(axis=1)):
        found, scale = problem_of(case).multipliers(W, selected)
        assert scale == log_scale and (found < 0).any()
        assert_allclose(found, np.where(first, 0.0, full), rtol=0, atol=1e-14)


# ------------------------------------------------------------------------------------ the interval


def draw_interval(rng):
    """A draw of data, selection, norm, and weights on the way: the interval and the certified answer."""
    name, norm = str(rng.choice(list(BUILDERS))), NORMS[rng.integers(len(NORMS))]
    case = build_case(name, seed=int(rng.integers(1 << 30)))
    head = HEADS[str(rng.choice(list(HEADS)))](rng, case)
    problem = attsvm.Problem(case.data, case.y, head, str(rng.choice(SIGNED)))
    W = attsvm.train(problem, lr=0.2, steps=int(rng.choice([3, 30, 300])), record=0).W
    selected = case.data.select(W)
    W = W + (rng.random() < 0.2) * rng.standard_normal(W.shape) * np.linalg.norm(W) / 10
    sol = attsvm.solve_svm(case.data, selected, norm)
    if sol.W is not None and rng.random() < 0.2:
        W = sol.W  # both ends as near as they can be
    return problem, W, selected, norm, sol


def assert_true(problem, W, selected, norm, sol):
    low, high = problem.margin_interval(W, selected, norm)
    assert 0 <= low <= sol.margin_bound and sol.margin <= high, (norm, low, high, sol)
    assert low == 0 or sol.status != "infeasible"
    return low, high


@pytest.mark.filterwarnings("ignore::attsvm.svm.solve.ConvergenceWarning")
def test_no_interval_is_false():
    rng = np.random.default_rng(11)
    for _ in range(200):
        drawn = draw_interval(rng)
        (low, high), (problem, W, selected, norm, _) = assert_true(*drawn), drawn
        twin = judge.interval(Case(problem.data, selected), W, problem.multipliers(W, selected)[0], norm)
        assert low <= twin[0] and twin[1] <= high  # outwards, and by rounding alone
        assert_allclose((low, high), twin, rtol=1e-9, atol=1e-13)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::attsvm.svm.solve.ConvergenceWarning")
def test_no_interval_of_ten_thousand_is_false():
    rng = np.random.default_rng(12)
    for _ in range(10_000):
        assert_true(*draw_interval(rng))


def test_an_interval_of_sets_needs_equal_logits():
    case = build_case("cross_gemm")
    problem = attsvm.Problem(case.data, case.y, attsvm.QuadraticHead(case.v, 0.5))
    kept = np.isin(np.arange(13), [2, 7]) & np.ones((40, 1), dtype=bool)
    sol = attsvm.solve_svm(case.data, kept)
    low, high = problem.margin_interval(sol.W, kept)
    assert 0.999 * sol.margin < low <= sol.margin_bound and high >= sol.margin
    twin = judge.interval(Case(case.data, kept), sol.W, problem.multipliers(sol.W, kept)[0], "frobenius")
    assert_allclose((low, high), twin, rtol=1e-9)
    bent = sol.W + 1e-6 * np.linalg.norm(sol.W) * case.rng.standard_normal(sol.W.shape)
    assert problem.margin_interval(bent, kept)[0] == problem.margin_interval(0 * bent, kept)[0] == 0


def test_intervals_of_degenerate_questions():
    X, Z, y, v = attsvm.sample.unit_sphere(4, 5, 6)
    X[1, 3] = X[1, 2]  # a copy of what is selected: infeasible

    def of(X):
        return attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))

    W = attsvm.solve_svm(attsvm.cross_attention(np.delete(X, 3, axis=1), Z), [0, 0, 2, 1]).W
    assert of(X).margin_interval(W, [0, 2, 2, 1])[0] == 0
    worst = np.argmin(of(X[:, :2]).scores, axis=1)  # the other token scores more: no multiplier is positive
    assert of(X[:, :2]).margin_interval(np.zeros((6, 6)), worst) == (0.0, math.inf)
    assert of(X[:, :1]).margin_interval(W) == (math.inf, math.inf)  # nothing is asked, as solve_svm says
    with pytest.raises(ValueError, match="selected must be token indices"):
        of(X).margin_interval(W, [0, 9, 0, 0])
    with pytest.raises(ValueError, match="metric goes with norm='frobenius'"):
        of(X).margin_interval(W, norm="max", metric=np.ones((6, 6)))


@pytest.mark.parametrize("power", [-230, 230])
def test_an_interval_has_the_scale_of_the_data(power):
    s = paper()
    W = attsvm.train(s.problem, steps=300, record=0).W
    scaled = attsvm.Problem(attsvm.cross_attention(np.ldexp(s.X, power), s.Z, values=s.X), s.y, s.problem.head)
    found = scaled.margin_interval(np.ldexp(W, -power), norm="nuclear")
    assert_allclose(np.ldexp(found, -power), s.problem.margin_interval(W, norm="nuclear"), rtol=1e-10)


def root(P, power=0.5):
    values, vectors = np.linalg.eigh(P)
    return vectors * values**power @ vectors.T


def test_a_metric_is_the_plain_norm_of_other_tokens():
    rng = np.random.default_rng(5)
    X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 5, rng=rng)
    P, R = (A @ A.T / 5 for A in rng.standard_normal((2, 5, 10)))

    def of(X, Z, values):
        return attsvm.Problem(attsvm.cross_attention(X, Z, values), y, attsvm.LinearHead(v))

    problem = of(X, Z, X)
    W = attsvm.train(problem, steps=500, record=0).W
    whitened = of(X @ root(P, -0.5), Z @ root(R, -0.5), X)
    expected = whitened.margin_interval(root(P) @ W @ root(R))
    assert_allclose(problem.margin_interval(W, metric=(P, R)), expected, rtol=1e-9)
    d, e = rng.uniform(0.1, 3, (2, 5))
    by_sides = problem.margin_interval(W, metric=(np.diag(d), np.diag(e)))
    assert_allclose(problem.margin_interval(W, metric=np.outer(d, e)), by_sides)
    for wrong, message in (
        (-np.ones((5, 5)), "metric must be positive everywhere"),
        ((P, P - 9 * np.eye(5)), r"metric\[1\] must be positive definite"),
        ((np.triu(P), R), r"metric\[0\] must be symmetric"),
        ((P,), "must be an array D"),
    ):
        with pytest.raises(ValueError, match=message):
            problem.margin_interval(W, metric=wrong)


# ------------------------------------------------------------------------------------ runs


RULES = {
    "normalized": ({}, "frobenius"),
    "constant": ({"lr": 3.0}, "frobenius"),
    "sign": ({"lr": 0.01}, "max"),
    "spectral": ({"lr": 0.03}, "spectral"),
    "mirror": ({"rule": attsvm.rules.mirror(p=3.0)}, 3.0),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_run_encloses_the_margin_of_its_rule(rule):
    problem, (kwargs, norm) = paper().problem, RULES[rule]
    run = attsvm.train(problem, **{"rule": rule} | kwargs, steps=1500)
    low, high = run.margins()
    sol = attsvm.solve_svm(problem.data, run.selected, norm)
    assert (low <= sol.margin_bound).all() and (high >= sol.margin).all()
    assert low[-1] > 0.6 * sol.margin and high[-1] < 1.2 * sol.margin
    printed = re.search(r"(\S+) \.\. (\S+) \(proved\)", repr(run))
    assert float(printed[1]) <= low[-1] and high[-1] <= float(printed[2]) < 1.01 * high[-1]
    assert printed[0] in run._repr_html_()


@pytest.mark.parametrize(
    "kwargs",
    [{"rule": rule} for rule in ("normalized", "sign", "spectral", "adam", "adagrad", "shampoo")]
    + [{"rule": attsvm.rules.mirror(p=3.0)}, {"momentum": 0.9}, {"rule": "sign", "momentum": 0.5}],
    ids=str,
)
def test_the_direction_of_a_run_is_where_a_long_step_goes(kwargs):
    """Of a rule that remembers, whose mean then holds one gradient more, nearly."""
    problem, lr = paper().problem, np.r_[np.full(20, 0.01), 1e7]
    here, there = (attsvm.train(problem, steps=steps, lr=lr[:steps], **kwargs) for steps in (20, 21))
    remembers = here.mean is not None or attsvm.rules.as_rule(here.rule).squares
    assert attsvm.correlation(here.direction, there.W) > (0.9 if remembers else 1 - 1e-6)
    assert np.linalg.norm(here.direction) == pytest.approx(1)


def test_the_direction_of_factors_is_that_of_their_product():
    problem, K = paper().problem, np.eye(10) / 3
    run = attsvm.train(problem, K=K, Q=K, steps=50)
    _, dK, dQ = problem.loss_and_grad(K=run.K, Q=run.Q)
    expected = -(dK / np.linalg.norm(dK) @ run.Q.T + run.K @ dQ.T / np.linalg.norm(dQ))
    assert attsvm.correlation(run.direction, expected) > 1 - 1e-12


def test_a_run_warms_the_solver():
    problem = paper().problem
    run = attsvm.train(problem, steps=3000, record=0)
    cold = attsvm.solve_svm(problem.data, run.selected, method="active")
    warm = attsvm.solve_svm(problem.data, run.selected, method="active", warm_start=run)
    assert warm.iterations < cold.iterations and warm.margin == pytest.approx(cold.margin, rel=1e-9)
    with pytest.raises(ValueError, match=r"take one, run\[r\]"):
        attsvm.solve_svm(problem.data, run.selected, warm_start=attsvm.train(problem, runs=2, steps=1))
