"""The figures of the linear-head theory: small runs of each, held against the package and against broken results."""

from __future__ import annotations

import attsvm
import numpy as np
import pytest
from attsvm.figures import FIGURES, _instances, basin, equal_scores, gd_paths, load, rank
from attsvm.report import never_falls, share_near

RUNS = 16
THEORY = (
    "gd-paths",
    "regularization-path",
    "rank",
    "global-local",
    "overparameterization",
    "equal-scores",
    "basin",
)


@pytest.fixture(scope="module", params=THEORY)
def small(request):
    """A figure and its results, few runs and fewer where a run takes long."""
    figure = load(request.param)
    return figure, figure.run(RUNS, 1, 2)


def verdicts(figure, results):
    return {claim.text: claim.holds for claims in figure.claims(results).values() for claim in claims}


def test_every_figure_says_what_it_is():
    for figure in map(load, FIGURES):
        title, _, text = figure.__doc__.partition("\n\n")
        assert title and text and figure.SETTINGS and 1 <= figure.QUICK <= figure.RUNS


def test_claims_hold_and_curves_line_up(small):
    figure, results = small
    found = figure.claims(results)
    failed = [claim for claims in found.values() for claim in claims if not claim.holds]
    assert not failed
    assert len({len(column) for column in figure.curves(results).values()}) == 1
    assert figure.plot(results).axes


def test_wrong_results_fail_claims(small):
    """Flags turned round and numbers moved: at least half of the claims must notice."""
    figure, results = small
    wrong = {key: ~x if x.dtype == bool else -x[..., ::-1] if x.ndim > 1 else -x for key, x in results.items()}
    held = verdicts(figure, wrong)
    assert sum(held.values()) <= len(held) / 2, [text for text, holds in held.items() if holds]


def test_endings_are_what_they_say(rng):
    seen = set()
    for _ in range(60):
        problem = _instances.sphere_problem(rng, 5, 5, 6)
        run = attsvm.train(problem, steps=int(rng.choice([30, 1500])), record=0)
        end = _instances.ending(problem, run, "frobenius")
        assert sum(end.values()) == 1
        (word,) = (word for word, true in end.items() if true)
        seen.add(word)
        settled = (run.probabilities.max(axis=1) > 0.99).all()
        same = (run.selected == problem.optimal).all()
        locally = settled and attsvm.diagnose(problem, run.selected).locally_optimal
        assert word == ("global" if settled and same else "local" if locally else "neither")
    assert seen == {"global", "local", "neither"}


def test_all_support_is_that_of_the_diagnosis():
    found = []
    for seed in range(12):
        problem = _instances.sphere_problem(np.random.default_rng(seed), 4, 5, 24)
        solution = attsvm.solve_svm(problem.data, problem.optimal)
        found.append(_instances.all_support(problem, solution))
        assert found[-1] == attsvm.diagnose(problem).all_support
    assert len(set(found)) == 2


def test_ranks_are_never_those_of_draws_without_solution():
    found = rank.experiment(np.random.default_rng(3))
    none = np.isnan(found["frobenius"])
    assert none[:, 0].all() and (none == np.isnan(found["nuclear"])).all()
    published = rank._published({"frobenius absolute": found["frobenius absolute"]}, "frobenius")
    assert (published[none] == 1).all()
    assert found["frobenius"][0, -1] == 5 > found["nuclear"][0, -1]


def test_tied_scores_tie_to_the_last_bit(rng):
    X, Z, y, _ = attsvm.sample.unit_sphere(6, 5, 8, rng)
    found = attsvm.diagnose(equal_scores.tied(X, Z, y))
    assert found.score_spread == 0 and found.equal_scores and (found.optimal == 0).all()
    assert found.no_stationary_point == "equal scores"


@pytest.mark.parametrize("wanted", [True, False])
def test_instances_of_basins(rng, wanted):
    for _ in range(5):
        problem, selected, solution = basin.instance(rng, wanted)
        found = attsvm.diagnose(problem, selected)
        assert found.locally_optimal == wanted and not (selected == problem.optimal).all()
        np.testing.assert_allclose(solution.W, found.solution.W, rtol=1e-9, atol=1e-12)


def test_shown_paths_are_the_training(rng):
    results = gd_paths.run(2, 0, 1)
    problem, runs, _ = gd_paths.instance("two", np.random.default_rng(gd_paths.SHOWN["two"]))
    last = results["shown two KQ"][-1]
    for n, z in enumerate(problem.data.queries):
        np.testing.assert_allclose(last[n], runs["KQ"].W @ z, rtol=1e-12)
    assert (problem.optimal == 0).all()


def test_shares_are_compared_with_joint_errors():
    flags = np.arange(400) < 200
    assert share_near("", flags, 0.55, 60).holds and not share_near("", flags, 0.75, 60).holds
    assert share_near("", np.zeros(400), 0.0, 60).holds and not share_near("", np.zeros(400), 0.2, 60).holds
    assert share_near("", np.ones(400), 1.0, 60).holds


def test_a_fall_is_seen():
    rng = np.random.default_rng(0)
    low, high = rng.random(400) < 0.3, rng.random(400) < 0.6
    assert never_falls("", [low, high]).holds and never_falls("", [low, low]).holds
    assert not never_falls("", [high, low]).holds and not never_falls("", [low, high, low]).holds
