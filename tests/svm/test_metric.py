"""The SVM in a metric: every answer judged from the tokens, whitened nowhere; and where training leads."""

import io
import warnings

import attsvm
import judge
import numpy as np
import pytest
from kinds import KINDS, draw

SHORT_ROWS = (
    "near copies",
    "near copy along an axis",
    "scales of each token",
)  # beside others: rounding may leave gaps


def drawn(rng, data, pair):
    if not pair:
        return rng.uniform(0.2, 3.0, (data.dk, data.dz))
    A, B = (rng.standard_normal((d, 2 * d)) / np.sqrt(d) for d in (data.dk, data.dz))
    return A @ A.T, B @ B.T


@pytest.mark.parametrize("C", [None, 0.7])
@pytest.mark.parametrize("pair", [False, True])
def test_every_kind_is_certified_by_its_tokens(pair, C):
    optimal = 0
    for kind in KINDS:
        case = draw(kind, 0)
        metric = drawn(np.random.default_rng(0), case.data, pair)
        try:
            with warnings.catch_warnings(action="ignore"):
                sol = attsvm.solve_svm(case.data, case.selected, metric=metric, margins=case.asked, C=C)
        except ValueError as error:
            assert "scale" in str(error)
            continue
        assert (why := judge.wrong(case, sol)) is None, (kind, why)
        assert sol.status in judge.SETTLED or kind in SHORT_ROWS, kind
        if sol.status == "optimal":
            optimal += 1
            assert sol.unique is True
            np.testing.assert_equal(sol.metric, metric)
    assert optimal > 20


def test_what_else_an_answer_in_a_metric_does():
    data, rng = draw("random", 0).data, np.random.default_rng(1)
    selected = data.select(rng.standard_normal((data.dk, data.dz)))
    metric = drawn(rng, data, True)
    sol = attsvm.solve_svm(data, selected, metric=metric)
    share = attsvm.theory.margin_share(data, selected, sol.W, metric=metric)
    assert 1 - 1e-8 < share[0] <= share[1] <= 1
    other = attsvm.solve_svm(data, selected).W
    assert attsvm.theory.margin_share(data, selected, other, metric=metric)[1] < 1
    assert sol.to_dict()["norm"] == "metric"
    with pytest.raises(ValueError, match="the checker knows no metric"):
        sol.prove(io.BytesIO())


def test_adam_of_a_long_memory_is_nearest_to_its_own_metric(sphere):
    asked = sphere().problem
    run = attsvm.train(
        asked, rule=attsvm.rules.adam(betas=(0.9, 0.999)), lr=lambda k: 0.1 / (k + 1) ** 0.5, steps=8000, record=0
    )
    own, *others = (attsvm.solve_svm(asked.data, run, **way) for way in ({"metric": run.metric}, {}, {"norm": "max"}))
    nearest = attsvm.correlation(run.W, own.W)
    assert nearest > 0.9 and all(nearest > attsvm.correlation(run.W, sol.W) for sol in others)
    low, high = run.margins(metric=run.metric)
    assert low[-1] <= own.margin_bound and high[-1] >= own.margin
    assert attsvm.train(asked, steps=1).metric is None


def test_no_interval_in_a_metric_is_false(sphere):
    """Weights on their way, and as near as can be, in metrics of both kinds that are far from the identity."""
    rng = np.random.default_rng(4)
    for draws in range(60):
        asked = sphere(5, 6, 7, rng).problem
        metric = np.exp(2 * rng.standard_normal((7, 7))) if draws % 2 else drawn(rng, asked.data, True)
        W = attsvm.train(asked, steps=(3, 30, 300)[draws % 3], record=0, rule=attsvm.rules.normalized(metric=metric)).W
        selected = asked.data.select(W)
        answer = attsvm.solve_svm(asked.data, selected, metric=metric)
        for weights in (W, answer.W):
            low, high = asked.margin_interval(weights, selected, metric=metric)
            assert low <= answer.margin_bound and answer.margin <= high < np.inf
        assert low > answer.margin * (1 - 1e-6)
