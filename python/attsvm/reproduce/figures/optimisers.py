"""The optimiser picks the norm: each rule's run beside the SVM of every norm.

Normalised steepest descent in a norm goes in direction to the SVM of least that norm: proved for linear classifiers,
for attention a conjecture that this figure measures.  Rows of the table are rules, columns norms; an entry is the share
of the largest margin in that norm that the run's W, scaled to norm one, reaches on the tokens the run has selected.
The diagonal should win its row.

AdaGrad, Shampoo and Adam divide the gradient by what they remember of its squares.  Held fixed, that is gradient
descent in a metric, and goes to the SVM of that metric ("then frozen": training goes on so from where the run ended).
While it still moves, the run is nearer to the SVM of the metric of its end than to that of any norm, if the memory is
long; with a short memory Adam is sign descent, and comes near the max norm, too.  In between: Adam by its memory, at
the right.
Weight decay and sign and spectral steps on K and Q are shown, and not explained.
"""

from typing import Any

import numpy as np

from ... import correlation, rules, solve_svm, train
from ...claims import exactly, median, share
from ...common.types import Norm
from ...plot.curves import weights_of
from ...theory import margin_share
from ..panels import finish, medians, panels
from ..papers import LINEAR_MUON, NOWHERE
from ..problems import sphere_problem
from ..textbook import certificate, tokens_of

N, T, D = 6, 8, 10
STEPS = 8000
RECORDS = np.unique(np.geomspace(10, STEPS, 18).round().astype(int))
# A step is as long as this over sqrt(k) in the norm of its rule; those of small norms have a longer way to go.
LR, LONGER = 0.3, {"normalized": 3.0, "mirror 1.75": 1.0, "mirror 3": 30.0}
SHORTER = {"sign on K, Q": 2000, "spectral on K, Q": 2000}  # steps; 8,000 take the median share from .97 to .98
FROZEN = 0.3  # the length of a step in a metric that is held
EARLY = 400  # a run whose tokens change later still carries the weights of the ones before
START = 0.1  # standard deviation of the factors' start
NORMS: tuple[Norm, ...] = ("frobenius", 1.75, 3.0, "max", "spectral", "nuclear")
# The rule of each norm, in the order of NORMS: the diagonal.
OWN: dict[str, dict[str, Any]] = {
    "normalized": dict(rule="normalized"),
    "mirror 1.75": dict(rule=rules.mirror(p=1.75)),
    "mirror 3": dict(rule=rules.mirror(p=3.0)),
    "sign": dict(rule="sign"),
    "spectral": dict(rule="spectral"),
    "factors": dict(rule="normalized"),
}
LONG: dict[str, dict[str, Any]] = {
    "AdaGrad": dict(rule="adagrad", lr=1.0),
    "Shampoo": dict(rule="shampoo", lr=3.0),
    "Adam, .9, .999": dict(rule="adam"),
    "Adam, 0, .9999": dict(rule=rules.adam(betas=(0.0, 0.9999))),
    "Adam, 0, .999": dict(rule=rules.adam(betas=(0.0, 0.999))),
}
SHORT: dict[str, dict[str, Any]] = {
    "Adam, 0, .99": dict(rule=rules.adam(betas=(0.0, 0.99))),
    "Adam, 0, .9": dict(rule=rules.adam(betas=(0.0, 0.9))),
    "Adam, .9, 0": dict(rule=rules.adam(betas=(0.9, 0.0))),
}
MEMORY = {"Adam, 0, .9": 10, "Adam, 0, .99": 100, "Adam, 0, .999": 1000, "Adam, 0, .9999": 10000}  # 1 / (1 - beta_2)
OTHERS: dict[str, dict[str, Any]] = {
    "sign, momentum .9": dict(rule="sign", momentum=0.9),
    "sign, weight decay .1": dict(rule="sign", weight_decay=0.1),
    "sign on K, Q": dict(rule="sign"),
    "spectral on K, Q": dict(rule="spectral"),
}
RULES = (*OWN, *LONG, *SHORT, *OTHERS)
TITLES = ("Frobenius", "l1.75", "l3", "max", "spectral", "nuclear")
COLORS = ("#0072B2", "#009E73", "#56B4E9", "#D55E00", "#CC79A7", "#000000")  # Okabe and Ito's
# No theory tells the pace of two rules: that after 8,000 steps one is ahead in another's norm says nothing of where
# they go.  So these two are only asked to lead in most draws; each of the six rules would in one of six by chance.
SLOW = ("mirror 3", "spectral")
PAPER = f"{NOWHERE}; proved for linear classifiers in {LINEAR_MUON}"
CAPTION = (
    "Left: the share of the largest margin in each norm (columns) that each rule (rows) reaches; bold where the "
    'norm is the rule\'s own; "own metric" is what the rule remembers of the gradient\'s squares, "then frozen" what '
    "training reaches that goes on in it. Middle: how much is missing in the rule's own norm, along training. Right: "
    "Adam by its memory, from the max norm to a metric."
)
RUNS, QUICK = 100, 36
SETTINGS = (
    f"{N} sequences of {T} tokens, queries and head uniform on the unit sphere, d = {D}; {STEPS:,} steps from W = 0 "
    f"(factors: from normal ones of deviation {START}; sign and spectral steps on them: 2,000), learning rate "
    f"c / sqrt(k), c = {LR} "
    f"({', '.join(f'{name}: {rate:g}' for name, rate in LONGER.items())}; AdaGrad 1, Shampoo 3 at every step; frozen: "
    f"{STEPS:,} steps of {FROZEN} more).  Shares of the largest margin are lower "
    "ends of certified intervals, of the tokens that the run itself has selected."
)


def experiment(rng):
    """Shares (rules, norms) at the end and (own rules, records) along the way, and the rest."""
    problem = sphere_problem(rng, N, T, D)
    X, Z = tokens_of(problem.data)
    factors = dict(zip("KQ", START * rng.standard_normal((2, D, D)), strict=True))
    shares, along = np.full((len(RULES), len(NORMS)), np.nan), np.full((len(OWN), len(RECORDS)), np.nan)
    used, changed, gap = np.full(len(RULES), np.nan), np.full(len(OWN), np.nan), 0.0
    svm_used, diverged = np.full(len(NORMS), np.nan), np.zeros(len(RULES), dtype=bool)
    runs = {}
    # Own metric: the share, and the correlation with its SVM, of the run and of the run that goes on in it.
    metric, goes_on = np.full((len(RULES), 2, 2), np.nan), np.full(len(RULES), np.nan)
    for i, (name, options) in enumerate((OWN | LONG | SHORT | OTHERS).items()):
        start = factors if name == "factors" or name.endswith("K, Q") else {}
        steps = SHORTER.get(name, STEPS)
        rate, record = LONGER.get(name, LR) / np.sqrt(np.arange(1, steps + 1)), RECORDS if name in OWN else 0
        try:
            trained = train(problem, **start, **{"lr": rate, **options}, steps=steps, record=record)
        except FloatingPointError:  # Adam whose mean remembers larger gradients than its square does
            diverged[i] = True
            continue
        runs[i] = trained
    chosen = {i: run.selected for i, run in runs.items()}
    for selected in np.unique(list(chosen.values()), axis=0):  # most runs select the same tokens
        answers = [solve_svm(problem.data, selected, norm) for norm in NORMS]
        if answers[0].W is None:  # on its way from one selection to another
            continue
        gap = max(gap, *(certificate(X, Z, selected, answer)["gap"] for answer in answers))
        which = [i for i in runs if np.array_equal(chosen[i], selected)]
        ends = np.array([runs[i].W for i in which])
        for i, norm in enumerate(NORMS):
            way = runs[i].weights[1:] if i in which else ends[:0]
            reached = margin_share(problem.data, selected, np.concatenate([ends, way]), norm)[0]
            shares[which, i] = reached[: len(ends)]
            if i in which:
                along[i], changed[i] = reached[len(ends) :], last_change(runs[i])
                svm_used[i] = directions(weights_of(answers[i]))
    for i, trained in runs.items():
        if np.isnan(shares[i, 0]):
            continue
        used[i] = directions(trained.W)
        if trained.metric is not None:
            frozen = train(
                problem, trained.W, rule=rules.normalized(metric=trained.metric), lr=FROZEN, steps=STEPS, record=0
            )
            goes_on[i] = frozen.norm[0] / trained.norm[-1]
            for k, run in enumerate((trained, frozen)):
                answer = solve_svm(run.data, run.selected, metric=trained.metric)
                if answer.W is None:
                    continue
                gap = max(gap, certificate(X, Z, run.selected, answer)["gap"])
                share_of = margin_share(run.data, run.selected, run.W, metric=trained.metric)[0]
                metric[i, k] = share_of, correlation(run.W, answer.W)
    return {
        "shares": shares,
        "along": along,
        "metric": metric,
        "goes on": goes_on,
        "directions": used,
        "directions of the SVM": svm_used,
        "last change": changed,
        "diverged": diverged,
        "gap": gap,
    }


def directions(W):
    """``||W||_* / ||W||_2``: as many as W has singular values, when they are equal."""
    sigma = np.linalg.svd(W, compute_uv=False)
    return sigma.sum() / sigma[0]


def last_change(run):
    """The first record from which on the tokens selected are those of the end."""
    same = np.array([np.array_equal(run.data.select(W), run.selected) for W in run.weights])
    return run.steps[len(same) - int(np.argmin(same[::-1])) if not same.all() else 0]


def exponent(along):
    """e of ``1 - share ~ step^e``, by least squares over the last fourth of the records, of each run and rule."""
    last = slice(-len(RECORDS) // 4, None)
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.log(1 - along[..., last])
    x = np.log(RECORDS[last])
    return (y - y.mean(axis=-1, keepdims=True)) @ (x - x.mean()) / ((x - x.mean()) ** 2).sum()


def claims(results):
    """For attention all but the certificates is conjecture; weight decay and sign steps on K, Q claim nothing."""
    shares = results["shares"]
    own = shares[:, : len(OWN)]
    diagonal = np.diagonal(own, axis1=1, axis2=2)
    rates, used = exponent(results["along"]), results["directions"]
    at = {name: i for i, name in enumerate(RULES)}
    spectral = shares[:, at["spectral on K, Q"]]
    metric = results["metric"]
    with np.errstate(invalid="ignore"):
        nearest = metric[:, :, 0, 0] > shares.max(axis=2)
    in_max = shares[:, :, NORMS.index("max")]
    there = np.isfinite(diagonal)  # a run without a number counts against the claim
    wins = (own.argmax(axis=2) == np.arange(len(OWN))) & there
    early = results["last change"] <= EARLY
    first = (own.argmax(axis=1) == np.arange(len(OWN))) & there
    return {
        "Conjecture: a run is nearer to its own norm's SVM than to any other": [
            share(name, wins[:, i], 0.9) for i, name in enumerate(OWN)
        ],
        f"Of the runs whose tokens have stood since step {EARLY}: those nearer to their own norm's SVM": [
            *(share(f"{name}: tokens have stood", early[:, i], 0.5) for i, name in enumerate(OWN)),
            *(share(f"{name}, of those", wins[early[:, i], i], 0.93) for i, name in enumerate(OWN)),
        ],
        "Conjecture: no other rule's run is as near to the SVM of a norm; 8,000 steps are a matter of pace, too": [
            share(f"{title} norm: {name}", first[:, i], 0.5 if name in SLOW else 0.8)
            for i, (name, title) in enumerate(zip(OWN, TITLES, strict=True))
        ],
        f"Share of the largest margin in its own norm after {STEPS:,} steps": [
            median(name, diagonal[:, i], {"sign": 0.95, "spectral": 0.86}.get(name, 0.9)) for i, name in enumerate(OWN)
        ],
        "Conjecture: 1 - share falls like 1 / sqrt(k)": [
            median(f"{name}: exponent", rates[:, at[name]], -0.75, -0.25) for name in ("normalized", "sign", "spectral")
        ],
        "Directions in use, ||W||_* / ||W||_2, of 6": [
            median("spectral", used[:, at["spectral"]], 5),
            median("SVM of least spectral norm", results["directions of the SVM"][:, 4], 5),
            median("factors", used[:, at["factors"]], high=3),
            median("SVM of least nuclear norm", results["directions of the SVM"][:, 5], high=3),
        ],
        "Conjecture: with a long memory, a run is nearer to the SVM of its own metric than to that of any norm": [
            share(name, nearest[:, at[name]], 0.9) for name in LONG
        ],
        "Conjecture: in its metric, held fixed, it goes to the SVM of that metric": [
            *(share(f"{name}: share .99", metric[:, at[name], 1, 0] >= 0.99, 0.9) for name in LONG),
            *(share(f"{name}: correlation .999", metric[:, at[name], 1, 1] >= 0.999, 0.9) for name in LONG),
            exactly(
                "norm of the start over that of the run's end",
                results["goes on"][np.isfinite(results["goes on"])],
                1 - 1e-12,
                1 + 1e-12,
            ),
        ],
        "Observed: the shorter Adam's memory, the nearer to the max norm": [
            median("share in the max norm, beta_2 = .9", in_max[:, at["Adam, 0, .9"]], 0.85),
            median("share in the max norm, beta_2 = .9999", in_max[:, at["Adam, 0, .9999"]], high=0.75),
        ],
        "Conjecture: spectral steps on K and Q go to the spectral norm of K Q^T": [
            share("nearer to it than to any other", spectral.argmax(axis=1) == 4, 0.9),
            median("share of the largest margin", spectral[:, 4], 0.9),
        ],
        "Certificates": [exactly("largest gap of margin and multipliers, in NumPy", results["gap"], high=1e-8)],
    }


def plot(results):
    """The table, the way there, and Adam by its memory."""
    figure, (table, way, memory) = panels((17, 6), 3, width_ratios=(1.5, 1, 1))
    _table(table, results)
    for i, name in enumerate(OWN):
        missing = 1 - results["along"][:, i]
        way.plot(RECORDS, np.nanmedian(missing, axis=0), color=COLORS[i], linewidth=2, label=f"{name}: {TITLES[i]}")
    way.plot(RECORDS, 3 / np.sqrt(RECORDS), ":", color="0.5", label="3 / sqrt(k)")
    finish(
        way,
        "The way to its own norm: medians",
        "step",
        "1 - share of the largest margin",
        "xy",
        "lower left",
        fontsize=8,
        ylim=(0.005, 2),
    )
    at = [RULES.index(name) for name in MEMORY]
    steps = list(MEMORY.values())
    for label, values, color in (
        ("own metric", results["metric"][:, at, 0, 0], COLORS[5]),
        ("max", results["shares"][:, at, NORMS.index("max")], COLORS[3]),
        ("Frobenius", results["shares"][:, at, 0], COLORS[0]),
        ("own metric, then frozen", results["metric"][:, at, 1, 0], "0.6"),
    ):
        medians(steps, values, label, memory, color)
    finish(
        memory,
        "Adam, beta_1 = 0, by its memory",
        "memory in steps, 1 / (1 - beta_2)",
        "share of the largest margin",
        "x",
        "lower left",
        fontsize=8,
        ylim=(0, 1),
    )
    figure.suptitle("The optimiser picks the norm", fontsize=12)
    return figure


def _table(ax, results):
    """Median shares; a row's own norm is framed, below the line are rules without one."""
    found = np.concatenate([results["shares"], results["metric"][..., 0]], axis=2)
    with np.errstate(invalid="ignore"):
        shown = np.where(np.isfinite(found).any(axis=0), np.median(np.nan_to_num(found, nan=0.0), axis=0), np.nan)
    ax.imshow(shown, cmap="Blues", vmin=0, vmax=1.4, aspect="auto")
    for i, row in enumerate(shown):
        for j, number in enumerate(row):
            none = "diverges" if j == 2 and np.isnan(row).all() else ""
            text = none if np.isnan(number) else f"{number:.2f}"
            weight = "bold" if i == j or j == len(NORMS) else "normal"
            ax.text(j, i, text, ha="center", va="center", fontsize=8, fontweight=weight)
    columns = (*TITLES, "own\nmetric", "then\nfrozen")
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(RULES)), RULES)
    ax.xaxis.tick_top()
    ax.tick_params(length=0, labelsize=8)
    ax.set(xlabel="margin in this norm", ylabel="rule")
    for below in (len(OWN), len(OWN) + len(LONG) + len(SHORT)):
        ax.axhline(below - 0.5, color="0.2", linewidth=1)
    ax.axvline(len(NORMS) - 0.5, color="0.2", linewidth=1)
    ax.spines[:].set_visible(False)
    ax.set_title("Median share of the largest margin, by rule and norm", loc="left", fontsize=11)
