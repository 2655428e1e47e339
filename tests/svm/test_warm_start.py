"""Warm starts: any start leaves the answer as it is, a good one saves work.  And progress, and what Ctrl-C keeps."""

from __future__ import annotations

import sys
import warnings

import attsvm
import judge
import numpy as np
import pytest
from problems import CASES, ball, planted_margin, several_kept, sphere

METHODS = [("frobenius", "active"), ("frobenius", "block"), ("frobenius", "gradient"), ("frobenius", "interior")]
METHODS += [("nuclear", "interior"), ("nuclear", "factored"), (3.0, "interior")]
NAMES = ["paper_size", "overloaded", "barely_feasible_1e-5", "infeasible_random", "duplicate_token_kept"]
NAMES += ["near_duplicate_1e-8", "spread_norms", "huge_tokens", "tiny_tokens", "correlated", "redundant_equalities"]
NAMES += ["contradicting_equalities", "all_tokens_selected", "causal_ragged", "ragged_equalities", "several_queries"]
NAMES += ["prompt"]


def solve(data, selected, norm="frobenius", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", attsvm.ConvergenceWarning)
        return attsvm.solve_svm(data, selected, norm, **options)


def starts(case, sol):
    """By name: the answer itself, one of another norm, and multipliers that mean nothing."""
    rng = np.random.default_rng(0)
    flat = np.zeros(case.data.indptr[-1])
    shaped = case.data._layout.shape_entries
    yield "itself", sol
    yield "another norm", solve(case.data, case.selected, "nuclear" if sol.norm == "frobenius" else "frobenius")
    yield "zero", shaped(flat, 0.0)
    yield "negative", shaped(flat - 1, 0.0)
    yield "random", shaped(rng.standard_normal(len(flat)), 0.0)
    yield "extreme", shaped(10.0 ** rng.uniform(-300, 300, len(flat)), 0.0)


@pytest.mark.parametrize(("norm", "method"), METHODS[:-1])
@pytest.mark.parametrize("name", NAMES)
def test_no_start_changes_the_answer(name, norm, method):
    case = CASES[name]()
    cold = solve(case.data, case.selected, norm, method=method)
    for kind, start in starts(case, cold):
        if method == "gradient" and kind != "itself" and case.hard:
            continue  # takes its 20,000 steps each time
        sol = solve(case.data, case.selected, norm, method=method, warm_start=start)
        assert (why := judge.wrong(case, sol)) is None, f"{kind}: {why}"
        settled = ("optimal", "infeasible", "no constraint")
        if method == "gradient" or cold.status not in settled:  # a plain method: its start may help it over, or not
            assert sol.status in (cold.status, "iteration limit", "undecided", *settled), kind
        else:
            assert sol.status == cold.status, kind
        if sol.status == cold.status == "optimal":
            assert sol.margin == pytest.approx(cold.margin, rel=2e-9 + 1e-14 / cold.margin)


def test_a_start_that_leads_nowhere_ends_no_worse_than_none():
    """Multipliers off by 1e-5 to 1 of themselves, where next to no margin lets block ascent give up from some."""
    case, rng = CASES["barely_feasible_1e-5"](), np.random.default_rng(0)
    cold = solve(case.data, case.selected, method="block")
    assert cold.status == "optimal"
    for scale in 10.0 ** np.linspace(-5, 0, 21):
        start = cold.dual * np.exp(scale * rng.standard_normal(cold.dual.shape))
        sol = solve(case.data, case.selected, method="block", warm_start=start)
        assert judge.wrong(case, sol) is None and sol.status == "optimal", scale


@pytest.mark.parametrize(("norm", "method"), METHODS)
def test_near_problems(norm, method):
    """Another selection, moved data, another tolerance, an entrywise norm nearby: all settled, and to the same."""
    rng = np.random.default_rng(1)
    X, Z = sphere(rng, 8, 6, 12), sphere(rng, 8, 12)
    data, selected = attsvm.cross_attention(X, Z), rng.integers(0, 6, 8)
    sol = solve(data, selected, norm, method=method, tol=1e-5)
    other = np.where(np.arange(8) == 3, (selected + 1) % 6, selected)
    moved = attsvm.cross_attention(X + 1e-3 * rng.standard_normal(X.shape), Z)
    kept = (np.arange(6) == selected[:, None]) | (np.arange(6) == (selected[:, None] + 2) % 6)
    for near, chosen in ((data, selected), (data, other), (moved, selected), (data, kept)):
        warm = attsvm.solve_svm(near, chosen, norm, method=method, warm_start=sol)
        cold = attsvm.solve_svm(near, chosen, norm, method=method)
        assert warm.status == cold.status == "optimal"
        assert warm.margin == pytest.approx(cold.margin, rel=2e-9)
        apart = np.linalg.norm(warm.W - cold.W)
        assert apart <= 1e-3 * np.linalg.norm(cold.W)  # a gap of 1e-9 fixes W to 1e-4 of itself, or so


@pytest.mark.parametrize(
    ("norm", "method", "most"),
    # Steps from the answer itself: none, or those that find that out.  Block ascent restarts where the equalities of
    # several tokens are met to rounding only, and needs then what it needs from nothing.
    [("frobenius", "gradient", 2), ("frobenius", "active", 1), ("frobenius", "block", 3), ("nuclear", "factored", 1)],
)
@pytest.mark.parametrize("make", [lambda: ball(0, 16, 12, 24), several_kept], ids=["one_token", "several"])
def test_the_answer_itself_saves_the_work(make, norm, method, most):
    case = make()
    cold = solve(case.data, case.selected, norm, method=method)
    warm = solve(case.data, case.selected, norm, method=method, warm_start=cold)
    assert warm.status == "optimal" and warm.iterations <= min(most, cold.iterations)


def test_path_over_the_soft_margin():
    case = ball(3, 14, 8, 5)
    sol = None
    for C in 10.0 ** np.arange(-1.0, 4.0):
        sol = solve(case.data, case.selected, C=C, warm_start=sol)
        cold = solve(case.data, case.selected, C=C)
        assert sol.status == cold.status == "optimal"
        assert sol.objective == pytest.approx(cold.objective, rel=2e-9)


def test_start_with_the_same_multipliers_as_an_array_or_a_list():
    for name in ("paper_size", "ragged", "causal_ragged", "several_queries"):
        case = CASES[name]()
        cold = solve(case.data, case.selected)
        one = solve(case.data, case.selected, warm_start=cold)
        other = solve(case.data, case.selected, warm_start=cold.dual)
        np.testing.assert_array_equal(one.W, other.W)


def test_rank_cap_takes_a_start():
    case = ball(0, 6, 8, 10)
    best = solve(case.data, case.selected, "nuclear")
    cold = solve(case.data, case.selected, "nuclear", rank=best.rank - 1)
    warm = solve(case.data, case.selected, "nuclear", rank=best.rank - 1, warm_start=best)
    assert warm.status == cold.status == "stationary"
    assert warm.margin == pytest.approx(cold.margin, rel=1e-4)


@pytest.mark.parametrize(
    ("start", "error"),
    [
        pytest.param("cold", TypeError, id="words"),
        pytest.param(3.0, ValueError, id="number"),
        pytest.param(np.ones((6, 7)), ValueError, id="shape"),
        pytest.param(np.ones(48), ValueError, id="flat"),
        pytest.param(np.full((6, 8), np.nan), ValueError, id="nan"),
        pytest.param(np.full((6, 8), 1j), TypeError, id="complex"),
        pytest.param(object(), TypeError, id="object"),
        pytest.param({"dual": 1}, TypeError, id="dict"),
        pytest.param([[1.0], [1.0, 2.0]], ValueError, id="ragged"),
    ],
)
def test_errors_name_warm_start(start, error):
    case = ball(0, 6, 8, 10)
    with pytest.raises(error, match="warm_start"):
        attsvm.solve_svm(case.data, case.selected, warm_start=start)


def test_an_answer_on_other_data_is_refused():
    one, other = ball(0, 6, 8, 10), ball(0, 6, 7, 10)
    with pytest.raises(ValueError, match="warm_start.*48, got 42"):
        attsvm.solve_svm(one.data, one.selected, warm_start=solve(other.data, other.selected))


# ------------------------------------------------------------------------------------- long runs


LONG = {
    ("frobenius", "active"): (lambda: planted_margin(0, 60, 40, 40, 1e-6), {}),
    ("frobenius", "block"): (lambda: ball(0, 900, 64, 64), {}),
    ("frobenius", "gradient"): (lambda: planted_margin(0, 40, 40, 24, 1e-6), {"max_iter": 10**9}),
    ("frobenius", "interior"): (lambda: ball(0, 400, 48, 64), {}),
    ("frobenius", "soft"): (lambda: ball(0, 900, 64, 64), {"method": "block", "C": 100.0}),
    ("nuclear", "interior"): (lambda: ball(0, 128, 24, 48), {}),
    ("nuclear", "factored"): (lambda: ball(0, 300, 40, 96), {}),
    ("nuclear", "capped"): (lambda: ball(0, 128, 24, 48), {"method": "factored", "rank": 3}),
    (3.0, "interior"): (lambda: ball(0, 400, 48, 64), {}),
}


def long_run(norm, method, **more):
    """A problem that keeps the method busy for longer than a test, and the call."""
    make, options = LONG[norm, method]
    case, options = make(), {"method": method, "tol": 1e-15, **options, **more}
    return case, lambda: attsvm.solve_svm(case.data, case.selected, norm, **options)


class _Enough(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "method"), LONG)
def test_progress_is_reported(norm, method, monkeypatch):
    """Iterations rise, the gap (once there is one) is that of bounds; a report that raises ends the run."""
    reports = []

    class Watch:
        def __init__(self, tol):
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
        long_run(norm, method, progress=True)[1]()
    assert stopped.value.partial.status == "interrupted"
    assert len(reports) == 2
    assert all(isinstance(k, int) and k >= 0 and gap >= -1e-12 for k, gap in reports)
    if norm != 3.0 and method not in ("capped", "interior"):  # which spend the time of one iteration, or begin anew
        assert reports[-1][0] > 0


def test_bar_and_lines(monkeypatch, capsys):
    pytest.importorskip("tqdm")
    case = planted_margin(0, 40, 40, 24, 1e-6)
    options = {"method": "gradient", "max_iter": 6000}
    plain = solve(case.data, case.selected, **options)
    shown = solve(case.data, case.selected, **options, progress=True)
    np.testing.assert_array_equal(plain.W, shown.W)
    out, err = capsys.readouterr()
    assert out == "" and "solve_svm" in err and "digits" in err and "iteration" in err
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)  # as where it is not installed
    solve(case.data, case.selected, **options, progress=True)
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("solve_svm: iteration ") and "digits" not in err


def test_bar_ends_full(capsys):
    pytest.importorskip("tqdm")
    case = ball(0, 6, 8, 10)
    assert attsvm.solve_svm(case.data, case.selected, progress=True).status == "optimal"
    assert "100%" in capsys.readouterr().err
