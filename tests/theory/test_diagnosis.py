"""Every number of a diagnosis against an independent computation, and its verdicts against what training does."""

import json
import math

import attsvm
import judge
import numpy as np
import pytest
import reference
from attsvm import _core
from builders import build_case, problem_of, tied
from limits import by_scores
from numpy.testing import assert_allclose, assert_array_equal
from problems import Case


def equal_scores(n, T, d, rng=0):
    """Non-optimal tokens of a sequence tie to the last bit: the head reads the first coordinate."""
    X, Z, y, _ = attsvm.sample.unit_sphere(n, T, d, rng)
    X[..., 0] = y[:, None] * np.where(np.arange(T) == 0, 0.5, -0.125)
    return attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(np.eye(d)[0]))


@pytest.mark.parametrize(
    "norm, loss", [("frobenius", "logistic"), ("frobenius", "exponential"), ("nuclear", "logistic"), (3.0, "logistic")]
)
@pytest.mark.parametrize("optimal", [True, False])
def test_every_number_is_that_of_its_definition(case_name, norm, loss, optimal):
    """From the tokens, a query at a time; a head for each query."""
    if norm != "frobenius" and case_name == "cross_gemm":
        pytest.skip("hundreds of rows of another norm take long and show nothing new")
    case = build_case(case_name, "per query")
    data, problem = case.data, problem_of(case, loss)
    scores = reference.scores(data, case.y, case.v)
    best = np.array([row.argmax() for row in scores])
    chosen = best if optimal else case.rng.integers(0, data.lengths)
    found = attsvm.diagnose(problem, data._layout.shape_queries(chosen), norm)
    assert json.loads(json.dumps(found.to_dict()))["solution"]["status"] == found.status
    for mine, row in zip(reference.per_entry(data, found.scores), scores, strict=True):
        assert_allclose(mine, row, rtol=1e-12, atol=1e-12)
    assert_array_equal(reference.per_query(data, found.optimal), best)
    assert found.globally_optimal == (chosen == best).all()
    ordered = [np.sort(row) for row in scores if len(row) > 1]
    assert found.score_gap == pytest.approx(min(row[-1] - row[-2] for row in ordered))
    assert found.score_spread == pytest.approx(max(row[-2] - row[0] for row in ordered))
    _, G, scale = reference.loss_and_grad(data, case.y, case.v, loss, np.zeros((data.dk, data.dz)))
    G = G * np.exp(scale)
    best_rows = judge.rows_of(Case(data, found.optimal))
    assert found.iota == pytest.approx(float(best_rows.apply(-G).min()))
    X, V = reference.windows(data), reference.windows(data, values=True)
    g = [
        np.linalg.norm(v, 2) * np.linalg.norm(head)
        for v, head in zip(V, reference.head_rows(data, case.v), strict=True)
    ]
    curved, slope = (0.25, 1.0) if loss == "logistic" else (np.exp(-min(row.min() for row in scores)),) * 2
    terms = [
        (z**2).sum() * np.linalg.norm(x, 2) ** 2 * of * (curved * of + 3 * slope)
        for z, x, of in zip(data.queries, X, g, strict=True)
    ]
    assert found.lipschitz == pytest.approx(np.mean(terms)) and found.step_size == pytest.approx(1 / np.mean(terms))
    ideal = attsvm.solve_svm(data, problem.optimal).W
    assert (found.separating_cone is None) == (found.iota <= 0 or ideal is None)
    if found.separating_cone:
        mu, size = found.iota * np.linalg.norm(ideal) / np.linalg.norm(G), np.linalg.norm(ideal)
        worst = float(((data.lengths[best_rows.query] - 1) * (best_rows.apply(ideal) - 1)).max())
        assert found.separating_cone == pytest.approx((mu, size * max(0, np.log(max(worst, 1e-300))) / mu), rel=1e-7)
    if found.solution.W is None:
        assert found.tight is None and found.locally_optimal is None and found.all_support is None
        return
    rows = judge.rows_of(Case(data, found.selected))
    at = rows.apply(found.solution.W) <= 1 + 1e-4
    tight = {*zip(rows.query[at], (rows.entry - data.indptr[rows.query])[at], strict=True)}
    mine = reference.per_entry(data, found.tight)
    assert {(q, t) for q, row in enumerate(mine) for t in np.flatnonzero(row)} == tight
    assert found.all_support == at.all()
    rivals = [
        [(row[t], t) for t in range(len(row)) if (q, t) in tight and row[t] >= row[chosen[q]]]
        for q, row in enumerate(scores)
    ]
    assert reference.per_query(data, found.beaten_by).tolist() == [max(few, default=(0, -1))[1] for few in rivals]
    assert found.locally_optimal == (not any(rivals)) and (found.locally_optimal or not optimal)
    supported = {q for q, _ in tight} == set(np.flatnonzero(data.lengths > 1))
    assert (found.local_cone is not None) == (norm == "frobenius" and found.locally_optimal and supported)


def test_a_support_token_is_tight_whatever_its_margin():
    """Max norm: a gap below 1e-9 leaves a margin of 1.015 in a row of length 1e8."""
    problem = by_scores([[[-3, -3], [0, 1]], [[-3, 3], [1, 0]]], [[1, 0], [1, 0]], Z=[[1, 1], [2e7, 2e7]])
    found = attsvm.diagnose(problem, [0, 1], "max")
    assert found.solution.support[1, 0] and found.all_support and "query 1: token 0 scores 1, the" in str(found)


def test_words_of_a_selection_that_is_not_optimal(sphere):
    found = attsvm.diagnose(sphere().problem, [0] * 6)
    text = str(found)
    assert "not globally optimal: the best token of 1 of 6 queries" in text
    beaten = int((found.beaten_by >= 0).sum())
    assert f"no: in {beaten} of 6 queries a tight token scores as much" in text
    q = int(np.argmax(found.beaten_by >= 0))
    assert f"query {q}: token {found.beaten_by[q]} scores {found.scores[q, found.beaten_by[q]]:.4g}" in text


def test_tokens_that_are_not_locally_optimal_may_be_selected_all_the_same():
    """The best value twice: training keeps one of the two.  Scalars, of which one query wants W > 0 more than the other
    wants W < 0: the rows depend on each other."""
    (twice, best, _), q = tied(), np.arange(4)
    for problem in (twice, by_scores([[[1.0], [0.0]]] * 2, [[0.0, 0.1], [1.0, 0.0]])):
        run = attsvm.train(problem, steps=4000, record=[2000])
        assert_array_equal(run.selected, run.data.select(run.weights[1]))
        found = attsvm.diagnose(problem, run)
        assert not found.locally_optimal and "training may leave or stay" in str(found)
    found = attsvm.diagnose(twice, np.where(q == 3, best + 2, np.where(q == 2, best + 1, best)) % 6)
    assert "the best token of 3 of 4 queries" in str(found) and not found.unique_optimum and found.score_gap == 0
    # All margins are 1, and every W is stationary.
    same = by_scores([[[1.0], [0.0]]], [[2.0, 2.0]])
    assert "stationary points   every W: all tokens that a query sees score the same" in str(attsvm.diagnose(same))


@pytest.mark.parametrize("delta", [5e-5, 1e-7])
def test_margins_or_scores_that_are_nearly_equal_exclude_no_stationary_point(delta):
    """Tokens 1, 0, -delta scoring 1, 0, .9, and 1, 0, -1 scoring 1, 0, delta: a W < 0 is stationary."""
    for tokens, scores in (([1.0, 0.0, -delta], [1.0, 0.0, 0.9]), ([1.0, 0.0, -1.0], [1.0, 0.0, delta])):
        problem = by_scores([np.transpose([tokens])], [scores])
        slopes = [problem.loss_and_grad([[-w]])[1].item() for w in (0.0, 40.0)]
        assert slopes[0] < 0 < slopes[1]
        found = attsvm.diagnose(problem)
        assert found.no_stationary_point is None and "stationary points   not excluded" in str(found)


def test_training_may_leave_the_local_cone(sphere):
    """What is said of the cone is that the loss falls along the solution in it; a start inside is left, by the theory's
    own step too."""
    problem = sphere().problem
    found = attsvm.diagnose(problem, attsvm.train(problem, steps=2000).selected)
    (mu, R), S = found.local_cone, found.solution.W / np.linalg.norm(found.solution.W)
    assert "local cone          no weights this near the SVM are stationary" in str(found)
    P = np.random.default_rng(0).standard_normal(S.shape)
    P -= np.vdot(P, S) * S
    W = S + (1.8 * mu) ** 0.5 * P / np.linalg.norm(P)
    start = 1.01 * R * W / np.linalg.norm(W)
    for options in (dict(steps=2000), dict(rule="constant", lr=found.step_size, steps=20_000)):
        run = attsvm.train(problem, start, record=options["steps"] // 200, **options)
        far = np.array([((W / np.linalg.norm(W) - S) ** 2).sum() / 2 for W in run.weights])  # 1 - correlation
        assert far[0] == pytest.approx(0.9 * mu, rel=1e-3) and far.max() > 10 * mu
        for W in run.weights[(far <= mu) & (run.norm >= R)]:
            assert np.vdot(problem.loss_and_grad(W, scaled=True)[1].W, S) < 0


def rows_of(data):
    first = data._layout.shape_queries(np.zeros(len(data), int))
    return judge.rows_of(Case(data, first)).products()


def test_the_shape_is_enough_where_it_makes_rows_independent(rng):
    """dk >= T - 1 and dk dz >= n (T - 1), with equality in some: below max(T - 1, n), which the paper asks."""
    shapes = [(10, 2, 4, 4), (6, 3, 5, 5), (3, 3, 3, 2), (12, 4, 4, 9), (5, 4, 3, 5), (7, 2, 1, 7), (4, 1, 1, 1)]
    for n, T, dk, dz in shapes:
        data = attsvm.cross_attention(rng.standard_normal((n, T, dk)), rng.standard_normal((n, dz)))
        rows = rows_of(data)
        assert len(rows) == 0 or np.linalg.matrix_rank(rows) == len(rows)
        found = attsvm.diagnose(attsvm.Problem(data, None, attsvm.LinearHead(np.ones(dk))))
        assert found.dimension_suffices
        assert len(rows) == 0 or found.no_stationary_point or "none for almost all data of this shape" in str(found)
    own = attsvm.self_attention(rng.standard_normal((6, 4, 5)))  # queries that are tokens
    assert np.linalg.matrix_rank(rows_of(own)) == 18
    # Several queries of one window: four of them are dependent in three dimensions, though 4 <= dk dz = 12.
    shared = attsvm.cross_attention(rng.standard_normal((1, 2, 4)), rng.standard_normal((1, 4, 3)))
    assert np.linalg.matrix_rank(rows_of(shared)) == 3
    found = attsvm.diagnose(attsvm.Problem(shared, None, attsvm.LinearHead(np.ones(4))))
    assert not found.dimension_suffices and "and dz >= queries = 4" in " ".join(str(found).split())


def test_the_shape_is_not_necessary():
    """Eight tokens on a circle, which any direction of the plane ranks: every selection is separable."""
    angle = np.arange(8) * np.pi / 4
    circle = attsvm.cross_attention([np.stack([np.cos(angle), np.sin(angle)], axis=1)], [[1.0]])
    problem = attsvm.Problem(circle, None, attsvm.LinearHead([1.0, 2.0]))
    assert all(attsvm.feasible(circle, [t]).W is not None for t in range(8))
    found = attsvm.diagnose(problem)
    said = (
        "the shape alone does not decide: enough for almost all data, but not necessary, is dk >= T - 1 = 7 and dk dz"
    )
    assert not found.dimension_suffices and said in " ".join(str(found).split())


def test_infeasible_comes_with_its_certificate(sphere):
    problem = sphere(5, 4, 2).problem
    found = attsvm.diagnose(problem)
    assert not found.dimension_suffices and found.local_cone is None and "separable           no:" in str(found)
    assert judge.farkas(Case(problem.data, problem.optimal), found.to_dict()["solution"]["certificate"]) < 1e-9


def test_no_stationary_point_is_told_by_all_support_or_equal_scores(sphere):
    wide = attsvm.diagnose(sphere(5, 4, 60).problem)
    assert wide.all_support and wide.no_stationary_point == "all tokens support" and not wide.equal_scores
    # What the optimal selection implies does not depend on the selection diagnosed.
    assert attsvm.diagnose(sphere(5, 4, 60).problem, [0] * 5).no_stationary_point == "all tokens support"
    tied = attsvm.diagnose(equal_scores(5, 5, 8))
    assert tied.equal_scores and tied.no_stationary_point == "equal scores" and tied.score_spread < 1e-12
    assert "none, the other tokens of a query score the same" in str(tied)


def test_degenerate_data():
    found = attsvm.diagnose(by_scores([[[1.0, 2.0]]], [[1.0]]))
    assert found.solution.status == "no constraint" and found.locally_optimal and found.globally_optimal
    assert found.all_support and found.no_stationary_point is None and found.local_cone is None


@pytest.mark.parametrize("loss", _core.LOSS)
def test_the_gradient_is_as_smooth_as_promised(rng, loss):
    problem = problem_of(build_case("cross", positive=loss == "log"), loss)
    L = attsvm.diagnose(problem).lipschitz
    ratios = []
    for scale in np.repeat([0.01, 1.0, 10.0], 100):
        A = scale * rng.standard_normal((4, 3))
        B = A + 10.0 ** rng.uniform(-4, 1) * rng.standard_normal((4, 3))
        change = problem.loss_and_grad(A)[1] - problem.loss_and_grad(B)[1]
        ratios.append(np.linalg.norm(change) / np.linalg.norm(A - B))
    assert 0 < max(ratios) <= L


def test_no_stationary_point_in_the_local_cone(rng, sphere):
    """Samples of the cone, out to its edge and down to its radius: W's direction always descends."""
    for seed in range(20):
        problem = sphere(4, 4, 6, seed=seed).problem
        found = attsvm.diagnose(problem)
        mu, R = found.local_cone
        assert 0 < mu < 1 and R > 0
        W = found.solution.W / np.linalg.norm(found.solution.W)
        for _ in range(30):
            E = rng.standard_normal(W.shape)
            E -= np.vdot(E, W) * W
            cosine = 1 - mu * rng.uniform()
            U = cosine * W + np.sqrt(1 - cosine**2) * E / np.linalg.norm(E)
            _, gradient = problem.loss_and_grad(R * rng.uniform(1, 2) * U, scaled=True)
            assert np.vdot(gradient.W, W) < 0


def test_the_first_step_stays_in_the_separating_cone(rng, sphere):
    separated = 0
    for seed in range(60):
        problem = sphere(3, 3, 12, seed=seed).problem
        found = attsvm.diagnose(problem)
        _, G = problem.loss_and_grad(np.zeros((12, 12)))
        if found.separating_cone is None:
            continue
        separated += 1
        mu, R = found.separating_cone
        W, step = found.solution.W, -G / np.linalg.norm(G)
        assert_array_equal(problem.data.select(step), problem.optimal)
        assert 0 < mu <= 1
        _, gradient = problem.loss_and_grad((R + 1e-9) * step, scaled=True)
        assert np.vdot(gradient.W, W) < 0
    assert separated > 5


def test_a_margin_of_rounding_errors_separates_nothing():
    """Integers whose first step has a margin of 0, and of 8e-17 as computed."""
    X = [[[-1, 0], [1, 0], [1, 1]], [[1, 0], [1, -1], [0, -1]]]
    found = attsvm.diagnose(by_scores(X, [[1, -1, 0], [-1, -2, -1]], "linear", [[-1, 1], [1, 1]]))
    assert found.iota == 0 and found.separating_cone is None


@pytest.mark.parametrize("equal", [False, True])
def test_where_no_point_is_stationary_the_svm_direction_descends_everywhere(rng, sphere, equal):
    """Thousands of random W, as large as rounding can tell: beyond, the optimal tokens' softmax is below 1e-16."""
    problem = equal_scores(5, 5, 8) if equal else sphere(5, 4, 60).problem
    W = attsvm.diagnose(problem).solution.W
    for scale in np.repeat([0.01, 0.3, 1.0, 5.0], 1250):
        _, gradient = problem.loss_and_grad(scale * rng.standard_normal(W.shape), scaled=True)
        assert np.vdot(gradient.W, W) < 0


@pytest.mark.parametrize("scale", [1e-300, 1e-80, 1e80, 1e300])
def test_products_out_of_range_are_refused_by_name(scale, sphere):
    """Before, the step was infinite or zero, and iota NaN."""
    s = sphere()
    with pytest.raises(ValueError, match="problem must be of a scale .* got tokens of .*, scores of"):
        attsvm.diagnose(attsvm.Problem(attsvm.cross_attention(scale * s.X, s.Z), s.y, s.problem.head))
    if abs(math.log10(scale)) > 150:
        return
    rescaled = attsvm.cross_attention(scale * s.X, s.Z / scale, s.X)  # values as they were
    found, plain = attsvm.diagnose(attsvm.Problem(rescaled, s.y, s.problem.head)), attsvm.diagnose(s.problem)
    assert found.iota == pytest.approx(plain.iota, rel=1e-9)
    assert found.step_size == pytest.approx(plain.step_size, rel=1e-9)


@pytest.mark.parametrize("lead, locally_optimal", [(0.0, False), (1e-3, True), (-1e-3, False), (-0.5, False)])
def test_a_selected_token_must_score_more_than_its_support_tokens_by_any_amount(lead, locally_optimal):
    """Two tokens of one query, so that the other is its support token, and ties with or beats it by little."""
    problem = by_scores([[[1.0], [0.0]]], [[0.5, 0.5 - lead]])
    solution = attsvm.solve_svm(problem.data, [0])
    assert attsvm.theory.is_locally_optimal(problem, solution) == locally_optimal
    assert attsvm.diagnose(problem, [0]).locally_optimal == locally_optimal
