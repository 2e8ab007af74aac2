"""Hinge-loss machines on few rows, to the last digit: coordinate descent, then active sets.

Problem   max_a D(a), 0 <= a_i <= s_i C, on a matrix that is kept whole
Update    rows with 0 < a_i + (1 - u_i) / H_ii < s_i C are free: solve for margins of exactly
          1 on them, the other variables at the bound they point to; repeat until nobody
          changes sides.  Where that does not settle, another round of coordinate descent
Cost      a solve with the free rows each time, which few rows can afford
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimargin.loss import row_gap, value
from optimargin.problem import Point, Points, Problem, Start
from optimargin.solvers.dcd import DCD

_TRIES = 20  # changes of sides before coordinate descent goes on
_PATIENCE = 30  # rounds of it before its own points will do
_SETTLED = 1e-12  # relative gap that says the sides were right


@dataclass(frozen=True)
class ActiveSet:
    """Exact solutions for few rows; ``seed`` decides the order of coordinate descent."""

    seed: int = 0
    name = "dcd"

    def points(self, problem: Problem, start: Start) -> Points:
        """The first point of coordinate descent, again and again, and then the solution."""
        H, points = _signed(problem), DCD(self.seed).points(problem, start)
        first = None
        while True:
            try:
                point = next(points)
            except StopIteration as end:
                return end.value
            first = first or point
            settled = _settle(problem, H, point)
            if settled is not None:
                yield first
                yield settled
                return None
            yield first if point.rounds < _PATIENCE else point


def _signed(problem: Problem) -> np.ndarray:
    """y_i y_j K_ij."""
    if problem.gram is not None:
        K = problem.gram.square(np.arange(problem.n), np.float64)
    else:
        X = problem.X.toarray() if hasattr(problem.X, "toarray") else problem.X
        X = X.astype(np.float64, copy=False)
        K = X @ X.T + problem.bias**2
    y = problem.y.astype(np.float64)
    return y[:, None] * K * y


def _settle(problem: Problem, H: np.ndarray, point: Point) -> Point | None:
    """The solution, if the rows agree on their sides within a few changes."""
    loss, pull, n = problem.losses, problem.pull, problem.n
    assert point.dual is not None
    a, u, q = point.dual, point.margin, np.maximum(np.diag(H), 1e-300)
    most = np.broadcast_to(loss.a_max, n)
    for _ in range(_TRIES):
        wish = a + (1.0 - u) / q
        a = np.clip(wish, 0.0, most)
        free = np.flatnonzero((wish > 0.0) & (wish < most))
        a[free] = 0.0
        short = 1.0 - H[free] @ (a + pull)
        a[free] = np.linalg.lstsq(H[np.ix_(free, free)], short, rcond=None)[0]
        inside = np.clip(a, 0.0, most)
        b = inside + pull
        u = H @ b
        norm2 = float(b @ u)
        primal = 0.5 * norm2 - float(np.sum(pull * u)) + float(value(loss, u).sum())
        gap = float(row_gap(loss, inside, u).sum())
        if norm2 >= 0.0 and gap <= _SETTLED * abs(primal):
            rounds = point.rounds + 1
            y = problem.y
            coef = b * y
            if problem.gram is None:
                coef = np.append(coef @ problem.X, problem.bias * coef.sum())
            return Point(coef, inside, u, primal, primal - gap, rounds)
        u = H @ (a + pull)  # sides are judged before a is cut off
    return None
