"""Sign, spectral and Adam steps, momentum and weight decay, each against a NumPy twin on the true gradients."""

import attsvm
import numpy as np
import pytest
import reference_rules as twin
from builders import build_case, problem_of, starts


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


@pytest.mark.parametrize(
    ("rule", "theirs", "options"),
    [
        ("adam", "AdamW", dict(lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)),
        ("adagrad", "Adagrad", dict(lr=0.3, eps=1e-4)),
    ],
)
def test_steps_agree_with_torch(rule, theirs, options):
    """Gradients of ordinary size, PyTorch's own defaults."""
    torch = pytest.importorskip("torch")
    case = build_case("cross")
    problem, start = problem_of(case), starts(case, "W")["W"]
    W = torch.tensor(start, requires_grad=True)
    optimiser = getattr(torch.optim, theirs)([W], **options)
    for _ in range(50):
        W.grad = torch.from_numpy(problem.loss_and_grad(W.detach().numpy())[1])
        optimiser.step()
    run = attsvm.train(problem, start, rule=rule, steps=50, **options)
    np.testing.assert_allclose(run.W, W.detach().numpy(), rtol=0, atol=1e-9)


METRICS = {"adam": dict(betas=(0.9, 0.999)), "adagrad": {}, "shampoo": {}}


@pytest.mark.parametrize("rule", METRICS)
def test_a_metric_is_what_turns_the_gradient_into_the_step(rule, sphere):
    """The next step is -D / metric, or -P^-1 D R^-1; frozen, it goes to the SVM of that metric."""
    problem = sphere().problem
    run = attsvm.train(problem, rule=rule, **METRICS[rule], steps=400, record=0)
    D = problem.loss_and_grad(run.W)[1] if run.mean is None else run.mean
    P = run.metric
    step = -np.linalg.solve(P[0], D) @ np.linalg.inv(P[1]) if isinstance(P, tuple) else -D / P
    further = attsvm.train(problem, rule=rule, **METRICS[rule], steps=401, record=0)
    assert attsvm.correlation(further.W - run.W, step) > 0.999
    assert attsvm.correlation(run.direction, step) > 1 - 1e-9
    frozen = attsvm.train(problem, run.W, metric=P, steps=3000, lr=0.3, record=0)
    answer = attsvm.solve_svm(problem.data, frozen, metric=P, warm_start=frozen)
    assert attsvm.correlation(frozen.W, answer.W) > 0.995
    low, high = frozen.margins()
    assert 0.95 * answer.margin < low[-1] <= answer.margin_bound and answer.margin <= high[-1] < 1.05 * answer.margin


@pytest.mark.parametrize("metric", ["D", "PR"])
@pytest.mark.parametrize("options", [{}, dict(rule="constant"), dict(momentum=0.5)])
@pytest.mark.parametrize("kind", ["cross", "causal_ragged", "cross_float32"])
def test_steps_in_a_metric_are_the_twins(kind, options, metric):
    case = build_case(kind)
    dk, dz = case.data.dk, case.data.dz
    A, B = (np.diag(case.rng.uniform(0.5, 2, d)) + 0.1 for d in (dk, dz))
    chosen = case.rng.uniform(0.5, 2, (dk, dz)) if metric == "D" else (A, B)
    start = starts(case, "W")
    run = attsvm.train(problem_of(case), **start, **options, metric=chosen, lr=0.1, steps=6, record=1)
    found = np.array([w for (w,) in twin.train(case, tuple(start.values()), 6, **options, metric=chosen)])
    np.testing.assert_allclose(run.weights, found, rtol=0, atol=1e-10)


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
        (dict(rule="shampoo", train_head=True), "train_head does not go with rule='shampoo'"),
        (dict(rule="sign", metric=np.ones((10, 10))), "metric belongs to rule='normalized' or 'constant', got"),
        (dict(metric=np.ones((9, 10))), "metric must have shape"),
        (dict(metric=np.ones((10, 10)), radius=1.0), "radius does not go with metric"),
        (dict(metric=np.ones((10, 10)), K=np.ones((10, 2)), Q=np.ones((10, 2))), "metric must be None for K and Q"),
    ],
)
def test_options_that_do_not_fit_are_named(options, match, sphere):
    with pytest.raises(ValueError, match=match):
        attsvm.train(sphere().problem, steps=1, **options)
