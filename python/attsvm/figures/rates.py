"""How fast directions converge: slopes on a log-log plot.

Normalised descent and the Polyak step let the norm of W grow in proportion to the step k, plain descent like its
logarithm; and the direction of W is off by about one over the norm.  So the first two have slope -1 (their proved rate
is -1/2), Polyak with the better constant; plain descent has slope ``-1 / log k``, next to nothing.  Last panel: the
attention of all but the best tokens falls exponentially with the norm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .. import LinearHead, Problem, cross_attention, sample, solve_svm, train
from ..plot.curves import band, correlations, finish
from ..report.claims import Claim, exactly, median, share
from ._numpy import certificate, loss_gradient
from ._papers import RATES

N, T, D = 6, 8, 10
STEPS, FIT = 10_000, 1000  # slopes are fitted from here on
RULES: dict[str, dict[str, Any]] = {
    "normalised": {"lr": 0.1},
    "Polyak": {"rule": "polyak", "lr": 1000.0},
    "plain": {"rule": "constant", "lr": 1.0},
}
COLORS = {"normalised": "#0072B2", "Polyak": "#009E73", "plain": "#D55E00"}  # Okabe and Ito's
RECORD = np.unique(np.geomspace(1, STEPS, 60).astype(int))
PAPER = f"{RATES}: rates of normalised descent and of the Polyak step; no code, settings not known"
CAPTION = (
    "Left: the error of the direction, and its slope behind each name. Middle: how the norm of W grows. Right: "
    "how fast attention to the other tokens vanishes."
)
RUNS, QUICK = 100, 36
SETTINGS = (
    f"{N} sequences of {T} tokens and queries uniform on the unit sphere, d = {D}; a random token of each has score 1, "
    f"all others 0; logistic loss, W(0) = 0, {STEPS:,} steps; learning rates 0.1 (normalised) and 1 (plain), Polyak "
    f"steps not shortened.  Slopes are fitted from step {FIT:,} on."
)


def experiment(rng: np.random.Generator) -> dict[str, Any]:
    """Errors, norms and attention (records) of each rule."""
    X, Z, _, _ = sample.unit_sphere(N, T, D, rng)
    best = rng.integers(T, size=N)
    scores = (np.arange(T) == best[:, None]).astype(float)
    data = cross_attention(X, Z, scores[..., None])
    problem = Problem(data, None, LinearHead([1.0]))
    svm = solve_svm(data, best)
    found: dict[str, Any] = {"gap": certificate(X, Z, best, svm)["gap"]}
    for name, how in RULES.items():
        trained = train(problem, steps=STEPS, record=RECORD, **how)
        cosine = np.clip(correlations(trained.weights[1:], svm.W), -1, 1)
        lead = [_lead(np.asarray(data.logits(W)), best) for W in trained.weights[1:]]  # - log of their ratio
        found[f"{name} error"] = np.sqrt(2 * (1 - cosine))
        found[f"{name} norm"] = trained.norm[1:]
        found[f"{name} lead"] = lead
        found[f"{name} best"] = bool((trained.selected == best).all())
    first = np.linalg.norm(loss_gradient(X, Z, scores, np.zeros((D, D))))
    found["plain first"] = found["plain norm"][0] / first
    return found


def _lead(logits: np.ndarray, best: np.ndarray) -> float:
    """The least lead in logits of the best token of a query over all its other tokens."""
    top = np.take_along_axis(logits, best[:, None], axis=1)
    others = logits.copy()
    np.put_along_axis(others, best[:, None], -np.inf, axis=1)
    return float((top[:, 0] - others.max(axis=1)).min())


def slope(steps: np.ndarray, curves: np.ndarray) -> np.ndarray:
    """Least-squares slope of each log curve over log steps, from FIT on."""
    late = steps >= FIT
    x = np.log(steps[late])
    return (np.log(curves[:, late]) @ (x - x.mean())) / ((x - x.mean()) ** 2).sum()


def claims(results: Mapping[str, np.ndarray]) -> dict[str, list[Claim]]:
    """What theory says of these slopes."""
    slopes = {name: slope(RECORD, results[f"{name} error"]) for name in RULES}
    norms = {name: slope(RECORD, results[f"{name} norm"]) for name in RULES}
    late = RECORD >= FIT
    logarithm = [np.corrcoef(np.log(RECORD[late]), norm[late])[0, 1] for norm in results["plain norm"]]
    normalised, polyak, plain = (results[f"{name} error"][:, -1] for name in RULES)
    constant = [
        results[f"{name} error"][:, late] * results[f"{name} norm"][:, late] for name in ("normalised", "Polyak")
    ]
    return {
        "Slope of the direction's error": [
            median("normalised (proved: -1/2 or steeper)", slopes["normalised"], low=-1.1, high=-0.8),
            median("Polyak (proved: -1/2 or steeper)", slopes["Polyak"], low=-1.1, high=-0.9),
            median("plain, at 1,000 to 10,000 steps -1 / log k = -.12", slopes["plain"], low=-0.25, high=-0.05),
            share("errors: Polyak < normalised < plain", (polyak < normalised) & (normalised < plain), low=0.9),
        ],
        "Growth of the norm": [
            median("normalised: slope", norms["normalised"], low=0.99, high=1.01),
            median("normalised: over steps", results["normalised norm"][:, -1] / STEPS, low=0.097, high=0.101),
            exactly("plain: first step over the gradient", results["plain first"], 1 - 1e-9, 1 + 1e-9),
            median("Polyak: slope", norms["Polyak"], low=0.99, high=1.01),
            median("plain: correlation with log k", logarithm, low=0.999),
            *(median(f"{name}: error times norm, largest over smallest", (x.max(axis=1) / x.min(axis=1)), high=2)
              for name, x in zip(("normalised", "Polyak"), constant, strict=True)),
        ],
        "All queries on their best token": [
            *(share(name, results[f"{name} best"], low=0.9) for name in RULES),
            exactly("largest gap of margin and multipliers, in NumPy", results["gap"], high=1e-8),
        ],
    }  # fmt: skip


def curves(results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Columns of the CSV: medians over the instances."""
    columns = {"step": RECORD}
    for name in RULES:
        for what in ("error", "norm", "lead"):
            columns[f"{name.lower()}_{what}"] = np.median(results[f"{name} {what}"], axis=0)
    return columns


def plot(results: Mapping[str, np.ndarray]) -> Figure:
    """Error and norm over the step, and attention on the other tokens."""
    figure = Figure(figsize=(12, 4), layout="constrained")
    error, norm, attention = figure.subplots(1, 3)
    for name, color in COLORS.items():
        for ax, what in ((error, "error"), (norm, "norm"), (attention, "lead")):
            numbers = results[f"{name} {what}"]
            if what == "lead":
                numbers = np.maximum(numbers, 1e-2)
            label = name if what != "error" else f"{name}: {np.median(slope(RECORD, numbers)):.2f}"
            band(RECORD, numbers, label, ax, middle="median", color=color, linewidth=2)
    for ax, label, title in (
        (error, "||W / ||W|| - SVM / ||SVM|| ||", "Error of the direction, and its slope"),
        (norm, "norm of W", "Growth of the norm"),
        (attention, "- log of the attention of another token", "Attention on other tokens"),
    ):
        ax.set(xlabel="step", ylabel=label, xscale="log", yscale="log")
        finish(ax, title, "best", fontsize=8)
    return figure
