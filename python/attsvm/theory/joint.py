"""Joint training of head and attention: the SVM of the labels, and the margins that it leaves to attention."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..attention.data import check_data
from ..attention.kinds import prompt_attention
from ..attention.selection import Selection
from ..common.check import as_norm, check_type
from ..common.types import Norm
from ..svm.separation import Separation
from ..svm.solve import solve_svm
from ..training.problem import Problem


def label_svm(problem: Problem, selected: ArrayLike | None = None, norm: Norm = "frobenius") -> Separation:
    """The SVM of the labels: the least-norm output head v that predicts them from the selected tokens by margins of 1.

    It is ``min ||v|| s.t. y v . x_a >= 1`` for the label y and the value x_a of the selected token of each query.

    A linear head that is trained together with attention goes to this direction, once attention has selected these
    tokens.

    Parameters
    ----------
    problem : Problem
    selected : integer array_like in the data's query shape, optional
        One token per query; those with the highest score under the problem's head by default.
    norm : {"frobenius"} or float p > 1
        The lp norm of v; p goes with mirror descent.

    Returns
    -------
    Separation
        Its ``W`` is v (dv, 1); ``dual`` and ``support`` (M, 2) have their second column for the queries.

    Raises
    ------
    ValueError, TypeError
        As :func:`solve_svm`.

    Notes
    -----
    Source: "Max-Margin Token Selection in Attention Mechanism" (Tarzanagh, Li, Zhang, Oymak, 2023).

    Examples
    --------
    >>> data = attsvm.prompt_attention([[[0, 0], [1, 1]], [[0, 0], [1, -1]], [[0, 0], [0.5, 1.5]]])
    >>> problem = attsvm.Problem(data, [1, -1, 1], attsvm.LinearHead([0, 1]))
    >>> svm = attsvm.theory.label_svm(problem)
    >>> print(svm.W.ravel(), svm.support[:, 1])
    [0. 1.] [ True  True False]
    """
    check_type("problem", problem, Problem)
    norm, data = as_norm("norm", norm), problem.data
    check_data("the data of problem", data)
    if norm == "nuclear":
        raise ValueError("norm must be 'frobenius' or a number p > 1: v is a vector, whose nuclear norm is no other")
    selection = Selection(data, problem.optimal if selected is None else selected)
    if selection.kept is not None:
        raise TypeError("selected must be one token per query, got bools")
    chosen = data.values[data.start + selection.within(data).reference]
    signed = problem._labels[:, None] * chosen
    # Each window holds the label times the value, and a zero token; its margin row is the label times the value.
    pairs = prompt_attention(np.stack([signed, np.zeros_like(signed)], axis=1))
    return solve_svm(pairs, [0] * len(signed), norm)


def relaxed_margins(problem: Problem, selected: ArrayLike | None = None) -> Any:
    """The margins that attention must reach if the head is trained: 1 for the head's support queries, 0 for all others.

    The support queries are those of the head's own SVM, :func:`label_svm`.

    A query whose label the head predicts by more than its margin needs no sharp attention.  Where head and attention
    are trained at one speed, attention goes to the relaxed SVM, ``solve_svm(data, selected, margins=...)`` with these.

    Parameters
    ----------
    problem : Problem
    selected : integer array_like in the data's query shape, optional
        As in :func:`label_svm`.

    Returns
    -------
    array or list, in the data's entry shape

    Raises
    ------
    ValueError, TypeError
        As :func:`label_svm`, and where no v separates the labels.

    Notes
    -----
    Source: "Max-Margin Token Selection in Attention Mechanism" (Tarzanagh, Li, Zhang, Oymak, 2023).

    Examples
    --------
    >>> data = attsvm.prompt_attention([[[0, 0], [1, 1]], [[0, 0], [1, -1]], [[0, 0], [0.5, 1.5]]])
    >>> problem = attsvm.Problem(data, [1, -1, 1], attsvm.LinearHead([0, 1]))
    >>> margins = attsvm.theory.relaxed_margins(problem)
    >>> print(attsvm.solve_svm(data, problem.optimal).W.ravel())
    [1.25 0.25]
    >>> print(attsvm.solve_svm(data, problem.optimal, margins=margins).W.ravel())
    [1. 0.]
    """
    svm = label_svm(problem, selected)
    if svm.W is None:
        raise ValueError(f"selected must be tokens whose labels some v separates: {svm.message}")
    data = problem.data
    return data._layout.shape_entries(np.repeat(svm.support[:, 1].astype(np.float64), data.lengths))
