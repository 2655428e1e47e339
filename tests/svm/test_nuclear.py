"""The nuclear-norm methods: certificates recomputed from the tokens, agreement, working sets, the rank cap."""

from __future__ import annotations

import functools
import math
import warnings

import attsvm
import numpy as np
import pytest
import reference
from problems import ball, several_kept, sphere

EPS = np.finfo(float).eps
TOL = 1e-9


def spectrum(seed, n, T, d, decay):
    """A common mean and covariance i^-decay; selected by random weights, so that the margin is small."""
    rng = np.random.default_rng(seed)
    scale, turn = np.arange(1, d + 1.0) ** -decay, np.linalg.qr(rng.standard_normal((d, d)))[0]
    mean = rng.standard_normal(d) * scale
    X = (rng.standard_normal((n, T, d)) * scale + mean) @ turn
    Z = (rng.standard_normal((n, d)) * scale + mean) @ turn
    data = attsvm.cross_attention(X, Z)
    return data, data.select(rng.standard_normal((d, d)))


def random(seed, n, T, d):
    case = ball(seed, n, T, d)
    return case.data, case.selected


def tight(seed, n, T, d):
    """Many more rows than a matrix has entries, selected by random weights."""
    rng = np.random.default_rng(seed)
    data = attsvm.cross_attention(sphere(rng, n, T, d), sphere(rng, n, d))
    return data, data.select(rng.standard_normal((d, d)))


def equalities(seed, n, T, d):
    rng = np.random.default_rng(seed)
    kept = np.zeros((n, T), dtype=bool)
    kept[np.arange(n), rng.integers(0, T // 2, n)] = kept[:, T - 1] = True
    return attsvm.cross_attention(sphere(rng, n, T, d), sphere(rng, n, d)), kept


def redundant():
    case = several_kept(redundant=True)
    return case.data, case.selected


def causal(seed, n, T, d):
    rng = np.random.default_rng(seed)
    data = attsvm.causal_attention(sphere(rng, n, T, d))
    return data, data.select(rng.standard_normal((d, d)))


def ragged(seed, n, d):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 30, n)
    data = attsvm.cross_attention([sphere(rng, T, d) for T in lengths], sphere(rng, n, d))
    return data, rng.integers(0, lengths)


def several_queries(seed, n, S, T, d):
    rng = np.random.default_rng(seed)
    data = attsvm.cross_attention(sphere(rng, n, T, d), sphere(rng, n, S, d))
    return data, data.select(rng.standard_normal((d, d)))


def float32(seed, n, T, d):
    rng = np.random.default_rng(seed)
    data = attsvm.cross_attention(sphere(rng, n, T, d).astype(np.float32), sphere(rng, n, d))
    return data, rng.integers(0, T, n)


def spread(seed, n, T, d):
    rng = np.random.default_rng(seed)
    X = sphere(rng, n, T, d) * np.exp(rng.standard_normal((n, T, 1)))
    return attsvm.cross_attention(X, sphere(rng, n, d) * np.exp(rng.standard_normal((n, 1)))), rng.integers(0, T, n)


PROBLEMS = {
    "small": lambda: random(0, 6, 8, 10),
    "random": lambda: random(0, 20, 16, 32),
    "tight": lambda: tight(1, 40, 12, 6),
    "tight_few_columns": lambda: tight(2, 60, 10, 4),
    "correlated": lambda: spectrum(0, 16, 16, 20, 1),
    "strongly_correlated": lambda: spectrum(1, 16, 16, 20, 2),
    "equalities": lambda: equalities(0, 20, 10, 24),
    "redundant_equalities": redundant,
    "causal": lambda: causal(0, 3, 12, 16),
    "ragged": lambda: ragged(0, 20, 24),
    "several_queries": lambda: several_queries(0, 6, 4, 12, 20),
    "float32": lambda: float32(0, 16, 12, 24),
    "spread_norms": lambda: spread(3, 12, 12, 24),
}
LARGE = {
    "random_64": lambda: random(1, 64, 16, 64),
    "more_rows_than_200": lambda: tight(4, 100, 26, 32),  # 2,499 rows and more: the Frobenius start has its own limit
    "tight_16": lambda: random(0, 64, 32, 16),
    "correlated_64": lambda: spectrum(0, 64, 32, 64, 1),
    "equalities_48": lambda: equalities(1, 48, 16, 48),
    "causal_long": lambda: causal(1, 2, 40, 32),
}


@functools.cache
def solved(name, method):
    data, selected = {**PROBLEMS, **LARGE}[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error", attsvm.ConvergenceWarning)
        sol = attsvm.solve_svm(data, selected, "nuclear", method=method)
    return data, selected, sol, reference.svm_rows(data, selected)


def size(W):
    return np.linalg.svd(W, compute_uv=False).sum()


def meets(rows, W):
    """Every margin at least 1, every equality met, to a few roundings of the longest row."""
    rho = max(np.linalg.norm(delta) * np.linalg.norm(z) for _, _, delta, z, _ in rows)
    margins, equal = reference.svm_apply(rows, W), np.array([row[-1] for row in rows])
    noise = 1e-12 * rho * np.linalg.norm(W)
    return margins[~equal].min() >= 1 - noise and np.abs(margins[equal]).max(initial=0) <= noise


def check(name, method):
    data, selected, sol, rows = solved(name, method)
    assert sol.status == "optimal" and sol.method == method
    lower, upper = reference.certificate(data, selected, sol.W, sol.dual, "nuclear")
    rho = max(np.linalg.norm(delta) * np.linalg.norm(z) for _, _, delta, z, _ in rows)
    allowed = max(TOL, 100 * EPS * rho / lower)
    assert -1e-11 <= upper / lower - 1 <= allowed * (1 + 1e-6)
    assert sol.margin == pytest.approx(lower, rel=1e-11) and sol.margin_bound == pytest.approx(upper, rel=1e-11)
    assert meets(rows, sol.W)
    # Complementary slackness: W lies in the top singular space of M = A^*(dual), whose values there are all equal.
    M = reference.svm_adjoint(rows, reference.svm_multipliers(data, rows, sol.dual), sol.W.shape)
    top = np.linalg.norm(M, 2)
    assert (sol.W * M).sum() == pytest.approx(size(sol.W) * top, rel=2 * allowed + 1e-12)
    sigma = np.linalg.svd(M, compute_uv=False)
    assert sol.rank <= (sigma > top * (1 - 1e-3)).sum()


@pytest.mark.parametrize("method", ["interior", "factored"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_certificate(name, method):
    check(name, method)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["interior", "factored"])
@pytest.mark.parametrize("name", LARGE)
def test_certificate_of_larger_problems(name, method):
    check(name, method)


@pytest.mark.parametrize("name", PROBLEMS)
def test_methods_agree(name):
    one, other = (solved(name, method)[2] for method in ("interior", "factored"))
    assert size(one.W) == pytest.approx(size(other.W), rel=1e-8)
    assert one.rank == other.rank


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_methods_agree_on_larger_problems(name):
    one, other = (solved(name, method)[2] for method in ("interior", "factored"))
    assert size(one.W) == pytest.approx(size(other.W), rel=1e-8)


@pytest.mark.parametrize("seed", [19, 24])
def test_working_set_grows_until_it_holds_the_answer(seed):
    """Here the rows of least Frobenius margin are not enough: without the rows that W breaks, the gap stays at 1e-2."""
    data, selected = random(seed, 20, 16, 24)
    interior, factored = (attsvm.solve_svm(data, selected, "nuclear", method=m) for m in ("interior", "factored"))
    assert interior.status == factored.status == "optimal"
    assert meets(reference.svm_rows(data, selected), interior.W)
    assert size(interior.W) == pytest.approx(size(factored.W), rel=1e-8)


def test_iterations_of_the_frobenius_start_are_counted_apart():
    data, selected = tight(3, 60, 12, 8)
    assert attsvm.solve_svm(data, selected, method="active").iterations > 40
    assert attsvm.solve_svm(data, selected, "nuclear", method="interior", max_iter=20).status == "optimal"


@pytest.mark.parametrize("method", ["interior", "factored"])
def test_infeasible_problems_come_with_their_proof(method):
    data, selected = random(1, 60, 10, 5)
    sol = attsvm.solve_svm(data, selected, "nuclear", method=method)
    assert sol.status == "infeasible" and sol.W is None
    assert reference.farkas(data, selected, sol.certificate) <= 1e-9


def test_auto_falls_back_on_the_other_method():
    """20 evaluations are not enough for the factored method, and 20 iterations are for the interior one."""
    data, selected = random(3, 20, 10, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", attsvm.ConvergenceWarning)
        assert attsvm.solve_svm(data, selected, "nuclear", method="factored", max_iter=20).status == "iteration limit"
    sol = attsvm.solve_svm(data, selected, "nuclear", max_iter=20)
    assert sol.status == "optimal" and sol.method == "interior"


# ------------------------------------------------------------------------------------- the rank cap


def capped(data, selected, rank):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", attsvm.ConvergenceWarning)
        return attsvm.solve_svm(data, selected, "nuclear", rank=rank)


@pytest.mark.parametrize("name", ["small", "random", "equalities", "causal", "float32"])
def test_rank_cap(name):
    data, selected, best, rows = solved(name, "factored")
    least, before = size(best.W), math.inf
    for rank in range(1, best.rank + 2):
        sol = capped(data, selected, rank)
        if sol.status == "undecided":
            assert sol.W is None and rank == 1  # one column may not separate
            continue
        sigma = np.linalg.svd(sol.W, compute_uv=False)
        assert (sigma[rank:] <= 1e-14 * sigma[0]).all()
        assert meets(rows, sol.W)
        assert sol.margin == pytest.approx(1 / sigma.sum(), rel=1e-10)
        assert sol.margin_bound == pytest.approx(best.margin_bound, rel=2 * TOL)  # proved without the cap
        assert least * (1 - 2 * TOL) <= sigma.sum() <= before * (1 + 1e-6)
        before = sigma.sum()
        if rank >= best.rank:
            assert sol.status == "optimal" and sigma.sum() == pytest.approx(least, rel=2 * TOL)
        else:
            assert sol.gap > 1e-6
            assert sol.status == "stationary" or rank == 1  # one column is hardly enough: it may take long
            assert sol.status != "stationary" or f"{1 + sol.gap:.6g}" in sol.message
    assert before < math.inf


def test_capped_run_that_is_cut_short_says_so():
    data, selected, best, rows = solved("random", "factored")
    with pytest.warns(attsvm.ConvergenceWarning, match="bounds"):
        sol = attsvm.solve_svm(data, selected, "nuclear", rank=best.rank - 1, max_iter=best.iterations + 40)
    assert sol.status == "iteration limit" and meets(rows, sol.W)
    assert np.linalg.matrix_rank(sol.W) == best.rank - 1 and sol.margin <= best.margin_bound


def test_capped_answer_is_stationary():
    """No small step of the factors that keeps the active rows lowers the norm: its gradient is in their span."""
    data, selected, best, rows = solved("small", "factored")
    sol = capped(data, selected, best.rank - 1)
    assert sol.status == "stationary" and sol.rank == best.rank - 1
    U, s, V = np.linalg.svd(sol.W)
    K, Q = (U[:, : sol.rank] * np.sqrt(s[: sol.rank]), V[: sol.rank].T * np.sqrt(s[: sol.rank]))
    margins = reference.svm_apply(rows, sol.W)
    active = [row for row, margin in zip(rows, margins, strict=True) if margin < 1 + 1e-6]
    J = np.array(
        [np.concatenate([np.outer(d, Q.T @ z).ravel(), np.outer(z, K.T @ d).ravel()]) for _, _, d, z, _ in active]
    )
    gradient = np.concatenate([K.ravel(), Q.ravel()])
    multipliers = np.linalg.lstsq(J.T, gradient, rcond=None)[0]
    assert np.linalg.norm(gradient - J.T @ multipliers) <= 1e-4 * np.linalg.norm(gradient)
    assert multipliers.min() >= -1e-4 * multipliers.max()


def test_rank_argument_is_checked():
    data, selected = random(0, 6, 8, 10)
    for bad in (0, -1, 1.5, "2", True, math.nan):
        with pytest.raises((TypeError, ValueError), match="rank"):
            attsvm.solve_svm(data, selected, "nuclear", rank=bad)
    for norm in ("frobenius", 3.0):
        with pytest.raises(ValueError, match="rank goes with norm='nuclear'"):
            attsvm.solve_svm(data, selected, norm, rank=2)
    with pytest.raises(ValueError, match="method"):
        attsvm.solve_svm(data, selected, "nuclear", rank=2, method="interior")
