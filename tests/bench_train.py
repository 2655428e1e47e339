"""Cost of a training step beside JAX: same data, same process, interleaved, one core, medians.

python tests/bench_train.py            (pip install "attsvm[bench]")
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import attsvm
import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
SIZES = [(6, 8, 10), (64, 32, 64)]
STEPS = {(6, 8, 10): 2000, (64, 32, 64): 200}


def jax_run(X, Z, y, v, steps):
    """Normalised descent as one jitted scan over the naive loss."""

    def loss(W):
        attention = jax.nn.softmax(jnp.einsum("ntd,de,ne->nt", X, W, Z), axis=1)
        return jnp.mean(jnp.log1p(jnp.exp(-y * jnp.einsum("nt,ntd,d->n", attention, X, v))))

    def step(W, _):
        G = jax.grad(loss)(W)
        return W - 0.1 * G / jnp.linalg.norm(G), None

    run = jax.jit(lambda W: jax.lax.scan(step, W, None, length=steps)[0])
    start = jnp.zeros((X.shape[2], Z.shape[1]))
    return lambda: np.asarray(run(start))


def attsvm_run(X, Z, y, v, steps):
    problem = attsvm.Problem(attsvm.cross_attention(X, Z), y, attsvm.LinearHead(v))
    return lambda: attsvm.train(problem, steps=steps, record=0).W


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before any library starts its threads for good
    print("microseconds per normalised step (W), medians of", repeats, "interleaved runs, one core")
    print(f"{'n,T,d':>12}  {'attsvm':>8}  {'JAX':>8}  {'ratio':>6}  {'same W to':>9}")
    for size in SIZES:
        data, steps = attsvm.sample.unit_sphere(*size), STEPS[size]
        peers = {"attsvm": attsvm_run(*data, steps), "jax": jax_run(*data, steps)}
        short = [f(*data, 50)() for f in (attsvm_run, jax_run)]  # before the naive gradient loses digits
        apart = np.linalg.norm(short[0] - short[1]) / np.linalg.norm(short[1])
        times: dict[str, list[float]] = {name: [] for name in peers}
        for run in peers.values():
            run()
        for _ in range(repeats):
            for name, run in peers.items():
                begin = time.perf_counter()
                run()
                times[name].append((time.perf_counter() - begin) / steps * 1e6)
        median = {name: statistics.median(t) for name, t in times.items()}
        print(
            f"{','.join(map(str, size)):>12}  {median['attsvm']:8.2f}  {median['jax']:8.2f}  "
            f"{median['jax'] / median['attsvm']:6.2f}  {apart:9.1e}"
        )


if __name__ == "__main__":
    main()
