"""Semi-smooth Newton for kernel machines, in the expansion over the rows.

Problem   min P over f = K b; P is piecewise quadratic
Update    on the rows I that are on a curved piece, with h their curvature and z their
          target score, (K_II + diag(1/h)) b_I = z_I, all other b_i = 0; then an exact
          line search over the pieces between the old and the new expansion
Source    math.md section 1 (Newton); the system is factored while it is small, and
          beyond solved by conjugate gradients, preconditioned with a pivoted Cholesky
          factor K ~ F F' and the diagonal it leaves out
Cost      a step applies K twice, and once for each conjugate-gradient step; K is kept
          or computed in blocks as the memory limit allows
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from optimargin.gram import Gram
from optimargin.landmarks import pivoted_cholesky
from optimargin.linesearch import best_step
from optimargin.loss import curvature, dual_of, scaled, target, value
from optimargin.problem import Point, Points, Problem, Start
from optimargin.solvers.dcd import DCD

_FACTOR_UP_TO = 2500  # rows of a system that is factored
_RANK = 400  # largest rank of the preconditioner


@dataclass(frozen=True)
class KernelNewton:
    """Newton's method for kernel machines."""

    name = "newton"

    def points(self, problem: Problem, start: Start) -> Points:
        """A point after each Newton step; the same point again while a step is under way."""
        gram, y = problem.gram, problem.y
        assert gram is not None
        losses = scaled(problem.loss, problem.weight)
        b = np.zeros(problem.n) if start.coef is None else start.coef.astype(np.float64)
        f = gram.apply(b) if b.any() else np.zeros(problem.n)
        precondition = None
        rounds, forcing = 0, 0.1
        while True:
            u = y * f
            a = dual_of(losses, u)
            r = b - a * y
            Kr = gram.apply(r)
            primal = 0.5 * float(b @ f) + float(value(losses, u).sum())
            point = Point(b, a, u, primal, primal - 0.5 * float(r @ Kr), rounds)
            yield point
            h = curvature(losses, u)
            active = np.flatnonzero((h > 0.0) & (problem.weight > 0.0))
            new = np.zeros(problem.n)
            ridge, z = 1.0 / h[active], y[active] * target(losses, u)[active]
            if len(active) <= _FACTOR_UP_TO:
                try:
                    new[active] = _factored(gram, active, ridge, z)
                except scipy.linalg.LinAlgError:
                    return (yield from _descend(problem, b, rounds))
            else:
                if precondition is None:
                    precondition = _preconditioner(gram, _rank(problem.n))
                new[active] = b[active]
                improve = _conjugate_gradients(
                    gram, active, ridge, z, new[active], precondition(active, ridge), forcing
                )
                for better in improve:
                    new[active] = better
                    yield point
            f_new = gram.apply(new)
            p, df = new - b, f_new - f
            t = best_step(problem.loss, problem.weight, u, y * df, float(b @ df), float(p @ df))
            trial = _primal(losses, y, b + t * p, f + t * df)
            if not trial < primal:
                return None
            forcing = max(1e-12, forcing * min(0.3, (primal - trial) / abs(primal)))
            b, f = (new, f_new) if t == 1.0 else (b + t * p, f + t * df)
            rounds += 1


def _primal(losses, y: np.ndarray, b: np.ndarray, f: np.ndarray) -> float:
    return 0.5 * float(b @ f) + float(value(losses, y * f).sum())


def _rank(n: int) -> int:
    return int(min(_RANK, max(50, n // 20)))


def _factored(gram: Gram, active: np.ndarray, ridge: np.ndarray, z: np.ndarray) -> np.ndarray:
    A = np.empty((len(active), len(active)))
    place = np.full(gram.n, -1)
    place[active] = np.arange(len(active))
    for index, K, slot in gram.blocks(active):
        A[place[index]] = K[np.ix_(slot[index], active)]
    A += gram.bias**2
    A[np.diag_indices(len(active))] += ridge + gram.shift
    factor = scipy.linalg.cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
    return scipy.linalg.cho_solve(factor, z, check_finite=False)


def _descend(problem: Problem, b: np.ndarray, rounds: int) -> Points:
    """Coordinate descent from b: a matrix that cannot be factored is no kernel matrix."""
    points = DCD().points(problem, Start(coef=b))
    while True:
        try:
            point = next(points)
        except StopIteration as end:
            return end.value
        yield point._replace(rounds=rounds + point.rounds)


Preconditioner = Callable[[np.ndarray], np.ndarray]


def _preconditioner(gram: Gram, rank: int) -> Callable[[np.ndarray, np.ndarray], Preconditioner]:
    """For rows I and ridge D: v -> (F_I F_I' + diag(rest_I) + D)^-1 v by Woodbury."""
    F, rest = pivoted_cholesky(gram, rank)

    def on_rows(active: np.ndarray, ridge: np.ndarray) -> Preconditioner:
        inverse = 1.0 / (ridge + rest[active])
        G = F[active]
        inner = (G.T * inverse) @ G
        inner[np.diag_indices(len(inner))] += 1.0
        factor = scipy.linalg.cho_factor(inner, lower=True, overwrite_a=True)

        def apply(v: np.ndarray) -> np.ndarray:
            w = inverse * v
            return w - inverse * (G @ scipy.linalg.cho_solve(factor, G.T @ w))

        return apply

    return on_rows


def _conjugate_gradients(
    gram: Gram,
    active: np.ndarray,
    ridge: np.ndarray,
    z: np.ndarray,
    x: np.ndarray,
    precondition: Preconditioner,
    forcing: float,
) -> Iterator[np.ndarray]:
    """Yield better and better solutions of (K_II + diag(ridge)) x = z."""

    def product(v: np.ndarray) -> np.ndarray:
        whole = np.zeros(gram.n)
        whole[active] = v
        return gram.apply(whole)[active] + ridge * v

    r = z - product(x) if x.any() else z.copy()
    s = precondition(r)
    p, size = s.copy(), float(r @ s)
    goal = forcing**2 * size
    x = x.copy()
    for _ in range(300):
        if size <= goal:
            return
        Ap = product(p)
        curve = float(p @ Ap)
        if curve <= 0.0:
            return
        x += (size / curve) * p
        r -= (size / curve) * Ap
        yield x
        s = precondition(r)
        size, before = float(r @ s), size
        p = s + (size / before) * p
