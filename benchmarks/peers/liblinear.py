"""scikit-learn's LinearSVC (LIBLINEAR): the L2-SVM by dual coordinate descent or by Newton.

With intercept_scaling=1 its intercept is a penalised constant feature, like ours.  It has
no time limit and cannot be interrupted, so the number of its epochs is limited instead:
four times as many at each try, until it is done or the next try would take too long.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sklearn.svm import LinearSVC

from benchmarks.methods import Linear, LinearMethod, Task
from benchmarks.timing import timed

_TOLERANCES = (1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5, 1e-6)


def prepare(task: Task, tol: float, limit: float, dual: bool = True) -> Callable[[], Linear]:
    """LinearSVC with the epochs that it needs, or that the limit leaves room for."""
    epochs = 25
    while True:
        model = LinearSVC(C=task.C, dual=dual, tol=tol, max_iter=epochs, random_state=0)
        seconds, _ = timed(partial(model.fit, task.X, task.y))
        if model.n_iter_ < epochs or 4.0 * seconds > limit:
            return partial(_fit, model, task)
        epochs *= 4


def _fit(model: LinearSVC, task: Task) -> Linear:
    model.fit(task.X, task.y)
    return Linear(model.coef_.ravel(), float(model.intercept_[0]))


METHODS = [
    LinearMethod("LinearSVC dual", partial(prepare, dual=True), _TOLERANCES, is_peer=True),
    LinearMethod("LinearSVC primal", partial(prepare, dual=False), _TOLERANCES, is_peer=True),
]
