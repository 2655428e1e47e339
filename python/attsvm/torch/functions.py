"""Differentiable functions of PyTorch tensors: softmax attention, with a gradient that does not cancel, and its SVM.

Consider one query with logits l, probabilities s and values v_t, and the derivative c of the loss in the attended
vector o = sum_t s_t v_t.  Let g_t = c . v_t.  The textbook derivative in the logits, s_t (g_t - s . g), subtracts two
nearly equal numbers at the token that attention has selected: once 1 - s_max < 1e-16 it is rounding noise or zero.  As
a sum over pairs of tokens the derivative is

    dL/dl_t = s_t sum_tau s_tau (g_t - g_tau).

With the token a of the largest logit as reference, h_t = g_t - g_a and r = sum_(tau != a) s_tau h_tau, it is

    dL/dl_t = s_t (h_t - r)  for t != a,        dL/dl_a = -sum_(t != a) dL/dl_t.

Every term is as small as the probabilities it comes from, so the derivative keeps its relative accuracy until s_t
itself underflows, at logits 745 below the largest.
"""

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..attention.kinds import cross_attention
from ..common.check import check_shapes
from ..svm.derivative import tangent_of
from ..svm.solve import solve_svm as solve
from .batch import as_array


def attention(
    X: Tensor,
    Z: Tensor,
    W: Tensor | None = None,
    *,
    K: Tensor | None = None,
    Q: Tensor | None = None,
    values: Tensor | None = None,
) -> Tensor:
    """Attended vectors ``softmax(X W z)^T values``, differentiable once in every argument.

    Parameters
    ----------
    X : (n, T, dk) tensor
        Tokens.
    Z : (n, dz) or (n, S, dz) tensor
        One query per sequence, or S of them.
    W : (dk, dz) tensor
        Weights; logits are ``x^T W z``, without a scale.
    K, Q : (dk, m) and (dz, m) tensors
        Factors of ``W = K Q^T``, in place of W, which is never formed.
    values : (n, T, dv) tensor, optional
        Vectors whose weighted mean attention returns; by default the tokens.

    Returns
    -------
    (n, dv) or (n, S, dv) tensor
        Its type is the promoted type of the arguments.  The computation is in double precision.

    Raises
    ------
    TypeError
        If an argument is not a tensor of floating point numbers.
    ValueError
        If a shape does not fit.
    RuntimeError
        If the gradient is differentiated again.

    Notes
    -----
    The gradient is summed over pairs of tokens, ``dL/dl_t = s_t sum_tau s_tau (g_t - g_tau)`` with
    ``g_t = dL/do . value_t``, relative to the token of the largest logit.  It stays accurate when attention saturates,
    where the textbook form ``s_t (g_t - s.g)`` cancels to noise.  Gradients of float32 tensors are rounded to float32
    at the end, so that values below 1e-45 become zero.

    Examples
    --------
    >>> import torch
    >>> from attsvm.torch import attention
    >>> X = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]], dtype=torch.float64)
    >>> W = torch.tensor([[50.0], [0.0]], dtype=torch.float64, requires_grad=True)
    >>> attended = attention(X, torch.ones(1, 1, dtype=torch.float64), W)
    >>> attended[0, 0].backward()
    >>> f"{W.grad[0, 0]:.10e}"  # the gradient is exp(-50) to the last digit; the textbook formula gives 0
    '1.9287498480e-22'
    """
    optional = {"W": W, "K": K, "Q": Q, "values": values}
    given = {"X": X, "Z": Z} | {name: a for name, a in optional.items() if a is not None}
    for name, a in given.items():
        if not isinstance(a, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, got {type(a).__name__}")
        if not a.is_floating_point():
            raise TypeError(f"{name} must hold floating point numbers, got {a.dtype}: convert it by {name}.double()")
    if "W" in given and not given.keys().isdisjoint("KQ"):
        raise ValueError("give either W, or K and Q, not both")
    if "W" not in given and not given.keys() >= {"K", "Q"}:
        raise ValueError("give W, or both K and Q")
    if X.ndim != 3 or X.shape[1] == 0:
        raise ValueError(f"X must have shape (n, T, dk) with at least one token, got {tuple(X.shape)}")
    if Z.ndim not in (2, 3) or len(Z) != len(X):
        raise ValueError(f"Z must have shape (n, dz) or (n, S, dz) with n = {len(X)}, got {tuple(Z.shape)}")
    letters = {"W": "dk, dz", "K": "dk, m", "Q": "dz, m", "values": "n, T, dv"}
    n, T, dk = X.shape
    check_shapes(optional, letters, n=n, T=T, dk=dk, dz=Z.shape[-1])
    dtype = functools.reduce(torch.promote_types, (a.dtype for a in given.values()))
    own = {name: a.double() for name, a in given.items()}
    keys, queries = own["X"], own["Z"] if Z.ndim == 3 else own["Z"][:, None]
    if W is not None:
        logits = (queries @ own["W"].mT) @ keys.mT
    else:
        logits = (queries @ own["Q"]) @ (keys @ own["K"]).mT
    attended = _Attend.apply(logits, own.get("values", keys))
    return (attended if Z.ndim == 3 else attended[:, 0]).to(dtype)


class _Attend(torch.autograd.Function):
    """The attended vectors ``softmax(logits) values`` of logits (n, S, T) and values (n, T, dv)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, values: Tensor) -> Tensor:
        return torch.softmax(logits, -1) @ values

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> Any:
        return _AttendGradient.apply(*ctx.saved_tensors, c)


class _AttendGradient(torch.autograd.Function):
    """Derivatives of a loss in logits and values, from the derivative ``c`` (n, S, dv) in the attended vectors.

    A second derivative must raise an error.  ``once_differentiable`` would return an incomplete one without a word: the
    logits come from PyTorch's own products, whose second derivative exists.  Every other path of a second derivative
    passes through this node, whose ``backward`` raises.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, values: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        prob = torch.softmax(logits, -1)
        top = logits.argmax(-1, keepdim=True)
        g = c @ values.mT
        # h is the loss's derivative in a token's probability, minus that of the token with the largest logit.
        h = g - g.gather(-1, top)
        r = (prob * h).sum(-1, keepdim=True)
        dlogits = (prob * (h - r)).scatter(-1, top, 0.0)
        dlogits = dlogits.scatter(-1, top, -dlogits.sum(-1, keepdim=True))
        return dlogits, prob.mT @ c

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(
            "attsvm.torch.attention can be differentiated once only: for second derivatives write "
            "torch.softmax(logits, -1) @ values"
        )


def solve_svm(X: Tensor, Z: Tensor, selected: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """The W of ``min ||W||  s.t.  (x_a - x_t)^T W z >= 1``, differentiable in the tokens and the queries.

    Parameters
    ----------
    X : (..., n, T, dk) tensor
        Tokens; leading axes are a batch of problems.
    Z : (..., n, dz) or (..., n, S, dz) tensor
        Queries.
    selected : integer (..., n) or (..., n, S), or bool (..., n, T) or (..., n, S, T)
        As in :func:`attsvm.solve_svm`.  Without the leading axes it is the same for all problems.
    **options
        ``norm``, ``C``, ``margins``, ``tol`` and ``method`` of :func:`attsvm.solve_svm`.

    Returns
    -------
    W : (..., dk, dz) tensor
    margin : (...) tensor
        The largest margin of a unit-norm W; NaN for a soft margin.

    Raises
    ------
    ValueError
        If a problem has no solution; the message has its index in the batch.  In the backward pass, if the solution has
        no derivative (:meth:`attsvm.Separation.derivative`); the message has the reason.

    Notes
    -----
    Problems are solved in double precision, one after the other.  The results have the type and the device of X.

    Examples
    --------
    >>> import torch, attsvm.torch
    >>> X = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]], dtype=torch.float64, requires_grad=True)
    >>> W, margin = attsvm.torch.solve_svm(X, torch.ones(1, 1, dtype=torch.float64), [0])
    >>> margin.backward()
    >>> X.grad[0].tolist()
    [[1.0, 0.0], [-1.0, 0.0]]
    """
    batch = X.shape[:-3]
    axes = Z.ndim - len(batch)  # number of axes of Z after its batch axes
    if X.ndim < 3 or Z.shape[: len(batch)] != batch or axes not in (2, 3):
        raise ValueError(
            f"Z must have shape (..., n, dz) or (..., n, S, dz) with X (..., n, T, dk), got {tuple(Z.shape)}"
        )
    chosen = as_array(selected) if isinstance(selected, Tensor) else np.asarray(selected)
    own = axes - 1 + (chosen.dtype.kind == "b")
    chosen = np.broadcast_to(chosen, (*batch, *chosen.shape[chosen.ndim - own :]))
    return _Solve.apply(X, Z, chosen, options)


class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, X: Any, Z: Any, chosen: np.ndarray, options: dict[str, Any]) -> Any:
        batch, ctx.like = X.shape[:-3], (X, Z)
        tokens, queries = (as_array(a.double()) for a in (X, Z))
        ctx.solutions, W, margin = {}, np.empty((*batch, X.shape[-1], Z.shape[-1])), np.empty(batch)
        for i in np.ndindex(*batch):
            sol = solve(cross_attention(tokens[i], queries[i]), chosen[i], **options)
            if sol.W is None:
                where = f"problem {i if len(i) != 1 else i[0]} of the batch: " if batch else ""
                raise ValueError(f"{where}{sol.status}: {sol.message}")
            ctx.solutions[i], W[i], margin[i] = sol, sol.W, sol.margin
        return tuple(torch.as_tensor(a).to(X) for a in (W, margin))

    @staticmethod
    def backward(ctx: Any, gW: Any, gmargin: Any) -> Any:
        found = [np.empty(a.shape) for a in ctx.like]
        for i, sol in ctx.solutions.items():
            parts = tangent_of(sol).backward(as_array(gW[i].double()), float(gmargin[i]))
            for whole, part in zip(found, parts, strict=True):
                whole[i] = part.reshape(whole[i].shape)
        return (*(torch.as_tensor(a).to(like) for a, like in zip(found, ctx.like, strict=True)), None, None)
