"""Margins of each row's own, of any sign: every answer proved from the raw tokens, by CVXPY, and by what must hold."""

from __future__ import annotations

import warnings

import attsvm
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from problems import ball, random_problem, several_kept, sphere

NORMS = ["frobenius", "nuclear", 3.0]
KINDS = ["mixed", "spread", "zeros", "signs", "planted", "contradicting"]


def norms(W, norm):
    """The norm and its dual norm."""
    if isinstance(norm, str):
        return reference.matrix_norms(W, norm)
    return [(np.abs(W) ** p).sum() ** (1 / p) for p in (norm, norm / (norm - 1))]


def rows_of(data, selected, margins):
    """Rows as (delta, z, is_equality, b)."""
    asked = reference.per_entry(data, margins)
    return [(delta, z, equal, asked[q][t]) for q, t, delta, z, equal in reference.svm_rows(data, selected)]


def problem(seed, kind):
    """A random problem of any kind of data with random margins: as they come, or met by some weights."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    case = random_problem(seed)
    data = case.data
    kept = np.concatenate(reference.selected_tokens(data, case.selected))
    entries = len(kept)
    if kind == "mixed":
        flat = np.where(kept, 0.0, rng.uniform(-0.5, 2.0, entries))
    elif kind == "spread":
        flat = np.where(kept, 0.0, np.exp(rng.standard_normal(entries)))
    elif kind == "zeros":
        flat = np.where(kept, 0.0, rng.random(entries) < 0.5)
    elif kind == "signs":
        flat = rng.standard_normal(entries)
    else:
        W = rng.standard_normal((data.dk, data.dz))
        logits = [X @ (W @ z) for X, z in zip(reference.windows(data), data.queries, strict=True)]
        first = map(np.argmax, reference.selected_tokens(data, case.selected))
        met = np.concatenate([logit[a] - logit for a, logit in zip(first, logits, strict=True)])
        flat = np.where(kept, met, met - np.abs(rng.standard_normal(entries)) * (rng.random(entries) < 0.7))
        if kind == "contradicting":
            flat += rng.random(entries) < 0.1
    return data, case.selected, data.layout.shape_entries(flat, 0.0)


def prove(data, selected, margins, sol, norm):
    """Whatever the answer claims, recomputed with explicit differences."""
    rows = rows_of(data, selected, margins)
    b = np.array([row[3] for row in rows])
    equal = np.array([row[2] for row in rows], dtype=bool)
    plain = [(0, 0, delta, z, equality) for delta, z, equality, _ in rows]
    lengths = np.array([np.linalg.norm(delta) * np.linalg.norm(z) for delta, z, *_ in rows])
    weights = reference.svm_multipliers(
        data, reference.svm_rows(data, selected), sol.certificate if sol.status == "infeasible" else sol.dual
    )
    assert (weights[~equal] >= 0).all()
    M = reference.svm_adjoint(plain, weights, (data.dk, data.dz))
    if sol.status == "no constraint":
        assert not sol.W.any() and (b[~equal] <= 0).all() and (b[equal] == 0).all()
    elif sol.status == "infeasible":
        # b.lambda > 0 while the rows combine to zero: no W, however large, reaches them.
        assert b @ weights > 0
        assert np.linalg.norm(M) <= 1e-9 * max(np.abs(b * weights) @ lengths, lengths.max() * (b @ weights)) * 1.001
    else:
        assert sol.status == "optimal"
        noise = 1e-12 * lengths * np.linalg.norm(sol.W)
        left = reference.svm_apply(plain, sol.W)
        assert (left >= b - 1e-9 * np.abs(b) - noise)[~equal].all()
        assert (np.abs(left - b) <= 1e-9 * np.abs(b) + noise)[equal].all()
        least = (b @ weights) / norms(M, norm)[1]
        size = norms(sol.W, norm)[0]
        allowed = max(1e-9, 100 * np.finfo(float).eps * lengths.max() * size / np.abs(b).max())
        assert size <= least * (1 + 1.2 * allowed)
        assert 1 / sol.margin == pytest.approx(size, rel=1e-10) and sol.margin_bound == pytest.approx(
            1 / least, rel=1e-9
        )


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_is_proved(kind, norm):
    open_ends = 0
    met = set()
    for seed in range(25):
        data, selected, margins = problem(seed, kind)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", attsvm.ConvergenceWarning)
            sol = attsvm.solve_svm(data, selected, norm, margins=margins)
        met.add(sol.status)
        if sol.status in ("undecided", "iteration limit"):
            open_ends += 1
            continue
        prove(data, selected, margins, sol, norm)
    assert "optimal" in met and open_ends <= 1  # margins of the size of rounding are among these problems


@pytest.mark.parametrize("method", ["active", "block", "interior"])
@pytest.mark.parametrize("selected", ["one", "several"])
def test_methods_agree(method, selected):
    """Rows that some weights meet, equalities with b != 0 among them; "block" may end "undecided" on these."""
    n, T, d = 30, 12, 16
    undecided = 0
    for seed in range(5, 11):
        rng = np.random.default_rng(seed)
        data = attsvm.cross_attention(sphere(rng, n, T, d), sphere(rng, n, d))
        logits = data.logits(rng.standard_normal((d, d)))
        kept = rng.random((n, T)) < (0.15 if selected == "several" else 0.0)
        kept[range(n), rng.integers(0, T, n)] = True
        left = logits[range(n), kept.argmax(axis=1)][:, None] - logits
        margins = np.where(kept, left, left - np.abs(rng.standard_normal((n, T))))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", attsvm.ConvergenceWarning)
            sol = attsvm.solve_svm(data, kept, margins=margins, method=method)
        if sol.status == "undecided":
            undecided += 1
            continue
        prove(data, kept, margins, sol, "frobenius")
        warm = attsvm.solve_svm(data, kept, margins=margins * 1.01, warm_start=sol)
        assert warm.margin == pytest.approx(sol.margin / 1.01, rel=3e-9)
    assert undecided <= (1 if method == "block" else 0)


@pytest.mark.peer
@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_cvxpy(kind, norm):
    cvxpy = pytest.importorskip("cvxpy")
    for seed in range(8):
        data, selected, margins = problem(seed, kind)
        rows = rows_of(data, selected, margins)
        W = cvxpy.Variable((data.dk, data.dz))
        size = cvxpy.norm(W, "fro") if norm == "frobenius" else cvxpy.normNuc(W)
        constraints = []
        for delta, z, equal, b in rows:
            left = cvxpy.sum(cvxpy.multiply(np.outer(delta, z), W))
            constraints.append(left == b if equal else left >= b)
        peer = cvxpy.Problem(cvxpy.Minimize(size), constraints)
        peer.solve(solver="CLARABEL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", attsvm.ConvergenceWarning)
            sol = attsvm.solve_svm(data, selected, norm, margins=margins)
        if sol.status == "infeasible":
            # Where rows all but contradict each other its tolerance of 1e-8 lets it end with huge weights.
            assert peer.status.startswith("infeasible") or peer.value > 1e4, (seed, peer.status, peer.value)
        elif sol.status == "no constraint":
            assert peer.value == pytest.approx(0.0, abs=1e-6)
        elif sol.status == "optimal" and sol.margin > 1e-4:  # its own accuracy
            assert peer.value == pytest.approx(1 / sol.margin, rel=1e-5, abs=1e-6), seed


@pytest.mark.peer
def test_soft_margin_agrees_with_cvxpy():
    cvxpy = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(3)
    data, selected = ball(11, 15, 8, 3).data, rng.integers(0, 8, 15)
    margins, C = rng.uniform(-0.5, 2.0, (15, 8)), 3.0
    sol = attsvm.solve_svm(data, selected, C=C, margins=margins)
    W = cvxpy.Variable((3, 3))
    missing = [
        cvxpy.pos(b - cvxpy.sum(cvxpy.multiply(np.outer(delta, z), W)))
        for delta, z, _, b in rows_of(data, selected, margins)
    ]
    peer = cvxpy.Problem(cvxpy.Minimize(0.5 * cvxpy.sum_squares(W) + C * cvxpy.sum_squares(cvxpy.hstack(missing))))
    peer.solve(solver="CLARABEL")
    assert sol.status == "optimal" and sol.objective == pytest.approx(peer.value, rel=1e-6)


# ------------------------------------------------------------------------------------- what must hold


@pytest.mark.parametrize("norm", NORMS)
@given(seed=st.integers(0, 50), factor=st.floats(1e-100, 1e100))
def test_margins_scale_the_answer(norm, seed, factor):
    case = ball(seed, 4, 5, 6)
    one = attsvm.solve_svm(case.data, case.selected, norm)
    other = attsvm.solve_svm(case.data, case.selected, norm, margins=np.full((4, 5), factor))
    assert other.status == one.status == "optimal"
    assert other.margin * factor == pytest.approx(one.margin, rel=2e-9)
    np.testing.assert_allclose(other.W / factor, one.W, atol=1e-3 * np.abs(one.W).max())
    if norm == "frobenius":
        np.testing.assert_allclose(np.array(other.dual) / factor, one.dual, atol=1e-4 * np.max(one.dual))


@pytest.mark.parametrize("norm", NORMS)
@given(seed=st.integers(0, 50), row=st.integers(0, 19), more=st.floats(0.0, 3.0))
def test_asking_more_never_costs_less(norm, seed, row, more):
    case = ball(seed, 4, 5, 6)
    margins = np.random.default_rng(seed).uniform(-1, 1, (4, 5))
    less = attsvm.solve_svm(case.data, case.selected, norm, margins=margins)
    margins.flat[row] += more
    larger = attsvm.solve_svm(case.data, case.selected, norm, margins=margins)
    assert norms(larger.W, norm)[0] >= norms(less.W, norm)[0] * (1 - 2e-9)


@given(seed=st.integers(0, 200))
def test_weights_that_reach_the_margins_are_not_smaller(seed):
    rng = np.random.default_rng(seed)
    case = ball(seed, 4, 5, 6)
    W = rng.standard_normal((6, 6))
    logits = case.data.logits(W)
    margins = logits[range(4), case.selected][:, None] - logits - rng.uniform(0, 1, (4, 5))
    sol = attsvm.solve_svm(case.data, case.selected, margins=margins)
    assert sol.status in ("optimal", "no constraint")
    assert np.linalg.norm(sol.W) <= np.linalg.norm(W) * (1 + 2e-9)


@pytest.mark.parametrize("seed", [13, 16, 17, 22])
def test_weights_of_rounding_alone_are_none(seed):
    """Weights of norm 1e13 seem to reach these margins; multipliers combine the rows to zero."""
    rng = np.random.default_rng(seed)
    X, Z = 5 * rng.standard_normal(5) + rng.standard_normal((16, 11, 5)), rng.standard_normal((16, 11))
    selected = np.zeros((16, 11), dtype=bool)
    selected[np.arange(16), rng.integers(0, 11, 16)] = True
    selected[::3, 0] = True
    margins = 0.6 + 0.5 * rng.standard_normal((16, 11))
    data = attsvm.cross_attention(X, Z)
    for method in ("active", "interior"):
        sol = attsvm.solve_svm(data, selected, margins=margins, method=method)
        assert sol.status == "infeasible", method
        prove(data, selected, margins, sol, "frobenius")


def test_nothing_positive_is_no_constraint():
    case = ball(0, 6, 8, 10)
    for norm in NORMS:
        sol = attsvm.solve_svm(case.data, case.selected, norm, margins=-np.ones((6, 8)))
        assert sol.status == "no constraint" and not sol.W.any() and "zero weights" in sol.message


def test_the_relaxed_prompt_of_the_precursor():
    """A sample that does not hold the label SVM need only not fall behind: p = (1, 0) instead of (1.25, 0.25)."""
    data = attsvm.prompt_attention([[[1.0, 1.0], [0.0, 0.0]], [[1.0, -1.0], [0.0, 0.0]], [[0.5, 1.5], [0.0, 0.0]]])
    full = attsvm.solve_svm(data, [0, 0, 0])
    relaxed = attsvm.solve_svm(data, [0, 0, 0], margins=[[1, 1], [1, 1], [0, 0]])
    np.testing.assert_allclose(full.W.ravel(), [1.25, 0.25], atol=1e-12)
    np.testing.assert_allclose(relaxed.W.ravel(), [1.0, 0.0], atol=1e-12)


def test_equal_logits_may_be_set_apart():
    """Between two selected tokens the margin is met exactly, whatever its sign."""
    case = several_kept()
    margins = np.ones((5, 6))
    margins[:, 4] = [-2.0, -0.5, 0.0, 0.5, 2.0]
    for norm in NORMS:
        sol = attsvm.solve_svm(case.data, case.selected, norm, margins=margins)
        logits = case.data.logits(sol.W)
        np.testing.assert_allclose(logits[:, 1] - logits[:, 4], margins[:, 4], atol=1e-9)
        assert (logits[:, [1]] - logits >= 1 - 1e-9)[:, [0, 2, 3, 5]].all()


def test_what_is_not_read():
    """The selected token's own margin, and what a causal query cannot see."""
    case = ball(1, 6, 8, 10)
    margins = np.ones((6, 8))
    one = attsvm.solve_svm(case.data, case.selected, margins=margins)
    margins[range(6), case.selected] = 1e9
    np.testing.assert_array_equal(attsvm.solve_svm(case.data, case.selected, margins=margins).W, one.W)
    np.testing.assert_array_equal(attsvm.solve_svm(case.data, case.selected).W, one.W)
    causal = attsvm.causal_attention(sphere(np.random.default_rng(0), 2, 4, 6))
    selected = causal.select(np.eye(6))
    np.testing.assert_array_equal(
        attsvm.solve_svm(causal, selected, margins=np.ones((2, 4, 4))).W, attsvm.solve_svm(causal, selected).W
    )
