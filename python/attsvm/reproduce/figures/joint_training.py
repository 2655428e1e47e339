"""Head and attention trained together: attention turns to an SVM that asks no margin of easy sequences.

As in "Max-Margin Token Selection", the head v turns to the SVM of the labels, on the tokens that attention selects.
First panel: paths of the prompt p in the published example.  Second panel: its attention and its confidence in the
labels.  There attention turns to its own SVM if every labelled vector is a support vector of v ("tight").  Otherwise it
turns to the relaxed SVM, which asks no margin of a sequence whose label v predicts with more than its margin.

On random data (third panel) W turns to neither of the two.  v and W take steps of one length, so their norms grow
alike.  Let v' and W' be v and W divided by their norms.  A query then adds about ``exp(-||v|| y v'.x - ||W|| margin of
W')`` to the loss.  So the conjecture here is that W turns to the W' that maximises the minimum over queries of ``rho y
v'.x + margin``, where rho is the norm of v divided by the norm of W.  The number rho is close to 1, and with 1 in its
place the W' changes little.  In the published example the conjectured W is the relaxed SVM.  The claims on that example
also cover its joint regularisation path, which is not drawn: minimisers over balls of one growing radius for v and for
p turn to the same directions.
"""

import numpy as np
from numpy.linalg import norm

from ... import LinearHead, Problem, correlation, prompt_attention, solve_svm, train
from ...claims import exactly, median, share
from ...theory import label_svm, relaxed_margins
from ..panels import BLUE, ORANGE, cumulated, finish, picture
from ..problems import draws, linear_layer, saturated, sphere_problem, to_svm
from ..textbook import loss, softmax, unit

LR, STEPS = 0.1, 1000
THIRD = {"tight": 1.0, "not tight": 1.5}  # second coordinate of the second token of the third sequence
LABELS = np.array([1.0, -1.0, 1.0])
N, T, D, RANDOM_STEPS = 6, 8, 10, 4000
RADII = (3.0, 10.0, 30.0)  # radii of the balls of the joint regularisation path; in larger balls rounding errors decide
GRID, ZOOMS = 91, 12
# number of bisection steps of between(), which maximises, over W of norm 1, the minimum over queries of score + margin
HALVINGS = 60
KINDS = {"full": "SVM of attention", "relaxed": "relaxed SVM", "between": "conjecture"}
# published values for some steps: "softmax" is the attention to the best token, "logistic" the probability of the label
PUBLISHED = {"softmax": {30: 0.72, 60: 0.97, 100: 1.0}, "logistic": {0: 0.52, 30: 0.87, 55: 0.99}}

PAPER = """{PROMPT}: head and prompt trained together, with labels that are all support and with one that is not; the
random data are this package's"""
CAPTION = """Left: paths of the prompt and the SVM direction that each goes to (thick). Middle: attention to the best
token and probability of the label. Right: on random data, how far W is from three candidates, as shares of the
draws."""
RUNS, QUICK = 200, 72
SETTINGS = f"""Example: token 0 against (1, 1), (1, -1) and (0.5, 1) [tight] or (0.5, 1.5) [not tight], labels 1, -1,
1; p(0) = (0, -1), v(0) = (-1, 0), {STEPS:,} steps.  Random: {N} sequences of {T} tokens, queries and head uniform on
the unit sphere, d = {D}, W(0) a PyTorch linear layer, {RANDOM_STEPS:,} steps; draws whose labels are all support are
drawn anew, and runs whose attention has not saturated give no number.  Normalised descent on the head and on
attention, each with learning rate {LR}, logistic loss."""


def once():
    return {kind: example(kind) for kind in THIRD}


def example(kind):
    """Trains the head v and the prompt p on the published example ``kind``.  Returns their paths and directions, the
    SVM directions, the mean attention to the second tokens, and the mean probability of the labels."""
    X = np.array([[[0, 0], [1, 1]], [[0, 0], [1, -1]], [[0, 0], [0.5, THIRD[kind]]]])
    data = prompt_attention(X)
    problem = Problem(data, LABELS, LinearHead([-1.0, 0.0]))
    trained = train(problem, [[0.0], [-1.0]], lr=LR, steps=STEPS, record=1, train_head=True)
    second = [1, 1, 1]
    full, relaxed = (solve_svm(data, second, margins=m).W.ravel() for m in (None, relaxed_margins(problem, second)))
    along = zip(trained.weights, trained.head_records, strict=True)
    minimisers = [joint_minimiser(X, radius) for radius in RADII]
    return {
        "joint v": [correlation(v, label_svm(problem, second).W.ravel()) for v, _ in minimisers],
        "joint p": [correlation(p, full if kind == "tight" else relaxed) for _, p in minimisers],
        "path": trained.weights[:, :, 0],
        "p": unit(trained.W.ravel()),
        "v": unit(trained.v),
        "full": full,
        "relaxed": relaxed,
        "label": label_svm(problem, second).W.ravel(),
        "softmax": [data.probabilities(W)[:, 1].mean() for W in trained.weights],
        "logistic": [(1 / (1 + np.exp(-LABELS * (data.attended(W) @ v)))).mean() for W, v in along],
    }


def joint_minimiser(X, radius):
    """Finds the head v and the prompt p, both of norm ``radius``, with the least loss.  It searches a grid of their two
    angles, and then repeatedly a grid with a third of the spacing around the best angles."""
    centre, width = np.zeros(2), np.pi
    for _ in range(ZOOMS):
        angles = centre[:, None] + np.linspace(-width, width, GRID)
        v, p = radius * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
        attended = np.einsum("bnt,ntd->bnd", softmax(np.einsum("ntd,bd->bnt", X, p)), X)
        losses = loss(LABELS * np.einsum("bnd,ad->abn", attended, v))
        best = np.unravel_index(losses.argmin(), losses.shape)
        centre, width = angles[[0, 1], best], width / 3
    return v[best[0]], p[best[1]]


def experiment(rng):
    for _ in draws():
        problem = sphere_problem(rng, N, T, D)
        data = problem.data
        trained = train(problem, linear_layer(rng, D, D), lr=LR, steps=RANDOM_STEPS, train_head=True)
        selected = trained.selected
        label = label_svm(problem, selected)
        if label.W is None or not label.support[:, 1].all():
            break
    if label.W is None or not saturated(trained):
        return dict.fromkeys((*KINDS, "v", "rho"), np.nan)
    W, v, rho = trained.W, label.W[:, 0], norm(trained.v) / trained.norm[-1]
    score = problem.y * (data.attended(W, hard=True) @ v)
    return {
        "full": to_svm(W, solve_svm(data, selected)),
        "relaxed": to_svm(W, solve_svm(data, selected, margins=relaxed_margins(problem, selected))),
        "between": to_svm(W, between(data, selected, rho * score / norm(v))),
        "v": correlation(trained.v, v),
        "rho": rho,
    }


def between(data, selected, score):
    """Solves for the W that, scaled to norm 1, maximises the minimum of ``score + margin`` over all queries.

    Bisection finds the largest t for which some W of norm 1 has margins of at least ``t - (score - min score)`` at all
    queries.  The least norm of a W with these margins grows with t, so t is too large if this norm exceeds 1.
    """
    lead = score - score.min()

    def least(t):
        return solve_svm(data, selected, margins=np.tile(t - lead, (T, 1)).T)

    low, high = 0.0, solve_svm(data, selected).margin + lead.max()
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if norm(least(middle).W) < 1 else (low, middle)
    return least(high)


def claims(results):
    """Claims that head and attention trained together turn to the predicted SVMs.  Brackets in a claim hold exact
    values (computed with 450 digits) or values read off published figures."""

    of = {key: value[0] for key, value in results.items()}

    def angle(a, b):
        return np.degrees(np.arccos(np.clip(correlation(of[a], of[b]), -1, 1)))

    unlike = results["between"] > np.fmax(results["full"], results["relaxed"])
    joint = []
    for kind, goal in (("tight", "the SVM"), ("not tight", "the relaxed SVM")):
        p, v = of[f"{kind} joint p"], of[f"{kind} joint v"]
        joint += [
            exactly(f"{kind}: correlation of p with {goal}, at the end", p[-1], 0.9995),
            exactly(f"{kind}: of v with the SVM of the labels", v[-1], 0.9995),
            exactly(f"{kind}: least gain of p's from ball to ball", np.diff(p).min(), 0),
        ]
    return {
        "Tight": [
            exactly("SVM value of attention (17 / 18)", (of["tight full"] ** 2).sum() / 2, 0.944444, 0.944445),
            exactly("angle of p with (.970, .243), degrees", angle("tight p", "tight full"), high=1),
            exactly("angle of v with the SVM of the labels, degrees", angle("tight v", "tight label"), high=1),
            exactly("attention dips to (.38)", min(of["tight softmax"]), 0.37, 0.39),
            *(
                exactly(f"{name} at step {k} ({x:g})", of[f"tight {name}"][k], x - 0.01, x + 0.01)
                for name, published in PUBLISHED.items()
                for k, x in published.items()
            ),
        ],
        "Not tight": [
            exactly("second coordinate of p's direction (.0031)", of["not tight p"][1], 0.00305, 0.00315),
            exactly("angle of p with the relaxed SVM", angle("not tight p", "not tight relaxed"), high=0.5),
            exactly("angle of p with the SVM", angle("not tight p", "not tight full"), 10),
            exactly("angle of v with the SVM of the labels", angle("not tight v", "not tight label"), high=1),
        ],
        f"Joint regularisation path, balls of radius {', '.join(f'{r:g}' for r in RADII)} for v and for p": joint,
        "Random data, some labels no support": [
            median("correlation of v with the SVM of the labels", results["v"], 0.999),
            median("correlation of W with the conjectured SVM", results["between"], 0.999),
            share("the conjectured SVM is nearer than the SVM and the relaxed one", unlike, 0.9),
            median("ratio of the norms of v and W", results["rho"], 0.99, 1.05),
            median("correlation of W with the relaxed SVM", results["relaxed"], high=0.97),
        ],
    }


@picture((13, 4), 3)
def plot(results, paths, confidence, candidates):
    """Draws the paths of the prompt (left), its attention and the probability of the labels along training (middle),
    and how far W is from three SVMs on random data (right)."""
    for kind, svm, color in (("tight", "full", BLUE), ("not tight", "relaxed", ORANGE)):
        x, y = 30 * unit(results[f"{kind} {svm}"][0])
        paths.plot([0, x], [0, y], color=color, linewidth=6, alpha=0.25)
        paths.plot(*results[f"{kind} path"][0].T, color=color, label=f"{kind}: path of p")
        confidence.plot(results[f"{kind} softmax"][0, :121], color=color, label=f"{kind}: attention")
        likely = f"{kind}: probability of the label"
        confidence.plot(results[f"{kind} logistic"][0, :121], "--", color=color, label=likely)
    finish(
        paths,
        "Example: where the prompt goes",
        "first coordinate of p",
        "second coordinate of p",
        xlim=(-1, 20),
        ylim=(-2, 6),
    )
    finish(confidence, "Example: tokens and labels", "step", "probability", ylim=(0, 1))
    for kind, label in KINDS.items():
        cumulated(1 - results[kind], label, candidates)
    finish(
        candidates, "Random data: three candidates", "1 - correlation with W", "share of the draws", "x", ylim=(0, 1)
    )
