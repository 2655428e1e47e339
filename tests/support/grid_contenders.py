"""One contender of bench_grid.py in a process of its own: for every row it reads, the same steps by another library.

    python grid_contenders.py NAME        then lines of JSON: [kind, n, T, d, steps]

A kind says what moves: "W", "KQ" (factors), "runs" (RUNS weights at once), or W by a rule ("sign", "spectral", "mirror"
with p = 3, "adam").  "single" is W with tokens in single precision, "causal" W where every token is a query.  Constant
steps on W go with another output head: "mlp" with HIDDEN neurons, "quadratic", four attention "heads", or "trained",
where v moves, too.  A line with steps = 0 sets the row up.  Its answer is the first weights after FEW steps, by which
all are seen to do the same work (null: takes no part).  The answer to any other line is the processor time of that
many steps on one thread.  All compute in float64, on the logistic loss, with steps of length LR.
"""

import functools
import json
import math
import sys
import time
from types import SimpleNamespace

import numpy as np

FEW, RUNS, LR, HIDDEN, LAM = 4, 32, 0.1, 8, 0.1
OTHER_HEADS = ("heads", "mlp", "quadratic", "trained")
BETA_1, BETA_2 = 0.9, 0.999


def draw(kind, n, T, d):
    """Tokens, queries, scores y v . x, and the start: W, (K, Q) or the W of all runs."""
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((n, T, d)) / math.sqrt(d), rng.standard_normal((n, d)) / math.sqrt(d)
    X = X.astype(np.float32) if kind == "single" else X
    y, v = rng.choice([-1.0, 1.0], (n, T) if kind == "causal" else n), rng.standard_normal(d)
    stack = {"KQ": (2,), "runs": (RUNS,), "heads": (4,)}.get(kind, ())
    start = rng.standard_normal((*stack, d, d)) / math.sqrt(d)
    V, a = rng.standard_normal((d, HIDDEN)) / math.sqrt(d), rng.standard_normal(HIDDEN)
    scores = (y if y.ndim > 1 else y[:, None]) * (X @ v)
    return SimpleNamespace(X=X, Z=Z, y=y, v=v, V=V, a=a, scores=scores, start=start)


def attsvm_run(row, kind):
    import attsvm

    data = attsvm.causal_attention(row.X) if kind == "causal" else attsvm.cross_attention(row.X, row.Z)
    head = {"mlp": attsvm.MLPHead(row.V, row.a), "quadratic": attsvm.QuadraticHead(row.v, LAM)}.get(kind)
    heads = 4 if kind == "heads" else None
    problem = attsvm.Problem(data, row.y, head or attsvm.LinearHead(row.v), heads=heads)
    options = dict(lr=LR, record=0)
    if kind in OTHER_HEADS:
        options |= dict(rule="constant", train_head=kind == "trained")
    if kind == "KQ":
        K, Q = row.start

        def factors(steps):
            run = attsvm.train(problem, K=K, Q=Q, steps=steps, **options)
            return np.stack([run.K, run.Q])

        return factors
    options |= {"runs": dict(runs=RUNS), "mirror": dict(rule=attsvm.rules.mirror(p=3.0))}.get(kind, {})
    options |= dict(rule=kind) if kind in ("sign", "spectral", "adam") else {}
    return lambda steps: attsvm.train(problem, row.start, steps=steps, **options).W


def step_of(kind, xp, svd):
    """(state, gradient function, step number from 1) to the next state, for libraries with NumPy's names."""

    def unit(G):
        return G / xp.sqrt((G * G).sum())

    def step(state, gradient, k):
        if kind == "KQ":
            K, Q = state
            G = gradient(K @ Q.T)
            return K - LR * unit(G @ Q), Q - LR * unit(G.T @ K)
        if kind == "trained":
            return tuple(x - LR * g for x, g in zip(state, gradient(tuple(state)), strict=True))
        (W, *means), G = state, gradient(state[0])
        if kind in OTHER_HEADS:
            return (W - LR * G,)
        if kind == "adam":
            m, v = BETA_1 * means[0] + (1 - BETA_1) * G, BETA_2 * means[1] + (1 - BETA_2) * G * G
            return W - LR * (m / (1 - BETA_1**k)) / xp.sqrt(v / (1 - BETA_2**k)), m, v
        if kind == "sign":
            return (W - LR * xp.sign(G),)
        if kind == "spectral":
            U, _, V = svd(G)
            return (W - LR * U @ V,)
        if kind == "mirror":  # p = 3, q = 3/2
            D = G / (xp.abs(G) ** 1.5).sum() ** (1 / 1.5)
            u = xp.sign(W) * W**2 - LR * D
            return (xp.sign(u) * xp.sqrt(xp.abs(u)),)
        return (W - LR * unit(G),)

    return step


def states_of(row, kind):
    """Of each run."""
    zero = np.zeros_like(row.start)
    several = {"KQ": tuple(row.start), "adam": (row.start, zero, zero), "trained": (row.start, row.v)}
    return [(W,) for W in row.start] if kind == "runs" else [several.get(kind, (row.start,))]


def jax_run(row, kind):
    """The whole run as one jitted loop; several runs by vmap.  Causal: by its own derivatives."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    move = step_of(kind, jnp, lambda G: jnp.linalg.svd(G, full_matrices=False))

    def gradient(W, X, Z, scores):
        s = jax.nn.softmax(jnp.einsum("ntd,nd->nt", X, Z @ W.T), axis=1)
        u = (s * scores).sum(1)
        c = -jax.nn.sigmoid(-u)[:, None] * s * (scores - u[:, None])
        return jnp.einsum("nt,ntd->nd", c, X).T @ Z / len(X)

    def causal_loss(W, X, y, v):
        logits = jnp.einsum("ntd,de,nse->nst", X, W, X)
        logits = jnp.where(jnp.tril(jnp.ones(logits.shape[1:], bool)), logits, -jnp.inf)
        return jax.nn.softplus(-y * (jax.nn.softmax(logits, axis=2) @ (X @ v)[:, :, None])[:, :, 0]).mean()

    def head_loss(weights, X, Z, y, v, V, a):
        W, v = weights if kind == "trained" else (weights, v)
        U = jnp.einsum("nd,...ed->...ne", Z, W)
        o = jnp.einsum("...nt,ntd->...nd", jax.nn.softmax(jnp.einsum("ntd,...nd->...nt", X, U)), X)
        o = o.sum(0) if kind == "heads" else o
        value = jax.nn.relu(o @ V) @ a if kind == "mlp" else o @ v - LAM * (kind == "quadratic") * (o * o).sum(-1)
        return jax.nn.softplus(-y * value).mean()

    gradient, names = (jax.grad(causal_loss), "X y v") if kind == "causal" else (gradient, "X Z scores")
    if kind in OTHER_HEADS:
        gradient, names = jax.grad(head_loss), "X Z y v V a"

    @jax.jit
    def run(steps, states, *data):
        def one(state):
            def step(k, state):
                return move(state, lambda W: gradient(W, *data), k + 1.0)

            return jax.lax.fori_loop(0, steps, step, state)

        return jax.vmap(one)(states)

    states = tuple(np.stack(part) for part in zip(*states_of(row, kind), strict=True))
    data = [jnp.asarray(vars(row)[name]) for name in names.split()]
    return lambda steps: np.stack(run(steps, states, *data)[: 2 if kind == "KQ" else 1])


def torch_run(row, kind):
    import torch

    if kind in (*OTHER_HEADS, "single"):
        return None
    torch.set_num_threads(1)
    X, Z, y, v, scores = map(torch.from_numpy, (row.X, row.Z, row.y, row.v, row.scores))
    move = step_of(kind, torch, lambda G: torch.linalg.svd(G, full_matrices=False))

    def gradient(W):
        if kind == "causal":
            W = W.detach().requires_grad_()
            o = torch.nn.functional.scaled_dot_product_attention(X @ W.T, X, X, is_causal=True, scale=1.0)
            return torch.autograd.grad(torch.nn.functional.softplus(-y * (o @ v)).mean(), W)[0]
        s = torch.softmax(torch.bmm(X, (Z @ W.T)[:, :, None])[:, :, 0], dim=1)
        u = (s * scores).sum(1)
        c = -torch.sigmoid(-u)[:, None] * s * (scores - u[:, None])
        return torch.bmm(c[:, None, :], X)[:, 0].T @ Z / len(X)

    def run(steps):
        found = []
        for state in states_of(row, kind):
            state = tuple(map(torch.from_numpy, state))
            for k in range(1, steps + 1):
                state = move(state, gradient, k)
            found.append(torch.stack(state[: 2 if kind == "KQ" else 1]).numpy())
        return np.concatenate(found)

    return run


@functools.cache
def numba_functions():
    """The gradient by loops that become vectors, and a run on W, on one thread."""
    import numba

    @numba.njit(fastmath=True, error_model="numpy")
    def gradient(W, X, Z, scores):
        n, T, d = X.shape
        P, U, s = np.empty((n, d)), Z @ W.T, np.empty(T)
        for q in range(n):
            top, total, u = -np.inf, 0.0, 0.0
            for t in range(T):
                sum_ = 0.0
                for k in range(d):
                    sum_ += X[q, t, k] * U[q, k]
                s[t] = sum_
                top = max(top, sum_)
            for t in range(T):
                s[t] = math.exp(s[t] - top)
                total += s[t]
                u += s[t] * scores[q, t]
            u /= total
            slope = -1 / (1 + math.exp(u)) / (n * total)
            for k in range(d):
                P[q, k] = 0.0
            for t in range(T):
                c = slope * s[t] * (scores[q, t] - u)
                for k in range(d):
                    P[q, k] += c * X[q, t, k]
        return P.T @ Z

    @numba.njit(error_model="numpy")
    def descend(W, steps, X, Z, scores):
        for _ in range(steps):
            G = gradient(W, X, Z, scores)
            W = W - LR / np.sqrt((G * G).sum()) * G
        return W

    return gradient, descend


def numba_run(row, kind):
    if kind in (*OTHER_HEADS, "causal"):
        return None
    gradient, descend = numba_functions()
    if kind in ("W", "runs", "single"):
        states = [state[0] for state in states_of(row, kind)]
        return lambda steps: np.stack([descend(W, steps, row.X, row.Z, row.scores) for W in states])
    move = step_of(kind, np, lambda G: np.linalg.svd(G, full_matrices=False))

    def run(steps):
        (state,) = states_of(row, kind)
        for k in range(1, steps + 1):
            state = move(state, lambda W: gradient(np.ascontiguousarray(W), row.X, row.Z, row.scores), k)
        return np.stack(state[: 2 if kind == "KQ" else 1])

    return run


CONTENDERS = {
    "attsvm": attsvm_run,
    "JAX": jax_run,
    "JAX 0.4.31": jax_run,
    "PyTorch": torch_run,
    "numba, loops": numba_run,
}


def main():
    make, run = CONTENDERS[sys.argv[1]], None
    for line in sys.stdin:
        kind, n, T, d, steps = json.loads(line)
        if steps == 0:
            if (run := make(draw(kind, n, T, d), kind)) is None:
                print("null", flush=True)
                continue
            first = np.asarray(run(FEW)).ravel()
            print(json.dumps([float(np.linalg.norm(first)), *map(float, first[:8])]), flush=True)
            continue
        begin = time.process_time()
        run(steps)
        print(json.dumps(time.process_time() - begin), flush=True)


if __name__ == "__main__":
    main()
