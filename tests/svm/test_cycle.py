"""Tokens that equal queries prefer in a cycle: found before any solver runs, with a proof; and nothing else is."""

import attsvm
import judge
import numpy as np
import pytest
from attsvm.attention.selection import Selection
from attsvm.svm.cycle import cycle
from hypothesis import given
from hypothesis import strategies as st
from problems import Case, sphere


def vocabulary(seed, words, n, T, vectors, order=None):
    """Sequences of T different words of a vocabulary, queries out of a few vectors.  ``order``: select the word that
    comes first in it; None: any."""
    rng = np.random.default_rng(seed)
    E, Z = sphere(rng, words, 12), sphere(rng, vectors, 12)
    tokens = np.array([rng.permutation(words)[:T] for _ in range(n)])
    selected = rng.integers(0, T, n) if order is None else np.argsort(order)[tokens].argmin(axis=1)
    kind = rng.integers(0, vectors, n)
    return attsvm.cross_attention(E[tokens], Z[kind]), selected, tokens, kind


def has_cycle(selected, tokens, kind):
    """By taking away words that nothing is preferred to, one vector at a time."""
    for k in np.unique(kind):
        edges = {(t[a], x) for t, a in zip(tokens[kind == k], selected[kind == k], strict=True) for x in t if x != t[a]}
        while edges:
            tails = {tail for tail, _ in edges}
            fewer = {(tail, head) for tail, head in edges if head in tails}
            if fewer == edges:
                return True
            edges = fewer
    return False


@given(
    seed=st.integers(0, 10**6),
    words=st.integers(3, 12),
    n=st.integers(1, 12),
    T=st.integers(2, 3),
    vectors=st.integers(1, 4),
)
def test_finds_a_cycle_exactly_where_there_is_one(seed, words, n, T, vectors):
    data, selected, tokens, kind = vocabulary(seed, words, n, T, vectors)
    dual = cycle(data, Selection(data, selected))
    assert (dual is not None) == has_cycle(selected, tokens, kind)
    if dual is not None:
        assert judge.farkas(Case(data, selected), dual.reshape(n, T)) <= 1e-14
        assert set(dual) <= {0.0, 1.0}


@pytest.mark.parametrize("data_of", ["cross", "float32", "ragged", "self"])
def test_an_infeasible_answer_with_its_rows(data_of):
    rng = np.random.default_rng(0)
    E = 1.0 * rng.integers(-3, 4, (30, 8))
    words = np.array([rng.permutation(30)[:8] for _ in range(80)])
    if data_of == "self":
        words[:, 0] = 0  # every sequence begins with the same word, which is the query
    words = [row[: 5 + i % 4] if data_of == "ragged" else row for i, row in enumerate(words)]
    rank, X, Z = -E @ rng.standard_normal(8), [E[row] for row in words], np.tile(sphere(rng, 5), (80, 1))
    if data_of == "self":
        data = attsvm.self_attention(X)
    else:
        data = attsvm.cross_attention(np.float32(X) if data_of == "float32" else X, Z)
    best = np.array([rank[row].argmin() for row in words])
    assert data._rows > 400
    assert cycle(data, Selection(data, best)) is None  # an order has no cycle
    if data_of != "self":
        clean = attsvm.solve_svm(data, best)
        assert clean.status in ("optimal", "infeasible") and clean.iterations > 0
    worst = best.copy()
    worst[3] = rank[words[3]].argmax()
    sol = attsvm.solve_svm(data, worst)
    assert sol.status == "infeasible" and sol.iterations == 0 and sol.method == "presolve"
    assert judge.farkas(Case(data, worst), sol.certificate) <= 1e-14
    assert "these rows combine to zero: query " in sol.message
    assert attsvm.feasible(data, worst).status == "infeasible"
    assert attsvm.solve_svm(data, worst, C=1.0).status == "optimal"  # a soft margin has an answer


def test_longer_cycles_and_other_queries():
    """a over b, b over c, c over a of one query vector; the same of three vectors is no contradiction."""
    rng = np.random.default_rng(1)
    a, b, c = sphere(rng, 3, 6)
    X = np.array([[a, b], [b, c], [c, a]])
    z = sphere(rng, 6)
    data = attsvm.cross_attention(X, np.array([z, z, z]))
    found = cycle(data, Selection(data, [0, 0, 0]))
    assert np.flatnonzero(found).tolist() == [1, 3, 5]
    apart = attsvm.cross_attention(X, sphere(rng, 3, 6))
    assert cycle(apart, Selection(apart, [0, 0, 0])) is None
    with pytest.raises(ValueError, match="selected"):
        attsvm.solve_svm(attsvm.cross_attention(np.tile(X, (300, 1, 1)), np.tile(z, (900, 1))), np.full(900, 2))
