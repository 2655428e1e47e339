"""Sequence to sequence: every token queries, and W goes to the SVM with a margin for every query.

Every row of attention's output counts, with a label each.  In causal attention a token sees what is at or before it;
the first token sees itself alone and asks for nothing.  Both are the theory of one query a sequence on n T virtual
sequences, so W turns to the Frobenius SVM of the tokens that the queries select, and (K, Q) to the nuclear one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .. import sample
from ..data import causal_attention, cross_attention, self_attention
from ..output import LinearHead
from ..plot import band, correlations, finish, largest, style
from ..problem import Problem
from ..replication import replicate
from ..report import Claim, average, every, share
from ..svm import solve_svm
from ..theory import is_locally_optimal
from ..train import train

N, T, D = 3, 4, 16
LR, STEPS = 0.1, 3000
SHOWN = np.unique(np.concatenate([np.arange(0, 400, 10), np.arange(400, STEPS + 1, 50)]))
RUNS, QUICK = 100, 10
SETTINGS = (
    f"{N} sequences of {T} random unit tokens, d = {D}, a fair label for every query, logistic loss, normalised "
    f"gradient descent with learning rate {LR} for {STEPS} steps from the start of a PyTorch linear layer."
)
MASKS = {"causal": "causal", "every": "every token sees every token"}
NORMS = {"W": "frobenius", "KQ": "nuclear"}
NAMES = {"W": "W", "KQ": "(K, Q)"}


def run(runs: int, seed: int = 0, jobs: int | None = None) -> dict[str, np.ndarray]:
    return replicate(experiment, runs, seed, jobs, name="sequence-to-sequence")


def experiment(rng: np.random.Generator) -> dict[str, Any]:
    X, _, _, v = sample.unit_sphere(N, T, D, rng)
    y = np.where(rng.random((N, T)) < 0.5, -1.0, 1.0)
    W, K, Q = rng.uniform(-1, 1, (3, D, D)) / np.sqrt(D)
    result: dict[str, Any] = {}
    for mask in MASKS:
        data = causal_attention(X) if mask == "causal" else self_attention(X, query=None)
        problem = Problem(data, y, LinearHead(v))
        how = {"lr": LR, "steps": STEPS, "record": SHOWN}
        for name, found in {"W": train(problem, W, **how), "KQ": train(problem, K=K, Q=Q, **how)}.items():
            selected = found.selected
            solutions = {norm: solve_svm(data, selected, norm) for norm in NORMS.values()}
            own = solutions[NORMS[name]]
            key = f"{mask} {name}"
            softmax = np.stack([largest(data.probabilities(M)).mean() for M in found.weights])
            result[f"{key} softmax"] = softmax
            for norm, solution in solutions.items():
                result[f"{key} {norm}"] = correlations(found.weights, solution.W)
            result[f"{key} solved"] = own.status == "optimal"
            result[f"{key} saturated"] = largest(found.probabilities).min() > 0.99
            if name == "W":
                optimal = own.status == "optimal" and is_locally_optimal(problem, own)
                result[f"{key} locally optimal"] = float(optimal)
                result |= {f"{mask} {what}": x for what, x in virtual(X, y, v, W, problem, selected, own).items()}
    return result


def virtual(X: Any, y: Any, v: Any, W: Any, problem: Problem, selected: Any, own: Any) -> dict[str, Any]:
    """The same problem as n T sequences with one query each: gradients and SVM solutions agree to rounding."""
    causal = problem.data.layout.causal
    sequences = [x[: k + 1] if causal else x for x in X for k in range(T)]
    data = cross_attention(sequences, X.reshape(-1, D))
    gradient = problem.loss_and_grad(W)[1]
    other = Problem(data, y.ravel(), LinearHead(v)).loss_and_grad(W)[1]
    solution = solve_svm(data, selected.ravel())
    apart = np.nan
    if own.W is not None and solution.W is not None:
        apart = np.abs(own.W - solution.W).max() / np.abs(own.W).max()
    rows = sum(len(s) - 1 for s in sequences)
    return {"gradient": np.abs(gradient - other).max() / np.abs(other).max(), "svm": apart, "rows": rows}


def claims(results: Mapping[str, np.ndarray]) -> dict[str, list[Claim]]:
    """What theory says of these numbers."""

    def last(key: str) -> np.ndarray:
        return results[key][:, -1]

    directions, ends, forms = [], [], []
    for mask, text in MASKS.items():
        done = {name: results[f"{mask} {name} saturated"].astype(bool) for name in NAMES}
        for name, norm in NORMS.items():
            found = np.where(done[name], last(f"{mask} {name} {norm}"), np.nan)
            other = np.where(
                done[name], last(f"{mask} {name} {next(n for n in NORMS.values() if n != norm)}"), np.nan
            )
            directions += [
                average(f"{text}: {NAMES[name]} and its {norm} SVM", found, least=0.98 if name == "W" else 0.96),
                average(f"{text}: {NAMES[name]}, that SVM over the other", found - other, least=0),
            ]
            ends.append(share(f"{text}: {NAMES[name]}, every query on one token", done[name], 0.9))
        solved = results[f"{mask} W solved"]
        ends.append(share(f"{text}: the selection is separable, d >= n T and T - 1", solved, 1))
        optimal = np.where(done["W"], results[f"{mask} W locally optimal"], np.nan)
        ends.append(share(f"{text}: locally optimal, of the saturated", optimal, 0.9))
        forms += [
            every(f"{text}: gradient, relative difference", results[f"{mask} gradient"], most=1e-13),
            every(f"{text}: SVM solution, relative difference", results[f"{mask} svm"], most=1e-13),
        ]
    dropped = results["every rows"] - results["causal rows"]
    forms.append(every("constraints that the causal mask drops, n T (T - 1) / 2", dropped, 18, 18))
    return {
        f"Directions after {STEPS:,} steps: correlation with the SVM of the selected tokens": directions,
        "Where attention ends": ends,
        "The same as virtual sequences with one query each": forms,
    }


def curves(results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Columns of the CSV: the mean of every curve."""
    columns = {"step": SHOWN}
    for mask in MASKS:
        for name in NAMES:
            for what in ("softmax", *NORMS.values()):
                columns[f"{mask}_{name}_{what}"] = np.nanmean(results[f"{mask} {name} {what}"], axis=0)
    return columns


def plot(results: Mapping[str, np.ndarray]) -> Figure:
    """A row per mask: attention saturates; the weights turn to the SVM of their norm."""
    figure = Figure(figsize=(11, 8), layout="constrained")
    for (mask, text), (left, right) in zip(MASKS.items(), figure.subplots(2, 2), strict=True):
        for name, norm in NORMS.items():
            trained = NAMES[name]
            band(SHOWN, results[f"{mask} {name} softmax"], trained, left, **style(trained), linewidth=2.2)
            for one in (norm, *(other for other in NORMS.values() if other != norm)):
                label = f"{trained} and its {'Frobenius' if one == 'frobenius' else one} SVM"
                band(SHOWN, results[f"{mask} {name} {one}"], label, right, **style(trained, one), linewidth=2)
        left.set(xlabel="training step", ylabel="largest softmax probability", xlim=(0, 600), ylim=(0, 1.02))
        right.set(xlabel="training step", ylabel="correlation of the weights", xlim=(0, STEPS), ylim=(0, 1.02))
        finish(left, f"{text[0].upper()}{text[1:]}: attention of a query")
        finish(right, "Directions")
    runs = len(results["causal svm"])
    figure.suptitle(f"Every token queries: {N} sequences of {T} tokens, d = {D}", fontsize=12)
    figure.supxlabel(f"Lines: mean of {runs} runs.  Bands: 10th to 90th percentile.", fontsize=9, color="0.3")
    return figure
