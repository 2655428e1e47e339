"""Theorem A of notebooks/limit.md: each inequality against a readable twin, and where it must fail."""

import math
from decimal import Decimal, getcontext

import attsvm
import judge
import numpy as np
import pytest
import reference
from attsvm import _core
from attsvm.theory import limit_proofs
from attsvm.theory.limit_proofs import LOSSES, BestTokens, Rows, descends
from builders import BUILDERS, build_case, problem_of
from limits import by_scores
from numpy.testing import assert_allclose
from problems import Case

getcontext().prec = 150


def exact_slopes(name, u):
    """|l'| and |l''|, the latter by a difference of 150 digits."""
    u, step = Decimal(float(u)), Decimal("1e-60")
    one, other = (reference.decimal_loss(name, u + side * step)[1] for side in (-1, 1))
    return float(one), float((one - other) / (2 * step))


def test_every_loss_of_the_table_has_its_form():
    assert set(LOSSES) == set(_core.LOSS)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("top", [0.3, 2.0, 40.0, -0.7, -30.0])
def test_excess_is_exact_and_reach_its_inverse(name, top):
    if name == "log" and top < 0:
        pytest.skip("scores of the log loss are positive")
    form, tops = LOSSES[name], np.array([top])
    for share in (0.999, 0.5, 0.03, 1e-4, 1e-9, 1e-16, 1e-40):
        v = abs(top) * share
        end, start = (reference.decimal_loss(name, u)[0] for u in (Decimal(top), Decimal(top) - Decimal(v)))
        exact = start - end
        log_e = form.log_excess(tops, np.log([v]))
        assert abs(log_e[0] - float(exact.ln())) < 1e-12 * (1 + abs(top) + abs(log_e[0])), (v, exact)
        assert form.reach(tops, log_e)[0] == pytest.approx(v, rel=1e-10)


@pytest.mark.parametrize("name", LOSSES)
def test_bounds_of_the_derivatives(name):
    form = LOSSES[name]
    for top, v in ((1.0, 0.4), (3.0, 2.9), (20.0, 15.0)):
        ratio = form.ratio(np.array([top]), np.array([v]))[0]
        M1 = np.exp(form.log_slope(np.array([top - v])))[0]
        grid = [exact_slopes(name, u) for u in np.linspace(top - v, top, 60)]
        worst = max(second / first for first, second in grid)
        assert worst <= ratio * (1 + 1e-12) and ratio <= max(1.05 * worst, 1e-300)
        assert max(first for first, _ in grid) == pytest.approx(M1, rel=1e-12)
        assert form.log_slope(np.array([top]))[0] == pytest.approx(math.log(exact_slopes(name, top)[0]), abs=1e-12)


def pair(scores, loss="linear"):
    """One query z = 1 over tokens on a line."""
    return by_scores(np.arange(len(scores), 0.0, -1)[None, :, None], [scores], loss)


@pytest.mark.parametrize("loss", LOSSES)
def test_final_begins_at_half_of_the_attention(loss):
    """One query, two tokens: the excess is below that of the mean of the scores exactly when p > 1/2."""
    best = BestTokens(pair([1.0, 0.25], loss))
    for logit, final in ((1e-6, True), (-1e-6, False), (0.0, False)):
        assert best.at(np.array([[logit]])).final.tolist() == [final]


def naive_excess(problem, W):
    """phi_i(v_i), by floats."""
    data, scores = problem.data, problem._flat_scores
    p = _core.probabilities(data._handle, W)
    u = np.add.reduceat(p * scores, data.indptr[:-1])
    top = np.maximum.reduceat(scores, data.indptr[:-1])
    code = _core.LOSS[problem._loss_name]
    return _core.loss_values(code, u) - _core.loss_values(code, top)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", BUILDERS)
def test_excess_of_every_layout(name, loss):
    case = build_case(name, positive=loss == "log")
    problem = problem_of(case, loss)
    best, W = BestTokens(problem), 0.3 * case.rng.standard_normal((case.data.dk, case.data.dz))
    found, naive = best.at(W), naive_excess(problem, W)
    assert_allclose(np.exp(found.each), naive, rtol=1e-8, atol=1e-12)
    assert math.exp(found.total) == pytest.approx(naive.sum(), rel=1e-8)
    assert math.exp(found.total) >= naive.sum() * (1 - 1e-14)
    assert math.exp(found.total) / len(naive) == pytest.approx(problem.loss(W) - problem.infimum(), rel=1e-8)
    several, gap = case.data.lengths > 1, best.gap
    form = LOSSES[loss]
    for share, sides in ((0.5, best.halves), (1.0, best.wholes)):
        exact = form.log_excess(best.top[several], np.log(share * gap[several]))
        assert (sides[several] <= exact).all() and (exact - sides[several] < 1e-10).all()
        assert np.isposinf(sides[~several]).all()


def test_every_side_is_rounded_to_the_safe_side():
    """By units of what enters an excess, by the roundings of a lead, and by one more of W a step."""
    best, W = BestTokens(pair([1.0, 0.25], "logistic")), np.array([[3.0]])
    log_v = np.array([-2.0])
    width = best.log_excess(log_v, 1) - best.log_excess(log_v, -1)
    assert 128 * 2.0**-53 * 3 <= width[0] < 1e-12
    new, old = best.at(W).total, best.at(W, 10**6).total
    assert old - new == pytest.approx(2 * 10**6 * 2.0**-53 * 2 * 2 * 3, rel=0.05)  # |x_a|, |x_t| <= 2, |W| = 3
    own = attsvm.Problem(best.problem.data, None, attsvm.LinearHead([1.0]), (lambda u: -u, lambda u: -np.ones_like(u)))
    width = np.exp(BestTokens(own).log_excess(log_v, 1)) - np.exp(BestTokens(own).log_excess(log_v, -1))
    assert 64 * 2.0**-53 < width[0] < 1e-12


@pytest.mark.parametrize("loss", LOSSES)
def test_the_region_is_that_of_the_page(loss):
    """Two queries, by hand: V, E and the bound of sum mu over F - F*."""
    scores = np.array([[2.0, 0.5], [3.0, 1.0]])
    best = BestTokens(by_scores([[[1.0], [0.0]]] * 2, scores, loss))
    form, delta, longest = LOSSES[loss], 0.4 * math.exp(best.wholes.min()), np.array([1.0, 2.0])
    top, gap = scores[:, 0], scores[:, 0] - scores[:, 1]
    V = form.reach(top, np.log(delta))
    K = {"logistic": 1 / (1 + np.exp(-top)), "exponential": 1.0, "linear": 0.0, "log": 1 / (top - V)}[loss]
    E = V / gap + V * K + V / (gap - V)
    mass = np.exp(K * V).max() * delta / 2
    assert best.region(math.log(delta), longest) == pytest.approx(((longest * E).max(), mass), rel=1e-6)
    assert best.region(best.wholes.min() + 1e-6, longest) == (math.inf, math.inf)


def test_the_cone_needs_the_smallest_barrier_of_all_queries():
    """Two queries: the total excess against the smaller barrier, not each against its own."""
    best = BestTokens(by_scores([[[1.0], [0.0]]] * 2, [[4.0, 0.0], [1.0, 0.0]], "linear"))
    at = lambda w: best.at(np.array([[w]]))  # noqa: E731  excess 5 (1 - p), barriers 4 and 1: p > .8
    logit = math.log(4)
    assert at(logit + 1e-6).in_cone and not at(logit - 1e-6).in_cone
    assert at(2 * logit).final.tolist() == [True, True]  # 5 / 17 < 1 / 2
    assert at(logit + 1e-6).final.tolist() == [True, False]  # 1 < 2, not below 1 / 2


def test_ties_of_the_best_score_are_never_in_the_cone():
    best = BestTokens(pair([1.0, 1.0, 0.0]))
    found = best.at(np.array([[50.0]]))
    assert best.tied.tolist() == [0] and not found.in_cone and not found.final.any()
    level = BestTokens(pair([1.0, 1.0, 1.0]))  # of the same scores all: no excess, and nothing is final
    assert not level.at(np.array([[0.0]])).final.any() and not level.at(np.array([[0.0]])).in_cone


def test_a_query_of_equal_scores_hides_no_other():
    """Its excess is zero; the sum stays that of the others."""
    best = BestTokens(by_scores(np.ones((2, 2, 1)), [[1.0, 1.0], [1.0, 0.0]], "linear"))
    found = best.at(np.zeros((1, 1)))
    assert math.exp(found.total) == pytest.approx(0.5) and not found.final.any()


@pytest.mark.parametrize("drop", [1e-15, 1e-12, 1e-6])
def test_near_ties_are_resolved_as_far_as_doubles_go(drop):
    best = BestTokens(pair([1.0, 1.0 - drop, 0.0]))
    assert best.at(np.array([[1.0]])).final.tolist() == [False]  # the third token's share costs far more
    assert best.at(np.array([[60.0]])).final.tolist() == [True]


def test_a_loss_that_tends_to_the_barrier_is_not_below_it(sphere):
    """Draw 35 of 20,6,40: one query ends on its second best token, and the loss on F* + B, below it by rounding."""
    problem = sphere(20, 6, 40, 35).problem
    run = attsvm.train(problem, steps=4000, record=[1000, 2000, 3000, 4000])
    best = BestTokens(problem)
    assert (run.selected != problem.optimal).sum() == 1
    totals = [best.at(W) for W in run.weights]
    assert not any(found.in_cone for found in totals)
    assert abs(totals[-1].total - best.wholes.min()) < 1e-9  # as near as that
    assert run.limit().status != "proved" or (run.limit().solution.selected == run.selected).all()


def test_rows_and_their_distances(case, monkeypatch):
    data, best = case.data, BestTokens(problem_of(case)).best
    rows = judge.rows_of(Case(data, data._layout.shape_queries(best)))
    twin, rows = [rows.length[rows.query == q].max(initial=0) for q in range(len(data))], rows.products()
    apart = max(np.linalg.norm(rows - row, axis=1).max() for row in rows)
    assert_allclose(Rows(data, best).lengths, twin, rtol=1e-12)
    assert apart == pytest.approx(Rows(data, best).apart, rel=1e-7)
    monkeypatch.setattr(limit_proofs, "EXACT_ROWS", 0)
    assert apart <= Rows(data, best).apart <= 2.01 * max(twin)
    monkeypatch.setattr(limit_proofs, "EXACT_QUERIES", 0)
    assert Rows(data, best).apart == pytest.approx(2 * max(twin))


@pytest.mark.parametrize("loss", LOSSES)
def test_curvature_bounds_the_gradient(loss):
    for seed in range(4):
        case = build_case("cross", positive=loss == "log", seed=seed)
        problem, data = problem_of(case, loss), case.data
        best = BestTokens(problem)
        longest = Rows(data, best.best).lengths
        L = limit_proofs.curvature(best, longest)
        least, s = problem.scores.min(axis=1), np.ptp(problem.scores, axis=1)
        M1, M0 = np.transpose([exact_slopes(loss, u) for u in least])
        M0 = {"logistic": 0.25}.get(loss, M0)  # losses whose |l''| is not largest at the least score
        assert pytest.approx((longest**2 * s * (M0 * s / 4 + M1)).mean(), rel=1e-6) == L
        for _ in range(40):
            W = case.rng.standard_normal((data.dk, data.dz)) * case.rng.choice([0.3, 1.0])
            D = case.rng.standard_normal(W.shape)
            D *= 1e-4 / np.linalg.norm(D)
            change = problem.loss_and_grad(W + D)[1] - problem.loss_and_grad(W)[1]
            assert np.linalg.norm(change) <= 1e-4 * L


def multipliers(problem, W, best):
    """log mu_it of the rows of the best tokens, by NumPy."""
    data = problem.data
    p = _core.probabilities(data._handle, W)
    u = np.add.reduceat(p * problem._flat_scores, data.indptr[:-1])
    slope = LOSSES[problem._loss_name].log_slope(u)
    q = data._query_of()
    with np.errstate(divide="ignore", invalid="ignore"):
        return slope[q] + np.log(p) + np.log(u[q] - problem._flat_scores)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_multipliers_drift_no_faster_than_the_region_says(loss):
    """|d log mu / ds + <r, D>| <= R E along unit directions, and not by far."""
    share = 0.0
    for seed in range(6):
        case = build_case("cross", positive=loss == "log", seed=seed)
        data = case.data
        problem = problem_of(case, loss)
        best = BestTokens(problem)
        solution = attsvm.solve_svm(data, problem.optimal)
        if solution.W is None:
            continue
        rows = judge.rows_of(Case(data, best.best))
        others, rows = rows.entry, rows.products()
        longest, scale = Rows(data, best.best).lengths, 1.0
        while not best.at(W := scale * solution.W).in_cone:
            scale *= 1.1
        drift, _ = best.region(best.at(W).total, longest)
        for direction in [*rows, *case.rng.standard_normal((20, rows.shape[1]))]:
            D = direction / np.linalg.norm(direction)
            step = 1e-5 * D.reshape(W.shape)
            rate = multipliers(problem, W + step, best)[others] - multipliers(problem, W - step, best)[others]
            rate /= 2e-5
            off = np.abs(rate + rows @ D).max()
            assert off <= drift * (1 + 1e-6) + 1e-6
            share = max(share, off / drift)
    assert share > 0.02


def test_descends_is_the_inequality_of_the_page():
    rng = np.random.default_rng(1)
    both = set()
    for _ in range(2000):
        rho = rng.uniform(0.05, 1)
        R, step = rho * rng.uniform(1, 8), rng.uniform(0.0, 0.6)
        apart, drift = R * rng.uniform(0, 2), 10.0 ** rng.uniform(-4, 1)
        fall = rho * step - apart**2 * step**2 / 8
        sides = 1 - math.exp(-fall), (math.exp(step * drift) - 1) * (math.exp(step * R) - 1)
        if fall > 0 and abs(sides[0] - sides[1]) < 1e-6 * sides[1]:
            continue
        expected = fall > 0 and sides[0] > sides[1]
        assert descends(step, rho, R, apart, drift) == expected
        both.add(expected)
        if expected:
            assert descends(step / 3, rho, R, apart, drift)  # and every shorter step
        certain = limit_proofs.longest_step(rho, R, apart)
        assert descends(certain, rho, R, apart, 0.0) and not descends(1.002 * certain, rho, R, apart, 0.0)
    assert both == {True, False}
    assert not descends(1.0, 0.0, 1.0, 1.0, 0.0) and not descends(0.1, 0.3, 1.0, 1.0, math.inf)
    assert not descends(0.1, math.nan, 1.0, 1.0, 0.0) and not descends(0.1, 0.3, math.nan, 1.0, 0.0)


@pytest.mark.parametrize("part, converges", [(0.97, True), (1.06, False)])
def test_eight_is_the_constant(part, converges):
    """Steps just above 8 rho / Delta^2 circle around the direction of the SVM; just below they go there."""
    X = np.array([[[math.cos(a), math.sin(a)], [0.0, 0.0]] for a in (0.0, 2.6)])  # two rows of length 1
    problem = by_scores(X, [[1.0, 0.0]] * 2, "exponential")
    solution = attsvm.solve_svm(problem.data, problem.optimal)
    step = part * 8 * solution.margin / Rows(problem.data, np.zeros(2, int)).apart ** 2
    start = 30 * solution.W + np.array([[0.02], [-0.03]])
    run = attsvm.train(problem, start, lr=step, steps=3000, record=[2999])
    turned = np.linalg.norm(run.direction / np.linalg.norm(run.direction) - solution.W / np.linalg.norm(solution.W))
    assert (turned < 1e-3) == converges
    assert (run.limit().status == "proved") == converges
    assert run.limit().status in ("proved", "conditional")


def test_no_proof_from_huge_scores(rng):
    problem = by_scores(rng.normal(size=(2, 3, 5)), [[9e300, 3e300, 6e300]] * 2, "exponential", rng.normal(size=(2, 5)))
    start = 30 * attsvm.solve_svm(problem.data, [2, 2]).W  # training cannot leave these tokens, which are not the best
    assert attsvm.train(problem, start, steps=5).limit().status == "open"


def test_reach_reads_the_tokens_anew(rng):
    problem = by_scores(rng.normal(size=(2, 3, 5)), rng.normal(size=(2, 3)))
    problem.data._largest_key = 0.0  # as if kept from before the tokens changed
    assert BestTokens(problem).reach.all()
