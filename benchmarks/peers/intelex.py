"""scikit-learn-intelex's SVC: the same machine on Intel's library, with all cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.methods import KernelMethod, NotInstalled, Predict, Task


def make(C: float, gamma: float) -> Any:
    """SVC as it comes, but with a cache for all kernel values of 8,000 rows."""
    try:
        from sklearnex.svm import SVC
    except ImportError as error:
        raise NotInstalled("scikit-learn-intelex") from error
    return SVC(C=C, gamma=gamma, cache_size=1000)


def prepare(task: Task, limit: float) -> Callable[[], Predict]:
    """SVC as a method; it has no time limit."""
    model = make(task.C, task.gamma)
    return lambda: model.fit(task.X, task.y).predict


METHOD = KernelMethod("intelex SVC", prepare, "SVM", is_peer=True)
