"""Attention heads of a trained transformer, analysed as support vector machines.

>>> import attsvm.torch                                           # doctest: +SKIP
>>> found = attsvm.torch.read(model, batches, tokenizer)          # doctest: +SKIP
>>> attsvm.heads.analyze_head(found[20])                          # doctest: +SKIP
"""

from .analysis import analyze_head, analyze_model
from .arrays import from_arrays
from .choices import hard_queries
from .fit import Fit
from .head import Head
from .pictures import plot_sequence
from .report import HeadReport, Reports, results_table
from .sequences import Text, example_sentences, read_sentences
from .steps import measure, plot_training, read_training
from .view import View, view
from .why import Why, why

__all__ = [
    "Fit",
    "Head",
    "HeadReport",
    "Reports",
    "Text",
    "View",
    "Why",
    "analyze_head",
    "analyze_model",
    "example_sentences",
    "from_arrays",
    "hard_queries",
    "measure",
    "plot_sequence",
    "plot_training",
    "read_sentences",
    "read_training",
    "results_table",
    "view",
    "why",
]


def __dir__() -> list[str]:
    return sorted(__all__)
