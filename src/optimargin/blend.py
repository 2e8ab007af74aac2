"""The best model in the span of a few models that are already there.

Coordinate descent climbs the dual, and its primal points sway from side to side on the
way; the best combination of the last few is far better than any of them.  It costs no
look at the data: scores are linear in the model, so margins combine as models do.  The
dual objective has the same form, and its best combination is a leap ahead.
"""

from __future__ import annotations

import numpy as np

from optimargin.loss import (
    conjugate,
    conjugate_curvature,
    conjugate_slope,
    curvature,
    of_row,
    slope,
    value,
)
from optimargin.rows import compiled

_STEPS = 20  # most Newton steps; a handful do
_ROUNDING = 1e-15  # share of the objective that no step can gain
_NOTHING = 1e-13  # share of the largest pivot below which a model is a blend of the others


@compiled
def _derivatives(loss, weight, dual, V, c):
    """Sum of the losses (or conjugates) at v = sum_j c_j V[j], with gradient and Hessian in c."""
    k, total = len(c), 0.0
    g, H = np.zeros(k), np.zeros((k, k))
    for i in range(len(V[0])):
        own, v = of_row(loss, weight, i), 0.0
        for j in range(k):
            v += c[j] * V[j][i]
        if dual:
            total += conjugate(own, v)
            pull, h = conjugate_slope(own, v), conjugate_curvature(own, v)
        else:
            total += value(own, v)
            pull, h = slope(own, v), curvature(own, v)
        if pull != 0.0:
            for j in range(k):
                g[j] += pull * V[j][i]
                for m in range(j + 1):
                    H[j, m] += h * V[j][i] * V[m][i]
    for j in range(k):
        for m in range(j):
            H[m, j] = H[j, m]
    return total, g, H


@compiled
def _step(H, g):
    """The x with H x = -g, by elimination; models that add nothing to others get none of it."""
    k = len(g)
    A, x = H.copy(), -g
    size = 0.0
    for j in range(k):
        size = max(size, A[j, j])
    for j in range(k):
        idle = A[j, j] <= _NOTHING * size
        for m in range(j + 1, k):
            factor = 0.0 if idle else A[m, j] / A[j, j]
            for c in range(j, k):
                A[m, c] -= factor * A[j, c]
            x[m] -= factor * x[j]
        if idle:
            A[j, j], x[j] = np.inf, 0.0
    for j in range(k - 1, -1, -1):
        for c in range(j + 1, k):
            x[j] -= A[j, c] * x[c]
        x[j] /= A[j, j]
    return x


@compiled
def best_blend(loss, weight, dual, G, V, worth):
    """The c that minimises |w|^2 / 2 plus the sum of losses at w = sum_j c_j w_j, and that minimum.

    ``G`` holds the inner products of the models, ``V[j]`` the margins under model j; with
    ``dual`` its dual variables instead, and then the sum is that of the conjugates: minus the
    dual objective.  The search starts from the first model, and ends where a step would
    gain no more than ``worth``.
    """
    c = np.zeros(len(G))
    c[0] = 1.0
    total, g, H = _derivatives(loss, weight, dual, V, c)
    least, g, H = 0.5 * c @ G @ c + total, G @ c + g, G + H
    worth = max(worth, _ROUNDING * abs(least))  # a share of a gap may be below zero, by rounding
    for _ in range(_STEPS):
        step = _step(H, g)
        promised = -0.5 * g @ step  # what the step promises to gain
        better = False
        while promised > worth and not better:
            total, g_new, H_new = _derivatives(loss, weight, dual, V, c + step)
            there = 0.5 * (c + step) @ G @ (c + step) + total
            better = there < least
            if not better:
                step, promised = 0.5 * step, 0.5 * promised
        if not better:
            break
        c = c + step
        least, g, H = there, G @ c + g_new, G + H_new
    return c, least
