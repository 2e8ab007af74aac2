"""Newton's method over landmarks, guided by some of the rows.

Problem   min_w P(w) over the features phi(x) = L^{-1} k(Z, x) of S landmarks
Update    (I + Phi' diag(h) Phi) p = -grad P(w) by conjugate gradients, then an exact line search;
          they are guided (preconditioned) by the same matrix made of 6 S of the rows
          that have a curvature, factored
Source    math.md section 7.  Phi is never formed: a product with it is one with the kernel values
          and one with L, so a pass is O(n S), and rows without curvature are not read
Cost      a step takes a pass for the gradient, one for the new margins and one over the curved
          rows for each conjugate-gradient step, of which there are about ten; the guide
          12 S^3, twice or three times in all.  On fewer rows than 6 S it is the matrix itself

A step also foretells a dual point: were every row to stay on its piece, its dual variable would
be a_i = -(slope + h_i du_i), and w(a) = w + p - r with r what the solution of the system left.
So after a full step, by the identities in `problem`,

    P - D = |r|^2 / 2 + sum_i loss_i(u_i) + psi_i(a_i) + a_i u_i

which is far less than |grad P|^2 / 2, and costs no pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from optimargin.arrays import (
    brought,
    cast,
    is_foreign,
    name_of_dtype,
    namespace,
    number,
    places,
    taken,
    zeros,
)
from optimargin.cholesky import add_to_diagonal, cholesky, solve
from optimargin.features import Features
from optimargin.linesearch import best_step
from optimargin.loss import dual_of, of_row, row_gap, scaled, value
from optimargin.partition import thinned
from optimargin.problem import Point, Points, Problem, Start
from optimargin.rows import compiled
from optimargin.sketch import Sketch
from optimargin.solvers.passes import curved, margins, pull
from optimargin.threads import blas_threads

_TINY = 1e-300  # stands for zero where a quotient must stay defined
_SAMPLE = 6  # rows in the guide for each landmark
_STALE = 10  # conjugate-gradient steps at least, before a new guide is made
_GUIDE = 0.07  # products that a guide takes for each, in the time of a number read by such a step
_MOST = 100  # conjugate-gradient steps at most
_COARSE = 0.1  # share of the squared residual that is left by the steps far from the answer
_NEAR = 10.0  # gaps that a step may promise to gain and still be one of the last
_PILOT = 16  # one row in so many for the first look, where that is more than ..
_PILOT_ROWS = 4  # .. so many for each landmark


class Step(NamedTuple):
    """A direction, what it left of the gradient, and how long it took."""

    p: np.ndarray
    rest: np.ndarray
    rounds: int


@dataclass(frozen=True)
class LandmarkNewton:
    """Newton's method over landmarks; ``seed`` decides which rows guide it."""

    seed: int = 0
    tol: float = 1e-3  # relative gap that will be asked for; steps are as exact as it needs
    name = "landmark"

    def points(self, problem: Problem, start: Start) -> Points:
        """A point after each Newton step, and again when its gradient is known."""
        sketch, loss, weight = problem.sketch, problem.loss, problem.weight
        assert sketch is not None
        landmarks = sketch.landmarks
        rng = np.random.default_rng(self.seed)
        w = self._begin(problem, start)
        u = margins(problem, sketch.outward(w))
        guide, spent, rounds, bound = None, 0, 0, -np.inf
        while True:
            found = pull(problem, u)
            g, h = w + sketch.inward(found.gradient), found.curvature
            primal = 0.5 * float(w @ w) + found.total
            bound = max(bound, primal - 0.5 * float(g @ g))
            point = Point(landmarks.expand(w), None, u, primal, bound, rounds)
            yield point
            if guide is None:
                guide, spent = _guide(problem, sketch, h, rng), 0
            step = _direction(problem, sketch, h, g, guide, self.tol * abs(primal))
            spent += step.rounds
            if spent > _patience(problem, h):
                guide = None
            p = step.p
            du = margins(problem, sketch.outward(p))
            gap = 0.5 * float(step.rest @ step.rest) + _foretold(loss, weight, u, du, h)
            full = 0.5 * float((w + p) @ (w + p)) + _total(loss, weight, u + du)
            bound = max(bound, full - gap)
            t = best_step(loss, weight, u, du, float(w @ p), float(p @ p))
            du *= t
            du += u
            there = 0.5 * float((w + t * p) @ (w + t * p)) + _total(loss, weight, du)
            if not there < primal:
                yield point._replace(bound=bound)
                return None
            w, u = w + t * p, du
            rounds += 1
            yield Point(landmarks.expand(w), None, u, there, bound, rounds)

    def _begin(self, problem: Problem, start: Start) -> np.ndarray:
        """Where to start: the first steps are cheaper on some of the rows."""
        sketch = problem.sketch
        assert sketch is not None
        if start.coef is not None:
            return sketch.landmarks.lift(brought(start.coef, problem.y, "float64"))
        n, S = sketch.shape
        count = max(n // _PILOT, _PILOT_ROWS * S)
        if count * 4 > n:
            return zeros(S, problem.y)
        part = problem.some(thinned(n, count, np.random.default_rng(self.seed)))
        points = LandmarkNewton(self.seed, self.tol).points(part, Start(coef=np.zeros(S)))
        last = next(points)
        for point in points:
            if point.rounds > last.rounds:
                if point.primal >= 0.98 * last.primal:
                    break
                last = point
        return sketch.landmarks.lift(last.coef)


def _total(loss, weight, u):
    """The sum of the losses at u."""
    if is_foreign(u):
        return number(value(loss if weight is None else scaled(loss, weight), u))
    return _sum(loss, weight, u)


@compiled
def _sum(loss, weight, u):
    total = 0.0
    for i in range(len(u)):
        total += value(of_row(loss, weight, i), u[i])
    return total


def _foretold(loss, weight, u, du, h):
    """What the rows add to the gap, if their dual variables are those foretold."""
    if not is_foreign(u):
        return _sum_foretold(loss, weight, u, du, h)
    own = loss if weight is None else scaled(loss, weight)
    a = dual_of(own, u) - h * du
    if number((a < own.a_min) | (a > own.a_max)):
        return np.inf
    return number(row_gap(own, a, u + du))


@compiled
def _sum_foretold(loss, weight, u, du, h):
    total = 0.0
    for i in range(len(u)):
        own = of_row(loss, weight, i)
        a = dual_of(own, u[i]) - h[i] * du[i]
        if a < own.a_min or a > own.a_max:
            return np.inf
        total += row_gap(own, a, u[i] + du[i])
    return total


def _patience(problem: Problem, h: np.ndarray) -> float:
    """Conjugate-gradient steps that cost as much as another guide."""
    assert problem.sketch is not None
    S, rows = problem.sketch.shape[1], max(number(h > 0.0), 1.0)
    return max(_STALE, _GUIDE * S * min(_SAMPLE * S, rows) / (rows + 4 * S))


def _guide(
    problem: Problem, sketch: Sketch | Features, h: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """The factor of I + Phi' diag(h) Phi, made of some of its rows.

    In single precision the identity may drown in rounding; it is raised until it does not.
    """
    S, chosen = sketch.shape[1], places(h > 0.0)
    most = max(_SAMPLE * S, int(sketch.guided_by * sketch.shape[0]))
    if chosen.shape[0] > most:
        chosen = taken(chosen, thinned(int(chosen.shape[0]), most, rng))
    some = taken(h, chosen)
    share = number(h) / max(number(some), _TINY)
    with blas_threads(problem.threads, S):
        H = sketch.hessian(chosen, some * share)
        eps = float(np.finfo(name_of_dtype(H)).eps)
        rounding = 4.0 * eps * float(namespace(H).linalg.trace(cast(H, "float64")))
        add_to_diagonal(H, max(1.0, rounding))
        return cholesky(H)


def _direction(
    problem: Problem,
    sketch: Sketch | Features,
    h: np.ndarray,
    g: np.ndarray,
    guide: np.ndarray,
    gap: float,
) -> Step:
    """A solution of (I + Phi' diag(h) Phi) p = -g by conjugate gradients.

    Far from the answer a coarse one does; near by, it is good enough to certify ``gap``.
    """
    x, r, count = 0.0 * g, -g, 0
    s = cast(solve(guide, r), "float64")
    p, size = s, float(r @ s)
    coarse, fine = _COARSE * size, gap if size <= _NEAR * gap else np.inf
    while count < _MOST and not (size <= coarse and float(r @ r) <= fine):
        Ap = p + sketch.inward(curved(problem, h, sketch.outward(p)))
        step = size / float(p @ Ap)
        x += step * p
        r = r - step * Ap
        s = cast(solve(guide, r), "float64")
        size, before = float(r @ s), size
        p = s + (size / before) * p
        count += 1
    return Step(x, r, count)
