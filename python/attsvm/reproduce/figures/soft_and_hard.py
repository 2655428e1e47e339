"""Two ways to push attention to one token, entropy penalty and straight-through Gumbel, against plain training.

Softmax attention ends on one token by itself; in practice it is also pushed to do so.  Three trainings begin at one
start: plain training; training with the mean entropy of attention added to the loss; and training with hard selection.
Hard selection takes the token with the largest sum of logit and Gumbel noise, and passes the gradient through the
softmax.  The figure compares the tokens selected in the end, and the direction of W with the SVM of these tokens.  At
inference, the token with the largest logit may replace the average of the tokens; once attention has saturated this
changes nothing.
"""

import numpy as np

from ... import solve_svm
from ...claims import exactly, mean, median, share
from ..panels import band, finish, medians, pairs, picture
from ..problems import D, N, T, correlations, flat, linear_layer, sphere_problem
from ..textbook import descend, side_by_side, softmax, tokens_of

LR, STEPS, EVERY = 0.1, 1000, 20
SHOWN = np.arange(0, STEPS + 1, EVERY)
PENALTY = 0.5  # factor of the mean entropy of attention in the loss
PAPER = "{NOWHERE}: ways to push attention to one token"
CAPTION = "Left: how sharp attention becomes. Middle: how far W is from the SVM. Right: what is selected."
RUNS, QUICK = 200, 72
SETTINGS = f"""{N} sequences of {T} random unit tokens, d = {D}, linear head, logistic loss, normalised gradient
descent with learning rate {LR} for {STEPS} steps; entropy penalty {PENALTY:g}; Gumbel noise of scale 1, new in every
step."""
KINDS = {"plain": "softmax", "entropy": "entropy penalty", "gumbel": "straight-through Gumbel"}


def together(runs, seed):
    """Trains all runs at once in NumPy, with plain softmax, with an entropy penalty, and with straight-through Gumbel.
    Returns a dict of arrays, one for each measurement."""
    rngs = np.random.default_rng(seed).spawn(runs)
    problems = [sphere_problem(rng) for rng in rngs]
    start = np.stack([linear_layer(rng, D, D) for rng in rngs])
    results = {}
    for kind in KINDS:
        weights = trained(kind, side_by_side(problems), start, rngs)
        found = results[kind] = flat([*map(measure, problems, weights.swapaxes(0, 1))])
        found["same"] = (found["selected"] == results["plain"]["selected"]).mean(axis=1)
    return results


def trained(kind, at, W, rngs):
    """Trains all runs along the textbook gradient, and returns the recorded weights (records, runs, D, D).  Descent
    ends before the gradient loses its digits."""

    def slopes(scores, logits):
        if kind == "gumbel":
            logits = logits + np.stack([rng.gumbel(size=(N, T)) for rng in rngs])
        s = softmax(logits)
        through = np.arange(T) == logits.argmax(axis=-1)[..., None] if kind == "gumbel" else s
        towards = -scores / (1 + np.exp((through * scores).sum(axis=-1, keepdims=True)))
        # The entropy of s has the derivative -log s - 1; its constant -1 cancels in the gradient.
        if kind == "entropy":
            towards = towards - PENALTY * np.log(s)
        return s * (towards - (s * towards).sum(axis=-1, keepdims=True)) / N

    kept = [W]
    for _ in SHOWN[1:]:
        kept.append(descend(at, kept[-1], EVERY, LR, slopes=slopes))
    return np.stack(kept)


def measure(problem, weights):
    """Measures one run: the tokens that it selects, the correlations of W with their SVM, and its largest attention
    along training."""
    data, (X, _), rows = problem.data, tokens_of(problem.data), np.arange(N)
    selected = data.select(weights[-1])
    soft, hard = (data.attended(weights[-1], hard=hard) for hard in (False, True))
    return {
        "selected": selected,
        "softmax": [data.probabilities(M).max(axis=1).mean() for M in weights],
        "correlation": correlations(weights, solve_svm(data, selected).W),
        "score": problem.scores[rows, selected].mean(),
        "best": (selected == problem.optimal).mean(),
        "hard": np.abs(soft - hard).max(),
        "taken": np.abs(hard - X[rows, selected]).max(),
    }


def claims(results):
    """Claims that other draws repeat what was observed of the entropy penalty and of Gumbel selection, for which there
    is no theory."""
    plain, entropy, gumbel = (1 - results[f"{kind} correlation"][:, -1] for kind in KINDS)
    gained = results["plain score"] - results["entropy score"]
    taken = np.concatenate([results[f"{kind} taken"] for kind in KINDS])
    return {
        "Does pushing select the same tokens?": [
            mean(
                "entropy penalty: share of the tokens of plain training (by chance .125)",
                results["entropy same"],
                (0, 1),
                0.3,
                0.55,
            ),
            mean(
                "straight-through Gumbel: share of the tokens of plain training", results["gumbel same"], (0, 1), 0.88
            ),
            median("plain training selects better tokens than under the penalty: score gained", gained, 0.1, 0.24),
        ],
        f"1 - correlation with the SVM of the tokens selected, step {STEPS:,}": [
            median("softmax", plain, 0, 0.01),
            median("entropy penalty", entropy, 0, 0.006),
            median("straight-through Gumbel", gumbel, 0.008, 0.03),
            share("Gumbel noise leaves W farther off than plain training", gumbel > plain, 0.85),
        ],
        "Hard attention at inference": [
            median("softmax: largest difference of an attended vector", results["plain hard"], 0, 1e-6),
            exactly("hard attention against the selected tokens themselves", taken, high=0),
        ],
    }


@picture((14, 4.8), 3)
def plot(results, left, middle, right):
    """Draws the largest attention along training (left), 1 - correlation of W with the SVM of its tokens (middle), and
    how often queries select the best token or that of plain training (right)."""
    for kind, label in KINDS.items():
        band(SHOWN, results[f"{kind} softmax"], label, left)
        medians(SHOWN, 1 - results[f"{kind} correlation"], label, middle)
    finish(left, "How fast attention hardens", "training step", "largest softmax probability", ylim=(0, 1))
    finish(middle, "Where W goes", "training step", "1 - correlation with the SVM of its tokens", "y")
    best, same = ([results[f"{kind} {what}"] for kind in KINDS] for what in ("best", "same"))
    pairs(
        right,
        [label.replace(" ", "\n") for label in KINDS.values()],
        ("the best token", "0.35", best),
        ("the token of plain training", "#E69F00", same),
    )
    finish(right, "What is selected", "training", "share of queries that select", below=0.2, ylim=(0, 1))
    return (
        f"Soft and hard selection: {N} sequences of {T} tokens, d = {D}",
        f"{len(results['plain best'])} runs.  Left: mean, middle: median.  Bands: 10th to 90th percentile.",
    )
