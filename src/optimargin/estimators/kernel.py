"""The kernel classifier: over all rows, or over landmarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from sklearn.utils import check_array, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples

from optimargin.classes import parts
from optimargin.estimators.classifier import Scores
from optimargin.estimators.kernelized import KernelClassifier, number_of_gamma
from optimargin.expansion import sums
from optimargin.gram import Gram, precision
from optimargin.memory import limit_in_bytes
from optimargin.problem import Problem, Start
from optimargin.rowfiles import RowFiles
from optimargin.sketch import footprint
from optimargin.solvers.choose import KERNEL
from optimargin.solvers.outlook import TYPICAL, USUAL, Outlook, Rates, exact, landmark, rates
from optimargin.solvers.place import HOW, Wish, most_landmarks, place
from optimargin.solvers.train import Machine
from optimargin.threads import blas_threads

_DEFINITE = ("linear", "rbf", "laplacian")  # kernels without negative eigenvalues
_EXACT_UP_TO = 10_000  # rows for which nobody expects anything else


class ODMClassifier(KernelClassifier):
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
    solver : {"auto", "dcd", "newton", "landmark"}, default="auto"
        Dual coordinate descent and Newton's method find the machine above.  "landmark" looks for
        it among expansions over a few landmarks z_j instead of all rows, by Newton's method:
        time and memory grow as the number of rows does.  "auto" is exact while that is
        cheaper; `explain` tells what it would do, ``solver_`` what it did.
    n_landmarks : int or "auto", default="auto"
        How many landmarks; "auto" doubles their number until held-out rows gain no more.
    landmarks : {"margin", "greedy", "random", "kmeans"} or array-like, default="margin"
        Which rows become landmarks.

        - "margin": those that pull on the machine and that other landmarks explain least.
        - "greedy": the one that others explain least, in turn (pivoted Cholesky factor).
        - "random": any.
        - "kmeans": none; landmarks are the centres of clusters.
        - rows of shape (n_landmarks, n_features): these.
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
        Bytes, or text such as "2GB", for kernel values kept during training (with landmarks,
        for all that training takes beside X); None means half of the memory that is free.
        What does not fit is computed again.
    n_jobs : int, optional
        Threads; None means all cores.
    random_state : int, RandomState or None
        Decides the order of the rows.
    verbose : int, default=0
        Above 0, one live line of progress.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Coefficients b of the support rows, or of the landmarks.
    support_ : ndarray of shape (n_support,)
        Training rows with a nonzero coefficient, or that are landmarks (-1 for one that is no
        training row).
    support_vectors_ : ndarray or CSR matrix of shape (n_support, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    gamma_ : float
        The number that ``gamma`` stood for.
    kernel_shift_ : float
        What was added to the diagonal of the kernel matrix, because it had negative
        eigenvalues (sigmoid, callable and precomputed kernels may); else 0.
    kernel_dtype_ : str
        The precision of kernel values, in training and prediction.
    residual_ : float
        The share of the kernel matrix's trace that landmarks leave out, on a sample of the rows;
        0 without landmarks.
    exact_gap_ : float, or ndarray of shape (n_classes,)
        Relative duality gap with the machine that has no landmarks: how far above its optimum
        the objective may be.  Equal to ``dual_gap_`` without landmarks; nan for "mcodm" with.
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
        **KernelClassifier._parameter_constraints,
        "solver": [StrOptions(set(KERNEL))],
        "n_landmarks": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "landmarks": [StrOptions(set(HOW)), "array-like"],
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
        n_landmarks: int | str = "auto",
        landmarks: Any = "margin",
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
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
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

    def explain(self, X: Any) -> dict[str, Any]:
        """What `fit` would do with these rows, and about what it would take.

        Parameters
        ----------
        X : array-like, CSR matrix or RowFiles of shape (n_samples, n_features)
            Training rows; only their shape and type matter.

        Returns
        -------
        dict
            ``"solver"`` ("exact" or "landmark"), ``"n_landmarks"`` (None if exact; a typical
            number where it is yet to be found), ``"seconds"`` for one machine, ``"bytes"``
            beside X, ``"memory_limit"`` in bytes, and ``"other"``, the same for the solver
            that would not be taken.  Seconds are right within a factor of about three.
        """
        self._validate_params()
        X = X if hasattr(X, "shape") else np.asarray(X)
        exact, over_landmarks = self._outlooks(X, rates(self._threads))
        taken, other = exact, over_landmarks
        if self._has_landmarks(X):
            taken, other = other, taken
        limit = limit_in_bytes(self.memory_limit)
        return {**taken._asdict(), "memory_limit": limit, "other": other._asdict()}

    @property
    def _threads(self) -> int:
        return effective_n_jobs(-1 if self.n_jobs is None else self.n_jobs)

    def _outlooks(self, X: Any, rate: Rates) -> tuple[Outlook, Outlook]:
        (n, d), limit = X.shape, limit_in_bytes(self.memory_limit)
        values = X.nnz / max(n, 1) if sp.issparse(X) else d
        count = TYPICAL if self.n_landmarks == "auto" else int(self.n_landmarks)
        if not isinstance(self.landmarks, str):
            count = _num_samples(self.landmarks)
        return exact(n, values, limit, rate), landmark(n, values, count, limit, rate)

    def _has_landmarks(self, X: Any) -> bool:
        """Whether the machine is sought over landmarks."""
        if self.kernel == "precomputed" and self.solver == "landmark":
            raise ValueError(
                "solver='landmark' computes kernel values of rows; with kernel='precomputed' choose"
                " 'auto', 'dcd' or 'newton'."
            )
        if self.solver != "auto" or X.shape[0] <= _EXACT_UP_TO or self.kernel not in _DEFINITE:
            return self.solver == "landmark"
        exact, over_landmarks = self._outlooks(X, USUAL)
        return over_landmarks.seconds < exact.seconds

    def _check_rows(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        if not isinstance(X, RowFiles):
            return super()._check_rows(X, y)
        if not self._has_landmarks(X):  # exact solvers need all rows at hand
            return super()._check_rows(X[:], y)
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        check_classification_targets(y)
        self.n_features_in_ = X.shape[1]
        return X.checked(), y

    def _data(self, X: Any, weight: np.ndarray | None, threads: int) -> dict[str, Any]:
        has_landmarks = self._has_landmarks(X)
        if self.verbose:
            print(f"{type(self).__name__}: {self._outlooks(X, rates(threads))[has_landmarks]}")
        if not has_landmarks:
            return super()._data(X, weight, threads)
        self.gamma_ = number_of_gamma(self.gamma, X, weight)
        return {"bias": float(self.fit_intercept)}

    def _placed(self, whole: Problem) -> Problem:
        if whole.gram is not None:
            return whole
        kernel, limit = self._kernel(), limit_in_bytes(self.memory_limit)
        count = None if self.n_landmarks == "auto" else int(self.n_landmarks)
        wish = Wish(kernel, count, self._which(whole.X), precision(kernel, whole.X), limit)
        if self._continuing is not None and self._continuing[0].coef is not None:
            wish = replace(wish, how=self.support_vectors_, index=self.support_)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        with blas_threads(1):
            whole, starts = place(whole, wish, seed)
        if starts and len(starts) == len(parts(self.multi_class, whole.classes)):
            self._continuing = starts
        return whole

    def _which(self, X: Any) -> Any:
        """The rule that chooses landmarks, or the landmarks."""
        if isinstance(self.landmarks, str):
            return self.landmarks
        Z = check_array(self.landmarks, accept_sparse="csr", dtype=X.dtype, input_name="landmarks")
        if Z.shape[1] != X.shape[1]:
            raise ValueError(
                f"landmarks must have the {X.shape[1]} features of X; it has {Z.shape[1]}."
            )
        return Z

    def _attributes(self, whole: Problem, points: Any) -> dict[str, Any]:
        if whole.sketch is None:
            return super()._attributes(whole, points)
        landmarks, B = whole.sketch.landmarks, np.vstack([p.coef for p in points])
        return self._expansion(landmarks.index, landmarks.Z, B, whole.sketch.dtype)

    def _adopt(self, whole: Problem, machines: list[Machine]) -> None:
        super()._adopt(whole, machines)
        self.residual_ = 0.0 if whole.sketch is None else whole.sketch.left_out
        gaps = [m.exact for m in machines]
        self.exact_gap_ = gaps[0] if len(gaps) == 1 else np.array(gaps)

    def _fitting_start(self, start: Start, X: Any) -> Start:
        """A fit over landmarks goes on over the same ones, if as many are asked for."""
        before, now = self.solver_ == "landmark", self._has_landmarks(X)
        if not before and not now:
            return super()._fitting_start(start, X)
        same = self.n_landmarks in ("auto", len(self.support_))
        return start if before and now and same else Start()

    def _footprint(self, X: Any, rows: int) -> float:
        if not self._has_landmarks(X):
            return super()._footprint(X, rows)
        count = most_landmarks(rows, np.inf)
        count = count if self.n_landmarks == "auto" else min(int(self.n_landmarks), rows)
        return footprint(X.shape[0], count, 4.0 * X.shape[0] * count)

    def _shared(self, X: Any, limit: int, threads: int) -> Gram | None:
        if self._has_landmarks(X):
            return None  # labels decide, and those of other folds must not
        return super()._shared(X, limit, threads)

    def _scores_on(self, whole: Problem, X: Any, values: np.ndarray | None) -> Scores | None:
        if whole.sketch is None:
            return super()._scores_on(whole, X, values)
        known = whole.sketch.landmarks.values(X)

        def over_landmarks(B: np.ndarray) -> np.ndarray:
            out = np.empty((len(known), len(B)))
            sums(known, B, out)
            return out

        return over_landmarks
