"""The one judge of SVM answers: every status, norm and selection, soft margins too, from the raw tokens alone.

``wrong(case, sol)`` is None or says what is wrong.  Rows are differences of the given tokens in extended precision,
where those are exact or nearly; singular values are those of double precision.  Nothing of the library is used but
the answer's attributes.  ``test_judge.py`` shows that each check can fail.
"""

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import reference

EPS = np.finfo(float).eps
LOOSEST = 2.3e-5  # 100 eps / 1e-9, rounded up: the gap that rounding excuses at most (certificate.h)
FARKAS = 1e-9  # ||A^*(lambda)||_F relative to the sum of its terms, in a proof that no W exists
MISS = 1e-9  # the part of what is asked by which a margin may fall short
SETTLED = ("optimal", "infeasible", "no constraint")
LONG = np.longdouble


class Rows(NamedTuple):
    """Row k asks ``delta[k] . W z[query[k]]`` for at least ``asked[k]``, or for just that."""

    delta: np.ndarray  # (m, dk), x_reference - x_t
    z: np.ndarray  # (M, dz)
    query: np.ndarray  # (m,)
    entry: np.ndarray  # (m,), among the entries of all windows
    equal: np.ndarray  # (m,) bool
    asked: np.ndarray  # (m,)
    rest: np.ndarray  # entries without a row: the reference tokens, and those of which nothing is asked
    length: np.ndarray  # (m,)

    def apply(self, W):
        """A(W)."""
        return (self.delta * (self.z @ W.astype(LONG).T)[self.query]).sum(axis=1)

    def products(self):
        """(m, dk dz) products delta z^T, flat."""
        m, (dk, dz) = len(self.delta), (self.delta.shape[1], self.z.shape[1])
        return np.einsum("mi,mj->mij", self.delta, self.z[self.query]).reshape(m, dk * dz).astype(float)

    def adjoint(self, multipliers):
        """A^*(lambda)."""
        pull = np.zeros((len(self.z), self.delta.shape[1]), LONG)
        np.add.at(pull, self.query, multipliers[:, None] * self.delta)
        return pull.T @ self.z

    def multipliers(self, data, shaped):
        """One for each row out of an entry-shaped array, and the largest on an entry without a row."""
        flat = np.concatenate([np.asarray(x, LONG) for x in reference.per_entry(data, shaped)])
        return flat[self.entry], np.abs(flat[self.rest]).max(initial=0)


def rows_of(case):
    """The rows of a case; an entry is a token of a window, windows one after the other."""
    data, kept = case.data, reference.selected_tokens(case.data, case.selected)
    asked = [np.where(k, 0.0, 1.0) for k in kept] if case.asked is None else reference.per_entry(data, case.asked)
    first = np.array([int(np.argmax(k)) for k in kept])
    sizes = np.array([len(k) for k in kept])
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    b = np.concatenate(asked).astype(LONG)
    row = b > -np.inf
    row[start + first] = False
    entry = np.flatnonzero(row)
    query = np.repeat(np.arange(len(kept)), sizes)[entry]
    token = data.start[query] + entry - start[query]
    keys, z = np.asarray(data.keys, LONG), np.asarray(data.queries, LONG)
    delta = keys[data.start[query] + first[query]] - keys[token]
    length = np.sqrt((delta**2).sum(axis=1)) * np.sqrt((z**2).sum(axis=1))[query]
    return Rows(delta, z, query, entry, np.concatenate(kept)[entry], b[entry], np.flatnonzero(~row), length)


def norms_of(W, norm):
    """The norm of W, or the metric, and the dual one: entries relative to the largest, whose powers stay in range."""
    largest = np.abs(W).max(initial=0)
    if not 0 < largest < np.inf:
        return LONG(largest), LONG(largest)
    V = np.abs(W / largest).ravel()
    if isinstance(norm, tuple):
        V = W / largest
        both = [np.sqrt((V * (P @ V @ R)).sum()) for P, R in (norm, map(np.linalg.inv, norm))]
    elif isinstance(norm, np.ndarray):
        both = [np.sqrt((D.ravel() * V**2).sum()) for D in (norm, 1 / norm)]
    elif norm in ("nuclear", "spectral"):
        values = np.linalg.svd((W / largest).astype(float), compute_uv=False)
        both = (values.sum(), values[0]) if norm == "nuclear" else (values[0], values.sum())
    elif norm == "max":
        both = V.max(), V.sum()
    else:
        p = LONG(2 if norm == "frobenius" else norm)
        both = (V**p).sum() ** (1 / p), (V ** (p / (p - 1))).sum() ** ((p - 1) / p)
    return largest * both[0], largest * both[1]


def norm_of(sol):
    """Or the metric."""
    return sol.norm if sol.metric is None else sol.metric


def bounds(case, sol, rows=None):
    """(least, most): ||W|| is proved to be at least `least`, and W has the norm `most` (infinite where it misses a row
    by more than rounding); of a soft margin, the same of its objective."""
    rows = rows or rows_of(case)
    lam, _ = rows.multipliers(case.data, sol.dual)
    lam = np.where(rows.equal, lam, np.maximum(lam, 0))
    lam = lam / np.abs(lam).max(initial=1e-4000) if lam.any() else lam  # no bound depends on a factor
    pull, gained = rows.adjoint(lam), rows.asked @ lam
    W = sol.W.astype(LONG) if sol.W is not None else np.zeros(pull.shape, LONG)
    size, frobenius = norms_of(W, norm_of(sol))[0], np.sqrt((W**2).sum())
    got, rounding = rows.apply(W), 4 * EPS * rows.length * frobenius
    largest = np.abs(rows.asked).max(initial=0)
    on = (np.abs(got - rows.asked) <= MISS * (rows.length * frobenius + largest))[rows.equal].all()
    if sol.C is None:
        least = (
            gained / norms_of(pull, norm_of(sol))[1] if gained > 0 and pull.any() else LONG(np.inf if gained > 0 else 0)
        )
        missed = MISS * np.abs(rows.asked) + np.minimum(1e-13 * rows.length * frobenius, MISS * largest)
        met = on and (got >= rows.asked - missed)[~rows.equal].all()
        return least, size if sol.W is not None and met else LONG(np.inf)
    # Along the ray of lambda the dual value is at most (b.lam)^2 / (2 ||A^* lam||^2 + sum lam_k^2 / C).
    soft, price = ~rows.equal, LONG(sol.C)
    short = np.maximum(rows.asked - got - rounding, 0)[soft]
    length = max(norms_of(pull, norm_of(sol))[1] - EPS * (np.abs(lam) * rows.length).sum(), LONG(0))
    below = 2 * length**2 + (lam[soft] ** 2).sum() / price
    most = size**2 / 2 + price * (short**2).sum() if on else LONG(np.inf)
    return gained**2 / below if gained > 0 and below > 0 else LONG(0), most


def interval(case, W, dual, norm):
    """Bounds of the largest margin that W, of whatever scale, and multipliers prove."""
    rows = rows_of(case)
    reached = rows.apply(W)[~rows.equal].min(initial=np.inf) if W is not None else 0
    scaled = W / reached if reached > 0 else None
    least, most = bounds(case, SimpleNamespace(W=scaled, dual=dual, norm=norm, metric=None, C=None), rows)
    with np.errstate(divide="ignore"):
        return 1 / most, 1 / least


def farkas(case, multipliers):
    """||A^*(lambda)||_F relative to the sum of its terms: zero proves that no W exists; infinite where they ask for
    nothing."""
    rows = rows_of(case)
    lam, _ = rows.multipliers(case.data, multipliers)
    if not rows.asked @ lam > 0:
        return np.inf
    return np.sqrt((rows.adjoint(lam) ** 2).sum()) / ((np.abs(lam) * rows.length).sum() or 1)


def wrong(case, sol, tol=1e-9, linprog=None):
    """What is wrong with an answer, or None.  An answer that says it is open must still have true bounds."""
    rows = rows_of(case)
    for shaped in (sol.dual, sol.certificate):
        if shaped is not None:
            lam, on_reference = rows.multipliers(case.data, shaped)
            if on_reference != 0 or not np.isfinite(lam).all() or (lam < 0)[~rows.equal].any():
                return "a multiplier has no right to be"
    held, elsewhere = rows.multipliers(case.data, sol.support)
    if elsewhere or held[rows.equal].any():
        return "support that is no margin row"
    if sol.status not in repr(sol) or not sol.gap >= 0:
        return "it does not print its status, or its gap is none"
    if sol.status == "infeasible":
        return _infeasible(case, sol, rows, linprog)
    if sol.status == "no constraint":
        idle = rows.length == 0
        asks = np.where(rows.equal, rows.asked != 0, rows.asked > 0) & ~(idle & (rows.asked <= 0))
        soft_only = sol.C is not None and not (asks & (rows.equal | ~idle)).any()
        return "there are constraints" if sol.W.any() or asks.any() and not soft_only else None
    if sol.status == "undecided":
        return "undecided, and yet there is W" if sol.W is not None and sol.C is None else None
    if sol.W is None or sol.dual is None:
        return "no W, or no multipliers" if sol.status == "optimal" else None
    return _bounds(case, sol, rows, tol) or (_possible(sol, rows, linprog) if sol.status == "optimal" else None)


def _infeasible(case, sol, rows, linprog):
    if sol.W is not None or sol.dual is not None or sol.C is None and sol.margin != 0:
        return "infeasible, and yet there is W"
    lam, _ = rows.multipliers(case.data, sol.certificate)
    if sol.C is not None and lam[~rows.equal].any():
        return "soft rows are no part of a proof"
    if not farkas(case, sol.certificate) <= 1.001 * FARKAS:
        return "the certificate proves nothing"
    if not 1 <= np.abs(lam).max() < 2:
        return "the certificate is not of order one"
    if sol.C is None and (found := _separable(rows, linprog)) is not None and found > 1e-3:
        return "a linear program separates with room"
    return None


def _bounds(case, sol, rows, tol):
    least, most = bounds(case, sol, rows)
    size = np.sqrt((sol.W.astype(LONG) ** 2).sum())
    if sol.C is None:
        # certificate_tolerance: the longest row over the margin, in the norm of the weights.
        largest = np.abs(rows.asked).max(initial=0)
        own = norms_of(sol.W.astype(LONG), norm_of(sol))[0]
        rounding = 100 * EPS * float(rows.length.max() * own / largest) if largest > 0 else 0.0
        said = (1 / least if least > 0 else np.inf, 1 / most if most > 0 else np.inf)
        told = (sol.margin_bound, sol.margin)
    else:
        rounding, said, told = 0.0, (least, most), (sol.objective_bound, sol.objective)
    allowed = max(tol, min(rounding, LOOSEST))
    if sol.status == "optimal":
        if most == np.inf:
            return "W misses a row"
        if not most <= least * (1 + 1.2 * allowed):
            return f"W has the norm {float(most)}, {float(least)} is proved, {allowed:.1e} between them is allowed"
        lam = rows.multipliers(case.data, sol.dual)[0]
        if sol.C is not None:  # whose slacks are strongly convex on either side
            missing = np.where(rows.equal, 0, np.maximum(rows.asked - rows.apply(sol.W), 0))
            off = np.abs(rows.multipliers(case.data, sol.slack)[0] - missing) - 4 * EPS * rows.length * size
            if not sol.C * (np.maximum(off, 0) ** 2).sum() <= 4 * allowed * most:
                return "slacks are not what rows fall short by"
        elif sol.norm == "frobenius":
            # Up to a factor, where multipliers would leave double precision; each is found to sqrt(2 gap), as the
            # objective is strongly convex.
            M = rows.adjoint(lam)
            apart = np.sqrt(((M / norms_of(M, "frobenius")[0] - sol.W / size) ** 2).sum()) if size > 0 else 0.0
            if not apart <= 3 * np.sqrt(allowed):
                return f"W is not A^*(dual): apart by {float(apart):.1e} of its norm"
        elif sol.norm == "max" or isinstance(sol.norm, float):
            power = 1 if sol.norm == "max" else sol.norm
            if 1e-300 < own**power < 1e300 and not abs(rows.asked @ lam / own**power - 1) <= 10 * allowed:
                return "the multipliers have not the scale of W"
    # No bound that it tells is better than W and multipliers prove, nor (of an answer) much worse.
    for its, mine, sign in zip(told, map(float, said), (1, -1) if sol.C is None else (-1, 1), strict=True):
        noise = 1e-11 + allowed / 2 + rounding
        ratio = its / mine if mine != 0 else np.copysign(np.inf, its)
        if its != mine and not -noise <= sign * (ratio - 1) <= (
            noise if sol.status == "optimal" and sol.C is None else np.inf
        ):
            return f"it tells {told}, the tokens say {tuple(map(float, said))}"
    return None


def _separable(rows, linprog):
    """The most by which margin rows of unit length can be exceeded within a box, or None where it cannot be asked."""
    m, D = len(rows.asked), rows.delta.shape[1] * rows.z.shape[1]
    if linprog is None or m * D > 250_000 or not 1e-6 < rows.length.min(initial=1) <= rows.length.max(initial=1) < 1e6:
        return None
    A = rows.products() / rows.length[:, None].astype(float)
    b, equal = (rows.asked / rows.length).astype(float), rows.equal
    signs = np.where(equal, 0.0, 1.0)
    program = linprog(
        np.r_[np.zeros(D), -1.0],
        A_ub=np.c_[-A[~equal], signs[~equal]] if (~equal).any() else None,
        b_ub=-b[~equal] if (~equal).any() else None,
        A_eq=np.c_[A[equal], signs[equal]] if equal.any() else None,
        b_eq=b[equal] if equal.any() else None,
        bounds=[(-1e7, 1e7)] * D + [(0, 1)],
        method="highs",
    )
    return -program.fun if program.status == 0 else -np.inf if program.status == 2 else None


def _possible(sol, rows, linprog):
    # The program works to 1e-7 in its box, which says something of W of moderate size alone.
    if sol.C is not None or np.abs(sol.W).max() * max(1, rows.length.max(initial=0)) >= 1e4:
        return None
    return "a linear program finds no W" if _separable(rows, linprog) == -np.inf else None
