"""Heads as support vector machines: which queries count, what the SVM says, and what it is held against."""

import sys
from dataclasses import replace

import attsvm
import numpy as np
import pytest
from attsvm import heads
from attsvm.heads import fit
from attsvm.heads.cases import as_cases
from attsvm.heads.choices import baselines, is_sink, split
from attsvm.heads.controls import gaussian_factors, interval, null_head, student
from attsvm.heads.fit import fit_svm, norm_on_span
from attsvm.heads.pictures import choose_sequence
from attsvm.heads.table import certified
from attsvm.svm.separation import Separation
from compare import close
from made import briefly, check_own_choices, make_head, make_heads, rebuilt
from numpy.testing import assert_allclose, assert_array_equal


@pytest.fixture(scope="module")
def report():
    return briefly(make_head(np.random.default_rng(3)))


@pytest.fixture(params=[False, True], ids=["encoder", "causal"])
def head(request, rng):
    return make_head(rng, causal=request.param)


# ------------------------------------------------------------------------------------- which queries count


def test_hard_queries_are_those_above_the_threshold(head):
    """Parked are the first token and the end, where the words say so."""
    expected, parked = [], []
    for i, words in enumerate(head.text.words):
        for query, prob in enumerate(head.attention(i)):
            top = prob.argmax()
            if prob[top] > 0.7 and not (head.causal and query == 0):
                expected.append([i, query, top])
                parked.append(top == 0 or words[top] == "[SEP]")
    rows = heads.hard_queries(head, 0.7)
    assert rows.tolist() == expected and len(rows) > 50 and 0 < sum(parked) < len(parked)
    assert heads.hard_queries(head, 0.7, drop_sinks=True).tolist() == rows[~np.array(parked)].tolist()
    assert is_sink(head, rows).tolist() == parked
    bare = replace(head, text=replace(head.text, words=None))
    assert is_sink(bare, rows).tolist() == (rows[:, 2] == 0).tolist()


@pytest.mark.parametrize(("length", "kind"), [(0.25, "null sink"), (0.5, "value sink")])
def test_a_sink_is_named_by_the_values_parked_on(rng, length, kind):
    head = make_head(rng)
    labels = np.array([[i, 1, 0] for i in range(len(head.text.lengths)) if head.text.lengths[i] > 1])
    norms = np.ones(len(head.keys))
    norms[head.text.begin] = length
    report = briefly(replace(head, value_norms=norms), labels=labels, C=1.0)
    assert report.sinks == 1 and report.sink_kind == report.columns()["sink_kind"][0] == kind
    assert f"100 % {kind.split()[0]} " in heads.results_table([report], caption=False)
    assert briefly(head, labels=labels, C=1.0).sink_kind == ""


def test_split_is_by_sentence(head):
    rows = heads.hard_queries(head, 0.6)
    train, test = split(rows, 10_000, 10_000, np.random.default_rng(0))
    assert sorted([*train.tolist(), *test.tolist()]) == rows.tolist() and not set(train[:, 0]) & set(test[:, 0])
    assert len(set(train[:, 0])) == round(0.7 * len(set(rows[:, 0])))
    few = split(rows, 20, 7, np.random.default_rng(0))  # so that the curve's sets are nested
    assert [part.tolist() for part in few] == [train[:20].tolist(), test[:7].tolist()]


# ------------------------------------------------------------------------------------- the SVM and its measures


def logits(head, W, i, query):
    """x_t^T W z over the window, from the stored keys."""
    x = head.text.keys[head.text.begin[i] :][: head.text.lengths[i]]
    return (x @ W @ x[query])[: query + 1 if head.causal else None]


def margin(head, W, i, query, chosen, rival=None):
    scores = logits(head, W, i, query)
    return scores[chosen] - (np.delete(scores, chosen).max() if rival is None else scores[rival])


def test_fit_measures_what_it_says(head):
    train, test = split(heads.hard_queries(head, 0.7), 60, 500, np.random.default_rng(1))
    fit = fit_svm(head, train, test)
    assert fit.status == "optimal" and fit.queries == len(train) and fit.missed == 0
    W = fit.W
    assert min(margin(head, W, *row) for row in train) == pytest.approx(1, rel=1e-8)
    assert 1 / np.linalg.norm(W) == pytest.approx(fit.margin, rel=1e-9)
    # The tokens' last entry never differs, and there are enough of them to span the others.
    own = head.W / np.linalg.norm(head.W[:-1])
    assert fit.learned_margin == pytest.approx(min(margin(head, own, *row) for row in train), rel=1e-9)
    assert 0 < fit.learned_margin < fit.margin
    assert fit.cosine == pytest.approx((own[:-1] * W[:-1]).sum() / np.linalg.norm(W), rel=1e-9)
    picked = [logits(head, W, i, q).argmax() == chosen for i, q, chosen in test]
    assert fit.accuracy == pytest.approx(np.mean(picked), abs=1e-12)
    scores = [np.corrcoef(logits(head, W, i, q), logits(head, head.W, i, q))[0, 1] for i, q, _ in test]
    assert fit.score_correlation == pytest.approx(np.mean(scores), rel=1e-9)
    close(rebuilt(head, fit), W, 1e-9)
    assert (np.diff(fit.multipliers) <= 0).all() and (fit.multipliers > 0).all()


@pytest.mark.parametrize("late", [False, True])
def test_directions_that_only_late_tokens_have_count(rng, late):
    """The first tokens are looked at for the span, and the others held against it."""
    head = make_head(rng, n=200)
    x = head.text.keys
    x[: len(x) - 3 * late, 0] = 0
    rows = np.array([(i, q, 0) for i, T in enumerate(head.text.lengths) for q in range(T)])[:-3]
    on_left, on_right = np.ones((2, 9, 1))
    on_left[-1] = 0  # the tokens' last entry never differs
    on_left[0], on_right[0] = late, 0
    expected = np.linalg.norm(on_left * head.W * on_right.T)
    assert norm_on_span(head.W, as_cases(head, rows)) == pytest.approx(expected, rel=1e-6)


def test_one_svm_starts_from_another_of_its_rows(head, monkeypatch):
    train = np.random.default_rng(0).permutation(heads.hard_queries(head, 0.7))[:40]
    frobenius = fit_svm(head, train, train)
    cases, starts = as_cases(head, train), []

    def solved(*given, **how):
        starts.append(how["warm_start"])
        return attsvm.solve_svm(*given, **how)

    monkeypatch.setattr(fit, "solve_svm", solved)
    alone, near = (fit_svm(head, train, train, norm="nuclear", near=other) for other in (None, frobenius))
    dual = attsvm.solve_svm(cases.data, cases.selected).flat_dual
    assert starts[0] is None
    assert_allclose(np.concatenate(starts[1]), dual, atol=1e-8 * dual.max())
    assert near.margin == pytest.approx(alone.margin, rel=1e-8) and near.rank == alone.rank


@pytest.mark.parametrize("word", ["a", "\x1b"])  # printed, or escaped where it is shown
def test_rules_by_hand(word):
    """Of twelve rows; those of the other sequence are the same tokens."""
    one, words = np.eye(8), ["[CLS]", *"abacab".replace("a", word), "[SEP]"]
    (head,) = heads.from_arrays([one, one], one, None, one, None, tokens=[words] * 2)
    train, itself = ([(0, q, s) for q, s in pairs] for pairs in ([(0, 1), (1, 2), (2, 3), (4, 5), (6, 2)], [(1, 1)]))
    test = {  # query -> what it selects in turn
        0: [1], 1: [2], 2: [6, 3, 0], 3: [1, 2, 4], 4: [0], 5: [3, 4], 6: [2]
    }  # fmt: skip
    rows = np.array([(1, q, s) for q, several in test.items() for s in several])
    right = {
        "offset +1": 4,  # 0 1, 1 2, 2 3, 3 4
        "first token": 2,
        "frequent token": 2,  # the first "a"
        "same word": 4,  # the nearest; none of "c"
        "induction": 2,  # after the last; none of what is new
        "nearest query": 5,  # as the same query did; of 3 and 5 all are as near, the first is taken
    }
    assert baselines(head, np.array(train), rows) == pytest.approx({rule: n / 12 for rule, n in right.items()})
    assert baselines(head, np.array(itself), np.array([(1, 3, 3), (1, 5, 1)]))["the query itself"] == 0.5


# ------------------------------------------------------------------------------------- reports


def test_analyze_head(head):
    report = heads.analyze_head(head, threshold=0.7, queries=120, nuclear_queries=50)
    rows = heads.hard_queries(head, 0.7)
    assert report.hard == len(rows) and report.sinks == pytest.approx(is_sink(head, rows).mean())
    assert [fit.queries for fit in report.curve] == [100, len(report.train)] and len(report.train) <= 120
    assert report.fit is report.curve[-1] and report.fit.W is not None
    assert report.nuclear.norm == "nuclear" and report.nuclear.queries == 50
    assert report.nuclear.rank <= report.fit.rank
    assert report.best_baseline == (report.rule, report.baselines[report.rule])
    assert all(word in repr(report) for word in ("layer 2 head 0", "nuclear", "[CLS]"))
    total = head.text.lengths.sum()
    said = f"L2H0: {len(rows)} of {total} ({100 * len(rows) / total:.0f} %) of its queries give one token more than"
    assert report.summary.startswith(f"{said} 70 %") and "Without the head" not in report.summary
    untrained = [null.accuracy.mean() for null in (report.null, report.shuffled)]
    told = ", ".join(f"{100 * right:.0f} %" for right in untrained)
    assert (
        f"finds {100 * report.accuracy:.0f} % of those of unseen sequences (of untrained heads {told})"
        in report.summary
    )
    assert report.ahead == report.accuracy - max(untrained)


def test_a_head_without_hard_queries(rng):
    report = heads.analyze_head(make_head(rng, sharpness=0.01))
    assert report.hard == 0 and report.fit is None and report.curve == [] and report.best_baseline[0] == ""
    said = "Nothing can be said of 1 head, of which fewer than 30 queries count: L2H0 (0)"
    assert said in heads.results_table([report])
    assert report.columns()["layer"] == [2] and np.isnan(report.columns()["margin"]).all()
    reason = heads.why(report, 0, 0)
    assert reason.margin > 0 and len(reason.names) == 3
    assert [len(part) for part in (reason.neighbours, reason.likeness, reason.holders, reason.pulls)] == [0] * 4


def test_foreign_labels_are_separated_or_proved_inseparable(rng):
    head = make_head(rng, n=300, d=4, m=2)
    rows = heads.hard_queries(head, 0.6)
    random = np.column_stack([rows[:, :2], rng.integers(0, head.window(rows))])
    report, soft, easy = (
        heads.analyze_head(head, labels=labels, queries=400, null=False, splits=1, C=C)
        for labels, C in ((random, None), (random, 1.0), (rows, None))
    )
    told = f"L2H0: {len(rows):,} labels for {head.asking:,} queries; "
    assert soft.summary.startswith(told) and ".  An SVM of the labels finds" in soft.summary
    assert report.hard == len(rows) and report.fit.status == "infeasible" and report.nuclear is None
    assert len(report.fit.rows) and np.isnan(report.fit.accuracy)
    assert "infeasible" in heads.results_table([report], "margin")
    assert soft.fit.status == "optimal" and 0 < soft.fit.missed < soft.fit.queries
    assert 0 < soft.fit.accuracy < 1 and np.isnan(soft.fit.margin)
    assert easy.fit.status == "optimal" and easy.fit.missed == 0


def test_table_shows_certified_digits_only():
    assert certified(1.23456, 1.23457) == "1.2346"
    assert certified(1.2, 1.3) == "1" and certified(0.0, 1.0) == "-" and certified(0.14, 0.26) == "?"
    assert certified(1.23441, 1.23449) == "1.234"
    assert certified(28.123456, 28.123457) == "28.123"


def test_sentences_come_from_lines_and_paragraphs(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text('One came. Two went! "Three" stayed.\n\nIt cost 3.5 e.g. here. \nOne came.\n')
    assert heads.read_sentences(path) == ["One came.", "Two went!", '"Three" stayed.', "It cost 3.5 e.g. here."]
    assert len(set(heads.example_sentences())) == 1000


# ------------------------------------------------------------------------------------- controls, and reasons


@pytest.mark.parametrize(("threshold", "drop"), [(0.7, False), (0.9, False), (0.7, True)])
def test_random_head_has_as_many_hard_queries(head, rng, threshold, drop):
    wanted = len(heads.hard_queries(head, threshold, drop))
    other = null_head(head, gaussian_factors, wanted, threshold, drop, rng)
    assert abs(len(heads.hard_queries(other, threshold, drop)) - wanted) <= 0.1 * wanted + 1 and other.rank == head.rank
    check_own_choices(other)


def test_untrained_heads_are_as_hard_and_shared_or_left_out(head):
    options = {"threshold": 0.7, "nuclear_queries": 0, "splits": 1}
    report, same = heads.analyze_model([head, head], null="layer", **options)
    assert report.null is same.null is not None
    for null in (report.null, report.shuffled):
        assert len(null.gain) == len(set(null.cosine)) == 3 and (0 < null.own).all() and (null.own <= 1).all()
        assert (abs(null.hard - report.hard) <= 0.1 * report.hard).all()
    plain = briefly(head)
    assert plain.random is plain.null is None and not plain.beats_rules
    assert np.isnan(heads.Reports([report, plain]).columns()["null_cosine"][-1])


def test_an_interval_of_few_splits(head):
    """Of two no more than the range, of one infinite."""
    assert student(20) == pytest.approx(2.086, abs=1e-3) and student(60) == pytest.approx(2.0003, abs=1e-3)
    assert interval([0.5], 0.0) == (-np.inf, np.inf)
    assert interval([0.9, 0.91], 0.0)[0] == pytest.approx(0.905 - 12.706 * np.sqrt((1 / 2 + 3 / 7) * 5e-5))
    report = replace(briefly(head), accuracies=np.array([0.9, 0.5]), rule_accuracies=np.array([0.2, 0.7]))
    assert report.accuracy_interval == (0, 1) and report.gain_interval == (-1, 1) and not report.beats_rules
    assert "+0.250 [-1.000, +1.000]" in heads.results_table([report], "gain")


def test_what_an_interior_point_leaves_is_no_support(head, monkeypatch):
    train = heads.hard_queries(head, 0.7)[:10]
    cases = as_cases(head, train)
    dual = np.full(cases.data.indptr[-1], 1e-13)
    dual[cases.data.indptr[3] + (cases.selected[3] == 0)] = 2.0
    monkeypatch.setattr(Separation, "flat_dual", dual)
    found = fit_svm(head, train)
    assert found.rows.shape == (1, 4) and found.rows[0, :3].tolist() == cases.rows[3].tolist()
    assert found.multipliers.tolist() == [2.0]


def test_why_adds_up(head):
    report = briefly(head)
    for row in report.train[:10]:
        own, svm = (heads.why(report, *row[:2], W=W) for W in (None, report.fit.W))
        assert own.selected == row[2] and own.of == "own" and len(own.shares) == 3 and svm.margin >= 1 - 1e-8
        for reason, W in ((own, head.W), (svm, report.fit.W)):
            assert reason.shares.sum() == pytest.approx(reason.margin, rel=1e-9)
            assert reason.margin == pytest.approx(margin(head, W, *row), rel=1e-9)
    support = report.fit.rows[0]
    reason = heads.why(report, *support[:2], rival=support[3])
    assert reason.neighbours[0].tolist() == support.tolist() and reason.likeness[0] == pytest.approx(1)
    assert "share of the margin" in repr(reason) and "too little to count" not in repr(reason)
    assert "too little to count" in repr(replace(reason, head=replace(head, threshold=0.9999)))
    with pytest.raises(ValueError, match="rival must be a token that the query sees"):
        heads.why(report, *support[:2], rival=support[2])


def test_why_names_the_sequences_that_hold_a_choice(head, monkeypatch):
    """What they add to the margin, and the SVM without each, against one solved from the rest."""
    report = briefly(head)
    row = report.train[3]
    reason, plain = (heads.why(report, *row[:2], leave_out=asked) for asked in (True, False))
    assert len(reason.holders) == 5 and (np.diff(np.abs(reason.pulls)) <= 0).all()
    for holder, left, token in zip(reason.holders, reason.without, reason.instead, strict=True):
        cases = as_cases(head, report.train[report.train[:, 0] != holder])
        W = attsvm.solve_svm(cases.data, cases.selected).W
        assert token == logits(head, W, *row[:2]).argmax()
        assert left == pytest.approx(margin(head, W, *row, reason.rival), rel=1e-3)
    assert "selected without it" in repr(reason)
    assert np.isnan(plain.without).all() and (plain.instead == -1).all()
    monkeypatch.setattr(sys.modules[heads.Why.__module__], "NEIGHBOURS", 1000)
    every = heads.why(report, *row[:2], rival=reason.rival)
    assert set(every.holders) == set(report.fit.rows[:, 0])
    assert every.pulls.sum() == pytest.approx(margin(head, report.fit.W, *row, reason.rival), rel=1e-6)
    assert_array_equal(every.pulls[:5], plain.pulls)
    with pytest.raises(ValueError, match="leave_out needs an SVM that meets all margins, got a soft margin"):
        heads.why(briefly(head, C=1.0), *row[:2], leave_out=True)


def analyzed(**options):
    return lambda report: heads.analyze_head(report.head, **options)


def why(*query, **options):
    return lambda report: heads.why(report, *query or report.train[0, :2], **options)


WRONG = [
    ("threshold must lie below 1, got 1.0", analyzed(threshold=1.0)),
    ("threshold must be a finite number above 0", analyzed(threshold=0)),
    ("queries must be at least 1", analyzed(queries=0)),
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
    ("faithfulness must be a Faithfulness", why(faithfulness=3)),
    ("sequence must .* got ", lambda report: heads.plot_sequence(report, 1.5)),
    ("sequence must be one of the head's 50", lambda report: heads.plot_sequence(report, 10**6)),
    ("null must be a bool, got str", analyzed(null="yes")),
    ("drop_sinks must be a bool, got int", analyzed(drop_sinks=1)),
    ("leave_out must be a bool, got str", why(leave_out="yes")),
    ("caption must be a bool, got str", lambda report: heads.results_table([report], caption="yes")),
    ("causal must .* got str", lambda _: heads.from_arrays([[[1.0]]], [[1.0]], None, [[1.0]], None, causal="yes")),
    ("step must .* got ", lambda report: heads.measure(report.head, "last")),
    (r"rows\[0\] must .* got ", lambda report: heads.plot_training([report])),
    ("columns must be one of 'head', .* got 'stars'", lambda report: heads.results_table([report], ["stars"])),
    ("tokens must .* got ", lambda _: heads.from_arrays(np.ones((1, 2, 1)), [[1.0]], None, [[1.0]], None, tokens=3)),
]
NEEDS = [
    *(("head", function) for function in (heads.analyze_head, heads.hard_queries, lambda x: heads.measure(x, 0))),
    *(("report", function) for function in (lambda x: heads.why(x, 0, 0), heads.plot_sequence)),
    *(("heads", heads.analyze_model), ("reports", heads.results_table)),
]


@pytest.mark.parametrize(("message", "call"), WRONG, ids=[message for message, _ in WRONG])
def test_what_does_not_fit_is_named(report, message, call):
    with pytest.raises((ValueError, TypeError), match=f"^{message}"):
        call(report)


@pytest.mark.parametrize("wrong", [3, None, "head", np.ones(3), [3]], ids=repr)
def test_what_is_no_head_and_no_report_is_named(wrong):
    for name, function in NEEDS:
        with pytest.raises(TypeError, match=rf"^{name}(\[0\])? must be a .*Head.*, from attsvm.* got "):
            function(wrong)


def test_heads_and_reports_are_found_by_name(rng):
    found = make_heads(rng, count=4)
    reports = heads.Reports(map(briefly, found))
    assert found["L2H2"] is found["2.2"] is found[2, 2] is found[2]
    assert reports["l2h3"] is reports[2, 3] is reports[-1] and reports["L2H3"].head is found[3]
    assert (reports[1:] + reports[:1])["L2H0"] is reports[0] and found[1:]["L2H3"] is found[3]
    for name in ("L1H0", "third", (2, 4)):
        with pytest.raises(KeyError, match="is none of 4 heads"):
            reports[name]


def test_the_table_fits_a_terminal_and_says_what_it_is_silent_about(report):
    """Also of many queries, long names and damages."""
    large = replace(report, hard=22_984, rule="nearest query", damage=0.0123, metric="1 - cosine", sinks=1.0)
    few = [replace(large, hard=k, damage=d) for k, d in ((4, 0.5), (0, 0.001))]
    reports = heads.Reports([large, *few, *[replace(large, damage=0.1)] * 9])
    lines = repr(reports).splitlines()
    assert max(map(len, [*lines, *repr(report).splitlines()])) <= 120
    assert sum(line.startswith("L2H0 ") for line in lines) == 10
    above = " ".join(" ".join(lines[:8]).split()).partition("head queries")[0]
    for said in (
        "Nothing can be said of 2 heads, of which fewer than 30 queries count: L2H0 (4), L2H0 (0).",
        "They include 1 of the 10 whose removal changes the output most.",
        "Damage: mean change of the output without the head (1 - cosine).",
    ):
        assert said in above
    assert "is not known here: attsvm.torch.damage measures it" in repr(heads.Reports([report]))
    whole = heads.results_table(reports, "all")
    assert all(name in whole for name in ("null gain", "own W", "nuclear"))
    assert "\nerror bound share of " in whole and "\nqueries     that count" in whole


def test_reports_show_themselves(report):
    pytest.importorskip("pandas")
    reports = heads.Reports([report])
    assert reports.to_dataframe()["name"].unique().tolist() == ["L2H0"]
    for shown in (reports._repr_html_(), report._repr_html_()):
        assert "<table><thead>" in shown and "L2H0" in shown and "Residual space" in shown


def test_balance_and_effective_rank_by_hand(rng):
    factors = rng.standard_normal((4, 9))
    equal = heads.from_arrays(rng.standard_normal((9, 5, 9)), factors, None, -factors, None)[0]
    report = briefly(equal)
    assert report.balance == pytest.approx(1)  # at any scale
    values = np.linalg.svd(equal.W, compute_uv=False)[:4]
    share = values / values.sum()
    assert report.effective_rank == pytest.approx(np.exp(-(share * np.log(share)).sum()))


def test_control_characters_of_tokens_are_written_out(rng):
    """A terminal would obey them; the word stays as it is in the text."""
    head = make_head(rng, words=("\x1b[31mred\n",))
    report = briefly(head)
    said = repr(heads.why(report, *report.train[0, :2]))
    assert "\x1b" not in repr(report) + said and "\\x1b[31mred\\n" in repr(report) + said
    assert "\x1b[31mred\n" in head.text.words[0] + head.text.words[1]


# ------------------------------------------------------------------------------------- pictures


def test_the_grid_frames_what_beats_every_rule_on_all_splits(rng, ax):
    splits = [np.array(right) for right in ([0.6] * 5, [0.8, 0.8, 0.8, 0.3, 0.6], [1.0], [0.9])]
    reports = [
        replace(briefly(head), accuracies=x, rule_accuracies=0.5 + 0 * x)
        for head, x in zip(make_heads(rng, count=4), splits, strict=True)
    ]
    heads.Reports([*reports[:3], replace(reports[3], hard=3)]).plot(ax)
    assert [(p.get_x() + 0.46, p.get_y() + 0.44) for p in ax.patches] == [(0, 0)]
    assert [note.get_text().split()[0] for note in ax.texts] == ["60", "66", "100", "few"]
    assert [note.get_position() for note in ax.texts] == [(k, 0) for k in range(4)]


def test_a_sequence_has_an_arrow_per_query_and_a_line_per_support_token(head, ax):
    report = briefly(head)
    number = choose_sequence(report)
    heads.plot_sequence(report, ax=ax)
    arrows = [note for note in ax.texts if getattr(note, "arrow_patch", None) is not None]
    assert len(arrows) == (report.train[:, 0] == number).sum() > 0
    drawn = {tuple(line.get_ydata()) for line in ax.lines if len(line.get_ydata()) == 2}
    rows = report.fit.rows[report.fit.rows[:, 0] == number]
    assert drawn == {(query, rival) for _, query, _, rival in rows} != set()
    total = sum(float(note.get_text().split()[0]) for note in ax.texts if note.get_text().endswith(" %"))
    assert total == pytest.approx(100, abs=0.5 * len(rows))
