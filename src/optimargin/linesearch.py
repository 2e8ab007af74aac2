"""Exact line search over the pieces of a piecewise quadratic objective."""

from __future__ import annotations

from functools import partial

import numpy as np

from optimargin.loss import Loss, curvature, of_row, slope
from optimargin.rows import compiled


@partial(compiled, contiguous=True)
def _along(loss, weight, u, du, t):
    """First and second derivative in t of sum_i s_i loss(u_i + t du_i)."""
    first = second = 0.0
    for i in range(len(u)):
        own, now = of_row(loss, weight, i), u[i] + t * du[i]
        first += slope(own, now) * du[i]
        second += curvature(own, now) * du[i] * du[i]
    return first, second


def best_step(
    loss: Loss,
    weight: np.ndarray | None,
    u: np.ndarray,
    du: np.ndarray,
    slope0: float,
    norm2: float,
) -> float:
    """The t > 0 that minimises |w + t p|^2 / 2 + sum_i s_i loss(u_i + t du_i).

    ``slope0`` is w.p and ``norm2`` is |p|^2.  The derivative is increasing and piecewise
    linear, so Newton's method inside a shrinking bracket ends after a few pieces.
    """
    first, second = _along(loss, weight, u, du, 0.0)
    start = abs(slope0 + first)
    low, high, t = 0.0, np.inf, 1.0
    for _ in range(60):
        first, second = _along(loss, weight, u, du, t)
        rise = slope0 + t * norm2 + first
        if abs(rise) <= 1e-6 * start:
            break
        low, high = (t, high) if rise < 0 else (low, t)
        step = t - rise / (norm2 + second) if norm2 + second > 0 else np.inf
        if not low < step < high:
            step = 2.0 * t if np.isinf(high) else 0.5 * (low + high)
        if abs(step - t) <= 1e-12 * t:
            break
        t = step
    return float(t)
