"""The SVM of rows that several workers hold, threads here: certified from the raw tokens of all."""

import attsvm
import numpy as np
import pytest
import reference
from network import Network

NORMS = ["frobenius", "nuclear", "max", "spectral", 1.5, 3.0]


def draw(seed, n, T, d, dz=None):
    rng = np.random.default_rng(seed)
    return rng, rng.standard_normal((n, T, d)), rng.standard_normal((n, dz or d))


def solve_apart(parts, selected, *options, **more):
    network = Network(len(parts))
    works = [
        lambda p=p, s=s: attsvm.solve_svm(p, s, *options, reduce=network.reduce, **more)
        for p, s in zip(parts, selected, strict=True)
    ]
    return network.run(works)


def check(whole, selected, parts, answers, norm, rel=3e-9):
    """One W for all, with bounds that the tokens and all multipliers together prove; those of one process."""
    alone = attsvm.solve_svm(whole, selected, norm)
    for sol in answers:
        assert sol.status == alone.status == "optimal"
        np.testing.assert_array_equal(sol.W, answers[0].W)
        assert (sol.margin, sol.margin_bound) == (answers[0].margin, answers[0].margin_bound)
        assert sol.gap <= 1e-9
        assert sol.margin == pytest.approx(alone.margin, rel=rel)
    dual = [row for part, sol in zip(parts, answers, strict=True) for row in reference.per_entry(part, sol.dual)]
    lower, upper = reference.certificate(whole, selected, answers[0].W, list(dual), norm)
    assert lower == pytest.approx(answers[0].margin, rel=1e-11)
    assert upper == pytest.approx(answers[0].margin_bound, rel=1e-11)
    return alone


@pytest.mark.parametrize("sizes", [(3, 3), (1, 5), (2, 2, 2), (6,)], ids=str)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("seed", range(3))
def test_shards_have_the_answer_of_the_whole(sizes, norm, seed):
    rng, X, Z = draw(seed, 6, 8, 10)
    whole, selected = attsvm.cross_attention(X, Z), rng.integers(0, 8, 6)
    cuts = np.split(np.arange(6), np.cumsum(sizes)[:-1])
    parts = [attsvm.cross_attention(X[c], Z[c]) for c in cuts]
    answers = solve_apart(parts, [selected[c] for c in cuts], norm)
    alone = check(whole, selected, parts, answers, norm)
    # One worker sees but its own multipliers, and whether W is the only one takes all of them.
    assert {sol.unique for sol in answers} == {True if norm == "frobenius" or norm in (1.5, 3.0) else None}
    if not alone.unique:
        return
    # A gap of 1e-9 leaves W to its square root, or the p-th root.
    np.testing.assert_allclose(answers[0].W, alone.W, rtol=0, atol=2e-3 * np.abs(alone.W).max())
    support = [row for sol in answers for row in np.atleast_2d(sol.support)]
    if norm == "frobenius":
        np.testing.assert_array_equal(support, alone.support)


def many_rows():
    """Of which few hold."""
    rng, X, Z = draw(1, 60, 12, 16)
    return attsvm.cross_attention, X, Z, attsvm.cross_attention(X, Z).select(rng.standard_normal((16, 16))), (20, 40)


def several_selected():
    """Equal logits among the kept tokens of each window, margins to the rest."""
    _, X, Z = draw(2, 6, 5, 12)
    kept = np.zeros((6, 5), dtype=bool)
    kept[:, 1] = kept[::2, 3] = True
    return attsvm.cross_attention, X, Z, kept, (2,)


def ragged_singles():
    rng = np.random.default_rng(3)
    X = [rng.standard_normal((T, 6)).astype(np.float32) for T in (3, 1, 5, 2, 7)]
    return attsvm.cross_attention, X, rng.standard_normal((5, 4)), [2, 0, 1, 1, 6], (2,)


def causal():
    rng, X, Z = draw(4, 3, 4, 9)
    return (
        lambda X, Z: attsvm.causal_attention(X),
        X,
        Z,
        attsvm.causal_attention(X).select(rng.standard_normal((9, 9))),
        (1,),
    )


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("make", [many_rows, several_selected, ragged_singles, causal])
def test_every_layout_has_the_answer_of_the_whole(make, norm):
    build, X, Z, selected, cuts = make()
    ends = [0, *cuts, len(Z)]
    pieces = [slice(*pair) for pair in zip(ends, ends[1:], strict=False)]
    parts = [build(X[piece], Z[piece]) for piece in pieces]
    answers = solve_apart(parts, [selected[piece] for piece in pieces], norm)
    check(build(X, Z), selected, parts, answers, norm)


def test_a_worker_without_rows_learns_the_answer():
    rng, X, Z = draw(5, 3, 4, 6)
    data, selected = attsvm.cross_attention(X, Z), [0, 1, 2]
    lonely = attsvm.cross_attention(rng.standard_normal((2, 1, 6)), rng.standard_normal((2, 6)))
    alone = attsvm.solve_svm(data, selected)
    for parts, choices in (([data, lonely], [selected, [0, 0]]), ([lonely, data], [[0, 0], selected])):
        for sol in solve_apart(parts, choices):
            assert sol.status == "optimal" and sol.margin == pytest.approx(alone.margin, rel=3e-9)
            np.testing.assert_allclose(sol.W, alone.W, atol=1e-12)
    for sol in solve_apart([lonely, lonely], [[0, 0], [0, 0]]):
        assert sol.status == "no constraint" and not sol.W.any()


@pytest.mark.parametrize("norm", NORMS)
def test_shards_that_contradict_each_other(norm):
    """The same window, each token selected once: both are separable, together they are not."""
    _, X, Z = draw(6, 1, 2, 3)
    data = attsvm.cross_attention(X, Z)
    answers = solve_apart([data, data], [[0], [1]], norm)
    whole = attsvm.cross_attention(np.concatenate([X, X]), np.concatenate([Z, Z]))
    assert [sol.status for sol in answers] == ["infeasible", "infeasible"]
    certificate = np.concatenate([sol.certificate for sol in answers])
    assert reference.farkas(whole, [0, 1], certificate) <= 1e-9
    assert attsvm.solve_svm(whole, [0, 1]).status == "infeasible"


def test_the_worker_that_holds_a_copy_names_it():
    _, X, Z = draw(7, 4, 5, 6)
    X[3, 2] = X[3, 4]
    parts = [attsvm.cross_attention(X[:2], Z[:2]), attsvm.cross_attention(X[2:], Z[2:])]
    first, second = solve_apart(parts, [[0, 0], [0, 4]])
    assert first.status == second.status == "infeasible"
    assert "query 1, token 2 equals the selected token 4" in second.message
    assert "equals" not in first.message


def test_a_limit_leaves_valid_bounds():
    rng, X, Z = draw(8, 20, 8, 12)
    whole = attsvm.cross_attention(X, Z)
    selected, cuts = whole.select(rng.standard_normal((12, 12))), np.array_split(np.arange(20), 2)
    best = attsvm.solve_svm(whole, selected)
    parts = [attsvm.cross_attention(X[c], Z[c]) for c in cuts]
    with pytest.warns(attsvm.ConvergenceWarning):
        answers = solve_apart(parts, [selected[c] for c in cuts], method="gradient", max_iter=3)
    for sol in answers:
        assert sol.status in ("iteration limit", "undecided")
        assert sol.margin <= best.margin_bound and sol.margin_bound >= best.margin


@pytest.mark.parametrize("options", [dict(tol=0.2), dict(tol=0.05), dict(method="gradient", max_iter=30)], ids=str)
@pytest.mark.filterwarnings("ignore::attsvm.ConvergenceWarning")
def test_rough_answers_hold_for_all_rows(options):
    """Rows outside the working set may fall a little short: W and its bound are those of all."""
    for seed in range(5):
        rng, X, Z = draw(seed, 40, 10, 14)
        whole = attsvm.cross_attention(X, Z)
        selected, cuts = whole.select(rng.standard_normal((14, 14))), np.array_split(np.arange(40), 2)
        answers = solve_apart(
            [attsvm.cross_attention(X[c], Z[c]) for c in cuts], [selected[c] for c in cuts], **options
        )
        dual = np.concatenate([sol.dual for sol in answers])
        lower, upper = reference.certificate(whole, selected, answers[0].W, dual, "frobenius")
        assert answers[0].margin == pytest.approx(lower, rel=1e-11)
        assert answers[0].margin_bound == pytest.approx(upper, rel=1e-11)
        if answers[0].W is not None and answers[0].margin > 0:
            rows = reference.svm_rows(whole, selected)
            assert reference.svm_apply(rows, answers[0].W).min() >= 1 - 1e-12


@pytest.mark.parametrize(
    "option", [dict(C=1.0), dict(margins=np.ones((4, 5))), dict(warm_start=np.ones((4, 5))), dict(progress=True)]
)
def test_what_does_not_go_with_shards_is_named(option):
    _, X, Z = draw(9, 4, 5, 6)
    with pytest.raises(ValueError, match=f"reduce goes without {next(iter(option))}"):
        attsvm.solve_svm(attsvm.cross_attention(X, Z), [0, 0, 0, 0], reduce=lambda a: None, **option)
    with pytest.raises(ValueError, match="reduce goes without rank"):
        attsvm.solve_svm(attsvm.cross_attention(X, Z), [0] * 4, "nuclear", rank=2, reduce=lambda a: None)


def test_workers_that_ask_for_different_norms_are_told():
    _, X, Z = draw(10, 4, 5, 6)
    data, network = attsvm.cross_attention(X, Z), Network(2)
    norms = ["frobenius", "nuclear"]
    for error in network.run([lambda n=n: attsvm.solve_svm(data, [0] * 4, n, reduce=network.reduce) for n in norms]):
        assert isinstance(error, ValueError) and "same settings" in str(error)


def all_workers(call):
    """What each of two threads, each a worker, raises."""
    network = Network(2)
    return network.run([lambda rank=rank: call(rank, network.reduce) for rank in range(2)])


WRONG = [dict(selected=x) for x in ([99] * 3, [0.5] * 3, [0, 0], "what")]
WRONG += [dict(data=None), dict(norm="nuc"), dict(tol=0), dict(method="fast"), dict(C=1.0), dict(max_iter=0.5)]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_what_one_worker_refuses_stops_all(wrong):
    X, Z, _, _ = attsvm.sample.unit_sphere(6, 8, 10)

    def call(rank, reduce):
        part = slice(3 * rank, 3 * rank + 3)
        options = dict(data=attsvm.cross_attention(X[part], Z[part]), selected=[0, 1, 2])
        attsvm.solve_svm(**options | (wrong if rank == 1 else {}), reduce=reduce)

    fine, own = all_workers(call)
    assert isinstance(own, (ValueError, TypeError)) and next(iter(wrong)) in str(own)
    assert isinstance(fine, RuntimeError) and str(own) in str(fine)
    assert "of 2 workers" in str(fine) and "failed, so all stop" in str(fine)


@pytest.mark.parametrize("other", ["loss", "head"])
def test_workers_of_another_loss_or_head_are_noticed(other):
    X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)

    def call(rank, reduce):
        part = slice(3 * rank, 3 * rank + 3)
        head = attsvm.LinearHead(v * (1 + rank * (other == "head")))
        loss = "linear" if rank and other == "loss" else "logistic"
        problem = attsvm.Problem(attsvm.cross_attention(X[part], Z[part]), y[part], head, loss)
        attsvm.train(problem, steps=5, reduce=reduce)

    assert all("the same start and the same settings" in str(error) for error in all_workers(call))
