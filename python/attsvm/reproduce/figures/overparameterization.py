"""Training ends on the best tokens more often in a larger dimension, less often with more or longer sequences.

The experiment is that of Tarzanagh et al.  Solid: how often training W ends on the best token of every sequence,
against the dimension of the tokens.  The left panel varies the number of sequences, the middle panel their length.
Dashed: how often all tokens are support tokens of the optimal ones.  This is the paper's condition under which no
weights are stationary.  (Linearly independent rows are another; for n = T = 5 they are the rule from d = 5 on.)  The
condition needs a larger dimension than global convergence does, so it is not necessary.  It is no guarantee either:
about one run in fifty diverges towards other locally optimal tokens.  The right panel looks at all selections of small
problems.  It shows how often only the optimal selection is locally optimal, and the correlation of the first gradient
step with its SVM.
"""

import itertools

import numpy as np

from ... import solve_svm, train
from ...claims import difference, median, share
from ...theory import is_locally_optimal
from ...theory.conditions import all_tight
from ..panels import DASHED, PALETTE, finish, medians, picture, shares
from ..problems import ALLOWED, around, ending, flat, sphere_problem, svm_of, to_svm
from .rank import cells

DIMENSIONS = (4, 8, 16, 32, 64)
SMALL = 4  # number of sequences, and of tokens in each, of the small problems for which all selections are solved
# In these dimensions nothing is trained; only draws whose tokens are all support tokens are counted, for n = T = 5.
WIDE = (128, 256)
LR, STEPS = 0.1, 1500
PAPER = "{SVM}: probability of global convergence over the dimension (no notebook; settings not known)"
CAPTION = """How often training ends on the best tokens, against the dimension: for more sequences, and for longer
ones. Right: how often no other direction is locally optimal."""
RUNS, QUICK = 400, 72
SETTINGS = f"""n sequences of T random unit tokens, mean logistic loss, {STEPS} steps of normalised gradient descent on
W from 0 with learning rate {LR}; global: every softmax above 0.99 on its query's best token.  Right: all selections of
{SMALL} sequences of {SMALL} tokens.  The published settings are not known."""
# For each (n, T), the share of 1,000 independent runs that end on the optimal tokens, in the order of DIMENSIONS.
# The reference shares that runs are compared with come from SciPy alone (reference_shares.py at commit d7d1777).
REFERENCE = {
    (5, 5): (0.61, 0.86, 0.95, 0.98, 1),
    (10, 5): (0.11, 0.5, 0.85, 0.96, 0.99),
    (20, 5): (0, 0.035, 0.43, 0.85, 0.97),
    (5, 10): (0.48, 0.64, 0.79, 0.88, 0.95),
    (5, 20): (0.4, 0.49, 0.55, 0.67, 0.78),
}
SIZES = tuple(REFERENCE)
SUPPORT = {(5, 5): {32: 0.11, 64: 0.62}, (10, 5): {32: 0.004, 64: 0.33}}


def experiment(rng):
    """Trains W for each size (n, T) and dimension, and records how the run ended and whether all tokens but the optimal
    ones are support tokens.  For small problems it looks at all selections."""
    ends = [flat([ending_of(sphere_problem(rng, *size, d)) for d in DIMENSIONS]) for size in SIZES]
    wide = [all_support(sphere_problem(rng, *SIZES[0], d)) for d in WIDE]
    small = [sphere_problem(rng, SMALL, SMALL, d) for d in DIMENSIONS]
    return flat(ends) | {"wide": wide, "alone": [*map(is_alone, small)], "aligned": [*map(alignment, small)]}


def ending_of(problem):
    run = train(problem, lr=LR, steps=STEPS, record=0)
    return ending(run, "frobenius") | {"all support": all_support(problem)}


def all_support(problem):
    return bool(all_tight(svm_of(problem)))


def is_alone(problem):
    """Whether the optimal selection of a problem is its only selection that is locally optimal."""
    selections = itertools.product(range(SMALL), repeat=SMALL)
    answers = (solve_svm(problem.data, selected) for selected in selections if selected != tuple(problem.optimal))
    return not any(answer.W is not None and is_locally_optimal(problem, answer) for answer in answers)


def alignment(problem):
    """Returns the correlation of the first gradient step from W = 0 with the SVM of the optimal tokens."""
    return to_svm(-problem.loss_and_grad(np.zeros((problem.data.dk, problem.data.dz)))[1], svm_of(problem))


def claims(results):
    """Claims that runs end on the best tokens more often if d is larger, less often if n or T is larger, and as often
    as independent runs."""
    best, held = results["global"], results["all support"]
    falls = (  # the two sizes are counted in SIZES
        ("n = 5 minus n = 10", 0, 1, 8, 0.1),
        ("n = 10 minus n = 20", 1, 2, 8, 0.1),
        ("n = 5 minus n = 20", 0, 2, 16, 0.1),
        ("T = 5 minus T = 20", 0, 4, 32, 0.05),
        ("T = 5 minus T = 20", 0, 4, 64, 0),
    )
    return {
        "Ends that are proved, not looked at: no later step changes a token": [
            share("proved, of the runs that end on the optimal tokens", results["proved"][best], 0.85)
        ],
        "Probability of global convergence grows with d": [
            difference(f"n = {n}, T = {T}: d = 64 minus d = 4", best[:, i, 4], best[:, i, 0], 0.05)
            for i, (n, T) in enumerate(SIZES)
        ],
        "... and falls with n and T": [
            difference(f"d = {d}: {text}", *best[:, sizes, DIMENSIONS.index(d)].T, low)
            for text, *sizes, d, low in falls
        ],
        f"... within {ALLOWED} of 1,000 independent runs": [
            share(f"{text} ({value:g})", flags, *around(value))
            for text, flags, _, value in cells(REFERENCE, best, SIZES, DIMENSIONS)
        ],
        "All tokens are support of the optimal ones: of 1,000 independent draws": [
            *(
                share(f"{text} ({value:g})", flags, *around(value))
                for text, flags, _, value in cells(SUPPORT, held, SIZES, DIMENSIONS)
            ),
            share("n = T = 5, d = 128", results["wide"][:, 0], 0.85),
            share(f"n = T = 5, d = {WIDE[-1]}", results["wide"][:, -1], 0.95),
        ],
        f"Other locally optimal directions, n = T = {SMALL}": [
            share("some, d = 4", ~results["alone"][:, 0], 0.5),
            share("none, d = 16", results["alone"][:, 2], 0.7),
            share("none, d = 64", results["alone"][:, -1], 0.95),
            median("correlation of the first step with the SVM, d = 4", results["aligned"][:, 0], high=0.6),
            median("correlation of the first step with the SVM, d = 64", results["aligned"][:, -1], 0.6),
        ],
        "Where runs end": [
            share("all tokens are support: global", best[held], 0.95),
            share("globally or locally optimal, d >= 8", (best | results["local"])[:, :, 1:], 0.95),
        ],
    }


@picture((15, 4.6), 3, sharex=True, sharey=True)
def plot(results, left, middle, right):
    """Draws how often runs end on the best tokens against d, for several n (left) and for several T (middle).  For
    small problems, draws how often no other selection is locally optimal, and the first step's correlation with the SVM
    (right)."""
    left.set_xscale("log", base=2)
    left.set_xticks(DIMENSIONS, DIMENSIONS)
    for letter, ax in enumerate((left, middle)):
        for i, color in zip(((0, 1, 2), (0, 3, 4))[letter], PALETTE, strict=False):
            shares(DIMENSIONS, results["global"][:, i], f"{'nT'[letter]} = {SIZES[i][letter]}", ax, color=color)
            ax.plot(DIMENSIONS, results["all support"][:, i].mean(axis=0), color=color, marker=".", linestyle=DASHED)
        finish(ax, ("T = 5 tokens, n sequences", "n = 5 sequences, T tokens")[letter], "dimension d", ylim=(-0.01, 1.0))
    shares(DIMENSIONS, results["alone"], "no other direction is locally optimal", right)
    medians(DIMENSIONS, results["aligned"], "correlation of the first step with the SVM", right)
    finish(right, f"n = T = {SMALL}, all selections", "dimension d")
    left.set_ylabel("probability")
    return (
        "Solid: training ends on the optimal tokens.  Dashed: all tokens are support tokens",
        f"{len(results['global'])} runs a point; error bars: exact 95 % intervals.",
    )
