"""Quadratic head v.x - lambda |x|^2: the larger lambda, the more tokens attention keeps, by an exact rule.

As in Tarzanagh et al., the head is v.x - lambda |x|^2, labels are +1 and tokens orthonormal.  Then the best attention
of a sequence is the projection of its scores v.x / (2 lambda) onto the simplex.  Left: how many tokens this projection
keeps, by the exact rule (line) and by training (dots).  Right: one minus the correlation of trained weights with W_fin
+ R W_svm, with the general SVM of the kept sets, and with the SVM of the best tokens alone.

The probabilities of tokens left out decay only like 1 / step.  At the end many are still above the thresholds that
suit saturated attention.  So training is said to keep the tokens whose probability has stopped falling.
"""

import numpy as np

from ... import Problem, QuadraticHead, correlation, cross_attention, solve_svm, train
from ...claims import median, none
from ...theory import decompose, selected_sets, tokens_kept
from ..panels import finish, picture
from ..textbook import projection, unit

N, T, D = 4, 6, 10
LAMBDAS = np.array([0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 1.0, 2.0])
STEPS = 4000
RATES = 1 / np.sqrt(np.arange(1, STEPS + 1))
PAPER = """{SVM}: tokens selected as lambda grows (lambda mode of notebook multi_token_converge.ipynb, which cannot run
as published)"""
CAPTION = "Left: how many tokens attention keeps. Right: how far W is from three predictions."
RUNS, QUICK = 100, 16
SETTINGS = f"""{N} sequences of {T} orthonormal tokens, d = {D}, queries and v of length 1, labels +1, logistic loss, W
trained from 0 by normalised gradient descent with the learning rate 1 / sqrt(step) for {STEPS} steps."""
EXACT = 1e-9  # values of 1 - correlation below this are rounding errors


def experiment(rng):
    """Draws orthonormal tokens, trains W with every lambda, and compares the tokens that attention keeps with the exact
    rule."""
    X = np.linalg.qr(rng.standard_normal((N, D, T)))[0].swapaxes(1, 2)
    Z, v = (unit(rng.standard_normal(shape)) for shape in ((N, D), D))
    data = cross_attention(X, Z)
    return [_at(data, v, X @ v, lam) for lam in LAMBDAS]


def _at(data, v, scores, lam):
    found = train(Problem(data, None, QuadraticHead(v, lam)), lr=RATES, steps=STEPS, record=[STEPS // 2])
    before, p = data.probabilities(found.weights[1]), found.probabilities
    best = projection(scores / (2 * lam))
    correct = best > 0
    parts = None if correct.all() else decompose(data, p, found.W, selected=correct)
    return {
        "rule": tokens_kept(scores, lam),
        # the number of tokens whose probability fell by less than a quarter in the second half of the run
        "trained": (p > 0.75 * before).sum(axis=1),
        "projection": correct.sum(axis=1),
        "undecided": selected_sets(p)[1],
        "distance": np.abs(p - best).max(),
        # Largest final probability of a token left out, over its value at half the steps: 1/2 if it falls like 1/step.
        "decay": (p[~correct] / before[~correct]).max(initial=0.0),
        "left": p[~correct].max(initial=0.0),
        "parts": parts.correlation if parts else np.nan,
        "general": correlation(found.W, parts.W_svm) if parts else np.nan,
        "one": correlation(found.W, solve_svm(data, scores.argmax(axis=1)).W),
    }


def claims(results):
    """Claims that attention keeps as many tokens as the exact rule says, and that W turns to W_fin + R W_svm.  A run
    counts as one number, the mean or median over its lambdas and queries."""
    rule, trained, left = results["rule"], results["trained"], results["left"]
    several, wide, kept = LAMBDAS >= 0.1, LAMBDAS >= 0.3, trained.mean(axis=2)
    right = (trained == rule).mean(axis=(1, 2))
    gained = np.nanmedian((results["general"] - results["one"])[:, wide], axis=1)
    undecided, falling = results["undecided"].mean(axis=(1, 2)), np.where(left > 0, results["decay"], np.nan)
    return {
        "How many tokens are kept": [
            none("queries where the rule and the projection by sorting differ", rule != results["projection"]),
            median("part of a draw's queries that keep as many as the rule says", right, 0.92, 1),
            median("tokens kept by training, lambda = 0.01", kept[:, 0], 1, 1.3),
            median("tokens kept by training, lambda = 0.2", kept[:, 5], 2.1, 2.7),
            median("tokens kept by training, lambda = 2", kept[:, -1], 5.8, 6),
            median("largest distance of attention to the projection", np.median(results["distance"], axis=1), 0, 0.01),
        ],
        "What is left out decays like 1 / step": [
            median("its part left after twice the steps", np.nanmedian(falling[:, several], axis=1), 0.45, 0.6),
            median("largest probability of a token left out, at the end", np.median(left[:, wide], axis=1), 1e-5, 1e-2),
            median("part of a draw's queries not decided at 1e-6 and 1e-3", undecided, 0.6, 0.85),
        ],
        "Direction of W": [
            median("correlation with W_fin + R W_svm", np.nanmedian(results["parts"], axis=1), 0.97, 1),
            median("lambda >= 0.3: general SVM over one token", gained, 0.35, 0.7),
        ],
    }


@picture((11, 4.8), 2)
def plot(results, left, right):
    """Draws, against lambda, the number of tokens that attention keeps beside the exact rule (left), and the distances
    of W from three predictions (right)."""
    left.plot(LAMBDAS, results["rule"].mean(axis=(0, 2)), color="0.4", label="exact rule")
    left.plot(LAMBDAS, results["trained"].mean(axis=(0, 2)), "o", label="trained")
    finish(left, "How many tokens attention keeps", "lambda", "tokens kept per sequence", "x", ylim=(0.8, T + 0.2))
    kinds = {"parts": "W_fin + R W_svm", "general": "general SVM", "one": "SVM of one token per sequence"}
    for key, label in kinds.items():
        off = 1 - np.ma.masked_invalid(results[key]).mean(axis=0).filled(np.nan)
        # W is W_fin if every token is kept; the distance from the prediction is then a rounding error.
        off[off < EXACT] = np.nan
        right.plot(LAMBDAS, off, "o-", label=label, markersize=4)
    finish(right, "Where W goes", "lambda", "1 - correlation with W", "xy", xlim=(0.008, 2.5), ylim=(0.002, 1))
    left.set_xlim(0.008, 2.5)
    return (
        f"Quadratic head v.x - lambda |x|^2, {N} sequences of {T} orthonormal tokens, d = {D}",
        f"Means over {len(results['rule'])} draws.  Where every token is kept W is W_fin: no point.",
    )
