"""A claim holds, fails or stays undecided by its interval alone, and never loses a run."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from attsvm.report.claims import VERDICTS, difference, exactly, mean, median, read_claims, share, write_claims
from attsvm.report.intervals import binomial_interval, difference_interval, mean_interval, median_interval, median_rank


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
        (lambda: difference("", flags(40, 40), flags(40, 40), 0.01, 0.15), "undecided"),
        (lambda: difference("", flags(60, 100), flags(20, 100), low=0.2), "holds"),
        (lambda: difference("", flags(20, 100), flags(60, 100), low=0), "fails"),
        (lambda: mean("", np.ones(66), (0, 1), low=0.95), "undecided"),
        (lambda: mean("", np.ones(80), (0, 1), low=0.95), "holds"),
        (lambda: mean("", np.arange(100), (0, 99), 45, 54), "undecided"),
        (lambda: mean("", np.arange(100), (0, 99), 42, 57), "holds"),
        (lambda: mean("", np.arange(100), (0, 99), high=40), "fails"),
        (lambda: mean("", np.ones(400), (0, math.inf), high=2), "undecided"),
        (lambda: median("", [0, math.nan], low=1), "undecided"),
        (lambda: median("", [3.0] * 15 + [0.0] * 10 + [math.nan] * 15, -1, 1), "undecided"),  # too large, or not
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
    if None not in (claim.measured_low, claim.measured_high):
        inside = low <= claim.measured_low and claim.measured_high <= high
        outside = claim.measured_high < low or claim.measured_low > high
        assert claim.verdict == ("holds" if inside else "fails" if outside else "undecided")


@pytest.mark.parametrize("successes, runs", [(0, 7), (3, 40), (40, 40), (72, 80)])
def test_the_mean_of_flags_has_their_interval(successes, runs):
    """Gaffke's interval is Clopper and Pearson's; 10,000 weights find its ends to a tenth of a standard error."""
    _, low, high = mean_interval(flags(successes, runs).astype(float), 0, 1)
    assert (low, high) == pytest.approx(binomial_interval(successes, runs), abs=0.1 / math.sqrt(runs))
    assert (low, high) == pytest.approx(binomial_interval(successes, runs), abs=0.005)


def test_a_difference_is_no_nearer_than_its_parts():
    """[low10 - high01, high10 - low01] of intervals at 98.75 %: never a point, as a bootstrap of equal flags is."""
    stats = pytest.importorskip("scipy.stats")
    for gains, losses, runs in ((0, 0, 40), (3, 1, 40), (80, 0, 80)):
        ten, one = (stats.binomtest(k, runs).proportion_ci(0.9875, "exact") for k in (gains, losses))
        exact = ten.low - one.high, ten.high - one.low
        np.testing.assert_allclose(difference_interval(gains, losses, runs), exact, atol=1e-12)


SAMPLES = {
    "log-normal": (lambda rng: rng.lognormal(0, 1.5, 20), math.exp(1.125), (0, math.inf)),
    "beta": (lambda rng: rng.beta(0.2, 2, 20), 0.2 / 2.2, (0, 1)),
}


@pytest.mark.parametrize("kind", ["median", *SAMPLES])
def test_intervals_miss_on_either_side_in_at_most_25_of_1000(kind):
    """Of 400 samples: at most 2.5 % and 3 standard errors (.023) on either side."""
    rng = np.random.default_rng(1)
    draw, truth, within = SAMPLES.get(kind, (lambda rng: rng.exponential(size=40), math.log(2), None))
    above = below = 0
    for _ in range(400):
        sample = draw(rng)
        _, low, high = mean_interval(sample, *within) if within else median_interval(sample)
        above, below = above + (low > truth), below + (high < truth)
    assert max(above, below) / 400 <= 0.025 + 0.023


@pytest.mark.parametrize("runs", [60, 999, 1000, 5000])
def test_the_rank_of_a_median_is_the_binomial_one(runs):
    stats = pytest.importorskip("scipy.stats")
    assert abs(median_rank(runs) - stats.binom.ppf(0.025, runs, 0.5)) <= 1  # from 1,000 runs the normal one


def test_an_undecided_claim_says_how_many_runs_would_decide():
    for few, claim in ((10, 0.95), (100, 0.99), (3, 0.5)):
        needed = math.ceil(math.log(0.025) / math.log(claim))
        assert share("", flags(few, few), low=claim).note == f"{few} of {few}; about {needed} runs would decide"
    assert median("", np.arange(4), low=-1).note == "about 6 runs would decide"
    assert difference("", flags(9, 9), flags(0, 9), low=0.5).note == "9 to 0 of 9; about 18 runs would decide"
    assert share("", flags(50, 100), low=0.5).note == "50 of 100; more runs alone would not decide"
    wide = median("", np.arange(100), low=45)
    needed = int(wide.note.split()[1])
    assert 100 < needed and median("", np.tile(np.arange(100), -(-needed // 100)), low=45).verdict == "holds"
    wide = mean("", np.arange(100), (0, 99), low=46)
    needed = int(wide.note.split()[1])
    assert 100 < needed < 400 and mean("", np.repeat(np.arange(100), 4), (0, 99), low=46).verdict == "holds"


def gained(text, flags, **bound):
    return difference(text, flags, np.zeros(len(flags)), **bound)


def middle(text, sample, **bound):
    return mean(text, sample, (-5, 15), **bound)


@pytest.mark.parametrize("bound", [{"low": -1}, {"high": 9}, {"low": -1, "high": 9}])
@pytest.mark.parametrize("make", [share, gained, median, middle, exactly])
@pytest.mark.parametrize("nothing", [np.nan, np.inf, -np.inf])
def test_runs_without_a_number_count_against_the_claim(make, bound, nothing):
    if make is gained:
        bound = {name: -0.2 if name == "low" else 0.2 for name in bound}
        good = np.zeros(400)
    elif make is share:
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
    assert claim.verdict == "fails" if make is exactly else "holds"


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
        (lambda: mean("x", [1], (0, 1), high=np.nan), "high must be finite or None, got nan"),
        (lambda: difference("x", [0.5], [0], low=0), "flags must be true, false or NaN.*'x'"),
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
    for make in (share, gained, median, middle):
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
