"""What "optimal" and "infeasible" promise, judged in extended precision from the tokens, whoever found the answer."""

from __future__ import annotations

import warnings

import attsvm
import numpy as np
import pytest
import reference
from attsvm import _core
from problems import Case, copy_of_selected, pick, sphere, zero_query

NORMS = ["frobenius", "nuclear", 3.0]
LONG = np.longdouble
LOOSEST = 2.3e-5  # 100 eps / 1e-9, rounded up: the gap that rounding excuses at most


def extended_rows(case):
    """(delta, z, is_equality) in extended precision: differences of the given tokens are exact there, or nearly."""
    data, kept = case.data, reference.selected_tokens(case.data, case.selected)
    for q, (X, z) in enumerate(zip(reference.windows(data), data.queries, strict=True)):
        a = int(np.argmax(kept[q]))
        for t in range(len(X)):
            if t != a:
                yield X[a].astype(LONG) - X[t].astype(LONG), z.astype(LONG), bool(kept[q][t])


def check_promise(case, sol):
    rows = list(extended_rows(case))
    if sol.status == "optimal":
        W = sol.W.astype(LONG)
        size = np.sqrt((W * W).sum())
        for delta, z, equal in rows:
            left, length = delta @ (W @ z), np.sqrt((delta @ delta) * (z @ z))
            if equal:
                assert abs(left) <= min(1e-9 * size * length, LOOSEST)
            else:
                assert left >= 1 - LONG(1e-9)
    if sol.status == "infeasible":
        kept = reference.selected_tokens(case.data, case.selected)
        multipliers = np.concatenate(
            [
                np.delete(c, np.argmax(k))
                for c, k in zip(reference.per_entry(case.data, sol.certificate), kept, strict=True)
            ]
        ).astype(LONG)
        assert 1 <= np.abs(multipliers).max() < 2
        combined, weight = LONG(0), LONG(0)
        for (delta, z, equal), multiplier in zip(rows, multipliers, strict=True):
            combined = combined + multiplier * np.outer(delta, z)
            if not equal:
                assert multiplier >= 0
                weight += multiplier * np.sqrt((delta @ delta) * (z @ z))
        assert any(m > 0 and not equal for (_, _, equal), m in zip(rows, multipliers, strict=True))
        assert np.sqrt((combined * combined).sum()) <= 1e-9 * (1 + 1e-6) * weight


def near_copies(seed):
    """Tokens within 1e-3 .. 1e-14 of each other, some of them selected together: rows of very different lengths, and
    weights so large that their own rounding shows in the margins."""
    rng = np.random.default_rng([seed, 77])
    n, T, d = rng.integers(1, 6), rng.integers(2, 6), rng.integers(2, 6)
    X = sphere(rng, n, T, d)
    apart = 10.0 ** rng.uniform(-14, -3)
    for i in range(n):
        to, source = rng.integers(0, T, 2)
        X[i, to] = X[i, source] + (apart * sphere(rng, d) if to != source else X[i, to] * 0)
    kept = np.zeros((n, T), dtype=bool)
    kept[np.arange(n), pick(rng, n, T)] = True
    if seed % 2:
        kept |= rng.random((n, T)) < 0.2
    return Case(attsvm.cross_attention(X, sphere(rng, n, d)), kept)


@pytest.mark.parametrize("norm", NORMS)
def test_the_promise_holds_on_near_copies(norm):
    met = set()
    for seed in range(150):
        case = near_copies(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", attsvm.ConvergenceWarning)
            sol = attsvm.solve_svm(case.data, case.selected, norm)
        check_promise(case, sol)
        met.add(sol.status)
        repr(sol), sol.gap, sol.margin, sol.margin_bound, sol.objective, sol.objective_bound
    assert {"optimal", "infeasible"} <= met


@pytest.mark.parametrize("method", ["active", "block", "interior", "gradient"])
def test_the_promise_holds_for_every_method(method):
    for seed in range(60):
        case = near_copies(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", attsvm.ConvergenceWarning)
            check_promise(case, attsvm.solve_svm(case.data, case.selected, method=method, max_iter=2000))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("make", [lambda: copy_of_selected(False), zero_query])
def test_presolve_passes_the_gate(make, norm):
    case = make()
    sol = attsvm.solve_svm(case.data, case.selected, norm)
    assert sol.status == "infeasible" and sol.method == "presolve" and sol.margin_bound == 0
    check_promise(Case(case.data, case.selected), sol)


def test_what_is_no_proof_is_refused():
    """Multipliers that combine the rows to nothing are a certificate; the same with one changed are not."""
    rng = np.random.default_rng(0)
    a, b, c = sphere(rng, 3, 4)
    data = attsvm.cross_attention([[a, b], [b, c], [c, a]], np.tile(sphere(rng, 4), (3, 1)))
    reference_token = np.zeros(3, dtype=np.intp)

    def proposed(dual):
        dual = np.array(dual, dtype=float)
        return _core.presolve(data.handle, reference_token, None, None, 1e-9, 0, 0.0, 2.0, 0, dual, None, None)

    proof = proposed([0, 3e200, 0, 3e200, 0, 3e200])
    assert _core.STATUS[proof.status] == "infeasible" and proof.method == "presolve"
    assert (
        1 <= proof.dual[1] < 2 and np.ptp(proof.dual[1::2]) <= 1e-15
    )  # a multiplier is scaled by its length, and back
    for dual in ([0, 1, 0, 1, 0, 1.001], [0, 1, 0, 1, 0, 0], [0] * 6, [0, -1, 0, -1, 0, -1], [0, np.nan, 0, 1, 0, 1]):
        assert _core.STATUS[proposed(dual).status] == "undecided", dual


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e200])
def test_extreme_scales_are_answered_or_named(scale):
    rng = np.random.default_rng(1)
    X, Z = sphere(rng, 4, 5, 6), sphere(rng, 4, 6)
    data = attsvm.cross_attention(X * scale, Z)
    if scale < 1e-300:
        with pytest.raises(ValueError, match="rescale X or Z"):
            attsvm.solve_svm(data, [0, 1, 2, 3])
    else:
        sol = attsvm.solve_svm(data, [0, 1, 2, 3])
        assert sol.status == "optimal" and np.isfinite(sol.W).all() and 0 < sol.dual.max() < np.inf
        assert repr(sol)
    crowded = attsvm.cross_attention(np.tile(X[:1], (5, 1, 1)) * scale, np.tile(Z[:1], (5, 1)))
    sol = attsvm.solve_svm(crowded, [0, 1, 2, 3, 4])
    assert sol.status == "infeasible" and 1 <= sol.certificate.max() < 2
    assert "certificate" in repr(sol) or "zero" in repr(sol)
