"""The figure of the optimisers measures what it says, and its claims can fail."""

from __future__ import annotations

import attsvm
import numpy as np
import pytest
from attsvm.figures import measure, optimisers
from attsvm.figures._instances import sphere_problem
from pictures import assert_readable

OWN = list(optimisers.OWN)


@pytest.fixture(scope="module")
def results():
    return measure(optimisers, 1, 3)


def test_figure_draws_and_writes_what_it_measured(results):
    columns = optimisers.curves(results)
    assert {len(column) for column in columns.values()} == {len(optimisers.RECORDS)} and len(columns) == 19
    picture = optimisers.plot(results)
    assert_readable(picture)
    table, way, memory = picture.axes
    shown = [text.get_text() for text in table.texts]
    assert len(shown) == len(optimisers.RULES) * (len(optimisers.NORMS) + 2) and shown.count("diverges") == 1
    assert shown[0] == f"{np.median(results['shares'][:, 0, 0]):.2f}" and len(way.lines) == 7 and len(memory.lines) == 4
    texts = [(heading, claim.text) for heading, claims in optimisers.claims(results).items() for claim in claims]
    assert len(texts) == len(set(texts)) >= 30
    assert optimisers.RUNS >= 100 and optimisers.QUICK >= 15


def test_shares_are_those_of_a_run_made_by_hand(results):
    rng = np.random.default_rng(np.random.SeedSequence(3).spawn(1)[0])
    problem = sphere_problem(rng, optimisers.N, optimisers.T, optimisers.D)
    lr = 0.3 / np.sqrt(np.arange(1, 8001))
    for name, norm in (("sign", "max"), ("spectral", "spectral")):
        run = attsvm.train(problem, rule=name, lr=lr, steps=8000, record=optimisers.RECORDS)
        low, high = attsvm.margin_share(run.data, run.selected, run.weights[1:], norm)
        i = OWN.index(name)
        np.testing.assert_allclose(results["along"][0, i], low, rtol=1e-9)
        assert results["shares"][0, i, optimisers.NORMS.index(norm)] == results["along"][0, i, -1]
        selected = [run.data.select(W) for W in run.weights]
        k = max((k for k, tokens in enumerate(selected) if not np.array_equal(tokens, run.selected)), default=-1)
        assert results["last change"][0, i] == run.steps[k + 1]
    run = attsvm.train(problem, rule="shampoo", lr=3.0, steps=8000, record=0)
    frozen = attsvm.train(problem, run.W, metric=run.metric, lr=0.3, steps=8000, record=0)
    i = optimisers.RULES.index("Shampoo")
    for k, which in enumerate((run, frozen)):
        answer = attsvm.solve_svm(which.data, which.selected, metric=run.metric)
        expected = attsvm.correlation(which.W, answer.W)
        np.testing.assert_allclose(results["metric"][0, i, k, 1], expected, rtol=1e-9)
    with_metric = {name for name in optimisers.RULES if name.split(",")[0] in ("AdaGrad", "Shampoo", "Adam")}
    assert set(np.array(optimisers.RULES)[~np.isnan(results["metric"][0, :, 0, 0])]) == with_metric - {"Adam, .9, 0"}


def test_the_exponent_is_that_of_a_power():
    along = 1 - 0.7 * np.power(optimisers.RECORDS.astype(float), [[-0.5], [-0.25]])
    np.testing.assert_allclose(optimisers.exponent(along), [-0.5, -0.25], rtol=1e-10)


def test_adam_diverges_where_its_mean_remembers_longer_than_its_square(results):
    """beta_2 = 0 and beta_1 = .9: m over the present gradient, which falls like e^-k, grows without end."""
    assert results["diverged"].sum(axis=0).tolist() == [name == "Adam, .9, 0" for name in optimisers.RULES]


def known(**changed):
    """Numbers of 100 runs that fit every claim."""
    R, rules, norms = 100, len(optimisers.RULES), len(optimisers.NORMS)
    shares = np.full((R, rules, norms), 0.5)
    for i in range(len(OWN)):
        shares[:, i, i] = 0.97
    shares[:, optimisers.RULES.index("spectral on K, Q"), 4] = 0.96
    shares[:, optimisers.RULES.index("Adam, 0, .9"), optimisers.NORMS.index("max")] = 0.95
    metric = np.full((R, rules, 2, 2), np.nan)
    metric[:, len(OWN) :, 0], metric[:, len(OWN) :, 1] = 0.9, 0.9999
    used = np.full((R, rules), 4.0)
    used[:, OWN.index("spectral")], used[:, OWN.index("factors")] = 5.8, 1.7
    found = {
        "shares": shares,
        "metric": metric,
        "along": np.broadcast_to(1 - 1 / np.sqrt(optimisers.RECORDS), (R, len(OWN), len(optimisers.RECORDS))).copy(),
        "directions": used,
        "directions of the SVM": np.tile([4.0, 4.0, 4.0, 4.0, 6.0, 2.0], (R, 1)),
        "last change": np.full((R, len(optimisers.OWN)), 20.0),
        "gap": np.full(R, 1e-10),
    }
    return found | changed


def test_claims_hold_where_everything_fits():
    assert {c.verdict for group in optimisers.claims(known()).values() for c in group} == {"holds"}


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("gap", 1e-6, "largest gap of margin"),
        ("directions", 3.5, "spectral"),
        ("directions of the SVM", 3.5, "SVM of least"),
        ("shares", 0.1, "share of the largest margin"),
        ("along", 0.5, "exponent"),
        ("metric", 0.4, "AdaGrad"),
        ("metric", 0.4, "Shampoo: share .99"),
        ("metric", 0.99, "correlation .999"),
        ("shares", 0.8, "beta_2 = .9999"),
        ("last change", 5000.0, "tokens have stood"),
    ],
)
def test_claims_see_through_a_wrong_number(key, value, text):
    found = known()
    found[key] = np.full_like(found[key], value)
    wrong = [c for group in optimisers.claims(found).values() for c in group if text in c.text]
    assert wrong and any(claim.verdict == "fails" for claim in wrong)


@pytest.mark.parametrize("rule", ["sign", "normalized"])
def test_a_run_without_number_counts_against_the_diagonal(rule):
    found = known()
    found["shares"][:, OWN.index(rule)] = np.nan
    claims = {(h, c.text): c for h, group in optimisers.claims(found).items() for c in group}
    heading = "Conjecture: a run is nearer to its own norm's SVM than to any other"
    assert claims[heading, rule].verdict == "fails" and claims[heading, "factors"].verdict == "holds"
