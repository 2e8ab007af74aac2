"""Linear classifiers: a vector of weights, found in feature space."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from optimargin.arrays import brought, is_foreign, on_host
from optimargin.device import beside, free_bytes, times
from optimargin.estimators.classifier import MarginClassifier, Scores
from optimargin.memory import limit_in_bytes
from optimargin.partition import PARTITIONS
from optimargin.problem import Problem, Start
from optimargin.solvers.choose import LINEAR
from optimargin.solvers.on_parts import STEPS
from optimargin.solvers.parting import Parting


class LinearClassifier(MarginClassifier):
    """What linear machines have in common: weights of features, and parts of the rows."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **MarginClassifier._parameter_constraints,
        "solver": [StrOptions(set(LINEAR))],
        "line_search": [StrOptions(set(STEPS))],
        "n_partitions": [Interval(Integral, 1, None, closed="left"), None],
        "partition": [StrOptions(set(PARTITIONS))],
        "n_strata": [Interval(Integral, 1, None, closed="left")],
        "engine": [HasMethods("scatter"), None],
        "device": [str, None],
    }

    _works_on_devices = True

    solver: str
    line_search: str
    n_partitions: int | None
    partition: str
    n_strata: int
    engine: Any
    fit_intercept: bool
    memory_limit: float | str | None
    coef_: np.ndarray
    intercept_: np.ndarray

    def _data(self, X: Any, weight: np.ndarray | None, threads: int) -> dict[str, Any]:
        like = beside(X)
        limit = free_bytes(like) if is_foreign(like) else limit_in_bytes(self.memory_limit)
        return {"bias": float(self.fit_intercept), "limit": limit}

    def _parting(self) -> Parting:
        return Parting(self.n_partitions, self.partition, self.n_strata, engine=self.engine)

    def _solver(self) -> str:
        name = super()._solver()
        return STEPS[self.line_search] if name == "bqo" else name

    def _attributes(self, whole: Problem, points: Any) -> dict[str, Any]:
        W, bias = np.vstack([on_host(p.coef) for p in points]), whole.bias
        return {
            "coef_": W[:, :-1].copy(),
            "intercept_": W[:, -1] * bias,
            "classes_": self.classes_,
            "n_features_in_": self.n_features_in_,
        }

    def _fitting_start(self, start: Start, X: Any) -> Start:
        fits = start.coef is not None and start.coef.shape[-1] == X.shape[1] + 1
        coef = start.coef if fits else None
        same = start.dual is not None and len(start.dual) == X.shape[0] and coef is not None
        return Start(coef, start.dual if same else None)

    def _scores(self, X: Any) -> np.ndarray:
        return _scores(X, self.coef_, self.intercept_)

    def _footprint(self, X: Any, rows: int) -> float:
        parts = (X.data, X.indices) if sp.issparse(X) else (X,)
        return sum(part.nbytes for part in parts) * rows / X.shape[0]

    def _scores_on(self, whole: Problem, X: Any, values: np.ndarray | None) -> Scores:
        return lambda W: _scores(X, W[:, :-1], W[:, -1] * whole.bias)


class LinearODMClassifier(LinearClassifier):
    """Linear optimal margin distribution machine.

    Minimises, over the weights w (the intercept b is the weight of a constant feature of
    value 1 and is penalised with the others, as in LIBLINEAR and libodm)::

        1/2 |w|^2 + lam / (n (1-theta)^2) sum_i s_i [(1-theta-u_i)_+^2 + mu (u_i-1-theta)_+^2]

    where u_i = y_i (w.x_i + b) is the margin of row i, s_i its weight and n the sum of the
    sample weights.  ``mu=0, theta=0`` is the squared-hinge SVM of
    ``LinearSVC(C=lam / n)``.

    Parameters
    ----------
    lam : float or "scale", default="scale"
        Weight of the losses, summed over the data: the inverse of regularisation.
        "scale" is n (1-theta)^2, which gives every row's loss the weight 1, as C=1 does in
        scikit-learn's SVMs; ``lam_`` tells the number.
    mu : float, default=0.5
        Weight of margins above 1 + theta, relative to margins below 1 - theta.
    theta : float, default=0.6
        Half-width of the band around 1 in which a margin costs nothing; in [0, 1).  Wider
        than in `ODMClassifier`, because a plane that separates one class from the rest
        cannot keep all margins close to 1.
    solver : str, default="auto"
        "dcd", "newton" or "svrg": dual coordinate descent, Newton, or variance-reduced
        stochastic gradients; ``solver_`` tells what "auto" chose.  Others work on parts of the
        rows:

        - "bqo": block-diagonal steps in the dual variables; "disdca" (CoCoA+) and "dsvm-ave"
          are the same with steps of a fixed length.
        - "admm", "admm-acc": consensus of a model for each part (over-relaxed).
        - "tron": Newton steps inside a ball, by conjugate gradients.
        - "dsvrg": all parts find the gradient, then one after the other takes steps.
        - "csvrg": steps over a coreset of weighted rows, in one place, and all rows are read
          now and then to see where they led.
        - "pa": the mean of a machine for each part; it stops there (status "averaged").
        - "dwpa", "dwpa-acc": their best weighted mean.

        "newton" does too where there is an ``engine``, and is then what "auto" means.
    line_search : {"exact", "line", "armijo"}, default="exact"
        The step of "bqo": the best one in the plane of the direction and of the last step, or
        along the direction alone, best or by Armijo's rule.
    n_partitions : int, optional
        Parts; None means 8.
    partition : {"stratified", "random", "kmeans", "kmeans-strata", "blocks"}, default="stratified"
        Which rows make a part.

        - "stratified": equal shares of every class and stratum, a stratum being the rows that
          are nearest to one of ``n_strata`` landmarks.
        - "random": any rows.
        - "kmeans": clusters.
        - "kmeans-strata": equal shares of clusters.
        - "blocks": rows that follow each other, which are not copied.
    n_strata : int, default=32
        How many strata.
    engine : object, optional
        What holds the parts, such as ``optimargin.engines.local.LocalEngine()``; None means
        threads of this computer for solvers on parts, and no parts for the others.
    multi_class : {"mcodm", "mcodm-paper", "ovr", "ovo"}, default="mcodm"
        What more than two classes become.

        - "mcodm": one machine, whose margins are the own score minus the runner-up's.
          With mu > 0 its objective is not convex: a series of convex problems leads to a
          point that none of them improves, and the certificate is that of the last.
        - "mcodm-paper": the same with the outer loop of the mcODM paper, a heuristic.
        - "ovr": every class against the rest; on parts of the rows, all in one pass.
        - "ovo": every class against every other, one vote each.
    fit_intercept : bool, default=True
        Whether to add a constant feature.
    class_weight : dict or "balanced", optional
        Factors on the losses of each class.
    tol : float, default=1e-4
        Relative duality gap at which to stop.
    max_iter : int, default=1000
        Most rounds (epochs or Newton steps) of the solver.
    time_limit : float, optional
        Seconds after which to stop with the best answer so far.
    warm_start : bool, default=False
        Continue from the last fit.
    memory_limit : float or str, optional
        Bytes, or text such as "2GB", that a Hessian may take; one that does not fit is
        applied and not formed.  None means half of what is free.
    n_jobs : int, optional
        Threads; None means all cores.
    random_state : int, RandomState or None
        Decides the order of the rows.
    device : {"auto", "cpu", "cuda", "cuda:0", ...}, optional
        Where to work.  None is where X is: PyTorch's and CuPy's arrays stay on their device.
        "cuda" moves other rows there, in blocks if they are many; "auto" does so where there is
        a GPU and the work is large enough.  Newton's method alone works on a device; several
        classes in one machine ("mcodm") go to the CPU.
    verbose : int, default=0
        Above 0, one live line of progress.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
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
        "converged", "max_iter", "time_limit", "callback", "precision" or "averaged".
    solver_ : str
    traffic_ : dict
        Where rows were in parts: ``"rounds"`` of calls to the parts, and the ``"bytes"`` that
        went there and back, of all machines.
    history_ : dict of ndarrays
        Columns machine, round, objective, gap and time.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from optimargin import LinearODMClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), LinearODMClassifier()).fit(X, y)
    >>> round(model.score(X, y), 2)
    0.98
    """

    def __init__(
        self,
        *,
        lam: float | str = "scale",
        mu: float = 0.5,
        theta: float = 0.6,
        solver: str = "auto",
        line_search: str = "exact",
        n_partitions: int | None = None,
        partition: str = "stratified",
        n_strata: int = 32,
        engine: Any = None,
        multi_class: str = "mcodm",
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
        self.lam = lam
        self.mu = mu
        self.theta = theta
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


def _scores(X: Any, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    if is_foreign(X):
        return times(X, brought(coef.T, X)) + brought(intercept, X)
    scores = X @ coef.T.astype(X.dtype, copy=False)
    return (scores.toarray() if sp.issparse(scores) else scores) + intercept
