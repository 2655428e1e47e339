"""Output heads, trained or not, and several attention heads, against twins, central differences, and each other."""

import attsvm
import numpy as np
import pytest
import reference
import reference_rules
from attsvm import _core
from builders import BUILDERS, SIGNED, build_case, starts
from compare import close
from numpy.testing import assert_allclose, assert_array_equal

# Sums of some dozens of products, in another order.
TWIN = 1e-12


TRAINED = ["linear", "mlp", "quadratic"]
HEADS = [*TRAINED, "linear_per_query", "quadratic_per_query", "classes"]
SEVERAL = pytest.mark.parametrize("H, combine", [(None, "sum"), (2, "sum"), (3, "concatenate")])


def make_head(kind, d, data, rng, positive=False):
    """A head reading vectors of length d, and its parameters for the twin."""
    if kind == "mlp":
        V, a = rng.standard_normal((d, 7)), rng.standard_normal(7)
        return attsvm.MLPHead(V, a), ("mlp", V, a, 0.0)
    if kind == "classes":
        V, c = rng.standard_normal((d, 4)), rng.integers(4, size=len(data))
        return attsvm.SoftmaxHead(V, data._layout.shape_queries(c)), ("classes", V, c, 0.0)
    lam = 0.7 if kind.startswith("quadratic") else 0.0
    v = rng.standard_normal((len(data), d) if kind.endswith("per_query") else d)
    v = np.abs(v) if positive else v
    shaped = v if v.ndim == 1 else data._layout.shape_queries(v)
    head = attsvm.QuadraticHead(shaped, lam) if lam else attsvm.LinearHead(shaped)
    return head, ("linear", v, None, lam)


def make(name, kind, H=None, combine="sum", loss="logistic"):
    case = build_case(name, positive=loss == "log")
    d = case.data.values.shape[1] * (H if combine == "concatenate" else 1)
    head, twin = make_head(kind, d, case.data, case.rng, loss == "log")
    problem = attsvm.Problem(case.data, case.y, head, loss, heads=H, combine=combine)
    W = case.rng.standard_normal((*([] if H is None else [H]), case.data.dk, case.data.dz))
    return case, problem, twin, W


def differences(function, x, h=1e-6):
    """The gradient of a function of x, to about h^2 and eps / h."""
    steps = h * np.eye(len(x))
    return np.array([function(x + step) - function(x - step) for step in steps]) / (2 * h)


# ------------------------------------------------------------------------------------ heads by themselves


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("name", ["cross", "cross_ragged_several", "cross_gemm"])
def test_head_values_and_gradients(kind, name):
    case = build_case(name)
    head, twin = make_head(kind, 5, case.data, case.rng)
    o = case.rng.standard_normal((len(case.data), 5))
    value, gradient = head.value_and_grad(o)
    expected = [reference.head_value(twin, o[q], q) for q in range(len(o))]
    close(value, np.array([v for v, _ in expected]))
    close(gradient, np.array([g for _, g in expected]))


# ------------------------------------------------------------------------------------ the objective

LOSSES = list(_core.LOSS)
OBJECTIVES = [(kind, None, "sum", loss) for kind in ("linear", "linear_per_query") for loss in LOSSES]
OBJECTIVES += [(kind, None, "sum", None) for kind in ("mlp", "quadratic", "quadratic_per_query", "classes")]
OBJECTIVES += [("linear", 1, "sum", None), ("linear", 1, "concatenate", None), ("linear_per_query", 2, "sum", None)]
OBJECTIVES += [("mlp", 3, "sum", None), ("mlp", 2, "concatenate", None), ("quadratic", 3, "concatenate", None)]
OBJECTIVES += [("classes", 2, "concatenate", None)]


@pytest.mark.parametrize("kind, H, combine, loss", OBJECTIVES)
@pytest.mark.parametrize("name", BUILDERS)
def test_loss_and_gradient_equal_the_twin(name, kind, H, combine, loss):
    """Of linear heads for every loss, of the others for one that goes by the kind of data."""
    loss = loss or LOSSES[len(name) % 3]
    case, problem, twin, W = make(name, kind, H, combine, loss)
    given = case.data, case.y, twin, loss, W if H is not None else W[None], combine
    value, G, scale = reference.loss_and_gradients(*given)
    mine, dW = problem.loss_and_grad(W)
    assert mine == pytest.approx(value, rel=TWIN, abs=1e-15) and problem.loss(W) == mine
    close(dW.reshape(G.shape), G * np.exp(scale)[:, None, None])
    _, scaled = problem.loss_and_grad(W, scaled=True)
    close(scaled.W * np.exp(np.expand_dims(scaled.log_scale, (-2, -1))), dW)
    delta, log_scale = problem.multipliers(W)
    for h, pairs in enumerate(reference.logit_gradients(*given)[1]):
        rows = reference.per_entry(case.data, delta if H is None else delta[h])
        top = reference.selections(case.data, given[4][h])
        for row, t, (c, log_c) in zip(rows, top, pairs, strict=True):
            expected = c / len(case.data) * np.exp(log_c - np.atleast_1d(log_scale)[h]) if c.any() else c
            assert_allclose(row, np.where(np.arange(len(c)) == t, 0.0, expected), rtol=0, atol=TWIN)
    m = case.rng.integers(1, 30)
    K, Q = (case.rng.standard_normal((*W.shape[:-2], d, m)) / m for d in W.shape[-2:])
    product = K @ np.swapaxes(Q, -1, -2)
    (value, dW), (again, dK, dQ) = problem.loss_and_grad(product), problem.loss_and_grad(K=K, Q=Q)
    assert again == pytest.approx(value, rel=TWIN, abs=1e-15)
    close(dK, dW @ Q)
    close(dQ, np.swapaxes(dW, -1, -2) @ K)


def test_attention_heads_keep_scales_of_their_own():
    """A saturated attention head (gradient e^-1000) and a fresh one, side by side: neither drowns the other."""
    rng = np.random.default_rng(3)
    data = attsvm.cross_attention(rng.integers(-8, 9, (3, 4, 5)) / 8, rng.integers(-8, 9, (3, 5)) / 8)
    W = np.stack([rng.integers(-8, 9, (5, 5)) * 64.0, rng.standard_normal((5, 5)) / 5])
    head = attsvm.LinearHead(rng.standard_normal(10))
    problem = attsvm.Problem(data, [1, -1, 1], head, heads=2, combine="concatenate")
    _, gradient = problem.loss_and_grad(W, scaled=True)
    assert gradient.log_scale[0] < -50 < -10 < gradient.log_scale[1]
    assert_allclose(np.abs(gradient.W).max(axis=(1, 2)), 1)
    total = np.log(np.linalg.norm(gradient.W[1])) + gradient.log_scale[1]
    for rule, moved in (("normalized", [0.1, 0.1]), ("normalized jointly", [0, 0.1])):
        run = attsvm.train(problem, W, rule=rule, steps=1, lr=0.1)
        assert_allclose(np.linalg.norm(run.W - W, axis=(1, 2)), moved, rtol=1e-9, atol=1e-15)
        assert run.log_grad_norm[0] == pytest.approx(total, rel=1e-12)


# ------------------------------------------------------------------------------------ scores, dead ends, functions


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("name", BUILDERS)
def test_scores_are_the_head_at_each_token(name, kind):
    case, problem, twin, _ = make(name, kind)
    labels = case.data._layout.flatten_queries("y", case.y)
    expected = []
    for q, V in enumerate(reference.windows(case.data, values=True)):
        expected.append([labels[q] * reference.head_value(twin, x, q)[0] for x in V])
    found = reference.per_entry(case.data, problem.scores)
    for mine, row in zip(found, expected, strict=True):
        assert_allclose(mine, row, rtol=1e-12, atol=1e-13)
    best = [int(np.argmax(row)) for row in expected]
    assert_array_equal(reference.per_query(case.data, problem.optimal), best)


@pytest.mark.parametrize("name", ["cross", "causal_ragged", "cross_several_queries"])
def test_a_function_trains_as_the_head_it_computes(name):
    case, problem, _, W = make(name, "mlp")
    calls = []

    def function(o):
        calls.append(o.shape)
        return problem.head.value_and_grad(o)

    called = attsvm.Problem(case.data, case.y, attsvm.CallableHead(function))
    run, again = (attsvm.train(p, W, steps=20, record=5) for p in (problem, called))
    assert_array_equal(run.weights, again.weights)
    assert_array_equal(run.loss, again.loss)
    assert len(calls) == 21 and set(calls) == {(len(case.data), case.data.values.shape[1])}


def test_an_exception_of_the_function_comes_through_with_the_run_so_far():
    case, problem, _, W = make("cross", "mlp")
    calls = []

    def broken(o):
        calls.append(0)
        return problem.head.value_and_grad(o) if len(calls) <= 12 else 1 / 0

    function = attsvm.Problem(case.data, case.y, attsvm.CallableHead(broken))
    with pytest.raises(ZeroDivisionError) as caught:
        attsvm.train(function, W, steps=100, record=5)
    assert caught.traceback[-1].name == "broken"
    partial = caught.value.partial
    assert partial.status == "interrupted" and list(partial.steps) == [0, 5, 10]
    assert_array_equal(partial.W, attsvm.train(problem, W, steps=12, record=0).W)
    for call in (function.loss, function.loss_and_grad):
        pytest.raises(ZeroDivisionError, call, W)


# ------------------------------------------------------------------------------------ heads that are trained


def parts(head, row):
    first = head.v.size
    return [row[:first].reshape(head.v.shape), *([row[first:]] if len(row) > first else [])]


@pytest.mark.parametrize("name", ["cross", "causal_ragged", "cross_gemm"])
@pytest.mark.parametrize("kind", TRAINED)
@SEVERAL
@pytest.mark.parametrize("rule", ["normalized", "normalized jointly", "constant", "mirror", "polyak"])
def test_each_step_of_the_head_is_the_twins(name, kind, H, combine, rule):
    """Each of its parameters by a norm of its own, whatever the rule normalises together otherwise."""
    case, problem, _, W = make(name, kind, H, combine)
    records = {"mirror": attsvm.rules.mirror(p=3.0), "polyak": attsvm.rules.polyak(target_loss=-1.0)}
    options = {"lr": 1e6 if rule == "polyak" else 0.1, "rule": records.get(rule, rule)}
    for _ in range(4):
        run = attsvm.train(problem, W, train_head=True, steps=1, **options)
        head, stacked = problem.head, W if H is not None else W[None]
        twin = head.kind, head.v, head.a, head.lam
        found, scale = reference.head_gradients(case.data, case.y, twin, "logistic", stacked, combine)
        before, alone = parts(head, head.row()), [[i] for i in range(len(found))]
        expected = reference_rules.Rule(**options).move(before, run.loss[0], [(g, scale) for g in found], alone)
        for mine, theirs in zip(parts(head, run.parameters), expected, strict=True):
            close(mine, theirs, 1e-9)
        # Attention moves as it does when the head stays.
        assert_allclose(run.W, attsvm.train(problem, W, steps=1, **options).W, atol=1e-11)
        assert_array_equal(run.head_records, [head.row(), run.parameters])
        assert_array_equal(run.v, parts(head, run.parameters)[0])
        assert {"linear": "W and v:", "mlp": "W and V, a:", "quadratic": "W and v, lam:"}[kind] in repr(run)
        W, problem = run.W, problem._with(head=run.head)
        assert problem.loss(W) == pytest.approx(run.loss[-1], rel=1e-12)


@pytest.mark.parametrize("kind", TRAINED)
@SEVERAL
@pytest.mark.parametrize("trained", ["W", "KQ"])
@pytest.mark.parametrize("loss", SIGNED)
def test_a_constant_step_is_the_gradient_by_differences(kind, H, combine, trained, loss):
    case, problem, *_ = make("cross_ragged_several", kind, H, combine, loss)
    weights, lr, row = starts(case, trained, H), 1e-6, problem.head.row()
    run = attsvm.train(problem, **weights, train_head=True, rule="constant", lr=lr, steps=1)
    slope = differences(lambda r: problem._with(head=problem.head.from_row(r)).loss(**weights), row)  # no kink is near
    assert_allclose((row - run.parameters) / lr, slope, rtol=0, atol=1e-8 * max(1.0, np.abs(slope).max()))


@pytest.mark.parametrize("kind", TRAINED)
def test_the_head_goes_on_when_its_gradient_has_underflowed(kind):
    """Exponential loss at margins of some thousands: loss and gradient are zero in double precision."""
    case, problem, *_ = make("cross", kind)
    head, W = problem.head, np.zeros((1, 4, 3))
    # One sign of the labels alone, so that the margins are large everywhere.
    value, _ = head.value_and_grad(reference.combined(case.data, W, "sum"))
    y, row = np.sign(value), head.row()
    row[slice(head.v.size) if kind == "mlp" else slice(None)] *= 4000 / np.abs(value).min()
    head = head.from_row(row)
    run = attsvm.train(attsvm.Problem(case.data, y, head, "exponential", heads=1), W, train_head=True, lr=0.1, steps=1)
    assert run.loss[0] == 0
    twin = head.kind, head.v, head.a, head.lam
    found, scale = reference.head_gradients(case.data, y, twin, "exponential", W)
    assert scale < -3000
    for w, g, mine in zip(parts(head, row), found, parts(head, run.parameters), strict=True):
        # The step is a ten-thousandth of the parameters; the log scale is itself rounded to 1e-12.
        assert_allclose(mine - w, -0.1 * g / np.linalg.norm(g), rtol=0, atol=1e-9)


def test_a_dead_layer_is_stationary():
    case, W = build_case("cross"), np.ones((4, 3))
    dead = attsvm.Problem(case.data, case.y, attsvm.MLPHead(np.zeros((4, 3))))
    for train_head in (False, True):
        run = attsvm.train(dead, W, train_head=train_head, steps=10)
        assert run.status == "stationary" and run.steps[-1] == 0 and run.log_grad_norm[-1] == -np.inf
        assert_array_equal(run.W, W)
    assert_array_equal(run.parameters, dead.head.row())
    half = attsvm.MLPHead(np.ones((4, 1)) * [1.0, 0.0], [1.0, 1.0])  # the unit with V = 0 is at its kink and stays
    run = attsvm.train(attsvm.Problem(case.data, case.y, half), W, train_head=True, steps=10)
    assert (run.head.V[:, 0] != half.V[:, 0]).all()
    assert_array_equal([*run.head.V[:, 1], run.head.a[1]], [0.0] * 4 + [1.0])


@pytest.mark.parametrize("sure", [20.0, 50.0, 700.0])
def test_a_query_sure_of_its_class_keeps_its_value_and_gradient(sure):
    """By hand, where the other classes have e^-sure each: 1 - p would be zero beyond 36.  The query that is as sure of
    another class has all of it to win."""
    V = np.array([[sure, 0.0, 0.0], [0.0, 1.0, 3.0]])
    head = attsvm.SoftmaxHead(V, classes=[0, 1])
    value, gradient = head.value_and_grad(np.array([[1.0, 0.0], [1.0, 0.0]]))
    assert repr(head) == "SoftmaxHead(dv=2, C=3)"
    rest = np.exp(-sure)  # of each of two classes; their squares are below rounding
    assert_allclose(value, [-2 * rest, -sure], rtol=1e-8)
    assert_allclose(gradient, [[2 * sure * rest, -4 * rest], [-sure, 1.0]], rtol=1e-8)
