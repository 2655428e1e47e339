"""Reports of heads whose truth is known: a rule, a bilinear form, noise, ties; and which rows every SVM was given."""

from unittest.mock import Mock

import attsvm
import made
import numpy as np
import pytest
from attsvm import heads
from attsvm.heads import analysis, fit
from attsvm.heads.choices import baselines, best_rule, hard_queries
from attsvm.heads.controls import gaussian_factors, null_head, random_rows, shuffled_factors, student
from attsvm.svm.separation import Separation
from compare import close
from numpy.testing import assert_allclose, assert_array_equal

T = 4


def make_head(rng, n=70, d=6, m=2, T=T, sharpness=3.0):
    """Sentences of T Gaussian tokens without words, so that three rules apply: an offset, the first, the nearest."""
    Wq, Wk = sharpness * rng.standard_normal((2, m, d)) / np.sqrt(d)
    return heads.from_arrays(rng.standard_normal((n, T, d)), Wq, None, Wk, None)[0]


def labels_of(head, query, chosen):
    return np.column_stack(np.broadcast_arrays(np.arange(len(head.text.lengths)), query, chosen))


def analyzed(head, labels=None, **options):
    return heads.analyze_head(head, labels=labels, **{"null": False, "nuclear_queries": 0} | options)


# ------------------------------------------------------------------------------------- heads of a known truth


@pytest.fixture(scope="module")
def noise():
    """Reports of choices that depend on nothing: of SVM and rule one in T is right, whatever the split."""
    found = []
    for seed in range(20):
        rng = np.random.default_rng([7, seed])
        head = make_head(rng, d=16)  # where 49 random choices can be separated
        found.append(analyzed(head, labels_of(head, rng.integers(0, T, 70), rng.integers(0, T, 70)), seed=seed))
    return found


def test_of_noise_svm_and_rule_know_nothing(noise):
    """A best rule that test rows had chosen would be .08 better than chance, an SVM tried on its own rows right."""
    right, rule, gain = (
        np.array([getattr(r, name) for r in noise]) for name in ("accuracies", "rule_accuracies", "gain")
    )
    assert right.shape == rule.shape == (20, 5) and all(len(r.test) == 21 for r in noise)
    assert abs(right.mean() - 1 / T) < 0.05 and abs(rule.mean() - 1 / T) < 0.05
    assert abs(right[:, 1:].mean() - 1 / T) < 0.05 and abs(gain.mean()) < 0.05
    assert [r.gain for r in noise] == pytest.approx((right - rule).mean(axis=1).tolist())


def test_intervals_are_paired_and_cover_the_truth_of_noise(noise):
    """Of 20, 95 % ones miss 1 on average, and more than 5 in one of 3,000 such tests; the seeds are fixed."""
    missed = np.zeros(2)
    for r in noise:
        gain, right = r.accuracies - r.rule_accuracies, r.accuracies
        for k, (values, least, truth, ends) in enumerate(
            ((gain, -1, 0, r.gain_interval), (right, 0, 1 / T, r.accuracy_interval))
        ):
            half = student(4) * np.sqrt((1 / 5 + 3 / 7) * values.var(ddof=1))
            assert ends == pytest.approx((max(values.mean() - half, least), min(values.mean() + half, 1)))
            missed[k] += not ends[0] <= truth <= ends[1]
    assert max(missed) <= 5 and sum(r.beats_rules for r in noise) <= 3


def test_a_rule_is_found_and_not_beaten(rng):
    head = make_head(rng, n=120, T=6)
    query = rng.integers(0, 5, 120)
    report = analyzed(head, labels_of(head, query, query + 1), C=1.0)
    assert report.rule == "offset +1" and report.best_baseline == ("offset +1", 1.0)
    assert (report.rule_accuracies == 1).all() and report.gain <= 0 and not report.beats_rules
    assert report.columns()["baseline"] == ["offset +1"]


def test_the_best_rule_is_that_of_the_training_rows(rng):
    """And no better on test rows that follow another; fitted on other sentences than those it is chosen on."""
    head = make_head(rng)
    query = rng.integers(1, T - 1, 70)
    train, test = labels_of(head, query, query + 1)[:50], labels_of(head, query, 0)[50:]
    name, right = best_rule(head, train, test)
    assert name == "offset +1" and right[name] == 0 and right["first token"] == 1
    # Each query copied to a second row of its sentence: its own neighbour is right, those of other sentences are not.
    twice = np.concatenate([train, train])
    twice[:, 2] = rng.integers(0, T, 50)[np.arange(100) % 50]
    twice[:, 2][twice[:, 0] < 25] = 0
    assert best_rule(head, twice, test)[0] == "first token"


def test_the_best_rule_is_chosen_on_all_folds(rng):
    """One third of the sentences follows another rule than the rest, and is the first to be tried."""
    head = make_head(rng)
    query = rng.integers(1, T - 1, 70)
    train = labels_of(head, query, np.where(np.arange(70) % 3 == 0, 0, query + 1))
    assert best_rule(head, train, train)[0] == "offset +1"


def test_nearest_is_by_distance(rng):
    """The query nearest to a training query is that query itself; a longer one may have a larger product with it."""
    head = make_head(rng)
    rows = labels_of(head, 0, rng.integers(0, T, 70))
    assert baselines(head, rows, rows)["nearest query"] == 1


def test_a_bilinear_head_is_predicted_beyond_rules(rng):
    head = make_head(rng, n=200, m=1, d=4)
    report = heads.analyze_head(head, threshold=0.7, nuclear_queries=100)
    assert report.accuracy > 0.9 and report.beats_rules and report.gain > 0.2 and report.fit.missed == 0
    assert report.fit.cosine > 0.8 and report.fit.score_correlation > 0.9
    assert report.nuclear.accuracy > 0.8 and report.random.margin_bound < report.fit.margin / 2
    # A random head is bilinear as well: no rule imitates it either.
    assert (report.null.gain > 0.2).all() and 0.3 < report.fit.learned_margin / report.fit.margin <= 1
    assert report.shuffled is None  # of rank 1 it is the head itself
    table = heads.results_table([report, report], "all", caption=False)
    assert f"{report.null.gain.min():+.2f}..{report.null.gain.max():+.2f}; -" in table
    assert "2 stars in 2 heads, of which chance leaves at most 0.1" in table


# ------------------------------------------------------------------------------------- which rows an SVM is given


def watched(monkeypatch, name):
    """The calls of this function by an analysis."""
    function = Mock(wraps=getattr(analysis, name))
    monkeypatch.setattr(analysis, name, function)
    return function.call_args_list


def test_large_splits_are_solved_as_far_as_their_accuracy_needs(rng, monkeypatch):
    head = make_head(rng, n=150, m=5)
    options = dict(threshold=0.6, queries=60, nuclear_queries=0, null=False)
    exact = heads.analyze_head(head, **options)
    fits = watched(monkeypatch, "fit_svm")
    monkeypatch.setattr(analysis, "MANY", 60)
    again = heads.analyze_head(head, **options)
    given = [call.kwargs.get("iterations") for call in fits]
    assert given == [None, *[analysis.FEW_ITERATIONS] * 4] and again.fit.margin == exact.fit.margin
    assert_allclose(again.accuracies, exact.accuracies, atol=0.06)  # 60 queries


def test_permuted_heads_need_three_directions(rng):
    for m in (2, 3):
        report = heads.analyze_head(make_head(rng, n=60, m=m), threshold=0.6, nuclear_queries=0, splits=1)
        assert (report.shuffled is None) == (m == 2) and report.null is not None
    assert report.shuffled.hard.shape == (3,)


def test_every_svm_is_tried_on_other_sentences(rng, monkeypatch):
    """Accuracies are those of a twin; splits differ, heads that learned nothing are given their own choices."""
    fits, ruled = (watched(monkeypatch, name) for name in ("fit_svm", "best_rule"))
    head = make_head(rng, n=150, m=5)
    report = heads.analyze_head(head, threshold=0.6, queries=60, nuclear_queries=20)
    given = [(*call.args, call.args[1][:0])[:3] for call in fits]  # no test rows unless some are given
    assert all(not set(train[:, 0]) & set(test[:, 0]) for _, train, test in given)
    own, null = [row for row in given if row[0] is head], [row for row in given if row[0] is not head]
    exact = [row for row in null if not len(row[2])]  # of the first draw of each kind, which is tried on nothing
    null = [row for row in null if len(row[2])]
    for kind, some, rows in zip((report.null, report.shuffled), exact, (null[:3], null[3:]), strict=True):
        assert kind.support_share.tolist() == [twin(some[0], some[1], some[1])[0]]
        assert_allclose(kind.accuracy, [twin(*row)[1] for row in rows], atol=0.06)  # a few iterations
        rules = [found[name] for name, found in (best_rule(*row) for row in rows)]
        assert_array_equal(kind.rule_accuracy, rules)
    assert report.support_share == twin(*own[0])[0] < 1
    assert len({(some.K.tobytes(), some.Q.tobytes()) for some, *_ in null}) == 6
    assert len(own) == 1 + 4 + 1 + 1 and len(null) == 6 and len(ruled) == 5 + 6
    splits, nuclear, random = own[:5], own[5], own[6]
    for some, *both in [*splits, *null, nuclear]:
        rows = hard_queries(some, 0.6).tolist()
        assert all(row in rows for row in np.concatenate(both).tolist())
    for k in (1, 2):
        assert len({row[k].tobytes() for row in splits}) == 5
        assert_array_equal(random[k][:, :2], splits[0][k][:, :2])
        assert (random[k][:, 2] != splits[0][k][:, 2]).mean() > 0.4
    for row, tried in zip([*splits, *null], ruled, strict=True):
        assert [rows.tolist() for rows in row[1:]] == [rows.tolist() for rows in tried.args[1:]]
    assert_allclose(report.accuracies, [twin(*row)[1] for row in splits], atol=1e-12)


def twin(head, train, test):
    """From the tokens themselves: the share of the sequences that hold a support token, and the accuracy."""
    X = head.keys.reshape(-1, T, head.keys.shape[1])
    sol = attsvm.solve_svm(attsvm.cross_attention(X[train[:, 0]], X[train[:, 0], train[:, 1]]), train[:, 2])
    scores = np.einsum("ntd,de,ne->nt", X[test[:, 0]], sol.W, X[test[:, 0], test[:, 1]])
    held = len(set(train[sol.support.any(axis=1), 0])) / len(set(train[:, 0]))
    return held, (scores.argmax(axis=1) == test[:, 2]).mean()


def test_capacity_of_a_head(rng):
    """Of the windows that train its SVM; nan where the formula says nothing."""
    head = made.make_head(rng, n=60, lengths=(2, 6), d=4, m=2, words=None)  # with a coordinate of the biases
    report = analyzed(head, threshold=0.4)
    windows = head.text.lengths[report.train[:, 0]]
    expected = attsvm.theory.capacity(len(windows), windows, 4, 5)
    assert report.capacity == expected < 1e-3 and report.columns()["capacity"][0] == expected
    few = analyzed(head, report.train[:5])
    assert few.capacity == 1
    assert np.isnan(analyzed(make_head(rng, T=8, d=6), threshold=0.6).capacity)  # 8 tokens in 6 dimensions


def test_where_no_w_is_found_it_is_that_of_the_multipliers(rng, monkeypatch):
    head = make_head(rng, n=60)
    train = hard_queries(head, 0.6)[:40]
    monkeypatch.setattr(Separation, "W", None)
    found = fit.fit_svm(head, train, train, iterations=1)
    close(made.rebuilt(head, found), found.W, 1e-9)


def test_random_choices_are_of_any_token(rng):
    head = make_head(rng, n=1000)
    rows = labels_of(head, 1, 2)
    chosen = random_rows(head, rows, rng)
    assert (np.abs(np.bincount(chosen[:, 2], minlength=T) / 1000 - 1 / T) < 0.07).all()  # five standard deviations
    assert_array_equal(chosen[:, :2], rows[:, :2])


def test_factors_of_heads_that_learned_nothing(rng):
    head = make_head(rng, d=40, m=8)
    K, Q = gaussian_factors(head, rng)
    assert K.shape == head.K.shape and Q.shape == head.Q.shape
    assert abs((K * Q).mean()) < 0.28 and 0.8 < K.std() < 1.2 and 0.8 < Q.std() < 1.2  # five standard deviations
    other = null_head(head, shuffled_factors, 100, 0.6, False, rng)
    (U, S, V), (A, s, B) = (np.linalg.svd(W, full_matrices=False) for W in (head.W, other.W))
    assert_allclose(s[:8] / s[0], S[:8] / S[0], atol=1e-9)
    U, A, V, B = U[:, :8], A[:, :8], V[:8], B[:8]
    for own, permuted in ((abs(U.T @ A), "left"), (abs(V @ B.T), "right")):
        assert_allclose(np.sort(own.ravel()), [0] * 56 + [1] * 8, atol=1e-6, err_msg=permuted)
    left, right = abs(U.T @ A).argmax(axis=0), abs(V @ B.T).argmax(axis=0)
    assert (left != np.arange(8)).any() and (left != right).any()  # who belongs together is forgotten
