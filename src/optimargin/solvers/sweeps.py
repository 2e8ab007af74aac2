"""Coordinate descent on the rows of one part, around a model that all parts share.

Problem   min_b  sum_i psi_i(b_i) + u.(b - a) + 1/2 |X'Y (b - a)|^2 sigma + tau/2 |b - a|^2
          over the dual variables b of the part's rows, which were a; u are the margins at the
          shared model
Update    the exact step along each coordinate (`loss.dual_step`), in random order: the model v,
          shared at first, moves by sigma (b_i - a_i) y_i x_i
Use       sigma = 1 or the number of parts in `bqo`, the inverse of the penalty in `admm`
Cost      a sweep reads the rows of the part once
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optimargin.loss import dual_step, of_row, row_gap, value
from optimargin.problem import Problem
from optimargin.rows import compiled, feature_rows, fetch, push, score

_AHEAD = 2  # rows that are on their way into the cache


class Metric(NamedTuple):
    """What a step costs beside psi: a factor on the rows' own products, and on the identity."""

    sigma: float
    tau: float = 0.0


def variables(problem: Problem, state: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The squared norms of the rows and their dual variables, made when they are first needed."""
    q, a = state.get("sqnorm"), state.get("dual")
    return problem.sqnorms if q is None else q, np.zeros(problem.n) if a is None else a


def sweep(
    problem: Problem,
    q: np.ndarray,
    a: np.ndarray,
    v: np.ndarray,
    metric: Metric,
    rng: np.random.Generator,
    *,
    times: int,
) -> np.ndarray:
    """The dual variables after some sweeps from a; moves the model v along.

    ``q`` are the squared norms of the rows.
    """
    b, rows = a.copy(), feature_rows(problem.X, problem.bias, v)
    for _ in range(times):
        order = rng.permutation(problem.n)
        _sweep(problem.loss, rows, problem.y, problem.weight, q, a, b, order, *metric)
    return b


def model(problem: Problem, a: np.ndarray) -> np.ndarray:
    """The model sum_i a_i y_i x_i of a part."""
    w = np.zeros(problem.d + 1)
    _push_all(feature_rows(problem.X, problem.bias, w), a * problem.y)
    return w


def certificate(problem: Problem, a: np.ndarray, u: np.ndarray) -> tuple[float, float]:
    """The losses at the margins u, and what of the duality gap is the rows': see `row_gap`."""
    return _certificate(problem.loss, problem.weight, a, u)


@compiled
def _sweep(loss, rows, y, weight, q, a, b, order, sigma, tau):
    for k in range(len(order)):
        i = order[k]
        fetch(rows, order[min(k + _AHEAD, len(order) - 1)])
        u = y[i] * score(rows, i) + tau * (b[i] - a[i])
        new = dual_step(of_row(loss, weight, i), b[i], u, sigma * q[i] + tau)
        if new != b[i]:
            push(rows, i, sigma * (new - b[i]) * y[i])
            b[i] = new


@compiled
def _push_all(rows, steps):
    for i in range(len(steps)):
        if steps[i] != 0.0:
            push(rows, i, steps[i])


@compiled
def _certificate(loss, weight, a, u):
    total, gap = 0.0, 0.0
    for i in range(len(u)):
        own = of_row(loss, weight, i)
        total += value(own, u[i])
        gap += row_gap(own, a[i], u[i])
    return total, gap
