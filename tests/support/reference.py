"""NumPy twins of the C kernels, written to be read: one query at a time, explicit differences, no shortcuts.

Nothing here imports attsvm or looks inside it.  Of a data object only ``keys``, ``queries``, ``start``, ``stop``
and ``values`` are read; selections, multipliers and labels come in the shapes a user gives and gets them.
"""

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


def head_value(head, o, q=0):
    """Value and gradient of a head (kind, v, a, lam) at one attended vector."""
    kind, v, a, lam = head
    if kind == "mlp":
        before = v.T @ o
        return a @ np.maximum(before, 0), v @ (a * (before > 0))
    if kind == "classes":  # a: the class of each query
        log_p = log_softmax(v.T @ o)
        return log_p[a[q]], v[:, a[q]] - v @ np.exp(log_p)
    v = v if v.ndim == 1 else v[q]
    return v @ o - lam * (o @ o), v - 2 * lam * o


def combined(data, W, combine):
    """o_q (M, d) of the weights (H, dk, dz)."""
    heads = [attended(data, one) for one in W]
    return np.sum(heads, axis=0) if combine == "sum" else np.concatenate(heads, axis=1)


def logit_gradients(data, y, head, loss, W, combine="sum"):
    """Mean loss, and of each attention head and query (c, log_scale): that of its own loss in its logits is
    c exp(log_scale).

    With the scores of a step: g_t = y <d head(o) / d o^h, value_t>.
    """
    y, M, dv = per_query(data, y), len(data.queries), data.values.shape[1]
    O, rows = combined(data, W, combine), [logits(data, one) for one in W]  # noqa: E741
    total, found = 0.0, [[] for _ in W]
    for q, V in enumerate(windows(data, values=True)):
        value, gradient = head_value(head, O[q], q)
        log_u = logsumexp(log_softmax(rows[0][q]), b=dots(V, y[q] * gradient)) if loss == "log" else 0.0
        part, log_slope = loss_value(loss, y[q] * value, log_u)
        total += part / M
        for h, pairs in enumerate(found):
            g = gradient if combine == "sum" else gradient[h * dv : (h + 1) * dv]
            c, scale = softmax_pull_back(rows[h][q], dots(V, y[q] * g))
            pairs.append((-c, scale + log_slope))
    return total, found


def loss_and_gradients(data, y, head, loss, W, combine="sum"):
    """``(loss, G, log_scale)``: the gradient in the weights (H, dk, dz) is ``G[h] * exp(log_scale[h])``."""
    total, found = logit_gradients(data, y, head, loss, W, combine)
    gradients = []
    for one, pairs in zip(W, found, strict=True):
        queries = zip(windows(data), logits(data, one), data.queries, pairs, strict=True)
        parts = [
            (np.outer((X - X[np.argmax(row)]).T @ c, z) / len(found[0]), scale) for X, row, z, (c, scale) in queries
        ]
        gradients.append(scaled_sum(parts))
    return total, *map(np.array, zip(*gradients, strict=True))


def loss_and_grad(data, y, v, loss, W):
    """Of a linear head: mean loss, and dL/dW as (G, log_scale) with the true gradient G exp(log_scale)."""
    head = "linear", np.array(head_rows(data, v)), None, 0.0
    total, G, log_scale = loss_and_gradients(data, y, head, loss, W[None])
    return total, G[0], log_scale[0]


def head_gradients(data, y, head, loss, W, combine="sum"):
    """``(gradients, log_scale)`` in the head's own parameters: of v; of V and a; or of v and lam.

    dL/dp = 1/M sum_q loss'(u_q) y_q d head(o_q)/dp is ``gradients * exp(log_scale)``.
    """
    kind, v, a, lam = head
    y, O = per_query(data, y), combined(data, W, combine)  # noqa: E741
    dv, rest = np.zeros_like(v), np.zeros_like(a) if kind == "mlp" else np.zeros(1)
    slopes = [loss_value(loss, y[q] * head_value(head, o)[0], 0.0)[1] for q, o in enumerate(O)]
    for o, label, slope in zip(O, y, slopes, strict=True):
        c = -math.exp(slope - max(slopes)) * label / len(O)
        if kind == "mlp":
            before = v.T @ o
            dv += c * np.outer(o, a * (before > 0))
            rest += c * np.maximum(before, 0)
        else:
            dv += c * o
            rest -= c * (o @ o)
    return [dv] if kind == "linear" else [dv, rest], max(slopes)


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
    if np.linalg.norm(W, {"nuclear": "nuc"}.get(norm)) <= radius:
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


def decimal_log_excess(data, y, v, loss, W):
    """Logarithm of the mean loss above that of each query's best token."""
    with localcontext(prec=500):
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


def decimal_ratio(G, log_scale, exact):
    """max |G exp(log_scale) - exact| / max |exact|, for a gradient far outside the range of double precision."""
    with localcontext(prec=60):
        scale = Decimal(float(log_scale)).exp()
        largest = max(abs(x) for x in exact.flat)
        errors = [abs(Decimal(float(x)) * scale - e) for x, e in zip(G.flat, exact.flat, strict=True)]
        return float(max(errors) / largest)
