"""Conjecture that the optimiser picks the norm: runs of each update rule, compared with the SVM of every norm.

Normalised steepest descent in a norm turns to the SVM of that norm.  This is proved for linear classifiers; for
attention it is a conjecture, which this figure tests.  Rows of the table are rules, columns are norms.  An entry takes
the W of the row's run, scaled to norm 1, and the tokens that the run has selected.  It is the margin of W as a share of
the largest margin in the column's norm.  In each row the rule's own norm should have the largest share.

AdaGrad, Shampoo and Adam divide the gradient by a running mean or sum of its squares.  If that is held fixed, they are
gradient descent in a metric, and turn to the SVM of that metric ("then frozen": training goes on in the metric of the
run's end).  While the metric still changes, a run with a long memory is closer to the SVM of its last metric than to
that of any norm.  With a short memory, Adam is sign descent and comes close to the SVM of the max norm.  The right
panel shows Adam between these two ends.  Weight decay, and sign and spectral steps on K and Q, are shown but not
explained.
"""

import functools

import numpy as np

from ... import correlation, rules, solve_svm, train
from ...claims import exactly, median, share
from ...common.norms import size
from ..panels import PALETTE, finish, medians, picture
from ..problems import D, N, T, columns, flat, log_spaced, sphere_problem, svm_of
from ..textbook import certificate, slope

STEPS = 8000
RECORDS = log_spaced(10, STEPS, 18, np.round)
# Step k has length c / sqrt(k) in the rule's norm, where c is LR or the rule's number in LONGER.
# For AdaGrad and Shampoo, MORE gives a learning rate that is the same in every step.
LR, LONGER = 0.3, {"normalized": 3.0, "mirror 1.75": 1.0, "mirror 3": 30.0}
FROZEN = 0.3  # learning rate of the training that goes on in the last metric of a run, held fixed
EARLY = 400  # If a run changes its tokens after this step, W still has a large part from the former tokens at the end.
START = 0.1  # standard deviation of the entries of K(0) and Q(0)
NORMS = ("frobenius", 1.75, 3.0, "max", "spectral", "nuclear")
# The diagonal of the table: for each of NORMS, in this order, the rule that is expected to turn to the norm's SVM.
OWN = {
    "normalized": "normalized",
    "mirror 1.75": rules.mirror(p=1.75),
    "mirror 3": rules.mirror(p=3.0),
    "sign": "sign",
    "spectral": "spectral",
    "factors": "normalized",
}
# Adam without momentum, and the length of its memory in steps, 1 / (1 - beta_2).
MEMORY = {"Adam, 0, .9999": 10000, "Adam, 0, .999": 1000, "Adam, 0, .99": 100, "Adam, 0, .9": 10}
# Rules that divide the gradient by a running mean or sum of its squares; the rules in LONG have a long memory.
ADAPTIVE = {
    "AdaGrad": "adagrad",
    "Shampoo": "shampoo",
    "Adam, .9, .999": "adam",
    **{name: rules.adam(betas=(0.0, 1 - 1 / steps)) for name, steps in MEMORY.items()},
    "Adam, .9, 0": rules.adam(betas=(0.9, 0.0)),
}
LONG = [*ADAPTIVE][:5]
OTHERS = {
    "sign, momentum .9": "sign",
    "sign, weight decay .1": "sign",
    "sign on K, Q": "sign",
    "spectral on K, Q": "spectral",
}
MORE = {
    "AdaGrad": {"lr": 1.0},
    "Shampoo": {"lr": 3.0},
    "sign, momentum .9": {"momentum": 0.9},
    "sign, weight decay .1": {"weight_decay": 0.1},
}
RULES = OWN | ADAPTIVE | OTHERS
TITLES = ("Frobenius", "l1.75", "l3", "max", "spectral", "nuclear")
# For a rule in SLOW, it is claimed that in half of the draws no other rule comes nearer to the SVM of its norm.
# Rules outside SLOW are claimed to be nearest to their norm's SVM in .8 of the draws; no theory compares their speed.
SLOW = ("mirror 3", "spectral")
PAPER = "{NOWHERE}; proved for linear classifiers in {LINEAR_MUON}"
CAPTION = """Left: the share of the largest margin in each norm (columns) that each rule (rows) reaches; bold where the
norm is the rule's own; "own metric" is what the rule remembers of the gradient's squares, "then frozen" what training
reaches that goes on in it. Middle: how much is missing in the rule's own norm, along training. Right: Adam by its
memory, from the max norm to a metric."""
RUNS, QUICK = 100, 36
SETTINGS = f"""{N} sequences of {T} tokens, queries and head uniform on the unit sphere, d = {D}; {STEPS:,} steps from
W = 0 (factors: from normal ones of deviation {START}; sign and spectral steps on them: 2,000), learning rate c /
sqrt(k), c = {LR} ({", ".join((f"{name}: {rate:g}" for name, rate in LONGER.items()))}; AdaGrad 1, Shampoo 3 at every
step; frozen: {STEPS:,} steps of {FROZEN} more).  Shares of the largest margin are lower ends of certified intervals,
of the tokens that the run itself has selected."""


def experiment(rng):
    """Trains W by each rule, and measures the margin of W as a share of the largest margin in each norm and in the
    rule's own metric.  Also measures how many directions W uses, and the gaps of all SVM solutions."""
    problem = sphere_problem(rng)
    factors = dict(zip("KQ", START * rng.standard_normal((2, D, D)), strict=True))
    rows, own, answers = [], [], []

    @functools.cache  # many runs select the same tokens
    def solved(norm, *selected):
        return solve_svm(problem.data, selected, norm)

    for name, rule in RULES.items():
        # The axes of "metric" are the run or the continuation in a fixed metric, and two measures of W in the metric.
        # The two measures are W's share of the largest margin in the rule's metric, and its correlation with the SVM.
        rows.append(row := {"shares": np.full(len(NORMS), np.nan), "metric": np.full((2, 2), np.nan)})
        row |= {"goes on": np.nan, "directions": np.nan}
        # 8,000 sign or spectral steps on K and Q raise the median share of the margin only from .97 to .98.
        steps = 2000 if name.endswith("K, Q") else STEPS
        how = {"lr": LONGER.get(name, LR) / np.sqrt(np.arange(1, steps + 1))} | MORE.get(name, {})
        how |= factors if name.endswith(("factors", "K, Q")) else {}
        try:
            run = train(problem, rule=rule, steps=steps, record=RECORDS if name in OWN else 0, **how)
        except FloatingPointError:  # Adam diverges if it averages gradients over more steps than their squares
            continue
        row["directions"] = directions(run.W)
        if (metric := run.metric) is not None:
            frozen = train(problem, run.W, rule=rules.normalized(metric=metric), lr=FROZEN, steps=STEPS)
            row["goes on"] = frozen.norm[0] / run.norm[-1]
            for k, end in enumerate((run, frozen)):
                answers.append(svm := svm_of(end, metric=metric))
                row["metric"][k] = share_of(end.W, svm), correlation(end.W, svm.W)
        svms = [solved(norm, *run.selected) for norm in NORMS]
        answers += svms
        row["shares"] = [share_of(run.W, svm) for svm in svms]
        if name in OWN:
            svm = svms[list(OWN).index(name)]
            along = [share_of(W, svm) for W in run.weights[1:]]
            own.append({"along": along, "last change": last_change(run), "directions of the SVM": directions(svm.W)})
    return flat(rows) | flat(own) | {"gap": max(certificate(answer)["gap"] for answer in answers)}


def share_of(W, svm):
    """Returns the least margin of W, scaled to norm 1, as a share of the largest margin in the norm or metric of an SVM
    solution; it is at most the true share, since the solution proves an upper bound of the largest margin."""
    return svm.data.margins(W, svm.selected).min() / size(W, svm.norm) / svm.margin_bound


def directions(W):
    """Returns the number of directions that W uses, ``||W||_* / ||W||_2``.  This is the rank of W if all its nonzero
    singular values are equal."""
    return size(W, "nuclear") / size(W, "spectral")


def last_change(run):
    """Returns the first recorded step from which on the run selects the tokens that it selects at its end."""
    others = [k for k, W in enumerate(run.weights) if not np.array_equal(run.data.select(W), run.selected)]
    return run.steps[max(others, default=-1) + 1]


def exponent(along):
    """Fits an exponent e to the records of each run and rule such that ``1 - share`` falls like ``step^e``, by least
    squares over the last quarter of the records."""
    last = -len(RECORDS) // 4
    return slope(np.log(RECORDS[last:]), np.log(1 - along[..., last:]))


def claims(results):
    """Claims that each update rule comes nearest to the SVM of its own norm.  All claims are conjectures or
    observations, except that the SVM solutions have small gaps."""
    shares, metric = (dict(columns(RULES, results[key])) for key in ("shares", "metric"))
    own = results["shares"][:, : len(OWN)]
    used, svm_used, spectral = results["directions"], results["directions of the SVM"], shares["spectral on K, Q"]
    wins, first = (own.argmax(axis=axis) == np.arange(len(OWN)) for axis in (2, 1))
    early, goes_on = results["last change"] <= EARLY, results["goes on"]
    return {
        "Conjecture: a run is nearer to its own norm's SVM than to any other": [
            share(name, x, 0.9) for name, x in columns(OWN, wins)
        ],
        f"Of the runs whose tokens have stood since step {EARLY}: those nearer to their own norm's SVM": [
            *(share(f"{name}: tokens have stood", x, 0.5) for name, x in columns(OWN, early)),
            *(share(f"{name}, of those", wins[early[:, i], i], 0.93) for i, name in enumerate(OWN)),
        ],
        "Conjecture: no other rule's run is as near to the SVM of a norm; 8,000 steps are a matter of pace, too": [
            share(f"{title} norm: {name}", x, 0.5 if name in SLOW else 0.8)
            for title, (name, x) in zip(TITLES, columns(OWN, first), strict=True)
        ],
        f"Share of the largest margin in its own norm after {STEPS:,} steps": [
            median(name, x, {"sign": 0.95, "spectral": 0.86}.get(name, 0.9))
            for name, x in columns(OWN, np.diagonal(own, axis1=1, axis2=2))
        ],
        "Conjecture: 1 - share falls like 1 / sqrt(k)": [
            median(f"{name}: exponent", x, -0.75, -0.25)
            for name, x in columns(OWN, exponent(results["along"]))
            if name in ("normalized", "sign", "spectral")
        ],
        "Directions in use, ||W||_* / ||W||_2, of 6": [
            median("spectral", used[:, 4], 5),
            median("SVM of least spectral norm", svm_used[:, 4], 5),
            median("factors", used[:, 5], high=3),
            median("SVM of least nuclear norm", svm_used[:, 5], high=3),
        ],
        "Conjecture: with a long memory, a run is nearer to the SVM of its own metric than to that of any norm": [
            share(name, metric[name][:, 0, 0] > shares[name].max(axis=1), 0.9) for name in LONG
        ],
        "Conjecture: in its metric, held fixed, it goes to the SVM of that metric": [
            *(share(f"{name}: share .99", metric[name][:, 1, 0] >= 0.99, 0.9) for name in LONG),
            *(share(f"{name}: correlation .999", metric[name][:, 1, 1] >= 0.999, 0.9) for name in LONG),
            exactly(
                "norm of the start over that of the run's end", goes_on[np.isfinite(goes_on)], 1 - 1e-12, 1 + 1e-12
            ),
        ],
        "Observed: the shorter Adam's memory, the nearer to the max norm": [
            median("share in the max norm, beta_2 = .9", shares["Adam, 0, .9"][:, 3], 0.85),
            median("share in the max norm, beta_2 = .9999", shares["Adam, 0, .9999"][:, 3], high=0.75),
        ],
        "Conjecture: spectral steps on K and Q go to the spectral norm of K Q^T": [
            share("nearer to it than to any other", spectral.argmax(axis=1) == 4, 0.9),
            median("share of the largest margin", spectral[:, 4], 0.9),
        ],
        "Certificates": [exactly("largest gap of margin and multipliers, in NumPy", results["gap"], high=1e-8)],
    }


@picture((17, 6), 3, width_ratios=(1.5, 1, 1))
def plot(results, table, way, memory):
    """Draws the table of shares of the largest margin by rule and norm (left); 1 minus each rule's share in
    the rule's own norm, along training (middle); and Adam's shares against the length of its memory (right)."""
    _table(table, results)
    for i, name in enumerate(OWN):
        way.plot(RECORDS, np.nanmedian(1 - results["along"][:, i], axis=0), label=f"{name}: {TITLES[i]}")
    way.plot(RECORDS, 3 / np.sqrt(RECORDS), ":", color="0.5", label="3 / sqrt(k)")
    finish(way, "The way to its own norm: medians", "step", "1 - share of the largest margin", "xy", ylim=(0.005, 2))
    rows = [[*RULES].index(name) for name in MEMORY]
    shares, metric = (results[key][:, rows] for key in ("shares", "metric"))
    for label, values, color in (
        ("own metric", metric[..., 0, 0], PALETTE[5]),
        ("max", shares[..., 3], PALETTE[3]),
        ("Frobenius", shares[..., 0], PALETTE[0]),
        ("own metric, then frozen", metric[..., 1, 0], "0.6"),
    ):
        medians([*MEMORY.values()], values, label, memory, color=color)
    finish(memory, "Adam, beta_1 = 0, by its memory", "memory in steps, 1 / (1 - beta_2)",
           "share of the largest margin", "x", ylim=(0, 1))  # fmt: skip
    return "The optimiser picks the norm", ""


def _table(ax, results):
    """Draws the table of median shares of the largest margin by rule and norm.  The share in a rule's own norm is bold;
    the rules below the upper line have no own norm."""
    found = np.concatenate([results["shares"], results["metric"][..., 0]], axis=2)
    shown = np.where(np.isfinite(found).any(axis=0), np.median(np.nan_to_num(found, nan=0.0), axis=0), np.nan)
    ax.imshow(shown, cmap="Blues", vmin=0, vmax=1.4, aspect="auto")
    for i, row in enumerate(shown):
        for j, number in enumerate(row):
            text = f"{number:.2f}" if number == number else "diverges" if j == 2 and np.isnan(row).all() else ""
            weight = "bold" if j in (i, len(NORMS)) else "normal"
            ax.text(j, i, text, ha="center", va="center", fontsize=8, fontweight=weight)
    columns = (*TITLES, "own\nmetric", "then\nfrozen")
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(RULES)), RULES)
    ax.xaxis.tick_top()
    ax.tick_params(length=0, labelsize=8)
    ax.set(xlabel="margin in this norm", ylabel="rule")
    for below in (len(OWN), len(OWN) + len(ADAPTIVE)):
        ax.axhline(below - 0.5, color="0.2", linewidth=1)
    ax.axvline(len(NORMS) - 0.5, color="0.2", linewidth=1)
    ax.spines[:].set_visible(False)
    ax.set_title("Median share of the largest margin, by rule and norm", loc="left", fontsize=11)
