"""scikit-learn's LinearSVC (LIBLINEAR): the L2-SVM by dual coordinate descent or by Newton.

With intercept_scaling=1 its intercept is a penalised constant feature, like ours.
"""

from __future__ import annotations

from functools import partial

from sklearn.svm import LinearSVC

from benchmarks.methods import Linear, LinearMethod, Task

_TOLERANCES = (1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4)
_VALUES_A_SECOND = 2e8  # matrix entries that one epoch visits in a second, roughly


def fit(task: Task, tol: float, limit: float, dual: bool = True) -> Linear:
    """LinearSVC has no time limit, so a limit on its epochs stands in for one."""
    entries = getattr(task.X, "nnz", task.X.shape[0] * task.X.shape[1])
    epochs = max(10, int(limit * _VALUES_A_SECOND / entries))
    model = LinearSVC(C=task.C, dual=dual, tol=tol, max_iter=epochs, random_state=0)
    model.fit(task.X, task.y)
    return Linear(model.coef_.ravel(), float(model.intercept_[0]))


METHODS = [
    LinearMethod("LinearSVC dual", partial(fit, dual=True), _TOLERANCES, is_peer=True),
    LinearMethod("LinearSVC primal", partial(fit, dual=False), _TOLERANCES, is_peer=True),
]
