"""Training runs: records, stops, interruptions, and the theory of the rules."""

import math
import re
import signal

import attsvm
import numpy as np
import pytest
import reference
import reference_rules
from attsvm.common.storage import same
from builders import problem_of
from interrupt import interrupt_after
from numpy.testing import assert_allclose, assert_array_equal

RULES = ["normalized", "normalized jointly", "constant"]


def told(problem, *args, **options):
    """What a run that leaves the range of double precision says, and the run so far."""
    with pytest.raises(FloatingPointError) as caught:
        attsvm.train(problem, *args, **options)
    return str(caught.value), caught.value.partial


def test_records_hold_loss_norm_and_gradient_norm_of_their_weights(case):
    problem = problem_of(case)
    run = attsvm.train(problem, steps=40, record=10, ridge=0.01)
    for W, loss, norm, log_grad_norm in zip(run.weights, run.loss, run.norm, run.log_grad_norm, strict=True):
        value, G, scale = reference.loss_and_grad(case.data, case.y, case.v, "logistic", W)
        assert loss == pytest.approx(value, rel=1e-12) and loss == problem.loss(W)
        assert norm == pytest.approx(np.linalg.norm(W), rel=1e-14)
        G, scale = reference.ridged(G, scale, W, 0.01)
        assert log_grad_norm == pytest.approx(math.log(np.linalg.norm(G)) + scale, abs=1e-11)
    assert same(run.W, run.weights[-1]) and same(run.selected, case.data.select(run.W))
    assert same(run.probabilities, case.data.probabilities(run.W))


# ------------------------------------------------------------------------------------ records


@pytest.mark.parametrize(
    "steps, record, expected",
    [
        (10, 3, [0, 3, 6, 9, 10]),
        (10, 0, [0, 10]),
        (10, 10**18, [0, 10]),
        (10, [7, 2, 2], [0, 2, 7, 10]),
        (10, (), [0, 10]),
        (10, np.array([10, 0], dtype=np.uint8), [0, 10]),
        (10, np.int32(4), [0, 4, 8, 10]),
        (0, 100, [0]),
        (0, 0, [0]),
    ],
)
def test_record(sphere, steps, record, expected):
    problem = sphere().problem
    run, every = (attsvm.train(problem, steps=steps, record=each) for each in (record, 1))
    assert_array_equal(run.steps, expected)
    for name in ("weights", "loss", "norm", "log_grad_norm"):
        assert_array_equal(getattr(run, name), getattr(every, name)[expected])
    assert f"Run of {steps} steps on W: completed" in repr(run)


# ------------------------------------------------------------------------------------ stops


@pytest.mark.parametrize("rule", RULES)
def test_a_factor_without_gradient_stays_while_the_other_moves(rule, sphere, rng):
    """Q = 0: dK = dW Q is exactly zero, dQ = dW^T K is not."""
    s, K, Q = sphere(), rng.standard_normal((10, 4)), np.zeros((10, 4))
    run = attsvm.train(s.problem, K=K, Q=Q, rule=rule, steps=1)
    assert_array_equal(run.K, K)
    assert_allclose(run.Q, reference_rules.Rule(rule).step(s, (K, Q))[1], rtol=0, atol=1e-13)
    assert run.Q.any()


NOTHING = {  # tokens, values, and the start
    "equal scores": (np.eye(4)[None, :, :2], np.ones((1, 4, 1)), dict(W=np.ones((2, 2)))),
    "copies of one token": (np.ones((1, 3, 2)), np.arange(3.0).reshape(1, 3, 1), {}),
    "one token": ([[[1.0, 2.0]]], [[[1.0]]], dict(W=np.ones((2, 2)), weight_decay=0.1)),  # which would still shrink W
    "factors of zero": (
        np.eye(4)[None, :, :2],
        np.arange(4.0).reshape(1, 4, 1),
        dict(K=np.zeros((2, 2)), Q=np.zeros((2, 2))),
    ),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", NOTHING)
def test_where_nothing_moves_a_run_is_stationary_at_once(kind, rule):
    X, values, start = NOTHING[kind]
    data = attsvm.cross_attention(X, [[1.0, 0.5]], values)
    run = attsvm.train(attsvm.Problem(data, head=attsvm.LinearHead([1.0])), **start, rule=rule)
    assert run.status == "stationary" and "stationary" in repr(run) and list(run.steps) == [0]
    assert run.log_grad_norm[0] == -math.inf
    assert_array_equal(run.W, start.get("W", np.zeros((2, 2))))


@pytest.mark.parametrize("progress", [False, True])
def test_a_stop_on_the_way_is_recorded(progress, capsys):
    """Equal scores leave the ridge alone: W <- W - lr 2 ridge W, exactly zero when lr 2 ridge is one."""
    data, lr = attsvm.cross_attention(np.eye(2)[None], [[1.0]], [[[1.0], [1.0]]]), 2.0 * (np.arange(1000) == 7)
    problem, options = attsvm.Problem(data, head=attsvm.LinearHead([1.0])), dict(rule="constant", lr=lr, ridge=0.25)
    run = attsvm.train(problem, [[3.0], [-1.0]], steps=1000, record=5, progress=progress, **options)
    assert run.status == "stationary" and run.message == "ended at step 8: the computed gradient is zero"
    assert_array_equal(run.steps, [0, 5, 8])
    assert not run.weights[-1].any() and not run.W.any() and run.weights[1].any()


def test_overflow_raises_with_the_run_so_far(sphere):
    """With this ridge each step multiplies W by 1 - 2e10."""
    problem, start = sphere().problem, np.ones((10, 10))
    options = dict(rule="constant", lr=1e10, ridge=1.0, record=10)
    message, partial = told(problem, start, steps=1000, **options)
    assert "range of double precision at step" in message and partial.status == "overflow"
    assert_array_equal(partial.steps, [0, 10, 20, 29])  # the step after it would leave the range
    assert np.isfinite(partial.weights).all() and np.isfinite(partial.loss).all()
    assert_array_equal(partial.weights[2], attsvm.train(problem, start, steps=20, **options).W)


def test_overflow_at_the_start_raises_with_nothing_done(sphere):
    s = sphere()
    problem = attsvm.Problem(attsvm.cross_attention(s.X * 1e10, s.Z), s.y, attsvm.LinearHead(s.v))
    message, partial = told(problem, np.full((10, 10), 1e308), steps=10)
    assert "step 0" in message and len(partial.steps) == 0 and "overflow" in repr(partial)


@pytest.mark.parametrize("rule", [*RULES, "polyak", "mirror"])
@pytest.mark.parametrize("start", [{}, dict(K=np.full((10, 2), 1e-200), Q=np.full((10, 2), 1e-200))], ids=["W", "KQ"])
def test_a_gradient_that_is_not_a_number_is_told(rule, start, sphere):
    """Sums of these tokens with large scores overflow, while the loss at small weights is a number."""
    s = sphere()
    X = s.X.copy()
    X[:, :, 0] = np.where(np.arange(8) % 2, 8e307, -8e307)
    problem = attsvm.Problem(attsvm.cross_attention(X, s.Z, s.X), s.y, attsvm.LinearHead(100 * s.v))
    message, partial = told(problem, **start, rule=rule, steps=50)
    assert re.search("left the range .* at step 0: .* smaller tokens", message)
    assert partial.status == "gradient not finite" and np.abs(partial.W).max() < 1e-300
    assert partial.message == "ended after step 0: the gradient left the range of double precision"


# ------------------------------------------------------------------------------------ repeatability


def test_a_progress_bar_is_shown(sphere, capsys):
    pytest.importorskip("tqdm")
    attsvm.train(sphere().problem, steps=10, progress=True)
    assert "10/10" in capsys.readouterr().err


# ------------------------------------------------------------------------------------ interruption


class Alarm(Exception):
    pass


def interrupted(problem, exception, **options):
    """The exception of a run of many seconds that a signal stopped after a little CPU time."""
    with interrupt_after(0.04, exception), pytest.raises(type(exception)) as caught:
        attsvm.train(problem, steps=20_000_000, **options)
    return caught.value


@pytest.mark.parametrize("trained", ["W", "KQ"])
@pytest.mark.parametrize("progress", [False, True], ids=["one call", "chunks"])
def test_ctrl_c_keeps_the_run_so_far(sphere, rng, trained, progress, capsys):
    problem, record = sphere().problem, [1, 10, 100, 15_000_000]
    weights = dict(zip("KQ", rng.standard_normal((2, 10, 4)), strict=True)) if trained == "KQ" else {}
    partial = interrupted(problem, KeyboardInterrupt(), record=record, progress=progress, **weights).partial
    assert list(partial.steps[:-1]) == [0, 1, 10, 100] and partial.steps[-1] > 100
    again = attsvm.train(problem, steps=partial.steps[-1], record=record[:3], **weights)
    again.status = "interrupted"
    assert partial == again


def test_a_signal_handlers_own_exception_comes_through(sphere, capsys):
    exception = interrupted(sphere().problem, Alarm("mine"), record=0)
    assert exception.args == ("mine",) and exception.partial.status == "interrupted"


def test_a_signal_that_raises_nothing_does_not_stop_the_run(sphere):
    seen = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: seen.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.005, 0.01)
        run = attsvm.train(sphere().problem, steps=200_000, record=0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen and run == attsvm.train(sphere().problem, steps=200_000, record=0)
