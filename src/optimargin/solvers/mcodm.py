"""mcODM: block coordinate descent over rows, with second-order steps where it is slow.

Problem   min_W  sum_l |w_l|^2 / 2 + sum_i s_i loss(f_i), k scores a row (see `multiclass`)
Update    the dual variables of one row at a time, in closed form (multiclass.row_step);
          where that is slow, all of them together (`together`)
Source    mcodm.txt, Algorithms 1 and 2.  The runner-up of each row is looked up again when
          the convex problem around the last ones is solved; with ``rule="index"`` the
          objective cannot rise from one such problem to the next, with ``"value"``, which is
          the paper's rule, it may
Cost      a round reads the data once, and again for each sweep in proportion to the rows that
          still gain; k scores a row are the work, and W and alpha, (n + d) k numbers, the memory
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass, replace

import numpy as np

from optimargin.problem import Point, Points, Problem, Round, Solution, Start, Status, Stop, drive
from optimargin.solvers.dcd import WORTH, WORTH_KERNEL, segments
from optimargin.solvers.rowwise import State, begin, freeze, look, passes
from optimargin.solvers.together import Guess, patience_with_rows, proximal_points

_LOOSE = 0.01  # largest gap at which runner-ups are looked up again
_TIGHTER = 0.1  # that gap, as a share of what the last change of runner-ups was worth
_OUTER = 100  # most problems between two of which runner-ups change
_SMALL = 2_000  # numbers in alpha of a problem that is solved exactly in no time
_PATIENT = 150  # rounds that may be spent on that
_TINY = 1e-8  # least squared norm of a row, relative to its ridge


@dataclass(frozen=True)
class McODM:
    """mcODM; ``seed`` decides the order of the rows, ``rule`` what of a runner-up is frozen."""

    seed: int = 0
    rule: str = "index"
    name = "mcodm"

    def solve(self, problem: Problem, start: Start, stop: Stop) -> Solution:
        """A model whose last convex problem is solved, and whose runner-ups stay."""
        began = time.perf_counter()
        state, rng = begin(problem, start), np.random.default_rng(self.seed)
        convex, small = problem.loss.a_min >= 0.0, state.alpha.size <= _SMALL
        history: list[Round] = []
        last: Solution | None = None
        rounds, before, tol = 0, np.inf, stop.tol if convex else max(stop.tol, _LOOSE)
        for outer in range(_OUTER):
            exact = small and rounds < _PATIENT
            goal, most = (0.0, _PATIENT) if exact else (stop.tol, stop.max_iter)
            # The first problem knows no upper side: it is convex, so all starts lead to the same.
            now = problem if outer or start.dual is not None else without_upper(problem)
            changed = freeze(now, state, self.rule)
            passed = time.perf_counter() - began
            limits = _rest(stop, goal if exact else tol, passed, min(most, stop.max_iter))
            found = drive(_points(now, state, rng, rounds), limits, self.name)
            history += [h._replace(time=h.time + passed) for h in found.history]
            rounds = found.rounds
            settled = not changed or abs(before - found.primal) <= goal * found.primal
            impatient = exact and found.status is Status.MAX_ITER and rounds < stop.max_iter
            if not impatient and found.status not in (Status.CONVERGED, Status.PRECISION):
                break
            if (convex and not impatient) or (outer and settled and (exact or tol <= goal)):
                break
            fell = abs(before - found.primal) / found.primal if found.primal > 0.0 else 0.0
            before, tol = found.primal, max(stop.tol, min(_TIGHTER * fell, _LOOSE))
            last = found if now is problem else None
            if state.guess is not None:
                state.guess = state.guess._replace(coef=found.coef)
        cut = found.status is not Status.CONVERGED
        if cut and last is not None and found.primal > last.primal:
            # The last model is the better one, and by no means worse in this problem.
            found = replace(last, status=found.status, rounds=rounds)
        dual = state.whole_dual()
        return replace(found, dual=dual, history=history, status=_honest(found, stop))


def convex_start(problem: Problem, start: Start, stop: Stop, seed: int) -> Start:
    """Where a cold start stands after its first problem, found from a neighbour's.

    It is convex, so all ways to it lead to the same place, whatever the upper side is.
    """
    loose = stop._replace(tol=max(stop.tol, _LOOSE))
    return Start(dual=McODM(seed).solve(without_upper(problem), start, loose).dual)


def without_upper(problem: Problem) -> Problem:
    """The problem in which no margin is too large."""
    return replace(problem, loss=problem.loss._replace(a_min=0.0))


def _rest(stop: Stop, tol: float, passed: float, most: int) -> Stop:
    """What is left of the limits."""
    left = None if stop.time_limit is None else max(stop.time_limit - passed, 0.0)
    stop, callback = stop._replace(max_iter=most), stop.callback
    if callback is None:
        return stop._replace(tol=tol, time_limit=left)
    return stop._replace(
        tol=tol,
        time_limit=left,
        callback=lambda r, p: callback(r._replace(time=r.time + passed), p),
    )


def _honest(found: Solution, stop: Stop) -> Status:
    """Converged is what the user asked for, even where we asked ourselves for more."""
    return Status.CONVERGED if found.gap <= stop.tol else found.status


# -- the convex problem, runner-ups fixed ---------------------------------------------------


def _points(problem: Problem, s: State, rng: np.random.Generator, rounds: int) -> Points:
    """A point at each look at all rows."""
    ridge = problem.loss.ridge_lo if problem.weight is None else problem.losses.ridge_lo
    q = np.maximum(problem.sqnorms, _TINY * np.minimum(ridge, 1e30))
    gain = np.empty(problem.n)
    worth = WORTH if problem.gram is None else WORTH_KERNEL
    patience, enough = patience_with_rows(problem)
    gaps: list[float] = []
    while True:
        point = look(problem, s, q, gain, rounds)
        if point is None:
            return Status.INDEFINITE
        yield point
        rounds += 1
        gaps.append(point.primal - point.bound)
        slow = len(gaps) > patience and gaps[-1] > enough * gaps[-1 - int(patience)]
        if slow or (s.guess is not None and len(gaps) == 1):
            status, rounds = yield from _together(problem, s, rounds)
            if status is not None:
                return status
            gaps.clear()
            continue

        least = worth * float(gain.mean())
        for part, rows in segments(problem, s.rows, np.flatnonzero(gain > least)):
            duals, seed = (
                (s.r, s.M, problem.weight, q, s.dual, s.beta, s.near),
                rng.integers(1, 2**62),
            )
            passes(problem.loss, rows, problem.y, *duals, part, least, gain, seed)
            if rows is not s.rows:
                yield point  # computing kernel rows takes long: a chance to stop


def _together(
    problem: Problem, s: State, rounds: int
) -> Generator[Point, None, tuple[Status | None, int]]:
    """Steps that move all rows at once, until they gain no more; the state keeps the best."""
    best = -np.inf
    for point, answer in proximal_points(problem, s.alpha, s.beta, s.r, s.M, s.guess):
        if not point.primal - point.bound >= -1e-6 * abs(point.primal):
            return Status.INDEFINITE, rounds
        if point.bound > best:
            best = point.bound
            s.alpha[:], s.beta[:] = answer.alpha, answer.beta
            if problem.gram is None:
                s.rows.w[:] = point.coef
            else:
                s.rows.f[:] = answer.F.T
        coef = point.coef.T.copy()
        s.guess = Guess(coef, answer.tau)
        yield point._replace(coef=coef, rounds=rounds)
        rounds += 1
    s.guess = None
    return None, rounds
