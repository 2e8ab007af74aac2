"""Semi-smooth Newton on the primal of a linear machine.

Problem   min_w P(w), piecewise quadratic and strongly convex
Update    (I + X' diag(h) X) p = -grad P(w), h the curvature of each row's piece, then an
          exact line search over the pieces; ends after finitely many steps
Source    math.md section 1; the system is factored while d is moderate and solved by
          conjugate gradients beyond.  Many rows are first solved on a few of them, sparse
          ones begin with some rounds of coordinate descent
Cost      a step reads the data twice when the system is factored, and once more for
          each conjugate-gradient step when it is not
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from optimargin.cholesky import cholesky, solve
from optimargin.linesearch import best_step
from optimargin.loss import curvature, of_row, scaled, slope, value
from optimargin.problem import Point, Points, Problem, Start
from optimargin.rows import add_outer, compiled, feature_rows, push, score
from optimargin.solvers.dcd import DCD
from optimargin.threads import shares, spans, spread

_DIRECT_UP_TO = 1500  # features; beyond, conjugate gradients
_PILOT = 20_000  # rows; more are first solved on a random share of them
_PILOT_SHARE = 16.0  # one row in so many
_WARM = 8  # rounds of coordinate descent before the first step on sparse rows
_WARM_DIRECT = 2  # the same where the Hessian is factored
_STIFF = 10.0  # stiffness beyond which those do not help
_WORTH_A_THREAD = 250_000  # numbers in a range of rows
_BLOCK = 1 << 18  # numbers in a block of rows that is multiplied with itself


@dataclass(frozen=True)
class Newton:
    """Newton's method for linear machines; ``seed`` decides the rows of the first look."""

    seed: int = 0
    direct: bool | None = None
    name = "newton"

    def points(self, problem: Problem, start: Start) -> Points:
        """A point after each Newton step."""
        direct = is_direct(problem) if self.direct is None else self.direct
        w, rounds = yield from self._begin(problem, start, direct)
        here, forcing = look(problem, w, margins(problem, w)), 0.1
        while True:
            g, primal = here.gradient, here.primal
            yield Point(w, None, here.margin, primal, primal - 0.5 * float(g @ g), rounds)
            if direct:
                p = -_factored(problem, here.curvature, g)
            else:
                p = -_conjugate_gradients(problem, here.curvature, g, forcing)
            du = margins(problem, p)
            t = best_step(problem.loss, problem.weight, here.margin, du, float(w @ p), float(p @ p))
            du *= t
            du += here.margin
            there = look(problem, w + t * p, du)
            turned = there.gradient @ there.gradient < g @ g
            if not (there.primal < primal or turned):
                return None
            progress = np.linalg.norm(there.gradient) / np.linalg.norm(g)
            forcing = min(0.1, forcing * float(np.sqrt(progress)))
            w, here = w + t * p, there
            rounds += 1

    def _begin(
        self, problem: Problem, start: Start, direct: bool
    ) -> Generator[Point, None, tuple[np.ndarray, int]]:
        """Where to start, and the rounds it took: the first steps are cheaper by other means."""
        if start.coef is not None:
            return start.coef.astype(np.float64), 0
        if problem.n > max(_PILOT, _PILOT_SHARE * 64 * problem.d):
            return self._pilot(problem), 0
        if not sp.issparse(problem.X) or (direct and problem.stiffness > _STIFF):
            return np.zeros(problem.d + 1), 0
        warm = _WARM_DIRECT if direct else _WARM
        best = None
        for point in islice(DCD(self.seed).points(problem, start), 1 + warm):
            best = point if best is None or point.primal < best.primal else best
            yield point
        assert best is not None
        return best.coef, warm + 1

    def _pilot(self, problem: Problem) -> np.ndarray:
        """About the answer on a random share of the rows, as a place to start from."""
        chosen = np.random.default_rng(self.seed).permutation(problem.n)
        chosen = np.sort(chosen[: int(problem.n / _PILOT_SHARE)])
        part = replace(
            problem,
            X=problem.X[chosen],
            y=problem.y[chosen],
            weight=None if problem.weight is None else problem.weight[chosen],
            loss=scaled(problem.loss, _PILOT_SHARE),
        )
        start = Start(coef=np.zeros(problem.d + 1))
        points = Newton(self.seed, self.direct).points(part, start)
        last = next(points)
        for point in points:
            if point.primal >= 0.98 * last.primal:
                break
            last = point
        return last.coef


class View(NamedTuple):
    """The objective at some w with its gradient, and every row's margin and curvature."""

    primal: float
    gradient: np.ndarray
    margin: np.ndarray
    curvature: np.ndarray


@compiled
def _score(rows, y, first, last, u):
    for i in range(first, last):
        u[i] = y[i] * score(rows, i)


@partial(compiled, contiguous=True)
def _pull(loss, into, y, weight, u, first, last, h):
    """Add the gradient of the losses to ``into``, and note every row's curvature.

    Two loops, because the first is all arithmetic and may use the vector units.
    """
    total, pull = 0.0, np.empty(last - first)
    for i in range(first, last):
        own = of_row(loss, weight, i)
        total += value(own, u[i])
        h[i] = curvature(own, u[i])
        pull[i - first] = slope(own, u[i]) * y[i]
    for i in range(first, last):
        if pull[i - first] != 0.0:
            push(into, i, pull[i - first])
    return total


@compiled
def _curve(rows, into, h, first, last):
    for i in range(first, last):
        if h[i] != 0.0:
            push(into, i, h[i] * score(rows, i))


@compiled
def _outer(rows, h, first, last, H):
    for i in range(first, last):
        if h[i] != 0.0:
            add_outer(rows, i, h[i], H)


def _ranges(problem: Problem, size: int) -> list[slice]:
    """At most 8 ranges of rows, each worth a thread's while and a sum of ``size`` numbers.

    The sums of all ranges together are no larger than the data.
    """
    stored = problem.X.nnz if sp.issparse(problem.X) else problem.X.size
    count = min(stored // _WORTH_A_THREAD, stored // (8 * size), problem.limit // (8 * size))
    return shares(problem.n, int(np.clip(count, 1, 8)))


def margins(problem: Problem, w: np.ndarray) -> np.ndarray:
    """Every row's margin under w."""
    u = np.zeros(problem.n)
    if w.any():
        rows = feature_rows(problem.X, problem.bias, w)
        spread(
            lambda part: _score(rows, problem.y, part.start, part.stop, u),
            _ranges(problem, 1),
            problem.threads,
        )
    return u


def look(problem: Problem, w: np.ndarray, u: np.ndarray) -> View:
    """What there is to see at w, where the margins are u; reads only rows that pull."""
    h = np.empty(problem.n)

    def task(part: slice) -> tuple[float, np.ndarray]:
        g = np.zeros(problem.d + 1)
        into = feature_rows(problem.X, problem.bias, g)
        loss, y, weight = problem.loss, problem.y, problem.weight
        return _pull(loss, into, y, weight, u, part.start, part.stop, h), g

    found = spread(task, _ranges(problem, problem.d + 1), problem.threads)
    primal = 0.5 * float(w @ w) + sum(total for total, _ in found)
    return View(primal, w + sum(g for _, g in found), u, h)


def _product(problem: Problem, h: np.ndarray, v: np.ndarray) -> np.ndarray:
    """(I + X' diag(h) X) v in one pass over the rows."""
    rows = feature_rows(problem.X, problem.bias, v)

    def task(part: slice) -> np.ndarray:
        out = np.zeros_like(v)
        _curve(rows, rows._replace(w=out), h, part.start, part.stop)
        return out

    return v + sum(spread(task, _ranges(problem, problem.d + 1), problem.threads))


def _hessian(problem: Problem, h: np.ndarray) -> np.ndarray:
    """I + X' diag(h) X, lower triangle, the constant feature last."""
    X, d = problem.X, problem.d

    def of_range(part: slice) -> np.ndarray:
        H = np.zeros((d + 1, d + 1))
        if sp.issparse(X):
            _outer(feature_rows(X, problem.bias, H[0]), h, part.start, part.stop, H)
            return H
        for span in spans(part.stop - part.start, max(64, _BLOCK // (d + 1))):
            rows = part.start + span.start + np.flatnonzero(h[part][span])
            A, scale = np.empty((len(rows), d + 1), dtype=X.dtype), np.sqrt(h[rows])
            np.multiply(X[rows], scale[:, None], out=A[:, :d], casting="same_kind")
            A[:, d] = scale * problem.bias
            H += A.T @ A
        return H

    found = spread(of_range, _ranges(problem, (d + 1) ** 2), problem.threads)
    H = found[0]
    for other in found[1:]:
        H += other
    H[np.diag_indices(d + 1)] += 1.0
    return H


def is_direct(problem: Problem) -> bool:
    """Whether the Hessian is formed and factored, rather than applied."""
    return problem.d <= _DIRECT_UP_TO and 8 * (problem.d + 1) ** 2 <= problem.limit


def _factored(problem: Problem, h: np.ndarray, g: np.ndarray) -> np.ndarray:
    return solve(cholesky(_hessian(problem, h)), g)


def _conjugate_gradients(
    problem: Problem, h: np.ndarray, g: np.ndarray, forcing: float
) -> np.ndarray:
    x, r = np.zeros_like(g), g.copy()
    p, size = r.copy(), float(r @ r)
    goal = forcing**2 * size
    for _ in range(200):
        Hp = _product(problem, h, p)
        step = size / float(p @ Hp)
        x += step * p
        r -= step * Hp
        size, before = float(r @ r), size
        if size <= goal:
            break
        p = r + (size / before) * p
    return x
