"""Learning rates: the default that fits the data, functions of the step; and what a run says that has not chosen."""

import warnings

import attsvm
import numpy as np
import pytest
import reference
from attsvm import _core
from builders import build_case, paper, problem_of
from numpy.testing import assert_allclose, assert_array_equal

RULES = {word: word for word in _core.UPDATE_RULE} | {"mirror": attsvm.rules.mirror(p=3.0)}


def problem(tokens=1.0, queries=1.0, **kwargs):
    s = paper()
    return attsvm.Problem(attsvm.cross_attention(tokens * s.X, queries * s.Z, s.X), s.y, s.problem.head, **kwargs)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("lr", [None, 0.01, 0.04])
def test_the_length_of_the_first_step(rule, lr):
    """lr times what the table of rules says, so a tenth by default, unless this test names the rule."""
    made = paper(12).problem  # enough sequences for a gradient of full rank
    value, G = made.loss_and_grad(np.zeros((10, 10)))
    size, length = np.linalg.norm(G), attsvm.rules.as_rule(rule).length(10, 10)
    run = attsvm.train(made, rule=RULES[rule], lr=lr, steps=1)
    lr = 0.1 / length if lr is None else lr
    expected = {
        "constant": lr * size,
        "polyak": min(lr, (value - made.infimum()) / (2 * size)),
        # phi(W) = lr G / ||G||_q, with p = 3 and q = 1.5
        "mirror": np.linalg.norm(np.sqrt(lr * np.abs(G) / (np.abs(G) ** 1.5).sum() ** (1 / 1.5))),
        "adagrad": 10 * lr * length,  # the table has that of a hundredth step
        "shampoo": 10 * lr * length,
    }
    assert run.norm[-1] == pytest.approx(expected.get(rule, lr * length), rel=1e-9)


SCALES = [(2.0**-10, 1.0), (2.0**-70, 2.0**80), (1.0, 2.0**6), (2.0**230, 2.0**-210)]


@pytest.mark.parametrize(
    ("rule", "trained"), [*((rule, "W") for rule in RULES), ("normalized", "KQ"), ("constant", "KQ")]
)
def test_every_scale_goes_through_the_same_attention(rule, trained):
    def train(tokens, queries):
        K = np.eye(10) / 4 / np.sqrt(tokens * queries)
        start = {"K": K, "Q": K} if trained == "KQ" else {}
        return attsvm.train(problem(tokens, queries), **start, rule=RULES[rule], steps=100, record=10)

    plain = train(1.0, 1.0)
    for scales in SCALES:
        found = train(*scales).weights * np.prod(scales)
        assert_allclose(found, plain.weights, rtol=0, atol=1e-9 * plain.norm[-1])


def test_a_function_gives_the_rate_of_each_step():
    seen = []
    run = attsvm.train(problem(), lr=lambda k: seen.append(k) or 0.1 / np.sqrt(k + 1), steps=20)
    assert seen == list(range(20))
    assert_array_equal(run.W, attsvm.train(problem(), lr=0.1 / np.sqrt(np.arange(1, 21)), steps=20).W)
    assert attsvm.train(problem(), lr=lambda k: 1 / 0, steps=0).status == "completed"
    with pytest.raises(ValueError, match="lr must not be negative, got -1"):
        attsvm.train(problem(), lr=lambda k: 1.0 - k, steps=3)


# ------------------------------------------------------------------------------------ undecided


@pytest.mark.parametrize(
    "name", ["cross", "cross_ragged", "cross_several_queries", "causal", "causal_ragged", "self_all_ragged"]
)
def test_undecided_is_the_largest_probability_of_one_token(name):
    case = build_case(name)
    run = attsvm.train(problem_of(case), steps=30, lr=0.3)
    flags = reference.per_query(case.data, run.undecided)
    assert_array_equal(flags, [p.max() < 0.9 for p in reference.probabilities(case.data, run.W)])
    said = "of the run: their attention has not chosen" in str(attsvm.diagnose(run.problem, run))
    assert said == flags.any()


@pytest.mark.parametrize("steps", [3, 300])
def test_undecided_of_a_head_that_keeps_several_is_the_sets_rule(steps):
    s = paper()
    made = attsvm.Problem(s.data, s.y, attsvm.QuadraticHead(s.v, 0.3))
    run = attsvm.train(made, steps=steps)
    assert_array_equal(run.undecided, attsvm.theory.selected_sets(run.probabilities)[1])


def test_a_run_that_has_not_chosen_says_so():
    early, late = (attsvm.train(problem(), steps=steps) for steps in (3, 3000))
    count = f"{early.undecided.sum()} of 6"
    assert early.undecided.any() and not late.undecided.any()
    assert (
        f"undecided      {count} queries: their attention has not chosen\n" in repr(early)
        and "undecided" in early._repr_html_()
    )
    assert count in repr(attsvm.diagnose(early.problem, early))
    assert not any("undecided" in repr(told) for told in (late, attsvm.diagnose(late.problem, late)))
    assert early.to_dict()["undecided"] == early.undecided.tolist()
    with pytest.warns(attsvm.svm.solve.ConvergenceWarning, match=f"{count}.*more steps.*unless tokens tie"):
        assert (attsvm.solve_svm(early.data, early).selected == early.selected).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attsvm.solve_svm(late.data, late)
        assert attsvm.theory.margin_share(late.data, late, late.W)[0] > 0.9


def test_of_several_runs_or_heads_one_is_taken():
    runs = attsvm.train(problem(), runs=2, steps=1)
    heads = attsvm.train(problem(heads=2), np.stack([np.eye(10), -np.eye(10)]), steps=1)
    assert heads.undecided.shape == (2, 6)
    for several, match in ((runs, r"take one, run\[r\]"), (heads, r"take one, run.selected\[h\]")):
        with pytest.raises(ValueError, match=match):
            attsvm.solve_svm(several.data, several)
