"""Random problems, initial weights, and tests of how a training ended, which several figures share."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy import ndarray

from .. import LinearHead, Problem, Run, Separation, correlation, cross_attention, sample, solve_svm
from ..common.types import Loss, Norm
from ..plot.curves import SATURATED
from ..plot.curves import correlations as correlations
from ..theory import conditions as theory
from .textbook import TIGHT, locally_optimal, support_margins

# The size of most random problems: sequences, tokens in each, and dimension.
# Every selection is separable, since D >= max(N, T - 1).
N, T, D = 6, 8, 10
# Largest number of problems that are drawn until a figure accepts one. The most selective figure accepts one in fifty.
DRAWS = 10_000
# A measured share may differ this much from its reference in a claim; the reference comes from 400 runs or more.
# A 95 % interval of a share is +-.05 for 400 runs, and +-.11 for the 80 runs of --quick.
ALLOWED = 0.18


def draws() -> Iterator[int]:
    """Iterates DRAWS times, for a loop that ends when a random problem is accepted; then raises an error."""
    yield from range(DRAWS)
    raise RuntimeError(f"none of {DRAWS:,} random problems was accepted")


def sphere_problem(rng: np.random.Generator, n: int = N, T: int = T, d: int = D) -> Problem:
    """A random problem: tokens, queries and head uniform on the unit sphere, labels fair coins, logistic loss."""
    X, Z, y, v = sample.unit_sphere(n, T, d, rng)
    return Problem(cross_attention(X, Z), y, LinearHead(v))


def one_scored(rng: np.random.Generator, loss: Loss = "logistic") -> Problem:
    """A random problem on the unit sphere in which one random token of each sequence has score 1, and all others 0."""
    X, Z, _, _ = sample.unit_sphere(N, T, D, rng)
    scores = np.arange(T) == rng.integers(T, size=N)[:, None]
    return Problem(cross_attention(X, Z, scores.astype(float)[..., None]), None, LinearHead([1.0]), loss)


def linear_layer(rng: np.random.Generator, *shape: int) -> ndarray:
    """A random array, distributed as the weights of a new linear layer of PyTorch with ``shape[-1]`` inputs."""
    bound = 1 / np.sqrt(shape[-1])
    return rng.uniform(-bound, bound, shape)


def ending(run: Run, norm: Norm) -> dict[str, bool]:
    """Flags that say how a run ended: "global" on the optimal tokens, "local" on other locally optimal ones, or
    "neither".

    "neither" is true if attention has not saturated, if the selection is not separable, or if a support token scores
    more than the selected one, so that training will leave the selection.  "proved" is true if run.limit() proves that
    the selection stays; it is false for factors.
    """
    best, local = saturated(run) and on_best(run), False
    if saturated(run) and not best:
        solution = svm_of(run, norm)
        local = solution.W is not None and theory.is_locally_optimal(run.problem, solution)
    return {
        "global": best,
        "local": local,
        "neither": not best and not local,
        "proved": norm == "frobenius" and run.limit().status == "proved",
    }


def svm_of(chosen: Run | Problem, norm: Norm = "frobenius", **how: Any) -> Separation:
    """The SVM of the tokens that a run selects at its end, or of the optimal tokens of a problem."""
    return solve_svm(chosen.data, chosen.selected if isinstance(chosen, Run) else chosen.optimal, norm, **how)


def log_spaced(first: int, last: int, count: int, rounding: Any = np.floor) -> ndarray:
    """At most ``count`` different steps from ``first`` to ``last``, evenly spaced on a logarithmic axis."""
    return np.unique(rounding(np.geomspace(first, last, count)).astype(int))


def saturated(run: Run) -> bool:
    """Whether every query of a run gives nearly all of its attention to one token at the end."""
    return bool((run.probabilities.max(axis=-1) > SATURATED).all())


def on_best(run: Run) -> bool:
    """Whether a run selects the optimal token for every query."""
    return bool((run.selected == run.problem.optimal).all())


def flat(found: Any, name: str = "") -> dict[str, Any]:
    """The numbers in nested mappings, by the keys that lead to them, joined by spaces.

    A list of mappings with the same names gives each name one array of the numbers of all mappings.
    """
    if isinstance(found, list) and isinstance(found[0], dict):
        rows = list(map(flat, found))
        found = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
    if not isinstance(found, dict):
        return {name: found}
    return {key: x for word, part in found.items() for key, x in flat(part, f"{name} {word}".lstrip()).items()}


def columns(names: Iterable[Any], values: ndarray) -> Iterator[tuple[Any, ndarray]]:
    """Pairs each name with its part (runs, ...) of the values (runs, names, ...)."""
    return zip(names, np.swapaxes(values, 0, 1), strict=True)


def to_svm(W: ndarray, solution: Separation) -> float:
    """The correlation of weights W with the W of an SVM solution, NaN if the SVM has none."""
    return np.nan if solution.W is None else correlation(W, solution.W)


def differs(problem: Problem, solution: Separation) -> bool:
    """Whether the package and NumPy disagree on whether a selection is locally optimal, or on whether all its rivals
    are support tokens."""
    if (W := solution.W) is None:
        return False
    chosen = solution.selection.reference
    margins = support_margins(problem.data, chosen, W)
    tight = ((margins <= 1 + TIGHT) | np.isinf(margins)).all()
    found = theory.is_locally_optimal(problem, solution), theory.all_tight(solution)
    return (locally_optimal(problem, chosen, W), tight) != found


def around(value: float) -> tuple[float | None, float | None]:
    """Returns claimed bounds of a share, ALLOWED below and above a reference value; a bound that excludes nothing is
    None."""
    low, high = value - ALLOWED, value + ALLOWED
    return (low if low > 0 else None, high if high < 1 else None)
