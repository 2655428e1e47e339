"""Two runs of the figures beyond the linear-head theory: pictures, columns and claims are those of the runs."""

from __future__ import annotations

import re

import numpy as np
import pytest
from attsvm.figures import load, measure
from pictures import assert_readable

EXACT = ["next-token", "precursor", "joint-training", "mirror-descent", "factor-balance", "rates", "several-classes"]
EXACT += ["positional-encoding"]
FIGURES = [*EXACT, "several-tokens", "quadratic-head", "sequence-to-sequence", "attention-heads", "soft-and-hard"]
FIGURES += ["plain-descent", "soft-margins", "certified-training"]
QUICK = ["next-token", "soft-and-hard", "soft-margins", "certified-training"]
every = pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in FIGURES]
)


@every
def test_figure_draws_and_writes_what_it_measured(name, results):
    figure = load(name)
    found = results(figure)
    columns = figure.curves(found)
    assert len({len(column) for column in columns.values()}) == 1 and len(columns) > 3
    assert_readable(figure.plot(found))
    texts = [(heading, claim.text) for heading, claims in figure.claims(found).items() for claim in claims]
    assert len(texts) == len(set(texts)) >= 6
    assert figure.RUNS >= figure.QUICK >= 12 and figure.SETTINGS


@every
def test_runs_do_not_depend_on_threads_or_on_each_other(name, results):
    figure = load(name)
    again = measure(figure, 1, 3, 1)
    for key, numbers in again.items():
        np.testing.assert_array_equal(numbers[0], results(figure)[key][0])


@pytest.mark.parametrize("name", EXACT)
def test_exact_claims_hold_for_any_runs(name, results):
    """Exact ones do not need many runs: none of them fails, and no other is decided against the theory."""
    figure = load(name)
    for claims in figure.claims(results(figure)).values():
        for claim in claims:
            assert claim.verdict == "holds" or (claim.verdict == "undecided" and claim.runs == 2), claim


# A figure's number, a wrong value of it, and the claims (words of their texts) that must fail then.
WRONG = {
    "next-token": [("fin split", 1e-3, "decompose finds"), ("convex", -1e-3, "loss is convex")],
    "precursor": [("global selected", 1, "from all six starts"), ("plain softmax", 0.5, "plain, step 50: softmax"),
                  ("logistic prompts", 0.0, "logistic loss: distance")],
    "joint-training": [("not tight p", 0.5, "second coordinate"), ("tight softmax", 0.5, "attention dips")],
    "mirror-descent": [("joint selected", False, "published tokens"), ("joint head", 0.1, "divergence of v")],
    "factor-balance": [("aligned balance", 1.5, "aligned start: largest")],
    "rates": [("gap", 1e-3, "largest gap of margin")],
    "positional-encoding": [("copies", False, "without a code")],
    "several-classes": [("excess", -1e-3, "loss above that of the mixtures, least"),
                        ("stationarity", 1e-2, "the mixtures are maxima")],
    "several-tokens": [("4 margin", -1e-3, "least margin"), ("8 equality", 1e-3, "difference of logits"),
                       ("6 one", -1.0, "d = 6: SVM of one token minus general"),
                       ("6 finite part", 1e-3, "pseudo-inverse"),
                       ("6 length", 1e-3, "least squares")],
    "quadratic-head": [("trained", 0, "keep as many as the rule says"), ("rule", 7, "projection by sorting"),
                       ("one", 1.5, "general SVM over one token")],
    "sequence-to-sequence": [("causal W frobenius", 0.5, "causal: W and its"),
                             ("every gap", 1e-6, "every token: gap of margin"),
                             ("causal gradient", 1e-6, "causal: gradient")],
    "attention-heads": [("sum 2 least correlation", 0.9, "2 summed: the head farthest"),
                        ("concatenate apart", 1e-3, "side by side, 100 steps")],
    "soft-and-hard": [("plain correlation", 0.5, "softmax$"), ("plain score", -1.0, "score gained"),
                      ("taken", 1e-9, "hard attention against")],
    "plain-descent": [("constant apart", 1e-6, "constant steps"), ("polyak apart", 1e-3, "Polyak steps"),
                      ("head apart", 1e-3, "W and v together"), ("rises", 1e-9, "largest rise"),
                      ("smoothness apart", 1e-3, "smoothness constant")],
    "soft-margins": [("farkas", 1e-3, "combine the rows to zero"),
                     ("narrow optimality", 1e-3, "gradient of its objective"),
                     ("asked optimality", 1e-3, "given margins"), ("iota", 1e-3, r"iota by diagnose\(\)")],
    "certified-training": [("false", 1, "wrong side, normalized"), ("gradient off", 1e-2, "negative gradient"),
                           ("high", 1.01, "the bound above"), ("low", 0.5, "the margin of W below it")],
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_claims_see_through_a_wrong_number(name, results):
    """The few runs are taken twenty times over, so that shares and means can be decided."""
    figure = load(name)
    found = {key: np.concatenate([numbers] * 20) for key, numbers in results(figure).items()}

    def claims(found):
        return [claim for group in figure.claims(found).values() for claim in group]

    before = claims(found)
    for key, value, text in WRONG[name]:
        after = claims(found | {key: np.full_like(found[key], value)})
        assert {claim.verdict for claim in after if re.search(text, claim.text)} == {"fails"}, (key, text)
        assert "fails" not in {claim.verdict for claim in before if re.search(text, claim.text)}, (key, text)
