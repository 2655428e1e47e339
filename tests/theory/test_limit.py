"""``run.limit()`` and ``train(until="limit")``: what they say, of which runs, and that it stays true."""

import attsvm
import numpy as np
import pytest
from attsvm import _core
from attsvm.theory.limit import Judge, Limit
from builders import problem_of
from compare import reloaded
from limits import by_scores, draw, judged
from marks import slow


def exponential(u):
    return np.exp(-u)


OWN = (exponential, lambda u: -np.exp(-u))  # its name is that of a loss that proofs cover


@pytest.fixture
def problem(sphere):
    return sphere().problem


@pytest.fixture
def late(problem):
    """Weights where all is decided."""
    return attsvm.train(problem, steps=800).W


def test_the_best_tokens_are_proved(problem):
    run = attsvm.train(problem, steps=1000, record=10)
    limit = run.limit()
    assert limit.status == "proved" and 100 < limit.step < 300 and limit.final.shape == (6,) and limit.final.all()
    assert limit.solution.status == "optimal" and (limit.solution.selected == problem.optimal).all()
    assert limit.message == f"the SVM of these tokens, proved from the record of step {limit.step} on"
    assert "limit " in str(run) and str(limit.step) in str(run)
    assert run.limit() is limit
    before = attsvm.train(problem, steps=limit.step - 10, record=10)
    assert before.limit().status == "conditional" and "longer than proofs allow" in before.limit().message
    early = attsvm.train(problem, steps=50).limit()
    assert early.status == "open" and early.step is None and early.solution is None and not early.final.any()
    assert "limit" not in str(attsvm.train(problem, steps=300))  # not asked for


def test_training_ends_where_it_is_proved(problem):
    run = attsvm.train(problem, until="limit", record=10)
    assert run.status == "limit proved" and "proved" in run.message
    whole = attsvm.train(problem, record=10)
    assert whole.limit().step == run.steps[-1] == run.limit().step
    np.testing.assert_array_equal(run.W, whole.weights[len(run.steps) - 1])
    assert attsvm.train(problem, until="limit", steps=50).status == "completed"
    last = int(run.steps[-1])
    assert attsvm.train(problem, until="limit", record=10, steps=last).status == "limit proved"  # at its last record
    seen = []
    run = attsvm.train(problem, until="limit", callback=lambda run: seen.append(int(run.steps[-1])))
    assert run.status == "limit proved" and seen == run.steps.tolist()
    assert attsvm.train(problem, until="limit", callback=lambda run: len(run.steps) > 1).status == "stopped"


def test_a_conditional_limit_ends_nothing(problem):
    run = attsvm.train(problem, rule="sign", until="limit")
    assert run.status == "completed" and run.limit().status == "conditional"
    assert run.limit().solution.norm == "max" and "no later step raises the loss" in run.limit().message


def test_several_runs(problem):
    starts = np.random.default_rng(0).standard_normal((3, 10, 10))
    run = attsvm.train(problem, starts, runs=3, steps=600)
    limit, single = run.limit(), [run[r].limit() for r in range(3)]
    for name in ("status", "step", "message"):
        assert getattr(limit, name) == [getattr(one, name) for one in single]
    assert limit.final.shape == (3, 6) and [s.margin for s in limit.solution] == [one.solution.margin for one in single]
    assert "3 proved" in str(run) and limit.step[0] is not None
    together = attsvm.train(problem, starts, runs=3, until="limit")
    assert together.status == "limit proved" and together.steps[-1] == max(limit.step)
    rates = attsvm.train(problem, starts, runs=3, steps=600, lr=np.array([[0.1], [0.1], [3.0]]))
    assert rates.limit().status[:2] == ["proved"] * 2 and rates.limit().status[2] != "proved"


def test_every_layout_in_its_shape(case):
    problem = problem_of(case)
    limit = attsvm.train(problem, steps=400).limit()
    assert limit.status in ("proved", "conditional", "open")
    final = np.array(case.data._layout.flatten_queries("final", limit.final))
    assert final.dtype == bool and final[case.data.lengths == 1].all()
    if limit.solution is not None:
        assert limit.solution.data is case.data
    several = attsvm.train(problem, np.zeros((2, case.data.dk, case.data.dz)), runs=2, steps=5).limit()
    assert len(several.status) == len(several.final) == len(several.solution) == 2


@pytest.mark.parametrize("loss", _core.LOSS)
def test_every_loss(loss):
    rng = np.random.default_rng(4)
    problem = by_scores(rng.standard_normal((4, 5, 9)), rng.random((4, 5)), loss, rng.standard_normal((4, 9)))
    limit = attsvm.train(problem, steps=3000).limit()
    assert limit.status == "proved"


def test_plain_descent_is_proved_where_its_step_is_short_enough(problem):
    start = attsvm.train(problem, steps=300).W
    assert attsvm.train(problem, start, rule="constant", steps=10).limit().status == "proved"
    judge = Judge(attsvm.train(problem, start, rule="constant", steps=10, lr=0.5))
    assert judge.never_raises
    judge = Judge(attsvm.train(problem, start, rule="constant", steps=0, lr=5.0))
    assert not judge.never_raises and judge.verdict()[0] == "proved"  # the gradient is short by now
    for lr, status in ((1e3, "proved"), (1e4, "conditional")):  # lr R e^(K V) (F - F*) is .1, and 1
        assert attsvm.train(problem, start, rule="constant", steps=0, lr=lr).limit().status == status
    far = attsvm.train(problem, attsvm.train(problem, steps=220).W, rule="constant", steps=0, lr=1e4)
    assert far.limit().status == "conditional"


@pytest.mark.parametrize(
    "rule", [word for word in _core.UPDATE_RULE if word not in ("normalized", "normalized jointly", "constant")]
)
def test_other_rules_are_at_most_conditional(problem, late, rule):
    limit = attsvm.train(problem, late, rule=rule, steps=20).limit()
    assert limit.status == "conditional" and limit.final.all() and limit.step == 0
    assert f"no proof covers rule={rule!r}" in limit.message


def test_what_else_is_conditional(problem, late):
    W = late
    heads = attsvm.Problem(problem.data, problem.y, problem.head, heads=2)
    for reason, of, asked in (
        ("for each step", problem, {"lr": 0.1 / np.arange(1, 21)}),  # later rates are not known
        ("an lr of 0", problem, {"lr": 0.0}),
        ("longer than proofs allow", problem, {"lr": 3.0}),  # longer than 8 rho / Delta^2
        ("K and Q", problem, {"W": None, "K": W, "Q": np.eye(10)}),
        ("a metric", problem, {"rule": attsvm.rules.normalized(metric=np.ones((10, 10)))}),
        ("a loss of your own", attsvm.Problem(problem.data, problem.y, problem.head, OWN), {}),
        ("heads=2", heads, {"W": np.stack([W, 2 * W])}),
    ):
        limit = attsvm.train(of, steps=20, **{"W": W} | asked).limit()
        assert limit.status == "conditional" and reason in limit.message and limit.final.shape == (6,)
    half = attsvm.train(heads, np.stack([W, -W]), steps=0).limit()  # one head attends elsewhere
    assert half.status == "open" and not half.final.any()


def test_a_conditional_limit_begins_after_the_last_rise(problem, late):
    """Three records that all suggest the limit; the loss is lowest at the second."""
    run = attsvm.train(problem, late, rule="sign", steps=20, record=10)
    run.weights[1], run.weights[2] = 2 * run.weights[0], run.weights[0]
    assert run.limit().status == "conditional" and run.limit().step == 20
    run.weights[-1] = 0.0
    del run.limit_found
    assert run.limit().status == "open" and run.limit().step is None


@pytest.mark.parametrize(
    "name, value", {"ridge": 0.1, "momentum": 0.5, "weight_decay": 0.1, "ball": 3.0, "train_head": True}.items()
)
def test_what_is_not_covered_is_named(problem, name, value):
    run = attsvm.train(problem, steps=5, **{name: value})
    with pytest.raises(ValueError, match=name):
        run.limit()
    with pytest.raises(ValueError, match=name):
        attsvm.train(problem, steps=5, until="limit", **{name: value})


def test_other_heads_and_words_are_refused(problem):
    other = attsvm.Problem(problem.data, problem.y, attsvm.QuadraticHead(problem.head.v, 0.1))
    with pytest.raises(ValueError, match="LinearHead"):
        attsvm.train(other, steps=5).limit()
    with pytest.raises(ValueError, match="until"):
        attsvm.train(problem, until="proved")
    with pytest.raises(ValueError, match="reduce"):
        attsvm.train(problem, until="limit", reduce=lambda a: None)


def test_infeasible_best_tokens_are_open():
    """x_a between the others, scores 10, 0, 0: F - F* < B at W = 0 by every query, and there is no SVM."""
    problem = by_scores([[[0.0, 0.0], [1.0, 1.0], [-1.0, -1.0]]], [[10.0, 0.0, 0.0]])
    run = attsvm.train(problem, steps=500)
    assert Judge(run).best.at(run.W).in_cone
    limit = run.limit()
    assert limit.status == "open" and "infeasible" in limit.message and not limit.final.any()
    against = by_scores([[[1.0], [0.0]]] * 2, [[1.0, 0.0], [-1.0, 0.0]])  # queries that prefer different tokens
    assert "infeasible" in attsvm.train(against, steps=20).limit().message


def test_an_open_limit_tells_the_loss_that_is_left():
    """W = -5 to a rounding error of 30 in the logits, which multiplies the bound of the loss by a million."""
    far = by_scores([[[1e15], [0.0]]], [[1.0, 0.0]], "linear", [[1e-15]])
    run = attsvm.train(far, [[-5.0]], steps=1, lr=1e-9, rule="sign")
    left = run.loss[-1] - far.infimum()
    assert run.limit().message == (
        "open: query 0 attends to its best token, 0, by 0.0067 and to token 1 by 0.99; "
        f"the loss is {left:.3g} above that of the best tokens, and a conditional limit begins below 0.5"
    )


def test_one_query_is_in_the_cone_of_its_best_token_from_the_start():
    problem = by_scores([[[2.0, 0.0], [0.0, 1.0]]], [[1.0, 0.0]], "linear")
    start = {"W": np.array([[-1.0], [1.0]]), "rule": "constant"}
    limit = attsvm.train(problem, **start, steps=100, record=1).limit()
    assert limit.status == "proved" and limit.step == 0
    early = attsvm.train(problem, **start, steps=1).limit()
    assert early.status == "proved" and not early.final.any() and "not selected yet" in early.message
    assert early.solution.selected.tolist() == [0]


def test_ties_and_single_tokens():
    tied = by_scores([[[1.0], [0.0]], [[1.0], [0.0]]], [[1.0, 1.0], [1.0, 0.0]])
    assert "query 0 has several tokens" in attsvm.train(tied, steps=50).limit().message
    limit = attsvm.train(by_scores([[[1.0]]], [[1.0]]), steps=5).limit()
    assert limit.status == "open" and limit.final.all() and "one token" in limit.message


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_no_scale_matters(problem, scale):
    data = attsvm.cross_attention(problem.data.keys.reshape(6, 8, 10) * scale, problem.data.queries)
    scaled = attsvm.Problem(data, problem.y, attsvm.LinearHead(problem.head.v / scale))
    expected = attsvm.train(problem, steps=600, record=50).limit()
    limit = attsvm.train(scaled, steps=600, record=50).limit()
    assert limit.status == "proved" and abs(limit.step - expected.step) <= 100


def test_nothing_is_proved_where_squares_leave_the_range():
    """The squares of rows of 1e-170 are 0, and a step a hundred times too long would seem short."""
    for size, lr in ((1.0, 1e2), (1e-170, 1e172)):
        problem = by_scores([[[size], [0.0]]], [[1.0, 0.0]], "linear")
        limit = attsvm.train(problem, steps=0, lr=lr).limit()
        assert limit.status == "conditional" and ("squares leave the range" in limit.message) == (size < 1)


def test_they_print_and_a_run_from_a_file_has_its_limit(problem):
    run = attsvm.train(problem, np.zeros((2, 10, 10)), runs=2, steps=600)
    assert repr(run[0].limit()) == f"Limit: {run[0].limit().message}"
    assert repr(run.limit()).splitlines()[0] == "Limits of 2 runs: 2 proved" and isinstance(run.limit(), Limit)
    assert reloaded(run).limit().status == ["proved"] * 2


def test_diagnose_says_what_would_have_to_be_true(problem):
    text = " ".join(str(attsvm.diagnose(problem)).split())
    assert "theorem A needs a loss less than 0.00518 above" in text and "shorter than 0.368" in text
    for X, scores, *loss in (
        ([[1], [0]], [1, 1]),
        ([[0], [1], [-1]], [10, 0, 0]),
        ([[1], [0]], [1, 0], OWN),
        ([[1e-100], [0]], [1, 0]),
    ):
        found = attsvm.diagnose(by_scores([X], [scores], *loss))
        assert found.barrier is None and "not to be proved" in str(found)


@pytest.mark.parametrize("seeds", [range(40), *(slow(range(k, k + 200)) for k in range(40, 2040, 200))])
def test_claims_survive_training_that_goes_on(seeds):
    count = 0
    for seed in seeds:
        try:
            limit, wrong = judged(draw(seed))
        except FloatingPointError:  # the exponential loss of scores of 1e8
            continue
        assert not wrong, (seed, wrong)
        count += limit.status == "proved"
    assert count > len(seeds) / 4
