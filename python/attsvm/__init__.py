"""attsvm: trains softmax attention, solves the max-margin problem that it converges to, and certifies both.

Notation: X (n, T, d) tokens, Z (n, dz) queries, y (n,) labels, v (dv,) head, W (dk, dz) weights, K (dk, m) and
Q (dz, m) factors with W = K Q^T; logits are x^T W z.

The examples in the docstrings assume these lines:

>>> import attsvm
>>> import numpy as np
>>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
>>> data = attsvm.cross_attention(X, Z)
>>> problem = attsvm.Problem(data, y, attsvm.LinearHead(v))
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from . import plot, rules, sample, theory
from .attention.data import Data
from .attention.kinds import causal_attention, cross_attention, prompt_attention, self_attention
from .claims import Claim, claim
from .common.replication import replicate
from .common.storage import late as _late
from .common.storage import load
from .common.threads import __version__ as __version__
from .common.threads import get_num_threads, set_num_threads, show_config
from .svm.separable import separable
from .svm.separation import Separation
from .svm.solve import ConvergenceWarning, feasible, solve_svm
from .theory import limit as _limit  # noqa: F401  # importing this module sets the functions that Run.limit calls
from .theory.conditions import correlation
from .theory.diagnosis import diagnose
from .theory.regularization_path import regularization_path
from .training.output_head import CallableHead, LinearHead, MLPHead, QuadraticHead, SoftmaxHead
from .training.problem import Problem
from .training.run import Run
from .training.train import train

if _TYPE_CHECKING:
    from . import heads


__all__ = [
    "CallableHead",
    "Claim",
    "ConvergenceWarning",
    "Data",
    "LinearHead",
    "MLPHead",
    "Problem",
    "QuadraticHead",
    "Run",
    "Separation",
    "SoftmaxHead",
    "causal_attention",
    "claim",
    "correlation",
    "cross_attention",
    "diagnose",
    "feasible",
    "get_num_threads",
    "heads",
    "load",
    "plot",
    "prompt_attention",
    "regularization_path",
    "replicate",
    "rules",
    "sample",
    "self_attention",
    "separable",
    "set_num_threads",
    "show_config",
    "solve_svm",
    "theory",
    "train",
]

# Names that once were public in attsvm, and the modules that have them now; for the error message.
_MOVED = {"Gradient": "training.gradient", "Plane": "svm.separable", "Replicated": "common.replicated"}


def __getattr__(name: str) -> _Any:
    if name == "heads":  # heads is imported on demand: it takes a third of the time of importing everything
        return _importlib.import_module(".heads", __name__)
    place = "theory" if name in theory.__all__ else _MOVED.get(name)
    now = "" if place is None else f": it is {__name__}.{place}.{name} now"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{now}")


_late.append(lambda: __getattr__("heads"))


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
