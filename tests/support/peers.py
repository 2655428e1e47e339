"""What else solves the attention SVM: each peer takes the rows and returns a W that (nearly) meets them, of any scale.

Frobenius, on the dual  min 1/2 ||A^*(x)||^2 - 1.x,  x >= 0:  DAQP (or on the weights themselves) and scikit-learn's
OneClassSVM (nu = 1/m is the hard margin) on the Gram matrix, which is part of their time; SciPy's L-BFGS-B on the
structured gradient.  Nuclear: SCS and Clarabel on the dual  max 1.x,  [I, -M; -M^T, I] >= 0,
M = A^*(x),  and the primal-dual hybrid gradient in NumPy.  Max: HiGHS on the
linear program.  Spectral: Clarabel on W and its block matrix.  First-order methods stop at an error near 3e-7, about as
far as they go; L-BFGS-B where its projected gradient is below 5e-7, which on unit rows is an error of about 5e-7,
or, by another name, below 1e-5, its default.  Soft: scikit-learn's LinearSVC with several tolerances, and a primal
Newton method in NumPy.
"""

import functools
import itertools

import clarabel
import daqp
import numpy as np
import scs
from machine import forked
from scipy import sparse
from scipy.optimize import linprog, minimize
from sklearn.svm import LinearSVC, OneClassSVM

NEAR = 3e-7
LEAST, TIMES, MOST = 0.5, 20, 20.0  # a peer is stopped after TIMES as long as attsvm, but within these seconds
KIND = {"frobenius": "fro", "nuclear": "nuc", "spectral": 2}


class Rows:
    """delta_nt = x_selected - x_t and z_n, one query and T tokens a sequence; C of a soft margin."""

    C = None

    def __init__(self, X, Z, selected):
        self.X, self.Z, self.selected = X, Z, selected
        self.others = np.arange(X.shape[1]) != selected[:, None]

    def flat(self):
        """(m, dk) differences and (m) the query of each."""
        rows = self.X[np.arange(len(self.X)), self.selected][:, None] - self.X
        return rows[self.others], np.nonzero(self.others)[0]

    @functools.cached_property
    def lengths(self):
        deltas, query = self.flat()
        return np.linalg.norm(deltas, axis=1) * np.linalg.norm(self.Z, axis=1)[query]

    def products(self, basis=None):
        """(m, dk dz) products delta z^T, flat; queries in coordinates of a basis where one is given."""
        deltas, query = self.flat()
        Z = self.Z if basis is None else self.Z @ basis
        return np.einsum("mi,mj->mij", deltas, Z[query]).reshape(len(deltas), -1)

    def gram(self):
        deltas, query = self.flat()
        return (deltas @ deltas.T) * (self.Z @ self.Z.T)[query[:, None], query]

    def adjoint(self, dual):
        c = np.zeros(self.X.shape[:2])
        c[self.others] = -dual
        c[np.arange(len(c)), self.selected] = -c.sum(axis=1)
        return np.matmul(c[:, None], self.X)[:, 0].T @ self.Z

    def margins(self, W):
        logits = np.matmul(self.X, (self.Z @ W.T)[:, :, None])[:, :, 0]
        return (logits[np.arange(len(logits)), self.selected][:, None] - logits)[self.others]

    def value(self, W, norm="frobenius"):
        """The objective of a soft margin, or the norm of the multiple of W that meets the rows."""
        margins = self.margins(W)
        if self.C is not None:
            return objective(W, 1 - margins, self.C)
        size = np.abs(W).max() if norm == "max" else np.linalg.norm(W, KIND[norm])
        return size / margins.min() if margins.min() > 0 else np.inf


class RaggedRows(Rows):
    """The same from any windows, with the differences written out."""

    def __init__(self, data, selected, C=None):
        self.Z, self.C, chosen = data.queries, C, np.concatenate([np.ravel(part) for part in selected])
        tokens = [np.delete(np.arange(a, b), k) for a, b, k in zip(data.start, data.stop, chosen, strict=True)]
        self.query = np.repeat(np.arange(len(chosen)), [len(part) for part in tokens])
        keys = data.keys.astype(np.float64)
        self.deltas = keys[(data.start + chosen)[self.query]] - keys[np.concatenate(tokens)]

    def flat(self):
        return self.deltas, self.query

    def adjoint(self, dual):
        return (dual[:, None] * self.deltas).T @ self.Z[self.query]

    def margins(self, W):
        return np.einsum("mk,mk->m", self.deltas, (self.Z @ W.T)[self.query])


# --------------------------------------------------------------------------------------------- Frobenius


def by_daqp(rows):
    gram = rows.gram()
    m = len(gram)
    none = np.full(m, 1e30)
    return rows.adjoint(daqp.solve(gram, -np.ones(m), np.eye(0, m), none, np.zeros(m), np.zeros(m, dtype=np.int32))[0])


def by_daqp_on_weights(rows):
    """min 1/2 ||w||^2  s.t.  D w >= 1, a row of D being delta z^T: what is better where rows outnumber weights."""
    D = rows.products()
    m, n = D.shape
    above, below = np.full(m, 1e30), np.ones(m)
    w = daqp.solve(np.eye(n), np.zeros(n), D, above, below, np.zeros(m, dtype=np.int32))[0]
    return np.reshape(w, (rows.X.shape[2], -1))


def by_one_class(rows):
    gram = rows.gram()
    machine = OneClassSVM(kernel="precomputed", nu=1.0001 / len(gram), tol=1e-10).fit(gram)
    dual = np.zeros(len(gram))
    dual[machine.support_] = machine.dual_coef_[0]
    return rows.adjoint(dual)


def by_lbfgs(rows, lengths=1.0, gtol=5e-7):
    m = len(rows.lengths)
    asked = np.ones(m) / lengths

    def dual_value(x):
        W = rows.adjoint(x / lengths)
        return 0.5 * (W**2).sum() - asked @ x, rows.margins(W) / lengths - asked

    options = {"maxiter": 5000, "maxfun": 10000, "ftol": 1e-16, "gtol": gtol}
    x = minimize(dual_value, 0.1 * lengths * np.ones(m), jac=True, method="L-BFGS-B", bounds=[(0, None)] * m,
                 options=options).x  # fmt: skip
    return rows.adjoint(x / lengths)


def by_lbfgs_on_unit_rows(rows, gtol=5e-7):
    return by_lbfgs(rows, rows.lengths, gtol)


# --------------------------------------------------------------------------------------------- nuclear


def triangle(rows, upper=True):
    """Queries in a basis of their span, the rows there, and where the block off the diagonal and the diagonal itself
    stand in the vector of a symmetric matrix's triangle."""
    basis = np.linalg.qr(rows.Z.T)[0]
    p, q = rows.X.shape[2], basis.shape[1]
    index = np.zeros((p + q, p + q), dtype=int)
    index[np.triu_indices(p + q)] = np.arange((p + q) * (p + q + 1) // 2)  # row by row
    if upper:  # column by column
        index.T[np.tril_indices(p + q)] = np.arange((p + q) * (p + q + 1) // 2)
    return basis, rows.products(basis), index[:p, p:].ravel(), np.diag(index)


@functools.lru_cache(maxsize=1)
def lmi(rows, upper):
    """A, b of the dual in conic form, the order of the matrix, and the weights of a solution.  Made once and not timed,
    as a modelling layer would for a peer called again and again."""
    basis, R, place, diagonal = triangle(rows, upper)
    m, size = len(R), diagonal[-1] + 1
    A = sparse.coo_matrix((np.sqrt(2) * R.ravel(), (np.tile(place, m), np.repeat(np.arange(m), len(place)))), (size, m))
    b = np.zeros(m + size)
    b[m + diagonal] = 1
    A = sparse.vstack([-sparse.eye(m), A]).tocsc()
    return A, b, len(diagonal), lambda y: np.sqrt(2) * y[m + place].reshape(-1, basis.shape[1]) @ basis.T


def by_scs(rows):
    A, b, N, weights = lmi(rows, False)
    problem = {"A": A, "b": b, "c": -np.ones(A.shape[1])}
    cones = {"l": A.shape[1], "s": [N]}
    return weights(scs.SCS(problem, cones, eps_abs=1e-6, eps_rel=1e-6, verbose=False).solve()["y"])


def clarabel_solution(c, A, b, margins, order):
    """min c.x, of which the first rows are margins and the others a triangle that is positive semidefinite."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    cones = [clarabel.NonnegativeConeT(margins), clarabel.PSDTriangleConeT(order)]
    none = sparse.csc_matrix((len(c), len(c)))
    return clarabel.DefaultSolver(none, c, A, b, cones, settings).solve()


def by_clarabel(rows):
    A, b, N, weights = lmi(rows, True)
    m = A.shape[1]
    return weights(np.array(clarabel_solution(-np.ones(m), A, b, m, N).z))


def by_pdhg(rows):
    """min ||W||_* s.t. A(W) >= 1, until the two values agree."""
    m, shape = int(rows.others.sum()), (rows.X.shape[2], rows.Z.shape[1])
    W, dual = np.zeros(shape), np.zeros(m)
    v = np.ones(m)
    for _ in range(20):
        v = rows.margins(rows.adjoint(v))
        v /= np.linalg.norm(v)
    size = np.sqrt(np.linalg.norm(rows.margins(rows.adjoint(v))))
    ratio = 2.0
    tau, sigma = ratio / size, 1 / ratio / size
    for k in range(20000):
        U, s, V = np.linalg.svd(W + tau * rows.adjoint(dual), full_matrices=False)
        new = (U * np.maximum(s - tau, 0)) @ V
        dual = np.maximum(dual + sigma * (1 - rows.margins(2 * new - W)), 0)
        W = new
        if k % 20 == 19:
            least = rows.margins(W).min()
            upper = np.maximum(s - tau, 0).sum() / least if least > 0 else np.inf
            if upper / (dual.sum() / np.linalg.norm(rows.adjoint(dual), 2)) - 1 <= NEAR:
                break
    return W


# --------------------------------------------------------------------------------------------- max and spectral


@functools.lru_cache(maxsize=1)
def max_program(rows):
    """min h  s.t.  |W_ij| <= h  and the rows, sparse; not timed, as a modelling layer would make it once."""
    R = rows.products()
    m, D = R.shape
    box = sparse.vstack([sparse.hstack([s * sparse.eye(D), -np.ones((D, 1))]) for s in (1, -1)])
    A = sparse.vstack([sparse.hstack([-R, sparse.csc_matrix((m, 1))]), box]).tocsc()
    return np.append(np.zeros(D), 1.0), A, np.repeat([-1.0, 0.0], [m, 2 * D])


def by_highs(rows):
    """Least max norm."""
    c, A, b = max_program(rows)
    bounds = [(None, None)] * (len(c) - 1) + [(0, None)]
    found = linprog(c, A_ub=A, b_ub=b, bounds=bounds, method="highs")
    return found.x[:-1].reshape(rows.X.shape[2], rows.Z.shape[1])


@functools.lru_cache(maxsize=1)
def spectral_program(rows):
    """min h  s.t.  [[h I, W], [W^T, h I]] >= 0  and the rows, in Clarabel's form, queries in their span."""
    basis, R, place, diagonal = triangle(rows)
    (m, D), N, size = R.shape, len(diagonal), diagonal[-1] + 1
    values, columns = np.repeat([-np.sqrt(2), -1.0], [D, N]), np.append(np.arange(D), np.full(N, D))
    lifted = sparse.coo_matrix((values, (np.append(place, diagonal), columns)), (size, D + 1))
    A = sparse.vstack([sparse.hstack([-R, sparse.csc_matrix((m, 1))]), lifted]).tocsc()
    return A, np.repeat([-1.0, 0.0], [m, size]), m, N, basis


def by_clarabel_spectral(rows):
    """Least spectral norm."""
    A, b, m, N, basis = spectral_program(rows)
    found = clarabel_solution(np.append(np.zeros(A.shape[1] - 1), 1.0), A, b, m, N)
    return np.array(found.x)[:-1].reshape(-1, basis.shape[1]) @ basis.T


# --------------------------------------------------------------------------------------------- soft margins


def objective(w, slack, C):
    return (w**2).sum() / 2 + C * np.square(np.maximum(slack, 0)).sum()


def by_newton(rows):
    """In the primal."""
    A, C = rows.products(), rows.C
    w, value = np.zeros(A.shape[1]), C * len(A)
    for _ in range(200):
        slack = 1 - A @ w
        B = A[slack > 0]
        gradient = w - 2 * C * (B.T @ slack[slack > 0])
        if np.linalg.norm(gradient) <= 1e-10 * (np.linalg.norm(w) + C * np.linalg.norm(B.sum(0))):
            break
        if len(B) < A.shape[1]:  # by the smaller of the two systems
            step = gradient - B.T @ np.linalg.solve(B @ B.T + np.eye(len(B)) / (2 * C), B @ gradient)
        else:
            step = np.linalg.solve(np.eye(len(w)) + 2 * C * B.T @ B, gradient)
        size = 1.0
        while (now := objective(w - size * step, slack + size * (A @ step), C)) > value - 1e-4 * size * (
            gradient @ step
        ) and size > 1e-10:
            size /= 2
        w, value = w - size * step, now
    return w.reshape(-1, rows.Z.shape[1])


def by_linear_svc(rows, tol, dual):
    A = rows.products()
    sign = np.where(np.arange(len(A)) % 2, -1.0, 1.0)  # it wants two classes
    machine = LinearSVC(C=rows.C, fit_intercept=False, tol=tol, dual=dual, max_iter=2000).fit(A * sign[:, None], sign)
    return machine.coef_.reshape(-1, rows.Z.shape[1])


# Of a peer that can be called in two ways the better one counts.
PEERS = {
    "daqp": [by_daqp, by_daqp_on_weights],
    "one class": [by_one_class],
    "l-bfgs-b": [by_lbfgs, by_lbfgs_on_unit_rows],
    "l-bfgs-b, 1e-5": [functools.partial(call, gtol=1e-5) for call in (by_lbfgs, by_lbfgs_on_unit_rows)],
    "scs": [by_scs],
    "clarabel": [by_clarabel],
    "pdhg": [by_pdhg],
    "highs": [by_highs],
    "clarabel W": [by_clarabel_spectral],
    "newton": [by_newton],
    "LinearSVC": [
        functools.partial(by_linear_svc, tol=tol, dual=dual)
        for tol, dual in itertools.product((1e-2, 1e-4, 1e-6), (False, True))
    ],
}


def beside(solve, rows, names, near, norm="frobenius"):
    """Microseconds of processor of a solve, and of the fastest of these peers that comes so near to its value; "none"
    where none does before it is stopped, and then TIMES as long."""
    best = rows().value(solve().W, norm)
    ours, _, status = forked(solve, lambda sol: sol.status, MOST)
    fastest, theirs, most = "none", min(MOST, TIMES * ours), min(MOST, max(LEAST, TIMES * ours))
    for name, call in ((peer, call) for peer in names for call in PEERS[peer]):
        took, _, off = forked(lambda call=call: call(rows()), lambda W: rows().value(W, norm) / best - 1, most)
        if not isinstance(off, str) and off <= near and (fastest == "none" or took < theirs):
            fastest, theirs, most = name, took, min(most, max(LEAST, 2 * took))
    return {"status": status, "attsvm": 1e6 * ours, "peer": fastest, fastest: 1e6 * theirs, "ratio": theirs / ours}
