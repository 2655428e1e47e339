"""Trained factors K and Q become balanced, and the direction of K Q^T turns to the SVM of least nuclear norm.

The setting is that of Sheen et al.  ``(||K||^2 + ||Q||^2) / 2`` is at least the nuclear norm of ``K Q^T``.  The two are
equal for balanced factors, where ``K^T K = Q^T Q``.  Gradient flow conserves ``K^T K - Q^T Q``.  Descent with small
steps, jointly normalised so that it follows the flow, conserves it up to the order of the step (first panel).  The
factors grow, so the conserved difference matters less and less, and the balance (second panel) goes to 1.  A ridge
shrinks the difference itself.  Third panel: the direction turns to the nuclear SVM, from random starts and from a start
aligned with the first gradient.
"""

import numpy as np
from numpy.linalg import norm, svd

from ... import correlation, train
from ...claims import exactly, median, share
from ..panels import GREEN, ORANGE, finish, medians, picture
from ..problems import D, N, T, columns, correlations, log_spaced, one_scored, svm_of, to_svm
from ..textbook import certificate, slope

LR, STEPS = 0.05, 8000
# Length of the path along which the drift of K^T K - Q^T Q is measured, and the step lengths that are compared.
LENGTH, RATES = 20.0, (0.1, 0.05, 0.025, 0.0125)
RIDGE, RIDGE_LR, RIDGE_STEPS = 1e-2, 0.1, 3000
RECORD = log_spaced(1, STEPS, 40)
STARTS = {
    "aligned": "aligned start",
    "random": "random start",
    "separate": "random, K and Q normalised apart",
    "ridge": "random start, ridge",
}
PAPER = "{FLOW}: gradient flow on K and Q goes to the nuclear SVM; no picture"
CAPTION = """Left: how much K^T K - Q^T Q changes along a path of fixed length, against the step. Middle: how far the
factors are from balanced. Right: how far K Q^T is from the nuclear SVM."""
RUNS, QUICK = 100, 36
SETTINGS = f"""{N} sequences of {T} tokens and queries uniform on the unit sphere, d = {D}; a random token of each has
score 1, all others 0; exponential loss.  Random start: K and Q 0.3 N(0, I).  Aligned: the singular vectors of the
first gradient, K Q^T of norm 0.01, balanced.  {STEPS:,} normalised steps of {LR}; drift along a path of length
{LENGTH:g}.  Ridge {RIDGE}: {RIDGE_STEPS:,} plain steps of {RIDGE_LR}."""


def difference(K, Q):
    return K.T @ K - Q.T @ Q


def experiment(rng):
    """Measures how far K^T K - Q^T Q drifts at each step length, and along training the balance of the factors and the
    correlation of K Q^T with the nuclear SVM."""
    problem = one_scored(rng, "exponential")
    nuclear, frobenius = svm_of(problem, "nuclear"), svm_of(problem)
    _, G = problem.loss_and_grad(np.zeros((D, D)))
    U, sizes, Vt = svd(-G)
    root = 0.1 * np.sqrt(sizes / norm(sizes))
    K, Q = 0.3 * rng.standard_normal((2, D, D))
    begin, joint = difference(K, Q), "normalized jointly"

    def drift(rule, lr):
        run = train(problem, K=K, Q=Q, rule=rule, lr=lr, steps=round(LENGTH / lr))
        return norm(difference(run.K, run.Q) - begin)

    found = {
        "drift": [drift(joint, lr) for lr in RATES],
        "drift apart": drift("normalized", RATES[-1]),
        "gap": max(certificate(svm)["gap"] for svm in (nuclear, frobenius)),
    }
    for name, k, q, rule in (
        ("random", K, Q, joint),
        ("separate", K, Q, "normalized"),
        ("aligned", U * root, Vt.T * root, joint),
    ):
        run = train(problem, K=k, Q=q, rule=rule, lr=LR, steps=STEPS, record=RECORD)
        found[name] = {"balance": run.balance[1:], "nuclear": correlations(run.weights[1:], nuclear.W)}
    # The last run has the aligned start.  For the nuclear W = U S V^T, balanced factors have K K^T = U S U^T and
    # Q Q^T = V S V^T.
    found["frobenius"] = to_svm(run.W, frobenius)
    U, sizes, Vt = svd(nuclear.W)
    found["alone"] = [correlation(factor @ factor.T, (V * sizes) @ V.T) for factor, V in ((run.K, U), (run.Q, Vt.T))]
    at = RECORD[RECORD <= RIDGE_STEPS]
    run = train(problem, K=K, Q=Q, rule="constant", lr=RIDGE_LR, steps=RIDGE_STEPS, record=at, ridge=RIDGE)
    left = norm(difference(run.K, run.Q)) / norm(begin)
    decay = -np.log(left) / (4 * RIDGE * RIDGE_LR * RIDGE_STEPS)
    return found | {"ridge": {"balance": run.balance[1:], "decay": decay}}


def claims(results):
    """Claims that training conserves K^T K - Q^T Q, that the factors K and Q become balanced, and that K Q^T turns to
    the nuclear SVM."""
    order = slope(np.log(RATES), np.log(results["drift"]))
    last, hundred = results["aligned nuclear"][:, [-1, RECORD.searchsorted(100)]].T
    apart = results["drift apart"] / results["drift"][:, -1]
    return {
        "K^T K - Q^T Q": [
            median("kept up to the order of the step: exponent", order, 0.8, 1.2),
            median("drift, K and Q normalised apart over jointly", apart, 10),
            median("a ridge r shrinks it by exp(-4 r t): rate over that", results["ridge decay"], 0.95, 1.05),
        ],
        "K and Q by themselves, aligned start: K K^T and Q Q^T are those of the nuclear SVM": [
            median(f"correlation of {name}", x, 0.95) for name, x in columns(("K K^T", "Q Q^T"), results["alone"])
        ],
        "Balance": [
            exactly("aligned start: largest", results["aligned balance"], high=1 + 1e-3),
            median("random start, at the end: balance - 1", results["random balance"][:, -1] - 1, high=1e-3),
            median("ridge, at the end: balance - 1", results["ridge balance"][:, -1] - 1, high=1e-3),
        ],
        "The nuclear SVM": [
            median("aligned start: 1 - correlation at the end", 1 - last, high=0.05),
            share("aligned start: nearer at the end than at step 100", last > hundred, 0.9),
            share("aligned start: nearer to it than to the Frobenius SVM", last > results["frobenius"], 0.8),
            median("random start: 1 - correlation at the end", 1 - results["random nuclear"][:, -1], high=0.05),
            exactly("largest gap of margin and multipliers, in NumPy", results["gap"], high=1e-8),
        ],
    }


@picture((12, 4), 3)
def plot(results, drift, balance, direction):
    """Draws the change of K^T K - Q^T Q against the step length (left), the balance of the factors along training
    (middle), and 1 - correlation of K Q^T with the nuclear SVM along training (right)."""
    middle, apart = np.median(results["drift"], axis=0), np.median(results["drift apart"])
    least = RATES[-1]
    drift.plot(RATES, middle, "o-", color=ORANGE, label="jointly normalised")
    drift.plot([least, least], [middle[-1], apart], "s:", color=GREEN, markevery=[1])
    many = f"  K and Q normalised apart:\n  {apart / middle[-1]:.0f} times as much"
    drift.text(least, apart, many, color=GREEN, va="center", fontsize=8)
    drift.plot(RATES, middle[0] * np.array(RATES) / RATES[0], ":", color="0.5", label="slope 1")
    drift.set_xticks(RATES, RATES)
    drift.xaxis.minorticks_off()
    finish(
        drift,
        f"Kept by the flow: a path of length {LENGTH:g}",
        "step length",
        "change of K^T K - Q^T Q",
        "xy",
        xlim=(0.01, 0.13),
        ylim=(middle.min() / 2, 2 * apart),
    )
    for name, label in STARTS.items():
        numbers = np.maximum(np.median(results[f"{name} balance"], axis=0) - 1, 1e-9)
        balance.plot(RECORD[: len(numbers)], numbers, label=label)
        if name != "ridge":
            medians(RECORD, 1 - results[f"{name} nuclear"], label, direction)
    finish(balance, "The factors balance", "step", "balance - 1", "xy", ylim=(1e-08, 2))
    finish(direction, "Distance from the nuclear SVM", "step", "1 - correlation", "xy")
