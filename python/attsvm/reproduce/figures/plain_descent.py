"""Gradient descent with a constant step turns to the SVM of normalised descent, but takes exponentially longer.

This is proved by Tarzanagh et al.  With a constant step size, steps shrink as the gradient does, and the norm of W
grows like the logarithm of the number of steps.  Normalised descent adds the learning rate to it in every step.  Both
turn to the same direction, that of the SVM of the selected tokens.  Left: the norm.  Right: the distance from that
direction.  The theory asks for a step size of at most 1 / L_W.  With 1 / L_W the loss never rises; step sizes hundreds
of times larger work too.
"""

import numpy as np
from numpy.linalg import norm

from ... import diagnose, train
from ...claims import exactly, median, share
from ..panels import finish, medians, picture
from ..problems import correlations, linear_layer, log_spaced, sphere_problem, svm_of
from ..textbook import apart, descend, gradient_of, logits_of, loss, loss_gradient, sequences_of, softmax

PAPER = "{SVM}: the theorems on gradient descent with a constant step; no picture"
N, T, D = 4, 5, 8
LR, STEPS = 1.0, 20_000  # constant steps
FIXED, FIXED_STEPS = 0.1, 2000  # normalised steps
RECORDS = log_spaced(1, STEPS, 60)
TWIN_STEPS = 200
LONGEST = 1.0  # longest Polyak step
HEAD_STEPS = 20  # number of steps after which Polyak steps, and steps of W and head together, are compared with NumPy
CAPTION = "Left: the norm of W along training. Right: how far its direction is from the SVM."
RUNS, QUICK = 100, 36
SETTINGS = f"""{N} sequences of {T} random unit tokens, d = {D}, mean logistic loss, W(0) = 0; constant learning rate
{LR:g} for {STEPS:,} steps, normalised descent with learning rate {FIXED} for {FIXED_STEPS:,}."""


def experiment(rng):
    problem = sphere_problem(rng, N, T, D)
    found = {}
    for rule, lr, steps in (("constant", LR, STEPS), ("normalized", FIXED, FIXED_STEPS)):
        run = train(problem, rule=rule, lr=lr, steps=steps, record=RECORDS[RECORDS <= steps])
        found |= {f"{rule} norm": run.norm[1:], f"{rule} off": 1 - correlations(run.weights[1:], svm_of(run).W)}
    found["first step"] = found["constant norm"][0] / norm(gradient_of(problem, np.zeros((D, D))))
    return found | by_hand(problem, linear_layer(rng, D, D))


def by_hand(problem, start):
    """Compares training with NumPy: constant steps, Polyak steps, steps of W and the head v together, and the
    smoothness L_W.  Returns relative differences, and how the loss rises and falls with the step 1 / L_W."""
    at, told = sequences_of(problem), diagnose(problem)
    careful = train(problem, start, rule="constant", lr=told.step_size, steps=TWIN_STEPS, record=1)
    plain = train(problem, start, rule="constant", lr=LR, steps=TWIN_STEPS).W
    head = train(problem, start, lr=FIXED, steps=HEAD_STEPS, train_head=True)
    polyak = train(problem, start, rule="polyak", lr=LONGEST, steps=HEAD_STEPS).W
    W, v = with_head(at, problem.y, problem.head.v, start)
    # L_W is the mean of ||z||^2 ||X||^2 g (g / 4 + 3) over sequences, with g = ||v|| ||X||.
    key = norm(at.X, 2, axis=(1, 2))
    g = norm(problem.head.v) * key
    smoothness = (norm(at.Z, axis=1) ** 2 * key**2 * g * (g / 4 + 3)).mean()
    return {
        "constant apart": apart(plain, descend(at, start, TWIN_STEPS, LR, normalized=False)),
        "polyak apart": apart(polyak, by_polyak(at, start)),
        "head apart": max(apart(head.W, W), apart(head.v, v)),
        "smoothness apart": abs(told.lipschitz / smoothness - 1),
        "rises": np.diff(careful.loss).max(),
        "falls": careful.loss[0] - careful.loss[-1],
    }


def by_polyak(at, W):
    """Computes W after Polyak steps in NumPy.  Each step goes against the gradient g of the loss L, and has the length
    ``min(LONGEST, (L - inf L) / (2 ||g||))``."""
    least = loss(at.scores.max(axis=1))
    for _ in range(HEAD_STEPS):
        s = softmax(logits_of(at.X, at.Z, W))
        g = loss_gradient(at, W)
        size = norm(g)
        W = W - min(LONGEST, (loss((s * at.scores).sum(axis=1)) - least) / (2 * size)) * g / size
    return W


def with_head(at, y, v, W):
    """Computes W and the head v after steps of both in NumPy.  Each step of W, and each of v, is divided by the norm of
    its own gradient."""
    for _ in range(HEAD_STEPS):
        attended = np.einsum("nt,ntd->nd", softmax(logits_of(at.X, at.Z, W)), at.X)
        slope = -y / (1 + np.exp(y * (attended @ v))) / len(y)
        g, h = loss_gradient(at._replace(scores=y[:, None] * (at.X @ v)), W), slope @ attended
        W, v = W - FIXED * g / norm(g), v - FIXED * h / norm(h)
    return W, v


def claims(results):
    """Claims that the norm of W grows like the logarithm of the step under constant steps, that both rules turn to the
    SVM direction, and that training agrees with NumPy."""
    off, at = results["constant off"], RECORDS.searchsorted((200, 2000, STEPS))
    low, middle, high = results["constant norm"][:, at].T
    near = results["normalized off"][:, -1]
    return {
        f"Constant step {LR:g}": [
            median(
                "growth of ||W|| from 2,000 to 20,000 over that from 200 to 2,000: 1 when logarithmic",
                (high - middle) / (middle - low),
                0.7,
                1.3,
            ),
            median(f"1 - correlation with the SVM of its tokens, step {STEPS:,}", off[:, -1], 1e-3, 0.1),
            exactly("length of the first step over that of the gradient", results["first step"], 1 - 1e-9, 1 + 1e-9),
            share("1 - correlation falls over the last decade", off[:, -1] < off[:, at[1]], 0.85),
        ],
        "Normalised": [
            median(
                "||W|| over learning rate times steps",
                results["normalized norm"][:, -1] / FIXED / FIXED_STEPS,
                0.95,
                1.01,
            ),
            median(f"1 - correlation with the SVM of its tokens, step {FIXED_STEPS:,}", near, 0, 3e-3),
        ],
        "Step 1 / L_W": [
            exactly("largest rise of the loss in a step", results["rises"], high=1e-15),
            median("fall of the loss in 200 steps", results["falls"], 1e-4, 0.1),
        ],
        "Against NumPy: relative differences": [
            exactly(f"constant steps, {TWIN_STEPS} of them", results["constant apart"], high=1e-9),
            exactly(f"Polyak steps, {HEAD_STEPS} of them", results["polyak apart"], high=1e-6),
            exactly(f"W and v together, {HEAD_STEPS} steps", results["head apart"], high=1e-6),
            exactly("smoothness constant L_W", results["smoothness apart"], high=1e-9),
        ],
    }


@picture()
def plot(results, left, right):
    """Draws the norm of W (left) and 1 - correlation of W with its SVM (right) along training by constant and by
    normalised steps."""
    for rule, label in (("constant", "constant step"), ("normalized", "normalised")):
        for ax, what in ((left, "norm"), (right, "off")):
            curves = results[f"{rule} {what}"]
            medians(RECORDS[: curves.shape[1]], curves, label, ax)
    finish(left, "Norm: logarithmic against linear", "training step", "norm of W", "xy")
    finish(right, "Direction: the same", "training step", "1 - correlation with the SVM of its tokens", "xy")
    return (
        f"Plain and normalised descent: {N} sequences of {T} tokens, d = {D}",
        f"Lines: median of {len(results['rises'])} runs.  Bands: 10th to 90th percentile.",
    )
