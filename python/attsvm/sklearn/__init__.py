"""scikit-learn estimators: a classifier by attention, the hard-margin SVM, and the SVM of a token selection.

``import attsvm`` does not import this module, since it needs scikit-learn: write ``import attsvm.sklearn``.
"""

from .classifier import AttentionClassifier
from .hard_margin import HardMarginClassifier
from .selector import TokenSelector

__all__ = ["AttentionClassifier", "HardMarginClassifier", "TokenSelector"]
