"""Every kind of problem in every norm and by every method: each answer judged from the raw tokens (judge.py).

Counts by way and status are printed (``pytest -s``); ATTSVM_CAMPAIGN asks for another number of problems of each kind.
"""

import collections
import os
import warnings

import attsvm
import judge
import numpy as np
import pytest
from kinds import KINDS, draw
from problems import CASES

# Ways to solve, and how many in a hundred of those with an answer may stay open: margins at the level of rounding for
# "auto", whatever they cannot do for the methods that it falls back on others from.
WAYS = {
    "frobenius": ({}, 1),
    "active": ({"method": "active"}, 3),
    "block": ({"method": "block"}, 8),
    "interior": ({"method": "interior"}, 2),
    "gradient": ({"method": "gradient", "max_iter": 2000}, 40),
    "nuclear": ({"norm": "nuclear"}, 2),
    "nuclear interior": ({"norm": "nuclear", "method": "interior"}, 3),
    "factored": ({"norm": "nuclear", "method": "factored"}, 6),
    "max": ({"norm": "max"}, 3),
    "spectral": ({"norm": "spectral"}, 3),
    **{f"p = {p}": ({"norm": p}, 2) for p in (1.1, 1.5, 3.0, 10.0)},
    "a loose tolerance": ({"tol": 1e-5}, 1),
    **{f"C = {C}": ({"C": C}, most) for C, most in ((1e-12, 1), (1e-3, 1), (1.0, 1), (1e3, 1), (1e12, 4))},
    **{f"soft interior, {C}": ({"C": C, "method": "interior"}, 1) for C in (1e-3, 1.0, 1e3)},
    "soft block": ({"C": 1.0, "method": "block"}, 5),
}
ALONE = ("gradient", "block", "factored", "soft block")


def solve(case, **options):
    """The answer, with a warning where it is open; None where the scale of the data is named as an error."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        try:
            sol = attsvm.solve_svm(case.data, case.selected, margins=case.asked, **options)
        except ValueError as error:
            assert "scale" in str(error)
            return None
    assert [w.category for w in caught] == [attsvm.ConvergenceWarning] * (sol.status not in judge.SETTLED)
    return sol


def campaign(way, numbers, linprog=None):
    """Counter of (kind, status), and what is wrong."""
    options, counts, wrong = WAYS[way][0], collections.Counter(), []
    for kind in KINDS:
        for number in numbers:
            case = draw(kind, number)
            sol = solve(case, **options)
            counts[kind, "named" if sol is None else sol.status] += 1
            if sol is None:
                continue
            if (why := judge.wrong(case, sol, options.get("tol", 1e-9), linprog)) is not None:
                wrong.append((kind, number, sol.status, why))
    return counts, wrong


def check(way, numbers, linprog=None):
    counts, wrong = campaign(way, numbers, linprog)
    assert not wrong, wrong[:10]
    statuses = collections.Counter()
    for (_, status), count in counts.items():
        statuses[status] += count
    left = {kind: count for (kind, status), count in counts.items() if status not in (*judge.SETTLED, "named")}
    print(f"{way:20s} {dict(statuses)}, open: {left}")
    assert sum(left.values()) <= WAYS[way][1] / 100 * statuses.total() + 1, left
    assert statuses["optimal"] > 20 and statuses["no constraint"] > 1
    assert statuses["infeasible"] > (20 if "C" not in WAYS[way][0] else -1 if way in ALONE else 1)


@pytest.mark.parametrize("way", WAYS)
def test_a_few_of_every_kind(way):
    check(way, range(4))


@pytest.mark.parametrize("way", WAYS)
def test_named_problems(way):
    """Of which status and margin are known by construction; methods that fall back on no other may stop short."""
    options = WAYS[way][0]
    for name, make in CASES.items():
        case = make()
        if (sol := solve(case, **options)) is None:
            continue
        assert (why := judge.wrong(case, sol, options.get("tol", 1e-9))) is None, (name, why)
        if "C" in options:
            continue
        if sol.status not in judge.SETTLED:
            assert case.hard or case.status != "optimal" and way in ALONE, name
            continue
        assert sol.status == case.status or case.status is None, name
        if case.margin is not None and way in ("frobenius", "active", "interior"):
            # Planted on rounded tokens, which moves the margin by about eps.
            assert sol.margin == pytest.approx(case.margin, rel=2e-9 + 1e-14 / case.margin), name


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_hundreds_of_every_kind(way):
    linprog = pytest.importorskip("scipy.optimize").linprog
    check(
        way,
        range(4, 4 + int(os.environ.get("ATTSVM_CAMPAIGN", "60"))),
        linprog if way in ("frobenius", "p = 3.0") else None,
    )


@pytest.mark.parametrize("p", [1.0001, 1.01, 50.0, 1e3, 1e15])
def test_far_exponents_have_true_bounds(p):
    for kind in ("random", "tight", "copies", "integers", "scales", "margins: met"):
        case = draw(kind, 0)
        assert judge.wrong(case, solve(case, norm=p)) is None


@pytest.mark.parametrize("way", WAYS)
def test_stopped_early_the_bounds_hold(way):
    options = WAYS[way][0]
    for kind in ("random", "tight", "margins: met"):
        case = draw(kind, 3)
        whole = solve(case, **options | {"max_iter": 20000})
        for most in (1, 2, 5):
            sol = solve(case, **options | {"max_iter": most})
            assert judge.wrong(case, sol) is None
            assert sol.iterations <= most
            if whole.status == "optimal" and sol.C is None:
                assert sol.margin <= whole.margin_bound * (1 + 1e-9) and sol.margin_bound >= whole.margin * (1 - 1e-9)


@pytest.mark.parametrize("norm", ["spectral", "max", 3.0])
def test_a_later_stop_is_no_worse(norm):
    """The interior point keeps its best iterate: the last one may be worse."""
    gaps = np.array([solve(draw("tight", 3), norm=norm, max_iter=most).gap for most in range(1, 9)])
    assert (gaps[1:] <= gaps[:-1] * (1 + 1e-6)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_norms_agree_on_what_can_be_met_and_bound_each_other(kind):
    """1 / margin is the least norm, and spectral <= Frobenius <= nuclear, max <= l3 <= Frobenius of the same W."""
    for number in range(3):
        case = draw(kind, number)
        by = {norm: solve(case, norm=norm) for norm in ("max", 3.0, "frobenius", "nuclear", "spectral")}
        met = {sol.status for sol in by.values()} & set(judge.SETTLED)
        assert len(met) <= 1, met
        for smaller, larger in (("max", 3.0), (3.0, "frobenius"), ("frobenius", "nuclear"), ("spectral", "frobenius")):
            assert by[smaller].margin_bound >= by[larger].margin * (1 - 1e-9) or "optimal" not in met


@pytest.mark.parametrize(
    "kind", ["random", "tight", "copies", "steep", "margins: met", "integers", "barely infeasible"]
)
def test_order_and_units_of_all_that_is_given_change_nothing(kind):
    rng = np.random.default_rng(0)
    for norm in ("frobenius", "nuclear", "max", "spectral", 3.0):
        case = draw(kind, 1)
        n, T = len(case.data), case.data.stop[0] - case.data.start[0]
        X, Z = case.data.keys.reshape(n, T, -1), case.data.queries
        kept = np.asarray(case.selected)
        kept = kept if kept.dtype == bool else np.arange(T) == kept[:, None]
        first = kept.argmax(axis=1)  # the reference stays the first of those selected
        order = np.array([np.concatenate([[a], rng.permutation(np.delete(np.arange(T), a))]) for a in first])
        at = rng.permutation(n)
        at = at[:, None], order[at]
        asked = np.where(kept, 0.0, 1.0) if case.asked is None else np.asarray(case.asked)
        again = attsvm.cross_attention(np.ldexp(X[at], 40), np.ldexp(Z[at[0][:, 0]], -70))
        one = attsvm.solve_svm(case.data, case.selected, norm, margins=case.asked)
        asked = np.ldexp(asked[at], 300)
        asked[:, 0] = 7e100  # the reference's is not read
        other = attsvm.solve_svm(again, kept[at], norm, margins=asked)
        assert other.status == one.status
        assert one.status != "infeasible" or np.ldexp(other.margin_bound, 330) < 1e-9
        if one.status == "optimal":
            assert np.ldexp(other.margin, 330) == pytest.approx(one.margin, rel=2 * max(1e-9, one.gap, other.gap))
