"""Support vector machines, trained as the ODM is: on one machine or on parts of the rows."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from optimargin.estimators.kernelized import KernelClassifier
from optimargin.estimators.large import LargeKernelClassifier, merged, refuse_precomputed
from optimargin.estimators.linear import LinearClassifier
from optimargin.loss import Loss, hinge, squared_hinge
from optimargin.solvers.parting import Parting

_LOSSES = {"hinge": hinge, "squared_hinge": squared_hinge}
_MERGED = ("n_partitions", "fan_in", "partition", "n_strata", "levels", "merge", "survivors")
_ODM_ONLY = ("lam", "mu", "theta")


class LinearSVMClassifier(LinearClassifier):
    """Linear support vector machine, with a certificate, and on parts of the rows if need be.

    Minimises, over the weights w (the intercept b is the weight of a constant feature of
    value 1 and is penalised with the others)::

        1/2 |w|^2 + C sum_i s_i loss(u_i),   loss(u) = (1-u)_+ or (1-u)_+^2

    where u_i = y_i (w.x_i + b) is the margin of row i and s_i its weight: the machine of
    scikit-learn's ``LinearSVC(loss=loss, C=C)``.

    Parameters
    ----------
    loss : {"hinge", "squared_hinge"}, default="hinge"
        The loss of a margin: the L1-SVM and the L2-SVM.
    C : float, default=1.0
        Weight of the losses: the inverse of regularisation.
    solver : str, default="auto"
        "dcd" or "newton": dual coordinate descent or Newton, which rounds the kink of the hinge
        as finely as ``tol`` asks for; ``solver_`` tells what "auto" chose.  "svrg" is
        variance-reduced stochastic gradients.
        Others work on parts of the rows:

        - "bqo": block-diagonal steps in the dual variables; "disdca" (CoCoA+) and "dsvm-ave"
          are the same with steps of a fixed length.
        - "admm", "admm-acc": consensus of a model for each part (over-relaxed).
        - "pa": the mean of a machine for each part; it stops there (status "averaged").
        - "dwpa", "dwpa-acc": their best weighted mean.
        - "tron", "dsvrg", "csvrg": with the squared hinge, as in `LinearODMClassifier`.

        With an ``engine``, "auto" is "newton", and "bqo" with the hinge where there are fewer
        than 50 rows to a feature, or more features than a Hessian may have.
    line_search : {"exact", "line", "armijo"}, default="exact"
        The step of "bqo": the best one in the plane of the direction and of the last step, or
        along the direction alone, best or by Armijo's rule.
    n_partitions : int, optional
        Parts; None means 8.
    partition : {"stratified", "random", "kmeans", "kmeans-strata", "blocks"}, default="stratified"
        Which rows make a part: see `LinearODMClassifier`.
    n_strata : int, default=32
        How many strata.
    engine : object, optional
        What holds the parts, such as ``optimargin.engines.local.LocalEngine()``; None means
        threads of this computer for solvers on parts, and no parts for the others.
    multi_class : {"ovr", "ovo"}, default="ovr"
        More than two classes: each against the rest (on parts of the rows, all in one pass),
        or every class against every other, one vote each.
    fit_intercept : bool, default=True
        Whether to add a constant feature.
    class_weight : dict or "balanced", optional
        Factors on the losses of each class.
    tol : float, default=1e-4
        Relative duality gap at which to stop.
    max_iter : int, default=1000
        Most rounds of the solver.
    time_limit : float, optional
        Seconds after which to stop with the best answer so far.
    warm_start : bool, default=False
        Continue from the last fit.
    memory_limit : float or str, optional
        Bytes, or text such as "2GB", that a Hessian may take; None means half of what is free.
    n_jobs : int, optional
        Threads; None means all cores.
    random_state : int, RandomState or None
        Decides the order of the rows, and which make a part.
    device : {"auto", "cpu", "cuda", "cuda:0", ...}, optional
        As in `LinearODMClassifier`; the squared hinge alone works on a device.
    verbose : int, default=0
        Above 0, one live line of progress.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_machines, n_features)
    intercept_ : ndarray of shape (1,) or (n_machines,)
    classes_ : ndarray of shape (n_classes,)
    objective_, dual_gap_ : float, or ndarray of shape (n_machines,)
        The value of the objective above, and its relative duality gap: the objective is at
        most that far above the optimum.
    loo_bound_, loo_count_ : float, or ndarray of shape (n_machines,)
        As in `LinearODMClassifier`; not a number with the hinge on parts of the rows.
    n_iter_ : int
        Rounds of the solver.
    status_ : str
        "converged", "max_iter", "time_limit", "callback", "precision" or "averaged".
    solver_ : str
    traffic_ : dict
        Where rows were in parts: ``"rounds"`` of calls to the parts, and the ``"bytes"`` that
        went there and back, of all machines.
    history_ : dict of ndarrays
        Columns machine, round, objective, gap and time.

    See Also
    --------
    LinearODMClassifier : Looks after all margins; ``mu=0, theta=0`` is the squared hinge.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from optimargin import LinearSVMClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> machine = LinearSVMClassifier(solver="admm", n_partitions=4, random_state=0)
    >>> model = make_pipeline(StandardScaler(), machine).fit(X, y)
    >>> round(model.score(X, y), 2)
    0.99
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{k: v for k, v in LinearClassifier._parameter_constraints.items() if k not in _ODM_ONLY},
        "loss": [StrOptions(set(_LOSSES))],
        "C": [Interval(Real, 0, None, closed="neither")],
        "multi_class": [StrOptions({"ovr", "ovo"})],
    }

    def __init__(
        self,
        *,
        loss: str = "hinge",
        C: float = 1.0,
        solver: str = "auto",
        line_search: str = "exact",
        n_partitions: int | None = None,
        partition: str = "stratified",
        n_strata: int = 32,
        engine: Any = None,
        multi_class: str = "ovr",
        fit_intercept: bool = True,
        class_weight: Any = None,
        tol: float = 1e-4,
        max_iter: int = 1000,
        time_limit: float | None = None,
        warm_start: bool = False,
        memory_limit: float | str | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        device: str | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.C = C
        self.solver = solver
        self.line_search = line_search
        self.n_partitions = n_partitions
        self.partition = partition
        self.n_strata = n_strata
        self.engine = engine
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
        self.device = device
        self.verbose = verbose

    def _loss(self, total: float) -> Loss:
        return _LOSSES[self.loss](float(self.C))

    def _data(self, X: Any, weight: np.ndarray | None, threads: int) -> dict[str, Any]:
        return {**super()._data(X, weight, threads), "is_spread": False}


class SVMClassifier(KernelClassifier):
    """Support vector machine with a kernel; on parts of the rows Cascade SVM, DC-SVM and DiP-SVM.

    Minimises, over functions f = sum_j b_j K(x_j, .) of the kernel's space::

        1/2 |f|^2 + C sum_i s_i loss(u_i),   loss(u) = (1-u)_+ or (1-u)_+^2

    where u_i = y_i f(x_i) is the margin of row i and s_i its weight.  Unlike in scikit-learn's
    ``SVC``, the intercept, if there is one, is the weight of a constant feature and is penalised.

    Parameters
    ----------
    kernel : {"rbf", "linear", "laplacian", "poly", "sigmoid", "precomputed"} or callable
        A callable takes two matrices of rows and returns the matrix of kernel values.
    loss : {"hinge", "squared_hinge"}, default="hinge"
        The loss of a margin: the L1-SVM and the L2-SVM.
    C : float, default=1.0
        Weight of the losses: the inverse of regularisation.
    gamma : {"scale", "auto"} or float, default="scale"
        Coefficient of rbf, laplacian, poly and sigmoid; "scale" is
        1 / (n_features * X.var()), "auto" is 1 / n_features.
    degree : float, default=3
        Degree of poly.
    coef0 : float, default=0.0
        Constant in poly and sigmoid.
    solver : {"auto", "dcd", "sodm"}, default="auto"
        Dual coordinate descent, or with the squared hinge Newton's method where that is faster.
        "sodm" trains machines on parts of the rows and merges them, level by level:

        - ``partition="random", survivors=True, fan_in=2``: Cascade SVM.
        - ``partition="kmeans"``: DC-SVM.
        - ``partition="kmeans-strata", survivors=True``: DiP-SVM.
    n_partitions, fan_in, partition, n_strata, levels, merge, survivors, engine
        Of "sodm": see `ODMClassifier`.
    multi_class : {"ovr", "ovo"}, default="ovr"
        More than two classes: each against the rest, or all pairs.
    fit_intercept : bool, default=False
        Whether to add a constant feature of value 1, penalised as the others are.
    class_weight : dict or "balanced", optional
        Factors on the losses of each class.
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
        Decides the order of the rows, and which make a part.
    verbose : int, default=0
        Above 0, one live line of progress.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (1, n_support) or (n_machines, n_support)
        Coefficients b of the support rows.
    support_ : ndarray of shape (n_support,)
    support_vectors_ : ndarray or CSR matrix of shape (n_support, n_features)
    intercept_ : ndarray of shape (1,) or (n_machines,)
    gamma_ : float
        The number that ``gamma`` stood for.
    kernel_shift_ : float
        What was added to the diagonal of the kernel matrix, because it had negative
        eigenvalues; else 0.
    coef_ : ndarray of shape (1, n_features) or (n_machines, n_features)
        Weights in feature space; with ``kernel="linear"`` only.
    classes_ : ndarray of shape (n_classes,)
    objective_, dual_gap_ : float, or ndarray of shape (n_machines,)
        The value of the objective above, and its relative duality gap.
    loo_bound_, loo_count_ : float, or ndarray of shape (n_machines,)
        As in `LDMClassifier` and `ODMClassifier`.
    n_iter_ : int
    status_, solver_ : str
    traffic_ : dict
        With "sodm": ``"rounds"`` of calls to the parts and of merges, and the ``"bytes"`` that
        went there and back, of all machines.
    history_ : dict of ndarrays
        Columns machine, round, objective, gap and time.

    See Also
    --------
    ODMClassifier : Looks after all margins; ``mu=0, theta=0`` is the squared hinge, and there
        landmarks are for many rows.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from optimargin import SVMClassifier
    >>> X, y = make_moons(2000, noise=0.2, random_state=0)
    >>> cascade = {"partition": "random", "survivors": True, "fan_in": 2, "n_partitions": 8}
    >>> model = SVMClassifier(solver="sodm", **cascade, random_state=0).fit(X, y)
    >>> round(model.score(X, y), 2)
    0.97
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{k: v for k, v in KernelClassifier._parameter_constraints.items() if k not in _ODM_ONLY},
        **{k: LargeKernelClassifier._parameter_constraints[k] for k in (*_MERGED, "engine")},
        "loss": [StrOptions(set(_LOSSES))],
        "C": [Interval(Real, 0, None, closed="neither")],
        "solver": [StrOptions({"auto", "dcd", "sodm"})],
        "multi_class": [StrOptions({"ovr", "ovo"})],
    }

    def __init__(
        self,
        *,
        kernel: str | Callable[[Any, Any], Any] = "rbf",
        loss: str = "hinge",
        C: float = 1.0,
        gamma: float | str = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        solver: str = "auto",
        n_partitions: int | None = None,
        fan_in: int = 4,
        partition: str = "stratified",
        n_strata: int = 32,
        levels: int | None = None,
        merge: str = "auto",
        survivors: bool = False,
        engine: Any = None,
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
        self.loss = loss
        self.C = C
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.solver = solver
        self.n_partitions = n_partitions
        self.fan_in = fan_in
        self.partition = partition
        self.n_strata = n_strata
        self.levels = levels
        self.merge = merge
        self.survivors = survivors
        self.engine = engine
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

    def _loss(self, total: float) -> Loss:
        return _LOSSES[self.loss](float(self.C))

    def _data(self, X: Any, weight: np.ndarray | None, threads: int) -> dict[str, Any]:
        refuse_precomputed(self.kernel, self.solver)
        return {**super()._data(X, weight, threads), "is_spread": False}

    @property
    def _keeps(self) -> bool:
        return self.solver != "sodm"  # the parts keep their own

    def _parting(self) -> Parting:
        return merged(self)
