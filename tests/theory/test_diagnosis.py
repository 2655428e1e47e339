"""Every number of a diagnosis against an independent computation, and its verdicts against what training does."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import attsvm
import numpy as np
import pytest
import reference
from attsvm.theory import conditions
from builders import BUILDERS, build_case
from places import GOLDEN


def one_problem(n=6, T=8, d=10, rng=0):
    X, Z, y, v = attsvm.sample.unit_sphere(n, T, d, rng)
    return attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))


def equal_scores(n, T, d, rng=0):
    """Non-optimal tokens of a sequence tie to the last bit: the head reads the first coordinate."""
    X, Z, y, _ = attsvm.sample.unit_sphere(n, T, d, rng)
    X[..., 0] = y[:, None] * np.where(np.arange(T) == 0, 0.5, -0.125)
    return attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(np.eye(d)[0]))


@pytest.mark.parametrize("which", ["W", "KQ"])
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_cases(path, which):
    """From the stored CVXPY solutions and the raw tokens alone."""
    g = SimpleNamespace(**np.load(path))
    norm = {"W": "frobenius", "KQ": "nuclear"}[which]
    chosen, W = getattr(g, f"{which}_chosen"), getattr(g, f"{which}_svm_{norm[:3]}")
    problem = attsvm.Problem(attsvm.cross_attention(g.X, g.Z), g.y, attsvm.LinearHead(g.v))
    found = attsvm.diagnose(problem, chosen, norm)
    rows = np.arange(6)
    scores = g.y[:, None] * (g.X @ g.v)
    np.testing.assert_allclose(found.scores, scores, rtol=1e-12)
    best = scores.argmax(axis=1)
    np.testing.assert_array_equal(found.optimal, best)
    assert found.globally_optimal == (best == chosen).all()
    margins = np.einsum("ntd,de,ne->nt", g.X[rows, chosen][:, None] - g.X, W, g.Z)
    tight = margins <= 1 + 1e-5  # a first-order solver's margins are good to about 1e-7
    tight[rows, chosen] = False
    np.testing.assert_array_equal(found.tight, tight)
    assert found.all_support == (tight.sum() == 42)
    rivals = np.where(tight & (scores >= scores[rows, chosen][:, None]), scores, -np.inf)
    beaten = np.where(np.isfinite(rivals.max(axis=1)), rivals.argmax(axis=1), -1)
    np.testing.assert_array_equal(found.beaten_by, beaten)
    assert found.locally_optimal == (beaten == -1).all()
    assert found.solution.margin == pytest.approx(1 / reference.matrix_norms(W, norm)[0], rel=1e-7)
    assert found.dimension_suffices and found.solution.status == "optimal"
    ordered = np.sort(scores, axis=1)
    assert found.score_gap == pytest.approx((ordered[:, -1] - ordered[:, -2]).min())
    assert found.score_spread == pytest.approx((ordered[:, -2] - ordered[:, 0]).max())
    _, G, scale = reference.loss_and_grad(problem.data, g.y, g.v, "logistic", np.zeros((10, 10)))
    G = G * np.exp(scale)
    first = np.einsum("ntd,de,ne->nt", g.X - g.X[rows, best][:, None], G, g.Z)
    first[rows, best] = np.inf
    assert found.iota == pytest.approx(first.min())
    sizes = np.linalg.norm(g.X, 2, axis=(1, 2))
    L = np.mean(np.linalg.norm(g.v) * (g.Z**2).sum(1) * sizes**3 * (np.linalg.norm(g.v) * sizes / 4 + 3))
    assert found.lipschitz == pytest.approx(L) and found.step_size == pytest.approx(1 / L)
    assert (found.local_cone is None) == (norm == "nuclear" or not found.locally_optimal)


@pytest.mark.parametrize("norm", ["frobenius", "nuclear", 3.0])
@pytest.mark.parametrize("kind", BUILDERS)
def test_every_kind_of_data(kind, norm):
    if norm != "frobenius" and kind == "cross_gemm":
        pytest.skip("hundreds of rows of another norm take long and show nothing new")
    case = build_case(kind)
    problem = attsvm.Problem(case.data, case.y, attsvm.LinearHead(case.v))
    found = attsvm.diagnose(problem, norm=norm)
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["solution"]["status"] == found.status and str(found).startswith(f"Diagnosis of {len(case.data)} quer")
    assert found.globally_optimal
    if found.solution.W is None:
        assert found.tight is None and found.locally_optimal is None and found.all_support is None
        return
    assert found.locally_optimal or not found.unique_optimum
    rows = reference.svm_rows(case.data, problem.optimal)
    margins = reference.svm_apply(rows, found.solution.W)
    expected = {(q, t) for (q, t, *_), m in zip(rows, margins, strict=True) if m <= 1 + 1e-4}
    support = reference.per_entry(case.data, found.tight)
    assert {(q, t) for q, row in enumerate(support) for t in np.flatnonzero(row)} == expected


def test_words_of_a_selection_that_is_not_optimal():
    found = attsvm.diagnose(one_problem(), [0] * 6)
    text = str(found)
    assert "not globally optimal: the best token of 1 of 6 queries" in text
    beaten = int((found.beaten_by >= 0).sum())
    assert f"no: in {beaten} of 6 queries a tight token scores as much" in text
    q = int(np.argmax(found.beaten_by >= 0))
    assert f"query {q}: token {found.beaten_by[q]} scores {found.scores[q, found.beaten_by[q]]:.4g}" in text


def test_tokens_that_are_not_locally_optimal_may_be_selected_all_the_same():
    """The best value twice: training keeps one of the two.  Scalars, of which one query wants W > 0 more than the other
    wants W < 0: the rows depend on each other."""
    X, Z, y, _ = attsvm.sample.unit_sphere(4, 6, 12, rng=6)
    best, q = (y[:, None] * X[:, :, 0]).argmax(axis=1), np.arange(4)
    X[q, (best + 1) % 6, 0] = X[q, best, 0]
    twice = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(np.eye(12)[0]))
    values = [[[0.0], [0.1]], [[1.0], [0.0]]]
    scalars = attsvm.cross_attention(np.array([[[1.0], [0.0]]] * 2), np.ones((2, 1)), values)
    for problem in (twice, attsvm.Problem(scalars, None, attsvm.LinearHead([1.0]))):
        run = attsvm.train(problem, steps=4000, record=[2000])
        np.testing.assert_array_equal(run.selected, run.data.select(run.weights[1]))
        found = attsvm.diagnose(problem, run)
        assert not found.locally_optimal and "training may leave or stay" in str(found)
    found = attsvm.diagnose(twice, np.where(q == 3, best + 2, np.where(q == 2, best + 1, best)) % 6)
    assert "the best token of 3 of 4 queries" in str(found) and not found.unique_optimum and found.score_gap == 0
    # All margins are 1, and every W is stationary.
    same = attsvm.Problem(
        attsvm.cross_attention([[[1.0], [0.0]]], [[1.0]], [[[2.0], [2.0]]]), head=attsvm.LinearHead([1.0])
    )
    assert "stationary points   every W: all tokens that a query sees score the same" in str(attsvm.diagnose(same))


@pytest.mark.parametrize("delta", [5e-5, 1e-7])
def test_margins_or_scores_that_are_nearly_equal_exclude_no_stationary_point(delta):
    """Tokens 1, 0, -delta scoring 1, 0, .9, and 1, 0, -1 scoring 1, 0, delta: a W < 0 is stationary."""
    for tokens, scores in (([1.0, 0.0, -delta], [1.0, 0.0, 0.9]), ([1.0, 0.0, -1.0], [1.0, 0.0, delta])):
        data = attsvm.cross_attention([np.transpose([tokens])], [[1.0]], [np.transpose([scores])])
        problem = attsvm.Problem(data, None, attsvm.LinearHead([1.0]))
        slopes = [problem.loss_and_grad([[-w]])[1].item() for w in (0.0, 40.0)]
        assert slopes[0] < 0 < slopes[1]
        found = attsvm.diagnose(problem)
        assert found.no_stationary_point is None and "stationary points   not excluded" in str(found)


def test_training_may_leave_the_local_cone():
    """What is said of the cone is that the loss falls along the solution in it; a start inside is left, by the theory's
    own step too."""
    problem = one_problem()
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
    X, start = data.keys, data.start
    return np.array([np.outer(X[a] - X[t], z).ravel() for a, b, z in zip(start, data.stop, data.queries, strict=True)
                     for t in range(a + 1, b)])  # fmt: skip


def test_the_shape_is_enough_where_it_makes_rows_independent(rng):
    """dk >= T - 1 and dk dz >= n (T - 1), with equality in some: below max(T - 1, n), which the paper asks."""
    shapes = [(10, 2, 4, 4), (6, 3, 5, 5), (3, 3, 3, 2), (12, 4, 4, 9), (5, 4, 3, 5), (7, 2, 1, 7), (4, 1, 1, 1)]
    for n, T, dk, dz in shapes:
        X, Z = rng.standard_normal((n, T, dk)), rng.standard_normal((n, dz))
        data = attsvm.cross_attention(X, Z)
        rows = rows_of(data)
        assert len(rows) == 0 or np.linalg.matrix_rank(rows) == len(rows)
        problem = attsvm.Problem(data, None, attsvm.LinearHead(np.ones(dk)))
        found = attsvm.diagnose(problem)
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


def test_infeasible_comes_with_its_certificate():
    problem = one_problem(5, 4, 2)
    found = attsvm.diagnose(problem)
    assert not found.dimension_suffices and found.local_cone is None and "separable           no:" in str(found)
    assert reference.farkas(problem.data, problem.optimal, found.to_dict()["solution"]["certificate"]) < 1e-9


def test_no_stationary_point_is_told_by_all_support_or_equal_scores():
    wide = attsvm.diagnose(one_problem(5, 4, 60))
    assert wide.all_support and wide.no_stationary_point == "all tokens support" and not wide.equal_scores
    # What the optimal selection implies does not depend on the selection diagnosed.
    assert attsvm.diagnose(one_problem(5, 4, 60), [0] * 5).no_stationary_point == "all tokens support"
    tied = attsvm.diagnose(equal_scores(5, 5, 8))
    assert tied.equal_scores and tied.no_stationary_point == "equal scores" and tied.score_spread < 1e-12
    assert "none, the other tokens of a query score the same" in str(tied)
    assert attsvm.diagnose(one_problem()).no_stationary_point is None


def test_degenerate_data():
    alone = attsvm.Problem(attsvm.cross_attention([[[1.0, 2.0]]], [[1.0]]), head=attsvm.LinearHead([1.0, 0.0]))
    found = attsvm.diagnose(alone)
    assert found.solution.status == "no constraint" and found.locally_optimal and found.globally_optimal
    assert found.all_support and found.no_stationary_point is None and found.local_cone is None


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (("no problem",), TypeError, "problem must be a Problem"),
        ((one_problem(), np.eye(6, 8, dtype=bool)), ValueError, "selected must hold one token per query"),
        ((one_problem(), [0, 1]), ValueError, "selected must have shape"),
        ((one_problem(), [8] * 6), ValueError, "selected must be token indices"),
        ((one_problem(), None, "operator"), ValueError, "norm must be one of"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, match):
    with pytest.raises(error, match=match):
        attsvm.diagnose(*arguments)


@pytest.mark.parametrize("loss", ["logistic", "exponential", "linear", "log"])
def test_the_gradient_is_as_smooth_as_promised(rng, loss):
    X, Z, y, v = attsvm.sample.unit_sphere(3, 4, 5, rng)
    X, v = (np.abs(X) + 0.1, np.abs(v)) if loss == "log" else (X, v)
    data = attsvm.cross_attention(X, Z)
    problem = attsvm.Problem(data, None if loss == "log" else y, attsvm.LinearHead(v), loss=loss)
    L = attsvm.diagnose(problem).lipschitz
    ratios = []
    for scale in np.repeat([0.01, 1.0, 10.0], 100):
        A = scale * rng.standard_normal((5, 5))
        B = A + 10.0 ** rng.uniform(-4, 1) * rng.standard_normal((5, 5))
        change = problem.loss_and_grad(A)[1] - problem.loss_and_grad(B)[1]
        ratios.append(np.linalg.norm(change) / np.linalg.norm(A - B))
    assert 0 < max(ratios) <= L


@pytest.mark.parametrize("loss", ["logistic", "exponential"])
def test_lipschitz_constant_of_own_values_and_heads(rng, loss):
    X, Z, values = rng.standard_normal((3, 4, 5)), rng.standard_normal((3, 2, 6)), rng.standard_normal((3, 4, 2))
    heads = rng.standard_normal((3, 2, 2))
    problem = attsvm.Problem(attsvm.cross_attention(X, Z, values), None, attsvm.LinearHead(heads), loss=loss)
    bound = 1.0 if loss == "logistic" else np.exp(-problem.scores.min())
    terms = []
    for i in range(3):
        for s in range(2):
            g = np.linalg.norm(values[i], 2) * np.linalg.norm(heads[i, s])
            curvature = (0.25 if loss == "logistic" else bound) * g + 3 * bound
            terms.append((Z[i, s] ** 2).sum() * np.linalg.norm(X[i], 2) ** 2 * g * curvature)
    assert attsvm.diagnose(problem).lipschitz == pytest.approx(np.mean(terms))


def test_no_stationary_point_in_the_local_cone(rng):
    """Samples of the cone, out to its edge and down to its radius: W's direction always descends."""
    for seed in range(20):
        problem = one_problem(4, 4, 6, rng=seed)
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


def test_the_first_step_stays_in_the_separating_cone(rng):
    separated = 0
    for seed in range(60):
        problem = one_problem(3, 3, 12, rng=seed)
        found = attsvm.diagnose(problem)
        _, G = problem.loss_and_grad(np.zeros((12, 12)))
        chosen = problem.optimal
        assert (found.separating_cone is not None) == (found.iota > 0)
        if found.separating_cone is None:
            continue
        separated += 1
        mu, R = found.separating_cone
        W = found.solution.W
        step = -G / np.linalg.norm(G)
        np.testing.assert_array_equal(problem.data.select(step), chosen)
        least = problem.data.margins(step, chosen).min()
        assert least == pytest.approx(mu / np.linalg.norm(W)) and 0 < mu <= 1
        _, gradient = problem.loss_and_grad((R + 1e-9) * step, scaled=True)
        assert np.vdot(gradient.W, W) < 0
    assert separated > 5


@pytest.mark.parametrize("problem", [one_problem(5, 4, 60), equal_scores(5, 5, 8)], ids=["all_support", "equal"])
def test_where_no_point_is_stationary_the_svm_direction_descends_everywhere(rng, problem):
    """Ten thousand random W, as large as rounding can tell: beyond, the optimal tokens' softmax is below 1e-16."""
    W = attsvm.diagnose(problem).solution.W
    for scale in np.repeat([0.01, 0.3, 1.0, 5.0], 1250):
        _, gradient = problem.loss_and_grad(scale * rng.standard_normal(W.shape), scaled=True)
        assert np.vdot(gradient.W, W) < 0


@pytest.mark.slow
def test_verdicts_are_where_training_ends():
    """Started at c times a selection's solution, training stays on it if and only if it is locally optimal.

    Half of the selections are uniform; few of those are locally optimal, so the others choose among each query's two
    best tokens.  At a finite start a better token just off the support may still win: such runs are listed.
    """
    rng = np.random.default_rng(0)
    starts = (15, 300, 3000)
    agrees, verdicts, listed = [], [], []
    for k in range(1000):
        n, T = rng.integers(2, 7, 2)
        problem = one_problem(n, T, int(rng.integers(max(n, T - 1), 13)), rng)
        two_best = np.argsort(-problem.scores, axis=1)[np.arange(n), rng.integers(2, size=n)]
        selected = two_best if k % 2 else rng.integers(T, size=n)
        found = attsvm.diagnose(problem, selected)
        assert found.solution.status in ("optimal", "no constraint")
        W = found.solution.W
        runs = [attsvm.train(problem, c * W, lr=c * np.linalg.norm(W) / 300, steps=4000, record=0) for c in starts]
        agrees.append([(run.selected == selected).all() == found.locally_optimal for run in runs])
        verdicts.append(found.locally_optimal)
        if not agrees[-1][-1]:
            margins = problem.data.margins(W, selected)
            over = np.min(margins[margins > 1 + conditions.TIGHT], initial=np.inf) - 1
            listed.append(f"problem {k}, {found.locally_optimal=}: least margin off the support 1 + {over:.1e}")
    agrees, verdicts = np.array(agrees), np.array(verdicts)
    print(agrees.mean(axis=0), verdicts.mean(), *listed, sep="\n")
    assert 0.05 < verdicts.mean() < 0.5
    assert agrees[:, -1].mean() >= 0.99, listed
    assert agrees[verdicts, -1].mean() >= 0.98 and agrees[~verdicts, -1].mean() >= 0.99, listed
    assert (np.diff(agrees[verdicts].mean(axis=0)) >= 0).all()  # a larger start suppresses more of the others


def test_the_radius_of_the_separating_cone_is_the_formula():
    """R where every optimal token holds so much softmax that B (1 - s) < 1, from the margins in NumPy."""
    seen = 0
    for seed in range(40):
        X, Z, y, v = attsvm.sample.unit_sphere(4, 6, 8, rng=seed)
        problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
        found = attsvm.diagnose(problem)
        if found.separating_cone is None:
            continue
        W, mu = found.solution.W, found.separating_cone[0]
        margins = np.einsum("ntd,nd->nt", X[np.arange(4), problem.optimal][:, None] - X, Z @ W.T)
        worst = (5 * (margins - 1)).max()
        R = np.linalg.norm(W) * max(0, np.log(max(worst, 1e-300))) / mu
        assert found.separating_cone[1] == pytest.approx(R, rel=1e-9)  # the same operations in another order
        seen += R > 0
    assert seen > 0


@pytest.mark.parametrize("scale", [1e-300, 1e-80, 1e80, 1e300])
def test_products_out_of_range_are_refused_by_name(scale):
    """Before, the step was infinite or zero, and iota NaN."""
    X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    with pytest.raises(ValueError, match="problem must be of a scale .* got tokens of .*, scores of"):
        attsvm.diagnose(attsvm.Problem(attsvm.cross_attention(scale * X, Z), y, attsvm.LinearHead(v)))
    if abs(math.log10(scale)) > 150:
        return
    rescaled = attsvm.cross_attention(scale * X, Z / scale, X)  # values as they were
    found = attsvm.diagnose(attsvm.Problem(rescaled, y, attsvm.LinearHead(v)))
    plain = attsvm.diagnose(attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v)))
    assert found.iota == pytest.approx(plain.iota, rel=1e-9)
    assert found.step_size == pytest.approx(plain.step_size, rel=1e-9)


def test_optimal_tokens_that_nothing_separates_are_told():
    found = attsvm.theory.next_token([[0, 1, 3], [1, 0, 2, 3], [0, 2, 1, 3]], [0, 1, 0], np.eye(4))
    text = " ".join(repr(attsvm.diagnose(found.problem)).split())
    assert "not excluded: enough would be one best token in each query, weights that rank these first" in text
