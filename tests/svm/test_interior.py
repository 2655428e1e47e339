"""The Frobenius interior point: tight problems, every answer proved from the raw tokens."""

from __future__ import annotations

import warnings

import attsvm
import numpy as np
import pytest
import reference
from attsvm import _core
from problems import CASES, Case, ball, nearly_twins, planted_margin, random_problem, several_kept, sphere

EPS = np.finfo(float).eps


def tight(seed, n, T, d, tokens, selection):
    """Many more rows than dimensions; with "weights" and "kept" feasible by construction or nearly so."""
    rng = np.random.default_rng([seed, n, T, d])
    X, Z = sphere(rng, n, T, d), sphere(rng, n, d)
    if tokens == "spread":
        X, Z = X * np.exp(rng.standard_normal((n, T, 1))), Z * np.exp(rng.standard_normal((n, 1)))
    elif tokens == "correlated":
        turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
        X, Z = (rng.standard_normal(x.shape) / np.arange(1, d + 1) @ turn for x in (X, Z))
    data = attsvm.cross_attention(X, Z)
    if selection == "random":
        return Case(data, rng.integers(0, T, n))
    if selection == "optimal":
        return Case(data, (X @ sphere(rng, d)).argmax(axis=1))
    chosen = data.select(rng.standard_normal((d, d)))
    if selection == "weights":
        return Case(data, chosen, "optimal")
    kept = np.arange(T) == chosen[:, None]
    kept[rng.permutation(n)[: n // 6], rng.integers(0, T, n // 6)] = True  # equal logits asked of a sixth of them
    return Case(data, kept)


def interior(case, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", attsvm.ConvergenceWarning)
        return attsvm.solve_svm(case.data, case.selected, method="interior", **options)


def prove(case, sol):
    """Optimal and infeasible answers from the raw tokens; anything else must at least hold within its bounds."""
    rows = reference.svm_rows(case.data, case.selected)
    if sol.status == "infeasible":
        assert reference.farkas(case.data, case.selected, sol.certificate) <= 1e-9
    elif sol.status != "no constraint":
        lower, upper = reference.certificate(case.data, case.selected, sol.W, sol.dual, "frobenius")
        rho = max(np.linalg.norm(delta) * np.linalg.norm(z) for _, _, delta, z, _ in rows)
        noise = 100 * EPS * rho / sol.margin if sol.margin > 0 else 0.0
        assert sol.margin == pytest.approx(lower, rel=1e-12 + noise / 5)
        assert sol.margin_bound == pytest.approx(upper, rel=1e-9)
        assert lower <= upper * (1 + max(1e-9, noise) / 5)
        if sol.status == "optimal":
            assert 0 < upper <= lower * (1 + 1.2 * max(1e-9, noise))
            # W = A^*(dual), each found to sqrt(2 gap) of the least W at worst (the objective is strongly convex).
            multipliers = reference.svm_multipliers(case.data, rows, sol.dual)
            combined = reference.svm_adjoint(rows, multipliers, sol.W.shape)
            assert np.linalg.norm(combined - sol.W) <= 3 * np.sqrt(max(1e-9, noise)) * np.linalg.norm(sol.W)
    return sol.status


SHAPES = [(12, 8, 5), (40, 8, 10), (50, 8, 10), (30, 20, 8), (24, 30, 12), (60, 3, 5)]
TOKENS = ["uniform", "spread", "correlated"]
SELECTIONS = ["random", "optimal", "weights", "kept"]


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tight_problems_are_settled(shape, tokens, selection):
    case = tight(0, *shape, tokens, selection)
    sol = interior(case)
    assert prove(case, sol) in ("optimal", "infeasible")
    assert case.status in (None, sol.status)
    assert sol.iterations <= 40  # 9 to 30 are usual: the start is near the central path whatever the margin


def test_ends_exactly_and_soon():
    """With a clear support the last step solves for it: the gap is rounding.  Mehrotra's steps are few."""
    sols = [interior(tight(seed, 40, 8, 10, "uniform", "optimal")) for seed in range(10)]
    assert max(sol.gap for sol in sols) <= 1e-12
    assert sum(sol.iterations for sol in sols) <= 100  # 88 measured


def test_implied_equalities_get_no_multiplier():
    """Four tokens on a line: one of the three equalities of a query implies the others, at any iteration."""
    case = several_kept(redundant=True)
    for most in (1, 2, 200):
        sol = interior(case, max_iter=most)
        assert (((np.abs(sol.dual) > 1e-50) & case.selected).sum(axis=1) <= 1).all()


def test_agrees_with_the_active_set():
    for seed in range(10):
        case = tight(seed, 40, 8, 10, TOKENS[seed % 3], SELECTIONS[seed % 4])
        exact, sol = attsvm.solve_svm(case.data, case.selected, method="active"), interior(case)
        assert sol.status == exact.status
        if sol.status == "optimal":
            assert sol.margin == pytest.approx(exact.margin, rel=2e-9)
            assert np.linalg.norm(sol.W - exact.W) <= 1e-4 * np.linalg.norm(exact.W)  # sqrt of the gap, doubled


@pytest.mark.parametrize("feasible", [True, False])
@pytest.mark.parametrize("margin", [1e-1, 1e-2, 1e-3, 1e-4, 1e-5])
def test_thin_margins(margin, feasible):
    """Every row is active, far more than dimensions: no support can be guessed, the iteration has to do it."""
    for seed in range(4):
        case = planted_margin([seed, 1], 12, 8, 4, margin, feasible)
        sol = interior(case)
        assert prove(case, sol) == case.status
        assert sol.margin == pytest.approx(case.margin or 0.0, rel=2e-9 + 1e-14 / margin)


def test_thinner_still():
    """A margin of 3e-8: the combination of the rows is off by eps / margin^2, so W is corrected by itself."""
    assert prove(random_problem(1140), interior(random_problem(1140))) == "optimal"


def test_nearly_singular_systems():
    """A common mean and a spectrum i^-3: Cholesky fails on the first system and needs a larger proximal term."""
    rng = np.random.default_rng([100, 16, 24, 0])
    turn, scale = np.linalg.qr(rng.standard_normal((24, 24)))[0], np.arange(1, 25.0) ** -3
    mean = rng.standard_normal(24)
    X = (rng.standard_normal((100, 16, 24)) * scale) @ turn + mean
    data = attsvm.cross_attention(X, (rng.standard_normal((100, 24)) * scale) @ turn + 0.3 * mean)
    kept = np.arange(16) == data.select(rng.standard_normal((24, 24)))[:, None]
    kept[rng.permutation(100)[:33], rng.integers(0, 16, 33)] = True
    assert prove(Case(data, kept), interior(Case(data, kept))) == "optimal"


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_problem(name):
    case = CASES[name]()
    status = prove(case, interior(case))
    assert status == case.status or case.status is None and status in ("optimal", "infeasible")


def test_random_small_problems():
    """Both systems (more rows than dimensions, and fewer), copies, ties, equalities, margins down to 1e-7."""
    statuses = [prove(case, interior(case)) for case in map(random_problem, range(300))]
    assert statuses.count("undecided") + statuses.count("iteration limit") <= 2
    assert min(statuses.count(word) for word in ("optimal", "infeasible", "no constraint")) >= 20


def test_stopped_early_the_bounds_hold():
    case = ball(1, 40, 8, 10)
    margin = interior(case).margin
    for most in (1, 3, 6, 8):
        sol = interior(case, max_iter=most)
        assert sol.iterations == most and sol.status in ("iteration limit", "undecided")
        assert 0 <= sol.margin <= margin * (1 + 1e-9) <= sol.margin_bound * (1 + 2e-9)
        prove(case, sol)


def test_units_of_the_tokens_do_not_matter():
    case = tight(3, 30, 8, 6, "spread", "optimal")
    X, Z = case.data.keys.reshape(30, 8, 6), case.data.queries
    sol = interior(case)
    for keys, queries in [(2.0**20, 1.0), (2.0**-30, 2.0**-10)]:
        scaled = interior(Case(attsvm.cross_attention(X * keys, Z * queries), case.selected))
        assert (scaled.status, scaled.iterations) == (sol.status, sol.iterations)
        assert scaled.margin == pytest.approx(sol.margin * keys * queries, rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_any_right_hand_side(seed):
    """Rows >= b and = b with b of both signs, met with slack by the weights they are made from."""
    rng = np.random.default_rng(seed)
    n, T, d = 20, 6, 4 + 4 * (seed % 2)
    data = attsvm.cross_attention(sphere(rng, n, T, d), sphere(rng, n, d))
    logits = data.logits(rng.standard_normal((d, d)))
    margins = logits.max(axis=1, keepdims=True) - logits
    kept = margins == 0
    if seed >= 2:
        kept[rng.permutation(n)[:3], 5] = True
    first = kept.argmax(axis=1).astype(np.intp)
    margins = logits[np.arange(n), first][:, None] - logits
    slack = np.abs(rng.standard_normal((n, T))) * (rng.random((n, T)) < 0.7)
    rhs = np.where(kept, margins, margins - slack)
    arguments = (data.handle, first, kept.ravel(), np.ascontiguousarray(rhs).ravel(), 1e-9, 200, 0.0, 2.0)
    arguments += (0, None, None, None)
    status, W, dual, lower, upper, *_ = _core.frobenius_interior(*arguments)
    logits = data.logits(W)
    left = logits[np.arange(n), first][:, None] - logits
    assert status == 0 and upper <= lower * (1 + 1e-9)
    assert (left - rhs)[~kept].min() >= -1e-9 and np.abs((left - rhs)[kept]).max() <= 1e-9
    assert 0.5 * np.linalg.norm(W) ** 2 == pytest.approx(0.5 / upper**2, rel=1e-8)
    assert np.vdot(dual, rhs) == pytest.approx(np.linalg.norm(W) ** 2, rel=1e-8)


def test_equality_rows_alone():
    """One linear system with as many rows as there are dimensions: nearly singular now and then."""
    for seed in range(300):
        rng = np.random.default_rng(seed)
        n, T, d = 4, 5, 4
        data = attsvm.cross_attention(sphere(rng, n, T, d), sphere(rng, n, d))
        logits = data.logits(rng.standard_normal((d, d)))
        rhs = (logits[:, :1] - logits).ravel()
        first, kept = np.zeros(n, dtype=np.intp), np.ones(n * T, dtype=bool)
        status, W, *_ = _core.frobenius_interior(
            data.handle, first, kept, rhs, 1e-9, 200, 0.0, 2.0, 0, None, None, None
        )
        assert status == 0 and np.abs(data.logits(W) - data.logits(W)[:, :1] + rhs.reshape(n, T)).max() <= 1e-11


def test_auto_takes_it_for_tight_problems():
    cases = [((64, 16, 12), "interior"), ((60, 16, 20), "block"), ((32, 16, 16), "active"), ((40, 8, 8), "active")]
    for shape, method in cases:
        case = ball(0, *shape)
        assert attsvm.solve_svm(case.data, case.selected).method == method


def test_auto_goes_on_where_it_fails():
    """Its multipliers of all 21000 rows do not make the active set too expensive: 121 rows at most hold W."""
    case = nearly_twins(1, 420, 51, 11)
    stuck = interior(case)
    assert stuck.status == "iteration limit" and np.count_nonzero(stuck.dual) == 21000
    sol = attsvm.solve_svm(case.data, case.selected)
    assert (sol.status, sol.method) == ("optimal", "active")
    lower, upper = reference.certificate(case.data, case.selected, sol.W, sol.dual, "frobenius")
    assert upper / lower - 1 <= 2e-6  # 100 eps times the longest row over the margin, certificate.h


@pytest.mark.slow
@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("tokens", TOKENS)
def test_a_thousand_tight_problems(tokens, selection):
    counts = {(12, 8, 5): 30, (40, 8, 10): 30, (50, 8, 10): 20, (32, 32, 16): 6, (64, 32, 16): 6}
    counts |= {(200, 16, 32): 1, (400, 16, 32): 1}
    for shape, count in counts.items():
        for seed in range(100, 100 + count):
            case = tight(seed, *shape, tokens, selection)
            assert prove(case, interior(case)) in ("optimal", "infeasible"), (shape, seed)


@pytest.mark.slow
def test_thousands_of_small_problems():
    statuses = [prove(case, interior(case)) for case in map(random_problem, range(300, 4300))]
    assert statuses.count("undecided") + statuses.count("iteration limit") <= 20  # 0.5 %
