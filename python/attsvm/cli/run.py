"""The commands on a user's arrays: ``attsvm run`` trains and solves the SVMs of the tokens selected, ``attsvm prove``
solves an SVM and writes its proof."""

import argparse
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import plot
from ..attention.data import Data
from ..common.arguments import UsageError, add_out, between, refused, shortened, whole
from ..common.check import as_norm
from ..common.render import write_picture
from ..common.result import table
from ..common.storage import replacing
from ..common.types import Ball
from ..plot.curves import SATURATED, finish, largest
from ..svm.separation import Separation
from ..svm.solve import solve_svm
from ..theory.conditions import correlation, is_locally_optimal
from ..training.output_head import LinearHead
from ..training.problem import Problem
from ..training.run import Run
from ..training.train import train
from .arrays import as_data, as_selected, read_arrays

NORMS: tuple[Ball, ...] = ("frobenius", "nuclear")
RECORDS = 100  # number of records of a training run, which its curves show
POSITIVE = between(0, math.inf, "a positive number")
QUERIES_SHOWN = 40  # largest number of rows of a heat map that can be told apart


def add_parser(commands: Any) -> None:
    about = "train attention on your arrays and solve the SVMs of the tokens it selects"
    two = commands.add_parser(
        "run",
        help=about,
        description=about + ".",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="""arrays in DATA.npz:
  X         (n, T, d)  tokens
  Z         (n, dz)    queries; without it the first token of each sequence queries
  y         (n,)       labels -1 and +1
  v         (d,)       head: attention's output is v . (attended token)
  lengths   (n,)       tokens of each sequence, where X is padded
  selected  (n,)       instead of y and v: solve the SVMs of these tokens, without training;
            (n, T)     as bools: several tokens of each sequence""",
    )
    two.add_argument("data", metavar="DATA.npz", type=Path)
    two.add_argument("--steps", type=whole(1), default=2000, help="of normalised gradient descent (default 2000)")
    two.add_argument("--lr", type=POSITIVE, help="learning rate (default: 0.1 over the scale of the data)")
    two.add_argument("--seed", type=whole(0, 2**63 - 1), default=0, help="of the initial weights (default 0)")
    add_out(two)
    two.set_defaults(command=_run, name="run")
    what = "solve the SVM of selected tokens and write a proof of it that anybody can check"
    three = commands.add_parser(
        "prove",
        help=what,
        description=what + ": python -S -I check.py OUT, with attsvm/check.py alone.",
        epilog="arrays in DATA.npz: X, Z, lengths and selected, as `attsvm run` reads them.  The exit code is 1 where "
        "it is not proved, and nothing is written.",
    )
    three.add_argument("data", metavar="DATA.npz", type=Path)
    three.add_argument("out", metavar="OUT", type=Path, help="the proof; compressed where the name ends in .gz")
    three.add_argument(
        "--norm",
        type=_norm,
        default="frobenius",
        help="frobenius (default), nuclear, max, spectral, or a number above 1: entrywise",
    )
    three.add_argument("--C", type=POSITIVE, help="soft margins, of this cost")
    three.set_defaults(command=_prove, name="prove")


def _run(args: argparse.Namespace) -> int:
    begin = time.perf_counter()
    arrays = read_arrays(args.data)
    runs: dict[str, Run] = {}
    saved: dict[str, Any] = {}
    with refused(ValueError, TypeError):
        data = as_data(arrays)
        if "selected" in arrays:
            solutions = _solve(data, {"": as_selected(arrays)})
            saved["selected"] = arrays["selected"]
        else:
            problem = Problem(data, arrays["y"], LinearHead(arrays["v"]))
            problem._check_scale()
    args.out.mkdir(parents=True, exist_ok=True)
    written = [args.out / "weights.npz"]
    print(data)
    if "selected" not in arrays:
        from matplotlib.figure import Figure  # raises before the training if matplotlib is missing

        runs = _train_both(problem, args)
        print(runs_table(runs))
        solutions = _solve(data, {name: run.selected for name, run in runs.items()})
        written.append(args.out / "attention.png")
        figure = Figure(figsize=(12, 8), layout="constrained")
        _draw(figure, runs, solutions)
        write_picture(written[-1], figure)
        saved = {"W": runs["W"].W, "K": runs["(K, Q)"].K, "Q": runs["(K, Q)"].Q}
        saved |= {f"selected_{_key(name)}": run.selected for name, run in runs.items()}
    print(solutions_table(solutions, runs))
    for (name, norm), solution in solutions.items():
        saved |= _saved(f"{norm}_{_key(name)}".rstrip("_"), solution, arrays["X"].shape[:2])
    with replacing(written[0]) as file:
        np.savez(file, **saved)
    print(f"weights.npz holds {', '.join(saved)}")
    print(f"wrote {' and '.join(map(str, written))} in {time.perf_counter() - begin:.1f} s")
    return 0


def _solve(data: Data, selected: Mapping[str, Any]) -> dict[tuple[str, str], Separation]:
    """The SVMs of selections by name, in each norm.  Prints their size first, since large problems take a while."""
    found: dict[tuple[str, str], Separation] = {}
    for name, tokens in selected.items():
        for norm in NORMS:
            print(f"solving the {norm} SVM of {data._rows} margins", file=sys.stderr)
            with refused(ValueError):  # raised if the selection is wrong, or tokens are out of scale
                found[name, norm] = solve_svm(data, tokens, norm)
    return found


def _key(name: str) -> str:
    return "KQ" if name == "(K, Q)" else name


def _train_both(problem: Problem, args: argparse.Namespace) -> dict[str, Run]:
    """Trains W, and factors K and Q of full rank.  All weights start like linear layers of PyTorch."""
    rng = np.random.default_rng(args.seed)
    dk, dz = problem.data._W_shape
    m = min(dk, dz)
    W, K, Q = (
        rng.uniform(-1 / math.sqrt(inputs), 1 / math.sqrt(inputs), shape)
        for inputs, shape in ((dz, (dk, dz)), (dk, (dk, m)), (dz, (dz, m)))
    )
    record = max(1, args.steps // RECORDS)
    how: dict[str, Any] = {"lr": args.lr, "steps": args.steps, "record": record, "progress": True}
    with refused(FloatingPointError):
        return {"W": train(problem, W, **how), "(K, Q)": train(problem, K=K, Q=Q, **how)}


def _draw(figure: Any, runs: dict[str, Run], solutions: dict[tuple[str, str], Separation]) -> None:
    """Draws attention and correlations along training above, and attention at the end below."""
    (left, right), below = figure.subplots(2, 2)
    for run in runs.values():
        plot.saturation(run, ax=left)
    for (name, _), solution in solutions.items():
        if solution.W is not None:
            plot.correlation(runs[name], solution, ax=right)
    finish(left, "Attention of a query: mean, 10th to 90th percentile")
    finish(right, "Correlation with the SVMs of the selected tokens")
    for (name, run), ax in zip(runs.items(), below, strict=True):
        some = run.probabilities[:QUERIES_SHOWN]
        plot.attention(some, run.selected[:QUERIES_SHOWN], ax=ax)
        which = "" if len(some) == len(run.data) else f", {len(some)} of {len(run.data)} queries"
        ax.set_title(f"{name}: attention and selected tokens{which}", loc="left", fontsize=11)


def _saved(key: str, solution: Separation, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    """The arrays of a solution for the .npz file; multipliers are padded as the tokens are."""
    saved = {} if solution.W is None else {key: solution.W}
    for name, entries in (("dual", solution.dual), ("certificate", solution.certificate)):
        if entries is not None:
            saved[f"{name}_{key}"] = padded = np.zeros(shape)
            for row, part in zip(padded, entries, strict=True):
                row[: len(part)] = part
    return saved


def runs_table(runs: Mapping[str, Run]) -> str:
    """The table of training runs: how each ended, and whether its attention has saturated."""
    rows, notes = [], []
    for name, run in runs.items():
        peaks, best = largest(run.probabilities), run.selected == run.problem.optimal
        late = (peaks < SATURATED).sum()
        loss, hits = f"{run.loss[0]:.4g} -> {run.loss[-1]:.4g}", f"{best.sum()} of {len(best)}"
        rows.append((name, run.status, loss, f"{run.norm[-1]:.4g}", f"{peaks.min():.6g}", hits))
        if late:
            notes.append(
                f"{name}: attention has not saturated: {late} of {len(best)} queries have no softmax above "
                f"{SATURATED}, so their tokens may still change."
            )
    header = ("trained", "status", "loss", "norm", "least max softmax", "optimal token selected")
    return "\n".join([table(header, rows), *notes, ""])


def solutions_table(solutions: Mapping[tuple[str, str], Separation], runs: Mapping[str, Run]) -> str:
    """The table of SVM solutions by (trained, norm): their certificates, and how close training came to them."""
    header = "trained|SVM|status|margin from|to|gap|rank|support|correlation|locally optimal".split("|")
    rows: list[list[str]] = []
    notes: dict[str, list[str]] = {}
    for (name, norm), solution in solutions.items():
        row = [name, norm, solution.status]
        if solution.W is not None:
            row += f"{solution.margin:.9g}", f"{solution.margin_bound:.9g}", f"{solution.gap:.1e}", f"{solution.rank}"
            row.append(f"{sum(part.sum() for part in solution.support)}")
            if runs:
                optimal = "yes" if is_locally_optimal(runs[name].problem, solution) else "no"
                row += f"{correlation(runs[name].W, solution.W):.6f}", optimal
        if solution.status != "optimal":
            notes.setdefault(f"{solution.status}: {solution.message}.", []).append(f"{name} {norm}".strip())
        rows.append(row + ["-"] * (len(header) - len(row)))
    shown = slice(None) if runs else slice(1, -2)
    lines = [table(header[shown], [row[shown] for row in rows])]
    if any(solution.W is not None for solution in solutions.values()):
        lines.append("The largest margin of weights of norm 1 lies between the two, both recomputed from the tokens.")
    lines += [f"{', '.join(which)}: {note}" for note, which in notes.items()]
    return "\n".join([*lines, ""])


def _norm(text: str) -> Any:
    try:
        value: Any = float(text)
    except ValueError:
        value = text
    try:
        return as_norm("norm", value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(shortened(str(error))) from None


def _prove(args: argparse.Namespace) -> int:
    arrays = read_arrays(args.data)
    if "selected" not in arrays:
        raise UsageError(f"{args.data} has no selected (n,) or (n, T), the tokens whose SVM is to be proved")
    with refused(ValueError, TypeError):
        sol = solve_svm(as_data(arrays), as_selected(arrays), args.norm, C=args.C)
    print(sol)
    try:
        print(f"PROVED: {sol.prove(args.out)}\nwrote {args.out}")
    except ValueError as error:
        print(str(error).replace("not proved", "NOT PROVED"))
        return 1
    return 0
