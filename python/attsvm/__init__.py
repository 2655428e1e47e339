"""attsvm: softmax attention trained, its max-margin problem solved, both certified.

Letters: X (n, T, d) tokens, Z (n, dz) queries, y (n,) labels, v (dv,) head, W (dk, dz) weights, K (dk, m) and
Q (dz, m) factors with W = K Q^T; logits are x^T W z.
"""

import importlib as _importlib
import logging as _logging
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from . import plot, sample
from .attention.data import Data
from .attention.kinds import causal_attention, cross_attention, prompt_attention, self_attention
from .common.config import __version__ as __version__
from .common.config import get_num_threads, set_num_threads, show_config
from .common.replicated import Replicated
from .common.replication import replicate
from .common.storage import load
from .common.storage import storable_later as _storable_later
from .next_token import NextToken, identifiable, next_token
from .soft_labels import SoftLabels, soft_labels
from .svm.separable import Plane, separable
from .svm.separation import Separation
from .svm.solve import ConvergenceWarning, feasible, solve_svm
from .theory import limit as _limit  # noqa: F401  (enters what Run.limit asks)
from .theory.conditions import correlation, is_locally_optimal
from .theory.diagnose import diagnose
from .theory.diagnosis import Diagnosis
from .theory.joint import label_svm, relaxed_margins
from .theory.margin_share import margin_share
from .theory.regularization_path import Path, regularization_path
from .theory.token_sets import Decomposition, decompose, selected_sets, tokens_kept
from .training.gradient import Gradient
from .training.output_head import CallableHead, LinearHead, MLPHead, QuadraticHead
from .training.problem import Problem
from .training.run import Run
from .training.softmax_head import SoftmaxHead
from .training.train import train

if _TYPE_CHECKING:
    from . import heads

_logging.getLogger(__name__).addHandler(_logging.NullHandler())  # silent until the user asks


__all__ = [
    "CallableHead",
    "ConvergenceWarning",
    "Data",
    "Decomposition",
    "Diagnosis",
    "Gradient",
    "LinearHead",
    "MLPHead",
    "NextToken",
    "Path",
    "Plane",
    "Problem",
    "QuadraticHead",
    "Replicated",
    "Run",
    "Separation",
    "SoftLabels",
    "SoftmaxHead",
    "causal_attention",
    "correlation",
    "cross_attention",
    "decompose",
    "diagnose",
    "feasible",
    "get_num_threads",
    "heads",
    "identifiable",
    "is_locally_optimal",
    "label_svm",
    "load",
    "margin_share",
    "next_token",
    "plot",
    "prompt_attention",
    "regularization_path",
    "relaxed_margins",
    "replicate",
    "sample",
    "selected_sets",
    "self_attention",
    "separable",
    "set_num_threads",
    "show_config",
    "soft_labels",
    "solve_svm",
    "tokens_kept",
    "train",
]


def __getattr__(name: str) -> _Any:
    if name == "heads":  # a third of the time that importing everything takes, for readers of models alone
        return _importlib.import_module(".heads", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_storable_later(lambda: __getattr__("heads"))


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
