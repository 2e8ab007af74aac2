"""The dual of a linear machine by block-diagonal steps, one block for each part.

Problem   min_a f(a) = 1/2 |w(a)|^2 + sum_i psi_i(a_i), minus the dual objective of all rows
Update    every part finds, by sweeps over its own rows, a direction d that lowers
          g.d + 1/2 d'Hd with H block-diagonal, inside the bounds of a + d; then a <- a + eta d,
          w <- w + eta w(d), the same eta for all
Source    bqo.txt: equations (5) to (7), and for eta
            line     (20) and (21), the best feasible step; H = Q~ + tau I
            armijo   (12) with beta = 1/2, sigma = 1/10, gamma = 0; the same H
            average  1 / K with K parts: DSVM-AVE; H = Q~
            add      1: DisDCA in its practical form, and CoCoA+; H = K Q~
          where psi's own curvature is part of H throughout.  Ours: the ODM, whose psi has a kink
          at zero, by the exact minimum over the pieces (`dual_line`); and
            exact    the best step in the plane of d and of the last step (`dual_plane`), which
                     takes a tenth of the rounds, and blends of models (`pocket`).  Where a kink
                     made f rise, steps are along d until it is below what it was.  It begins with
                     the dual variables of the parts' own machines, divided by their number: where
                     parts have many rows, that is nearly the answer
Rounds    one for each step; it applies the last one, judges w, and finds the next direction.  A
          start from a model takes one more, and so do the parts' own machines
Bytes     8 (d+1) out and back for every part, a few numbers more, and 2.3 kB back with the ODM;
          exact: 8 (d+1) back once more, for what bounds cut off the last step, but not with the
          ODM, which has none.  Dual variables stay
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from optimargin.engines.local import LocalShards, Part, State
from optimargin.loss import is_smooth, is_unbounded, scaled
from optimargin.problem import Point, Points, Problem, Solution, Start, Stop, drive
from optimargin.solvers.dcd import DCD
from optimargin.solvers.dual_line import Descent, Least, line
from optimargin.solvers.dual_plane import FAR, again, best, plane
from optimargin.solvers.parted import NOWHERE, answer, begin
from optimargin.solvers.parting import Parting
from optimargin.solvers.passes import margins
from optimargin.solvers.pocket import Pocket, judged
from optimargin.solvers.sweeps import Metric, certificate, model, sweep, variables

_TAU = 1e-3  # of (6), for losses whose psi has no curvature
_SHRINK, _SHARE = 0.5, 0.1  # beta and sigma of (12)
_ALONE = Stop(tol=1e-2, max_iter=10)  # of a part's own machine, where all begin
_NAMES = {"average": "dsvm-ave", "add": "disdca"}

Lengths = tuple[float, float]  # along the direction, and along the last step
Beside = tuple[Any, ...]  # of "exact": losses at blends; what bounds cut off; sums of the plane
Told = tuple[float, float, np.ndarray, np.ndarray, Least, Beside]  # losses, gap, w(d), the line


@dataclass(frozen=True)
class BQO:
    """Block-diagonal steps; ``seed`` decides which rows make a part, and their order.

    ``rule`` is one of the five above; ``sweeps`` is how many find a direction.
    """

    seed: int
    parting: Parting
    rule: str = "exact"
    sweeps: int = 1

    @property
    def name(self) -> str:
        """What the papers call it."""
        return _NAMES.get(self.rule, "bqo")

    def solve(self, problem: Problem, start: Start, stop: Stop) -> Solution:
        """The answer to the problem, with its traffic."""
        points = partial(self.points, start=start)
        return answer(points, problem, self.parting, stop, self.seed, name=self.name)

    def points(self, shards: LocalShards, start: Start) -> Points:
        """A point after each step."""
        metric, w, rounds = self._metric(shards), np.zeros(shards.whole.d + 1), 0
        if start.coef is not None:
            at = start.coef.astype(np.float64)
            shards, (total, w) = shards.step(begin, at)
            primal, away = 0.5 * float(at @ at) + float(total), at - w
            yield Point(at, None, NOWHERE, primal, primal - 0.5 * float(away @ away), 0)
        elif self.rule == "exact" and len(shards) > 1:
            shards, w = shards.step(_alone, len(shards), self.seed)
            rounds = 1
        pocket, highest = Pocket(w, w), -np.inf
        lengths, move = (0.0, 0.0), np.zeros_like(w)
        while True:
            share = pocket.share if self.rule == "exact" else None
            asked = metric, self.sweeps, (self.seed, rounds), share
            shards, (total, gap, *told, beside) = shards.step(_advance, w, lengths, *asked)
            primal = 0.5 * float(w @ w) + float(total)
            bound = primal - float(gap)
            pocket = pocket.after(w, beside[0]) if beside else Pocket(w, w, primal)
            yield Point(pocket.w, None, NOWHERE, pocket.value, bound, rounds)
            descent = Descent(w, *told)
            lengths, p = (self._length(descent, len(shards)), 0.0), told[0]
            if not lengths[0] > 0.0:
                return None
            if beside and move.any() and bound >= highest:
                s = FAR * move + beside[1]
                lengths = _in_plane(descent, w, p, s, beside[2], lengths)
                move = lengths[0] * p + lengths[1] * s
            else:
                move = lengths[0] * p
            w, highest, rounds = w + move, max(highest, bound), rounds + 1

    def _metric(self, shards: LocalShards) -> Metric:
        if self.rule == "add":
            return Metric(float(len(shards)))
        searched = self.rule != "average" and not is_smooth(shards.whole.loss)
        return Metric(1.0, _TAU if searched else 0.0)

    def _length(self, descent: Descent, parts: int) -> float:
        if self.rule in ("exact", "line"):
            return descent.exact()
        if self.rule == "armijo":
            return descent.armijo(_SHRINK, _SHARE)
        return 1.0 if self.rule == "add" else 1.0 / parts


def _alone(part: Part, K: int, seed: int) -> tuple[State, np.ndarray]:
    """The dual variables of a part's own machine, as if there were K of its kind, over K."""
    problem = replace(part.problem, loss=scaled(part.problem.loss, float(K)))
    found = drive(DCD(seed).points(problem, Start()), _ALONE)
    assert found.dual is not None
    a = found.dual / K
    return {"dual": a}, model(part.problem, a)


def _in_plane(
    descent: Descent,
    w: np.ndarray,
    p: np.ndarray,
    s: np.ndarray,
    sums: np.ndarray,
    on_line: Lengths,
) -> Lengths:
    """The best step in the plane of p and s, unless that on the line is better."""
    slopes = np.array([descent.slope[0], w @ s + sums[0]])
    cross = float(p @ s + sums[1])
    found = best(slopes, np.array([[descent.curve[0], cross], [cross, s @ s + sums[2]]]))
    if found.promised > -descent.change(on_line[0]):
        return found.along, found.again
    return on_line


def _advance(
    part: Part,
    w: np.ndarray,
    lengths: Lengths,
    metric: Metric,
    sweeps: int,
    seed: tuple[int, int],
    share: float | None,
) -> tuple[State, Told]:
    """Go on by these lengths to where the model is w, and look for the next direction.

    ``share`` is that of the pocket, where there is one.
    """
    problem, state = part.problem, part.state
    q, a = variables(problem, state)
    losses, move = problem.losses, np.zeros(problem.n)
    if any(lengths):
        move = lengths[0] * state["change"]
        if lengths[1]:
            move += lengths[1] * state["last"]
        a = np.clip(a + move, losses.a_min, losses.a_max)  # as rounding may not
    u = margins(problem, w)
    total, gap = certificate(problem, a, u)
    v, rng = w.copy(), np.random.default_rng(seed)
    d = sweep(problem, q, a, v, metric, rng, times=sweeps) - a
    pieces, reach = line(problem, a, d)
    left: State = {"dual": a, "change": d, "sqnorm": q}
    beside: Beside = ()
    if share is not None:
        kept, totals = judged(problem, state, u, share)
        s, cut = again(problem, a, move)
        lack = 0.0 if is_unbounded(problem.loss) else model(problem, cut)
        left |= {"last": s, **kept}
        beside = totals, lack, plane(problem, a, d, s)
    return left, (total, gap, (v - w) / metric.sigma, pieces, reach, beside)
