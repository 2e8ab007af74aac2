"""Passes over the rows of a problem: margins, gradient, curvature; on several threads.

The rows are those of X, or the kernel values between them and the landmarks, which may be
computed on the way.  A vector w of their space has one entry more than they have columns, for
the constant feature.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from optimargin.arrays import is_foreign
from optimargin.device import beside
from optimargin.loss import curvature, of_row, slope, value
from optimargin.problem import Problem
from optimargin.rows import compiled, feature_rows, fetch, push, score, sqnorms
from optimargin.solvers import arraywise
from optimargin.threads import blocks, shares, spread

_WORTH_A_THREAD = 250_000  # numbers in a range of rows


class Pull(NamedTuple):
    """The sum of the losses at some margins, its gradient in w, and every row's curvature."""

    total: float
    gradient: np.ndarray
    curvature: np.ndarray


@compiled
def _score(rows, y, u):
    for i in range(len(u)):
        u[i] = y[i] * score(rows, i)


@partial(compiled, contiguous=True)
def pulls(loss, y, weight, u, pull, h):
    """Note how every row pulls at its score, and its curvature; the sum of the losses.

    Rows that do not count have neither.
    """
    total = 0.0
    for i in range(len(u)):
        own = of_row(loss, weight, i)
        total += value(own, u[i])
        h[i] = curvature(own, u[i])
        pull[i] = slope(own, u[i]) * y[i]
    if weight is not None:
        for i in range(len(u)):
            if weight[i] == 0.0:
                h[i] = pull[i] = 0.0
    return total


@partial(compiled, contiguous=True)
def _pull(loss, into, y, weight, u, h):
    """Add the gradient of the losses to ``into``, and note every row's curvature.

    Two loops, because the first is all arithmetic and may use the vector units.
    """
    pull = np.empty(len(u))
    total = pulls(loss, y, weight, u, pull, h)
    for i in range(len(u)):
        if pull[i] != 0.0:
            push(into, i, pull[i])
    return total


@compiled
def _push(into, s):
    for i in range(len(s)):
        if s[i] != 0.0:
            push(into, i, s[i])


@compiled
def _curve(rows, into, h):
    some = np.flatnonzero(h)
    for k in range(len(some)):
        if k + 1 < len(some):  # rows that are far apart would each be waited for
            fetch(rows, some[k + 1])
        push(into, some[k], h[some[k]] * score(rows, some[k]))


def ranges(problem: Problem, size: int) -> list[slice]:
    """At most 8 ranges of rows, each worth a thread's while and a sum of ``size`` numbers.

    The sums of all ranges together are no larger than the data.
    """
    X = problem.matrix
    stored = X.nnz if sp.issparse(X) else X.shape[0] * X.shape[1]
    count = min(stored // _WORTH_A_THREAD, stored // (8 * size), problem.limit // (8 * size))
    return shares(problem.n, int(np.clip(count, 1, 8)))


def margins(problem: Problem, w: np.ndarray) -> np.ndarray:
    """Every row's margin under w."""
    if is_foreign(problem.y):
        return arraywise.margins(problem, w)
    X, u = problem.matrix, np.zeros(problem.n)

    def task(part: slice) -> None:
        for span in problem.spans(part):
            _score(feature_rows(X, problem.constant, w, span), problem.y[span], u[span])

    if w.any():
        spread(task, ranges(problem, 1), problem.threads)
    return u


def pull(problem: Problem, u: np.ndarray) -> Pull:
    """What the losses say at the margins u; reads only rows that pull."""
    if is_foreign(problem.y):
        return Pull(*arraywise.pull(problem, u))
    X, h = problem.matrix, np.empty(problem.n)
    loss, y, weight = problem.loss, problem.y, problem.weight

    def task(part: slice) -> tuple[float, np.ndarray]:
        total, g = 0.0, np.zeros(X.shape[1] + 1)
        for span in problem.spans(part):
            into = feature_rows(X, problem.constant, g, span)
            own = None if weight is None else weight[span]
            total += _pull(loss, into, y[span], own, u[span], h[span])
        return total, g

    found = spread(task, ranges(problem, X.shape[1] + 1), problem.threads)
    return Pull(sum(total for total, _ in found), _sum([g for _, g in found]), h)


def gradient(problem: Problem, s: Any) -> Any:
    """The rows times the numbers s, added up."""
    if is_foreign(problem.y):
        return arraywise.gradient(problem, s)
    X = problem.matrix

    def task(part: slice) -> np.ndarray:
        g = np.zeros(X.shape[1] + 1)
        for span in problem.spans(part):
            _push(feature_rows(X, problem.constant, g, span), s[span])
        return g

    return _sum(spread(task, ranges(problem, X.shape[1] + 1), problem.threads))


class View(NamedTuple):
    """The objective at some w with its gradient, and every row's margin and curvature."""

    primal: float
    gradient: np.ndarray
    margin: np.ndarray
    curvature: np.ndarray


def look(problem: Problem, w: np.ndarray, u: np.ndarray) -> View:
    """What there is to see at w, where the margins are u."""
    found = pull(problem, u)
    primal = 0.5 * float(w @ w) + found.total
    return View(primal, w + found.gradient, u, found.curvature)


def curved(problem: Problem, h: np.ndarray, v: np.ndarray) -> np.ndarray:
    """X' diag(h) X v in one pass over the rows; reads only those with a curvature."""
    if is_foreign(problem.y):
        return arraywise.curved(problem, h, v)

    def task(part: slice) -> np.ndarray:
        out, rows = np.zeros_like(v), feature_rows(problem.X, problem.bias, v, part)
        _curve(rows, rows._replace(w=out), h[part])
        return out

    return _sum(spread(task, ranges(problem, len(v)), problem.threads))


def moments(X: Any, weight: np.ndarray | None) -> tuple[float, float, float]:
    """The weight of the rows, and the sums of their values and of the squares of these."""
    if is_foreign(beside(X)):
        return arraywise.moments(X, weight)
    weight = np.ones(X.shape[0]) if weight is None else weight
    total = squares = 0.0
    for span in blocks(X):
        total += float((weight[span] @ X[span]).sum())
        squares += float(weight[span] @ sqnorms(X[span]))
    return float(weight.sum()), total, squares


def _sum(found: list[np.ndarray]) -> np.ndarray:
    return np.add.reduce(found)
