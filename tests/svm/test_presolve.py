"""Presolve: problems that are smaller than they look cost what they are, and are certified as they were given."""

from __future__ import annotations

import attsvm
import numpy as np
import pytest
import reference

NORMS = ["frobenius", "nuclear", "spectral", "max", 3.0]


def span_of(g, count, rank, d):
    return g.standard_normal((count, rank)) @ np.linalg.qr(g.standard_normal((d, d)))[0][:rank]


def proved(data, selected, sol, norm):
    lower, upper = reference.certificate(data, selected, sol.W, sol.dual, norm)
    assert sol.status == "optimal" and upper / lower - 1 <= 3e-9
    assert sol.margin == pytest.approx(lower, rel=3e-9)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    "shape", [(20, 500, 16, 16), (40, 100, 12, 48), (1, 3000, 6, 5)], ids=["shared", "wide", "alone"]
)
def test_one_query_for_all_is_proved_infeasible(shape, norm):
    """By methods that would take minutes, did they take W to have all of its entries."""
    n, T, d, dz = shape
    g = np.random.default_rng(n)
    data = attsvm.cross_attention(g.standard_normal((n, T, d)), np.repeat(g.standard_normal((1, dz)), n, 0))
    selected = g.integers(0, T, n)
    sol = attsvm.solve_svm(data, selected, norm)
    assert sol.status == "infeasible" and attsvm.feasible(data, selected, norm).status == "infeasible"
    assert reference.farkas(data, selected, sol.certificate) <= 1e-9


@pytest.mark.parametrize("norm", ["frobenius", "nuclear", "spectral"])
@pytest.mark.parametrize("what", ["tokens", "queries", "both", "float32", "causal"])
def test_the_coordinates_of_the_spans(what, norm):
    """The answer is that of the problem written in those coordinates, and holds for the tokens as given."""
    g = np.random.default_rng(len(what))
    n, T, d, p = 30, 16, 24, 24 if what == "queries" else 5
    q = 24 if what == "tokens" else 3
    low, Z = g.standard_normal((n * T, p)), g.standard_normal((n, q))
    basis, other = (np.linalg.qr(g.standard_normal((d, d)))[0][:k] for k in (p, q))
    X = (low @ basis).reshape(n, T, d) + 3.0
    if what == "float32":
        X = X.astype(np.float32).astype(np.float64)
    if what == "causal":
        data = attsvm.causal_attention(X)
    else:
        data = attsvm.cross_attention(X.astype(np.float32) if what == "float32" else X, Z @ other)
    W = g.standard_normal((d, data.dz))
    selected = data.select(W)
    sol = attsvm.solve_svm(data, selected, norm)
    proved(data, selected, sol, norm)
    if what in ("tokens", "queries", "both"):
        small = attsvm.solve_svm(attsvm.cross_attention(low.reshape(n, T, p), Z), selected, norm)
        assert sol.margin == pytest.approx(small.margin, rel=1e-8)
    if norm == "nuclear":  # weights to begin with are changed along
        again = attsvm.solve_svm(data, selected, norm, warm_start=sol)
        assert again.status == "optimal" and again.iterations <= sol.iterations


@pytest.mark.parametrize("norm", NORMS)
def test_copies_leave(norm):
    """Queries with their windows twice, tokens twice within a window, as floats of either precision."""
    g = np.random.default_rng(3)
    X, Z = g.standard_normal((12, 9, 7)), g.standard_normal((12, 7))
    X[:, 8] = X[:, 1]
    data, twice = attsvm.cross_attention(X, Z), attsvm.cross_attention(np.repeat(X, 2, 0), np.repeat(Z, 2, 0))
    selected = np.where(g.random(12) < 0.5, 0, 2)
    once, sol = attsvm.solve_svm(data, selected, norm), attsvm.solve_svm(twice, np.repeat(selected, 2), norm)
    proved(twice, np.repeat(selected, 2), sol, norm)
    assert sol.margin == pytest.approx(once.margin, rel=2e-9)
    dual = np.asarray(sol.dual).reshape(12, 2, 9)
    assert not dual[:, 1].any() and not dual[:, 0, 8].any() and dual[:, 0].any()
    several = np.arange(9) == selected[:, None]
    several[:3, 5] = True
    kept = attsvm.solve_svm(twice, np.repeat(several, 2, 0), norm)
    proved(twice, np.repeat(several, 2, 0), kept, norm)
    dual = np.asarray(kept.dual).reshape(12, 2, 9)
    assert not dual[:, 1].any() and not dual[:, 0, 8].any() and dual[:3, 0, 5].all()
    soft = attsvm.solve_svm(twice, np.repeat(selected, 2), C=0.5)  # where a copy costs as much as what it copies
    assert soft.objective == pytest.approx(attsvm.solve_svm(data, selected, C=1.0).objective, rel=1e-8)
    assert np.asarray(soft.dual).reshape(12, 2, 9)[:, 1].any()


@pytest.mark.parametrize("norm", ["max", 1.5, 3.0])
def test_norms_of_entries_are_not_turned(norm):
    """480 rows on 4 of 12 dimensions; the copies of the second best have no multipliers, so that it is the reduced
    problem which was solved, not the whole one after it."""
    g, every = np.random.default_rng(4), np.arange(30)
    X = g.standard_normal((30, 16, 4)) @ g.standard_normal((4, 12))
    Z = g.standard_normal((30, 3)) @ g.standard_normal((3, 12))
    *_, second, best = np.argsort(attsvm.cross_attention(X, Z).logits(g.standard_normal((12, 12))), axis=1).T
    data = attsvm.cross_attention(np.concatenate([X, X[every, second][:, None]], axis=1), Z)
    sol = attsvm.solve_svm(data, best, norm)
    proved(data, best, sol, norm)
    assert not np.asarray(sol.dual)[:, 16].any() and np.asarray(sol.dual)[every, second].any()


@pytest.mark.parametrize("near", [1e-4, 1e-7])
def test_near_copies_are_no_copies(near):
    """Two queries that differ a little and prefer different tokens of one window: a margin of that size."""
    g = np.random.default_rng(1)
    window, z, e = g.standard_normal((2, 3)), g.standard_normal(16), g.standard_normal(16)
    data = attsvm.cross_attention(np.array([window, window]), np.array([z, z + near * e]))
    sol = attsvm.solve_svm(data, [0, 1])
    delta = np.linalg.norm(window[0] - window[1])
    apart = near * np.linalg.norm(e - z * (e @ z) / (z @ z))  # W = D (a z' + b e')
    assert sol.status == "optimal" and 0.3 < sol.margin / (delta * apart / 2) < 1.01


def test_different_margins_on_copies():
    """Copies that ask for more are rows of their own."""
    X, z = np.array([[[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]]), np.array([[1.0, 1.0]])
    sol = attsvm.solve_svm(attsvm.cross_attention(X, z), [0], margins=np.array([[0.0, 1.0, 2.0]]))
    assert sol.status == "optimal" and sol.margin == pytest.approx(np.sqrt(2) / 2, rel=1e-9)


@pytest.mark.parametrize("method", ["gradient", "block"])
def test_a_start_finds_its_rows_where_copies_have_left(method):
    """The copies come first: multipliers of the rows that stay are not the first ones of those given."""
    g = np.random.default_rng(0)
    X, Z, W = g.standard_normal((12, 6, 5)), g.standard_normal((12, 5)), g.standard_normal((5, 5))
    last = [logits.argmin() for logits in attsvm.cross_attention(X, Z).logits(W)]
    data = attsvm.cross_attention(np.concatenate([X[np.arange(12), last][:, None]] * 3 + [X], axis=1), Z)
    cold = attsvm.solve_svm(data, data.select(W), method=method)
    warm = attsvm.solve_svm(data, data.select(W), method=method, warm_start=cold)
    assert warm.iterations <= 2 < cold.iterations / 5 and warm.margin == pytest.approx(cold.margin, rel=1e-9)
