"""Theory that relates training to the SVM: conditions on a dataset, several selected tokens, next tokens, stacked
layers."""

from .conditions import is_locally_optimal, margin_share
from .diagnosis import Diagnosis
from .hierarchy import Stack, hierarchy, train_stack
from .joint import label_svm, relaxed_margins
from .next_tokens import Identifiability, NextToken, SoftLabels, identifiable, next_token, soft_labels
from .random_tokens import capacity
from .regularization_path import Path
from .token_sets import Decomposition, decompose, selected_sets, tokens_kept

__all__ = [
    "Decomposition",
    "Diagnosis",
    "Identifiability",
    "NextToken",
    "Path",
    "SoftLabels",
    "Stack",
    "capacity",
    "decompose",
    "hierarchy",
    "identifiable",
    "is_locally_optimal",
    "label_svm",
    "margin_share",
    "next_token",
    "relaxed_margins",
    "selected_sets",
    "soft_labels",
    "tokens_kept",
    "train_stack",
]
