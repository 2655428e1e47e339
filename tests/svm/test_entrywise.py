"""Entrywise lp norms: every answer is judged from the raw tokens, with norms that cannot underflow."""

import functools
import math
import warnings

import attsvm
import numpy as np
import pytest
import reference
from attsvm import _core
from problems import CASES, Case, ball, correlated, planted_margin, random_problem, several_kept, sphere, spread_norms

EPS = np.finfo(float).eps
TOL = 1e-9  # the gap solve_svm promises unless told otherwise
EXPONENTS = [1.1, 1.3, 1.5, 1.75, 3.0, 5.0, 10.0, 20.0]


def lp_norm(W, p):
    """(sum |W|^p)^(1/p) in long double, from the entries over the largest: no power underflows."""
    size = np.abs(np.asarray(W, dtype=np.longdouble))
    top = size.max()
    return top * ((size / top) ** p).sum() ** (1 / np.longdouble(p)) if top > 0 else np.longdouble(0)


def dual_exponent(p):
    return np.longdouble(p) / (np.longdouble(p) - 1)


def solve(case, p, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", attsvm.ConvergenceWarning)
        return attsvm.solve_svm(case.data, case.selected, p, **options)


@functools.cache
def solved(name, p):
    case = CASES[name]()
    return case, solve(case, p), reference.svm_rows(case.data, case.selected)


def certificate(case, rows, W, dual, p):
    """Lower and upper bound of the largest margin of a W of unit lp norm, from the tokens."""
    equal = np.array([row[-1] for row in rows])
    margins = reference.svm_apply(rows, W)
    multipliers = reference.svm_multipliers(case.data, rows, dual)
    M = reference.svm_adjoint(rows, multipliers, (case.data.dk, case.data.dz))
    lower = margins[~equal].min() / lp_norm(W, p)
    return float(lower), float(lp_norm(M, dual_exponent(p)) / multipliers[~equal].sum())


def longest(rows):
    return max(np.linalg.norm(delta) * np.linalg.norm(z) for _, _, delta, z, _ in rows)


def check_answer(case, sol, rows, p):
    """Valid bounds whatever the status; with "optimal" as close as promised, and the optimality conditions."""
    if sol.status == "infeasible":
        assert sol.W is None and sol.margin == 0 and sol.gap == math.inf
        assert reference.farkas(case.data, case.selected, sol.certificate) <= 1e-9 * (1 + 1e-6)
        return
    assert sol.status in ("optimal", "iteration limit")
    lower, upper = certificate(case, rows, sol.W, sol.dual, p)
    # A margin is computed to a few roundings of the longest row times ||W||_F, which is at most sqrt(D) ||W||_p.
    noise = 20 * EPS * longest(rows) * np.linalg.norm(sol.W)
    assert lower == pytest.approx(sol.margin, rel=noise + 1e-12)
    assert upper == pytest.approx(sol.margin_bound, rel=noise + 1e-12)
    assert lower <= upper * (1 + noise + 1e-12)
    margins = reference.svm_apply(rows, sol.W)
    equal = np.array([row[-1] for row in rows])
    assert margins[~equal].min() >= 1 - noise - 1e-12
    lengths = np.array([np.linalg.norm(delta) * np.linalg.norm(z) for _, _, delta, z, _ in rows])
    assert (np.abs(margins) <= 2e-13 * lengths * np.linalg.norm(sol.W))[equal].all()
    multipliers = np.array([reference.per_entry(case.data, sol.dual)[q][t] for q, t, *_ in rows])
    assert (multipliers[~equal] >= 0).all()
    if sol.status == "optimal":
        allowed = max(TOL, 100 * EPS * longest(rows) / sol.margin)
        assert upper / lower - 1 <= allowed + noise
        check_conditions(case, sol, rows, multipliers, p, allowed)


def check_conditions(case, sol, rows, multipliers, p, gap):
    """sign(W) |W|^(p-1) = A*(dual) in its own norm, and b.dual = ||W||_p^p: the dual norm is uniformly convex, so
    that a gap g leaves a distance of order g^(1/2) or g^(1/q)."""
    power = lp_norm(sol.W, p) ** p
    if not 1e-250 < power < 1e250:  # then the dual has another scale: this one may leave double precision
        return
    M = reference.svm_adjoint(rows, multipliers, (case.data.dk, case.data.dz)).astype(np.longdouble)
    q = dual_exponent(p)
    gradient = np.sign(sol.W) * np.abs(sol.W.astype(np.longdouble)) ** (p - 1)
    apart = float(lp_norm(M - gradient, q) / lp_norm(gradient, q))
    assert apart <= 4 * max(p, float(q)) * gap ** (1 / max(2.0, float(q)))
    equal = np.array([row[-1] for row in rows])
    assert multipliers[~equal].sum() == pytest.approx(float(power), rel=max(1e-8, 4 * p * gap))


@pytest.mark.parametrize("p", [1.1, 1.5, 3.0, 10.0])
@pytest.mark.parametrize("name", CASES)
def test_named_problems(name, p):
    case, sol, rows = solved(name, p)
    assert sol.norm == p
    if case.status == "no constraint" or not rows:
        assert sol.status == "no constraint" and not sol.W.any() and sol.gap == 0
        return
    check_answer(case, sol, rows, p)
    frobenius = attsvm.solve_svm(case.data, case.selected)
    if not case.hard:
        assert sol.status == frobenius.status
    if sol.status == "optimal" and frobenius.status == "optimal":
        least, other = lp_norm(sol.W, p), lp_norm(frobenius.W, p)
        assert least <= other * (1 + 2 * max(sol.gap, frobenius.gap, TOL))


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize(
    "make",
    [
        functools.partial(ball, 0, 6, 8, 10),
        functools.partial(ball, 1, 15, 5, 20),
        functools.partial(ball, 2, 1, 8, 9),
        functools.partial(planted_margin, 3, 12, 8, 5, 1e-2),
        functools.partial(several_kept, redundant=True),
        spread_norms,
        correlated,
    ],
    ids=["paper", "wide", "one_query", "tight", "redundant_equalities", "spread", "correlated"],
)
def test_every_exponent(make, p):
    case = make()
    sol = solve(case, p)
    assert sol.status == "optimal"
    check_answer(case, sol, reference.svm_rows(case.data, case.selected), p)


@pytest.mark.parametrize("p", [1.01, 50.0, 100.0])
def test_far_exponents(p):
    case = ball(0, 6, 8, 10)
    sol = solve(case, p)
    assert sol.status == "optimal"
    rows = reference.svm_rows(case.data, case.selected)
    lower, upper = certificate(case, rows, sol.W, sol.dual, p)
    assert upper / lower - 1 <= TOL and lower == pytest.approx(sol.margin, rel=1e-12)


@pytest.mark.parametrize("p", [1.0001, 1e3, 1e15])
def test_absurd_exponents_keep_valid_bounds(p):
    case = ball(0, 6, 8, 10)
    check_answer(case, solve(case, p, tol=1e-12, max_iter=60), reference.svm_rows(case.data, case.selected), p)


# ------------------------------------------------------------------------------------- answers known otherwise


def interior(case, p, rhs=None, tol=TOL):
    """The solver itself, which also takes p = 2 and any right-hand side: status, W, dual per entry, bounds."""
    reference_token = np.asarray(case.selected, dtype=np.intp)
    options = (tol, 200, 0.0, p, 0, None, None, None)
    return _core.entrywise_interior(case.data.handle, reference_token, None, rhs, *options)[:5]


@pytest.mark.parametrize("seed", range(6))
def test_two_is_the_frobenius_norm(seed):
    case = ball(seed, *[(6, 8, 10), (10, 5, 10), (1, 6, 5), (4, 2, 3), (5, 6, 5), (9, 2, 4)][seed])
    for two in (2, 2.0, np.float32(2)):
        assert attsvm.solve_svm(case.data, case.selected, two).norm == "frobenius"
    frobenius = attsvm.solve_svm(case.data, case.selected)
    status, W, _, lower, upper = interior(case, 2.0, tol=1e-11)
    assert status == 0
    assert lower == pytest.approx(frobenius.margin, rel=1e-9) and upper == pytest.approx(frobenius.margin, rel=1e-9)
    assert np.linalg.norm(W - frobenius.W) <= 1e-5 * np.linalg.norm(W)  # sqrt(2 gap)


@pytest.mark.parametrize("p", EXPONENTS)
def test_one_row_in_closed_form(p):
    """min ||W||_p with <a, W> >= 1 is 1 / ||a||_q, at sign(a) |a|^(q-1)."""
    rng = np.random.default_rng(4)
    X, Z = rng.standard_normal((1, 2, 5)), rng.standard_normal((1, 4))
    sol = attsvm.solve_svm(attsvm.cross_attention(X, Z), [1], p)
    a = np.outer(X[0, 1] - X[0, 0], Z[0])
    q = float(dual_exponent(p))
    assert 1 / sol.margin == pytest.approx(float(1 / lp_norm(a, q)), rel=2 * TOL)
    W = np.sign(a) * np.abs(a) ** (q - 1)
    W /= (a * W).sum()
    assert lp_norm(sol.W - W, p) <= 4 * p * TOL ** (1 / max(2, p)) * lp_norm(W, p)


def test_exponent_near_two_moves_the_norm_little():
    case = ball(3, 6, 8, 10)
    frobenius = attsvm.solve_svm(case.data, case.selected)
    # ||W||_p and ||W||_2 of a hundred entries differ by at most a factor 100^|1/p - 1/2|
    assert solve(case, 2 + 1e-9).margin == pytest.approx(frobenius.margin, rel=1e-8)


@pytest.mark.parametrize("p", [1.1, 3.0, 20.0])
def test_any_right_hand_side(p):
    """A margin of its own for each row, some negative: all are met, and ||W||_p = b.lambda / ||A*(lambda)||_q."""
    case = ball(5, 6, 5, 8)
    rng = np.random.default_rng(6)
    rhs = rng.uniform(-0.5, 2.0, case.data.indptr[-1])
    status, W, dual, lower, upper = interior(case, p, rhs)
    assert status == 0
    rows = reference.svm_rows(case.data, case.selected)
    entry = np.array([case.data.indptr[q] + t for q, t, *_ in rows])
    b, multipliers = rhs[entry], dual[entry]
    assert (reference.svm_apply(rows, W) >= b - 1e-11).all() and (multipliers >= 0).all()
    M = reference.svm_adjoint(rows, multipliers, W.shape)
    assert lp_norm(W, p) <= (b @ multipliers) / lp_norm(M, dual_exponent(p)) * (1 + 1.01 * TOL)
    assert lower == pytest.approx(float(1 / lp_norm(W, p)), rel=1e-10)
    status, twice, _, _, _ = interior(case, p, 2 * np.ones(len(rhs)))
    assert status == 0
    assert lp_norm(twice, p) == pytest.approx(float(2 * lp_norm(solve(case, p).W, p)), rel=2 * TOL)


@pytest.mark.peer
@pytest.mark.parametrize("p", [1.75, 3.0])
def test_agrees_with_a_cone_solver(p):
    cvxpy = pytest.importorskip("cvxpy")
    case = ball(0, 6, 8, 10)
    rows = reference.svm_rows(case.data, case.selected)
    A = np.array([np.outer(delta, z).ravel() for _, _, delta, z, _ in rows])
    w = cvxpy.Variable(A.shape[1])
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.pnorm(w, p)), [A @ w >= 1])
    problem.solve(solver="CLARABEL")
    sol = solve(case, p)
    assert problem.value * sol.margin == pytest.approx(1, abs=1e-6)  # its own accuracy is about 1e-7
    assert np.abs(w.value - sol.W.ravel()).max() <= 1e-3 * np.abs(sol.W).max()


# ------------------------------------------------------------------------------------- units, limits, messages


@pytest.mark.parametrize("p", [1.1, 3.0, 20.0])
@pytest.mark.parametrize(("keys", "queries"), [(1e-30, 1e-25), (1e40, 1.0), (3e-5, 7e4), (1e-90, 1e-80)])
def test_units_change_nothing(keys, queries, p):
    """q = 11 at p = 1.1: unscaled powers of the adjoint would vanish, and with them the upper bound."""
    case = ball(7, 5, 6, 8)
    before = solve(case, p)
    data = attsvm.cross_attention(case.data.keys.reshape(5, 6, 8) * keys, case.data.queries * queries)
    after = attsvm.solve_svm(data, case.selected, p)
    assert after.status == "optimal"
    assert after.margin / keys / queries == pytest.approx(before.margin, rel=2 * TOL)
    assert after.margin_bound / keys / queries == pytest.approx(before.margin_bound, rel=2 * TOL)
    rows = reference.svm_rows(data, case.selected)
    lower, upper = certificate(Case(data, case.selected), rows, after.W, after.dual, p)
    assert lower <= upper * (1 + 1e-12) and upper <= lower * (1 + TOL + 1e-12)


@pytest.mark.parametrize("p", [1.1, 3.0, 20.0])
def test_too_few_iterations_leave_valid_bounds(p):
    case = ball(9, 8, 6, 12)
    best = solve(case, p)
    rows = reference.svm_rows(case.data, case.selected)
    for most in (1, 3, best.iterations - 1):
        with pytest.warns(attsvm.ConvergenceWarning, match="bounds"):
            sol = attsvm.solve_svm(case.data, case.selected, p, max_iter=most)
        assert sol.status == "iteration limit" and sol.iterations == most and sol.gap > TOL
        assert sol.margin <= best.margin_bound and sol.margin_bound >= best.margin
        check_answer(case, sol, rows, p)


def test_support_is_the_active_rows():
    case = ball(0, 6, 8, 10)
    sol = solve(case, 3.0)
    margins = reference.svm_apply(reference.svm_rows(case.data, case.selected), sol.W)
    assert sol.support.sum() == (margins <= 1 + 1e-4).sum() < len(margins)


def test_result_says_its_norm():
    case = ball(0, 6, 8, 10)
    text = repr(solve(case, 3))
    assert "entrywise l3 norm: optimal" in text and "interior" in text


@pytest.mark.parametrize("norm", [True, math.nan, -math.inf, 1, 1.0, 0.5, -3, "3", "entrywise", None, [3.0], 2j])
def test_bad_norms_are_named(norm):
    case = ball(0, 3, 3, 4)
    with pytest.raises(ValueError, match="norm must be"):
        attsvm.solve_svm(case.data, case.selected, norm)


def test_methods_and_soft_margins_of_other_norms_are_refused():
    case = ball(0, 3, 3, 4)
    with pytest.raises(ValueError, match="method"):
        attsvm.solve_svm(case.data, case.selected, 3.0, method="active")
    with pytest.raises(ValueError, match="C goes with"):
        attsvm.solve_svm(case.data, case.selected, 3.0, C=1.0)


# ------------------------------------------------------------------------------------- many


def judge(seed, p):
    """The status; asserts that it is right."""
    case = random_problem(seed)
    rows = reference.svm_rows(case.data, case.selected)
    sol = solve(case, p)
    if sol.status == "no constraint" or not rows:
        return sol.status
    frobenius = solve(case, "frobenius")
    if sol.status in ("optimal", "infeasible"):
        assert frobenius.status == sol.status
    if sol.status != "undecided" or frobenius.status != "undecided":
        check_answer(case, sol, rows, p)
    return sol.status


@pytest.mark.parametrize("seed", range(150))
def test_random_problems(seed):
    judge(seed, EXPONENTS[seed % len(EXPONENTS)])


def test_margin_of_a_few_millionths():
    """The systems' condition number is the square of the rows': unrefined solutions stop at a gap of 2e-6."""
    assert judge(125, 1.1) == "optimal"


@pytest.mark.slow
@pytest.mark.parametrize("p", EXPONENTS)
def test_many_random_problems(p):
    """A fifth of these have margins down to 1e-7 of the rows.  There the entries of W far below the largest, whose
    curvature is |W|^(p-2), leave the systems too ill conditioned when p is large: stopping early is honest."""
    found = [judge(seed, p) for seed in range(2000)]
    limit = 0.005 if p <= 5 else 0.04
    assert sum(status in ("iteration limit", "undecided") for status in found) <= limit * len(found)


@pytest.mark.slow
@pytest.mark.parametrize("p", EXPONENTS)
def test_paper_sizes(p):
    rng = np.random.default_rng(20)
    for seed in range(60):
        n, T, d = int(rng.integers(1, 21)), int(rng.integers(2, 21)), int(rng.integers(2, 33))
        X = sphere(rng, n, T, d) * np.exp(rng.standard_normal((n, T, 1)) * (seed % 2))
        data = attsvm.cross_attention(X, sphere(rng, n, d))
        case = Case(data, data.select(rng.standard_normal((d, d))))
        sol = solve(case, p)
        assert sol.status == "optimal"
        check_answer(case, sol, reference.svm_rows(data, case.selected), p)


# ------------------------------------------------------------------------------------- more rows than weights


def planted(n, T, dk, dz, seed, kept=None):
    """Tokens that some W selects; with `kept`, another token of each window that it cannot tell from the first."""
    rng = np.random.default_rng([n, T, dk, seed])
    X, Z, W = rng.standard_normal((n, T, dk)), rng.standard_normal((n, dz)), rng.standard_normal((dk, dz))
    chosen = attsvm.cross_attention(X, Z).select(W)
    if not kept:
        return Case(attsvm.cross_attention(X, Z), chosen)
    some = np.arange(min(kept, n))
    other = (chosen[some] + 1) % T
    normal = Z[some] @ W.T
    apart = ((X[some, chosen[some]] - X[some, other]) * normal).sum(1) / (normal**2).sum(1)
    X[some, other] += apart[:, None] * normal  # equal logits under W
    selected = np.zeros((n, T), dtype=bool)
    selected[np.arange(n), chosen] = selected[some, other] = True
    return Case(attsvm.cross_attention(X, Z), selected)


@pytest.mark.parametrize("p", [1.05, 3.0, 100.0])
@pytest.mark.parametrize("kept", [None, 3], ids=["one", "several"])
@pytest.mark.parametrize("shape", [(40, 12, 3, 3), (5, 150, 4, 3), (150, 8, 6, 5)], ids=str)
def test_the_system_of_the_weights_certifies(shape, kept, p):
    """Rows from 30 to 60 times the weights, with equality rows and without."""
    case = planted(*shape, seed=1, kept=kept)
    sol = solve(case, p)
    assert sol.status == "optimal"
    lower, upper = certificate(case, reference.svm_rows(case.data, case.selected), sol.W, sol.dual, p)
    assert 0 < lower <= upper * (1 + 1e-12) and upper / lower - 1 <= 1.1 * TOL
    assert sol.margin == pytest.approx(lower, rel=1e-10)


def test_many_rows_need_no_matrix_of_their_size():
    """40,000 rows of 12 weights: the system of the rows would take 12 GB."""
    case = planted(5, 8001, 4, 3, seed=0)
    assert solve(case, 1.5).status == "optimal"
