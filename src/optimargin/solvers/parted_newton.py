"""Newton's method for a linear machine whose rows are in parts.

Problem   min_w P(w), as in `newton`
Update    the same step p, then w + t p, where the slope along p is about zero
Source    `newton`, with a line search that asks for slopes; ours: the start from many rows is
          the average of machines, each found on a sixteenth of a part
Rounds    a step takes two: [1] p goes out, every part notes how its margins would change, and
          the slope of its losses at w + p comes back; [2] t goes out, gradient and Hessian of
          the losses at w + t p come back.  Where t = 1 is not good enough, one more for each t
          that is tried; where d is large no Hessian comes back, and one more for each
          conjugate-gradient step
Bytes     8 (d+1) out and 8 (d+1) (d+2)/2 + 8 (d+1) back for every part and step; with conjugate
          gradients 8 (d+1) out and back in each of their rounds.  Margins and curvatures stay
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from optimargin.engines.local import LocalShards, Part, State
from optimargin.linesearch import along, valley
from optimargin.loss import scaled
from optimargin.problem import Points, Problem, Solution, Start, Stop
from optimargin.solvers.newton import (
    Newton,
    conjugate_gradients,
    has_pilot,
    hessian,
    is_direct,
    solved,
)
from optimargin.solvers.parted import Here, answer, begun, here
from optimargin.solvers.parting import Parting
from optimargin.solvers.passes import curved, margins, pull

Told = tuple[float, np.ndarray, np.ndarray]  # losses, their gradient, their Hessian packed


@dataclass(frozen=True)
class PartedNewton:
    """Newton's method over an engine; ``seed`` decides which rows make a part."""

    seed: int
    parting: Parting
    direct: bool | None = None
    name = "newton"

    def solve(self, problem: Problem, start: Start, stop: Stop) -> Solution:
        """The answer to the problem, with its traffic."""
        points = partial(self.points, start=start)
        return answer(points, problem, self.parting, stop, self.seed, name=self.name)

    def points(self, shards: LocalShards, start: Start) -> Points:
        """A point after each Newton step."""
        whole = shards.whole
        direct = self.direct
        if direct is None:
            direct = is_direct(whole.d, whole.limit / len(shards))
        w = begun(whole, start)
        if start.coef is None and has_pilot(whole):
            w = shards.sum(_pilot, whole.n, self.seed)
        shards, (total, gradient, packed) = shards.step(stand, w, direct)
        at, rounds, forcing = here(w, (total, gradient)), 0, 0.1
        while True:
            yield at.point(rounds)
            if direct:
                p = -solved(_unpacked(packed, len(w)), at.gradient)
            else:
                p = -conjugate_gradients(partial(shards.sum, curve), at.gradient, forcing)
            shards, t = _step(shards, at, p)
            shards, (total, gradient, packed) = shards.step(_go, t, direct)
            new = here(at.w + t * p, (total, gradient))
            progress = float(np.linalg.norm(new.gradient) / np.linalg.norm(at.gradient))
            if not (new.value < at.value or progress < 1.0):
                return None
            forcing = min(0.1, forcing * float(np.sqrt(progress)))
            at = new
            rounds += 1


def _step(shards: LocalShards, at: Here, p: np.ndarray) -> tuple[LocalShards, float]:
    """How far to go along p, and the parts ready to go."""
    shards, at_one = shards.step(_aim, p)
    lean, size = float(at.w @ p), float(p @ p)

    def slope(t: float) -> float:
        losses = at_one if t == 1.0 else shards.sum(_slope, t)
        return lean + t * size + float(losses)

    return shards, valley(slope, float(at.gradient @ p))


def stand(part: Part, w: np.ndarray, direct: bool) -> tuple[State, Told]:
    """Begin at w."""
    return _look(part, margins(part.problem, w), direct)


def _aim(part: Part, p: np.ndarray) -> tuple[State, float]:
    """Note how margins change along p; the slope of the losses after a whole step."""
    aimed = part._replace(state={**part.state, "change": margins(part.problem, p)})
    return aimed.state, _slope(aimed, 1.0)


def _slope(part: Part, t: float) -> float:
    """The slope of the losses at w + t p."""
    problem, state = part.problem, part.state
    first, _ = along(problem.loss, problem.weight, state["margin"], state["change"], t)
    return float(first)


def _go(part: Part, t: float, direct: bool) -> tuple[State, Told]:
    """Go on to w + t p."""
    return _look(part, part.state["margin"] + t * part.state["change"], direct)


def _look(part: Part, u: np.ndarray, direct: bool) -> tuple[State, Told]:
    problem, found = part.problem, pull(part.problem, u)
    packed = np.zeros(0)
    if direct:
        packed = hessian(problem, found.curvature)[np.tril_indices(problem.d + 1)]
    state = {"margin": u, "curvature": found.curvature}
    return state, (found.total, found.gradient, packed)


def _unpacked(packed: np.ndarray, size: int) -> np.ndarray:
    H = np.zeros((size, size))
    H[np.tril_indices(size)] = packed
    return H


def curve(part: Part, v: np.ndarray) -> np.ndarray:
    """The Hessian of the losses times v."""
    return curved(part.problem, part.state["curvature"], v)


def _pilot(part: Part, n: int, seed: int) -> np.ndarray:
    """A part's share in the average of machines on a few rows of every part."""
    share = part.problem.n / n
    local = replace(part.problem, loss=scaled(part.problem.loss, 1.0 / share))
    return share * Newton(seed).pilot(local)
