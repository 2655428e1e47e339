"""The chance that attention can select given tokens of random sequences: Cover's theorem for attention.

For one query vector, the logits of n sequences of T Gaussian tokens form a uniformly random subspace of dimension d.  A
selection is separable if that subspace meets the interior of the product of n cones ``{y: y_1 >= y_t}``.  By the conic
kinematic formula the chance of this depends only on the intrinsic volumes of the cones.  For T = 2 it is Cover's count.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import ArrayLike

from ..common.check import as_count

REACH = 12.0  # standard deviations at which integrals over a normal variable end; the tails have mass 4e-33
# points of a numerical integral over a normal variable; half as many give the same result to 1e-14 up to T = 200
POINTS = 4001


def capacity(n: int, T: ArrayLike, dk: int, dz: int = 1) -> float:
    """The chance that given tokens of n sequences of T Gaussian tokens can be selected by some W (dk, dz).

    Parameters
    ----------
    n : int
        Sequences, each with a query vector of its own, or, with ``dz=1``, one for all.
    T : int or integer array_like (n,)
        Tokens of every sequence, or of each.
    dk, dz : int
        Dimensions of tokens and queries.

    Returns
    -------
    float
        Between 0 and 1; 1 where ``dk dz >= sum (T - 1)``.

    Raises
    ------
    ValueError
        For ``dz > 1`` with ``T - 1 > dk``, where the formula is wrong: the selected token may lie in the convex hull of
        the others, whatever the query vector (at T = 8, dk = 2, dz = 4, n = 3 the chance is .26; the formula gives
        .92).

    Notes
    -----
    With ``v_k`` the intrinsic volumes of ``{y in R^T: y_1 >= y_t}`` and ``P(t) = (sum_k v_k t^k)^n``,

        chance = 2 ([t^(nT-d+1)] + [t^(nT-d+3)] + ...) P(t),    d = dk dz,

        v_k = binom(T-1, j) A B,    j = T - k,
        A = P(the mean of j + 1 standard normal numbers exceeds k - 1 others),
        B = P(j of j + 1 standard normal numbers exceed the mean of all).

    Proved for ``dz = 1``: logits range over a uniformly random subspace, and the conic kinematic formula (Amelunxen,
    Lotz, McCoy, Tropp, "Living on the edge", 2014, theorem I) gives the chance that it meets a product of cones.  For
    ``dz > 1`` and ``T - 1 <= dk`` it is observed, not proved.  Half of all selections are separable near
    ``n = d / (T - sum_k k v_k)``.  Computed in logarithms where it is small: right to a relative 1e-9, or from 1.

    Examples
    --------
    >>> import attsvm
    >>> round(attsvm.theory.capacity(4, 2, 2), 9)  # Cover: (1 + 3) / 8
    0.5
    >>> round(attsvm.theory.capacity(9, 3, 4, 2), 2)
    0.6
    """
    n, dk, dz = as_count("n", n, 1), as_count("dk", dk, 1), as_count("dz", dz, 1)
    if np.ndim(T) and np.shape(T) != (n,):
        raise ValueError(f"T must be one length or have shape (n,) = ({n},), got {np.shape(T)}")
    lengths = np.broadcast_to([as_count("T", length, 1) for length in np.ravel(T)], (n,))
    if dz > 1 and lengths.max() - 1 > dk:
        raise ValueError(
            f"T - 1 must be at most dk = {dk} where dz > 1, got T = {lengths.max()}: the selected token may lie in the "
            "convex hull of the others, and then no W selects it"
        )
    rows, d = (lengths - 1).sum(), dk * dz
    if d >= rows:
        return 1.0
    kinds, counts = np.unique(lengths[lengths > 1], return_counts=True)
    logs = [log_volumes(k) for k in kinds]
    # The answer is twice the tail of a sum to which each sequence adds k - 1 with the chance v_k, an intrinsic volume.
    # k - 1 counts the tokens whose logits differ from the first token's, once logits are projected onto the cone.
    chance = 2 * _tail(logs, counts, rows - d + 1)
    if chance < 0.5:
        return chance
    # The sum is even with chance 1/2, odd with chance 1/2: so the answer is 1 minus twice the tail at the other end.
    return 1 - 2 * _tail([v[::-1] for v in logs], counts, d + 1)


def _tail(logs: list[np.ndarray], counts: np.ndarray, first: int) -> float:
    """The chance that a sum S of independent random integers is one of first, first + 2, first + 4, ...

    ``logs`` holds, for each kind of integer, the logarithms of the chances of 0, 1, 2, ...; ``counts`` the number of
    integers of each kind.

    The chances are tilted by e^(theta s) so that S has the mean ``first``: small tails then keep their digits in the
    Fourier transform.
    """
    low, high = 0.0, 60.0
    for _ in range(80):  # bisection for theta: with chances times e^(theta s), the mean of S grows with theta
        theta = (low + high) / 2
        grown = [v + theta * np.arange(len(v)) for v in logs]
        # for each kind of integer: their number; the chances times e^(theta s), divided by their sum; log of the sum
        parts = zip(counts.tolist(), grown, map(np.logaddexp.reduce, grown), strict=True)
        tilted = [(c, np.exp(v - log), log) for c, v, log in parts]
        mean = sum(c * (np.arange(len(p)) @ p) for c, p, _ in tilted)
        low, high = (theta, high) if mean < first else (low, theta)
    sums = sum(c * (len(p) - 1) for c, p, _ in tilted)
    size = 1 << sums.bit_length()
    transform = math.prod(np.fft.rfft(p, size) ** c for c, p, _ in tilted)
    some = np.arange(first, sums + 1, 2)
    chances = np.maximum(np.fft.irfft(transform, size)[some], 0.0)
    total = sum(c * log for c, _, log in tilted)
    # factor out e^(-theta first), the largest of the weights e^(-theta s) that undo the tilt
    return float(np.exp(total - theta * first) * (chances @ np.exp(-theta * (some - first))))


@functools.cache
def log_volumes(T: int) -> np.ndarray:
    """The logarithms of the intrinsic volumes v_1 .. v_T of the cone ``{y in R^T: y_1 >= y_t}``."""
    found = np.empty(T)
    w = np.linspace(-REACH, REACH, POINTS)
    for k in range(1, T + 1):
        j = T - k
        # above: log P(the mean of j + 1 standard normal numbers exceeds k - 1 others), which is
        # log E Phi(w / sqrt(j + 1))^(k - 1) with w standard normal
        log_below = np.log([0.5 * math.erfc(-a / math.sqrt(2 * (j + 1))) for a in w])
        above = np.logaddexp.reduce((k - 1) * log_below - w * w / 2) + math.log((w[1] - w[0]) / math.sqrt(2 * math.pi))
        found[k - 1] = math.log(math.comb(T - 1, j)) + above + log_inside(j)
    return found


@functools.cache
def log_inside(j: int) -> float:
    """log P(j of j + 1 standard normal numbers exceed the mean of all), the vertex angle of the regular j-simplex.

    The differences to the mean have correlation -1/j, so that the common variable of the textbook integral is
    imaginary: the chance is E Phi(i c w)^j with c^2 = 1 / (j + 1).  It is integrated along the line w - i t through the
    saddle point of exp(t^2 / 2) Phi(c t)^j, which for large j is near c t = -sqrt(j).  There the integrand hardly
    oscillates where it is large, so that nothing cancels.
    """
    if j == 0:
        return 0.0
    c, x = 1 / math.sqrt(j + 1), -math.sqrt(j)
    # hazard: the ratio phi(x) / Phi(x) of the normal density and distribution function, by the continued fraction of
    # Mills' ratio; 400 terms are right to rounding at x = -1, and more than needed below (half as many err by 3e-12)
    hazard = -x
    for k in range(400, 0, -1):
        hazard = -x + k / hazard
    # Phi at the complex points x + i c w, w >= 0: Phi(x) plus the integral of i c phi over w, by Simpson's rule
    w = np.linspace(0.0, 8.0 / c, 2 * POINTS - 1)
    z = x + 1j * c * w
    # all numbers are divided by phi(x) or Phi(x), so that none underflows
    ratio = np.exp((j - z * z) / 2)
    steps = (ratio[:-2:2] + 4 * ratio[1:-1:2] + ratio[2::2]) * (w[2] - w[0]) / 6
    w = w[::2]
    Phi = 1 + 1j * c * hazard * np.cumsum(np.append(0.0, steps))
    values = np.exp(j * np.log(Phi) - w * w / 2 + 1j * w * x / c).real
    total = (values.sum() - values[0] / 2) * (w[1] - w[0]) * math.sqrt(2 / math.pi)
    return math.log(total) + j * (0.5 - math.log(hazard * math.sqrt(2 * math.pi)))
