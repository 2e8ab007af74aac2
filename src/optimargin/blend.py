"""The best model in the span of a few models that are already there.

Coordinate descent climbs the dual, and its primal points sway from side to side on the
way; the best combination of the last few is far better than any of them.  It costs no
look at the data: scores are linear in the model, so margins combine as models do.
"""

from __future__ import annotations

import numpy as np

from optimargin.loss import Loss, curvature, of_row, slope, value
from optimargin.rows import compiled

_STEPS = 20  # most Newton steps; a handful do


@compiled
def _derivatives(loss, weight, U, c):
    """Sum of the losses at u = sum_j c_j U[j], with its gradient and Hessian in c."""
    k, total = len(c), 0.0
    g, H = np.zeros(k), np.zeros((k, k))
    for i in range(len(U[0])):
        own, u = of_row(loss, weight, i), 0.0
        for j in range(k):
            u += c[j] * U[j][i]
        total += value(own, u)
        pull, h = slope(own, u), curvature(own, u)
        if pull != 0.0:
            for j in range(k):
                g[j] += pull * U[j][i]
                for m in range(j + 1):
                    H[j, m] += h * U[j][i] * U[m][i]
    for j in range(k):
        for m in range(j):
            H[m, j] = H[j, m]
    return total, g, H


def best_blend(
    loss: Loss,
    weight: np.ndarray | None,
    G: np.ndarray,
    U: tuple[np.ndarray, ...],
    worth: float,
) -> tuple[np.ndarray, float]:
    """The c that minimises P(sum_j c_j w_j), and that minimum.

    ``G`` holds the inner products of the models, ``U`` the margins under each; the search
    starts from the first of them, and ends where a step would gain no more than ``worth``.
    """

    def look(c: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        total, g, H = _derivatives(loss, weight, U, c)
        return 0.5 * float(c @ G @ c) + total, G @ c + g, G + H

    c = np.zeros(len(G))
    c[0] = 1.0
    primal, g, H = look(c)
    for _ in range(_STEPS):
        step = np.linalg.lstsq(H, -g, rcond=1e-13)[0]
        while -0.5 * float(g @ step) > worth:  # what the step promises to gain
            there = look(c + step)
            if there[0] < primal:
                break
            step *= 0.5
        else:
            break
        c, (primal, g, H) = c + step, there
    return c, primal
