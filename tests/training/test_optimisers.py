"""Sign, spectral and Adam steps, momentum and weight decay, each against a NumPy twin on the true gradients."""

import attsvm
import numpy as np
import pytest
from builders import build_case


def problem_of(case, loss="logistic"):
    return attsvm.Problem(case.data, case.y, attsvm.LinearHead(case.v), loss)


def starts(case, trained, m=3, size=0.5):
    dk, dz = case.data.dk, case.data.dz
    if trained == "W":
        return dict(W=size * case.rng.standard_normal((dk, dz)))
    return {name: size * case.rng.standard_normal((d, m)) for name, d in (("K", dk), ("Q", dz))}


def test_a_sign_step_leaves_entries_without_gradient():
    """Zeros in the query: a column of the gradient is exactly zero."""
    data = attsvm.cross_attention(np.random.default_rng(0).standard_normal((3, 4, 5)), [[1.0, 0.0, -2.0]] * 3)
    problem = attsvm.Problem(data, None, attsvm.LinearHead(np.ones(5)))
    W = np.random.default_rng(1).standard_normal((5, 3))
    run = attsvm.train(problem, W, rule="sign", steps=7, lr=0.25)
    np.testing.assert_array_equal(run.W[:, 1], W[:, 1])
    assert (np.abs(run.W - W)[:, [0, 2]] > 0.2).all()
    for betas in ((0.9, 0.999), (0.0, 0.0)):
        run = attsvm.train(problem, W, rule="adam", betas=betas, steps=7, lr=0.25)
        np.testing.assert_array_equal(run.W[:, 1], W[:, 1])


def test_a_spectral_step_has_the_rank_of_the_gradient():
    """One query: the gradient has rank one, and so has the step, whatever rounding leaves of the other directions."""
    rng = np.random.default_rng(2)
    data = attsvm.cross_attention(rng.standard_normal((1, 6, 7)), rng.standard_normal((1, 5)))
    run = attsvm.train(attsvm.Problem(data, None, attsvm.LinearHead(np.ones(7))), rule="spectral", steps=1, lr=1.0)
    np.testing.assert_allclose(np.linalg.svd(run.W, compute_uv=False), [1, 0, 0, 0, 0], atol=1e-15)


def test_adam_agrees_with_torch():
    """Gradients of ordinary size, PyTorch's own defaults."""
    torch = pytest.importorskip("torch")
    case = build_case("cross")
    W = torch.tensor(starts(case, "W")["W"], requires_grad=True)
    optimiser = torch.optim.AdamW([W], lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
    problem = problem_of(case)
    start = W.detach().numpy().copy()
    for _ in range(50):
        W.grad = torch.from_numpy(problem.loss_and_grad(W.detach().numpy())[1])
        optimiser.step()
    run = attsvm.train(problem, start, rule="adam", lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1, steps=50)
    np.testing.assert_allclose(run.W, W.detach().numpy(), rtol=0, atol=1e-9)


def test_adam_without_memory_is_sign_descent():
    case = build_case("cross")
    start = starts(case, "W")
    sign = attsvm.train(problem_of(case), **start, rule="sign", steps=30)
    adam = attsvm.train(problem_of(case), **start, rule="adam", betas=(0.0, 0.0), steps=30)
    np.testing.assert_allclose(adam.W, sign.W, rtol=0, atol=1e-12)


def test_momentum_holds_in_the_limit_of_nothing():
    """Gradients far below what a double holds still have a direction, and so has their mean."""
    case = build_case("cross")
    start = starts(case, "W", size=3000.0)
    run = attsvm.train(problem_of(case), **start, rule="normalized", lr=0.1, momentum=0.9, steps=20)
    assert run.log_grad_norm[-1] < -1000
    assert np.isfinite(run.W).all() and np.linalg.norm(run.W - start["W"]) > 0.5


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (dict(rule="polyak", momentum=0.5), "momentum does not go with rule='polyak'"),
        (dict(rule="mirror", p=3.0, weight_decay=0.5), "weight_decay does not go with rule='mirror'"),
        (dict(rule="sign", betas=(0.9, 0.9)), "betas belongs to rule='adam', got rule='sign'"),
        (dict(rule="sign", eps=0.0), "eps belongs to rule='adam'"),
        (dict(rule="adam", momentum=0.5), "momentum of rule='adam' is the first of betas"),
        (dict(rule="adam", betas=0.9), "betas must be a pair"),
        (dict(rule="adam", betas=(0.9, 1.0)), r"betas\[1\] must be below 1, got 1"),
        (dict(momentum=1.0), "momentum must be below 1"),
        (dict(momentum=-0.1), "momentum must be"),
        (dict(weight_decay=-1.0), "weight_decay must be"),
        (dict(rule="muon"), "rule must be one of"),
    ],
)
def test_options_that_do_not_fit_are_named(options, match, sphere):
    with pytest.raises(ValueError, match=match):
        attsvm.train(sphere().problem, steps=1, **options)
