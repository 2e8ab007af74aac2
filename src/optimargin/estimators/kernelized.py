"""What classifiers with a kernel share: an expansion over rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from sklearn.utils._param_validation import Interval, StrOptions

from optimargin.arrays import brought, is_foreign, on_host, taken
from optimargin.device import beside
from optimargin.estimators.classifier import MarginClassifier, Scores
from optimargin.expansion import Expansion
from optimargin.gram import Gram, make_gram, part, precision
from optimargin.kernelmatrix import make_matrix
from optimargin.kernels import Kernel, make_kernel
from optimargin.memory import limit_in_bytes
from optimargin.problem import Problem, Start
from optimargin.solvers.passes import moments

KERNELS = ("linear", "rbf", "laplacian", "poly", "sigmoid", "precomputed")
DTYPES = {"auto": None, "half": "float16", "single": "float32", "double": "float64"}
_READY: WeakKeyDictionary[Any, Expansion] = WeakKeyDictionary()  # of classifiers that predicted
WITH_GAMMA = ("rbf", "laplacian", "poly", "sigmoid")


class KernelClassifier(MarginClassifier):
    """Kernel values for the solvers, and an expansion over rows from them."""

    kernel: str | Callable[[Any, Any], Any]
    gamma: float | str
    degree: float
    coef0: float

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **MarginClassifier._parameter_constraints,
        "kernel": [StrOptions(set(KERNELS)), callable],
        "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0, None, closed="left")],
        "degree": [Interval(Real, 0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
    }

    def _check_rows(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        X, y = super()._check_rows(X, y)
        if self.kernel == "precomputed":
            if X.shape[0] != X.shape[1]:
                raise ValueError(
                    "X must be a square matrix of kernel values between the training rows when"
                    f" kernel='precomputed'; got shape {X.shape}."
                )
            X = X.toarray() if sp.issparse(X) else X
        return X, y

    def _data(self, X: Any, weight: np.ndarray | None, threads: int) -> dict[str, Any]:
        self.gamma_ = number_of_gamma(self.gamma, X, weight)
        bias, limit = float(self.fit_intercept), limit_in_bytes(self.memory_limit)
        if is_foreign(beside(X)):
            return {"bias": bias, "gram": make_matrix(self._kernel(), X, bias, self._asked_dtype)}
        gram = make_gram(self._kernel(), X, bias, limit, threads, self._keeps)
        return {"bias": bias, "gram": gram}

    @property
    def _asked_dtype(self) -> str | None:
        """The precision of kernel values that was asked for, if any."""
        return DTYPES[getattr(self, "precision", "auto")]

    @property
    def _keeps(self) -> bool:
        """Whether kernel values of all rows are kept while training."""
        return True

    def _kernel(self) -> Kernel:
        return self._kernel_of(self.gamma_)

    def _kernel_of(self, gamma: float) -> Kernel:
        return make_kernel(self.kernel, gamma, self.degree, self.coef0)

    def _attributes(self, whole: Problem, points: Any) -> dict[str, Any]:
        B, X, gram = np.vstack([on_host(p.coef) for p in points]), whole.X, whole.gram
        assert gram is not None
        if whole.weight is not None:
            B[:, on_host(whole.weight) == 0.0] = 0.0
        support = np.flatnonzero(B.any(axis=0))
        given = self.kernel == "precomputed"
        rows = np.empty((0, 0), X.dtype) if given else on_rows(X, support)
        found = self._expansion(support, rows, B[:, support], gram.dtype)
        return {**found, "kernel_shift_": gram.shift}

    def _expansion(self, index: np.ndarray, rows: Any, B: np.ndarray, dtype: Any) -> dict[str, Any]:
        """The attributes of an expansion over rows, whose kernel values are of that type."""
        return {
            "support_": index,
            "support_vectors_": rows,
            "dual_coef_": B,
            "intercept_": B.sum(axis=1) * float(self.fit_intercept) ** 2,
            "classes_": self.classes_,
            "n_features_in_": self.n_features_in_,
            "kernel_shift_": 0.0,
            "kernel_dtype_": np.dtype(dtype).name,
            "gamma_": self.gamma_,
        }

    def _fitting_start(self, start: Start, X: Any) -> Start:
        fits = start.coef is not None and start.coef.shape[-1] == X.shape[0]
        return start if fits else Start()

    def _scores(self, X: Any) -> np.ndarray:
        if self.kernel == "precomputed":
            return X[:, self.support_] @ self.dual_coef_.T + self.intercept_
        threads = effective_n_jobs(-1 if self.n_jobs is None else self.n_jobs)
        return self._ready().scores(X, threads) + brought(self.intercept_, X)

    def _ready(self) -> Expansion:
        """The expansion; what it prepares for its first scores serves the next ones too."""
        known, Z, B = _READY.get(self), self.support_vectors_, self.dual_coef_
        kernel = self._kernel()
        if known is None or known.Z is not Z or known.B is not B or known.kernel != kernel:
            known = Expansion(kernel, Z, B, np.dtype(self.kernel_dtype_))
            _READY[self] = known
        return known

    def _footprint(self, X: Any, rows: int) -> float:
        return float(rows) * X.shape[0] * np.dtype(precision(self._kernel_of(1.0), X)).itemsize

    def _shared(self, X: Any, limit: int, threads: int) -> Gram | None:
        """The kernel matrix of all rows, if it does not depend on who is in a fold."""
        if self.gamma == "scale" and self.kernel in WITH_GAMMA:
            return None
        self.gamma_ = number_of_gamma(self.gamma, X, None)
        return make_gram(self._kernel(), X, float(self.fit_intercept), limit, threads)

    def _cut(self, shared: Gram, rows: np.ndarray) -> dict[str, Any]:
        return {"bias": shared.bias, "gram": part(shared, rows)}

    def _scores_on(self, whole: Problem, X: Any, values: np.ndarray | None) -> Scores | None:
        gram = whole.gram
        assert gram is not None
        if values is None and self.kernel == "precomputed":
            values = X
        if values is None:
            if self._footprint(whole.X, X.shape[0]) > gram.spare:
                return None
            values = self._kernel().block(X, whole.X)
        return lambda B: values @ B.T + B.sum(axis=1) * gram.bias**2

    @property
    def coef_(self) -> np.ndarray:
        """Weights in feature space, for a linear kernel."""
        if self.kernel != "linear":
            raise AttributeError("coef_ is available with kernel='linear' only.")
        W = self.dual_coef_ @ self.support_vectors_
        return W.toarray() if sp.issparse(W) else W

    @property
    def n_support_(self) -> int:
        """Number of support rows."""
        return len(self.support_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


def on_rows(X: Any, rows: np.ndarray) -> Any:
    """Rows by number, as NumPy's."""
    found = taken(X, rows)
    return on_host(found) if is_foreign(found) else found


def number_of_gamma(gamma: float | str, X: Any, weight: np.ndarray | None) -> float:
    """The number that gamma stands for on these rows; weights count as repetitions."""
    return gamma_of(gamma, X.shape[1], partial(moments, X, weight))


def gamma_of(gamma: float | str, d: int, found: Callable[[], tuple[float, float, float]]) -> float:
    """The number that gamma stands for on rows of d features with those `moments`."""
    if gamma == "auto":
        return 1.0 / d
    if gamma == "scale":
        weight, total, squares = found()
        mean, variance = total / (weight * d), squares / (weight * d) - (total / (weight * d)) ** 2
        return 1.0 / (d * variance) if variance > 1e-12 * mean**2 else 1.0
    return float(gamma)
