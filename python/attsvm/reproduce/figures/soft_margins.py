"""SVMs with a soft margin, where no W separates the tokens, and SVMs with a different margin for each token.

Left: on tokens that no W separates, the soft margin trades the norm of W against the amount by which margins fall short
of 1.  As its constant C grows, W grows and the shortfall decreases, but never to 0.  On tokens that can be separated,
the soft margin's solution approaches that of the hard margin like 1 / C.  If no W separates the optimal tokens,
training ends on other tokens, which some W separates.  Right: each row asks for a margin of its own, of either sign.
The norm of the solution grows with the spread of these margins.
"""

import numpy as np
from numpy.linalg import norm

from ... import correlation, diagnose, feasible, train
from ...claims import exactly, median, none, share
from ..panels import finish, medians, picture
from ..problems import correlations, draws, on_best, sphere_problem, svm_of
from ..textbook import differences, gradient_of, support_margins

N, T = 6, 6
NARROW, WIDE = 2, 10  # dimension in which tokens are hardly ever separable, and dimension in which they always are
# Number of sequences, tokens and dimensions of the problem whose run starts from the first gradient step.
SMALL = 4, 4, 20
FAR = 10  # least margin of the initial weights of the run that starts from the first gradient step
COSTS = np.geomspace(0.1, 1e4, 11)
# The SVM asks its rows for random margins with mean 1; these are the standard deviations of these margins.
ASKED = np.array([0, 0.25, 0.5, 1, 2, 4])
PAPER = "{NOWHERE}: the SVM where tokens cannot be separated"
CAPTION = "Left: what the soft margin gives up as C grows. Right: the price of margins that differ."
RUNS, QUICK = 200, 72
SETTINGS = f"""{N} sequences of {T} random unit tokens, the optimal ones selected; d = {NARROW} (draws that are not
separable; others are drawn again) and d = {WIDE}; margins 1 + width N(0, 1).  From the first gradient: {SMALL[0]}
sequences of {SMALL[1]} tokens, d = {SMALL[2]}, from -R grad L(0) with the least margin {FAR}."""


def experiment(rng):
    for _ in draws():
        problem = sphere_problem(rng, N, T, NARROW)
        narrow = feasible(problem.data, problem.optimal)
        if narrow.W is None:
            break
    wide = sphere_problem(rng, N, T, WIDE)
    hard = svm_of(wide).W
    margins = 1 + ASKED[:, None, None] * rng.standard_normal((N, T))
    asked = [svm_of(wide, margins=each) for each in margins]
    return {
        "farkas": farkas(problem, narrow.certificate),
        **trained(problem),
        "narrow": softened(problem, None),
        "wide": softened(wide, hard),
        "asked norm": [norm(sol.W) / norm(hard) for sol in asked],
        "asked optimality": max(map(kkt, [wide] * len(asked), asked, margins)),
        **first_step(wide),
        **from_first_step(sphere_problem(rng, *SMALL)),
    }


def softened(problem, hard):
    """Solves SVMs with a soft margin for every C.  Measures how far their margins fall short of 1, their optimality,
    the norm of each W, and its distance from the hard margin's W, NaN if ``hard`` is None."""
    weights = np.array([svm_of(problem, C=cost).W for cost in COSTS])
    return {
        "short": [shortfall(problem, W).max() for W in weights],
        "optimality": max(optimality(problem, W, C) for W, C in zip(weights, COSTS, strict=True)),
        "norm": [*map(norm, weights)],
        "off": 1 - correlations(weights, hard),
    }


def _adjoint(problem, dual):
    return np.einsum("nt,ntd,ne->de", dual, differences(problem.data, problem.optimal), problem.data.queries)


def farkas(problem, dual):
    """Combines the SVM's rows by the multipliers ``dual`` that prove infeasibility, and returns the norm of the
    combination over the sum of multipliers; infinite if a multiplier is negative."""
    return norm(_adjoint(problem, dual)) / dual.sum() if dual.min() >= 0 < dual.sum() else np.inf


def shortfall(problem, W):
    """Returns the amounts (n, T) by which the margins of tokens fall short of 1, and 0 for a margin of 1 or more."""
    return np.maximum(1 - margins_of(problem, W), 0)


def optimality(problem, W, C):
    """Computes the norm of the gradient of the soft-margin objective ``1/2 ||W||^2 + C sum shortfall^2`` at W, divided
    by the sum of multipliers; it is 0 at the minimum."""
    price = 2 * C * shortfall(problem, W)
    return norm(W - _adjoint(problem, price)) / price.sum()


def kkt(problem, solution, asked):
    """Returns the largest violation of an optimality condition by a solution, which should be the W of least norm whose
    margins are at least ``asked``."""
    W, dual = solution.W, solution.dual
    excess = margins_of(problem, W) - asked
    # the product is 0 times infinity for a selected token
    signs, slack = dual / np.abs(dual).max(), np.where(dual == 0, 0, excess)
    return max(-excess.min(), -signs.min(), np.abs(slack * signs).max(), norm(W - _adjoint(problem, dual)) / norm(W))


def margins_of(problem, W):
    return support_margins(problem.data, problem.optimal, W)


def first_gradient(problem):
    """Computes the textbook gradient G of the loss at W = 0, and iota, the least margin of the optimal tokens under
    -G."""
    G = gradient_of(problem, np.zeros(2 * (problem.data.dk,)))
    return G, margins_of(problem, -G).min()


def first_step(problem):
    """Returns the error of diagnose()'s iota against NumPy, and whether iota is positive exactly if the first gradient
    step selects the best tokens."""
    (G, iota), told = first_gradient(problem), diagnose(problem).iota
    return {"iota": abs(told - iota), "separates": (told > 0) == (problem.data.select(-G) == problem.optimal).all()}


def from_first_step(problem):
    """Trains W from -R grad L(0) if this start separates the optimal tokens.  Measures whether the run ends on them,
    its least margin on the way, and its final correlation with their SVM."""
    G, iota = first_gradient(problem)
    if iota <= 0:
        return dict.fromkeys(("end", "cone", "end correlation"), np.nan)
    start = -FAR / iota * G
    run = train(problem, start, lr=norm(start) / 100, steps=2000, record=50)
    return {
        "end": float(on_best(run)),
        "cone": min(margins_of(problem, W).min() / norm(W) for W in run.weights) * norm(start) / FAR,
        "end correlation": correlation(run.W, svm_of(problem).W),
    }


def trained(problem):
    """Trains W on a problem in which no W separates the optimal tokens, and measures where the run ends.

    Measured: whether some W separates the tokens of its end, how far its loss stays above that of the optimal tokens,
    and whether every query has chosen a token.  The loss is measured in units of the least excess that any W has: one
    query gives its optimal token at most half of its attention, since another token has at least the same logit.
    """
    run = train(problem, steps=8000, record=[4000])
    best, second = -np.sort(-problem.scores)[:, :2].T
    least = (np.logaddexp(0, -(best + second) / 2) - np.logaddexp(0, -best)).min() / len(best)
    return {
        "ends on": feasible(problem.data, run.selected).W is not None,
        "loss left": (run.loss[-1] - problem.infimum()) / least,
        "chosen": not np.any(run.undecided),
    }


def claims(results):
    """Claims that solutions with soft or given margins are optimal, that training ends on separable tokens if the
    optimal ones are not, and that runs from the first gradient step keep the optimal tokens."""
    off = results["wide off"]
    solved = np.maximum(results["narrow optimality"], results["wide optimality"]) <= 1e-6
    hundred, end = off[:, np.isclose(COSTS, 100)], results["end"]
    fall = np.log10(hundred / off[:, -1:])
    started = np.isfinite(end)
    return {
        "Soft margin": [
            median("separable: 1 - correlation with the hard margin, C = 100", hundred, 1e-7, 1e-2),
            median(
                "separable: log10 of its fall from C = 100 to C = 10,000, 4 when it is like 1 / C^2", fall, 3.5, 4.2
            ),
            median(
                "not separable: how far the worst row stays short of 1, C = 10,000",
                results["narrow short"][:, -1],
                0.9,
                2.5,
            ),
            share("not separable: W grows with C", (np.diff(results["narrow norm"]) > 0).all(axis=1), 0.9),
        ],
        "Margins of their own": [
            median("norm of W for margins 1 + 4 N(0, 1), over that for 1", results["asked norm"][:, -1], 3, 6)
        ],
        "First gradient step": [
            exactly("iota by diagnose() and by the textbook gradient: difference", results["iota"], high=1e-12),
            none("draws where iota > 0 and the first step's selection disagree", ~results["separates"]),
        ],
        f"From the first gradient, where it separates the optimal tokens, n = T = {SMALL[0]}, d = {SMALL[2]}": [
            share("it does", started, 0.2),
            none("runs that end on other tokens", end == 0),
            exactly("least margin on the way over that of the start", results["cone"][started], 0.5),
            median("correlation with the SVM after 2,000 steps", results["end correlation"][started], 0.995),
        ],
        "Training where no W separates the optimal tokens": [
            none("ends on tokens that no W separates", ~results["ends on"]),
            exactly("loss above that of the optimal tokens, over the least of any W", results["loss left"], 1),
            share("every query has chosen after 8,000 steps", results["chosen"], 0.4),
        ],
        "Conditions of optimality, from the tokens in NumPy": [
            exactly("infeasible: multipliers combine the rows to zero", results["farkas"], high=1e-9),
            share("soft margin: gradient of its objective below 1e-6 for every C", solved, 0.95),
            exactly("given margins: largest violation", results["asked optimality"], high=1e-7),
        ],
    }


@picture()
def plot(results, left, right):
    """Draws how far soft margins fall short of 1, against C (left), and the norm of W against the spread of the margins
    that rows ask for (right)."""
    for name, label in (("narrow", "not separable"), ("wide", "separable")):
        medians(COSTS, results[f"{name} short"], f"{label}: worst row short of 1", left)
    off = results["wide off"]
    medians(COSTS, off, "separable: 1 - correlation with the hard margin", left)
    finish(left, "Soft margin", "C", "distance", "xy")
    medians(ASKED, results["asked norm"], "d = 10", right)
    finish(right, "Margins of their own", "width of the margins asked", "norm of W over that for margins of 1")
    return (
        f"Soft and given margins: {N} sequences of {T} tokens",
        f"Lines: median of {len(off)} runs.  Bands: 10th to 90th percentile.",
    )
