"""The nuclear-norm methods: larger problems, agreement, working sets, the rank cap; each answer judged (judge.py)."""

import functools
import math
import warnings

import attsvm
import judge
import numpy as np
import pytest
from marks import slow
from problems import CASES, Case, ball, sphere


def by_weights(seed, n, T, d, change=None):
    """Selected by random weights; `change`: a spectrum i^-change and a mean, or the tokens of a causal window."""
    rng = np.random.default_rng(seed)
    X, Z = sphere(rng, n, T, d), sphere(rng, n, d)
    if isinstance(change, (int, float)):
        scale, mean = np.arange(1, d + 1.0) ** -change, rng.standard_normal(d)
        X, Z = (rng.standard_normal(X.shape) + mean) * scale, (rng.standard_normal(Z.shape) + mean) * scale
    data = attsvm.causal_attention(X) if change == "causal" else attsvm.cross_attention(X, Z)
    return Case(data, data.select(rng.standard_normal((d, d))))


def pairs(seed, n, T, d):
    """The last token beside another one of each window."""
    rng = np.random.default_rng(seed)
    kept = np.arange(T) == rng.integers(0, T // 2, (n, 1))
    kept[:, T - 1] = True
    return Case(attsvm.cross_attention(sphere(rng, n, T, d), sphere(rng, n, d)), kept)


pytestmark = pytest.mark.filterwarnings("ignore::attsvm.ConvergenceWarning")
METHODS = ["interior", "factored"]
PROBLEMS = {
    "random": lambda: ball(0, 20, 16, 32),
    "tight": lambda: by_weights(1, 40, 12, 6),
    "strongly_correlated": lambda: by_weights(1, 16, 16, 20, 2),
    **{name: CASES[name] for name in ("paper_size", "equalities", "redundant_equalities", "causal", "float32_keys")},
}
LARGE = {
    "random_64": lambda: ball(1, 64, 16, 64),
    "more_rows_than_200": lambda: by_weights(4, 100, 26, 32),  # 2,499 rows: the Frobenius start has its own limit
    "tight_16": lambda: ball(0, 64, 32, 16),
    "correlated_64": lambda: by_weights(0, 64, 32, 64, 1),
    "equalities_48": lambda: pairs(1, 48, 16, 48),
    "causal_long": lambda: by_weights(1, 2, 40, 32, "causal"),
}


@functools.cache
def solved(name, method):
    case = {**PROBLEMS, **LARGE}[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error", attsvm.ConvergenceWarning)
        return case, attsvm.solve_svm(case.data, case.selected, "nuclear", method=method)


@pytest.mark.parametrize("name", [*PROBLEMS, *(slow(name) for name in LARGE)])
def test_both_methods_certify_and_agree(name):
    answers = []
    for method in METHODS:
        case, sol = solved(name, method)
        assert sol.status == "optimal" and sol.method == method and judge.wrong(case, sol) is None
        # Complementary slackness: W lies in the top singular space of M = A^*(dual), whose values there are equal.
        rows = judge.rows_of(case)
        sigma = np.linalg.svd(rows.adjoint(rows.multipliers(case.data, sol.dual)[0]).astype(float), compute_uv=False)
        assert sol.rank <= (sigma > sigma[0] * (1 - 1e-3)).sum()
        answers.append(sol)
    assert answers[0].margin == pytest.approx(answers[1].margin, rel=1e-8)
    assert name in LARGE or answers[0].rank == answers[1].rank


@pytest.mark.parametrize("seed", [19, 24])
def test_working_set_grows_until_it_holds_the_answer(seed):
    """Here the rows of least Frobenius margin are not enough: without the rows that W breaks, the gap stays at 1e-2."""
    case = ball(seed, 20, 16, 24)
    interior, factored = (attsvm.solve_svm(case.data, case.selected, "nuclear", method=m) for m in METHODS)
    assert interior.status == factored.status == "optimal"
    assert judge.wrong(case, interior) is None and interior.margin == pytest.approx(factored.margin, rel=1e-8)


def test_iterations_of_the_frobenius_start_are_counted_apart():
    case = by_weights(3, 60, 12, 8)
    assert attsvm.solve_svm(case.data, case.selected, method="active").iterations > 40
    assert attsvm.solve_svm(case.data, case.selected, "nuclear", method="interior", max_iter=20).status == "optimal"


def test_auto_falls_back_on_the_other_method():
    """20 evaluations are not enough for the factored method, and 20 iterations are for the interior one."""
    case = ball(3, 20, 10, 16)
    data, selected = case.data, case.selected
    assert attsvm.solve_svm(data, selected, "nuclear", method="factored", max_iter=20).status == "iteration limit"
    sol = attsvm.solve_svm(data, selected, "nuclear", max_iter=20)
    assert sol.status == "optimal" and sol.method == "interior"


# ------------------------------------------------------------------------------------- the rank cap


def capped(case, rank):
    return attsvm.solve_svm(case.data, case.selected, "nuclear", rank=rank)


@pytest.mark.parametrize("name", ["paper_size", "random", "equalities", "causal", "float32_keys"])
def test_rank_cap(name):
    case, best = solved(name, "factored")
    least, before = 1 / best.margin, math.inf
    for rank in range(1, best.rank + 2):
        sol = capped(case, rank)
        if sol.status == "undecided":
            assert sol.W is None and rank == 1 and "found (of this rank" in sol.message  # one column may not separate
            continue
        sigma = np.linalg.svd(sol.W, compute_uv=False)
        assert (sigma[rank:] <= 1e-14 * sigma[0]).all()
        assert judge.wrong(case, sol) is None
        assert sol.margin == pytest.approx(1 / sigma.sum(), rel=1e-10)
        assert sol.margin_bound == pytest.approx(best.margin_bound, rel=2 * 1e-9)  # proved without the cap
        assert least * (1 - 2 * 1e-9) <= sigma.sum() <= before * (1 + 1e-6)
        before = sigma.sum()
        if rank >= best.rank:
            assert sol.status == "optimal" and sigma.sum() == pytest.approx(least, rel=2 * 1e-9)
        else:
            assert sol.gap > 1e-6
            assert sol.status == "stationary" or rank == 1  # one column is hardly enough: it may take long
            assert sol.status != "stationary" or f"{1 + sol.gap:.6g}" in sol.message
    assert before < math.inf


def test_capped_run_that_is_cut_short_says_so():
    case, best = solved("random", "factored")
    with pytest.warns(attsvm.ConvergenceWarning, match="bounds"):
        sol = attsvm.solve_svm(case.data, case.selected, "nuclear", rank=best.rank - 1, max_iter=best.iterations + 40)
    assert sol.status == "iteration limit" and judge.wrong(case, sol) is None
    assert np.linalg.matrix_rank(sol.W) == best.rank - 1 and sol.margin <= best.margin_bound


def test_capped_answer_is_stationary():
    """No small step of the factors that keeps the active rows lowers the norm: its gradient is in their span."""
    case, best = solved("paper_size", "factored")
    sol = capped(case, best.rank - 1)
    assert sol.status == "stationary" and sol.rank == best.rank - 1
    U, s, V = np.linalg.svd(sol.W)
    K, Q = (A[:, : sol.rank] * np.sqrt(s[: sol.rank]) for A in (U, V.T))
    rows = judge.rows_of(case)
    active = rows.apply(sol.W) < 1 + 1e-6
    d, z = rows.delta[active].astype(float), rows.z[rows.query[active]].astype(float)
    J = np.hstack([np.einsum("mi,mj->mij", *pair).reshape(len(d), -1) for pair in ((d, z @ Q), (z, d @ K))])
    gradient = np.concatenate([K.ravel(), Q.ravel()])
    multipliers = np.linalg.lstsq(J.T, gradient, rcond=None)[0]
    assert np.linalg.norm(gradient - J.T @ multipliers) <= 1e-4 * np.linalg.norm(gradient)
    assert multipliers.min() >= -1e-4 * multipliers.max()
