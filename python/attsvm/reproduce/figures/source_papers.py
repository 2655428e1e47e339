"""Six remarks of the source papers, tested: rank, sets of solutions, new sequences, kinds of heads, the loss.

- *Higher rank helps.* With factors K and Q of m columns: how close their product comes to the nuclear SVM of its
  tokens, and how often these are the best tokens.
- *The nuclear solutions are a set.* For two tokens on two axes, [[1, b], [b, 1]] is a solution for every b between -1
  and 1.  Training converges to this set, and the start decides b.  So the distance from the set says more than the
  correlation with one solution.
- *Benign overfitting.* Some labels are wrong, and training fits all of them.  For wrong labels attention selects tokens
  of noise.  If the signal is strong, new sequences are still classified correctly, as often as by the SVM of the
  selected tokens.
- *Heads and positional codes as regularisers.* This was not observed.  Several heads select the tokens of new sequences
  as well as one head does, and a code unrelated to the teacher costs accuracy.
- *A locally linear head.* Where a nonlinear head selects one token, the head's gradient at that token gives every token
  a score.  By these scores every support token scores less.  By the head's own scores many score more.
- *The loss is not convex.* On a segment between two runs that end on different tokens, the loss mostly rises above both
  ends.  Between two runs that end on the same tokens it never does.
"""

import numpy as np
from numpy.linalg import norm

from ... import LinearHead, MLPHead, Problem, cross_attention, sample, train
from ...claims import difference, exactly, median, share
from ...theory import is_locally_optimal
from ..panels import BLUE, ORANGE, finish, medians, picture
from ..problems import on_best, saturated, sphere_problem, svm_of, to_svm
from ..textbook import apart, softmax, support_margins

PAPER = "{SVM} and {PROMPT}, their remarks; no picture"
CAPTION = """Above: distance of factors from the nuclear SVM by their columns; two starts and the set of solutions; new
sequences with a fifth of the labels wrong. Below: new sequences by heads and codes; tokens that score less than the
selected one, by the gradient of the head and by its scores; the loss between two runs."""
RUNS, QUICK = 100, 24
N, T = 5, 5
# Dimensions of W, and numbers of columns of the factors K and Q; a factor has at most as many columns as the dimension.
DIMENSIONS, COLUMNS = (4, 8, 16), (1, 2, 4, 16)
SIGNALS, WRONG, DIMENSION_OF_NOISE = (1.0, 4.0, 16.0), 0.2, 100
TEACHERS = ("1 head", "4 heads", "sines and cosines")
STEPS, NEW = 2000, 400
ALONG = np.linspace(0, 1, 21)
FAR = 200.0  # norm of the weights at both ends of a segment on which the loss is computed
SETTINGS = f"""n = {N}, T = {T}, unit tokens and queries, logistic loss, {STEPS:,} steps of normalised gradient descent
with learning rate .1. Wrong labels: n = 20, T = 8, d = {DIMENSION_OF_NOISE}, {STEPS // 4} steps with learning rate .4,
{NEW} new sequences. The nonlinear head has 8 hidden units. Segments join weights of norm {FAR:g}."""


def experiment(rng):
    return {
        "columns:": [of_dimension(rng, d) for d in DIMENSIONS],
        "set:": set_of_solutions(rng),
        "wrong:": [of_signal(rng, signal) for signal in SIGNALS],
        "regularisers": regularisers(rng),
        "head:": nonlinear_head(rng),
        "segment:": segment(rng),
    }


def of_dimension(rng, d):
    """Trains K and Q with several numbers of columns in dimension d.  Measures the correlation of W = K Q^T with the
    nuclear SVM of its tokens, and whether these are the best tokens."""
    problem = sphere_problem(rng, N, T, d)
    K, Q = 0.3 * rng.standard_normal((2, d, d))
    runs = [train(problem, K=K[:, :m], Q=Q[:, :m], steps=STEPS) for m in COLUMNS]
    return {"near": [to_svm(run.W, svm_of(run, "nuclear")) for run in runs], "best": [*map(on_best, runs)]}


def set_of_solutions(rng):
    """Trains two runs on a problem whose nuclear SVM has the solutions [[1, b], [b, 1]].  Returns for each run the b of
    the solution nearest to W, and W's relative distance from this solution."""
    problem = Problem(cross_attention(np.stack([np.eye(2), np.zeros((2, 2))], 1), np.eye(2)), None, LinearHead([1, 1]))
    ends = []
    for K, Q in 0.5 * rng.standard_normal((2, 2, 2, 2)):
        W = train(problem, K=K, Q=Q, steps=STEPS).W
        W = 2 * W / norm(W, "nuc")
        b = np.clip((W[0, 1] + W[1, 0]) / 2, -1, 1)
        ends.append({"b": b, "distance": apart(W, np.array([[1, b], [b, 1]]))})
    return ends


def of_signal(rng, signal):
    """Trains W on partly wrong labels with one strength of the signal.  Returns the share of labels that the run fits,
    and how many of the wrong labels it fits by the signal's token.

    Also the accuracy on new sequences of W, of its SVM, and of weights trained on random labels.
    """
    n, d = 20, DIMENSION_OF_NOISE
    X, y, truth = sample.signal_noise(n, 8, d, signal, wrong=WRONG, rng=rng)
    new, labels, _ = sample.signal_noise(NEW, 8, d, signal, wrong=0.0, rng=rng)
    data, unseen = (cross_attention(x, np.ones((len(x), 1))) for x in (X, new))
    head = LinearHead(np.eye(d)[0] - np.eye(d)[1])

    def trained(y):
        return train(Problem(data, y, head), steps=STEPS // 4, lr=0.4)

    def right(W):
        return (np.sign(unseen.attended(W, hard=True) @ head.v) == labels).mean()

    run = trained(y)
    svm = svm_of(run)
    return {
        "fitted": (run.problem.scores[np.arange(n), run.selected] > 0).mean(),
        "by the signal": (run.selected[y != truth] == 0).sum(),
        "trained": right(run.W),
        "svm": np.nan if svm.W is None else right(svm.W),
        "coins": right(trained(rng.choice([-1.0, 1.0], n)).W),
    }


def regularisers(rng):
    """Trains one head, four heads, and one head with positional codes, and returns for each the share of new sequences
    on which it selects the teacher's token."""
    d = 6
    X, Z, teacher = (rng.standard_normal(shape) for shape in ((20 + NEW, T, d), (20 + NEW, d), (d, d)))
    best = np.eye(T)[np.einsum("ntd,nd->nt", X, Z @ teacher).argmax(axis=1)]  # 1 for the teacher's token, else 0
    start = 0.1 * rng.standard_normal((4, d, d))

    def right(tokens, H):
        problem = Problem(cross_attention(tokens[:20], Z[:20], best[:20, :, None]), None, LinearHead([1.0]), heads=H)
        W = np.reshape(train(problem, start[:H], steps=STEPS).W, (H, d, d))
        seen = softmax(np.einsum("ntd,hde,ne->hnt", tokens[20:], W, Z[20:])).sum(axis=0)
        return (seen.argmax(axis=1) == best[20:].argmax(axis=1)).mean()

    return right(X, 1), right(X, 4), right(X + sample.positional_encoding(T, d), 1)  # TEACHERS


def nonlinear_head(rng):
    """Trains W with a nonlinear head.  Returns the share of support tokens with a lower score than the selected token,
    for scores from the head's gradient and for the head's own scores; and the correlation of W with its SVM."""
    X, Z, _, _ = sample.unit_sphere(N, T, 8, rng)
    V = rng.standard_normal((8, 8))
    problem = Problem(cross_attention(X, Z), None, MLPHead(V))
    run = train(problem, 0.1 * rng.standard_normal((8, 8)), steps=STEPS)
    if not saturated(run):
        return dict.fromkeys(("gradient", "scores", "correlation"), np.nan)
    svm, own = svm_of(run), (np.arange(N), run.selected)
    # The flag of the selected token is false, since its margin is infinite.
    tight = support_margins(problem.data, run.selected, svm.W) <= 1 + 1e-6
    scores = {"gradient": np.einsum("ntd,nd->nt", X, (X[own] @ V > 0) @ V.T), "scores": problem.scores}
    less = {kind: (score < score[own][:, None])[tight].mean() for kind, score in scores.items()}
    return less | {"correlation": to_svm(run.W, svm)}


def segment(rng):
    """Computes the loss along the segment between the SVM directions of two runs that end on locally optimal tokens,
    and whether both runs select the same tokens."""
    problem = sphere_problem(rng, 3, 8, 3)
    runs = [train(problem, start, steps=STEPS // 2) for start in 5 * rng.standard_normal((2, 3, 3))]
    sols = [*map(svm_of, runs)]
    loss = np.full(len(ALONG), np.nan)
    if all(sol.W is not None and is_locally_optimal(problem, sol) for sol in sols):
        one, other = (FAR * sol.W / norm(sol.W) for sol in sols)
        loss = [problem.loss((1 - a) * one + a * other) for a in ALONG]
    return {"loss": loss, "same": np.array_equal(runs[0].selected, runs[1].selected)}


def claims(results):
    """Tests six remarks of the source papers by claims, in the order in which the module's docstring lists the
    remarks."""
    best = results["columns: best"]
    trained = results["wrong: trained"]
    _, heads, code = (results["regularisers"] - results["regularisers"][:, :1]).T
    loss, same = results["segment: loss"], results["segment: same"]
    # whether the loss on a segment rises above the loss at both ends, and whether there is a segment
    up, there = loss.max(axis=1) > loss[:, [0, -1]].max(axis=1) * (1 + 1e-9), np.isfinite(loss[:, 0])
    return {
        "Higher rank helps": [
            *(median(f"d = {d}: correlation with the nuclear SVM, {m} columns", results["columns: near"][:, i, j],
                     low, high)
              for i, d in ((1, 8), (2, 16)) for j, m, low, high in ((0, 1, None, 0.85), (3, d, 0.96, 1))),
            difference("d = 16: the best tokens with 16 columns, less with one", best[:, 2, 3], best[:, 2, 0], 0.0),
        ],
        "The nuclear solutions are a set": [
            exactly("distance of a run from the set", results["set: distance"].max(axis=1), high=0.01),
            median("difference in b of two starts", np.abs(np.diff(results["set: b"])[:, 0]), 0.1),
        ],
        "Benign overfitting": [
            median("labels fitted, a fifth of them wrong, least of all signals", results["wrong: fitted"].min(axis=1),
                   0.95),
            exactly("wrong labels fitted by the signal's token, signal 16", results["wrong: by the signal"][:, 2],
                    high=0),
            median("new sequences right, signal 16", trained[:, 2], 0.85),
            median("new sequences right, signal 1", trained[:, 0], None, 0.65),
            median("new sequences right, W less its SVM, all signals",
                   np.abs(trained - results["wrong: svm"]).max(axis=1), None, 0.05),
            median("new sequences right, trained on coins, signal 16", results["wrong: coins"][:, 2], None,
                   0.85),
        ],
        "Heads and positional codes as regularisers": [
            median("new sequences right, 4 heads less one", heads, -0.05, 0.05),
            median("new sequences right, with a code less without", code, None, 0.0),
        ],
        "A locally linear head": [
            share("all support tokens score less by the head's gradient", results["head: gradient"] == 1, 0.8),
            share("all support tokens score less by the head's scores", results["head: scores"] == 1, None, 0.6),
            median("correlation with the SVM of the selected tokens", results["head: correlation"], 0.99, 1),
        ],
        "The loss is not convex": [
            share("the loss rises between runs that end on different tokens", up[there & ~same], 0.2),
            exactly("the loss rises between runs that end on the same tokens", up[there & same], high=0),
        ],
    }  # fmt: skip


@picture((13, 7), 3, 2)
def plot(results, *axes):
    (rank, ends, benign), (codes, head, between) = axes
    for i, d in enumerate(DIMENSIONS):
        medians(range(len(COLUMNS)), 1 - results["columns: near"][:, i], f"d = {d}", rank)
    rank.set_xticks(range(len(COLUMNS)), COLUMNS)
    finish(rank, "Higher rank helps", "columns of K and Q", "1 - correlation with the nuclear SVM", "y")
    ends.scatter(*results["set: b"].T, s=9)
    finish(ends, "One set, many ends", "b of one start", "b of another", xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
    for key, label in {"trained": "trained", "svm": "its SVM", "coins": "labels by coin"}.items():
        benign.plot(SIGNALS, np.nanmean(results[f"wrong: {key}"], axis=0), ".-", label=label)
    finish(benign, "Wrong labels fitted", "signal", "new sequences right", "x")
    codes.violinplot(results["regularisers"], showmedians=True)
    codes.set_xticks(range(1, 4), TEACHERS)
    finish(codes, "No regularisation seen", "", "new sequences right")
    for key in ("gradient", "scores"):
        head.hist(results[f"head: {key}"], np.linspace(0, 1, 11), alpha=0.6, label=f"by the head's {key}")
    finish(head, "A locally linear head", "support tokens that score less", "runs")
    for same, label, color in ((0, "different tokens", ORANGE), (1, "the same", BLUE)):
        losses = results["segment: loss"][results["segment: same"] == same]
        between.plot([], [], color=color, label=label)
        between.plot(ALONG, (losses - losses[:, [0, -1]].max(axis=1, keepdims=True)).T, color=color, alpha=0.3)
    finish(between, "Between two runs", "along the segment", "loss less that of the worse end")
    return "What the source papers say besides", f"{len(results['regularisers'])} runs."
