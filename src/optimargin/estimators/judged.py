"""A trained setting of a search, as a scorer sees it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from optimargin.classes import decisions, winners
from optimargin.estimators.classifier import MarginClassifier, Scores, number_of
from optimargin.gram import is_definite
from optimargin.problem import Problem
from optimargin.solvers.kernel_newton import is_exact
from optimargin.solvers.train import Machine


class Rows(NamedTuple):
    """What the search is given."""

    X: Any
    y: np.ndarray
    weight: np.ndarray | None


class Setting(NamedTuple):
    """One combination; a linear machine has no gamma."""

    gamma: float | str | None
    lam: float | str
    mu: float
    theta: float


@dataclass(frozen=True)
class Fold:
    """A problem with every setting but lam, mu and theta made, and the rows to judge by."""

    number: int
    model: MarginClassifier
    whole: Problem
    total: float
    test: Rows | None
    scores: Scores | None

    @property
    def is_joint(self) -> bool:
        """Whether one machine tells all classes apart; it is not convex, so the start matters."""
        return self.whole.classes > 2 and self.model.multi_class.startswith("mcodm")

    @cached_property
    def is_definite(self) -> bool:
        """Whether a start far from zero is safe: with negative eigenvalues descent has no end."""
        return self.whole.gram is None or is_definite(self.whole.gram)

    @cached_property
    def is_rough(self) -> bool:
        """Whether a search gives less exact answers than the plain classifier would."""
        quick = self.model.solver == "auto" and not self.is_joint and is_exact(self.whole)
        return quick and self.is_definite

    @cached_property
    def rough(self) -> Problem:
        """The problem for rough answers: kernel values in single precision take half the time."""
        gram = self.whole.gram
        if gram is None or not self.is_rough:
            return self.whole
        return self.whole.changed(gram=replace(gram, kept=gram.kept.astype(np.float32)))


class Judged(ClassifierMixin, BaseEstimator):
    """A trained setting to a scorer: its scores on the fold's rows come from shared values.

    Whatever else a scorer asks for, it gets from a fitted classifier made for it.
    """

    def __init__(
        self, fold: Fold, setting: Setting, whole: Problem, machines: list[Machine]
    ) -> None:
        self.fold = fold
        self.setting = setting
        self.whole = whole
        self.machines = machines

    @property
    def classes_(self) -> np.ndarray:
        """The labels of the training rows."""
        return self.fold.model.classes_

    @cached_property
    def model_(self) -> MarginClassifier:
        """The fitted classifier."""
        model = copy.copy(self.fold.model)
        _, lam, mu, theta = self.setting
        model.set_params(lam=lam, mu=mu, theta=theta)
        model.lam_ = number_of(lam, theta, self.fold.total)
        model._adopt(self.whole, self.machines)
        return model

    @cached_property
    def known_(self) -> np.ndarray:
        """The decisions on the rows of the fold."""
        assert self.fold.test is not None
        if self.fold.scores is None:
            return self.model_.decision_function(self.fold.test.X)
        coef = np.vstack([m.solution.coef for m in self.machines])
        kind = self.fold.model.multi_class
        return decisions(self.fold.scores(coef), len(self.classes_), kind)

    def decision_function(self, X: Any) -> np.ndarray:
        """As that of the classifier."""
        same = self.fold.test is not None and X is self.fold.test.X
        return self.known_ if same else self.model_.decision_function(X)

    def predict(self, X: Any) -> np.ndarray:
        """As that of the classifier."""
        return self.classes_[winners(self.decision_function(X))]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy, by one line instead of the many that look after what is given here."""
        return float(np.average(self.predict(X) == y, weights=sample_weight))

    def __getattr__(self, name: str) -> Any:
        fold = vars(self).get("fold")
        fitted = name.endswith("_") and not name.startswith("_")
        if fold is None or not (fitted or hasattr(type(fold.model), name)):
            raise AttributeError(name)
        return getattr(self.model_, name)
