"""Several attention heads: each turns to the SVM of the tokens it selects itself.

H attention heads are trained together; their attended vectors are summed, or stand side by side, before the one
output head.  Each weight matrix is normalised by itself, so each is an attention of its own that the loss alone
couples: its direction goes to the max-margin solution of its own tokens.  Summed heads look for the same best tokens
and mostly agree on them; side by side, each has its own part of the output head and selects for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .. import sample
from ..data import cross_attention
from ..output import LinearHead
from ..plot import band, correlations, finish
from ..problem import Problem
from ..replication import replicate
from ..report import Claim, average, every, share
from ..svm import solve_svm
from ..train import train

N, T, D = 6, 8, 10
HEADS = (1, 2, 4)
LR, STEPS = 0.1, 4000
SHOWN = np.unique(np.concatenate([np.arange(0, 400, 10), np.arange(400, STEPS + 1, 50)]))
RUNS, QUICK = 100, 10
SETTINGS = (
    f"{N} sequences of {T} random unit tokens, d = {D}, linear head, logistic loss, normalised gradient descent (each "
    f"attention head by its own norm) with learning rate {LR} for {STEPS} steps from the start of a PyTorch linear "
    "layer."
)
COLORS = {1: "0.35", 2: "#0072B2", 4: "#D55E00"}
COMBINATIONS = {"sum": "summed", "concatenate": "side by side"}


def run(runs: int, seed: int = 0, jobs: int | None = None) -> dict[str, np.ndarray]:
    return replicate(experiment, runs, seed, jobs, name="attention-heads")


def experiment(rng: np.random.Generator) -> dict[str, Any]:
    X, Z, y, v = sample.unit_sphere(N, T, D, rng)
    data = cross_attention(X, Z)
    W = rng.uniform(-1, 1, (max(HEADS), D, D)) / np.sqrt(D)
    more = rng.standard_normal((max(HEADS), D))
    more = np.concatenate([[v], more[1:] / np.linalg.norm(more[1:], axis=1, keepdims=True)])
    single = train(Problem(data, y, LinearHead(v)), W[0], lr=LR, steps=STEPS, record=SHOWN)
    result: dict[str, Any] = {}
    for combine in COMBINATIONS:
        for H in HEADS:
            head = LinearHead(v if combine == "sum" else more[:H].ravel())
            problem = Problem(data, y, head, heads=H, combine=combine)
            found = train(problem, W[:H], lr=LR, steps=STEPS, record=SHOWN)
            selected = found.selected
            own = np.stack([correlations(found.weights[:, h], solve_svm(data, selected[h]).W) for h in range(H)])
            reads = more[:H] if combine == "concatenate" else np.tile(v, (H, 1))
            scores = y[:, None] * np.einsum("ntd,hd->hnt", X, reads)
            key = f"{combine} {H}"
            result[f"{key} correlation"] = own.mean(axis=0)
            result[f"{key} least correlation"] = own[:, -1].min()
            result[f"{key} loss"] = found.loss
            result[f"{key} agree"] = (selected == selected[0]).all(axis=0).mean()
            result[f"{key} best"] = (selected == scores.argmax(axis=2)).mean()
            result[f"{key} saturated"] = found.probabilities.max(axis=2).min() > 0.99
            if H == 1:
                result[f"{key} to single"] = np.abs(found.weights[1, 0] - single.weights[1]).max()
    return result


def claims(results: Mapping[str, np.ndarray]) -> dict[str, list[Claim]]:
    """What theory says of these numbers."""
    directions, tokens = [], []
    for combine, text in COMBINATIONS.items():
        for H in HEADS:
            key = f"{combine} {H}"
            done = results[f"{key} saturated"].astype(bool)
            directions.append(
                average(
                    f"{H} {text}: correlation of each head with its own SVM",
                    np.where(done, results[f"{key} correlation"][:, -1], np.nan),
                    least=0.99,
                )
            )
            tokens.append(share(f"{H} {text}: every attention head on one token per query", done, 0.8))
    tokens.append(
        average(
            "4 heads: queries on which all agree, summed minus side by side",
            results["sum 4 agree"] - results["concatenate 4 agree"],
            least=0,
        )
    )
    same = np.concatenate([results[f"{combine} 1 to single"] for combine in COMBINATIONS])
    return {
        f"Directions after {STEPS:,} steps": directions,
        "Tokens": tokens,
        "One head is single-head attention": [every("largest difference of W after 10 steps", same, most=1e-13)],
    }


def curves(results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Columns of the CSV: the mean of every curve."""
    columns = {"step": SHOWN}
    for combine in COMBINATIONS:
        for H in HEADS:
            for what in ("correlation", "loss"):
                columns[f"{combine}_{H}_{what}"] = np.nanmean(results[f"{combine} {H} {what}"], axis=0)
    return columns


def plot(results: Mapping[str, np.ndarray]) -> Figure:
    """Directions of the heads for both combinations, and what they select."""
    figure = Figure(figsize=(14, 4.8), layout="constrained")
    *curved, bars = figure.subplots(1, 3)
    for ax, (combine, text) in zip(curved, COMBINATIONS.items(), strict=True):
        for H in HEADS:
            label = f"{H} attention head{'s' if H > 1 else ''}"
            band(SHOWN, results[f"{combine} {H} correlation"], label, ax, color=COLORS[H], linewidth=2)
        ax.set(
            xlabel="training step", ylabel="correlation of a head with its own SVM", xlim=(0, 2000), ylim=(0, 1.02)
        )
        finish(ax, f"Attended vectors {text}")
    names = [(combine, H) for combine in COMBINATIONS for H in HEADS]
    at = np.arange(len(names))
    for shift, what, color in ((-0.2, "best", "#0072B2"), (0.2, "agree", "#E69F00")):
        label = "a head selects its best token" if what == "best" else "all heads select the same token"
        shares = [results[f"{combine} {H} {what}"].mean() for combine, H in names]
        bars.bar(at + shift, shares, 0.38, color=color, label=label)
    bars.set_xticks(at, [f"{H}\n{COMBINATIONS[combine]}" for combine, H in names], fontsize=7)
    bars.set(ylabel="share of queries", ylim=(0, 1.25))
    finish(bars, "What they select")
    bars.legend(loc="upper right", frameon=False, fontsize=9)
    runs = len(results["sum 1 best"])
    figure.suptitle(f"Several attention heads: {N} sequences of {T} tokens, d = {D}", fontsize=12)
    figure.supxlabel(f"Lines: mean of {runs} runs.  Bands: 10th to 90th percentile.", fontsize=9, color="0.3")
    return figure
