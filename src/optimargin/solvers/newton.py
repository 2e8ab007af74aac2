"""Semi-smooth Newton on the primal of a linear machine.

Problem   min_w P(w), piecewise quadratic and strongly convex
Update    (I + X' diag(h) X) p = -grad P(w), h the curvature of each row's piece, then an
          exact line search over the pieces; ends after finitely many steps
Source    math.md section 1; the system is factored while d is moderate and solved by
          conjugate gradients beyond
Cost      a step reads the data twice when the system is factored, and once more for
          each conjugate-gradient step when it is not
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from optimargin.linesearch import best_step
from optimargin.loss import curvature, dual_of, scaled, value
from optimargin.problem import Point, Points, Problem, Start
from optimargin.rows import add_outer, compiled, feature_rows, push, score
from optimargin.threads import shares, spans, spread

_DIRECT_UP_TO = 1500  # features; beyond, conjugate gradients
_PILOT = 20_000  # rows; more are first solved on a random share of them
_PILOT_SHARE = 16  # one row in so many
_BLOCK = 1 << 18  # numbers in a block of rows that is multiplied with itself


@dataclass(frozen=True)
class Newton:
    """Newton's method for linear machines; ``seed`` decides the rows of the first look."""

    seed: int = 0
    direct: bool | None = None
    name = "newton"

    def points(self, problem: Problem, start: Start) -> Points:
        """A point after each Newton step."""
        direct = problem.d <= _DIRECT_UP_TO if self.direct is None else self.direct
        w = np.zeros(problem.d + 1) if start.coef is None else start.coef.astype(np.float64)
        if start.coef is None and problem.n > _PILOT and problem.n > 64 * problem.d:
            w = self._pilot(problem)
        here, u = look(problem, w, problem.threads)
        primal, g = here
        rounds, forcing = 0, 0.1
        while True:
            yield Point(
                w,
                dual_of(scaled(problem.loss, problem.weight), u),
                u,
                primal,
                primal - 0.5 * float(g @ g),
                rounds,
            )
            h = curvature(scaled(problem.loss, problem.weight), u)
            if direct:
                p = -_factored(problem, h, problem.threads, g)
            else:
                p = -_conjugate_gradients(problem, h, problem.threads, g, forcing)
            (trial, g_new), u_new = look(problem, w + p, problem.threads)
            if abs(g_new @ p) > 0.1 * abs(g @ p):
                t = best_step(
                    problem.loss, problem.weight, u, u_new - u, float(w @ p), float(p @ p)
                )
                p *= t
                (trial, g_new), u_new = look(problem, w + p, problem.threads)
            if trial >= primal and g_new @ g_new >= g @ g:
                return None
            forcing = min(0.1, float(np.sqrt(np.linalg.norm(g_new) / np.linalg.norm(g)) * forcing))
            w, u, primal, g = w + p, u_new, trial, g_new
            rounds += 1

    def _pilot(self, problem: Problem) -> np.ndarray:
        """About the answer on a random share of the rows, as a place to start from."""
        chosen = np.random.default_rng(self.seed).permutation(problem.n)
        chosen = np.sort(chosen[: problem.n // _PILOT_SHARE])
        part = replace(
            problem,
            X=problem.X[chosen],
            y=problem.y[chosen],
            weight=problem.weight[chosen] * _PILOT_SHARE,
        )
        start = Start(coef=np.zeros(problem.d + 1))
        points = Newton(self.seed, self.direct).points(part, start)
        last = next(points)
        for point in points:
            if point.primal >= 0.98 * last.primal:
                break
            last = point
        return last.coef


@compiled
def _look(loss, rows, into, y, weight, first, last, u):
    total = 0.0
    for i in range(first, last):
        own = scaled(loss, weight[i])
        u[i] = y[i] * score(rows, i)
        total += value(own, u[i])
        a = dual_of(own, u[i])
        if a != 0.0:
            push(into, i, -a * y[i])
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


def _ranges(problem: Problem) -> list[slice]:
    """Ranges with a vector of feature size each; no more than an eighth of the data."""
    stored = problem.X.nnz if sp.issparse(problem.X) else problem.X.size
    return shares(problem.n, int(np.clip(stored // (8 * (problem.d + 1)), 1, 8)))


def look(
    problem: Problem, w: np.ndarray, threads: int
) -> tuple[tuple[float, np.ndarray], np.ndarray]:
    """P(w) with its gradient, and the margins, in one pass over the rows."""
    rows, u = feature_rows(problem.X, problem.bias, w), np.empty(problem.n)

    def task(part: slice) -> tuple[float, np.ndarray]:
        g = np.zeros(problem.d + 1)
        into = rows._replace(w=g)
        return _look(
            problem.loss, rows, into, problem.y, problem.weight, part.start, part.stop, u
        ), g

    found = spread(task, _ranges(problem), threads)
    primal = 0.5 * float(w @ w) + sum(total for total, _ in found)
    return (primal, w + sum(g for _, g in found)), u


def _product(problem: Problem, h: np.ndarray, v: np.ndarray, threads: int) -> np.ndarray:
    """(I + X' diag(h) X) v in one pass over the rows."""
    rows = feature_rows(problem.X, problem.bias, v)

    def task(part: slice) -> np.ndarray:
        out = np.zeros_like(v)
        _curve(rows, rows._replace(w=out), h, part.start, part.stop)
        return out

    return v + sum(spread(task, _ranges(problem), threads))


def _hessian(problem: Problem, h: np.ndarray, threads: int) -> np.ndarray:
    """I + X' diag(h) X, lower triangle, the constant feature last."""
    d, root = problem.d, np.sqrt(h)

    def of_sparse(part: slice) -> np.ndarray:
        H = np.zeros((d + 1, d + 1))
        _outer(feature_rows(problem.X, problem.bias, H[0]), h, part.start, part.stop, H)
        return H

    def of_dense(part: slice) -> np.ndarray:
        active = np.flatnonzero(root[part])
        A = np.empty((len(active), d + 1), dtype=problem.X.dtype)
        scale = root[part][active].astype(A.dtype)
        np.multiply(problem.X[part][active], scale[:, None], out=A[:, :d])
        A[:, d] = scale * problem.bias
        return A.T @ A

    sparse = sp.issparse(problem.X)
    ranges = shares(problem.n, 4) if sparse else spans(problem.n, max(64, _BLOCK // (d + 1)))
    H = np.zeros((d + 1, d + 1))
    for part in spread(of_sparse if sparse else of_dense, ranges, threads):
        H += part
    H[np.diag_indices(d + 1)] += 1.0
    return H


def _factored(problem: Problem, h: np.ndarray, threads: int, g: np.ndarray) -> np.ndarray:
    H = _hessian(problem, h, threads)
    return scipy.linalg.cho_solve(scipy.linalg.cho_factor(H, lower=True, overwrite_a=True), g)


def _conjugate_gradients(
    problem: Problem, h: np.ndarray, threads: int, g: np.ndarray, forcing: float
) -> np.ndarray:
    x, r = np.zeros_like(g), g.copy()
    p, size = r.copy(), float(r @ r)
    goal = forcing**2 * size
    for _ in range(200):
        Hp = _product(problem, h, p, threads)
        step = size / float(p @ Hp)
        x += step * p
        r -= step * Hp
        size, before = float(r @ r), size
        if size <= goal:
            break
        p = r + (size / before) * p
    return x
