"""One contender of bench_train.py in a process of its own: it sets itself up, then runs once for every line it reads.

    python train_contenders.py NAME n T d causal steps threads

Every contender takes the same normalised steps of length 0.1 on the logistic loss, from W = 0, in float64.  First the
process prints the first weights after a few steps, so that all can be seen to do the same work; after that, for every
line read, the seconds of a run.  Each imports its own package alone: thread pools do not meet, and JAX of two versions
can be measured side by side.
"""

from __future__ import annotations

import json
import math
import sys
import time

import numpy as np

FEW = 5  # before the naive gradient loses digits


def draw(n, T, d, causal):
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((n, T, d)) / math.sqrt(d), rng.standard_normal((n, d)) / math.sqrt(d)
    return X, Z, rng.choice([-1.0, 1.0], (n, T) if causal else n), rng.standard_normal(d)


def attsvm_contender(X, Z, y, v, causal, threads):
    import attsvm

    attsvm.set_num_threads(threads)
    data = attsvm.causal_attention(X) if causal else attsvm.cross_attention(X, Z)
    problem = attsvm.Problem(data, y, attsvm.LinearHead(v))
    return lambda steps: attsvm.train(problem, steps=steps, record=0).W


def jax_contender(gradient):
    """The whole run as one jitted scan."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def prepare(X, Z, y, v, causal, threads):
        data = [jnp.asarray(a) for a in ((X, y, v) if causal else (X, Z, y, (y[:, None] * (X @ v))))]
        start = jnp.zeros((X.shape[2],) * 2)
        runs = {}

        def run(steps):
            def step(W, _, *data):
                G = gradient(jax, jnp, causal)(W, *data)
                return W - 0.1 * G / jnp.linalg.norm(G), None

            if steps not in runs:
                runs[steps] = jax.jit(
                    lambda W, *data: jax.lax.scan(lambda W, _: step(W, _, *data), W, None, length=steps)[0]
                )
            return np.asarray(runs[steps](start, *data))

        return run

    return prepare


def jax_autodiff(jax, jnp, causal):
    def causal_loss(W, X, y, v):
        mask = jnp.tril(jnp.ones((X.shape[1], X.shape[1]), bool))
        logits = jnp.where(mask, jnp.einsum("ntd,de,nse->nst", X, W, X), -jnp.inf)
        u = y * (jax.nn.softmax(logits, axis=2) @ (X @ v)[:, :, None])[:, :, 0]
        return jnp.mean(jnp.log1p(jnp.exp(-u)))

    def loss(W, X, Z, y, scores):
        attention = jax.nn.softmax(jnp.einsum("ntd,nd->nt", X, Z @ W.T), axis=1)
        return jnp.mean(jnp.log1p(jnp.exp(-jnp.einsum("nt,nt->n", attention, scores))))

    return jax.grad(causal_loss if causal else loss)


def jax_by_hand(jax, jnp, causal):
    if causal:
        raise SystemExit("the gradient by hand is written for cross-attention")

    def gradient(W, X, Z, y, scores):
        s = jax.nn.softmax(jnp.einsum("ntd,nd->nt", X, Z @ W.T), axis=1)
        u = (s * scores).sum(1)
        c = -jax.nn.sigmoid(-u)[:, None] * s * (scores - u[:, None])
        return jnp.einsum("nt,ntd->nd", c, X).T @ Z

    return gradient


def torch_contender(autograd, compiled=False):
    import torch

    torch.set_default_dtype(torch.float64)

    def prepare(X, Z, y, v, causal, threads):
        torch.set_num_threads(threads)
        X, Z, y, v = map(torch.from_numpy, (X, Z, y, v))
        scores = None if causal else y[:, None] * (X @ v)

        def loss(W):
            if causal:
                o = torch.nn.functional.scaled_dot_product_attention(X @ W.T, X, X, is_causal=True, scale=1.0)
                u = y * (o @ v)
            else:
                u = (torch.softmax(torch.einsum("ntd,nd->nt", X, Z @ W.T), dim=1) * scores).sum(1)
            return torch.nn.functional.softplus(-u).mean()

        def differentiated(W):
            W = W.detach().requires_grad_()
            (G,) = torch.autograd.grad(loss(W), W)
            return W.detach() - 0.1 * G / torch.linalg.norm(G)

        def by_hand(W):
            s = torch.softmax(torch.bmm(X, (Z @ W.T)[:, :, None])[:, :, 0], dim=1)
            u = (s * scores).sum(1)
            c = -torch.sigmoid(-u)[:, None] * s * (scores - u[:, None])
            G = torch.bmm(c[:, None, :], X)[:, 0].T @ Z
            return W - 0.1 * G / torch.linalg.norm(G)

        step = differentiated if autograd else torch.compile(by_hand) if compiled else by_hand

        def run(steps):
            W = torch.zeros(X.shape[2], X.shape[2])
            for _ in range(steps):
                W = step(W)
            return W.numpy()

        return run

    return prepare


def numba_contender(X, Z, y, v, causal, threads):
    """Loops over windows, a thread for a range of them."""
    import numba

    numba.set_num_threads(threads)

    @numba.njit(parallel=threads > 1)
    def run(X, Z, scores, steps, parts):
        n, T, d = X.shape
        W = np.zeros((d, d))
        P = np.empty((n, d))
        for _ in range(steps):
            U = Z @ W.T
            for part in numba.prange(parts):
                for q in range(part * n // parts, (part + 1) * n // parts):
                    logit = X[q] @ U[q]
                    s = np.exp(logit - logit.max())
                    s /= s.sum()
                    u = (s * scores[q]).sum()
                    P[q] = (-1 / (1 + np.exp(u)) * s * (scores[q] - u)) @ X[q]
            G = P.T @ Z
            W -= 0.1 / np.sqrt((G * G).sum()) * G
        return W

    scores = y[:, None] * (X @ v)
    return lambda steps: run(X, Z, scores, steps, threads)


CONTENDERS = {
    "attsvm": lambda: attsvm_contender,
    "jax": lambda: jax_contender(jax_autodiff),
    "jax by hand": lambda: jax_contender(jax_by_hand),
    "torch autograd": lambda: torch_contender(True),
    "torch by hand": lambda: torch_contender(False),
    "torch.compile": lambda: torch_contender(False, compiled=True),
    "numba": lambda: numba_contender,
}


def main() -> None:
    name, *numbers = sys.argv[1:]
    n, T, d, causal, steps, threads = map(int, numbers)
    run = CONTENDERS[name]()(*draw(n, T, d, causal), causal, threads)
    first = run(FEW)
    run(steps)
    print(json.dumps([float(np.linalg.norm(first)), *map(float, first.ravel()[:8])]), flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        run(steps)
        print(time.perf_counter() - begin, flush=True)


if __name__ == "__main__":
    main()
