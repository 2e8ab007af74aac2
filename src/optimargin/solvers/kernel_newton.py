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
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from optimargin.arrays import (
    at_least,
    brought,
    cast,
    is_foreign,
    name_of_dtype,
    namespace,
    number,
    placed,
    places,
    taken,
    zeros,
)
from optimargin.cholesky import add_to_diagonal, cholesky, solve
from optimargin.device import times
from optimargin.gram import Gram
from optimargin.kernelmatrix import KernelMatrix
from optimargin.landmarks import Pivoted, pivoted_cholesky
from optimargin.linesearch import best_step
from optimargin.loss import curvature, dual_of, target, value
from optimargin.problem import Point, Points, Problem, Start, Stop, counted_on, drive
from optimargin.solvers.dcd import DCD
from optimargin.solvers.newton import Newton

_STIFF = 1000.0  # stiffness beyond which coordinate descent is slower
_RANK = 600  # largest rank of the guide where that does not fit
_FINEST = 1e-12  # relative residual of the most careful solution of a system
_WARM = 8  # rounds of coordinate descent before the first step on many rows
_ABOUT, _ABOUT_STEPS = 0.01, 6  # gap and steps of a machine over some rows, to begin with
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
            active = places((h > 0.0) if weight is None else (h > 0.0) & (weight > 0.0))
            ridge, z = 1.0 / taken(h, active), taken(y * target(losses, u), active)
            size = active.shape[0]
            try:
                if size <= gram.exact_up_to:
                    found = _factored(gram, active, ridge, np.float64)(z)
                else:
                    if _fits(gram, size):
                        guide = _factored(gram, active, ridge, np.float32)
                    else:
                        factor = factor or _pivoted(gram, self.seed)
                        guide = _low_rank(factor, active, ridge)
                    found = taken(b, active)
                    for better in _conjugate_gradients(
                        gram, active, ridge, z, found, guide, forcing
                    ):
                        found = better
                        yield point
                new = placed(problem.n, active, found)
            except np.linalg.LinAlgError:  # not positive definite, so not convex
                descent = DCD().points(problem, Start(coef=b))
                return (yield from counted_on(descent, rounds))
            f_new = gram.apply(new)
            p, df = new - b, f_new - f
            t = best_step(problem.loss, weight, u, y * df, float(b @ df), float(p @ df))
            trial = _primal(losses, y, b + t * p, f + t * df)
            if not trial < primal:
                if forcing <= _FINEST or size <= gram.exact_up_to:
                    return None
                forcing = max(_FINEST, 1e-3 * forcing)  # the direction was too coarse
                continue
            forcing = max(_FINEST, forcing * min(0.3, (primal - trial) / abs(primal)))
            b, f = (new, f_new) if t == 1.0 else (b + t * p, f + t * df)
            rounds += 1

    def _begin(self, problem: Problem, start: Start, apply: Guide) -> tuple[np.ndarray, np.ndarray]:
        """Where to start, with its margins: on many rows, where some rounds of descent lead."""
        if start.coef is not None:
            b, u = brought(start.coef, problem.y, "float64"), start.margin
            return b, problem.y * apply(b) if u is None else u
        if problem.n <= _SMALL:
            return zeros(problem.n, problem.y), zeros(problem.n, problem.y)
        if is_foreign(problem.y):
            b = self._over_some(problem)
            return b, problem.y * apply(b)
        rounds = islice(DCD(self.seed).points(problem, Start()), _WARM)
        best = min(rounds, key=lambda point: point.primal)
        return best.coef, best.margin

    def _over_some(self, problem: Problem) -> Any:
        """About the best expansion over some of the rows, which is soon found."""
        assert isinstance(problem.gram, KernelMatrix)
        factor, landmarks = problem.gram.low_rank(self.seed)
        linear = replace(problem, X=factor.factor, gram=None, bias=0.0)
        points = Newton(self.seed, direct=True).points(linear, Start())
        found = drive(points, Stop(tol=_ABOUT, max_iter=_ABOUT_STEPS)).coef[:-1]
        return placed(problem.n, brought(factor.pivots, found), landmarks.expand(found))


def is_exact(problem: Problem) -> bool:
    """Whether the last step is a factorisation in double precision: the answer has no error."""
    gram = problem.gram
    return gram is not None and gram.n <= gram.exact_up_to and gram.is_double


def is_faster(problem: Problem) -> bool:
    """Whether Newton's method gets there before coordinate descent."""
    gram = problem.gram
    assert gram is not None
    return is_exact(problem) or (problem.n <= gram.factored_up_to and problem.stiffness > _STIFF)


def _primal(losses, y: np.ndarray, b: np.ndarray, f: np.ndarray) -> float:
    return 0.5 * float(b @ f) + number(value(losses, y * f))


def _rank(gram: Gram) -> int:
    """A tenth of the rows at most, and no more than the budget has room for."""
    return max(10, min(_RANK, gram.n // 10, gram.spare // (4 * 8 * gram.n)))


def _fits(gram: Gram, size: int) -> bool:
    return size <= gram.factored_up_to and 4 * size**2 <= gram.spare


def _factored(gram: Gram, active: np.ndarray, ridge: np.ndarray, dtype: Any) -> Guide:
    """V -> (K_II + diag(ridge))^-1 v, by Cholesky factors.

    In single precision the ridge may drown in rounding; it is raised until it does not.
    """
    A = gram.square(active, dtype)
    least = 4.0 * float(np.finfo(dtype).eps) * float(namespace(A).linalg.trace(A))
    add_to_diagonal(A, at_least(ridge, least if dtype == np.float32 else 0.0))
    factor = cholesky(A)
    return lambda v: cast(solve(factor, v), "float64")


def _pivoted(gram: Gram | KernelMatrix, seed: int) -> Pivoted:
    """K ~ F F' of a moderate rank."""
    if isinstance(gram, KernelMatrix):
        return gram.low_rank(seed)[0]

    def columns(index: np.ndarray) -> np.ndarray:
        K = gram.rows(index).T.astype(np.float64) + gram.bias**2
        K[index, np.arange(len(index))] += gram.shift
        return K

    return pivoted_cholesky(columns, gram.diag, _rank(gram))


def _low_rank(factor: Pivoted, active: np.ndarray, ridge: np.ndarray) -> Guide:
    """V -> (F_I F_I' + diag(rest_I + ridge))^-1 v by Woodbury, with K ~ F F' + diag(rest)."""
    G, inverse = taken(factor.factor, active), 1.0 / (ridge + taken(factor.residual, active))
    inner = (G.T * cast(inverse, name_of_dtype(G))) @ G
    add_to_diagonal(inner, 1.0)
    small = cholesky(inner)

    def guide(v: np.ndarray) -> np.ndarray:
        w = inverse * v
        return w - inverse * times(G, cast(solve(small, times(G.T, w)), "float64"))

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
        return taken(gram.apply(placed(gram.n, active, v)), active) + ridge * v

    x, r = 1.0 * x, z - product(x)
    s = guide(r)
    p, size = 1.0 * s, float(r @ s)
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
