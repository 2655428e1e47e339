"""Derivatives of an answer with respect to its tokens and queries, in forward and in reverse mode.

If every row either has slack or a positive multiplier (strict complementarity), the support does not change when the
tokens move a little, and the answer solves smooth equations.  With the support rows ``r_k = (x_a - x_t) z^T``, their
multipliers y and ``M = sum y_k r_k`` these are

    <r_k, W> + y_k / (2 C) = b_k        the rows; the second term only for margin rows of a soft margin
    W = phi(M)                          stationarity, in the coordinates that the norm leaves free

Their derivative is one linear system for (dW, dy); its right side is the change of the rows by dX and dZ.  The
derivative of the margin needs no system: ``d(||W||^2 / 2) = - sum_k y_k <dr_k, W>`` (the envelope theorem).
"""

from typing import Any, NamedTuple

import numpy as np

from ..common.check import as_floats, is_ragged
from ..common.norms import conjugate, of_values
from .separation import Separation
from .support import products, pulls

# A row (constraint) is in the support if its multiplier times its size is above HOLDS times the largest such product.
# A row is not in the support if its slack is above HOLDS times the largest margin asked.
# A row of small multiplier and small slack may enter or leave the support; then there is no derivative.
HOLDS = 1e-6
# Largest accepted condition number of the linear system: about six digits of its solution are then right.
MOST_CONDITION = 1e10
# Newton steps that refine the answer before it is differentiated: a gap of 1e-9 fixes W only to about 5e-5.
STEPS = 3


Pair = tuple[np.ndarray, np.ndarray]


class Rows(NamedTuple):
    """The support rows ``r_k = (x_a - x_t) z^T`` of an SVM answer, with the margins asked of them and their
    multipliers."""

    query: np.ndarray  # (m,)
    chosen: np.ndarray  # (m,) index of the selected token a in the keys
    token: np.ndarray  # (m,) index in the keys of the token t that is compared with a
    delta: np.ndarray  # (m, dk) x_a - x_t
    z: np.ndarray  # (m, dz)
    asked: np.ndarray  # (m,) b
    soft: np.ndarray  # (m,) added to the Gram diagonal: 1 / (2 C) on margin rows with penalty C, else 0
    multiplier: np.ndarray  # (m,) y

    def apply(self, W: np.ndarray) -> np.ndarray:
        """<r_k, W> for every row k."""
        return np.einsum("ki,ij,kj->k", self.delta, W, self.z, optimize=True)

    def adjoint(self, y: np.ndarray) -> np.ndarray:
        """sum y_k r_k."""
        return (y[:, None] * self.delta).T @ self.z


class Tangent:
    """The derivative of an SVM answer: the linear map from changes (dX, dZ) of tokens and queries to changes (dW,
    dmargin), and its adjoint."""

    def __init__(self, sol: Separation):
        self.data = sol.data
        rows = _holding_rows(sol)
        self.W, y, self._solve = _SYSTEMS.get(sol.norm, _entrywise)(sol, rows)
        self.rows = rows._replace(multiplier=y)
        # A change dr_k of each row r_k changes the margin by margin^3 sum_k y_k <dr_k, W>, with y_k its multiplier.
        # The multipliers must add up to ||W||^2, weighted by the margins asked, for this derivative of the margin.
        self._dmargin = sol.margin**3

    def forward(self, dX: np.ndarray, dZ: np.ndarray) -> tuple[np.ndarray, float]:
        """The derivatives dW (dk, dz) and dmargin in the direction dX of the keys and dZ of the queries."""
        rows = self.rows
        changes = rows._replace(delta=dX[rows.chosen] - dX[rows.token]), rows._replace(z=dZ[rows.query])
        moved = sum(change.apply(self.W) for change in changes)
        dW, _ = self._solve(sum(change.adjoint(rows.multiplier) for change in changes), -moved)
        return dW, float(self._dmargin * (rows.multiplier @ moved))

    def backward(self, gW: np.ndarray, gmargin: float) -> Pair:
        """The gradients of ``<gW, W> + gmargin * margin`` with respect to the keys and the queries."""
        rows, y = self.rows, self.rows.multiplier
        A, mu = self._solve(gW, np.zeros(len(y)))  # the system is symmetric
        pull = mu if gmargin == 0 else mu + gmargin * self._dmargin * y
        on_delta = y[:, None] * (rows.z @ A.T) + pull[:, None] * (rows.z @ self.W.T)
        on_z = y[:, None] * (rows.delta @ A) + pull[:, None] * (rows.delta @ self.W)
        gX, gZ = np.zeros(self.data.keys.shape), np.zeros(self.data.queries.shape)
        np.add.at(gX, rows.chosen, on_delta)
        np.subtract.at(gX, rows.token, on_delta)
        np.add.at(gZ, rows.query, on_z)
        return gX, gZ


def tangent_of(sol: Separation) -> Tangent:
    """The derivative of an SVM answer, computed on the first call and then kept with the answer."""
    if "_tangent" not in vars(sol):
        vars(sol)["_tangent"] = Tangent(sol)
    return vars(sol)["_tangent"]


def _holding_rows(sol: Separation) -> Rows:
    """The support rows of an SVM answer; raises ValueError if the answer has no derivative, as when a small move of the
    tokens may change which rows these are."""
    if sol.status != "optimal":
        raise ValueError(f"the derivative is that of an optimal answer, got one that is {sol.status!r}: {sol.message}")
    if not sol.W.any():
        raise ValueError("the derivative needs weights that are held by rows, got W = 0")
    kind = "a metric" if sol.metric is not None else "the spectral norm" if sol.norm == "spectral" else None
    if kind is not None:
        raise ValueError(f"derivatives in {kind} are not implemented: solve again with the tokens moved")
    if sol.data._identity or sol.method == "working set":
        raise ValueError("the derivative needs the tokens of all rows in one process")
    data, selection = sol.data, sol.selection
    query, chosen, token = data._rows_of(selection.reference)
    asked = selection.asked(np.arange(len(query)))
    equal = selection.flags(data) & (token != chosen) & (asked > -np.inf)
    holds = equal | (pulls(sol, np.arange(len(query))) > HOLDS)
    soft = np.where(equal, 0.0, 0.5 / (sol.C or np.inf))
    slack = sol.flat_margins + soft * sol.flat_dual - asked  # infinite where there is no row
    unsure = np.flatnonzero(~holds & (slack < HOLDS * selection.largest))
    if len(unsure):
        q = query[unsure[0]]
        raise ValueError(
            f"the answer has no derivative: token {token[unsure[0]] - data.start[q]} of query {q} is on the "
            "margin with no multiplier, so that the support may change either way"
        )
    query, chosen, token, asked, soft, y = (part[holds] for part in (query, chosen, token, asked, soft, sol.flat_dual))
    if sol.C is None:
        # scale the multipliers y so that their sum, weighted by the margins asked, is ||W||^2 = 1 / margin^2
        y = y / (sol.margin**2 * (asked @ y))
    return Rows(query, chosen, token, data._differences(chosen, token), data.queries[query], asked, soft, y)


def _inverse(K: np.ndarray, nullity: int = 0) -> np.ndarray:
    """The inverse of a symmetric matrix, or its pseudo-inverse if its null space is known to have the dimension
    ``nullity``."""
    values, vectors = np.linalg.eigh(K)
    order = np.argsort(np.abs(values))[nullity:]
    values, vectors = values[order], vectors[:, order]
    if len(values) and np.abs(values).min() * MOST_CONDITION < np.abs(values).max():
        raise ValueError(
            "the answer has no derivative: the rows that hold it depend on each other, so that they may stop to meet "
            "when one moves"
        )
    return (vectors / values) @ vectors.T


def _entrywise(sol: Separation, rows: Rows) -> Any:
    """For an entrywise norm, where W is the gradient of ``||M||_q^2 / 2`` at M, the sum of the support rows times their
    multipliers y: W, y, and a function that solves the linear system for their changes (dW, dy).

    The gradient is ``||M||^(2-q) sign(M) |M|^(q-1)``, with q the conjugate exponent.  It is M for the Frobenius norm,
    where the matrix of the system is the Gram matrix of the support rows.
    """
    q, y = conjugate(of_values(sol.norm)[1]), rows.multiplier
    if sol.norm == "frobenius":
        inverse = _inverse((rows.delta @ rows.delta.T) * (rows.z @ rows.z.T) + np.diag(rows.soft))
        y = inverse @ rows.asked
        W = rows.adjoint(y).ravel()
        scale, slope = 1.0, np.zeros_like(W)
    else:
        dense = products(rows.delta, rows.z)  # (m, dk dz): each row as a flat vector
        for _ in range(STEPS):
            M = rows.adjoint(y).ravel()
            length = np.linalg.norm(M, q)
            unit = np.abs(M) / length
            if q < 2 and unit.min() < HOLDS:
                raise ValueError(
                    "the answer has no derivative: an entry of W is 0, where the norm has no second derivative"
                )
            W = length * np.sign(M) * unit ** (q - 1)
            # the Hessian of ||M||_q^2 / 2 with respect to the entries of M is diag(scale) + (2 - q) slope slope^T
            scale, slope = (q - 1) * unit ** (q - 2), W / length
            curved = dense * scale + (2 - q) * np.outer(dense @ slope, slope)
            inverse = _inverse(curved @ dense.T)
            y = y + inverse @ (rows.asked - dense @ W)

    def bend(P: np.ndarray) -> np.ndarray:
        flat = P.ravel()
        return (scale * flat + (2 - q) * slope * (slope @ flat)).reshape(P.shape)

    def solve(P: np.ndarray, s: np.ndarray) -> Pair:
        dy = inverse @ (s - rows.apply(bend(P)))
        return bend(P + rows.adjoint(dy)), dy

    return W.reshape(sol.W.shape), y, solve


def _nuclear(sol: Separation, rows: Rows) -> Any:
    """For the nuclear norm, where ``W = A B^T`` with factors of full column rank: W, the multipliers y of the support
    rows, and a function that solves the linear system for their changes (dW, dy).

    The factors satisfy ``A = M B / h`` and ``B = M^T A / h``, with ``M = sum y_k r_k`` and h the nuclear norm of W.
    """
    (dk, dz), m, r = sol.W.shape, len(rows.asked), sol.rank or 0
    U, sizes, Vt = np.linalg.svd(sol.W)
    A, B = U[:, :r] * np.sqrt(sizes[:r]), Vt[:r].T * np.sqrt(sizes[:r])
    h = sizes[:r].sum()
    y = rows.multiplier / h

    def step(on_A: np.ndarray, on_B: np.ndarray, on_rows: np.ndarray) -> Any:
        """Solves the linear system of a Newton step, or of the derivative, for the changes of the factors A and B of
        ``W = A B^T`` and of the multipliers y."""
        dA, dB, dy = np.split(inverse @ np.concatenate([on_A.ravel(), on_B.ravel(), on_rows]), [dk * r, (dk + dz) * r])
        return dA.reshape(A.shape), dB.reshape(B.shape), dy

    for _ in range(STEPS):
        M = rows.adjoint(y)
        N, L, R = -np.kron(M, np.eye(r)), -products(rows.delta, rows.z @ B), -products(rows.z, rows.delta @ A)
        K = np.block([[np.eye(dk * r), N, L.T], [N.T, np.eye(dz * r), R.T], [L, R, np.zeros((m, m))]])
        inverse = _inverse(K, r * (r - 1) // 2)  # null space: the same rotation of A and B leaves A B^T as it is
        dA, dB, dy = step(M @ B - A, M.T @ A - B, rows.apply(A @ B.T) - rows.asked)
        A, B, y = A + dA, B + dB, y + dy
    if r < min(dk, dz) and np.linalg.svd(rows.adjoint(y), compute_uv=False)[r] > 1 - HOLDS:
        raise ValueError("the answer has no derivative: its rank may grow when a token moves")

    def solve(P: np.ndarray, s: np.ndarray) -> Pair:
        dA, dB, dy = step(P @ B / h, P.T @ A / h, -s)
        return dA @ B.T + A @ dB.T, h * dy

    return A @ B.T, h * y, solve


def _max(sol: Separation, rows: Rows) -> Any:
    """For the max norm: W, the multipliers y of the support rows, and a function that solves the linear system for
    their changes (dW, dy).

    Let M be the sum of the support rows times their multipliers, and h the norm of W.  Where an entry of M is not zero,
    the entry of W is h times its sign.

    The answer is a vertex: there are as many rows as unknowns (h and the entries of W where M is zero).
    """
    M = rows.adjoint(rows.multiplier)
    free = (np.abs(M) <= HOLDS * np.abs(M).max()).ravel()
    # W = places @ u: column k marks the entries that unknown u_k sets (a free entry of W; the last unknown is h)
    places = np.zeros((M.size, free.sum() + 1))
    places[free, :-1] = np.eye(free.sum())
    places[~free, -1] = np.sign(M).ravel()[~free]
    J = products(rows.delta, rows.z) @ places
    if J.shape[0] != J.shape[1] or np.linalg.cond(J) > MOST_CONDITION:
        raise ValueError("the answer has no derivative: the rows that hold it do not meet in one vertex")
    u = np.linalg.solve(J, rows.asked)
    y = np.linalg.solve(J.T, np.eye(len(u))[-1]) * u[-1]

    def solve(P: np.ndarray, s: np.ndarray) -> Pair:
        return (places @ np.linalg.solve(J, s)).reshape(M.shape), -np.linalg.solve(J.T, places.T @ P.ravel())

    return (places @ u).reshape(M.shape), y, solve


_SYSTEMS = {"nuclear": _nuclear, "max": _max}


def as_moves(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Reads the changes dX or dZ into an array with one row per token or query; zeros for None."""
    if value is None:
        return np.zeros(shape)
    if is_ragged(value):
        value = np.concatenate([np.reshape(part, (-1, shape[1])) for part in value])
    array = np.asarray(value)
    if array.ndim < 2 or array.shape[-1] != shape[1] or array.size != np.prod(shape):
        raise ValueError(
            f"{name} must have the shape of what it moves, {shape[0]} vectors of {shape[1]}, got {array.shape}"
        )
    return as_floats(name, array.reshape(shape), "N, d")
