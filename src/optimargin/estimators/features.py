"""Features of landmarks for any other estimator: a drop-in for scikit-learn's Nystroem."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from optimargin.kernels import make_kernel
from optimargin.landmarks import Landmarks, centre_of, moved
from optimargin.loss import odm
from optimargin.memory import limit_in_bytes
from optimargin.problem import Problem
from optimargin.sketch import Sketch
from optimargin.solvers.place import HOW, Wish, landmarks_of
from optimargin.threads import blas_threads, spans, spread

_BLOCK = 1 << 20  # kernel values in a block


class LandmarkFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Features whose inner products approximate a kernel, from a few landmarks.

    phi(x) = L^{-1} k(Z, x) with landmarks Z and K(Z, Z) = L L'.  The features of
    ``ODMClassifier(solver="landmark")``; names and meaning of the arguments are those of
    scikit-learn's Nystroem, whose features they equal up to a rotation where the landmarks
    are the same.

    Parameters
    ----------
    kernel : {"rbf", "linear", "laplacian", "poly", "sigmoid"} or callable, default="rbf"
        A callable takes two matrices of rows and returns the matrix of kernel values.
    gamma : float, optional
        Coefficient of rbf, laplacian, poly and sigmoid; None is 1 / n_features.
    coef0 : float, default=1.0
        Constant in poly and sigmoid.
    degree : float, default=3
        Degree of poly.
    n_components : int, default=100
        Number of landmarks; no more than there are rows.
    landmarks : {"auto", "margin", "greedy", "random", "kmeans"} or array-like, default="auto"
        Which rows become landmarks; see `ODMClassifier`.  "margin" needs class labels;
        "auto" is "margin" where ``fit`` is given some, and else "random".
    random_state : int, RandomState or None
        Decides the landmarks.
    n_jobs : int, optional
        Threads; None means all cores.

    Attributes
    ----------
    components_ : ndarray or CSR matrix of shape (n_components, n_features)
        The landmarks.
    component_indices_ : ndarray of shape (n_components,)
        Their row numbers; -1 for one that is no row.
    factor_ : ndarray of shape (n_components, n_components)
        The triangular matrix L.
    gamma_ : float
    residual_ : float
        The share of the kernel matrix's trace that the features leave out, on a sample of the
        training rows.
    n_features_in_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from optimargin import LandmarkFeatures
    >>> X, y = load_digits(return_X_y=True)
    >>> features = LandmarkFeatures(gamma=0.001, n_components=200, random_state=0)
    >>> model = make_pipeline(features, LogisticRegression(C=10, max_iter=1000)).fit(X, y)
    >>> model.score(X, y) > 0.97
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernel": [StrOptions({"rbf", "linear", "laplacian", "poly", "sigmoid"}), callable],
        "gamma": [Interval(Real, 0, None, closed="left"), None],
        "coef0": [Interval(Real, None, None, closed="neither")],
        "degree": [Interval(Real, 0, None, closed="left")],
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "landmarks": [StrOptions({"auto", *HOW}), "array-like"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        *,
        kernel: str | Callable[[Any, Any], Any] = "rbf",
        gamma: float | None = None,
        coef0: float = 1.0,
        degree: float = 3,
        n_components: int = 100,
        landmarks: Any = "auto",
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.coef0 = coef0
        self.degree = degree
        self.n_components = n_components
        self.landmarks = landmarks
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose the landmarks.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows to choose from.
        y : array-like of shape (n_samples,), optional
            Class labels, for landmarks="margin".

        Returns
        -------
        self
        """
        self._validate_params()
        y = None if y is None else np.asarray(y)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], order="C")
        self.gamma_ = 1.0 / X.shape[1] if self.gamma is None else float(self.gamma)
        kernel = make_kernel(self.kernel, self.gamma_, self.degree, self.coef0)
        wish = Wish(kernel, int(self.n_components), self._how(X, y), X.dtype, limit_in_bytes(None))
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        with blas_threads(1):
            landmarks = landmarks_of(self._problem(X, y), wish, np.random.default_rng(seed))[0]
        self.components_, self.component_indices_ = landmarks.Z, landmarks.index
        self.factor_ = landmarks.factor
        self._n_features_out = len(landmarks)
        nothing = np.empty((0, len(landmarks)), dtype=X.dtype)
        self.residual_ = Sketch(landmarks, X, nothing, 1).left_out
        return self

    def _how(self, X: Any, y: Any) -> Any:
        if not isinstance(self.landmarks, str):
            return check_array(
                self.landmarks, accept_sparse="csr", dtype=X.dtype, input_name="landmarks"
            )
        if self.landmarks == "margin" and y is None:
            raise ValueError("landmarks='margin' needs class labels: pass y to fit.")
        if self.landmarks == "auto":
            return "random" if y is None or not _is_classes(y) else "margin"
        return self.landmarks

    def _problem(self, X: Any, y: Any) -> Problem:
        """The machine that tells which rows pull: one with the settings of `ODMClassifier`."""
        n = X.shape[0]
        threads = effective_n_jobs(-1 if self.n_jobs is None else self.n_jobs)
        classes, code = np.unique(np.zeros(n) if y is None else y, return_inverse=True)
        loss = odm(n * 0.9**2, 0.5, 0.1, n)
        return Problem(X, code, None, loss, classes=max(len(classes), 2), threads=threads)

    def transform(self, X: Any) -> np.ndarray:
        """Features of rows.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        kernel, Z = make_kernel(self.kernel, self.gamma_, self.degree, self.coef0), self.components_
        centre = centre_of(kernel, Z)
        near = moved(Z, centre, X.dtype)
        landmarks = Landmarks(kernel, Z, self.component_indices_, 0.0, centre, near, self.factor_)
        out = np.empty((X.shape[0], len(landmarks)), dtype=X.dtype)

        def task(part: slice) -> None:
            out[part] = landmarks.features(landmarks.values(X[part]))

        threads = effective_n_jobs(-1 if self.n_jobs is None else self.n_jobs)
        with blas_threads(1):
            spread(task, spans(len(out), max(64, _BLOCK // len(landmarks))), threads)
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _is_classes(y: np.ndarray) -> bool:
    """Whether labels are those of classes, rather than numbers to predict."""
    try:
        check_classification_targets(y)
    except ValueError:
        return False
    return y.ndim == 1
