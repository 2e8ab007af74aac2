"""The dual of a linear machine by block-diagonal steps, one block for each part.

Problem   min_a f(a) = 1/2 |w(a)|^2 + sum_i psi_i(a_i), minus the dual objective of all rows
Update    every part finds, by sweeps over its own rows, a direction d that lowers
          g.d + 1/2 d'Hd with H block-diagonal, inside the bounds of a + d; then a <- a + eta d,
          w <- w + eta w(d), the same eta for all
Source    bqo.txt: equations (5) to (7), and for eta
            exact    (20) and (21), the best feasible step; H = Q~ + tau I
            armijo   (12) with beta = 1/2, sigma = 1/10, gamma = 0; the same H
            average  1 / K with K parts: DSVM-AVE; H = Q~
            add      1: DisDCA in its practical form, and CoCoA+; H = K Q~
          where psi's own curvature is part of H throughout.  Ours: the ODM, whose psi has a kink
          at zero, by the exact minimum over the pieces (`dual_line`)
Rounds    one for each step; it applies the last eta, judges w, and finds the next direction.  A
          start from a model takes one more
Bytes     8 (d+1) out and back for every part, a few numbers more, and 2.3 kB back with the ODM.
          Dual variables stay
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from optimargin.engines.local import LocalShards, Part, State
from optimargin.loss import is_smooth
from optimargin.problem import Point, Points, Problem, Solution, Start, Stop
from optimargin.solvers.dual_line import Descent, Least, line
from optimargin.solvers.parted import NOWHERE, answer, begin
from optimargin.solvers.parting import Parting
from optimargin.solvers.passes import margins
from optimargin.solvers.sweeps import Metric, certificate, sweep, variables

_TAU = 1e-3  # of (6), for losses whose psi has no curvature
_SHRINK, _SHARE = 0.5, 0.1  # beta and sigma of (12)
_NAMES = {"exact": "bqo", "armijo": "bqo", "average": "dsvm-ave", "add": "disdca"}

Told = tuple[float, float, np.ndarray, np.ndarray, Least]  # losses, gap, w(d), and the line


@dataclass(frozen=True)
class BQO:
    """Block-diagonal steps; ``seed`` decides which rows make a part, and their order.

    ``rule`` is one of the four above; ``sweeps`` is how many find a direction.
    """

    seed: int
    parting: Parting
    rule: str = "exact"
    sweeps: int = 1

    @property
    def name(self) -> str:
        """What the papers call it."""
        return _NAMES[self.rule]

    def solve(self, problem: Problem, start: Start, stop: Stop) -> Solution:
        """The answer to the problem, with its traffic."""
        points = partial(self.points, start=start)
        return answer(points, problem, self.parting, stop, self.seed, name=self.name)

    def points(self, shards: LocalShards, start: Start) -> Points:
        """A point after each step."""
        metric, w = self._metric(shards), np.zeros(shards.whole.d + 1)
        eta, rounds = 0.0, 0
        if start.coef is not None:
            at = start.coef.astype(np.float64)
            shards, (total, w) = shards.step(begin, at)
            primal, away = 0.5 * float(at @ at) + float(total), at - w
            yield Point(at, None, NOWHERE, primal, primal - 0.5 * float(away @ away), rounds)
        while True:
            seed = (self.seed, rounds)
            shards, told = shards.step(_advance, w, eta, metric, self.sweeps, seed)
            total, gap, p, pieces, reach = told
            primal = 0.5 * float(w @ w) + float(total)
            yield Point(w, None, NOWHERE, primal, primal - float(gap), rounds)
            eta = self._length(Descent(w, p, pieces, reach), len(shards))
            if not eta > 0.0:
                return None
            w = w + eta * p
            rounds += 1

    def _metric(self, shards: LocalShards) -> Metric:
        if self.rule == "add":
            return Metric(float(len(shards)))
        searched = self.rule != "average" and not is_smooth(shards.whole.loss)
        return Metric(1.0, _TAU if searched else 0.0)

    def _length(self, descent: Descent, parts: int) -> float:
        if self.rule == "exact":
            return descent.exact()
        if self.rule == "armijo":
            return descent.armijo(_SHRINK, _SHARE)
        return 1.0 if self.rule == "add" else 1.0 / parts


def _advance(
    part: Part, w: np.ndarray, eta: float, metric: Metric, sweeps: int, seed: tuple[int, int]
) -> tuple[State, Told]:
    """Go on by eta to where the model is w, and look for the next direction."""
    problem, state = part.problem, part.state
    q, a = variables(problem, state)
    if eta:
        losses = problem.losses
        a = np.clip(a + eta * state["change"], losses.a_min, losses.a_max)  # as rounding may not
    total, gap = certificate(problem, a, margins(problem, w))
    v, rng = w.copy(), np.random.default_rng(seed)
    d = sweep(problem, q, a, v, metric, rng, times=sweeps) - a
    pieces, reach = line(problem, a, d)
    return {"dual": a, "change": d, "sqnorm": q}, (
        total,
        gap,
        (v - w) / metric.sigma,
        pieces,
        reach,
    )
