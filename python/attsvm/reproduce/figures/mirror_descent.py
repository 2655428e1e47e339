"""Mirror descent, as in Julistiono et al.: with an lp potential, training turns to the SVM of least lp norm.

Mirror descent takes its steps in ``sign(W) |W|^(p-1)`` instead of W.  It turns to the SVM of least entrywise lp norm.
Each panel follows training with one p.  It shows the Bregman divergence of the potential from the direction of W to the
SVMs of three norms.  Solid and dashed: SVMs of the tokens that this training selects; solid for its own norm.  Dotted,
as in the published figure: SVMs of the tokens that training with another p, from another start, selects.  Most of the
dotted distances come from the other tokens, not from the other norm.
"""

import numpy as np

from ... import LinearHead, Problem, rules, self_attention, solve_svm, train
from ...claims import exactly, median, share
from ...theory import label_svm
from ..panels import DASHED, PALETTE, finish, picture
from ..problems import D, N, T, sphere_problem, svm_of
from ..textbook import apart, certificate, mirror_descend, sequences_of

LR = 0.1
STEPS = {1.75: 1500, 2.0: 2000, 3.0: 20_000}

POINTS = 40  # number of recorded steps of each run, which are the points of its curves
# After this number of steps W is compared with NumPy; later the textbook gradient loses half of its digits.
TWIN_STEPS = 50

PAPER = "{MIRROR}: divergences from the SVMs of three norms, for three potentials"
CAPTION = """How far the direction of W is from the SVM of least l1.75, l2 and l3 norm, along training with each p.
Solid: the norm that the theory names; dashed: the others; dotted: the SVMs of the tokens that another run selects."""
RUNS, QUICK = 100, 24
# Tokens of two sequences on which head and attention are trained together from zero (JOINT).
# JOINT_SELECTED: for each p, the token of each of the two sequences that the published run selects.
JOINT = [[[-2.7, 1.2], [1.4, 2.1], [1.3, -0.1]], [[0.4, -2.2], [-1.1, -0.4], [0.9, 0.1]]]
JOINT_SELECTED = {1.75: (1, 0), 2.0: (1, 0), 3.0: (0, 0)}
SETTINGS = f"""{N} sequences of {T} tokens, queries and head uniform on the unit sphere, d = {D}; W starts normal, anew
for each p; normalised mirror descent, learning rate {LR}, {
    ", ".join(f"{steps:,} steps for p = {p:g}" for p, steps in STEPS.items())
}.  Head and attention together: two sequences of three tokens in the plane, W = 0 and v = 0 at the
start."""


def experiment(rng):
    """Trains W by mirror descent with each p, and measures divergences (p, norm, points) of W from the SVMs of three
    norms.  These are the SVMs of the tokens that the run selects, and of the tokens that the run whose p is the norm's
    exponent selects."""
    problem = sphere_problem(rng)
    starts = {p: rng.standard_normal((D, D)) for p in STEPS}
    runs = {p: descent(problem, W, p, STEPS[p], record=records(p)) for p, W in starts.items()}
    gaps = []

    def diverged(p, q, selected):
        svm = solve_svm(problem.data, selected, q)
        gaps.append(certificate(svm)["gap"])
        return [divergence(svm.W, W, p) for W in runs[p].weights]

    return {
        "own tokens": [[diverged(p, q, runs[p].selected) for q in STEPS] for p in STEPS],
        "other tokens": [[diverged(p, q, runs[q].selected) for q in STEPS] for p in STEPS],
        "gap": max(gaps),
        "apart": [
            apart(descent(problem, W, p, TWIN_STEPS).W, mirror_descend(sequences_of(problem), W, TWIN_STEPS, LR, p))
            for p, W in starts.items()
        ],
    }


def descent(problem, W, p, steps, **how):
    return train(problem, W, rule=rules.mirror(p=p), lr=LR, steps=steps, **how)


def records(p):
    """Returns the steps at which a run with exponent p is recorded: POINTS steps from 0 to the end, closer together at
    the start."""
    return (STEPS[p] * np.linspace(0, 1, POINTS) ** 2).round().astype(int)


def divergence(A, B, p):
    """Returns the Bregman divergence of A from B in the potential ``||W||_p^p / p``, where A and B are first scaled to
    lp norm 1: ``1 - <A, sign(B) |B|^(p-1)>``."""
    A, B = (X / np.linalg.norm(X.ravel(), p) for X in (A, B))
    return 1 - (A * np.sign(B) * np.abs(B) ** (p - 1)).sum()


def once():
    """Trains head and attention together from zero with each p.  Measures whether the run selects the published tokens,
    and how far W and the head diverge from their SVMs."""
    problem = Problem(self_attention(JOINT, query=0), [1, -1], LinearHead([0.0, 0.0]))
    runs = {p: descent(problem, np.zeros((2, 2)), p, STEPS[p], train_head=True) for p in STEPS}
    return {
        "joint selected": [tuple(run.selected) == JOINT_SELECTED[p] for p, run in runs.items()],
        "joint attention": [divergence(svm_of(run, p).W, run.W, p) for p, run in runs.items()],
        "joint head": [divergence(label_svm(problem, run.selected, p).W.ravel(), run.v, p) for p, run in runs.items()],
    }


def claims(results):
    """Claims that training with each p turns to the SVM of least lp norm.  Brackets in a claim hold values read off the
    published figure."""
    own, other = results["own tokens"][..., -1], results["other tokens"][:, -1, :, -1]
    return {
        "Its own norm is the nearest": [
            *(
                share(f"p = {p:g}: the SVM in its norm diverges least", own[:, i, i] <= own[:, i].min(axis=1), 0.85)
                for i, p in enumerate(STEPS)
            ),
            *(median(f"p = {p:g}: divergence from it", own[:, i, i], high=0.02) for i, p in enumerate(STEPS)),
            exactly("largest gap of margin and multipliers, in NumPy", results["gap"], high=1e-8),
        ],
        "p = 3 after 20,000 steps, against the SVMs of the runs with each p": [
            median("its own (.005)", other[:, 2], high=0.02),
            median("mean of the two others (.183 and .212)", other[:, :2].mean(axis=1), 0.06),
        ],
        "Against mirror descent in NumPy": [
            exactly(f"W after {TWIN_STEPS} steps, any p: relative difference", results["apart"], high=1e-9)
        ],
        "Head and attention together, from zero": [
            exactly("the published tokens are selected", results["joint selected"], 1),
            exactly("divergence of W from the lp SVM of attention", results["joint attention"], high=1e-3),
            exactly("divergence of v from the lp SVM of the labels", results["joint head"], high=1e-3),
        ],
    }


@picture((12, 4), 3, sharey=True)
def plot(results, *axes):
    """Draws a panel for each p: the divergence of W from the SVMs of least l1.75, l2 and l3 norm along training."""
    own, other = (np.nanmean(results[f"{what} tokens"], axis=0) for what in ("own", "other"))
    for i, p in enumerate(STEPS):
        ax = axes[i]
        for j, q in enumerate(STEPS):
            color, line, label = PALETTE[j], "-" if q == p else DASHED, f"SVM of least l{q:g} norm"
            ax.plot(records(p), own[i, j], color=color, linestyle=line, label=label)
            if q != p:
                ax.plot(records(p), other[i, j], ":", color=color, linewidth=1.2)
        finish(ax, f"training with p = {p:g}", "step", log="y", xscale="symlog", ylim=(0.001, 1.5), xlim=(0, STEPS[p]))
    axes[0].set_ylabel("Bregman divergence of the direction")
    return (
        "The potential of mirror descent picks the norm of the SVM",
        "Dotted: SVMs of the tokens that the run with that p has selected.",
    )
