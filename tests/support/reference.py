"""NumPy twins of the C kernels, written to be read: one query at a time, explicit differences, no shortcuts.

Nothing here imports attsvm or looks inside it.  Of a data object only ``keys``, ``queries``, ``start``, ``stop``
and ``values`` are read; selections, multipliers and labels come in the shapes a user gives and gets them.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
from scipy.special import log_softmax, logsumexp

# ------------------------------------------------------------------------------------ shapes


def windows(data, values=False):
    """Tokens (T_q, d) each query sees, in double precision; with ``values`` the values instead of the keys."""
    rows = np.asarray(data.values if values else data.keys, dtype=np.float64)
    return [rows[a:b] for a, b in zip(data.start, data.stop, strict=True)]


def per_query(data, shaped):
    """(n,), (n, S) or a list of (S_i,) as one number per query; None as +1."""
    if shaped is None:
        return np.ones(len(data.queries))
    return np.concatenate([np.ravel(part) for part in shaped])


def per_entry(data, shaped):
    """(n, T), (n, S, T) or a list, as one row per query, cut to what it sees: causal query k up to its token k."""
    rows = [(k, np.asarray(row)) for part in shaped for k, row in enumerate(np.atleast_2d(part))]
    seen = data.stop - data.start
    return [row[k + 1 - T : k + 1] if len(row) > T else row for (k, row), T in zip(rows, seen, strict=True)]


def selected_tokens(data, selected):
    """Which tokens of its window each query selects: a list of bool rows, whichever way it was said."""
    if np.asarray(selected[0]).dtype == bool:
        return per_entry(data, selected)
    chosen = per_query(data, selected).astype(int)
    return [np.arange(b - a) == t for t, a, b in zip(chosen, data.start, data.stop, strict=True)]


# ------------------------------------------------------------------------------------ the SVM


def svm_rows(data, selected):
    """``[(q, t, delta, z, is_equality)]`` with delta = x_ref - x_t, for every token t but the reference."""
    rows = []
    for q, (X, mask) in enumerate(zip(windows(data), selected_tokens(data, selected), strict=True)):
        ref = int(np.argmax(mask))
        rows += [(q, t, X[ref] - X[t], data.queries[q], bool(mask[t])) for t in range(len(X)) if t != ref]
    return rows


def svm_sizes(rows):
    """||delta|| ||z|| of every row, and which rows are equalities."""
    lengths = [np.linalg.norm(delta) * np.linalg.norm(z) for _, _, delta, z, _ in rows]
    return np.array(lengths), np.array([equal for *_, equal in rows], dtype=bool)


def svm_apply(rows, W):
    """A(W): delta^T W z of every row."""
    return np.array([delta @ (W @ z) for _, _, delta, z, _ in rows])


def svm_adjoint(rows, multipliers, shape):
    """A*(lambda) = sum lambda delta z^T."""
    total = np.zeros(shape)
    for weight, (_, _, delta, z, _) in zip(multipliers, rows, strict=True):
        total += weight * np.outer(delta, z)
    return total


def svm_multipliers(data, rows, dual):
    """Multipliers of the rows out of an entry-shaped dual; a negative one on a margin row counts as zero."""
    entries = per_entry(data, dual)
    values = [float(entries[q][t]) for q, t, _, _, _ in rows]
    return np.array([x if equal else max(x, 0.0) for x, (*_, equal) in zip(values, rows, strict=True)])


def matrix_norms(W, norm):
    """The norm and its dual norm of W."""
    if norm == "frobenius":
        return np.linalg.norm(W), np.linalg.norm(W)
    if norm == "max":
        return np.abs(W).max(), np.abs(W).sum()
    if isinstance(norm, float):
        return np.linalg.norm(W.ravel(), norm), np.linalg.norm(W.ravel(), norm / (norm - 1))
    sigma = np.linalg.svd(W, compute_uv=False)
    both = sigma.sum(), sigma.max()
    return both if norm == "nuclear" else both[::-1]


def certificate(data, selected, W, dual, norm):
    """Proved interval (lower, upper) of the largest margin of a unit-norm W, from the raw tokens.

    ``lower`` is the margin W / ||W|| reaches (0 when W breaks a row or leaves selected tokens apart, infinite when
    there is no row to meet), ``upper`` = ||A*(dual)||_dual / sum of the multipliers of margin rows.
    """
    rows = svm_rows(data, selected)
    (lengths, equal), lower, upper = svm_sizes(rows), 0.0, math.inf
    if W is not None:
        W = np.asarray(W)
        margins, size = svm_apply(rows, W), matrix_norms(W, norm)[0]
        # An equality is computed to a few hundred roundings of its row's length times ||W||, and no better.
        if (np.abs(margins) <= 1e-13 * lengths * np.linalg.norm(W))[equal].all():
            asked = margins[~equal]
            lower = math.inf if not asked.size else max(asked.min() / size, 0.0) if size > 0 else 0.0
    if dual is not None and not equal.all():
        weights = svm_multipliers(data, rows, dual)
        total = weights[~equal].sum()
        if total > 0:
            shape = (data.keys.shape[1], data.queries.shape[1])
            upper = matrix_norms(svm_adjoint(rows, weights, shape), norm)[1] / total
    return lower, upper


def farkas(data, selected, multipliers):
    """||A*(lambda)||_F / sum over margin rows of lambda ||delta|| ||z||: zero proves that no W exists."""
    rows = svm_rows(data, selected)
    weights, (lengths, equal) = svm_multipliers(data, rows, multipliers), svm_sizes(rows)
    shape = (data.keys.shape[1], data.queries.shape[1])
    residual = np.linalg.norm(svm_adjoint(rows, weights, shape))
    total = float((weights * lengths)[~equal].sum())
    if total > 0:
        return residual / total
    # Copies of the selected token and zero queries have rows of length zero: any multiplier on one is a proof.
    return 0.0 if (weights[~equal] > 0).any() and residual == 0 else math.inf


# ------------------------------------------------------------------------------------ attention


def dots(X, u):
    """X u one row at a time, so that equal rows give equal numbers (BLAS does not promise it)."""
    return np.array([x @ u for x in X])


def logits(data, W):
    """One row per query."""
    return [dots(X, W @ z) for X, z in zip(windows(data), data.queries, strict=True)]


def probabilities(data, W):
    return [np.exp(log_softmax(row)) for row in logits(data, W)]


def attended(data, W):
    return np.array([s @ V for s, V in zip(probabilities(data, W), windows(data, values=True), strict=True)])


def selections(data, W):
    return np.array([int(np.argmax(row)) for row in logits(data, W)])


def head_rows(data, v):
    """v of every query: one v for all (dv,), or one per query in the query shape with dv at the end."""
    if np.ndim(v[0]) == 0:
        return [np.asarray(v)] * len(data.queries)
    return list(np.concatenate([np.reshape(part, (-1, np.shape(part)[-1])) for part in v]))


def scores(data, y, v):
    """y v . value, one row per query."""
    queries = zip(windows(data, values=True), per_query(data, y), head_rows(data, v), strict=True)
    return [label * dots(V, head) for V, label, head in queries]


# ------------------------------------------------------------------------------------ the objective


def loss_value(loss, u, log_u):
    """The loss of an output u and log(-loss'(u)); log u is given because u itself may underflow."""
    if loss == "logistic":
        value = np.logaddexp(0.0, -u)
        return value, -np.logaddexp(0.0, u)
    if loss == "exponential":
        return np.exp(-u), -u
    if loss == "linear":
        return -u, 0.0
    if loss == "log":
        return -log_u, -log_u
    raise ValueError(f"no twin of the loss {loss!r}")


def softmax_pull_back(logit, score):
    """(c, log_scale): d(s.g)/dlogit = c exp(log_scale), by pairs: s_t sum_tau s_tau (g_t - g_tau).

    Each product s_t s_tau |g_t - g_tau| is kept as a logarithm, so nothing cancels and nothing underflows.
    """
    log_s = log_softmax(logit)
    difference = score[:, None] - score[None, :]
    with np.errstate(divide="ignore"):
        pairs = log_s[:, None] + log_s[None, :] + np.log(np.abs(difference))
    scale = pairs.max()
    if scale == -np.inf:
        return np.zeros_like(logit), -np.inf
    return (np.sign(difference) * np.exp(pairs - scale)).sum(axis=1), scale


def scaled_sum(parts):
    """Of arrays G exp(log_scale): the sum on the largest scale of those that are not zero, and that scale."""
    some = [(G, scale) for G, scale in parts if G.any() and scale > -np.inf]
    top = max((scale for _, scale in some), default=-np.inf)
    return sum((np.exp(scale - top) * G for G, scale in some), 0 * parts[0][0]), top


def loss_and_grad(data, y, v, loss, W):
    """Mean loss, and dL/dW as (G, log_scale) with the true gradient G exp(log_scale)."""
    total, parts = 0.0, []
    for X, z, logit, g in zip(windows(data), data.queries, logits(data, W), scores(data, y, v), strict=True):
        log_s = log_softmax(logit)
        a = int(np.argmax(logit))
        mean = g[a] + np.exp(log_s) @ (g - g[a])
        value, log_slope = loss_value(loss, mean, logsumexp(log_s, b=g) if loss == "log" else 0.0)
        total += value / len(data.queries)
        c, log_c = softmax_pull_back(logit, g)
        parts.append((-np.outer((X - X[a]).T @ c, z) / len(data.queries), log_c + log_slope))
    return total, *scaled_sum(parts)


def ridged(G, log_scale, W, ridge):
    """G exp(log_scale) + 2 ridge W."""
    return scaled_sum([(G, log_scale), (W, math.log(2 * ridge))]) if ridge else (G, log_scale)


# ------------------------------------------------------------------------------------ projections


def projection_simplex(x, total):
    """max(x - theta, 0) with the theta that makes the sum right, by trying every count of positive entries."""
    order = np.sort(x)[::-1]
    thetas = order[0] + (np.cumsum(order - order[0]) - total) / np.arange(1, len(x) + 1)
    return np.maximum(x - thetas.max(), 0.0)


def projection_ball(W, norm, radius):
    if matrix_norms(W, norm)[0] <= radius:
        return W
    if norm == "frobenius":
        return W * radius / np.linalg.norm(W)
    U, sigma, V = np.linalg.svd(W, full_matrices=False)
    return U * projection_simplex(sigma, radius) @ V


# ------------------------------------------------------------------------------------ many digits


def decimal_loss(loss, u):
    """The loss of a Decimal u and -loss'(u)."""
    if loss == "logistic":
        return (1 + (-u).exp()).ln(), 1 / (1 + u.exp())
    if loss == "exponential":
        return (-u).exp(), (-u).exp()
    if loss == "linear":
        return -u, Decimal(1)
    if loss == "log":
        return -u.ln(), 1 / u
    raise ValueError(f"no twin in decimals of the loss {loss!r}: add it to decimal_loss")


def decimal_log_excess(data, y, v, loss, W, digits=500):
    """Logarithm of the mean loss above that of each query's best token."""
    with localcontext(prec=digits):
        excess = Decimal(0)
        for u, g, *_ in decimal_queries(data, y, v, W):
            excess += decimal_loss(loss, u)[0] - decimal_loss(loss, max(g))[0]
        return float((excess / len(data.queries)).ln())


def decimal_queries(data, y, v, W):
    """Of each query, as Decimals: output, scores, attention, tokens and the query itself."""
    number = np.frompyfunc(lambda x: Decimal(float(x)), 1, 1)
    W, labels, heads = number(W), per_query(data, y), head_rows(data, v)
    for q, (X, V) in enumerate(zip(windows(data), windows(data, values=True), strict=True)):
        X, z, g = number(X), number(data.queries[q]), number(V) @ number(heads[q]) * Decimal(float(labels[q]))
        logit = X @ (W @ z)
        e = np.array([(x - max(logit)).exp() for x in logit])
        s = e / e.sum()
        yield s @ g, g, s, X, z


def decimal_gradient(data, y, v, loss, W, digits=60):
    """Mean loss and gradient as arrays of Decimal: exponents without limit, so nothing underflows or is scaled."""
    with localcontext(prec=digits):
        total = Decimal(0)
        gradient = np.full((data.keys.shape[1], data.queries.shape[1]), Decimal(0))
        M = len(data.queries)
        for u, g, s, X, z in decimal_queries(data, y, v, W):
            value, slope = decimal_loss(loss, u)
            total += value / M
            c = np.array([s[t] * (s @ (g[t] - g)) for t in range(len(s))])
            gradient = gradient - slope / M * np.outer(X.T @ c, z)
        return total, gradient


def decimal_ratio(G, log_scale, exact, digits=60):
    """max |G exp(log_scale) - exact| / max |exact|, for a gradient far outside the range of double precision."""
    with localcontext(prec=digits):
        scale = Decimal(float(log_scale)).exp()
        largest = max(abs(x) for x in exact.flat)
        errors = [abs(Decimal(float(x)) * scale - e) for x, e in zip(G.flat, exact.flat, strict=True)]
        return float(max(errors) / largest)
