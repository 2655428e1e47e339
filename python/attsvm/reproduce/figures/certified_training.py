"""Training certifies itself: the gradient bounds the largest margin from above, W reaches it from below.

Under softmax, the gradients in the logits of a query sum to zero.  So -dL/dW is exactly a combination of the SVM's
rows, and the logit gradients are its multipliers.  Any nonnegative multipliers prove an upper bound of the largest
margin.  Those of a run converge to the SVM's multipliers long before W has turned.  Left: both ends of the proved
interval, divided by the largest margin, which the SVM gives.  Middle: distances of W and of the negative gradient from
the SVM's direction, under gradient descent.  Right: how far each rule's bound is above the largest margin in its norm,
against the norm of W.  For K and Q the bound is true but loose.  We think that is because their product grows so fast:
only the queries with the least margins still have a gradient, and these margins are not yet equal.
"""

import numpy as np

from ... import MLPHead, Problem, causal_attention, cross_attention, rules, solve_svm, train
from ...claims import exactly, median
from ..panels import BLUE, ORANGE, finish, medians, picture
from ..problems import D, N, T, columns, correlations, flat, log_spaced, sphere_problem
from ..textbook import differences, tokens_of, unit

STEPS, LR = 3000, 0.1
RECORDS = log_spaced(30, STEPS, 25, np.round)
HIDDEN = 8  # number of hidden units of the ReLU head
START = 0.1  # standard deviation of the entries of K(0) and Q(0)
RULES = {
    "normalized": {},
    "mirror 3": {"rule": rules.mirror(p=3.0), "lr": 1.0},
    "sign": {"rule": "sign", "lr": 0.03},
    "spectral": {"rule": "spectral", "lr": 0.05},
    "factors": {},
}
NORMS = {"mirror 3": 3.0, "sign": "max", "spectral": "spectral", "factors": "nuclear"}
TITLES = ("gradient descent, Frobenius", "mirror descent, l3", "signs, max", "spectral", "K and Q, nuclear")
PAPER = "{NOWHERE}; for linear classifiers, gradient descent is mirror descent on the dual (Ji and Telgarsky 2019)"
CAPTION = """Left: both ends of the largest margin that a run of gradient descent proves, as parts of it. Middle: how
far W and the negative gradient are from the SVM. Right: how far each rule's bound is above the largest margin of its
norm."""
RUNS, QUICK = 100, 20
SETTINGS = f"""{N} sequences of {T} tokens, queries and head uniform on the unit sphere, d = {D}, W(0) = 0 (factors:
normal of deviation {START}), {STEPS:,} steps of length {LR} (mirror 1, signs 0.03, spectral 0.05); causal: three
sequences of five tokens; ReLU head: {HIDDEN} units of positive weight; two tokens: each sequence has a copy of its
first token, kept beside it."""


def softplus(u):
    return np.logaddexp(0.0, -u)


def log_slope(u):
    s = softplus(u)
    return -u - s - np.log(4 * s) / 2


LOSSES = {
    "exponential loss": "exponential",
    "linear loss": "linear",
    # the square root of the logistic loss, its derivative, and the logarithm of |derivative|
    "rooted logistic loss": (lambda u: np.sqrt(softplus(u)), lambda u: -np.exp(log_slope(u)), log_slope),
}
# Runs of gradient descent whose loss, head or data differ come after the runs in RULES.
SETTINGS_OF = (*RULES, *LOSSES, "ReLU head", "causal", "two tokens")
# Claimed limits for the relative excess of a run's upper bound over the largest margin; 1e-3 for all other runs.
BOUNDS = {"mirror 3": 3e-2, "sign": 3e-2, "spectral": 3e-2, "causal": 1e-2}


def experiment(rng):
    problem = sphere_problem(rng)
    data, y, head, (X, Z) = problem.data, problem.y, problem.head, tokens_of(problem.data)
    hows = RULES | {"factors": dict(zip("KQ", START * rng.standard_normal((2, D, D)), strict=True))}
    tokens = unit(rng.standard_normal((3, 5, D)))
    relu = MLPHead(rng.standard_normal((D, HIDDEN)), rng.uniform(0.5, 1.5, HIDDEN))
    problems = {name: Problem(data, y, head, loss) for name, loss in LOSSES.items()} | {
        # The ReLU head is convex, so that one token is best for each query.
        # Near the best token the ReLU head is linear, and the theory of linear heads applies.
        "ReLU head": Problem(data, None, relu),
        "causal": Problem(causal_attention(tokens), rng.choice([-1.0, 1.0], (3, 5)), head),
        # each sequence gets a copy of its first token at its end
        "two tokens": Problem(cross_attention(np.concatenate([X, X[:, :1]], axis=1), Z), y, head),
    }
    rows = []
    for name in SETTINGS_OF:
        how = {"lr": LR} | hows.get(name, {})
        run = train(problems.get(name, problem), **how, steps=STEPS, record=RECORDS)
        selected = run.selected
        if name == "two tokens":  # if the selected token has a copy, the copy counts as selected too
            selected = (differences(run.data, selected) == 0).all(axis=-1)
        svm = solve_svm(run.data, selected, NORMS.get(name, "frobenius"))
        rows.append(interval(run, selected, svm))
        if name == "normalized":
            weights, W = run.weights[1:], svm.W
            gradients = np.array([problem.loss_and_grad(V, scaled=True)[1].W for V in weights])
            off = {"W off": 1 - correlations(weights, W), "gradient off": 1 - correlations(-gradients, W)}
    return flat(rows) | off


def interval(run, selected, svm):
    """Compares the bounds of the largest margin that a run proves with the margin of the SVM.  Returns both bounds as
    shares of this margin, the norms of W, and the number of false bounds."""
    if not svm.margin:  # the run has selected tokens that no W separates
        return dict.fromkeys(("low", "high", "norm"), np.nan * RECORDS) | {"false": 0}
    least, most = run.margins(selected=selected)
    return {
        "low": least[1:] / svm.margin,
        "high": most[1:] / svm.margin_bound,
        "norm": run.norm[1:],
        "false": (least > svm.margin_bound).sum() + (most < svm.margin).sum(),
    }


def claims(results):
    """Claims that no proved bound of the largest margin is false, that the negative gradient turns to the SVM before W
    does, and that both bounds approach the largest margin like powers of ||W||."""
    excess = results["high"] - 1
    above, short, norm = excess[:, 0], 1 - results["low"][:, 0], results["norm"][:, 0]
    at = RECORDS.searchsorted(300)
    growth = np.log(norm[:, -1] / norm[:, at])
    closing, nearing = (np.log(x[:, at] / x[:, -1]) / growth for x in (above, short))
    last = dict(columns(SETTINGS_OF, excess[..., -1]))
    loose = last.pop("factors")  # K Q^T grows with the square of the step, so only the queries of least margin count
    return {
        "No end is false": [
            exactly(f"ends on the wrong side, {name}, of {2 * (len(RECORDS) + 1)} a run", false, high=0)
            for name, false in columns(SETTINGS_OF, results["false"])
        ],
        f"Gradient descent, step {STEPS:,}": [
            median("1 - correlation of the negative gradient with the SVM", results["gradient off"][:, -1], high=1e-4),
            median("1 - correlation of W with it", results["W off"][:, -1], 1e-5, 5e-3),
            median("the bound above the largest margin", above[:, -1], high=1e-4),
            median("the margin of W below it", short[:, -1], 2e-3, 0.05),
        ],
        f"Powers of ||W||, steps {RECORDS[at]} to {STEPS:,}": [
            median("with which the bound falls to the largest margin", closing, 1.7, 4),
            median("with which W's margin rises to it", nearing, 0.7, 1.5),
        ],
        f"The bound above the largest margin of its norm, step {STEPS:,}": [
            *(median(name, x, high=BOUNDS.get(name, 1e-3)) for name, x in last.items() if name != "normalized"),
            median("factors, whose bound stays loose", loose, 0.3, 30),
        ],
    }


@picture((13, 4.6), 3)
def plot(results, left, middle, right):
    """Draws the proved bounds of the largest margin (left), the distances of W and of the negative gradient from the
    SVM direction (middle), and how far each rule's upper bound exceeds the largest margin (right)."""
    excess = results["high"] - 1
    medians(RECORDS, results["high"][:, 0], "proved by the gradient", left, color=ORANGE)
    medians(RECORDS, results["low"][:, 0], "reached by W", left, color=BLUE)
    left.axhline(1, color="0.3", linewidth=0.8)
    medians(RECORDS, results["W off"], "W", middle)
    medians(RECORDS, results["gradient off"], "-gradient", middle)
    for i, title in enumerate(TITLES):
        right.plot(np.nanmedian(results["norm"][:, i], 0), np.nanmedian(excess[:, i], 0), label=title)
    finish(left, "Two ends of one number", "training step", "part of the largest margin", "x", ylim=(0, 2))
    finish(middle, "The gradient turns first", "training step", "1 - correlation with the SVM", "xy")
    finish(right, "Each rule in its own norm", "Frobenius norm of the weights", "bound / largest margin - 1", "xy")
    return (
        f"Training certifies itself: {N} sequences of {T} tokens, d = {D}",
        f"Lines: median of {len(excess)} runs.  Bands: 10th to 90th percentile.",
    )
