"""A scikit-learn estimator: the SVM of a token selection."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..attention.data import Data
from ..common.types import Method, Norm
from ..svm.solve import solve_svm
from .classes import sequences


class TokenSelector(BaseEstimator):
    """Learns the selected token of a sequence: the least W with ``(x_a - x_t)^T W z >= 1`` for the selected a.

    This is the certified attention SVM of :func:`attsvm.solve_svm` as an estimator.  It is fitted on sequences whose
    selected tokens are known, and selects a token of new sequences.

    Parameters
    ----------
    norm : {"frobenius", "nuclear"} or float p > 1
    C : float or None
        Weight of a soft margin: ``min 1/2 ||W||_F^2 + C sum slack^2``.  None: hard margin; :meth:`fit` raises an error
        if no W meets it.
    rank : int or None
        Largest rank of W, for the nuclear norm only.
    tol : float
        Largest relative gap of the certified bounds.
    method : str
        As in :func:`attsvm.solve_svm`.

    Attributes
    ----------
    W_ : (d, dz) array
    separation_ : Separation
        The solution with its certificate: margin interval, dual, support tokens.
    n_features_in_ : int
        Length d of a token.

    See Also
    --------
    AttentionClassifier : for sequences with known classes and unknown selected tokens.
    attsvm.Separation : the certificate.

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.sklearn import TokenSelector
    >>> X, Z, y, v = attsvm.sample.unit_sphere(6, 8, 10)
    >>> model = TokenSelector().fit(X, [0, 1, 2, 3, 4, 5], Z=Z)
    >>> model.predict(X, Z=Z)
    array([0, 1, 2, 3, 4, 5])
    >>> model.separation_.status
    'optimal'
    """

    def __init__(
        self,
        *,
        norm: Norm = "frobenius",
        C: float | None = None,
        rank: int | None = None,
        tol: float = 1e-9,
        method: Method = "auto",
    ):
        self.norm = norm
        self.C = C
        self.rank = rank
        self.tol = tol
        self.method = method

    def fit(self, X: Any, selected: ArrayLike, *, Z: Any = None) -> TokenSelector:
        """Finds the least W that selects the given tokens, by solving the SVM.

        Parameters
        ----------
        X : (n, T, d) array_like, or list of n (T_i, d) array_likes
            Tokens.
        selected : (n,) integer array_like, or (n, T) bool array_like
            The token that each sequence selects; or for each token whether it is selected, if several tokens are
            (their logits are then equal).
        Z : (n, dz) array_like, optional
            Queries, by default the first token of each sequence.  A Pipeline or a search passes them by metadata
            routing: ``set_fit_request(Z=True)``.

        Returns
        -------
        TokenSelector
            Itself.

        Raises
        ------
        ValueError
            If no W selects these tokens; the message says why.  Then set C.
        """
        if selected is None:
            raise ValueError(
                "This TokenSelector estimator requires y to be passed, but the target y is None: one token a sequence"
            )
        data = sequences(X, Z)
        found = solve_svm(data, selected, self.norm, tol=self.tol, method=self.method, C=self.C, rank=self.rank)
        if found.W is None:
            raise ValueError(f"no W selects these tokens: {found.message}")
        self.n_features_in_ = data.dk
        self.separation_, self.W_ = found, found.W
        return self

    def decision_function(self, X: Any, *, Z: Any = None) -> Any:
        """Logit ``x^T W z`` of every token.

        Parameters
        ----------
        X : (n, T, d) array_like, or list of n (T_i, d) array_likes
        Z : (n, dz) array_like, optional
            As in :meth:`fit`.

        Returns
        -------
        (n, T) array, or a list of (T_i,) arrays
        """
        return self._new_data(X, Z).logits(self.W_)

    def predict(self, X: Any, *, Z: Any = None) -> np.ndarray:
        """The token with the largest logit of each sequence, the lowest index on a tie; parameters as in
        :meth:`decision_function`."""
        return self._new_data(X, Z).select(self.W_)

    def score(self, X: Any, selected: ArrayLike, *, Z: Any = None) -> float:
        """Share of sequences whose predicted token is selected; parameters as in :meth:`fit`."""
        predicted, chosen = self.predict(X, Z=Z), np.asarray(selected)
        right = chosen[np.arange(len(chosen)), predicted] if chosen.dtype == bool else chosen == predicted
        return float(right.mean())

    def _new_data(self, X: Any, Z: Any) -> Data:
        check_is_fitted(self)
        data = sequences(X, Z)
        if data._W_shape != self.W_.shape:
            raise ValueError(
                f"X has {data.dk} features, but TokenSelector is expecting {self.W_.shape[0]} features as input; "
                f"queries must have length {self.W_.shape[1]}, got {data.dz}: give Z where fit had it, and only there"
            )
        return data

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.two_d_array = False
        tags.target_tags.required = True
        return tags
