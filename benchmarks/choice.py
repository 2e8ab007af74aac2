"""The choice of settings by cross-validation: every method on the same folds and kernels.

One function that any search can replace: it takes what each method may choose from, and says
which setting, on which view of the data, is the most accurate on folds of the training rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Setting(NamedTuple):
    """A machine to try: what it is called, and how to make it for n training rows."""

    words: str
    make: Callable[[int], Any]


class View(NamedTuple):
    """One way to look at a split: rows of features, or kernel values of one width.

    ``train`` has a line for each training row, ``test`` for each test row; a kernel's columns
    are the training rows.
    """

    words: str
    train: np.ndarray
    test: np.ndarray
    is_kernel: bool = False

    def fold(self, fit: np.ndarray, judge: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What some of the training rows learn from, and what others are judged by."""
        if self.is_kernel:
            return self.train[np.ix_(fit, fit)], self.train[np.ix_(judge, fit)]
        return self.train[fit], self.train[judge]


Choice = tuple[View, Setting]
Folds = Sequence[tuple[np.ndarray, np.ndarray]]


def choose(
    methods: Mapping[str, Sequence[Setting]],
    views: Sequence[View],
    y: np.ndarray,
    folds: Folds,
) -> dict[str, Choice]:
    """The most accurate setting and view of each method; the first of equals."""
    chosen = {}
    for name, hits in tally(methods, views, y, folds).items():
        v, s = np.unravel_index(hits.argmax(), hits.shape)
        chosen[name] = views[v], methods[name][s]
    return chosen


def tally(
    methods: Mapping[str, Sequence[Setting]],
    views: Sequence[View],
    y: np.ndarray,
    folds: Folds,
) -> dict[str, np.ndarray]:
    """Rows that each method gets right, a line for each view and a column for each setting.

    All methods take turns on a fold, so that its kernel matrix is cut out once.
    """
    hits = {name: np.zeros((len(views), len(found))) for name, found in methods.items()}
    for v, view in enumerate(views):
        for fit, judge in folds:
            A, B = view.fold(fit, judge)
            for name, settings in methods.items():
                for s, setting in enumerate(settings):
                    model = setting.make(len(fit)).fit(A, y[fit])
                    hits[name][v, s] += np.sum(model.predict(B) == y[judge])
    return hits
