"""Sequence to sequence: every token is a query, and W turns to the SVM of all queries.

In this extension by Tarzanagh et al. every token is a query, and every row of the output has its own label.  In causal
attention a query sees the tokens up to itself; the first query sees only itself, so it adds no row to the SVM.  The
theory is that of n T virtual sequences with one query each.  W turns to the Frobenius SVM of the tokens that the
queries select; (K, Q) is observed to come close to the nuclear SVM.
"""

import numpy as np

from ... import LinearHead, Problem, causal_attention, sample, self_attention, train
from ...claims import exactly, median, none, share
from ...plot.curves import largest, style
from ...theory import is_locally_optimal
from ..panels import band, finish, medians, picture
from ..problems import correlations, linear_layer, saturated, svm_of
from ..textbook import Sequences, apart, loss_gradient

N, T, D = 3, 4, 16
LR, STEPS = 0.1, 3000
SHOWN = np.arange(0, STEPS + 1, 10)
PAPER = "{SVM}: the extension to every query and causal attention; no picture"
CAPTION = "A row a mask. Left: how sharp attention becomes. Right: how far the weights are from the two SVMs."
RUNS, QUICK = 100, 24
SETTINGS = f"""{N} sequences of {T} random unit tokens, d = {D}, a fair label for every query, logistic loss,
normalised gradient descent with learning rate {LR} for {STEPS} steps from the start of a PyTorch linear layer."""
MASKS = {"causal": "causal", "every": "every token sees every token"}
# A training has a key, a name, the norm of its SVM, the other norm, and a claimed median correlation with its SVM.
KINDS = (("W", "W", "frobenius", "nuclear", 0.997), ("KQ", "(K, Q)", "nuclear", "frobenius", 0.97))


def experiment(rng):
    X, _, _, v = sample.unit_sphere(N, T, D, rng)
    y = np.where(rng.random((N, T)) < 0.5, -1.0, 1.0)
    W, K, Q = linear_layer(rng, 3, D, D)
    result = {}
    for mask, data in (("causal", causal_attention(X)), ("every", self_attention(X, query=None))):
        problem = Problem(data, y, LinearHead(v))
        for name, start in (("KQ", {"K": K, "Q": Q}), ("W", {"W": W})):
            run = train(problem, **start, lr=LR, steps=STEPS, record=SHOWN)
            solutions = {norm: svm_of(run, norm) for norm in ("frobenius", "nuclear")}
            result[f"{mask} {name}"] = {
                "softmax": [largest(data.probabilities(M)).mean() for M in run.weights],
                "saturated": saturated(run),
                **{norm: correlations(run.weights, svm.W) for norm, svm in solutions.items()},
            }
        own = solutions["frobenius"]
        solved = own.status == "optimal"
        local = solved and is_locally_optimal(problem, own)
        result[mask] = {"solved": solved, "locally optimal": local} | virtual(X, y, v, W, problem, own)
    return result


def virtual(X, y, v, W, problem, own):
    """Compares gradient and SVM solution with textbook formulas in NumPy on n T sequences of one query each.  Returns
    the relative error of the gradient and the gap of the solution.  (There is a solution, since d >= n T.)"""
    dual, gradient, adjoint, margin = np.maximum(own.dual, 0), 0, 0, np.inf
    for (n, k), selected in np.ndenumerate(own.selected):
        z, tokens = X[n, k], X[n, : problem.data.lengths[n * T + k]]
        gradient += loss_gradient(Sequences(tokens[None], z[None], y[n, k] * (tokens @ v)[None]), W) / (N * T)
        rows = tokens[selected] - tokens
        margin = min(margin, np.delete(rows @ own.W @ z, selected).min(initial=np.inf))
        adjoint += np.outer(dual[n, k, : len(tokens)] @ rows, z)
    bound = np.linalg.norm(adjoint) / dual.sum()
    return {"gradient": apart(problem.loss_and_grad(W)[1], gradient), "gap": 1 - margin / np.linalg.norm(own.W) / bound}


def claims(results):
    """Claims that W and (K, Q) turn to their SVMs, that every query ends on one token, and that gradients and solutions
    agree with NumPy on one-query sequences."""

    directions, ends, forms = [], [], []
    for mask, text in MASKS.items():
        for name, title, norm, other, least in KINDS:
            own, less = (results[f"{mask} {name} {one}"][:, -1] for one in (norm, other))
            directions += [
                median(f"{text}: {title} and its {norm} SVM", own, least, 1),
                median(f"{text}: {title}, that SVM over the other", own - less, 0.1, 0.3),
            ]
            ends.append(share(f"{text}: {title}, every query on one token", results[f"{mask} {name} saturated"], 0.85))
        ends += [
            none(f"{text}: selections that are not separable, d >= n T and T - 1", ~results[f"{mask} solved"]),
            share(f"{text}: locally optimal", results[f"{mask} locally optimal"], 0.85),
        ]
        forms += [
            exactly(f"{text}: gradient, relative difference", results[f"{mask} gradient"], high=1e-12),
            exactly(f"{text}: gap of margin and multipliers", results[f"{mask} gap"], high=1e-8),
        ]
    return {
        f"Directions after {STEPS:,} steps: correlation with the SVM of the selected tokens": directions,
        "Where attention ends": ends,
        "Against n T sequences of one query each, in NumPy": forms,
    }


@picture((11, 8), 2, 2)
def plot(results, *axes):
    """Draws a row for each mask: the largest softmax probability along training (left), and 1 - correlation of W and
    (K, Q) with both SVMs (right)."""
    for (mask, text), (left, right) in zip(MASKS.items(), axes, strict=True):
        for name, trained, *norms, _ in KINDS:
            band(SHOWN, results[f"{mask} {name} softmax"], trained, left, **style(trained))
            for norm in norms:
                label = f"{trained} and its {norm.replace('f', 'F')} SVM"
                off = 1 - results[f"{mask} {name} {norm}"][:, 1:]
                medians(SHOWN[1:], off, label, right, **style(trained, norm))
        finish(left, f"{text.capitalize()}: attention of a query", "training step", "largest softmax probability",
               xlim=(0, 600), ylim=(0, 1))  # fmt: skip
        finish(right, "Directions", "training step", "1 - correlation of the weights", "xy")
    return (
        f"Every token queries: {N} sequences of {T} tokens, d = {D}",
        f"{len(results['causal gap'])} runs.  Left: mean, right: median.  Bands: 10th to 90th percentile.",
    )
