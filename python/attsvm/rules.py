"""Update rules of :func:`attsvm.train`, as records of a rule with its parameters: ``rule=attsvm.rules.mirror(p=3)``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from .common.check import as_choice, as_number
from .common.types import MetricLike, Norm

__all__ = [
    "UpdateRule",
    "adagrad",
    "adam",
    "constant",
    "mirror",
    "normalized",
    "normalized_jointly",
    "polyak",
    "shampoo",
    "sign",
    "spectral",
]

Word: TypeAlias = Literal[
    "normalized", "normalized jointly", "constant", "polyak", "mirror", "sign", "spectral", "adam", "adagrad", "shampoo"
]


FIRST = 0.1  # default Frobenius length of a step for tokens and queries of length one, as in the papers' experiments


@dataclass(frozen=True)
class UpdateRule:
    """An update rule and its parameters, made by the functions of this module; ``train(rule="adam")`` means ``adam()``.

    Attributes
    ----------
    word : str
        Its name, ``Run.rule``.
    norm : str or float
        The norm whose SVM the rule goes to.  For a rule with ``squares``, or in a metric, the metric decides instead.
    squares : {"", "entries", "sides"}
        The squares of gradients that the rule keeps: none, those of the entries, or ``G G^T`` and ``G^T G``.
    p : float
        Exponent of "mirror".
    target_loss : float or None
        Of "polyak".
    betas : pair of float or None
        Of "adam".
    eps : float
        Of "adam", "adagrad" and "shampoo".
    metric : D (dk, dz), tuple of P (dk, dk) and R (dz, dz), or None
        Of "normalized" and "constant".

    Examples
    --------
    >>> import attsvm
    >>> attsvm.rules.adam(betas=(0.9, 0.99)).betas
    (0.9, 0.99)
    """

    word: str
    norm: Norm = "frobenius"
    squares: str = ""
    p: float = 2.0
    target_loss: float | None = None
    betas: tuple[float, float] | None = None
    eps: float = 0.0
    metric: Any = None

    @property
    def turns(self) -> str:
        """The transform of the gradient in the first step: "signs", "polar" (its polar factor), or "" (none)."""
        turns = {"max": "signs", "entries": "signs", "spectral": "polar", "sides": "polar"}
        return turns.get(self.squares or str(self.norm), "")

    def length(self, dk: int, dz: int) -> float:
        """The Frobenius length of a step with lr = 1 on W (dk, dz); the default learning rate is computed from it.

        The steps of AdaGrad and Shampoo shrink like 1 / sqrt(k).  For them it is the length of step 100: by default
        their first steps are ten times as long as those of other rules, and 2,000 steps go about as far.
        """
        whole = math.sqrt({"signs": dk * dz, "polar": min(dk, dz)}.get(self.turns, 1))
        return whole / 10 if self.squares and self.betas is None else whole

    def default_rate(self, dk: int, dz: int, factors: bool, total: float, share: float) -> np.ndarray:
        """The default learning rate for W (dk, dz) or its factors, as an array of shape (1, 1): ``0.1 / s`` for a rule
        whose steps have length 1, with the scale s of the data.

        ``s^2 = total / share``: ``total`` is half the mean squared length of the queries' rows, where a query that sees
        one token counts as 0, and ``share`` is the fraction of queries that see several tokens.  The rate is divided by
        the length of the rule's steps, and rules whose steps depend on the gradient's size have another power of s.

        s is rounded to a power of two, so that it is exactly 1 for tokens and queries of length one.  For data s times
        as large, W becomes 1/s times as large and its gradient s times as large.  With this rate every rule then goes
        through the same attention.
        """
        rate = FIRST / self.length(dk, dz)
        if 0 < total < math.inf:  # if all tokens are equal, or all queries are zero, W does not move
            # The exponent of 1/s in the learning rate; each of two factors K and Q scales as the square root of W.
            exponent = {"constant": 2.0, "mirror": self.p - 1}.get(self.word, 1.0) / (2.0 if factors else 1.0)
            rate *= 2.0 ** (-exponent * round(math.log2(total / share) / 2))
        return np.array([[rate]])


def normalized(metric: MetricLike | None = None) -> UpdateRule:
    """Steps of length ``lr`` along the gradient G: ``W <- W - lr * G / ||G||_F``; K and Q have norms of their own.

    Parameters
    ----------
    metric : D (dk, dz) array_like, or tuple of P (dk, dk) and R (dz, dz), optional
        Gradient descent in this metric (see :func:`attsvm.solve_svm`): the direction is ``G / D`` or ``P^-1 G R^-1``
        instead of G, and the norm is the dual norm of the metric.  With the ``metric`` of a run of Adam, AdaGrad or
        Shampoo, started from its W, it is the same optimiser with its memory frozen.

    Examples
    --------
    >>> import attsvm
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    >>> run = attsvm.train(problem, rule="adagrad", steps=100)
    >>> attsvm.train(problem, run.W, rule=attsvm.rules.normalized(run.metric), steps=100).rule
    'normalized'
    """
    return UpdateRule("normalized", metric=metric)


def normalized_jointly() -> UpdateRule:
    """Steps of length ``lr`` along the gradient, where the gradients of all matrices are divided by their common norm.

    Examples
    --------
    >>> import attsvm
    >>> attsvm.rules.normalized_jointly().word
    'normalized jointly'
    """
    return UpdateRule("normalized jointly")


def constant(metric: MetricLike | None = None) -> UpdateRule:
    """Plain gradient descent with the gradient G: ``W <- W - lr * G``.

    Parameters
    ----------
    metric : as in :func:`normalized`

    Examples
    --------
    >>> import attsvm
    >>> import numpy as np
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    >>> halved = attsvm.rules.constant(metric=np.full((10, 10), 2.0))
    >>> short = attsvm.train(problem, rule=halved, lr=1.0, steps=1)
    >>> bool(np.allclose(short.W, attsvm.train(problem, rule="constant", lr=0.5, steps=1).W))
    True
    """
    return UpdateRule("constant", metric=metric)


def polyak(target_loss: float | None = None) -> UpdateRule:
    """The step ``(L - target_loss) / (2 ||G||^2) * G``, at most of length ``lr``, for the loss L and its gradient G.

    G is the gradient in all matrices together.

    Parameters
    ----------
    target_loss : float, optional
        The loss at which the steps end; by default the loss with every query on its optimal token.  For a fixed linear
        head without ridge in one process, the loss above this target is then computed as a logarithm,
        however small it is.

    Examples
    --------
    >>> import attsvm
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    >>> attsvm.train(problem, rule=attsvm.rules.polyak(target_loss=0.69)).status
    'target reached'
    """
    return UpdateRule("polyak", target_loss=None if target_loss is None else as_number("target_loss", target_loss))


def mirror(p: float = 2.0) -> UpdateRule:
    """Mirror descent with the potential ``||W||_p^p / p``, which goes to the lp SVM; each matrix has its own step.

    The step is taken in ``sign(W) |W|^(p-1)`` instead of W.  It is ``lr`` times the gradient divided by its lq norm,
    where ``1/p + 1/q = 1``.

    Parameters
    ----------
    p : float > 1
        With p = 2 this is the rule :func:`normalized`.

    Examples
    --------
    >>> import attsvm
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    >>> attsvm.train(problem, rule=attsvm.rules.mirror(p=3), steps=100).p
    3.0
    """
    return UpdateRule("mirror", p=as_number("p", p, above=1.0))


def sign() -> UpdateRule:
    """The step ``lr * sign(G)`` for the gradient G; entries whose gradient is 0 stay.

    Examples
    --------
    >>> import attsvm
    >>> attsvm.rules.sign().norm
    'max'
    """
    return UpdateRule("sign", "max")


def spectral() -> UpdateRule:
    """Muon: the step ``lr * U V^T`` for the gradient ``U diag(s) V^T``, over singular values s above rounding.

    Examples
    --------
    >>> import attsvm
    >>> attsvm.rules.spectral().norm
    'spectral'
    """
    return UpdateRule("spectral", "spectral")


def adam(betas: tuple[float, float] = (0.9, 0.999), eps: float = 0.0) -> UpdateRule:
    """The step ``lr * m / (sqrt(v) + eps)``, with weighted means m of the gradients and v of their squares.

    Parameters
    ----------
    betas : pair of float in [0, 1)
        The fractions of m and of v that a step keeps.
    eps : float
        In units of the gradient; 0: entries whose gradient has always been 0 stay, and no gradient is too small.

    Examples
    --------
    >>> import attsvm
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    >>> attsvm.train(problem, rule=attsvm.rules.adam(betas=(0.9, 0.99)), steps=100).metric.shape
    (10, 10)
    """
    if not isinstance(betas, (tuple, list, np.ndarray)) or len(betas) != 2:
        raise ValueError(f"betas must be a pair of numbers in [0, 1), got {betas!r}")
    first, second = (as_portion(f"betas[{i}]", beta) for i, beta in enumerate(betas))
    return UpdateRule("adam", squares="entries", betas=(first, second), eps=as_number("eps", eps, least=0.0))


def adagrad(eps: float = 0.0) -> UpdateRule:
    """The step ``lr * D / (sqrt(v) + eps)``, with the gradient D and the sum v of the squares of all gradients so far.

    With ``momentum``, D is the ``m`` of :func:`attsvm.train` instead of the gradient.

    Parameters
    ----------
    eps : float
        As in :func:`adam`.

    Examples
    --------
    >>> import attsvm
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    >>> attsvm.train(problem, rule=attsvm.rules.adagrad(eps=1e-8), steps=100).status
    'completed'
    """
    return UpdateRule("adagrad", squares="entries", eps=as_number("eps", eps, least=0.0))


def shampoo(eps: float = 0.0) -> UpdateRule:
    """The step ``lr * L^(-1/4) D R^(-1/4)`` for the gradient D, with sums L of ``G G^T`` and R of ``G^T G``.

    The sums go over the gradients G of all steps so far; each matrix has sums of its own.  With ``momentum``, D is the
    ``m`` of :func:`attsvm.train` instead of the gradient.

    Parameters
    ----------
    eps : float
        ``eps^2 I`` is added to L and R; 0: directions whose gradient has always been 0 stay.

    Examples
    --------
    >>> import attsvm
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    >>> attsvm.train(problem, rule=attsvm.rules.shampoo(eps=1e-8), steps=100).status
    'completed'
    """
    return UpdateRule("shampoo", squares="sides", eps=as_number("eps", eps, least=0.0))


def as_portion(name: str, value: Any) -> float:
    """The value as a float; raises unless it lies in [0, 1)."""
    number = as_number(name, value, least=0.0)
    if number >= 1:
        raise ValueError(f"{name} must be below 1, got {number:g}")
    return number


MAKERS = (normalized, normalized_jointly, constant, polyak, mirror, sign, spectral, adam, adagrad, shampoo)
BY_WORD = {rule.word: rule for rule in (make() for make in MAKERS)}


def as_rule(value: Any) -> UpdateRule:
    """The update rule as a record; a word stands for the rule of this name with its default parameters."""
    return value if isinstance(value, UpdateRule) else BY_WORD[as_choice("rule", value, BY_WORD)]
