"""Next-token prediction: W turns to the SVM of the token-priority graph, and stays finite within its cycles.

As in Li et al., sequences consist of random tokens; the next token is one of them, the label.  Each last token has a
token-priority graph, whose edges go from the label of a sequence to its other tokens.  Tokens on a cycle belong to one
component and are never ranked (first panel: one of the graphs, components in colour).  W is trained by the log-loss of
the label's probability.  It turns to the SVM with equal logits within components and margins across them (second
panel).  The term of W within the components stays finite: it converges to the minimiser W_fin of the loss on these
tokens alone (third panel).  With a loss that is not convex in attention, W turns to the SVM of the tokens it has
selected itself, which is mostly another SVM than the one of the graph (fourth panel).
"""

import numpy as np
from scipy.linalg import orth

from ... import CallableHead, LinearHead, Problem, cross_attention, sample, solve_svm, train
from ...claims import exactly, median, share
from ...plot.answers import draw_graphs
from ...theory import decompose, next_token, selected_sets
from ..panels import finish, medians, picture
from ..problems import correlations, draws, linear_layer
from ..textbook import rows_within, softmax, tokens_of

N, T, K, D = 6, 4, 6, 8
LR, STEPS, EVERY = 0.01, 4000, 50
LOCAL_LR, LOCAL_STEPS = 0.1, 2000
# As published, training by a squared loss leaves out tokens of probability below LOW, and selects those above HIGH.
LOW, HIGH = 9e-3, 1e-2
# learning rate and number of steps of the descent that minimises a convex loss to find W_fin
FIN_LR, FIN_STEPS = 2.0, 4000
# For some steps, the published mean attention to tokens outside the label's component.
OUTSIDE = {1000: 0.05, 2000: 4.5e-3, 4000: 3.3e-4}
PAPER = "{NEXT_TOKEN}: global and local convergence of next-token prediction"
CAPTION = """From the left: what follows one of the tokens, as a graph; how W turns to the SVM of such graphs; what
stays finite inside a component, and what attention still leaves to tokens outside; and the same with a loss that is
not convex, which picks its own tokens."""
RUNS, QUICK = 100, 24
SHOWN = 25  # seed of the random draw from which the picture shows a graph

SETTINGS = f"""{N} sequences of {T} of {K} tokens, none twice, each with a random one of its tokens as label;
embeddings uniform on the sphere, d = {D}; draws without a cycle are left out.  W starts as a PyTorch linear
layer.  Global: log-loss, normalised descent, learning rate {LR}, {STEPS:,} steps.  Local: (1 - softmax(E o)_y)^2 of
the attended vector o, learning rate {LOCAL_LR}, {LOCAL_STEPS:,} steps; a token counts as selected above {HIGH}, and
runs with one between {LOW} and {HIGH} give no number.  A fixed step of {LR} goes to and fro across W_fin at a distance
of half of it."""


def draw(rng):
    """Draws random sequences, labels and embeddings until one of their token-priority graphs has a cycle.  Returns them
    with the result of next_token()."""
    for _ in draws():
        drawn = sample.next_token(N, T, K, D, rng)
        found = next_token(*drawn)
        if not found.acyclic:
            return *drawn, found


def experiment(rng):
    sequences, labels, E, found = draw(rng)
    W = solve_svm(found.data, found.selected).W
    return converge(found, W, linear_layer(rng, D, D)) | local(sequences, labels, E, linear_layer(rng, D, D), W)


def converge(found, W_svm, start):
    """Trains W by log-loss.  Measures its correlation with the SVM of the graph, the distance of its finite part from
    W_fin, and the attention to tokens outside the label's component."""
    data, kept = found.data, found.selected
    trained = train(found.problem, start, lr=LR, steps=STEPS, record=EVERY)
    basis, W_fin, gradient = finite_part(found)
    inside = trained.weights.reshape(len(trained.steps), -1) @ basis
    parts = decompose(data, data.probabilities(trained.W), trained.W, selected=kept)
    other, loss = start + trained.W / 7, found.problem.loss
    return {
        "correlation": correlations(trained.weights, W_svm),
        "finite": np.linalg.norm(inside - W_fin.ravel() @ basis, axis=1),
        "outside": [(data.probabilities(W) * ~kept).sum(axis=1).mean() for W in trained.weights],
        "R": parts.R,
        "fin gradient": gradient,
        "fin split": np.abs(parts.W_fin.ravel() - basis @ inside[-1]).max(),
        "convex": (loss(start) + loss(other)) / 2 - loss((start + other) / 2),
    }


def finite_part(found):
    """Computes a basis (d d, r) of the cyclic subspace S_fin, the minimiser W_fin of the loss in S_fin, and the norm of
    the gradient at W_fin.

    The basis is orthonormal.  S_fin is the span of ``(e_y - e_t) e_k^T`` over labels y and tokens t of one component, k
    the last token.  W_fin minimises the loss on the tokens of the components.
    """
    data, kept = found.data, found.selected
    X, Z = tokens_of(data)
    tokens, values = ([x[k] for x, k in zip(all_of, kept, strict=True)] for all_of in (X, data.values.reshape(N, T, 1)))
    problem = Problem(cross_attention(tokens, Z, values), None, LinearHead([1.0]), "log")
    trained = train(problem, rule="constant", lr=FIN_LR, steps=FIN_STEPS)
    return orth(rows_within(data, kept)[0].T, 1e-9), trained.W, float(np.exp(trained.log_grad_norm[-1]))


def local(sequences, labels, E, start, W_svm):
    """Trains W by a squared loss, and returns its correlations along training with the SVM of the tokens that it
    selects and with the SVM of the token-priority graph."""
    data = cross_attention(E[sequences], E[sequences[:, -1]])
    problem = Problem(data, None, CallableHead(squared_loss(E, labels)), "linear")
    trained = train(problem, start, lr=LOCAL_LR, steps=LOCAL_STEPS, record=EVERY)
    selected, undecided = selected_sets(trained.probabilities, LOW, HIGH)
    own = None if undecided.any() else solve_svm(data, selected).W
    return {"local own": correlations(trained.weights, own), "local graph": correlations(trained.weights, W_svm)}


def squared_loss(E, labels):
    """Makes a function of attended vectors o, which returns the scores ``-(1 - softmax(E o)_y)^2`` for the labels y and
    the gradients of the scores in o."""

    def score(o):
        p = softmax(o @ E.T)
        py = p[np.arange(len(p)), labels, None]
        return -((1 - py[:, 0]) ** 2), 2 * (1 - py) * py * (E[labels] - p @ E)

    return score


def claims(results):
    """Claims that W turns to the SVM of the token-priority graph and stays finite within its cycles.  Brackets in a
    claim hold published values of ten instances."""
    own, graph = results["local own"][:, -1], results["local graph"][:, -1]
    return {
        f"W against the SVM of the graph after {STEPS:,} steps (.976 to .993, mean .986)": [
            median("correlation", results["correlation"][:, -1], 0.976, 0.993),
            median("R, how far W has gone along it (6.7 to 9.8)", results["R"], 6.7, 9.8),
        ],
        "The finite part": [
            median("distance of W inside the components from W_fin (about .005)", results["finite"][:, -1], high=0.02),
            exactly("largest gradient at W_fin", results["fin gradient"], high=1e-6),
            exactly("decompose finds that part of W: largest difference", results["fin split"], high=1e-8),
            exactly("loss is convex: least excess of a chord at its middle", results["convex"], -1e-12),
        ],
        "Attention outside the label's component, within a factor of ten of the published mean": [
            median(f"after {step:,} steps ({x:g})", results["outside"][:, step // EVERY], x / 10, 10 * x)
            for step, x in OUTSIDE.items()
        ],
        "A loss that is not convex": [
            median("correlation with the SVM of its own tokens (.992 to .9995)", own, 0.992),
            median("correlation with the SVM of the graph (.26 to .95, mean .65)", graph, 0.26, 0.95),
            share("its own SVM is nearer, or the same", own >= graph - 1e-9, 0.9),
        ],
    }


@picture((13, 3.8), 4)
def plot(results, graph, direction, finite, other):
    """Draws a token-priority graph, and along training the distance of W from the SVM of the graph, the distance of its
    finite part from W_fin, and the distances from two SVMs under a squared loss."""
    draw_graph(graph)
    steps, late = np.arange(0, STEPS + 1, EVERY), np.arange(0, LOCAL_STEPS + 1, EVERY)
    medians(steps, 1 - results["correlation"], "log-loss: SVM of the graph", direction)
    direction.axhspan(1 - 0.993, 1 - 0.976, color="0.85", zorder=0, label="published range at the end")
    finish(direction, "W turns to the SVM of the graph", "step", "1 - correlation", "y", ylim=(0.002, 1.5))
    medians(steps, results["finite"], "inside: distance from W_fin", finite)
    medians(steps, results["outside"], "attention outside the component", finite)
    finish(finite, "Inside a component W is finite", "step", "distance, or probability", "y")
    medians(late, 1 - results["local own"], "SVM of its own tokens", other)
    medians(late, 1 - results["local graph"], "SVM of the graph", other)
    finish(other, "A loss that is not convex", "step", "1 - correlation", "y", ylim=(0.0005, 1.5))


def draw_graph(ax):
    """Draws the graph with the largest component among the token-priority graphs of one random draw."""
    *_, found = draw(np.random.default_rng(SHOWN))
    k = max(found.graphs, key=lambda k: (np.bincount(found.components[k]).max(), len(found.graphs[k])))
    draw_graphs(ax, {k: found.graphs[k]}, found.components)
    ax.get_legend().remove()
    ax.set_title(f"Priorities after token {k};\na cycle in orange", fontsize=10)
    ax.set_xlabel("last token")
