"""Probability of global convergence: it grows with d, and falls with n and T.

How often training W ends on the best token of every sequence, against the dimension of the tokens: for more sequences
on the left, for longer ones on the right.  Dashed, how often all tokens are support tokens of the optimal ones, the
paper's condition for no weights to be stationary (independent rows, as for n = T = 5 from d = 5 on, are another).  It
comes later than global convergence, so it is not necessary; nor is it a guarantee, since a run may still diverge
towards other locally optimal tokens, as one in some fifty does.  At the right, of all selections of small problems: how
often the optimal one alone is locally optimal, and how near the first gradient points to its SVM.
"""

import itertools

import numpy as np

from ... import correlation, solve_svm, train
from ...claims import difference, median, share
from ...theory import is_locally_optimal
from ...theory.conditions import all_tight
from ..panels import DASHED, described, error_bars, finish, medians, panels
from ..papers import SVM
from ..problems import ALLOWED, around, ending, sphere_problem

DIMENSIONS = (4, 8, 16, 32, 64)
SIZES = ((5, 5), (10, 5), (20, 5), (5, 10), (5, 20))  # n, T
SMALL = 4  # sequences and tokens of the problems of which all selections are solved
WIDE = (128, 256)  # dimensions at which the support is looked at without training, n = T = 5
LR, STEPS = 0.1, 1500
COLORS = ("#0072B2", "#D55E00", "#009E73")
PAPER = f"{SVM}: probability of global convergence over the dimension (no notebook; settings not known)"
CAPTION = (
    "How often training ends on the best tokens, against the dimension: for more sequences, and for longer ones. "
    "Right: how often no other direction is locally optimal."
)
RUNS, QUICK = 400, 72
SETTINGS = (
    f"n sequences of T random unit tokens, mean logistic loss, {STEPS} steps of normalised gradient descent on W from "
    f"0 with learning rate {LR}; global: every softmax above 0.99 on its query's best token.  Right: all selections of "
    f"{SMALL} sequences of {SMALL} tokens.  The published settings "
    "are not known."
)
# Of 1,000 draws by SciPy alone (reference_shares.py, d7d1777): ends on the optimal tokens, by the dimension.
REFERENCE = {
    (5, 5): (0.61, 0.86, 0.95, 0.98, 1),
    (10, 5): (0.11, 0.5, 0.85, 0.96, 0.99),
    (20, 5): (0, 0.035, 0.43, 0.85, 0.97),
    (5, 10): (0.48, 0.64, 0.79, 0.88, 0.95),
    (5, 20): (0.4, 0.49, 0.55, 0.67, 0.78),
}
SUPPORT = {((5, 5), 32): 0.11, ((5, 5), 64): 0.62, ((10, 5), 32): 0.004, ((10, 5), 64): 0.33}


def experiment(rng):
    """Of every size and dimension, how it ended and whether all tokens are support."""
    shape = (len(SIZES), len(DIMENSIONS))
    found = {key: np.zeros(shape, dtype=bool) for key in ("global", "local", "proved", "all support")}
    for i, j in np.ndindex(shape):
        problem = sphere_problem(rng, *SIZES[i], DIMENSIONS[j])
        end = ending(problem, train(problem, lr=LR, steps=STEPS, record=0), "frobenius")
        for key in ("global", "local", "proved"):
            found[key][i, j] = end[key]
        found["all support"][i, j] = all_tight(solve_svm(problem.data, problem.optimal))
    wide = [sphere_problem(rng, *SIZES[0], d) for d in WIDE]
    found["wide"] = np.array([all_tight(solve_svm(problem.data, problem.optimal)) for problem in wide])
    small = [sphere_problem(rng, SMALL, SMALL, d) for d in DIMENSIONS]
    found["alone"] = np.array([is_alone(problem) for problem in small])
    found["aligned"] = np.array([alignment(problem) for problem in small])
    return found


def is_alone(problem):
    """Whether no selection but the optimal one is locally optimal."""
    others = set(itertools.product(range(SMALL), repeat=SMALL)) - {tuple(problem.optimal.tolist())}
    answers = (solve_svm(problem.data, np.array(selected)) for selected in sorted(others))
    return not any(answer.W is not None and is_locally_optimal(problem, answer) for answer in answers)


def alignment(problem):
    """Correlation of the first gradient step with the SVM of the optimal tokens."""
    solution = solve_svm(problem.data, problem.optimal)
    step = -problem.loss_and_grad(np.zeros((problem.data.dk, problem.data.dz)))[1]
    return np.nan if solution.W is None else correlation(step, solution.W)


def claims(results):
    """Trends; and the references."""
    best, held = results["global"], results["all support"]

    def gained(text, more, less, low):
        return difference(text, best[:, *more], best[:, *less], low)

    return {
        "Ends that are proved, not looked at: no later step changes a token": [
            share("proved, of the runs that end on the optimal tokens", results["proved"][best], 0.85)
        ],
        "Probability of global convergence grows with d": [
            gained(f"n = {n}, T = {T}: d = 64 minus d = 4", (i, 4), (i, 0), 0.05) for i, (n, T) in enumerate(SIZES)
        ],
        "... and falls with n and T": [
            gained("d = 8: n = 5 minus n = 10", (0, 1), (1, 1), 0.1),
            gained("d = 8: n = 10 minus n = 20", (1, 1), (2, 1), 0.1),
            gained("d = 16: n = 5 minus n = 20", (0, 2), (2, 2), 0.1),
            gained("d = 32: T = 5 minus T = 20", (0, 3), (4, 3), 0.05),
            gained("d = 64: T = 5 minus T = 20", (0, 4), (4, 4), 0),
        ],
        f"... within {ALLOWED} of 1,000 independent runs": [
            share(f"n = {n}, T = {T}, d = {DIMENSIONS[j]} ({value:g})", best[:, SIZES.index((n, T)), j], *around(value))
            for (n, T), row in REFERENCE.items()
            for j, value in enumerate(row)
        ],
        "All tokens are support of the optimal ones: of 1,000 independent draws": [
            *(
                share(
                    f"n = {n}, T = {T}, d = {d} ({value:g})",
                    held[:, SIZES.index((n, T)), DIMENSIONS.index(d)],
                    *around(value),
                )
                for ((n, T), d), value in SUPPORT.items()
            ),
            share("n = T = 5, d = 128", results["wide"][:, 0], 0.85),
            share(f"n = T = 5, d = {WIDE[-1]}", results["wide"][:, -1], 0.95),
        ],
        f"Other locally optimal directions, n = T = {SMALL}": [
            share("some, d = 4", ~results["alone"][:, 0].astype(bool), 0.5),
            share("none, d = 16", results["alone"][:, 2], 0.7),
            share("none, d = 64", results["alone"][:, -1], 0.95),
            median("correlation of the first step with the SVM, d = 4", results["aligned"][:, 0], high=0.6),
            median("correlation of the first step with the SVM, d = 64", results["aligned"][:, -1], 0.6),
        ],
        "Where runs end": [
            share("all tokens are support: global", best[held], 0.95),
            share("globally or locally optimal, d >= 8", (best | results["local"])[:, :, 1:], 0.95),
        ],
    }


def plot(results):
    """Probability of global convergence against d, for n and for T."""
    runs = len(results["global"])
    figure, (*axes, right) = panels((15, 4.6), 3, sharey=True)
    shown = zip(axes, (SIZES[:3], (SIZES[0], *SIZES[3:])), (0, 1), strict=True)
    for ax, sizes, letter in shown:
        for size, color in zip(sizes, COLORS, strict=True):
            best, held = (results[what].mean(axis=0)[SIZES.index(size)] for what in ("global", "all support"))
            look = {"color": color, "marker": "."}
            ax.errorbar(DIMENSIONS, best, error_bars(best, runs), label=f"{'nT'[letter]} = {size[letter]}", **look)
            ax.plot(DIMENSIONS, held, linestyle=DASHED, **look)
        ax.plot([], [], color="0.3", linestyle=DASHED, label="all tokens are support")
        ax.set_xscale("log", base=2)
        ax.set_xticks(DIMENSIONS, [str(d) for d in DIMENSIONS])
        finish(
            ax,
            ("T = 5 tokens, n sequences", "n = 5 sequences, T tokens")[letter],
            "dimension d",
            ylim=(-0.01, 1.0),
            loc="upper left",
            anchor=(0.52, 0.41),
        )
    alone = results["alone"].mean(axis=0)
    look = {"color": COLORS[0], "marker": "."}
    right.errorbar(DIMENSIONS, alone, error_bars(alone, runs), label="no other direction is locally optimal", **look)
    first = "correlation of the first step with the SVM"
    medians(DIMENSIONS, results["aligned"], first, right, COLORS[1])
    right.set_xscale("log", base=2)
    right.set_xticks(DIMENSIONS, [str(d) for d in DIMENSIONS])
    finish(right, f"n = T = {SMALL}, all selections", "dimension d", loc="lower right", fontsize=9)
    figure.axes[0].set_ylabel("probability")
    return described(
        figure,
        "Solid: training ends on the optimal tokens.  Dashed: all tokens are support tokens",
        f"{runs} runs a point; error bars: exact 95 % intervals.",
    )
