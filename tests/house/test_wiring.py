"""What is handed on arrives: options of estimators, the right array, the right tolerance, a condition taken.

Formulas have their tests beside the parts; here a call at the top is held against the same call at the bottom, or
against what only the right argument gives.
"""

import contextlib
from types import SimpleNamespace

import attsvm
import numpy as np
import pytest
from attsvm.attention.selection import Selection
from attsvm.svm import methods, solve, support
from attsvm.theory import conditions, regularization_path
from builders import paper
from numpy.testing import assert_allclose, assert_array_equal

CLASSES = np.array([0, 1, 0, 1, 1, 0])


@pytest.fixture(scope="module")
def drawn():
    return paper(6, 5, 4, 1)


# ------------------------------------------------------------------------------------------------ theory


def test_the_svm_of_labels_reads_values(drawn):
    values = np.random.default_rng(2).standard_normal((6, 5, 3)) + 2
    of_values, own = attsvm.cross_attention(drawn.X, drawn.Z, values), attsvm.prompt_attention(values)
    y, head = np.ones(6), attsvm.LinearHead(np.ones(3))  # whatever the tokens: some v gives a positive mean
    selected = [0, 1, 2, 3, 4, 0]
    one, other = (attsvm.theory.label_svm(attsvm.Problem(d, y, head), selected) for d in (of_values, own))
    assert one.W.shape == (3, 1)
    assert_allclose(one.W, other.W, rtol=1e-9)


@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
def test_the_gap_of_a_local_path_is_that_of_its_point(drawn, norm):
    problem = drawn.problem
    search = regularization_path._Search(problem, norm, 1e-30, 5, True, np.eye(4))
    W, log_size, gap = search.stationary(np.eye(4), 3.0)
    G = problem.loss_and_grad(W)[1]
    dual = np.linalg.norm(G, 2 if norm == "nuclear" else None)
    assert gap == pytest.approx(1 + np.vdot(G, W) / (3 * dual), rel=1e-6) and gap > 1e-6
    assert log_size == pytest.approx(np.log(dual), rel=1e-9)


def test_a_share_of_the_margin_has_both_ends(drawn, monkeypatch):
    data = drawn.data
    sol = attsvm.solve_svm(data, [0] * 6)
    bounds = {"margin": sol.margin / 2, "margin_bound": 2 * sol.margin}
    loose = SimpleNamespace(status="iteration limit", selection=sol.selection, message="", **bounds)
    monkeypatch.setattr(conditions, "solve_svm", lambda *_, **__: loose)
    W = sol.W + 0.05 * np.abs(sol.W).max()
    least = data.margins(W, [0] * 6)[:, 1:].min() / np.linalg.norm(W)
    assert 0 < least < sol.margin
    low, high = attsvm.theory.margin_share(data, [0] * 6, W)
    assert low == pytest.approx(least / loose.margin_bound) and high == pytest.approx(least / max(loose.margin, least))


def test_counts_below_one_are_next_tokens():
    found = attsvm.theory.soft_labels(np.eye(2), [[3, 0.25, 0], [0, 0, 0.5]])
    assert_array_equal(found.selected, [[True, True, False], [False, False, True]])


# ------------------------------------------------------------------------------------------------ uniqueness


def answer(X, Z, W, norm, dual):
    """Certified W of one token a query, whatever a solver would find."""
    data = attsvm.cross_attention(X, Z)
    selection = Selection(data, np.zeros(len(data), dtype=np.intp))
    flat = np.column_stack([np.zeros(len(data)), np.reshape(dual, (len(data), -1))]).ravel()
    W = np.array(W)
    margins = data._flat_margins(W, selection.reference)
    made = dict(data=data, selection=selection, W=W, norm=norm, status="optimal", method="auto")
    return SimpleNamespace(flat_dual=flat, flat_margins=margins, **made)


@pytest.mark.parametrize(
    ("row", "entry", "unique"),
    [
        (-2, 0.9, False),  # the second entry is free, its row has room
        (-2, 0.5, None),  # ... and has none
        (-2, 1.0, None),  # ... but lies at the end of the face
        (0, 0.9, False),  # a row of zeros holds nothing
    ],
)
def test_a_free_direction_needs_room(row, entry, unique):
    sol = answer([[[0, 0], [-1, 0], [0, row]]], [[1.0]], [[1.0], [entry]], "max", [1.0, 0.0])
    assert support.is_unique(sol) is unique


def test_the_nuclear_face_has_its_diagonal():
    """M = 2 I from (1, 1)(1, 1)^T, twice, and (1, -1)(1, -1)^T: diag(1, -1) is free, the other entries are held."""
    Z = np.array([[1.0, 1], [1, 1], [1, -1]])
    sol = answer(np.stack([0 * Z, -Z], axis=1), Z, 0.5 * np.eye(2), "nuclear", [0.5, 0.5, 1.0])
    assert support.is_unique(sol) is False


# ------------------------------------------------------------------------------------------------ sklearn


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ridge": 0.3},
        {"loss": "exponential"},
        {"lr": 0.02},
        {"train_head": False},
        {"factors": 2, "random_state": 3},
    ],
)
def test_options_of_the_classifier_are_those_of_training(drawn, options):
    sklearn, y = pytest.importorskip("attsvm.sklearn"), CLASSES
    model = sklearn.AttentionClassifier(max_iter=30, **options).fit(drawn.X, y, Z=drawn.Z)
    data = drawn.data
    v = np.linalg.lstsq(drawn.X.reshape(30, 4), np.repeat(2.0 * y - 1, 5))[0]
    start = {}
    if "factors" in options:
        rng = np.random.RandomState(3)
        start = {name: rng.standard_normal((4, 2)) / 2 for name in "KQ"}
    how = {name: options.get(name, usual) for name, usual in (("lr", 0.1), ("ridge", 0.0), ("train_head", True))}
    problem = attsvm.Problem(data, 2 * y - 1, attsvm.LinearHead(v), options.get("loss", "logistic"))
    run = attsvm.train(problem, **start, **how, steps=30, record=1)
    assert_allclose(model.W_, run.W, rtol=1e-12)
    assert_allclose(model.loss_curve_, run.loss, rtol=1e-12)


def test_weights_of_a_score(drawn):
    sklearn, y = pytest.importorskip("attsvm.sklearn"), CLASSES
    model = sklearn.AttentionClassifier(max_iter=3).fit(drawn.X, y, Z=drawn.Z)
    right = model.predict(drawn.X, Z=drawn.Z) == y
    y = np.where(np.arange(6) < 2, 1 - y, y)  # some are wrong, whatever it has learnt
    right[:2] = ~right[:2]
    weights = np.array([5.0, 1, 1, 1, 1, 1])
    assert 0 < right.sum() < 6
    assert model.score(drawn.X, y, weights, Z=drawn.Z) == pytest.approx(weights[right].sum() / 10)


@pytest.mark.parametrize(
    "options",
    [
        {"tol": 1e-2, "norm": "nuclear"},
        {"norm": "max"},
        {"C": 0.5},
        {"rank": 4, "norm": "nuclear"},
        {"method": "gradient"},
        {"norm": 3.0},
    ],
)
def test_options_of_the_selector_are_those_of_the_solver(drawn, options):
    sklearn = pytest.importorskip("attsvm.sklearn")
    model = sklearn.TokenSelector(**options).fit(drawn.X, [0] * 6, Z=drawn.Z)
    sol = attsvm.solve_svm(drawn.data, [0] * 6, options.pop("norm", "frobenius"), **options)
    assert_array_equal(model.W_, sol.W)
    assert (model.separation_.gap, model.separation_.method) == (sol.gap, sol.method)
    assert model.score(drawn.X, [0] * 6, Z=drawn.Z) == 1.0


# ------------------------------------------------------------------------------------------------ solver and training


@pytest.mark.parametrize("method", ["interior", "block", "gradient"])
def test_rounding_of_multipliers_of_both_signs_proves_nothing(method):
    """w_1 >= 1 and -w_1 + h w_2 >= -1 + e hold for (1, e / h): multipliers (1, 1) leave h beside b . lambda = e."""
    h, e = 1e-10, 1e-9
    data = attsvm.cross_attention([[[0, 0], [-1, 0], [1, -h]]], [[1.0]])
    with pytest.warns(attsvm.ConvergenceWarning):
        sol = attsvm.solve_svm(data, [0], margins=[[0, 1, -1 + e]], method=method)
    assert sol.status != "infeasible"


@pytest.mark.parametrize("most", range(1, 12))
@pytest.mark.filterwarnings("ignore::attsvm.ConvergenceWarning")
def test_tokens_of_one_logit_have_one_logit(most):
    """However early a solver stops: weights that leave the equal logits apart prove no margin."""
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((6, 8, 6)), rng.standard_normal((6, 6))
    kept = np.arange(8) < np.full((6, 1), 2)
    for method in ("block", "gradient", "interior"):
        sol = attsvm.solve_svm(attsvm.cross_attention(X, Z), kept, method=method, max_iter=most)
        if sol.W is not None:
            logits = np.einsum("ntd,de,ne->nt", X, sol.W, Z)
            assert np.abs(logits[:, 0] - logits[:, 1]).max() <= 1e-12 * np.linalg.norm(sol.W)


def test_a_row_of_zeros_misses_nothing_where_it_asks_for_nothing(drawn):
    X = drawn.X.copy()
    X[0, 1] = X[0, 0]
    data = attsvm.cross_attention(X, drawn.Z)
    margins = np.ones((6, 5))
    for asked, missed in ((0.0, 0.0), (-1.0, 0.0), (0.5, 0.5)):
        margins[0, 1] = asked
        sol = attsvm.solve_svm(data, [0] * 6, C=1.0, margins=margins)
        assert sol.slack[0, 1] == pytest.approx(missed, abs=1e-9) and sol.gap <= 1e-9


def test_a_soft_problem_that_asks_nothing_has_the_value_zero():
    sol = attsvm.solve_svm(
        attsvm.cross_attention(np.ones((2, 3, 2)), np.ones((2, 2))), [0, 0], C=1.0, margins=np.zeros((2, 3))
    )
    assert not sol.W.any() and sol.objective == sol.objective_bound == 0


def test_a_spectral_step_keeps_small_singular_values():
    """Two queries, the second 1e-6 as long: the step from 0 has two singular values, both the learning rate."""
    X = np.array([[[1.0, 0], [0, 0]], [[0, 1.0], [0, 0]]])
    data = attsvm.cross_attention(X, np.array([[1.0, 0], [0, 1e-6]]))
    problem = attsvm.Problem(data, None, attsvm.LinearHead([1.0, 1.0]), loss="exponential")
    run = attsvm.train(problem, rule="spectral", lr=0.5, steps=1, record=0)
    assert_allclose(np.linalg.svd(run.W, compute_uv=False), [0.5, 0.5], rtol=1e-9)


def test_a_solver_gets_what_was_asked(drawn, monkeypatch):
    seen, named = [], methods.METHODS["hard"]["nuclear"]
    real = named["interior"]
    monkeypatch.setitem(
        methods.METHODS["hard"]["nuclear"], "interior", lambda *given: seen.append(given) or real(*given)
    )
    data = drawn.data
    selection = attsvm.solve_svm(data, [0] * 6).selection
    start = np.ones(30), np.eye(4), lambda *_: None
    methods.solve_request(data, methods.Request(selection, "nuclear", "interior", 1e-5, 70, None, None, *start))
    _, reference, kept, rhs, *numbers, dual, W, report = seen[0]
    assert (kept, rhs, *numbers) == (None, None, 1e-5, 70, 0.0, 2.0, 0) and reference is selection.reference
    assert all(given is asked for given, asked in zip((dual, W, report), start, strict=True))


def test_a_bar_is_full_at_the_tolerance(drawn, monkeypatch):
    heard = []
    bar = lambda tol, progress: contextlib.nullcontext(lambda *now: heard.append((tol, *now)))  # noqa: E731
    monkeypatch.setattr(solve, "closing_gap", bar)
    sol = attsvm.solve_svm(drawn.data, [0] * 6, tol=1e-5, progress=True)
    assert heard[-1] == (1e-5, sol.iterations, sol.gap)


def test_a_start_fits_windows_of_one_token(drawn):
    """A query with one token has no row: its entries are left out of the start too."""
    data = attsvm.cross_attention([drawn.X[0, :1], *drawn.X[1:]], drawn.Z)
    cold = attsvm.solve_svm(data, [0] * 6, method="gradient")
    warm = attsvm.solve_svm(data, [0] * 6, method="gradient", warm_start=cold)
    assert data._choosing is not None and warm.iterations < cold.iterations / 2


def test_a_diagnosis_keeps_the_best_tokens_and_those_asked_apart():
    """The cone of global convergence is that of the best tokens in the Frobenius norm, whatever is asked beside it."""
    problem = paper(3, 3, 12).problem
    other = (problem.optimal + 1) % 3
    plain = attsvm.diagnose(problem)
    assert plain.separating_cone is not None
    for selected, norm in ((None, "nuclear"), (None, "max"), (other, "frobenius"), (other, "nuclear")):
        found = attsvm.diagnose(problem, selected, norm)
        assert found.separating_cone == plain.separating_cone and found.solution.norm == norm
        assert found.all_support == bool(found.solution.support.sum() == 6)


def test_queries_out_of_scale_are_refused_whatever_the_tokens(drawn):
    data = attsvm.cross_attention(1e140 * drawn.X, 1e-160 * drawn.Z)
    with pytest.raises(ValueError, match="rescale them"):
        attsvm.diagnose(attsvm.Problem(data, drawn.y, attsvm.LinearHead(1e-140 * drawn.v)))


def test_multipliers_of_other_tokens_are_a_start_and_their_weights_are_not(drawn):
    small = attsvm.solve_svm(attsvm.cross_attention(drawn.X[..., :3], drawn.Z), [0] * 6, "nuclear")
    data = drawn.data
    sol = attsvm.solve_svm(data, [0] * 6, "nuclear", warm_start=small)
    assert sol.margin == pytest.approx(attsvm.solve_svm(data, [0] * 6, "nuclear").margin, rel=1e-8)


def test_a_start_keeps_its_signs_and_leaves_out_what_is_not_finite(drawn):
    """Multipliers of equality rows have both signs; those that overflowed say nothing."""
    data = drawn.data
    signed = np.random.default_rng(0).standard_normal((6, 5))
    dual, W = solve.as_start(data, SimpleNamespace(multipliers=signed), "nuclear")
    assert_array_equal(dual, signed.ravel())
    assert W is None
    sol = attsvm.solve_svm(data, [0] * 6, "nuclear")
    expected = sol.flat_dual.copy()
    for at, extreme in ((1, np.inf), (2, -np.inf), (7, np.nan)):
        sol.flat_dual[at], expected[at] = extreme, 0.0
    dual, W = solve.as_start(data, sol, "nuclear")
    assert_array_equal(dual, expected)
    assert_array_equal(W, sol.W)


def test_what_a_rule_keeps(drawn):
    """From W = 0 adam's mean is G and its metric |G|; momentum of any size is kept, and moves the second step."""
    problem = drawn.problem
    run = attsvm.train(problem, rule="adam", steps=1, record=0)
    assert_allclose(run.metric / run.metric.max(), np.abs(run.mean) / np.abs(run.mean).max(), rtol=1e-9)
    assert (run.mean < 0).any() and (run.metric > 0).all()
    plain, small = (attsvm.train(problem, momentum=beta, steps=5, record=0) for beta in (0.0, 0.3))
    assert plain.mean is None and small.mean is not None and np.abs(small.W - plain.W).max() > 1e-4
