"""Probability of global convergence: it grows with d, and falls with n and T.

How often training W ends on the best token of every sequence, against the dimension of the tokens: for more sequences
on the left, for longer ones on the right.  Dashed, how often all tokens are support tokens of the optimal ones, the
condition under which no weights are stationary.  It comes later than global convergence, so it is not necessary; nor is
it a guarantee, since a run may still diverge towards other locally optimal tokens, as one in some fifty does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .. import solve_svm, train
from ..plot import finish
from ..report.claims import Claim, mean, share
from ._instances import all_support, around, ending, margin_error, sphere_problem
from ._papers import SVM

DIMENSIONS = (4, 8, 16, 32, 64)
SIZES = ((5, 5), (10, 5), (20, 5), (5, 10), (5, 20))  # n, T
WIDE = (128, 256)  # dimensions at which the support is looked at without training, n = T = 5
LR, STEPS = 0.1, 1500
COLORS = ("#0072B2", "#D55E00", "#009E73")
PAPER = f"{SVM}: probability of global convergence over the dimension (no notebook; settings not known)"
CAPTION = "How often training ends on the best tokens, against the dimension: for more sequences, and for longer ones."
RUNS, QUICK = 400, 40
SETTINGS = (
    f"n sequences of T random unit tokens, mean logistic loss, {STEPS} steps of normalised gradient descent on W from "
    f"0 with learning rate {LR}; global: every softmax above 0.99 on its query's best token.  The published settings "
    "are not known."
)
# Independent runs, 60 a cell and 30 at d = 64, with a gradient that stalls: global, and locally optimal or global.
REFERENCE: dict[tuple[int, int], tuple[float, ...]] = {
    (5, 5): (0.67, 0.80, 0.93, 1, 1),
    (5, 10): (0.43, 0.63, 0.78, 0.88, 0.97),
}
REFERENCE |= {(5, 20): (0.53, 0.53, 0.57, 0.67), (10, 5): (0.03, 0.47, 0.77, 1, 1), (20, 5): (0, 0.02, 0.50, 0.78)}
ALLOWED = 0.18
SUPPORT = {((5, 5), 32): 0.15, ((5, 5), 64): 0.77, ((10, 5), 32): 0.02, ((10, 5), 64): 0.30}


def experiment(rng: np.random.Generator) -> dict[str, Any]:
    """Of every size and dimension, how it ended and whether all tokens are support."""
    shape = (len(SIZES), len(DIMENSIONS))
    found = {key: np.zeros(shape, dtype=bool) for key in ("global", "local", "all support")}
    for i, j in np.ndindex(shape):
        problem = sphere_problem(rng, *SIZES[i], DIMENSIONS[j])
        end = ending(problem, train(problem, lr=LR, steps=STEPS, record=0), "frobenius")
        found["global"][i, j], found["local"][i, j] = end["global"], end["local"]
        found["all support"][i, j] = all_support(problem, solve_svm(problem.data, problem.optimal))
    wide = [sphere_problem(rng, *SIZES[0], d) for d in WIDE]
    found["wide"] = np.array([all_support(problem, solve_svm(problem.data, problem.optimal)) for problem in wide])
    return found


def claims(results: Mapping[str, np.ndarray]) -> dict[str, list[Claim]]:
    """Trends; and the references."""
    best, held = results["global"], results["all support"]

    def gained(more: tuple[int, int], less: tuple[int, int]) -> np.ndarray:
        return best[:, *more].astype(float) - best[:, *less]

    return {
        "Probability of global convergence grows with d": [
            mean(f"n = {n}, T = {T}: d = 64 minus d = 4", gained((i, 4), (i, 0)), 0.25, 1)
            for i, (n, T) in enumerate(SIZES)
        ],
        "... and falls with n and T": [
            mean("d = 8: n = 5 minus n = 10", gained((0, 1), (1, 1)), 0.25, 0.55),
            mean("d = 8: n = 10 minus n = 20", gained((1, 1), (2, 1)), 0.3, 0.6),
            mean("d = 16: n = 5 minus n = 20", gained((0, 2), (2, 2)), 0.4, 0.7),
            mean("d = 32: T = 5 minus T = 10", gained((0, 3), (3, 3)), 0.04, 0.2),
            mean("d = 32: T = 10 minus T = 20", gained((3, 3), (4, 3)), 0.05, 0.25),
            mean("d = 64: T = 5 minus T = 20", gained((0, 4), (4, 4)), 0.12, 0.32),
        ],
        f"... within {ALLOWED} of 60 independent runs with a less exact gradient (30 at d = 64)": [
            share(
                f"n = {n}, T = {T}, d = {DIMENSIONS[j]} ({value:g})",
                best[:, SIZES.index((n, T)), j],
                *around(value, ALLOWED),
            )
            for (n, T), row in REFERENCE.items()
            for j, value in enumerate(row)
        ],
        "All tokens are support of the optimal ones": [
            *(
                share(
                    f"n = {n}, T = {T}, d = {d} (independent draws: {value:g})",
                    held[:, SIZES.index((n, T)), DIMENSIONS.index(d)],
                    *around(value, ALLOWED if d < 64 else 0.22),
                )
                for ((n, T), d), value in SUPPORT.items()
            ),
            share("n = T = 5, d = 128", results["wide"][:, 0], 0.9),
            share(f"n = T = 5, d = {WIDE[-1]}", results["wide"][:, -1], 0.98),
        ],
        "Where runs end": [
            share("all tokens are support: global", best[held], 0.95),
            share("globally or locally optimal, d >= 8", (best | results["local"])[:, :, 1:], 0.95),
        ],
    }


def curves(results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Columns of the CSV: shares at every d, for each n, T."""
    columns: dict[str, np.ndarray] = {"d": np.array(DIMENSIONS)}
    for i, (n, T) in enumerate(SIZES):
        for what in ("global", "local", "all support"):
            columns[f"n{n}_T{T}_{what.replace(' ', '_')}"] = results[what].mean(axis=0)[i]
    return columns


def plot(results: Mapping[str, np.ndarray]) -> Figure:
    """Probability of global convergence against d, for n and for T."""
    runs = len(results["global"])
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    panels = zip(figure.subplots(1, 2, sharey=True), (SIZES[:3], (SIZES[0], *SIZES[3:])), (0, 1), strict=True)
    for ax, sizes, letter in panels:
        for size, color in zip(sizes, COLORS, strict=True):
            best, held = (results[what].mean(axis=0)[SIZES.index(size)] for what in ("global", "all support"))
            look = {"color": color, "marker": "."}
            ax.errorbar(DIMENSIONS, best, margin_error(best, runs), label=f"{'nT'[letter]} = {size[letter]}", **look)
            ax.plot(DIMENSIONS, held, linestyle=(0, (4, 2)), **look)
        ax.plot([], [], color="0.3", linestyle=(0, (4, 2)), label="all tokens are support")
        ax.set_xscale("log", base=2)
        ax.set_xticks(DIMENSIONS, [str(d) for d in DIMENSIONS])
        ax.set(xlabel="dimension d", ylim=(-0.01, 1.0))
        finish(ax, ("T = 5 tokens, n sequences", "n = 5 sequences, T tokens")[letter])
        ax.legend(loc="upper left", bbox_to_anchor=(0.52, 0.41), frameon=False)
    figure.axes[0].set_ylabel("probability")
    figure.suptitle("Solid: training ends on the optimal tokens.  Dashed: all tokens are support tokens", fontsize=12)
    figure.supxlabel(f"{runs} runs a point; error bars: three standard errors.", fontsize=9, color="0.3")
    return figure
