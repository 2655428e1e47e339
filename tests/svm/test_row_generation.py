"""Row generation: what the working set finds holds for all rows, judged from raw data and beside the other methods."""

import attsvm
import judge
import numpy as np
import pytest
from compare import close
from marks import slow
from planted import planted
from problems import Case, gaussian

# Few queries with long windows: the rows that each brings at first do not hold the answer, others must join.
MANY = dict(n=60, T=5011, d=8)  # 300,600 rows: the size from which auto takes it
MILLION = dict(n=100, T=10_003, d=4)  # 1,000,200 rows: the first rounds are block ascent alone


def test_a_planted_problem_is_not_tight_whatever_its_bits_say():
    data, selected = planted(200, 100, 32, seed=1)
    sol = attsvm.solve_svm(data, selected)
    assert sol.status == "optimal" and sol.method == "block" and sol.gap <= 1e-9
    assert judge.wrong(Case(data, selected), sol) is None
    other = attsvm.solve_svm(data, selected, method="interior")
    close(sol.W, other.W, 1e-4)  # gap 1e-9: W to 5e-5


@pytest.mark.parametrize(
    ("n", "T", "method"), [(12_000, 2, "interior"), (800, 2, "active"), slow(33_400, 10, "interior")]
)
def test_many_short_windows_with_few_unknowns(n, T, method):
    """Tight: rows far outnumber the 36 entries of W, and block ascent on them, whole or generated, takes far longer."""
    case = gaussian(0, n, T, 6)
    sol = attsvm.solve_svm(case.data, case.selected)
    assert sol.status == "optimal" and sol.method == method and sol.gap <= 1e-9
    assert judge.wrong(case, sol) is None


@pytest.mark.parametrize("kind", ["hard", "soft", "float32", "margins", "warm", "a million", "a million, soft"])
def test_many_rows(kind):
    shape = MILLION if "million" in kind else MANY
    n, T = shape["n"], shape["T"]
    data, selected = planted(**shape, hard=True, seed=3, single=kind == "float32")
    options = {"C": 1e-3} if "soft" in kind else {}
    if kind == "margins":
        options["margins"] = np.random.default_rng(0).uniform(0.5, 1.5, (n, T))
    if kind == "warm":
        options["warm_start"] = attsvm.solve_svm(data, selected, tol=1e-3)
    sol = attsvm.solve_svm(data, selected, **options)
    assert sol.status == "optimal" and sol.method == "row generation" and sol.gap <= 1e-9
    assert judge.wrong(Case(data, selected, asked=options.get("margins")), sol) is None
    assert "soft" not in kind or max(np.max(x) for x in sol.slack) > 0.1


OTHERS = ["nuclear", "max", 1.75, 3.0]  # their interior points keep a working set themselves
# 52,788 rows.  In each of them, 1.75 too, rows must join the first ones.
LONG_WINDOWS = dict(n=12, T=4400, d=12, hard=True, seed=6)


def with_equal_tokens(data, selected, queries):
    """Another token of each of these queries gets the logit of the selected one under W = I."""
    keys = data.keys.reshape(len(data), -1, data.dk).copy()
    kept = np.zeros(keys.shape[:2], dtype=bool)
    kept[np.arange(len(kept)), selected] = True
    for q in queries:
        t, z = (selected[q] + 1) % keys.shape[1], data.queries[q]
        keys[q, t] -= z * ((keys[q, t] - keys[q, selected[q]]) @ z) / (z @ z)
        kept[q, t] = True
    return attsvm.cross_attention(keys, data.queries), kept


@pytest.mark.parametrize("norm", OTHERS)
@pytest.mark.parametrize("kind", ["planted", "float32", "margins", "several tokens"])
def test_the_other_norms_on_many_rows(kind, norm):
    data, selected = planted(**LONG_WINDOWS, single=kind == "float32")
    kept, options = np.arange(4400) == selected[:, None], {}
    if kind == "margins":
        options["margins"] = np.random.default_rng(0).uniform(0.5, 1.5, (12, 4400))
    if kind == "several tokens":
        data, kept = with_equal_tokens(data, selected, range(0, 12, 3))
    sol = attsvm.solve_svm(data, kept, norm, **options)
    assert sol.status == "optimal" and sol.gap <= 1e-9
    assert judge.wrong(Case(data, kept, asked=options.get("margins")), sol) is None


@pytest.mark.parametrize(("n", "T", "norm"), [(600, 502, "frobenius"), *((12, 4400, norm) for norm in OTHERS)])
def test_many_rows_that_no_weights_meet(n, T, norm):
    """Random first tokens of n windows, of which no weights of 12 entries meet the rows: a combination of them is 0."""
    g = np.random.default_rng(5)
    X, Z = g.standard_normal((n, T, 4)), g.standard_normal((n, 3))
    sol = attsvm.solve_svm(attsvm.cross_attention(X, Z), np.zeros(n, dtype=int), norm)
    assert sol.status == "infeasible"
    assert judge.wrong(Case(sol.data, np.zeros(n, dtype=int)), sol) is None


@pytest.mark.parametrize("norm", ["nuclear", "max"])
def test_feasibility_is_decided_whatever_the_iterations(norm):
    """The Frobenius answer that starts a working set is not counted: one iteration more ends with a margin."""
    g = np.random.default_rng(0)
    X, Z, W = g.standard_normal((60, 850, 6)), g.standard_normal((60, 6)), g.standard_normal((6, 6))
    data = attsvm.cross_attention(X, Z)
    selected = data.select(W)
    with pytest.warns(attsvm.ConvergenceWarning):
        sol = attsvm.solve_svm(data, selected, norm, max_iter=1)
    assert sol.W is not None and 0 < sol.margin <= sol.margin_bound
    selected[0] = data.logits(W)[0].argsort()[-2]
    selected[1:] = (selected[1:] + 1) % 850
    assert attsvm.solve_svm(data, selected, norm, max_iter=1).status == "infeasible"


def test_a_nuclear_answer_starts_the_next():
    data, selected = planted(**LONG_WINDOWS)
    sol = attsvm.solve_svm(data, selected, "nuclear")
    again = attsvm.solve_svm(data, selected, "nuclear", warm_start=sol)
    assert again.status == "optimal"
    assert again.margin == pytest.approx(sol.margin, rel=2e-9)
    assert again.iterations < sol.iterations / 2


def test_the_spectral_norm_on_a_hundred_thousand_rows():
    data, selected = planted(20, 5_005, 6)  # rows must join the first ones
    sol = attsvm.solve_svm(data, selected, "spectral")
    assert sol.status == "optimal" and sol.gap <= 1e-9
    assert judge.wrong(Case(data, selected), sol) is None


@pytest.mark.slow
@pytest.mark.parametrize("norm", OTHERS)
def test_the_other_norms_on_a_hundred_thousand_rows(norm):
    data, selected = planted(600, 200, 24, hard=True)
    sol = attsvm.solve_svm(data, selected, norm)
    assert sol.status == "optimal"
    # The longest row is 7e6 times the margin: rounding would allow 1.6e-7 (certificate_tolerance); which part of it a
    # solve leaves depends on the order of sums.
    assert judge.wrong(Case(data, selected), sol) is None and sol.gap <= 2e-8
