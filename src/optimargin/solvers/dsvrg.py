"""Stochastic gradients with variance reduction, one part of the rows after the other.

Problem   min_w P(w) = mean over i of P_i(w), as in `svrg`; the rows are in stratified parts
Update    all parts find the gradient at a reference; then one part takes the steps of `walk`
          over its own rows and hands w on to the next one
Source    sodm.txt, Algorithm 2.  The length of steps needs no tuning: see `walk`; a reference
          that is worse than the last is taken back.  Ours: a row comes in a pass of its part as
          often as its smoothness asks for, up to one time, so where all rows have the same norm
          this is sampling without replacement; and one part moves after a gradient, then twice as
          many whenever the last ones gained too little, up to two passes over all rows.  Where
          that leads is a trial; the next reference is the best point of the plane through it
          along this step and the last, by one step of Newton's method in two dimensions.  Steps
          of stochastic gradients alone zigzag where n is small beside the condition; with the
          last one beside them they are about those of conjugate gradients
Rounds    2 + the number of parts that move, for each reference
Bytes     8 (d+1) out and back for every part at a trial, and back at a reference; 16 (d+1) out and
          8 (d+1) back for a part that moves.  Margins and chances stay
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from optimargin.engines.local import LocalShards, Part, State
from optimargin.problem import Points, Problem, Solution, Start, Status, Stop
from optimargin.solvers.parted import Here, answer, begun, here, own, see
from optimargin.solvers.parting import Parting
from optimargin.solvers.passes import margins, pull
from optimargin.solvers.walk import FIRST, SHORTEST, longer, smoothness, walk

_WORTH = 0.5  # of the squared gradient that a reference may leave
_OFTEN = 1e4  # times a way may be gone
_SAME = 1e-10  # share of the squared area of two ways below which they are one


class Gait(NamedTuple):
    """Length of a step, how many parts move after a gradient, and which part is next."""

    eta: float
    turns: int = 1
    next: int = 0


class Pace(NamedTuple):
    """What a part has to know of all rows: their number and smoothness, the step, a seed."""

    n: int
    total: float
    eta: float
    seed: tuple[int, ...]


class Field(NamedTuple):
    """Parts that know the smoothness of their rows; the number of these, and the sum of those."""

    shards: LocalShards
    n: int
    total: float


Descent = Generator[tuple[Here, Gait], None, Status | None]


@dataclass(frozen=True)
class DSVRG:
    """Distributed SVRG; ``seed`` decides which rows make a part, and their order."""

    seed: int
    parting: Parting
    name = "dsvrg"

    def solve(self, problem: Problem, start: Start, stop: Stop) -> Solution:
        """The answer to the problem, with its traffic."""
        points = partial(self.points, start=start)
        return answer(points, problem, self.parting, stop, self.seed, name=self.name)

    def points(self, shards: LocalShards, start: Start) -> Points:
        """A point at each reference."""
        w = begun(shards.whole, start)
        steps = descent(weighed(shards), w, self.seed)
        rounds = 0
        while True:
            try:
                at, _ = next(steps)
            except StopIteration as end:
                return end.value
            yield at.point(rounds)
            rounds += 1


def weighed(shards: LocalShards) -> Field:
    """The parts, ready for a descent."""
    n = shards.whole.n
    shards, total = shards.step(_weigh, n)
    return Field(shards, n, float(total))


def descent(
    field: Field,
    w: np.ndarray,
    seed: int,
    gradient: np.ndarray | None = None,
    gait: Gait | None = None,
) -> Descent:
    """References one after the other; one that was taken back comes again.

    Where the ``gradient`` at w is to be another one, the objective has a linear term more.
    """
    shards, n, total = field
    smooth = total / n
    eta, turns, k = Gait(FIRST / smooth) if gait is None else gait
    shards, told = shards.step(see, w)
    at, stage, last = here(w, told), 0, np.zeros_like(w)
    extra = np.zeros_like(w) if gradient is None else gradient - at.gradient
    at = _with(extra, at)
    while True:
        yield at, Gait(eta, turns, k)
        trial, D = at.w, at.gradient - at.w
        for j in range(k, k + turns):
            pace = Pace(n, total, eta, (seed, stage, j))
            trial = shards.turn(j % len(shards), _stroll, trial, D, pace)
        after, (total_loss, pulled, curves) = shards.step(_meet, trial)
        new = _with(extra, here(trial, (total_loss, pulled)))
        stage, k = stage + 1, (k + turns) % len(shards)
        if new.value < at.value:
            count = max(turns * n // len(shards), 1)
            eta = longer(eta, trial - at.w, new.gradient - at.gradient, count, smooth)
        ways = np.stack([trial - at.w, last])
        x = _lowest(ways @ ways.T + curves, ways @ new.gradient)
        moved, told = after.step(_move, x)
        better = _with(extra, here(trial + x @ ways, told))
        if better.value < new.value:
            new, after = better, moved
        elif new.value < at.value:
            after, _ = after.step(_move, np.zeros(2))
        if not new.value < at.value:
            eta *= 0.5
            if eta < SHORTEST / smooth:
                return None
            continue
        if new.gradient @ new.gradient > _WORTH * (at.gradient @ at.gradient):
            turns = min(2 * turns, 2 * len(shards))
        last, shards, at = new.w - at.w, after, new


def systematic(often: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """How many times each row comes: ``often`` rounded up or down, right in the mean.

    Neighbours make up for each other, so any run of rows comes as often as it should, up to one.
    """
    ends = np.floor(np.cumsum(often) + rng.random()).astype(np.intp)
    return np.diff(ends, prepend=0)


def _lowest(H: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Where the parabola g.x + 1/2 x'H x is least, along ways that are worth going.

    One way where both are the same; none that would be gone so often that its rounding shows.
    """
    x = np.zeros(2)
    if np.linalg.det(H) > _SAME * H[0, 0] * H[1, 1]:
        x = -np.linalg.solve(H, g)
    elif H[0, 0] > 0.0:
        x[0] = -g[0] / H[0, 0]
    return np.where(np.abs(x) < _OFTEN, x, 0.0)


def _with(extra: np.ndarray, at: Here) -> Here:
    return at._replace(value=at.value + float(extra @ at.w), gradient=at.gradient + extra)


def _weigh(part: Part, n: int) -> tuple[State, float]:
    """Note the smoothness of every row; their sum."""
    each = smoothness(own(part), n)
    return {**part.state, "smooth": each}, float(each.sum())


def _meet(part: Part, w: np.ndarray) -> tuple[State, tuple[float, np.ndarray, np.ndarray]]:
    """The losses of a part at a trial, their gradient, and their curvature along two ways.

    The ways are from the reference to the trial, and the last step; margins stay.
    """
    problem, state = own(part), part.state
    u = margins(problem, w)
    found, way = pull(problem, u), u - state["margin"]
    ways = np.stack([way, state.get("step", np.zeros_like(u))])
    curves = (ways * found.curvature) @ ways.T
    return {**state, "trial": u, "way": way}, (found.total, found.gradient, curves)


def _move(part: Part, x: np.ndarray) -> tuple[State, tuple[float, np.ndarray]]:
    """Go so far along both ways from the trial: the losses there and their gradient.

    Margins go along, so no score is computed anew.
    """
    problem, state = own(part), dict(part.state)
    before, way, u = state["margin"], state.pop("way"), state.pop("trial")
    u = u + x[0] * way + x[1] * state.get("step", np.zeros_like(way))
    found = pull(problem, u)
    return {**state, "margin": u, "step": u - before}, (found.total, found.gradient)


def _stroll(part: Part, w: np.ndarray, D: np.ndarray, pace: Pace) -> np.ndarray:
    """Where a pass over the rows of a part leads from w."""
    rng = np.random.default_rng(pace.seed)
    chance = part.state["smooth"] / pace.total
    drawn = np.repeat(np.arange(len(chance)), systematic(pace.n * chance, rng))
    rng.shuffle(drawn)
    return walk(own(part), w, D, part.state["margin"], chance, drawn, eta=pace.eta)
