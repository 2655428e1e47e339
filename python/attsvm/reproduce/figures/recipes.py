"""Which SVM, if any, training turns to with dropout, tied scores, a sink, sigmoid, sparsemax and other recipes.

All recipes are trained on the same tokens; the recipe decides which rows the SVM has.

- *Token dropout* (a query sees a random subset of its tokens): training turns to the ranking SVM.  It has a row for
  every pair of tokens of a sequence, since any subset must be ranked by score.
- *Ties* (two tokens with the best value): the SVM has no row between these two tokens.
- *A sink* (one more logit, which is always 0): the SVM has a zero token at the end of each sequence.
- *Sigmoid attention*: in the SVM every token competes with a zero token, and is selected if its score is positive.
- *Label smoothing*: the plain SVM, as long as the scores stay below ``ln((1 - s) / s)``, where the smoothed loss falls.
- *Dropout of probabilities* after softmax, without renormalisation: the plain SVM in most runs.  If a second token
  scores nearly as much as the best one, a query keeps some attention on it, in case the best one is dropped.

Three recipes have no SVM.  *Sparsemax* stops: its gradient is exactly zero once every margin is 1, at weights slightly
longer than the SVM solution.  *A soft cap* ``c tanh(l / c)`` and *QK-norm* bound the logits.  So the SVM is due to the
exponential tail of softmax: without a tail training stops at margin 1, and with bounded logits it turns elsewhere.
"""

import itertools

import numpy as np
from numpy.linalg import norm
from scipy.special import expit

from ... import LinearHead, Problem, cross_attention, solve_svm, train
from ...claims import median, share
from ..panels import BLUE, finish, picture
from ..problems import flat, svm_of, to_svm
from ..textbook import logits_of, projection, pulled, side_by_side, softmax, tokens_of, unit

PAPER = "{NOWHERE}"
CAPTION = """Correlation of the trained weights with the SVM of the recipe, and with the SVM that knows nothing of the
recipe."""
N, T, D = 4, 5, 16
STEPS, LR = 8000, 0.1
RUNS, QUICK = 60, 12
CAP, SMOOTHING, DROPPED = 5.0, 0.1, 0.3
SETTINGS = f"""n = {N}, T = {T}, d = {D}, unit tokens and queries, mean logistic loss, {STEPS:,} steps of normalised
gradient descent with learning rate {LR} from zero; all subsets of tokens for dropout, of which a share {DROPPED:g} is
dropped; a soft cap of {CAP:g}; label smoothing {SMOOTHING:g}."""
# all subsets of the tokens of a sequence, as flags
SUBSETS = np.array([*itertools.product((False, True), repeat=T)])
# For each recipe, the claimed lower bound of the median correlation of its W with the SVM of the recipe.
LEAST = {"token dropout": 0.98, "ties": 0.99, "sink": 0.98, "sigmoid": 0.85}
RECIPES = (*LEAST, "dropout of probabilities", "sparsemax", "soft cap", "QK-norm", "smoothing")


def together(runs, seed):
    """Trains W with each recipe in many runs.  Measures the correlations of each W with the SVM of its recipe and with
    the plain SVM, and whether sparsemax has stopped."""
    problems = [drawn(np.random.default_rng([seed, 41, r])) for r in range(runs)]
    # The package itself has the first three recipes.
    ends = {name: descended(name, side_by_side(problems)) for name in RECIPES[3:]}
    one = [compared(problem, {name: W[r] for name, (W, _) in ends.items()}) for r, problem in enumerate(problems)]
    return flat(one) | {"sparsemax: stopped": ends["sparsemax"][1]}


def drawn(rng):
    X, Z, v = (unit(rng.standard_normal(shape)) for shape in ((N, T, D), (N, D), (D,)))
    return Problem(cross_attention(X, Z), rng.choice([-1.0, 1.0], N), LinearHead(v))


def compared(problem, weights):
    """Returns, for one run, the correlations of each recipe's W with the SVM of the recipe and with the SVM that
    ignores the recipe."""
    data, best = problem.data, problem.optimal
    plain = svm_of(problem)
    found = {"null": to_svm(solve_svm(data, (best + 1) % T).W, plain)}
    judged = trained(problem)
    for name, W in weights.items():
        judged[name] = W, sign_svm(problem) if name == "sigmoid" else solve_svm(data, data.select(W))
    for name, (W, own, *control) in judged.items():
        found |= {f"{name}: own": to_svm(W, own), f"{name}: plain": to_svm(W, *control or [plain])}
    return found | {"sparsemax: margin": data.margins(weights["sparsemax"], best).min()}


def trained(problem):
    """Trains W by the recipes that the package itself has: token dropout, ties and a sink.  Returns for each of them W
    and the recipe's SVM; for ties, which change the tokens, also the SVM of these tokens that ignores the recipe."""
    y, head, (X, Z), rows = problem.y, problem.head, tokens_of(problem.data), np.arange(N)
    subsets = SUBSETS[1:]
    seen = cross_attention([x[kept] for x in X for kept in subsets], np.repeat(Z, len(subsets), axis=0))
    dropout = run_of(Problem(seen, np.repeat(y, len(subsets)), head))
    falling = X[rows[:, None], np.argsort(-problem.scores, axis=1)]
    ranked = cross_attention([x[k:] for x in falling for k in range(T - 1)], np.repeat(Z, T - 1, axis=0))
    twice, best = X.copy(), (y[:, None] * X[..., 0]).argmax(axis=1)
    other = (best + 1) % T
    twice[rows, other, 0] = X[rows, best, 0]
    # The head reads the first coordinate alone, so that two tokens can have exactly equal scores.
    ties = run_of(Problem(cross_attention(twice, Z), y, LinearHead(np.eye(D)[0])))
    margins = np.ones((N, T))
    margins[rows, best] = margins[rows, other] = -np.inf
    sink = run_of(Problem(cross_attention(X, Z, sink=True), y, head))
    return {
        "token dropout": (dropout.W, solve_svm(ranked, np.zeros(len(ranked), dtype=int))),
        "ties": (ties.W, svm_of(ties, margins=margins), svm_of(ties)),
        "sink": (sink.W, svm_of(sink)),
    }


def run_of(problem):
    return train(problem, lr=LR, steps=STEPS)


def sign_svm(problem):
    """Solves the SVM of sigmoid attention, in which every token competes with a zero token.  The zero token is selected
    if the token's score is below 0."""
    tokens = problem.data.keys.reshape(-1, D)
    rivals = cross_attention(np.stack([tokens, 0 * tokens], axis=1), np.repeat(problem.data.queries, T, axis=0))
    return solve_svm(rivals, (problem.scores.ravel() < 0).astype(int))


def descended(name, at):
    """Trains W (runs, d, d) by the recipe ``name`` along the textbook gradient in NumPy.  Returns W, and flags of runs
    whose gradient has become exactly zero."""
    W = np.zeros((len(at.X), D, D))
    for _ in range(STEPS):
        G = gradient(name, at, W)
        size = norm(G, axis=(-2, -1), keepdims=True)
        W = W - LR * G / np.where(size > 0, size, 1.0)
    return W, size[:, 0, 0] == 0


def gradient(name, at, W):
    """Computes the gradient (runs, d, d) of the mean loss in W under the recipe ``name``."""
    X, Z, g = at
    logits = logits_of(X, Z, W)
    if name == "sigmoid":
        a = expit(logits)
        pull = a * expit(-logits) * g  # a (1 - a) g without cancellation
    elif name == "sparsemax":
        a = projection(logits)
        on = a > 0
        pull = on * (g - (on * g).sum(axis=-1, keepdims=True) / on.sum(axis=-1, keepdims=True))
    elif name == "soft cap":
        a = softmax(CAP * np.tanh(logits / CAP))
        pull = pairs(a, g) / np.cosh(logits / CAP) ** 2
    elif name == "QK-norm":
        U = Z @ W.swapaxes(1, 2)
        size = norm(U, axis=-1, keepdims=True)
        size[size == 0] = 1
        a = softmax(np.sqrt(D) * logits / size)
        pull = pairs(a, g) / size
        # remove the part of the tokens along U = W z, since the loss depends only on the direction of U
        X = X - (logits / size)[..., None] * (U / size)[..., None, :]
    else:
        a = softmax(logits)
        if name == "dropout of probabilities":  # the kept probabilities are not scaled to sum 1
            masks, a = SUBSETS[:, None, None], a[None]
            g = g * masks / (1 - DROPPED)
        pull = pairs(a, g)
    u = (a * g).sum(axis=-1)
    slope = -expit(-u)
    if name == "smoothing":
        slope = (1 - SMOOTHING) * slope + SMOOTHING * expit(u)
    slopes = slope[..., None] * pull
    if name == "dropout of probabilities":  # the mean over all masks
        slopes = (np.where(masks, 1 - DROPPED, DROPPED).prod(axis=-1, keepdims=True) * slopes).sum(axis=0)
    return pulled(slopes / N, X, Z)


def pairs(a, g):
    """Computes the derivatives ``a_t (g_t - a.g)`` of ``a.g`` in the logits of a softmax a.  It first subtracts from
    all scores g that of the token with the largest a, so that nothing cancels at saturation."""
    apart = g - np.take_along_axis(g, a.argmax(axis=-1)[..., None], -1)
    return a * (apart - (a * apart).sum(axis=-1, keepdims=True))


def claims(results):
    """Claims that W turns to an SVM of the recipe's own for some recipes, to the plain SVM of its tokens for others,
    and to no SVM for the rest."""
    own, plain = ({name: results[f"{name}: {part}"] for name in RECIPES} for part in ("own", "plain"))
    return {
        "Recipes with an SVM of their own": [
            *(median(f"{name}: correlation with its SVM", own[name], low, 1) for name, low in LEAST.items()),
            *(
                share(f"{name}: nearer to its SVM than to the plain one", own[name] > plain[name], 0.7)
                for name in LEAST
                if name != "sink"
            ),
            median("random tokens of the same problems: correlation of their SVM with the plain one",
                   results["null"], -1, 0.6),
        ],
        "Recipes that leave the plain SVM of the tokens they select": [
            median("smoothing: correlation", own["smoothing"], 0.99, 1),
            share("dropout of probabilities: correlation above .99", own["dropout of probabilities"] > 0.99, 0.25),
        ],
        "Recipes without one": [
            share("sparsemax: the gradient is exactly zero in the end", results["sparsemax: stopped"], 0.7),
            median("sparsemax: least margin where it stopped", results["sparsemax: margin"], 1 - 1e-9, 1.5),
            median("soft cap: correlation with the plain SVM", plain["soft cap"], -1, 0.95),
            median("QK-norm: correlation with the plain SVM", plain["QK-norm"], -1, 0.95),
        ],
    }  # fmt: skip


@picture((9, 5), 1)
def plot(results, ax):
    """Draws a row for each recipe, with the distances of each run's W from the recipe's SVM and from the SVM that
    ignores the recipe."""
    runs = len(results["null"])
    for k, name in enumerate(RECIPES):
        kinds = ("own", "SVM of the recipe", -0.15, BLUE), ("plain", "without the recipe", 0.15, "#999999")
        for part, label, shift, color in kinds[name not in LEAST :]:
            off, at = 1 - results[f"{name}: {part}"], np.full(runs, k + shift)
            ax.semilogx(off, at, ".", color=color, alpha=0.7, label=None if k else label)
    ax.set_yticks(range(len(RECIPES)), RECIPES)
    ax.invert_yaxis()
    finish(ax, "By recipe", "1 - correlation with the trained weights")
    return "Which SVM belongs to which recipe", f"{runs} runs a recipe."
