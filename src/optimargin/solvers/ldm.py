"""The LDM (ODM^L): a hinge-loss machine on whitened rows, by dual coordinate descent.

Problem   min_w 1/2 |w|^2 + lam1 var(u) - lam2 mean(u) + sum_i s_i hinge(u_i)
Update    that of coordinate descent, on rows whitened by the variance (`whiten`) and with
          a constant pull of the mean on each variable (Problem.pull); few rows are solved
          to the last digit (`active_set`)
Source    odm.txt, section 4.1.1 and Algorithm 1; math.md section 2
Cost      a kernel machine factors an n x n matrix once, a linear one a d x d matrix; then
          rounds of coordinate descent, and going back costs no more than a look
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimargin.problem import Point, Points, Problem, Start, Status
from optimargin.solvers.active_set import ActiveSet
from optimargin.solvers.dcd import DCD

_SMALL = 500  # rows whose machine is solved to the last digit in no time


@dataclass(frozen=True)
class LDM:
    """Coordinate descent for the LDM; ``seed`` decides the order of the rows."""

    seed: int = 0
    name = "dcd"

    def points(self, problem: Problem, start: Start) -> Points:
        """A point at each look of coordinate descent, with the model of the rows as given."""
        try:
            rows = problem.whitened
        except np.linalg.LinAlgError:  # no factor: no minimum either
            yield _nothing(problem)
            return Status.INDEFINITE
        dual = None if start.dual is None else start.dual[problem.kept]
        inner = ActiveSet(self.seed) if rows.n <= _SMALL else DCD(self.seed)
        points = inner.points(rows, Start(dual=dual))
        while True:
            try:
                point = next(points)
            except StopIteration as end:
                return end.value
            yield _back(problem, point)


def expansion(problem: Problem, a: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The coefficients t of f = sum_i t_i K(x_i, .), from dual variables and their margins.

    t = (I + A G)^{-1} Y b in math.md, and so t = Y b - A H Y b, where H Y b are the scores:
    t_i y_i = -d/du_i of all that the objective has beside |w|^2 / 2.
    """
    p = problem.shares
    return problem.y * (a + problem.pull - 2.0 * problem.lam1 * p * (u - p @ u))


def _back(problem: Problem, point: Point) -> Point:
    """A point of the whitened problem as one of the problem itself."""
    if not problem.lam1:
        return point
    assert point.dual is not None
    a, u = np.zeros(problem.n), np.zeros(problem.n)
    a[problem.kept], u[problem.kept] = point.dual, point.margin
    t = expansion(problem, a, u)
    if problem.gram is None:
        t = np.append(t @ problem.X, problem.bias * t.sum())
    return point._replace(coef=t, dual=a, margin=u)


def _nothing(problem: Problem) -> Point:
    """The model 0 of a problem that has no bound."""
    size, zero = problem.n if problem.gram is not None else problem.d + 1, np.zeros(problem.n)
    return Point(np.zeros(size), zero, zero, 0.0, -1e300, 0)
