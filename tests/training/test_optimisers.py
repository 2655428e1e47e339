"""Sign, spectral and Adam steps, momentum and weight decay, each against a NumPy twin on the true gradients."""

import attsvm
import numpy as np
import pytest
import reference
import reference_rules as twin
from builders import build_case

KINDS = ["cross", "causal_ragged", "self_all", "cross_float32", "cross_ragged_several"]


def problem_of(case, loss="logistic"):
    return attsvm.Problem(case.data, case.y, attsvm.LinearHead(case.v), loss)


def starts(case, trained, m=3, size=0.5):
    dk, dz = case.data.dk, case.data.dz
    if trained == "W":
        return dict(W=size * case.rng.standard_normal((dk, dz)))
    return {name: size * case.rng.standard_normal((d, m)) for name, d in (("K", dk), ("Q", dz))}


def reached(run, trained):
    return [run.W] if trained == "W" else [run.K, run.Q]


def scaled_gradients(case, weights):
    """G and scale of every matrix."""
    W = weights[0] if len(weights) == 1 else weights[0] @ weights[1].T
    _, G, scale = reference.loss_and_grad(case.data, case.y, case.v, "logistic", W)
    return [(G, scale)] if len(weights) == 1 else [(G @ weights[1], scale), (G.T @ weights[0], scale)]


def close(found, expected, rtol):
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=rtol * np.abs(theirs).max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trained", ["W", "KQ"])
def test_sign_and_spectral_steps_are_the_twins(kind, trained):
    case = build_case(kind)
    problem, weights = problem_of(case), starts(case, trained)
    for _ in range(4):
        found = [G for G, _ in scaled_gradients(case, tuple(weights.values()))]
        run = attsvm.train(problem, **weights, rule="sign", lr=0.1, steps=1)
        for mine, w, g in zip(reached(run, trained), weights.values(), found, strict=True):
            plain = np.abs(g) > 1e-12 * np.abs(g).max()  # the others have the sign of a rounding
            close([mine[plain]], [(w - 0.1 * np.sign(g))[plain]], 1e-15)
        run = attsvm.train(problem, **weights, rule="spectral", lr=0.1, steps=1)
        expected = [w - 0.1 * twin.spectral(g) for w, g in zip(weights.values(), found, strict=True)]
        # U V^T of nearly equal gradients differs by their difference over the least singular value.
        close(reached(run, trained), expected, 1e-6)
        for mine, w in zip(reached(run, trained), weights.values(), strict=True):
            sigma = np.linalg.svd((w - mine) / 0.1, compute_uv=False)
            np.testing.assert_allclose(sigma[sigma > 1e-6], 1, rtol=1e-12)
        weights = dict(zip(weights, reached(run, trained), strict=True))


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


RULES = ["constant", "normalized", "normalized jointly", "sign", "spectral"]


@pytest.mark.parametrize("trained", ["W", "KQ"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("size", [0.5, 60.0])  # of the start: at 60 gradients are as small as e^-1000
def test_momentum_and_weight_decay_are_the_twins(rule, trained, size):
    case = build_case("cross")
    start = starts(case, trained, size=size)
    lr, beta, decay, steps = 0.05, 0.8, 0.3, 12
    if rule == "constant" and size > 1:
        pytest.skip("a plain step does not move these")
    run = attsvm.train(
        problem_of(case), **start, rule=rule, lr=lr, momentum=beta, weight_decay=decay, steps=steps, record=1
    )
    weights = [np.array(w) for w in start.values()]
    means = [twin.Means(beta) for _ in weights]
    for _ in range(steps):
        found = [mean.add(*g) for mean, g in zip(means, scaled_gradients(case, tuple(weights)), strict=True)]
        top = max(scale for _, scale in found)
        joint = np.sqrt(sum((np.linalg.norm(m) * np.exp(scale - top)) ** 2 for m, scale in found))
        for i, (m, scale) in enumerate(found):
            step = {
                "constant": lambda m, size: m * size[0],
                "normalized": lambda m, size: m / np.linalg.norm(m),
                "normalized jointly": lambda m, size: m * size[1],
                "sign": lambda m, size: np.sign(m),
                "spectral": lambda m, size: twin.spectral(m),
            }[rule](m, (np.exp(scale), np.exp(scale - top) / joint))
            weights[i] = (1 - lr * decay) * weights[i] - lr * step
    close(reached(run, trained), weights, 1e-7)  # signs and U V^T pass on roundings of 12 steps


@pytest.mark.parametrize("trained", ["W", "KQ"])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.9), (0.9, 0.0), (0.5, 0.5)])
@pytest.mark.parametrize("eps", [0.0, 1e-3])
@pytest.mark.parametrize("size", [0.5, 60.0])
def test_adam_is_the_twin(trained, betas, eps, size):
    case = build_case("cross")
    start = starts(case, trained, size=size)
    lr, decay, steps = 0.05, 0.1, 10
    run = attsvm.train(
        problem_of(case), **start, rule="adam", lr=lr, betas=betas, eps=eps, weight_decay=decay, steps=steps
    )
    weights = [np.array(w) for w in start.values()]
    means = [twin.Means(betas[0], 1 - betas[0], betas[1]) for _ in weights]
    for _ in range(steps):
        for i, g in enumerate(scaled_gradients(case, tuple(weights))):
            means[i].add(*g)
        weights = [(1 - lr * decay) * w - lr * mean.adam(eps) for w, mean in zip(weights, means, strict=True)]
    close(reached(run, trained), weights, 1e-8)


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


NEW = [
    dict(rule="sign"),
    dict(rule="spectral"),
    dict(rule="adam"),
    dict(rule="sign", momentum=0.9),
    dict(rule="spectral", momentum=0.5, weight_decay=0.2),
    dict(rule="normalized", momentum=0.9),
    dict(rule="normalized jointly", momentum=0.9, weight_decay=0.1),
    dict(rule="adam", betas=(0.5, 0.5), weight_decay=0.1),
]


@pytest.mark.parametrize("options", NEW, ids=str)
@pytest.mark.parametrize("trained", ["W", "KQ"])
def test_runs_side_by_side_and_in_parts_are_the_runs_alone(options, trained):
    case = build_case("cross")
    problem, rng = problem_of(case), np.random.default_rng(0)
    dk, dz = case.data.dk, case.data.dz
    shapes = {"W": (3, dk, dz)} if trained == "W" else {"K": (3, dk, 2), "Q": (3, dz, 2)}
    start = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    lr = 0.3 / np.sqrt(np.arange(1, 26))
    together = attsvm.train(problem, **start, **options, lr=lr, runs=3, steps=25, record=5)
    for r in range(3):
        alone = attsvm.train(problem, **{k: w[r] for k, w in start.items()}, **options, lr=lr, steps=25, record=5)
        np.testing.assert_allclose(together[r].W, alone.W, rtol=0, atol=1e-10 * np.abs(alone.W).max())
    # A progress bar cuts the run into parts, which pass on what the rule keeps.
    parts = attsvm.train(problem, **start, **options, lr=lr, runs=3, steps=25, record=5, progress=True)
    np.testing.assert_array_equal(parts.weights, together.weights)


@pytest.mark.parametrize("options", NEW, ids=str)
@pytest.mark.parametrize("combine", ["sum", "concatenate"])
def test_each_attention_head_takes_its_own_step(options, combine):
    """One step of a problem with two heads is the step of each head's gradient."""
    rng = np.random.default_rng(3)
    X, Z, y, v = attsvm.sample.unit_sphere(4, 5, 6, 3)
    head = attsvm.LinearHead(v if combine == "sum" else np.concatenate([v, -v]))
    problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, head, heads=2, combine=combine)
    W = rng.standard_normal((2, 6, 6))
    run = attsvm.train(problem, W, **options, lr=0.1, steps=1)
    _, G = problem.loss_and_grad(W)
    for h in range(2):
        step = {
            "sign": np.sign,
            "adam": np.sign,
            "spectral": twin.spectral,
            "normalized": lambda g: g / np.linalg.norm(g),
            "normalized jointly": lambda g: g / np.linalg.norm(G),
        }[options["rule"]](G[h])
        kept = 1 - 0.1 * options.get("weight_decay", 0.0)
        np.testing.assert_allclose(run.W[h], kept * W[h] - 0.1 * step, rtol=0, atol=1e-9)


@pytest.mark.parametrize("options", NEW, ids=str)
def test_a_head_is_trained_by_the_same_rule(options):
    case = build_case("cross_values")
    start = starts(case, "W")
    run = attsvm.train(problem_of(case), **start, **options, train_head=True, lr=0.1, steps=1)
    _, found = twin.gradients(case.data, case.y, "logistic", tuple(start.values()), case.v, head=True)
    g = found[-1]
    step = np.sign(g) if options["rule"] in ("sign", "adam") else g / np.linalg.norm(g)
    np.testing.assert_allclose(run.v, case.v - 0.1 * step, rtol=0, atol=1e-9)  # no weight decay on the head


def test_momentum_holds_in_the_limit_of_nothing():
    """Gradients far below what a double holds still have a direction, and so has their mean."""
    case = build_case("cross")
    start = starts(case, "W", size=3000.0)
    run = attsvm.train(problem_of(case), **start, rule="normalized", momentum=0.9, steps=20)
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
