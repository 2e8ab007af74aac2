"""All rows at once: proximal Newton steps for mcODM, where row by row is slow.

Problem   the dual of mcODM with its runner-ups fixed, plus tau |alpha - alpha_0|^2 / 2, which
          pulls towards the point alpha_0 where we stand; alpha_0 follows the answers
Update    the primal of that is smooth: Newton's method on its k scores a row, the system
          solved by conjugate gradients, then a line search; alpha follows from the
          scores, row by row, in closed form
Source    ours (math.md section 3 asks for a second-order solver); a proximal point method with
          semi-smooth Newton inside
Cost      a conjugate-gradient step applies the kernel matrix, or the data twice, to k vectors;
          some ten arrays of n k numbers
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from optimargin.gram import Gram
from optimargin.linesearch import valley
from optimargin.loss import of_row
from optimargin.multiclass import ahead, row_conjugate, row_loss, row_prox, row_turn, runner_up
from optimargin.problem import Point, Problem
from optimargin.rows import compiled

_FIRST = 0.001  # tau to begin with, in units of a row's mean squared norm
_SMALLER = 0.2  # of tau, after each answer
_LEAST = 1e-9  # smallest tau, in the same units
_NEWTON = 30  # most Newton steps for one tau
_FEW, _MANY = 4, 12  # steps after which tau shrinks, and beyond which it grows
_SOLVED = 0.1  # of the pull towards alpha_0: gradient at which the next tau is due
_IDLE = 25  # steps without a better certificate after which there is none to be had
_DIRECT = 1500  # numbers in all models up to which the Hessian is factored
_APPLY = 10**7  # products in one conjugate-gradient step that is worth it, with features
_APPLY_KERNEL = 10**8  # and with a kernel, where row by row costs as much
_DENSE = 5 * 10**7  # numbers in an array that may be made for that
_CG = 250  # most conjugate-gradient steps of one Newton step


class Answer(NamedTuple):
    """The dual variables that belong to scores, and what the objective has of them."""

    alpha: np.ndarray
    beta: np.ndarray
    share: np.ndarray
    least: float
    F: np.ndarray  # the scores of all rows under that share
    tau: float


class Guess(NamedTuple):
    """Models of a problem much like this one, as they are handed out, and its last tau."""

    coef: np.ndarray
    tau: float


def proximal_points(
    problem: Problem,
    alpha: np.ndarray,
    beta: np.ndarray,
    r: np.ndarray,
    M: np.ndarray,
    guess: Guess | None = None,
) -> Iterator[tuple[Point, Answer]]:
    """Better and better points from a dual point on, until none is better any more.

    A point's ``coef`` is its vector in the space.  Without a guess, Newton's method begins at
    the models of the dual point.
    """
    space = make_space(problem)
    norm = float(problem.sqnorms.mean()) or 1.0
    tau = _FIRST * norm if guess is None else guess.tau
    alpha0, beta0 = alpha.copy(), beta.copy()
    v = space.lift(shares_of(problem.y, r, alpha, beta)) if guess is None else guess.coef.T
    F = space.scores(v)
    best, idle, bound0 = np.inf, 0, -np.inf
    while True:
        for step in range(_NEWTON):  # noqa: B007
            here = _answer(problem, tau, F, r, M, alpha0, beta0)
            g = v - space.lift(here.share)
            Fg = space.scores(g)
            here = here._replace(F=F - Fg)
            point = _point(problem, r, M, here, v - g)
            idle = 0 if point.primal - point.bound < 0.7 * best else idle + 1
            best = min(best, point.primal - point.bound)
            if idle > _IDLE:
                return
            yield point, here
            slope2 = space.inner(g, g, Fg)
            pull = tau * float(
                ((here.alpha - alpha0) ** 2).sum() + ((here.beta - beta0) ** 2).sum()
            )
            size = space.inner(v, v, F)
            if slope2 <= max(_SOLVED * pull, 1e-28 * size):
                break
            p, Fp = _direction(problem, space, tau, here, r, g, Fg)
            quadratic = space.inner(v, p, Fp), space.inner(p, p, Fp)
            slope = partial(_slope_along, problem, tau, (r, M, alpha0, beta0), (F, Fp), quadratic)
            t = valley(slope, space.inner(p, g, Fg))
            if not t > 0.0:
                break
            v, F = v + t * p, F + t * Fp
        if point.bound > bound0:
            alpha0, beta0, bound0 = here.alpha, here.beta, point.bound
            tau *= _SMALLER if step < _FEW else 1.0 if step < _MANY else 1.0 / _SMALLER
            tau = min(max(tau, _LEAST * norm), _FIRST * norm)
        else:  # the answer was none: back, and more carefully
            tau = min(tau / _SMALLER**2, norm)
            v = space.lift(shares_of(problem.y, r, alpha0, beta0))
            F = space.scores(v)


def _slope_along(
    problem: Problem,
    tau: float,
    duals: tuple[np.ndarray, ...],
    scores: tuple[np.ndarray, np.ndarray],
    quadratic: tuple[float, float],
    t: float,
) -> float:
    """Slope of the primal, t along a direction; the scores are those here and its own."""
    (F, Fp), (turn, bend), (r, M, alpha0, beta0) = scores, quadratic, duals
    there = _answer(problem, tau, F + t * Fp, r, M, alpha0, beta0)
    return turn + t * bend - float((there.share * Fp).sum())


class FeatureSpace(NamedTuple):
    """Models as matrices of shape (d + 1, k)."""

    X: Any
    bias: float

    def lift(self, share: np.ndarray) -> np.ndarray:
        """The models of shares."""
        return np.vstack([self.X.T @ share, self.bias * share.sum(axis=0)])

    def scores(self, v: np.ndarray) -> np.ndarray:
        """Scores of all rows under models."""
        return self.X @ v[:-1] + self.bias * v[-1]

    def inner(self, v: np.ndarray, w: np.ndarray, Fw: np.ndarray) -> float:
        """Inner product of v and w."""
        return float((v * w).sum())


class KernelSpace(NamedTuple):
    """Models as shares of the rows, of shape (n, k)."""

    gram: Gram

    def lift(self, share: np.ndarray) -> np.ndarray:
        """The models of shares."""
        return share

    def scores(self, v: np.ndarray) -> np.ndarray:
        """Scores of all rows under models, summed in double precision."""
        gram = self.gram
        if gram.is_whole and gram.kept.dtype == np.float64:
            return gram.kept @ v + gram.bias**2 * v.sum(axis=0) + gram.shift * v
        return np.column_stack([gram.apply(np.ascontiguousarray(column)) for column in v.T])

    def inner(self, v: np.ndarray, w: np.ndarray, Fw: np.ndarray) -> float:
        """Inner product of v and w, where Fw are w's scores."""
        return float((v * Fw).sum())


def make_space(problem: Problem) -> FeatureSpace | KernelSpace:
    """The space of a problem's models."""
    if problem.gram is not None:
        return KernelSpace(problem.gram)
    X = problem.X
    if (
        sp.issparse(X)
        and problem.d * problem.classes <= _DIRECT
        and X.shape[0] * problem.d <= _DENSE
    ):
        X = X.toarray()
    return FeatureSpace(X.astype(np.float64, copy=False), problem.bias)


def patience_with_rows(problem: Problem) -> tuple[float, float]:
    """How many rounds row by row to wait for the gap to fall to which share of itself.

    Steps that move all rows at once are cheap where a small Hessian is factored, dear where
    conjugate gradients do it, and out of the question on large data.
    """
    n, d, k = problem.n, problem.d, problem.classes
    if problem.gram is None and _is_direct(n, (d + 1) * k, k):
        return 4, 0.3
    kernel = problem.gram is not None
    worth = n * k * n <= _APPLY_KERNEL if kernel else n * k * d <= _APPLY
    return (25, 0.5) if worth else (np.inf, 0.0)


def _is_direct(n: int, size: int, k: int) -> bool:
    return size <= _DIRECT and n * k * k <= _DENSE


def shares_of(y: np.ndarray, r: np.ndarray, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """What each row adds to the models: alpha - beta e_y + beta e_r."""
    share, everyone = alpha.copy(), np.arange(len(y))
    share[everyone, y] -= beta
    held = r >= 0
    share[everyone[held], r[held]] += beta[held]
    return share


def _answer(
    problem: Problem,
    tau: float,
    F: np.ndarray,
    r: np.ndarray,
    M: np.ndarray,
    alpha0: np.ndarray,
    beta0: np.ndarray,
) -> Answer:
    alpha, beta = np.empty_like(alpha0), np.empty_like(beta0)
    y, weight = problem.y, problem.weight
    least = _prox(problem.loss, weight, tau, F, y, r, M, alpha0, beta0, alpha, beta)
    return Answer(alpha, beta, shares_of(y, r, alpha, beta), least, F, tau)


@compiled
def _prox(loss, weight, tau, F, y, r, M, alpha0, beta0, alpha, beta):
    total, B = 0.0, np.empty(F.shape[1])
    for i in range(len(y)):
        own = of_row(loss, weight, i)
        beta[i], least = row_prox(
            own, tau, F[i], y[i], r[i], M[i], alpha0[i], beta0[i], B, alpha[i]
        )
        total += least
    return total


@compiled
def _turn(loss, weight, tau, y, r, alpha, beta, V, out):
    for i in range(len(y)):
        row_turn(of_row(loss, weight, i), tau, y[i], r[i], alpha[i], beta[i], V[i], out[i])


@compiled
def _values(loss, weight, F, y, r, M, alpha, beta, u):
    """Sums of the losses and of the conjugates; writes the margins."""
    losses, conjugates = 0.0, 0.0
    for i in range(len(y)):
        own = of_row(loss, weight, i)
        u[i] = F[i, y[i]] - F[i, runner_up(F[i], y[i])]
        losses += row_loss(own, u[i], ahead(F[i], y[i], r[i], M[i]))
        conjugates += row_conjugate(own, alpha[i, y[i]], beta[i], M[i])
    return losses, conjugates


def _point(problem: Problem, r: np.ndarray, M: np.ndarray, here: Answer, v: np.ndarray) -> Point:
    """The certificate of a dual point."""
    F = here.F
    u, norm2 = np.empty(problem.n), float((here.share * F).sum())
    losses, conjugates = _values(
        problem.loss, problem.weight, F, problem.y, r, M, here.alpha, here.beta, u
    )
    primal, bound = 0.5 * norm2 + losses, -0.5 * norm2 - conjugates
    return Point(v, None, u, primal, bound, 0)


def _direction(
    problem: Problem,
    space: FeatureSpace | KernelSpace,
    tau: float,
    here: Answer,
    r: np.ndarray,
    g: np.ndarray,
    Fg: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The Newton step p against the gradient g, and the scores of p."""
    known = (problem.loss, problem.weight, tau, problem.y, r, here.alpha, here.beta)
    n, k = here.alpha.shape
    if _is_direct(n, g.size, k) and isinstance(space, FeatureSpace) and not sp.issparse(space.X):
        p = _factored(space, known, g)
        return p, space.scores(p)
    J = np.empty_like(here.alpha)
    x, Fx, R, FR = np.zeros_like(g), np.zeros_like(Fg), -g, -Fg
    D, FD, size = R.copy(), FR.copy(), space.inner(R, R, FR)
    goal = 1e-6 * size
    for _ in range(_CG):
        _turn(*known, FD, J)
        AD = D + space.lift(J)
        curve = space.inner(AD, D, FD)
        if not curve > 0.0:
            break
        x += (size / curve) * D
        Fx += (size / curve) * FD
        R = R - (size / curve) * AD
        FR = space.scores(R)
        size, before = space.inner(R, R, FR), size
        if size <= goal:
            break
        D, FD = R + (size / before) * D, FR + (size / before) * FD
    return x, Fx


def _factored(space: FeatureSpace, known: tuple[Any, ...], g: np.ndarray) -> np.ndarray:
    """The Newton step by a factor of the Hessian, I + sum_i J_i (x) x_i x_i'."""
    d, k = g.shape
    J = np.zeros((k, k, len(space.X)))
    _jacobians(*known, J)
    Z = np.column_stack([space.X, np.full(len(space.X), space.bias)])
    H = np.empty((k * d, k * d))
    for m in range(k):
        for j in range(m + 1):
            rows = np.flatnonzero(J[m, j])
            block = (Z[rows] * J[m, j, rows, None]).T @ Z[rows]
            H[m * d : (m + 1) * d, j * d : (j + 1) * d] = block
    H[np.diag_indices(k * d)] += 1.0
    factor = scipy.linalg.cho_factor(H, lower=True, overwrite_a=True, check_finite=False)
    return scipy.linalg.cho_solve(factor, -g.T.ravel(), check_finite=False).reshape(k, d).T


@compiled
def _jacobians(loss, weight, tau, y, r, alpha, beta, J):
    k = alpha.shape[1]
    unit, out = np.zeros(k), np.empty(k)
    for i in range(len(y)):
        own = of_row(loss, weight, i)
        for m in range(k):
            if m == y[i] or m == r[i] or alpha[i, m] < 0.0:
                unit[m] = 1.0
                row_turn(own, tau, y[i], r[i], alpha[i], beta[i], unit, out)
                unit[m] = 0.0
                for j in range(k):
                    J[j, m, i] = out[j]
