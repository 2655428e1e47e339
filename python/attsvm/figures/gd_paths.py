"""Paths in the plane: W z turns to the directions that separate the selected tokens.

Two sequences of tokens in the plane, each with its query z and its best token (star).  Training moves W z (thin
curves, in the units of the tokens) out along the direction W_svm z of the SVM (thick lines from the origin); dotted,
the lines at half margin that this direction puts between the best token and the rest.  Left, training W.  Right, on
other tokens, training W (solid) and the factors (K, Q) (dashed), which go to different limits: the Frobenius and the
nuclear SVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..data import cross_attention
from ..output import LinearHead
from ..plot import correlations, finish
from ..problem import Problem
from ..replication import replicate
from ..report import Claim, average, share
from ..separation import Separation
from ..svm import solve_svm
from ..train import Run, train

LR, STEPS = 0.1, 2000
NORMS = {"W": "frobenius", "KQ": "nuclear"}
COLORS = ("#B2182B", "#2166AC")  # of the two sequences
SHOWN = {"one": 17, "two": 253}  # seeds of the instances in the picture
RUNS, QUICK = 400, 40
SETTINGS = (
    "Left: 2 sequences of 5 tokens, 0.5 N(0, I), the first tokens moved to (1, 0.5) and (1, -0.5), the others by "
    "(-1, 0).  Right: 3 tokens, 0.3 N(0, I), the first moved by (1, 0), the others by (-1, 0).  Head (1, 0), labels 1, "
    f"unit queries, W(0) = 0, K(0) = 0.1 N(0, I), Q(0) = 0, {STEPS:,} steps of normalised gradient descent with "
    f"learning rate {LR}.  Claims are about random instances of both kinds; the published random draws are not known."
)


def run(runs: int, seed: int = 0, jobs: int | None = None) -> dict[str, np.ndarray]:
    """Correlations with the SVM solutions over random instances; the paths of the instances shown."""
    results = replicate(experiment, runs, seed, jobs, name="gd-paths")
    for kind, own in SHOWN.items():
        problem, runs_of, _ = instance(kind, np.random.default_rng(own))
        for name, trained in runs_of.items():
            results[f"shown {kind} {name}"] = np.einsum("rde,ne->rnd", trained.weights, problem.data.queries)
    return results


def draw(kind: str, rng: np.random.Generator) -> Problem:
    """Tokens in the plane, the first of each sequence the best."""
    Z = rng.standard_normal((2, 2))
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    if kind == "one":
        X = 0.5 * rng.standard_normal((2, 5, 2)) - [1, 0]
        X[:, 0] = [[1, 0.5], [1, -0.5]]
    else:
        X = 0.3 * rng.standard_normal((2, 3, 2)) - [1, 0]
        X[:, 0] += [2, 0]
    return Problem(cross_attention(X, Z), None, LinearHead([1.0, 0.0]))


def instance(kind: str, rng: np.random.Generator) -> tuple[Problem, dict[str, Run], dict[str, Separation]]:
    problem = draw(kind, rng)
    K = 0.1 * rng.standard_normal((2, 2))
    how = {"lr": LR, "steps": STEPS, "record": np.unique(np.geomspace(1, STEPS, 200).astype(int))}
    runs = {"W": train(problem, **how), "KQ": train(problem, K=K, Q=np.zeros((2, 2)), **how)}
    solutions = {name: solve_svm(problem.data, run.selected, NORMS[name]) for name, run in runs.items()}
    return problem, runs, solutions


def experiment(rng: np.random.Generator) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in SHOWN:
        problem, runs, solutions = instance(kind, rng)
        for name, trained in runs.items():
            other = solutions["KQ" if name == "W" else "W"]
            own = [correlations(trained.weights[-1:], s.W)[0] for s in (solutions[name], other)]
            found[f"{kind} {name} optimal"] = bool((trained.selected == problem.optimal).all())
            found[f"{kind} {name} own"], found[f"{kind} {name} other"] = own
    return found


def claims(results: Mapping[str, np.ndarray]) -> dict[str, list[Claim]]:
    """Over the random instances: which SVM each training turns to."""
    groups = {}
    for kind, tokens in (("one", "Five"), ("two", "Three")):
        group = groups[f"{tokens} tokens a sequence, {STEPS:,} steps"] = []
        for name, title, norm, least in (("W", "W", "Frobenius", 0.99), ("KQ", "(K, Q)", "nuclear", 0.97)):
            optimal, own, other = (results[f"{kind} {name} {what}"] for what in ("optimal", "own", "other"))
            group += [
                share(f"{title}: the best tokens are selected", optimal, 0.9),
                average(f"{title}: correlation with its {norm} SVM", own, least=least),
                average(f"{title}: by how much its correlation with the other SVM is less", own - other, least=0),
            ]
    return groups


def curves(results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Columns of the CSV: the paths W z of the picture."""
    columns: dict[str, np.ndarray] = {}
    for key in (key for key in results if key.startswith("shown")):
        _, kind, name = key.split()
        for n in range(2):
            for axis in range(2):
                columns[f"{kind}_{name}_z{n + 1}_{'xy'[axis]}"] = results[key][:, n, axis]
    return columns


def plot(results: Mapping[str, np.ndarray]) -> Figure:
    """One panel a kind; the second compares W with (K, Q)."""
    figure = Figure(figsize=(11, 5), layout="constrained")
    panels = zip(figure.subplots(1, 2), (("one", ("W",)), ("two", ("W", "KQ"))), strict=True)
    for ax, (kind, names) in panels:
        problem, _, solutions = instance(kind, np.random.default_rng(SHOWN[kind]))
        X = problem.data.keys.reshape(2, -1, 2)
        reach = 1.15 * np.abs(X).max()
        for n, color in enumerate(COLORS):
            ax.plot(*X[n, 1:].T, "o", color=color, markersize=6, alpha=0.6)
            ax.plot(*X[n, 0], "*", color=color, markersize=16, markeredgecolor="black", markeredgewidth=0.6)
            for name in names:
                line = "-" if name == "W" else (0, (4, 2))
                path = results[f"shown {kind} {name}"][:, n]
                toward = solutions[name].W @ problem.data.queries[n]
                ax.plot(*path.T, color=color, linewidth=1.3, linestyle=line)
                far = 3 * reach * toward / np.linalg.norm(toward)
                label = f"{'W' if name == 'W' else '(K, Q)'}: SVM direction of z{n + 1}"
                ax.plot(
                    [0, far[0]], [0, far[1]], color=color, linewidth=5, alpha=0.35, linestyle=line, label=label
                )
                across = far[::-1] * [1, -1]
                middle = toward * (X[n, 0] @ toward - 0.5) / (toward @ toward)
                ax.plot(*np.stack([middle - across, middle + across]).T, ":", color=color, linewidth=1, label=None)
        ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        finish(ax, "training W" if len(names) == 1 else "training W (solid) and (K, Q) (dashed)")
        ax.set(xlim=(-reach, reach), ylim=(-reach, reach))
        ax.legend(loc="upper left", frameon=False, fontsize=8)
    figure.suptitle("W z turns to the directions that separate the selected tokens (stars)", fontsize=12)
    figure.supxlabel(
        "Thin: W(k) z along training.  Thick: W_svm z.  Dotted: half margin between the star and the rest.",
        fontsize=9,
        color="0.3",
    )
    return figure
