"""The objective, once, in double precision: what every method is judged by.

P(w) = |w|^2 / 2 + lam / (n (1-theta)^2) sum_i [(1-theta-u_i)_+^2 + mu (u_i-1-theta)_+^2]

It is written out here, and not taken from the package, so that it checks the package.
The intercept is the weight of a constant feature 1 and counts in |w|^2, as in LIBLINEAR.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.methods import Linear, Task


def losses(task: Task, u: np.ndarray) -> float:
    """The second term of P, from the margins."""
    c = task.lam / (len(u) * (1.0 - task.theta) ** 2)
    short = np.maximum(1.0 - task.theta - u, 0.0)
    far = np.maximum(u - 1.0 - task.theta, 0.0)
    return float(c * (short @ short + task.mu * (far @ far)))


def linear_primal(task: Task, model: Linear) -> float:
    """P of a linear model."""
    w = np.asarray(model.coef, dtype=np.float64).ravel()
    f = _scores(task.X, w) + model.intercept
    return 0.5 * float(w @ w + model.intercept**2) + losses(task, task.y * f)


def kernel_primal(task: Task, K: np.ndarray, b: np.ndarray) -> float:
    """P of the kernel model f = K b."""
    f = K @ b
    return 0.5 * float(b @ f) + losses(task, task.y * f)


def _scores(X: Any, w: np.ndarray) -> np.ndarray:
    """X @ w in double precision, whatever X is, without a second copy of X."""
    rows = max(1, 10**7 // X.shape[1])
    blocks = (X[s : s + rows].astype(np.float64) for s in range(0, X.shape[0], rows))
    return np.concatenate([block @ w for block in blocks])
