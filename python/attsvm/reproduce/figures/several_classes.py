"""Conjecture for several classes: attention keeps the mixture of tokens that makes the class most probable.

With C outputs and cross-entropy, ``log softmax(V^T o)_c`` is concave in the attended vector o.  So the best o may be a
mixture of tokens, which is the solution of a convex problem for each query.  First panel: how many tokens the mixture
has, against how many attention keeps.  The conjecture here is that attention keeps the tokens of the mixture in its
proportions.  W then splits as for any head that keeps several tokens: into W_fin and the SVM with equal logits within
the sets and margins across them (second panel).  It does not turn to the SVM of the token with the most attention.
"""

import itertools

import numpy as np
from scipy.optimize import minimize

from ... import Problem, SoftmaxHead, correlation, cross_attention, sample, solve_svm, train
from ...claims import exactly, median, share
from ...theory import decompose
from ..panels import cumulated, finish, picture
from ..problems import draws, linear_layer, to_svm
from ..textbook import softmax

N, T, D, CLASSES = 4, 4, 8, 5
STEPS = 6000
KEPT = 1e-2  # a token of at least this probability, in the attention or in the mixture, counts as kept
BAND = 3.0  # It is not clear whether a token is kept if its probability lies between KEPT / BAND and KEPT * BAND.
KINDS = {"both": "W_fin + R W_svm", "svm": "SVM of the mixtures", "one": "SVM of the largest token"}

PAPER = "{NOWHERE}: a head with several classes"
CAPTION = """Left: how many queries keep how many tokens, against what the best mixture predicts; agreement lies on the
diagonal. Right: how far W is from three candidates, as shares of the draws."""
RUNS, QUICK = 80, 12
SETTINGS = f"""{N} sequences of {T} tokens and queries uniform on the unit sphere, d = {D}, {CLASSES} classes, V
normal, random classes; W starts as a PyTorch linear layer; {STEPS:,} normalised steps of 1 / sqrt(k).  A token counts
from a probability of {KEPT:g} on; draws whose mixture has one within a factor of {BAND:g} of that, or one token in
every query, are drawn anew."""


def cost(s, outputs, c):
    """Computes the log-loss of class c when the tokens, whose outputs are the rows of ``outputs`` (T, C), have the
    attention probabilities s (T,)."""
    return -np.log(softmax(s @ outputs)[c])


def slopes(s, outputs, c):
    """Computes the gradient of :func:`cost` in s."""
    return outputs @ softmax(s @ outputs) - outputs[:, c]


def mixture(outputs, c):
    """Finds the best mixture of T tokens, the probabilities s (T,) of least cost, by sequential quadratic programming
    from equal probabilities."""
    return minimize(
        cost,
        np.full(T, 1 / T),
        (outputs, c),
        jac=slopes,
        method="SLSQP",
        bounds=[(0, 1)] * T,
        constraints={"type": "eq", "fun": lambda s: s.sum() - 1},
        tol=1e-15,
    ).x


def stationarity(s, outputs, c):
    """Measures how far the mixture s is from the best one, by the mean of the cost's derivatives under s, minus the
    least derivative in an entry of s."""
    g = slopes(s, outputs, c)
    return g @ s - g.min()


def is_clear(s):
    """Whether no entry of the mixture s (T,) lies within a factor BAND of KEPT, so that it is clear for every token
    whether s keeps it."""
    return ((s <= KEPT / BAND) | (s >= KEPT * BAND)).all()


def experiment(rng):
    for _ in draws():
        X, Z, _, _ = sample.unit_sphere(N, T, D, rng)
        V, classes = rng.standard_normal((D, CLASSES)), rng.integers(CLASSES, size=N)

        best = np.array(list(itertools.takewhile(is_clear, map(mixture, X @ V, classes))))
        kept = best >= KEPT
        if len(best) == N and (kept.sum(axis=1) > 1).any() and not kept.all():
            break
    data = cross_attention(X, Z)
    problem = Problem(data, None, SoftmaxHead(V, classes), "linear")
    trained = train(problem, linear_layer(rng, D, D), lr=1 / np.sqrt(np.arange(1, STEPS + 1)), steps=STEPS)
    p = trained.probabilities
    queries = list(zip(best, X @ V, classes, strict=True))
    attended = p >= KEPT
    parts = decompose(data, p, trained.W, selected=kept)
    return {
        "predicted": kept.sum(axis=1),
        "attended": attended.sum(axis=1),
        "same": (attended == kept).all(axis=1).mean(),
        "distance": np.abs(p - best).max(),
        "excess": trained.loss[-1] - np.mean([cost(*query) for query in queries]),
        "stationarity": max(stationarity(*query) for query in queries),
        "both": parts.correlation,
        "svm": correlation(trained.W, parts.W_svm),
        "one": to_svm(trained.W, solve_svm(data, p.argmax(axis=1))),
    }


def claims(results):
    """Claims, as a conjecture, that attention keeps the tokens of the best mixture in its proportions, and that W turns
    to W_fin + R W_svm."""
    return {
        "Which tokens (conjecture)": [
            median("share of a draw's queries that keep exactly the tokens of their mixture", results["same"], 0.9),
            median("largest difference of attention from the mixture", results["distance"], high=0.01),
            median("loss above that of the mixtures", results["excess"], high=1e-3),
            exactly("loss above that of the mixtures, least", results["excess"], -1e-9),
            exactly("the mixtures are maxima: largest derivative left", results["stationarity"], high=1e-6),
        ],
        "Which direction (conjecture)": [
            median("correlation of W with W_fin + R W_svm", results["both"], 0.97),
            share("nearer than the SVM of the largest tokens", results["both"] > results["one"], 0.9),
            median("correlation with the SVM of the largest tokens", results["one"], high=0.95),
        ],
    }


@picture((9, 4), 2)
def plot(results, tokens, direction):
    """Draws how many tokens queries keep against the number in their best mixtures (left), and how far W is from three
    candidates for its direction (right)."""
    counts = np.zeros((T, T))
    np.add.at(counts, tuple(results[what].ravel() - 1 for what in ("attended", "predicted")), 1)
    tokens.imshow(counts, cmap="Blues", origin="lower", extent=(0.5, T + 0.5, 0.5, T + 0.5))
    for (row, column), count in np.ndenumerate(counts):
        tokens.text(column + 1, row + 1, f"{count:g}", ha="center", va="center",
                    color="white" if count > counts.max() / 2 else "black")  # fmt: skip
    ticks = range(1, T + 1)
    tokens.set(xlabel="tokens of the mixture", ylabel="tokens that attention keeps", xticks=ticks, yticks=ticks)
    tokens.set_title("Queries by how many tokens they keep", loc="left", fontsize=11)
    for kind, label in KINDS.items():
        cumulated(1 - results[kind], label, direction)
    finish(direction, "Three candidates for the direction", "1 - correlation with W", "share of the draws", "x",
           ylim=(0, 1))  # fmt: skip
