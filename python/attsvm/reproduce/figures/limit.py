"""The limit, proved: at which step it is certain which tokens training selects for ever, and to which SVM it turns.

What training converges to is a statement about infinite time.  ``run.limit()`` proves it at a record: from there on no
query changes its token, and the direction goes to the SVM of these tokens.  Left: the step of the proof beside the step
from which every query gives more than .9 of its attention to one token.  Right: the share of runs that are proved, of
those that end on the best tokens and of those that end on others.

Each run is then trained on, five times as long: none leaves the tokens that were proved.
"""

import numpy as np

from ... import correlation, train
from ...claims import exactly, median, none, share
from ..panels import BLUE, GREEN, ORANGE, described, error_bars, finish, panels
from ..papers import NOWHERE
from ..problems import sphere_problem

PAPER = NOWHERE
CAPTION = "Left: the step of the proof beside that of attention .9, run by run. Right: shares of runs that are proved."
SIZES = ((6, 8, 10), (5, 5, 32), (20, 6, 40))  # n, T, d
LOSSES = ("logistic", "exponential", "linear")  # at the first size
STEPS, RECORD, LATER = 4000, 20, 5
DECIDED = 0.9
RUNS, QUICK = 200, 40
SETTINGS = (
    f"Unit tokens, normalised gradient descent from zero with the default learning rate, {STEPS:,} steps, a record "
    f"every {RECORD}; logistic loss, at n, T, d = {SIZES[0]} the exponential and the linear loss as well."
)
NAMES = [f"{n}, {T}, {d}" for n, T, d in SIZES] + [f"{loss} loss" for loss in LOSSES[1:]]


def experiment(rng):
    """Of every setting: proved, on the best tokens, the steps of proof and of attention, and what later steps do."""
    problems = [sphere_problem(rng, *size) for size in SIZES]
    problems += [type(p := problems[0])(p.data, p.y, p.head, loss) for loss in LOSSES[1:]]
    found = [_judged(problem) for problem in problems]
    return {name: np.array([one[name] for one in found]) for name in found[0]}


def _judged(problem):
    run = train(problem, steps=STEPS, record=RECORD)
    limit = run.limit()
    best = bool((run.selected == problem.optimal).all())
    largest = np.array([problem.data.probabilities(W).max(axis=-1).min() for W in run.weights])
    attends = run.steps[np.argmax(largest > DECIDED)] if (largest > DECIDED).any() else np.nan
    found = {"best": best, "proved": limit.status == "proved", "attends": attends, "step": np.nan}
    found |= {"left": False, "nearer": np.nan, "gap": 0.0}
    if limit.status == "proved":
        later = train(problem, run.W, steps=LATER * STEPS, record=0)
        chosen, at = limit.solution.selected, run.weights[np.flatnonzero(run.steps == limit.step)[0]]
        off = [1 - correlation(W, limit.solution.W) for W in (at, later.W)]
        found |= {"step": limit.step, "left": bool((later.selected != chosen).any()), "gap": limit.solution.gap}
        found["nearer"] = off[1] / off[0]
    return found


def claims(results):
    """Nothing that was proved is left; nearly all runs are proved, at about the step at which attention passes .9."""
    proved, best = results["proved"].astype(bool), results["best"].astype(bool)
    some = [np.where(best[:, k], proved[:, k], np.nan) for k in range(len(NAMES))]
    return {
        "What is proved stays": [
            none("proved runs that leave their tokens", results["left"]),
            exactly("largest gap of the SVM of a limit", results["gap"], high=1e-9),
            exactly("distance to the SVM later over that at the proof", np.nanmax(results["nearer"]), high=1),
        ],
        "How often": [
            *(
                share(f"ends on the best tokens and is proved, {name}", p[np.isfinite(p)], 0.85)
                for name, p in zip(NAMES, some, strict=True)
            ),
            share("ends on other tokens and is proved, 6, 8, 10", proved[:, 0][~best[:, 0]], 0.5),
        ],
        "When": [
            median(f"step of the proof over that of attention {DECIDED:g}, {name}", ratio, None, 3)
            for name, ratio in zip(NAMES, (results["step"] / results["attends"]).T, strict=True)
        ],
    }


def plot(results):
    """Left: steps.  Right: shares."""
    figure, (left, right) = panels((11, 4.6), 2)
    for k, color in enumerate((BLUE, ORANGE, GREEN)):
        left.loglog(results["attends"][:, k], results["step"][:, k], ".", color=color, alpha=0.7, label=NAMES[k])
    line = np.array([RECORD, STEPS])
    left.loglog(line, line, color="0.3", linewidth=0.8, zorder=0)
    finish(left, "When", f"step at which attention passes {DECIDED:g}", "step of the proof", loc="lower right")
    x = np.arange(len(NAMES))
    for offset, kind, color in ((-0.2, 1, BLUE), (0.2, 0, ORANGE)):
        for k in range(len(NAMES)):
            flags = results["proved"][results["best"][:, k] == kind, k]
            if len(flags):
                right.bar(
                    k + offset, flags.mean(), 0.36, yerr=error_bars(flags.mean(), len(flags)), color=color, capsize=3
                )
    for label, color in (("on the best tokens", BLUE), ("on others", ORANGE)):
        right.bar([0], [0], color=color, label=label)
    right.set_xticks(x, NAMES, rotation=15)
    finish(
        right,
        "How many",
        ylabel="share of the runs that is proved",
        ylim=(0, 1),
        loc="upper center",
        anchor=(0.5, -0.14),
        ncols=2,
    )
    return described(
        figure,
        "The limit of training, proved at a step",
        f"{len(results['best'])} runs a setting; exact 95 % intervals.",
    )
