"""A hierarchy of SVMs: of two or three attention layers trained together, each turns to its own SVM.

Tarzanagh et al. expect this.  The layers are trained together from small weights.  The last layer turns to the SVM of
the token that it selects; its tokens are the outputs of the layers below.  A layer below turns to an SVM that asks for
margin 1 only at the queries whose outputs lead to the final output.  It asks for margin 0 at the queries that produce
support tokens of the SVM above.  The margins of the layers balance: ``margin_1 ||W_1|| = margin_2 ||W_2||``.

Two controls show that this is not trivial.  The SVM of all queries of a layer, which the theory of one layer suggests,
is far from its weights.  The SVM of only the queries that lead to the output is closer, but farther than the SVM that
also asks for the margins 0.  The same holds with values three times as long, where mixing in a lower layer can move the
tokens above.  Factors K and Q come close to the SVMs of least nuclear norm, but no closer than in one layer.
"""

import numpy as np

from ... import correlation, cross_attention, self_attention, solve_svm
from ...claims import median, share
from ...theory import hierarchy, train_stack
from ..panels import BLUE, ORANGE, PALETTE, finish, medians, picture
from ..problems import to_svm
from ..textbook import norms, unit

PAPER = "{SVM}, its last sentence; no picture"
CAPTION = """Left: distance of each layer's weights from its SVM as training goes on. Middle: distance of the lower
layer from its SVM and from the two controls, run by run. Right: the balance of the margins."""
RUNS, QUICK = 40, 12
# A setting starts with the numbers of sequences, of tokens in a sequence, of dimensions and of attention layers.
# A setting ends with the standard deviation of W(0)'s entries, whether K and Q are trained, and the values' length.
SETTINGS_OF = {
    "two layers": (4, 5, 12, 2, 0.0, False, 1.0),
    "random start": (6, 4, 16, 2, 0.3, False, 1.0),
    "three layers": (3, 4, 14, 3, 0.0, False, 1.0),
    "K and Q": (4, 4, 12, 2, 0.1, True, 1.0),
    "long values": (4, 5, 12, 2, 0.0, False, 3.0),
}
# For each setting, claimed lower bounds of median correlations with the layer's own SVM: lowest layer, last layer.
CLAIMED = {
    "two layers": (0.985, 0.99),
    "random start": (0.985, 0.99),
    "three layers": (0.985, 0.98),
    "long values": (0.985, 0.98),
    "K and Q": (0.93, 0.93),
}
STEPS, RECORD = 4000, 200
SETTINGS = f"""Unit tokens, queries and head, orthogonal values, {STEPS:,} steps of normalised gradient descent on all
layers together, learning rate 0.1."""
KINDS = {"SVM of all queries": "#999999", "of those on the way": ORANGE, "its SVM": BLUE}


def together(runs, seed):
    """Trains stacks of attention layers in each setting.  Measures each layer's correlation with its SVM along
    training, the lowest layer's correlation with two control SVMs, and the margin times norm of the lowest layer over
    that of the last."""
    found = {}
    for k, (name, (*size, spread, factors, length)) in enumerate(SETTINGS_OF.items()):
        draws = [drawn(np.random.default_rng([seed, k, r]), *size) for r in range(runs)]
        X, z, v, y, Q, noise = map(np.stack, zip(*draws, strict=True))
        V = length * np.linalg.qr(Q)[0]
        W = [tuple(w) if factors else w[0] for w in spread * noise.transpose(1, 2, 0, 3, 4)]
        stack = train_stack(X, z, y, v, list(V.swapaxes(0, 1)), W, steps=STEPS, record=RECORD)
        norm = "nuclear" if factors else "frobenius"
        found[name] = [_judged(stack, r, X[r], list(V[r]), z[r], norm) for r in range(runs)]
    return found


def drawn(rng, n, T, d, layers):
    """Draws the random arrays of one run: tokens, queries, head, labels, and Gaussian arrays for the values and the
    initial weights."""
    X, z, v = (unit(rng.standard_normal(shape)) for shape in ((n, T, d), (n, d), (d,)))
    y = rng.choice([-1.0, 1.0], n)
    return X, z, v, y, rng.standard_normal((layers - 1, d, d)), rng.standard_normal((layers, 2, d, d))


def _judged(stack, r, X, V, z, norm):
    attention = [p[r] for p in stack.attention]
    try:
        svms = hierarchy(X, V, z, attention, norm)
    except ValueError:  # a query that leads to the output has not selected a token
        shapes = {"correlation": (STEPS // RECORD, len(attention)), "controls": 2, "balance": ()}
        return {name: np.full(shape, np.nan) for name, shape in shapes.items()}
    margins = [svm.margin * norms(W[r], norm)[0] for W, svm in zip(stack.W, svms, strict=True)]
    return {
        "correlation": [
            [correlation(W[r], svm.W) for W, svm in zip(weights, svms, strict=True)] for weights in stack.records[1:]
        ],
        "controls": _controls(stack.W[0][r], X, attention, norm),
        "balance": margins[0] / margins[-1],
    }


def _controls(W, X, attention, norm):
    """Returns the correlations of the lowest layer's W with two control SVMs: the SVM of all its queries, and the SVM
    of only the queries whose outputs lead to the final output."""
    chosen, *middle, last = (p.argmax(axis=-1) for p in attention)
    rows, read = np.arange(len(X))[:, None], last[:, None]
    for selected in middle:
        read = np.concatenate([read, selected[rows, read]], axis=1)
    every = solve_svm(self_attention(X, query=None), chosen, norm)
    alone = solve_svm(cross_attention(X, X[rows, read]), chosen[rows, read], norm)
    return to_svm(W, every), to_svm(W, alone)


def claims(results):
    """Claims that every layer turns to its SVM, that the lowest layer is farther from two control SVMs than from its
    own, and that margin times norm is equal in the lowest and the last layer."""
    groups = {}
    for name, (lowest, last) in CLAIMED.items():
        low, *middle, top = results[f"{name} correlation"][:, -1].T
        every, alone = results[f"{name} controls"].T
        # NaN if the lowest layer has no SVM; true if those queries have none
        nearer = np.where(np.isfinite(low), ~(low <= alone), np.nan)
        groups[f"{name}: every layer goes to an SVM of its own"] = [
            median("correlation of the last layer with its SVM", top, last, 1),
            median("correlation of the lowest layer with its SVM", low, lowest, 1),
            *(median("correlation of the middle layer with its SVM", x, 0.98, 1) for x in middle),
            median("of the lowest layer with the SVM of all queries (control)", every, -1, 0.9),
            share("nearer to its SVM than to that of the queries on the way alone", nearer, 0.5),
            median("ratio of margin times norm, lowest layer to last", results[f"{name} balance"], 0.9, 1.1),
        ]
    return groups


@picture((14, 4.6), 3)
def plot(results, left, middle, right):
    """Draws distances of the layers from their SVMs along training (left), of the lowest layer from its SVM and from
    two controls (middle), and the lowest layer's margin times norm over the last layer's (right)."""
    steps = RECORD * np.arange(1, STEPS // RECORD + 1)
    for name, color in zip(("two layers", "random start", "three layers"), PALETTE, strict=False):
        for column, which, line in ((0, "lowest", "-"), (-1, "last", "--")):
            off = 1 - results[f"{name} correlation"][..., column]
            medians(steps, off, f"{name}, {which} layer", left, color=color, linestyle=line)
    finish(left, "Each layer goes to its SVM", "training step", "1 - correlation", "xy")
    left.set_xticks((200, 1000, 4000), ("200", "1,000", "4,000"))
    left.minorticks_off()
    names = list(SETTINGS_OF)
    for k, name in enumerate(names):
        values = *results[f"{name} controls"].T, results[f"{name} correlation"][:, -1, 0]
        for shift, value, (label, color) in zip((-0.2, 0, 0.2), values, KINDS.items(), strict=True):
            at = np.full(len(value), k + shift)
            middle.semilogy(at, 1 - value, ".", color=color, alpha=0.6, label=None if k else label)
    middle.set_xticks(range(len(names)), names, rotation=20)
    middle.margins(x=0.06)
    finish(middle, "The lowest layer and its controls", ylabel="1 - correlation with the weights")
    balances = [results[f"{name} balance"] for name in names]
    right.boxplot([x[np.isfinite(x)] for x in balances])
    right.axhline(1, color="0.3", linewidth=0.8, zorder=0)
    right.set_xticks(range(1, len(names) + 1), names, rotation=20)
    finish(right, "The margins balance", ylabel="margin x norm, lowest layer over last")
    return "Layers trained together: a hierarchy of SVMs", f"{len(balances[0])} runs a setting."
