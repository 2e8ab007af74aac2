"""Stochastic gradient descent with variance reduction, for linear machines.

Problem   min_w P(w) = mean over i of P_i(w), P_i(w) = |w|^2 / 2 + n s_i loss(u_i)
Update    w <- w - eta (grad P_i(w) - grad P_i(w_ref) + grad P(w_ref)), 2 n random
          rows between two full gradients
Source    odm.txt, Algorithm 2 and eq. (24).  The step needs no tuning: see `walk` for its
          length, and a reference that is worse than the last is taken back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimargin.problem import Point, Points, Problem, Start
from optimargin.solvers.passes import look, margins
from optimargin.solvers.walk import FIRST, SHORTEST, longer, smoothness, walk


@dataclass(frozen=True)
class SVRG:
    """SVRG; ``seed`` decides which rows are drawn."""

    seed: int = 0
    name = "svrg"

    def points(self, problem: Problem, start: Start) -> Points:
        """A point at each reference, that is after each full gradient."""
        rng = np.random.default_rng(self.seed)
        w = np.zeros(problem.d + 1) if start.coef is None else start.coef.astype(np.float64)
        each, count = smoothness(problem, problem.n), 2 * problem.n
        smooth = float(each.mean())
        chance = each / (smooth * problem.n)
        table = np.cumsum(chance)
        eta = FIRST / smooth
        here = look(problem, w, margins(problem, w))
        rounds = 0
        while True:
            g, u, primal = here.gradient, here.margin, here.primal
            yield Point(w, None, u, primal, primal - 0.5 * float(g @ g), rounds)
            drawn = np.searchsorted(table, rng.random(count) * table[-1])
            trial = walk(problem, w, g - w, u, chance, drawn, eta=eta)
            there = look(problem, trial, margins(problem, trial))
            rounds += 1
            if not there.primal < primal:
                eta *= 0.5
                if eta < SHORTEST / smooth:
                    return None
                continue
            eta = longer(eta, trial - w, there.gradient - g, count, smooth)
            w, here = trial, there
