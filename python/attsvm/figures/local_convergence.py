"""Local convergence: training W leads to the Frobenius SVM of the tokens it selects, (K, Q) to the nuclear one.

Random unit tokens; the same start for every training of a seed.  Along each run: the largest softmax probability,
and the correlation of the weights with both SVM solutions of the tokens selected in the end.  W is trained four
times as long, to show that its direction goes on converging where a gradient by the textbook formula stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .. import sample
from ..data import cross_attention
from ..output import LinearHead
from ..plot import HIGH, LOW, band, correlations, finish, style
from ..problem import Problem
from ..replication import replicate
from ..report import Claim, average, average_near, every, share
from ..separation import Separation
from ..svm import solve_svm
from ..train import train

N, T, D = 6, 8, 10
LR = 0.1
STEPS = 2000
LONG_STEPS = 8000
PUBLISHED_RIDGE = 2.22e-16
STEPS_SHOWN = np.arange(0, STEPS + 1, 10)
STEPS_LONG = np.arange(1000, LONG_STEPS + 1, 1000)
NAIVE_RUNS, NAIVE_STEPS = 10, 4000
RUNS, QUICK = 100, 20
SETTINGS = (
    f"{N} sequences of {T} random unit tokens, d = {D}, mean logistic loss, normalised gradient descent with learning "
    f"rate {LR} from the start of a PyTorch linear layer; (K, Q) with the published ridge of {PUBLISHED_RIDGE:g}."
)

TRAININGS = {"W": "W", "KQ": "(K, Q)", "KQ_without_ridge": "(K, Q)"}
NORMS = {"frobenius": "Frobenius", "nuclear": "nuclear"}
PARTS = ("mean", "std", f"p{LOW}", f"p{HIGH}")  # columns of a curve in the CSV
TIGHT = 1e-4  # a margin this close to 1 is a support token's, as in attsvm.is_locally_optimal


def run(runs: int, seed: int = 0, jobs: int | None = None) -> dict[str, np.ndarray]:
    results = replicate(experiment, runs, seed, jobs, name="local-convergence")
    some = np.random.SeedSequence(seed).spawn(min(runs, NAIVE_RUNS))  # those of the first runs
    results["naive norm"] = naive_norms(map(np.random.default_rng, some))
    return results


def draw(rng: np.random.Generator) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Data ``X, Z, y, v`` and initial weights ``W, K, Q``, distributed as PyTorch initialises a linear layer."""
    bound = 1 / np.sqrt(D)
    return sample.unit_sphere(N, T, D, rng), tuple(rng.uniform(-bound, bound, (3, D, D)))


def experiment(rng: np.random.Generator) -> dict[str, Any]:
    """Train, find the selected tokens, solve both SVMs, and measure from the data alone."""
    (X, Z, y, v), (W, K, Q) = draw(rng)
    data = cross_attention(X, Z)
    problem = Problem(data, y, LinearHead(v))
    scores = y[:, None] * (X @ v)
    long = train(problem, W, lr=LR, steps=LONG_STEPS, record=np.union1d(STEPS_SHOWN, STEPS_LONG))
    shown = {
        "W": long.weights[np.isin(long.steps, STEPS_SHOWN)],
        "KQ": train(problem, K=K, Q=Q, lr=LR, steps=STEPS, record=STEPS_SHOWN, ridge=PUBLISHED_RIDGE).weights,
        "KQ_without_ridge": train(problem, K=K, Q=Q, lr=LR, steps=STEPS, record=STEPS_SHOWN).weights,
    }
    result: dict[str, Any] = {}
    for name, weights in shown.items():
        selected = data.select(weights[-1])
        result |= _label(name, follow(X, Z, scores, weights, selected))
        solutions = {norm: solve_svm(data, selected, norm) for norm in NORMS}
        for norm, solution in solutions.items():
            result[f"{name} {norm}"] = correlations(weights, solution.W)
            result |= _label(f"{name} {norm}", certify(X, Z, selected, solution))
        result |= _label(name, compare(X, Z, scores, selected, solutions["frobenius"].W, solutions["nuclear"].W))

    late = long.weights[np.isin(long.steps, STEPS_LONG)]
    final = solve_svm(data, data.select(late[-1]))
    result["late 1 - correlation"] = 1 - correlations(late, final.W)
    result["late norm"] = np.linalg.norm(late, axis=(1, 2))
    return result


def _label(prefix: str, numbers: dict[str, Any]) -> dict[str, Any]:
    return {f"{prefix} {key}": number for key, number in numbers.items()}


def follow(
    X: np.ndarray, Z: np.ndarray, scores: np.ndarray, weights: np.ndarray, selected: np.ndarray
) -> dict[str, Any]:
    """Attention and loss along a run, against the infimum of the loss and its limit at the selected tokens."""
    logits = np.einsum("ntd,rdn->rnt", X, weights @ Z.T, optimize=True)
    s = np.exp(logits - logits.max(axis=2, keepdims=True))
    s /= s.sum(axis=2, keepdims=True)
    loss = _loss((s * scores).sum(axis=2))
    excess = loss - _loss(scores.max(axis=1))
    largest = s.max(axis=2)
    saturated = (1 - largest <= 1e-12).all(axis=1)
    return {
        "softmax": largest.mean(axis=1),
        "least excess": excess.min(),
        "least excess before saturation": excess[~saturated].min(),
        "distance to the limit": abs(loss[-1] - _loss(scores[np.arange(N), selected])),
    }


def _loss(u: np.ndarray) -> np.ndarray:
    """Mean logistic loss of outputs u (..., n)."""
    return np.logaddexp(0, -u).mean(axis=-1)


def margins(X: np.ndarray, Z: np.ndarray, selected: np.ndarray, W: np.ndarray) -> np.ndarray:
    """``(x_selected - x_t)^T W z``; infinite at the selected token itself, which has no margin to itself."""
    rows = np.arange(N)
    m = np.einsum("ntd,nd->nt", X[rows, selected][:, None] - X, Z @ W.T)
    m[rows, selected] = np.inf
    return m


def certify(X: np.ndarray, Z: np.ndarray, selected: np.ndarray, solution: Separation) -> dict[str, Any]:
    """Optimality conditions of an SVM solution from X, Z, W and dual; NaN where there is no solution."""
    numbers = dict.fromkeys(
        ("margin", "least dual", "complementarity", "gap", "dual norm", "stationarity", "rank"), np.nan
    )
    solved = solution.status == "optimal"
    if solved:
        W, dual = solution.W, solution.dual
        m = margins(X, Z, selected, W)
        others = np.isfinite(m)
        adjoint = np.einsum("nt,ntd,ne->de", dual, X[np.arange(N), selected][:, None] - X, Z, optimize=True)
        sigma = np.linalg.svd(W, compute_uv=False)
        # The dual's bound is sum(dual) either way: it equals ||W||_F^2 at one optimum, and ||W||_* at the other.
        value = (sigma**2).sum() if solution.norm == "frobenius" else sigma.sum()
        numbers = {
            "margin": m.min() - 1,
            "least dual": dual.min(),
            "complementarity": np.abs(dual[others] * (m[others] - 1)).max(),
            "gap": abs(dual.sum() / value - 1),
            "dual norm": np.linalg.norm(adjoint, 2) - 1,
            "stationarity": np.linalg.norm(W - adjoint) / np.linalg.norm(W),
            "rank": (sigma > 1e-4 * sigma[0]).sum(),
        }
    return {"solved": solved, **numbers}


def compare(
    X: np.ndarray,
    Z: np.ndarray,
    scores: np.ndarray,
    selected: np.ndarray,
    frobenius: np.ndarray | None,
    nuclear: np.ndarray | None,
) -> dict[str, Any]:
    """Whose norm is smaller; and whether the tokens are locally optimal by the Frobenius solution."""
    numbers = dict.fromkeys(("nuclear norms", "frobenius norms", "locally optimal"), np.nan)
    if frobenius is not None:
        support = margins(X, Z, selected, frobenius) <= 1 + TIGHT
        best = scores[np.arange(N), selected][:, None]
        numbers["locally optimal"] = float((best > scores)[support].all())
        if nuclear is not None:
            numbers["nuclear norms"] = np.linalg.norm(nuclear, "nuc") / np.linalg.norm(frobenius, "nuc")
            numbers["frobenius norms"] = np.linalg.norm(frobenius) / np.linalg.norm(nuclear)
    return numbers


def naive_norms(rngs: Iterable[np.random.Generator]) -> np.ndarray:
    """Norm of W trained by the textbook softmax gradient ``s (g - s.g)``, which cancels when s saturates."""
    draws = [draw(rng) for rng in rngs]
    X, Z, y, v = (np.stack(arrays) for arrays in zip(*(data for data, _ in draws), strict=True))
    W = np.stack([weights[0] for _, weights in draws])
    scores = y[..., None] * (X @ v[:, None, :, None])[..., 0]
    for _ in range(NAIVE_STEPS):
        logits = (X @ (Z @ W.swapaxes(1, 2))[..., None])[..., 0]
        s = np.exp(logits - logits.max(axis=2, keepdims=True))
        s /= s.sum(axis=2, keepdims=True)
        u = (s * scores).sum(axis=2, keepdims=True)
        c = -s * (scores - u) / (N * (1 + np.exp(u)))
        gradient = (c[:, :, None] @ X)[:, :, 0].swapaxes(1, 2) @ Z
        W -= LR * gradient / (np.linalg.norm(gradient, axis=(1, 2), keepdims=True) + PUBLISHED_RIDGE)
    return np.linalg.norm(W, axis=(1, 2))


def claims(results: Mapping[str, np.ndarray]) -> dict[str, list[Claim]]:
    """What theory says of these numbers.  References with a deviation are means of 30 independent runs."""

    def at(key: str, step: int) -> np.ndarray:
        return results[key][:, STEPS_SHOWN.searchsorted(step)]

    def all_of(key: str, norms: Iterable[str] = NORMS) -> np.ndarray:
        return np.concatenate([results[f"{name} {norm} {key}"] for name in TRAININGS for norm in norms])

    def followed(key: str) -> np.ndarray:
        return np.concatenate([results[f"{name} {key}"] for name in TRAININGS])

    ranks = results["W nuclear rank"]
    late, norm = results["late 1 - correlation"], results["late norm"]
    constant = late * norm**2
    fro, nuc = ("frobenius",), ("nuclear",)
    return {
        "Directions after 1,000 steps: correlation with the SVM solutions of the selected tokens": [
            average("W, Frobenius: bound", at("W frobenius", 1000), least=0.98),
            average("W, nuclear: bounds", at("W nuclear", 1000), 0.80, 0.92),
            average("(K, Q), nuclear: bound", at("KQ nuclear", 1000), least=0.97),
            average("(K, Q), Frobenius: bounds", at("KQ frobenius", 1000), 0.78, 0.92),
            average_near("W, Frobenius: reference runs", at("W frobenius", 1000), 0.995, 0.003, 30),
            average_near("W, nuclear: reference runs", at("W nuclear", 1000), 0.861, 0.045, 30),
            average_near("(K, Q), nuclear: reference runs", at("KQ nuclear", 1000), 0.990, 0.036, 30),
            average_near("(K, Q), Frobenius: reference runs", at("KQ frobenius", 1000), 0.851, 0.05, 30),
            share("W: the selected tokens are locally optimal", results["W locally optimal"], 0.95),
            share("(K, Q): the selected tokens are locally optimal", results["KQ locally optimal"], 0.95),
        ],
        "The direction of W goes on converging, to 8,000 steps": [
            average("1 - correlation with its Frobenius SVM, step 8,000", late[:, -1], most=3e-4),
            *(
                average(
                    f"(1 - correlation) ||W||^2, step {step:,} over step 8,000",
                    constant[:, STEPS_LONG.searchsorted(step)] / constant[:, -1],
                    0.7,
                    1.3,
                )
                for step in (1000, 2000, 4000)
            ),
            average("||W|| grows like 0.1 k: at step 8,000 (reference 794)", norm[:, -1], 780, 802),
            average(f"textbook gradient stalls: ||W||, step {NAIVE_STEPS:,}", results["naive norm"], most=130),
        ],
        "Loss": [
            every("above its infimum at every record, to rounding", followed("least excess"), least=-1e-15),
            share("strictly above it before saturation", followed("least excess before saturation") > 0, 1),
            every("distance to its limit at the selected tokens", followed("distance to the limit"), most=1e-6),
        ],
        "SVM solutions, checked from the data": [
            share("solved: every selection is feasible, d >= max(T - 1, n)", all_of("solved"), 1),
            every("least margin - 1", all_of("margin"), least=-1e-8),
            every("least multiplier", all_of("least dual"), least=0),
            every("Frobenius: |multiplier (margin - 1)|", all_of("complementarity", fro), most=1e-6),
            every("Frobenius: |sum of multipliers / ||W||_F^2 - 1|", all_of("gap", fro), most=1e-6),
            every("Frobenius: distance of W to its multipliers' sum", all_of("stationarity", fro), most=1e-6),
            every("nuclear: |sum of multipliers / ||W||_* - 1|", all_of("gap", nuc), most=1e-6),
            every("nuclear: spectral norm of the multipliers' sum - 1", all_of("dual norm", nuc), most=1e-8),
            every("||nuclear solution||_* / ||Frobenius solution||_*", followed("nuclear norms"), most=1 + 1e-8),
            every("||Frobenius solution||_F / ||nuclear solution||_F", followed("frobenius norms"), most=1 + 1e-8),
            every("rank of every solution, min(n, d) = 6", all_of("rank"), most=N),
            share("rank of the Frobenius solution is 6", results["W frobenius rank"] == N, 0.95),
            share("rank of the nuclear solution is at most 3", ranks <= N // 2, 0.5),
            average_near("mean rank of the nuclear solution", ranks, 3.0, ranks.std(ddof=1), 30),
        ],
    }


def curves(results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Columns of the CSV: mean, standard deviation and the band of every curve."""
    columns = {"step": STEPS_SHOWN}
    for name in TRAININGS:
        for what in ("softmax", *NORMS):
            found = results[f"{name} {what}"]
            found = found[~np.isnan(found).any(axis=1)]
            summary = np.full((4, found.shape[1]), np.nan)
            if len(found) > 1:
                summary[:] = (
                    found.mean(axis=0),
                    found.std(axis=0, ddof=1),
                    *np.percentile(found, [LOW, HIGH], axis=0),
                )
            prefix = f"{name}_{what}" if what == "softmax" else f"{name}_correlation_{what}"
            columns |= {f"{prefix}_{part}": row for part, row in zip(PARTS, summary, strict=True)}
    return columns


def plot(results: Mapping[str, np.ndarray]) -> Figure:
    """Two panels: attention picks one token; weights turn to the SVM solutions of the picked tokens."""
    runs = len(results["W softmax"])
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.5))
    thick, thin = {"linewidth": 2.2}, {"linewidth": 0.8, "color": "black"}
    for name, norms in (("W", ("frobenius", "nuclear")), ("KQ", ("nuclear", "frobenius"))):
        trained = TRAININGS[name]
        band(STEPS_SHOWN, results[f"{name} softmax"], trained, left, **style(trained), **thick)
        for norm in norms:
            label = f"{trained} and its {NORMS[norm]} SVM"
            band(STEPS_SHOWN, results[f"{name} {norm}"], label, right, **style(trained, norm), **thick)
    means = {key: column for key, column in curves(results).items() if key.endswith("_mean")}
    bare = "KQ_without_ridge"
    left.plot(STEPS_SHOWN, means[f"{bare}_softmax_mean"], label="(K, Q) without ridge", **thin)
    for norm in norms:
        look = {"label": f"without ridge, {NORMS[norm]} SVM", **style("(K, Q)", norm), **thin}
        right.plot(STEPS_SHOWN, means[f"{bare}_correlation_{norm}_mean"], **look)
    left.set(xlabel="training step", ylabel="largest softmax probability", xlim=(0, 400), ylim=(0, 1.02))
    right.set(xlabel="training step", ylabel="correlation of the weights", xlim=(0, 1000), ylim=(0, 1.02))
    finish(left, "Attention picks one token")
    finish(right, "W turns to the Frobenius SVM of these tokens, (K, Q) to the nuclear one")
    figure.suptitle(
        f"Local convergence: {N} sequences of {T} random unit tokens, d = {D}, "
        f"normalised gradient descent, learning rate {LR}",
        fontsize=12,
    )
    figure.supxlabel(
        f"Lines: mean of {runs} runs.  Bands: {LOW}th to {HIGH}th percentile.  "
        f"(K, Q) has the published ridge of {PUBLISHED_RIDGE:g}, thin black lines have none.",
        fontsize=9,
        color="0.3",
    )
    return figure
