"""Dual coordinate descent in the signed variable, for linear and kernel machines.

Problem   max_a D(a), one signed variable a row (ODM, hinge and squared hinge alike)
Update    a_i <- argmax D along coordinate i, in closed form (loss.dual_step);
          w (or, with a kernel, every row's score) follows at once.  A mean of margins in
          the problem only adds a constant to each variable (Problem.pull)
Source    odm.txt, Algorithm 1, in random order.  Ours: the signed variable, and a round
          made of one look at all rows, which gives the certificate and what each
          row would gain, and then sweeps over the rows that would gain most; the primal
          point is the best blend of the last few models, and with a kernel the dual
          variables leap to their own best blend
Cost      a round reads the data once, and again for each sweep in proportion to the rows
          that still gain; rows at rest are left out without further rules
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from optimargin.blend import best_blend
from optimargin.loss import (
    dual_gain,
    dual_of,
    dual_step,
    is_smooth,
    is_unbounded,
    of_row,
    row_gap,
    value,
)
from optimargin.problem import Point, Points, Problem, Start, Status
from optimargin.rows import GramRows, compiled, feature_rows, fetch, push, score
from optimargin.threads import shares, spread

_SHARE = 4096  # rows that are worth a call of their own
_AHEAD = 2  # rows that are on their way into the cache
WORTH = 0.03  # rows that would gain less than this share of the mean gain can wait
WORTH_KERNEL = 0.5  # the same where a look costs nothing beside a move
SWEEPS = 16  # most sweeps between two looks
_RECENT = 3  # models among whose blends the best is looked for
_WORTH_BLENDING = 0.01  # share of the gap that makes another step of that search worth it
_WORTH_LEAPING = 1e-3  # the same for the dual variables
SPENT = 0.1  # look again when a sweep gains less than this share of the first


@dataclass(frozen=True)
class DCD:
    """Dual coordinate descent; ``seed`` decides the order of the rows."""

    seed: int = 0
    name = "dcd"

    def points(self, problem: Problem, start: Start) -> Points:
        """A point at each look at all rows."""
        rng = np.random.default_rng(self.seed)
        a, rows = begin(problem, start)
        q, gain, rounds = problem.sqnorms, np.empty(problem.n), 0
        recent: list[Point] = []
        trail: list[tuple[np.ndarray, np.ndarray]] = []  # dual variables and their margins
        # Worth it with a kernel, where a move costs as much as a pass over all rows, and
        # possible where no bound is in the way.
        leaping = problem.gram is not None and is_unbounded(problem.loss)
        worth = WORTH if problem.gram is None else WORTH_KERNEL
        while True:
            point, norm2 = _look(problem, rows, a, q, gain, rounds)
            if not norm2 >= -1e-6 * abs(point.primal):  # or not a number any more
                return Status.INDEFINITE
            recent = [point, *recent[: _RECENT - 1]] if rounds else []
            trail = [(a.copy(), point.margin), *trail[: _RECENT - 1]] if leaping else []
            point = _blended(problem, recent) if recent else point
            recent = [p._replace(dual=None) for p in recent]
            yield point
            rounds += 1
            if len(trail) > 1:
                trail[0] = _leap(problem, rows, a, trail, point.primal - point.bound)
            least = worth * float(gain.mean())
            for part, segment in segments(problem, rows, np.flatnonzero(gain > least)):
                duals, seed = (problem.weight, q, a), rng.integers(1, 2**62)
                passes(problem.loss, segment, problem.y, *duals, part, least, gain, seed)
                if segment is not rows:
                    yield point  # computing kernel rows takes long: a chance to stop


@compiled
def _sweep(loss, rows, y, weight, q, a, order, least, gain):
    """Visit the rows of ``order`` once and move those that gain more than ``least``.

    Writes what each would have gained when it was met; returns the sum.
    """
    total = 0.0
    for k in range(len(order)):
        i = order[k]
        fetch(rows, order[min(k + _AHEAD, len(order) - 1)])
        own, u = of_row(loss, weight, i), y[i] * score(rows, i)
        new = dual_step(own, a[i], u, q[i])
        gain[i] = dual_gain(own, a[i], new, u, q[i])
        total += gain[i]
        if gain[i] > least:
            push(rows, i, (new - a[i]) * y[i])
            a[i] = new
    return total


@compiled
def pick(members, gain, least, order, seed):
    """Those of the members that would gain more than ``least``, in random order, into ``order``.

    Returns how many, and the next seed.  Fisher and Yates, with Marsaglia's xorshift: the order
    need not fool a cryptographer.
    """
    count = 0
    for i in members:
        if gain[i] > least:
            order[count] = i
            count += 1
    state = np.uint64(seed)
    for k in range(count - 1, 0, -1):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        j = np.int64(state % np.uint64(k + 1))
        order[k], order[j] = order[j], order[k]
    return count, state


@compiled
def passes(loss, rows, y, weight, q, a, members, least, gain, seed):
    """Sweeps over those of the rows that would gain, until they gain little more; the next seed."""
    order, first, state = np.empty_like(members), 0.0, np.uint64(seed)
    for _ in range(SWEEPS):
        count, state = pick(members, gain, least, order, state)
        total = _sweep(loss, rows, y, weight, q, a, order[:count], least, gain)
        first = max(first, total)
        if total <= SPENT * first:
            break
    return state


@compiled
def certify(loss, rows, y, weight, q, a, first, last, u, gain, scored):
    """Margins and gains of a range of rows; the sums of their losses and of their gaps.

    Without a model yet there is nothing to score.
    """
    total, gap = 0.0, 0.0
    for i in range(first, last):
        own = of_row(loss, weight, i)
        u[i] = y[i] * score(rows, i) if scored else 0.0
        gain[i] = dual_gain(own, a[i], dual_step(own, a[i], u[i], q[i]), u[i], q[i])
        total += value(own, u[i])
        gap += row_gap(own, a[i], u[i])
    return total, gap


@compiled
def push_all(rows, steps):
    """Add every row, times its step, to the model."""
    for i in range(len(steps)):
        if steps[i] != 0.0:
            push(rows, i, steps[i])


def begin(problem: Problem, start: Start) -> tuple[np.ndarray, Any]:
    """The dual variable to start from, and rows that hold its model."""
    losses, y = problem.losses, problem.y
    a = np.zeros(problem.n) if start.dual is None else start.dual
    if problem.gram is not None:
        gram = problem.gram
        if start.dual is None and start.coef is not None:
            a = start.coef * y
        given, a = a, np.clip(a, losses.a_min, losses.a_max)
        b = (a + problem.pull) * y
        if start.dual is None and start.margin is not None and np.array_equal(given * y, b):
            f = start.margin * y
        else:
            f = gram.apply(b) if b.any() else np.zeros(problem.n)
        return a, GramRows(gram.kept, gram.slot, gram.bias**2, gram.shift, f)
    rows = feature_rows(problem.X, problem.bias, np.zeros(problem.d + 1))
    if start.dual is None and start.coef is not None:
        scores = problem.X @ start.coef[:-1].astype(problem.X.dtype)
        a = dual_of(losses, y * (scores + problem.bias * start.coef[-1]))
    a = np.clip(a, losses.a_min, losses.a_max)
    b = (a + problem.pull) * y
    if b.any():
        push_all(rows, b)
    return a, rows


def segments(problem: Problem, rows: Any, order: np.ndarray) -> Iterator[tuple[np.ndarray, Any]]:
    """The rows to visit, with the matrix they are found in: all at once, or in blocks."""
    if problem.gram is None or problem.gram.is_whole:
        yield order, rows
        return
    for part, K, slot in problem.gram.blocks(order):
        yield part, rows._replace(K=K, slot=slot)


def _look(
    problem: Problem, rows: Any, a: np.ndarray, q: np.ndarray, gain: np.ndarray, rounds: int
) -> tuple[Point, float]:
    """The certificate of a, and every row's gain; with it the squared norm of the model."""
    pull, u = problem.pull, np.empty(problem.n)
    pulled = a + pull if problem.lam2 else a
    scored = bool(pulled.any())

    def task(part: slice) -> tuple[float, float]:
        y, weight, first, last = problem.y, problem.weight, part.start, part.stop
        return certify(problem.loss, rows, y, weight, q, a, first, last, u, gain, scored)

    found = spread(task, shares(problem.n, min(8, 1 + problem.n // _SHARE)), problem.threads)
    total, gap = (sum(column) for column in zip(*found, strict=True))
    if problem.gram is None:
        coef, norm2 = rows.w.copy(), float(rows.w @ rows.w)
    else:
        with np.errstate(over="ignore", invalid="ignore"):  # see Status.INDEFINITE
            coef, norm2 = pulled * problem.y, float(pulled @ u)
    primal = 0.5 * norm2 + total - (float(np.sum(pull * u)) if problem.lam2 else 0.0)
    return Point(coef, a.copy(), u, primal, primal - gap, rounds), norm2


def _blended(problem: Problem, recent: list[Point]) -> Point:
    """The newest of the points, its model replaced by the best in the span of all."""
    newest = recent[0]
    if len(recent) < _RECENT or not is_smooth(problem.loss) or problem.lam2:
        return newest
    B, U = np.stack([p.coef for p in recent]), tuple(p.margin for p in recent)
    # <w_j, w_k> is w_j.w_k in feature space, and a_j.u_k in the kernel's
    G = B @ B.T if problem.gram is None else B @ (np.stack(U) * problem.y).T
    worth = _WORTH_BLENDING * (newest.primal - newest.bound)
    c, primal = best_blend(problem.loss, problem.weight, False, G, U, worth)
    if not primal < newest.primal:
        return newest
    margin = sum(cj * u for cj, u in zip(c, U, strict=True))
    return newest._replace(coef=c @ B, margin=margin, primal=primal)


def _leap(
    problem: Problem,
    rows: Any,
    a: np.ndarray,
    trail: list[tuple[np.ndarray, np.ndarray]],
    gap: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Move the dual variables to the best in the span of where they were; there, with margins.

    As in the method of conjugate gradients, the span has the last step in it.
    """
    A, U = np.stack([p[0] for p in trail]), np.stack([p[1] for p in trail])
    c, _ = best_blend(problem.loss, problem.weight, True, A @ U.T, tuple(A), _WORTH_LEAPING * gap)
    a[:], u = c @ A, c @ U
    rows.f[:] = problem.y * u
    return a.copy(), u
