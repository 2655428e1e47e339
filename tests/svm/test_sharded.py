"""The SVM of rows that several workers hold, threads here: certified from the raw tokens of all."""

import copy

import attsvm
import judge
import numpy as np
import pytest
from builders import paper
from compare import close
from network import Network
from numpy.testing import assert_allclose, assert_array_equal
from problems import Case

NORMS = ["frobenius", "nuclear", "max", "spectral", 1.5, 3.0]


def draw(seed, n, T, d):
    rng = np.random.default_rng(seed)
    return rng, rng.standard_normal((n, T, d)), rng.standard_normal((n, d))


def solve_apart(parts, selected, **options):
    each = [{"data": data, "selected": chosen} for data, chosen in zip(parts, selected, strict=True)]
    return Network(len(parts)).apart(attsvm.solve_svm, each, **options)


def random():
    rng, X, Z = draw(0, 6, 8, 10)
    return attsvm.cross_attention, X, Z, rng.integers(0, 8, 6)


def many_rows():
    """Of which few hold."""
    rng, X, Z = draw(1, 60, 12, 16)
    return attsvm.cross_attention, X, Z, attsvm.cross_attention(X, Z).select(rng.standard_normal((16, 16)))


def several_selected():
    """Equal logits among the kept tokens of each window, margins to the rest."""
    _, X, Z = draw(2, 6, 5, 12)
    kept = np.zeros((6, 5), dtype=bool)
    kept[:, 1] = kept[::2, 3] = True
    return attsvm.cross_attention, X, Z, kept


def ragged_singles():
    _, X, Z = draw(3, 5, 7, 6)
    X = [x[:T].astype(np.float32) for x, T in zip(X, (3, 1, 5, 2, 7), strict=True)]
    return attsvm.cross_attention, X, Z[:, :4], [2, 0, 1, 1, 6]


def causal():
    rng, X, Z = draw(4, 3, 4, 9)
    selected = attsvm.causal_attention(X).select(rng.standard_normal((9, 9)))
    return lambda X, Z: attsvm.causal_attention(X), X, Z, selected


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("make", "cuts"),
    [
        *((random, cuts) for cuts in ((3,), (1,), (2, 4), ())),
        *((make, (2,)) for make in (many_rows, several_selected, ragged_singles, causal)),
    ],
)
def test_shards_have_the_answer_of_the_whole(make, cuts, norm):
    """One W for all, with bounds that the tokens and all multipliers together prove; those of one process."""
    build, X, Z, selected = make()
    pieces = [slice(*pair) for pair in zip((0, *cuts), (*cuts, len(Z)), strict=True)]
    parts = [build(X[piece], Z[piece]) for piece in pieces]
    answers = solve_apart(parts, [selected[piece] for piece in pieces], norm=norm)
    whole, first = build(X, Z), answers[0]
    alone = attsvm.solve_svm(whole, selected, norm)
    for sol in answers:
        assert sol.status == alone.status == "optimal" and sol.gap <= 1e-9
        assert_array_equal(sol.W, first.W)
        assert (sol.margin, sol.margin_bound) == (first.margin, first.margin_bound)
    together = copy.copy(first)
    together.data, together.selection = whole, alone.selection
    together.answer = first.answer._replace(dual=np.concatenate([sol.flat_dual for sol in answers]))
    assert judge.wrong(Case(whole, selected), together) is None
    # One worker sees but its own multipliers, and whether W is the only one takes all of them.
    assert {sol.unique for sol in answers} == {True if norm in ("frobenius", 1.5, 3.0) else None}
    # A gap of 1e-9 leaves W to its square root, or the p-th root.
    if alone.unique:
        close(first.W, alone.W, 2e-3)
    if norm == "frobenius":
        assert_array_equal(np.concatenate([sol.flat_support for sol in answers]), alone.flat_support)


def test_a_worker_without_rows_learns_the_answer():
    rng, X, Z = draw(5, 3, 4, 6)
    data, selected = attsvm.cross_attention(X, Z), [0, 1, 2]
    lonely = attsvm.cross_attention(rng.standard_normal((2, 1, 6)), rng.standard_normal((2, 6)))
    alone = attsvm.solve_svm(data, selected)
    for parts, choices in (([data, lonely], [selected, [0, 0]]), ([lonely, data], [[0, 0], selected])):
        for sol in solve_apart(parts, choices):
            assert sol.status == "optimal" and sol.margin == pytest.approx(alone.margin, rel=3e-9)
            assert_allclose(sol.W, alone.W, atol=1e-12)
    for sol in solve_apart([lonely, lonely], [[0, 0], [0, 0]]):
        assert sol.status == "no constraint" and not sol.W.any()


@pytest.mark.parametrize("norm", NORMS)
def test_shards_that_contradict_each_other(norm):
    """The same window, each token selected once: both are separable, together they are not."""
    _, X, Z = draw(6, 1, 2, 3)
    data = attsvm.cross_attention(X, Z)
    one, other = solve_apart([data, data], [[0], [1]], norm=norm)
    assert one.status == other.status == "infeasible"
    whole = attsvm.cross_attention(np.concatenate([X, X]), np.concatenate([Z, Z]))
    assert judge.farkas(Case(whole, [0, 1]), np.concatenate([one.certificate, other.certificate])) <= 1e-9


def test_the_worker_that_holds_a_copy_names_it():
    _, X, Z = draw(7, 4, 5, 6)
    X[3, 2] = X[3, 4]
    first, second = solve_apart([attsvm.cross_attention(X[c], Z[c]) for c in ([0, 1], [2, 3])], [[0, 0], [0, 4]])
    assert first.status == second.status == "infeasible"
    assert "query 1, token 2 equals the selected token 4" in second.message
    assert "equals" not in first.message


@pytest.mark.parametrize("method", [{}, {"method": "gradient", "max_iter": 3}, {"method": "gradient", "max_iter": 30}])
@pytest.mark.parametrize("tol", [0.2, 0.05, 1e-9])
@pytest.mark.filterwarnings("ignore::attsvm.ConvergenceWarning")
def test_rough_answers_hold_for_all_rows(tol, method):
    """Rows outside the working set may fall a little short: W and its bound are those of all."""
    for seed in range(5):
        rng, X, Z = draw(seed, 40, 10, 14)
        whole = attsvm.cross_attention(X, Z)
        selected = whole.select(rng.standard_normal((14, 14)))
        parts = [attsvm.cross_attention(X[c], Z[c]) for c in (slice(20), slice(20, 40))]
        one, other = solve_apart(parts, [selected[:20], selected[20:]], tol=tol, **method)
        case = Case(whole, selected)
        bounds = judge.interval(case, one.W, np.concatenate([one.dual, other.dual]), "frobenius")
        assert (one.margin, one.margin_bound) == pytest.approx(bounds, rel=1e-11)
        if one.W is not None and one.margin > 0:
            assert judge.rows_of(case).apply(one.W).min() >= 1 - 1e-12


def test_workers_that_ask_for_different_norms_are_told():
    _, X, Z = draw(10, 4, 5, 6)
    each, data = [{"norm": norm} for norm in NORMS[:2]], attsvm.cross_attention(X, Z)
    for error in Network(2).apart(attsvm.solve_svm, each, data=data, selected=[0] * 4):
        assert isinstance(error, ValueError) and "same settings" in str(error)


WRONG = [dict(selected=x) for x in ([99] * 3, [0.5] * 3, [0, 0], "what")]
WRONG += [dict(data=None), dict(norm="nuc"), dict(tol=0), dict(method="fast"), dict(C=1.0), dict(max_iter=0.5)]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_what_one_worker_refuses_stops_all(wrong):
    data = paper().data
    each = [dict(data=data[part], selected=[0, 1, 2]) for part in (slice(3), slice(3, 6))]
    each[1] |= wrong
    fine, own = Network(2).apart(attsvm.solve_svm, each)
    assert isinstance(own, (ValueError, TypeError)) and next(iter(wrong)) in str(own)
    assert isinstance(fine, RuntimeError) and str(own) in str(fine)
    assert "of 2 workers" in str(fine) and "failed, so all stop" in str(fine)


@pytest.mark.parametrize("other", ["loss", "head"])
def test_workers_of_another_loss_or_head_are_noticed(other):
    s = paper()
    differs = attsvm.Problem(
        s.data, s.y, *((s.problem.head, "linear") if other == "loss" else (attsvm.LinearHead(-s.v),))
    )
    errors = Network(2).apart(attsvm.train, [{"problem": p} for p in (s.problem, differs)], steps=5)
    assert all("the same start and the same settings" in str(error) for error in errors)
