"""attsvm.torch.attention: the same attention as attsvm's, and a gradient that is right where softmax saturates."""

import attsvm
import numpy as np
import pytest
import torch
from attsvm.torch import attention
from numpy.testing import assert_allclose

n, T, dk, dz, dv, m, S = 3, 5, 4, 3, 2, 2, 4


def drawn(*shape, seed=0, requires_grad=True, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_(requires_grad)


@pytest.fixture
def arguments():
    return {
        "X": drawn(n, T, dk, seed=1),
        "Z": drawn(n, dz, seed=2),
        "W": drawn(dk, dz, seed=3),
        "K": drawn(dk, m, seed=4),
        "Q": drawn(dz, m, seed=5),
        "values": drawn(n, T, dv, seed=6),
    }


@pytest.mark.parametrize("several", [False, True], ids=["one query", "several queries"])
@pytest.mark.parametrize("weights", ["W", "KQ"])
@pytest.mark.parametrize("own_values", [False, True], ids=["tokens", "values"])
def test_agrees_with_numpy_and_passes_gradcheck(arguments, several, weights, own_values):
    a = dict(arguments)
    if several:
        a["Z"] = drawn(n, S, dz, seed=7)
    names = ["X", "Z", *weights, *(["values"] if own_values else [])]

    def function(*tensors):
        given = dict(zip(names, tensors, strict=True))
        return attention(given.pop("X"), given.pop("Z"), **given)

    tensors = [a[name] for name in names]
    attended = function(*tensors)
    assert attended.shape == ((n, S) if several else (n,)) + ((dv,) if own_values else (dk,))
    given = {name: a[name].detach().numpy() for name in a}
    data = attsvm.cross_attention(given["X"], given["Z"], given["values"] if own_values else None)
    W = given["W"] if weights == "W" else given["K"] @ given["Q"].T
    assert_allclose(attended.detach().numpy(), data.attended(W), rtol=1e-13, atol=1e-14)  # rounding
    assert torch.autograd.gradcheck(function, tensors)


@pytest.mark.parametrize("size", [1.0, 40.0, 300.0])
def test_gradient_is_accurate_where_attention_saturates(size):
    """Against all pairs of tokens; at size 40 the other probabilities are about 1e-17 to 1e-40."""
    X, Z, W = drawn(2, 4, 3, seed=8), drawn(2, 3, seed=9), drawn(3, 3, seed=10)
    with torch.no_grad():
        top = ((Z @ W.T)[:, None] @ X.mT).flatten(1).topk(2).values
        W *= size / (top[:, 0] - top[:, 1]).min()
    c = drawn(2, 3, seed=11, requires_grad=False)
    (attention(X, Z, W) * c).sum().backward()
    x, z, w = (tensor.detach() for tensor in (X, Z, W))
    wz = z @ w.T
    prob, g = (torch.einsum("ntd,nd->nt", x, other) for other in (wz, c))
    prob = torch.softmax(prob, -1)
    delta = torch.einsum("nt,nu,ntu->nt", prob, prob, g[:, :, None] - g[:, None])
    expected = {
        X: delta[..., None] * wz[:, None] + prob[..., None] * c[:, None],
        Z: torch.einsum("nt,ntd,de->ne", delta, x, w),
        W: torch.einsum("nt,ntd,ne->de", delta, x, z),
    }
    for tensor, gradient in expected.items():
        # Logits of a thousand are rounded to 1e-13, which is then the relative error of each probability.
        assert (tensor.grad - gradient).abs().max() <= 1e-12 * gradient.abs().max()


def test_what_all_tokens_share_leaves_the_gradient_alone():
    """A derivative of 1e12 along a coordinate that is 1 in every token: only differences of tokens count."""
    X = torch.tensor([[[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.5, 0.5, 1.0]]], dtype=torch.float64)
    found = []
    for common in (0.0, 2.0**40):
        W = torch.tensor([[0.7], [-0.4], [0.0]], dtype=torch.float64, requires_grad=True)
        c = torch.tensor([0.25, -0.5, common], dtype=torch.float64)  # its sums with the tokens are exact
        (attention(X, torch.ones(1, 1, dtype=torch.float64), W) @ c).sum().backward()
        found.append(W.grad[:2].flatten().numpy())
    assert_allclose(found[1], found[0], rtol=1e-13)
    assert np.abs(found[0]).min() > 0.01


def test_twice_raises(arguments):
    a = arguments
    gradient = torch.autograd.grad(attention(a["X"], a["Z"], a["W"]).sum(), a["W"], create_graph=True)[0]
    with pytest.raises(RuntimeError, match="differentiated once only"):
        torch.autograd.grad(gradient.sum(), a["X"], allow_unused=True)
    with pytest.raises(RuntimeError, match="differentiated once only"):
        torch.autograd.gradgradcheck(lambda W: attention(a["X"].detach(), a["Z"].detach(), W), [a["W"]])


def test_single_precision_is_computed_in_double(arguments):
    X, Z, W = (arguments[name].detach().float() for name in "XZW")
    found = []
    for tensors in ((X, Z, W), (X.double(), Z.double(), W.double())):
        weights = tensors[2].clone().requires_grad_()
        attended = attention(*tensors[:2], weights)
        attended.sum().backward()
        found.append(weights.grad)
        assert attended.dtype == weights.grad.dtype == tensors[0].dtype
    # One rounding to single precision, 6e-8, of each number.
    assert_allclose(*found, rtol=1e-7)
    assert attention(X, Z.double(), W).dtype == torch.float64


def test_functional_gradient_and_vmap(arguments):
    a = {name: tensor.detach() for name, tensor in arguments.items()}
    stacked = torch.stack([a["W"], 2 * a["W"]])

    def loss(W):
        return attention(a["X"], a["Z"], W).square().sum()

    found = torch.func.vmap(torch.func.grad(loss))(stacked)
    for W, gradient in zip(stacked, found, strict=True):
        W = W.clone().requires_grad_()
        loss(W).backward()
        torch.testing.assert_close(gradient, W.grad, rtol=1e-13, atol=1e-15)  # rounding


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"X": [[1.0]]}, TypeError, r"X must be a torch.Tensor, got list"),
        ({"Z": torch.ones(n, dz, dtype=torch.int64)}, TypeError, r"Z must hold floating point numbers"),
        ({"W": None}, ValueError, "give W, or both K and Q"),
        ({"K": torch.ones(dk, m)}, ValueError, "not both"),
        ({"X": torch.ones(T, dk)}, ValueError, r"X must have shape \(n, T, dk\)"),
        ({"Z": torch.ones(n + 1, dz)}, ValueError, r"Z must have shape .* n = 3, got \(4, 3\)"),
        ({"W": torch.ones(dz, dk)}, ValueError, r"W must have shape \(dk, dz\) = \(4, 3\), got \(3, 4\)"),
        ({"values": torch.ones(n, T + 1, dv)}, ValueError, r"values must have shape \(n, T, dv\) = \(3, 5, dv\)"),
    ],
)
def test_arguments_that_do_not_fit(arguments, change, error, message):
    a = {name: arguments[name] for name in "XZW"} | change
    with pytest.raises(error, match=message):
        attention(a.pop("X"), a.pop("Z"), **a)
