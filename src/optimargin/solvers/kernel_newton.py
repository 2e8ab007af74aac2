"""Semi-smooth Newton for kernel machines, in the expansion over the rows.

Problem   min P over f = K b; P is piecewise quadratic
Update    on the rows I that are on a curved piece, with h their curvature and z their
          target score, (K_II + diag(1/h)) b_I = z_I, all other b_i = 0; then an exact
          line search over the pieces between the old and the new expansion
Source    math.md section 1 (Newton); the system is factored while it is small.  Beyond,
          conjugate gradients are guided (preconditioned) by its factor in single
          precision if the memory limit has room for one, and else by a pivoted Cholesky
          factor K ~ F F' and the diagonal that leaves out
Cost      a step applies K twice, and once for each conjugate-gradient step; K is kept
          or computed in blocks as the memory limit allows
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from optimargin.cholesky import cholesky, solve
from optimargin.gram import Gram
from optimargin.landmarks import Pivoted, pivoted_cholesky
from optimargin.linesearch import best_step
from optimargin.loss import curvature, dual_of, target, value
from optimargin.problem import Point, Points, Problem, Start, counted_on
from optimargin.solvers.dcd import DCD

_EXACT_UP_TO = 2500  # rows of a system that is factored in double precision and solved at once
_FACTOR_UP_TO = 12_000  # rows of a system that is factored in single precision, as a guide
_STIFF = 1000.0  # stiffness beyond which coordinate descent is slower
_RANK = 600  # largest rank of the guide where that does not fit
_FINEST = 1e-12  # relative residual of the most careful solution of a system
_WARM = 8  # rounds of coordinate descent before the first step on many rows
_SMALL = 300  # rows of a system that is factored sooner than such a round is done

Guide = Callable[[np.ndarray], np.ndarray]  # an approximate solution for a right-hand side


@dataclass(frozen=True)
class KernelNewton:
    """Newton's method for kernel machines; ``seed`` decides the order of the first rounds."""

    seed: int = 0
    name = "newton"

    def points(self, problem: Problem, start: Start) -> Points:
        """A point after each Newton step; the same point again while a step is under way."""
        gram, y = problem.gram, problem.y
        assert gram is not None
        losses, weight = problem.losses, problem.weight
        b, u = self._begin(problem, start, gram.apply)
        f = y * u
        factor: Pivoted | None = None
        rounds, forcing = 0, 0.1
        while True:
            u = y * f
            a = dual_of(losses, u)
            r = b - a * y
            primal = _primal(losses, y, b, f)
            point = Point(b, a, u, primal, primal - 0.5 * float(r @ gram.apply(r)), rounds)
            yield point
            h = curvature(losses, u)
            active = np.flatnonzero((h > 0.0) & (True if weight is None else weight > 0.0))
            ridge, z = 1.0 / h[active], y[active] * target(losses, u)[active]
            new = np.zeros(problem.n)
            try:
                if len(active) <= _EXACT_UP_TO:
                    new[active] = _factored(gram, active, ridge, np.float64)(z)
                else:
                    if _fits(gram, len(active)):
                        guide = _factored(gram, active, ridge, np.float32)
                    else:
                        factor = factor or _pivoted(gram)
                        guide = _low_rank(factor, active, ridge)
                    new[active] = b[active]
                    for better in _conjugate_gradients(
                        gram, active, ridge, z, new[active], guide, forcing
                    ):
                        new[active] = better
                        yield point
            except np.linalg.LinAlgError:  # not positive definite, so not convex
                descent = DCD().points(problem, Start(coef=b))
                return (yield from counted_on(descent, rounds))
            f_new = gram.apply(new)
            p, df = new - b, f_new - f
            t = best_step(problem.loss, weight, u, y * df, float(b @ df), float(p @ df))
            trial = _primal(losses, y, b + t * p, f + t * df)
            if not trial < primal:
                if forcing <= _FINEST or len(active) <= _EXACT_UP_TO:
                    return None
                forcing = max(_FINEST, 1e-3 * forcing)  # the direction was too coarse
                continue
            forcing = max(_FINEST, forcing * min(0.3, (primal - trial) / abs(primal)))
            b, f = (new, f_new) if t == 1.0 else (b + t * p, f + t * df)
            rounds += 1

    def _begin(self, problem: Problem, start: Start, apply: Guide) -> tuple[np.ndarray, np.ndarray]:
        """Where to start, with its margins: on many rows, where some rounds of descent lead."""
        if start.coef is not None:
            b, u = start.coef.astype(np.float64), start.margin
            return b, problem.y * apply(b) if u is None else u
        if problem.n <= _SMALL:
            return np.zeros(problem.n), np.zeros(problem.n)
        rounds = islice(DCD(self.seed).points(problem, Start()), _WARM)
        best = min(rounds, key=lambda point: point.primal)
        return best.coef, best.margin


def is_exact(problem: Problem) -> bool:
    """Whether the last step is a factorisation in double precision: the answer has no error."""
    gram = problem.gram
    return gram is not None and gram.n <= _EXACT_UP_TO and gram.kept.dtype == np.float64


def is_faster(problem: Problem) -> bool:
    """Whether Newton's method gets there before coordinate descent."""
    return is_exact(problem) or (problem.n <= _FACTOR_UP_TO and problem.stiffness > _STIFF)


def _primal(losses, y: np.ndarray, b: np.ndarray, f: np.ndarray) -> float:
    return 0.5 * float(b @ f) + float(value(losses, y * f).sum())


def _rank(gram: Gram) -> int:
    """A tenth of the rows at most, and no more than the budget has room for."""
    return max(10, min(_RANK, gram.n // 10, gram.spare // (4 * 8 * gram.n)))


def _fits(gram: Gram, size: int) -> bool:
    return size <= _FACTOR_UP_TO and 4 * size**2 <= gram.spare


def _factored(gram: Gram, active: np.ndarray, ridge: np.ndarray, dtype: Any) -> Guide:
    """V -> (K_II + diag(ridge))^-1 v, by Cholesky factors.

    In single precision the ridge may drown in rounding; it is raised until it does not.
    """
    A = gram.square(active, dtype)
    least = 4.0 * np.finfo(dtype).eps * float(np.trace(A))
    A[np.diag_indices(len(active))] += np.maximum(ridge, least if dtype == np.float32 else 0.0)
    factor = cholesky(A)
    return lambda v: solve(factor, v).astype(np.float64)


def _pivoted(gram: Gram) -> Pivoted:
    """K ~ F F' of a moderate rank."""

    def columns(index: np.ndarray) -> np.ndarray:
        K = gram.rows(index).T.astype(np.float64) + gram.bias**2
        K[index, np.arange(len(index))] += gram.shift
        return K

    return pivoted_cholesky(columns, gram.diag, _rank(gram))


def _low_rank(factor: Pivoted, active: np.ndarray, ridge: np.ndarray) -> Guide:
    """V -> (F_I F_I' + diag(rest_I + ridge))^-1 v by Woodbury, with K ~ F F' + diag(rest)."""
    G, inverse = factor.factor[active], 1.0 / (ridge + factor.residual[active])
    inner = (G.T * inverse) @ G
    inner[np.diag_indices(len(inner))] += 1.0
    small = cholesky(inner)

    def guide(v: np.ndarray) -> np.ndarray:
        w = inverse * v
        return w - inverse * (G @ solve(small, G.T @ w))

    return guide


def _conjugate_gradients(
    gram: Gram,
    active: np.ndarray,
    ridge: np.ndarray,
    z: np.ndarray,
    x: np.ndarray,
    guide: Guide,
    forcing: float,
) -> Iterator[np.ndarray]:
    """Better and better solutions of (K_II + diag(ridge)) x = z."""

    def product(v: np.ndarray) -> np.ndarray:
        whole = np.zeros(gram.n)
        whole[active] = v
        return gram.apply(whole)[active] + ridge * v

    x, r = x.copy(), z - product(x)
    s = guide(r)
    p, size = s.copy(), float(r @ s)
    goal = forcing**2 * size
    for _ in range(300):
        Ap = product(p)
        curve = float(p @ Ap)
        if size <= goal or curve <= 0.0:
            return
        x += (size / curve) * p
        r -= (size / curve) * Ap
        yield x
        s = guide(r)
        size, before = float(r @ s), size
        p = s + (size / before) * p
