"""Output heads and several attention heads, against twins, central differences, PyTorch, and each other."""

from __future__ import annotations

import attsvm
import numpy as np
import pytest
import reference_output as reference
from builders import BUILDERS, build_case

# Sums of some dozens of products, in another order.
TWIN = 1e-12


def assert_close(actual, expected, rtol=TWIN):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=rtol * np.abs(expected).max() + 1e-300)


HEADS = ["linear", "linear_per_query", "mlp", "quadratic", "quadratic_per_query"]


def make_head(kind, d, data, rng):
    """A head reading vectors of length d, and its parameters for the twin."""
    if kind == "mlp":
        V, a = rng.standard_normal((d, 7)), rng.standard_normal(7)
        return attsvm.MLPHead(V, a), ("mlp", V, a, 0.0)
    lam = 0.7 if kind.startswith("quadratic") else 0.0
    v = rng.standard_normal((len(data), d) if kind.endswith("per_query") else d)
    shaped = v if v.ndim == 1 else data._layout.shape_queries(v)
    head = attsvm.QuadraticHead(shaped, lam) if lam else attsvm.LinearHead(shaped)
    return head, ("linear", v, None, lam)


def make(name, kind, H=None, combine="sum", loss="logistic"):
    case = build_case(name)
    d = case.data.values.shape[1] * (H if combine == "concatenate" else 1)
    head, twin = make_head(kind, d, case.data, case.rng)
    problem = attsvm.Problem(case.data, case.y, head, loss, heads=H, combine=combine)
    W = case.rng.standard_normal((*([] if H is None else [H]), case.data.dk, case.data.dz))
    return case, problem, twin, W


# ------------------------------------------------------------------------------------ heads by themselves


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("name", ["cross", "cross_ragged_several", "cross_gemm"])
def test_head_values_and_gradients(kind, name):
    case = build_case(name)
    data, rng = case.data, case.rng
    head, twin = make_head(kind, 5, data, rng)
    o = rng.standard_normal((len(data), 5))
    value, gradient = head.value_and_grad(o)
    expected = [reference.head_value(twin, o[q], q) for q in range(len(o))]
    assert_close(value, np.array([v for v, _ in expected]))
    assert_close(gradient, np.array([g for _, g in expected]))
    for i in range(5):
        step = 1e-6 * np.eye(5)[i]
        difference = (head.value_and_grad(o + step)[0] - head.value_and_grad(o - step)[0]) / 2e-6
        np.testing.assert_allclose(gradient[:, i], difference, atol=1e-7)


@pytest.mark.parametrize("kind", HEADS)
def test_head_gradients_in_the_parameters(kind, rng):
    data = build_case("cross").data
    head, _ = make_head(kind, 4, data, rng)
    o, c = rng.standard_normal((len(data), 4)), rng.standard_normal(len(data))
    found = head.parameter_grad(o, c)
    parameters = {"mlp": ("v", "a"), "linear": ("v",), "quadratic": ("v", "lam")}[kind.split("_")[0]]

    def total():
        return float(c @ head.value_and_grad(o)[0])

    for name in parameters:
        mine = np.asarray(found["V" if name == "v" and kind == "mlp" else name])
        start = getattr(head, name)
        assert mine.shape == np.shape(start)
        for index in np.ndindex(mine.shape):
            bumped = []
            for step in (1e-6, -1e-6):
                moved = np.array(start, dtype=float)
                moved[index] += step
                setattr(head, name, moved if moved.ndim else float(moved))
                bumped.append(total())
            setattr(head, name, start)
            assert mine[index] == pytest.approx((bumped[0] - bumped[1]) / 2e-6, abs=1e-7)
    assert len(found) == len(parameters)


# ------------------------------------------------------------------------------------ the objective

RULES = [("mlp", None, "sum"), ("quadratic", None, "sum"), ("quadratic_per_query", None, "sum")]
RULES += [("linear", 1, "sum"), ("linear_per_query", 2, "sum"), ("mlp", 3, "sum"), ("mlp", 2, "concatenate")]
RULES += [("quadratic", 3, "concatenate")]


@pytest.mark.parametrize("kind, H, combine", RULES)
@pytest.mark.parametrize("name", BUILDERS)
def test_loss_and_gradient_equal_the_twin(name, kind, H, combine):
    loss = ["logistic", "exponential", "linear"][len(name) % 3]
    case, problem, twin, W = make(name, kind, H, combine, loss)
    value, G, scale = reference.loss_and_grad(case.data, case.y, twin, loss, W if H is not None else W[None], combine)
    mine, dW = problem.loss_and_grad(W)
    assert mine == pytest.approx(value, rel=TWIN, abs=1e-15) and problem.loss(W) == mine
    expected = G * np.exp(scale)[:, None, None]
    assert_close(dW, expected if H is not None else expected[0])
    _, scaled = problem.loss_and_grad(W, scaled=True)
    again = scaled.W * np.exp(scaled.log_scale if H is None else scaled.log_scale[:, None, None])
    assert_close(again, dW)
    K, Q = (case.rng.standard_normal((*W.shape[:-2], d, 2)) for d in W.shape[-2:])
    product = K @ np.swapaxes(Q, -1, -2)
    (value, dW), (again, dK, dQ) = problem.loss_and_grad(product), problem.loss_and_grad(K=K, Q=Q)
    assert again == pytest.approx(value, rel=TWIN, abs=1e-15)
    assert_close(dK, dW @ Q)
    assert_close(dQ, np.swapaxes(dW, -1, -2) @ K)


@pytest.mark.parametrize("name", BUILDERS)
def test_one_attention_head_is_single_head_attention(name):
    case = build_case(name)
    single = attsvm.Problem(case.data, case.y, attsvm.LinearHead(case.v))
    W = case.rng.standard_normal((case.data.dk, case.data.dz))
    loss, dW = single.loss_and_grad(W)
    run = attsvm.train(single, W, steps=50, record=10)
    for combine in ("sum", "concatenate"):
        one = attsvm.Problem(case.data, case.y, attsvm.LinearHead(case.v), heads=1, combine=combine)
        mine, dV = one.loss_and_grad(W[None])
        assert mine == pytest.approx(loss, rel=1e-13) and dV.shape == (1, *W.shape)
        assert_close(dV[0], dW, 1e-13)
        again = attsvm.train(one, W[None], steps=50, record=10)
        assert again.W.shape == (1, *W.shape) and again.weights.shape == (6, 1, *W.shape)
        # Rounding of a step grows along a run where attention moves between tokens.
        assert_close(again.W[0], run.W, 1e-10)
        np.testing.assert_allclose(again.loss, run.loss, rtol=1e-10)
        np.testing.assert_allclose(again.norm, run.norm, rtol=1e-10)
        selected, probabilities = again.selected[0], again.probabilities[0]
        for a, b in zip(selected, run.selected, strict=True):
            np.testing.assert_array_equal(a, b)
        for a, b in zip(probabilities, run.probabilities, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-8)


@pytest.mark.parametrize("size", [1.0, 1e3, 1e6], ids="{:g}".format)
def test_gradient_survives_at_any_size_of_W(size, sphere):
    """Heads that are linear where attention goes must have the gradient of the linear head, e^-100000 or not."""
    s = sphere()
    rng = np.random.default_rng(0)
    X, Z = rng.integers(-8, 9, (4, 5, 4)) / 8, rng.integers(-8, 9, (4, 4)) / 8
    W = rng.integers(-8, 9, (4, 4)) * 2.0 ** round(np.log2(size / 20))  # exact logits
    values, v = rng.uniform(0.1, 1, (4, 5, 3)), rng.uniform(0.1, 1, 3)
    data, y = attsvm.cross_attention(X, Z, values), np.array([1.0, -1.0, -1.0, 1.0])
    _, expected = attsvm.Problem(data, y, attsvm.LinearHead(v)).loss_and_grad(W, scaled=True)
    both = {"mlp": attsvm.MLPHead(v[:, None]), "quadratic": attsvm.QuadraticHead(v, 0.0)}
    both["call"] = attsvm.CallableHead(lambda o: (o @ v, np.broadcast_to(v, o.shape)))
    for head in both.values():
        _, mine = attsvm.Problem(data, y, head).loss_and_grad(W, scaled=True)
        assert_close(mine.W, expected.W)
        assert mine.log_scale == pytest.approx(expected.log_scale, rel=1e-14, abs=1e-12)
    assert expected.log_scale < -0.01 * size or size == 1
    # And a long run keeps turning: the same path as with the linear head.
    run = attsvm.train(s.problem, steps=3000, record=0)
    again = attsvm.train(attsvm.Problem(s.data, s.y, attsvm.QuadraticHead(s.v, 0.0)), steps=3000, record=0)
    assert again.norm[-1] > 250 and attsvm.correlation(run.W, again.W) > 1 - 1e-9


def test_attention_heads_keep_scales_of_their_own():
    """A saturated attention head (gradient e^-1000) and a fresh one, side by side: neither drowns the other."""
    rng = np.random.default_rng(3)
    data = attsvm.cross_attention(rng.integers(-8, 9, (3, 4, 5)) / 8, rng.integers(-8, 9, (3, 5)) / 8)
    far = rng.integers(-8, 9, (5, 5)) * 64.0
    W = np.stack([far, rng.standard_normal((5, 5)) / 5])
    problem = attsvm.Problem(
        data, [1, -1, 1], attsvm.LinearHead(rng.standard_normal(10)), heads=2, combine="concatenate"
    )
    _, gradient = problem.loss_and_grad(W, scaled=True)
    assert gradient.log_scale[0] < -50 < -10 < gradient.log_scale[1]
    np.testing.assert_allclose(np.abs(gradient.W).max(axis=(1, 2)), 1)
    run = attsvm.train(problem, W, steps=1, lr=0.1, record=0)
    np.testing.assert_allclose(np.linalg.norm(run.W - W, axis=(1, 2)), 0.1, rtol=1e-9)
    jointly = attsvm.train(problem, W, rule="normalized jointly", steps=1, lr=0.1, record=0)
    moved = np.linalg.norm(jointly.W - W, axis=(1, 2))
    assert moved[0] < 1e-15 and moved[1] == pytest.approx(0.1, rel=1e-12)
    total = np.log(np.linalg.norm(gradient.W[1])) + gradient.log_scale[1]
    assert run.log_grad_norm[0] == pytest.approx(total, rel=1e-12)


def test_each_attention_head_follows_its_own_svm():
    X, Z, y, v = attsvm.sample.unit_sphere(4, 5, 8, rng=1)
    data = attsvm.cross_attention(X, Z)
    problem = attsvm.Problem(data, y, attsvm.LinearHead(v), heads=2)
    W = np.random.default_rng(0).standard_normal((2, 8, 8)) * 0.3
    run = attsvm.train(problem, W, steps=6000, record=0)
    for h in range(2):
        assert run.probabilities[h].max(axis=1).min() > 0.99
        assert attsvm.correlation(run.W[h], attsvm.solve_svm(data, run.selected[h]).W) > 0.998


# ------------------------------------------------------------------------------------ scores, dead ends, functions


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("name", BUILDERS)
def test_scores_are_the_head_at_each_token(name, kind):
    case, problem, twin, _ = make(name, kind)
    labels = case.data._layout.flatten_queries("y", case.y)
    expected = []
    for q, V in enumerate(reference.reference.windows(case.data, values=True)):
        expected.append([labels[q] * reference.head_value(twin, x, q)[0] for x in V])
    found = reference.reference.per_entry(case.data, problem.scores)
    for mine, row in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, row, rtol=1e-12, atol=1e-13)
    best = [int(np.argmax(row)) for row in expected]
    np.testing.assert_array_equal(reference.reference.per_query(case.data, problem.optimal), best)


def test_behind_a_dead_relu_a_run_is_stationary():
    X = np.random.default_rng(0).uniform(0.1, 1, (2, 3, 4))
    problem = attsvm.Problem(attsvm.cross_attention(X, X[:, 0]), [1, -1], attsvm.MLPHead(-np.eye(4)))
    run = attsvm.train(problem, steps=10)
    assert run.status == "stationary" and not run.W.any() and run.log_grad_norm[-1] == -np.inf


def as_function(head, calls):
    def value_and_grad(o):
        calls.append(o.shape)
        return head.value_and_grad(o)

    return attsvm.CallableHead(value_and_grad)


@pytest.mark.parametrize("name", ["cross", "causal_ragged", "cross_several_queries"])
def test_a_function_trains_as_the_head_it_computes(name):
    case, problem, _, W = make(name, "mlp")
    calls = []
    function = attsvm.Problem(case.data, case.y, as_function(problem.head, calls))
    run, again = (attsvm.train(p, W, steps=20, record=5) for p in (problem, function))
    np.testing.assert_array_equal(run.W, again.W)
    np.testing.assert_array_equal(run.loss, again.loss)
    assert len(calls) == 21 and set(calls) == {(len(case.data), case.data.values.shape[1])}


def test_an_exception_of_the_function_comes_through_with_the_run_so_far():
    case, problem, _, W = make("cross", "mlp")
    calls = []

    def broken(o):
        calls.append(0)
        if len(calls) > 12:
            raise LookupError("step 12")
        return problem.head.value_and_grad(o)

    function = attsvm.Problem(case.data, case.y, attsvm.CallableHead(broken))
    with pytest.raises(LookupError, match="step 12") as caught:
        attsvm.train(function, W, steps=100, record=5)
    assert caught.traceback[-1].name == "broken"
    partial = caught.value.partial
    assert partial.status == "interrupted" and list(partial.steps) == [0, 5, 10]
    np.testing.assert_array_equal(partial.W, attsvm.train(problem, W, steps=12, record=0).W)
    with pytest.raises(LookupError):
        function.loss(W)
    with pytest.raises(LookupError):
        function.loss_and_grad(W)


# ------------------------------------------------------------------------------------ PyTorch


@pytest.mark.peer
@pytest.mark.parametrize("kind", ["linear", "mlp"])
@pytest.mark.parametrize("causal", [True, False])
def test_sequence_to_sequence_matches_scaled_dot_product_attention(kind, causal, rng):
    torch = pytest.importorskip("torch")
    n, T, d, m = 3, 7, 5, 4
    X, y = rng.standard_normal((n, T, d)), rng.choice([-1.0, 1.0], (n, T))
    K, Q, V, a = (rng.standard_normal(s) for s in ((d, m), (d, m), (d, 6), 6))
    data = attsvm.causal_attention(X) if causal else attsvm.self_attention(X, query=None)
    v = rng.standard_normal(d)
    head = attsvm.LinearHead(v) if kind == "linear" else attsvm.MLPHead(V, a)
    tX, tK, tQ = torch.tensor(X), torch.tensor(K, requires_grad=True), torch.tensor(Q, requires_grad=True)
    o = torch.nn.functional.scaled_dot_product_attention(tX @ tQ, tX @ tK, tX, is_causal=causal, scale=1.0)
    value = o @ torch.tensor(v) if kind == "linear" else torch.relu(o @ torch.tensor(V)) @ torch.tensor(a)
    loss = torch.logaddexp(torch.zeros((), dtype=torch.float64), -torch.tensor(y) * value).mean()
    loss.backward()
    mine, dK, dQ = attsvm.Problem(data, y, head).loss_and_grad(K=K, Q=Q)
    assert mine == pytest.approx(loss.item(), rel=1e-12)
    assert_close(dK, tK.grad.numpy(), 1e-10)
    assert_close(dQ, tQ.grad.numpy(), 1e-10)


# ------------------------------------------------------------------------------------ virtual sequences
