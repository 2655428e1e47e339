"""Entrywise lp norms: every answer is judged from the raw tokens, with norms that cannot underflow."""

import math
import warnings

import attsvm
import judge
import numpy as np
import pytest
from attsvm import _core
from problems import Case, ball

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


# ------------------------------------------------------------------------------------- answers known otherwise


def interior(case, p, tol=TOL):
    """The solver itself, which also takes p = 2: status, W, dual per entry, bounds."""
    reference_token = np.asarray(case.selected, dtype=np.intp)
    options = (tol, 200, 0.0, p, 0, None, None, None)
    return _core.entrywise_interior(case.data._handle, reference_token, None, None, *options)[:5]


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


# ------------------------------------------------------------------------------------- units, limits, messages


def test_result_says_its_norm():
    case = ball(0, 6, 8, 10)
    text = repr(solve(case, 3))
    assert "in the l3 norm: optimal" in text and "interior" in text


@pytest.mark.parametrize("norm", [True, math.nan, -math.inf, 1, 1.0, 0.5, -3, "3", "entrywise", None, [3.0], 2j])
def test_bad_norms_are_named(norm):
    case = ball(0, 3, 3, 4)
    with pytest.raises(ValueError, match="norm must be"):
        attsvm.solve_svm(case.data, case.selected, norm)


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
    assert sol.status == "optimal" and judge.wrong(case, sol) is None


def test_many_rows_need_no_matrix_of_their_size():
    """40,000 rows of 12 weights: the system of the rows would take 12 GB."""
    case = planted(5, 8001, 4, 3, seed=0)
    assert solve(case, 1.5).status == "optimal"


@pytest.mark.parametrize("norm", ["max", 1.5, 3.0, "spectral", "nuclear"])
def test_a_looser_tolerance_is_reached_sooner(norm):
    for seed in range(6):
        case = planted(20, 12, 10, 10, seed)
        steps = []
        for tol in (1e-1, 1e-2, 1e-3, 1e-6, 1e-9):
            sol = attsvm.solve_svm(case.data, case.selected, norm, method="interior", tol=tol)
            assert sol.status == "optimal" and sol.gap <= tol
            steps.append(sol.iterations)
        assert steps[0] < steps[-1]
        if norm not in ("spectral", "nuclear"):  # whose polish is tried in between
            assert steps == sorted(steps)


@pytest.mark.parametrize("p", [1.5, 3.0])
def test_a_working_set_that_grows_goes_on_from_where_it_was(p):
    """Rows that were in it keep their slacks and multipliers: some 13 iterations, and 25 from others'."""
    steps = []
    for seed in range(3):
        case = planted(150, 30, 12, 12, seed)
        steps.append(solve(case, p).iterations)
    assert max(steps) <= 18


@pytest.mark.parametrize("p", [1.5, 3.0])
def test_multipliers_have_the_scale_of_the_weights(p):
    """The rows' sum by their multipliers is M with W = sign(M) |M|^(q - 1), 1/p + 1/q = 1."""
    X, Z, _, _ = attsvm.sample.unit_sphere(6, 5, 4, rng=1)
    sol = attsvm.solve_svm(attsvm.cross_attention(X, Z), [0] * 6, p)
    M = np.einsum("nt,ntd,ne->de", sol.dual, X[:, :1] - X, Z)
    np.testing.assert_allclose(np.sign(M) * np.abs(M) ** (1 / (p - 1)), sol.W, atol=1e-4 * np.abs(sol.W).max())
    assert sol.dual.sum() == pytest.approx(lp_norm(sol.W, p) ** p, rel=1e-8)
