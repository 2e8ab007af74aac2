"""scikit-learn's SVC (LIBSVM): the RBF machine everybody has."""

from __future__ import annotations

from collections.abc import Callable

from sklearn.svm import SVC

from benchmarks.methods import KernelMethod, Predict, Task


def prepare(task: Task, limit: float) -> Callable[[], Predict]:
    """SVC as it comes, but with a cache for all kernel values of 8,000 rows."""
    model = SVC(C=task.C, gamma=task.gamma, cache_size=1000)
    return lambda: model.fit(task.X, task.y).predict


METHOD = KernelMethod("SVC", prepare, "SVM", is_peer=True)
