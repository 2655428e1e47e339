"""A claim holds, fails or stays undecided by its interval alone, and never loses a run."""

import itertools
import math

import attsvm
import numpy as np
import pytest
from attsvm.claims import difference, exactly, mean, median, none, share
from attsvm.claims.intervals import binomial_interval, difference_interval, mean_interval, median_interval, median_rank
from numpy.testing import assert_allclose

stats = pytest.importorskip("scipy.stats")


def flags(true, runs):
    return np.arange(runs) < true


@pytest.mark.parametrize("runs", [1, 2, 7, 40, 100, 401, 2000])
def test_intervals_of_counts_are_scipys(runs):
    """Which finds the ends by other means; a difference is no nearer than its parts, never a point."""
    for true in {0, 1, runs // 3, runs - 1, runs}:
        theirs = stats.binomtest(true, runs).proportion_ci(0.95, "exact")
        assert_allclose(binomial_interval(true, runs), theirs, atol=1e-11)
        ten, one = (stats.binomtest(k, runs).proportion_ci(0.9875, "exact") for k in (true, (runs - true) // 2))
        exact = ten.low - one.high, ten.high - one.low
        assert_allclose(difference_interval(true, (runs - true) // 2, runs), exact, atol=1e-11)
    assert median_rank(runs) == stats.binom.ppf(0.025, runs, 0.5)


HUNDRED, NAN = np.arange(100), math.nan


@pytest.mark.parametrize(
    "claim, verdict",
    [
        (share("", flags(71, 71), 0.95), "undecided"),
        (share("", flags(72, 72), 0.95), "holds"),
        (median("", HUNDRED[:5], -1), "undecided"),
        (median("", HUNDRED[:6], -1), "holds"),
        (median("", [0, NAN], 1), "undecided"),
        (median("", [3.0] * 15 + [0.0] * 10 + [NAN] * 15, -1, 1), "undecided"),  # too large, or not
        (mean("", np.ones(400), (0, math.inf), high=2), "undecided"),
        (exactly("", [1, 2], high=2), "holds"),
        (exactly("", [1, 2], high=1.9), "fails"),
        (exactly("", [0, 0, 1], 0, 0), "fails"),
        (exactly("", 0, 0, 0), "holds"),
    ],
)
def test_verdicts_of_few_runs_and_of_these_very_runs(claim, verdict):
    assert claim.verdict == verdict


@pytest.mark.parametrize("successes, runs", [(0, 7), (40, 40), (72, 80)])
def test_the_mean_of_flags_has_their_interval(successes, runs):
    """Gaffke's interval is Clopper and Pearson's; 10,000 weights find its ends to a tenth of a standard error."""
    _, low, high = mean_interval(flags(successes, runs).astype(float), 0, 1)
    assert (low, high) == pytest.approx(binomial_interval(successes, runs), abs=min(0.1 / math.sqrt(runs), 0.005))


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


def test_an_undecided_claim_says_how_many_runs_would_decide():
    for few, bound in ((10, 0.95), (100, 0.99), (3, 0.5)):
        needed = math.ceil(math.log(0.025) / math.log(bound))
        assert share("", flags(few, few), bound).note == f"{few} of {few}; about {needed} runs would decide"
    assert median("", np.arange(4), -1).runs_needed == 6
    assert difference("", flags(9, 9), flags(0, 9), 0.5).note == "9 to 0 of 9; about 18 runs would decide"
    assert share("", flags(50, 100), 0.5).note == "50 of 100; more runs alone would not decide"
    needed = median("", HUNDRED, 45).runs_needed
    assert 100 < needed and median("", np.tile(HUNDRED, -(-needed // 100)), 45).verdict == "holds"
    assert 100 < mean("", HUNDRED, (0, 99), 46).runs_needed < 400
    assert mean("", np.repeat(HUNDRED, 4), (0, 99), 46).verdict == "holds"


def gained(text, flags, **bound):
    return difference(text, flags, np.zeros(len(flags)), **bound)


def middle(text, sample, **bound):
    return mean(text, sample, (-5, 15), **bound)


GOOD = {share: (flags(200, 400), 0.2, 0.8), gained: (np.zeros(400), -0.2, 0.2)}  # and a bound that holds


@pytest.mark.parametrize("make", [share, gained, median, middle])
def test_the_verdict_is_that_of_the_interval(make):
    """For every bound below it, at its ends, inside and above."""
    good, *_ = GOOD.get(make, (np.arange(400) / 100,))
    least, most = make("", good, low=-5).interval
    ends = least - 0.01, least, (least + most) / 2, most, most + 0.01
    for low, high in [*itertools.combinations(ends, 2), *((-9, end) for end in ends), *((end, 9) for end in ends)]:
        bound = {name: end for name, end in (("low", low), ("high", high)) if abs(end) < 9}
        inside, outside = low <= least and most <= high, most < low or least > high
        assert make("", good, **bound).verdict == ("holds" if inside else "fails" if outside else "undecided")


@pytest.mark.parametrize("sides", [["low"], ["high"], ["low", "high"]])
@pytest.mark.parametrize("make", [share, gained, median, middle, exactly])
@pytest.mark.parametrize("nothing", [np.nan, np.inf, -np.inf])
def test_runs_without_a_number_count_against_the_claim(make, sides, nothing):
    good, *ends = GOOD.get(make, (np.arange(400) / 100, -1, 9))
    bound = {side: end for side, end in zip(("low", "high"), ends, strict=True) if side in sides}
    assert make("", good, **bound).verdict == "holds"
    for silent, verdict in ((395, "fails"), (1, "fails" if make is exactly else "holds")):
        claim = make("", np.where(np.arange(400) < silent, nothing, good), **bound)
        assert claim.verdict == verdict and f"{silent} without a number" in claim.note
        assert (claim.runs, claim.silent) == (400, silent)


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
        (lambda: difference("x", [0.5], [0], low=0), "flags must be true, false or NaN.*'x'"),
    ],
)
def test_what_is_no_claim(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


@pytest.mark.parametrize(
    "claim, words",
    [
        (exactly("", 0, high=1e-9), "at most 1e-09: 0"),
        (none("", [0.0, 1, 1]), "exactly 0: 2"),
        (median("", [1], 0.25, 2), "0.25 to 2: 1 [?, ?] (about 6 runs would decide)"),
        (share("", flags(3, 4), 0), "at least 0: 0.75 [0.1941, 0.9937] (3 of 4)"),
    ],
)
def test_words(claim, words):
    assert str(claim) == f", {words}: {claim.verdict}"


def test_no_runs_decide_nothing():
    for make in (share, gained, median, middle):
        claim = make("", [], low=0.5)
        assert claim.verdict == "undecided" and claim.measured is None and claim.runs == 0


# ------------------------------------------------------------------------------------ attsvm.claim


@pytest.mark.parametrize("silent", [0, 3])
@pytest.mark.parametrize("bound", [{"low": 0.6}, {"high": 0.6}, {"low": 0.1, "high": 0.95}])
@pytest.mark.parametrize("kind", [share, median])
def test_a_claim_of_the_user_is_judged_as_those_of_the_report(kind, bound, silent):
    values = np.append(np.arange(60) % 4 > 0 if kind is share else np.linspace(0, 1, 60), np.full(silent, np.nan))
    theirs = kind("", values, **bound)
    words = {"low": "at_least", "high": "at_most"}
    found = attsvm.claim(values.tolist(), **{words[name]: value for name, value in bound.items()})
    for name in ("verdict", "interval", "runs_needed", "measured", "note"):
        assert getattr(found, name) == getattr(theirs, name)
    assert found.silent == silent and found.interval == (found.measured_low, found.measured_high)
    assert found.verdict != "undecided" or found.runs_needed is None or found.runs_needed > 60
    assert found.verdict == "undecided" or found.runs_needed == 60 + silent


def test_a_claim_of_flags_is_about_their_share():
    found = attsvm.claim(flags(60, 100), at_least=0.7)
    assert found.verdict == "fails" and found.measured == 0.6
    assert attsvm.claim([2.0] * 9, at_most=2).verdict == "holds"
    assert attsvm.claim([2.0] * 2, at_most=2).interval == (-math.inf, math.inf)


@pytest.mark.parametrize(
    "given, message",
    [
        ({}, "a claim must have a bound, got neither at_least nor at_most"),
        ({"at_least": 1, "at_most": 0}, "at_least must not exceed at_most, got 1 and 0"),
        ({"at_least": math.nan}, "at_least must be a finite number"),
        ({"values": [[1, 0]], "at_least": 0}, r"values must have shape \(runs,\), got \(1, 2\)"),
        ({"values": [], "at_least": 0}, "values must not be empty"),
        ({"values": "x", "at_least": 0}, "values must be an array of numbers"),
    ],
)
def test_what_is_no_claim_of_the_user(given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        attsvm.claim(**{"values": [1, 0]} | given)


def test_a_claim_without_scipy_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scipy", None)
    with pytest.raises(ImportError, match="attsvm.claim needs SciPy: pip install scipy"):
        attsvm.claim([1, 0], at_least=0.5)
