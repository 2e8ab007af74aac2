"""Newton's method over landmarks, guided by some of the rows.

Problem   min_w P(w) over the features phi(x) = L^{-1} k(Z, x) of S landmarks
Update    (I + Phi' diag(h) Phi) p = -grad P(w) by conjugate gradients, then an exact line search;
          they are guided (preconditioned) by the same matrix made of 4 S of the rows
          that have a curvature, factored
Source    math.md section 7.  Phi is never formed: a product with it is one with the kernel values
          and one with L, so a pass is O(n S), and rows without curvature are not read
Cost      a step takes a pass for the gradient, one for the new margins and one over the curved
          rows for each conjugate-gradient step, of which there are a few; the guide 8 S^3, less
          where few rows changed.  On fewer rows than 4 S it is the matrix itself
Machines  one against the rest, or pairs, go on side by side: they ask for passes, and one read of
          the kernel values answers all (see `asked`)

A step also foretells a dual point: were every row to stay on its piece, its dual variable would
be a_i = -(slope + h_i du_i), and w(a) = w + p - r with r what the solution of the system left.
So after a full step, by the identities in `problem`,

    P - D = |r|^2 / 2 + sum_i loss_i(u_i) + psi_i(a_i) + a_i u_i

which is far less than |grad P|^2 / 2, and costs no pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from optimargin.cholesky import cholesky, solve
from optimargin.landmarks import whitened
from optimargin.linesearch import best_step
from optimargin.loss import Loss, dual_of, of_row, row_gap, scaled, value
from optimargin.problem import Asking, Point, Points, Problem, Solution, Start, Stop, T, driven
from optimargin.rows import compiled
from optimargin.solvers.asked import Ask, abreast, alone
from optimargin.solvers.passes import pulls
from optimargin.threads import blas_threads, spans

_SAMPLE = 4  # rows in the guide for each landmark, or ..
_CHEAP = 20  # .. so many for each row and landmark: they take as long as a pass
_STALE = 2  # conjugate-gradient steps at least, before a new guide is made
_GUIDE = 0.05  # products that a guide takes for each, in the time of a number read by such a step
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
    y: np.ndarray
    weight: np.ndarray | None
    loss: Loss

    def numbers(self, places: np.ndarray) -> np.ndarray:
        """Of some of these rows."""
        return places if self.which is None else self.which[places]


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
        w = np.zeros(problem.sketch.shape[1])
        if start.coef is not None:
            w = problem.sketch.landmarks.lift(start.coef.astype(np.float64))
        for count in _looks(problem, start):
            chosen = np.sort(rng.permutation(problem.n)[:count])
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
        u = y * (yield Ask(rows.which, w)) if w.any() else np.zeros(len(y))
        pull, h = np.empty(len(y)), np.empty(len(y))
        guide, rounds, bound = Guide(problem, rng), 0, -np.inf
        while True:
            primal = 0.5 * float(w @ w) + pulls(loss, y, weight, u, pull, h)
            some = np.flatnonzero(pull)
            g = w + (yield Ask(rows.numbers(some), h=pull[some]))
            bound = max(bound, primal - 0.5 * float(g @ g))
            point = Point(landmarks.expand(w), None, u, primal, bound, rounds)
            yield point
            some = np.flatnonzero(h)
            system = Ask(rows.numbers(some), h=h[some])
            guide.meet(rows.numbers(some), h[some])
            yield point
            step = yield from _direction(system, g, guide.factor, self.tol * abs(primal), point)
            guide.spent += step.rounds
            p = step.p
            du = y * (yield Ask(rows.which, p))
            gap = 0.5 * float(step.rest @ step.rest) + _foretold(loss, weight, u, du, h)
            full = 0.5 * float((w + p) @ (w + p)) + _total(loss, weight, u, du)
            bound = max(bound, full - gap)
            t = best_step(loss, weight, u, du, float(w @ p), float(p @ p))
            du *= t
            du += u
            there = 0.5 * float((w + t * p) @ (w + t * p)) + _total(loss, weight, du, None)
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
    if chosen is None:
        return Rows(None, y, weight, loss)
    weight = None if weight is None else weight[chosen]
    return Rows(chosen, y[chosen], weight, scaled(loss, problem.n / len(chosen)))


@compiled
def _total(loss, weight, u, du):
    """The sum of the losses at u + du."""
    total = 0.0
    for i in range(len(u)):
        total += value(of_row(loss, weight, i), u[i] if du is None else u[i] + du[i])
    return total


@compiled
def _foretold(loss, weight, u, du, h):
    """What the rows add to the gap, if their dual variables are those foretold."""
    total = 0.0
    for i in range(len(u)):
        own = of_row(loss, weight, i)
        a = dual_of(own, u[i]) - h[i] * du[i]
        if a < own.a_min or a > own.a_max:
            return np.inf
        total += row_gap(own, a, u[i] + du[i])
    return total


class Guide:
    """The factor of I + Phi' diag(h) Phi, made of some of its rows, and how it came about.

    From one step to the next few rows change their curvature, and only these are put in or
    taken out.
    """

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        assert problem.sketch is not None
        n, S = problem.sketch.shape
        self.problem, self.sketch = problem, problem.sketch
        self.rank = rng.permutation(n).astype(np.int32)  # the first of these are chosen
        self.most = max(_SAMPLE * S, _CHEAP * n // S)
        self.rows, self.h = np.empty(0, dtype=np.intp), np.empty(0)
        self.H = np.zeros((S, S), dtype=self.sketch.dtype)
        self.factor, self.spent = self.H, np.inf

    def meet(self, rows: np.ndarray, h: np.ndarray) -> None:
        """Follow the system, if the steps that an older guide cost would have paid for it."""
        count, whole, S = len(rows), float(h.sum()), len(self.H)
        if len(rows) > self.most:
            chosen = np.sort(np.argpartition(self.rank[rows], self.most)[: self.most])
            rows, h = rows[chosen], h[chosen]
        other, change = _difference(rows, h, self.rows, self.h)
        work = min(len(other), len(rows)) + S / 6.0
        if self.spent <= max(_STALE, _GUIDE * S * work / (count + 4 * S)):
            return
        if len(other) > len(rows):
            other, change = rows, h
            self.H[:] = 0.0
        self.rows, self.h, self.spent = rows, h, 0.0
        with blas_threads(self.problem.threads, S):
            for sign in (1.0, -1.0):
                side = sign * change > 0.0
                self._add(other[side], change[side], sign)
            self._factor(whole / max(h.sum(), np.finfo(float).tiny))

    def _add(self, rows: np.ndarray, change: np.ndarray, sign: float) -> None:
        L = self.sketch.landmarks.factor
        for part in spans(len(rows), _SAMPLE * len(L)):
            K = self.sketch[rows[part]]
            K *= np.sqrt(np.abs(change[part])).astype(K.dtype)[:, None]
            phi = whitened(L, K, in_place=True)
            (np.add if sign > 0.0 else np.subtract)(self.H, phi.T @ phi, out=self.H)
            del K, phi

    def _factor(self, share: float) -> None:
        """In single precision the identity may drown in rounding; it is raised until not."""
        H = self.H * self.H.dtype.type(share)
        rounding = 4.0 * float(np.finfo(H.dtype).eps) * float(np.trace(H, dtype=np.float64))
        H[np.diag_indices(len(H))] += max(1.0, rounding)
        self.factor = cholesky(H)


def _difference(
    rows: np.ndarray, h: np.ndarray, before: np.ndarray, h_before: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The rows whose numbers are others than before, and by how much; numbers not given are 0."""
    every, places = np.unique(np.concatenate([rows, before]), return_inverse=True)
    change = np.bincount(places, np.concatenate([h, -h_before]), len(every))
    changed = np.abs(change) > 1e-12 * np.abs(h).max(initial=0.0)
    return every[changed], change[changed]


def _direction(
    system: Ask, g: np.ndarray, guide: np.ndarray, gap: float, point: Point
) -> Asking[Step]:
    """A solution of (I + Phi' diag(h) Phi) p = -g by conjugate gradients.

    Far from the answer a coarse one does; near by, it is good enough to certify ``gap``.
    The last ``point`` is yielded on the way, as a chance to stop.
    """
    x, r, count = np.zeros_like(g), -g, 0
    s = solve(guide, r).astype(np.float64)
    p, size = s, float(r @ s)
    coarse, fine = _COARSE * size, gap if size <= _NEAR * gap else np.inf
    while count < _MOST and not (size <= coarse and float(r @ r) <= fine):
        Ap = p + (yield system._replace(w=p))
        step = size / float(p @ Ap)
        x += step * p
        r = r - step * Ap
        s = solve(guide, r).astype(np.float64)
        size, before = float(r @ s), size
        p = s + (size / before) * p
        count += 1
        yield point
    return Step(x, r, count)
