"""Scalable ODM: machines on parts of the rows, merged level by level.

Problem   min P of a kernel machine on n rows; on a part of m rows, the same with n/m times the
          losses, so that the parts' objectives have P as their mean:
          P(w) = sum_k (m_k/n) P_k(w), and the mean of their bounds is a bound of P
Update    every part is solved from where it stands, then neighbours become one part, until one is
          left or the gap is small enough.  What the levels know is the average of the parts'
          machines: a_i of the whole is a_i of its part times m_k/n
Source    sodm.txt, Algorithm 1; math.md section 4.  The rules of ``merge``:
          rescaled     a part's a_i times m_k/m of the part it becomes: its share of the average
          blend        ours: the best combination of the machines that meet, in their dual
          concatenate  as printed, without the factor: starts p times too far
          same         losses are those of the whole in every part, and nothing is rescaled: what
                       cascade, DC and DiP do
          Cascade, DC and DiP are other partitions; ``survivors`` leaves rows behind whose a_i is 0
Cost      a level of K parts computes n^2/K kernel values and sends settings; a merge moves rows.
          Its gap is found on a sample of s rows, which costs s n values and sends s numbers:
          given w = w(a) the gap is a sum over rows, so the share of the sample tells.  When a
          merge no longer lowers the objective of the sample, it was the last
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from optimargin.blend import best_blend
from optimargin.engines.local import LocalShards, Part, State
from optimargin.expansion import Expansion
from optimargin.gram import Gram, make_gram, raised
from optimargin.kernels import Kernel
from optimargin.loss import Loss, is_smooth, is_unbounded, row_gap, scaled, value
from optimargin.problem import (
    Point,
    Problem,
    Round,
    Solution,
    Start,
    Status,
    Stop,
    drive,
    relative_gap,
)
from optimargin.solvers.dcd import DCD
from optimargin.solvers.kernel_newton import KernelNewton, is_faster
from optimargin.solvers.parting import Parting

MERGES = ("auto", "rescaled", "blend", "concatenate", "same")
_SAMPLE = 4096  # rows on which a level's gap is found
_ROUGH = 0.01  # relative gap of parts that will be merged
_WORTH = 1e-3  # relative gain for which the search for the best blend goes on


class Level(NamedTuple):
    """What every part is told: the kernel, how rows were merged, when to stop."""

    kernel: Kernel
    shift: float
    total: float  # weight of all rows
    merge: str
    limit: int  # bytes for a part's kernel matrix
    stop: Stop
    seed: int


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
        began, paused, rounds = time.perf_counter(), 0.0, 0
        rng, merge = np.random.default_rng(self.seed), parting.rule
        count = parting.parts_of(problem)
        part = parting.numbers(problem, count, rng)
        sample = np.sort(rng.permutation(problem.n)[:_SAMPLE])
        dual = np.zeros(problem.n) if start.dual is None else start.dual
        dual = dual * (1 if merge == "same" else count)
        state = {"dual": dual, "own": dual, "home": part}
        shards = parting.scatter(problem, part, state)
        level = Level(gram.kernel, gram.shift, _weight(problem), merge, 0, stop, self.seed)
        history: list[Round] = []
        while True:
            rounds += 1
            is_last = len(shards) == 1 or rounds == parting.levels
            left = None if stop.time_limit is None else began + stop.time_limit
            level = level._replace(
                limit=gram.limit // min(problem.threads, len(shards)),
                stop=Stop(
                    stop.tol if is_last else max(stop.tol, _ROUGH),
                    stop.max_iter,
                    None if left is None else max(left - time.perf_counter(), 1e-3),
                ),
            )
            shards, (unfinished, indefinite) = shards.step(_train, level)
            seconds = time.perf_counter() - began - paused
            point = _look(problem, shards, sample, level)._replace(rounds=rounds)
            gap = relative_gap(point.primal, point.bound)
            history.append(Round(rounds, point.primal, gap, seconds))
            asked = stop.callback is not None and stop.callback(history[-1], point)
            paused = time.perf_counter() - began - seconds
            if indefinite:
                status = Status.INDEFINITE
            elif gap <= stop.tol:
                status = Status.CONVERGED
            elif asked:
                status = Status.CALLBACK
            elif left is not None and time.perf_counter() >= left:
                status = Status.TIME_LIMIT
            elif rounds == parting.levels or _is_settled(history, stop.tol):
                status = Status.LEVELS
            elif len(shards) == 1:  # of survivors the gap with the whole says little
                status = Status.MAX_ITER if unfinished else Status.LEVELS
            else:
                shards = self._merged(problem, shards, rng)
                continue
            break
        return Solution(
            point.coef,
            point.dual,
            point.margin,
            point.primal,
            point.bound,
            status,
            rounds,
            self.name,
            history,
            shards.traffic.seen,
        )

    def _merged(
        self, problem: Problem, shards: LocalShards, rng: np.random.Generator
    ) -> LocalShards:
        """The next level: neighbours together, or fewer clusters."""
        parting = self.parting
        if parting.how != "kmeans":
            return shards.merge(parting.fan_in, "dual" if parting.survivors else None)
        state = {name: shards.gather(name) for name in ("dual", "own", "home")}
        part = parting.numbers(problem, -(-len(shards) // parting.fan_in), rng)
        if parting.survivors:
            part = np.where(state["dual"] != 0.0, part, -1)
        return parting.scatter(problem, part, state, shards.traffic)


def _is_settled(history: list[Round], tol: float) -> bool:
    """Whether the last merge hardly improved the objective; that of the same sample of rows."""
    if len(history) < 2:
        return False
    before, now = history[-2].objective, history[-1].objective
    return 0.0 <= before - now <= tol * abs(now)


def _weight(problem: Problem) -> float:
    return float(problem.n if problem.weight is None else problem.weight.sum())


def _train(part: Part, level: Level) -> tuple[State, tuple[int, int]]:
    """The machine of a part, from where its pieces stand; and what went wrong."""
    problem, state = part.problem, part.state
    weight = _weight(problem)
    share = level.total / weight if level.merge != "same" and weight > 0.0 else 1.0
    gram = make_gram(level.kernel, problem.X, problem.bias, level.limit, problem.threads)
    local = replace(problem, loss=scaled(problem.loss, share), gram=raised(gram, level.shift))
    smooth = is_smooth(problem.loss)
    solver = KernelNewton(level.seed) if smooth and is_faster(local) else DCD(level.seed)
    found = drive(solver.points(local, _begin(local, state, level.merge)), level.stop)
    dual = found.coef * problem.y if found.dual is None else found.dual
    home = np.full(problem.n, state["home"].min())
    losses = local.losses  # a better machine than that of the dual variables, and feasible too
    own = np.clip(found.coef * problem.y, losses.a_min, losses.a_max) if smooth else dual
    new = {"dual": dual, "own": own, "mean": own / share, "home": home}
    new |= {"coef": found.coef, "margin": found.margin, "gap": np.full(problem.n, found.gap)}
    status = found.status
    return new, (int(status is Status.MAX_ITER), int(status is Status.INDEFINITE))


def _begin(local: Problem, state: State, merge: str) -> Start:
    """Where the pieces of a part stand together: dual variables, and a better machine beside."""
    dual, own, gram = state["dual"], state["own"], local.gram
    assert gram is not None
    if not dual.any():
        return Start()
    homes, home = np.unique(state["home"], return_inverse=True)
    if len(homes) > 1 and merge in ("rescaled", "blend"):
        weight = np.ones(local.n) if local.weight is None else local.weight
        share = (np.bincount(home, weight) / weight.sum())[home]
        dual, own = dual * share, own * share
        if merge == "blend" and is_unbounded(local.loss):
            pieces = home == np.arange(len(homes))[:, None]
            dual = _blended(local, gram, np.where(pieces, dual, 0.0), is_dual=True)
            own = _blended(local, gram, np.where(pieces, own, 0.0), is_dual=False)
    return Start(own * local.y, dual)


def _blended(local: Problem, gram: Gram, A: np.ndarray, is_dual: bool) -> np.ndarray:
    """The best combination of machines, in the dual objective or in the primal one."""
    U = np.stack([local.y * gram.apply(a * local.y) for a in A])
    G = A @ U.T
    worth = _WORTH * abs(float(G.sum()))
    c, _ = best_blend(local.loss, local.weight, is_dual, G, A if is_dual else U, worth)
    return c @ A


def _look(problem: Problem, shards: LocalShards, sample: np.ndarray, level: Level) -> Point:
    """The machine of a level, its objective and its bound: exact, or by the sample."""
    n = problem.n
    if shards.sizes == [n]:
        coef, dual, margin = (shards.gather(name) for name in ("coef", "dual", "margin"))
        norm2, losses = float(coef @ (problem.y * margin)), problem.losses
        primal = 0.5 * norm2 + float(value(losses, margin).sum())
        gap = shards.gather("gap")[0]
        return Point(coef, dual, margin, primal, primal - gap * abs(primal), 0)
    a = shards.gather("mean")
    f = shards.sum(_scores, level, problem.X[sample])
    u, some, own = problem.y[sample] * f, a[sample], _losses(problem, sample)
    u += level.shift * some
    each = n * (0.5 * some * u + value(own, u))
    primal = float(each.mean())
    best = primal - n * float(row_gap(own, some, u).mean())
    return Point(a * problem.y, a, np.full(n, np.nan), primal, best, 0)


def _losses(problem: Problem, rows: np.ndarray) -> Loss:
    return problem.loss if problem.weight is None else scaled(problem.loss, problem.weight[rows])


def _scores(part: Part, level: Level, Z: Any) -> np.ndarray:
    """What the rows of a part add to the scores of Z in the level's machine."""
    problem, b = part.problem, part.state["mean"] * part.problem.y
    keep = np.flatnonzero(b)
    over = Expansion(level.kernel, problem.X[keep], b[None, keep], problem.X.dtype)
    return over.scores(Z, problem.threads)[:, 0] + problem.bias**2 * b.sum()
