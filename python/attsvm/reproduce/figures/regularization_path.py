"""Regularisation paths: minimisers of the loss over growing balls turn to the SVM in the norm of the balls.

This is a theorem of Tarzanagh et al.  The mean loss is minimised over growing Frobenius balls and over growing nuclear
balls.  (Bounding the nuclear norm of W = K Q^T is bounding ``(||K||^2 + ||Q||^2) / 2``.)  Left: the direction of the
minimisers converges to the SVM solution of the optimal tokens in the norm of the ball; the SVM of the other norm stays
at a distance.  Right: the excess of the loss over its infimum falls like exp(-radius / ||W_svm||), the rate of the
SVM's margin.  It does so long after the loss itself has stopped changing in double precision (grey).  Causal attention,
where every token is a query over the tokens up to itself, does the same (dotted).
"""

import numpy as np

from ... import LinearHead, Problem, causal_attention, regularization_path
from ...claims import exactly, median, share
from ..panels import BLUE, DASHED, ORANGE, band, finish, picture
from ..problems import D, N, T, correlations, draws, sphere_problem, svm_of
from ..textbook import gradient_of, norms, unit

# Radii of the balls, in units of the norm of the SVM solution.
MARGINS = np.array([1, 2, 3, 5, 7, 10, 14, 20, 30, 50, 70, 100.0])
TOL = 1e-6
MOST = 50_000  # iterations of a point: one of 720 runs needed more than 5,000 at the largest radius
CAUSAL = 3, 5  # number of sequences in causal problems, and of tokens in each
NORMS = {"frobenius": "Frobenius", "nuclear": "nuclear"}
PAPER = "{SVM}: the theorem on regularisation paths; no picture"
CAPTION = "Left: how far the minimisers are from the SVM solutions. Right: how much loss is left."
RUNS, QUICK = 100, 24
SETTINGS = f"""{N} sequences of {T} random unit tokens, d = {D}, mean logistic loss; radii are multiples of the norm of
the SVM solution, every point has a relative Frank-Wolfe gap of at most {TOL:g}.  Causal: {CAUSAL[0]} sequences of
{CAUSAL[1]} tokens with a label each; draws without an SVM are drawn again."""


def experiment(rng):
    """Minimises the loss over balls of every radius in both norms.  Measures the minimisers' correlations with both
    SVMs, the logarithm of their loss above its infimum, and their Frank-Wolfe gaps."""
    problem = sphere_problem(rng)
    solutions = {norm: svm_of(problem, norm) for norm in NORMS}
    found = {}
    for norm in NORMS:
        path = regularization_path(problem, MARGINS / solutions[norm].margin, norm, tol=TOL, max_iter=MOST)
        found |= {
            **{f"{norm} {of}": correlations(path.weights, svm.W) for of, svm in solutions.items()},
            f"{norm} log excess": path.log_excess,
            f"{norm} gap": path.gap,
            f"{norm} by hand": max(frank_wolfe(problem, path, i) for i in np.flatnonzero(MARGINS <= 7)),
        }
    return found | {"causal own": causal(rng)}


def causal(rng):
    """Draws causal problems until one has an SVM, minimises its loss over growing Frobenius balls, and returns the
    correlations of the minimisers with the Frobenius SVM."""
    for _ in draws():
        tokens, v = (unit(rng.standard_normal(shape)) for shape in ((*CAUSAL, D), D))
        problem = Problem(causal_attention(tokens), rng.choice([-1.0, 1.0], CAUSAL), LinearHead(v))
        solution = svm_of(problem)
        if solution.W is not None:
            return correlations(regularization_path(problem, MARGINS / solution.margin, tol=TOL).weights, solution.W)


def frank_wolfe(problem, path, point):
    """Computes the relative Frank-Wolfe gap of a minimiser W on the path, ``(<G, W> + radius ||G||_dual) / (radius
    ||G||_dual)``.

    G is the textbook gradient at W.  The gap is 0 where no W of the ball is better to first order, and infinite outside
    of the ball.
    """
    W, radius = path.weights[point], path.radii[point]
    G = gradient_of(problem, W)
    gap = 1 + np.vdot(G, W) / (radius * norms(G, path.norm)[1])
    return np.inf if norms(W, path.norm)[0] > radius * (1 + 1e-9) else gap


def claims(results):
    """Claims that the minimisers' directions converge to the SVM like 1 / R^2 in the radius R, and that the loss falls
    at the rate of the SVM's margin."""
    groups, late = {}, (MARGINS == 30).argmax()
    for (norm, title), other in zip(NORMS.items(), reversed(NORMS), strict=True):
        off = 1 - results[f"{norm} {norm}"]
        slope = np.diff(results[f"{norm} log excess"][:, [-3, -1]], axis=1) / (MARGINS[-1] - MARGINS[-3])
        before, after = off[:, [late, -1]].T
        falls = (np.diff(off[:, MARGINS >= 5]) < 0).all(axis=1)
        groups[f"{title} ball, radius times margin up to {MARGINS[-1]:g}"] = [
            median("1 - correlation with the SVM, at 30", before, 0, 0.01),
            median("1 - correlation with the SVM, at 100", after, 0, 0.001),
            median("1 - correlation at 30 over that at 100: 11 when it falls like 1 / R^2", before / after, 7.5, 12),
            share("1 - correlation falls from each radius to the next, from 5 on", falls, 0.85),
            median("correlation with the SVM of the other norm, at 100", results[f"{norm} {other}"][:, -1], 0.8, 0.9),
            exactly("slope of the log-excess against radius times margin, from 50 on", slope, -1.02, -0.98),
            exactly("largest gap, of a tolerance of 1e-6", results[f"{norm} gap"], high=1e-6),
            exactly("gradient in NumPy at margins up to 7: relative gap", results[f"{norm} by hand"], high=2e-6),
        ]
    off = 1 - results["causal own"]
    groups["Causal attention, Frobenius ball"] = [
        median("1 - correlation with the SVM, at 100", off[:, -1], 0, 0.001),
        median("1 - correlation at 30 over that at 100", off[:, late] / off[:, -1], 5, 14),
    ]
    return groups


@picture(width_ratios=(1.3, 1))
def plot(results, left, right):
    """Draws, against the radius, the minimisers' distances from the SVM directions (left) and their loss above its
    infimum (right)."""
    for (norm, title), color in zip(NORMS.items(), (BLUE, ORANGE), strict=True):
        for of, name in NORMS.items():
            off, line = 1 - results[f"{norm} {of}"], "-" if of == norm else DASHED
            band(MARGINS, off, f"{title} ball and {name} SVM", left, color=color, linestyle=line)
        band(MARGINS, results[f"{norm} log excess"] / np.log(10), f"{title} ball", right)
    off = 1 - results["causal own"]
    band(MARGINS, off, "Frobenius, causal", left, color="0.4", linestyle=":")
    right.axhspan(-50, -16, color="0.9", zorder=0)
    right.text(97, -17, "below the last bit of the loss", ha="right", va="top", color="0.4", fontsize=9)
    finish(left, "Directions meet the SVM of their norm", "radius / norm of the SVM solution", "1 - correlation", "xy")
    label = "log10 of the loss above its infimum"
    finish(right, "The loss falls by the margin", "radius / norm of the SVM solution", label, ylim=(-46, 0))
    return (
        "Regularisation path: minimisers over growing balls",
        f"Lines: mean of {len(off)} runs.  Bands: 10th to 90th percentile.",
    )
