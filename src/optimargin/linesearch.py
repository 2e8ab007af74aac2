"""Line searches: exact over the pieces of a quadratic objective, or by slopes alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from optimargin.arrays import is_foreign, number
from optimargin.loss import Loss, curvature, of_row, scaled, slope
from optimargin.rows import compiled

_STEPS = 20  # most slopes that are asked for
_FLAT = 0.1  # share of the first slope that ends the search


def along(loss, weight, u, du, t):
    """First and second derivative in t of sum_i s_i loss(u_i + t du_i)."""
    if not is_foreign(u):
        return _along(loss, weight, u, du, t)
    own, now = loss if weight is None else scaled(loss, weight), u + t * du
    return number(slope(own, now) * du), number(curvature(own, now) * du * du)


@partial(compiled, contiguous=True)
def _along(loss, weight, u, du, t):
    first = second = 0.0
    for i in range(len(u)):
        own, now = of_row(loss, weight, i), u[i] + t * du[i]
        first += slope(own, now) * du[i]
        second += curvature(own, now) * du[i] * du[i]
    return first, second


def slopes(loss, weight, u, du, times):
    """The first derivative at each of some t."""
    found = np.zeros(len(times))
    _slopes(loss, weight, u, du, times, found)
    return found


@partial(compiled, contiguous=True)
def _slopes(loss, weight, u, du, times, found):
    for k in range(len(times)):
        first = 0.0
        for i in range(len(u)):
            first += slope(of_row(loss, weight, i), u[i] + times[k] * du[i]) * du[i]
        found[k] = first


def crossing(times: np.ndarray, rises: np.ndarray) -> tuple[float, float]:
    """The last t where a slope is below 0, and where it is about 0.

    It is known at some t in their order, rises, and is below 0 at the first.
    """
    k = int(np.searchsorted(rises >= 0.0, True))
    before = float(times[k - 1])
    if k == len(times):
        return before, before
    low, high = rises[k - 1], rises[k]
    return before, before - float(low * (times[k] - before) / (high - low))


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
    linear, so Newton's method inside a shrinking bracket ends after a few pieces; where its steps
    do not halve, as where the slope flattens out far away, the bracket is halved instead.
    """
    first, second = along(loss, weight, u, du, 0.0)
    start = abs(slope0 + first)
    low, high, t, moved = 0.0, np.inf, 1.0, np.inf
    for _ in range(60):
        first, second = along(loss, weight, u, du, t)
        rise = slope0 + t * norm2 + first
        if abs(rise) <= 1e-6 * start:
            break
        low, high = (t, high) if rise < 0 else (low, t)
        step = t - rise / (norm2 + second) if norm2 + second > 0 else np.inf
        if not low < step < high or abs(step - t) > 0.5 * moved:
            step = 2.0 * t if np.isinf(high) else 0.5 * (low + high)
        if abs(step - t) <= 1e-12 * t:
            break
        t, moved = step, abs(step - t)
    return float(t)


def valley(slope: Callable[[float], float], first: float) -> float:
    """Where a convex function, of slope ``first`` < 0 at 0, is about least; 0 if not found."""
    low, high, at_low, at_high, t = 0.0, np.inf, first, np.inf, 1.0
    for _ in range(_STEPS):
        now = slope(t)
        if abs(now) <= _FLAT * abs(first):
            return t
        if now < 0.0:
            low, at_low = t, now
        else:
            high, at_high = t, now
        if high == np.inf:
            t = 2.0 * t
            continue
        step = -at_low * (high - low) / (at_high - at_low)  # false position, kept inside
        t = low + min(max(step, 0.1 * (high - low)), 0.9 * (high - low))
    return low
