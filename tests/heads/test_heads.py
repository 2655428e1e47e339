"""Heads as support vector machines: which queries count, what the SVM says, and what it is held against."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import attsvm
import numpy as np
import pytest
from attsvm import heads
from attsvm.heads import fit
from attsvm.heads.cases import as_cases
from attsvm.heads.choices import baselines, is_sink, split
from attsvm.heads.fit import _multipliers, fit_svm, norm_on_span


def make_head(rng, causal=False, words=True, n=50, d=8, m=3, sharpness=3.0):
    """Sentences of 2 to 8 random tokens, [CLS] first and [SEP] last."""
    lengths = rng.integers(2, 9, n)
    X = [rng.standard_normal((T, d)) for T in lengths]
    tokens = [["[CLS]", *rng.choice(["a", "b", "c"], T - 2), "[SEP]"] for T in lengths] if words else None
    Wq, Wk = sharpness * rng.standard_normal((2, m, d)) / np.sqrt(d)
    bq, bk = rng.standard_normal((2, m))
    (head,) = heads.from_arrays(X, Wq, bq, Wk, bk, tokens=tokens, causal=causal, layer=2)
    return head


@pytest.fixture(params=[False, True], ids=["encoder", "causal"])
def head(request, rng):
    return make_head(rng, request.param)


# ------------------------------------------------------------------------------------- which queries count


def test_hard_queries_are_those_above_the_threshold(head):
    expected = []
    for i, T in enumerate(head.text.lengths):
        for query, prob in enumerate(head.attention(i)):
            seen = prob[: query + 1] if head.causal else prob
            if len(seen) > 1 and seen.max() > 0.7:
                expected.append((i, query, int(seen.argmax())))
        assert prob.shape == (T,)
    rows = heads.hard_queries(head, 0.7)
    assert rows.tolist() == [list(row) for row in expected] and len(rows) > 50
    assert (heads.hard_queries(head, 0.99)[:, None] == rows).all(axis=2).any(axis=1).all()


def test_sinks_are_the_first_token_and_the_end(head):
    rows = heads.hard_queries(head, 0.6)
    parked = [s == 0 or head.text.words[i][s] == "[SEP]" for i, _, s in rows]
    assert is_sink(head, rows).tolist() == parked and 0 < sum(parked) < len(parked)
    np.testing.assert_array_equal(heads.hard_queries(head, 0.6, drop_sinks=True), rows[~np.array(parked)])
    bare = replace(head, text=replace(head.text, words=None))
    np.testing.assert_array_equal(is_sink(bare, rows), rows[:, 2] == 0)


@pytest.mark.parametrize(("length", "kind"), [(0.25, "null sink"), (0.5, "value sink")])
def test_a_sink_is_named_by_the_values_parked_on(rng, length, kind):
    head = make_head(rng)
    labels = np.array([[i, 1, 0] for i in range(len(head.text.lengths)) if head.text.lengths[i] > 1])
    norms = np.ones(len(head.keys))
    norms[head.text.begin] = length
    report = heads.analyze_head(replace(head, value_norms=norms), labels=labels, C=1.0)
    assert report.sinks == 1 and report.sink_kind == kind
    assert f"100 % {kind.split()[0]} " in heads.results_table([report], caption=False)
    unknown = heads.analyze_head(head, labels=labels, C=1.0)
    assert unknown.sink_kind == "" and report.columns()["sink_kind"][0] == kind


def test_split_is_by_sentence(head):
    rows = heads.hard_queries(head, 0.6)
    train, test = split(rows, 10_000, 10_000, np.random.default_rng(0))
    assert len(train) + len(test) == len(rows) and not set(train[:, 0]) & set(test[:, 0])
    assert np.array_equal(np.unique(np.concatenate([train, test]), axis=0), np.unique(rows, axis=0))
    sentences = len(set(rows[:, 0]))
    assert len(set(train[:, 0])) == round(0.7 * sentences)
    fewer, some = split(rows, 20, 7, np.random.default_rng(0))
    np.testing.assert_array_equal(fewer, train[:20])  # so that the curve's sets are nested
    np.testing.assert_array_equal(some, test[:7])


# ------------------------------------------------------------------------------------- the SVM and its measures


def logits(head, W, i, query):
    """x_t^T W z over the window, from the stored keys."""
    x = head.text.keys[head.text.begin[i] :][: head.text.lengths[i]]
    return (x @ W @ x[query])[: query + 1 if head.causal else None]


def test_fit_measures_what_it_says(head):
    rows = heads.hard_queries(head, 0.7)
    train, test = split(rows, 60, 500, np.random.default_rng(1))
    fit = fit_svm(head, train, test, "frobenius")
    assert fit.status == "optimal" and fit.queries == len(train) and fit.missed == 0
    W = fit.W

    def margins(W, rows):
        found = []
        for i, query, chosen in rows:
            scores = logits(head, W, i, query)
            found.append(scores[chosen] - np.delete(scores, chosen).max())
        return np.array(found)

    assert margins(W, train).min() == pytest.approx(1, rel=1e-8)
    assert 1 / np.linalg.norm(W) == pytest.approx(fit.margin, rel=1e-9)
    # The tokens' last entry never differs, and there are enough of them to span the others.
    own = head.W.copy()
    own[-1] = 0
    assert fit.learned_margin == pytest.approx(margins(own / np.linalg.norm(own), train).min(), rel=1e-9)
    assert 0 < fit.learned_margin < fit.margin
    assert fit.cosine == pytest.approx((own * W).sum() / np.linalg.norm(own) / np.linalg.norm(W), rel=1e-9)
    picked = [logits(head, W, i, q).argmax() == chosen for i, q, chosen in test]
    assert fit.accuracy == pytest.approx(np.mean(picked), abs=1e-12)
    scores = [np.corrcoef(logits(head, W, i, q), logits(head, head.W, i, q))[0, 1] for i, q, _ in test]
    assert fit.score_correlation == pytest.approx(np.mean(scores), rel=1e-9)
    # The support tokens and their multipliers give W back: W = sum multiplier (x_selected - x_rival) z^T.
    rebuilt, keys, begin = 0, head.text.keys, head.text.begin
    for (i, query, chosen, rival), multiplier in zip(fit.rows, fit.multipliers, strict=True):
        x = keys[begin[i] :]
        rebuilt = rebuilt + multiplier * np.outer(x[chosen] - x[rival], x[query])
    np.testing.assert_allclose(rebuilt, W, atol=1e-9 * np.abs(W).max())
    assert (np.diff(fit.multipliers) <= 0).all() and (fit.multipliers > 0).all()


@pytest.mark.parametrize("late", ["", "keys", "queries"])
def test_directions_that_only_late_tokens_have_count(rng, late):
    """The first tokens are looked at for the span, and the others held against it."""
    head = make_head(rng, n=200, d=8)
    x = head.text.keys
    kept = x[:, 0].copy()
    x[:, 0] = 0
    if late:
        x[-3:, 0] = kept[-3:]
    rows = np.column_stack([np.repeat(np.arange(200), head.text.lengths), np.zeros((len(x), 2), dtype=int)])
    rows[:, 1] = np.arange(len(x)) - np.repeat(head.text.begin, head.text.lengths)
    cases = as_cases(head, rows[:-3] if late == "keys" else rows)
    on_left, on_right = np.ones((2, 9))
    on_left[-1] = 0  # the tokens' last entry never differs
    on_left[0], on_right[0] = late != "", late == "queries"
    expected = np.linalg.norm(on_left[:, None] * head.W * on_right)
    assert norm_on_span(head.W, cases) == pytest.approx(expected, rel=1e-6)


def test_one_svm_starts_from_another_of_its_rows(head):
    train = np.random.default_rng(0).permutation(heads.hard_queries(head, 0.7))[:40]
    fit = fit_svm(head, train, train, "frobenius")
    cases = as_cases(head, train)
    start = np.concatenate(_multipliers(fit, cases))
    dual = attsvm.solve_svm(cases.data, cases.selected).flat_dual
    np.testing.assert_allclose(start, dual, atol=1e-8 * dual.max())
    alone, near = (fit_svm(head, train, train, "nuclear", near=other) for other in (None, fit))
    assert near.margin == pytest.approx(alone.margin, rel=1e-8) and near.rank == alone.rank


WORDS = ["[CLS]", *"abacab", "[SEP]"]
RULES = {  # training rows (query, selected), test rows, and how many of these each rule finds
    "offset +1": ([(0, 1), (1, 2), (2, 4)], [(1, 2), (3, 4), (4, 1), (5, 3)], 0.5),
    "the query itself": ([(1, 1), (2, 2)], [(3, 3), (4, 4), (5, 1)], 2 / 3),
    "first token": ([(1, 2)], [(2, 0), (3, 0), (4, 1)], 2 / 3),
    "frequent token": ([(0, 1), (1, 3), (2, 4)], [(2, 1), (4, 1), (6, 3)], 2 / 3),  # the first "a"
    "same word": ([(1, 3)], [(1, 3), (3, 1), (5, 3), (2, 6), (4, 4)], 0.8),  # the nearest; none of "c"
    "induction": ([(1, 3)], [(3, 2), (5, 4), (6, 3), (2, 3), (4, 1)], 0.6),  # after the last; none of what is new
    "nearest query": ([(1, 5), (6, 2)], [(1, 5), (6, 2), (2, 7)], 2 / 3),  # the other sequence is the same
}


@pytest.mark.parametrize("rule", RULES)
def test_rules_by_hand(rng, rule):
    X = np.repeat(rng.standard_normal((1, 8, 3)), 2, axis=0)
    (head,) = heads.from_arrays(X, np.eye(3), None, np.eye(3), None, tokens=[WORDS] * 2)
    train, test, right = RULES[rule]
    rows = [np.insert(pairs, 0, i, axis=1) for i, pairs in enumerate((train, test))]
    assert baselines(head, *rows)[rule] == pytest.approx(right)


# ------------------------------------------------------------------------------------- reports


def test_analyze_head(head):
    report = heads.analyze_head(head, threshold=0.7, queries=120, nuclear_queries=50)
    rows = heads.hard_queries(head, 0.7)
    assert report.hard == len(rows) and report.sinks == pytest.approx(is_sink(head, rows).mean())
    assert [fit.queries for fit in report.curve] == [100, len(report.train)] and len(report.train) <= 120
    assert report.fit is report.curve[-1] and report.fit.W is not None
    assert report.nuclear.norm == "nuclear" and report.nuclear.queries == 50
    assert report.nuclear.rank <= report.fit.rank
    name, right = report.best_baseline
    assert name == report.rule and report.baselines[name] == right
    text = repr(report)
    assert "layer 2 head 0" in text and "nuclear" in text and "[CLS]" in text
    total = head.text.lengths.sum()
    said = (
        f"L2H0: {len(rows)} of {total} ({100 * len(rows) / total:.0f} %) of its queries give one token more than 70 %"
    )
    assert report.summary.startswith(said) and f"finds {100 * report.accuracy:.0f} % of those" in report.summary
    nulls = ", ".join(f"{100 * null.accuracy.mean():.0f} %" for null in (report.null, report.shuffled))
    assert f"(of untrained heads {nulls})" in report.summary and "Without the head" not in report.summary
    assert report.ahead == report.accuracy - max(report.null.accuracy.mean(), report.shuffled.accuracy.mean())


def test_more_queries_teach_more(rng):
    report = heads.analyze_head(make_head(rng, n=400), threshold=0.7, nuclear_queries=0, null=False, splits=1)
    assert [fit.queries for fit in report.curve][:2] == [100, 400] and report.nuclear is None
    for name in ("accuracy", "score_correlation", "cosine"):
        few, *_, many = (getattr(fit, name) for fit in report.curve)
        assert many > few + 0.05, name
    margins = [fit.margin for fit in report.curve]
    assert margins == sorted(margins, reverse=True)


def test_a_head_of_another_seed_is_split_differently(rng):
    head = make_head(rng)
    first, again, other = (heads.analyze_head(head, queries=40, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.train, again.train)
    assert first.fit.margin == again.fit.margin and first.fit.margin != other.fit.margin


def test_a_head_without_hard_queries(rng):
    report = heads.analyze_head(make_head(rng, sharpness=0.01))
    assert report.hard == 0 and report.fit is None and report.curve == [] and report.best_baseline[0] == ""
    assert "Nothing can be said of 1 heads, of which fewer than 30 queries count: L2H0 (0)" in heads.results_table(
        [report]
    )
    assert report.columns()["layer"] == [2] and np.isnan(report.columns()["margin"]).all()
    reason = heads.why(report, 0, 0)
    assert reason.margin > 0 and len(reason.names) == 3
    assert [len(part) for part in (reason.neighbours, reason.likeness, reason.holders, reason.pulls)] == [0] * 4


def test_foreign_labels_are_separated_or_proved_inseparable(rng):
    head = make_head(rng, n=300, d=4, m=2)
    rows = heads.hard_queries(head, 0.6)
    random = np.column_stack([rows[:, :2], rng.integers(0, head.window(rows))])
    report = heads.analyze_head(head, labels=random, queries=400)
    assert report.hard == len(rows) and report.fit.status == "infeasible" and report.nuclear is None
    assert len(report.fit.rows) and np.isnan(report.fit.accuracy)
    assert "infeasible" in heads.results_table([report], "margin")
    soft = heads.analyze_head(head, labels=random, queries=400, C=1.0)
    assert soft.fit.status == "optimal" and 0 < soft.fit.missed < soft.fit.queries
    assert 0 < soft.fit.accuracy < 1 and np.isnan(soft.fit.margin)
    easy = heads.analyze_head(head, labels=rows, queries=400)
    assert easy.fit.status == "optimal" and easy.fit.missed == 0


def test_table_shows_certified_digits_only():
    from attsvm.heads.table import certified

    assert certified(1.23456, 1.23457) == "1.2346"
    assert certified(1.2, 1.3) == "1" and certified(0.0, 1.0) == "-"
    assert certified(1.23441, 1.23449) == "1.234"
    assert certified(28.123456, 28.123457) == "28.123"


def test_sentences_come_from_lines_and_paragraphs(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text('One came. Two went! "Three" stayed.\n\nIt cost 3.5 e.g. here. \nOne came.\n')
    assert heads.read_sentences(path) == ["One came.", "Two went!", '"Three" stayed.', "It cost 3.5 e.g. here."]
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="is not UTF-8 text"):
        heads.read_sentences(path)
    assert len(set(heads.example_sentences())) == 1000


# ------------------------------------------------------------------------------------- controls, and reasons


def test_random_head_has_as_many_hard_queries(head, rng):
    from attsvm.heads.controls import gaussian_factors, null_head

    for threshold, drop in ((0.7, False), (0.9, False), (0.7, True)):
        wanted = len(heads.hard_queries(head, threshold, drop))
        other = null_head(head, gaussian_factors, wanted, threshold, drop, rng)
        found = heads.hard_queries(other, threshold, drop)
        assert abs(len(found) - wanted) <= 0.1 * wanted + 1 and other.rank == head.rank
        for i, q, selected in found[:50]:  # its choices are those of its own weights
            prob = other.attention(i)[q]
            assert prob.argmax() == selected and prob[selected] > threshold
            assert prob[selected] == pytest.approx(other.choices.top[other.text.query_begin[i] + q], rel=1e-5)


def test_controls_are_what_they_say(head):
    report = heads.analyze_head(head, threshold=0.7, nuclear_queries=0)
    assert len(report.accuracies) == len(report.rule_accuracies) == 5
    assert report.accuracies[0] == report.fit.accuracy and report.rule_accuracies[0] == report.best_baseline[1]
    assert report.random.queries == report.fit.queries
    assert report.random.status == "infeasible" or report.random.margin < report.fit.margin
    for null in (report.null, report.shuffled):
        assert len(null.own) == len(null.gain) == 3 and len(set(null.cosine)) == 3
        assert (
            (null.own > 0).all() and (null.own <= 1).all() and (abs(null.hard - report.hard) <= 0.1 * report.hard).all()
        )
    low, high = report.gain_interval
    assert low < report.gain < high and report.beats_rules == (low > 0)
    plain = heads.analyze_head(head, threshold=0.7, nuclear_queries=0, null=False, splits=1)
    assert plain.random is plain.null is None and not plain.beats_rules
    columns = heads.Reports([report, plain]).columns()
    assert np.isnan(columns["null_cosine"][-1]) and columns["split_gain_low"][0] == low
    shared = heads.analyze_model([head, head], threshold=0.7, nuclear_queries=0, null="layer", splits=1)
    assert shared[0].null is shared[1].null is not None


def test_interval_is_that_of_resampled_splits():
    from attsvm.heads.controls import interval, student

    low, high = interval([0.8, 0.9, 0.85, 0.9, 0.8], 0.0)
    assert (low + high) / 2 == pytest.approx(0.85)
    assert high - low == pytest.approx(2 * 2.776 * np.sqrt((1 / 5 + 3 / 7) * 0.0025), rel=1e-6)
    assert student(20) == pytest.approx(2.086, abs=1e-3) and student(60) == pytest.approx(2.0003, abs=1e-3)
    assert interval([0.5], 0.0) == (-np.inf, np.inf)
    np.testing.assert_allclose(interval([0.9, 0.91], 0.0)[0], 0.905 - 12.706 * np.sqrt((1 / 2 + 3 / 7) * 5e-5))


def test_an_interval_of_two_splits_says_no_more_than_the_range(head):
    report = heads.analyze_head(head, threshold=0.7, nuclear_queries=0, null=False, splits=2)
    report = replace(report, accuracies=np.array([0.9, 0.5]), rule_accuracies=np.array([0.2, 0.7]))
    assert report.accuracy_interval == (0, 1) and report.gain_interval == (-1, 1) and not report.beats_rules
    assert "+0.250 [-1.000, +1.000]" in heads.results_table([report], "gain")
    columns = report.columns()
    assert set(columns["split_gain_low"]) == {-1} and set(columns["split_gain_high"]) == {1}


def test_what_an_interior_point_leaves_is_no_support(head):
    cases = as_cases(head, heads.hard_queries(head, 0.7)[:10])
    dual = np.full(cases.data.indptr[-1], 1e-13)
    dual[cases.data.indptr[3] + (cases.selected[3] == 0)] = 2.0
    rows, multipliers = fit._support(SimpleNamespace(flat_dual=dual), cases)
    assert rows.shape == (1, 4) and rows[0, :3].tolist() == cases.rows[3].tolist() and multipliers.tolist() == [2.0]


def test_why_adds_up(head):
    report = heads.analyze_head(head, threshold=0.7, nuclear_queries=0, null=False, splits=1)
    for i, q, selected in report.train[:10]:
        reason = heads.why(report, i, q)
        scores = logits(head, head.W, i, q)
        assert reason.selected == selected and reason.of == "own"
        assert reason.margin == pytest.approx(scores[selected] - np.delete(scores, selected).max(), rel=1e-9)
        assert reason.shares.sum() == pytest.approx(reason.margin, rel=1e-9) and len(reason.shares) == 3
        svm = heads.why(report, i, q, W=report.fit.W)
        assert svm.shares.sum() == pytest.approx(svm.margin, rel=1e-9) and svm.margin >= 1 - 1e-8
    support = report.fit.rows[0]
    reason = heads.why(report, *support[:2], rival=support[3])
    assert reason.neighbours[0].tolist() == support.tolist() and reason.likeness[0] == pytest.approx(1)
    assert "share of the margin" in repr(reason) and "too little to count" not in repr(reason)
    assert "too little to count" in repr(replace(reason, head=replace(head, threshold=0.9999)))
    with pytest.raises(ValueError, match="rival must be a token that the query sees"):
        heads.why(report, *support[:2], rival=support[2])


def test_why_names_the_sequences_that_hold_a_choice(head, monkeypatch):
    """What they add to the margin, and the SVM without each, against one solved from the rest."""
    report = heads.analyze_head(head, threshold=0.7, nuclear_queries=0, null=False, splits=1)
    i, q, selected = report.train[3]
    reason = heads.why(report, i, q, leave_out=True)
    assert len(reason.holders) == 5 and (np.diff(np.abs(reason.pulls)) <= 0).all()
    for holder, margin, token in zip(reason.holders, reason.without, reason.instead, strict=True):
        rest = report.train[report.train[:, 0] != holder]
        cases = as_cases(head, rest)
        W = attsvm.solve_svm(cases.data, cases.selected).W
        scores = logits(head, W, i, q)
        assert token == scores.argmax() and margin == pytest.approx(scores[selected] - scores[reason.rival], rel=1e-3)
    assert "selected without it" in repr(reason)
    plain = heads.why(report, i, q)
    assert np.isnan(plain.without).all() and (plain.instead == -1).all()
    monkeypatch.setattr(sys.modules[heads.Why.__module__], "NEIGHBOURS", 1000)
    every = heads.why(report, i, q, rival=reason.rival)
    assert set(every.holders) == set(report.fit.rows[:, 0])
    scores = logits(head, report.fit.W, i, q)
    assert every.pulls.sum() == pytest.approx(scores[selected] - scores[reason.rival], rel=1e-6)
    np.testing.assert_array_equal(every.pulls[:5], plain.pulls)
    with pytest.raises(ValueError, match="leave_out needs an SVM that meets all margins, got a soft margin"):
        soft = heads.analyze_head(head, threshold=0.7, C=1.0, null=False, splits=1)
        heads.why(soft, i, q, leave_out=True)


def analyzed(**options):
    return lambda report: heads.analyze_head(report.head, **options)


def why(*query, **options):
    return lambda report: heads.why(report, *query or report.train[0, :2], **options)


WRONG = [
    ("threshold must lie below 1, got 1.0", analyzed(threshold=1.0)),
    ("threshold must be a finite number above 0", analyzed(threshold=0)),
    ("queries must be at least 1", analyzed(queries=0)),
    ("queries must be at least 1", lambda report: heads.analyze_model([report.head], queries=0)),
    ("nuclear_queries must be at least 0", analyzed(nuclear_queries=-1)),
    ("C must be a finite number above 0", analyzed(C=-1.0)),
    ("null must be one of 'layer'", lambda report: heads.analyze_model([report.head], null="all")),
    (r"labels must have shape \(k, 3\)", analyzed(labels=[[0, 0]])),
    ("labels must hold integers, got float64", analyzed(labels=[[0.0, 0.0, 1.0]])),
    (r"labels must name sequences 0 .. 49, got 50", analyzed(labels=[[50, 0, 0]])),
    (r"labels must name tokens that the query sees, got \[0, 0, 99\]", analyzed(labels=[[0, 0, 99]])),
    (r"labels must name tokens that the query sees, got \[0, -1, 0\]", analyzed(labels=[[0, -1, 0]])),
    ("sequence must .* got ", why(None, 0)),
    ("query must .* got ", why(0, 1.5)),
    ("rival must .* got ", why(rival="the")),
    ("W must .* got ", why(W=np.ones((2, 2)))),
    ("sequence must .* got ", lambda report: heads.plot_sequence(report, 1.5)),
    ("sequence must be one of the head's 50", lambda report: heads.plot_sequence(report, 10**6)),
    ("title must .* got ", lambda report: heads.view([report], title=None)),
    ("step must .* got ", lambda report: heads.measure(report.head, "last")),
    (r"rows\[0\] must .* got ", lambda report: heads.plot_training([report])),
    ("columns must be one of 'head', .* got 'stars'", lambda report: heads.results_table([report], ["stars"])),
    ("tokens must .* got ", lambda _: heads.from_arrays(np.ones((1, 2, 1)), [[1.0]], None, [[1.0]], None, tokens=3)),
]
ONE = {
    "head": (heads.analyze_head, heads.hard_queries, lambda head: heads.measure(head, 0)),
    "report": (lambda report: heads.why(report, 0, 0), heads.plot_sequence),
}
SEVERAL = {"heads": heads.analyze_model, "reports": heads.results_table}


def test_what_does_not_fit_is_named(rng):
    report = heads.analyze_head(make_head(rng), threshold=0.7, nuclear_queries=0, null=False, splits=1)
    for message, call in WRONG:
        with pytest.raises((ValueError, TypeError), match=f"^{message}"):
            call(report)
    for wrong in (3, None, "head", np.ones(3), object()):
        kind = type(wrong).__name__
        for name, functions in ONE.items():
            for function in functions:
                with pytest.raises(TypeError, match=f"^{name} must be a Head.*from attsvm.* got {kind}"):
                    function(wrong)
        for name, function in SEVERAL.items():
            with pytest.raises(TypeError, match=rf"^{name}(\[0\])? must be a .*Head.* got "):
                function(wrong)
            with pytest.raises(TypeError, match=rf"^{name}\[0\] must be a Head.* got {kind}"):
                function([wrong])


def test_heads_and_reports_are_found_by_name(rng):
    Wq, Wk = rng.standard_normal((2, 8, 8))
    found = heads.from_arrays(rng.standard_normal((60, 6, 8)), Wq, None, Wk, None, heads=4)
    reports = heads.analyze_model(found, queries=40, null=False, nuclear_queries=0, splits=1)
    assert found["L0H2"] is found["0.2"] is found[0, 2] is found[2]
    assert reports["l0h3"] is reports[0, 3] is reports[-1] and reports["L0H3"].head is found[3]
    assert (reports[1:] + reports[:1])["L0H0"] is reports[0] and found[1:]["L0H3"] is found[3]
    for name in ("L1H0", "third", (0, 4)):
        with pytest.raises(KeyError, match="is none of these 4 heads"):
            reports[name]


def test_the_table_fits_a_terminal_and_says_what_it_is_silent_about(rng):
    """Also of many queries, long names and damages."""
    report = heads.analyze_head(make_head(rng), threshold=0.7, nuclear_queries=0, splits=2)
    large = replace(report, hard=22_984, rule="nearest query", damage=0.0123, metric="1 - cosine", sinks=1.0)
    few = [replace(report, hard=k, damage=d, metric="1 - cosine") for k, d in ((4, 0.5), (0, 0.001))]
    reports = heads.Reports([large, *few, *[replace(large, damage=0.1)] * 9])
    lines = repr(reports).splitlines()
    assert max(map(len, lines)) <= 120 and sum(line.startswith("L2H0 ") for line in lines) == 10
    above = " ".join(" ".join(lines[:8]).split()).partition("head queries")[0]
    assert "Nothing can be said of 2 heads, of which fewer than 30 queries count: L2H0 (4), L2H0 (0)." in above
    assert "They include 1 of the 10 whose removal changes the output most." in above
    assert "Damage: mean change of the output without the head (1 - cosine)." in above
    assert "is not known here: attsvm.torch.damage measures it" in repr(heads.Reports([report]))
    assert max(len(line) for line in repr(reports[0]).splitlines()) <= 120
    whole = heads.results_table(reports, "all")
    assert all(name in whole for name in ("null gain", "own W", "nuclear")) and "stars in" in whole


def test_reports_show_themselves(head):
    pandas = pytest.importorskip("pandas")
    reports = heads.analyze_model([head], threshold=0.7, nuclear_queries=0, null=False, splits=1)
    frame = reports.to_dataframe()
    assert isinstance(frame, pandas.DataFrame) and frame["name"].unique().tolist() == ["L2H0"]
    for shown in (reports._repr_html_(), reports[0]._repr_html_()):
        assert "<table><thead>" in shown and "L2H0" in shown and "Residual space" in shown
    assert 0.29 < reports[0].balance <= 1 and 1 <= reports[0].effective_rank <= 3


def test_balance_and_effective_rank_by_hand(rng):
    factors = rng.standard_normal((4, 9))
    equal = heads.from_arrays(rng.standard_normal((9, 5, 9)), factors, None, -factors, None)[0]
    report = heads.analyze_head(equal, threshold=0.6, nuclear_queries=0, null=False)
    assert report.balance == pytest.approx(1)  # at any scale
    values = np.linalg.svd(equal.W, compute_uv=False)[:4]
    share = values / values.sum()
    assert report.effective_rank == pytest.approx(np.exp(-(share * np.log(share)).sum()))


def test_control_characters_of_tokens_are_written_out(rng):
    """A terminal would obey them; the word stays as it is in the text."""
    bad = "\x1b[31mred\n"
    Wq, Wk = rng.standard_normal((2, 8, 8))
    made = attsvm.heads.from_arrays(
        rng.standard_normal((60, 6, 8)), Wq, None, Wk, None, heads=2, tokens=[[bad] * 6] * 60
    )
    (report, _) = attsvm.heads.analyze_model(made, queries=40, splits=1, null=False)
    i, q = int(report.train[0][0]), int(report.train[0][1])
    said = repr(attsvm.heads.why(report, i, q))
    assert "\x1b" not in repr(report)
    assert "\x1b" not in said and "\\x1b[31mred\\n" in said
    assert made[0].text.words[0][0] == bad
