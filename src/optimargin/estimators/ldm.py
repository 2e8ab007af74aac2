"""The preliminary machines of the ODM paper (ODM^L, also called LDM): hinge, mean and variance."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from optimargin.estimators.classifier import MarginClassifier
from optimargin.estimators.kernelized import KernelClassifier
from optimargin.estimators.linear import LinearClassifier
from optimargin.loss import Loss, hinge
from optimargin.solvers.choose import LDM_KERNEL, LDM_LINEAR
from optimargin.solvers.parting import Parting

_PARTS = ("n_partitions", "partition", "n_strata", "engine", "line_search")
_ODM_ONLY = ("lam", "mu", "theta", *_PARTS)


def _constraints(kind: type[MarginClassifier], solvers: tuple[str, ...]) -> dict[str, list[Any]]:
    """Those of an ODM classifier, with the weights of the LDM for the ODM's."""
    kept = {k: v for k, v in kind._parameter_constraints.items() if k not in _ODM_ONLY}
    return {
        **kept,
        "lam1": [Interval(Real, 0, None, closed="left")],
        "lam2": [Interval(Real, 0, None, closed="left")],
        "C": [Interval(Real, 0, None, closed="neither"), StrOptions({"scale"})],
        "multi_class": [StrOptions({"ovr", "ovo"})],
        "solver": [StrOptions(set(solvers))],
    }


class _MomentsMixin(MarginClassifier):
    """What makes an LDM of an ODM classifier: its loss and the moments."""

    lam1: float
    lam2: float
    C: float | str

    def _loss(self, total: float) -> Loss:
        self.C_ = total if self.C == "scale" else float(self.C)
        return hinge(self.C_ / total)

    def _parting(self) -> Parting:
        return Parting()

    def _data(self, X: Any, weight: np.ndarray | None, threads: int) -> dict[str, Any]:
        moments = {"lam1": float(self.lam1), "lam2": float(self.lam2)}
        return {**super()._data(X, weight, threads), **moments}


class LDMClassifier(_MomentsMixin, KernelClassifier):
    """Large margin distribution machine with a kernel: the ODM^L of the ODM paper.

    Minimises, over functions f = sum_j b_j K(x_j, .) of the kernel's space::

        1/2 |f|^2 + lam1 var(u) - lam2 mean(u) + C / n sum_i s_i (1-u_i)_+

    where u_i = y_i f(x_i) is the margin of row i, s_i its weight and n the sum of the sample
    weights; mean and variance count each row by its weight.  ``lam1=lam2=0`` is the hinge-loss
    SVM without an intercept.

    Training factors a matrix of all rows once (unless ``lam1=0``): time grows with the
    cube of the rows, memory with their square.

    Parameters
    ----------
    kernel : {"rbf", "linear", "laplacian", "poly", "sigmoid", "precomputed"} or callable
        A callable takes two matrices of rows and returns the matrix of kernel values.
    lam1 : float, default=1.0
        Weight of the variance of the margins.
    lam2 : float, default=1.0
        Weight of their mean.
    C : float or "scale", default="scale"
        Weight of the hinge losses, summed over the data.  "scale" is n, which gives every
        row's loss the weight 1, as C=1 does in scikit-learn's SVMs; ``C_`` tells the number.
    gamma : {"scale", "auto"} or float, default="scale"
        Coefficient of rbf, laplacian, poly and sigmoid; "scale" is
        1 / (n_features * X.var()), "auto" is 1 / n_features.
    degree : float, default=3
        Degree of poly.
    coef0 : float, default=0.0
        Constant in poly and sigmoid.
    solver : {"auto", "dcd"}, default="auto"
        Dual coordinate descent on whitened rows.
    multi_class : {"ovr", "ovo"}, default="ovr"
        More than two classes: each against the rest, or all pairs.
    fit_intercept : bool, default=False
        Whether to add a constant feature of value 1, penalised as the others are.
    class_weight : dict or "balanced", optional
        Factors on the weights of the rows of each class.
    tol : float, default=1e-3
        Relative duality gap at which to stop.
    max_iter : int, default=1000
        Most rounds of the solver.
    time_limit : float, optional
        Seconds after which to stop with the best answer so far.
    warm_start : bool, default=False
        Continue from the last fit, if it had the same rows.
    memory_limit : float or str, optional
        Bytes, or text such as "2GB", for kernel values kept during training; None means
        half of the memory that is free.
    n_jobs : int, optional
        Threads; None means all cores.
    random_state : int, RandomState or None
        Decides the order of the rows.
    verbose : int, default=0
        Above 0, one live line of progress.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (1, n_support) or (n_machines, n_support)
        Coefficients b of the support rows: with moments, all rows that have a weight.
    support_ : ndarray of shape (n_support,)
    support_vectors_ : ndarray or CSR matrix of shape (n_support, n_features)
    intercept_ : ndarray of shape (1,) or (n_machines,)
    gamma_, C_ : float
        The numbers that ``gamma`` and ``C`` stood for.
    kernel_shift_ : float
        What was added to the diagonal of the kernel matrix, because it had negative
        eigenvalues; else 0.
    coef_ : ndarray of shape (1, n_features) or (n_machines, n_features)
        Weights in feature space; with ``kernel="linear"`` only.
    classes_ : ndarray of shape (n_classes,)
    objective_, dual_gap_ : float, or ndarray of shape (n_machines,)
        The value of the objective above, and its relative duality gap.
    loo_bound_ : float, or ndarray of shape (n_machines,)
        Theorem 2 of the ODM paper: an estimate from above of the leave-one-out error.  It may
        exceed 1, and now and then falls short, because its proof leaves the row that is
        left out in mean and variance.
    loo_count_ : float, or ndarray of shape (n_machines,)
        A share of rows that the leave-one-out error never exceeds at the optimum.
    n_iter_ : int
    status_, solver_ : str
    history_ : dict of ndarrays
        Columns machine, round, objective, gap and time.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from optimargin import LDMClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), LDMClassifier()).fit(X, y)
    >>> round(model.score(X, y), 2)
    0.99
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = _constraints(
        KernelClassifier, LDM_KERNEL
    )

    def __init__(
        self,
        *,
        kernel: str | Callable[[Any, Any], Any] = "rbf",
        lam1: float = 1.0,
        lam2: float = 1.0,
        C: float | str = "scale",
        gamma: float | str = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        solver: str = "auto",
        multi_class: str = "ovr",
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
        self.lam1 = lam1
        self.lam2 = lam2
        self.C = C
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


class LinearLDMClassifier(_MomentsMixin, LinearClassifier):
    """Linear large margin distribution machine: the ODM^L of the ODM paper, for many rows.

    Minimises, over the weights w (the intercept b is the weight of a constant feature of
    value 1 and is penalised with the others)::

        1/2 |w|^2 + lam1 var(u) - lam2 mean(u) + C / n sum_i s_i (1-u_i)_+

    where u_i = y_i (w.x_i + b) is the margin of row i, s_i its weight and n the sum of the
    sample weights; mean and variance count each row by its weight.  ``lam1=lam2=0`` is the
    machine of ``LinearSVC(loss="hinge", C=C / n)``.

    Parameters
    ----------
    lam1 : float, default=1.0
        Weight of the variance of the margins.
    lam2 : float, default=1.0
        Weight of their mean.
    C : float or "scale", default="scale"
        Weight of the hinge losses, summed over the data.  "scale" is n, which gives every
        row's loss the weight 1, as C=1 does in scikit-learn's SVMs; ``C_`` tells the number.
    solver : {"auto", "dcd", "svrg"}, default="auto"
        Dual coordinate descent on whitened rows, which are dense and kept in memory, or
        variance-reduced stochastic gradients on pairs of rows as they are, to a low
        precision.  "auto" takes the first while the rows have up to 1,500 features and
        fit; ``solver_`` tells.
    multi_class : {"ovr", "ovo"}, default="ovr"
        More than two classes: each against the rest, or all pairs.
    fit_intercept : bool, default=True
        Whether to add a constant feature.
    class_weight : dict or "balanced", optional
        Factors on the weights of the rows of each class.
    tol : float, default=1e-3
        Relative duality gap at which to stop.
    max_iter : int, default=1000
        Most rounds of the solver.
    time_limit : float, optional
        Seconds after which to stop with the best answer so far.
    warm_start : bool, default=False
        Continue from the last fit.
    memory_limit : float or str, optional
        Bytes, or text such as "2GB", that whitened rows may take; None means half of the
        memory that is free.
    n_jobs : int, optional
        Threads; None means all cores.
    random_state : int, RandomState or None
        Decides the order of the rows.
    verbose : int, default=0
        Above 0, one live line of progress.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_machines, n_features)
    intercept_ : ndarray of shape (1,) or (n_machines,)
    classes_ : ndarray of shape (n_classes,)
    C_ : float
        The number that ``C`` stood for.
    objective_, dual_gap_ : float, or ndarray of shape (n_machines,)
        The value of the objective above, and its relative duality gap.
    loo_bound_, loo_count_ : float, or ndarray of shape (n_machines,)
        As in `LDMClassifier`; larger with SVRG, which knows only the norms of rows as given.
    n_iter_ : int
    status_, solver_ : str
    history_ : dict of ndarrays
        Columns machine, round, objective, gap and time.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from optimargin import LinearLDMClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), LinearLDMClassifier()).fit(X, y)
    >>> round(model.score(X, y), 2)
    0.98
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = _constraints(
        LinearClassifier, LDM_LINEAR
    )

    def __init__(
        self,
        *,
        lam1: float = 1.0,
        lam2: float = 1.0,
        C: float | str = "scale",
        solver: str = "auto",
        multi_class: str = "ovr",
        fit_intercept: bool = True,
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
        self.lam1 = lam1
        self.lam2 = lam2
        self.C = C
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
