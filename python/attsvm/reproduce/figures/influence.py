"""Support is influence: what a sequence did is what its rows do for the SVM, and few supports mean few errors.

Left: every sequence of a problem is left out, and attention is trained again.  The SVM predicts how far the direction
turns, from a solve without those rows: by the answer's own ``influence()``.  A sequence without a support token turns
nothing.  Where the others select other tokens without it, the prediction does not hold, and such removals are counted.

Right: tokens that a fixed teacher selects.  The share of sequences that hold a support token bounds, in expectation,
the error of the SVM on a new sequence: a sequence without one is selected rightly by the SVM of the others.
"""

import numpy as np

from ... import cross_attention, solve_svm, train
from ...claims import mean, median, share
from ..panels import BLUE, ORANGE, described, finish, panel, panels
from ..problems import sphere_problem

PAPER = "{NOWHERE}"
CAPTION = (
    "Left: turn of the trained direction without a sequence, predicted by the SVM and trained again. Right: the share "
    "of sequences that hold a support token beside the error on new sequences, by the number of sequences."
)
N, T, D = 12, 5, 20
STEPS, LR = 8000, 0.1
ARRIVED = 1e-3  # 1 - correlation of the direction with its SVM: some locally optimal runs are still on their way
COUNTS, TEACHER, NEW = (25, 50, 100, 200), (5, 6), 500  # sequences; T and d; new sequences
RUNS, QUICK = 200, 40
SETTINGS = (
    f"Left: n = {N}, T = {T}, d = {D}, unit tokens, {STEPS:,} steps of normalised gradient descent, all {N} removals. "
    f"Right: T = {TEACHER[0]}, d = {TEACHER[1]}, Gaussian tokens and queries, a Gaussian teacher W, "
    f"{NEW} new sequences."
)


def experiment(rng):
    """Turns predicted and trained, whether the others keep their tokens; support share and error of every count."""
    problem = sphere_problem(rng, N, T, D)
    run = train(problem, lr=LR, steps=STEPS, record=0)
    found = solve_svm(problem.data, run.selected).influence()
    arrived = turn(run.direction, found.solution.W) < ARRIVED
    rests = [np.delete(np.arange(N), i) for i in range(N)]
    again = [train(problem[rest], lr=LR, steps=STEPS, record=0) for rest in rests]
    kept = np.array([(a.selected == run.selected[rest]).all() for a, rest in zip(again, rests, strict=True)])
    turns = [turn(run.direction, a.direction) for a in again]
    shares, errors = zip(*(learned(rng, n) for n in COUNTS), strict=True)
    return {
        "predicted": found.turn,
        "trained": np.where(kept & arrived, turns, np.nan),
        "arrived": arrived,
        "kept": kept.mean(),
        "held": found.solved,
        "share": shares,
        "error": errors,
    }


def turn(A, B):
    """1 - correlation, with its digits where A and B are close."""
    return ((A / np.linalg.norm(A) - B / np.linalg.norm(B)) ** 2).sum() / 2


def learned(rng, n):
    """The share of sequences with a support token, and the error on new ones."""
    T, d = TEACHER
    W = rng.standard_normal((d, d))
    seen, new = (cross_attention(rng.standard_normal((k, T, d)), rng.standard_normal((k, d))) for k in (n, NEW))
    sol = solve_svm(seen, seen.select(W))
    return sol.support.any(axis=1).mean(), (sol.select(new) != new.select(W)).mean()


def claims(results):
    """The turns agree, and the bound holds."""
    arrived = results["arrived"]  # a claim on removals is about these runs: the others have no turn
    predicted, trained, held = (results[name][arrived] for name in ("predicted", "trained", "held"))
    ratio = np.where(held, trained / np.where(held, predicted, 1), np.nan)  # NaN: the others selected other tokens
    kept = np.isfinite(trained)
    alike = [np.corrcoef(p[ok], t[ok])[0, 1] for p, t, ok in zip(predicted, trained, kept, strict=True)]
    off = (np.abs(ratio - 1) > 0.1).any(axis=1)
    return {
        "Removal and training again": [
            share("runs whose direction has arrived at its SVM", arrived, 0.8),
            median("turn trained over turn predicted, median of a run", np.nanmedian(ratio, axis=1), 0.95, 1.05),
            median("correlation of the two over the removals of a run that keep the tokens", alike, 0.999),
            share("runs in which a turn is more than a tenth off its prediction", off, None, 0.1),
            share("runs in which some removal makes the others select other tokens", results["kept"] < 1, None, 0.6),
        ],
        "The share of sequences with a support token bounds the error on new ones, in expectation": [
            mean(f"share minus error, n = {n}", results["share"][:, k] - results["error"][:, k], (-1, 1), 0)
            for k, n in enumerate(COUNTS)
        ],
    }


def plot(results):
    """Left: turns.  Right: the bound and the error."""
    figure, (left, right) = panels((11, 4.6), 2)
    left.plot(results["predicted"].ravel(), results["trained"].ravel(), ".", color=BLUE, alpha=0.6)
    top = np.nanmax(results["trained"])
    left.plot([0, top], [0, top], color="0.3", linewidth=0.8, zorder=0)
    finish(left, "Without one sequence", "turn predicted by the SVM", "turn after training again")
    both = {"share of sequences with a support token": results["share"], "error on new sequences": results["error"]}
    panel(right, COUNTS, both, "Few supports, few errors", "sequences", "share", "xy", colors=(ORANGE, BLUE))
    return described(figure, "Support is influence", f"{len(results['kept'])} runs; 10th to 90th percentile.")
