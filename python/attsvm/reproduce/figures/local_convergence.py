"""Local convergence: trained W turns to the Frobenius SVM of its tokens; (K, Q) comes near the nuclear SVM.

As in Tarzanagh et al., tokens are random unit vectors; all trainings of a seed share one start.  Shown along each run:
the largest softmax probability, and one minus the correlation of the weights with both SVM solutions of the tokens
selected in the end.  For W, convergence is a theorem.  W is trained four times as long as published: its direction goes
on converging where descent by the textbook gradient stops.  For (K, Q), the nuclear SVM is an observation; the theorem
is about the regularisation path.  The long run shows that descent on (K, Q) comes close and then stops approaching.
Without the published ridge the distance falls to about 1e-2 in the median, and rises again in some runs.
"""

import numpy as np

from ... import train
from ...claims import exactly, mean, median, share
from ...plot.curves import HIGH, LOW, band, correlations, style
from ..panels import finish, medians, picture
from ..problems import D, N, T, linear_layer, sphere_problem, svm_of
from ..textbook import (
    apart,
    certificate,
    descend,
    locally_optimal,
    logits_of,
    loss,
    sequences_of,
    side_by_side,
    softmax,
)

PAPER = "{SVM}: softmax probabilities and correlations along training (notebook local_converge.ipynb)"
LR = 0.1
STEPS = 2000
LONG_STEPS = 8000
PUBLISHED_RIDGE = 2.22e-16
STEPS_SHOWN = np.r_[0:STEPS:10, STEPS : LONG_STEPS + 1 : 250]
# After these numbers of steps weights are compared with NumPy; later the textbook gradient loses half of its digits.
TWIN_STEPS, TWIN_STEPS_KQ = 300, 40
TWIN_RIDGE = 1e-3
NAIVE_RUNS, NAIVE_STEPS = 10, 4000
CAPTION = """Left: how sharp attention becomes. Right: how far the weights are from the two SVMs of the tokens they
select."""
RUNS, QUICK = 200, 72
SETTINGS = f"""{N} sequences of {T} random unit tokens, d = {D}, mean logistic loss, normalised gradient descent with
learning rate {LR} from the start of a PyTorch linear layer; (K, Q) with the published ridge of {PUBLISHED_RIDGE:g} and
without; {LONG_STEPS:,} steps (published: {STEPS:,})."""
NORMS = ("frobenius", "nuclear")


def together(runs, seed):
    """Returns, for the first runs, the norms of W at which descent along the textbook gradient stalls.  Attention has
    saturated there, so that this gradient rounds to zero."""
    rngs = np.random.default_rng(seed).spawn(runs)[:NAIVE_RUNS]
    at = side_by_side(map(sphere_problem, rngs))
    W = descend(at, np.stack([linear_layer(rng, D, D) for rng in rngs]), NAIVE_STEPS, LR)
    return {"naive norm": np.linalg.matrix_norm(W)}


def experiment(rng):
    """Trains W and (K, Q), solves the Frobenius and the nuclear SVM of the tokens that each run selects, and measures
    the weights and both solutions from the data alone."""
    problem, (W, K, Q) = sphere_problem(rng), linear_layer(rng, 3, D, D)
    at = sequences_of(problem)
    how = {"lr": LR, "steps": LONG_STEPS, "record": STEPS_SHOWN}
    runs = {
        "W": train(problem, W, **how),
        "KQ": train(problem, K=K, Q=Q, ridge=PUBLISHED_RIDGE, **how),
        "KQ_without_ridge": train(problem, K=K, Q=Q, **how),
    }
    result = {}
    for name, run in runs.items():
        svms = {norm: svm_of(run, norm) for norm in NORMS}
        result[name] = {
            "softmax": softmax(logits_of(at.X, at.Z, run.weights)).max(2).mean(1),
            "norm": run.norm,
            "to its limit": abs(run.loss[-1] - loss(at.scores[np.arange(N), run.selected])),
            "locally optimal": locally_optimal(problem, run.selected, svms["frobenius"].W),
        }
        for norm, svm in svms.items():
            proof, key = certificate(svm), f"{name} {norm}"
            result |= {
                key: correlations(run.weights, svm.W),
                f"{key} size": np.linalg.norm(svm.W, "nuc"),
                f"{key} gap": proof["gap"],
                f"{key} rank": proof["rank"],
            }
    # a few steps of W and of (K, Q), against descent along the textbook gradient in NumPy
    return result | {
        "W apart": apart(train(problem, W, lr=LR, steps=TWIN_STEPS).W, descend(at, W, TWIN_STEPS, LR)),
        "KQ apart": apart(
            train(problem, K=K, Q=Q, lr=LR, steps=TWIN_STEPS_KQ, ridge=TWIN_RIDGE).W,
            descend(at, np.stack([K, Q]), TWIN_STEPS_KQ, LR, ridge=TWIN_RIDGE),
        ),
    }


def claims(results):
    """Claims that W turns to the Frobenius SVM of its tokens and that (K, Q) comes near the nuclear SVM; the bounds
    come from theory and from published values."""

    def at(key, step):
        return results[key][:, STEPS_SHOWN.searchsorted(step)]

    norm, gaps = results["W norm"], [results[name] for name in results if name.endswith(" gap")]
    off, bare = (1 - results[key] for key in ("W frobenius", "KQ_without_ridge nuclear"))
    product = off * norm**2
    ratio = results["W nuclear size"] / results["W frobenius size"]
    return {
        "Correlation with the SVMs of the selected tokens, step 1,000": [
            median("W, Frobenius (published .99 with deviation .015)", at("W frobenius", 1000), 0.975, 1),
            median("W, nuclear (published .86 with deviation .045)", at("W nuclear", 1000), 0.82, 0.9),
            median("(K, Q), nuclear (400 independent runs: .987)", at("KQ nuclear", 1000), 0.98, 1),
            median("(K, Q), Frobenius (400 independent runs: .843)", at("KQ frobenius", 1000), 0.81, 0.89),
            share("W is nearer to its Frobenius SVM", at("W frobenius", 2000) > at("W nuclear", 2000), 0.95),
            share("(K, Q) is nearer to its nuclear SVM", at("KQ nuclear", 2000) > at("KQ frobenius", 2000), 0.95),
        ],
        "Largest softmax probability, mean over queries": [
            mean("W, step 100 (published .72)", at("W softmax", 100), (1 / T, 1), 0.69, 0.78),
            mean("W, step 200 (published .96)", at("W softmax", 200), (1 / T, 1), 0.92, 0.98),
            median("(K, Q), step 100 (published .998)", at("KQ softmax", 100), 0.995, 1),
            share("W: within 1e-6 of the loss of the selected tokens", results["W to its limit"] <= 1e-6, 0.95),
        ],
        "Selected tokens": [
            share("W: locally optimal", results["W locally optimal"], 0.95),
            share("(K, Q): locally optimal", results["KQ locally optimal"], 0.85),
        ],
        f"W goes on converging, to {LONG_STEPS:,} steps": [
            median("1 - correlation with its Frobenius SVM", off[:, -1], 0, 3e-4),
            *(
                median(
                    f"(1 - correlation) ||W||^2 at step {step:,} over step {LONG_STEPS:,}",
                    product[:, STEPS_SHOWN.searchsorted(step)] / product[:, -1],
                    0.7,
                    1.3,
                )
                for step in (1000, 2000, 4000)
            ),
            median("||W|| over learning rate times steps", norm[:, -1] / (LR * LONG_STEPS), 0.97, 1.01),
            median(
                f"textbook gradient stalls (published 97 to 130): ||W||, {NAIVE_STEPS:,} steps",
                results["naive norm"],
                80,
                170,
            ),
        ],
        f"(K, Q) without ridge stays near its nuclear SVM, to {LONG_STEPS:,} steps": [
            median("1 - correlation", bare[:, -1], 1e-3, 3e-2),
            share("1 - correlation within 1e-3", bare[:, -1] <= 1e-3, 0, 0.3),
        ],
        "Against the textbook gradient in NumPy": [
            exactly(f"W after {TWIN_STEPS} steps, relative difference", results["W apart"], high=1e-6),
            exactly(
                f"K Q^T after {TWIN_STEPS_KQ} steps with ridge {TWIN_RIDGE:g}, relative difference",
                results["KQ apart"],
                high=1e-6,
            ),
        ],
        "SVM solutions": [
            exactly("margin and multipliers recomputed from the tokens: largest gap", gaps, high=1e-8),
            share("rank of the Frobenius solution is min(n, d) = 6", results["W frobenius rank"] == N, 0.95),
            mean(
                "rank of the nuclear solution (400 independent runs: 3.19)", results["W nuclear rank"], (1, N), 2.7, 3.7
            ),
            median("nuclear norm of the nuclear solution over that of the Frobenius one", ratio, 0.8, 0.92),
        ],
    }


@picture((12, 5.4), 2, width_ratios=(1, 1.6))
def plot(results, left, right):
    """Draws the largest softmax probability along training (left), and 1 - correlation of W and of (K, Q) with the SVMs
    of the tokens that they select (right)."""
    for name, trained, norms in (("W", "W", NORMS), ("KQ", "(K, Q)", reversed(NORMS))):  # its own norm first
        band(STEPS_SHOWN, results[f"{name} softmax"], trained, left, **style(trained))
        for norm in norms:
            label = f"{trained} and its {norm.replace('f', 'F')} SVM"
            off = 1 - results[f"{name} {norm}"][:, 1:]
            medians(STEPS_SHOWN[1:], off, label, right, **style(trained, norm))
    off = 1 - results["KQ_without_ridge nuclear"][:, 1:]
    medians(STEPS_SHOWN[1:], off, "(K, Q) without ridge, nuclear SVM", right, color="black")
    finish(
        left, "Attention picks one token", "training step", "largest softmax probability", xlim=(0, 400), ylim=(0, 1)
    )
    finish(
        right,
        "W turns to the Frobenius SVM of these tokens, (K, Q) comes near the nuclear one",
        "training step",
        "1 - correlation of the weights",
        "xy",
        xlim=(10, LONG_STEPS),
        ylim=(3e-05, 1.2),
    )
    return (
        f"Local convergence: {N} sequences of {T} random unit tokens, d = {D}, "
        f"normalised gradient descent, learning rate {LR}",
        f"{len(results['W softmax'])} runs.  Left: mean, right: median.  Bands: {LOW}th to {HIGH}th percentile.  "
        f"(K, Q) has the published ridge of {PUBLISHED_RIDGE:g} where nothing else is said.",
    )
