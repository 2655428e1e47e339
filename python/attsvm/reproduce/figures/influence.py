"""Influence of a sequence: the SVM predicts how training changes without it; few support tokens mean few errors.

Left: each sequence of a problem is left out in turn, and attention is trained again.  ``influence()`` of the SVM
predicts how far the direction turns, by solving without the rows of that sequence.  Removing a sequence without a
support token turns nothing.  If the remaining sequences select other tokens, the prediction does not apply; such
removals are counted.

Right: a fixed teacher selects the tokens.  The share of sequences that hold a support token bounds, in expectation, the
error of the SVM on a new sequence.  The reason: leave out a sequence without a support token, and the SVM of the other
sequences still selects its tokens rightly.
"""

import numpy as np
from numpy.linalg import norm

from ... import cross_attention, solve_svm, train
from ...claims import mean, median, share
from ..panels import BLUE, ORANGE, finish, medians, picture
from ..problems import columns, sphere_problem, svm_of

PAPER = "{NOWHERE}"
CAPTION = """Left: turn of the trained direction without a sequence, predicted by the SVM and trained again. Right: the
share of sequences that hold a support token beside the error on new sequences, by the number of sequences."""
N, T, D = 12, 5, 20
STEPS, LR = 8000, 0.1
ARRIVED = 1e-3  # A run has converged if 1 - correlation of its W with its SVM is below this; some runs have not.
# COUNTS: numbers of sequences from which an SVM learns a teacher. TEACHER: T and d. NEW: number of test sequences.
COUNTS, TEACHER, NEW = (25, 50, 100, 200), (5, 6), 500
RUNS, QUICK = 200, 40
SETTINGS = f"""Left: n = {N}, T = {T}, d = {D}, unit tokens, {STEPS:,} steps of normalised gradient descent, all {N}
removals. Right: T = {TEACHER[0]}, d = {TEACHER[1]}, Gaussian tokens and queries, a Gaussian teacher W, {NEW} new
sequences."""


def experiment(rng):
    """Trains W with all sequences and again without each one, and compares how far W turns with the turn that the SVM
    predicts.  Also measures, for SVMs of several numbers of sequences, the share of sequences with a support token and
    the error on new ones."""
    problem = sphere_problem(rng, N, T, D)
    run = train(problem, lr=LR, steps=STEPS)
    found = svm_of(run).influence()
    arrived = turn(run.direction, found.solution.W) < ARRIVED

    def without(i):
        rest = np.delete(np.arange(N), i)
        again = train(problem[rest], lr=LR, steps=STEPS)
        return (again.selected == run.selected[rest]).all(), turn(run.direction, again.direction)

    kept, turns = np.array([without(i) for i in range(N)]).T
    return {
        "predicted": found.turn,
        "trained": np.where(kept * arrived, turns, np.nan),
        "arrived": arrived,
        "kept": kept.mean(),
        "held": found.solved,
        "learned": [learned(rng, n) for n in COUNTS],
    }


def turn(A, B):
    """Returns 1 - correlation of the matrices A and B, computed without cancellation if A and B are close."""
    return ((A / norm(A) - B / norm(B)) ** 2).sum() / 2


def learned(rng, n):
    """Solves the SVM of n sequences whose tokens a random teacher selects.  Returns the share of these sequences that
    hold a support token, and the SVM's error on new sequences."""
    T, d = TEACHER
    W = rng.standard_normal((d, d))
    seen, new = (cross_attention(rng.standard_normal((k, T, d)), rng.standard_normal((k, d))) for k in (n, NEW))
    sol = solve_svm(seen, seen.select(W))
    return {"share": sol.support.any(axis=1).mean(), "error": (sol.select(new) != new.select(W)).mean()}


def claims(results):
    """Claims that W turns as far as the SVM predicts if a sequence is removed, and that the share of sequences with a
    support token bounds the error on new sequences."""
    arrived = results["arrived"]  # the claims on removed sequences count only converged runs
    predicted, trained, held = (results[name][arrived] for name in ("predicted", "trained", "held"))
    # The trained turn over the predicted turn is NaN for a sequence without support tokens.
    # The ratio of the turns is NaN too if training without the sequence selects other tokens.
    ratio = trained / np.where(held, predicted, np.nan)
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
            mean(f"share minus error, n = {n}", x, (-1, 1), 0)
            for n, x in columns(COUNTS, results["learned share"] - results["learned error"])
        ],
    }


@picture()
def plot(results, left, right):
    """Draws how far W turns without a sequence against the predicted turn (left), and the share of sequences with a
    support token beside the error on new sequences (right)."""
    left.plot(results["predicted"].ravel(), results["trained"].ravel(), ".", alpha=0.6)
    left.axline((0, 0), slope=1, color="0.3", linewidth=0.8, zorder=0)
    finish(left, "Without one sequence", "turn predicted by the SVM", "turn after training again")
    medians(COUNTS, results["learned share"], "share of sequences with a support token", right, color=ORANGE)
    medians(COUNTS, results["learned error"], "error on new sequences", right, color=BLUE)
    finish(right, "Few supports, few errors", "sequences", "share", "xy")
    return "Support is influence", f"{len(results['kept'])} runs; 10th to 90th percentile."
