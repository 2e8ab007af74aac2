"""What the linear and the kernel classifier share: from data to problems, and back."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from numbers import Integral, Real
from threading import Event
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from optimargin.arrays import brought, is_foreign, namespace, on_host, taken, total_of
from optimargin.classes import MANY, decisions, parts, winners
from optimargin.device import beside, spans_of
from optimargin.estimators.answers import told, worst_of
from optimargin.estimators.labelled import (
    checked_labels,
    class_factors,
    has_rows,
    labels_of,
    weight_of,
)
from optimargin.estimators.progress import (
    CallbackSupportMixin,
    Judge,
    has_callbacks,
    how_good,
    watching,
    with_callbacks,
)
from optimargin.estimators.workplace import as_given, floating, rows_at, workplace
from optimargin.loss import Loss, odm
from optimargin.problem import Problem, Start, Status, Stop
from optimargin.rowfiles import RowFiles
from optimargin.solvers.parting import Parting
from optimargin.solvers.train import Machine, Plan, train
from optimargin.threads import blas_threads, blocks

_LARGE = 2500  # rows of a kernel machine whose linear algebra is worth several threads


Scores = Callable[[np.ndarray], np.ndarray]  # from models, a row each, to scores of some rows


class MarginClassifier(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """Pose the problem, solve its machines, adopt the answers."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "lam": [Interval(Real, 0, None, closed="neither"), StrOptions({"scale"})],
        "mu": [Interval(Real, 0, None, closed="left")],
        "theta": [Interval(Real, 0, 1, closed="left")],
        "multi_class": [StrOptions(set(MANY))],
        "fit_intercept": ["boolean"],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "time_limit": [Interval(Real, 0, None, closed="neither"), None],
        "warm_start": ["boolean"],
        "memory_limit": [Interval(Real, 0, None, closed="neither"), str, None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    _works_on_devices: ClassVar[bool] = False  # takes arrays of PyTorch and CuPy

    # -- fit: pose, solve, adopt ---------------------------------------------------------

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None, validation: Any = None) -> Self:
        """Train on the rows of X.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Training rows; single and double precision are taken as they are.  The ODM and the
            linear SVM also take arrays of PyTorch and CuPy, and are trained where these are.
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
        began = time.perf_counter()
        judge = None if validation is None else Judge(self, validation)
        with unchanged_on_error(self):
            self._validate_params()
            whole, labels = self._pose(X, y, sample_weight)
            whole = self._placed(whole)
            whole, machines = self._solve(whole, labels, began, judge)
            self._adopt(whole, machines)
            if judge is not None and len(machines) == 1:
                self.history_["accuracy"] = np.array(judge.seen)
            self._report(machines)
        return self

    def _pose(
        self, X: Any, y: Any, sample_weight: Any, data: dict[str, Any] | None = None
    ) -> tuple[Problem, np.ndarray]:
        """The problem and the labels; ``data`` is what `_data` would find, if that is known."""
        X, y = self._check_rows(X, y)
        weight = weight_of(sample_weight, beside(X))
        labels = labels_of(y, beside(X))
        classes, code = labels
        present = has_rows(labels, weight)
        if present.sum() < 2:
            raise ValueError(
                f"{type(self).__name__} needs rows of at least two classes in y; found one class"
                f" ({classes[present][0]!r}) with a positive weight."
            )
        counted = weight
        if self.class_weight is not None:
            factor = class_factors(self.class_weight, labels, y, weight)
            weight = factor if weight is None else weight * factor
        self._continuing = self._start(classes, X)
        self.classes_ = classes
        loss = self._loss(total_of(counted, X.shape[0]))
        threads = effective_n_jobs(-1 if self.n_jobs is None else self.n_jobs)
        if data is None:
            with blas_threads(1):  # ours are enough, and do not wait for each other
                data = self._data(X, counted, threads)
        whole = Problem(X, code, weight, loss, classes=len(classes), threads=threads, **data)
        return whole, y

    def _loss(self, total: float) -> Loss:
        """The loss of a row of weight 1 among rows of this total weight."""
        self.lam_ = number_of(self.lam, self.theta, total)
        return odm(self.lam_, self.mu, self.theta, total)

    def _workplace(self, X: Any) -> Any:
        """An array where the work on X is to be done; None where that is NumPy."""
        if is_foreign(X) and not self._works_on_devices:
            raise TypeError(
                f"{type(self).__name__} takes NumPy arrays and SciPy matrices; X is of type"
                f" {type(X).__name__}. ODMClassifier and LinearODMClassifier take such arrays."
            )
        return workplace(X, getattr(self, "device", None), self._work_on)

    def _work_on(self, X: Any) -> float:
        """Multiplications in one pass over the rows."""
        return float(np.prod(X.shape))

    def _check_rows(self, X: Any, y: Any) -> tuple[Any, Any]:
        like = self._workplace(X)
        if like is not None:
            X = rows_at(self, X, like, reset=True)
            return X, checked_labels(y, X)
        X, y = _here(X), _here(y)
        if isinstance(X, RowFiles):
            raise TypeError(
                "X is RowFiles, which ODMClassifier(solver='landmark') alone reads in blocks; pass"
                " rows[:] to have all rows in memory."
            )
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=floating(X),
            order="C",
            accept_large_sparse=True,
            ensure_min_samples=2,
        )
        check_classification_targets(y)
        if sp.issparse(X) and not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        return X, y

    def _solve(
        self, whole: Problem, labels: np.ndarray, began: float, judge: Judge | None
    ) -> tuple[Problem, list[Machine]]:
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        count = len(parts(self.multi_class, whole.classes))
        together = count > 1 and not self.verbose and not has_callbacks(self)
        workers = min(whole.threads, count) if together else 1
        if whole.sketch is not None or is_foreign(whole.y):  # machines go on side by side
            workers = 1
        plan = Plan(self._solver(), self.multi_class, Stop(), seed, parting=self._parting())
        seconds = self.time_limit
        if seconds is not None:  # what is left of it, shared by the machines
            share = max(plan.at_once(whole), workers) / count
            seconds = max(seconds - (time.perf_counter() - began), 0.0) * share
        attributes = (lambda p: self._attributes(whole, [p])) if count == 1 else None
        with watching(self, whole.X, labels, attributes, judge) as watch:
            halt = Event()  # an interrupt reaches one thread only; the others look here
            stop = Stop(self.tol, self.max_iter, seconds, watch or (lambda *_: halt.is_set()))
            plan = plan._replace(stop=stop)
            # Small factorisations lose by threads, badly so on a busy machine.
            large = workers == 1 and whole.gram is not None and whole.n > _LARGE
            threads = whole.threads if large else 1
            with ThreadPoolExecutor(workers) as pool, blas_threads(threads):
                try:
                    return train(plan, whole, self._continuing, pool.map if workers > 1 else map)
                except BaseException:
                    halt.set()
                    raise

    def _solver(self) -> str:
        paper = self.multi_class == "mcodm-paper"
        return "mcodm-paper" if paper and len(self.classes_) > 2 else self.solver

    def _adopt(self, whole: Problem, machines: list[Machine]) -> None:
        del self._continuing
        solutions = [m.solution for m in machines]
        self._note(self._attributes(whole, solutions), machines)
        if self.warm_start:
            self._kept = [Start(s.coef, s.dual) for s in solutions]
        else:
            self.__dict__.pop("_kept", None)

    def _note(self, model: dict[str, Any], machines: list[Machine]) -> None:
        """The attributes of the model, and what there is to say of the machines."""
        self.__dict__.pop("traffic_", None)
        for name, value in {**model, **told(machines)}.items():
            setattr(self, name, value)

    def _report(self, machines: list[Machine]) -> None:
        worst = worst_of([m.solution for m in machines])
        said = how_good(worst, self.tol, type(self).__name__)
        if worst.status not in (Status.CONVERGED, Status.LEVELS, Status.AVERAGED):
            warnings.warn(said, ConvergenceWarning, stacklevel=5)
        elif self.verbose:
            print(said)

    def _start(self, classes: np.ndarray, X: Any) -> list[Start] | None:
        """Where a warm start continues, if the last fit had the same classes and shape."""
        kept = getattr(self, "_kept", None)
        if not self.warm_start or kept is None or not np.array_equal(classes, self.classes_):
            return None
        return [self._fitting_start(start, X) for start in kept]

    # -- what the two classifiers do differently -------------------------------------------

    def _data(self, X: Any, weight: np.ndarray | None, threads: int) -> dict[str, Any]:
        raise NotImplementedError

    def _parting(self) -> Parting:
        """How solvers that work on parts of the rows divide them."""
        return Parting()

    def _placed(self, whole: Problem) -> Problem:
        """The problem with its landmarks, where it is to have some."""
        return whole

    def _attributes(self, whole: Problem, points: Any) -> dict[str, Any]:
        raise NotImplementedError

    def _fitting_start(self, start: Start, X: Any) -> Start:
        raise NotImplementedError

    def _scores(self, X: Any) -> np.ndarray:
        raise NotImplementedError

    # -- what a search over settings shares: see search.py ---------------------------------

    def _footprint(self, X: Any, rows: int) -> float:
        """Bytes that training on so many of the rows keeps, and predicting the others."""
        raise NotImplementedError

    def _shared(self, X: Any, limit: int, threads: int) -> Any:
        """What the folds have in common, if anything."""
        return None

    def _cut(self, shared: Any, rows: np.ndarray) -> dict[str, Any]:
        """What `_data` would find for some of the rows, cut out of what is shared."""
        raise NotImplementedError

    def _scores_on(self, whole: Problem, X: Any, values: np.ndarray | None) -> Scores | None:
        """The way from models to scores of the rows of X; None where it takes a fitted model.

        ``values`` are theirs with the training rows, where something is shared.
        """
        raise NotImplementedError

    # -- prediction ------------------------------------------------------------------------

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores: f(x) for two classes (positive for ``classes_[1]``), else one per class.

        Parameters
        ----------
        X : array-like, CSR matrix or RowFiles of shape (n_samples, n_features)
            Rows with the features of the training rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        check_is_fitted(self)
        given, like = X, self._workplace(X)
        if like is not None:
            X = rows_at(self, X, like, reset=False)
            found = [self._scores(taken(X, span)) for span in spans_of(X, slice(0, X.shape[0]))]
            scores = namespace(found[0]).concat(found)
            return as_given(decisions(scores, len(self.classes_), self.multi_class), given)
        if isinstance(X, RowFiles):
            return np.concatenate([self.decision_function(X[span]) for span in blocks(X)])
        X = _here(X)
        X = validate_data(
            self,
            X,
            accept_sparse="csr",
            dtype=floating(X),
            accept_large_sparse=True,
            reset=False,
        )
        scores = decisions(self._scores(X), len(self.classes_), self.multi_class)
        return as_given(scores, given)

    def predict(self, X: Any) -> np.ndarray:
        """The most likely class of each row.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows with the features of the training rows.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        code = winners(self.decision_function(X))
        if not is_foreign(code) or self.classes_.dtype.kind not in "biuf":
            return self.classes_[on_host(code)]
        return taken(brought(self.classes_, code), code)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy on these rows.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows with the features of the training rows.
        y : array-like of shape (n_samples,)
            Their labels.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows.

        Returns
        -------
        float
        """
        weight = None if sample_weight is None else _here(sample_weight)
        return float(accuracy_score(_here(y), _here(self.predict(X)), sample_weight=weight))

    def save(self, path: Any) -> None:
        """Write the fitted classifier to a file that ``optimargin.load`` reads."""
        from optimargin.estimators.saved import save

        save(self, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _here(x: Any) -> Any:
    """Arrays of other libraries as NumPy's; all else as it is."""
    return on_host(x) if is_foreign(x) else x


@contextmanager
def unchanged_on_error(estimator: Any) -> Iterator[None]:
    """Whatever goes wrong inside, the estimator is left as it was."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def number_of(lam: float | str, theta: float, total: float) -> float:
    """The number that lam stands for on rows that weigh so much together."""
    return total * (1.0 - theta) ** 2 if lam == "scale" else float(lam)
