"""Equal scores: no weights are stationary, and nearly every start ends on the best tokens.

When all tokens of a sequence but the best score the same, every weights can be improved along the SVM of the best
tokens, so gradient descent diverges from any start, here a large random one.  Nearly all runs select the best tokens,
and turn to their SVM (right); on the same sizes with random scores many stop at other, locally optimal tokens.

The few exceptions are no failure of patience: after a million steps they are where they were.  One query of theirs
holds so little attention on its best token that the other queries' gradient, small as it has become, outweighs its own
for ever.  Weights diverge as the theory says, in another direction.
"""

import numpy as np

from ... import LinearHead, Problem, cross_attention, diagnose, sample, solve_svm, train
from ...claims import difference, exactly, median, none, share
from ...plot.curves import correlations
from ..panels import BLUE, DASHED, PALETTE, described, error_bars, finish, pairs, panels
from ..papers import SVM
from ..problems import around
from ..textbook import apart, gradient_of

SIZES = ((5, 5, 8), (10, 5, 12), (5, 10, 12))  # n, T, d
START = 3.0  # standard deviation of the initial weights
LR, STEPS = 0.1, 6000
RECORDS = np.unique(np.geomspace(10, STEPS, 60).astype(int))
BEST, OTHERS = 0.5, -0.125  # the two scores
PAPER = f"{SVM}: the theorem on global convergence with equal scores; no picture"
CAPTION = "Left: how often the best tokens are selected in the end. Right: how far the direction is from their SVM."
RUNS, QUICK = 300, 72
SETTINGS = (
    f"Unit tokens with their scores set to {BEST} (one token) and {OTHERS} (all others), mean logistic loss, W(0) with "
    f"entries of standard deviation {START:g}, {STEPS:,} steps of normalised gradient descent with learning rate {LR}."
)
RANDOM_SCORES = (0.68, 0.42, 0.40)  # of 1,000 draws by SciPy alone (reference_shares.py, d7d1777)
LEAST = (0.85, 0.8, 0.85)  # more sequences leave more exceptions
SOMEWHERE = 5  # random weights at which the gradient is looked at


def experiment(rng):
    """Of every size, whether it ended on the optimal tokens, and its correlation with their SVM."""
    found = {key: [] for key in ("equal", "proved", "random", "correlation", "stationary", "apart")}
    for n, T, d in SIZES:
        X, Z, y, v = sample.unit_sphere(n, T, d, rng)
        W = START * rng.standard_normal((d, d))
        free = Problem(cross_attention(X, Z), y, LinearHead(v))
        end = train(free, W, lr=LR, steps=STEPS, record=0)
        found["random"].append((end.selected == free.optimal).all())
        problem = tied(X, Z, y)
        trained = train(problem, W, lr=LR, steps=STEPS, record=RECORDS)
        found["equal"].append((trained.selected == problem.optimal).all())
        found["proved"].append(trained.limit().status == "proved")
        svm = solve_svm(problem.data, problem.optimal)
        found["correlation"].append(correlations(trained.weights[1:], svm.W))
        for V in rng.standard_normal((SOMEWHERE, d, d)):
            by_hand = gradient_of(problem, V)
            found["stationary"].append(np.vdot(by_hand, svm.W) >= 0)
            found["apart"].append(apart(problem.loss_and_grad(V)[1], by_hand))
        if (n, T, d) == SIZES[0]:
            told = diagnose(problem).no_stationary_point == "equal scores" and not diagnose(free).equal_scores
    return {**found, "not told": not told}


def tied(X, Z, y):
    """The head reads the first coordinate, which is made the score: to the last bit the same for all other tokens."""
    X = X.copy()
    X[..., 0] = y[:, None] * np.where(np.arange(X.shape[1]) == 0, BEST, OTHERS)
    return Problem(cross_attention(X, Z), y, LinearHead(np.eye(X.shape[2])[0]))


def claims(results):
    """Global convergence with equal scores; the share without, as independent runs found it."""
    names = [f"n = {n}, T = {T}, d = {d}" for n, T, d in SIZES]
    of_size = list(zip(names, results["equal"].T, results["random"].T, LEAST, RANDOM_SCORES, strict=True))
    return {
        f"Equal scores, {STEPS:,} steps from a random start (independent runs: 2,877 of 3,000)": [
            *(share(f"selects the optimal tokens, {name}", equal, least) for name, equal, _, least, _ in of_size),
            *(
                median(f"correlation with the SVM of the optimal tokens, {name}", last, 0.998, 1)
                for name, last in zip(names, results["correlation"][:, :, -1].T, strict=True)
            ),
            *(
                difference(f"share that selects them, equal minus random scores, {name}", equal, random, 0.1)
                for name, equal, random, *_ in of_size
            ),
        ],
        "Ends that are proved, not looked at: no later step changes a token": [
            share("proved, of the runs that end on the optimal tokens", results["proved"][results["equal"]], 0.85)
        ],
        "No weights are stationary": [
            none(
                "random W at which the gradient in NumPy does not descend along the SVM solution", results["stationary"]
            ),
            exactly("gradient with tied scores against NumPy, relative difference", results["apart"], high=1e-9),
            none("instances that diagnose() does not tell", results["not told"]),
        ],
        "Random scores on the same tokens (1,000 independent runs)": [
            share(f"selects the optimal tokens, {name} ({value:g})", random, *around(value))
            for name, _, random, _, value in of_size
        ],
    }


def plot(results):
    """Left: share of runs on the optimal tokens.  Right: distance of the direction from their SVM."""
    figure, (left, right) = panels((11, 4.6), 2, width_ratios=(1, 1.3))
    names = [f"n={n}, T={T}, d={d}" for n, T, d in SIZES]
    bars = [
        (f"{key} scores", color, results[key].mean(axis=0), error_bars(results[key]))
        for key, color in (("equal", BLUE), ("random", "#999999"))
    ]
    pairs(left, names, *bars)
    finish(left, "From a random start", ylabel="share of runs that select the optimal tokens", ylim=(0, 1), below=0.08)
    left.margins(x=0.03)
    for i, (size, color) in enumerate(zip(names, PALETTE, strict=False)):
        for name, level, line in (("median", 50, "-"), ("90th percentile", 90, DASHED)):
            off = np.percentile(1 - results["correlation"][:, i], level, axis=0)
            right.loglog(RECORDS, off, color=color, linestyle=line, label=f"{size}, {name}")
    finish(
        right, "Equal scores: the direction converges", "training step", "1 - correlation with the optimal tokens' SVM"
    )
    return described(
        figure,
        "Equal non-optimal scores: nearly every start ends on the optimal tokens",
        f"{len(results['equal'])} runs a bar; error bars: exact 95 % intervals.",
    )
