"""A scikit-learn classifier: the hard-margin SVM."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.utils.validation import check_is_fitted, validate_data

from ..svm.separable import separable
from .classes import two_classes


class HardMarginClassifier(ClassifierMixin, BaseEstimator):
    """Hard-margin SVM of two linearly separable classes: ``min ||w||  s.t.  y (w . x + b) >= 1``, certified.

    It is what ``SVC(kernel="linear", C=inf)`` means.  :meth:`fit` raises an error if the classes are not linearly
    separable.

    Parameters
    ----------
    fit_intercept : bool
        Whether b is free; otherwise the plane passes through the origin.

    Attributes
    ----------
    classes_ : (2,) array
        The labels; a positive decision means the second.
    coef_ : (1, d) array
        w.
    intercept_ : (1,) array
        b.
    support_ : integer array
        Indices of the support points, those with positive multipliers.
    plane_ : attsvm.svm.separable.Plane
        The solution with its certificate: margin and bound, multipliers, ``influence()``, ``separation.prove(path)``.
    n_features_in_ : int

    See Also
    --------
    attsvm.separable : the same without scikit-learn; it returns a proof if there is no plane.

    Examples
    --------
    >>> from attsvm.sklearn import HardMarginClassifier
    >>> model = HardMarginClassifier().fit([[0.0], [1.0], [3.0]], ["a", "a", "b"])
    >>> model.support_, model.predict([[1.5], [2.5]])
    (array([1, 2]), array(['a', 'b'], dtype='<U1'))
    >>> HardMarginClassifier().fit([[0.0], [1.0], [1.0]], [0, 0, 1])
    Traceback (most recent call last):
    ValueError: not separable by a margin above 7.3e-16: points 2 and 1 are equal, to twice that, and have different
    labels
    """

    _parameter_constraints = {"fit_intercept": ["boolean"]}

    def __init__(self, *, fit_intercept: bool = True):
        self.fit_intercept = fit_intercept

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike, **unused: Any) -> HardMarginClassifier:
        """Finds the plane of largest margin.

        Parameters
        ----------
        X : (n, d) array_like or sparse matrix
        y : (n,) array_like
            Two labels of any kind.

        Returns
        -------
        HardMarginClassifier
            Itself.

        Raises
        ------
        ValueError
            If no plane separates the classes; the message is that of the certificate.  For other than two classes, and
            for numbers that are not finite.  For ``sample_weight``, since no weight changes a hard margin.
        """
        # scikit-learn would take a named parameter sample_weight as a sign that weights are supported
        if unused.pop("sample_weight", None) is not None:
            raise ValueError(
                "sample_weight must not be given: a hard margin must be met by every point, and weights do not change "
                "it; leave points of weight 0 out, or allow for exceptions with sklearn.svm.SVC"
            )
        if unused:
            raise TypeError(f"fit takes X and y, got {sorted(unused)}")
        values, classes = validate_data(self, X, y, dtype=np.float64, accept_sparse=["csr", "csc"])
        self.classes_ = two_classes(classes)
        plane = separable(values, classes, bias=self.fit_intercept)
        if plane.w is None:
            raise ValueError(plane.message)
        self.plane_, self.support_ = plane, plane.support
        self.coef_, self.intercept_ = plane.w[None], np.array([plane.b])
        return self

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Share of rows whose class is predicted rightly."""
        return float(super().score(X, y, sample_weight=sample_weight))

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """``w . x + b`` of each row; positive for the second class.

        Parameters
        ----------
        X : (m, d) array_like or sparse matrix

        Returns
        -------
        (m,) array
        """
        check_is_fitted(self)
        values = validate_data(self, X, dtype=np.float64, accept_sparse=["csr", "csc"], reset=False)
        return self.plane_.decision_function(values)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The class of each row; parameters as in :meth:`decision_function`."""
        second = self.decision_function(X) > 0
        return self.classes_.take(second)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags
