"""The optimiser picks the norm: each rule's run beside the SVM of every norm.

Normalised steepest descent in a norm goes in direction to the SVM of least that norm: proved for linear classifiers,
for attention a conjecture that this figure measures.  Rows of the table are rules, columns norms; an entry is the share
of the largest margin in that norm that the run's W, scaled to norm one, reaches on the tokens the run has selected.
The diagonal should win its row.  Below: shares along the way, which come near one like 1 - c / sqrt(k); how many
directions the weights use; and what is not explained yet: Adam, weight decay, sign and spectral steps on K and Q.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .. import Run, margin_share, solve_svm, train
from ..common.types import Norm
from ..plot import finish, weights_of
from ..report.claims import Claim, exactly, median, share
from ._instances import sphere_problem
from ._numpy import certificate
from ._papers import LINEAR_MUON, NOWHERE

N, T, D = 6, 8, 10
STEPS = 8000
RECORDS = np.unique(np.geomspace(10, STEPS, 18).round().astype(int))
# A step is as long as this over sqrt(k) in the norm of its rule; those of small norms have a longer way to go.
LR, LONGER = 0.3, {"normalized": 3.0, "mirror 1.75": 1.0, "mirror 3": 30.0}
EARLY = 400  # a run whose tokens change later still carries the weights of the ones before
START = 0.1  # standard deviation of the factors' start
NORMS: tuple[Norm, ...] = ("frobenius", 1.75, 3.0, "max", "spectral", "nuclear")
# The rule of each norm, in the order of NORMS: the diagonal.
OWN: dict[str, dict[str, Any]] = {
    "normalized": dict(rule="normalized"),
    "mirror 1.75": dict(rule="mirror", p=1.75),
    "mirror 3": dict(rule="mirror", p=3.0),
    "sign": dict(rule="sign"),
    "spectral": dict(rule="spectral"),
    "factors": dict(rule="normalized"),
}
OTHERS: dict[str, dict[str, Any]] = {
    "Adam, .9, .999": dict(rule="adam"),
    "Adam, .9, .9": dict(rule="adam", betas=(0.9, 0.9)),
    "Adam, .9, 0": dict(rule="adam", betas=(0.9, 0.0)),
    "Adam, 0, .999": dict(rule="adam", betas=(0.0, 0.999)),
    "Adam, 0, .9": dict(rule="adam", betas=(0.0, 0.9)),
    "sign, momentum .9": dict(rule="sign", momentum=0.9),
    "sign, weight decay .1": dict(rule="sign", weight_decay=0.1),
    "sign on K, Q": dict(rule="sign"),
    "spectral on K, Q": dict(rule="spectral"),
}
RULES = (*OWN, *OTHERS)
TITLES = ("Frobenius", "l1.75", "l3", "max", "spectral", "nuclear")
COLORS = ("#0072B2", "#009E73", "#56B4E9", "#D55E00", "#CC79A7", "#000000")  # Okabe and Ito's
SLOW = ("mirror 3", "spectral")  # in 8,000 steps nearest to their own SVM in four draws of five
PAPER = f"{NOWHERE}; proved for linear classifiers in {LINEAR_MUON}"
CAPTION = (
    "Left: the share of the largest margin in each norm (columns) that each rule (rows) reaches; bold where the "
    "norm is the rule's own. Right: how much of it is missing in the rule's own norm, along training."
)
RUNS, QUICK = 100, 20
SETTINGS = (
    f"{N} sequences of {T} tokens, queries and head uniform on the unit sphere, d = {D}; {STEPS:,} steps from W = 0 "
    f"(factors: from normal ones of deviation {START}), learning rate c / sqrt(k), c = {LR} "
    f"({', '.join(f'{name}: {rate:g}' for name, rate in LONGER.items())}).  Shares of the largest margin are lower "
    "ends of certified intervals, of the tokens that the run itself has selected."
)


def experiment(rng: np.random.Generator) -> dict[str, Any]:
    """Shares (rules, norms) at the end and (own rules, records) along the way, and the rest."""
    problem = sphere_problem(rng, N, T, D)
    X = problem.data.keys.reshape(N, T, D)
    factors = dict(zip("KQ", START * rng.standard_normal((2, D, D)), strict=True))
    shares, along = np.full((len(RULES), len(NORMS)), np.nan), np.full((len(OWN), len(RECORDS)), np.nan)
    used, changed, gap = np.full(len(RULES), np.nan), np.full(len(RULES), np.nan), 0.0
    svm_used, diverged = np.full(len(NORMS), np.nan), np.zeros(len(RULES), dtype=bool)
    for i, (name, options) in enumerate((OWN | OTHERS).items()):
        start = factors if name == "factors" or name.endswith("K, Q") else {}
        try:
            trained = train(
                problem,
                **start,
                **options,
                lr=LONGER.get(name, LR) / np.sqrt(np.arange(1, STEPS + 1)),
                steps=STEPS,
                record=RECORDS,
            )
        except FloatingPointError:  # Adam whose mean remembers larger gradients than its square does
            diverged[i] = True
            continue
        answers = [solve_svm(problem.data, trained.selected, norm) for norm in NORMS]
        if answers[0].W is None:  # on its way from one selection to another
            continue
        gap = max(gap, *(certificate(X, problem.data.queries, trained.selected, answer)["gap"] for answer in answers))
        shares[i] = [margin_share(problem.data, trained.selected, trained.W, norm)[0] for norm in NORMS]
        used[i] = directions(trained.W)
        changed[i] = last_change(trained)
        if i < len(OWN):
            along[i] = margin_share(problem.data, trained.selected, trained.weights[1:], NORMS[i])[0]
            svm_used[i] = directions(weights_of(answers[i]))
    return {
        "shares": shares,
        "along": along,
        "directions": used,
        "directions of the SVM": svm_used,
        "last change": changed,
        "diverged": diverged,
        "gap": gap,
    }


def directions(W: np.ndarray) -> float:
    """``||W||_* / ||W||_2``: as many as W has singular values, when they are equal."""
    sigma = np.linalg.svd(W, compute_uv=False)
    return float(sigma.sum() / sigma[0])


def last_change(run: Run) -> float:
    """The first record from which on the tokens selected are those of the end."""
    same = np.array([np.array_equal(run.data.select(W), run.selected) for W in run.weights])
    return float(run.steps[len(same) - int(np.argmin(same[::-1])) if not same.all() else 0])


def exponent(along: np.ndarray) -> np.ndarray:
    """e of ``1 - share ~ step^e``, by least squares over the last fourth of the records, of each run and rule."""
    last = slice(-len(RECORDS) // 4, None)
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.log(1 - along[..., last])
    x = np.log(RECORDS[last])
    return (y - y.mean(axis=-1, keepdims=True)) @ (x - x.mean()) / ((x - x.mean()) ** 2).sum()


def claims(results: Mapping[str, np.ndarray]) -> dict[str, list[Claim]]:
    """For attention all but the certificates is conjecture; Adam, weight decay and sign steps on K, Q claim nothing."""
    shares = results["shares"]
    own = shares[:, : len(OWN)]
    diagonal = np.diagonal(own, axis1=1, axis2=2)
    rates, used = exponent(results["along"]), results["directions"]
    at = {name: i for i, name in enumerate(RULES)}
    spectral = shares[:, at["spectral on K, Q"]]
    there = np.isfinite(diagonal)  # a run without a number counts against the claim
    wins = (own.argmax(axis=2) == np.arange(len(OWN))) & there
    early = results["last change"][:, : len(OWN)] <= EARLY
    first = (own.argmax(axis=1) == np.arange(len(OWN))) & there
    return {
        "Conjecture: a run is nearer to its own norm's SVM than to any other": [
            share(name, wins[:, i], low=0.9) for i, name in enumerate(OWN)
        ],
        f"Of the runs whose tokens have stood since step {EARLY}: those nearer to their own norm's SVM": [
            *(share(f"{name}: tokens have stood", early[:, i], low=0.5) for i, name in enumerate(OWN)),
            *(share(f"{name}, of those", wins[early[:, i], i], low=0.93) for i, name in enumerate(OWN)),
        ],
        "Conjecture: no other rule's run is as near to the SVM of a norm; 8,000 steps are a matter of pace, too": [
            share(f"{title} norm: {name}", first[:, i], low=0.6 if name in SLOW else 0.8)
            for i, (name, title) in enumerate(zip(OWN, TITLES, strict=True))
        ],
        f"Share of the largest margin in its own norm after {STEPS:,} steps": [
            median(name, diagonal[:, i], low={"sign": 0.95, "spectral": 0.86}.get(name, 0.9))
            for i, name in enumerate(OWN)
        ],
        "Conjecture: 1 - share falls like 1 / sqrt(k)": [
            median(f"{name}: exponent", rates[:, at[name]], low=-0.75, high=-0.25)
            for name in ("normalized", "sign", "spectral")
        ],
        "Directions in use, ||W||_* / ||W||_2, of 6": [
            median("spectral", used[:, at["spectral"]], low=5),
            median("SVM of least spectral norm", results["directions of the SVM"][:, 4], low=5),
            median("factors", used[:, at["factors"]], high=3),
            median("SVM of least nuclear norm", results["directions of the SVM"][:, 5], high=3),
        ],
        "Conjecture: spectral steps on K and Q go to the spectral norm of K Q^T": [
            share("nearer to it than to any other", spectral.argmax(axis=1) == 4, low=0.9),
            median("share of the largest margin", spectral[:, 4], low=0.9),
        ],
        "Certificates": [exactly("largest gap of margin and multipliers, in NumPy", results["gap"], high=1e-8)],
    }


def curves(results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Columns of the CSV: median shares along the way, of the rules that have a norm."""
    columns = {"step": RECORDS}
    for i, name in enumerate(OWN):
        for part, level in (("median", 50), ("low", 10), ("high", 90)):
            key = f"{name.replace(' ', '_').replace('.', '')}_{part}"
            columns[key] = np.nanpercentile(results["along"][:, i], level, axis=0)
    return columns


def plot(results: Mapping[str, np.ndarray]) -> Figure:
    """The table, and the way there."""
    figure = Figure(figsize=(13, 5.4), layout="constrained")
    table, way = figure.subplots(1, 2, width_ratios=(1.25, 1))
    _table(table, results)
    for i, name in enumerate(OWN):
        missing = 1 - results["along"][:, i]
        way.plot(RECORDS, np.nanmedian(missing, axis=0), color=COLORS[i], linewidth=2, label=f"{name}: {TITLES[i]}")
    way.plot(RECORDS, 3 / np.sqrt(RECORDS), ":", color="0.5", label="3 / sqrt(k)")
    way.set(xlabel="step", ylabel="1 - share of the largest margin", xscale="log", yscale="log", ylim=(5e-3, 2))
    finish(way, "The way to its own norm: medians", "lower left", fontsize=8)
    figure.suptitle("The optimiser picks the norm", fontsize=12)
    return figure


def _table(ax: Any, results: Mapping[str, np.ndarray]) -> None:
    """Median shares; a row's own norm is framed, below the line are rules without one."""
    found = results["shares"]
    with np.errstate(invalid="ignore"):
        shown = np.where(np.isfinite(found).any(axis=0), np.median(np.nan_to_num(found, nan=0.0), axis=0), np.nan)
    ax.imshow(shown, cmap="Blues", vmin=0, vmax=1.4, aspect="auto")
    for i, row in enumerate(shown):
        for j, number in enumerate(row):
            text = "diverges" if np.isnan(number) and j == 2 else "" if np.isnan(number) else f"{number:.2f}"
            weight = "bold" if i == j else "normal"
            ax.text(j, i, text, ha="center", va="center", fontsize=8, fontweight=weight)
    ax.set_xticks(range(len(TITLES)), TITLES)
    ax.set_yticks(range(len(RULES)), RULES)
    ax.xaxis.tick_top()
    ax.tick_params(length=0, labelsize=8)
    ax.set(xlabel="margin in this norm", ylabel="rule")
    ax.axhline(len(OWN) - 0.5, color="0.2", linewidth=1)
    ax.spines[:].set_visible(False)
    ax.set_title("Median share of the largest margin, by rule and norm", loc="left", fontsize=11)
