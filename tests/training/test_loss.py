"""A loss of one's own: the same numbers as the built-in one, checked at every call, alive where it underflows."""

import io
import math

import attsvm
import numpy as np
import pytest
from builders import paper
from numpy.testing import assert_allclose, assert_array_equal


def soft(u):
    return np.logaddexp(0.0, -u)


LOGISTIC = (soft, lambda u: -np.exp(-np.logaddexp(0.0, u)), lambda u: -np.logaddexp(0.0, u))
# The square root of the logistic loss.
ROOTED = (
    lambda u: np.sqrt(soft(u)),
    lambda u: -np.exp(-u - soft(u)) / (2 * np.sqrt(soft(u))),
    lambda u: -u - soft(u) - np.log(2 * np.sqrt(soft(u))),
)


S = paper()


def problem(loss, head=None, **kwargs):
    y = None if isinstance(head, attsvm.CallableHead) else S.y
    return attsvm.Problem(S.data, y, head or S.problem.head, loss, **kwargs)


@pytest.mark.parametrize("loss", [LOGISTIC, LOGISTIC[:2]])
@pytest.mark.parametrize("kwargs", [{}, {"head": attsvm.MLPHead(np.eye(10))}, {"heads": 2}])
def test_the_logistic_loss_by_hand_is_the_logistic_loss(loss, kwargs):
    own, plain = problem(loss, **kwargs), problem("logistic", **kwargs)
    W = np.random.default_rng(0).standard_normal((10, 10) if own.heads is None else (2, 10, 10))
    assert own.loss(W) == pytest.approx(plain.loss(W), rel=1e-13)
    assert_allclose(own.loss_and_grad(W)[1], plain.loss_and_grad(W)[1], atol=1e-14)
    assert_allclose(own.multipliers(W)[0], plain.multipliers(W)[0], atol=1e-12)
    for options in (dict(steps=200), dict(steps=30, train_head=True))[: 1 + (own.heads is None)]:
        one, other = (attsvm.train(p, W, **options) for p in (own, plain))
        assert_allclose(one.W, other.W, atol=1e-9)
        assert_allclose(*(run.trained.head.row() for run in (one, other)), atol=1e-9)
    if own.heads is None:
        assert_array_equal(own.optimal, plain.optimal)


def test_the_infimum_and_paths_of_an_own_loss():
    own, plain = problem(LOGISTIC), problem("logistic")
    losses = [attsvm.train(p, rule="polyak", steps=50).loss[-1] for p in (own, plain)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert "optimal" in repr(attsvm.diagnose(own))
    W, expected = (attsvm.regularization_path(p, [3.0]).weights[0] for p in (own, plain))
    assert attsvm.correlation(W, expected) > 0.999


def test_a_gradient_outlives_its_derivative():
    """Of scores of many hundreds, whose derivative is zero in double precision at every token."""
    head = attsvm.CallableHead(lambda o: (o.sum(axis=1) + 900.0, np.ones_like(o)))
    run, stopped = (attsvm.train(problem(loss, head), steps=100) for loss in (LOGISTIC, LOGISTIC[:2]))
    assert run.status == "completed" and run.log_grad_norm[-1] < -800
    assert stopped.status == "stationary" and "give the log of its size as loss[2]" in stopped.message
    assert "loss[2]" not in run.message


@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        ((soft,), TypeError, "tuple of functions"),
        ((soft, 3), TypeError, "tuple of functions"),
        (
            (soft, lambda u: np.ones_like(u)),
            ValueError,
            r"loss\[1\], the derivative, must be negative and finite, got 1",
        ),
        ((math.exp, LOGISTIC[1]), TypeError, r"loss\[0\] must take an array u, as np.exp does and math.exp does not"),
        ((soft, lambda u: 0 * u), ValueError, "must be negative, got 0"),
        ((soft, lambda u: u[:1]), ValueError, r"loss\[1\] must return an array of shape"),
        ((*LOGISTIC[:2], lambda u: -u), ValueError, r"loss\[2\] must be the logarithm"),
        ((soft, lambda u: 0.98 * LOGISTIC[1](u)), ValueError, r"it is -0\.\d+, differences of loss\[0\] give -0\.\d+"),
        ((lambda u: -soft(u), LOGISTIC[1]), ValueError, r"loss\[1\] must be the derivative of loss\[0\]: at u = "),
        ((lambda u: soft(2 * u), LOGISTIC[1]), ValueError, "must be the derivative"),
    ],
)
def test_a_loss_that_is_none_is_refused(loss, error, message):
    with pytest.raises(error, match=message):
        problem(loss)


RIGHT = [
    LOGISTIC,
    ROOTED,
    (lambda u: soft(u).astype(np.float32), LOGISTIC[1]),
    (lambda u: np.where(u < 0.01, 0.02 - 2 * u, 0.01 - u), lambda u: np.where(u < 0.01, -2.0, -1.0)),  # a kink
    (lambda u: -u - u**3, lambda u: -1 - 3 * u**2),  # an inflection
    (lambda u: 1e4 - np.arctan(50 * u), lambda u: -50 / (1 + 2500 * u**2)),  # a step, and values far from zero
    (lambda u: -np.log1p(u + 1e3), lambda u: -1 / (1 + u + 1e3)),
]


@pytest.mark.parametrize("loss", RIGHT)
def test_a_right_derivative_passes(loss):
    for head in (attsvm.MLPHead(np.eye(10)), *(attsvm.LinearHead(s * S.v) for s in (1e-12, 1e-6, 1e-3, 1.0, 30.0))):
        assert problem(loss, head)._own_loss.functions == loss


def test_a_loss_is_checked_at_every_call():
    calls = []

    def derivative(u):
        calls.append(u)
        return np.where(len(calls) > 5, 1.0, -1.0) * np.ones_like(u)

    made = problem((lambda u: -u, derivative))
    before = len(calls)
    assert before > 0 and made[[0, 1]]._own_loss is made._own_loss and len(calls) == before  # a part is not checked
    with pytest.raises(ValueError, match=r"loss\[1\], the derivative, must be negative and finite, got 1 at u"):
        attsvm.train(made, steps=20)


def test_a_loss_named_log_trains_the_head():
    def log(u):
        return soft(u)

    losses = ((value, *LOGISTIC[1:]) for value in (log, soft))
    own, plain = (attsvm.train(problem(loss), steps=5, train_head=True) for loss in losses)
    assert_array_equal(own.W, plain.W)


def test_functions_are_not_saved():
    head = attsvm.CallableHead(lambda o: (o.sum(axis=1), np.ones_like(o)))
    for made, name in ((problem(LOGISTIC), "function"), (problem("logistic", head), "CallableHead")):
        with pytest.raises(TypeError, match=f"{name} cannot be saved: a file holds numbers, no functions"):
            attsvm.train(made, steps=1).save(io.BytesIO())
