"""If all tokens but the best have equal scores, nearly every training run ends on the best tokens.

All tokens of a sequence but the best have one score.  A theorem of Tarzanagh et al. says that then no weights are
stationary: at any weights, the loss falls along the SVM solution of the best tokens, and gradient descent diverges from
any start; here it starts from large random weights.  Nearly all runs select the best tokens and turn to their SVM
(right).  With random scores, at the same sizes, many runs end on other, locally optimal tokens.

The few exceptions have not been stopped too early: after a million steps they select the same tokens.  In each, one
query gives its best token so little attention that its own gradient stays smaller than that of the other queries.  The
weights diverge, as the theory says, but in another direction.
"""

import numpy as np

from ... import LinearHead, Problem, cross_attention, diagnose, train
from ...claims import difference, exactly, median, none, share
from ..panels import BLUE, DASHED, PALETTE, finish, pairs, picture
from ..problems import around, columns, correlations, log_spaced, on_best, sphere_problem, svm_of
from ..textbook import apart, gradient_of, tokens_of

SIZES = ((5, 5, 8), (10, 5, 12), (5, 10, 12))  # n, T, d
START = 3.0  # standard deviation of the entries of the initial W
LR, STEPS = 0.1, 6000
RECORDS = log_spaced(10, STEPS, 60)
BEST, OTHERS = 0.5, -0.125  # score of the best token of each sequence, and score of its other tokens
PAPER = "{SVM}: the theorem on global convergence with equal scores; no picture"
CAPTION = "Left: how often the best tokens are selected in the end. Right: how far the direction is from their SVM."
RUNS, QUICK = 300, 72
SETTINGS = f"""Unit tokens with their scores set to {BEST} (one token) and {OTHERS} (all others), mean logistic loss,
W(0) with entries of standard deviation {START:g}, {STEPS:,} steps of normalised gradient descent with learning rate
{LR}."""
# For each size, the share of 1,000 independent runs with random scores that end on the best tokens.
# The reference shares that runs are compared with come from SciPy alone (reference_shares.py at commit d7d1777).
RANDOM_SCORES = (0.68, 0.42, 0.40)
# For each size, the claimed lower bound of the share of runs with equal scores that end on the optimal tokens.
LEAST = (0.85, 0.8, 0.85)


def experiment(rng):
    """Trains W on problems of each size with equal and with random scores.  Measures whether runs end on the optimal
    tokens and, for equal scores, how W correlates with their SVM."""
    return [of_size(rng, size) for size in SIZES]


def of_size(rng, size):
    _, _, d = size
    free = sphere_problem(rng, *size)
    W = START * rng.standard_normal((d, d))
    problem = tied(free)
    run = train(problem, W, lr=LR, steps=STEPS, record=RECORDS)
    svm = svm_of(problem)
    somewhere = [(gradient_of(problem, V), problem.loss_and_grad(V)[1]) for V in rng.standard_normal((5, d, d))]
    return {
        "equal": on_best(run),
        "proved": run.limit().status == "proved",
        "random": on_best(train(free, W, lr=LR, steps=STEPS)),
        "correlation": correlations(run.weights[1:], svm.W),
        "stationary": [np.vdot(by_hand, svm.W) >= 0 for by_hand, _ in somewhere],
        "apart": [apart(gradient, by_hand) for by_hand, gradient in somewhere],
        "not told": size == SIZES[0]
        and (diagnose(problem).no_stationary_point != "equal scores" or diagnose(free).equal_scores),
    }


def tied(problem):
    """Changes a problem so that all tokens but the first of each sequence have equal scores.  Its head reads one
    coordinate of the tokens, which is set to the score."""
    (X, Z), y = tokens_of(problem.data), problem.y
    X = X.copy()
    X[..., 0] = OTHERS * y[:, None]
    X[:, 0, 0] = BEST * y
    return Problem(cross_attention(X, Z), y, LinearHead(np.eye(X.shape[2])[0]))


def claims(results):
    """Claims that runs with equal scores end on the best tokens, and that runs with random scores do so as often as
    independent runs."""
    names = [f"n = {n}, T = {T}, d = {d}" for n, T, d in SIZES]
    equal, random = results["equal"], results["random"]
    return {
        f"Equal scores, {STEPS:,} steps from a random start (independent runs: 2,877 of 3,000)": [
            *(share(f"selects the optimal tokens, {name}", equal[:, i], LEAST[i]) for i, name in enumerate(names)),
            *(
                median(f"correlation with the SVM of the optimal tokens, {name}", x, 0.998, 1)
                for name, x in columns(names, results["correlation"][..., -1])
            ),
            *(
                difference(
                    f"share that selects them, equal minus random scores, {name}", equal[:, i], random[:, i], 0.1
                )
                for i, name in enumerate(names)
            ),
        ],
        "Ends that are proved, not looked at: no later step changes a token": [
            share("proved, of the runs that end on the optimal tokens", results["proved"][equal], 0.85)
        ],
        "No weights are stationary": [
            none(
                "random W at which the gradient in NumPy does not descend along the SVM solution", results["stationary"]
            ),
            exactly("gradient with tied scores against NumPy, relative difference", results["apart"], high=1e-9),
            none("instances that diagnose() does not tell", results["not told"]),
        ],
        "Random scores on the same tokens (1,000 independent runs)": [
            share(f"selects the optimal tokens, {name} ({RANDOM_SCORES[i]:g})", random[:, i], *around(RANDOM_SCORES[i]))
            for i, name in enumerate(names)
        ],
    }


@picture(width_ratios=(1, 1.3))
def plot(results, left, right):
    """Draws the share of runs that end on the optimal tokens, with equal and with random scores (left), and 1 -
    correlation of W with the SVM of these tokens along training with equal scores (right)."""
    names = [f"n={n}, T={T}, d={d}" for n, T, d in SIZES]
    pairs(left, names, ("equal scores", BLUE, results["equal"].T), ("random scores", "#999999", results["random"].T))
    finish(left, "From a random start", ylabel="share of runs that select the optimal tokens", ylim=(0, 1), below=0.08)
    left.margins(x=0.03)
    for (size, along), color in zip(columns(names, results["correlation"]), PALETTE, strict=False):
        for name, level, line in (("median", 50, "-"), ("90th percentile", 90, DASHED)):
            off = np.percentile(1 - along, level, axis=0)
            right.loglog(RECORDS, off, color=color, linestyle=line, label=f"{size}, {name}")
    finish(
        right, "Equal scores: the direction converges", "training step", "1 - correlation with the optimal tokens' SVM"
    )
    return (
        "Equal non-optimal scores: nearly every start ends on the optimal tokens",
        f"{len(results['equal'])} runs a bar; error bars: exact 95 % intervals.",
    )
