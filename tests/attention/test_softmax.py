"""The softmax kernel and its backward pass, seen through one-hot keys: W is the logits, dW is -c."""

import functools
import math
from decimal import Decimal

import attsvm
import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose

LOGITS = {
    "ordinary": [0.3, -1.2, 2.5, 0.0, 1.1],
    "one_token": [7.0],
    "one_huge": [1e5, 0.0, -1e5, 3.0],
    "all_huge": [1e5, 1e5 - 1, 1e5 - 2.5],
    "all_hugely_negative": [-1e5, -1e5 + 0.5, -1e5 - 40],  # a maximum that starts at 0 or -1e4 underflows here
    "tie": [1.5, 4.0, 4.0, -2.0],
    "all_tie": [2.0] * 9,
    "saturated": [0.0, -40.0, -38.0, -745.0],
    "switch_of_scales": [0.0, -299.0, -301.0, -300.0],
    "past_underflow": [0.0, -900.0, -901.0, -2000.0],
    "top_last": [-3.0, -2.0, -1.0, 0.0, 900.0],
    "seventeen": list(np.linspace(-5, 3, 17)),
}


def one_hot(logit, score=None):
    """One query that sees len(logit) one-hot tokens, with the scores as values; W = logit as a column."""
    T = len(logit)
    values = None if score is None else np.reshape(score, (1, T, 1))
    return attsvm.cross_attention(np.eye(T)[None], [[1.0]], values), np.reshape(logit, (T, 1))


def derivative(heads, logit, score, loss="linear"):
    """c and its log scale: the linear loss has the slope -1, so dW = -c."""
    data, W = one_hot(logit, score)
    problem = attsvm.Problem(data, head=attsvm.LinearHead([1.0]), loss=loss, heads=heads)
    value, gradient = problem.loss_and_grad(W if heads is None else W[None], scaled=True)
    return value, -gradient.W.reshape(W.shape)[:, 0], float(np.squeeze(gradient.log_scale))


@pytest.fixture(params=[None, 1], ids=["lanes", "alone"])
def backward(request):
    """A small problem has its queries side by side in lanes; one of attention heads has each by itself."""
    return functools.partial(derivative, request.param)


@pytest.mark.parametrize("logit", LOGITS.values(), ids=LOGITS)
def test_probabilities_are_the_twins_and_select_takes_the_first_of_a_tie(logit):
    data, W = one_hot(logit)
    prob = data.probabilities(W)[0]
    assert_allclose(prob, reference.probabilities(data, W)[0], rtol=1e-12, atol=1e-300)
    assert prob.sum() == pytest.approx(1.0, rel=1e-15 * len(logit))  # one rounding a term
    assert (prob >= 0).all()
    assert data.select(W)[0] == logit.index(max(logit))


def test_exponential_is_accurate_over_its_whole_range(rng):
    x = np.concatenate([-rng.uniform(0, 700, 2000), -(2.0 ** rng.uniform(-60, 9, 500)), [-0.0]])
    data, W = one_hot(np.concatenate([[0.0], x]))
    prob = data.probabilities(W)[0]
    # exp(x) is the ratio to the top token; 1.2 ulp of the kernel and three roundings of this test.
    exact = np.array([float(Decimal(t).exp()) for t in x.tolist()])
    assert_allclose(prob[1:] / prob[0], exact, rtol=6 * np.finfo(float).eps)
    data, W = one_hot([0.0, -707.9])
    assert data.probabilities(W)[0, 1] == pytest.approx(float(Decimal(-707.9).exp()), rel=6 * np.finfo(float).eps)


SCORES = {name: (logit, np.random.default_rng(1).standard_normal(len(logit))) for name, logit in LOGITS.items()}
SCORES |= {f"far by {u}": ([0.0, 0.0], [u, u + 1]) for u in (-5000.0, -600.0, -30.0, 0.0, 30.0, 600.0, 5000.0)}
# Two tokens of equal score before a third: it pushes against both, the more the more they are attended to.
SCORES |= {
    f"tied, {second} and {third}": ([0.0, second, third], [1.0, 1.0, -1.0])
    for second in (0.0, -1.0, -40.0, -2000.0)
    for third in (-1.0, -250.0, -1000.0, -1e6)
}
SCORES["equal"] = [0.0, 1.0, -5.0], [0.7, 0.7, 0.7]


@pytest.mark.parametrize("logit, score", SCORES.values(), ids=SCORES)
@pytest.mark.parametrize("loss", ["linear", "logistic", "exponential"])
def test_backward_is_the_decimal_gradient(backward, logit, score, loss):
    """Also where the slope of the loss underflows, whose logarithm must not."""
    data, W = one_hot(logit, score)
    if loss == "exponential" and min(score) < -700:  # a loss that is no number
        pytest.raises(FloatingPointError, backward, logit, score, loss)
        return
    exact_value, exact = reference.decimal_gradient(data, None, [1.0], loss, W, 400)
    value, c, log_scale = backward(logit, score, loss)
    assert value == pytest.approx(float(exact_value), rel=1e-13)
    if len(set(score)) == 1:
        assert not c.any() and log_scale == -math.inf
    else:
        # A log scale of size L is itself rounded to L * eps, which is a relative error of the gradient.
        assert reference.decimal_ratio(-c[:, None], log_scale, exact) < 1e-13 + 4e-16 * abs(log_scale)


@pytest.mark.parametrize("gap", [10.0, 500.0, 1e4, 1e6])
def test_log_loss_of_a_probability_that_underflows(gap):
    """The top token scores 0, so u is the other token's probability: -log u = gap + log(1 + e^-gap)."""
    value, c, log_scale = derivative(None, [0.0, -gap], [0.0, 1.0], "log")
    assert value == pytest.approx(gap + math.log1p(math.exp(-gap)), rel=1e-15)
    # d(-log u)/dlogit = prob - onehot: the gradient stays of order one however small u is.
    expected = np.array([-1.0, 1.0]) / (1 + math.exp(-gap))
    assert_allclose(c * math.exp(log_scale), expected, rtol=1e-13)


@pytest.mark.parametrize("T", range(1, 14))
def test_copies_of_a_token_have_equal_logits_bit_for_bit(T, rng):
    for d in (1, 3, 4, 7, 8, 10, 16, 33, 64):
        data = attsvm.cross_attention(np.tile(rng.standard_normal(d), (1, T, 1)), [[1.0]])
        assert len(set(data.logits(rng.standard_normal((d, 1))).ravel())) == 1
