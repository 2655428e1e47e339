"""The scikit-learn estimators: the checks of scikit-learn itself, and what attention adds."""

import attsvm
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

sklearn = pytest.importorskip("sklearn")

from attsvm.sklearn import AttentionClassifier, HardMarginClassifier, TokenSelector  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402


class Separated(HardMarginClassifier):
    """Most of the data of scikit-learn's checks have no plane: these are given labels that have one."""

    def fit(self, X, y, **others):
        try:
            return super().fit(X, y, **others)
        except ValueError as error:
            if not str(error).startswith("not separable"):
                raise
        first = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)[:, 0]
        return super().fit(X, np.unique(np.asarray(y))[(first > np.median(first)).astype(int)])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # of the labels it has not seen
        return tags


ESTIMATORS = [
    AttentionClassifier(max_iter=300),
    AttentionClassifier(max_iter=300, factors=3),
    AttentionClassifier(max_iter=300, train_head=False, loss="exponential"),
    Separated(),
    TokenSelector(),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def table(n=200, seed=0):
    """Which of the first two features is larger: no linear classifier of |x| does it at an offset, attention does."""
    X = np.abs(np.random.default_rng(seed).standard_normal((n, 3)))
    return X, np.where(X[:, 0] > X[:, 1], "wide", "tall")


def sequences(n=60, T=5, d=4, seed=0):
    """Sequences whose class is carried by the token that the query points at."""
    rng = np.random.default_rng(seed)
    X, Z = rng.standard_normal((n, T, d)), rng.standard_normal((n, d))
    selected = (X @ Z[:, :, None])[:, :, 0].argmax(axis=1)
    y = np.where(X[np.arange(n), selected, 0] > 0, 1, -1)
    return X, Z, selected, y


def test_a_table_by_hand():
    """W, v and attention reproduce the decision from tokens and queries written out here."""
    X, y = table(40)
    model = AttentionClassifier(max_iter=50).fit(X, y)
    tokens = np.stack([np.column_stack([X[:, j], np.tile(np.eye(3)[j], (40, 1))]) for j in range(3)], axis=1)
    queries = np.column_stack([X, np.ones(40)])
    logits = np.einsum("ntd,de,ne->nt", tokens, model.W_, queries)
    prob = np.exp(logits - logits.max(axis=1, keepdims=True))
    prob /= prob.sum(axis=1, keepdims=True)
    assert_allclose(model.attention(X), prob, rtol=1e-12)  # rounding of the logits
    u = np.einsum("nt,ntd,d->n", prob, tokens, model.v_)
    assert_allclose(model.decision_function(X), u, rtol=1e-11, atol=1e-12)
    assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-u)), rtol=1e-11)
    assert (model.predict(X) == np.where(u > 0, model.classes_[1], model.classes_[0])).all()
    assert model.loss_curve_[-1] < model.loss_curve_[0] and model.n_iter_ == 50
    factors = AttentionClassifier(factors=2, max_iter=5).fit(X, y)
    assert_allclose(factors.W_, factors.K_ @ factors.Q_.T, rtol=1e-12, atol=1e-14)  # rounding


def test_the_head_stays_when_told():
    X, y = table(40)
    model = AttentionClassifier(max_iter=50, train_head=False).fit(X, y)
    longer = AttentionClassifier(max_iter=100, train_head=False).fit(X, y)
    assert_array_equal(model.v_, longer.v_)
    assert (model.W_ != longer.W_).any()
    assert not hasattr(AttentionClassifier(loss="exponential"), "predict_proba")


def test_tokens_with_queries_of_their_own():
    X, Z, _, y = sequences()
    model = AttentionClassifier(max_iter=500).fit(X, y, Z=Z)
    assert model.score(X, y, Z=Z) > 0.9 and model.attention(X, Z=Z).shape == (60, 5)
    first = AttentionClassifier(max_iter=50).fit(X, y)  # the first token queries
    data = attsvm.self_attention(X)
    assert_array_equal(first.attention(X), data.probabilities(first.W_))
    with pytest.raises(ValueError, match="give Z where fit had it"):
        AttentionClassifier(max_iter=5).fit(X, y, Z=Z[:, :2]).predict(X)


def test_queries_by_metadata_routing():
    X, Z, selected, y = sequences(n=200)
    with sklearn.config_context(enable_metadata_routing=True):
        model = AttentionClassifier(max_iter=300).set_fit_request(Z=True).set_score_request(Z=True)
        pipeline = make_pipeline(FunctionTransformer(), model)
        scores = cross_val_score(pipeline, X, y, cv=2, params={"Z": Z}, error_score="raise")
        assert scores.shape == (2,) and scores.mean() > 0.5
        selector = TokenSelector(C=10.0).set_fit_request(Z=True).set_score_request(Z=True)
        search = GridSearchCV(selector, {"C": [0.1, 100.0]}, cv=2, error_score="raise").fit(X, selected, Z=Z)
        assert search.best_score_ > 0.6


def test_selector_is_the_certified_svm():
    X, Z, selected, _ = sequences()
    model = TokenSelector().fit(X, selected, Z=Z)
    data = attsvm.cross_attention(X, Z)
    sol = attsvm.solve_svm(data, selected)
    assert_array_equal(model.W_, sol.W)
    assert model.separation_.status == "optimal" and model.separation_.gap <= 1e-9
    assert_array_equal(model.predict(X, Z=Z), selected)
    assert_array_equal(model.decision_function(X, Z=Z), data.logits(sol.W))
    new_X, new_Z, new_selected, _ = sequences(n=200, seed=1)
    assert model.score(new_X, new_selected, Z=new_Z) > 0.6  # of five tokens, so 0.2 by chance


def test_selector_on_ragged_sequences_and_several_tokens():
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((T, 6)) for T in (3, 5, 2)]
    model = TokenSelector().fit(X, [2, 0, 1])
    assert model.predict(X).tolist() == [2, 0, 1] and [len(row) for row in model.decision_function(X)] == [3, 5, 2]
    sets = np.array([[True, True, False], [False, True, True]])
    X = rng.standard_normal((2, 3, 6))
    assert TokenSelector().fit(X, sets).score(X, sets) == 1.0


def test_selector_says_what_to_do():
    X, Z, selected, _ = sequences(n=5)
    X[0, 1] = X[0, selected[0]] = X[0, 0]
    with pytest.raises(
        ValueError, match=r"no W selects these tokens: in the window of query 0.*C=1.0\) allows for exceptions"
    ):
        TokenSelector().fit(X, [0, 1, 2, 3, 4], Z=Z)
    with pytest.raises(NotFittedError):
        TokenSelector().predict(X)
    model = TokenSelector().fit(X[1:], selected[1:], Z=Z[1:])
    with pytest.raises(ValueError, match="X has 3 features, but TokenSelector is expecting 4"):
        model.predict(X[:, :, :3])


def test_hard_margin_is_the_certified_plane():
    X, y = np.random.default_rng(0).standard_normal((30, 50)), np.where(np.arange(30) % 3, "no", "yes")
    model, plane = HardMarginClassifier().fit(X, y), attsvm.separable(X, y)
    assert model.plane_ == plane and (model.support_ == plane.support).all()
    assert_array_equal(model.decision_function(X), X @ model.coef_[0] + model.intercept_[0])
    assert_array_equal(model.predict(X), y)
    assert HardMarginClassifier(fit_intercept=False).fit(X, y).intercept_ == 0


@pytest.mark.parametrize(
    ("y", "weights", "message"),
    [
        ([0, 0, 1], {}, "^not separable .*: points 2 and 1 are equal"),
        (
            [0, 0, 1],
            {"sample_weight": [1, 1, 2]},
            "a hard margin must be met by every point, and weights do not change it",
        ),
        ([0, 0, 1], {"weights": [1, 1, 2]}, "got \\['weights'\\]"),
        ([1, 1, 1], {}, "two classes, got 1 class"),
    ],
)
def test_hard_margin_says_why_not(y, weights, message):
    with pytest.raises((TypeError, ValueError), match=message):
        HardMarginClassifier().fit([[0.0], [1.0], [1.0]], y, **weights)
