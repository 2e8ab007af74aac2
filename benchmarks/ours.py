"""Our classifiers, as methods of the benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.methods import KernelMethod, Linear, LinearMethod, Predict, Task
from optimargin import LinearODMClassifier, ODMClassifier

_TOLERANCES = (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4)


def linear_model(
    task: Task, tol: float, limit: float, solver: str = "auto", n_jobs: int | None = None
) -> LinearODMClassifier:
    """LinearODMClassifier, fitted to a task; ``tol`` bounds the relative duality gap."""
    return LinearODMClassifier(
        lam=task.lam,
        mu=task.mu,
        theta=task.theta,
        solver=solver,
        tol=tol,
        max_iter=100_000,
        time_limit=limit,
        n_jobs=n_jobs,
        random_state=0,
    ).fit(task.X, task.y)


def weights(model: Any) -> Linear:
    """The numbers of a fitted linear classifier."""
    return Linear(model.coef_.ravel(), float(model.intercept_[0]))


def prepare_linear(task: Task, tol: float, limit: float, **settings: Any) -> Callable[[], Linear]:
    """LinearODMClassifier as a method."""
    return lambda: weights(linear_model(task, tol, limit, **settings))


def prepare_kernel(task: Task, limit: float, solver: str = "auto") -> Callable[[], Predict]:
    """ODMClassifier with an RBF kernel and the default tolerance."""
    model = ODMClassifier(
        gamma=task.gamma,
        lam=task.lam,
        mu=task.mu,
        theta=task.theta,
        solver=solver,
        time_limit=limit,
        random_state=0,
    )
    return lambda: model.fit(task.X, task.y).predict


LINEAR = [
    LinearMethod("auto", prepare_linear, _TOLERANCES),
    LinearMethod("auto, 1 thread", partial(prepare_linear, n_jobs=1), _TOLERANCES),
    *(
        LinearMethod(solver, partial(prepare_linear, solver=solver), _TOLERANCES)
        for solver in ("dcd", "newton", "svrg")
    ),
]

KERNEL = [
    KernelMethod(solver, partial(prepare_kernel, solver=solver), "ODM")
    for solver in ("auto", "dcd", "newton")
]
