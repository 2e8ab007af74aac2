"""Semi-smooth Newton on the primal of a linear machine; the hinge is rounded (`rounding`).

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
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import scipy.sparse as sp

from optimargin.arrays import cast, is_foreign, zeros
from optimargin.cholesky import add_to_diagonal, cholesky, solve
from optimargin.linesearch import best_step
from optimargin.loss import dual_of, is_smooth
from optimargin.partition import thinned
from optimargin.problem import Point, Points, Problem, Start, Stop, drive
from optimargin.rows import add_outer, compiled, feature_rows
from optimargin.solvers import arraywise
from optimargin.solvers.dcd import DCD
from optimargin.solvers.passes import curved, margins, ranges
from optimargin.solvers.rounding import At, first_width, fitting_width, pulled, smoothed
from optimargin.threads import blas_threads, spans, spread

_DIRECT_UP_TO = 1500  # features; beyond, conjugate gradients
_PILOT = 20_000  # rows; more are first solved on a random share of them
_PILOT_SHARE = 16  # one row in so many
_ABOUT = 1e-2  # relative gap of what is found on that share with a hinge
_WARM = 8  # rounds of coordinate descent before the first step on sparse rows
_WARM_DIRECT = 2  # the same where the Hessian is factored
_STIFF = 10.0  # stiffness beyond which those do not help
_BLOCK = 1 << 18  # numbers in a block of rows that is multiplied with itself


@dataclass(frozen=True)
class Newton:
    """Newton's method for linear machines; ``seed`` decides the rows of the first look."""

    seed: int = 0
    direct: bool | None = None
    tol: float = 1e-4
    name = "newton"

    def points(self, problem: Problem, start: Start) -> Points:
        """A point after each Newton step."""
        direct = is_direct(problem.d, problem.limit) if self.direct is None else self.direct
        w, width, rounds = yield from self._begin(problem, start, direct)
        seen, forcing = _see(problem, width, w, margins(problem, w)), 0.1
        while True:
            here, u, h = seen
            dual = dual_of(smoothed(problem, width).losses, u) if width else None
            yield Point(w, dual, u, here.primal, here.bound, rounds)
            if here.next_width(self.tol) < width:
                width = here.next_width(self.tol)
                seen = here, u, h = _see(problem, width, w, u)
            near, g = smoothed(problem, width), here.gradient
            if direct:
                p = -_factored(near, h, g)
            else:
                p = -conjugate_gradients(partial(curved, near, h), g, forcing)
            du = margins(problem, p)
            t = best_step(near.loss, near.weight, u, du, float(w @ p), float(p @ p))
            du *= t
            du += u
            seen = _see(problem, width, w + t * p, du)
            there = seen[0]
            if not (there.value < here.value or there.distance < here.distance):
                return None
            forcing = min(0.1, forcing * (there.distance / here.distance) ** 0.25)
            w = there.w
            rounds += 1

    def _begin(
        self, problem: Problem, start: Start, direct: bool
    ) -> Generator[Point, None, tuple[np.ndarray, float, int]]:
        """Where to start, with which width, and the rounds it took.

        The first steps are cheaper by other means.
        """
        width = first_width(problem.loss)
        if start.coef is not None:
            w = cast(start.coef, "float64")
            return w, fitting_width(problem, margins(problem, w), self.tol), 0
        if has_pilot(problem):
            return *self.pilot(problem), 0
        if width or not sp.issparse(problem.X) or (direct and problem.stiffness > _STIFF):
            return zeros(problem.d + 1, problem.y), width, 0
        warm = _WARM_DIRECT if direct else _WARM
        best = None
        for point in islice(DCD(self.seed).points(problem, start), 1 + warm):
            best = point if best is None or point.primal < best.primal else best
            yield point
        assert best is not None
        return best.coef, width, warm + 1

    def pilot(self, problem: Problem) -> tuple[np.ndarray, float]:
        """About the answer on a random share of the rows, as a place to start from."""
        count = max(problem.n // _PILOT_SHARE, 1)
        part = problem.some(thinned(problem.n, count, np.random.default_rng(self.seed)))
        start = Start(coef=zeros(problem.d + 1, problem.y))
        points = Newton(self.seed, self.direct, _ABOUT).points(part, start)
        if not is_smooth(problem.loss):
            about = drive(points, Stop(_ABOUT))
            return about.coef, fitting_width(part, about.margin, self.tol)
        last = next(points)
        for point in points:
            if point.primal >= 0.98 * last.primal:
                break
            last = point
        return last.coef, 0.0


def _see(
    problem: Problem, width: float, w: np.ndarray, u: np.ndarray
) -> tuple[At, np.ndarray, np.ndarray]:
    """What there is to see at w, where the margins are u; these, and every row's curvature."""
    found, own, rounding = pulled(problem, width, u)
    norm = 0.5 * float(w @ w)
    at = At(w, norm + found.total, w + found.gradient, width, norm + own, rounding)
    return at, u, found.curvature


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

    parts = ranges(problem, (d + 1) ** 2)
    with blas_threads(1, d) if problem.threads > 1 else nullcontext():
        found = spread(of_range, parts, problem.threads)
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
