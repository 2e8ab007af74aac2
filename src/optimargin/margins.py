"""Margins of any fitted classifier: their statistics, and what they say of the error.

The margin of a row says how clearly the row is on its own side:

    two classes     u_i = y_i f(x_i), y_i = +1 for the second of the classes
    more classes    u_i = f_{y_i}(x_i) - max_{l != y_i} f_l(x_i)

Its sign decides between right and wrong; its mean and variance are what an optimal
margin distribution machine looks after.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from optimargin.bounds import MeanProducts as MeanProducts
from optimargin.bounds import ldm_loo_bound as ldm_loo_bound
from optimargin.bounds import loo_bound as loo_bound
from optimargin.bounds import rademacher_bound as rademacher_bound
from optimargin.bounds import with_weights


class MarginStatistics(NamedTuple):
    """A margin distribution in a few numbers; weights count as repetitions.

    Attributes
    ----------
    mean, variance : float
        First moment, and second central moment divided by the weight (not weight - 1).
    minimum, lower_quartile, median, upper_quartile, maximum : float
        Margins of rows; a quartile is the smallest margin whose cumulative share reaches
        1/4, 1/2 or 3/4.
    error : float
        Share of negative margins: the error rate, if no margin is exactly zero.
    """

    mean: float
    variance: float
    minimum: float
    lower_quartile: float
    median: float
    upper_quartile: float
    maximum: float
    error: float


def margins(
    estimator: Any, X: Any, y: Any, *, scale: str = "none", sample_weight: Any = None
) -> np.ndarray:
    """Margins of labelled rows under a fitted classifier.

    Parameters
    ----------
    estimator : fitted classifier
        Anything with ``decision_function`` and ``classes_``: the machines of this
        package, LinearSVC, LogisticRegression, a Pipeline or a search around them.
        A multi-class SVC scores by votes, so its margins are close to whole numbers.
    X : array-like or sparse matrix of shape (n, d)
        Rows, as the estimator takes them.
    y : array-like of shape (n,)
        Their labels.
    scale : {"none", "mean", "norm"}, default="none"
        What the margins are divided by, so that models share an axis.

        - "none": nothing.  Right for models of one family: an ODM wants margins near 1,
          an SVM margins of 1 or more, a logistic model the logarithm of the odds.
        - "mean": the mean margin of these rows.  Works across families, because an ODM
          fixes the mean at 1; the variance becomes the squared coefficient of variation.
        - "norm": |w| of a linear model of two classes, which gives distances to the
          boundary in the space of the last step's features.
    sample_weight : array-like of shape (n,), default=None
        Weights of the rows in the mean of ``scale="mean"``.

    Returns
    -------
    ndarray of shape (n,)
        Positive where the estimator is right.
    """
    if not hasattr(estimator, "decision_function"):
        raise TypeError(
            f"estimator must have decision_function, and {type(estimator).__name__} has none."
        )
    scores = estimator.decision_function(X)
    classes = np.asarray(estimator.classes_)
    final = final_estimator(estimator)
    # With three classes one-against-one has three columns too: the shape cannot tell.
    if len(classes) > 2 and getattr(final, "decision_function_shape", "ovr") == "ovo":
        raise ValueError(
            "estimator scores pairs of classes; set decision_function_shape='ovr'"
            " to get one score a class."
        )
    if scale != "norm":
        return margins_from_scores(scores, y, classes, scale=scale, sample_weight=sample_weight)
    return margins_from_scores(scores, y, classes) / _norm(final)


def margins_from_scores(
    scores: Any, y: Any, classes: Any, *, scale: str = "none", sample_weight: Any = None
) -> np.ndarray:
    """Margins of labelled rows from their decision values.

    Parameters
    ----------
    scores : array-like of shape (n,) or (n, k)
        One decision value a row, positive for ``classes[1]``, or one score a class.
    y : array-like of shape (n,)
        Labels, each one of ``classes``.
    classes : array-like of shape (k,)
        Labels in the order of the scores.
    scale : {"none", "mean"}, default="none"
        As in `margins`.
    sample_weight : array-like of shape (n,), default=None
        Weights of the rows in the mean of ``scale="mean"``.

    Returns
    -------
    ndarray of shape (n,)
    """
    scores = np.asarray(scores, dtype=np.float64)
    classes = np.asarray(classes)
    place = _places(y, classes)
    if scores.shape not in {(len(place),), (len(place), len(classes))}:
        raise ValueError(
            f"scores has shape {scores.shape}, but y has {len(place)} rows and classes"
            f" {len(classes)} labels: give one score a row and class, or one a row if there"
            " are two classes."
        )
    if scores.ndim == 1 and len(classes) != 2:
        raise ValueError(
            f"scores has one column, but classes has {len(classes)} labels instead of 2."
        )
    if not np.isfinite(scores).all():
        raise ValueError("scores must be finite, and some are not.")
    u = scores * np.where(place == 1, 1.0, -1.0) if scores.ndim == 1 else _lead(scores, place)
    if scale == "none":
        return u
    if scale == "mean":
        return u / _positive_mean(u, sample_weight)
    raise ValueError(f"scale must be 'none', 'mean' or, for a model, 'norm', not {scale!r}.")


def cumulative(margins: Any, sample_weight: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Empirical distribution of margins: its steps, and the share of rows up to each.

    Parameters
    ----------
    margins : array-like of shape (n,)
        Margins of rows, in any order.
    sample_weight : array-like of shape (n,), default=None
        Non-negative; rows of weight zero are left out.

    Returns
    -------
    steps, shares : ndarrays of the same length
        The distinct margins in rising order; shares rise to exactly 1.
    """
    u, weight = with_weights(margins, sample_weight)
    steps, place = np.unique(u, return_inverse=True)
    total = np.cumsum(np.bincount(place, weights=weight))
    return steps, total / total[-1]


def margin_statistics(margins: Any, sample_weight: Any = None) -> MarginStatistics:
    """Mean, variance, quartiles and error of a margin distribution.

    Parameters
    ----------
    margins : array-like of shape (n,)
        Margins of rows, in any order.
    sample_weight : array-like of shape (n,), default=None
        Non-negative; a row of weight 2 counts as two rows, one of weight 0 as none.

    Returns
    -------
    MarginStatistics
    """
    u, weight = with_weights(margins, sample_weight)
    mean = float(np.average(u, weights=weight))
    variance = float(np.average((u - mean) ** 2, weights=weight))
    error = float(np.average(u < 0.0, weights=weight))
    steps, shares = cumulative(u, weight)
    first, median, third = steps[np.searchsorted(shares, [0.25, 0.5, 0.75])].tolist()
    low, high = float(steps[0]), float(steps[-1])
    return MarginStatistics(mean, variance, low, first, median, third, high, error)


def final_estimator(estimator: Any) -> Any:
    """The classifier at the end of pipelines and searches."""
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif hasattr(estimator, "steps"):
            estimator = estimator.steps[-1][1]
        else:
            return estimator


def _places(y: Any, classes: np.ndarray) -> np.ndarray:
    """Position of each label among the classes."""
    y = np.asarray(y)
    if y.ndim != 1:
        raise ValueError(f"y must have one dimension, not shape {y.shape}.")
    # A dictionary compares labels of any type; sorting would refuse mixed ones.
    index = {label: k for k, label in enumerate(classes.tolist())}
    place = np.array([index.get(label, -1) for label in y.tolist()], dtype=np.int64)
    if (place < 0).any():
        raise ValueError(f"y contains {y[place < 0][0]!r}, which is not one of the classes.")
    return place


def _lead(scores: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Own score minus the best of the others."""
    rows = np.arange(len(place))
    others = scores.copy()
    others[rows, place] = -np.inf
    lead: np.ndarray = scores[rows, place] - others.max(axis=1)
    return lead


def _norm(final: Any) -> float:
    coef = getattr(final, "coef_", np.zeros(1))
    coef = np.atleast_2d(coef.toarray() if hasattr(coef, "toarray") else coef)
    if len(coef) != 1 or not coef.any():
        raise ValueError(
            "scale='norm' needs a linear model of two classes whose coef_ is not zero;"
            " scale='mean' works for other models."
        )
    return float(np.linalg.norm(coef))


def _positive_mean(u: np.ndarray, sample_weight: Any) -> float:
    kept, weight = with_weights(u, sample_weight)
    mean = float(np.average(kept, weights=weight))
    if mean <= 0.0:
        raise ValueError(
            f"scale='mean' needs a positive mean margin, and these rows have {mean:.3g}."
        )
    return mean


class _CallableModule(ModuleType):
    """``optimargin.margins`` is both this module and its main function."""

    def __call__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        """Same as `margins`."""
        return margins(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
