"""The figures of the linear-head theory: small runs of each, held against the package and against broken results."""

from __future__ import annotations

from types import SimpleNamespace

import attsvm
import numpy as np
import pytest
from attsvm.figures import (
    FIGURES,
    NAMED,
    _instances,
    _papers,
    basin,
    equal_scores,
    joint_training,
    load,
    measure,
    next_token,
    rank,
    several_classes,
    several_tokens,
)
from pictures import assert_readable

pytestmark = pytest.mark.filterwarnings("ignore::attsvm.ConvergenceWarning")  # rank stops a solver on purpose

RUNS = 8
THEORY = ("gd-paths", "regularization-path", "rank", "global-local", "overparameterization", "equal-scores", "basin")
QUICK = ("gd-paths", "rank", "basin")


@pytest.fixture(
    scope="module", params=[name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in THEORY]
)
def small(request):
    """A figure and its results, few runs and fewer where a run takes long."""
    figure = load(request.param)
    return figure, measure(figure, RUNS, 1, 2)


def verdicts(figure, results):
    return {claim.text: claim.verdict for claims in figure.claims(results).values() for claim in claims}


@pytest.mark.parametrize("name", (*FIGURES, *NAMED))
def test_every_figure_says_what_it_is_and_where_it_comes_from(name):
    if name in NAMED:
        pytest.importorskip("torch")
    figure = load(name)
    title, _, text = figure.__doc__.partition("\n\n")
    assert title and text and figure.SETTINGS and 1 <= figure.QUICK <= figure.RUNS
    sources = [words for name, words in vars(_papers).items() if name.isupper()]
    assert any(figure.PAPER.startswith(source) for source in sources) and not figure.PAPER.endswith(".")
    assert figure.CAPTION.endswith(".") and len(figure.CAPTION) > 60


def test_no_claim_fails_and_curves_line_up(small):
    figure, results = small
    assert [text for text, verdict in verdicts(figure, results).items() if verdict == "fails"] == []
    assert len({len(column) for column in figure.curves(results).values()}) == 1
    assert_readable(figure.plot(results))


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


def test_the_cone_of_the_basins_is_derived_by_hand(rng):
    problem, selected, solution = basin.instance(rng, True)
    found = basin.cone(rng, problem, selected, solution.W)
    assert found["in the cone"] == 0 and found["mu"] < 1e-9 and found["R"] < 1e-8  # bisected to 1e-10
    X, Z = problem.data.keys.reshape(5, 5, 8), problem.data.queries
    climbing = basin.descends(X, Z, problem.scores, -solution.W, -solution.W)
    assert not climbing.all()


def test_a_definition_turned_round_is_seen(rng, monkeypatch):
    problem = _instances.sphere_problem(rng, 5, 5, 8)
    solution = attsvm.solve_svm(problem.data, problem.optimal)
    assert not _instances.differs(problem, solution)
    monkeypatch.setattr(_instances.theory, "is_locally_optimal", lambda problem, solution: False)
    assert _instances.differs(problem, solution)


@pytest.mark.parametrize(
    "figure, name, judged, made",
    [
        (basin, "is_locally_optimal", None, lambda rng: basin.instance(rng, True)),
        (joint_training, "label_svm", SimpleNamespace(W=1, support=np.ones((2, 2), bool)), joint_training.experiment),
        (next_token, "next_token", SimpleNamespace(acyclic=True), next_token.draw),
        (several_classes, "mixture", np.full(several_classes.T, several_classes.KEPT), several_classes.experiment),
        (several_tokens, "judge", None, lambda rng: several_tokens.accepted(4, rng)),
    ],
)
def test_figures_give_up_drawing(figure, name, judged, made, monkeypatch, rng):
    """Where no problem is as they want it, as after a mistake in what judges it."""
    left = iter(range(1000))  # an end, where the figure has none
    monkeypatch.setattr(figure, "DRAWS", 3)
    monkeypatch.setattr(figure, name, lambda *_: (next(left), judged)[1])
    with pytest.raises(RuntimeError, match="random problems was accepted"):
        made(rng)
