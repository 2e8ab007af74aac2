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

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import scipy.sparse as sp

from optimargin.arrays import cast, is_foreign, zeros
from optimargin.cholesky import add_to_diagonal, cholesky, solve
from optimargin.linesearch import best_step
from optimargin.partition import thinned
from optimargin.problem import Point, Points, Problem, Start
from optimargin.rows import add_outer, compiled, feature_rows
from optimargin.solvers import arraywise
from optimargin.solvers.dcd import DCD
from optimargin.solvers.passes import curved, look, margins, ranges
from optimargin.threads import spans, spread

_DIRECT_UP_TO = 1500  # features; beyond, conjugate gradients
_PILOT = 20_000  # rows; more are first solved on a random share of them
_PILOT_SHARE = 16  # one row in so many
_WARM = 8  # rounds of coordinate descent before the first step on sparse rows
_WARM_DIRECT = 2  # the same where the Hessian is factored
_STIFF = 10.0  # stiffness beyond which those do not help
_BLOCK = 1 << 18  # numbers in a block of rows that is multiplied with itself


@dataclass(frozen=True)
class Newton:
    """Newton's method for linear machines; ``seed`` decides the rows of the first look."""

    seed: int = 0
    direct: bool | None = None
    name = "newton"

    def points(self, problem: Problem, start: Start) -> Points:
        """A point after each Newton step."""
        direct = is_direct(problem.d, problem.limit) if self.direct is None else self.direct
        w, rounds = yield from self._begin(problem, start, direct)
        here, forcing = look(problem, w, margins(problem, w)), 0.1
        while True:
            g, primal = here.gradient, here.primal
            yield Point(w, None, here.margin, primal, primal - 0.5 * float(g @ g), rounds)
            if direct:
                p = -_factored(problem, here.curvature, g)
            else:
                curve = partial(curved, problem, here.curvature)
                p = -conjugate_gradients(curve, g, forcing)
            du = margins(problem, p)
            t = best_step(problem.loss, problem.weight, here.margin, du, float(w @ p), float(p @ p))
            du *= t
            du += here.margin
            there = look(problem, w + t * p, du)
            size, before = float(there.gradient @ there.gradient), float(g @ g)
            if not (there.primal < primal or size < before):
                return None
            forcing = min(0.1, forcing * (size / before) ** 0.25)
            w, here = w + t * p, there
            rounds += 1

    def _begin(
        self, problem: Problem, start: Start, direct: bool
    ) -> Generator[Point, None, tuple[np.ndarray, int]]:
        """Where to start, and the rounds it took: the first steps are cheaper by other means."""
        if start.coef is not None:
            return cast(start.coef, "float64"), 0
        if has_pilot(problem):
            return self.pilot(problem), 0
        if not sp.issparse(problem.X) or (direct and problem.stiffness > _STIFF):
            return zeros(problem.d + 1, problem.y), 0
        warm = _WARM_DIRECT if direct else _WARM
        best = None
        for point in islice(DCD(self.seed).points(problem, start), 1 + warm):
            best = point if best is None or point.primal < best.primal else best
            yield point
        assert best is not None
        return best.coef, warm + 1

    def pilot(self, problem: Problem) -> np.ndarray:
        """About the answer on a random share of the rows, as a place to start from."""
        count = max(problem.n // _PILOT_SHARE, 1)
        part = problem.some(thinned(problem.n, count, np.random.default_rng(self.seed)))
        start = Start(coef=zeros(problem.d + 1, problem.y))
        points = Newton(self.seed, self.direct).points(part, start)
        last = next(points)
        for point in points:
            if point.primal >= 0.98 * last.primal:
                break
            last = point
        return last.coef


@compiled
def _outer(rows, h, first, last, H):
    for i in range(first, last):
        if h[i] != 0.0:
            add_outer(rows, i, h[i], H)


def hessian(problem: Problem, h: np.ndarray) -> np.ndarray:
    """X' diag(h) X, lower triangle, the constant feature last."""
    if is_foreign(problem.y):
        return arraywise.hessian(problem, h)
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

    found = spread(of_range, ranges(problem, (d + 1) ** 2), problem.threads)
    H = found[0]
    for other in found[1:]:
        H += other
    return H


def has_pilot(problem: Problem) -> bool:
    """Whether a few of the rows are enough to begin with."""
    return problem.n > max(_PILOT, _PILOT_SHARE * 64 * problem.d)


def is_direct(d: int, limit: float) -> bool:
    """Whether the Hessian in d features is formed and factored, rather than applied."""
    return d <= _DIRECT_UP_TO and 8 * (d + 1) ** 2 <= limit


def _factored(problem: Problem, h: np.ndarray, g: np.ndarray) -> np.ndarray:
    return solved(hessian(problem, h), g)


def solved(H: np.ndarray, g: np.ndarray) -> np.ndarray:
    """(I + H)^-1 g; overwrites H, of which the lower triangle is read."""
    add_to_diagonal(H, 1.0)
    return solve(cholesky(H), g)


def conjugate_gradients(
    curve: Callable[[np.ndarray], np.ndarray], g: np.ndarray, forcing: float
) -> np.ndarray:
    """(I + H)^-1 g up to a residual of ``forcing`` |g|, where ``curve`` applies H."""
    x, r = 0.0 * g, 1.0 * g
    p, size = 1.0 * r, float(r @ r)
    goal = forcing**2 * size
    for _ in range(200):
        Hp = p + curve(p)
        step = size / float(p @ Hp)
        x += step * p
        r -= step * Hp
        size, before = float(r @ r), size
        if size <= goal:
            break
        p = r + (size / before) * p
    return x
