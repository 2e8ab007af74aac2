"""The dual objective over the plane of a direction d and of the last step s.

    f(t, r) = 1/2 |w + t w(d) + r w(s)|^2 + sum_i psi_i(a_i + t d_i + r s_i)

Steps along d alone zigzag, as those of steepest descent do; with the last step beside it they are
those of conjugate gradients, and rounds go with the root of the condition.  Where psi is one
parabola inside its bounds (hinge, squared hinge) f is, too, in the triangle t, r >= 0, t + r <= 1:
a + d and a + s are inside, so is all between them and a.  For that s is cut off at the bounds.
With a kink (ODM) f is taken as if no variable changed its sign; who uses it has to look back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optimargin.loss import of_row
from optimargin.problem import Problem
from optimargin.rows import compiled

FAR = 2.0  # times the last step: how far the triangle reaches along it


class Step(NamedTuple):
    """How far to go along d and along s, and by how much f then falls."""

    along: float
    again: float
    promised: float


def again(problem: Problem, a: np.ndarray, move: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The last step s, which led to a, as far as the bounds let it; and what they cut off."""
    losses, s = problem.losses, FAR * move
    inside = np.clip(a + s, losses.a_min, losses.a_max) - a
    return inside, inside - s


def plane(problem: Problem, a: np.ndarray, d: np.ndarray, s: np.ndarray) -> np.ndarray:
    """What the rows of a part add: to the slope along s, to the curvatures of d with s and of s."""
    sums = np.zeros(3)
    _tally(problem.loss, problem.weight, a, d, s, sums)
    return sums


def best(slopes: np.ndarray, curves: np.ndarray) -> Step:
    """The least of the parabola slopes.x + 1/2 x'(curves)x over the triangle."""
    corners, found = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)), Step(0.0, 0.0, 0.0)
    tries = [_stationary(slopes, curves)]
    for k in range(3):
        start = np.array(corners[k])
        way = np.array(corners[(k + 1) % 3]) - start
        lean, curve = float(way @ (slopes + curves @ start)), float(way @ curves @ way)
        ahead = 1.0 if lean < 0.0 else 0.0
        tries.append(start + (min(max(-lean / curve, 0.0), 1.0) if curve > 0.0 else ahead) * way)
    for x in tries:
        promised = -float(slopes @ x + 0.5 * x @ curves @ x)
        if x.min() >= 0.0 and x.sum() <= 1.0 and promised > found.promised:
            found = Step(float(x[0]), float(x[1]), promised)
    return found


def _stationary(slopes: np.ndarray, curves: np.ndarray) -> np.ndarray:
    """Where the parabola is flat; outside of the triangle where nothing is."""
    (a, b), (_, c) = curves
    det = a * c - b * b
    if not det > 0.0:
        return np.full(2, -1.0)
    return np.array([b * slopes[1] - c * slopes[0], b * slopes[0] - a * slopes[1]]) / det


@compiled
def _tally(loss, weight, a, d, s, sums):
    for i in range(len(a)):
        if s[i] == 0.0:
            continue
        own = of_row(loss, weight, i)
        above = a[i] > 0.0 or (a[i] == 0.0 and d[i] > 0.0)
        ridge, pull = (own.ridge_lo, own.lo) if above else (own.ridge_hi, own.hi)
        sums[0] += s[i] * (ridge * a[i] - pull)
        sums[1] += s[i] * d[i] * ridge
        sums[2] += s[i] * s[i] * ridge
