"""The SVM over a vocabulary (whose keys are the identity matrix), reduced to classes of tokens and solved by Newton's
method."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ..attention.data import Data
from ..attention.selection import Selection
from ..common.norms import of_values
from .cycle import equal_rows
from .request import Answer, Request

OUTWARDS = 2.0**-50  # both bounds of the margin are widened by this fraction, for rounding in the keys and in W


class Vocabulary:
    """An SVM over a vocabulary, reduced to one token for each class; tokens are in one class if the same queries select
    them.

    Exchanging two tokens of a class changes neither the rows nor the norm, so some solution gives them the same weights
    w_k.  With n_k tokens in class k and ``W'_k = n_k^(1/p) w_k`` the norm stays, ``||W'|| = ||W||``.  The keys are
    ``e_k / n_k^(1/p)``.  p is the exponent of an entrywise norm, infinite for the max norm, and 2 for every norm of the
    singular values.
    """

    def __init__(self, data: Data, request: Request):
        selection = request.selection.within(data)
        self.reference, chosen = selection.reference, selection.flags(data).reshape(len(data), data.dk)
        # one row of bits per token: which queries select it
        self.first, self.class_of, self.count = equal_rows(np.packbits(chosen, axis=0).T)
        singular, p = of_values(request.norm)
        self.scale = self.count ** (-1 / (2.0 if singular else p))
        layout: Any = replace(data._layout, lengths=np.full(len(data), len(self.first)))
        self.data = Data(data._name, np.diag(self.scale), data.queries, None, layout)
        self.chosen = chosen[:, self.first]  # (M, K) which classes each query selects
        selected = self.class_of[self.reference] if selection.kept is None else self.chosen
        self.request = replace(request, selection=Selection(self.data, selected), dual=None, W=None)

    def back(self, answer: Any) -> Answer:
        """Expands an answer for classes to all tokens: the tokens of a class share its multipliers and have the same
        weights."""
        K, every = len(self.first), np.arange(len(self.reference))
        classes = answer.dual.reshape(-1, K).copy()
        # the multiplier of a query's reference class makes the sum over the query zero
        classes[every, self.request.selection.reference] = -classes.sum(axis=1)
        dual = (classes / self.count)[:, self.class_of]
        dual[every, self.reference] = 0
        q, k = divmod(answer.entry, K)
        return answer._replace(
            W=(self.scale[:, None] * answer.W)[self.class_of],
            dual=dual.ravel(),
            lower=answer.lower * (1 - OUTWARDS),
            upper=answer.upper * (1 + OUTWARDS),
            entry=q * len(self.class_of) + self.first[k] if answer.entry >= 0 else -1,
        )


# First weight sigma of the penalty in the augmented Lagrangian, and the factor by which sigma grows.
# With a growth factor of 2, a solve with 50,000 tokens, 1,000 contexts of ten labels and d = 64 took 134 steps.
# With a growth factor of 10, Newton's steps became short and many.
SIGMA, GROWTH = 5.0, 2.0
# The penalty sigma grows only if the gap falls to no less than this fraction of the last gap.
# With a fraction of 0.1, sigma grew until rounding dominated on tight problems.
CONVERGING = 0.3
# Largest number of Newton steps per update of the multipliers, and of updates in a row without a better bound.
STEPS, STALLED = 60, 10
ROUNDING = 1e-14  # a minimum is reached when the gradient is below this fraction of the multipliers
# line search: stop when the slope is below FLAT times the initial slope, or after TRIES evaluations
FLAT, TRIES = 0.2, 12
STIFF = 1e8  # penalty sigma of the projection of W onto the equality rows, which is applied twice
# stop as infeasible at this relative residual of the certificate, a hundredth of the residual that C accepts
CONTRADICTION = 1e-11
# largest number of elements in all matrices of a Newton step: 0.8 GB, and up to three times as much in temporaries
LARGEST = 1e8


def solve_levels(vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray, int, BaseException | None]:
    """Solves the SVM over classes of tokens by Newton's method.  Returns the weights of each class; the multiplier of
    every entry (context, class); the number of steps; and the exception that interrupted it, or None.

    It ends when the gap is below half of the request's ``tol``, when no W exists, after ``max_iter`` steps (0: no
    limit), or without further progress.  C certifies the answer later.

    Its unknowns are the levels: the level of a context is the highest logit that a token which the context does not
    select may have.  The contexts are the queries, of which none is zero.
    """
    problem, request = _Problem(vocabulary), vocabulary.request
    sigma, gap, best, stalled = SIGMA, math.inf, (True, math.inf), 0
    W, y = problem.W, problem.y
    exception: BaseException | None = None
    try:
        while stalled < STALLED:
            more = problem.minimise(sigma, request.max_iter)
            lower, upper, contradiction, met = problem.bounds()
            last, gap = gap, upper / lower - 1 if lower > 0 else math.inf
            if request.report is not None:
                request.report(problem.steps, gap)
            state, stalled = (lower == 0, gap if lower > 0 else upper), stalled + 1
            if state < best:
                best, stalled = state, 0
                W, y = met, problem.y
            if not more or gap <= request.tol / 2 or contradiction:
                break
            sigma *= 1 if gap < CONVERGING * last else GROWTH
    except KeyboardInterrupt as interrupt:
        exception = interrupt
    # Newton's method ends here if 1 / sigma is lost to rounding, or if too many rows are active for memory.
    except (np.linalg.LinAlgError, MemoryError):
        pass
    return W, (problem.balanced(y) / problem.length).T, problem.steps, exception


class _Problem:
    def __init__(self, vocabulary: Vocabulary):
        contexts = vocabulary.data.queries
        self.length = np.linalg.norm(contexts, axis=1)
        self.Z, self.b = contexts / self.length[:, None], self.length.min() / self.length
        self.gram = self.Z @ self.Z.T
        self.selected, self.n = np.ascontiguousarray(vocabulary.chosen.T), vocabulary.count.astype(np.float64)
        self.reference = vocabulary.chosen.argmax(axis=1)
        # The level t of each context starts at the highest logit of its unselected tokens: few rows are then active.
        self.W = self.selected @ (self.Z - self.Z.mean(axis=0))
        self.t = np.where(self.selected, -np.inf, self.W @ self.Z.T).max(axis=0)
        self.t[np.isinf(self.t)] = 0.0  # a context that selects every token starts at level 0
        self.y = np.zeros(self.selected.shape)
        self.steps = 0

    def minimise(self, sigma: float, most: int) -> bool:
        """Minimises the augmented Lagrangian with the penalty ``sigma`` and updates the multipliers.  Returns whether
        to continue."""
        u = self._cut(self._uncut(sigma))
        for _ in range(STEPS):
            g, h = self.W + u @ self.Z, -(self.n @ u)
            if self._inner(g, g) + h @ h <= ROUNDING**2 * self._inner(u, u):
                break
            active = self.selected | (u > 0)
            step = self._direction(active, sigma, g, h) if self.steps != most or most == 0 else None
            if step is None:
                self.y = u
                return False
            length = self._length(*step, sigma, self._inner(g, step[0]) + h @ step[1])
            self.W, self.t, self.steps = self.W + length * step[0], self.t + length * step[1], self.steps + 1
            u = self._cut(self._uncut(sigma))
            if length == 1 and np.array_equal(self.selected | (u > 0), active):
                break
        self.y = u
        return True

    def bounds(self) -> tuple[float, float, bool, np.ndarray]:
        """Returns, for rows that must reach b: the lower bound of the margin; its upper bound; whether the multipliers
        show that no W exists; and W projected onto the equality rows, which reaches the lower bound."""
        dual = self.balanced(self.y)
        pull = math.sqrt((((dual @ self.Z) ** 2).sum(axis=1) / self.n).sum())
        # (K,) for each class, the multipliers of its margin rows times the margins b asked of these rows, summed
        weight = np.where(self.selected, 0.0, dual) @ self.b
        # met: the weights nearest to W that give all tokens which a context selects the same logit
        met, t = self.W, self.t
        for _ in range(2):
            u = STIFF * np.where(self.selected, met @ self.Z.T - t - self.b, 0.0)
            step = self._direction(self.selected, STIFF, u @ self.Z, -(self.n @ u))
            if step is not None:
                met, t = met + step[0], t + step[1]
        logits = met @ self.Z.T
        top = np.where(self.selected, -np.inf, logits).max(axis=0)
        least = ((np.where(self.selected, logits, np.inf).min(axis=0) - top) / self.b).min()
        lower = max(least, 0.0) / math.sqrt(self._inner(met, met))
        upper = pull / weight.sum() if weight.sum() > 0 else math.inf
        return lower, upper, lower == 0 and pull <= CONTRADICTION * (weight @ self.n**-0.5), met

    def balanced(self, y: np.ndarray) -> np.ndarray:
        """The multipliers of all entries (class, context); the multiplier of a context's reference class makes the sum
        over the context zero."""
        dual = self.n[:, None] * y
        dual[self.reference, np.arange(len(self.Z))] -= dual.sum(axis=0)
        return dual

    def _inner(self, A: np.ndarray, B: np.ndarray) -> float:
        """The sum of the products of entries of A and B, in which a class counts once for each of its tokens."""
        return self.n @ np.einsum("ki,ki->k", A, B)

    def _uncut(self, sigma: float) -> np.ndarray:
        return self.y + sigma * (self.W @ self.Z.T - self.t - self.selected * self.b)

    def _cut(self, u: np.ndarray) -> np.ndarray:
        return np.maximum(u, 0.0, out=u, where=~self.selected)

    def _direction(
        self, active: np.ndarray, sigma: float, g: np.ndarray, h: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Newton's step (dW, dt) for the weights W and the levels t, one level for each context; None if too many rows
        are active for memory."""
        M, along, right, parts = len(h), g @ self.Z.T, -h, []
        sizes = active.sum(axis=1)
        if (sizes**2).sum() > LARGEST:
            return None
        S = np.zeros(M * M)
        for size in np.unique(sizes[sizes > 0]):
            k = np.flatnonzero(sizes == size)
            a, k = active[k].nonzero()[1].reshape(len(k), size), k[:, None]
            C = self.gram[a[:, :, None], a[:, None, :]]
            C[:, np.arange(size), np.arange(size)] += 1 / sigma
            C = np.linalg.inv(C)
            np.add.at(S, (a[:, :, None] * M + a[:, None, :]).ravel(), (self.n[k, None] * C).ravel())
            np.add.at(right, a.ravel(), -(self.n[k] * np.einsum("kij,kj->ki", C, along[k, a])).ravel())
            parts.append((k, a, C))
        dt = np.linalg.solve(S.reshape(M, M), right)
        du = np.zeros(active.shape)
        for k, a, C in parts:
            du[k, a] = np.einsum("kij,kj->ki", C, along[k, a] + dt[a])
        return du @ self.Z - g, dt

    def _length(self, dW: np.ndarray, dt: np.ndarray, sigma: float, slope: float) -> float:
        """Line search: a step length at which the derivative of the augmented Lagrangian along the step is nearly 0
        compared with its initial value, or 1 if it is still negative there.  The derivative grows along the step."""
        linear, square = self._inner(self.W, dW), self._inner(dW, dW)
        start, du = self._uncut(sigma), sigma * (dW @ self.Z.T - dt)
        low, high, below, above, length = 0.0, 1.0, slope, 0.0, 1.0
        for _ in range(TRIES):
            u = self._cut(start + length * du)
            here = linear + length * square + self._inner(u, du) / sigma
            if abs(here) <= FLAT * abs(slope) or (here < 0 and length == 1):
                break
            if here < 0:
                low, below = length, here
            else:
                high, above = length, here
            length = low + (high - low) * min(max(below / (below - above), 0.05), 0.95)
        return length
