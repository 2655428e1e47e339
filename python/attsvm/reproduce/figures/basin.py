"""Training that starts far along the SVM solution of locally optimal tokens keeps these tokens (a theorem).

This is the theorem on local convergence of Tarzanagh et al.  A selection is locally optimal when each of its tokens
scores more than its support tokens.  Left: training starts at c times the SVM solution of a locally optimal selection
that is not the optimal one, with a step proportional to c.  The larger c, the more runs still select these tokens at
the end.  The theorem needs a start beyond some radius: there the softmax already suppresses better tokens whose margin
is just above 1.  If a support token scores more, training leaves the selection from every c (the rows are linearly
independent here).  Right: one minus the correlation of the weights with the direction they started from.  In the local
cone that diagnose() states, the loss falls along the solution; training need not stay in that cone.
"""

import itertools

import numpy as np
from numpy.linalg import norm
from scipy.optimize import bisect

from ... import diagnose, solve_svm, train
from ...claims import exactly, median, none, share
from ...theory import is_locally_optimal
from ..panels import finish, medians, picture, shares
from ..problems import around, columns, correlations, differs, draws, sphere_problem
from ..textbook import TIGHT, differences, softmax, support_margins

N, T, D = 5, 5, 8
STARTS = (15, 60, 300, 3000)
STEPS = 4000
# The learning rate is this share of the norm of W(0), since a fixed rate would not move large weights.
STEP_SHARE = 1 / 300
RECORDS = np.arange(0, STEPS + 1, 100)
NOISE = 0.05
RIM = 10  # number of random weights on the boundary of each local cone at which the loss is tested
TRIES = 100  # number of random selections that are tried before another problem is drawn
PAPER = "{SVM}: the theorem on local convergence; no picture"
CAPTION = "Left: how many runs keep the tokens they started with. Right: how far their weights turn away."
RUNS, QUICK = 400, 80
SETTINGS = f"""{N} sequences of {T} random unit tokens, d = {D}, mean logistic loss; W(0) is c times the Frobenius
solution of tokens drawn among the two best of each sequence (not locally optimal: with {NOISE:.0%} noise at c = 15);
{STEPS:,} steps of normalised gradient descent with learning rate c ||W_svm|| / 300."""
# For each c, the share of 1,000 independent runs that keep the tokens of their start.
# The reference shares that runs are compared with come from SciPy alone (reference_shares.py at commit d7d1777).
REFERENCE = {15: 0.72, 60: 0.87, 300: 0.95}


def experiment(rng):
    """Trains W from c times an SVM solution, for each c in STARTS, and measures whether the run keeps the tokens of the
    solution and how far W turns away from it."""
    found = {"differ": 0}
    for name, wanted in (("optimal", True), ("not", False)):
        problem, solution = instance(rng, wanted)
        W, found[name] = solution.W, []
        size = norm(W)
        for c in STARTS:
            noise = rng.standard_normal(W.shape)
            noise *= NOISE * size / norm(noise) if not wanted and c == STARTS[0] else 0
            run = train(problem, c * (W + noise), lr=c * STEP_SHARE * size, steps=STEPS, record=RECORDS)
            stays = (run.selected == solution.selected).all()
            found[name].append({"stays": stays, "correlation": correlations(run.weights, W)})
        found["differ"] += differs(problem, solution)
        if wanted:
            found |= cone(rng, problem, solution)
    return found


def cone(rng, problem, solution):
    """Compares the local cone (mu, R) that diagnose() states with derived_cone(), and returns the relative errors of mu
    and R.  Also counts random weights on the cone's boundary at which some query's loss does not fall along W."""
    selected, W = solution.selected, solution.W
    found = diagnose(problem, selected).local_cone
    margins = support_margins(problem.data, selected, W)
    # The cone is not tested if a query has no support token.
    if (margins.min(axis=1) > 1 + TIGHT).any():
        return dict.fromkeys(("in the cone", "mu", "R"), 0.0 if found is None else np.nan)
    mu, R = found or (np.nan, np.nan)
    by_hand = derived_cone(problem, selected, W, margins)
    U, climbs = W / norm(W), 0
    for V in rng.standard_normal((RIM, D, D)):
        aside = V - np.vdot(V, U) * U
        rim = (1 - mu) * U + np.sqrt(mu * (2 - mu)) * aside / norm(aside)
        climbs += not descends(problem, R * rim, W).all()
    return {"in the cone": climbs, "mu": abs(mu / by_hand[0] - 1), "R": abs(R / by_hand[1] - 1)}


def derived_cone(problem, selected, W, margins):
    """Derives the width mu and the radius R of the local cone as attsvm.diagnose does, but from the tokens alone and by
    bisection.

    Two directions of norm 1 give a token margins that differ by at most the length of its row times their distance; mu
    bounds this difference by eps.  Beyond radius R, tokens that are not support tokens have too little softmax to
    outweigh the support tokens.
    """
    data, scores = problem.data, problem.scores
    length = norm(differences(data, selected), axis=2) * norm(data.queries, axis=1)[:, None]
    better = scores[np.arange(N), selected][:, None] - scores
    tight = margins <= 1 + TIGHT
    slack = margins[~tight].min() - 1  # infinite, and x below is 0, if all tokens are selected or support tokens
    eps, size = min(0.5, slack) / 4, norm(W)
    worst = margins.max(axis=1, where=np.isfinite(margins), initial=0)
    rise = -better.min(axis=1, where=~tight, initial=0)
    gap = better.min(axis=1, where=tight, initial=np.inf)

    def spare(r):
        x, y = ((T - 1) * np.exp(-r * exponent) for exponent in (slack - 2 * eps, 1 - eps))
        return (gap - worst * (rise * x + np.abs(better).max(axis=1) * y * (1 + x))).min()

    return 0.5 * (eps / (length.max() * size)) ** 2, size * bisect(spare, 1e-9, 1e9)


def descends(problem, at, along):
    """Returns a flag for each query: whether its term of the loss, at weights ``at``, falls in direction ``along``.

    The loss falls if scores and logits have positive covariance under the query's attention.  The covariance is summed
    over pairs of tokens, whose weights are scaled by the largest one, so that saturated attention does not underflow.
    """
    scores, (logits, change) = problem.scores, (problem.data.logits(W) for W in (at, along))
    i, j = np.triu_indices(T, 1)
    weight = softmax(logits[:, i] + logits[:, j])
    products = (scores[:, i] - scores[:, j]) * (change[:, i] - change[:, j])
    return (weight * products).sum(axis=1) > 0


def instance(rng, locally_optimal):
    """Draws random problems and selections among the two best tokens of each sequence, until a selection is locally
    optimal (or, if ``locally_optimal`` is false, is not).

    The selection of all the best tokens is left out.
    """
    for _ in draws():
        problem = sphere_problem(rng, N, T, D)
        better = np.argsort(-problem.scores, axis=1)
        for _ in range(TRIES):
            selected = better[np.arange(N), rng.integers(2, size=N)]
            if (selected != problem.optimal).any():
                solution = solve_svm(problem.data, selected)
                if is_locally_optimal(problem, solution) == locally_optimal:
                    return problem, solution


def claims(results):
    """Claims that runs keep the locally optimal tokens of their start as often as 1,000 independent runs, and that runs
    leave a start where a support token scores more than the selected token."""
    stays = results["optimal stays"]
    turned = results["optimal correlation"][:, -1, -1]
    return {
        "Started at c times a locally optimal SVM solution that is not the optimal one": [
            *(
                share(f"still on its tokens, c = {c} (1,000 independent runs: {value:g})", x, *around(value))
                for (c, value), x in columns(REFERENCE.items(), stays[:, :-1])
            ),
            share(f"still on its tokens, c = {STARTS[-1]}", stays[:, -1], 0.95),
            *(
                share(f"on its tokens from c = {c} but not from c = {d}", kept & ~still, high=0.05)
                for (c, kept), (d, still) in itertools.pairwise(columns(STARTS, stays))
            ),
            median(f"1 - correlation with that solution after {STEPS:,} steps, c = {STARTS[-1]}", 1 - turned, 0, 1e-5),
        ],
        "Started where a support token scores more": [
            share(f"leaves, c = {c}" + f", {NOISE:.0%} noise" * (c == STARTS[0]), x, 0.95)
            for c, x in columns(STARTS, ~results["not stays"])
        ],
        "The local cone that diagnose() states": [
            none(
                "weights on its rim where the loss of some query does not fall along the solution",
                results["in the cone"],
            ),
            exactly("mu against a derivation in NumPy, relative difference", results["mu"], high=1e-6),
            exactly("R against a derivation in NumPy, relative difference", results["R"], high=1e-6),
        ],
        "Against the definitions, in NumPy": [
            none("selections whose local optimality or support differ", results["differ"])
        ],
    }


@picture(width_ratios=(1, 1.3))
def plot(results, left, right):
    """Draws the share of runs that keep the tokens of their start, against c (left), and 1 - correlation of W with the
    SVM solution of the start along training, for the least c (right)."""
    for name, label in (("optimal", "locally optimal, not globally"), ("not", "a support token scores more")):
        shares(STARTS, results[f"{name} stays"], label, left, capsize=3)
        medians(RECORDS, np.maximum(1 - results[f"{name} correlation"][:, 0], 1e-6), label, right)
    finish(
        left,
        "Who stays",
        "c: training starts at c times the SVM solution",
        "share that still selects its tokens",
        "x",
        ylim=(-0.02, 1),
    )
    left.set_xticks(STARTS, STARTS)
    left.margins(x=0.05)
    title = f"Start at c = {STARTS[0]}: median, 10th to 90th percentile"
    finish(right, title, "training step", "1 - correlation with the SVM solution it started at", "y")
    return (
        "Started along their SVM, training keeps locally optimal tokens, and leaves others",
        f"{len(results['not stays'])} instances a point; error bars: exact 95 % intervals.",
    )
