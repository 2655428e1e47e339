"""Training against stored PyTorch runs (tests/golden/README.md says how they were made)."""

from types import SimpleNamespace

import attsvm
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from places import GOLDEN

# The reference differentiates softmax naively: it loses a digit for every digit by which attention saturates, and
# stalls soon after these steps.  Relative to the Frobenius norm.
W_STEPS = {1: 1e-11, 10: 1e-11, 100: 1e-11, 500: 1e-7}
KQ_STEPS = {1: 1e-11, 10: 1e-11, 100: 1e-7}
RIDGE = np.finfo(float).eps  # the reference trained K and Q with it; too small to matter at these steps


@pytest.fixture(params=GOLDEN, ids=lambda path: path.stem)
def golden(request):
    stored = SimpleNamespace(**np.load(request.param))
    stored.data = attsvm.cross_attention(stored.X, stored.Z)
    stored.problem = attsvm.Problem(stored.data, stored.y, attsvm.LinearHead(stored.v))
    return stored


def relative(A, B):
    return np.linalg.norm(A - B) / np.linalg.norm(B)


def test_there_are_eight_cases():
    assert len(GOLDEN) == 8


def test_losses(golden):
    assert golden.problem.loss(golden.W0) == pytest.approx(float(golden.W_loss0), rel=1e-12)
    loss = golden.problem.loss(K=golden.K0, Q=golden.Q0)
    ridge = RIDGE * (np.sum(golden.K0**2) + np.sum(golden.Q0**2))
    assert loss + ridge == pytest.approx(float(golden.KQ_loss0), rel=1e-12)


def test_iterates_of_W(golden):
    run = attsvm.train(golden.problem, golden.W0, lr=0.1, steps=500, record=list(W_STEPS))
    for step, W in zip(run.steps, run.weights, strict=True):
        if step > 0:
            assert relative(W, getattr(golden, f"W_step{step}_W")) < W_STEPS[step], step


def test_iterates_of_K_and_Q(golden):
    run = attsvm.train(golden.problem, K=golden.K0, Q=golden.Q0, lr=0.1, steps=100, record=list(KQ_STEPS), ridge=RIDGE)
    for step, W in zip(run.steps, run.weights, strict=True):
        if step > 0:
            K, Q = getattr(golden, f"KQ_step{step}_K"), getattr(golden, f"KQ_step{step}_Q")
            assert relative(W, K @ Q.T) < KQ_STEPS[step], step


def test_selected_tokens(golden):
    """The reference stalls in norm, not in the tokens it has chosen by then."""
    run = attsvm.train(golden.problem, golden.W0, lr=0.1, steps=2000, record=0)
    assert_array_equal(run.selected, golden.W_chosen)
    run = attsvm.train(golden.problem, K=golden.K0, Q=golden.Q0, lr=0.1, steps=2000, record=0, ridge=RIDGE)
    assert_array_equal(run.selected, golden.KQ_chosen)
