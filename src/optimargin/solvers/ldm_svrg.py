"""Stochastic gradients with variance reduction for the linear LDM: rows are never whitened.

Problem   min_w 1/2 |w|^2 + lam1 var(u) - lam2 mean(u) + sum_i s_i hinge(u_i)
Update    w <- w - eta (g_ij(w) - g_ij(w_ref) + g(w_ref)), i and j drawn independently,
          g_ij(w) = w + (2 lam1 p_i (u_i - u_j) - lam2 p_i - a_i) / chance_i  y_i x_i
Source    odm.txt, theorem 1 and eq. (23): u_j stands for the mean, so that no gradient
          needs more than two rows.  Ours: the hinge has no slope at its kink, which SVRG
          needs, so it is rounded over margins of some width below 1; the duals of the rounded
          loss are feasible for the hinge and give the certificate of the hinge itself.  The
          width is halved whenever rounding is the larger part of the gap
Cost      two passes over the data a round, beside the full gradient; a step costs as much as
          two rows have entries: see `svrg` for how, and for the size of the step
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from optimargin.loss import Loss, dual_of, of_row, rounded, row_gap, scaled, steepest, value
from optimargin.problem import Point, Points, Problem, Start
from optimargin.rows import compiled, feature_rows, push, score
from optimargin.solvers.ldm import expansion
from optimargin.solvers.passes import margins

_WIDTH = 0.5  # of the first rounding, in margins
_LEAST = 1e-9  # a width beyond which there is nothing to gain


@dataclass(frozen=True)
class LDMSVRG:
    """SVRG for the linear LDM; ``seed`` decides which rows are drawn."""

    seed: int = 0
    name = "svrg"

    def points(self, problem: Problem, start: Start) -> Points:
        """A point at each reference, that is after each full gradient."""
        rng = np.random.default_rng(self.seed)
        w = np.zeros(problem.d + 1) if start.coef is None else start.coef.astype(np.float64)
        rows, shares = feature_rows(problem.X, problem.bias, w), problem.shares
        second, n, rounds, width = np.cumsum(shares), problem.n, 0, _WIDTH
        loss = rounded(problem.loss, width, above=0.0)
        chance, smooth = _importance(problem, loss)
        eta = 0.25 / smooth
        here = _look(problem, loss, w)
        while width > _LEAST:
            yield here.point._replace(rounds=rounds)
            table, v, D = np.cumsum(chance), w.copy(), here.gradient - w
            scale, drift = _walk(
                loss,
                rows._replace(w=v),
                rows._replace(w=D),
                problem.y,
                problem.weight,
                here.point.margin,
                chance,
                2.0 * problem.lam1 * shares,
                np.searchsorted(table, rng.random(2 * n) * table[-1]),
                np.searchsorted(second, rng.random(2 * n) * second[-1]),
                eta,
            )
            trial = scale * v - drift * D
            there = _look(problem, loss, trial)
            rounds += 1
            if there.objective < here.objective:
                step, turn = trial - w, there.gradient - here.gradient
                w, here = trial, there
                curve = float(step @ turn)
                if curve > 0.0:
                    eta = max(eta, float(step @ step) / curve / (2 * n))
                    eta = min(eta, 0.5 / smooth)
            else:
                eta *= 0.5
            worn = eta < 1e-9 / smooth  # what is left is not worth such steps
            if here.rounding > 0.5 * (here.point.primal - here.point.bound) or worn:
                width *= 0.5
                loss = rounded(problem.loss, width, above=0.0)
                chance, smooth = _importance(problem, loss)
                here, eta = _look(problem, loss, w), 0.25 / smooth
        return None


class _Look(NamedTuple):
    """What one pass over the data says of a model."""

    point: Point
    gradient: np.ndarray
    objective: float  # with the rounded loss
    rounding: float  # share of the gap that is due to the rounded loss


def _look(problem: Problem, loss: Loss, w: np.ndarray) -> _Look:
    u, p = margins(problem, w), problem.shares
    weight = np.ones(problem.n) if problem.weight is None else problem.weight
    near, exact = scaled(loss, weight), scaled(problem.loss, weight)
    a, mean = dual_of(near, u), float(p @ u)
    t = expansion(problem, a, u)
    g = w - np.append(t @ problem.X, problem.bias * t.sum())
    spread = problem.lam1 * float(p @ (u - mean) ** 2)
    rest = 0.5 * float(w @ w) + spread - problem.lam2 * mean
    primal = rest + float(value(exact, u).sum())
    rounding = float(row_gap(exact, a, u).sum())
    bound = primal - rounding - 0.5 * float(g @ g)  # the Hessian of the rest is at least I
    point = Point(w, a, u, primal, bound, 0)
    return _Look(point, g, rest + float(value(near, u).sum()), rounding)


def _importance(problem: Problem, loss: Loss) -> tuple[np.ndarray, float]:
    """How often to draw each row, in proportion to its smoothness, and the mean of that."""
    weight = 1.0 if problem.weight is None else problem.weight
    steep = steepest(loss) * weight + 4.0 * problem.lam1 * problem.shares
    each = 1.0 + problem.n * steep * problem.sqnorms
    mean = float(each.mean())
    return each / (mean * problem.n), mean


@compiled
def _walk(loss, moving, fixed, y, weight, u, chance, pull, first, second, eta):
    """Steps over pairs of drawn rows from a reference with margins u; moves v = moving.w.

    ``pull`` is 2 lam1 p, the strength of the variance in each row.
    """
    scale, drift, v = 1.0, 0.0, moving.w
    for k in range(len(first)):
        i, j = first[k], second[k]
        own = of_row(loss, weight, i)
        margin = y[i] * (scale * score(moving, i) - drift * score(fixed, i))
        change = dual_of(own, margin) - dual_of(own, u[i])
        if pull[i] > 0.0:
            other = y[j] * (scale * score(moving, j) - drift * score(fixed, j))
            change -= pull[i] * ((margin - u[i]) - (other - u[j]))
        scale *= 1.0 - eta
        drift = (1.0 - eta) * drift + eta
        if change != 0.0:
            push(moving, i, eta * change * y[i] / (chance[i] * scale))
        if scale < 1e-6:
            for m in range(len(v)):
                v[m] *= scale
            scale = 1.0
    return scale, drift
