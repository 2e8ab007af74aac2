"""The walk between two references of SVRG, for linear machines; on all rows or on parts of them.

Update    w <- w - eta (grad P_i(w) - grad P_i(w_ref) + grad P(w_ref)), P the mean of the P_i and
          grad P_i(w) = w + grad loss_i(w) / chance_i
Cost      a step costs as much as a row has entries: w = scale v - drift D, D the gradient of
          the losses at the reference
Length    eta starts from the rows' smoothness and follows the curvature that was met between
          two references (Barzilai-Borwein)
"""

from __future__ import annotations

import numpy as np

from optimargin.loss import dual_of, of_row, steepest
from optimargin.problem import Problem
from optimargin.rows import compiled, feature_rows, push, score

FIRST = 0.25  # of the inverse of the mean smoothness: the first step
_MOST = 0.5  # the same, the longest
SHORTEST = 1e-12  # the same, one that gets nowhere


def smoothness(problem: Problem, n: int) -> np.ndarray:
    """Every row's own, in a mean over n rows; it is drawn in proportion to that."""
    weight = 1.0 if problem.weight is None else problem.weight
    return 1.0 + n * steepest(problem.loss) * weight * problem.sqnorms


def longer(eta: float, step: np.ndarray, turn: np.ndarray, count: int, smooth: float) -> float:
    """The next eta, after ``count`` steps led to a change of w and one of the gradient."""
    curve = float(step @ turn)
    if curve <= 0.0:
        return eta
    return min(max(eta, float(step @ step) / curve / count), _MOST / smooth)


def walk(
    problem: Problem,
    w: np.ndarray,
    D: np.ndarray,
    u: np.ndarray,
    chance: np.ndarray,
    drawn: np.ndarray,
    *,
    eta: float,
) -> np.ndarray:
    """Where steps over the drawn rows lead from w; u are the margins at the reference."""
    v = w.copy()
    moving = feature_rows(problem.X, problem.bias, v)
    fixed = moving._replace(w=D)
    y, weight = problem.y, problem.weight
    scale, drift = _walk(problem.loss, moving, fixed, y, weight, u, chance, drawn, eta)
    return scale * v - drift * D


@compiled
def _walk(loss, moving, fixed, y, weight, u, chance, drawn, eta):
    """Steps over the drawn rows from a reference with margins u; moves v = moving.w."""
    scale, drift, v = 1.0, 0.0, moving.w
    for i in drawn:
        own = of_row(loss, weight, i)
        f = scale * score(moving, i) - drift * score(fixed, i)
        change = (dual_of(own, y[i] * f) - dual_of(own, u[i])) * y[i] / chance[i]
        scale *= 1.0 - eta
        drift = (1.0 - eta) * drift + eta
        if change != 0.0:
            push(moving, i, eta * change / scale)
        if scale < 1e-6:
            for j in range(len(v)):
                v[j] *= scale
            scale = 1.0
    return scale, drift
