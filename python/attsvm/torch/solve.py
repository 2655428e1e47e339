"""The attention SVM as a layer of a PyTorch model: its solution, differentiable in tokens and queries."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..attention.kinds import cross_attention
from ..svm.solve import solve_svm as solve
from .batch import as_array


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
            parts = sol.tangent.backward(as_array(gW[i].double()), float(gmargin[i]))
            for whole, part in zip(found, parts, strict=True):
                whole[i] = part.reshape(whole[i].shape)
        return (*(torch.as_tensor(a).to(like) for a, like in zip(found, ctx.like, strict=True)), None, None)
