"""What both classifiers that choose lam, mu, theta and gamma themselves have in common."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from inspect import signature
from itertools import product
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import ParameterGrid, check_cv
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from optimargin.estimators.classifier import MarginClassifier, unchanged_on_error
from optimargin.estimators.folds import Split
from optimargin.estimators.judged import Judged, Rows, Setting
from optimargin.estimators.labelled import weight_of
from optimargin.estimators.path import Grid, Outcome, Scorer
from optimargin.estimators.results import cv_results, followed, params_of
from optimargin.estimators.search import explore
from optimargin.problem import Status
from optimargin.solvers.choose import ON_PARTS

LAMS = (1.0, 16.0, 256.0, 4096.0, 65536.0)
_PARTS = (  # machines of a search are trained in one place
    "n_partitions",
    "fan_in",
    "partition",
    "n_strata",
    "levels",
    "merge",
    "survivors",
    "final",
    "engine",
    "line_search",
)
_CHOSEN = (  # not for the user to set
    "lam",
    "mu",
    "theta",
    "gamma",
    "time_limit",
    "warm_start",
    *_PARTS,
)
_GRIDS = ("lams", "mus", "thetas")
_OWN = ("best_params_", "best_score_", "best_index_", "cv_results_", "n_splits_")


class Tuned(MarginClassifier):
    """A classifier whose ``fit`` is a search over settings, and then a fit with the best."""

    _plain: ClassVar[type[MarginClassifier]]
    _works_on_devices = False
    device: str | None = None  # folds are cut out of NumPy arrays
    precision: str = "auto"
    _constraints: ClassVar[dict[str, list[Any]]] = {
        "lams": ["array-like"],
        "mus": ["array-like"],
        "thetas": ["array-like"],
        "cv": [
            Interval(Integral, 2, None, closed="left"),
            HasMethods(["split", "get_n_splits"]),
            StrOptions({"loo_bound"}),
            "cv_object",
            None,
        ],
        "scoring": [str, callable, None],
        "refit": ["boolean"],
    }

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Try every setting on every fold, and train on all rows with the best.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Training rows; single and double precision are taken as they are.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : array-like of shape (n_samples,), optional
            A weight w_i >= 0 counts as w_i copies of the row: in training, and in the score
            of a fold if the scorer takes weights.

        Returns
        -------
        self
        """
        with unchanged_on_error(self):
            self._validate_params()
            for name in [name for name in vars(self) if _is_fitted_attribute(name)]:
                delattr(self, name)
            plain, grid = self._template(), self._grid()
            checked, labels = self._check_rows(X, y)
            rows = Rows(checked, labels, weight_of(sample_weight, checked))
            self._adopt_search(grid, self._search(plain, grid, rows))
            if self.refit:
                best = plain.set_params(**self.best_params_).fit(X, y, sample_weight)
                found = {k: v for k, v in vars(best).items() if _is_fitted_attribute(k)}
                self.__dict__.update(found)
        return self

    def _template(self) -> MarginClassifier:
        """The plain classifier, with all that is not searched."""
        theirs = set(self._plain._get_param_names()) - {*_CHOSEN, "verbose"}
        plain = self._plain(**{name: getattr(self, name) for name in theirs})
        if not isinstance(self.random_state, Integral):  # the same for all settings
            drawn = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
            plain.set_params(random_state=int(drawn))
        return plain

    def _grid(self) -> Grid:
        gammas = _values("gammas", self.gammas) if "gammas" in self._get_param_names() else [None]
        lams, mus, thetas = (_values(name, getattr(self, name)) for name in _GRIDS)
        grid = Grid(lams, mus, thetas, gammas)
        for setting in product(*grid):
            given = dict(zip(("lam", "mu", "theta", "gamma"), setting, strict=True))
            sensible = {name: value for name, value in given.items() if value is not None}
            self._plain(**sensible)._validate_params()
        return grid

    def _search(self, plain: MarginClassifier, grid: Grid, rows: Rows) -> list[Outcome]:
        if self.cv == "loo_bound":
            self._check_bound(rows)
            everything = np.arange(len(rows.y))
            splits: list[Split] = [(everything, everything[:0])]
            scorer = None
            self.n_splits_ = 0
        else:
            cv = check_cv(self.cv, rows.y, classifier=True)
            splits = list(cv.split(rows.X, rows.y))
            scorer = _weighing(check_scoring(plain, self.scoring), self.scoring)
            self.n_splits_ = len(splits)
        workers = effective_n_jobs(-1 if self.n_jobs is None else self.n_jobs)
        outcomes = explore(plain, grid, rows, splits, scorer, workers)
        if self.verbose:
            total = len(splits) * int(np.prod([len(values) for values in grid]))
            outcomes = followed(outcomes, total, type(self).__name__)
        return list({(o.setting, o.fold): o for o in outcomes}.values())  # the last word counts

    def _check_bound(self, rows: Rows) -> None:
        if self.scoring is not None:
            raise ValueError("cv='loo_bound' chooses by the bound; leave scoring=None.")
        joint = self.multi_class.startswith("mcodm")
        if joint and len(np.unique(rows.y)) > 2:
            raise ValueError(
                "cv='loo_bound' is a theorem about two classes; with more, set multi_class='ovr'"
                " or 'ovo' (the mean over the machines counts), or use folds."
            )

    def _adopt_search(self, grid: Grid, outcomes: list[Outcome]) -> None:
        names = ("gamma", "lam", "mu", "theta")
        order = ParameterGrid(
            dict(zip(names, (grid.gammas, grid.lams, grid.mus, grid.thetas), strict=True))
        )
        settings = [Setting(**params) for params in order]
        results = cv_results(settings, outcomes, max(self.n_splits_, 1))
        if not self.n_splits_:  # one figure, which is not that of a fold
            results["loo_count"] = -results.pop("split0_test_score")
        self.cv_results_ = results
        self.best_index_ = int(results["rank_test_score"].argmin())
        self.best_score_ = float(results["mean_test_score"][self.best_index_])
        self.best_params_ = params_of(settings[self.best_index_])
        short = sum(outcome.status is not Status.CONVERGED for outcome in outcomes)
        if short:
            warnings.warn(
                f"{type(self).__name__}: {short} of {len(outcomes)} fits stopped before the"
                f" relative duality gap was below tol={self.tol:.1e}, and may be judged by an"
                f" answer that is not the best; raise max_iter, or leave out the largest lams.",
                ConvergenceWarning,
                stacklevel=3,
            )

    @property
    def best_estimator_(self) -> MarginClassifier:
        """The plain classifier with the best setting, trained on all rows."""
        if "classes_" not in vars(self):
            raise AttributeError("best_estimator_ is available after a fit with refit=True.")
        best = self._template().set_params(**self.best_params_, random_state=self.random_state)
        theirs = {k: v for k, v in vars(self).items() if _is_fitted_attribute(k) and k not in _OWN}
        best.__dict__.update(theirs)
        return best

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The score by ``scoring``: the accuracy, if that is None.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows with the features of the training rows.
        y : array-like of shape (n_samples,)
            Their labels.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows, for scorers that take them.

        Returns
        -------
        float
        """
        if self.scoring is None:
            return ClassifierMixin.score(self, X, y, sample_weight)
        return _weighing(check_scoring(self, self.scoring), self.scoring)(self, X, y, sample_weight)

    def __sklearn_is_fitted__(self) -> bool:
        return "classes_" in vars(self)


def _is_fitted_attribute(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")


def _values(name: str, given: Any) -> list[Any]:
    values = [v.item() if isinstance(v, np.generic) else v for v in given]
    if not values:
        raise ValueError(f"{name} must have at least one value.")
    return list(dict.fromkeys(values))  # each of them once


def _weighing(scorer: Callable[..., float], scoring: Any) -> Scorer:
    """The scorer as a function of the weights too, which it may not know what to do with."""
    asked = getattr(scorer, "_score_func", scorer)
    if scoring is not None and "sample_weight" not in signature(asked).parameters:
        return lambda model, X, y, weight: scorer(model, X, y)

    def judge(model: Judged, X: Any, y: np.ndarray, weight: np.ndarray | None) -> float:
        if weight is None:
            return scorer(model, X, y)
        return scorer(model, X, y, sample_weight=weight)

    return judge


def kept(kind: type[MarginClassifier]) -> dict[str, list[Any]]:
    """The constraints of a plain classifier on what is not searched."""
    rules = {n: r for n, r in kind._parameter_constraints.items() if n not in _CHOSEN}
    (solvers,) = rules["solver"]
    return {**rules, "solver": [StrOptions(solvers.options - set(ON_PARTS))]}
