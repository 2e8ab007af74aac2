"""From the answer to a similar problem: coordinate descent while it is quick, then Newton.

Problem   a kernel machine some of whose neighbours (other lam, mu or theta) are solved
Update    those of `dcd`, from the best blend of the neighbours; those of `kernel_newton`
          when the gap does not fall fast enough
Source    ours.  A cold start decides by stiffness, because coordinate descent is slow from far
          away; near by, a few dozen of its rounds are cheaper than one factorisation
Cost      a factorisation costs as much as a round for every twenty-five rows, so that is how long
          the gap may take to halve
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimargin.blend import best_blend
from optimargin.problem import Points, Problem, Solution, Start, counted_on
from optimargin.solvers.dcd import DCD
from optimargin.solvers.kernel_newton import KernelNewton

_ROWS_A_ROUND = 25  # of those that are factored in the time of one round
_LEAST = 8  # rounds in any case
_WORTH = 1e-9  # share of the objective that makes another step towards the best blend worth it


@dataclass(frozen=True)
class Nearby:
    """For starts that are near the answer; ``seed`` decides the order of the rows."""

    seed: int = 0
    name = "nearby"

    def points(self, problem: Problem, start: Start) -> Points:
        """The points of coordinate descent, and then those of Newton's method."""
        patience = max(_LEAST, problem.n // _ROWS_A_ROUND)
        points = DCD(self.seed).points(problem, start)
        best, before, rounds = None, np.inf, 0
        while True:
            try:
                point = next(points)
            except StopIteration as end:
                return end.value
            best = point if best is None or point.primal < best.primal else best
            rounds = point.rounds
            yield point
            if rounds and rounds % patience == 0:
                gap = best.primal - point.bound
                if gap > 0.5 * before:
                    break
                before = gap
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
