"""Trust-region Newton for a linear machine whose rows are in parts.

Problem   min_w P(w), as in `parted_newton`; losses with a slope everywhere
Update    conjugate gradients towards the Newton step, up to the border of a ball; w moves if P
          falls, and the ball grows or shrinks by how well the step kept its promise
Source    TRON of bqo.txt, section 4 (Zhuang et al. 2015, after Lin and More 1999); the rule for
          the ball is that of LIBLINEAR
Rounds    one for each conjugate-gradient step, and one for each point that is tried; one more
          where a point was worse and the parts go back
Bytes     8 (d+1) out and back for every part and round.  Margins and curvatures stay
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from optimargin.engines.local import LocalShards
from optimargin.problem import Points, Problem, Solution, Start, Stop
from optimargin.solvers.parted import answer, begun, here
from optimargin.solvers.parted_newton import Rounding, curve, stand
from optimargin.solvers.parting import Parting

_FORCING = 0.1  # share of the gradient that conjugate gradients may leave
_MOST = 200  # of their steps
_MOVE = 1e-4  # share of what was promised that makes w move
_POOR, _GOOD = 0.25, 0.75  # the same, at which the ball shrinks or may grow
_SHRINK, _HALVE, _GROW = 0.25, 0.5, 4.0  # times its radius
_SMALLEST = 1e-12  # radius, relative to the first


class Step(NamedTuple):
    """A step and what is left of the gradient of the quadratic model there."""

    p: np.ndarray
    residual: np.ndarray


@dataclass(frozen=True)
class TRON:
    """Trust-region Newton over an engine; ``seed`` decides which rows make a part."""

    seed: int
    parting: Parting
    name = "tron"

    def solve(self, problem: Problem, start: Start, stop: Stop) -> Solution:
        """The answer to the problem, with its traffic."""
        points = partial(self.points, start=start)
        return answer(points, problem, self.parting, stop, self.seed, name=self.name)

    def points(self, shards: LocalShards, start: Start) -> Points:
        """A point after each step that was tried."""
        w = begun(shards.whole, start)
        none = np.zeros_like(w)
        shards, (total, gradient, *_) = shards.step(stand, w, none, Rounding())
        at, rounds = here(w, (total, gradient)), 0
        radius = first = float(np.linalg.norm(at.gradient))
        while True:
            yield at.point(rounds)
            p, residual = inside(partial(shards.sum, curve), at.gradient, radius)
            lean, length = float(at.gradient @ p), float(np.linalg.norm(p))
            promised = -0.5 * (lean - float(p @ residual))
            shards, (total, gradient, *_) = shards.step(stand, at.w, p, Rounding())
            new = here(at.w + p, (total, gradient))
            gained = at.value - new.value
            if rounds == 0:
                radius = min(radius, length)
            radius = _radius(radius, length, lean, gained, promised)
            rounds += 1
            if gained > _MOVE * promised or _turned(new.gradient, at.gradient, gained):
                at = new
            elif radius <= _SMALLEST * first:
                return None
            else:
                shards, _ = shards.step(stand, at.w, none, Rounding())


def inside(curve: Callable[[np.ndarray], np.ndarray], g: np.ndarray, radius: float) -> Step:
    """About the p with (I + H) p = -g, or where the way there leaves the ball."""
    p, r = np.zeros_like(g), -g
    d, size = r.copy(), float(r @ r)
    goal = _FORCING**2 * size
    for _ in range(_MOST):
        if size <= goal:
            break
        Hd = d + curve(d)
        step = size / float(d @ Hd)
        if np.linalg.norm(p + step * d) > radius:
            step = _to_border(p, d, radius)
            return Step(p + step * d, r - step * Hd)
        p, r = p + step * d, r - step * Hd
        size, before = float(r @ r), size
        d = r + (size / before) * d
    return Step(p, r)


def _to_border(p: np.ndarray, d: np.ndarray, radius: float) -> float:
    """The t > 0 with |p + t d| = radius."""
    pd, dd, room = float(p @ d), float(d @ d), radius**2 - float(p @ p)
    root = float(np.sqrt(pd * pd + dd * room))
    return room / (pd + root) if pd >= 0.0 else (root - pd) / dd


def _turned(new: np.ndarray, old: np.ndarray, gained: float) -> bool:
    """Whether P is flat in this arithmetic, but its gradient is still smaller."""
    return gained > 0.0 or float(new @ new) < 1e-2 * float(old @ old)


def _radius(radius: float, length: float, lean: float, gained: float, promised: float) -> float:
    """The radius after a step: from the minimum of the parabola along it."""
    bend = -gained - lean
    t = _GROW if bend <= 0.0 else max(_SHRINK, -0.5 * lean / bend)
    if gained < _MOVE * promised:
        return min(max(t, _SHRINK) * length, _HALVE * radius)
    if gained < _POOR * promised:
        return max(_SHRINK * radius, min(t * length, _HALVE * radius))
    if gained < _GOOD * promised:
        return max(_SHRINK * radius, min(t * length, _GROW * radius))
    return max(radius, min(t * length, _GROW * radius))
