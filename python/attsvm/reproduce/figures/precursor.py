"""A trained prompt: which tokens it selects, how fast its norm grows, and how far from the SVM's line it ends.

The experiments follow "Max-Margin Token Selection".  First panel: one sequence of three tokens, marked with their
scores.  From six starts the prompt turns to the SVM direction of the best token (thick).  In the second panel the third
token has score 0; then two of the starts turn to another token, which is locally optimal.  Third panel: the norm of the
prompt grows linearly under normalised descent, and like the logarithm of the step under plain descent.  Fourth panel:
two sequences whose SVM direction is (1, 0).  The prompt ends at a distance from the line in this direction that depends
on loss and scores (points: measured; lines: exact).  The distance stays finite while the norm of the prompt grows, so
the direction of the prompt still goes to (1, 0).
"""

import numpy as np

from ... import LinearHead, Problem, correlation, prompt_attention, solve_svm, train
from ...claims import exactly, median, share
from ..panels import BLUE, ORANGE, finish, picture
from ..problems import correlations, on_best, svm_of
from ..textbook import unit

LR, STEPS = 0.1, 1000
# projects tokens to keys: attention sees two coordinates of a token, and the third is the score of the token
PLANE = np.eye(2, 3)
ONE = {"global": 0.9, "local": 0.0}  # score of the third token in the two examples of one sequence
ONE_TOKENS = [[-0.1, 1.0, 1.0], [1.0, 0.0, 0.9], [0.0, 0.0, 0.0]]
STARTS = (1.0, 0.5, 0.0, -0.5, -1.0, -1.5)
SCORES = np.arange(1, 11)
LOSSES = {"linear": "#009E73", "logistic": "#0072B2", "exponential": "#D55E00"}  # losses and their colours
# The published draw of three sequences of seven tokens (PyTorch's generator, seed 0). The first token is the best.
DRAWN = np.reshape([
    0.77483, -0.23047, -1.08678, 1.16974, -1.0632, 0.57696, -1.25267, 1.07,
        -0.47603, -0.25247, -0.54946, -0.77053, -0.38667, -0.3413,
    0.68898, -0.06827, -0.84996, 0.8829, -0.9633, 1.27787, -0.81074, 0.83126,
        -0.49368, -0.59854, -0.41206, -0.47752, -0.41177, -0.52046,
    0.94207, 0.0105, -0.53956, 0.70622, -1.11385, 1.18399, -0.74203, 0.70437,
        -0.59462, -0.23495, -0.60995, -0.59597, -0.7134, -0.27701,
], (3, 7, 2))  # fmt: skip
# Values at some steps, read off the published curves for the three sequences DRAWN.
# "softmax" is the attention to the best token, "norm" the norm of the prompt.
DESCENTS = {
    "normalised": {
        "how": {"lr": LR},
        "softmax": {20: 0.75, 50: 0.99, 100: 1.0, 200: 1.0},
        "norm": {50: 5.0, 100: 10.0, 200: 19.4},
    },
    "plain": {
        "how": {"rule": "constant", "lr": 1.0},
        "softmax": {50: 0.82, 100: 0.93, 200: 0.97},
        "norm": {50: 2.3, 100: 3.2, 200: 3.85},
    },
}
SHOWN = np.arange(0, STEPS + 1, 10)
PAPER = """{PROMPT}: paths of a single input on its way to the best and to another token, norms under normalised and
plain descent, and the offsets of three losses"""
CAPTION = """Left: six prompts turn to the best token (thick: its SVM direction), and two of them to another token
where the third is worthless. Then how the norm of the prompt grows, and how far the loss leaves it beside the SVM
direction (points: measured; lines: exact)."""
RUNS, QUICK = 200, 72
SETTINGS = f"""Prompt attention in the plane, logistic loss, labels 1, {STEPS:,} steps; normalised descent with
learning rate {LR}, plain descent with 1.  Single sequence: tokens (-0.1, 1), (1, 0), (0, 0) with scores 1, 0.9 and 0.9
or 0; prompts start at (0, y).  Three sequences of seven tokens, 0.2 N(0, I) around (1, 0) with score 1, around (-1, 1)
and (-0.5, -0.5) with score 0.5: the published draw, and random ones; prompts start at (x, 0).  Losses: token 0 against
(1, 1) of score C, and against (1, -1) of score 1, p(0) = 0, step 400."""


def once():
    # for each loss and score C, the final distance of the prompt from the line along the SVM direction (1, 0)
    tokens = [[[[0, 0, 0], [1, 1, C]], [[0, 0, 0], [1, -1, 1]]] for C in SCORES]
    offsets = {
        f"{loss} offsets": [train(problem_of(X, loss), lr=LR, steps=400).W[1, 0] for X in tokens] for loss in LOSSES
    }
    return {kind: single(score) for kind, score in ONE.items()} | speeds() | offsets


def problem_of(tokens, loss="logistic"):
    return Problem(prompt_attention(tokens, key=PLANE), None, LinearHead([0.0, 0.0, 1.0]), loss)


def with_scores(plane):
    """Adds to sequences of seven tokens in the plane a third coordinate with their scores: 1 for the first token, 0.5
    for the others."""
    return np.insert(plane, 2, [1.0, *6 * [0.5]], axis=2)


def from_starts(problem, axis, record):
    prompts = np.zeros((len(STARTS), 2, 1))
    prompts[:, axis, 0] = STARTS
    return train(problem, prompts, runs=len(STARTS), lr=LR, steps=STEPS, record=record)


def experiment(rng):
    return several(0.2 * rng.standard_normal((3, 7, 2)) + [[1, 0], *3 * [[-1, 1]], *3 * [[-0.5, -0.5]]])


def several(plane):
    """Trains a prompt on three sequences from six starts.  Returns whether all runs select the best tokens; the
    least correlation of a run's prompt with the SVM's W; and the least correlation with the first run's prompt."""
    problem = problem_of(with_scores(plane))
    trained = from_starts(problem, 0, 0)
    return {
        "best": on_best(trained),
        "to svm": correlations(trained.W, svm_of(problem).W).min(),
        "apart": correlations(trained.W, trained.W[0]).min(),
    }


def single(score):
    """Trains a prompt from six starts on one sequence of three tokens, for a score of the third token.  Returns the
    tokens selected, the paths of the prompt, its final directions, its correlations with the SVM solutions of the
    tokens selected, and the SVM values of the first two tokens."""
    problem = problem_of([[*ONE_TOKENS[:2], [0.0, 0.0, score]]])
    trained = from_starts(problem, 1, 2)
    solutions = np.array([solve_svm(problem.data, [a]).W for a in (0, 1)])
    selected = trained.selected[:, 0]
    return {
        "selected": selected,
        "paths": trained.weights[..., 0],
        "direction": unit(trained.W[..., 0]),
        "correlation": [*map(correlation, trained.W, solutions[selected])],
        "svm values": (solutions**2).sum(axis=(1, 2)) / 2,
    }


def speeds():
    """Trains a prompt on the published draw of three sequences, with normalised and with plain descent. Returns the
    squared norms of its SVM solutions, and the prompt's norm and its attention to the best tokens along training."""
    tokens = with_scores(DRAWN)
    problem = problem_of(tokens)
    squares = [(solve_svm(data, [0, 0, 0]).W ** 2).sum() for data in (problem.data, prompt_attention(tokens))]
    found = {"drawn to svm": several(DRAWN)["to svm"], "plane value": squares[0], "score value": squares[1] / 2}
    for name, table in DESCENTS.items():
        trained = train(problem, steps=STEPS, record=10, **table["how"])
        softmax = [problem.data.probabilities(W)[:, 0].mean() for W in trained.weights]
        found[name] = {"norm": trained.norm, "softmax": softmax}
    return found


def exact_offset(loss, C):
    """Computes the second coordinate p_2 of the prompt at which the gradients of two sequences cancel: ``C |l'(C)|
    exp(-p_2) = |l'(1)| exp(p_2)``, where l is the loss."""
    # the decrease of log |l'(u)| from u = 1 to u = C
    decrease = {"linear": 0, "logistic": np.logaddexp(0, C) - np.logaddexp(0, 1), "exponential": C - 1}[loss]
    return (np.log(C) - decrease) / 2


def claims(results):
    """Claims that trained prompts turn to the SVM directions of the theory, on published examples and on random draws.
    Brackets in a claim hold exact or published values."""
    of = {key: values[0] for key, values in results.items()}
    value, late = of["local svm values"], SHOWN[SHOWN >= 50]
    steps = {"normalised": late, "plain": np.log(late)}
    straight = [np.corrcoef(x, of[f"{name} norm"][-len(x) :])[0, 1] for name, x in steps.items()]
    return {
        "One sequence": [
            exactly("from all six starts the best token is selected", of["global selected"], high=0),
            exactly("first coordinate of the direction (exact -.121)", of["global direction"][:, 0], -0.125, -0.12),
            exactly("SVM value of the best token (1 / 2.02)", value[0], 0.49504950, 0.49504951),
            exactly("SVM value of the second token (1 / 2)", value[1], 0.5 - 1e-9, 0.5 + 1e-9),
            exactly("worthless third token: starts that select the second one",
                    (of["local selected"] == [0, 0, 0, 0, 1, 1]).all(), 1),
            exactly("least correlation with the SVM of the own token", of["local correlation"], 0.9998),
        ],
        "The published draw of three sequences": [
            exactly("SVM value with the score as a coordinate (.31319)", of["score value"], 0.313185, 0.313195),
            exactly("squared norm of the SVM in the plane (.7427)", of["plane value"], 0.74265, 0.74275),
            exactly("least correlation of six starts with the SVM", of["drawn to svm"], 0.999),
            *(exactly(f"{name}, step {k}: {what} ({x:g})", of[f"{name} {what}"][k // 10],
                      *((x - 0.01, x + 0.01) if what == "softmax" else (0.97 * x, 1.03 * x)))
              for name, table in DESCENTS.items() for what in ("softmax", "norm") for k, x in table[what].items()),
            exactly("normalised: correlation of the norm with the step", straight[0], 0.9999),
            exactly("plain: correlation of the norm with the logarithm of the step", straight[1], 0.99),
        ],
        "Random draws of three sequences": [
            share("all six starts select the best tokens", results["best"], 0.95),
            median("least correlation of six starts with the SVM", results["to svm"], 0.999),
            median("least correlation of six starts with the first", results["apart"], 0.999),
        ],
        "Beside the SVM direction, C = 1 to 10": [
            exactly(f"{loss} loss: distance from the exact offset",
                    np.abs(of[f"{loss} offsets"] - exact_offset(loss, SCORES)), high=0.01) for loss in LOSSES
        ],
    }  # fmt: skip


@picture((14, 3.9), 4)
def plot(results, left, middle, speed, beside):
    """Draws the paths of the prompt for two scores of the third token (two panels), the norm of the prompt along
    training, and the prompt's final distance from the SVM direction against the score C."""
    for ax, (kind, score) in zip((left, middle), ONE.items(), strict=True):
        draw_paths(ax, kind, score, results)
    for (name, table), color in zip(DESCENTS.items(), (BLUE, ORANGE), strict=True):
        label = f"{name} descent, step {table['how']['lr']:g}"
        speed.plot(SHOWN[1:], results[f"{name} norm"][0, 1:], color=color, label=label)
        speed.plot(*zip(*table["norm"].items(), strict=True), "x", color=color, markersize=7)
    speed.plot([], [], "x", color="0.4", label="published")
    finish(speed, "Three sequences: how fast", "step", "norm of the prompt", "xy")
    fine = np.linspace(1, 10, 100)
    for loss, color in LOSSES.items():
        beside.plot(fine, exact_offset(loss, fine), color=color, label=f"{loss} loss")
        beside.plot(SCORES, results[f"{loss} offsets"][0], "o", color=color, markersize=4)
    finish(beside, "What the loss leaves", "score C of the first token", "distance beside the SVM direction")


def draw_paths(ax, kind, score, results):
    finish(ax, f"One sequence, third score {score:g}", "first coordinate of p", "second coordinate of p",
           xlim=(-4, 7), ylim=(-2.5, 9), aspect="equal")  # fmt: skip
    selected = results[f"{kind} selected"][0]
    for token, color in enumerate((BLUE, ORANGE)):
        for path in results[f"{kind} paths"][0][selected == token]:
            ax.plot(*path.T, color=color, linewidth=1.4)
            ax.plot(*path[0], "o", color=color, markersize=4, markerfacecolor="white")
        if token in selected:
            x, y = 18 * unit(np.array(ONE_TOKENS[token][:2]))
            ax.plot([0, x], [0, y], color=color, linewidth=6, alpha=0.25)
    for (x, y, own), mark, size, left in zip(ONE_TOKENS, "*os", (10, 5, 5), (5, 5, -20), strict=True):
        ax.plot(x, y, mark, color="black", markersize=size)
        ax.annotate(f"{own or score:g}", (x, y), xytext=(left, -12), textcoords="offset points", fontsize=9)
