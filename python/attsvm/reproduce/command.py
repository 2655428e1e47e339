"""The command ``attsvm reproduce``: measures and draws figures, judges their claims, writes the page."""

from __future__ import annotations

import argparse
import importlib
import platform
import re
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import __version__
from ..common.arguments import add_out, whole
from ..common.progress import above_bars, counted
from ..common.render import picture_bytes
from ..common.result import table
from ..common.storage import replacing
from ..common.threads import on_workers
from ..svm.solve import ConvergenceWarning
from . import FIGURES, NAMED, load, measure, papers
from .page import Section, verdicts_line, write_claims, write_page
from .proofs import ProvedAnswers

PAGE_TITLE = "Transformers as support vector machines, reproduced"
PAGE_TEXT = """Softmax attention trained by gradient descent selects tokens: its weights diverge, and their direction
is that of a support vector machine which separates the selected tokens from the rest.  Every picture below redoes an
experiment of that theory; the table under it holds what was measured against what was expected beforehand: a published
number, an independent computation, or a prediction of the theory.  All claims as data are in ``claims.json``."""
# The shares of resampled reports with a failed claim come from tests/support/chance_of_failure.py.
FINE_TEXT = """A claim has a bound, fixed beforehand, and a 95 % interval of what was measured (in brackets; a statement
about these very runs is a number without one).  It holds when the whole interval lies inside the bound, fails when the
whole interval lies outside, and is undecided when it straddles or there are too few runs.

How often an honest run fails by chance: of reports resampled from 400 runs of each figure, a claim
failed in 0 of 400 with the settings of ``--quick``, and in 0 of 400 with the full ones.
(None of 400 means at most 0.92 %, with 97.5 % confidence.)  Not resampled so far: rank at full settings, the claims on
proofs, and those of the panels that came last: causal paths, first gradients, what no W separates, a loss of one's own,
locally optimal directions, joint paths, a ReLU head's bound."""
EXTRAS = ("jinja2", "joblib", "matplotlib", "scipy")
# These figures are started first, since they take 40 % of the time.
SLOWEST = ("several-tokens", "optimisers", "overparameterization")


def add_parser(commands: Any) -> None:
    about = "redo an experiment of the paper at its full settings, and judge its claims"
    one = commands.add_parser(
        "reproduce",
        help=about,
        description=about + ".",
        epilog="The exit code is 1 when a claim fails.  In a folder that holds a report already, the figures named are "
        "replaced and the others stay.",
    )
    add = one.add_argument
    add(
        "figures",
        nargs="*",
        type=_figure,
        metavar="FIGURE",
        help=f"by default {', '.join(FIGURES)}; only when named: {', '.join(NAMED)}",
    )
    add(
        "--quick",
        action="store_true",
        help="fewer random instances, and pictures as PNG alone: a look in a fraction of the time, which leaves some "
        "claims undecided",
    )
    add("--verbose", action="store_true", help="print the claims of each figure, not their count alone")
    add("--prove", action="store_true", help="prove all answers of the SVM exactly, not ten of a figure")
    add("--runs", type=whole(2), help="random instances (default: each figure's own number)")
    add("--seed", type=whole(0, 2**63 - 1), default=0, help="of the random instances (default 0)")
    add(
        "--jobs",
        type=whole(1, 10**4),
        help="processes, or threads of a single figure (default: all cores); changes no result",
    )
    add_out(one)
    one.set_defaults(command=_reproduce, name="reproduce")


def _figure(name: str) -> str:
    if name not in (*FIGURES, *NAMED):
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(FIGURES)}, got {name!r}")
    return name


def _reproduce(args: argparse.Namespace) -> int:
    begin = time.perf_counter()
    names = sorted(dict.fromkeys(args.figures or FIGURES), key=lambda name: name not in SLOWEST)
    for extra in EXTRAS:  # raises an error if a package is missing, before any figure is measured
        importlib.import_module(extra)
    from joblib import cpu_count

    args.out.mkdir(parents=True, exist_ok=True)
    jobs = args.jobs or cpu_count()
    workers = min(jobs, len(names))
    width = max(map(len, names))
    counts = Counter[str]()
    tasks = ((name, args, jobs // workers) for name in names)
    # Workers are processes, not threads: proofs, matplotlib and much of a figure hold the interpreter lock.
    with on_workers(_reproduce_one, tasks, workers, "reproduce", processes=True) as done:
        for made in counted(done, len(names), "reproduce", "figure") if workers > 1 else done:
            # Each figure is written at once, so that an interruption or a later error loses no figure.
            page = _write(made, args.out)
            shown = Counter(claim.verdict for claims in made.section.claims.values() for claim in claims)
            with above_bars():
                print(_said(made, verdicts_line(shown), width, args.verbose), flush=True)
            counts.update(shown)
    print(verdicts_line(counts) + (": exit code 1" if counts["fails"] else ""))
    print(f"wrote {page}, claims.json, pictures and numbers beside it, in {time.perf_counter() - begin:.1f} s")
    return int(counts["fails"] > 0)


def _said(made: Made, counts: str, width: int, verbose: bool) -> str:
    """The lines printed for a figure: its failed claims, or all claims if ``verbose``, SVM answers without a proof, and
    the number of claims by verdict."""
    counts = re.sub(r", 0 \w+", "", counts)
    line = f"{made.section.name:{width}}  {counts}  {made.seconds:.1f} s"
    rows: list[tuple[str, ...]] = []
    for heading, claims in made.section.claims.items():
        shown = [c for c in claims if verbose or c.verdict == "fails"]
        rows += [(heading,)] * bool(shown)
        rows += [("  " + c.text, c.expected, c.found, c.verdict.replace("fails", "FAILS")) for c in shown]
    if not rows:
        return line
    return "\n".join(["", table(("claim", "expected", "measured", "verdict"), rows), *made.missing, line])


def _write(made: Made, out: Path) -> Path:
    """Writes a figure's measured arrays, pictures and claims to files, renews the page, and returns its path."""
    section, page = made.section, out / "index.html"
    with replacing(out / f"{section.name}.npz") as file:
        np.savez_compressed(file, allow_pickle=False, **made.results)
    (out / f"{section.name}.svg").unlink(missing_ok=True)  # remove the picture of an older report
    for suffix, picture in made.pictures.items():
        with replacing(out / f"{section.name}{suffix}") as file:
            file.write(picture)
    entries = write_claims(out / "claims.json", section.name, section.claims)
    summary = verdicts_line(Counter(entry["verdict"] for entry in entries))
    write_page(page, PAGE_TITLE, f"{summary}.\n\n{PAGE_TEXT}", section, (*FIGURES, *NAMED), FINE_TEXT)
    return page


class Made(NamedTuple):
    """What one figure gives: its section of the page, measured arrays, picture files, reasons why proofs failed, and
    its time in seconds."""

    section: Section
    results: Mapping[str, np.ndarray]
    pictures: Mapping[str, bytes]
    missing: list[str]
    seconds: float


def _reproduce_one(name: str, args: argparse.Namespace, threads: int) -> Made:
    """Measures, draws and judges a figure.  Nothing is written here, since a worker may be killed at any time."""
    from joblib import cpu_count

    begin = time.perf_counter()
    figure = load(name)
    runs = args.runs or (figure.QUICK if args.quick else figure.RUNS)
    with warnings.catch_warnings(), ProvedAnswers(args.prove) as answers:
        warnings.simplefilter("ignore", ConvergenceWarning)  # workers do not have main()'s filter of warnings
        results = measure(name, runs, args.seed, threads)
    drawn = figure.plot(results)
    pictures = {suffix: picture_bytes(drawn, suffix) for suffix in ((".png",) if args.quick else (".png", ".svg"))}
    proofs, missing = answers.claims()
    seconds = time.perf_counter() - begin
    title, _, text = (figure.__doc__ or name).partition("\n\n")  # python -OO removes docstrings
    fine = (
        f"{figure.SETTINGS}\n\n{runs} random instances, seed {args.seed}, {seconds:.1f} s on "
        f"{platform.machine()} with {cpu_count()} cores, Python {platform.python_version()}, "
        f"NumPy {np.__version__}; {time.strftime('%-d %B %Y')}, attsvm {__version__}.  "
        f"All numbers that were measured: {name}.npz."
    )
    text += f"\n\nSource: {figure.PAPER.format_map(vars(papers))}."
    section = Section(name, title.rstrip("."), text, figure.CAPTION, figure.claims(results) | proofs, fine)
    return Made(section, results, pictures, missing, seconds)
