"""Presolve: problems that are smaller than they look cost what they are, and are certified as they were given."""

import attsvm
import judge
import numpy as np
import pytest
from problems import Case

NORMS = ["frobenius", "nuclear", "spectral", "max", 3.0]


def proved(data, selected, sol):
    return sol.status == "optimal" and judge.wrong(Case(data, selected), sol) is None


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
    assert judge.wrong(Case(data, selected), sol) is None


def test_weights_to_begin_with_are_turned_along():
    """Tokens and queries of few directions, whose coordinates are solved in."""
    g = np.random.default_rng(0)
    X, Z = g.standard_normal((30, 16, 5)) @ g.standard_normal((5, 24)) + 3.0, g.standard_normal((30, 3))
    data = attsvm.cross_attention(X, Z @ g.standard_normal((3, 24)))
    selected = data.select(g.standard_normal((24, 24)))
    sol = attsvm.solve_svm(data, selected, "nuclear")
    again = attsvm.solve_svm(data, selected, "nuclear", warm_start=sol)
    assert proved(data, selected, sol) and again.status == "optimal" and again.iterations <= 1 < sol.iterations


@pytest.mark.parametrize("norm", NORMS)
def test_copies_leave(norm):
    """Queries with their windows twice, tokens twice within a window."""
    g = np.random.default_rng(3)
    X, Z = g.standard_normal((12, 9, 7)), g.standard_normal((12, 7))
    X[:, 8] = X[:, 1]
    data = attsvm.cross_attention(np.repeat(X, 2, 0), np.repeat(Z, 2, 0))
    one = np.arange(9) == np.where(g.random(12) < 0.5, 0, 2)[:, None]
    for selected in (one, one | (np.arange(9) == 5) & (np.arange(12) < 3)[:, None]):
        twice = np.repeat(selected, 2, 0)
        sol = attsvm.solve_svm(data, twice, norm)
        dual = sol.dual.reshape(12, 2, 9)
        assert proved(data, twice, sol) and not dual[:, 1].any() and not dual[:, 0, 8].any() and dual[:, 0].any()
    assert dual[:3, 0, 5].all()
    soft = attsvm.solve_svm(data, twice, C=0.5)  # where a copy costs as much as what it copies
    assert soft.dual.reshape(12, 2, 9)[:, 1].any()


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
    assert proved(data, best, sol) and not sol.dual[:, 16].any() and sol.dual[every, second].any()


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
