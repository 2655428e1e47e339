"""Global or local convergence: how often training ends on the best tokens, against the dimension.

Attention is trained on random data, as in Tarzanagh et al.  A run ends "global" if it selects the best token of every
sequence.  It ends "local" if it selects other tokens that are locally optimal: each scores more than its support
tokens.  It ends "neither" if some softmax is not above 0.99 yet, if the selected tokens cannot be separated, or if a
support token scores more, so that training will still leave the selection.  The larger the dimension, the more runs end
"global".  The larger it is, the more often all tokens are support tokens of the optimal ones (grey bars).  This is the
paper's condition under which no weights are stationary.  Left: W and its Frobenius SVM.  Right: (K, Q) and its nuclear
SVM.
"""

import numpy as np

from ... import solve_svm, train
from ...claims import difference, none, share
from ...theory.conditions import all_tight
from ..panels import error_bars, finish, picture
from ..problems import around, differs, ending, linear_layer, sphere_problem, svm_of
from .overparameterization import DIMENSIONS, LR, REFERENCE, SIZES, STEPS, SUPPORT

N, T = SIZES[0]
NORMS = {"W": "frobenius", "KQ": "nuclear"}
ENDINGS = {"global": "#0072B2", "local": "#E69F00", "neither": "#999999"}
PAPER = "{SVM}: bars of global and local convergence over the dimension (no notebook; settings not known)"
CAPTION = """How trainings end, as shares of all runs, against the dimension; beside the bars, how often all tokens are
support tokens."""
RUNS, QUICK = 400, 80
SETTINGS = f"""{N} sequences of {T} random unit tokens, mean logistic loss, {STEPS} steps of normalised gradient
descent with learning rate {LR}: W from 0, d x d factors K and Q from the start of a PyTorch linear layer, without
ridge. The published settings are not known."""


def experiment(rng):
    """Trains W and (K, Q) in each dimension, and records how each run ended and whether all tokens are support tokens
    of the optimal ones."""
    return [of_dimension(rng, d) for d in DIMENSIONS]


def of_dimension(rng, d):
    problem = sphere_problem(rng, N, T, d)
    K, Q = linear_layer(rng, 2, d, d)
    found = {"differ": []}
    for (name, norm), start in zip(NORMS.items(), ({}, {"K": K, "Q": Q}), strict=True):
        end = ending(train(problem, **start, lr=LR, steps=STEPS, record=0), norm)
        ideal = svm_of(problem, norm)
        found[name] = end | {"all support": all_tight(ideal)}
        found["differ"].append(differs(problem, ideal))
    # The second-best tokens are a selection that is locally optimal in some draws.
    found["differ"].append(differs(problem, solve_svm(problem.data, problem.scores.argsort(axis=1)[:, -2])))
    return found


def claims(results):
    """Claims that more runs end on the best tokens in a larger dimension, that most of these ends are proved, and that
    shares agree with those of independent runs."""
    groups = {}
    for name, title in (("W", "W"), ("KQ", "(K, Q)")):
        best = results[f"{name} global"]
        groups[f"Training {title}, d = {', '.join(map(str, DIMENSIONS))}"] = [
            difference("share that ends on the optimal tokens, d = 16 minus d = 4", best[:, 2], best[:, 0], 0.05),
            difference("share that ends on the optimal tokens, d = 64 minus d = 8", best[:, 4], best[:, 1], 0),
            share("global or locally optimal, all d", best | results[f"{name} local"], 0.97),
            share("global, d = 64", best[:, -1], 0.95),
        ]
    best, proved = results["W global"], results["W proved"]
    return groups | {
        "Ends that are proved, not looked at: no later step changes a token": [
            share("proved, of the runs that end on the optimal tokens", proved[best], 0.85),
            share("proved, of the runs that end on other locally optimal tokens", proved[results["W local"]], 0.3),
        ],
        "Ends on the optimal tokens, W: of 1,000 independent runs": [
            share(f"d = {d} ({value:g})", flags, *around(value))
            for d, flags, value in zip(DIMENSIONS, best.T, REFERENCE[SIZES[0]], strict=True)
        ],
        "All tokens are support, Frobenius: of 1,000 independent draws": [
            share(f"d = {d} ({value:g})", results["W all support"][:, DIMENSIONS.index(d)], *around(value))
            for d, value in SUPPORT[SIZES[0]].items()
        ],
        "Against the definitions, in NumPy": [
            none("draws whose local optimality or support differ", results["differ"])
        ],
    }


@picture((11, 4.8), 2, sharey=True)
def plot(results, *axes):
    """Draws for each dimension a stacked bar of how runs end ("global", "local", "neither"), and beside it the share of
    draws in which all tokens are support tokens."""
    x = np.arange(len(DIMENSIONS))
    for ax, name, title in zip(axes, NORMS, ("W, Frobenius", "(K, Q), nuclear"), strict=True):
        bottom, best = 0, results[f"{name} global"]
        for what, color in ENDINGS.items():
            height = 100 * results[f"{name} {what}"].mean(axis=0)
            ax.bar(x - 0.13, height, 0.5, bottom, color=color, alpha=0.35 if what == "neither" else 1, label=what)
            bottom += height
        ax.errorbar(x - 0.13, 100 * best.mean(axis=0), 100 * error_bars(best), fmt="none", ecolor="black", capsize=3)
        held = 100 * results[f"{name} all support"].mean(axis=0)
        ax.bar(x + 0.26, held, 0.2, color="#444444", label="all tokens are support")
        ax.set_xticks(x, DIMENSIONS)
        finish(ax, f"training {title} SVM", "dimension d", ylim=(0, 100))
        ax.get_legend().remove()
        ax.margins(x=0.02)
    axes[0].figure.legend(*ax.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9)
    axes[0].set_ylabel("percentage of runs")
    return (
        f"Where training ends: n = {N} sequences of T = {T} tokens",
        f"{len(best)} runs a bar, {STEPS} steps; error bars: exact 95 % intervals of the global share.",
    )
