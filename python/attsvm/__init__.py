"""attsvm: softmax attention trained, its max-margin problem solved, both certified.

Letters: X (n, T, d) tokens, Z (n, dz) queries, y (n,) labels, v (dv,) head, W (dk, dz) weights, K (dk, m) and
Q (dz, m) factors with W = K Q^T; logits are x^T W z.
"""

from . import heads, plot, sample
from .config import set_num_threads, show_config
from .data import Data, causal_attention, cross_attention, prompt_attention, self_attention
from .diagnosis import diagnose
from .output import CallableHead, LinearHead, MLPHead, QuadraticHead
from .path import Path, regularization_path
from .problem import Gradient, Problem
from .replication import replicate
from .run import Run
from .separation import Separation
from .several import Decomposition, decompose, selected_sets, tokens_kept
from .svm import ConvergenceWarning, feasible, solve_svm
from .theory import correlation, is_locally_optimal
from .train import train
from .verdict import Diagnosis

__version__ = "0.1.0"

__all__ = [
    "CallableHead",
    "ConvergenceWarning",
    "Data",
    "Decomposition",
    "Diagnosis",
    "Gradient",
    "LinearHead",
    "MLPHead",
    "Path",
    "Problem",
    "QuadraticHead",
    "Run",
    "Separation",
    "causal_attention",
    "correlation",
    "cross_attention",
    "decompose",
    "diagnose",
    "feasible",
    "heads",
    "is_locally_optimal",
    "plot",
    "prompt_attention",
    "regularization_path",
    "replicate",
    "sample",
    "selected_sets",
    "self_attention",
    "set_num_threads",
    "show_config",
    "solve_svm",
    "tokens_kept",
    "train",
]
