"""Snap ML's SupportVectorMachine with the squared hinge: parallel dual coordinate descent."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.methods import Linear, LinearMethod, NotInstalled, Task


def make(C: float, **settings: Any) -> Any:
    """The classifier on all cores; its regularizer is 1 / C, and it has no time limit."""
    try:
        from snapml import SupportVectorMachine
    except ImportError as error:
        raise NotInstalled("snapml") from error
    return SupportVectorMachine(
        loss="squared_hinge",
        regularizer=1.0 / C,
        fit_intercept=True,
        max_iter=1000,
        n_jobs=os.cpu_count(),
        random_state=0,
        **settings,
    )


def make_rbf(C: float, gamma: float, size: int) -> Any:
    """The same on random Fourier features of the RBF kernel, at its default tolerance."""
    return make(C, kernel="rbf", gamma=gamma, n_components=size)


def prepare(task: Task, tol: float, limit: float) -> Callable[[], Linear]:
    """The linear machine as a method."""
    model = make(task.C, tol=tol)

    def fit() -> Linear:
        model.fit(task.X, task.y)
        return Linear(np.ravel(model.coef_), float(np.ravel(model.intercept_)[0]))

    return fit


_TOLERANCES = (0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5, 1e-6)

METHOD = LinearMethod("Snap ML", prepare, _TOLERANCES, is_peer=True)
