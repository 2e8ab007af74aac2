"""mcODM row by row: the state of the solver, looks at all rows, and sweeps over some.

A look scores all rows against all classes, a block of rows at a time (matrix products on dense
data): it gives the certificate, what each row would gain and, where there are many classes,
the few that each row is to meet until the next look.  What a sweep leaves out it cannot make
wrong: a step that holds some dual variables of a row is a step of the same dual.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
from numba.extending import register_jitable

from optimargin.classwise import block_scores, class_at, model, push_classes, scores
from optimargin.loss import of_row
from optimargin.multiclass import (
    ahead,
    close_classes,
    row_conjugate,
    row_loss,
    row_step,
    runner_up,
)
from optimargin.problem import Point, Problem, Start
from optimargin.rows import DenseRows, GramRows, compiled, feature_rows, fetch, prefetch, push
from optimargin.solvers.dcd import SPENT, SWEEPS, pick, segments
from optimargin.solvers.together import Guess, shares_of
from optimargin.threads import blas_threads, spans, spread

T = TypeVar("T")

_MANY = 48  # classes from which on a row meets a few of them
_ROOM = 32  # most classes that it meets then
_CLOSE = 0.25  # of the lower margin: how far below the others' scores theirs may be
_THIN = 0.5  # share of entries that are not zero below which dense rows are taken as sparse
_BLOCK = 1 << 17  # scores that are looked at together
_PRODUCTS = 10**6  # from which on BLAS takes to threads
_AHEAD = 2  # rows that are on their way into the cache


class Near(NamedTuple):
    """The classes that each row meets: the first ``sizes[i]`` of ``classes[i]``."""

    classes: np.ndarray
    sizes: np.ndarray


@dataclass
class State:
    """Everything that changes: the dual variables, the frozen runner-ups, and the models.

    ``dual`` has room for all that a later solver needs: alpha, and a column each for beta and r.
    ``guess`` is there once row by row was too slow.
    """

    dual: np.ndarray
    beta: np.ndarray
    r: np.ndarray
    M: np.ndarray
    rows: Any
    near: Near | None
    guess: Guess | None = None

    @property
    def alpha(self) -> np.ndarray:
        """The dual variables of the classes, of shape (n, k)."""
        return self.dual[:, :-2]

    def whole_dual(self) -> np.ndarray:
        """All dual variables and the runner-ups, in one array that is this state's own."""
        self.dual[:, -2], self.dual[:, -1] = self.beta, self.r
        return self.dual


def begin(problem: Problem, start: Start) -> State:
    """The state to start from."""
    n, k = problem.n, problem.classes
    dual, beta, r, M = np.zeros((n, k + 2)), np.zeros(n), np.full(n, -1), np.zeros(n)
    if start.dual is not None:
        dual[:] = start.dual
        if problem.weight is not None:
            dual[problem.weight == 0.0, :-1] = 0.0
        beta[:], r[:] = dual[:, -2], dual[:, -1]
    many, near = k >= _MANY and problem.gram is None, None
    if problem.gram is None:
        w = np.zeros((problem.d + 1, k), order="F" if many else "C")
        rows: Any = feature_rows(_thin(problem), problem.bias, w)
    else:
        gram = problem.gram
        rows = GramRows(gram.kept, gram.slot, gram.bias**2, gram.shift, np.zeros((k, n)))
    if many:
        near = Near(np.empty((n, min(k, _ROOM)), dtype=np.int32), np.zeros(n, dtype=np.int32))
    state = State(dual, beta, r, M, rows, near)
    if start.dual is not None:
        held = np.flatnonzero((beta > 0.0) | state.alpha.any(axis=1))
        for part, segment in segments(problem, rows, held):
            _push_shares(segment, problem.y, r, dual, beta, part)
    return state


def _thin(problem: Problem) -> Any:
    """The data, without its zeros where they are many: they cost time, and their lack little."""
    X = problem.X
    if sp.issparse(X):
        return X
    size = np.count_nonzero(X)
    if size > _THIN * X.size or size * (X.itemsize + 4) > problem.limit:
        return X
    blocks = [sp.csr_array(X[part]) for part in spans(problem.n, max(1, _BLOCK // problem.d))]
    return sp.csr_array(sp.vstack(blocks, format="csr"))


@compiled
def _push_shares(rows, y, r, dual, beta, index):
    for i in index:
        for m in range(dual.shape[1] - 2):
            if dual[i, m] != 0.0:
                push(model(rows, m), i, dual[i, m])
        push(model(rows, y[i]), i, -beta[i])
        if r[i] >= 0:
            push(model(rows, r[i]), i, beta[i])


def over_rows(problem: Problem, rows: Any, task: Callable[[int, np.ndarray], T]) -> list[T]:
    """What ``task`` says of each block of rows, given the first and the scores of all."""
    if problem.gram is None:
        rows = rows._replace(w=np.ascontiguousarray(rows.w))
    width = min(max(1, _BLOCK // problem.classes), -(-problem.n // 8))
    products = isinstance(rows, DenseRows) and problem.n * rows.w.size > _PRODUCTS
    # Threads of BLAS's own would wait for each other, and for ours.
    with blas_threads(1) if products else nullcontext():
        return spread(
            lambda part: task(part.start, block_scores(rows, part)),
            spans(problem.n, width),
            problem.threads,
        )


# -- runner-ups -----------------------------------------------------------------------------


def freeze(problem: Problem, s: State, rule: str) -> bool:
    """Look up the runner-ups; whether any of them is another than before."""
    old, before = s.r.copy(), s.M.copy()
    if problem.loss.a_min >= 0.0:
        return False
    found, value = np.empty(problem.n, dtype=np.int64), np.empty(problem.n)
    over_rows(problem, s.rows, lambda first, F: _runners(F, problem.y, first, found, value))
    if rule == "value":
        s.M[:] = value
        return not np.array_equal(before, value)
    s.r[:] = found
    moved = np.flatnonzero((old != found) & (s.beta > 0.0))
    for part, rows in segments(problem, s.rows, moved):
        _move_beta(rows, s.beta, old, found, part)
    return not np.array_equal(old, found)


@compiled
def _runners(F, y, first, found, value):
    for t in range(len(F)):
        i = first + t
        found[i] = runner_up(F[t], y[i])
        value[i] = F[t, found[i]]


@compiled
def _move_beta(rows, beta, old, new, index):
    for i in index:
        if old[i] >= 0:
            push(model(rows, old[i]), i, -beta[i])
        push(model(rows, new[i]), i, beta[i])


# -- a look at all rows -----------------------------------------------------------------------


def look(problem: Problem, s: State, q: np.ndarray, gain: np.ndarray, rounds: int) -> Point | None:
    """The certificate of the dual variables, and every row's gain; None if not convex."""
    u = np.empty(problem.n)
    found = over_rows(
        problem,
        s.rows,
        lambda first, F: _certify(
            problem.loss, F, problem.y, s.r, s.M, problem.weight, q, s.dual, s.beta, s.near,
            rounds, first, u, gain,
        ),
    )  # fmt: skip
    total, gap, norm2 = (sum(column) for column in zip(*found, strict=True))
    primal = 0.5 * norm2 + total
    if not norm2 >= -1e-6 * abs(primal):  # or not a number any more
        return None
    return Point(_coef(problem, s), None, u, primal, primal - gap, rounds)


@compiled
def _certify(loss, F, y, r, M, weight, q, dual, beta, near, rounds, first, u, gain):
    """Margins and gains of a block of rows; the sums of their losses, conjugates and gaps."""
    k = F.shape[1]
    B, change = np.empty(k), np.empty(k)
    total, gap, norm2 = 0.0, 0.0, 0.0
    for t in range(len(F)):
        i, f = first + t, F[t]
        own, alpha = of_row(loss, weight, i), dual[i, :k]
        best = f[runner_up(f, y[i])]
        u[i] = f[y[i]] - best
        inner = -beta[i] * ahead(f, y[i], r[i], 0.0)
        for m in range(k):
            inner += alpha[m] * f[m]
        now = row_loss(own, u[i], ahead(f, y[i], r[i], M[i]))
        total += now
        norm2 += inner
        gap += now + row_conjugate(own, alpha[y[i]], beta[i], M[i]) + inner
        gain[i], _ = row_step(own, q[i], f, y[i], r[i], M[i], alpha, beta[i], 0.0, B, change)
        if near is not None:
            bar, turn = max(best, f[y[i]] - own.lo) - _CLOSE * own.lo, (y[i] + rounds * _ROOM) % k
            near.sizes[i] = close_classes(f, y[i], r[i], alpha, change, bar, turn, near.classes[i])
    return total, gap, norm2


def _coef(problem: Problem, s: State) -> np.ndarray:
    """The models as they are handed out: one line a class."""
    if problem.gram is None:
        return s.rows.w.T.copy()
    return shares_of(problem.y, s.r, s.alpha, s.beta).T.copy()


# -- a sweep over some ------------------------------------------------------------------------


@compiled
def passes(loss, rows, y, r, M, weight, q, dual, beta, near, members, least, gain, seed):
    """Sweeps over those of the rows that would gain, until they gain little more."""
    order, first, state = np.empty_like(members), 0.0, np.uint64(seed)
    for _ in range(SWEEPS):
        count, state = pick(members, gain, least, order, state)
        part = order[:count]
        total = sweep(loss, rows, y, r, M, weight, q, dual, beta, near, part, least, gain)
        first = max(first, total)
        if total <= SPENT * first:
            break


@compiled
def sweep(loss, rows, y, r, M, weight, q, dual, beta, near, order, least, gain):
    """Visit the rows of ``order`` once and move those that gain more than ``least``."""
    k = dual.shape[1] - 2
    room = np.empty((4, k if near is None else near.classes.shape[1]))
    f, B, change, a = room[0], room[1], room[2], room[3]
    total = 0.0
    for p in range(len(order)):
        i, later = order[p], order[min(p + _AHEAD, len(order) - 1)]
        fetch(rows, later)
        prefetch(dual, later * (k + 2))
        own, alpha = of_row(loss, weight, i), dual[i, :k]
        if near is None:
            classes, at, rival, a, rest = None, y[i], r[i], alpha, 0.0
        else:  # the own class and the rival are the first of the few
            size = near.sizes[i]
            classes, at, rival = near.classes[i, :size], 0, 1 if r[i] >= 0 else -1
            f, B, change, a = room[0, :size], room[1, :size], room[2, :size], room[3, :size]
            rest = _take(alpha, classes, a)
        scores(rows, i, classes, f)
        gain[i], step = row_step(own, q[i], f, at, rival, M[i], a, beta[i], rest, B, change)
        total += gain[i]
        if gain[i] > least:
            push_classes(rows, i, classes, change)
            beta[i] += step
            change[at] += step
            if rival >= 0:
                change[rival] -= step
            for c in range(len(change)):
                alpha[class_at(classes, c)] += change[c]
    return total


@register_jitable
def _take(alpha, classes, out):
    """Copy the dual variables of the classes; returns what the others add to the own one."""
    rest = 0.0
    for c in range(len(out)):
        out[c] = alpha[classes[c]]
        rest += out[c]
    return max(rest, 0.0)
