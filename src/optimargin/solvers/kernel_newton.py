"""Semi-smooth Newton for kernel machines, in the expansion over the rows.

Problem   min P over f = K b; P is piecewise quadratic
Update    on the rows I that are off the flat piece, with the ridge and the target score z of
          their piece, (K_II + diag(ridge)) b_I = z_I, all other b_i = 0.  That is taken if P
          or the gap is the least so far; else an exact line search goes as far as P falls
Pieces    a row's next piece is where its own best dual step leads (`loss.dual_step`), which
          does not waver when a margin is a rounding from the edge; one whose dual variable is
          on the wrong side rests for a step.  Where this gains nothing, it is the piece of the
          margin, for which every good enough direction descends
Source    math.md section 1 (Newton), as a primal-dual active set method; ours: the certificate
          and the guides.  A system is factored while it is small.  Beyond, conjugate gradients
          are guided (preconditioned) by K ~ F F' + a diagonal over random rows, more of them
          where these do not do, and then by a factor in single precision, if the memory
          limit has room for one
Gap       the expansion is its own dual point, a_i = y_i b_i, where that is feasible, and
          P - D = |w - w(a)|^2 / 2 + sum_i loss_i(u_i) + psi_i(a_i) + a_i u_i
Cost      a step applies K once, and K_II once for each conjugate-gradient step; K is kept
          or computed in blocks as the memory limit allows
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from optimargin.arrays import (
    at_least,
    at_most,
    brought,
    cast,
    is_foreign,
    name_of_dtype,
    namespace,
    number,
    pick,
    placed,
    places,
    taken,
    zeros,
)
from optimargin.cholesky import add_to_diagonal, cholesky, solve
from optimargin.device import times
from optimargin.gram import Gram, product
from optimargin.kernelmatrix import KernelMatrix
from optimargin.landmarks import Pivoted, factor_of, squares, whitened
from optimargin.linesearch import best_step
from optimargin.loss import conjugate_curvature, conjugate_slope, dual_of, dual_step, row_gap, value
from optimargin.partition import thinned
from optimargin.problem import Point, Points, Problem, Start, Stop, counted_on, drive
from optimargin.solvers.dcd import DCD
from optimargin.solvers.newton import Newton
from optimargin.threads import blas_threads, shares, spread

_STIFF = 1000.0  # stiffness beyond which coordinate descent is slower
_RANKS = (200, 600)  # of guides
_BYTES = 64  # for each value of one, so that it leaves room for a copy of the system
_TRIALS = 30  # steps that one of these may take
_LOOSE = 5.0  # times the goal: near enough not to ask for more than these
_MOST = 300  # steps that a factor may take
_COARSE = 0.1  # share that a step may leave of the gap, or of what the last step gained
_FINEST = 1e-12  # the same in the most careful solution
_WORTH_A_COPY = 0.8  # share of the rows beyond which a copy of their values saves little
_WARM, _WARMER = 8, 24  # rounds of descent before the first step: on some rows, on many
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
        losses, weight, q = problem.losses, problem.weight, problem.sqnorms
        b, u = self._begin(problem, start, gram.apply)
        f, guides = y * u, _Guides(gram, self.seed)
        rounds, forcing, is_bold, pieces = 0, _COARSE, True, 0.0 * b
        point = _seen(problem, b, f, rounds)
        least, gap, gain = np.inf, np.inf, np.inf  # of all points so far; of the last step
        while True:
            yield point
            a, u = point.dual, point.margin
            assert a is not None
            least, gap = min(least, point.primal), min(gap, point.primal - point.bound)
            if is_bold:  # a row on the wrong side of its piece rests for a step
                pieces = pick(a * pieces >= 0.0, dual_step(losses, a, u, q))
            else:
                pieces = dual_of(losses, u)
            system = _posed(problem, pieces)
            active, size = system.active, system.active.shape[0]
            try:
                if size <= gram.exact_up_to:
                    found = _factored(gram, active, system.ridge, np.float64)(system.z)
                else:
                    found = taken(b, active)
                    goal = forcing * min(gap, gain)
                    for better in guides.solutions(system, found, goal):
                        found = better
                        yield point
            except np.linalg.LinAlgError:  # not positive definite, so not convex
                descent = DCD().points(problem, Start(coef=b))
                return (yield from counted_on(descent, rounds))
            new = placed(problem.n, active, found)
            f_new = gram.apply(new)
            there = _seen(problem, new, f_new, rounds + 1)
            is_whole = there.primal < least or there.primal - there.bound < gap
            if not is_whole:
                yield there._replace(rounds=rounds)
                p, df = new - b, f_new - f
                t = best_step(problem.loss, weight, u, y * df, float(b @ df), float(p @ df))
                new, f_new = b + t * p, f + t * df
                there = _seen(problem, new, f_new, rounds + 1)
                if not there.primal < point.primal:
                    if not is_bold and (forcing <= _FINEST or size <= gram.exact_up_to):
                        return None
                    # Between the pieces of the margins every good enough direction descends.
                    forcing = forcing if is_bold else max(_FINEST, 1e-3 * forcing)
                    is_bold = False
                    continue
            gain = point.primal - there.primal if there.primal < point.primal else np.inf
            b, f, point, is_bold = new, f_new, there, is_whole
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
        count = _WARM if is_exact(problem) else _WARMER
        rounds = islice(DCD(self.seed).points(problem, Start()), count)
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


def _seen(problem: Problem, b: Any, f: Any, rounds: int) -> Point:
    """The point of an expansion with scores f, which is its own dual point as far as feasible."""
    losses, y, u = problem.losses, problem.y, problem.y * f
    a = at_most(at_least(b * y, losses.a_min), losses.a_max)
    rest = b - a * y
    gap = number(row_gap(losses, a, u))
    if float(rest @ rest) > 0.0:
        assert problem.gram is not None
        gap += 0.5 * float(rest @ problem.gram.apply(rest))
    primal = _primal(losses, y, b, f)
    return Point(b, a, u, primal, primal - gap, rounds)


class _System(NamedTuple):
    """(K_II + diag(ridge)) x = z."""

    gram: Gram | KernelMatrix
    active: Any
    ridge: Any
    z: Any

    def product(self) -> Guide:
        """V -> K_II v, of a copy of K_II where that is much smaller and there is room."""
        gram, active = self.gram, self.active
        if isinstance(gram, Gram) and len(active) <= _WORTH_A_COPY * gram.n and gram.is_whole:
            room = gram.spare - 4 * len(active) ** 2  # beside a factor
            if gram.kept.itemsize * len(active) ** 2 <= room:
                return partial(product, gram.square(active, gram.dtype), threads=gram.threads)
        return lambda v: taken(gram.apply(placed(gram.n, active, v)), active)


def _posed(problem: Problem, pieces: Any) -> _System:
    """The system of the rows that are off the flat piece, given by dual variables."""
    losses, weight = problem.losses, problem.weight
    ridge = conjugate_curvature(losses, pieces)
    z = problem.y * (ridge * pieces - conjugate_slope(losses, pieces))
    active = places((pieces != 0.0) if weight is None else (pieces != 0.0) & (weight > 0.0))
    assert problem.gram is not None
    return _System(problem.gram, active, taken(ridge, active), taken(z, active))


class _Guides:
    """What guides conjugate gradients: matrices of low rank, and a factor when they do not do.

    On a device, where factors cost little, a factor at once.
    """

    def __init__(self, gram: Gram | KernelMatrix, seed: int) -> None:
        self.gram: Any = gram
        self.seed, self.threads = seed, 1
        self.ranks, self.level = [0], 1  # beyond the ranks: the factor
        if isinstance(gram, Gram):
            self.threads = gram.threads
            self.ranks, self.level = [_rank(gram, most) for most in _RANKS], 0
        self.low_rank: Pivoted | None = None

    def solutions(self, system: _System, x: Any, goal: float) -> Iterator[Any]:
        """Better and better solutions of a system, until the gap they leave is the goal."""
        gram, active, ridge = self.gram, system.active, system.ridge
        apply, highest = system.product(), len(self.ranks) - 1
        fits = _fits(gram, active.shape[0])
        while not fits or self.level <= highest:
            self.level = min(self.level, highest)
            self.low_rank = self.low_rank or _sampled(gram, self.ranks[self.level], self.seed)
            guide = _low_rank(self.low_rank, active, ridge, self.threads)
            most = _TRIALS if fits or self.level < highest else _MOST
            x, left = yield from _conjugate_gradients(system, apply, x, guide, goal, most)
            if left <= goal or most == _MOST:
                return
            if self.level == highest and left <= _LOOSE * goal:
                return
            self.level, self.low_rank = self.level + 1, None
            del guide  # there may not be room for two
        guide = _factored(gram, active, ridge, np.float32)
        yield from _conjugate_gradients(system, apply, x, guide, goal, _MOST)


def _rank(gram: Gram, most: int) -> int:
    """A tenth of the rows at most, and no more than the budget has room for."""
    return max(10, min(most, gram.n // 10, gram.spare // (_BYTES * gram.n)))


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


def _sampled(gram: Gram | KernelMatrix, rank: int, seed: int) -> Pivoted:
    """K ~ F F' over random rows, and what that leaves of the diagonal."""
    if isinstance(gram, KernelMatrix):
        return gram.low_rank(seed)[0]
    index = thinned(gram.n, rank, np.random.default_rng(seed))
    K = gram.rows(index) + gram.kept.dtype.type(gram.bias**2)
    K[np.arange(len(index)), index] += gram.shift
    square = K[:, index].astype(np.float64)
    with blas_threads(1):
        F = whitened(factor_of(square, K.dtype), K.T, in_place=True)
    return Pivoted(F, index, at_least(gram.diag - squares(F.T), 0.0))


def _low_rank(factor: Pivoted, active: Any, ridge: Any, threads: int) -> Guide:
    """V -> (F_I F_I' + diag(rest_I + ridge))^-1 v by Woodbury, with K ~ F F' + diag(rest).

    In double precision on the host: a small ridge cancels nearly all of v.
    """
    root = (ridge + taken(factor.residual, active)) ** -0.5
    H = taken(factor.factor, active)
    H = H if is_foreign(H) else cast(H, "float64")
    H = H * cast(root, name_of_dtype(H))[:, None]
    halves = [taken(H, half) for half in shares(H.shape[0], 2)]
    with blas_threads(1):  # ours do not wait for each other
        inner: Any = sum(spread(lambda half: half.T @ half, halves, threads))
        add_to_diagonal(inner, 1.0)
        small = cholesky(inner)

    def guide(v: np.ndarray) -> np.ndarray:
        w = root * v
        with blas_threads(1):
            return root * (w - times(H, cast(solve(small, times(H.T, w)), "float64")))

    return guide


def _conjugate_gradients(
    system: _System, apply: Guide, x: Any, guide: Guide, goal: float, most: int
) -> Generator[Any, None, tuple[Any, float]]:
    """Better and better solutions, and at the end the last of them and the gap that it leaves.

    If no row leaves its piece, the residual r is a duality gap of sum r_i^2 / (2 ridge_i).
    """
    ridge = system.ridge
    r = system.z - apply(x) - ridge * x
    s = guide(r)
    p, size, left = s, float(r @ s), 0.5 * number(r * r / ridge)
    for _ in range(most):
        if left <= goal:
            break
        Ap = apply(p) + ridge * p
        curve = float(p @ Ap)
        if not curve > 0.0:
            break
        x = x + (size / curve) * p
        r = r - (size / curve) * Ap
        left = 0.5 * number(r * r / ridge)
        yield x
        s = guide(r)
        size, before = float(r @ s), size
        p = s + (size / before) * p
    return x, left
