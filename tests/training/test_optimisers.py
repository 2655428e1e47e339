"""Sign, spectral and Adam steps, momentum and weight decay, each against a NumPy twin on the true gradients."""

import pickle

import attsvm
import numpy as np
import pytest
import reference_rules as twin
from builders import build_case


def problem_of(case, loss="logistic"):
    return attsvm.Problem(case.data, case.y, attsvm.LinearHead(case.v), loss)


def starts(case, size=0.5):
    return dict(W=size * case.rng.standard_normal((case.data.dk, case.data.dz)))


def test_a_sign_step_leaves_entries_without_gradient():
    """Zeros in the query: a column of the gradient is exactly zero."""
    data = attsvm.cross_attention(np.random.default_rng(0).standard_normal((3, 4, 5)), [[1.0, 0.0, -2.0]] * 3)
    problem = attsvm.Problem(data, None, attsvm.LinearHead(np.ones(5)))
    W = np.random.default_rng(1).standard_normal((5, 3))
    run = attsvm.train(problem, W, rule="sign", steps=7, lr=0.25)
    np.testing.assert_array_equal(run.W[:, 1], W[:, 1])
    assert (np.abs(run.W - W)[:, [0, 2]] > 0.2).all()
    for betas in ((0.9, 0.999), (0.0, 0.0)):
        run = attsvm.train(problem, W, rule=attsvm.rules.adam(betas=betas), steps=7, lr=0.25)
        np.testing.assert_array_equal(run.W[:, 1], W[:, 1])


def test_a_spectral_step_has_the_rank_of_the_gradient():
    """One query: the gradient has rank one, and so has the step, whatever rounding leaves of the other directions."""
    rng = np.random.default_rng(2)
    data = attsvm.cross_attention(rng.standard_normal((1, 6, 7)), rng.standard_normal((1, 5)))
    run = attsvm.train(attsvm.Problem(data, None, attsvm.LinearHead(np.ones(7))), rule="spectral", steps=1, lr=1.0)
    np.testing.assert_allclose(np.linalg.svd(run.W, compute_uv=False), [1, 0, 0, 0, 0], atol=1e-15)


@pytest.mark.parametrize(
    ("rule", "theirs", "own", "options"),
    [
        ("adam", "AdamW", dict(betas=(0.9, 0.99), eps=1e-8), dict(lr=0.01, weight_decay=0.1)),
        ("adagrad", "Adagrad", dict(eps=1e-4), dict(lr=0.3)),
    ],
)
def test_steps_agree_with_torch(rule, theirs, own, options):
    """Gradients of ordinary size, PyTorch's own defaults."""
    torch = pytest.importorskip("torch")
    case = build_case("cross")
    problem, start = problem_of(case), starts(case)["W"]
    W = torch.tensor(start, requires_grad=True)
    optimiser = getattr(torch.optim, theirs)([W], **own, **options)
    for _ in range(50):
        W.grad = torch.from_numpy(problem.loss_and_grad(W.detach().numpy())[1])
        optimiser.step()
    run = attsvm.train(problem, start, rule=getattr(attsvm.rules, rule)(**own), steps=50, **options)
    np.testing.assert_allclose(run.W, W.detach().numpy(), rtol=0, atol=1e-9)


def test_the_first_step_of_shampoo_is_the_polar_factor():
    """(G G^T)^(-1/4) G (G^T G)^(-1/4) = U V^T, on the directions in which there is a gradient."""
    case = build_case("cross")
    shampoo, spectral = (
        attsvm.train(problem_of(case), rule=rule, lr=1.0, steps=1).W for rule in ("shampoo", "spectral")
    )
    np.testing.assert_allclose(shampoo, spectral, rtol=0, atol=1e-6)


@pytest.mark.parametrize("rule", ["adam", "adagrad", "shampoo"])
def test_a_metric_is_what_turns_the_gradient_into_the_step(rule, sphere):
    """The next step is -D / metric, or -P^-1 D R^-1; frozen, it goes to the SVM of that metric."""
    problem = sphere().problem
    run = attsvm.train(problem, rule=rule, steps=400, record=0)
    D = problem.loss_and_grad(run.W)[1] if run.mean is None else run.mean
    P = run.metric
    step = -np.linalg.solve(P[0], D) @ np.linalg.inv(P[1]) if isinstance(P, tuple) else -D / P
    further = attsvm.train(problem, rule=rule, steps=401, record=0)
    assert attsvm.correlation(further.W - run.W, step) > 0.999
    assert attsvm.correlation(run.direction, step) > 1 - 1e-9
    frozen = attsvm.train(problem, run.W, rule=attsvm.rules.normalized(metric=P), steps=3000, lr=0.3, record=0)
    answer = attsvm.solve_svm(problem.data, frozen, metric=P, warm_start=frozen)
    assert attsvm.correlation(frozen.W, answer.W) > 0.995
    low, high = frozen.margins()
    assert 0.95 * answer.margin < low[-1] <= answer.margin_bound and answer.margin <= high[-1] < 1.05 * answer.margin


@pytest.mark.parametrize("metric", ["D", "PR"])
@pytest.mark.parametrize("rule, momentum", [("normalized", 0.0), ("constant", 0.0), ("normalized", 0.5)])
@pytest.mark.parametrize("kind", ["cross", "causal_ragged", "cross_float32"])
def test_steps_in_a_metric_are_the_twins(kind, rule, momentum, metric):
    case = build_case(kind)
    dk, dz = case.data.dk, case.data.dz
    A, B = (np.diag(case.rng.uniform(0.5, 2, d)) + 0.1 for d in (dk, dz))
    chosen = case.rng.uniform(0.5, 2, (dk, dz)) if metric == "D" else (A, B)
    start = starts(case)
    options = dict(rule=getattr(attsvm.rules, rule)(metric=chosen), momentum=momentum)
    run = attsvm.train(problem_of(case), **start, **options, lr=0.1, steps=6, record=1)
    found = np.array([w for (w,) in twin.train(case, tuple(start.values()), 6, **options)])
    np.testing.assert_allclose(run.weights, found, rtol=0, atol=1e-10)


def test_adam_without_memory_is_sign_descent():
    case = build_case("cross")
    start = starts(case)
    sign = attsvm.train(problem_of(case), **start, rule="sign", steps=30)
    adam = attsvm.train(problem_of(case), **start, rule=attsvm.rules.adam(betas=(0.0, 0.0)), steps=30)
    np.testing.assert_allclose(adam.W, sign.W, rtol=0, atol=1e-12)


def test_momentum_holds_in_the_limit_of_nothing():
    """Gradients far below what a double holds still have a direction, and so has their mean."""
    case = build_case("cross")
    start = starts(case, 3000.0)
    run = attsvm.train(problem_of(case), **start, rule="normalized", lr=0.1, momentum=0.9, steps=20)
    assert run.log_grad_norm[-1] < -1000
    assert np.isfinite(run.W).all() and np.linalg.norm(run.W - start["W"]) > 0.5


ONES = np.ones((10, 10))
rules = attsvm.rules


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (dict(rule="polyak", momentum=0.5), "momentum does not go with rule='polyak'"),
        (dict(rule=rules.mirror(p=3.0), weight_decay=0.5), "weight_decay does not go with rule='mirror'"),
        (dict(rule="adam", momentum=0.5), "momentum of rule='adam' is the first of betas"),
        (dict(momentum=1.0), "momentum must be below 1"),
        (dict(momentum=-0.1), "momentum must be"),
        (dict(weight_decay=-1.0), "weight_decay must be"),
        (dict(rule="muon"), "rule must be one of"),
        (dict(rule=rules.adam), "rule must be one of"),
        (dict(rule="shampoo", train_head=True), "train_head does not go with rule='shampoo'"),
        (dict(rule=rules.normalized(np.ones((9, 10)))), "metric must have shape"),
        (dict(rule=rules.normalized(ONES), ball=1.0), "ball does not go with metric"),
        (dict(rule=rules.normalized(ONES), K=ONES, Q=ONES), "metric must be None for K and Q"),
    ],
)
def test_options_that_do_not_fit_are_named(options, match, sphere):
    with pytest.raises(ValueError, match=match):
        attsvm.train(sphere().problem, steps=1, **options)


@pytest.mark.parametrize(
    ("make", "named", "match"),
    [
        (rules.adam, dict(betas=0.9), "betas must be a pair"),
        (rules.adam, dict(betas=(0.9, 1.0)), r"betas\[1\] must be below 1, got 1"),
        (rules.adagrad, dict(eps=-1.0), "eps must be"),
        (rules.shampoo, dict(eps=-1.0), "eps must be"),
        (rules.mirror, dict(p=1.0), "p must be"),
    ],
)
def test_records_refuse_numbers_that_do_not_fit(make, named, match):
    with pytest.raises(ValueError, match=match):
        make(**named)


@pytest.mark.parametrize(
    ("old", "place"),
    [("p", "mirror"), ("target_loss", "polyak"), ("betas", "adam"), ("eps", "adam"), ("metric", "normalized")],
)
def test_an_argument_that_moved_says_where(old, place, sphere):
    with pytest.raises(TypeError, match=rf"no argument {old} any more: give rule=attsvm.rules.{place}\({old}="):
        attsvm.train(sphere().problem, **{old: 0.5})
    with pytest.raises(TypeError, match="no argument radius any more: give ball="):
        attsvm.train(sphere().problem, **{"radius": 0.5})


def test_a_record_is_its_word_and_frozen(sphere):
    problem = sphere().problem
    for word, record in rules.BY_WORD.items():
        one, other = (attsvm.train(problem, rule=rule, steps=3) for rule in (word, record))
        assert one == other and one.rule == word
        assert pickle.loads(pickle.dumps(record)) == record
    with pytest.raises(AttributeError):
        record.eps = 1.0
