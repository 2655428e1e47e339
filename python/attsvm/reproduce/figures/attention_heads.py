"""Several attention heads trained together: the weights of each turn to the SVM of the tokens it selects.

This is an open question of Tarzanagh et al.  H attention heads are trained together.  One output head reads the sum of
their attended vectors, or the vectors side by side.  The gradient of each weight matrix is normalised by itself; only
the loss couples the heads.  The direction of each turns to the SVM of the tokens that this head selects.  Summed heads
have the same best tokens and mostly select the same ones.  Side by side, each head is read by its own block of the
output head and selects its own tokens.
"""

import functools

import numpy as np

from ... import LinearHead, Problem, cross_attention, sample, solve_svm, train
from ...claims import exactly, mean, median, share
from ..panels import BLUE, ORANGE, finish, medians, pairs, picture
from ..problems import D, N, T, correlations, linear_layer, saturated
from ..textbook import Sequences, apart, descend, slopes_of, unit

HEADS = {1: "0.35", 2: BLUE, 4: ORANGE}  # numbers of attention heads, and their colours
LR, STEPS, TWIN_STEPS = 0.1, 4000, 100
SHOWN = np.arange(0, STEPS + 1, 10)
PAPER = "{SVM}: its open question on several attention heads; no picture"
CAPTION = "Left and middle: how far the heads are from their own SVMs. Right: what they select."
RUNS, QUICK = 100, 32
SETTINGS = f"""{N} sequences of {T} random unit tokens, d = {D}, linear head, logistic loss, normalised gradient
descent (each attention head by its own norm) with learning rate {LR} for {STEPS} steps from the start of a PyTorch
linear layer."""
COMBINATIONS = {"sum": "summed", "concatenate": "side by side"}
KINDS = {f"{combine} {H}": f"{H} {text}" for combine, text in COMBINATIONS.items() for H in HEADS}


def experiment(rng):
    X, Z, y, v = sample.unit_sphere(N, T, D, rng)
    data, result = cross_attention(X, Z), {}
    W = linear_layer(rng, max(HEADS), D, D)
    blocks = np.concatenate([[v], unit(rng.standard_normal(W.shape[:2])[1:])])
    # the vector by which each head is read: one for all heads, or a block of the output head for each
    for combine, reads in zip(COMBINATIONS, (0 * blocks + v, blocks), strict=True):
        scores = y[:, None] * np.einsum("ntd,hd->hnt", X, reads)
        for H in HEADS:
            head = LinearHead(v if combine == "sum" else reads[:H].ravel())
            problem = Problem(data, y, head, heads=H, combine=combine)
            run = train(problem, W[:H], lr=LR, steps=STEPS, record=SHOWN)
            selected = run.selected
            own = np.stack([correlations(run.weights[:, h], solve_svm(data, selected[h]).W) for h in range(H)])
            result[f"{combine} {H}"] = {
                "correlation": own.mean(axis=0),
                "least correlation": own[:, -1].min(),
                "agree": (selected == selected[0]).all(axis=0).mean(),
                "best": (selected == scores[:H].argmax(axis=2)).mean(),
                "saturated": saturated(run),
            }
        # the loss is that of the sum over the heads, which are the first axis of the scores
        by_hand = descend(Sequences(X, Z, scores), W, TWIN_STEPS, LR, slopes=functools.partial(slopes_of, summed=0))
        result[f"{combine} apart"] = apart(train(problem, W, lr=LR, steps=TWIN_STEPS).W, by_hand)
    return result


def claims(results):
    """Claims that the W of each head turns to the SVM of its own tokens, that summed heads mostly select the same
    tokens, and that training agrees with descent along the textbook gradient in NumPy."""
    tokens = {
        "2 heads summed: queries on which both agree": ("sum 2 agree", 0.85),
        "4 heads summed: queries on which all agree": ("sum 4 agree", 0.8),
        "2 side by side: queries on which both agree (by chance 1 / T = .125)": ("concatenate 2 agree", 0.05, 0.25),
        "4 side by side: queries on which all agree (by chance .002)": ("concatenate 4 agree", None, 0.12),
        "4 side by side: a head selects its best token": ("concatenate 4 best", 0.82, 0.98),
    }
    return {
        f"1 - correlation with its own SVM after {STEPS:,} steps": [
            median(f"{text}: the head farthest from its own SVM", 1 - results[f"{key} least correlation"], 0, 2e-3)
            for key, text in KINDS.items()
        ],
        "Tokens": [
            *(
                share(f"{text}: every attention head on one token per query", results[f"{key} saturated"], 0.88)
                for key, text in KINDS.items()
            ),
            *(mean(text, results[key], (0, 1), *bound) for text, (key, *bound) in tokens.items()),
        ],
        "Against the textbook gradient in NumPy": [
            exactly(f"4 heads, {text}, {TWIN_STEPS} steps: relative difference", results[f"{combine} apart"], high=1e-6)
            for combine, text in COMBINATIONS.items()
        ],
    }


@picture((14, 4.8), 3)
def plot(results, left, middle, bars):
    """Draws 1 - correlation of the heads' W with their own SVMs, for summed heads (left) and for heads side by side
    (middle), and how often heads select the best token or the same token (right)."""
    for ax, (combine, text) in zip((left, middle), COMBINATIONS.items(), strict=True):
        for H, color in HEADS.items():
            off = 1 - results[f"{combine} {H} correlation"][:, 1:]
            medians(SHOWN[1:], off, f"{H} attention head{'s' if H > 1 else ''}", ax, color=color)
        finish(ax, f"Attended vectors {text}", "training step", "1 - correlation of a head with its own SVM", "xy")
    best, agree = ([results[f"{key} {what}"] for key in KINDS] for what in ("best", "agree"))
    pairs(
        bars,
        [text.replace(" ", "\n", 1) for text in KINDS.values()],
        ("a head selects its best token", BLUE, best),
        ("all heads select the same token", "#E69F00", agree),
        fontsize=7,
    )
    finish(bars, "What they select", "attention heads", "share of queries", below=0.16, ylim=(0, 1))
    return (
        f"Several attention heads: {N} sequences of {T} tokens, d = {D}",
        f"Lines: median of {len(results['sum 1 best'])} runs.  Bands: 10th to 90th percentile.",
    )
