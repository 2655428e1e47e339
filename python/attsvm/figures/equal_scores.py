"""Equal scores: no weights are stationary, and nearly every start ends on the best tokens.

When all tokens of a sequence but the best score the same, every weights can be improved along the SVM of the best
tokens, so gradient descent diverges from any start, here a large random one.  Nearly all runs select the best tokens,
and turn to their SVM (right); on the same sizes with random scores many stop at other, locally optimal tokens.

The few exceptions are no failure of patience: after a million steps they are where they were.  One query of theirs
holds so little attention on its best token that the other queries' gradient, small as it has become, outweighs its own
for ever.  Weights diverge as the theory says, in another direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .. import LinearHead, Problem, cross_attention, diagnose, sample, solve_svm, train
from ..plot.curves import correlations, finish
from ..report.claims import Claim, difference, exactly, median, share
from ._instances import around, error_bars
from ._numpy import apart, loss_gradient
from ._papers import SVM

SIZES = ((5, 5, 8), (10, 5, 12), (5, 10, 12))  # n, T, d
START = 3.0  # standard deviation of the initial weights
LR, STEPS = 0.1, 6000
RECORDS = np.unique(np.geomspace(10, STEPS, 60).astype(int))
BEST, OTHERS = 0.5, -0.125  # the two scores
COLORS = ("#0072B2", "#D55E00", "#009E73")
PAPER = f"{SVM}: the theorem on global convergence with equal scores; no picture"
CAPTION = "Left: how often the best tokens are selected in the end. Right: how far the direction is from their SVM."
RUNS, QUICK = 300, 72
SETTINGS = (
    f"Unit tokens with their scores set to {BEST} (one token) and {OTHERS} (all others), mean logistic loss, W(0) with "
    f"entries of standard deviation {START:g}, {STEPS:,} steps of normalised gradient descent with learning rate {LR}."
)
RANDOM_SCORES = (0.68, 0.42, 0.40)  # of 1,000 draws by SciPy alone (reference_shares.py, d7d1777)
LEAST = (0.85, 0.8, 0.85)  # more sequences leave more exceptions
SOMEWHERE = 5  # random weights at which the gradient is looked at


def experiment(rng: np.random.Generator) -> dict[str, Any]:
    """Of every size, whether it ended on the optimal tokens, and its correlation with their SVM."""
    equal, random, curves = [], [], []
    stationary, differences = [], []
    for n, T, d in SIZES:
        X, Z, y, v = sample.unit_sphere(n, T, d, rng)
        W = START * rng.standard_normal((d, d))
        free = Problem(cross_attention(X, Z), y, LinearHead(v))
        end = train(free, W, lr=LR, steps=STEPS, record=0)
        random.append((end.selected == free.optimal).all())
        problem = tied(X, Z, y)
        trained = train(problem, W, lr=LR, steps=STEPS, record=RECORDS)
        equal.append((trained.selected == problem.optimal).all())
        svm = solve_svm(problem.data, problem.optimal)
        curves.append(correlations(trained.weights[1:], svm.W))
        keys = problem.data.keys.reshape(n, T, d)
        for V in rng.standard_normal((SOMEWHERE, d, d)):
            by_hand = loss_gradient(keys, Z, problem.scores, V)
            stationary.append(np.vdot(by_hand, svm.W) >= 0)
            differences.append(apart(problem.loss_and_grad(V)[1], by_hand))
        if (n, T, d) == SIZES[0]:
            told = diagnose(problem).no_stationary_point == "equal scores" and not diagnose(free).equal_scores
    return {
        "equal": np.array(equal),
        "random": np.array(random),
        "correlation": np.array(curves),
        "stationary": np.array(stationary),
        "apart": np.array(differences),
        "not told": not told,
    }


def tied(X: np.ndarray, Z: np.ndarray, y: np.ndarray) -> Problem:
    """The head reads the first coordinate, which is made the score: to the last bit the same for all other tokens."""
    X = X.copy()
    X[..., 0] = y[:, None] * np.where(np.arange(X.shape[1]) == 0, BEST, OTHERS)
    return Problem(cross_attention(X, Z), y, LinearHead(np.eye(X.shape[2])[0]))


def claims(results: Mapping[str, np.ndarray]) -> dict[str, list[Claim]]:
    """Global convergence with equal scores; the share without, as independent runs found it."""
    names = [f"n = {n}, T = {T}, d = {d}" for n, T, d in SIZES]
    last = results["correlation"][:, :, -1]
    return {
        f"Equal scores, {STEPS:,} steps from a random start (independent runs: 2,877 of 3,000)": [
            *(
                share(f"selects the optimal tokens, {name}", flags, least)
                for name, flags, least in zip(names, results["equal"].T, LEAST, strict=True)
            ),
            *(
                median(f"correlation with the SVM of the optimal tokens, {name}", last[:, i], 0.998, 1)
                for i, name in enumerate(names)
            ),
            *(
                difference(f"share that selects them, equal minus random scores, {name}", equal, random, 0.1)
                for name, equal, random in zip(names, results["equal"].T, results["random"].T, strict=True)
            ),
        ],
        "No weights are stationary": [
            exactly(
                "random W at which the gradient in NumPy does not descend along the SVM solution",
                results["stationary"].sum(),
                0,
                0,
            ),
            exactly("gradient with tied scores against NumPy, relative difference", results["apart"], high=1e-9),
            exactly("instances that diagnose() does not tell", results["not told"].sum(), 0, 0),
        ],
        "Random scores on the same tokens (1,000 independent runs)": [
            share(f"selects the optimal tokens, {name} ({value:g})", flags, *around(value))
            for name, flags, value in zip(names, results["random"].T, RANDOM_SCORES, strict=True)
        ],
    }


def curves(results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Columns of the CSV: quantiles of 1 - correlation along the equal-score runs."""
    columns: dict[str, np.ndarray] = {"step": RECORDS}
    for i, (n, T, d) in enumerate(SIZES):
        for name, level in (("median", 50), ("p90", 90)):
            columns[f"n{n}_T{T}_d{d}_{name}"] = np.percentile(1 - results["correlation"][:, i], level, axis=0)
    return columns


def plot(results: Mapping[str, np.ndarray]) -> Figure:
    """Left: share of runs on the optimal tokens.  Right: distance of the direction from their SVM."""
    runs = len(results["equal"])
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.3))
    x = np.arange(len(SIZES))
    for key, offset, color in (("equal", -0.2, "#0072B2"), ("random", 0.2, "#999999")):
        height = results[key].mean(axis=0)
        left.bar(x + offset, height, 0.36, yerr=error_bars(height, runs), color=color, capsize=3, label=f"{key} scores")
    left.set_xticks(x, [f"n={n}, T={T}, d={d}" for n, T, d in SIZES])
    left.set(ylabel="share of runs that select the optimal tokens", ylim=(0, 1))
    finish(left, "From a random start")
    left.margins(x=0.03)
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=2, frameon=False)
    columns = curves(results)
    for (n, T, d), color in zip(SIZES, COLORS, strict=True):
        for name, line in (("median", "-"), ("p90", (0, (4, 2)))):
            label = f"n={n}, T={T}, d={d}, {'median' if name == 'median' else '90th percentile'}"
            right.loglog(RECORDS, columns[f"n{n}_T{T}_d{d}_{name}"], color=color, linestyle=line, label=label)
    right.set(xlabel="training step", ylabel="1 - correlation with the optimal tokens' SVM")
    finish(right, "Equal scores: the direction converges", "lower left", fontsize=9)
    figure.suptitle("Equal non-optimal scores: nearly every start ends on the optimal tokens", fontsize=12)
    figure.supxlabel(f"{runs} runs a bar; error bars: exact 95 % intervals.", fontsize=9, color="0.3")
    return figure
