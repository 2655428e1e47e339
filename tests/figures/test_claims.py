"""A claim holds, fails or stays undecided by its interval alone, and never loses a run."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from attsvm.report.claims import VERDICTS, exactly, mean, median, read_claims, share, write_claims
from attsvm.report.intervals import binomial_interval


def flags(true: int, runs: int) -> np.ndarray:
    return np.arange(runs) < true


def tail(p: float, successes: range, runs: int) -> float:
    return sum(math.comb(runs, k) * p**k * (1 - p) ** (runs - k) for k in successes)


def test_binomial_interval_solves_its_two_equations():
    """Against exact integers: at either end the tail has 1/40 to 1e-9, relative (p carries 16 digits)."""
    for runs in (1, 2, 7, 40, 100, 401):
        for true in {0, 1, runs // 3, runs - 1, runs}:
            low, high = binomial_interval(true, runs)
            if true:
                assert tail(low, range(true, runs + 1), runs) == pytest.approx(1 / 40, rel=1e-9)
            if true < runs:
                assert tail(high, range(true + 1), runs) == pytest.approx(1 / 40, rel=1e-9)
            assert (low == 0) == (true == 0) and (high == 1) == (true == runs)
    with pytest.raises(ValueError, match="successes must lie between 0 and runs"):
        binomial_interval(3, 2)


def test_binomial_interval_is_scipys():
    stats = pytest.importorskip("scipy.stats")
    for true, runs in ((0, 30), (94, 100), (399, 400), (600, 2000)):
        theirs = stats.binomtest(true, runs).proportion_ci(0.95, "exact")
        np.testing.assert_allclose(binomial_interval(true, runs), theirs, atol=1e-12)  # two root finders


@pytest.mark.parametrize(
    "claim, verdict",
    [
        (lambda: share("", flags(71, 71), low=0.95), "undecided"),
        (lambda: share("", flags(72, 72), low=0.95), "holds"),
        (lambda: share("", flags(367, 367), low=0.99), "undecided"),
        (lambda: share("", flags(368, 368), low=0.99), "holds"),
        (lambda: share("", flags(94, 100), low=0.95), "undecided"),
        (lambda: share("", flags(90, 100), low=0.99), "fails"),
        (lambda: share("", flags(50, 100), 0.35, 0.65), "holds"),
        (lambda: share("", flags(50, 100), 0.45, 0.55), "undecided"),
        (lambda: share("", flags(50, 100), 0.7, 0.9), "fails"),
        (lambda: share("", flags(2, 100), high=0.1), "holds"),
        (lambda: median("", np.arange(5), low=-1), "undecided"),
        (lambda: median("", np.arange(6), low=-1), "holds"),
        (lambda: median("", np.arange(6), low=0), "holds"),
        (lambda: median("", np.arange(6), low=0.1), "undecided"),
        (lambda: median("", np.arange(6), low=5.1), "fails"),
        (lambda: median("", np.arange(100), 30, 70), "holds"),
        (lambda: median("", np.arange(100), 48, 51), "undecided"),
        (lambda: mean("", np.arange(19), low=-1), "undecided"),
        (lambda: mean("", np.arange(20), low=-1), "holds"),
        (lambda: mean("", np.arange(100), 45, 54), "undecided"),
        (lambda: mean("", np.arange(100), 42, 57), "holds"),
        (lambda: mean("", np.arange(100), high=40), "fails"),
        (lambda: exactly("", [1, 2], high=2), "holds"),
        (lambda: exactly("", [1, 2], high=1.9), "fails"),
        (lambda: exactly("", [0, 0, 1], 0, 0), "fails"),
        (lambda: exactly("", 0, 0, 0), "holds"),
    ],
)
def test_verdict_of_the_interval(claim, verdict):
    claim = claim()
    assert claim.verdict == verdict
    low = -np.inf if claim.low is None else claim.low
    high = np.inf if claim.high is None else claim.high
    if claim.measured_low is not None:
        inside = low <= claim.measured_low and claim.measured_high <= high
        outside = claim.measured_high < low or claim.measured_low > high
        assert claim.verdict == ("holds" if inside else "fails" if outside else "undecided")


@pytest.mark.parametrize("make", [median, mean])
def test_intervals_hold_the_truth_in_95_of_100(make):
    """Of 400 samples of 40 skewed numbers; 95 % +- 3 standard errors (.033), percentiles of means are 3 % short."""
    rng = np.random.default_rng(1)
    truth = math.log(2) if make is median else 1
    hits = 0
    for _ in range(400):
        claim = make("", rng.exponential(size=40), low=0)
        hits += claim.measured_low <= truth <= claim.measured_high
    assert 0.95 - 0.033 - (0.03 if make is mean else 0) <= hits / 400 <= 0.95 + 0.033


def test_an_undecided_claim_says_how_many_runs_would_decide():
    for few, claim in ((10, 0.95), (100, 0.99), (3, 0.5)):
        needed = math.ceil(math.log(0.025) / math.log(claim))
        assert share("", flags(few, few), low=claim).note == f"{few} of {few}; about {needed} runs would decide"
    assert median("", np.arange(4), low=-1).note == "about 6 runs would decide"
    assert mean("", np.arange(4), low=-1).note == "about 20 runs would decide"
    assert share("", flags(50, 100), low=0.5).note == "50 of 100; more runs alone would not decide"
    wide = median("", np.arange(100), low=45)
    needed = int(wide.note.split()[1])
    assert 100 < needed and median("", np.tile(np.arange(100), -(-needed // 100)), low=45).verdict == "holds"
    wide = mean("", np.arange(100), low=46)
    needed = int(wide.note.split()[1])
    assert 100 < needed < 400 and mean("", np.repeat(np.arange(100), 4), low=46).verdict == "holds"


@pytest.mark.parametrize("bound", [{"low": -1}, {"high": 9}, {"low": -1, "high": 9}])
@pytest.mark.parametrize("make", [share, median, mean, exactly])
@pytest.mark.parametrize("nothing", [np.nan, np.inf, -np.inf])
def test_runs_without_a_number_count_against_the_claim(make, bound, nothing):
    if make is share:
        bound = {name: 0.2 if name == "low" else 0.8 for name in bound}
        good = np.ones(400) if "high" not in bound else np.zeros(400) if "low" not in bound else flags(200, 400)
    else:
        good = np.arange(400) / 100
    good = good.astype(float)
    assert make("", good, **bound).verdict == "holds"
    bad = good.copy()
    bad[5:] = nothing
    claim = make("", bad, **bound)
    assert claim.verdict == "fails" and "395 without a number" in claim.note and claim.runs == 400
    few = good.copy()
    few[7] = nothing
    claim = make("", few, **bound)
    assert "1 without a number" in claim.note
    assert claim.verdict == {share: "holds", median: "holds", mean: "undecided", exactly: "fails"}[make]


def test_exactly_names_the_worst_value():
    assert exactly("", [0.1, 0.9, 0.5], high=0.4).measured == 0.9
    assert exactly("", [0.1, 0.9, 0.5], low=0.4).measured == 0.1
    assert exactly("", [0.1, 0.9, 0.5], 0, 1).measured in (0.1, 0.9)
    assert exactly("", [], low=0).verdict == "fails" and exactly("", [], low=0).note == "no values"


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: share("x", [0.5], low=0), "flags must be true, false or NaN.*'x'"),
        (lambda: median("x", [1]), "must have a bound.*'x'"),
        (lambda: exactly("x", [1]), "must have a bound.*'x'"),
        (lambda: median("x", [1], low=np.inf), "low must be finite or None, got inf"),
        (lambda: mean("x", [1], high=np.nan), "high must be finite or None, got nan"),
        (lambda: exactly("x", [1], 2, 1), "low must not exceed high, got 2 and 1"),
    ],
)
def test_what_is_no_claim(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


def test_words():
    assert share("", flags(3, 4), low=0.5).expected == "at least 0.5"
    assert exactly("", 0, high=1e-9).expected == "at most 1e-09"
    assert exactly("", 0, 0, 0).expected == "exactly 0"
    assert median("", [1], 0.25, 2).expected == "0.25 to 2"
    assert exactly("", 0.5, high=1).found == "0.5"
    assert share("", flags(3, 4), low=0).found == "0.75 [0.1941, 0.9937] (3 of 4)"
    assert median("", [1], low=0).found == "1 [?, ?] (about 6 runs would decide)"


def test_no_runs_decide_nothing():
    for make in (share, median, mean):
        claim = make("", [], low=0.5)
        assert claim.verdict == "undecided" and claim.measured is None and claim.runs == 0


def test_claims_json_keeps_other_figures_and_replaces_its_own(tmp_path):
    path = tmp_path / "claims.json"
    assert read_claims(path) == []
    write_claims(path, "rank", {"A": [exactly("gap", [1e-9], high=1e-6), share("of", flags(3, 4), low=0.9)]})
    write_claims(path, "basin", {"B": [median("x", np.full(9, np.nan), low=0)]})
    write_claims(path, "rank", {"C": [exactly("gap", [1e-8], high=1e-6)]})
    assert [(entry["figure"], entry["claim"]) for entry in read_claims(path)] == [("basin", "B: x"), ("rank", "C: gap")]
    for entry in json.loads(path.read_text()):
        keys = "figure claim low high measured measured_low measured_high runs verdict"
        assert list(entry) == keys.split() and entry["verdict"] in VERDICTS
