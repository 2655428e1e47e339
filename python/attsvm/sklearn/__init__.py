"""scikit-learn estimators: a classifier that attends, the hard-margin SVM, and the SVM of a token selection.

Imported by hand (``import attsvm.sklearn``), since it needs scikit-learn.
"""

from .classifier import AttentionClassifier
from .hard_margin import HardMarginClassifier
from .selector import TokenSelector

__all__ = ["AttentionClassifier", "HardMarginClassifier", "TokenSelector"]
