"""Basins: near a locally optimal SVM direction training stays, from any other it leaves.

A selection that is not optimal is locally optimal when each of its tokens scores more than its support tokens.  Left,
training starts at c times the SVM solution of such a selection, with a step that grows with c: it still selects these
tokens at the end, the more surely the larger c, since the theorem needs a start beyond some radius: a better token
just off the support has to be suppressed already.  Where a support token scores more, training leaves from every c.
Right, the same as the correlation of the weights with the direction they started from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..plot import band, correlations, finish
from ..problem import Problem
from ..replication import replicate
from ..report import Claim, average, never_falls, share, share_near
from ..separation import Separation
from ..svm import solve_svm
from ..theory import is_locally_optimal
from ..train import train
from ._instances import margin_error, sphere_problem

N, T, D = 5, 5, 8
STARTS = (15, 60, 300, 3000)
STEPS = 4000
STEP_SHARE = 1 / 300  # of the start's norm: or nothing would move
RECORDS = np.arange(0, STEPS + 1, 100)
NOISE = 0.05
TRIES = 100  # random selections until one that is wanted, else another problem
RUNS, QUICK = 400, 40
SETTINGS = (
    f"{N} sequences of {T} random unit tokens, d = {D}, mean logistic loss; W(0) is c times the Frobenius solution of "
    f"tokens drawn among the two best of each sequence (not locally optimal: with {NOISE:.0%} noise at c = 15); "
    f"{STEPS:,} steps of normalised gradient descent with learning rate c ||W_svm|| / 300."
)
REFERENCE = {15: (0.78, 27), 60: (0.85, 27), 300: (0.93, 27)}  # independent runs


def run(runs: int, seed: int = 0, jobs: int | None = None) -> dict[str, np.ndarray]:
    """Of every run and c, whether training stayed, and the correlation with its start's direction."""
    return replicate(experiment, runs, seed, jobs, name="basin")


def experiment(rng: np.random.Generator) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, wanted in (("optimal", True), ("not", False)):
        problem, selected, solution = instance(rng, wanted)
        stays, curves = [], []
        for c in STARTS:
            noise = rng.standard_normal(solution.W.shape)
            noise *= (
                NOISE * np.linalg.norm(solution.W) / np.linalg.norm(noise) if not wanted and c == STARTS[0] else 0
            )
            trained = train(
                problem,
                c * (solution.W + noise),
                lr=c * STEP_SHARE * np.linalg.norm(solution.W),
                steps=STEPS,
                record=RECORDS,
            )
            stays.append(bool((trained.selected == selected).all()))
            curves.append(correlations(trained.weights, solution.W))
        found |= {f"{name} stays": np.array(stays), f"{name} correlation": np.array(curves)}
    return found


def instance(rng: np.random.Generator, locally_optimal: bool) -> tuple[Problem, np.ndarray, Separation]:
    """A random problem and a selection among each two best tokens, not of all the best, locally optimal or not."""
    while True:
        problem = sphere_problem(rng, N, T, D)
        better = np.argsort(-problem.scores, axis=1)
        for _ in range(TRIES):
            selected = better[np.arange(N), rng.integers(2, size=N)]
            if (selected == problem.optimal).all():
                continue
            solution = solve_svm(problem.data, selected)
            if is_locally_optimal(problem, solution) == locally_optimal:
                return problem, selected, solution


def claims(results: Mapping[str, np.ndarray]) -> dict[str, list[Claim]]:
    """Basins of attraction; references are 27 independent runs."""
    stays, leaves = results["optimal stays"], ~results["not stays"]
    turned = results["optimal correlation"][:, -1, -1]
    return {
        "Started at c times a locally optimal SVM solution that is not the optimal one": [
            *(
                share_near(f"still on its tokens, c = {c}", stays[:, STARTS.index(c)], *REFERENCE[c])
                for c in REFERENCE
            ),
            never_falls(f"share still on its tokens, c = {', '.join(map(str, STARTS))}", stays.T),
            share(f"still on its tokens, c = {STARTS[-1]}", stays[:, -1], 0.99),
            average(f"correlation with that solution after {STEPS:,} steps, c = {STARTS[-1]}", turned, least=0.99),
        ],
        "Started where a support token scores more": [
            share(f"leaves, c = {c}" + (f", {NOISE:.0%} noise" if c == STARTS[0] else ""), leaves[:, i], 0.99)
            for i, c in enumerate(STARTS)
        ],
    }


def curves(results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Columns of the CSV: mean correlation along training, for every c."""
    columns: dict[str, np.ndarray] = {"step": RECORDS}
    for name, title in (("optimal", "locally_optimal"), ("not", "not_locally_optimal")):
        for i, c in enumerate(STARTS):
            columns[f"{title}_c{c}"] = results[f"{name} correlation"][:, i].mean(axis=0)
    return columns


def plot(results: Mapping[str, np.ndarray]) -> Figure:
    """Left: who stays, against c.  Right: how the weights turn, from the smallest start."""
    runs = len(results["optimal stays"])
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.3))
    looks = (
        ("optimal", "locally optimal, not globally", "#0072B2"),
        ("not", "a support token scores more", "#D55E00"),
    )
    for name, label, color in looks:
        stays = results[f"{name} stays"].mean(axis=0)
        left.errorbar(STARTS, stays, margin_error(stays, runs), color=color, marker=".", capsize=3, label=label)
        band(RECORDS, results[f"{name} correlation"][:, 0], label, right, color=color, linewidth=2)
    left.set_xscale("log")
    left.set_xticks(STARTS, [str(c) for c in STARTS])
    left.set(xlabel="c: training starts at c times the SVM solution", ylabel="share that still selects its tokens")
    left.set_ylim(-0.03, 1.08)
    finish(left, "Who stays")
    left.margins(x=0.05)
    left.legend(loc="center right", frameon=False)
    right.set(xlabel="training step", ylabel="correlation with the SVM solution it started at", ylim=(None, 1.03))
    finish(right, f"Start at c = {STARTS[0]}: mean, 10th to 90th percentile")
    figure.suptitle("Training stays near locally optimal directions, and leaves all others", fontsize=12)
    figure.supxlabel(f"{runs} instances a point; error bars: three standard errors.", fontsize=9, color="0.3")
    return figure
