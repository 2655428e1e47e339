"""How fast W turns to the SVM direction under three update rules: slopes on a log-log plot.

After Vasudeva et al.: under normalised descent and under Polyak steps the norm of W grows in proportion to the step k;
under plain descent it grows like log k.  The error of the direction is about one over the norm.  So the first two rules
have slope -1, and Polyak steps have the smaller constant; the proved slope is -1/2.  Plain descent has slope
``-1 / log k``, close to 0.  Last panel: the attention to all but the best tokens falls exponentially with the norm.
"""

import numpy as np

from ... import train
from ...claims import exactly, median, share
from ..panels import finish, medians, picture
from ..problems import D, N, T, correlations, log_spaced, on_best, one_scored, svm_of
from ..textbook import certificate, gradient_of, slope, support_margins

STEPS, FIT = 10_000, 1000  # number of training steps; the slopes of curves are fitted from step FIT on
RULES = {
    "normalised": {"lr": 0.1},
    "Polyak": {"rule": "polyak", "lr": 1000.0},
    "plain": {"rule": "constant", "lr": 1.0},
}
RECORD = log_spaced(1, STEPS, 60)
LATE = RECORD >= FIT
PAPER = "{RATES}: rates of normalised descent and of the Polyak step; no code, settings not known"
CAPTION = """Left: the error of the direction, and its slope behind each name. Middle: how the norm of W grows. Right:
how fast attention to the other tokens vanishes."""
RUNS, QUICK = 100, 36
SETTINGS = f"""{N} sequences of {T} tokens and queries uniform on the unit sphere, d = {D}; a random token of each has
score 1, all others 0; logistic loss, W(0) = 0, {STEPS:,} steps; learning rates 0.1 (normalised) and 1 (plain), Polyak
steps not shortened.  Slopes are fitted from step {FIT:,} on."""


def experiment(rng):
    """Trains W by each rule, and measures along training the error of W's direction, the norm of W, and the attention
    to other tokens than the best."""
    problem = one_scored(rng)
    svm = svm_of(problem)
    found = {"gap": certificate(svm)["gap"]}
    for name, how in RULES.items():
        run = train(problem, steps=STEPS, record=RECORD, **how)
        found |= {
            f"{name} error": np.sqrt(2 * (1 - np.clip(correlations(run.weights[1:], svm.W), -1, 1))),
            f"{name} norm": run.norm[1:],
            # The least difference of logits, best token minus another token, over all queries and all other tokens.
            f"{name} lead": [support_margins(problem.data, problem.optimal, W).min() for W in run.weights[1:]],
            f"{name} best": on_best(run),
        }
    return found | {"plain first": found["plain norm"][0] / np.linalg.norm(gradient_of(problem, np.zeros((D, D))))}


def power(curves):
    """Returns the slope of each curve on logarithmic axes, fitted from step FIT on."""
    return slope(np.log(RECORD[LATE]), np.log(curves[:, LATE]))


def claims(results):
    """Claims how fast the error of W's direction falls and the norm of W grows under each rule, and that the SVM
    solutions have small gaps."""
    logarithm = [np.corrcoef(np.log(RECORD[LATE]), norm[LATE])[0, 1] for norm in results["plain norm"]]
    normalised, polyak, plain = (results[f"{name} error"][:, -1] for name in RULES)
    constant = {
        name: (results[f"{name} error"] * results[f"{name} norm"])[:, LATE] for name in ("normalised", "Polyak")
    }
    return {
        "Slope of the direction's error": [
            median("normalised (proved: -1/2 or steeper)", power(results["normalised error"]), -1.1, -0.8),
            median("Polyak (proved: -1/2 or steeper)", power(results["Polyak error"]), -1.1, -0.9),
            median("plain, at 1,000 to 10,000 steps -1 / log k = -.12", power(results["plain error"]), -0.25, -0.05),
            share("errors: Polyak < normalised < plain", (polyak < normalised) & (normalised < plain), 0.9),
        ],
        "Growth of the norm": [
            median("normalised: slope", power(results["normalised norm"]), 0.99, 1.01),
            median("normalised: over steps", results["normalised norm"][:, -1] / STEPS, 0.097, 0.101),
            exactly("plain: first step over the gradient", results["plain first"], 1 - 1e-9, 1 + 1e-9),
            median("Polyak: slope", power(results["Polyak norm"]), 0.99, 1.01),
            median("plain: correlation with log k", logarithm, 0.999),
            *(median(f"{name}: error times norm, largest over smallest", x.max(axis=1) / x.min(axis=1), high=2)
              for name, x in constant.items()),
        ],
        "All queries on their best token": [
            *(share(name, results[f"{name} best"], 0.9) for name in RULES),
            exactly("largest gap of margin and multipliers, in NumPy", results["gap"], high=1e-8),
        ],
    }  # fmt: skip


@picture((12, 4), 3)
def plot(results, error, norm, attention):
    """Draws along training, for each rule, the error of W's direction (left), the norm of W (middle), and -log of the
    attention to other tokens than the best (right)."""
    for name in RULES:
        errors = results[f"{name} error"]
        medians(RECORD, errors, f"{name}: {np.median(power(errors)):.2f}", error)
        medians(RECORD, results[f"{name} norm"], name, norm)
        medians(RECORD, np.maximum(results[f"{name} lead"], 1e-2), name, attention)
    finish(error, "Error of the direction, and its slope", "step", "||W / ||W|| - SVM / ||SVM|| ||", "xy")
    finish(norm, "Growth of the norm", "step", "norm of W", "xy")
    finish(attention, "Attention on other tokens", "step", "- log of the attention of another token", "xy")
