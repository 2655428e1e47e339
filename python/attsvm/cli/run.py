"""The command line: ``attsvm reproduce``, ``attsvm run`` and ``attsvm heads``."""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import __version__, plot
from ._arguments import UsageError, add_out, between, whole
from ._check import as_floats, as_numeric, check_shape
from .data import Data, cross_attention, self_attention
from .figures import FIGURES, load
from .heads import command as heads
from .output import LinearHead
from .page import Section, write_page
from .problem import Problem
from .report import claims_table, runs_table, solutions_table, write_csv
from .run import Run
from .separation import Separation
from .svm import ConvergenceWarning, solve_svm
from .train import train

EXTRAS = ("joblib", "matplotlib")
NORMS = ("frobenius", "nuclear")
KNOWN = ("X", "Z", "y", "v", "lengths", "selected")
RECORDS = 100  # of a run, for its curves
# What NumPy and zipfile raise on a damaged archive.
UNREADABLE = (ValueError, EOFError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error)
PAGE_TITLE = "Transformers as support vector machines, reproduced"
PAGE_TEXT = """Softmax attention trained by gradient descent selects tokens: its weights diverge, and their direction
is that of a support vector machine which separates the selected tokens from the rest.  Every picture below redoes an
experiment of that theory; the table under it holds what was measured against what the theory expects."""
RATE = between(0, math.inf, "a positive number")
QUERIES_SHOWN = 40  # rows of a heat map that can still be told apart


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, 1 for a claim that does not hold, 2 for a wrong input."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # every table shows the status
            return args.command(args)
    except UsageError as error:
        return _fail(args.name, str(error))
    except OSError as error:
        return _fail(args.name, f"{error.strerror}: {error.filename}" if error.filename else str(error))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            raise
        return _fail(args.name, f'{missing} is not installed: pip install "attsvm[reproduce]"')
    except KeyboardInterrupt:
        print(f"\nattsvm {args.name}: interrupted", file=sys.stderr)
        return 130


def _fail(name: str, message: str) -> int:
    print(f"attsvm {name}: {message}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attsvm", description="Which tokens will attention select, and in which direction do its weights go?"
    )
    parser.add_argument("--version", action="version", version=f"attsvm {__version__}")
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(title="commands", metavar="{reproduce,run,heads}")

    about = "redo an experiment of the paper at its full settings, and judge its claims"
    one = commands.add_parser("reproduce", help=about, description=about + ".")
    one.add_argument(
        "figures", nargs="*", type=_figure, metavar="FIGURE", help=f"all by default: {', '.join(FIGURES)}"
    )
    one.add_argument(
        "--quick", action="store_true", help="fewer random instances: a look in a fraction of the time"
    )
    one.add_argument("--runs", type=whole(2), help="random instances (default: each figure's own number)")
    one.add_argument("--seed", type=whole(0), default=0, help="of the random instances (default 0)")
    one.add_argument("--jobs", type=whole(1), help="threads (default: all cores); changes no result")
    add_out(one)
    one.set_defaults(command=_reproduce, name="reproduce")

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
    two.add_argument("--lr", type=RATE, default=0.1, help="learning rate (default 0.1)")
    two.add_argument("--seed", type=whole(0), default=0, help="of the initial weights (default 0)")
    add_out(two)
    two.set_defaults(command=_run, name="run")
    heads.add_parser(commands)
    return parser


def _figure(name: str) -> str:
    if name not in FIGURES:
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(FIGURES)}, got {name!r}")
    return name


def _reproduce(args: argparse.Namespace) -> int:
    begin = time.perf_counter()
    figures = {name: load(name) for name in args.figures or FIGURES}
    args.out.mkdir(parents=True, exist_ok=True)
    sections = [_reproduce_one(name, figure, args) for name, figure in figures.items()]
    verdicts = [claim.holds for section in sections for claims in section.claims.values() for claim in claims]
    summary = f"{sum(verdicts)} of {len(verdicts)} claims hold"
    page = args.out / "index.html"
    write_page(page, PAGE_TITLE, f"{PAGE_TEXT}\n\n{summary}.  attsvm {__version__}, seed {args.seed}.", sections)
    print(summary + ("" if all(verdicts) else ": exit code 1"))
    print(f"wrote {page}, pictures and numbers beside it, in {time.perf_counter() - begin:.1f} s")
    return int(not all(verdicts))


def _reproduce_one(name: str, figure: Any, args: argparse.Namespace) -> Section:
    """Picture and numbers of a figure, and its part of the page."""
    begin = time.perf_counter()
    runs = args.runs or (figure.QUICK if args.quick else figure.RUNS)
    results = figure.run(runs, args.seed, args.jobs)
    picture, curves = args.out / f"{name}.png", args.out / f"{name}.csv"
    figure.plot(results).savefig(picture, dpi=160)
    write_csv(curves, figure.curves(results))
    groups = figure.claims(results)
    seconds = time.perf_counter() - begin
    print(claims_table(groups))
    print(f"{name}: {runs} runs in {seconds:.1f} s\n")
    title, _, text = figure.__doc__.partition("\n\n")
    fine = f"{figure.SETTINGS}  {runs} random instances, {seconds:.1f} s.  Its numbers are in {curves.name}."
    return Section(_one_line(title), text, {picture.name: _one_line(title)}, (), groups, fine)


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz; what is missing, unknown or too much is named."""
    with open(path, "rb") as file:
        try:
            archive: Any = np.load(file, allow_pickle=False) if zipfile.is_zipfile(file) else None
        except UNREADABLE as error:
            raise UsageError(f"{path} cannot be read: {error}") from None
        if archive is None:
            raise UsageError(f"{path} is not an .npz archive (numpy.savez makes one)")
        unknown = sorted(set(archive.files) - set(KNOWN))
        if unknown:
            raise UsageError(f"{path} holds the unknown {', '.join(unknown)}; known are {', '.join(KNOWN)}")
        arrays = {name: _read_array(archive, name) for name in archive.files}
    _check_present(path, arrays)
    return arrays


def _read_array(archive: Any, name: str) -> np.ndarray:
    try:
        array = archive[name]
    except UNREADABLE as error:
        why = "pickled objects are refused" if "allow_pickle" in str(error) else str(error)
        raise UsageError(f"{name} cannot be read as an array of numbers: {why}") from None
    if not isinstance(array, np.ndarray):  # numpy hands out a member that is no .npy as bytes
        raise UsageError(f"{name} is not an array")
    return array


def _check_present(path: Path, arrays: dict[str, np.ndarray]) -> None:
    if "X" not in arrays:
        raise UsageError(f"{path} has no X (n, T, d), the tokens")
    if "selected" in arrays:
        extra = [name for name in ("y", "v") if name in arrays]
        if extra:
            raise UsageError(f"selected replaces y and v: leave out either selected or {' and '.join(extra)}")
        return
    missing = [name for name in ("y", "v") if name not in arrays]
    if missing:
        have = {"y": "has v without y", "v": "has y without v"}.get("".join(missing), "has neither y nor v")
        raise UsageError(f"{path} {have}: give y (n,) and v (d,), or selected (n,) to solve the SVMs alone")


def _data(arrays: dict[str, np.ndarray]) -> Data:
    """Cross-attention to Z, or self-attention of the first token; without the padding when there are lengths."""
    X: Any = arrays["X"]
    if "lengths" in arrays:
        check_shape("X", X, "n, T, d")
        n, T, _ = X.shape
        lengths = as_numeric("lengths", arrays["lengths"])
        check_shape("lengths", lengths, "n", (n,))
        if lengths.dtype.kind == "f" or lengths.min() < 1 or lengths.max() > T:
            raise ValueError(f"lengths must be whole numbers from 1 to T = {T}, got {lengths}")
        X = [tokens[:length] for tokens, length in zip(X, lengths, strict=True)]
    if "Z" not in arrays:
        return self_attention(X)
    return cross_attention(X, as_floats("Z", arrays["Z"], "n, dz"))


def _run(args: argparse.Namespace) -> int:
    begin = time.perf_counter()
    arrays = read_arrays(args.data)
    try:
        data = _data(arrays)
        if "selected" in arrays:
            solutions = {("", norm): _solve(data, _selected(arrays), norm) for norm in NORMS}
        else:
            problem = Problem(data, arrays["y"], LinearHead(arrays["v"]))
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None
    args.out.mkdir(parents=True, exist_ok=True)
    written = [args.out / "weights.npz"]
    print(data)
    if "selected" in arrays:
        saved: dict[str, Any] = {"selected": arrays["selected"]}
        print(solutions_table(solutions))
    else:
        from matplotlib.figure import Figure  # an extra: missing, it should be missed before the training

        runs = _train_both(problem, args)
        print(runs_table(problem, runs))
        solutions = {
            (name, norm): _solve(data, run.selected, norm) for name, run in runs.items() for norm in NORMS
        }
        print(solutions_table(solutions, runs, problem))
        written.append(args.out / "attention.png")
        figure = Figure(figsize=(12, 8), layout="constrained")
        _draw(figure, runs, solutions)
        figure.savefig(written[-1], dpi=160)
        saved = {"W": runs["W"].W, "K": runs["(K, Q)"].K, "Q": runs["(K, Q)"].Q}
        saved |= {f"selected_{_key(name)}": np.asarray(run.selected) for name, run in runs.items()}
    for (name, norm), solution in solutions.items():
        saved |= _saved(f"{norm}_{_key(name)}".rstrip("_"), solution, arrays["X"].shape[:2])
    np.savez(written[0], **saved)
    print(f"weights.npz holds {', '.join(saved)}")
    print(f"wrote {' and '.join(map(str, written))} in {time.perf_counter() - begin:.1f} s")
    return 0


def _solve(data: Data, selected: Any, norm: str) -> Separation:
    """Large problems take a while, so say what is being waited for."""
    margins = int(data.indptr[-1]) - len(data)
    print(f"solving the {norm} SVM of {margins} margins", file=sys.stderr)
    return solve_svm(data, selected, norm)


def _key(name: str) -> str:
    return "KQ" if name == "(K, Q)" else name


def _selected(arrays: dict[str, np.ndarray]) -> Any:
    """The given selection, without what it says of padding."""
    selected = arrays["selected"]
    if selected.dtype != bool or "lengths" not in arrays:
        return selected
    check_shape("selected", selected, "n, T", arrays["X"].shape[:2])
    pairs = list(zip(selected, arrays["lengths"], strict=True))
    if any(row[length:].any() for row, length in pairs):
        raise ValueError("selected must not hold a token beyond its sequence's length")
    return [row[:length] for row, length in pairs]


def _train_both(problem: Problem, args: argparse.Namespace) -> dict[str, Run]:
    """W, and its factors K and Q of full rank, from weights as PyTorch initialises linear layers."""
    rng = np.random.default_rng(args.seed)
    dk, dz = problem.data.dk, problem.data.dz
    W, K, Q = (
        rng.uniform(-1 / math.sqrt(inputs), 1 / math.sqrt(inputs), shape)
        for inputs, shape in ((dz, (dk, dz)), (dk, (dk, min(dk, dz))), (dz, (dz, min(dk, dz))))
    )
    how: dict[str, Any] = {
        "lr": args.lr,
        "steps": args.steps,
        "record": max(1, args.steps // RECORDS),
        "progress": True,
    }
    try:
        return {"W": train(problem, W, **how), "(K, Q)": train(problem, K=K, Q=Q, **how)}
    except FloatingPointError as error:
        raise UsageError(str(error)) from None


def _draw(figure: Any, runs: dict[str, Run], solutions: dict[tuple[str, str], Separation]) -> None:
    """Attention and correlation along training above, attention at its end below."""
    (left, right), below = figure.subplots(2, 2)
    for run in runs.values():
        plot.saturation(run, ax=left)
    for (name, _), solution in solutions.items():
        if solution.W is not None:
            plot.correlation(runs[name], solution, ax=right)
    plot.finish(left, "Attention of a query: mean, 10th to 90th percentile")
    plot.finish(right, "Correlation with the SVMs of the selected tokens")
    for (name, run), ax in zip(runs.items(), below, strict=True):
        some = run.probabilities[:QUERIES_SHOWN]
        plot.attention(some, run.selected[:QUERIES_SHOWN], ax=ax)
        which = "" if len(some) == len(run.data) else f", {len(some)} of {len(run.data)} queries"
        ax.set_title(f"{name}: attention and selected tokens{which}", loc="left", fontsize=11)


def _saved(key: str, solution: Separation, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    """Weights and multipliers of a solution, over entries in the shape of the padded tokens."""
    saved = {} if solution.W is None else {key: solution.W}
    multipliers = {"dual": solution.dual, "certificate": solution.certificate}
    for name, entries in multipliers.items():
        if entries is not None:
            padded = np.zeros(shape)
            for row, part in zip(padded, entries, strict=True):
                row[: len(part)] = part
            saved[f"{name}_{key}"] = padded
    return saved
