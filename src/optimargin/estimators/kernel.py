"""The kernel classifier: an expansion over the training rows."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval, StrOptions

from optimargin.estimators.classifier import MarginClassifier, Scores
from optimargin.gram import Gram, make_gram, part, precision
from optimargin.kernels import Kernel, make_kernel
from optimargin.memory import limit_in_bytes
from optimargin.problem import Problem, Start
from optimargin.rows import sqnorms
from optimargin.solvers.choose import KERNEL
from optimargin.threads import spans

KERNELS = ("linear", "rbf", "laplacian", "poly", "sigmoid", "precomputed")
WITH_GAMMA = ("rbf", "laplacian", "poly", "sigmoid")
_BLOCK = 1 << 22  # kernel values held at a time in prediction


class ODMClassifier(MarginClassifier):
    """Optimal margin distribution machine with a kernel.

    Minimises, over functions f = sum_j b_j K(x_j, .) of the kernel's space::

        1/2 |f|^2 + lam / (n (1-theta)^2) sum_i s_i [(1-theta-u_i)_+^2 + mu (u_i-1-theta)_+^2]

    where u_i = y_i f(x_i) is the margin of row i, s_i its weight and n the sum of the
    sample weights.  ``mu=0, theta=0`` is the squared-hinge SVM.

    Parameters
    ----------
    kernel : {"rbf", "linear", "laplacian", "poly", "sigmoid", "precomputed"} or callable
        A callable takes two matrices of rows and returns the matrix of kernel values.
    lam : float or "scale", default="scale"
        Weight of the losses, summed over the data: the inverse of regularisation.
        "scale" is n (1-theta)^2, which gives every row's loss the weight 1, as C=1 does in
        scikit-learn's SVMs; ``lam_`` tells the number.
    mu : float, default=0.5
        Weight of margins above 1 + theta, relative to margins below 1 - theta.
    theta : float, default=0.1
        Half-width of the band around 1 in which a margin costs nothing; in [0, 1).
    gamma : {"scale", "auto"} or float, default="scale"
        Coefficient of rbf, laplacian, poly and sigmoid; "scale" is
        1 / (n_features * X.var()), "auto" is 1 / n_features.
    degree : float, default=3
        Degree of poly.
    coef0 : float, default=0.0
        Constant in poly and sigmoid.
    solver : {"auto", "dcd", "newton"}, default="auto"
        Dual coordinate descent or Newton; ``solver_`` tells what "auto" chose.
    multi_class : {"mcodm", "mcodm-paper", "ovr", "ovo"}, default="mcodm"
        What more than two classes become.

        - "mcodm": one machine, whose margins are the own score minus the runner-up's.
          With mu > 0 its objective is not convex: a series of convex problems leads to a
          point that none of them improves, and the certificate is that of the last.
        - "mcodm-paper": the same with the outer loop of the mcODM paper, a heuristic.
        - "ovr": every class against the rest.
        - "ovo": every class against every other, one vote each.
    fit_intercept : bool, default=False
        Whether to add a constant feature of value 1, penalised as the others are.  The
        machines of the papers have none; linear and poly kernels on data that is not
        centred want one.
    class_weight : dict or "balanced", optional
        Factors on the losses of each class.
    tol : float, default=1e-3
        Relative duality gap at which to stop.
    max_iter : int, default=1000
        Most rounds (epochs or Newton steps) of the solver.
    time_limit : float, optional
        Seconds after which to stop with the best answer so far.
    warm_start : bool, default=False
        Continue from the last fit, if it had the same rows.
    memory_limit : float or str, optional
        Bytes, or text such as "2GB", for kernel values kept during training; None means
        half of the memory that is free.  What does not fit is computed again.
    n_jobs : int, optional
        Threads; None means all cores.
    random_state : int, RandomState or None
        Decides the order of the rows.
    verbose : int, default=0
        Above 0, one live line of progress.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Coefficients b of the support rows.
    support_ : ndarray of shape (n_support,)
        Training rows with a nonzero coefficient.
    support_vectors_ : ndarray or CSR matrix of shape (n_support, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    gamma_ : float
        The number that ``gamma`` stood for.
    kernel_shift_ : float
        What was added to the diagonal of the kernel matrix, because it had negative
        eigenvalues (sigmoid, callable and precomputed kernels may); else 0.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights in feature space; with ``kernel="linear"`` only.
    classes_ : ndarray of shape (n_classes,)
    lam_ : float
        The number that ``lam`` stood for.
    objective_ : float, or ndarray of shape (n_classes,)
        The value of the objective above.
    dual_gap_ : float, or ndarray of shape (n_classes,)
        Relative duality gap: the objective is at most that far above the optimum.
    loo_bound_ : float, or ndarray of shape (n_classes,)
        Theorem 3 of the ODM paper: an estimate from above of the leave-one-out error, which
        may exceed 1 and, where many margins are just above 1 + theta, fall short.
    loo_count_ : float, or ndarray of shape (n_classes,)
        A share of rows that the leave-one-out error never exceeds at the optimum.
    n_iter_ : int
    status_ : str
        "converged", "max_iter", "time_limit", "callback", "precision" or "indefinite".
    solver_ : str
    history_ : dict of ndarrays
        Columns machine, round, objective, gap and time.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from optimargin import ODMClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), ODMClassifier()).fit(X, y)
    >>> round(model.score(X, y), 2)
    0.99
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **MarginClassifier._parameter_constraints,
        "kernel": [StrOptions(set(KERNELS)), callable],
        "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0, None, closed="left")],
        "degree": [Interval(Real, 0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
        "solver": [StrOptions(set(KERNEL))],
    }

    def __init__(
        self,
        *,
        kernel: str | Callable[[Any, Any], Any] = "rbf",
        lam: float | str = "scale",
        mu: float = 0.5,
        theta: float = 0.1,
        gamma: float | str = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        solver: str = "auto",
        multi_class: str = "mcodm",
        fit_intercept: bool = False,
        class_weight: Any = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        time_limit: float | None = None,
        warm_start: bool = False,
        memory_limit: float | str | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.lam = lam
        self.mu = mu
        self.theta = theta
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.solver = solver
        self.multi_class = multi_class
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.warm_start = warm_start
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

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
        self.gamma_ = _gamma(self.gamma, X, weight)
        bias, limit = float(self.fit_intercept), limit_in_bytes(self.memory_limit)
        return {"bias": bias, "gram": make_gram(self._kernel(), X, bias, limit, threads)}

    def _kernel(self) -> Kernel:
        return self._kernel_of(self.gamma_)

    def _kernel_of(self, gamma: float) -> Kernel:
        return make_kernel(self.kernel, gamma, self.degree, self.coef0)

    def _attributes(self, whole: Problem, points: Any) -> dict[str, Any]:
        B, X, gram = np.vstack([p.coef for p in points]), whole.X, whole.gram
        assert gram is not None
        if whole.weight is not None:
            B[:, whole.weight == 0.0] = 0.0
        support = np.flatnonzero(B.any(axis=0))
        given = self.kernel == "precomputed"
        return {
            "support_": support,
            "support_vectors_": np.empty((0, 0), X.dtype) if given else X[support],
            "dual_coef_": B[:, support],
            "intercept_": B.sum(axis=1) * whole.bias**2,
            "classes_": self.classes_,
            "n_features_in_": self.n_features_in_,
            "kernel_shift_": gram.shift,
            "gamma_": self.gamma_,
        }

    def _fitting_start(self, start: Start, X: Any) -> Start:
        fits = start.coef is not None and start.coef.shape[-1] == X.shape[0]
        return start if fits else Start()

    def _scores(self, X: Any) -> np.ndarray:
        kernel, rows = self._kernel(), self.support_vectors_
        scores = np.empty((X.shape[0], len(self.dual_coef_)))
        for span in spans(X.shape[0], max(1, _BLOCK // max(len(self.support_), 1))):
            if self.kernel == "precomputed":
                K = X[span][:, self.support_]
            else:
                K = kernel.block(X[span].astype(rows.dtype, copy=False), rows)
            scores[span] = K @ self.dual_coef_.T
        return scores + self.intercept_

    def _footprint(self, X: Any, rows: int) -> float:
        return float(rows) * X.shape[0] * np.dtype(precision(self._kernel_of(1.0), X)).itemsize

    def _shared(self, X: Any, limit: int, threads: int) -> Gram | None:
        """The kernel matrix of all rows, if it does not depend on who is in a fold."""
        if self.gamma == "scale" and self.kernel in WITH_GAMMA:
            return None
        self.gamma_ = _gamma(self.gamma, X, None)
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


def _gamma(gamma: float | str, X: Any, weight: np.ndarray | None) -> float:
    """The number that gamma stands for on these rows; weights count as repetitions."""
    if gamma == "auto":
        return 1.0 / X.shape[1]
    if gamma == "scale":
        weight = np.ones(X.shape[0]) if weight is None else weight
        size = weight.sum() * X.shape[1]
        mean = float((weight @ X).sum()) / size
        variance = float(weight @ sqnorms(X)) / size - mean**2
        return 1.0 / (X.shape[1] * variance) if variance > 1e-12 * mean**2 else 1.0
    return float(gamma)
