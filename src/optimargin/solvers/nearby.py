"""Coordinate descent while it is quick, then Newton: from nothing, or from a similar problem.

Problem   a kernel machine; perhaps some of its neighbours (other lam, mu or theta) are solved
Update    those of `dcd`, from the best blend of the neighbours; those of `kernel_newton`
          when the gap does not fall fast enough
Source    ours.  How many rounds descent takes depends on the kernel's spectrum and on the
          weight of the losses together, which nothing cheap foretells; its gap tells
Cost      Newton's steps take as long as some hundred rounds, so descent goes on while it would
          be done in fewer
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimargin.blend import best_blend
from optimargin.problem import Points, Problem, Solution, Start, counted_on
from optimargin.solvers.dcd import DCD
from optimargin.solvers.kernel_newton import KernelNewton

_PATIENCE = 8  # rounds after which the gap is looked at again
_SLOW = 0.75  # share of it that may be left then
_WORTH = 1e-9  # share of the objective that makes another step towards the best blend worth it


@dataclass(frozen=True)
class Nearby:
    """Descent, then Newton if need be; ``seed`` decides the order of the rows."""

    seed: int = 0
    name = "dcd"  # which comes first, and mostly does

    def points(self, problem: Problem, start: Start) -> Points:
        """The points of coordinate descent, and then those of Newton's method."""
        points = DCD(self.seed).points(problem, start)
        best, before, rounds, asked = None, np.inf, 0, 0
        while True:
            try:
                point = next(points)
            except StopIteration as end:
                return end.value
            best = point if best is None or point.primal < best.primal else best
            rounds = point.rounds
            yield point
            if rounds > asked and rounds % _PATIENCE == 0:
                gap = best.primal - point.bound
                if gap > _SLOW * before:
                    break
                before, asked = gap, rounds
        newton = KernelNewton(self.seed).points(problem, Start(best.coef, margin=best.margin))
        return (yield from counted_on(newton, rounds))


def blended(problem: Problem, neighbours: Sequence[Solution]) -> Start:
    """The best start in the span of the answers to similar problems on the same rows."""
    if not neighbours:
        return Start()
    B, U = np.stack([s.coef for s in neighbours]), np.stack([s.margin for s in neighbours])
    worth = _WORTH * abs(neighbours[0].primal)
    c, _ = best_blend(problem.loss, problem.weight, False, B @ (problem.y * U).T, U, worth)
    return Start(coef=c @ B, margin=c @ U)
