"""Paths of gradient descent in the plane: for each query z, W z turns to the direction that the SVM gives.

As in Tarzanagh et al.: two sequences of tokens in the plane, each with its query z and its best token (star); these are
the published draws.  Training moves W z along the thin curves, whose distance from the origin is drawn as a logarithm.
They turn to the direction W_svm z of the SVM (thick lines from the origin).  Each dotted line is perpendicular to such
a direction; it lies half a margin below the best token, between that token and the others.  Left: training W.  Right:
other tokens, and training W (solid) beside training the factors (K, Q) (dashed).  The two end in different directions:
W turns to that of the Frobenius SVM, (K, Q) comes close to that of the nuclear SVM.
"""

import numpy as np

from ... import LinearHead, Problem, cross_attention, train
from ...claims import exactly, median, share
from ..panels import BLUE, DASHED, ORANGE, finish, picture
from ..problems import log_spaced, svm_of, to_svm
from ..textbook import apart, descend, sequences_of, tokens_of, unit

PAPER = "{SVM}: paths of gradient descent in the plane (notebooks visualization.ipynb and visualization2.ipynb)"
LR, STEPS = 0.1, 2000
RECORDS = log_spaced(1, STEPS, 200)
# After this number of steps W is compared with NumPy; later the textbook gradient loses half of its digits.
TWIN_STEPS = 50
# For training W and for training (K, Q): the norm whose SVM the direction turns to, and the norm of the SVM to compare.
NORMS = {"W": ("frobenius", "nuclear"), "KQ": ("nuclear", "frobenius")}
CAPTION = """Paths of W z in the plane of the tokens: training W on the left, both parameterisations on the right (W
solid, (K, Q) dashed). Dots: tokens; stars: the best of each sequence; thick: where the SVM points."""
RUNS, QUICK = 300, 72
SETTINGS = f"""Left: 2 sequences of 5 tokens, 0.5 N(0, I) shifted by (-1, 0), the first tokens (1, 0.5) and (1,
-0.5).  Right: 2 sequences of 3 tokens, 0.3 N(0, I) shifted by (-1, 0) and (1, 0).  The head a random unit vector,
labels 1, unit queries, W(0) = 0, K(0) = 0.1 N(0, I), Q(0) = 0, {STEPS:,} steps of normalised gradient descent with
learning rate {LR}.  The picture and the first claims are of the published draws (generator seeds 3 and 1; their K(0)
was not seeded), the others of random draws of the same kind."""

# The tokens, the queries and the head of the two published draws, in single precision as they were drawn.
PUBLISHED = {
    "one": [
        1, 0.5, -0.18972462, -0.798354, -0.7976964, 0.30564982, -0.6198048, -0.01682163, -1.1724226, 0.24682678,
        1, -0.5, -0.757443, 0.10261719, -0.8307859, 0.676377, -0.8131823, 0.00670824, -0.6131634, -0.05462176,
        -0.53912896, -0.8422232, 0.9525519, 0.30437642,
        0.9771238, 0.21267143,
    ],
    "two": [
        -0.9814968, 0.1863952, -1.1355718, -0.04983907, -1.4568305, 0.11450518,
        0.6917174, -0.16891584, 0.7323128, -0.01747505, 0.9413471, -0.2896908,
        0.84501135, 0.5347484, -0.63626397, -0.7714714,
        0.92731994, 0.37426966,
    ],
}  # fmt: skip


def together(runs, seed):
    """Trains W and (K, Q) on both published draws.  Returns the paths of W z and the SVM directions W_svm z for the
    queries z; (K, Q) starts from one random K(0) and Q(0) = 0."""
    found = {}
    for kind in PUBLISHED:
        for name, run in trainings(published(kind), np.random.default_rng(seed)).items():
            Z = run.data.queries
            found[f"shown {kind} {name}"] = np.einsum("rde,ne->rnd", run.weights, Z)
            found[f"toward {kind} {name}"] = Z @ svm_of(run, NORMS[name][0]).W.T
    return found


def published(kind):
    *X, z1, z2, v = np.reshape(PUBLISHED[kind], (-1, 2))
    return Problem(cross_attention(np.split(np.array(X), 2), [z1, z2]), None, LinearHead(v))


def draw(kind, rng):
    """Draws a random problem from the distribution of the published draw ``kind``: "one" (left panel) or "two" (right
    panel)."""
    v, Z = rng.standard_normal(2), rng.standard_normal((2, 2))
    if kind == "one":
        X = 0.5 * rng.standard_normal((2, 5, 2)) - [1, 0]
        X[:, 0] = [[1, 0.5], [1, -0.5]]
    else:
        X = 0.3 * rng.standard_normal((2, 3, 2)) + [[[-1, 0]], [[1, 0]]]
    return Problem(cross_attention(X, unit(Z)), None, LinearHead(unit(v)))


def trainings(problem, rng):
    K, how = 0.1 * rng.standard_normal((2, 2)), {"lr": LR, "steps": STEPS, "record": RECORDS}
    return {"W": train(problem, **how), "KQ": train(problem, K=K, Q=np.zeros((2, 2)), **how)}


def experiment(rng):
    found = {}
    for kind in PUBLISHED:
        for which, problem in (("published", published(kind)), ("random", draw(kind, rng))):
            for name, run in trainings(problem, rng).items():
                key = f"{which} {kind} {name}"
                own, other = (svm_of(run, norm) for norm in NORMS[name])
                x, y = np.full(2, np.nan) if own.W is None else own.W @ run.data.queries[1]
                off, off_other = (1 - to_svm(run.W, svm) for svm in (own, other))
                missed = (run.selected != problem.optimal).sum()
                found[key] = {"missed": missed, "off": off, "off the other": off_other, "slope": y / x}
        by_hand = descend(sequences_of(problem), np.zeros((2, 2)), TWIN_STEPS, LR)
        found[f"{kind} apart"] = apart(train(problem, lr=LR, steps=TWIN_STEPS).W, by_hand)
    return found


def claims(results):
    """Claims that W turns to the Frobenius SVM of its tokens and (K, Q) to the nuclear SVM, on the published and on
    random draws."""
    groups = {"The published draws": (shown := [])}
    for kind, side, tokens in (("one", "left", "Five"), ("two", "right", "Three")):
        W, KQ = f"published {kind} W", f"published {kind} KQ"
        shown += [
            exactly(f"{side}, W: sequences that do not select their best token", results[f"{W} missed"], 0, 0),
            exactly(f"{side}, W: 1 - correlation with its Frobenius SVM", results[f"{W} off"], high=1e-3),
            exactly(f"{side}, W: 1 - correlation with the nuclear SVM", results[f"{W} off the other"], 0.05, 0.12),
            share(f"{side}, (K, Q): selects the best tokens", results[f"{KQ} missed"] == 0, 0.95),
            share(
                f"{side}, (K, Q): 1 - correlation with its nuclear SVM is at most .01",
                results[f"{KQ} off"] <= 0.01,
                0.85,
            ),
            median(
                f"{side}, (K, Q): 1 - correlation with the Frobenius SVM", results[f"{KQ} off the other"], 0.05, 0.12
            ),
        ]
        group = groups[f"{tokens} tokens a sequence, random draws, {STEPS:,} steps"] = []
        for name, title, norm, least in (("W", "W", "Frobenius", 0.95), ("KQ", "(K, Q)", "nuclear", 0.9)):
            key = f"random {kind} {name}"
            off, other = results[f"{key} off"], results[f"{key} off the other"]
            group += [
                share(f"{title}: the best tokens are selected", results[f"{key} missed"] == 0, 0.6),
                median(f"{title}: 1 - correlation with its {norm} SVM", off, 0, 2e-3),
                share(f"{title}: that correlation is at least .98", off <= 0.02, least - 0.05),
                median(f"{title}: 1 - correlation with the other SVM, less that", other - off, 1e-3, 0.1),
            ]
        text = f"W after {TWIN_STEPS} steps of the textbook gradient in NumPy"
        group += [exactly(text, results[f"{kind} apart"], high=1e-6)]
    shown += [
        exactly("right: slope of the Frobenius direction of z2", results[f"{W} slope"], high=-5),
        median("right: slope of the nuclear direction of z2, of the other sign", results[f"{KQ} slope"], 5, 50),
    ]
    return groups


def compressed(path, reach):
    """Returns the path with the distances of its points from the origin replaced by their logarithms, scaled so that
    the farthest point is at 0.95 of ``reach``."""
    length = np.linalg.norm(path, axis=1, keepdims=True)
    return 0.95 * reach * np.log1p(length) / np.log1p(length.max()) * path / np.maximum(length, 1e-300)


@picture((11, 6.8), 2, layout="compressed")
def plot(results, *axes):
    """Draws the paths of W z in the plane, in one panel for each published draw.  The second panel compares training of
    W with training of the factors K and Q."""
    both = ("W", "W", "-"), ("KQ", "(K, Q)", DASHED)
    titles = "Training W", "Training W (solid) and (K, Q) (dashed)"
    for ax, kind, names, title in zip(axes, PUBLISHED, (both[:1], both), titles, strict=True):
        problem = published(kind)
        tokens, reach = tokens_of(problem.data)[0], 1.15 * np.abs(problem.data.keys).max()
        for n, (X, best, color) in enumerate(zip(tokens, problem.optimal, (ORANGE, BLUE), strict=True)):
            ax.plot(*np.delete(X, best, axis=0).T, "o", color=color, markersize=6, alpha=0.6)
            ax.plot(*X[best], "*", color=color, markersize=16, markeredgecolor="black", markeredgewidth=0.6)
            for name, trained, line in names:
                path = compressed(results[f"shown {kind} {name}"][:, n], reach)
                ax.plot(*path.T, linewidth=1.3, color=color, linestyle=line)
                toward = results[f"toward {kind} {name}"][n]
                x, y = 3 * reach * unit(toward)
                label = f"{trained}: SVM direction of z{n + 1}"
                ax.plot([0, x], [0, y], linewidth=5, alpha=0.35, label=label, color=color, linestyle=line)
                middle = toward * (X[best] @ toward - 0.5) / (toward @ toward)
                ax.axline(middle, middle + toward[::-1] * [1, -1], linestyle=":", color=color, linewidth=1)
        ax.plot([], [], color="0.3", label="W(k) z along training, its length as a logarithm", linewidth=1.3)
        ax.plot([], [], ":", color="0.3", label="half margin between the star and the rest", linewidth=1)
        ends = -reach, reach
        finish(ax, title, "first coordinate", "second coordinate", xlim=ends, ylim=ends, aspect="equal", below=0.12)
