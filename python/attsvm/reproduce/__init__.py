"""The figures of the paper, its precursor and its follow-ups, which ``attsvm reproduce`` redoes and judges by claims.

A file of ``figures/`` is a figure.  It has

- a docstring: the title and the text of its section of the page;
- ``PAPER``: its source, with the names of ``papers.py`` in braces;
- ``CAPTION``: the caption of its picture;
- ``SETTINGS``: its settings in words; ``RUNS`` and ``QUICK``: how many random instances, by default and with --quick;
- ``experiment(rng)``: the measured numbers of one random instance, by name, or nested as ``problems.flat`` reads them
  (a list holds the same numbers of several settings);
- ``together(runs, seed)``, optional: arrays that are measured for all instances at once, likewise;
- ``once()``, optional: numbers that do not depend on the random instances, likewise;
- ``claims(results)``: its claims on these numbers, under headings;
- ``plot(results)``: its picture; ``panels.picture`` makes it from a function that draws the panels.
"""

import importlib
from typing import Any

import numpy as np

from .. import replicate
from .problems import flat

__all__ = ["FIGURES", "NAMED", "load", "measure"]

FIGURES = (
    "gd-paths",
    "local-convergence",
    "regularization-path",
    "rank",
    "global-local",
    "overparameterization",
    "equal-scores",
    "basin",
    "several-tokens",
    "quadratic-head",
    "sequence-to-sequence",
    "attention-heads",
    "soft-and-hard",
    "precursor",
    "joint-training",
    "mirror-descent",
    "factor-balance",
    "rates",
    "optimisers",
    "next-token",
    "several-classes",
    "positional-encoding",
    "plain-descent",
    "soft-margins",
    "certified-training",
    "limit",
    "hierarchy",
    "recipes",
    "influence",
    "source-papers",
)
NAMED = ("training",)  # figures left out by default, since they train models with PyTorch for minutes


def load(name: str) -> Any:
    """The module of ``figures/`` that makes the figure of this name."""
    return importlib.import_module(".figures." + name.replace("-", "_"), __name__)


def measure(name: str, runs: int, seed: int = 0, n_jobs: int | None = None) -> dict[str, np.ndarray]:
    """Measures the figure of this name, and returns its arrays by name, each with the values of all random
    instances."""
    figure = load(name)
    found: dict[str, np.ndarray] = {}
    if hasattr(figure, "experiment"):
        found |= replicate(lambda rng: flat(figure.experiment(rng)), runs, seed, n_jobs, progress=True, name=name)
    if hasattr(figure, "together"):
        found |= flat(figure.together(runs, seed))
    if hasattr(figure, "once"):
        found |= {key: np.array([numbers]) for key, numbers in flat(figure.once()).items()}
    return found
