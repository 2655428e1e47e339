"""Gradients at the end of double precision: a run says so, and keeps weights that are numbers."""

import itertools
import math

import attsvm
import numpy as np
import pytest


@pytest.mark.filterwarnings("error")  # K Q^T of a run so far may overflow, which its status says
@pytest.mark.parametrize("trained", ["W", "KQ", "heads"])
@pytest.mark.parametrize("steps", [1, 30])
@pytest.mark.parametrize(
    "options",
    [{"rule": rule} for rule in ("constant", "normalized", "normalized jointly", "sign", "spectral", "adam")]
    + [{"rule": attsvm.rules.mirror(p=3.0)}, {"rule": "constant", "momentum": 0.9}, {"rule": "constant", "ridge": 0.1}],
    ids=str,
)
def test_a_huge_gradient_never_completes_with_weights_out_of_range(options, steps, trained, sphere):
    """The loss says nothing: it is the same number whatever the logits."""
    s, told = sphere(), 0
    K, Q = np.random.default_rng(0).standard_normal((2, 10, 2))
    start = {"W": {}, "KQ": {"K": K, "Q": Q}, "heads": {"W": np.ones((1, 10, 10))}}[trained]
    for size, lr in itertools.product((1.0, 1e200, 1e300, 1e308, 1.7e308), (0.1, 1e9)):
        head = attsvm.CallableHead(lambda o, size=size: (np.ones(len(o)), np.where(o > 0, size, -size)))
        problem = attsvm.Problem(s.data, s.y, head, heads=1 if trained == "heads" else None)
        try:
            run = attsvm.train(problem, **start, lr=lr, steps=steps, **options)
            assert run.status == "completed"
        except FloatingPointError as error:
            run = error.partial
            told += 1
            assert run.status in ("overflow", "gradient not finite")
        last = (run.K, run.Q) if trained == "KQ" else (run.W,)
        if trained != "KQ" and "ridge" in options and run.status == "overflow":
            last = ()  # the ridge multiplies the weights themselves
        assert all(np.isfinite(array).all() for array in (run.weights, run.norm, *last))
    assert told > 0 or options["rule"] != "constant"
    with pytest.raises(FloatingPointError):  # scores that are sums of ten such numbers
        problem.multipliers(np.ones((1, 10, 10)) if trained == "heads" else np.ones((10, 10)))


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_gradient_that_is_no_number_is_refused_with_the_run_so_far(bad, sphere):
    s, calls = sphere(), []

    def value_and_grad(o):
        calls.append(None)
        return np.ones(len(o)), np.full(o.shape, bad if len(calls) > 3 else 1.0)

    problem = attsvm.Problem(s.data, s.y, attsvm.CallableHead(value_and_grad))
    with pytest.raises(ValueError, match="the gradient that value_and_grad returns must be finite") as caught:
        attsvm.train(problem, steps=50)
    assert caught.value.partial.status == "interrupted" and np.isfinite(caught.value.partial.W).all()
