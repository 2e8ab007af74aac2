"""Scalable ODM: machines on parts of the rows, merged level by level.

Problem   min P of a kernel machine on n rows; on a part of m rows, the same with n/m times the
          losses, so that the parts' objectives have P as their mean:
          P(w) = sum_k (m_k/n) P_k(w), and the mean of their bounds is a bound of P
Update    every part is solved from where it stands, then neighbours become one part, until one is
          left or the gap is small enough.  What the levels know is the average of the parts'
          machines: a_i of the whole is a_i of its part times m_k/n
Source    sodm.txt, Algorithm 1; math.md section 4.  The rules of ``merge``:
          rescaled     a part's a_i times m_k/m of the part it becomes: its share of the average
          blend        ours: the best combination of the machines that meet, in their dual; and
                       before the last merge the losses of a part are halfway (in their logarithm)
                       between those of the whole and its own, and it looks only at rows whose
                       coefficients are not small; the others wait.  After it rows with a say go
                       ahead, as a level of their own, and all rows start from their machine
          concatenate  as printed, without the factor: starts p times too far
          same         losses are those of the whole in every part, and nothing is rescaled: what
                       cascade, DC and DiP do
          Cascade, DC and DiP are other partitions; ``survivors`` leaves rows behind whose a_i is 0
Cost      parts among others are solved roughly, by a few rounds of coordinate descent, whatever
          the conditioning: what they miss is small beside what parting them costs (see `roughly`).
          A level of K parts computes n^2/K kernel values at most, after a merge only those of rows
          that are visited (see `visited`), and sends settings; a merge moves rows.
          Its gap is found on a sample of s rows, of which every part draws its share at first:
          they go to all parts, which costs s n values and brings back s numbers.  Given
          w = w(a) the gap is a sum over rows, so the sample tells.  When a merge no longer
          moves the margins of the sample, it was the last
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from optimargin.engines.local import LocalShards
from optimargin.kernels import Kernel
from optimargin.problem import Point, Problem, Round, Solution, Start, Status, Stop, relative_gap
from optimargin.solvers.drawn import joined
from optimargin.solvers.levels import Level, Told, begin, look, train
from optimargin.solvers.parting import Parting

MERGES = ("auto", "rescaled", "blend", "concatenate", "same")
_ROUGH = 0.1, 8  # relative gap of a part among others, and its rounds at most
_NEARLY = 0.03, 16  # the same of a machine whose rows with a say are ahead of the others
_LOUD = 0.05  # share of the mean size of coefficients above which a row has a say
_FEW = 0.8  # share of rows with a say up to which these go ahead of the others
_NONE = np.empty(0)

Model = tuple[np.ndarray, np.ndarray | None, np.ndarray]  # coefficients, dual variables, margins
Describe = Callable[[LocalShards, bool], Model]  # of the parts, and whether they are the whole
Regroup = Callable[[LocalShards], LocalShards]


class Climbed(NamedTuple):
    """The answer, the parts of the last level, and whether these are all rows in one part."""

    found: Solution
    shards: LocalShards
    is_whole: bool


@dataclass(frozen=True)
class SODM:
    """Machines on parts of the rows, merged level by level; ``seed`` decides who goes where."""

    seed: int
    parting: Parting
    name = "sodm"

    def solve(self, problem: Problem, start: Start, stop: Stop) -> Solution:
        """The machine of the last level, which may be an average of several."""
        gram, parting = problem.gram, self.parting
        assert gram is not None
        began, rng = time.perf_counter(), np.random.default_rng(self.seed)
        count = parting.parts_of(problem)
        part = parting.numbers(problem, count, rng)
        state = {}
        if start.dual is not None:
            state["dual"] = start.dual * (1 if parting.rule == "same" else count)
        shards = parting.scatter(problem, part, state)
        total = float(problem.n if problem.weight is None else problem.weight.sum())
        level = self.level(gram.kernel, total, gram.limit, stop, shift=gram.shift)
        regroup = partial(self._clustered, problem, rng) if parting.how == "kmeans" else None
        describe = partial(_gathered, problem)
        return self.climb(shards, level, began, describe=describe, regroup=regroup).found

    def level(
        self, kernel: Kernel, total: float, limit: int, stop: Stop, *, shift: float = 0.0
    ) -> Level:
        """What parts are told at first, of rows that weigh so much together."""
        return Level(kernel, shift, total, self.parting.rule, limit, stop, self.seed)

    def climb(
        self,
        shards: Any,
        level: Level,
        began: float,
        *,
        describe: Describe,
        regroup: Regroup | None = None,
    ) -> Climbed:
        """From level to level: the answer, and the parts that have it as their state.

        ``describe`` says what of the model comes to the caller; ``regroup`` joins parts where
        neighbours are not what is to become one.
        """
        stop, levels, paused, rounds = level.stop, self.parting.levels, 0.0, 0
        left = None if stop.time_limit is None else began + stop.time_limit
        n, threads = shards.whole.n, shards.whole.threads
        shards, drawn = shards.step(begin, n, self.seed)
        sample, history = joined(drawn), list[Round]()
        seen = margin = _NONE  # of the sample, at the level before and at this one
        ahead = False  # whether rows with a say go ahead of the others, in the machine of all
        while True:
            rounds += 1
            rough = len(shards) > 1 or ahead
            now = _of_a_pass(level, left, rough, ahead)
            now = now._replace(limit=level.limit // min(threads, len(shards)))
            shards, said = shards.step(train, now)
            seconds, told = time.perf_counter() - began - paused, Told(*said)
            is_whole = len(shards) == 1 and told.rows == n and not ahead
            primal, bound = told.primal, told.bound
            if not is_whole:
                seen, (primal, bound, margin) = margin, look(shards, sample, level)
            point = Point(*describe(shards, is_whole), primal, bound, rounds)
            gap = relative_gap(primal, bound)
            history.append(Round(rounds, primal, gap, seconds))
            asked = stop.callback is not None and stop.callback(history[-1], point)
            paused = time.perf_counter() - began - seconds
            late = left is not None and time.perf_counter() >= left
            if told.indefinite:
                status = Status.INDEFINITE
            elif ahead and not (asked or late):
                ahead = False
                continue
            elif gap <= stop.tol:
                status = Status.CONVERGED
            elif asked:
                status = Status.CALLBACK
            elif late:
                status = Status.TIME_LIMIT
            elif rounds == levels or (rough and _is_settled(seen, margin, stop.tol)):
                status = Status.LEVELS
            elif len(shards) == 1:  # of survivors the gap with the whole says little
                status = Status.MAX_ITER if told.unfinished else Status.LEVELS
            else:
                shards = self._merged(shards) if regroup is None else regroup(shards)
                waits = self.parting.rule == "blend" and told.voiced <= _FEW * told.rows
                ahead = waits and len(shards) == 1
                continue
            break
        found = Solution(
            point.coef,
            point.dual,
            point.margin,
            primal,
            bound,
            status,
            rounds,
            self.name,
            history,
            shards.traffic.seen,
        )
        return Climbed(found, shards, is_whole)

    def _merged(self, shards: LocalShards) -> LocalShards:
        """The next level: neighbours together."""
        return shards.merge(self.parting.fan_in, "dual" if self.parting.survivors else None)

    def _clustered(
        self, problem: Problem, rng: np.random.Generator, shards: LocalShards
    ) -> LocalShards:
        """The next level: fewer clusters."""
        parting = self.parting
        state = {name: shards.gather(name) for name in ("dual", "own", "home", "drawn")}
        part = parting.numbers(problem, -(-len(shards) // parting.fan_in), rng)
        if parting.survivors:
            part = np.where(state["dual"] != 0.0, part, -1)
        return parting.scatter(problem, part, state, shards.traffic)


def _of_a_pass(level: Level, left: float | None, rough: bool, ahead: bool) -> Level:
    """What parts are told for now; ``left`` is when the time is over."""
    gap, most = (_NEARLY if ahead else _ROUGH) if rough else (0.0, level.stop.max_iter)
    stop = Stop(
        max(level.stop.tol, gap),
        min(level.stop.max_iter, most),
        None if left is None else max(left - time.perf_counter(), 1e-3),
    )
    return level._replace(stop=stop, rough=rough, least=_LOUD if rough else 0.0)


def _is_settled(before: np.ndarray, now: np.ndarray, tol: float) -> bool:
    """Whether the last merge hardly moved the machine: its margins on the sample.

    Squared, because the objective is: who moves by a tenth gains about a hundredth.  Objectives
    themselves tell less: losses of parts change from level to level, and rows wait.
    """
    moved = now - before if len(before) else now
    return len(before) > 0 and float(moved @ moved) <= tol * float(now @ now)


def _gathered(problem: Problem, shards: LocalShards, is_whole: bool) -> Model:
    """The model of rows that are all in one place: a number for each of them."""
    if is_whole:
        coef, dual, margin = (shards.gather(name) for name in ("coef", "dual", "margin"))
        return coef, dual, margin
    a = shards.gather("mean")
    return a * problem.y, a, np.full(problem.n, np.nan)


def elsewhere(shards: LocalShards, is_whole: bool) -> Model:
    """The model stays with the rows: see `levels.support`."""
    return _NONE, None, _NONE
