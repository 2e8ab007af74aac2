"""Dual coordinate descent in the signed variable, for linear and kernel machines.

Problem   max_a D(a), one signed variable a row (ODM, hinge and squared hinge alike)
Update    a_i <- argmax D along coordinate i, in closed form (loss.dual_step);
          w (or, with a kernel, every row's score) follows at once
Source    odm.txt, Algorithm 1; the signed variable, random order and shrinking are ours
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from optimargin.kernels import sqnorms
from optimargin.loss import dual_of, dual_step, row_gap, scaled, slack, value
from optimargin.problem import Point, Problem, Start
from optimargin.rows import LOOP, GramRows, feature_rows, push, score

_NEWS = 3.0  # look at the whole data again when the estimated gap has fallen this much
_PATIENCE = 10  # or after this many epochs


@dataclass(frozen=True)
class DCD:
    """Dual coordinate descent; ``seed`` decides the order of the rows."""

    seed: int = 0
    name = "dcd"

    def points(self, problem: Problem, start: Start) -> Iterator[Point]:
        """A point after each epoch that ended with a look at all rows."""
        rng = np.random.default_rng(self.seed)
        y, weight, loss = problem.y, problem.weight, problem.loss
        a, rows, q = _begin(problem, start)
        best, epoch, since = np.inf, 0, 0
        yield _look(problem, rows, a, epoch)
        while True:
            active, cut = np.arange(problem.n), np.inf
            while True:
                epoch, since = epoch + 1, since + 1
                rng.shuffle(active)
                estimate, worst, kept = 0.0, 0.0, []
                for part, segment in _segments(problem, rows, active):
                    gap, moved, count = sweep(loss, segment, y, weight, q, a, part, cut)
                    estimate, worst = estimate + gap, max(worst, moved)
                    kept.append(part[:count])
                active, cut = np.concatenate(kept), worst
                if estimate * _NEWS <= best or since >= _PATIENCE or not len(active):
                    break
            since = 0
            point = _look(problem, rows, a, epoch)
            best = min(best, point.primal - point.bound)
            yield point


@njit(cache=True, nogil=True, **LOOP)
def sweep(loss, rows, y, weight, q, a, order, cut):
    """Visit the rows of ``order`` once; rows that rest farther than ``cut`` leave it.

    Returns the sum of the rows' gaps as they were met, the largest change of a margin
    by its own row, and how many rows remain (the front of ``order``).
    """
    gap, worst, kept = 0.0, 0.0, 0
    for i in order:
        own, u = scaled(loss, weight[i]), y[i] * score(rows, i)
        if slack(own, a[i], u) > cut:
            continue
        order[kept] = i
        kept += 1
        gap += row_gap(own, a[i], u)
        step = dual_step(own, a[i], u, q[i]) - a[i]
        if step != 0.0:
            push(rows, i, step * y[i])
            a[i] += step
            worst = max(worst, abs(step) * q[i])
    return gap, worst, kept


@njit(cache=True, nogil=True, **LOOP)
def certify(loss, rows, y, weight, a, u):
    """Fill in every margin; return the sums of the losses and of the rows' gaps."""
    total, gap = 0.0, 0.0
    for i in range(len(y)):
        own = scaled(loss, weight[i])
        u[i] = y[i] * score(rows, i)
        total += value(own, u[i])
        gap += row_gap(own, a[i], u[i])
    return total, gap


@njit(cache=True, nogil=True, **LOOP)
def _push_all(rows, steps):
    for i in range(len(steps)):
        push(rows, i, steps[i])


def _begin(problem: Problem, start: Start) -> tuple[np.ndarray, Any, np.ndarray]:
    y, a = problem.y, np.zeros(problem.n)
    if start.dual is not None:
        a = np.clip(start.dual, problem.loss.a_min * problem.weight, problem.loss.a_max * problem.weight)
    if problem.gram is not None:
        gram = problem.gram
        f = gram.apply(a * y) if a.any() else np.zeros(problem.n)
        return a, GramRows(gram.kept, gram.slot, gram.bias**2, f), gram.diag
    rows = feature_rows(problem.X, problem.bias, np.zeros(problem.d + 1))
    if start.dual is None and start.coef is not None:
        u = np.empty(problem.n)
        certify(problem.loss, rows._replace(w=start.coef), y, problem.weight, a, u)
        a = dual_of(scaled(problem.loss, problem.weight), u)
    if a.any():
        _push_all(rows, a * y)
    return a, rows, sqnorms(problem.X) + problem.bias**2


def _segments(problem: Problem, rows: Any, active: np.ndarray) -> Iterator[tuple[np.ndarray, Any]]:
    """The active rows with the matrix they are found in: all at once, or block by block."""
    if problem.gram is None or problem.gram.is_whole:
        yield active, rows
        return
    for part, K, slot in problem.gram.blocks(active):
        yield part, rows._replace(K=K, slot=slot)


def _look(problem: Problem, rows: Any, a: np.ndarray, epoch: int) -> Point:
    u = np.empty(problem.n)
    total, gap = certify(problem.loss, rows, problem.y, problem.weight, a, u)
    if problem.gram is None:
        coef, half = rows.w.copy(), 0.5 * float(rows.w @ rows.w)
    else:
        coef, half = a * problem.y, 0.5 * float(a @ u)
    primal = half + total
    return Point(coef, a.copy(), u, primal, primal - gap, epoch)
