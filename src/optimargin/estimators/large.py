"""What a kernel classifier does with many rows: landmarks, and parts that are merged."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from sklearn.utils import check_array, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples

from optimargin.arrays import is_foreign, name_of_dtype, on_host
from optimargin.classes import parts
from optimargin.device import Moved, has_half
from optimargin.estimators.classifier import Scores, unchanged_on_error
from optimargin.estimators.kernelized import DTYPES, KernelClassifier, number_of_gamma
from optimargin.estimators.local import LocalODMClassifier, local_scores
from optimargin.expansion import sums
from optimargin.gram import Gram, precision
from optimargin.kernelmatrix import EXACT_UP_TO
from optimargin.memory import limit_in_bytes
from optimargin.partition import PARTITIONS
from optimargin.problem import Problem, Start
from optimargin.rowfiles import RowFiles
from optimargin.sketch import footprint
from optimargin.solvers.choose import KERNEL
from optimargin.solvers.outlook import (
    TYPICAL,
    Outlook,
    Rates,
    exact,
    in_parts,
    landmark,
    landmarks_pay,
    rates,
)
from optimargin.solvers.parting import Parting
from optimargin.solvers.place import HOW, Wish, most_landmarks, place
from optimargin.solvers.sodm import MERGES
from optimargin.solvers.train import Machine
from optimargin.threads import blas_threads

_UP_TO_ONE = ("rbf", "laplacian")  # kernels whose values half precision can hold
_OF_CLUSTERS = (  # what machines of clusters are told, too
    *("kernel", "lam", "mu", "theta", "gamma", "degree", "coef0", "engine", "fit_intercept"),
    *("class_weight", "tol", "max_iter", "time_limit", "memory_limit", "n_jobs", "random_state"),
    "verbose",
)
_DEFINITE = ("linear", "rbf", "laplacian")  # kernels without negative eigenvalues


class LargeKernelClassifier(KernelClassifier):
    """Over all rows, over landmarks, or on parts of the rows, as ``solver`` says."""

    solver: str
    n_landmarks: int | str
    landmarks: Any
    n_partitions: int | None
    fan_in: int
    partition: str
    n_strata: int
    levels: int | None
    merge: str
    survivors: bool
    final: str
    engine: Any

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **KernelClassifier._parameter_constraints,
        "solver": [StrOptions(set(KERNEL))],
        "n_landmarks": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "landmarks": [StrOptions(set(HOW)), "array-like"],
        "n_partitions": [Interval(Integral, 1, None, closed="left"), None],
        "fan_in": [Interval(Integral, 2, None, closed="left")],
        "partition": [StrOptions(set(PARTITIONS))],
        "n_strata": [Interval(Integral, 1, None, closed="left")],
        "levels": [Interval(Integral, 1, None, closed="left"), None],
        "merge": [StrOptions(set(MERGES))],
        "survivors": ["boolean"],
        "final": [StrOptions({"average", "local"})],
        "engine": [HasMethods("scatter"), None],
        "device": [str, None],
        "precision": [StrOptions(set(DTYPES))],
    }
    _works_on_devices = True

    def fit(self, X: Any, y: Any, sample_weight: Any = None, validation: Any = None) -> Self:
        """Train on the rows of X.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Training rows; single and double precision are taken as they are.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : array-like of shape (n_samples,), optional
            A weight w_i >= 0 counts as w_i copies of the row.
        validation : tuple (X, y), optional
            Rows that are not trained on: ``history_`` then tells the accuracy on them after
            each round, where one machine is trained (two classes, or "mcodm").

        Returns
        -------
        self
        """
        if self.solver == "sodm" and self.final == "local":
            with unchanged_on_error(self):
                return self._fit_clusters(X, y, sample_weight)
        super().fit(X, y, sample_weight, validation)
        self.__dict__.pop("cluster_centers_", None)
        return self

    def _fit_clusters(self, X: Any, y: Any, sample_weight: Any) -> Self:
        """The machines of the last level's clusters: nothing that levels before it find remains."""
        self._validate_params()
        if self.partition != "kmeans":
            raise ValueError(
                "final='local' asks the nearest cluster, so it needs partition='kmeans';"
                f" got partition={self.partition!r}."
            )
        given = {name: getattr(self, name) for name in _OF_CLUSTERS}
        counts = self._parting().levels_of(_num_samples(X))
        local = LocalODMClassifier(
            **given, n_clusters=counts[-1], n_asked=1, overlap=0.0, n_landmarks=None
        ).fit(X, y, sample_weight)
        if len(local.classes_) > 2 and self.multi_class != "ovr":
            raise ValueError(
                "final='local' has a machine of two classes in each cluster; with more, set"
                " multi_class='ovr'."
            )
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        fitted = {name: value for name, value in vars(local).items() if name.endswith("_")}
        self.__dict__.update(fitted, solver_="sodm", kernel_shift_=0.0)
        return self

    @property
    def coef_(self) -> np.ndarray:
        """Weights in feature space, for a linear kernel."""
        if hasattr(self, "cluster_centers_"):
            raise AttributeError("coef_ is not there where clusters have machines of their own.")
        return super().coef_

    def _scores(self, X: Any) -> np.ndarray:
        return local_scores(self, X, 1) if hasattr(self, "cluster_centers_") else super()._scores(X)

    def explain(self, X: Any) -> dict[str, Any]:
        """What `fit` would do with these rows, and about what it would take.

        Parameters
        ----------
        X : array-like, CSR matrix or RowFiles of shape (n_samples, n_features)
            Training rows; only their shape and type matter.

        Returns
        -------
        dict
            ``"solver"`` ("exact", "sodm" or "landmark"), ``"n_landmarks"`` (None without; a typical
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
        n, values, count, limit = self._size(X)
        over_landmarks = landmark(n, values, count, limit, rate)
        if self.solver == "sodm":
            counts = self._parting().levels_of(n)
            return in_parts(n, values, counts, self._threads, limit, rate), over_landmarks
        return exact(n, values, limit, rate), over_landmarks

    def _size(self, X: Any) -> tuple[int, float, int, float]:
        """Rows, values in each, landmarks, and bytes for kernel values."""
        (n, d), limit = X.shape, limit_in_bytes(self.memory_limit)
        values = X.nnz / max(n, 1) if sp.issparse(X) else d
        count = TYPICAL if self.n_landmarks == "auto" else int(self.n_landmarks)
        if not isinstance(self.landmarks, str):
            count = _num_samples(self.landmarks)
        return n, values, count, limit

    def _has_landmarks(self, X: Any) -> bool:
        """Whether the machine is sought over landmarks."""
        refuse_precomputed(self.kernel, self.solver)
        if self.solver != "auto" or self.kernel not in _DEFINITE:
            return self.solver == "landmark"
        if self._workplace(X) is not None:
            return X.shape[0] > EXACT_UP_TO
        return landmarks_pay(*self._size(X))

    def _work_on(self, X: Any) -> float:
        n, values, count, _ = self._size(X)
        return n * values * count

    def _check_rows(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        if not isinstance(X, RowFiles):
            return super()._check_rows(X, y)
        if not self._has_landmarks(X):  # exact solvers need all rows at hand
            return super()._check_rows(X[:], y)
        like = self._workplace(X)
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        check_classification_targets(y)
        self.n_features_in_ = X.shape[1]
        return X.checked() if like is None else Moved(X.checked(), like), y

    def _data(self, X: Any, weight: np.ndarray | None, threads: int) -> dict[str, Any]:
        has_landmarks = self._has_landmarks(X)
        if self.verbose:
            print(f"{type(self).__name__}: {self._outlooks(X, rates(threads))[has_landmarks]}")
        if not has_landmarks:
            return super()._data(X, weight, threads)
        self.gamma_ = number_of_gamma(self.gamma, X, weight)
        return {"bias": float(self.fit_intercept)}

    @property
    def _keeps(self) -> bool:
        return self.solver != "sodm"  # the parts keep their own

    def _parting(self) -> Parting:
        return merged(self)

    def _placed(self, whole: Problem) -> Problem:
        if whole.gram is not None:
            return whole
        kernel, limit = self._kernel(), limit_in_bytes(self.memory_limit)
        count = None if self.n_landmarks == "auto" else int(self.n_landmarks)
        joint = whole.classes > 2 and self.multi_class in ("mcodm", "mcodm-paper")
        if is_foreign(whole.y):
            dtype = self._device_dtype(whole, joint)
        else:
            dtype = self._host_dtype or precision(kernel, whole.X)
        wish = Wish(kernel, count, self._which(whole.X), dtype, limit, joint=joint)
        if self._continuing is not None and self._continuing[0].coef is not None:
            wish = replace(wish, how=self.support_vectors_, index=self.support_)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        with blas_threads(1):
            whole, starts = place(whole, wish, seed)
        if starts and len(starts) == len(parts(self.multi_class, whole.classes)):
            self._continuing = starts
        return whole

    @property
    def _host_dtype(self) -> str | None:
        """The precision that was asked for, as compiled loops have it."""
        return "float32" if self._asked_dtype == "float16" else self._asked_dtype

    def _device_dtype(self, whole: Problem, joint: bool) -> str:
        """The precision of features on a device."""
        asked = self._asked_dtype or ("float32" if whole.n > EXACT_UP_TO else "float64")
        can_be_half = has_half(whole.y) and self.kernel in _UP_TO_ONE and not joint
        return "float32" if asked == "float16" and not can_be_half else asked

    def _which(self, X: Any) -> Any:
        """The rule that chooses landmarks, or the landmarks."""
        if isinstance(self.landmarks, str):
            return self.landmarks
        Z = on_host(self.landmarks) if is_foreign(self.landmarks) else self.landmarks
        dtype = name_of_dtype(X)
        Z = check_array(Z, accept_sparse="csr", dtype=dtype, input_name="landmarks")
        if Z.shape[1] != X.shape[1]:
            raise ValueError(
                f"landmarks must have the {X.shape[1]} features of X; it has {Z.shape[1]}."
            )
        return Z

    def _attributes(self, whole: Problem, points: Any) -> dict[str, Any]:
        if whole.sketch is None:
            return super()._attributes(whole, points)
        landmarks, B = whole.sketch.landmarks, np.vstack([on_host(p.coef) for p in points])
        Z = on_host(landmarks.Z) if is_foreign(landmarks.Z) else landmarks.Z
        return self._expansion(landmarks.index, Z, B, name_of_dtype(landmarks.moved))

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


def merged(model: Any) -> Parting:
    """How the parts of "sodm" are made and merged."""
    return Parting(
        model.n_partitions,
        model.partition,
        model.n_strata,
        model.fan_in,
        model.levels,
        model.merge,
        model.survivors,
        model.engine,
    )


def refuse_precomputed(kernel: Any, solver: str) -> None:
    """Say so if a solver needs the rows themselves."""
    if isinstance(kernel, str) and kernel == "precomputed" and solver in ("landmark", "sodm"):
        raise ValueError(
            f"solver={solver!r} computes kernel values of rows; with kernel='precomputed'"
            " choose 'auto' or 'dcd'."
        )
