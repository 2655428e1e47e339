"""Heads trained together with attention: twins and central differences."""

import attsvm
import numpy as np
import pytest
import reference_output as twin
import reference_rules
from builders import build_case

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


def starts(case, H, trained, m=3):
    shape, dims = () if H is None else (H,), {"K": case.data.dk, "Q": case.data.dz}
    if trained == "W":
        return dict(W=0.5 * case.rng.standard_normal((*shape, *dims.values())))
    return {name: 0.5 * case.rng.standard_normal((*shape, d, m)) for name, d in dims.items()}


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
    case, problem = setting(data, kind, H, combine)
    records = {"mirror": attsvm.rules.mirror(p=3.0), "polyak": attsvm.rules.polyak(target_loss=-1.0)}
    options = {"lr": 1e6 if rule == "polyak" else 0.1, "rule": records.get(rule, rule)}
    W = starts(case, H, "W")["W"]
    for _ in range(4):
        run = attsvm.train(problem, W, train_head=True, steps=1, **options)
        head, stacked = problem.head, W if H is not None else W[None]
        found, scale = twin.head_gradients(case.data, case.y, as_tuple(head), "logistic", stacked, combine)
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
        problem = attsvm.Problem(case.data, case.y, run.head, heads=H, combine=combine)
        assert problem.loss(W) == pytest.approx(run.loss[-1], rel=1e-12)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("H, combine", SEVERAL, ids=str)
@pytest.mark.parametrize("trained", ["W", "KQ"])
@pytest.mark.parametrize("loss", ["logistic", "exponential", "linear"])
def test_a_constant_step_is_the_gradient_by_differences(kind, H, combine, trained, loss):
    case, problem = setting("cross_ragged_several", kind, H, combine, loss)
    weights = starts(case, H, trained)
    lr = 1e-6
    run = attsvm.train(problem, **weights, train_head=True, rule="constant", lr=lr, steps=1)
    row, h = problem.head.row(), 1e-6
    moved, expected = (row - run.parameters) / lr, np.empty(len(row))
    for i in range(len(row)):
        sides = [row.copy(), row.copy()]
        sides[0][i] += h
        sides[1][i] -= h
        up, down = (
            attsvm.Problem(case.data, case.y, problem.head.from_row(r), loss, heads=H, combine=combine).loss(**weights)
            for r in sides
        )
        expected[i] = (up - down) / (2 * h)
    # Differences of h = 1e-6 are right to about h^2 and eps / h; no kink is that near.
    np.testing.assert_allclose(moved, expected, rtol=0, atol=1e-8 * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("kind", HEADS)
def test_one_attention_head_is_none(kind):
    """A linear head takes the shorter way when its scores could be fixed."""
    case, problem = setting("cross", kind)
    one = attsvm.Problem(case.data, case.y, problem.head, heads=1)
    W = starts(case, None, "W")["W"]
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
    problem = attsvm.Problem(case.data, y, head, "exponential", heads=1)
    run = attsvm.train(problem, W, train_head=True, lr=0.1, steps=1)
    assert run.loss[0] == 0
    found, scale = twin.head_gradients(case.data, y, as_tuple(head), "exponential", W)
    assert scale < -3000
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


def test_labels_that_the_start_gets_wrong_are_learnt():
    """V and a of a small net, with attention, on labels that no single token's score explains."""
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((30, 5, 6)), rng.standard_normal((30, 6))
    y = np.sign(X[:, :, 0].max(axis=1) - X[:, :, 1].max(axis=1))
    problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.MLPHead(0.3 * rng.standard_normal((6, 8))))
    fixed, trained = (attsvm.train(problem, steps=500, lr=0.02, train_head=flag) for flag in (False, True))
    assert trained.loss[-1] < 0.5 * fixed.loss[-1]
