"""Warm starts: any start leaves the answer as it is, a good one saves work.  And progress, and what Ctrl-C keeps."""

import re
import sys

import attsvm
import judge
import numpy as np
import pytest
from kinds import draw
from long_solves import LONG
from numpy.testing import assert_array_equal
from problems import CASES, Case, ball, planted_margin, several_kept, sphere

METHODS = [("frobenius", method) for method in ("active", "block", "gradient", "interior")]
METHODS += [
    ("nuclear", "interior"),
    ("nuclear", "factored"),
    *((norm, "interior") for norm in ("max", "spectral", 3.0)),
]
pytestmark = pytest.mark.filterwarnings("ignore::attsvm.ConvergenceWarning")
NAMES = ["paper_size", "overloaded", "barely_feasible_1e-5", "infeasible_random", "duplicate_token_kept"]
NAMES += ["near_duplicate_1e-8", "correlated", "redundant_equalities", "causal_ragged", "several_queries", "prompt"]
DRAWN = ["spread norms", "scales", "contradictory equalities", "one-token windows", "ragged"]


def starts(case, sol):
    """By name: the answer itself, one of another norm, and multipliers that mean nothing."""
    rng = np.random.default_rng(0)
    flat = np.zeros(case.data.indptr[-1])
    shaped = case.data._layout.shape_entries
    yield "itself", sol
    yield (
        "another norm",
        attsvm.solve_svm(case.data, case.selected, "nuclear" if sol.norm == "frobenius" else "frobenius"),
    )
    yield "zero", shaped(flat, 0.0)
    yield "negative", shaped(flat - 1, 0.0)
    yield "random", shaped(rng.standard_normal(len(flat)), 0.0)
    yield "extreme", shaped(10.0 ** rng.uniform(-300, 300, len(flat)), 0.0)


@pytest.mark.parametrize(("norm", "method"), METHODS[:-1])
@pytest.mark.parametrize("name", [*NAMES, *DRAWN])
def test_no_start_changes_the_answer(name, norm, method):
    case = draw(name, 0) if name in DRAWN else CASES[name]()
    cold = attsvm.solve_svm(case.data, case.selected, norm, method=method)
    for kind, start in starts(case, cold):
        if method == "gradient" and kind != "itself" and case.hard:
            continue  # takes its 20,000 steps each time
        sol = attsvm.solve_svm(case.data, case.selected, norm, method=method, warm_start=start)
        assert (why := judge.wrong(case, sol)) is None, f"{kind}: {why}"
        if method != "gradient" and cold.status in judge.SETTLED:  # a plain method: its start may help it over, or not
            assert sol.status == cold.status, kind


def test_a_start_that_leads_nowhere_ends_no_worse_than_none():
    """Multipliers off by 1e-5 to 1 of themselves, where next to no margin lets block ascent give up from some."""
    case, rng = CASES["barely_feasible_1e-5"](), np.random.default_rng(0)
    cold = attsvm.solve_svm(case.data, case.selected, method="block")
    assert cold.status == "optimal"
    for scale in 10.0 ** np.linspace(-5, 0, 21):
        start = cold.dual * np.exp(scale * rng.standard_normal(cold.dual.shape))
        sol = attsvm.solve_svm(case.data, case.selected, method="block", warm_start=start)
        assert judge.wrong(case, sol) is None and sol.status == "optimal", scale


@pytest.mark.parametrize(("norm", "method"), METHODS)
def test_near_problems(norm, method):
    """Another selection, moved data, another tolerance, an entrywise norm nearby: all settled, and to the same."""
    rng = np.random.default_rng(1)
    X, Z = sphere(rng, 8, 6, 12), sphere(rng, 8, 12)
    data, selected = attsvm.cross_attention(X, Z), rng.integers(0, 6, 8)
    sol = attsvm.solve_svm(data, selected, norm, method=method, tol=1e-5)
    other = np.where(np.arange(8) == 3, (selected + 1) % 6, selected)
    moved = attsvm.cross_attention(X + 1e-3 * rng.standard_normal(X.shape), Z)
    kept = (np.arange(6) == selected[:, None]) | (np.arange(6) == (selected[:, None] + 2) % 6)
    for near, chosen in ((data, selected), (data, other), (moved, selected), (data, kept)):
        warm = attsvm.solve_svm(near, chosen, norm, method=method, warm_start=sol)
        assert warm.status == "optimal" and judge.wrong(Case(near, chosen), warm) is None


@pytest.mark.parametrize(
    ("options", "most"),
    # Steps from the answer itself: none, or those that find that out.  Block ascent restarts where the equalities of
    # several tokens are met to rounding only, and needs then what it needs from nothing.
    [
        *(({"method": method}, most) for method, most in (("gradient", 2), ("active", 1), ("block", 3))),
        ({"norm": "nuclear", "method": "factored"}, 1),
        ({"C": 10.0, "method": "block"}, 3),
        ({"C": 10.0, "method": "interior"}, 10),
    ],
    ids=str,
)
@pytest.mark.parametrize("make", [lambda: ball(0, 16, 12, 24), several_kept], ids=["one_token", "several"])
def test_the_answer_itself_saves_the_work(make, options, most):
    case = make()
    cold = attsvm.solve_svm(case.data, case.selected, **options)
    warm = attsvm.solve_svm(case.data, case.selected, **options, warm_start=cold)
    assert warm.status == "optimal" and warm.iterations <= min(most, cold.iterations)
    assert judge.wrong(case, warm) is None


def test_start_with_the_same_multipliers_as_an_array_or_a_list():
    for name in ("paper_size", "ragged", "causal_ragged", "several_queries"):
        case = CASES[name]()
        cold = attsvm.solve_svm(case.data, case.selected)
        one = attsvm.solve_svm(case.data, case.selected, warm_start=cold)
        other = attsvm.solve_svm(case.data, case.selected, warm_start=cold.dual)
        assert_array_equal(one.W, other.W)


def test_rank_cap_takes_a_start():
    case = ball(0, 6, 8, 10)
    best = attsvm.solve_svm(case.data, case.selected, "nuclear")
    cold = attsvm.solve_svm(case.data, case.selected, "nuclear", rank=best.rank - 1)
    warm = attsvm.solve_svm(case.data, case.selected, "nuclear", rank=best.rank - 1, warm_start=best)
    assert warm.status == cold.status == "stationary"
    assert warm.margin == pytest.approx(cold.margin, rel=1e-4)


# ------------------------------------------------------------------------------------- long runs


REPORTING = [
    "active set",
    "block ascent",
    "projected gradient",
    "interior point on rows",
    "soft margin by block ascent",
]
REPORTING += ["nuclear norm", "nuclear norm in factors", "rank cap", "rows of the entrywise norm"]


class _Enough(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("name", REPORTING)
def test_progress_is_reported(name, monkeypatch):
    """Iterations rise, the gap (once there is one) is that of bounds; a report that raises ends the run."""
    reports = []

    class Watch:
        def __init__(self, tol, progress):
            assert tol == 1e-15

        def __enter__(self):
            return self.report

        def __exit__(self, *raised):
            return False

        def report(self, iterations, gap):
            reports.append((iterations, gap))
            if len(reports) == 2:
                raise _Enough

    monkeypatch.setattr(attsvm.svm.solve, "closing_gap", Watch)
    with pytest.raises(_Enough) as stopped:
        make, options = LONG[name]
        case = make()
        attsvm.solve_svm(case.data, case.selected, **options | {"tol": 1e-15}, progress=True)
    assert stopped.value.partial.status == "interrupted"
    assert len(reports) == 2
    assert all(isinstance(k, int) and k >= 0 and gap >= -1e-12 for k, gap in reports)
    if not re.search("interior|rank|entrywise|norm$", name):  # which spend the time of one iteration, or begin anew
        assert reports[-1][0] > 0


def test_a_bar_where_tqdm_is(monkeypatch, capsys):
    pytest.importorskip("tqdm")
    case = planted_margin(0, 40, 40, 24, 1e-6)
    options = {"method": "gradient", "max_iter": 6000}
    plain = attsvm.solve_svm(case.data, case.selected, **options)
    shown = attsvm.solve_svm(case.data, case.selected, **options, progress=True)
    assert_array_equal(plain.W, shown.W)
    assert attsvm.solve_svm(ball(0, 6, 8, 10).data, [0] * 6, progress=True).status == "optimal"
    out, err = capsys.readouterr()
    assert out == "" and all(word in err for word in ("solve_svm", "digits", "iteration", "100%"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)  # as where it is not installed
    attsvm.solve_svm(case.data, case.selected, **options, progress=True)
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("solve_svm: iteration ") and "digits" not in err
