"""The classifier of many rows with local structure."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from numbers import Integral, Real
from typing import Any, ClassVar, Self
from weakref import WeakKeyDictionary

import numpy as np
from joblib import effective_n_jobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from optimargin.estimators.classifier import MarginClassifier, unchanged_on_error
from optimargin.estimators.kernelized import KERNELS, number_of_gamma
from optimargin.estimators.progress import has_callbacks, watching, with_callbacks
from optimargin.gram import precision
from optimargin.kernels import Kernel, make_kernel
from optimargin.memory import limit_in_bytes
from optimargin.patchwork import Patchwork
from optimargin.problem import Problem, Start, Status, Stop
from optimargin.solvers.local import HOW, Cells, Facts, Local, make_cells, solve_cells
from optimargin.threads import blas_threads

_READY: WeakKeyDictionary[Any, Patchwork] = WeakKeyDictionary()  # of classifiers that predicted
_NOT_HERE = ("multi_class", "warm_start")
_WHOLE_NUMBER = Interval(Integral, 1, None, closed="left")


class LocalODMClassifier(MarginClassifier):
    """Kernel machines of clusters: for very many rows whose classes depend on where they are.

    Rows are divided into clusters of about equal size.  In each, an `ODMClassifier` is trained on
    its rows and on those just outside of it, and a row is judged by the machines of the clusters
    that are nearest to it.  Time grows as the number of rows does, and no kernel matrix is larger
    than a cluster's.  With one cluster this is `ODMClassifier`.

    Every cluster's machine minimises, over the rows i that it learns from::

        1/2 |f|^2 + lam / (n (1-theta)^2) sum_i s_i [(1-theta-u_i)_+^2 + mu (u_i-1-theta)_+^2]

    where n is the sum of the weights of all rows, those of other clusters too: a row's loss
    has the same weight whatever the clusters are.

    Parameters
    ----------
    n_clusters : int or "auto", default="auto"
        How many clusters; "auto" is one for every 2,500 rows.  There are fewer where rows are
        equal.
    n_asked : int, default=2
        How many clusters judge a row.  Their scores count in proportion to the power -32 of the
        distances to their centres, so away from the boundaries the nearest decides.
    overlap : float, default=0.5
        Rows just outside of a cluster that its machine learns from too, as a share of its own:
        those for which it is the second nearest, nearest to the boundary first.
    kernel : {"rbf", "linear", "laplacian", "poly", "sigmoid"} or callable, default="rbf"
        A callable takes two matrices of rows and returns the matrix of kernel values.
    lam : float or "scale", default="scale"
        Weight of the losses, summed over all the data: the inverse of regularisation.
        "scale" is n (1-theta)^2, which gives every row's loss the weight 1 in its cluster's
        machine, as C=1 does in scikit-learn's SVMs; ``lam_`` tells the number, and
        C n (1-theta)^2 gives the weight C.
    mu : float, default=0.5
        Weight of margins above 1 + theta, relative to margins below 1 - theta.
    theta : float, default=0.1
        Half-width of the band around 1 in which a margin costs nothing; in [0, 1).
    gamma : {"scale", "auto"} or float, default="scale"
        Coefficient of rbf, laplacian, poly and sigmoid; "scale" is
        1 / (n_features * X.var()), "auto" is 1 / n_features.  Clusters often want a narrower
        kernel than one machine would: try 10 and 100 times the default.
    degree : float, default=3
        Degree of poly.
    coef0 : float, default=0.0
        Constant in poly and sigmoid.
    n_landmarks : int, "auto" or None, default="auto"
        Landmarks of a cluster's machines.  "auto" is exact in clusters of up to 10,000 rows, and
        in larger ones takes landmarks where they are faster, as many as pay; a number is for
        clusters with more rows than that; None is exact everywhere.
    landmarks : {"margin", "greedy", "random"}, default="margin"
        Which rows become landmarks; see `ODMClassifier`.
    engine : object, optional
        What holds the clusters' rows; None means threads of this computer.
    fit_intercept : bool, default=False
        Whether to add a constant feature of value 1, penalised as the others are.
    class_weight : dict or "balanced", optional
        Factors on the losses of each class.
    tol : float, default=1e-3
        Relative duality gap at which to stop, in every cluster.
    max_iter : int, default=1000
        Most rounds (epochs or Newton steps) of a machine.
    time_limit : float, optional
        Seconds that the machines share evenly; one that takes longer stops with its best answer.
    memory_limit : float or str, optional
        Bytes, or text such as "2GB", for kernel values kept during training; None means half of
        the memory that is free.
    n_jobs : int, optional
        Threads, each of which works on a cluster; None means all cores.
    random_state : int, RandomState or None
        Decides the clusters and the order of the rows.
    verbose : int, default=0
        Above 0, a line about the clusters and one about the answer.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
    n_clusters_ : int
    cluster_sizes_ : ndarray of shape (n_clusters,)
        Training rows whose nearest centre is that of the cluster.
    support_ : ndarray of shape (n_support,)
        Training rows with a nonzero coefficient, cluster by cluster; one that several clusters
        learnt from may be there several times.
    support_ends_ : ndarray of shape (n_clusters + 1,)
        Where the support rows of each cluster begin, and the end of the last.
    support_vectors_ : ndarray or CSR matrix of shape (n_support, n_features)
    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Coefficients of the support rows.
    intercept_ : ndarray of shape (n_clusters, 1) or (n_clusters, n_classes)
        Constants of the scores; all there is (1 or -1) for classes that a cluster has no rows of,
        or rows of nothing else.
    gamma_ : float
        The number that ``gamma`` stood for.
    kernel_dtype_ : str
        The precision of kernel values in prediction.
    classes_ : ndarray of shape (n_classes,)
    lam_ : float
        The number that ``lam`` stood for.
    objective_ : float
        The sum of the objectives above.
    dual_gap_ : float
        The largest relative duality gap of a cluster.
    n_iter_ : int
        The most rounds that a cluster took.
    status_ : str
        "converged" where every cluster is, else what stopped the worst: see `ODMClassifier`.
    solver_ : str
        "local".
    history_ : dict of ndarrays
        Columns machine, rows, round, objective, gap and time: a line for each cluster, with the
        rows that it learnt from.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from optimargin import LocalODMClassifier
    >>> X, y = make_moons(2000, noise=0.2, random_state=0)
    >>> model = LocalODMClassifier(n_clusters=8, gamma=2.0, random_state=0).fit(X, y)
    >>> round(model.score(X, y), 2)
    0.97
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{k: v for k, v in MarginClassifier._parameter_constraints.items() if k not in _NOT_HERE},
        "n_clusters": [_WHOLE_NUMBER, StrOptions({"auto"})],
        "n_asked": [_WHOLE_NUMBER],
        "overlap": [Interval(Real, 0, None, closed="left")],
        "kernel": [StrOptions(set(KERNELS) - {"precomputed"}), callable],
        "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0, None, closed="left")],
        "degree": [Interval(Real, 0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
        "n_landmarks": [_WHOLE_NUMBER, StrOptions({"auto"}), None],
        "landmarks": [StrOptions(set(HOW))],
        "engine": [HasMethods("scatter"), None],
    }
    multi_class = "ovr"  # inside of clusters

    def __init__(
        self,
        *,
        n_clusters: int | str = "auto",
        n_asked: int = 2,
        overlap: float = 0.5,
        kernel: str | Callable[[Any, Any], Any] = "rbf",
        lam: float | str = "scale",
        mu: float = 0.5,
        theta: float = 0.1,
        gamma: float | str = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        n_landmarks: int | str | None = "auto",
        landmarks: str = "margin",
        engine: Any = None,
        fit_intercept: bool = False,
        class_weight: Any = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        time_limit: float | None = None,
        memory_limit: float | str | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_asked = n_asked
        self.overlap = overlap
        self.kernel = kernel
        self.lam = lam
        self.mu = mu
        self.theta = theta
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.engine = engine
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on the rows of X.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Training rows; single and double precision are taken as they are.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : array-like of shape (n_samples,), optional
            A weight w_i >= 0 multiplies the loss of the row.  Clusters do not depend on it, save
            that rows of weight 0 are left out.

        Returns
        -------
        self
        """
        began = time.perf_counter()
        with unchanged_on_error(self):
            self._validate_params()
            whole, labels = self._pose(X, y, sample_weight)
            kept = np.arange(whole.n) if whole.weight is None else np.flatnonzero(whole.weight)
            watched = (
                watching(self, whole.X, labels, None) if has_callbacks(self) else nullcontext()
            )
            with watched, blas_threads(1):
                whole = whole.narrowed()
                seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
                count = None if self.n_clusters == "auto" else int(self.n_clusters)
                cells = make_cells(whole, count, float(self.overlap), seed)
                if self.verbose:
                    print(_said_of(cells))
                local = self._local(whole, len(cells.centres), seed, began)
                with blas_threads(max(whole.threads // len(cells.centres), 1)):
                    coef, facts = solve_cells(whole, cells, local, self.engine)
            self._take(whole, cells, coef, facts, kept)
            self._tell(facts)
        return self

    def _data(self, X: Any, weight: np.ndarray | None, threads: int) -> dict[str, Any]:
        self.gamma_ = number_of_gamma(self.gamma, X, weight)
        return {"bias": float(self.fit_intercept)}

    def _start(self, classes: np.ndarray, X: Any) -> list[Start] | None:
        return None

    def _kernel(self) -> Kernel:
        return make_kernel(self.kernel, self.gamma_, self.degree, self.coef0)

    def _local(self, whole: Problem, cells: int, seed: int, began: float) -> Local:
        """What every cluster is told; limits are shared by those that are at work at a time."""
        workers = min(whole.threads, cells)
        seconds = self.time_limit
        if seconds is not None:
            seconds = max(seconds - (time.perf_counter() - began), 0.0) * workers / cells
            seconds /= 1 if whole.classes == 2 else whole.classes
        given = self.n_landmarks
        return Local(
            self._kernel(),
            int(given) if given not in ("auto", None) else None,
            given is None,
            self.landmarks,
            limit_in_bytes(self.memory_limit) // workers,
            Stop(self.tol, self.max_iter, seconds),
            seed,
        )

    def _take(
        self, whole: Problem, cells: Cells, coef: np.ndarray, facts: Facts, kept: np.ndarray
    ) -> None:
        """Adopt the machines."""
        del self._continuing
        entry = np.flatnonzero(coef.any(axis=1))
        count = len(cells.centres)
        ends = np.searchsorted(cells.cell[entry], np.arange(count + 1))
        B = np.ascontiguousarray(coef[entry].T)
        sums = np.concatenate([np.zeros((len(B), 1)), B.cumsum(axis=1)], axis=1)[:, ends]
        self.cluster_centers_, self.n_clusters_ = cells.centres, count
        self.cluster_sizes_ = cells.sizes
        self.support_, self.support_ends_ = kept[cells.row[entry]], ends
        self.support_vectors_, self.dual_coef_ = whole.X[cells.row[entry]], B
        self.intercept_ = facts.constant + np.diff(sums).T * whole.bias**2
        largest = whole.X[: int(facts.rows.max())]
        self.kernel_dtype_ = np.dtype(precision(self._kernel(), largest)).name
        self.objective_ = float(facts.primal.sum())
        self.dual_gap_ = float(facts.gap.max())
        self.n_iter_ = int(facts.rounds.max())
        self.status_ = facts.status[facts.worst].value
        self.solver_ = "local"
        self.history_ = {
            "machine": np.arange(count),
            "rows": facts.rows,
            "round": facts.rounds,
            "objective": facts.primal,
            "gap": facts.gap,
            "time": facts.seconds,
        }

    def _tell(self, facts: Facts) -> None:
        late = sum(status is not Status.CONVERGED for status in facts.status)
        said = (
            f"{type(self).__name__}: {len(facts.status) - late} of {len(facts.status)} clusters"
            f" converged; the worst relative duality gap is {self.dual_gap_:.1e}"
            f" (tol={self.tol:.1e})."
        )
        if late:
            advice = _ADVICE.get(self.status_, facts.status[facts.worst].advice)
            said = f"{said} The worst stopped at {self.status_}: {advice}."
            warnings.warn(said, ConvergenceWarning, stacklevel=4)
        elif self.verbose:
            print(said)

    def _scores(self, X: Any) -> np.ndarray:
        return local_scores(self, X, int(self.n_asked))


def local_scores(model: Any, X: Any, asked: int) -> np.ndarray:
    """What the machines of so many clusters say; what they prepare serves the next rows too."""
    known, Z, B, kernel = (
        _READY.get(model),
        model.support_vectors_,
        model.dual_coef_,
        model._kernel(),
    )
    if known is None or known.Z is not Z or known.B is not B or known.kernel != kernel:
        centres, dtype = model.cluster_centers_, np.dtype(model.kernel_dtype_)
        known = Patchwork(kernel, centres, Z, B, model.support_ends_, model.intercept_, dtype)
        _READY[model] = known
    return known.scores(X, asked, effective_n_jobs(-1 if model.n_jobs is None else model.n_jobs))


_ADVICE = {  # where that of a status speaks of what this classifier has not
    Status.MAX_ITER.value: "raise max_iter, or take more clusters, or scale the features",
    Status.TIME_LIMIT.value: "raise time_limit, or take more clusters",
}


def _said_of(cells: Cells) -> str:
    sizes = cells.sizes
    return (
        f"{len(sizes)} clusters of {sizes.min():,} to {sizes.max():,} rows, on average"
        f" {sizes.mean():,.0f}; {len(cells.row) / sizes.sum():.2f} times the rows with overlaps"
    )
