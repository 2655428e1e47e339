"""Heads trained together with attention: twins and central differences."""

import attsvm
import numpy as np
import pytest
import reference_output as twin
import reference_rules
from builders import build_case, starts

HEADS = ["linear", "mlp", "quadratic"]
SEVERAL = [(None, "sum"), (2, "sum"), (3, "concatenate")]


def make(kind, rng, dv):
    if kind == "mlp":
        return attsvm.MLPHead(rng.standard_normal((dv, 4)), rng.standard_normal(4))
    v = rng.standard_normal(dv)
    return attsvm.LinearHead(v) if kind == "linear" else attsvm.QuadraticHead(v, 0.25)


def as_tuple(head):
    return head.kind, head.v, head.a, head.lam


def setting(data, kind, H=None, combine="sum", loss="logistic"):
    case = build_case(data)
    head = make(kind, case.rng, case.data.values.shape[1] * (H if combine == "concatenate" else 1))
    return case, attsvm.Problem(case.data, case.y, head, loss, heads=H, combine=combine)


def parts(head, row):
    first = head.v.size
    return [row[:first].reshape(head.v.shape), *([row[first:]] if len(row) > first else [])]


def close(found, expected, rtol):
    np.testing.assert_allclose(found, expected, rtol=0, atol=rtol * np.abs(expected).max())


# ------------------------------------------------------------------------------------ steps


@pytest.mark.parametrize(
    "data",
    ["cross", "causal_ragged", "cross_gemm"]
    + [pytest.param(data, marks=pytest.mark.slow) for data in ("cross_values", "cross_float32")],
)
@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("H, combine", SEVERAL, ids=str)
@pytest.mark.parametrize("rule", ["normalized", "normalized jointly", "constant", "mirror", "polyak"])
def test_each_step_of_the_head_is_the_twins(data, kind, H, combine, rule):
    loss = {"normalized": "exponential", "constant": "linear"}.get(rule, "logistic")
    case, problem = setting(data, kind, H, combine, loss)
    options = {"mirror": dict(p=3.0), "polyak": dict(target_loss=-1.0, lr=1e6)}.get(rule, {})
    options = {"lr": 0.1} | options
    W = starts(case, "W", H)["W"]
    for _ in range(4):
        run = attsvm.train(problem, W, train_head=True, steps=1, **options)
        head, stacked = problem.head, W if H is not None else W[None]
        found, scale = twin.head_gradients(case.data, case.y, as_tuple(head), loss, stacked, combine)
        found = [g * np.exp(scale) for g in found]
        before, after = parts(head, head.row()), parts(head, run.parameters)
        for w, g, mine in zip(before, found, after, strict=True):
            if rule == "mirror":
                expected = reference_rules.mirror(w, g, 0.1, 3.0)
            elif rule == "polyak":
                expected = w - min(1e6, (run.loss[0] + 1.0) / 2 / np.linalg.norm(g)) * g / np.linalg.norm(g)
            else:
                expected = w - 0.1 * g / (1.0 if rule == "constant" else np.linalg.norm(g))
            close(mine, expected, 1e-9)
        # Attention moves as it does when the head stays.
        np.testing.assert_allclose(run.W, attsvm.train(problem, W, steps=1, **options).W, atol=1e-11)
        np.testing.assert_array_equal(run.head_records, [head.row(), run.parameters])
        np.testing.assert_array_equal(run.v, parts(head, run.parameters)[0])
        W = run.W
        problem = attsvm.Problem(case.data, case.y, run.head, loss, heads=H, combine=combine)
        assert problem.loss(W) == pytest.approx(run.loss[-1], rel=1e-12)


@pytest.mark.parametrize("kind", HEADS)
def test_one_attention_head_is_none(kind):
    """A linear head takes the shorter way when its scores could be fixed."""
    case, problem = setting("cross", kind)
    one = attsvm.Problem(case.data, case.y, problem.head, heads=1)
    W = starts(case, "W")["W"]
    run, same = (attsvm.train(p, w, train_head=True, steps=40, record=10) for p, w in ((problem, W), (one, W[None])))
    close(same.weights[:, 0], run.weights, 1e-11)
    close(same.head_records, run.head_records, 1e-11)


# ------------------------------------------------------------------------------------ scales, ends


@pytest.mark.parametrize("kind", HEADS)
def test_the_head_goes_on_when_its_gradient_has_underflowed(kind):
    """Exponential loss at margins of some thousands: loss and gradient are zero in double precision."""
    case, _ = setting("cross", kind)
    head = make(kind, case.rng, 4)
    # One sign of the labels alone, so that the margins are large everywhere.
    W = np.zeros((1, 4, 3))
    value, _ = head.value_and_grad(twin.attended(case.data, W, "sum"))
    y = np.sign(value)
    factor = 4000 / np.abs(value).min()
    row = head.row()
    row[: head.v.size] *= factor
    if kind == "quadratic":
        row[-1] *= factor
    head = head.from_row(row)
    found, scale = twin.head_gradients(case.data, y, as_tuple(head), "exponential", W)
    assert scale < -3000
    for heads, at in ((None, W[0]), (1, W)):  # a linear head has an evaluator of its own
        problem = attsvm.Problem(case.data, y, head, "exponential", heads=heads)
        run = attsvm.train(problem, at, train_head=True, lr=0.1, steps=1)
        assert run.loss[0] == 0
        for w, g, mine in zip(parts(head, row), found, parts(head, run.parameters), strict=True):
            # The step is a ten-thousandth of the parameters; the log scale is itself rounded to 1e-12.
            np.testing.assert_allclose(mine - w, -0.1 * g / np.linalg.norm(g), rtol=0, atol=1e-9)


def test_a_dead_layer_is_stationary():
    case = build_case("cross")
    head = attsvm.MLPHead(np.zeros((4, 3)))
    run = attsvm.train(attsvm.Problem(case.data, case.y, head), np.ones((4, 3)), train_head=True, steps=10)
    assert run.status == "stationary" and run.steps[-1] == 0
    np.testing.assert_array_equal(run.parameters, head.row())
    half = attsvm.MLPHead(np.ones((4, 1)) * [1.0, 0.0], [1.0, 1.0])  # the unit with V = 0 is at its kink and stays
    run = attsvm.train(attsvm.Problem(case.data, case.y, half), np.ones((4, 3)), train_head=True, steps=10)
    assert run.head.V[:, 0].tolist() != half.V[:, 0].tolist()
    np.testing.assert_array_equal(run.head.V[:, 1], 0.0)
    assert run.head.a[1] == 1.0


def test_repr_names_what_was_trained():
    for kind, words in (("linear", "W and v:"), ("mlp", "W and V, a:"), ("quadratic", "W and v, lam:")):
        _, problem = setting("cross", kind)
        assert words in repr(attsvm.train(problem, steps=2, train_head=True))
    assert attsvm.train(problem, steps=2).head is None
