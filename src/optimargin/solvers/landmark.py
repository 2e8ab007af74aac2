"""Newton's method over landmarks, guided by some of the rows.

Problem   min_w P(w) over the features phi(x) = L^{-1} k(Z, x) of S landmarks
Update    (I + Phi' diag(h) Phi) p = -grad P(w) by conjugate gradients, then an exact line search;
          they are guided (preconditioned) by the same matrix made of 3 S of the rows
          that have a curvature, factored
Source    math.md section 7.  Phi is never formed: a product with it is one with the kernel values
          and one with L, so a pass is O(n S), and rows without curvature are not read
Cost      a step takes a pass for the gradient, one for the new margins and one over the curved
          rows for each conjugate-gradient step, of which there are a few; the guide 8 S^3, less
          where few rows changed.  On fewer rows than 3 S it is the matrix itself
Machines  one against the rest, or pairs, go on side by side: they ask for passes, and one read of
          the kernel values answers all (see `asked`)

A step also foretells a dual point: were every row to stay on its piece, its dual variable would
be a_i = -(slope + h_i du_i), and w(a) = w + p - r with r what the solution of the system left.
So after a full step, by the identities in `problem`,

    P - D = |r|^2 / 2 + sum_i loss_i(u_i) + psi_i(a_i) + a_i u_i

which is far less than |grad P|^2 / 2, and costs no pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from optimargin.arrays import brought, is_foreign, number, taken, zeros
from optimargin.features import Features
from optimargin.linesearch import best_step
from optimargin.loss import Loss, curvature, dual_of, of_row, row_gap, scaled, slope, value
from optimargin.partition import thinned
from optimargin.problem import Asking, Point, Points, Problem, Solution, Start, Stop, T, driven
from optimargin.rows import compiled
from optimargin.solvers.asked import Ask, abreast, alone
from optimargin.solvers.guide import make_guide
from optimargin.solvers.passes import pulls

_MOST = 100  # conjugate-gradient steps at most
_COARSE = 0.1  # share of the squared residual that is left by the steps far from the answer
_NEAR = 10.0  # gaps that a step may promise to gain and still be one of the last
_PILOT = 16  # one row in so many for the first look, where that is more than ..
_PILOT_ROWS = 16  # .. so many for each landmark
_MORE = 4  # times as many for the next look
_GAIN = 0.02  # share of the objective that a step gains on some of the rows, if it is not the last


class Rows(NamedTuple):
    """Some of the rows, by number in rising order (None is all), which count for all."""

    which: np.ndarray | None
    y: Any
    weight: Any
    loss: Loss
    part: Features | None = None  # of these rows, on a device

    def ask(self, w: Any = None, h: Any = None) -> Ask:
        """A question about these rows, or those of them that h is about."""
        if self.part is not None:
            return Ask(None, w, h, self.part)
        if h is None:
            return Ask(self.which, w)
        some = np.flatnonzero(h)
        return Ask(some if self.which is None else self.which[some], w, h[some])

    def pulls(self, u: Any) -> tuple[float, Any, Any]:
        """The sum of the losses, how every row pulls at its score, and its curvature."""
        if self.part is not None:
            own = self.loss if self.weight is None else scaled(self.loss, self.weight)
            return number(value(own, u)), slope(own, u) * self.y, curvature(own, u)
        pull, h = np.empty(len(u)), np.empty(len(u))
        return pulls(self.loss, self.y, self.weight, u, pull, h), pull, h


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
        return alone(problem, self.machine(problem, start))

    def machine(self, problem: Problem, start: Start) -> Asking[None]:
        """The same points; passes over the rows are asked for."""
        assert problem.sketch is not None
        rng = np.random.default_rng(self.seed)
        w = zeros(problem.sketch.shape[1], problem.y)
        if start.coef is not None:
            w = problem.sketch.landmarks.lift(brought(start.coef, problem.y, "float64"))
        for count in _looks(problem, start):
            chosen = thinned(problem.n, count, np.random.default_rng([self.seed, count]))
            w = yield from _unseen(self._steps(problem, _some(problem, chosen), w, rng, _GAIN))
        yield from self._steps(problem, _some(problem, None), w, rng)

    def _steps(
        self,
        problem: Problem,
        rows: Rows,
        w: np.ndarray,
        rng: np.random.Generator,
        gain: float = 0.0,
    ) -> Asking[np.ndarray]:
        """Newton steps on some of the rows, while they gain more than this share."""
        assert problem.sketch is not None
        landmarks, loss, weight, y = problem.sketch.landmarks, rows.loss, rows.weight, rows.y
        u = y * (yield rows.ask(w)) if float(w @ w) > 0.0 else zeros(y.shape[0], y)
        guide, rounds, bound = make_guide(problem, rows.part, rng), 0, -np.inf
        while True:
            total, pull, h = rows.pulls(u)
            primal = 0.5 * float(w @ w) + total
            g = w + (yield rows.ask(h=pull))
            bound = max(bound, primal - 0.5 * float(g @ g))
            point = Point(landmarks.expand(w), None, u, primal, bound, rounds)
            yield point
            system = rows.ask(h=h)
            guide.meet(system.rows, system.h)
            yield point
            step = yield from _direction(system, g, guide.solve, self.tol * abs(primal), point)
            guide.spent += step.rounds
            p = step.p
            du = y * (yield rows.ask(p))
            gap = 0.5 * float(step.rest @ step.rest) + _foretold(loss, weight, u, du, h)
            full = 0.5 * float((w + p) @ (w + p)) + _total(loss, weight, u + du)
            bound = max(bound, full - gap)
            t = best_step(loss, weight, u, du, float(w @ p), float(p @ p))
            du *= t
            du += u
            there = 0.5 * float((w + t * p) @ (w + t * p)) + _total(loss, weight, du)
            if not there < primal:
                yield point._replace(bound=bound)
                return w
            w, u = w + t * p, du
            rounds += 1
            yield Point(landmarks.expand(w), None, u, there, bound, rounds)
            if there >= (1.0 - gain) * primal:
                return w


def train_all(
    problem: Problem, machines: Sequence[Problem], starts: Sequence[Start], stop: Stop, seed: int
) -> list[Solution]:
    """The answers of several machines of two classes over the same landmarks.

    Of several, each has one thread for what it does by itself.
    """
    solver = LandmarkNewton(seed, stop.tol)
    if len(machines) > 1:
        machines = [replace(machine, threads=1) for machine in machines]
    running = [
        driven(solver.machine(machine, start), stop, solver.name)
        for machine, start in zip(machines, starts, strict=True)
    ]
    return abreast(problem, running)


def _unseen(points: Asking[T]) -> Asking[T]:
    """The same without the points: they are not of all rows."""
    reply = None
    while True:
        try:
            said = points.send(reply)
        except StopIteration as end:
            return end.value
        reply = None if isinstance(said, Point) else (yield said)


def _looks(problem: Problem, start: Start) -> list[int]:
    """How many of the rows to look at first, and then; none of it is more than a look."""
    assert problem.sketch is not None
    n, S = problem.sketch.shape
    count, counts = max(n // _PILOT, _PILOT_ROWS * S), list[int]()
    while count * _MORE <= n:
        if start.coef is None or count > start.seen > 0:
            counts.append(count)
        count *= _MORE
    return counts


def _some(problem: Problem, chosen: np.ndarray | None) -> Rows:
    """Some of the rows, which count for all."""
    y, weight, loss = problem.y, problem.weight, problem.loss
    features: Any = problem.sketch if is_foreign(y) else None
    if chosen is None:
        return Rows(None, y, weight, loss, features)
    weight = None if weight is None else taken(weight, chosen)
    part = None if features is None else features.part(chosen)
    return Rows(chosen, taken(y, chosen), weight, scaled(loss, problem.n / len(chosen)), part)


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


def _direction(
    system: Ask, g: Any, guide: Callable[[Any], Any], gap: float, point: Point
) -> Asking[Step]:
    """A solution of (I + Phi' diag(h) Phi) p = -g by conjugate gradients.

    Far from the answer a coarse one does; near by, it is good enough to certify ``gap``.
    The last ``point`` is yielded on the way, as a chance to stop.
    """
    x, r, count = 0.0 * g, -g, 0
    s = guide(r)
    p, size = s, float(r @ s)
    coarse, fine = _COARSE * size, gap if size <= _NEAR * gap else np.inf
    while count < _MOST and not (size <= coarse and float(r @ r) <= fine):
        Ap = p + (yield system._replace(w=p))
        step = size / float(p @ Ap)
        x += step * p
        r = r - step * Ap
        s = guide(r)
        size, before = float(r @ s), size
        p = s + (size / before) * p
        count += 1
        yield point
    return Step(x, r, count)
