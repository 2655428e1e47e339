"""Attention heads that are read from PyTorch models, and attention and its SVM as functions of tensors.

``import attsvm`` does not import this module, since it needs PyTorch: write ``import attsvm.torch``.

>>> import attsvm.torch
>>> found = attsvm.torch.read(model, batches, tokenizer)       # doctest: +SKIP
>>> attsvm.heads.analyze_model(found)                          # doctest: +SKIP
"""

from ..heads.faithful import Faithfulness
from .cache import from_cache
from .faithfulness import faithfulness
from .functions import attention, solve_svm
from .monitor import Monitor
from .read import read
from .substitute import damage, substitute

__all__ = [
    "Faithfulness",
    "Monitor",
    "attention",
    "damage",
    "faithfulness",
    "from_cache",
    "read",
    "solve_svm",
    "substitute",
]
