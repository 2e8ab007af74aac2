"""Stochastic gradient descent with variance reduction, for linear machines.

Problem   min_w P(w) = mean over i of P_i(w), P_i(w) = |w|^2 / 2 + n s_i loss(u_i)
Update    w <- w - eta (grad P_i(w) - grad P_i(w_ref) + grad P(w_ref)), n random rows
          between two full gradients
Source    odm.txt, Algorithm 2 and eq. (24).  The step needs no tuning: it starts from the
          rows' smoothness, follows the curvature met between two references
          (Barzilai-Borwein), and a reference that is worse than the last is taken back.
          Between references w = scale v - drift D, D the gradient of the losses at the
          reference, so that a step costs as much as a row has entries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimargin.loss import dual_of, of_row, steepest
from optimargin.problem import Point, Points, Problem, Start
from optimargin.rows import compiled, feature_rows, push, score
from optimargin.solvers.passes import look, margins


@dataclass(frozen=True)
class SVRG:
    """SVRG; ``seed`` decides which rows are drawn."""

    seed: int = 0
    name = "svrg"

    def points(self, problem: Problem, start: Start) -> Points:
        """A point at each reference, that is after each full gradient."""
        rng = np.random.default_rng(self.seed)
        w = np.zeros(problem.d + 1) if start.coef is None else start.coef.astype(np.float64)
        rows = feature_rows(problem.X, problem.bias, w)
        chance, smooth = _importance(problem)
        table = np.cumsum(chance)
        eta = 0.25 / smooth
        here = look(problem, w, margins(problem, w))
        rounds = 0
        while True:
            g, u, primal = here.gradient, here.margin, here.primal
            yield Point(w, None, u, primal, primal - 0.5 * float(g @ g), rounds)
            drawn = np.searchsorted(table, rng.random(2 * problem.n) * table[-1])
            v, D = w.copy(), g - w
            scale, drift = _walk(
                problem.loss,
                rows._replace(w=v),
                rows._replace(w=D),
                problem.y,
                problem.weight,
                u,
                chance,
                drawn,
                eta,
            )
            trial = scale * v - drift * D
            there = look(problem, trial, margins(problem, trial))
            rounds += 1
            if not there.primal < primal:
                eta *= 0.5
                if eta < 1e-12 / smooth:
                    return None
                continue
            step, turn = trial - w, there.gradient - g
            w, here = trial, there
            curve = float(step @ turn)
            if curve > 0.0:
                eta = min(max(eta, float(step @ step) / curve / (2 * problem.n)), 0.5 / smooth)


def _importance(problem: Problem) -> tuple[np.ndarray, float]:
    """How often to draw each row, in proportion to its smoothness, and the mean of that."""
    weight = 1.0 if problem.weight is None else problem.weight
    each = 1.0 + problem.n * steepest(problem.loss) * weight * problem.sqnorms
    mean = float(each.mean())
    return each / (mean * problem.n), mean


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
