"""scikit-learn estimators: a classifier that attends, and the SVM of a token selection.

Imported by hand (``import attsvm.sklearn``), since it needs scikit-learn.
"""

from .classifier import AttentionClassifier
from .selector import TokenSelector

__all__ = ["AttentionClassifier", "TokenSelector"]
