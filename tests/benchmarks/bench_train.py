"""Cost of a training step beside torch and JAX: same data, same process, interleaved, on one core and on two, medians.

python tests/bench_train.py            (pip install "attsvm[bench]" torch)

The floor of a step is the larger of its reads (the keys once, at the measured bandwidth) and its flops (at the measured
rate of a large DGEMM).  Prints the table of the README.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time

import attsvm
import jax
import jax.numpy as jnp
import numpy as np
import torch

jax.config.update("jax_enable_x64", True)
torch.set_default_dtype(torch.float64)
# Steps of one timing: a run of k steps evaluates the loss k + 1 times; its end must not count as a step.
SIZES = {(6, 8, 10): 20_000, (64, 32, 64): 1000, (1024, 64, 128): 50, (4096, 128, 256): 12}
CAUSAL, CAUSAL_STEPS = (8, 256, 64), 50
RUNS, RUNS_SIZE, RUNS_STEPS = 32, (1024, 64, 128), 10


def draw(n, T, d, causal=False):
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((n, T, d)) / math.sqrt(d), rng.standard_normal((n, d)) / math.sqrt(d)
    return X, Z, rng.choice([-1.0, 1.0], (n, T) if causal else n), rng.standard_normal(d)


def attsvm_run(X, Z, y, v, steps, causal=False):
    data = attsvm.causal_attention(X) if causal else attsvm.cross_attention(X, Z)
    problem = attsvm.Problem(data, y, attsvm.LinearHead(v))
    return lambda: attsvm.train(problem, steps=steps, record=0).W


def jax_run(X, Z, y, v, steps, causal=False):
    """Normalised descent as one jitted scan over the naive loss."""
    mask = jnp.tril(jnp.ones((X.shape[1], X.shape[1]), bool))

    def loss(W, X, Z, y, v):
        if causal:
            logits = jnp.where(mask, jnp.einsum("ntd,de,nse->nst", X, W, X), -jnp.inf)
            u = y * (jax.nn.softmax(logits, axis=2) @ (X @ v)[:, :, None])[:, :, 0]
        else:
            attention = jax.nn.softmax(jnp.einsum("ntd,nd->nt", X, Z @ W.T), axis=1)
            u = y * jnp.einsum("nt,nt->n", attention, X @ v)
        return jnp.mean(jnp.log1p(jnp.exp(-u)))

    def step(W, _, *data):
        G = jax.grad(loss)(W, *data)
        return W - 0.1 * G / jnp.linalg.norm(G), None

    run = jax.jit(lambda W, *data: jax.lax.scan(lambda W, _: step(W, _, *data), W, None, length=steps)[0])
    data, start = [jnp.asarray(a) for a in (X, Z, y, v)], jnp.zeros((X.shape[2],) * 2)
    return lambda: np.asarray(run(start, *data))


def torch_autograd_run(X, Z, y, v, steps, causal=False):
    X, Z, y, v = map(torch.tensor, (X, Z, y, v))

    def loss(W):
        if causal:
            o = torch.nn.functional.scaled_dot_product_attention(X @ W.T, X, X, is_causal=True, scale=1.0)
            u = y * (o @ v)
        else:
            attention = torch.softmax(torch.einsum("ntd,nd->nt", X, Z @ W.T), dim=1)
            u = y * torch.einsum("nt,nt->n", attention, X @ v)
        return torch.nn.functional.softplus(-u).mean()

    def run():
        W = torch.zeros(X.shape[2], X.shape[2], requires_grad=True)
        for _ in range(steps):
            (G,) = torch.autograd.grad(loss(W), W)
            with torch.no_grad():
                W -= 0.1 * G / torch.linalg.norm(G)
        return W.detach().numpy()

    return run


def torch_by_hand_run(X, Z, y, v, steps):
    """The gradient written down, the scores computed once."""
    X, Z, y, v = map(torch.tensor, (X, Z, y, v))
    scores = y[:, None] * (X @ v)

    def run():
        W = torch.zeros(X.shape[2], X.shape[2])
        for _ in range(steps):
            s = torch.softmax(torch.bmm(X, (Z @ W.T)[:, :, None])[:, :, 0], dim=1)
            u = (s * scores).sum(1)
            c = -torch.sigmoid(-u)[:, None] * s * (scores - u[:, None])
            G = torch.bmm(c[:, None, :], X)[:, 0].T @ Z
            W -= 0.1 * G / torch.linalg.norm(G)
        return W.numpy()

    return run


def measured(runs, repeats, steps):
    """Median microseconds a step of each, interleaved; the first call of each warms it up."""
    times = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(repeats):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - begin) / steps * 1e6)
    return {name: statistics.median(t) for name, t in times.items()}


def machine():
    """Bytes a second read (a dot product, 1 GiB) and flops a second of a DGEMM of 1024 rows, best of five."""
    x, A = torch.ones(2**26), torch.ones(1024, 1024)
    rates = [0.0, 0.0]
    for _ in range(5):
        for i, (work, amount) in enumerate(((lambda: x @ x, 2 * 2**26 * 8), (lambda: A @ A, 2 * 1024**3))):
            begin = time.perf_counter()
            work()
            rates[i] = max(rates[i], amount / (time.perf_counter() - begin))
    return rates[0] / 2, rates[1]


def floor(n, T, d, rates, runs=1, causal=False):
    queries, entries = (n * T, n * T * (T + 1) / 2) if causal else (n, n * T)
    return 1e6 * max(n * T * d * 8 / rates[0], runs * 4 * (queries * d * d + entries * d) / rates[1])


def show(us):
    return f"{us:.2f} us" if us < 10 else f"{us:.0f} us" if us < 1000 else f"{us / 1000:.3g} ms"


def bench(cores, repeats, sizes):
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(len(cores))
    attsvm.set_num_threads(len(cores))
    rates = machine()
    print(f"\n{len(cores)} core(s): {rates[0] / 1e9:.1f} GB/s, {rates[1] / 1e9:.0f} Gflop/s\n")
    print("| n,T,d | attsvm | JAX, jit + scan | torch, autograd | torch by hand | floor | best peer / attsvm |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    rows = [(size, SIZES[size], False) for size in SIZES if len(sizes) == 0 or str(size[0]) in sizes]
    rows += [(CAUSAL, CAUSAL_STEPS, True)] if len(sizes) == 0 or "causal" in sizes else []
    for size, steps, causal in rows:
        data = draw(*size, causal)
        runs = {
            "attsvm": attsvm_run(*data, steps, causal),
            "jax": jax_run(*data, steps, causal),
            "autograd": torch_autograd_run(*data, steps, causal),
        }
        if not causal:
            runs["hand"] = torch_by_hand_run(*data, steps)
        few = min(steps, 50)  # before the naive gradient loses digits
        short = [f(*data, few, causal)() for f in (attsvm_run, jax_run, torch_autograd_run)]
        assert max(np.abs(W - short[0]).max() for W in short[1:]) < 1e-9 * np.abs(short[0]).max()
        us = measured(runs, max(3, repeats if size[0] < 4096 else repeats // 3), steps)
        peers = [us.get(name) for name in ("jax", "autograd", "hand")]
        cells = [show(us["attsvm"]), *("-" if t is None else show(t) for t in peers)]
        cells += [show(floor(*size, rates, causal=causal)), f"{min(t for t in peers if t) / us['attsvm']:.2f}"]
        print(f"| {'causal ' * causal}{','.join(map(str, size))} | {' | '.join(cells)} |", flush=True)


def bench_runs(cores, repeats):
    """Many runs in one call beside as many calls."""
    os.sched_setaffinity(0, cores)
    attsvm.set_num_threads(len(cores))
    X, Z, y, v = draw(*RUNS_SIZE)
    problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    starts = 0.1 * np.random.default_rng(1).standard_normal((RUNS, X.shape[2], X.shape[2]))
    options = dict(steps=RUNS_STEPS, record=0)
    together = {
        "stacked": lambda: attsvm.train(problem, starts, runs=RUNS, **options),
        "separate": lambda: [attsvm.train(problem, W, **options) for W in starts],
    }
    us = measured(together, min(repeats, 3), RUNS_STEPS)
    print(
        f"\n{RUNS} runs at {RUNS_SIZE}, a step of all: stacked {show(us['stacked'])}, separate {show(us['separate'])}, "
        f"{us['separate'] / us['stacked']:.2f} times; floor {show(floor(*RUNS_SIZE, machine(), runs=RUNS))}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--cores", type=int, nargs="*", default=[1, 2], help="how many to use, one table for each")
    parser.add_argument(
        "--sizes", nargs="*", default=[], help="n of the rows wanted, causal, runs; all by default"
    )
    args = parser.parse_args()
    available = sorted(os.sched_getaffinity(0))[::-1]
    print("one normalised step on W inside a run, float64, medians of interleaved runs in one process")
    for count in args.cores:
        bench(set(available[:count]), args.repeats, args.sizes)
        if len(args.sizes) == 0 or "runs" in args.sizes:
            bench_runs(set(available[:count]), args.repeats)


if __name__ == "__main__":
    main()
