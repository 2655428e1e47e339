"""Soft and given margins: what the SVM says where tokens cannot be separated, and where rows ask for more or less.

Left, on tokens that no W separates, the soft margin trades the norm of W against how far rows stay short of 1: as its
constant C grows, W grows and the rows come nearer, but never all the way.  On tokens that can be separated it goes to
the hard margin's solution like 1 / C.  Training on tokens that no W separates ends on others, which some W does.
Right, rows that ask for margins of their own, of either sign: how the norm of the solution grows with what is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .. import Problem, Separation, correlation, diagnose, feasible, solve_svm, train
from ..plot.curves import band, correlations, finish, weights_of
from ..report.claims import Claim, exactly, median, share
from ._instances import sphere_problem
from ._numpy import loss_gradient, support_margins
from ._papers import NOWHERE

N, T = 6, 6
NARROW, WIDE = 2, 10  # dimensions: hardly ever separable, always
SMALL = 4, 4, 20  # sequences, tokens and d of the runs from the first gradient
FAR = 10  # the least margin of their start
COSTS = np.geomspace(0.1, 1e4, 11)
ASKED = np.array([0, 0.25, 0.5, 1, 2, 4])  # width of the margins asked, around 1
PAPER = f"{NOWHERE}: the SVM where tokens cannot be separated"
CAPTION = "Left: what the soft margin gives up as C grows. Right: the price of margins that differ."
RUNS, QUICK = 200, 72
SETTINGS = (
    f"{N} sequences of {T} random unit tokens, the optimal ones selected; d = {NARROW} (draws that are not separable; "
    f"others are drawn again) and d = {WIDE}; margins 1 + width N(0, 1).  From the first gradient: {SMALL[0]} "
    f"sequences of {SMALL[1]} tokens, d = {SMALL[2]}, from -R grad L(0) with the least margin {FAR}."
)


def experiment(rng: np.random.Generator) -> dict[str, Any]:
    drawn = 1
    while (narrow := feasible((problem := sphere_problem(rng, N, T, NARROW)).data, problem.optimal)).W is not None:
        drawn += 1
    wide = sphere_problem(rng, N, T, WIDE)
    hard = weights_of(solve_svm(wide.data, wide.optimal))
    found: dict[str, Any] = {"drawn": drawn, "farkas": farkas(problem, narrow), **trained(problem)}
    for name, data in (("narrow", problem), ("wide", wide)):
        softened = [solve_svm(data.data, data.optimal, C=cost) for cost in COSTS]
        found[f"{name} short"] = np.array([shortfall(data, sol).max() for sol in softened])
        found[f"{name} norm"] = np.array([np.linalg.norm(weights_of(sol)) for sol in softened])
        found[f"{name} optimality"] = max(optimality(data, sol, C) for sol, C in zip(softened, COSTS, strict=True))
        if name == "wide":
            found["wide off"] = 1 - correlations(np.stack([weights_of(sol) for sol in softened]), hard)
    noise = rng.standard_normal((N, T))
    asked = [solve_svm(wide.data, wide.optimal, margins=1 + width * noise) for width in ASKED]
    found["asked norm"] = np.array([np.linalg.norm(weights_of(sol)) / np.linalg.norm(hard) for sol in asked])
    pairs = zip(asked, ASKED, strict=True)
    found["asked optimality"] = max(kkt(wide, sol, 1 + width * noise) for sol, width in pairs)
    return found | first_step(wide) | from_first_step(sphere_problem(rng, *SMALL))


def _rows(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    d = problem.data.dk
    return problem.data.keys.reshape(N, T, d), problem.data.queries


def _adjoint(problem: Problem, dual: np.ndarray) -> np.ndarray:
    X, Z = _rows(problem)
    return np.einsum("nt,ntd,ne->de", dual, X[np.arange(N), problem.optimal][:, None] - X, Z)


def farkas(problem: Problem, solution: Separation) -> float:
    """How far multipliers that prove there is no W are from combining the rows to zero; they must not be negative."""
    dual = solution.certificate
    if dual is None or dual.min() < 0 or dual.sum() == 0:
        return np.inf
    return float(np.linalg.norm(_adjoint(problem, dual)) / dual.sum())


def shortfall(problem: Problem, solution: Separation) -> np.ndarray:
    """By how much each row misses a margin of 1."""
    X, Z = _rows(problem)
    return np.maximum(1 - support_margins(X, Z, problem.optimal, weights_of(solution)), 0)


def optimality(problem: Problem, solution: Separation, C: float) -> float:
    """Of ``1/2 ||W||^2 + C sum short^2``: how far its gradient is from zero, relative to the parts it is a sum of."""
    price = 2 * C * shortfall(problem, solution)
    return float(np.linalg.norm(weights_of(solution) - _adjoint(problem, price)) / price.sum())


def kkt(problem: Problem, solution: Separation, asked: np.ndarray) -> float:
    """Of the least norm with margins of at least ``asked``: the largest violated condition."""
    (X, Z), W = _rows(problem), weights_of(solution)
    excess = support_margins(X, Z, problem.optimal, W) - asked
    rows, dual = np.isfinite(excess), np.asarray(solution.dual)
    largest = max(np.abs(dual).max(), 1e-300)
    violated = (
        -excess[rows].min(),
        -dual.min() / largest,
        np.abs(excess[rows] * dual[rows]).max() / largest,
        np.linalg.norm(W - _adjoint(problem, dual)) / max(float(np.linalg.norm(W)), 1e-300),
    )
    return float(max(violated))


def first_step(problem: Problem) -> dict[str, Any]:
    """iota by the textbook gradient at zero; and whether a first step that separates selects the optimal tokens."""
    X, Z = _rows(problem)
    G = loss_gradient(X, Z, problem.scores, np.zeros((WIDE, WIDE)))
    iota = support_margins(X, Z, problem.optimal, -G).min()
    told = diagnose(problem)
    selects = bool((np.einsum("ntd,nd->nt", X, -Z @ G.T).argmax(axis=1) == problem.optimal).all())
    return {"iota": abs(told.iota - iota), "separates": (told.iota > 0) == selects, "positive": told.iota > 0}


def from_first_step(problem: Problem) -> dict[str, Any]:
    """Training from -R grad L(0), where that separates the optimal tokens: the theorem of a good first gradient."""
    n, T, d = SMALL
    X, Z = problem.data.keys.reshape(n, T, d), problem.data.queries
    G = loss_gradient(X, Z, problem.scores, np.zeros((d, d)))
    iota, size = support_margins(X, Z, problem.optimal, -G).min(), np.linalg.norm(G)
    if iota <= 0:
        return {"end": np.nan, "cone": np.nan, "end correlation": np.nan}
    run = train(problem, -FAR / iota * G, lr=FAR * size / iota / 100, steps=2000, record=50)
    least = min(support_margins(X, Z, problem.optimal, W).min() / np.linalg.norm(W) for W in run.weights)
    return {
        "end": float(np.array_equal(run.selected, problem.optimal)),
        "cone": least * size / iota,
        "end correlation": correlation(run.W, weights_of(solve_svm(problem.data, problem.optimal))),
    }


def trained(problem: Problem) -> dict[str, Any]:
    """Training where no W separates the optimal tokens: whether some W separates those it ends on, by how much its
    loss stays above that of the optimal ones, and how much W grows."""
    run = train(problem, steps=8000, record=[4000])
    return {
        "ends on": feasible(problem.data, run.selected).W is not None,
        "loss left": run.loss[-1] - problem.infimum(),
        "chosen": not np.any(run.undecided),
    }


def claims(results: Mapping[str, np.ndarray]) -> dict[str, list[Claim]]:
    """Prices of the soft margin, margins of their own, and conditions of optimality from the tokens."""
    off, short = results["wide off"], results["narrow short"]
    solved = np.maximum(results["narrow optimality"], results["wide optimality"]) <= 1e-6
    return {
        "Soft margin": [
            median(
                "separable: 1 - correlation with the hard margin, C = 100",
                off[:, np.isclose(COSTS, 100)].ravel(),
                1e-7,
                1e-2,
            ),
            median(
                "separable: log10 of its fall from C = 100 to C = 10,000, 4 when it is like 1 / C^2",
                np.log10(off[:, np.isclose(COSTS, 100)] / off[:, np.isclose(COSTS, 1e4)]),
                3.5,
                4.2,
            ),
            median("not separable: how far the worst row stays short of 1, C = 10,000", short[:, -1], 0.9, 2.5),
            share("not separable: W grows with C", (np.diff(results["narrow norm"]) > 0).all(axis=1), 0.9),
        ],
        "Margins of their own": [
            median("norm of W for margins 1 + 4 N(0, 1), over that for 1", results["asked norm"][:, -1], 3, 6)
        ],
        "First gradient step": [
            exactly("iota by diagnose() and by the textbook gradient: difference", results["iota"], high=1e-12),
            exactly(
                "draws where iota > 0 and the first step's selection disagree",
                (~results["separates"].astype(bool)).sum(),
                0,
                0,
            ),
        ],
        f"From the first gradient, where it separates the optimal tokens, n = T = {SMALL[0]}, d = {SMALL[2]}": [
            share("it does", np.isfinite(results["end"]), low=0.2),
            exactly("runs that end on other tokens", (results["end"] == 0).sum(), 0, 0),
            exactly("least margin on the way over that of the start", of_those(results["cone"]), low=0.5),
            median("correlation with the SVM after 2,000 steps", of_those(results["end correlation"]), low=0.995),
        ],
        "Training where no W separates the optimal tokens": [
            exactly("ends on tokens that no W separates", (~results["ends on"].astype(bool)).sum(), 0, 0),
            exactly("least loss above that of the optimal tokens", results["loss left"], low=1e-3),
            share("every query has chosen after 8,000 steps", results["chosen"], low=0.4),
        ],
        "Conditions of optimality, from the tokens in NumPy": [
            exactly("infeasible: multipliers combine the rows to zero", results["farkas"], high=1e-9),
            share("soft margin: gradient of its objective below 1e-6 for every C", solved, 0.95),
            exactly("given margins: largest violation", results["asked optimality"], high=1e-7),
        ],
    }


def of_those(values: np.ndarray) -> np.ndarray:
    """Of the draws whose first gradient separates."""
    return values[np.isfinite(values)]


def curves(results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Columns of the CSV: medians over C."""
    keys = ("narrow short", "narrow norm", "wide short", "wide norm", "wide off")
    return {"C": COSTS, **{key.replace(" ", "_"): np.median(results[key], axis=0) for key in keys}}


def plot(results: Mapping[str, np.ndarray]) -> Figure:
    """Soft margins over C, given margins over their width."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    looks = (("narrow", "not separable", "#D55E00"), ("wide", "separable", "#0072B2"))
    for name, label, color in looks:
        shown = np.maximum(results[f"{name} short"], 1e-9)
        band(COSTS, shown, f"{label}: worst row short of 1", left, middle="median", color=color, linewidth=2)
    off = np.maximum(results["wide off"], 1e-17)
    look: dict[str, Any] = {"color": "#009E73", "linewidth": 2, "middle": "median"}
    band(COSTS, off, "separable: 1 - correlation with the hard margin", left, **look)
    left.set(xscale="log", yscale="log", xlabel="C", ylabel="distance")
    finish(left, "Soft margin", "lower left", fontsize=9)
    band(ASKED, results["asked norm"], "d = 10", right, middle="median", color="#0072B2", linewidth=2)
    right.set(xlabel="width of the margins asked", ylabel="norm of W over that for margins of 1")
    finish(right, "Margins of their own")
    runs = len(results["drawn"])
    figure.suptitle(f"Soft and given margins: {N} sequences of {T} tokens", fontsize=12)
    figure.supxlabel(f"Lines: median of {runs} runs.  Bands: 10th to 90th percentile.", fontsize=9, color="0.3")
    return figure
