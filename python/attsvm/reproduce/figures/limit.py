"""The limit of training, proved at a finite step: which tokens are selected for ever, and to which SVM W turns.

The limit of training is a statement about infinite time.  ``run.limit()`` proves it at some record: no query changes
its token after that step, and the direction converges to the SVM of these tokens.  Left: the step of the proof, against
the first step at which every query gives more than .9 of its attention to one token.  Right: the share of runs with a
proof, among those that end on the best tokens and among those that end on others.

Each proved run is then trained five times as long again; none leaves the tokens of its proof.
"""

import numpy as np

from ... import Problem, correlation, train
from ...claims import exactly, median, none, share
from ..panels import BLUE, ORANGE, finish, pairs, picture
from ..problems import columns, on_best, sphere_problem

PAPER = "{NOWHERE}"
CAPTION = "Left: the step of the proof beside that of attention .9, run by run. Right: shares of runs that are proved."
SIZES = ((6, 8, 10), (5, 5, 32), (20, 6, 40))  # n, T, d
LOSSES = ("exponential", "linear")  # problems of the first size are trained with these losses as well
STEPS, RECORD, LATER = 4000, 20, 5
DECIDED = 0.9
RUNS, QUICK = 200, 40
SETTINGS = f"""Unit tokens, normalised gradient descent from zero with the default learning rate, {STEPS:,} steps, a
record every {RECORD}; logistic loss, at n, T, d = {SIZES[0]} the exponential and the linear loss as well."""
NAMES = [f"{n}, {T}, {d}" for n, T, d in SIZES] + [f"{loss} loss" for loss in LOSSES]


def experiment(rng):
    """Trains W in each setting and asks run.limit() for a proof of the limit.  Measures the step of the proof, the
    first step at which attention exceeds DECIDED, and what training five times as long changes."""
    problems = [sphere_problem(rng, *size) for size in SIZES]
    first = problems[0]
    problems += [Problem(first.data, first.y, first.head, loss) for loss in LOSSES]
    return list(map(_judged, problems))


def _judged(problem):
    run = train(problem, steps=STEPS, record=RECORD)
    limit = run.limit()
    least = np.array([problem.data.probabilities(W).max(axis=-1).min() for W in run.weights])
    proved, svm = limit.status == "proved", limit.solution
    found = {"best": on_best(run), "proved": proved, "attends": min(run.steps[least > DECIDED], default=np.nan)}
    if not proved:
        return found | {"step": np.nan, "left": False, "nearer": np.nan, "gap": 0.0}
    later = train(problem, run.W, steps=LATER * STEPS)
    at_proof, at_end = (1 - correlation(W, svm.W) for W in (run.weights[run.steps == limit.step][0], later.W))
    left = (later.selected != svm.selected).any()
    return found | {"step": limit.step, "left": left, "nearer": at_end / at_proof, "gap": svm.gap}


def claims(results):
    """Claims that no run leaves the tokens of its proof, that most runs are proved, and that in the median a proof
    takes at most three times as many steps as attention takes to pass .9."""
    proved, best = results["proved"], results["best"]
    return {
        "What is proved stays": [
            none("proved runs that leave their tokens", results["left"]),
            exactly("largest gap of the SVM of a limit", results["gap"], high=1e-9),
            exactly("distance to the SVM later over that at the proof", np.nanmax(results["nearer"]), high=1),
        ],
        "How often": [
            *(
                share(f"ends on the best tokens and is proved, {name}", proved[best[:, k], k], 0.85)
                for k, name in enumerate(NAMES)
            ),
            share("ends on other tokens and is proved, 6, 8, 10", proved[~best[:, 0], 0], 0.5),
        ],
        "When": [
            median(f"step of the proof over that of attention {DECIDED:g}, {name}", ratio, None, 3)
            for name, ratio in columns(NAMES, results["step"] / results["attends"])
        ],
    }


@picture()
def plot(results, left, right):
    """Draws the step of each proof against the step at which attention passes .9 (left), and the shares of runs whose
    limit is proved (right)."""
    for k, name in enumerate(NAMES[: len(SIZES)]):
        left.loglog(results["attends"][:, k], results["step"][:, k], ".", alpha=0.7, label=name)
    line = RECORD, STEPS
    left.loglog(line, line, color="0.3", linewidth=0.8, zorder=0)
    finish(left, "When", f"step at which attention passes {DECIDED:g}", "step of the proof")
    both = list(zip(results["proved"].T, results["best"].T, strict=True))
    pairs(
        right,
        NAMES,
        ("on the best tokens", BLUE, [proved[best] for proved, best in both]),
        ("on others", ORANGE, [proved[~best] for proved, best in both]),
        rotation=15,
    )
    finish(right, "How many", ylabel="share of the runs that is proved", ylim=(0, 1), below=0.14)
    return "The limit of training, proved at a step", f"{len(results['best'])} runs a setting; exact 95 % intervals."
