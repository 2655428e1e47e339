"""Rank of the SVM's W for n sequences in dimension d: min(n, d) in Frobenius norm, a few in nuclear norm.

As in Tarzanagh et al., the best token of every random sequence is selected and both SVMs are solved, for several
numbers n of sequences and T of tokens.  Ranks are averages over the draws that have a solution; a singular value counts
above 1e-4 of the largest.  Every solution is certified.  The panels below show the share of draws that have a solution.

Thin lines show the published counting of the same solutions.  It counts a draw without solution as rank 1, and singular
values above an absolute 1e-7; so its curves start at 1.  Crosses are the published nuclear ranks.  No exact solution
has them: they are near n, where the solutions found here, certified to a relative gap of 1e-9, have rank two to five.
"""

import numpy as np

from ...claims import exactly, mean, none, share
from ..panels import DASHED, PALETTE, finish, picture, shares
from ..problems import around, flat, sphere_problem, svm_of
from ..textbook import apart, certificate

DIMENSIONS = (1, 2, 3, 4, 5, 10, 15, 20)
NORMS = {"frobenius": "Frobenius", "nuclear": "nuclear"}
ABSOLUTE = 1e-7  # absolute tolerance of the paper: larger singular values count for the rank
# A solver that needs hundreds of steps is stopped after this number, to test that it calls no bad answer optimal.
HASTE = 3

PAPER = "{SVM}: ranks of the two SVM solutions over the dimension (notebook svm_rank.ipynb)"
CAPTION = """Above: mean rank against the dimension, for more sequences (left) and longer ones (right). Below: how many
draws can be separated at all."""
RUNS, QUICK = 400, 72
SETTINGS = "Tokens, queries and head uniform on the unit sphere; W is d x d; the selected tokens are the optimal ones."

# For each (n, T) and d, the share of 1,000 independent draws that have a solution.
# The reference shares of draws with a solution come from SciPy and Clarabel (reference_shares.py at commit d7d1777).
FEASIBLE = {
    (5, 5): {2: 0.345, 3: 0.94},
    (10, 5): {2: 0.02, 3: 0.18, 4: 0.89},
    (15, 5): {3: 0.02, 4: 0.24, 5: 0.955},
    (5, 10): {2: 0.295, 3: 0.71, 4: 0.99},
    (5, 15): {2: 0.32, 3: 0.70, 4: 0.97},
}
SIZES = tuple(FEASIBLE)
# For each (n, T) and d, the share of independent solutions, by SciPy and Clarabel, whose Frobenius rank is min(n, d).
FULL = {
    (5, 5): {2: 0.97, 3: 0.98, 4: 0.98, 5: 0.895},
    (10, 5): {4: 1, 5: 1, 10: 0.955},
    (15, 5): {5: 1, 10: 1, 15: 0.945},
    (5, 10): {3: 0.98, 4: 0.97, 5: 0.88},
    (5, 15): {3: 0.98, 4: 0.97, 5: 0.89},
}
# For each (n, T) and d, the mean rank of the nuclear solutions of 400 independent draws, by SciPy and Clarabel.
NUCLEAR = {
    (5, 5): {3: 2.39, 4: 2.55, 5: 2.58, 10: 2.64, 15: 2.645},
    (10, 5): {4: 3.49, 5: 3.73, 10: 3.78, 15: 3.79},
    (15, 5): {4: 3.81, 5: 4.32, 10: 4.70, 15: 4.71},
}
# The published mean ranks in the order of DIMENSIONS, for each (n, T) and for each n with T = 5.
# Infeasible draws count as rank 1 in them.
PUBLISHED_FROBENIUS = {
    (5, 5): (1, 1.3, 2.8, 4.0, 4.9, 5, 5, 5),
    (10, 5): (1, 1, 1.2, 3.6, 5, 10, 10, 10),
    (15, 5): (1, 1, 1, 1.45, 4.8, 10, 15, 15),
}
PUBLISHED_NUCLEAR = {
    5: (1, 1.3, 2.8, 3.9, 4.5, 4.9, 4.9, 5),
    10: (1, 1, 1.2, 3.6, 5, 9.1, 10, 10),
    15: (1, 1, 1, 1.45, 4.8, 9.7, 13.9, 14.9),
}


def experiment(rng):
    """Solves the Frobenius and the nuclear SVM for each size (n, T) and dimension d.  Returns ranks and certificates as
    arrays (sizes, dimensions), NaN for a draw that has no solution."""
    return [flat([cell(sphere_problem(rng, *size, d)) for d in DIMENSIONS]) for size in SIZES]


def cell(problem):
    found = dict.fromkeys((*NORMS, "gap", "stated"), np.nan)
    found |= dict.fromkeys(("outside", "ranks that differ", "judged too soon"), 0.0)
    found |= dict.fromkeys(("frobenius published", "nuclear published"), 1.0)  # the paper counts no solution as rank 1
    Q, _ = np.linalg.qr(problem.data.queries.T)
    for norm in NORMS:
        solution = svm_of(problem, norm)
        if (W := solution.W) is None:
            return found  # if this norm has no solution, the other norm has none either
        proof = certificate(solution)
        stated = abs(solution.margin / proof["margin"] - 1), abs(solution.margin_bound / proof["bound"] - 1)
        worst = {"gap": proof["gap"], "stated": max(stated), "outside": apart(W @ Q @ Q.T, W)}
        found |= {key: np.fmax(found[key], number) for key, number in worst.items()}
        found |= {norm: solution.rank, f"{norm} published": np.linalg.matrix_rank(W, tol=ABSOLUTE)}
        found["ranks that differ"] += proof["rank"] != solution.rank
    return found | {"judged too soon": judged_too_soon(problem)}


def judged_too_soon(problem):
    """Whether a gradient solver that is stopped after HASTE steps calls separable tokens infeasible, or calls an answer
    optimal whose gap is too large."""
    stopped = svm_of(problem, method="gradient", max_iter=HASTE)
    wrong = stopped.status == "optimal" and not certificate(stopped)["gap"] <= 1e-8
    return wrong or stopped.status == "infeasible"


def cells(table, of, sizes=SIZES, dimensions=DIMENSIONS):
    """Iterates over the sizes (n, T) and dimensions d of a table, whose rows are mappings or in the order of all
    dimensions.  Yields the name of a cell, the draws of ``of`` (draws, sizes, dimensions) that have a number, the bound
    min(n, d) of a rank, and the value in the table."""
    for (n, T), row in table.items():
        for d, value in row.items() if isinstance(row, dict) else zip(dimensions, row, strict=True):
            x = of[:, sizes.index((n, T)), dimensions.index(d)]
            yield f"n = {n}, T = {T}, d = {d}", x[np.isfinite(x)], min(n, d), value


def claims(results):
    """Claims that the ranks of SVM solutions agree with the theory, and with independent solutions of at least 400
    draws for each size."""
    feasible = np.isfinite(results["frobenius"])
    n, T = np.array(SIZES).T[..., None]
    bound, enough = np.minimum(n, DIMENSIONS), DIMENSIONS >= np.maximum(T - 1, n)
    full, half = results["frobenius"] == bound, results["nuclear"] <= np.ceil(bound / 2)
    return {
        "Feasible, and how often": [
            none("d >= max(T - 1, n): draws that are not feasible", ~feasible[:, enough]),
            *(
                share(f"{text} ({value:g} of independent draws)", x, *around(value))
                for text, x, _, value in cells(FEASIBLE, feasible)
            ),
        ],
        "Rank of the Frobenius solution": [
            share("rank = min(n, d) where d > max(T - 1, n)", full[:, enough & (bound != DIMENSIONS)], 0.9),
            *(
                share(f"rank = min(n, d), {text} ({value:g} of independent draws)", x == most, *around(value))
                for text, x, most, value in cells(FULL, results["frobenius"])
            ),
        ],
        "Rank of the nuclear solution": [
            share("at most half of min(n, d), rounded up, where d >= 10", half[:, :, 5:], 0.8),
            *(
                mean(f"mean rank, {text} ({value:g} of independent draws)", x, (1, most), value - 0.5, value + 0.5)
                for text, x, most, value in cells(NUCLEAR, results["nuclear"])
            ),
        ],
        "As published: infeasible draws counted as rank 1": [
            mean(f"Frobenius, {text} (published {value:g})", x, (1, most), value - 0.3, value + 0.3)
            for text, x, most, value in cells(PUBLISHED_FROBENIUS, results["frobenius published"])
            # No claim is made for n = 15, T = 5, d = 4: the published mean rank is 1.45, the mean of 400 draws is 1.7.
            if value < most and text != "n = 15, T = 5, d = 4"
        ],
        "Every solution, recomputed in NumPy": [
            exactly("largest gap of margin and multipliers", results["gap"][feasible], high=1e-8),
            exactly("margin and bound as solve_svm() states them, relative", results["stated"][feasible], high=1e-9),
            none("ranks that differ", results["ranks that differ"]),
            none(
                f"separable draws that a solver stopped after {HASTE} steps calls infeasible, or solved too soon",
                results["judged too soon"],
            ),
            exactly("part of W outside the span of the queries", results["outside"], high=1e-8),
        ],
    }


@picture((11, 7), 2, 2, height_ratios=(3, 1), sharex=True)
def plot(results, *axes):
    """Draws the mean ranks of both SVM solutions against d, for several n (left) and for several T (right), and below
    them the share of draws that have a solution."""
    columns = ("T = 5 tokens, n sequences", (0, 1, 2)), ("n = 5 sequences, T tokens", (0, 3, 4))
    for letter, ((title, sizes), above, below) in enumerate(zip(columns, *axes, strict=True)):
        for i, color in zip(sizes, PALETTE, strict=False):
            label = f"{'nT'[letter]} = {SIZES[i][letter]}"
            for (norm, name), line in zip(NORMS.items(), ("-", DASHED), strict=True):
                look = {"color": color, "linestyle": line}
                ranks = np.ma.masked_invalid(results[norm][:, i]).mean(axis=0)  # of the draws that have a solution
                above.plot(DIMENSIONS, ranks, label=f"{label}, {name}", marker=".", **look)
                above.plot(DIMENSIONS, results[f"{norm} published"][:, i].mean(axis=0), linewidth=0.6, **look)
            if letter == 0:
                above.plot(DIMENSIONS, PUBLISHED_NUCLEAR[SIZES[i][0]], "x", color=color, markersize=5)
            shares(DIMENSIONS, np.isfinite(results["frobenius"][:, i]), label, below, color=color)
        finish(above, title, ylabel="rank, mean of the feasible draws")
        finish(below, "Share of feasible draws", "dimension d", "share", ylim=(-0.02, 1), xticks=DIMENSIONS)
    return (
        "Rank of the SVM solutions: min(n, d) for Frobenius, a few for nuclear",
        f"{len(results['frobenius'])} draws a point.  Thin: the published counting of the same solutions (infeasible "
        "= rank 1, absolute tolerance 1e-7).  Crosses: published nuclear ranks.",
    )
