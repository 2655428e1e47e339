"""A scikit-learn classifier that trains attention."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from ..attention.data import Data
from ..attention.kinds import cross_attention
from ..training.output_head import LinearHead
from ..training.problem import Problem
from ..training.train import train
from .classes import sequences, two_classes


class AttentionClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of two classes by attention: ``sign(v . o)`` with ``o = X^T softmax(X W z)``.

    A table ``X (n, p)`` becomes p tokens per row.  Token j is ``(x_j, e_j)``, the feature and the one-hot code of its
    number; the query is the row with a 1 appended.  The softmax then gives the weight of each feature, row by row.
    This suits classes that different features decide in different rows.

    ``X (n, T, d)`` are tokens themselves.  The query is the first token of each sequence unless ``Z`` is given.

    Parameters
    ----------
    factors : int or None
        Number m of columns of K and Q, which are trained as ``W = K Q^T`` from random starts.  None: W itself is
        trained, from zero.
    train_head : bool
        Whether to train v together with the weights.  It starts as the least-squares fit of the labels by the tokens.
        If False, it stays as it starts.
    loss : {"logistic", "exponential"}
        Loss of ``u = y v . o``.  Probabilities exist for "logistic" only.
    lr : float
        Length of a step of normalised gradient descent.
    max_iter : int
        Number of steps.
    ridge : float
        Adds ``ridge * ||W||_F^2``, or ``ridge * (||K||_F^2 + ||Q||_F^2)``, to the mean loss.
    random_state : int, RandomState or None
        Seed of the start of K and Q.

    Attributes
    ----------
    classes_ : (2,) array
        The labels; a positive decision means the second.
    W_ : (d, dz) array
    K_, Q_ : (d, m), (dz, m) arrays or None
    v_ : (d,) array
    loss_curve_ : (records,) array
        Mean loss, about a hundred times during training.
    n_iter_ : int
    n_features_in_ : int
        p for a table, d for tokens.

    See Also
    --------
    TokenSelector : for sequences whose selected token is known.
    attsvm.train : training with all of its rules.

    Notes
    -----
    A table of p features needs memory for ``n p (p + 1)`` numbers.  Features must have comparable scales: use a
    ``StandardScaler`` first.  If one feature is much larger than the others, attention stays on it, and every row may
    get the class of the majority.

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.sklearn import AttentionClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 3))
    >>> y = np.where(np.abs(X[:, 0]) > np.abs(X[:, 1]), "wide", "tall")
    >>> model = AttentionClassifier(max_iter=500).fit(np.abs(X), y)
    >>> model.score(np.abs(X), y) > 0.95
    True
    >>> model.attention(np.abs(X)).shape  # which feature each row looks at
    (200, 3)
    """

    _parameter_constraints = {
        "factors": [Interval(Integral, 1, None, closed="left"), None],
        "train_head": ["boolean"],
        "loss": [StrOptions({"logistic", "exponential"})],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        factors: int | None = None,
        train_head: bool = True,
        loss: Literal["logistic", "exponential"] = "logistic",
        lr: float = 0.1,
        max_iter: int = 1000,
        ridge: float = 0.0,
        random_state: Any = None,
    ):
        self.factors = factors
        self.train_head = train_head
        self.loss = loss
        self.lr = lr
        self.max_iter = max_iter
        self.ridge = ridge
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike, *, Z: ArrayLike | None = None) -> AttentionClassifier:
        """Train attention and, unless ``train_head=False``, the head.

        Parameters
        ----------
        X : (n, p) or (n, T, d) array_like
        y : (n,) array_like
            Two labels of any kind.
        Z : (n, dz) array_like, optional
            Queries, for tokens only.  A Pipeline or a search passes them by metadata routing:
            ``set_fit_request(Z=True)``.

        Returns
        -------
        AttentionClassifier
            Itself.

        Raises
        ------
        ValueError
            For other than two classes, shapes that do not fit, and numbers that are not finite.
        """
        values, classes = validate_data(self, X, y, dtype=np.float64, allow_nd=True)
        self.classes_ = two_classes(classes)
        self._ndim = values.ndim
        data = self._data(values, Z)
        labels = np.where(classes == self.classes_[1], 1.0, -1.0)
        v = np.linalg.lstsq(data.values, np.repeat(labels, len(data.values) // len(labels)))[0]
        problem = Problem(data, labels, LinearHead(v), self.loss)
        start = {}
        if self.factors is not None:
            rng = check_random_state(self.random_state)
            # Entries have a standard deviation of 1 / sqrt(d), so that columns of K and Q have length about one.
            start = {k: rng.standard_normal((d, self.factors)) / d**0.5 for k, d in (("K", data.dk), ("Q", data.dz))}
        run = train(
            problem,
            **start,
            lr=self.lr,
            steps=self.max_iter,
            record=max(1, self.max_iter // 100),
            ridge=self.ridge,
            train_head=self.train_head,
        )
        self.W_, self.K_, self.Q_ = run.W, run.K, run.Q
        self.v_ = v if run.v is None else run.v
        self.loss_curve_, self.n_iter_ = run.loss, int(run.steps[-1])
        return self

    def decision_function(self, X: ArrayLike, *, Z: ArrayLike | None = None) -> np.ndarray:
        """``v . o`` of each row; positive for the second class.

        Parameters
        ----------
        X : (n, p) or (n, T, d) array_like
            As in :meth:`fit`; T may differ.
        Z : (n, dz) array_like, optional
            Queries, if :meth:`fit` had some.

        Returns
        -------
        (n,) array
        """
        return self.data(X, Z=Z).attended(self.W_) @ self.v_

    def predict(self, X: ArrayLike, *, Z: ArrayLike | None = None) -> np.ndarray:
        """The class of each row; parameters as in :meth:`decision_function`."""
        second = self.decision_function(X, Z=Z) > 0
        return self.classes_.take(second)

    @available_if(lambda self: self.loss == "logistic")
    def predict_proba(self, X: ArrayLike, *, Z: ArrayLike | None = None) -> np.ndarray:
        """Probabilities of both classes by the logistic loss, ``1 / (1 + exp(-v . o))`` for the second class.

        Parameters are those of :meth:`decision_function`.

        Returns
        -------
        (n, 2) array
        """
        u = self.decision_function(X, Z=Z)
        return np.exp(np.stack([-np.logaddexp(0.0, u), -np.logaddexp(0.0, -u)], axis=1))

    def attention(self, X: ArrayLike, *, Z: ArrayLike | None = None) -> np.ndarray:
        """The attention of each row on each of its tokens, which are the features of a table.

        Parameters
        ----------
        X, Z : as in :meth:`decision_function`

        Returns
        -------
        (n, p) or (n, T) array
            Rows sum to 1.
        """
        return self.data(X, Z=Z).probabilities(self.W_)

    def score(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, *, Z: ArrayLike | None = None
    ) -> float:
        """Share of rows whose class is predicted rightly; X and Z as in :meth:`decision_function`."""
        return accuracy_score(y, self.predict(X, Z=Z), sample_weight=sample_weight)

    def data(self, X: ArrayLike, *, Z: ArrayLike | None = None) -> Data:
        """The tokens and queries of these rows, for :func:`attsvm.solve_svm` or :func:`attsvm.diagnose`.

        Parameters
        ----------
        X, Z : as in :meth:`decision_function`

        Returns
        -------
        Data

        Examples
        --------
        The SVM of the tokens that the trained attention selects:

        >>> import attsvm
        >>> import numpy as np
        >>> from attsvm.sklearn import AttentionClassifier
        >>> X = np.random.default_rng(0).standard_normal((3, 4))
        >>> model = AttentionClassifier(max_iter=200).fit(X, [0, 1, 0])
        >>> attsvm.solve_svm(model.data(X), model.attention(X).argmax(axis=1)).status
        'optimal'
        """
        check_is_fitted(self)
        values = validate_data(self, X, dtype=np.float64, allow_nd=True, reset=False)
        if values.ndim != self._ndim:
            raise ValueError(f"X must have {self._ndim} dimensions as in fit, got shape {values.shape}")
        data = self._data(values, Z)
        if data._W_shape != self.W_.shape:
            raise ValueError(
                f"tokens and queries must have lengths {self.W_.shape} as in fit, got {data._W_shape}: "
                "give Z where fit had it, and only there"
            )
        return data

    def _data(self, X: np.ndarray, Z: Any) -> Data:
        if X.ndim == 2:
            if Z is not None:
                raise ValueError("Z goes with tokens X (n, T, d); the queries of a table are its rows")
            n, p = X.shape
            tokens = np.concatenate([X[:, :, None], np.broadcast_to(np.eye(p), (n, p, p))], axis=2)
            return cross_attention(tokens, np.c_[X, np.ones(n)])
        return sequences(X, Z)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.three_d_array = True
        return tags
